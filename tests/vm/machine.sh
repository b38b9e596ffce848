# shellcheck shell=bash
# Functions that the tests in a virtual machine share: the tools, the image, and a boot. Sourced, never run.
#
# The machine gets a tar as its second disk, unpacks it at its root and runs /wherry-vm/run.sh from it. That script prints to the
# second serial port and powers the machine off. Slow: the processor is emulated.
#
# ARCH=arm64: the machine has that architecture, and so have its image and the programs for it. ARCH=armhf: the same machine, but
# Wherry has 32 bits, as on a Raspberry Pi with a kernel of 64 bits.
#
# A script that sources this file exits with 77 if no virtual machine can run.

# shellcheck source=tests/lab/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lab/common.sh"

CANNOT=77
VM=$PROJECT/tests/vm
CACHE=${XDG_CACHE_HOME:-$(caller_home)/.cache}/wherry-vm
# The architecture of the machine and of the package. Empty: this machine's.
OTHER=
PACKAGE=
case ${ARCH:-} in
'' | "$(dpkg --print-architecture 2>/dev/null)") ;;
arm64 | armhf) OTHER=arm64 PACKAGE=$ARCH ;;
*) die "ARCH=$ARCH: amd64, arm64 or armhf" ;;
esac
IMAGE=$CACHE${OTHER:+/$OTHER}
CONTAINER_IMAGES=$PROJECT/target/lab-images${OTHER:+-$OTHER}

cannot() {
	say "cannot run a virtual machine: $*"
	exit $CANNOT
}

# Unpacks missing packages and their dependencies into the cache. They are not installed, because qemu's packages would
# replace the tools of another version.
borrow() {
	local tools=$CACHE/tools names
	have apt-get || cannot "missing packages: $*"
	as_caller mkdir -p "$tools/debs"
	names=$(apt-get install -s --no-install-recommends "$@" 2>/dev/null | awk '/^Inst/ { print $2 }')
	if [ -z "$names" ]; then
		as_root apt-get -qq update </dev/null >&2 || true
		names=$(apt-get install -s --no-install-recommends "$@" 2>/dev/null | awk '/^Inst/ { print $2 }')
	fi
	[ -n "$names" ] || cannot "the distribution has no package $*"
	say "unpacking into $tools: $*"
	# shellcheck disable=SC2016,SC2086
	as_caller bash -euc 'cd "$1/debs"; shift; apt-get -q download "$@" >/dev/null 2>&1; for deb in *.deb; do dpkg -x "$deb" ..; done; rm -f ./*.deb' \
		- "$tools" $names || cannot "failed to download $*"
}

find_tools() {
	local tools=$CACHE/tools missing=() qemu=qemu-system-x86_64 package=qemu-system-x86
	if [ -n "$OTHER" ]; then qemu=qemu-system-aarch64 package=qemu-system-arm; fi
	# The system's programs come first.
	PATH=$PATH:$tools/usr/bin:$tools/usr/sbin:$tools/sbin
	have mmdebstrap || missing+=(mmdebstrap)
	have mke2fs || missing+=(e2fsprogs)
	have $qemu || missing+=($package)
	if [ ${#missing[@]} -gt 0 ]; then
		borrow "${missing[@]}"
		hash -r
	fi
	QEMU=("$qemu")
	case $(command -v "$qemu") in
	"$tools"/*)
		QEMU=(env "LD_LIBRARY_PATH=$tools/usr/lib/x86_64-linux-gnu:$tools/lib/x86_64-linux-gnu" "$qemu"
			-L "$tools/usr/share/qemu" -L "$tools/usr/share/seabios")
		;;
	esac
	"${QEMU[@]}" --version >/dev/null 2>&1 || cannot "qemu does not start: $("${QEMU[@]}" --version 2>&1 | head -n 1)"
}

# Sets QEMU_IMG to the command for images of disks.
find_qemu_img() {
	local tools=$CACHE/tools
	if ! have qemu-img; then
		borrow qemu-utils
		hash -r
	fi
	QEMU_IMG=(qemu-img)
	case $(command -v qemu-img) in
	"$tools"/*) QEMU_IMG=(env "LD_LIBRARY_PATH=$tools/usr/lib/x86_64-linux-gnu:$tools/lib/x86_64-linux-gnu" qemu-img) ;;
	esac
	"${QEMU_IMG[@]}" --version >/dev/null 2>&1 || cannot 'qemu-img does not start'
}

# Exits if the machine has another architecture than this one.
only_here() {
	[ -z "$OTHER" ] || cannot "this test has no form for ARCH=$ARCH"
}

# `prepare_machine`: provides the tools, the image, and the temporary directory $work.
prepare_machine() {
	[ "$(uname -m)" = x86_64 ] || cannot 'only x86_64 is supported'
	can_be_root || cannot 'the build of its image needs root or sudo'
	find_tools
	as_root env PATH="$PATH" "$VM/image.sh" "$IMAGE" $OTHER || cannot 'failed to build its image'
	work=$(mktemp -d "${TMPDIR:-/var/tmp}/wherry-vm.XXXXXX")
	trap finish EXIT
	trap 'exit 130' INT TERM HUP
}

machine=
# shellcheck disable=SC2317 # called by the trap
finish() {
	if [ -n "$machine" ]; then kill -KILL "$machine" 2>/dev/null || true; fi
	rm -rf "$work"
}

# `runtime_configuration DIRECTORY [cgroupfs]`: writes the configurations of containerd and of a network, for the systemd driver or
# for that one.
runtime_configuration() {
	local systemd=true
	if [ "${2:-systemd}" = cgroupfs ]; then systemd=false; fi
	if [ "$PACKAGE" = armhf ]; then
		# For the machine's systemd, 32 bits are not native. On a system of 32 bits they are, also with a kernel of 64 bits.
		mkdir -p "$1/etc/systemd/system/wherry.service.d"
		printf '[Service]\nSystemCallArchitectures=arm\n' >"$1/etc/systemd/system/wherry.service.d/10-32-bits.conf"
	fi
	mkdir -p "$1/etc/containerd" "$1/etc/cni/net.d"
	cat >"$1/etc/containerd/config.toml" <<CONFIG
version = 2

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:3.9"

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"

  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = $systemd
CONFIG
	cat >"$1/etc/cni/net.d/10-vm.conflist" <<'CONFIG'
{
  "cniVersion": "0.4.0",
  "name": "vm",
  "plugins": [
    {
      "type": "bridge", "bridge": "cni0", "isGateway": true,
      "ipam": { "type": "host-local", "ranges": [[{ "subnet": "10.88.0.0/24" }]] }
    }
  ]
}
CONFIG
}

# `package_for_machine [REVISION BINARY DIRECTORY]`: builds a deb for the machine and prints its path; a later revision from a binary.
package_for_machine() {
	local settings=("ARCH=$PACKAGE")
	if [ $# -gt 0 ]; then settings+=("WHERRY_REVISION=$1" "WHERRY_BINARY=$2" "WHERRY_PACKAGES=$3"); fi
	as_caller env "${settings[@]}" packaging/deb.sh | tail -n 1
}

# Packs the directory $1 as the machine's input.
pack_input() {
	tar -C "$1" --owner=0 --group=0 -cf "$work/input.tar" .
}

# The number of the machine's processors.
CPUS=2

# `describe_machine DISK NETWORK WORD...`: sets MACHINE to the command that runs the machine. DISK is a path, with ",snapshot=on" to
# discard changes, or ",format=qcow2" for an overlay. NETWORK is the value of qemu's option -nic. The words are added to the kernel's
# command line, which also names the device for the output.
describe_machine() {
	local disk=$1 network=$2 result=ttyS1
	shift 2
	case $disk in
	*,format=*) ;;
	*) disk=$disk,format=raw ;;
	esac
	local board=(-cpu max -M q35 -serial "file:$work/console.log" -serial "file:$work/result.log") console=ttyS0
	if [ -n "$OTHER" ]; then
		# (The processor of a Raspberry Pi 4. `max` has features whose emulation is slow.)
		board=(-cpu cortex-a72 -M virt -serial "file:$work/console.log" -device virtio-serial-pci
			-chardev "file,id=result,path=$work/result.log" -device "virtconsole,chardev=result")
		console=ttyAMA0 result=hvc0
	fi
	MACHINE=("${QEMU[@]}" -accel "${WHERRY_VM_ACCEL:-tcg,thread=multi}" "${board[@]}" -m 2048 -smp "$CPUS" -display none -nodefaults -no-reboot
		-drive "file=$disk,if=virtio,cache=unsafe"
		-drive "file=$work/input.tar,format=raw,if=virtio,readonly=on"
		-device virtio-rng-pci -nic "$network" -kernel "$IMAGE/vmlinuz" -initrd "$IMAGE/initrd"
		-append "root=/dev/vda rw console=$console panic=-1 mitigations=off wherry-vm.result=$result $*")
}

# `switch_on DISK WORD...`: starts the machine, without a network. The output of run.sh is printed and written to $work/result.log,
# that of the kernel to $work/console.log.
switch_on() {
	describe_machine "$1" none "${@:2}"
	: >"$work/result.log"
	"${MACHINE[@]}" </dev/null &
	machine=$!
	tail -n +1 -f --pid="$machine" "$work/result.log" &
}

# `until_off SECONDS`: waits until the machine has powered off, at most this long.
until_off() {
	local limit=$1 result=0
	for _ in $(seq 1 "$limit"); do
		kill -0 "$machine" 2>/dev/null || break
		sleep 1
	done
	if kill -0 "$machine" 2>/dev/null; then
		tail -n 20 "$work/console.log" >&2
		keep_logs
		die "the machine did not power off within $limit s; see the end of its console above"
	fi
	wait "$machine" || result=$?
	machine=
	# Let tail print the last lines.
	sleep 1
	[ "$result" = 0 ] || die "qemu exited with $result"
}

# `until_said SECONDS TEXT`: waits until the machine has printed a line that contains the text.
until_said() {
	for _ in $(seq 1 "$1"); do
		if grep -qF "$2" "$work/result.log"; then return; fi
		kill -0 "$machine" 2>/dev/null || break
		sleep 1
	done
	tail -n 20 "$work/console.log" >&2
	keep_logs
	die "the machine did not print '$2' within $1 s; see the end of its console above"
}

# Stops the machine without a shutdown, like a power cut; data that was written to its disk is kept.
pull_plug() {
	kill -KILL "$machine"
	wait "$machine" 2>/dev/null || true
	machine=
	sleep 1
}

# `boot SECONDS DISK WORD...`: runs the machine until it powers off.
boot() {
	local limit=$1
	shift
	switch_on "$@"
	until_off "$limit"
}

# Ends the script after a run that prints "wherry-vm: ended with" and the exit code of the tests.
judge_tests() {
	if grep -q '^wherry-vm: ended with 0' "$work/result.log"; then exit 0; fi
	grep -q '^wherry-vm: ended with' "$work/result.log" || { tail -n 30 "$work/console.log" >&2; say 'the machine powered off before the tests ended'; }
	keep_logs
	exit 1
}

# `judge_boot N`: exits if the script of this boot did not complete.
judge_boot() {
	if ! grep -q "^wherry-vm: boot $1 completed" "$work/result.log"; then
		tail -n 30 "$work/console.log" >&2
		keep_logs
		die "boot $1 did not complete; see the end of its console above"
	fi
}

# `end_boot N`: adds the failed checks of the boot to $bad, and keeps its logs.
end_boot() {
	bad=$((bad + $(grep -c '^FAILED: ' "$work/result.log" || true)))
	mv "$work/console.log" "$work/console-$1.log"
	mv "$work/result.log" "$work/result-$1.log"
}

# Evaluates the checks of all boots.
judge_checks() {
	if [ "$bad" != 0 ]; then
		keep_logs
		die "$bad checks failed"
	fi
	printf '\nall checks passed\n'
}

# Keeps the logs after a failure, as the runtime tests do.
keep_logs() {
	if [ -n "${WHERRY_LAB_KEEP:-}" ]; then
		as_caller mkdir -p "$WHERRY_LAB_KEEP"
		cp "$work"/*.log "$WHERRY_LAB_KEEP/"
		say "the machine's logs are in $WHERRY_LAB_KEEP"
	fi
}
