#!/bin/bash
# The complete ordinary test run: `make test`. A suite that fails does not stop the others. A summary at the end lists the
# suites that passed, failed and were not run. The exit code is 0 if no suite failed or was skipped for lack of root. The
# runtime tests run on the system's containerd, and a part of them then on 1.7 and 2, if available (on a Debian 12, with a network
# the first time).
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
	local name=$1 code=0 begin=$SECONDS
	shift
	say "=== $name"
	"$@" || code=$?
	# A signal that ends a test also ends this script: a user who presses Ctrl-C wants to stop the whole run.
	case $code in 130 | 143) exit "$code" ;; esac
	if [ "$code" = 0 ]; then result passed "$name" "$((SECONDS - begin)) s"; else result failed "$name" "exit code $code"; fi
}

# The targets that use the CPUs while the runtime tests wait for containers. They run one after the other.
# (WHERRY_BACKGROUND: another one.) On two CPUs the mutations would delay everything else by ten minutes.
# shellcheck disable=SC2206 # words
BACKGROUND=(${WHERRY_BACKGROUND:-})
if [ "$(nproc)" -gt 2 ]; then
	BACKGROUND=(test-mutations "${BACKGROUND[@]}")
else
	result 'not run' test-mutations 'takes too long on two CPUs (make test-mutations)'
fi
logs=$(mktemp -d)
background=
# shellcheck disable=SC2317 # called by the trap
finish() {
	if [ -n "$background" ]; then kill -TERM -- "-$background" 2>/dev/null || true; fi
	rm -rf "$logs"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

"$LAB/install.sh" build
make() { command make --no-print-directory "$@"; }

# The control plane takes minutes to build, so only one that was built before is used, and only while the whole run remains
# short. The simulation has tested the same rules before.
CLUSTER_BEFORE=1500
cluster() {
	local name='tests/cluster: a real control plane'
	if [ -z "$("$LAB/control-plane.sh" --built kube-apiserver kube-controller-manager kube-scheduler)" ]; then
		result 'not run' "$name" 'make test-cluster builds it'
	elif [ $SECONDS -gt $CLUSTER_BEFORE ]; then
		result 'not run' "$name" "the other tests have taken $SECONDS s (make test-cluster)"
	else
		suite "$name" make test-cluster CONTROL_PLANE=built
	fi
}

# newer VERSION [FILTERS]: the runtime tests on a newer containerd.
newer() {
	local version=$1 code=0 name="tests/runtime on containerd $1${2:+, a part}"
	"$LAB/newer-runtime.sh" "$version" >/dev/null || code=$?
	case $code in
	0) suite "$name" make test-runtime RUNTIME="$version" ARGS="${2:-}" ;;
	69) result 'not run' "$name" "containerd $version is not available (see above)" ;;
	*) result failed "$name" "tests/lab/newer-runtime.sh exited with $code" ;;
	esac
}

suite 'units, simulation, architecture' make test-unit
if can_be_root; then
	# shellcheck disable=SC2016
	setsid nice -n 19 bash -c '
		logs=$1
		shift
		# The kernel can give each session the same share of the processors; then `nice` has no effect between sessions.
		echo 19 2>/dev/null >/proc/self/autogroup || true
		for target; do
			code=0 SECONDS=0
			make --no-print-directory "$target" >"$logs/$target" 2>&1 || code=$?
			echo "$target took $SECONDS s" >>"$logs/$target"
			echo "$code" >"$logs/$target.code"
		done' background "$logs" "${BACKGROUND[@]}" </dev/null &
	background=$!

	suite 'tests/runtime: pods on a real containerd' make test-runtime
	suite 'tests/shutdown: pods and a real logind' make test-shutdown
	# On newer runtimes a part is enough: the ordinary life, and the tests that depend on the event stream (from 1.7 on) or on the
	# features that a runtime reports (from 2 on).
	part='life:: trouble:: adopt features:: volumes:: images::'
	newer 1.7 "$part hints:: endings:: force::outages:: restarts::"
	newer 2 "$part kubectl::"

	cluster

	wait "$background" || true
	background=
	for target in "${BACKGROUND[@]}"; do
		say "=== make $target, which ran in parallel"
		cat "$logs/$target" || true
		code=$(cat "$logs/$target.code" || echo unknown)
		if [ "$code" = 0 ]; then result passed "$target"; else result failed "$target" "exit code $code"; fi
	done
else
	for target in "${BACKGROUND[@]}"; do suite "$target" make "$target"; done
	result 'not run' 'tests/runtime: pods on a real containerd' 'needs root or sudo'
	result 'not run' 'tests/shutdown: pods and a real logind' 'needs root or sudo'
	status=1
fi

say
say '=== summary'
printf '%s\n' "${summary[@]}" >&2
exit "$status"
