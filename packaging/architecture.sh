# shellcheck shell=bash
# Sets `other` to Debian's name of the architecture in ARCH, which can be in the words of Debian or of rpm. It is empty if ARCH is
# empty or this machine's. Sourced, after common.sh.

other=
case ${ARCH:-} in
'' | "$(uname -m)") ;;
arm64 | aarch64) other=arm64 ;;
armhf | armv7hl) other=armhf ;;
amd64) [ "$(uname -m)" = x86_64 ] || die "ARCH=$ARCH: packages for amd64 can be built only on amd64" ;;
*) die "ARCH=$ARCH: packages can be built for this machine's architecture, for arm64 (aarch64) and for armhf (armv7hl)" ;;
esac
