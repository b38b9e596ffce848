#!/bin/bash
# Runs a command that runs programs of another architecture: `foreign.sh arm64 COMMAND...`. Needs root.
#
# The kernel starts such a program with an emulator that is registered by its first bytes. A user namespace has registrations of its
# own (Linux 6.7), so those of this machine are not changed. The namespace has all users, so that files keep their owners.
set -euo pipefail
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/../lab/common.sh"

case ${1:-} in
--in-namespace)
	# The users of the namespace are set before its first program begins.
	read -r _ <"$2"
	exec "${@:3}"
	;;
--with-emulator)
	mount -t binfmt_misc none /proc/sys/fs/binfmt_misc || die 'needs Linux 6.7 or later, for an emulator of a user namespace'
	# The header of an ELF file for AArch64. The flags: keep the credentials of the program (O, C), and open the emulator now (F),
	# because a changed root directory does not contain it.
	printf '%s' ':aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00' \
		':\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:' "$2:OCF" \
		>/proc/sys/fs/binfmt_misc/register
	exec "${@:3}"
	;;
arm64) [ $# -ge 2 ] || die 'usage: foreign.sh arm64 COMMAND...' ;;
*) die 'usage: foreign.sh arm64 COMMAND...' ;;
esac

emulator=$("$LAB/cross.sh" arm64)/usr/bin/qemu-aarch64-static
gate=$(mktemp -d)
child=
# shellcheck disable=SC2317 # called by the trap
finish() {
	if [ -n "$child" ]; then kill -TERM "$child" 2>/dev/null || true; fi
	rm -rf "$gate"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP
mkfifo "$gate/go"
unshare --user "$0" --in-namespace "$gate/go" \
	unshare --mount --pid --fork --kill-child --mount-proc "$0" --with-emulator "$emulator" "${@:2}" </dev/null &
child=$!
# Waits until the child is in its namespace. It has ended if the kernel or its settings allow none.
own=$(readlink /proc/self/ns/user)
until its=$(readlink "/proc/$child/ns/user" 2>/dev/null) && [ "$its" != "$own" ]; do
	kill -0 "$child" 2>/dev/null || die 'cannot create a user namespace (unshare --user)'
	sleep 0.05
done
for map in uid gid; do echo '0 0 65536' >"/proc/$child/${map}_map"; done
# Open for both directions, so that this waits for no reader.
exec 3<>"$gate/go"
echo >&3
status=0
wait "$child" || status=$?
child=
exit "$status"
