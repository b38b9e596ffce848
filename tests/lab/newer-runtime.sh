#!/bin/bash
# Prints the directory of a containerd version other than the system's, to prepend to PATH: `newer-runtime.sh 1.7` or `2`.
#
# 1.7 is the containerd of Debian 13, and 2 is the containerd 2.x of Debian forky, unpacked into ~/.cache/wherry-lab for a Debian
# 12, which has 1.6. The script installs nothing (suite.sh).
# An existing copy is used without the network. containerd 2 comes with the runc of its suite, because user namespaces need it, and
# with the C library that this runc needs; 1.7 uses the system's runc. Exit code 69, with the reason on stderr and nothing on
# stdout: this containerd is not available here.
set -euo pipefail
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=tests/lab/suite.sh
. "$LAB/suite.sh"

UNAVAILABLE=69

cannot() {
	say "containerd $WANTED is not available: $*"
	exit "$UNAVAILABLE"
}

[ $# = 1 ] || die "usage: newer-runtime.sh VERSION (1.7 or 2)"
WANTED=$1
case $WANTED in
1.7) SUITE=trixie PACKAGES=(containerd) ;;
2) SUITE=forky PACKAGES=(containerd runc libc6 libseccomp2 patchelf libstdc++6 libgcc-s1) ;;
*) die "unknown runtime $WANTED (1.7, 2)" ;;
esac
DIR=${XDG_CACHE_HOME:-$(caller_home)/.cache}/wherry-lab/containerd-$WANTED
BIN=$DIR/unpacked/usr/bin

# The versions of containerd and its shim must match.
complete() {
	[ -x "$BIN/containerd-shim-runc-v2" ] && "$BIN/containerd" --version >/dev/null 2>&1 || return 1
	[ "$WANTED" = 1.7 ] || "$BIN/runc" --version >/dev/null 2>&1
}

# runc gets the unpacked C library for good: it starts itself again, so a wrapper is not enough.
own_libc() {
	local lib loader
	lib=$(echo "$DIR"/unpacked/usr/lib/*-linux-gnu)
	loader=$(echo "$lib"/ld-linux-*.so.*)
	cp --remove-destination "$DIR/unpacked/usr/sbin/runc" "$BIN/runc"
	"$loader" --library-path "$lib" "$BIN/patchelf" --set-interpreter "$loader" --set-rpath "$lib" "$BIN/runc"
}

if ! complete; then
	say "unpacking the containerd of Debian $SUITE into $DIR"
	unpack "${PACKAGES[@]}" || cannot 'see above'
	[ ! -e "$BIN/patchelf" ] || own_libc
	complete || cannot "$BIN/containerd does not run"
fi
printf '%s\n' "$BIN"
