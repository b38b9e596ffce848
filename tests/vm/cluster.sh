#!/bin/bash
# Tests a node of a cluster in a virtual machine (`make test-vm-cluster`): wherry with its unit and sealed Secrets, and a real control
# plane outside of the machine. The same disk is booted three times:
#
#   1  gets an address by DHCP, joins with a token, runs pods of the API server; the server ends, and then the power is cut
#   2  has no network: the pods run again from the disk; `systemctl reboot`
#   3  has a network, and no server: the pods run again; then the server is back, the pods are deleted, the machine leaves
#
# tests/cluster/machine.rs is the other side: it runs the control plane and the machine and compares the objects of the API server.
# cluster-inside.sh makes the checks inside the machine. Exits with 77 if no virtual machine or no control plane can run.
set -euo pipefail
# shellcheck source=tests/vm/machine.sh
. "$(dirname "$0")/machine.sh"

# The network of qemu: the address that the machine gets by DHCP, with the way to its port. The test adds the same address outside.
ADDRESS=10.0.2.15

only_here
prepare_machine
cd "$PROJECT"
"$LAB/install.sh" build runtime
as_caller "$LAB/images.sh" "$PROJECT/target/lab-images"
# It also builds wherry.
"$LAB/cargo.sh" test --test cluster --no-run

in=$work/in
files=$in/wherry-vm/files
mkdir -p "$files"/etc/{containerd,cni/net.d,systemd/network} "$files"/etc/wherry/{config.d,manifests} "$files"/etc/systemd/system/wherry.service.d
mkdir -p "$files"/usr/{bin,lib/systemd/system}
cp "$VM/cluster-inside.sh" "$in/wherry-vm/run.sh"
cp "$VM/inside.sh" "$in/wherry-vm/"
cp target/lab-images/images.tar "$in/wherry-vm/"
strip -o "$files/usr/bin/wherry" "${CARGO_TARGET_DIR:-target}/debug/wherry"
cp packaging/wherry.service "$files/usr/lib/systemd/system/"
cp packaging/examples/wherry-seal.conf "$files/etc/systemd/system/wherry.service.d/seal.conf"
cp packaging/config.yaml "$files/etc/wherry/"
cat >"$files/etc/wherry/config.d/10-vm.yaml" <<'CONFIG'
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: systemd
port: 10250
shutdownGracePeriod: 60s
shutdownGracePeriodCriticalPods: 10s
---
apiVersion: wherry.io/v1alpha1
kind: WherryConfiguration
sealSecrets: Required
CONFIG
cat >"$files/etc/wherry/manifests/local.yaml" <<'POD'
apiVersion: v1
kind: Pod
metadata:
  name: local
spec:
  containers:
    - name: main
      image: localhost/trap:1
POD
printf '[Match]\nName=e*\n[Network]\nDHCP=yes\n' >"$files/etc/systemd/network/10-vm.network"
runtime_configuration "$files"

cp --sparse=always "$CACHE/rootfs.ext4" "$work/disk.ext4"
# `switch-on BOOT`: packs the input, to which the test has added its part, and becomes the machine.
{
	printf '#!/bin/bash\nset -euo pipefail\ncd %q\ntar -C in --owner=0 --group=0 -cf input.tar .\ncase $1 in\n' "$work"
	for boot in 1 2 3; do
		network=user,model=virtio-net-pci,ipv6=off,hostfwd=tcp:$ADDRESS:10250-:10250
		if [ "$boot" = 2 ]; then network=none; fi
		describe_machine "$work/disk.ext4" "$network" "wherry-vm.boot=$boot"
		printf '%s) exec' "$boot"
		printf ' %q' "${MACHINE[@]}"
		printf ' ;;\n'
	done
	printf 'esac\n'
} >"$work/switch-on"
chmod 755 "$work" "$work/switch-on"

status=0
WHERRY_LAB_MACHINE=$work WHERRY_CONTROL_PLANE=${WHERRY_CONTROL_PLANE:-build} WHERRY_KUBECTL=1.32 "$LAB/cargo.sh" test --test cluster \
	--config "target.'cfg(all())'.runner=['$LAB/in-lab.sh']" -- --ignored --nocapture machine:: || status=$?
if [ "$status" != 0 ]; then
	keep_logs
	exit "$status"
fi
