#!/bin/bash
# The package on a real machine (`make test-vm-package`): a Debian with systemd, pure cgroup v2 and the systemd cgroup driver. One disk is booted
# eight times:
#
#   1       dpkg -i, an upgrade while pods run, one with a conffile that was broken, kill -9, a loop that stands still; then manifests come,
#           change and go until the plug is pulled
#   2 to 5  all that is desired runs once, nothing is corrupt; manifests come and go again, until the plug is pulled at a random instant
#   6       all runs; `systemctl reboot`
#   7       all runs; `systemctl poweroff`
#   8       all runs; dpkg -r, dpkg -P; `systemctl poweroff`
#
# What must be true is looked at in there (package-inside.sh). Ends with 77 where no virtual machine can be run.
set -euo pipefail
# shellcheck source=tests/vm/machine.sh
. "$(dirname "$0")/machine.sh"

# Seconds; each boot, and how long manifests come and go before the plug is pulled, at most.
LIMIT=${WHERRY_VM_LIMIT:-1200}
POWER=${WHERRY_VM_POWER:-40}
# The plug is pulled at the end of these boots.
PULLED='1 2 3 4 5'

prepare_machine
cd "$PROJECT"
"$LAB/install.sh" build runtime packages
as_caller "$LAB/images.sh" "$PROJECT/target/lab-images"

in=$work/in
files=$in/wherry-vm/files
mkdir -p "$files"/etc/{containerd,cni/net.d,wherry/config.d}
# One binary, three packages of it.
first=$(as_caller packaging/deb.sh | tail -n 1)
cp "$first" "$in/wherry-vm/first.deb"
binary=$work/wherry
dpkg-deb --fsys-tarfile "$first" | tar -xO ./usr/bin/wherry >"$binary"
chmod 755 "$work" "$binary"
mkdir -m 777 "$work/packages"
for n in 2 3; do
	later=$(as_caller env "WHERRY_REVISION=$n" "WHERRY_BINARY=$binary" "WHERRY_PACKAGES=$work/packages" packaging/deb.sh | tail -n 1)
	cp "$later" "$in/wherry-vm/$([ $n = 2 ] && echo second || echo third).deb"
done
cp "$VM/package-inside.sh" "$in/wherry-vm/run.sh"
cp "$VM/inside.sh" "$in/wherry-vm/"
cp target/lab-images/images.tar "$in/wherry-vm/"
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
cp --sparse=always "$CACHE/rootfs.ext4" "$disk"

bad=0
# (Some of them for a quick look: the first, and what one is after.)
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
		printf 'the plug was pulled %s s later\n' "$power"
		;;
	*)
		until_off "$LIMIT"
		judge_boot "$n"
		;;
	esac
	end_boot "$n"
done
judge_checks
