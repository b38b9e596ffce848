#!/bin/bash
# Knows whether a slow suite has passed with the files that it has now, so that `.ci/run` need not run it again:
#
#   passed.sh is SUITE            succeeds if it has
#   passed.sh hash SUITE          prints the hash of its files
#   passed.sh record SUITE HASH   records that it passed with the files of this hash, in tests/passed, which is to be committed
#
# A suite belongs here only if its result depends on nothing but these files, or if other suites test what else it uses.
set -euo pipefail
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/common.sh"
cd "$PROJECT"
RECORD=tests/passed

files_of() {
	case $1 in
	# The engine, its simulation, and the mutations.
	mutations) echo Cargo.lock src/pure src/engine src/api tests/simulation tests/mutations ;;
	# What is below the code that both transports share.
	grpcio) echo Cargo.lock build.rs proto src/adapters/cri src/net ;;
	*) die "unknown suite $1" ;;
	esac
}

hash_of() {
	local files
	files=$(files_of "$1")
	# shellcheck disable=SC2086 # words
	find $files -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -d' ' -f1
}

case ${1:-} in
is) grep -qxF "$2 $(hash_of "$2")" "$RECORD" ;;
hash) hash_of "$2" ;;
record)
	# (Under sudo, the checkout belongs to another user.)
	{ grep -v "^$2 " "$RECORD" || true; echo "$2 $3"; } | LC_ALL=C sort | as_caller tee "$RECORD.new" >/dev/null
	as_caller mv "$RECORD.new" "$RECORD"
	;;
*) die 'usage: passed.sh is|hash|record SUITE [HASH]' ;;
esac
