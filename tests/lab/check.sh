# shellcheck shell=bash
# Checks whose results a script prints and counts. Sourced, after common.sh.

# The number of checks that failed.
bad=0

# `check TEXT COMMAND...`
check() {
	if "${@:2}"; then
		printf 'passed: %s\n' "$1"
	else
		printf 'FAILED: %s\n' "$1"
		bad=$((bad + 1))
	fi
}

is() { [ "$1" = "$2" ] || { say "$1 instead of $2"; return 1; }; }
not() { ! "$@"; }
at_most() { [ "$1" -le "$2" ] || { say "$1 is more than $2"; return 1; }; }
