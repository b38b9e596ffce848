#!/bin/bash
# Builds and runs programs of another architecture:
#
#   cross.sh arm64|armhf            prints the directory of the tools and libraries, which is also a sysroot
#   cross.sh ARCH triple            prints Rust's name of the architecture
#   cross.sh ARCH cargo ARGS...     runs cargo for it, for example `cargo build --release`, and builds in ~/.cache/wherry-ci/arm
#   cross.sh ARCH cc ARGS...        runs its C compiler
#   cross.sh ARCH run PROGRAM ...   runs a program of it, with an emulated processor
#   cross.sh ARCH busybox           prints the path of a static busybox for it
#
# On Debian 12 for amd64, from its packages alone. They are unpacked in ~/.cache/wherry-lab/cross (1.4 GB); nothing is installed and
# root is not needed. Debian's rustc is used also if there is a newer one, because a standard library works only with the compiler
# of its own version, and Debian has both for all three architectures. glibc is 2.36, so the programs run on Debian 12 and later.
# Exit code 69, with the reason on stderr: it is not available here.
set -euo pipefail
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=tests/lab/suite.sh
. "$LAB/suite.sh"

# Under sudo, the caches belong to the user.
if [ "$(id -u)" = 0 ] && [ -n "${SUDO_USER:-}" ] && [ "$SUDO_USER" != root ]; then
	as_caller "$0" "$@"
	exit
fi

UNAVAILABLE=69
CROSS=${XDG_CACHE_HOME:-$HOME/.cache}/wherry-lab/cross
DIR=$CROSS/tools

arch=${1:-}
# TARGET: the name in Rust. TOOL: the prefix of the compiler, and the name of the directories of libraries.
case $arch in
arm64) TARGET=aarch64-unknown-linux-gnu TOOL=aarch64-linux-gnu ;;
armhf) TARGET=armv7-unknown-linux-gnueabihf TOOL=arm-linux-gnueabihf ;;
*) die "usage: cross.sh arm64|armhf [triple|cargo|cc|run|busybox ARGS...]" ;;
esac
shift

# Packages of this machine's architecture, with their dependencies.
TOOLS=(rustc-web cargo-web pkg-config dpkg-dev qemu-user-static gcc-aarch64-linux-gnu gcc-arm-linux-gnueabihf)
# Not unpacked: the system's own are used. (Programs of the system would load a second libc from LD_LIBRARY_PATH.)
SYSTEM=(libc6 libgcc-s1 libstdc++6 libcrypt1 perl perl-base perl-modules-5.36 libperl5.36 dpkg tar bash)
# Packages of each other architecture, without their dependencies. The linker reads the libraries of libdbus too.
LIBRARIES=(libstd-rust-web-dev libdbus-1-dev libdbus-1-3 libsystemd0 libcap2 libgcrypt20 liblzma5 libzstd1 liblz4-1 libgpg-error0)
# The packages that a program of ours depends on, with their symbols files (packaging/deb.sh).
DEPENDED_ON=(libc6 libgcc-s1 libdbus-1-3)

write_sources() {
	local from key='signed-by=/usr/share/keyrings/debian-archive-keyring.gpg' security
	from=$(mirror)
	from=${from:-http://deb.debian.org/debian}
	security=${from%/}-security
	printf 'deb [%s] %s %s main\n' "$key" "$from" bookworm "$key" "$from" bookworm-updates
	printf 'deb [%s%s] %s %s main\n' "$key" "${2:-}" "$security" "$1"
}

write_apt_configuration() {
	cat <<-CONFIGURATION
		APT::Architecture "amd64";
		APT::Architectures { "amd64"; "arm64"; "armhf"; };
		APT::Install-Recommends "false";
		APT::Update::Error-Mode "any";
		APT::Sandbox::User "root";
		Acquire::Languages "none";
		Acquire::Retries "3";
		Acquire::http::Timeout "30";
		Dir::Etc::sourcelist "$DIR/sources.list";
		Dir::Etc::sourceparts "-";
		Dir::State "$DIR/state";
		Dir::State::status "$DIR/state/status";
		Dir::Cache "$DIR/cache";
	CONFIGURATION
}

# Reads the lists. A mirror can have a new release file beside the old list of one architecture for weeks, and apt then drops the
# suite. The same suite has a second name; under that name such a mirror still has an old and complete state of it.
update_lists() {
	write_sources bookworm-security >"$DIR/sources.list"
	apt-get -q update && return
	write_sources oldstable-security ' check-valid-until=no' >"$DIR/sources.list"
	apt-get -q update
}

unpack_cross() {
	local package name skip
	rm -rf "$DIR"
	mkdir -p "$DIR"/{state/lists/partial,cache/archives/partial,unpacked,{depended-on,busybox}/{arm64,armhf}}
	: >"$DIR/state/status"
	write_apt_configuration >"$DIR/apt.conf"
	export APT_CONFIG=$DIR/apt.conf
	update_lists
	apt-get -q -y install --download-only "${TOOLS[@]}"
	cd "$DIR/cache/archives"
	for skip in "${SYSTEM[@]}"; do rm -f "${skip}"_*.deb; done
	apt-get -q download libc6-dev-{arm64,armhf}-cross linux-libc-dev-{arm64,armhf}-cross
	for name in arm64 armhf; do apt-get -q download "${LIBRARIES[@]/%/:$name}"; done
	for package in *.deb; do dpkg-deb -x "$package" "$DIR/unpacked"; done
	find "$DIR/unpacked/usr/bin" -name 'qemu-*-static' ! -name qemu-aarch64-static ! -name qemu-arm-static -delete
	for name in arm64 armhf; do
		(cd "$DIR/depended-on" && apt-get -q download "${DEPENDED_ON[@]/%/:$name}")
		for package in "${DEPENDED_ON[@]}"; do
			dpkg-deb -R "$DIR/depended-on/$package"_*_"$name.deb" "$DIR/depended-on/$name/$package"
		done
		(cd "$DIR/cache" && apt-get -q download "busybox-static:$name")
		dpkg-deb -x "$DIR/cache"/busybox-static_*_"$name.deb" "$DIR/busybox/$name"
	done
	rm -rf "$DIR"/{state,cache,apt.conf,sources.list} "$DIR"/depended-on/*.deb
	relative_links
}

# Links of libraries are absolute in Debian 12, which would be the system's.
relative_links() {
	local link
	find "$DIR/unpacked" -lname '/*' -name '*.so*' -print0 | while IFS= read -r -d '' link; do
		ln -sfnr "$DIR/unpacked$(readlink "$link")" "$link"
	done
}

is_complete() { [ "$(cat "$DIR/recipe" 2>/dev/null)" = "$recipe" ]; }

provide() {
	local log status=0 recipe
	# With another recipe, the tools are unpacked again. Their path stays, because cargo builds everything again after its change.
	recipe=$({
		declare -f write_sources write_apt_configuration update_lists unpack_cross relative_links
		declare -p TOOLS SYSTEM LIBRARIES DEPENDED_ON
	} | sha256sum | cut -d' ' -f1)
	is_complete && return
	mkdir -p "$CROSS"
	exec 9>"$CROSS/lock"
	flock 9
	is_complete && return
	# shellcheck disable=SC1091
	. /etc/os-release
	if [ "${ID:-}" != debian ] || [ "${VERSION_ID:-}" != 12 ] || [ "$(dpkg --print-architecture)" != amd64 ]; then
		say "building for $arch needs Debian 12 on amd64, but this machine runs ${PRETTY_NAME:-another distribution} on $(uname -m)"
		exit $UNAVAILABLE
	fi
	say 'downloading the compilers and libraries for arm64 and armhf (once, 300 MB)'
	log=$(mktemp)
	# (A separate shell, because in a condition a shell ignores `set -e`.)
	(set -e; unpack_cross) >"$log" 2>&1 &
	wait $! || status=$?
	if [ "$status" != 0 ]; then
		tail -n 10 "$log" >&2
		rm -f "$log"
		say 'failed to download the compilers (see above)'
		exit $UNAVAILABLE
	fi
	rm -f "$log"
	printf '%s\n' "$recipe" >"$DIR/recipe"
}

command=${1:-}
if [ "$command" = triple ]; then
	printf '%s\n' "$TARGET"
	exit
fi
provide
SYSROOT=$DIR/unpacked
libraries=$SYSROOT/usr/lib/$TOOL:$SYSROOT/lib/$TOOL:$SYSROOT/usr/$TOOL/lib
EMULATOR=("$SYSROOT/usr/bin/qemu-${TOOL%%-*}-static" -L "$SYSROOT/usr/$TOOL" -E "LD_LIBRARY_PATH=$libraries")

# Runs a tool, whose own libraries are unpacked beside it.
tool() {
	exec env PATH="$SYSROOT/usr/bin:$PATH" \
		LD_LIBRARY_PATH="$SYSROOT/usr/lib/x86_64-linux-gnu:$SYSROOT/lib/x86_64-linux-gnu" "$@"
}

# WHERRY_RUSTFLAGS: more flags for rustc, separated by 0x1f as in CARGO_ENCODED_RUSTFLAGS, which this function sets.
run_cargo() {
	local flags encoded underscored=${TARGET//-/_}
	flags=(-C "linker=$TOOL-gcc" -C "link-arg=--sysroot=$SYSROOT" -C "link-arg=-L$SYSROOT/usr/lib/$TOOL"
		-C "link-arg=-Wl,-rpath-link,$libraries")
	encoded=$(printf '%s\x1f' "${flags[@]}")${WHERRY_RUSTFLAGS:-}
	cd "$PROJECT"
	unset RUSTFLAGS
	tool CARGO_TARGET_DIR="$(dirname "$(dirname "$CROSS")")/wherry-ci/arm" CARGO_ENCODED_RUSTFLAGS="${encoded%$'\x1f'}" \
		"CC_$underscored=$TOOL-gcc" "AR_$underscored=$TOOL-ar" "CFLAGS_$underscored=--sysroot=$SYSROOT" \
		PKG_CONFIG_ALLOW_CROSS=1 "PKG_CONFIG_SYSROOT_DIR_$underscored=$SYSROOT" \
		"PKG_CONFIG_LIBDIR_$underscored=$SYSROOT/usr/lib/$TOOL/pkgconfig:$SYSROOT/usr/share/pkgconfig" \
		"CARGO_TARGET_${underscored^^}_RUNNER=${EMULATOR[*]}" \
		"$SYSROOT/usr/bin/cargo" "$1" --target "$TARGET" "${@:2}"
}

case $command in
'') printf '%s\n' "$SYSROOT" ;;
cargo) run_cargo "${@:2}" ;;
cc) tool "$TOOL-gcc" "--sysroot=$SYSROOT" "${@:2}" ;;
run) exec "${EMULATOR[@]}" "${@:2}" ;;
busybox) find "$DIR/busybox/$arch" -name busybox -type f -perm -u+x ;;
*) die "unknown command $command" ;;
esac
