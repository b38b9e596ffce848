#!/bin/bash
# The runtime tests in a virtual machine (`make test-vm`): systemd and pure cgroup v2, as a fresh Debian has them. Slow: the
# processor is emulated. Arguments go to the test program.
#
# Ends with 77 where no virtual machine can be run, with 1 if a test failed or the machine did not end in time.
set -euo pipefail
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/../lab/common.sh"

CANNOT=77
VM=$PROJECT/tests/vm
CACHE=${XDG_CACHE_HOME:-$(caller_home)/.cache}/wherry-vm
# Seconds; the whole of it.
LIMIT=${WHERRY_VM_LIMIT:-7200}

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

[ "$(uname -m)" = x86_64 ] || cannot 'only x86_64 is prepared'
can_be_root || cannot 'building its image needs root or sudo'
find_tools
as_root env PATH="$PATH" "$VM/image.sh" "$CACHE" || cannot 'its image could not be built'

cd "$PROJECT"
"$LAB/install.sh" build runtime
images=$PROJECT/target/lab-images
as_caller "$LAB/images.sh" "$images"
# The paths of the checkout are compiled into the tests: they are the same in there.
test_program=$("$LAB/cargo.sh" test --no-run --test runtime --message-format=json |
	grep '"kind":\["test"\]' | grep -o '"executable":"[^"]*"' | cut -d'"' -f4 | tail -n 1)
[ -x "$test_program" ] || die 'the test program was not built'

work=$(mktemp -d "${TMPDIR:-/var/tmp}/wherry-vm.XXXXXX")
pid=
# shellcheck disable=SC2317 # called by the trap
finish() {
	if [ -n "$pid" ]; then kill -KILL "$pid" 2>/dev/null || true; fi
	rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

mkdir -p "$work/in/wherry-vm" "$work/in$PROJECT/tests" "$work/in$images" "$work/in$(dirname "$test_program")" "$work/in$PROJECT/target/debug"
cp -r "$LAB" "$PROJECT/tests/fixtures" "$work/in$PROJECT/tests/"
cp -r "$images/." "$work/in$images/"
strip -o "$work/in$test_program" "$test_program"
strip -o "$work/in$PROJECT/target/debug/wherry" "$PROJECT/target/debug/wherry"
cat >"$work/in/wherry-vm/run.sh" <<END
#!/bin/bash
cd $PROJECT
export WHERRY_LAB_IMAGES=$images WHERRY_LAB_SLOW=10 RUST_BACKTRACE=1 HOME=/root
echo "kernel \$(uname -r), systemd \$(systemctl --version | head -n 1), cgroups \$(stat -f -c %T /sys/fs/cgroup)"
status=0
tests/lab/isolate.sh tests/lab/in-lab.sh --inside $test_program --test-threads=2 $* || status=\$?
echo "wherry-vm: ended with \$status"
END
chmod +x "$work/in/wherry-vm/run.sh"
tar -C "$work/in" --owner=0 --group=0 -cf "$work/input.tar" .

: >"$work/result.log"
"${QEMU[@]}" -accel tcg,thread=multi -cpu max -M q35 -m 2048 -smp 2 -display none -nodefaults -no-reboot \
	-serial "file:$work/console.log" -serial "file:$work/result.log" \
	-drive "file=$CACHE/rootfs.ext4,format=raw,if=virtio,snapshot=on,cache=unsafe" \
	-drive "file=$work/input.tar,format=raw,if=virtio,readonly=on" \
	-device virtio-rng-pci -nic none -kernel "$CACHE/vmlinuz" -initrd "$CACHE/initrd" \
	-append 'root=/dev/vda rw console=ttyS0 panic=-1 mitigations=off' </dev/null &
pid=$!
tail -n +1 -f --pid="$pid" "$work/result.log" &
for _ in $(seq 1 "$LIMIT"); do
	kill -0 "$pid" 2>/dev/null || break
	sleep 1
done
if kill -0 "$pid" 2>/dev/null; then
	tail -n 20 "$work/console.log" >&2
	die "the machine did not end within $LIMIT s; above is the end of its console"
fi
wait "$pid" || true
pid=
sleep 1
if grep -q '^wherry-vm: ended with 0' "$work/result.log"; then exit 0; fi
grep -q '^wherry-vm: ended with' "$work/result.log" || { tail -n 30 "$work/console.log" >&2; say 'the machine ended before the tests did'; }
exit 1
