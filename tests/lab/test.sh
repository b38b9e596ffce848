#!/bin/bash
# Every test that belongs to an ordinary run: `make test`. Without a way to root the units and the simulation are run,
# what was not run is named, and the exit code says so.
set -euo pipefail
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/common.sh"

cd "$PROJECT"
"$LAB/install.sh" build
make --no-print-directory test-unit
if ! can_be_root; then
	say
	say 'NOT RUN, for want of root or sudo: tests/runtime (pods on a real containerd)'
	exit 1
fi
make --no-print-directory test-runtime
