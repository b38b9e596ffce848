#!/bin/bash
# `fuzz.sh [SECONDS]` runs each fuzz target of tests/fuzz for that time (60 s), all at once. libFuzzer guides them by coverage.
# The targets are built outside of the checkout. An input that fails is copied to target/fuzz/, and the script prints how to
# repeat it; add it to tests/fuzz/corpus/TARGET together with the correction.
set -euo pipefail
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/common.sh"

SECONDS_EACH=${1:-60}
CACHE=${XDG_CACHE_HOME:-$(caller_home)/.cache}/wherry-ci/fuzz
FUZZ=$PROJECT/tests/fuzz

# Stable options of rustc that add libFuzzer's counters. With --target they do not apply to build scripts and macros.
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1"
triple=$(rustc -vV | sed -n 's/^host: //p')
# The versions are those of Wherry. Cargo adds the libraries that only the targets use.
[ "$FUZZ/Cargo.lock" -nt "$PROJECT/Cargo.lock" ] || as_caller cp "$PROJECT/Cargo.lock" "$FUZZ/Cargo.lock"
"$LAB/cargo.sh" build --quiet --release --manifest-path "$FUZZ/Cargo.toml" --target "$triple" --target-dir "$CACHE/target"

work=$(mktemp -d)
pids=()
# shellcheck disable=SC2317 # called by the trap
finish() {
	if [ ${#pids[@]} != 0 ]; then kill "${pids[@]}" 2>/dev/null || true; fi
	rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

targets=(api manifests volumes)
for target in "${targets[@]}"; do
	mkdir -p "$work/$target/new" "$work/$target/failed" "$work/$target/tmp"
	# The corpus of earlier runs on this machine helps; the one in the tree is never changed.
	mkdir -p "$CACHE/corpus/$target"
	(cd "$work/$target" && TMPDIR=$work/$target/tmp exec "$CACHE/target/$triple/release/$target" \
		-max_total_time="$SECONDS_EACH" -timeout=60 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 \
		-artifact_prefix="$work/$target/failed/" "$CACHE/corpus/$target" "$FUZZ/corpus/$target") \
		>"$work/$target/log" 2>&1 </dev/null &
	pids+=($!)
done
status=0
for i in "${!targets[@]}"; do
	target=${targets[$i]}
	code=0
	wait "${pids[$i]}" || code=$?
	runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/$target/log")
	cover=$(grep -o 'cov: [0-9]*' "$work/$target/log" | tail -n 1 || true)
	say "fuzz target $target: ${runs:-no} runs, ${cover:-no coverage}, exit code $code"
	if [ "$code" != 0 ]; then
		status=1
		tail -n 40 "$work/$target/log" >&2
		mkdir -p "$PROJECT/target/fuzz/$target"
		for input in "$work/$target"/failed/*; do
			[ -e "$input" ] || continue
			cp "$input" "$PROJECT/target/fuzz/$target/"
			say "to repeat it: $CACHE/target/$triple/release/$target target/fuzz/$target/${input##*/}"
		done
	fi
done
pids=()
exit "$status"
