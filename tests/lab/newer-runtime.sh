#!/bin/bash
# Prints the directory of a containerd version other than the system's, to prepend to PATH: `newer-runtime.sh 1.7` or `2`.
#
# 1.7 is the containerd of Debian 13, and 2 is the containerd 2.x of Debian forky, unpacked into ~/.cache/wherry-lab for a Debian
# 12, which has 1.6. The script installs nothing: apt uses separate lists and directories, with this machine's mirror and keyring.
# An existing copy is used without the network. containerd 2 comes with the runc of its suite, because user namespaces need it, and
# with the C library that this runc needs; 1.7 uses the system's runc. Exit code 69, with the reason on stderr and nothing on
# stdout: this containerd is not available here.
set -euo pipefail
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/common.sh"

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

# Prints the package mirror of this machine.
mirror() {
	awk '/^URIs:/ { print $2; exit }' /etc/apt/sources.list.d/debian.sources 2>/dev/null ||
		awk '$1 == "deb" { for (i = 2; i <= NF; i++) if ($i ~ /^http/) { print $i; exit } }' /etc/apt/sources.list 2>/dev/null
}

apt_alone() {
	apt-get -q -o Dir::Etc::sourcelist="$DIR/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$DIR/lists" \
		-o Dir::Cache::archives="$DIR/archives" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
		-o Acquire::Retries=3 -o Acquire::http::Timeout=30 -o Acquire::Languages=none -o APT::Get::List-Cleanup=0 "$@"
}

fetch() {
	local from keyring=/usr/share/keyrings/debian-archive-keyring.gpg
	rm -rf "$DIR"
	mkdir -p "$DIR"/{lists/partial,archives/partial,unpacked}
	from=$(mirror)
	printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "${from:-http://deb.debian.org/debian}" "$SUITE" >"$DIR/sources.list"
	apt_alone -o APT::Update::Error-Mode=any update
	cd "$DIR/archives"
	apt_alone download "$@"
	for package in *.deb; do dpkg -x "$package" "$DIR/unpacked"; done
	rm -rf "$DIR/lists" "$DIR/archives"
	[ ! -e "$BIN/patchelf" ] || own_libc
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
	# shellcheck disable=SC1091
	. /etc/os-release
	[ "${ID:-}" = debian ] && [ "${VERSION_ID:-}" = 12 ] || cannot "it needs Debian 12, but this machine runs ${PRETTY_NAME:-another distribution}"
	if ! have apt-get || ! have dpkg; then cannot "it needs apt-get and dpkg"; fi
	say "unpacking the containerd of Debian $SUITE into $DIR"
	log=$(mktemp)
	for try in 1 2 3; do
		# (A separate shell, because under `if` a shell ignores `set -e`.)
		status=0
		(export -f fetch own_libc apt_alone mirror; export DIR BIN SUITE; bash -euo pipefail -c 'fetch "$@"' fetch "${PACKAGES[@]}") >"$log" 2>&1 || status=$?
		[ "$status" != 0 ] || break
		[ "$try" = 3 ] || sleep $((try * 3))
	done
	[ "$status" = 0 ] || tail -n 5 "$log" >&2
	rm -f "$log"
	[ "$status" = 0 ] || cannot "failed to download its packages (see above)"
	complete || cannot "$BIN/containerd does not run"
fi
printf '%s\n' "$BIN"
