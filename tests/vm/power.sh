#!/bin/bash
# Cuts the power of a virtual machine many times (`make test-vm-power`): after each cut, the pods run again as the manifests on the disk
# say, and no file of the agent needs repair. power-inside.sh makes the checks, and changes manifests until the next cut.
#
# Boot 0 is an ordinary boot with systemd, which installs everything, creates the first pods and powers the machine off. All other
# boots of the same disk are short: a script is process 1. In two thirds of them, the script first checks the pods, and the power is cut
# at a random time after that. In the others, manifests change from the start of the agent on, and the power is cut at a random time
# while the agent and its pods are starting. The last boot only checks.
#
# A power cut loses the memory of the machine, and so does the end of qemu. A disk also loses writes that it has not flushed, and qemu
# has already given these to the host. So the machine writes to an overlay (qcow2): qemu keeps the places of newly written clusters in
# its memory, and stores them only when the machine flushes the disk. What was written to such a cluster since the last flush is
# therefore lost, in any order. A cluster is as large as a block of the file system, so no write is torn. A second write to a cluster
# since the boot is not lost, because its place is already stored.
#
# WHERRY_VM_CUTS: the number of power cuts. WHERRY_VM_SEED: repeats the random choices of an earlier run, which prints its seed; the
# state of the machine at each cut is not reproduced. WHERRY_BINARY: a program that is already built. WHERRY_LAB_KEEP=DIR: after a
# failure, DIR has the logs and the disk too. Exits with 77 if no virtual machine can run.
set -euo pipefail
# shellcheck source=tests/vm/machine.sh
. "$(dirname "$0")/machine.sh"

CUTS=${WHERRY_VM_CUTS:-200}
SEED=${WHERRY_VM_SEED:-$RANDOM}
# Seconds: the limit of each boot.
LIMIT=${WHERRY_VM_LIMIT:-900}
# Milliseconds: the maximum time from the start of the agent to a cut without checks, and from the checks to a cut.
EARLY=15000
LATER=6000
# Writes per second, as on a slow card: a sync then takes long enough for cuts to come during one.
DISK=throttling.iops-write=200
# With one processor, qemu uses one core.
CPUS=1

prepare_machine
cd "$PROJECT"
"$LAB/install.sh" build runtime
as_caller "$LAB/images.sh" "$CONTAINER_IMAGES" $OTHER
find_qemu_img

in=$work/in
files=$in/wherry-vm/files
mkdir -p "$files"/etc/wherry "$files"/usr/bin
if [ -n "${WHERRY_BINARY:-}" ]; then
	install -m 755 "$WHERRY_BINARY" "$files/usr/bin/wherry"
else
	dpkg-deb --fsys-tarfile "$(package_for_machine)" | tar -xO ./usr/bin/wherry >"$files/usr/bin/wherry"
	chmod 755 "$files/usr/bin/wherry"
fi
# (The symbols of a development build take most of its size. Fails for another architecture.)
strip "$files/usr/bin/wherry" 2>/dev/null || true
install -m 755 "$VM/power-inside.sh" "$in/wherry-vm/run.sh"
cp "$CONTAINER_IMAGES/images.tar" "$in/wherry-vm/"
runtime_configuration "$files" cgroupfs
cat >"$files/etc/wherry/config.yaml" <<'CONFIG'
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
CONFIG
pack_input "$in"

disk=$work/disk.ext4
cp --sparse=always "$IMAGE/rootfs.ext4" "$disk"

# Keeps what explains a failure, and ends. The disk is as it was at the begin of the boot, and the overlay has what was written since.
give_up() {
	printf '%s\n' "$1" >>"$work/result.log"
	printf '\n--- the end of the console\n'
	tail -n 20 "$work/console.log"
	if [ -n "${WHERRY_LAB_KEEP:-}" ]; then
		as_caller mkdir -p "$WHERRY_LAB_KEEP"
		cp --sparse=always "$disk" "$WHERRY_LAB_KEEP/"
		if [ -e "$overlay" ]; then cp "$overlay" "$WHERRY_LAB_KEEP/"; fi
	fi
	totals
	keep_logs
	die "$1 (seed $SEED)"
}

# `until_line TEXT`: waits until the machine has printed the text, and ends the test if it fails before that. Polls more often than
# until_said, because a cut can come in the first moments.
until_line() {
	local end=$((SECONDS + LIMIT))
	while ! grep -qF "$1" "$work/result.log"; do
		if failed; then
			sleep 5
			break
		fi
		if ! kill -0 "$machine" 2>/dev/null; then give_up "boot $n: the machine ended"; fi
		if [ $SECONDS -ge $end ]; then give_up "boot $n: no '$1' within $LIMIT s"; fi
		sleep 0.1
	done
}
failed() { grep -q '^FAILED: ' "$work/result.log"; }

judge() {
	if ! failed; then return; fi
	# Let the machine print all that explains it.
	for _ in $(seq 1 60); do
		if grep -q "^wherry-vm: boot $n failed" "$work/result.log"; then break; fi
		kill -0 "$machine" 2>/dev/null || break
		sleep 1
	done
	tr -d '\r' <"$work/result.log"
	give_up "boot $n: a check failed"
}

# `milliseconds N`: sleeps.
milliseconds() { sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"; }

bad=0 cuts=0 early=0 checked=0 checks=0 unwritten=0 changes=0
totals() {
	local wrong=0
	if failed; then wrong=$(grep -c '^FAILED: ' "$work/result.log"); fi
	printf '\n%s power cuts, %s of them without checks; %s boots with checks; %s changes of manifests; %s unwritten records found\n' \
		"$cuts" "$early" "$checked" "$changes" "$unwritten"
	printf '%s checks passed, %s failed; %s s for each cut\n' "$checks" "$wrong" "$(((SECONDS - began) / (cuts > 0 ? cuts : 1)))"
}
# `number PATTERN`: prints the sum of the numbers after the text in the output of the machine.
number() { sed -n "s/^$1\([0-9]*\).*/\1/p" "$work/result.log" | awk '{ sum += $1 } END { print sum + 0 }'; }

printf 'seed %s\n' "$SEED"
RANDOM=$SEED
began=$SECONDS
overlay=$work/overlay.qcow2
n=0
printf '\n--- boot 0\n'
boot "$LIMIT" "$disk" wherry-vm.boot=0 systemd.show_status=no
judge
judge_boot 0
end_boot 0

began=$SECONDS
while [ "$n" -le "$CUTS" ]; do
	n=$((n + 1))
	look=yes
	limit=$LATER
	# Three numbers for each boot, so that the choices of a boot do not depend on those of earlier ones.
	choice=$RANDOM after=$RANDOM seed=$RANDOM
	if [ "$n" -le "$CUTS" ] && [ $((choice % 3)) = 0 ]; then
		look=no
		limit=$EARLY
	fi
	# Half of the cuts without checks come within two seconds.
	if [ $look = no ] && [ $((choice % 2)) = 0 ]; then limit=2000; fi
	after=$((after % limit))
	"${QEMU_IMG[@]}" create -q -f qcow2 -o cluster_size=4k -b "$disk" -F raw "$overlay"
	describe_machine "$overlay,format=qcow2,$DISK" none quiet init=/wherry-vm/run.sh \
		"wherry-vm.boot=$n" "wherry-vm.check=$look" "wherry-vm.seed=$seed"
	: >"$work/result.log"
	started=$SECONDS
	"${MACHINE[@]}" </dev/null &
	machine=$!
	if [ $look = yes ]; then until_line 'wherry-vm: checked'; else until_line 'wherry-vm: agent started'; fi
	judge
	if [ "$n" -le "$CUTS" ]; then milliseconds $after; fi
	judge
	kill -KILL "$machine"
	wait "$machine" 2>/dev/null || true
	machine=
	judge
	"${QEMU_IMG[@]}" commit -q -t unsafe "$overlay"
	rm "$overlay"
	if [ $look = yes ]; then checked=$((checked + 1)); else early=$((early + 1)); fi
	checks=$((checks + $(number 'checks: ')))
	unwritten=$((unwritten + $(number 'unwritten records: ')))
	changes=$((changes + $(grep -c '^change: ' "$work/result.log" || true)))
	if [ "$n" -gt "$CUTS" ]; then
		printf 'boot %s: %s; no cut\n' "$n" "$(sed -n 's/^checks: \(.*[^\r]\)\r*$/\1/p' "$work/result.log")"
		break
	fi
	cuts=$((cuts + 1))
	printf 'boot %s, %s s: %s; cut %s ms after %s\n' "$n" $((SECONDS - started)) \
		"$(sed -n 's/^checks: \(.*[^\r]\)\r*$/\1/p' "$work/result.log" | grep . || echo 'no checks')" \
		"$after" "$([ $look = yes ] && echo 'the checks' || echo 'the start of the agent')"
	mv "$work/console.log" "$work/console-$n.log"
	mv "$work/result.log" "$work/result-$n.log"
done
totals
printf '\nall checks passed\n'
