#!/bin/bash
# A private system bus and a private systemd-logind for a test: `logind.sh bus DIR` and `logind.sh logind DIR` exec one of them,
# which runs until it is stopped. Needs root.
#
# They are connected only to each other. The bus listens on DIR/bus. logind calls systemd on that bus, where a stub of the test
# answers (tests/support/logind.rs). logind's /run is DIR/run, so that a restarted logind finds its locks. Its /dev and its state
# are empty. It lacks the capabilities to power anything off. It reads its drop-ins from DIR/logind.conf.d.
set -euo pipefail
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/common.sh"

usage='usage: logind.sh bus|logind DIR'
[ $# = 2 ] || die "$usage"
[ "$(id -u)" = 0 ] || die "needs root"
dir=$(readlink -m "$2")
mkdir -p "$dir/logind.conf.d"

logind_binary() {
	local b
	for b in /usr/lib/systemd/systemd-logind /lib/systemd/systemd-logind; do
		if [ -x "$b" ]; then
			printf '%s\n' "$b"
			return 0
		fi
	done
	die "systemd-logind not found (install it with tests/lab/install.sh logind)"
}

case $1 in
bus)
	have dbus-daemon || die "dbus-daemon not found in PATH (install it with tests/lab/install.sh logind)"
	cat >"$dir/bus.conf" <<-END
		<busconfig>
		  <type>system</type>
		  <listen>unix:path=$dir/bus</listen>
		  <auth>EXTERNAL</auth>
		  <policy context="default">
		    <allow user="*"/>
		    <allow own="*"/>
		    <allow send_destination="*"/>
		    <allow receive_sender="*"/>
		  </policy>
		  <limit name="max_message_unix_fds">64</limit>
		</busconfig>
	END
	# Leftover of a previous run: a killed dbus-daemon does not remove its socket.
	rm -f "$dir/bus"
	exec dbus-daemon --config-file="$dir/bus.conf" --nofork --nopidfile --nosyslog
	;;
logind)
	binary=$(logind_binary)
	# shellcheck disable=SC2016
	inside='
		set -eu
		dir=$1 binary=$2
		mkdir -p "$dir/run"
		mount --bind "$dir/run" /run
		for d in inhibit seats sessions users shutdown machines system logind.conf.d; do mkdir -p "/run/systemd/$d"; done
		mount --bind "$dir/logind.conf.d" /run/systemd/logind.conf.d
		# Hide the settings of this machine from the test.
		if [ -d /etc/systemd/logind.conf.d ]; then mount -t tmpfs tmpfs /etc/systemd/logind.conf.d; fi
		mkdir -p /var/lib/systemd
		mount -t tmpfs tmpfs /var/lib/systemd
		mkdir /var/lib/systemd/linger
		mkdir -p "$dir/dev"
		mount -t tmpfs -o mode=755 tmpfs "$dir/dev"
		for d in null zero full random urandom; do
			: >"$dir/dev/$d"
			mount --bind "/dev/$d" "$dir/dev/$d"
		done
		mount --rbind "$dir/dev" /dev
		cd /
		exec setpriv --bounding-set=-sys_boot,-sys_module,-sys_rawio,-sys_time --no-new-privs "$binary"
	'
	DBUS_SYSTEM_BUS_ADDRESS="unix:path=$dir/bus" exec unshare --mount --propagation private --net --uts --ipc \
		sh -c "$inside" sh "$dir" "$binary"
	;;
*) die "$usage" ;;
esac
