#!/bin/bash
# A system bus and a systemd-logind of a test's own: `logind.sh bus DIR` and `logind.sh logind DIR` become one of them (their process
# is this one) and go on until they are ended. Needs root.
#
# They know only each other: the bus listens on DIR/bus, and this logind speaks to systemd on that bus, where a stub of the test
# stands for it (tests/support/logind.rs). Its /run is DIR/run, so that it knows its locks again when it is started again; its
# /dev and its state are empty. What it may not do is taken from it: nothing can really be powered off. It reads its drop-ins
# from DIR/logind.conf.d.
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
	die "no systemd-logind here (tests/lab/install.sh logind)"
}

case $1 in
bus)
	have dbus-daemon || die "no dbus-daemon in PATH (tests/lab/install.sh logind)"
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
	# What a killed one has left: it does not take its own socket away.
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
		# Whatever this machine has set is not meant for the test.
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
