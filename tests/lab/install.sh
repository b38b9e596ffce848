#!/bin/bash
# Installs missing programs from the distribution: `install.sh [build] [runtime] [lint] [logind] [grpcio] [fuzz] [packages]
# [lintian]` (default: the first three).
#
# Programs in PATH are used as they are, including Docker's containerd (containerd.io) and a rustup. If nothing is missing,
# no package manager is called. Nothing is removed, and no service is started (a policy-rc.d exists during the installation).
set -euo pipefail
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/common.sh"

POLICY=/usr/sbin/policy-rc.d
MARK='# wherry: no service starts while packages are installed'
missing=()

want() { missing+=("$@"); }

look_for_build() {
	have make || want make
	have cc || have gcc || want gcc
	# libc.a, for the static pause program
	[ -n "$(find /usr/lib /usr/lib64 -maxdepth 2 -name libc.a -print -quit 2>/dev/null)" ] || want libc6-dev
	if ! have pkg-config; then
		want pkg-config libdbus-1-dev
	elif ! pkg-config --exists dbus-1; then
		want libdbus-1-dev
	fi
	"$LAB/cargo.sh" --find >/dev/null 2>&1 || want cargo-web rustc-web
}

look_for_runtime() {
	{ have containerd && have ctr; } || want containerd
	have runc || want runc
	have iptables || want iptables
	have ip || want iproute2
	[ -x /usr/sbin/nft ] || want nftables
	[ -x /usr/sbin/conntrack ] || want conntrack
	have strace || want strace
	have docker-registry || want docker-registry
	have openssl || want openssl
	cni_plugins >/dev/null || want containernetworking-plugins
	if ! static_busybox >/dev/null; then
		if have busybox; then
			# The installed busybox is dynamic (for the initramfs) and conflicts with the static package. Keep it.
			unpack_busybox
		else
			want busybox-static
		fi
	fi
}

look_for_logind() {
	[ -x /usr/lib/systemd/systemd-logind ] || [ -x /lib/systemd/systemd-logind ] || want systemd
	have dbus-daemon || want dbus-daemon
	have strace || want strace
	have setpriv || want util-linux
}

look_for_grpcio() {
	have c++ || have g++ || want g++
	have cmake || want cmake
}

# libFuzzer is C++.
look_for_fuzz() {
	have c++ || have g++ || want g++
}

# For building a deb and an rpm.
look_for_packages() {
	have dpkg-shlibdeps || want dpkg-dev
	have rpmbuild || want rpm
	have xz || want xz-utils
}

# For checking them.
look_for_lintian() {
	have lintian || want lintian
	have rpmlint || want rpmlint
	have man || want man-db
	have systemd-analyze || want systemd
}

look_for_lint() {
	local cargo
	cargo=$("$LAB/cargo.sh" --find 2>/dev/null) || cargo=
	if [ -z "$cargo" ] || [ "$cargo" = /usr/bin/cargo ]; then
		have rustfmt || want rustfmt-web
		have cargo-clippy || want rust-web-clippy
	fi
}

need_apt() {
	have apt-get || die "missing packages: $*; this script supports only apt; install them by other means (see docs/testing.md) and try again"
}

unpack_busybox() {
	local to
	to=$(caller_home)/.cache/wherry/busybox
	need_apt busybox-static
	say "unpacking busybox-static into $to (the system's busybox needs libraries)"
	# shellcheck disable=SC2016
	as_caller bash -euc 'mkdir -p "$1"; cd "$1"; apt-get download -q busybox-static >&2; dpkg -x busybox-static_*.deb "$1"; rm -f busybox-static_*.deb' - "$to"
	[ -x "$to/bin/busybox" ] || { [ -x "$to/usr/bin/busybox" ] && as_caller ln -sfn usr/bin "$to/bin"; }
}

drop_policy() {
	if [ -f "$POLICY" ] && grep -qxF "$MARK" "$POLICY" 2>/dev/null; then as_root rm -f "$POLICY"; fi
}

# Prints output only if apt-get fails.
apt() {
	local log status=0
	log=$(mktemp)
	as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=600 "$@" </dev/null >"$log" 2>&1 || status=$?
	[ "$status" = 0 ] || tail -n 40 "$log" >&2
	rm -f "$log"
	return "$status"
}

candidate() {
	LC_ALL=C apt-cache policy "$1" 2>/dev/null | awk '/Candidate:/ && $2 != "(none)" { print $2 }'
}

install_missing() {
	local package rust updated=
	need_apt "${missing[@]}"
	can_be_root || die "missing packages: ${missing[*]}; their installation needs root or sudo, which are not available"
	for package in "${missing[@]}"; do
		if [ -z "$updated" ] && [ -z "$(candidate "$package")" ]; then
			apt update
			updated=1
		fi
	done
	rust=$("$LAB/cargo.sh" --needed)
	for package in "${missing[@]}"; do
		[ -n "$(candidate "$package")" ] || die "the distribution has no package $package$([ "$package" != cargo-web ] || printf '; install Rust %s or newer by other means (https://rustup.rs)' "$rust")"
		if [ "$package" = cargo-web ] && ! at_least "$rust" "$(candidate cargo-web)"; then
			[ -n "$updated" ] || { apt update && updated=1; }
			at_least "$rust" "$(candidate cargo-web)" ||
				die "Rust $rust or newer is required, but the distribution has $(candidate cargo-web); install it by other means (https://rustup.rs)"
		fi
	done
	trap drop_policy EXIT
	trap 'exit 130' INT TERM HUP
	drop_policy
	if [ ! -e "$POLICY" ]; then
		printf '#!/bin/sh\n%s\nexit 101\n' "$MARK" | as_root tee "$POLICY" >/dev/null
		as_root chmod 755 "$POLICY"
	fi
	say "installing: ${missing[*]}"
	if ! apt install -y --no-install-recommends --no-remove "${missing[@]}"; then
		[ -z "$updated" ] || die "failed to install ${missing[*]} (see above)"
		# The package lists may be older than the mirror.
		apt update
		apt install -y --no-install-recommends --no-remove "${missing[@]}" || die "failed to install ${missing[*]} (see above)"
	fi
}

[ $# -gt 0 ] || set -- build runtime lint
for part; do
	case $part in
	build | runtime | lint | logind | grpcio | fuzz | packages | lintian) "look_for_$part" ;;
	*) die "unknown part $part (build, runtime, lint, logind, grpcio, fuzz, packages, lintian)" ;;
	esac
done
if [ ${#missing[@]} -gt 0 ]; then
	install_missing
	hash -r
fi
