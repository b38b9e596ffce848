#!/bin/bash
# Builds the virtual machine's image: `image.sh DIR [arm64]` leaves rootfs.ext4, vmlinuz and initrd in DIR. Needs root, mmdebstrap
# and mke2fs. An unmodified Debian: systemd, pure cgroup v2, containerd, runc, the CNI plugins. Its own containerd service is masked.
# For arm64, the packages' scripts run on an emulated processor (foreign.sh). That image also has the libraries of armhf, whose
# programs its kernel runs too, as on a Raspberry Pi.
set -euo pipefail
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/../lab/common.sh"

[ $# = 1 ] || [ $# = 2 ] || die "usage: image.sh DIR [arm64]"
DIR=$1
OTHER=${2:-}
KERNEL=linux-image-cloud-amd64
# Where the script of the test writes: the second serial port. The machine for arm64 has only one, and a console of the hypervisor.
RESULT=/dev/ttyS1
if [ -n "$OTHER" ]; then
	KERNEL=linux-image-$OTHER,libdbus-1-3:armhf,libgcc-s1:armhf
	RESULT=/dev/hvc0
fi
PACKAGES=systemd,systemd-sysv,dbus,libpam-systemd,udev,kmod,iproute2,iptables,containerd,runc,containernetworking-plugins
PACKAGES=$PACKAGES,$KERNEL,procps,busybox-static,ca-certificates,libdbus-1-3,strace,util-linux

mkdir -p "$DIR"
stamp=$(sha256sum <"$0" | cut -d' ' -f1)$OTHER
if [ "$(cat "$DIR/stamp" 2>/dev/null)" = "$stamp" ]; then exit 0; fi
rm -f "$DIR/stamp"
work=$(mktemp -d "$DIR/.work.XXXXXX")
trap 'rm -rf "$work"' EXIT

# The mirror of this machine, if it is a Debian bookworm; other sources are not used.
grep -hE '^deb ' /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
	grep -E ' bookworm(-updates|-security)? ' | grep -E ' main( |$)' | sed 's/ \[[^]]*\]//' >"$work/sources.list" || true
if [ ! -s "$work/sources.list" ]; then
	cat >"$work/sources.list" <<-END
		deb http://deb.debian.org/debian bookworm main
		deb http://deb.debian.org/debian bookworm-updates main
		deb http://deb.debian.org/debian-security bookworm-security main
	END
fi
# (Libraries must have the same version in both architectures, which a mirror may not have in the security updates.)
if [ -n "$OTHER" ]; then sed -i /security/d "$work/sources.list"; fi
say 'building the image of the virtual machine (some minutes)'
as_there=()
options=()
if [ -n "$OTHER" ]; then
	as_there=("$(dirname "$0")/foreign.sh" "$OTHER")
	# (mmdebstrap's own check of the emulation needs another package.)
	options=(--architectures="$OTHER,armhf" --skip=check/qemu)
	# The search for all modules of the initrd takes ten minutes on an emulated processor.
	# shellcheck disable=SC2016 # mmdebstrap's shell expands it
	options+=('--essential-hook=mkdir -p "$1/etc/initramfs-tools/conf.d" "$1/usr/share/initramfs-tools/modules.d"'
		'--essential-hook=echo MODULES=list >"$1/etc/initramfs-tools/conf.d/wherry-vm"'
		'--essential-hook=printf "virtio_pci\nvirtio_blk\next4\n" >"$1/usr/share/initramfs-tools/modules.d/wherry-vm"')
fi
"${as_there[@]}" mmdebstrap --quiet --mode=root "${options[@]}" --variant=minbase --include="$PACKAGES" \
	--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
	bookworm "$work/root" "$work/sources.list" >&2

root=$work/root
echo wherry-vm >"$root/etc/hostname"
printf '127.0.0.1 localhost\n127.0.1.1 wherry-vm\n' >"$root/etc/hosts"
printf 'nameserver 127.0.0.1\n' >"$root/etc/resolv.conf"
printf '/dev/vda / ext4 rw,noatime 0 1\n' >"$root/etc/fstab"
for unit in containerd.service apt-daily.timer apt-daily-upgrade.timer fstrim.timer dpkg-db-backup.timer e2scrub_all.timer \
	systemd-timesyncd.service systemd-networkd-wait-online.service; do
	ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
# The input is a tar on the second disk, as it is: it is unpacked at the root, and its run.sh is run, which is to turn the
# machine off. One that cannot be run does not keep it on.
cat >"$root/etc/systemd/system/wherry-vm.service" <<'END'
[Unit]
Description=What this machine was started for
After=multi-user.target
FailureAction=poweroff

[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/bin/sh -c 'tar -xf /dev/vdb -C / && exec /wherry-vm/run.sh >RESULT 2>&1'

[Install]
WantedBy=default.target
END
sed -i "s,RESULT,$RESULT," "$root/etc/systemd/system/wherry-vm.service"
mkdir -p "$root/etc/systemd/system/default.target.wants"
ln -sf ../wherry-vm.service "$root/etc/systemd/system/default.target.wants/wherry-vm.service"

cp "$root"/boot/vmlinuz-* "$DIR/vmlinuz"
cp "$root"/boot/initrd.img-* "$DIR/initrd"
rm -f "$DIR/rootfs.ext4"
mke2fs -q -t ext4 -d "$root" -E root_owner=0:0 "$DIR/rootfs.ext4" 3G
chmod 644 "$DIR"/rootfs.ext4 "$DIR"/vmlinuz "$DIR"/initrd
printf '%s\n' "$stamp" >"$DIR/stamp"
