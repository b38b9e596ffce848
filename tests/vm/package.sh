#!/bin/bash
# Tests the package in a virtual machine (`make test-vm-package`): a Debian with systemd, pure cgroup v2 and the systemd cgroup driver.
# The same disk is booted eight times:
#
#   1       dpkg -i, an upgrade while pods run, an upgrade with an invalid conffile, kill -9, a loop that hangs, a file
#           system that appears late; then manifests are created, changed and deleted until a power cut
#   2 to 5  all desired pods run once, no record is corrupt; manifests are created and deleted again until a power cut at a random time
#   6       all pods run; `systemctl reboot`
#   7       all pods run; `systemctl poweroff`
#   8       all pods run; dpkg -r, dpkg -P; `systemctl poweroff`
#
# package-inside.sh makes the checks inside the machine. Exits with 77 if no virtual machine can run.
set -euo pipefail
# shellcheck source=tests/vm/machine.sh
. "$(dirname "$0")/machine.sh"

# Seconds: the limit of each boot, and the maximum time for which manifests change before a power cut.
LIMIT=${WHERRY_VM_LIMIT:-1200}
POWER=${WHERRY_VM_POWER:-40}
# These boots end with a power cut.
PULLED='1 2 3 4 5'

prepare_machine
cd "$PROJECT"
"$LAB/install.sh" build runtime packages
as_caller "$LAB/images.sh" "$CONTAINER_IMAGES" $OTHER

in=$work/in
files=$in/wherry-vm/files
mkdir -p "$files"/etc/{containerd,cni/net.d,wherry/config.d}
# Three packages with the same binary.
first=$(package_for_machine)
cp "$first" "$in/wherry-vm/first.deb"
binary=$work/wherry
dpkg-deb --fsys-tarfile "$first" | tar -xO ./usr/bin/wherry >"$binary"
chmod 755 "$work" "$binary"
mkdir -m 777 "$work/packages"
for n in 2 3; do
	later=$(package_for_machine "$n" "$binary" "$work/packages")
	cp "$later" "$in/wherry-vm/$([ $n = 2 ] && echo second || echo third).deb"
done
cp "$VM/package-inside.sh" "$in/wherry-vm/run.sh"
cp "$VM/inside.sh" "$in/wherry-vm/"
cp "$CONTAINER_IMAGES/images.tar" "$in/wherry-vm/"
runtime_configuration "$files"
cat >"$files/etc/wherry/config.d/10-vm.yaml" <<'CONFIG'
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: systemd
shutdownGracePeriod: 30s
shutdownGracePeriodCriticalPods: 10s
CONFIG
pack_input "$in"

disk=$work/disk.ext4
cp --sparse=always "$IMAGE/rootfs.ext4" "$disk"

bad=0
# (WHERRY_VM_BOOTS selects boots for a quick run: the first one and those of interest.)
for n in ${WHERRY_VM_BOOTS:-1 2 3 4 5 6 7 8}; do
	printf '\n--- boot %s\n' "$n"
	words=("wherry-vm.boot=$n" printk.devkmsg=on systemd.show_status=no)
	switch_on "$disk" "${words[@]}"
	case " $PULLED " in
	*" $n "*)
		until_said "$LIMIT" 'wherry-vm: churning'
		power=$((RANDOM % POWER)).$((RANDOM % 10))
		sleep "$power"
		pull_plug
		printf 'power cut after %s s\n' "$power"
		;;
	*)
		until_off "$LIMIT"
		judge_boot "$n"
		;;
	esac
	end_boot "$n"
done
judge_checks
