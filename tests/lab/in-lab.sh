#!/bin/bash
# Runs a program with a private container runtime in private namespaces: `in-lab.sh PROGRAM ARGS...`. cargo calls it as
# the runner of the runtime tests and the bench (see the Makefile). Only this part needs root.
#
# WHERRY_LAB_SOCKET and the other variables of DIR/env describe the runtime (see runtime.sh). WHERRY_RUNTIME=1.7: use
# containerd 1.7 instead of the system's (newer-runtime.sh). WHERRY_KUBECTL='1.20 1.36': the tests use these versions of kubectl
# (kubectl.sh); one that is not available is left out. WHERRY_API_SERVER=build: build a kube-apiserver for the comparison with one
# (control-plane.sh); otherwise it is used if it was built before. WHERRY_CONTROL_PLANE=build: build a whole control plane; =built: use one
# that was built before. Exit code 77: it is not available. WHERRY_LAB_MACHINE: the directory of a virtual machine (tests/vm/cluster.sh).
set -euo pipefail
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/common.sh"

if [ "${1:-}" = --inside ]; then
	shift
	"$LAB/runtime.sh" up "$WHERRY_LAB_DIR" t
	set -a
	# shellcheck disable=SC1091
	. "$WHERRY_LAB_DIR/env"
	set +a
	status=0
	"$@" || status=$?
	if [ "$status" != 0 ] && [ -n "${WHERRY_LAB_KEEP:-}" ]; then
		mkdir -p "$WHERRY_LAB_KEEP"
		cp -r "$WHERRY_LAB_DIR"/containerd.log "$WHERRY_LAB_DIR"/{agents,control-planes} "$WHERRY_LAB_KEEP" 2>/dev/null || true
		say "logs are in $WHERRY_LAB_KEEP"
	fi
	"$LAB/runtime.sh" down "$WHERRY_LAB_DIR"
	exit "$status"
fi

[ $# -gt 0 ] || die "usage: in-lab.sh PROGRAM ARGS..."
can_be_root || die "a container runtime needs root or sudo, which are not available"
images=${WHERRY_LAB_IMAGES:-$PROJECT/target/lab-images}
as_caller "$LAB/images.sh" "$images"
bin=
if [ -n "${WHERRY_RUNTIME:-}" ]; then bin=$(as_caller "$LAB/newer-runtime.sh" "$WHERRY_RUNTIME"); fi
kubectl=
for version in ${WHERRY_KUBECTL:-}; do
	status=0
	path=$(as_caller "$LAB/kubectl.sh" "$version") || status=$?
	case $status in
	0) kubectl="$kubectl $version=$path" ;;
	69) ;;
	*) die "kubectl.sh $version failed" ;;
	esac
done
# Only a test that says so builds it, because that takes minutes.
server=
if [ "${WHERRY_API_SERVER:-}" = build ]; then
	server=$(as_caller "$LAB/control-plane.sh" kube-apiserver) || [ $? = 69 ]
else
	server=$(as_caller "$LAB/control-plane.sh" --built kube-apiserver)
fi
plane=
case ${WHERRY_CONTROL_PLANE:-} in
'') ;;
build | built)
	how=()
	if [ "$WHERRY_CONTROL_PLANE" = built ]; then how=(--built); fi
	plane=$(as_caller "$LAB/control-plane.sh" "${how[@]}" kube-apiserver kube-controller-manager kube-scheduler) || [ $? = 69 ]
	if [ -z "$plane" ]; then
		say 'not tested: no control plane is available here (make test-cluster builds it)'
		exit 77
	fi
	;;
*) die "WHERRY_CONTROL_PLANE is build or built, not $WHERRY_CONTROL_PLANE" ;;
esac
as_root env WHERRY_LAB_MACHINE="${WHERRY_LAB_MACHINE:-}" WHERRY_LAB_CONTROL_PLANE="$plane" WHERRY_LAB_API_SERVER="$server" WHERRY_LAB_IMAGES="$images" WHERRY_LAB_BIN="$bin" WHERRY_KUBECTL="${WHERRY_KUBECTL:-}" WHERRY_LAB_KUBECTL="$kubectl" WHERRY_LAB_KEEP="${WHERRY_LAB_KEEP:-}" WHERRY_RECORD="${WHERRY_RECORD:-}" \
	WHERRY_FORCE_SEED="${WHERRY_FORCE_SEED:-}" WHERRY_FORCE_KILLS="${WHERRY_FORCE_KILLS:-}" RUST_BACKTRACE="${RUST_BACKTRACE:-1}" \
	"$LAB/isolate.sh" "$LAB/in-lab.sh" --inside "$@"
