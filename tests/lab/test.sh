#!/bin/bash
# The complete ordinary test run: `make test`. A suite that fails does not stop the others. A summary at the end lists the
# suites that passed, failed and were not run. The exit code is 0 if no suite failed or was skipped for lack of root. The
# runtime tests run on the system's containerd and then on 1.7, if available (on a Debian 12, with a network the first time).
set -euo pipefail
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/common.sh"

cd "$PROJECT"
status=0
summary=()

# passed|failed|'not run' SUITE [WHY]
result() {
	summary+=("$(printf '%-8s %s' "$1" "$2${3:+: $3}")")
	if [ "$1" = failed ]; then status=1; fi
}

# suite NAME COMMAND...
suite() {
	local name=$1 code=0
	shift
	say "=== $name"
	"$@" || code=$?
	# A signal that ends a test also ends this script: a user who presses Ctrl-C wants to stop the whole run.
	case $code in 130 | 143) exit "$code" ;; esac
	if [ "$code" = 0 ]; then result passed "$name"; else result failed "$name" "exit code $code"; fi
}

log=$(mktemp)
mutations=
# shellcheck disable=SC2317 # called by the trap
finish() {
	if [ -n "$mutations" ]; then kill -TERM -- "-$mutations" 2>/dev/null || true; fi
	rm -f "$log"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

"$LAB/install.sh" build
make() { command make --no-print-directory "$@"; }

suite 'units, simulation, architecture' make test-unit
if can_be_root; then
	# The runtime tests mostly wait for containers, so the mutations can use the CPUs meanwhile.
	setsid nice -n 19 make --no-print-directory test-mutations >"$log" 2>&1 </dev/null &
	mutations=$!

	suite 'tests/runtime: pods on a real containerd' make test-runtime
	suite 'tests/shutdown: pods and a real logind' make test-shutdown
	# The same tests on a runtime with an event stream.
	newer='tests/runtime on containerd 1.7'
	code=0
	"$LAB/newer-runtime.sh" 1.7 >/dev/null || code=$?
	case $code in
	0) suite "$newer" make test-runtime RUNTIME=1.7 ;;
	69) result 'not run' "$newer" 'containerd 1.7 is not available (see above)' ;;
	*) result failed "$newer" "tests/lab/newer-runtime.sh exited with $code" ;;
	esac

	say '=== mutations, which ran in parallel'
	code=0
	wait "$mutations" || code=$?
	mutations=
	cat "$log"
	if [ "$code" = 0 ]; then result passed mutations; else result failed mutations "exit code $code"; fi
else
	suite mutations make test-mutations
	result 'not run' 'tests/runtime: pods on a real containerd' 'needs root or sudo'
	result 'not run' 'tests/shutdown: pods and a real logind' 'needs root or sudo'
	status=1
fi

say
say '=== summary'
printf '%s\n' "${summary[@]}" >&2
exit "$status"
