#!/bin/bash
# Builds programs of a Kubernetes control plane, with etcd beside them, and prints their directory:
# `control-plane.sh kube-apiserver [kube-scheduler ...]`. With --built before them, it builds nothing, and prints nothing if one is missing.
#
# The source is Debian 12's package kubernetes (1.20.2), which Debian builds only kubectl from, and the compiler is Debian 12's Go.
# Everything is in ~/.cache/wherry-lab/control-plane; nothing is installed. An existing program is used without the network. The build
# takes three minutes on two cores for kube-apiserver, and three to six for all three. Exit code 69, with the reason on stderr: it is
# not available here.
set -euo pipefail
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=tests/lab/suite.sh
. "$LAB/suite.sh"

UNAVAILABLE=69

build=yes
if [ "${1:-}" = --built ]; then
	build=
	shift
fi
[ $# -gt 0 ] || die 'usage: control-plane.sh [--built] PROGRAM...'
SUITE=bookworm
DIR=${XDG_CACHE_HOME:-$(caller_home)/.cache}/wherry-lab/control-plane
# The name changes with the recipe, so that programs of an older one are built again.
BIN=$DIR/1.20.2

# Sets the programs that have to be built.
find_missing() {
	missing=()
	for program in "$@"; do
		case $program in
		kube-apiserver | kube-controller-manager | kube-scheduler) ;;
		*) die "unknown program $program" ;;
		esac
		[ -x "$BIN/$program" ] || missing+=("$program")
	done
}

find_missing "$@"
if [ ${#missing[@]} -gt 0 ] && [ -n "$build" ]; then
	# Two builds at the same time would remove each other's files. The second one finds the programs of the first.
	mkdir -p "$DIR"
	exec 9>"$DIR/lock"
	flock 9
	find_missing "$@"
fi

# The API server needs a file that upstream generates at each build, from the whole source tree.
generate_openapi() {
	local tree=$1 inputs
	cd "$tree"
	go build -o "$DIR/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
	inputs=$(grep -rl --include=*.go '+k8s:openapi-gen=' pkg staging/src/k8s.io |
		grep -v -e /testdata/ -e /_examples/ -e sample-apiserver -e _test.go |
		xargs -n 1 dirname | LC_ALL=C sort -u |
		sed -e 's,^staging/src/,k8s.io/kubernetes/vendor/,' -e 's,^pkg/,k8s.io/kubernetes/pkg/,' | paste -sd,)
	"$DIR/openapi-gen" --go-header-file vendor/k8s.io/code-generator/hack/boilerplate.go.txt \
		--input-dirs "$inputs" --output-file-base zz_generated.openapi --output-base "$GOPATH/src" \
		--output-package k8s.io/kubernetes/pkg/generated/openapi --report-filename /dev/null
}

build() {
	local tree package
	export GOROOT=$DIR/unpacked/usr/lib/go-1.19 GOPATH=$DIR/go GOCACHE=$DIR/gocache GO111MODULE=off CGO_ENABLED=0 GOFLAGS='-p=2'
	PATH=$GOROOT/bin:$PATH
	tree=$GOPATH/src/k8s.io/kubernetes
	# This version of the library does not work with Go 1.18 and later: the server panics on JSON objects. Debian has the next one.
	rm -rf "$tree/vendor/github.com/modern-go/reflect2"
	cp -r "$DIR/unpacked/usr/share/gocode/src/github.com/modern-go/reflect2" "$tree/vendor/github.com/modern-go/reflect2"
	if [ ! -s "$tree/pkg/generated/openapi/zz_generated.openapi.go" ]; then (generate_openapi "$tree"); fi
	cd "$tree"
	mkdir -p "$BIN"
	# The API server shows the version of client-go in `/version`; every program prints the other one.
	for package in client-go/pkg component-base; do
		package=k8s.io/kubernetes/vendor/k8s.io/$package/version
		set -- "$@" -X "$package.gitVersion=v1.20.2" -X "$package.gitMajor=1" -X "$package.gitMinor=20"
	done
	for program in "${missing[@]}"; do
		say "building $program of Kubernetes 1.20 (minutes)"
		go build -tags providerless -ldflags "-s -w $*" -o "$DIR/$program.new" "./cmd/$program"
		mv "$DIR/$program.new" "$BIN/$program"
	done
	cp "$DIR/unpacked/usr/bin/etcd" "$BIN/etcd"
	rm -rf "$DIR/bin"
	# Half a gigabyte that only another build would use.
	rm -rf "$DIR/gocache" "$DIR/openapi-gen"
}

if [ ${#missing[@]} -gt 0 ]; then
	[ -n "$build" ] || exit 0
	if [ ! -d "$DIR/go/src/k8s.io/kubernetes" ]; then
		say "unpacking the source of Kubernetes 1.20 into $DIR"
		SOURCE=kubernetes unpack golang-1.19-go golang-1.19-src etcd-server golang-github-modern-go-reflect2-dev || {
			say 'the control plane is not available'
			exit "$UNAVAILABLE"
		}
		mkdir -p "$DIR/go/src/k8s.io"
		rm -rf "$DIR/go/src/k8s.io/kubernetes"
		mv "$DIR"/unpacked/source/kubernetes-* "$DIR/go/src/k8s.io/kubernetes"
	fi
	(build) >&2
fi
printf '%s\n' "$BIN"
