#!/bin/bash
# Prints the path of a kubectl: `kubectl.sh VERSION`. 1.20 is the kubectl of Debian 12, 1.32 that of Debian 13, and 1.36 that of Debian
# forky. Each is unpacked into ~/.cache/wherry-lab; nothing is installed. An existing copy is used without the network. Exit code 69,
# with the reason on stderr and nothing on stdout: this kubectl is not available here.
set -euo pipefail
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=tests/lab/suite.sh
. "$LAB/suite.sh"

UNAVAILABLE=69

[ $# = 1 ] || die "usage: kubectl.sh VERSION (1.20, 1.32 or 1.36)"
case $1 in
1.20) SUITE=bookworm PACKAGE=kubernetes-client ;;
1.32) SUITE=trixie PACKAGE=kubectl ;;
1.36) SUITE=forky PACKAGE=kubectl ;;
*) die "unknown kubectl $1 (1.20, 1.32, 1.36)" ;;
esac
DIR=${XDG_CACHE_HOME:-$(caller_home)/.cache}/wherry-lab/kubectl-$1
KUBECTL=$DIR/unpacked/usr/bin/kubectl

complete() { "$KUBECTL" version --client >/dev/null 2>&1; }

if ! complete; then
	say "unpacking the kubectl of Debian $SUITE into $DIR"
	if ! unpack "$PACKAGE" || ! complete; then
		say "kubectl $1 is not available"
		exit "$UNAVAILABLE"
	fi
fi
printf '%s\n' "$KUBECTL"
