#!/bin/bash
# Runs a command in private mount, PID and network namespaces: `isolate.sh COMMAND...`. Needs root.
#
# However the command ends, none of its processes, mounts, bridges or firewall rules remain. Its cgroups, which have no
# namespace here, are below one parent, WHERRY_LAB_CGROUP in its environment, and its files are in one directory,
# WHERRY_LAB_DIR. Both are removed afterwards; those of a killed run are removed by the next run. /run is empty inside.
set -euo pipefail
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/common.sh"

[ $# -gt 0 ] || die "usage: isolate.sh COMMAND..."
[ "$(id -u)" = 0 ] || die "needs root"
for tool in unshare setpriv ip; do have "$tool" || die "$tool not found in PATH (install it with tests/lab/install.sh)"; done

# The names contain the pid of this process. Not in /tmp: it may be a tmpfs, and image layers need a real disk.
PREFIX=wherry-test-
PLACE=/var/tmp
while read -r mount; do
	for stale in "$mount/$PREFIX"*; do
		if [ -d "$stale" ] && [ ! -d "/proc/${stale##*"$PREFIX"}" ]; then
			case $mount in
			"$PLACE") rm -rf "$stale" ;;
			*) remove_cgroups "${stale##*/}" ;;
			esac
		fi
	done
done < <(cgroup_mounts; echo "$PLACE")

export WHERRY_LAB_CGROUP=/$PREFIX$$
export WHERRY_LAB_DIR=$PLACE/$PREFIX$$
export WHERRY_LAB_ISOLATED=1
mkdir -m 755 "$WHERRY_LAB_DIR"
child=
# shellcheck disable=SC2317 # called by the trap
finish() {
	trap '' INT TERM HUP
	if [ -n "$child" ]; then kill -KILL "$child" 2>/dev/null || true; fi
	remove_cgroups "$WHERRY_LAB_CGROUP"
	rm -rf "$WHERRY_LAB_DIR"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# shellcheck disable=SC2016
inside='
	set -eu
	ip link set lo up
	# The address of the node: the source address towards a documentation range (net/addresses).
	ip addr add 192.0.2.2/32 dev lo
	ip route add 192.0.2.1/32 dev lo src 192.0.2.2
	resolv=$(cat /etc/resolv.conf 2>/dev/null || true)
	target=$(readlink -m /etc/resolv.conf)
	mount -t tmpfs -o mode=755 tmpfs /run
	mkdir -p /run/lock
	# A link into /run would now be dangling, and a runtime copies this file for each pod.
	case $target in /run/*) mkdir -p "${target%/*}"; printf "%s\n" "$resolv" >"$target" ;; esac
	exec "$@"
'
# If this shell is killed, unshare is killed too, and with it everything in the namespaces.
setpriv --pdeathsig KILL unshare --pid --mount --net --fork --kill-child --mount-proc --propagation private \
	sh -c "$inside" sh "$@" <&0 &
child=$!
status=0
wait "$child" || status=$?
child=
exit "$status"
