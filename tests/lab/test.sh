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
make --no-print-directory test-mutations
if ! can_be_root; then
	say
	say 'NOT RUN, for want of root or sudo: tests/runtime (pods on a real containerd), tests/shutdown (and a real logind)'
	exit 1
fi
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
