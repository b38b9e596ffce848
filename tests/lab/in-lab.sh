#!/bin/bash
# Runs a program with a private container runtime in private namespaces: `in-lab.sh PROGRAM ARGS...`. cargo calls it as
# the runner of the runtime tests and the bench (see the Makefile). Only this part needs root.
#
# WHERRY_LAB_SOCKET and the other variables of DIR/env describe the runtime (see runtime.sh). WHERRY_RUNTIME=1.7: use
# containerd 1.7 instead of the system's (newer-runtime.sh). WHERRY_KUBECTL=1: the tests run kubectl; they find the paths of the
# available ones in the same variable, separated by colons (kubectl.sh).
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
		cp -r "$WHERRY_LAB_DIR"/containerd.log "$WHERRY_LAB_DIR"/agents "$WHERRY_LAB_KEEP" 2>/dev/null || true
		say "logs are in $WHERRY_LAB_KEEP"
	fi
	"$LAB/runtime.sh" down "$WHERRY_LAB_DIR"
	exit "$status"
fi

[ $# -gt 0 ] || die "usage: in-lab.sh PROGRAM ARGS..."
can_be_root || die "a container runtime needs root or sudo, which are not available"
images=${WHERRY_LAB_IMAGES:-$PROJECT/target/lab-images}
as_caller "$LAB/images.sh" "$images"
kubectl=
if [ -n "${WHERRY_KUBECTL:-}" ]; then
	for version in 1.20 1.32 1.36; do
		kubectl+=${kubectl:+:}$(as_caller "$LAB/kubectl.sh" "$version") || [ $? = 69 ]
	done
fi
bin=
if [ -n "${WHERRY_RUNTIME:-}" ]; then bin=$(as_caller "$LAB/newer-runtime.sh" "$WHERRY_RUNTIME"); fi
as_root env WHERRY_LAB_IMAGES="$images" WHERRY_KUBECTL="$kubectl" WHERRY_LAB_BIN="$bin" WHERRY_LAB_KEEP="${WHERRY_LAB_KEEP:-}" WHERRY_RECORD="${WHERRY_RECORD:-}" \
	WHERRY_FORCE_SEED="${WHERRY_FORCE_SEED:-}" WHERRY_FORCE_KILLS="${WHERRY_FORCE_KILLS:-}" RUST_BACKTRACE="${RUST_BACKTRACE:-1}" \
	"$LAB/isolate.sh" "$LAB/in-lab.sh" --inside "$@"
