#!/bin/bash
# Finds a cargo that is new enough for this crate and runs it as the user who typed the command (under sudo: not as root).
#
# `cargo.sh ARGS...` runs it; `cargo.sh --find` prints its path, `cargo.sh --needed` the oldest supported version.
set -euo pipefail
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/common.sh"

needed() { sed -n 's/^rust-version *= *"\(.*\)".*/\1/p' "$PROJECT/Cargo.toml"; }

# Rejects a cargo whose rustc is too old, and rustup's cargo without a toolchain.
good() {
	local version
	[ -x "$1" ] || return 1
	version=$(cd "$PROJECT" && as_caller env PATH="$(dirname "$1"):$PATH" rustc --version 2>/dev/null | awk '{ print $2 }')
	[ -n "$version" ] && at_least "$(needed)" "$version" && as_caller "$1" --version >/dev/null 2>&1
}

find_cargo() {
	local c
	for c in "${CARGO:-}" "$(command -v cargo || true)" "$(caller_home)/.cargo/bin/cargo" /usr/local/bin/cargo /usr/bin/cargo; do
		if [ -n "$c" ] && good "$c"; then
			printf '%s\n' "$c"
			return 0
		fi
	done
	say "no cargo of version $(needed) or newer found (install one with tests/lab/install.sh)"
	return 1
}

case ${1:-} in
--needed) needed ;;
--find) find_cargo ;;
*)
	cargo=$(find_cargo)
	cd "$PROJECT"
	as_caller env PATH="$(dirname "$cargo"):$PATH" "$cargo" "$@"
	;;
esac
