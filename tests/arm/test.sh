#!/bin/bash
# Tests the packages for ARM (`make test-arm`), and the code on emulated processors of 64 and 32 bits. For each architecture:
#
#   - the deb and the rpm are built, and their names, dependencies, sizes and the binary's libraries are checked
#   - the binary runs: --version, check, and an agent without a runtime that answers on its socket
#   - the unit tests of all crates
#   - the simulation, with a part of its random lives
#
# ARCH=arm64 or armhf: only that one. WHERRY_SEEDS: the number of lives of each kind. The build is in the cache, outside the checkout.
# Exits with 77 if the compilers are not available here.
set -euo pipefail
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/../lab/common.sh"
# shellcheck source=tests/lab/check.sh
. "$LAB/check.sh"

# glibc of Debian 12, and of the Raspberry Pi OS of that age.
NEWEST_GLIBC=2.36
# Maximum sizes in bytes.
MOST_DEB=$((4 * 1000 * 1000))
MOST_BINARY=$((10 * 1000 * 1000))
export WHERRY_SEEDS=${WHERRY_SEEDS:-20}

cd "$PROJECT"
work=$(mktemp -d "${TMPDIR:-/var/tmp}/wherry-arm.XXXXXX")
agent=
finish() {
	if [ -n "$agent" ]; then kill -KILL "$agent" 2>/dev/null || true; fi
	rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

cross() { "$LAB/cross.sh" "$arch" "$@"; }

# Checks the files of both packages; sets $binary.
packages() {
	local deb rpm began=$SECONDS newest
	deb=$(ARCH=$arch packaging/deb.sh | tail -n 1)
	say "the deb for $arch took $((SECONDS - began)) s"
	dpkg-deb -x "$deb" "$work/$arch"
	binary=$work/$arch/usr/bin/wherry
	rpm=$(ARCH=$rpm_arch WHERRY_BINARY=$binary packaging/rpm.sh | tail -n 1)
	check 'the deb has its architecture' is "$(dpkg-deb -f "$deb" Architecture)" "$arch"
	check 'the deb depends on the libraries that the binary needs' \
		is "$(dpkg-deb -f "$deb" Depends | sed 's/ ([^)]*)//g')" 'libc6, libdbus-1-3, libgcc-s1'
	check 'the rpm has its architecture' is "$(rpm -qp --queryformat '%{ARCH}' "$rpm" 2>/dev/null)" "$rpm_arch"
	check 'the rpm depends on libdbus' grep -q '^libdbus-1.so.3' <(rpm -qp --requires "$rpm" 2>/dev/null)
	check 'the binary is for the architecture' is "$(readelf -h "$binary" | sed -n 's/^ *Machine: *//p')" "$machine"
	newest=$(readelf -V "$binary" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)
	check "the binary needs glibc $NEWEST_GLIBC or older" at_least "${newest#GLIBC_}" "$NEWEST_GLIBC"
	check 'the binary contains no path of the build machine' not grep -qaF -e "$PROJECT" -e "$(caller_home)/.c" "$binary"
	check 'the deb is small' at_most "$(stat -c %s "$deb")" $MOST_DEB
	check 'the binary is small' at_most "$(stat -c %s "$binary")" $MOST_BINARY
	say "$arch: deb $(stat -c %s "$deb"), rpm $(stat -c %s "$rpm"), binary $(stat -c %s "$binary") bytes"
}

answers() {
	local end=$((SECONDS + 120))
	until cross run "$binary" status --socket "$work/run/wherry.sock" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] && kill -0 "$agent" 2>/dev/null || { tail -n 20 "$work/agent.log" >&2; return 1; }
		sleep 0.5
	done
}

# Runs the binary of the package: a look at manifests, and an agent that waits for a runtime.
programs() {
	local manifests=$work/manifests
	mkdir -p "$manifests" "$work/run" "$work/config.d"
	cp packaging/examples/*.yaml "$manifests"
	check 'the binary runs' is "$(cross run "$binary" --version)" "wherry $(packaging/version.sh upstream)"
	check 'it reads the examples' cross run "$binary" check --manifests "$manifests"
	# It changes nothing outside its directories, and uses no port.
	cat >"$work/config.yaml" <<-CONFIG
		apiVersion: kubelet.config.k8s.io/v1beta1
		kind: KubeletConfiguration
		cgroupsPerQOS: false
		enforceNodeAllocatable: []
		healthzPort: 0
		---
		apiVersion: wherry.io/v1alpha1
		kind: WherryConfiguration
		devicePluginSocket: ""
	CONFIG
	# (Not with `cross`: the process that is killed must be the agent's.)
	"$LAB/cross.sh" "$arch" run "$binary" run --config "$work/config.yaml" --config-dir "$work/config.d" --manifests "$manifests" --root-dir "$work/root" --log-dir "$work/logs" \
		--container-log-dir "$work/links" --socket "$work/run/wherry.sock" --runtime-endpoint "unix://$work/none.sock" \
		>"$work/agent.log" 2>&1 &
	agent=$!
	check 'an agent without a runtime answers' answers
	kill -TERM "$agent" 2>/dev/null || true
	check 'it ends on SIGTERM' wait "$agent"
	agent=
}

# suite TEXT ARGS...: runs cargo test.
suite() {
	local began=$SECONDS
	check "$1" cross cargo test --locked "${@:2}"
	say "$1: $((SECONDS - began)) s on $arch"
}

for arch in ${ARCH:-arm64 armhf}; do
	case $arch in
	arm64) rpm_arch=aarch64 machine=AArch64 ;;
	armhf) rpm_arch=armv7hl machine=ARM ;;
	*) die "ARCH=$arch: arm64 or armhf" ;;
	esac
	say "=== $arch"
	code=0
	cross >/dev/null || code=$?
	[ "$code" != 69 ] || exit 77
	[ "$code" = 0 ] || exit "$code"
	packages
	programs
	suite 'unit tests of the pure crates' --lib -p wherry-api -p wherry-engine
	# (make test-vm-unit runs those that are left out: they need openat2(2), memory as the kernel counts it, the error of an exec(2),
	# or start the test program itself.)
	suite 'unit tests of the agent' --lib -p wherry -- --skip disk_use::tests::a_tree_is_measured --skip disk_use::tests::a_deep_tree \
		--skip m_families_without_labels_are_there --skip a_missing_program_is_an_error --skip without_free_descriptors \
		--skip a_program_that_is_missing_or_fails --skip a_panic_leaves_its_place
	# (Of the tests that are left out, one plays the stories again in a process of its own, which this machine cannot start, and one
	# takes minutes.)
	suite "the simulation, with $WHERRY_SEEDS lives of each kind" -p wherry-engine --test simulation -- --skip stories_with_another_runtime --skip two_days
done
[ "$bad" = 0 ] || die "$bad failed"
say 'all passed'
