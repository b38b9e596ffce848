#!/bin/bash
# Creates the files of the deb and the rpm as a tree: `build.sh DIRECTORY [arm64|armhf]` (replaced if it exists). Without an
# architecture, the binary is for this machine's.
#
# Two builds of one commit give the same bytes, in any directory: times come from the commit (SOURCE_DATE_EPOCH), and the
# paths in the binary's panic messages are rewritten. WHERRY_BINARY=FILE: pack this binary instead of building one.
set -euo pipefail
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/../tests/lab/common.sh"

tree=${1:?usage: build.sh DIRECTORY [arm64|armhf]}
architecture=${2:-}
cd "$PROJECT"
SOURCE_DATE_EPOCH=$(packaging/version.sh date)
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
umask 022
build=$PROJECT/target/package

# cargo splits this variable at 0x1f, so that paths may contain spaces. The last matching prefix is used.
remap() {
	local cargo_home=${CARGO_HOME:-$(caller_home)/.cargo}
	printf '%s\x1f%s' "--remap-path-prefix=$cargo_home=/usr/src/cargo" "--remap-path-prefix=$PROJECT=/usr/src/wherry"
}

if [ -n "${WHERRY_BINARY:-}" ]; then
	binary=$WHERRY_BINARY
elif [ -n "$architecture" ]; then
	WHERRY_RUSTFLAGS=$(remap) "$LAB/cross.sh" "$architecture" cargo build --release --locked --bin wherry --target-dir "$build" >&2
	binary=$build/$("$LAB/cross.sh" "$architecture" triple)/release/wherry
else
	CARGO_ENCODED_RUSTFLAGS=$(remap) "$LAB/cargo.sh" build --release --locked --bin wherry --target-dir "$build" >&2
	binary=$build/release/wherry
fi
# (The development build, because the tests have already built most of it. WHERRY_TEXTS: a program that is already built.)
if [ -n "${WHERRY_TEXTS:-}" ]; then
	"$WHERRY_TEXTS" "$build/texts"
else
	"$LAB/cargo.sh" run --quiet --locked --example texts -- "$build/texts" >&2
fi

rm -rf "$tree"
# `put MODE FILE PLACE`
put() { install -D -m "$1" "$2" "$tree/$3"; }
put 755 "$binary" usr/bin/wherry
put 644 packaging/wherry.service usr/lib/systemd/system/wherry.service
put 644 packaging/tmpfiles.conf usr/lib/tmpfiles.d/wherry.conf
put 644 packaging/config.yaml etc/wherry/config.yaml
install -d -m 755 "$tree/etc/wherry/config.d" "$tree/etc/wherry/manifests"
for page in "$build"/texts/man/*.[15]; do
	section=${page##*.}
	put 644 "$page" "usr/share/man/man$section/$(basename "$page")"
done
find "$tree/usr/share/man" -type f -exec gzip -9n {} +
put 644 "$build/texts/bash/wherry" usr/share/bash-completion/completions/wherry
put 644 "$build/texts/zsh/_wherry" usr/share/zsh/site-functions/_wherry
put 644 "$build/texts/fish/wherry.fish" usr/share/fish/vendor_completions.d/wherry.fish
put 644 README.md usr/share/doc/wherry/README.md
for page in docs/*.md; do put 644 "$page" "usr/share/doc/wherry/$page"; done
for example in packaging/examples/*; do put 644 "$example" "usr/share/doc/wherry/examples/$(basename "$example")"; done
