# shellcheck shell=bash
# What the tests in a virtual machine share: the tools, the image, and a boot. Sourced, never run.
#
# The machine gets a tar as its second disk, unpacks it at its root and runs the /wherry-vm/run.sh in it, which prints to the
# second serial port and decides when the machine goes off. Slow: the processor is emulated.
#
# Who sources this ends with 77 where no virtual machine can be run.

# shellcheck source=tests/lab/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lab/common.sh"

CANNOT=77
VM=$PROJECT/tests/vm
CACHE=${XDG_CACHE_HOME:-$(caller_home)/.cache}/wherry-vm

cannot() {
	say "no virtual machine can be run here: $*"
	exit $CANNOT
}

# Packages that are missing are unpacked into the cache with what they need, not installed: qemu's own would push out
# another version's tools.
borrow() {
	local tools=$CACHE/tools names
	have apt-get || cannot "missing: $*"
	as_caller mkdir -p "$tools/debs"
	names=$(apt-get install -s --no-install-recommends "$@" 2>/dev/null | awk '/^Inst/ { print $2 }')
	if [ -z "$names" ]; then
		as_root apt-get -qq update </dev/null >&2 || true
		names=$(apt-get install -s --no-install-recommends "$@" 2>/dev/null | awk '/^Inst/ { print $2 }')
	fi
	[ -n "$names" ] || cannot "the distribution has no $*"
	say "unpacking into $tools: $*"
	# shellcheck disable=SC2016,SC2086
	as_caller bash -euc 'cd "$1/debs"; shift; apt-get -q download "$@" >/dev/null 2>&1; for deb in *.deb; do dpkg -x "$deb" ..; done; rm -f ./*.deb' \
		- "$tools" $names || cannot "cannot download $*"
}

find_tools() {
	local tools=$CACHE/tools missing=()
	# The system's own come first.
	PATH=$PATH:$tools/usr/bin:$tools/usr/sbin:$tools/sbin
	have mmdebstrap || missing+=(mmdebstrap)
	have mke2fs || missing+=(e2fsprogs)
	have qemu-system-x86_64 || missing+=(qemu-system-x86)
	if [ ${#missing[@]} -gt 0 ]; then
		borrow "${missing[@]}"
		hash -r
	fi
	QEMU=(qemu-system-x86_64)
	case $(command -v qemu-system-x86_64) in
	"$tools"/*)
		QEMU=(env "LD_LIBRARY_PATH=$tools/usr/lib/x86_64-linux-gnu:$tools/lib/x86_64-linux-gnu" qemu-system-x86_64
			-L "$tools/usr/share/qemu" -L "$tools/usr/share/seabios")
		;;
	esac
	"${QEMU[@]}" --version >/dev/null 2>&1 || cannot "qemu does not start: $("${QEMU[@]}" --version 2>&1 | head -n 1)"
}

# `prepare_machine`: the tools and the image are there, and $work is a directory of this run's own.
prepare_machine() {
	[ "$(uname -m)" = x86_64 ] || cannot 'only x86_64 is prepared'
	can_be_root || cannot 'building its image needs root or sudo'
	find_tools
	as_root env PATH="$PATH" "$VM/image.sh" "$CACHE" || cannot 'its image could not be built'
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

# `runtime_configuration DIRECTORY`: below it containerd's and a network's, for the driver systemd.
runtime_configuration() {
	mkdir -p "$1/etc/containerd" "$1/etc/cni/net.d"
	cat >"$1/etc/containerd/config.toml" <<'CONFIG'
version = 2

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:3.9"

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"

  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = true
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

# The directory $1 becomes the machine's input.
pack_input() {
	tar -C "$1" --owner=0 --group=0 -cf "$work/input.tar" .
}

# `switch_on DISK WORD...`: DISK is a path, with ",snapshot=on" if nothing of what is written to it is to stay; words are added to the
# kernel's. What run.sh says is printed and in $work/result.log, what the kernel says in $work/console.log.
switch_on() {
	local disk=$1
	shift
	: >"$work/result.log"
	"${QEMU[@]}" -accel "${WHERRY_VM_ACCEL:-tcg,thread=multi}" -cpu max -M q35 -m 2048 -smp 2 -display none -nodefaults -no-reboot \
		-serial "file:$work/console.log" -serial "file:$work/result.log" \
		-drive "file=$disk,format=raw,if=virtio,cache=unsafe" \
		-drive "file=$work/input.tar,format=raw,if=virtio,readonly=on" \
		-device virtio-rng-pci -nic none -kernel "$CACHE/vmlinuz" -initrd "$CACHE/initrd" \
		-append "root=/dev/vda rw console=ttyS0 panic=-1 mitigations=off $*" </dev/null &
	machine=$!
	tail -n +1 -f --pid="$machine" "$work/result.log" &
}

# `until_off SECONDS`: waits until the machine goes off, at most so long.
until_off() {
	local limit=$1 result=0
	for _ in $(seq 1 "$limit"); do
		kill -0 "$machine" 2>/dev/null || break
		sleep 1
	done
	if kill -0 "$machine" 2>/dev/null; then
		tail -n 20 "$work/console.log" >&2
		keep_logs
		die "the machine did not end within $limit s; above is the end of its console"
	fi
	wait "$machine" || result=$?
	machine=
	# The last lines are still on their way to the terminal.
	sleep 1
	[ "$result" = 0 ] || die "qemu ended with $result"
}

# `until_said SECONDS TEXT`: waits until the machine has printed a line of that text.
until_said() {
	for _ in $(seq 1 "$1"); do
		if grep -qF "$2" "$work/result.log"; then return; fi
		kill -0 "$machine" 2>/dev/null || break
		sleep 1
	done
	tail -n 20 "$work/console.log" >&2
	keep_logs
	die "the machine did not say '$2' within $1 s; above is the end of its console"
}

# The machine is gone from one moment to the next; what it has written to its disk is there.
pull_plug() {
	kill -KILL "$machine"
	wait "$machine" 2>/dev/null || true
	machine=
	sleep 1
}

# `boot SECONDS DISK WORD...`: runs the machine until it goes off.
boot() {
	local limit=$1
	shift
	switch_on "$@"
	until_off "$limit"
}

# `judge_boot N`: dies if what the machine was to do in it did not come to its end.
judge_boot() {
	if ! grep -q "^wherry-vm: boot $1 did what it was to do" "$work/result.log"; then
		tail -n 30 "$work/console.log" >&2
		keep_logs
		die "boot $1 did not come to its end; above is the end of its console"
	fi
}

# `end_boot N`: counts the checks that failed in it in $bad, and keeps its logs.
end_boot() {
	bad=$((bad + $(grep -c '^FAILED: ' "$work/result.log" || true)))
	mv "$work/console.log" "$work/console-$1.log"
	mv "$work/result.log" "$work/result-$1.log"
}

# The end of it all.
judge_checks() {
	if [ "$bad" != 0 ]; then
		keep_logs
		die "$bad checks failed"
	fi
	printf '\nall is as it should be\n'
}

# After a failure, as the runtime tests do it.
keep_logs() {
	if [ -n "${WHERRY_LAB_KEEP:-}" ]; then
		as_caller mkdir -p "$WHERRY_LAB_KEEP"
		cp "$work"/*.log "$WHERRY_LAB_KEEP/"
		say "the machine's logs are in $WHERRY_LAB_KEEP"
	fi
}
