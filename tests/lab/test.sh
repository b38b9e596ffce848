#!/bin/bash
# Every test that belongs to an ordinary run: `make test`. Without a way to root the units and the simulation are run,
# what was not run is named, and the exit code says so. The runtime tests run on the system's containerd and then, where it
# is to be had (on a Debian 12, online the first time), on 1.7.
set -euo pipefail
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/common.sh"

cd "$PROJECT"
"$LAB/install.sh" build
make --no-print-directory test-unit
if ! can_be_root; then
	make --no-print-directory test-mutations
	say
	say 'NOT RUN, for want of root or sudo: tests/runtime (pods on a real containerd), tests/shutdown (and a real logind)'
	exit 1
fi

# Containers are waited for most of the time: the mutations have the processors meanwhile.
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
setsid nice -n 19 make --no-print-directory test-mutations >"$log" 2>&1 </dev/null &
mutations=$!

make --no-print-directory test-runtime
make --no-print-directory test-shutdown
# The same on a runtime with an event stream.
status=0
"$LAB/newer-runtime.sh" 1.7 >/dev/null || status=$?
case $status in
0) make --no-print-directory test-runtime RUNTIME=1.7 ;;
69) say 'NOT RUN, for want of containerd 1.7 (above is why): tests/runtime on it' ;;
*) exit "$status" ;;
esac

say 'the mutations, which ran meanwhile:'
status=0
wait "$mutations" || status=$?
mutations=
cat "$log"
exit "$status"
