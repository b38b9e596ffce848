#!/bin/bash
# Runs inside the machine of shutdown.sh: installs wherry at the first boot, checks the state, and powers the machine off. The
# kernel's command line contains the number of the boot.
# shellcheck disable=SC2317 # functions are passed by name
set -uo pipefail

# shellcheck source=tests/vm/inside.sh
. /wherry-vm/inside.sh
PODS=4
# Prints to the console, to which the pods write too.
tell() { echo "<5>wherry-vm: $*" >/dev/kmsg; }

running() { [ "$(wherry pods | awk '$3 == "1/1" && $4 == "Running"' | wc -l)" = "$PODS" ]; }
armed() { wherry status -o json | grep -q '"armed": true'; }
locks() { systemd-inhibit --list --no-legend | awk '$1 == "wherry" && /shutdown/ && / delay *$/' | wc -l; }
# Prints the ids of the running containers.
containers() { ctr -n k8s.io tasks ls | awk '$3 == "RUNNING" { print $1 }' | sort | tr '\n' ' '; }
delay() { busctl get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager InhibitDelayMaxUSec | cut -d' ' -f2; }
starts() { dmesg | grep -c "pod $1 started\$"; }

install_all() {
	echo "kernel $(uname -r), $(systemctl --version | head -n 1), $(containerd --version | cut -d' ' -f1,3), cgroups $(stat -f -c %T /sys/fs/cgroup)"
	cp -rT /wherry-vm/files /
	rm -f /etc/systemd/system/containerd.service
	systemctl daemon-reload
	check 'systemd-analyze verify reports nothing' is "$(systemd-analyze --man=no verify wherry.service 2>&1)" ''
	systemctl start containerd
	until_true 'containerd answers' ctr version
	ctr -n k8s.io images import /wherry-vm/images.tar >/dev/null
	systemctl enable --now containerd wherry 2>/dev/null
}

# Checks the lock, also across restarts of logind and of wherry.
look_at_lock() {
	local before
	check 'the delay of logind covers all groups' at_least "$(delay)" 105000000
	check 'logind lists one lock of wherry' is "$(locks)" 1
	check 'systemd stores its descriptor' is "$(property NFileDescriptorStore)" 1
	check 'no container is in the cgroup of wherry' is "$(wc -l </sys/fs/cgroup/system.slice/wherry.service/cgroup.procs)" 1
	before=$(containers)
	check 'all containers run' is "$(wc -w <<<"$before")" $((2 * PODS))

	systemctl restart systemd-logind
	until_true 'shutdown is armed after a restart of logind' armed
	check 'still one lock' is "$(locks)" 1
	check 'still one descriptor in the store' is "$(property NFileDescriptorStore)" 1

	systemctl restart wherry
	until_true 'shutdown is armed after a restart of wherry' armed
	until_true 'all pods run' running
	check 'still one lock' is "$(locks)" 1
	check 'still one descriptor in the store' is "$(property NFileDescriptorStore)" 1
	check 'the containers survived the restart' is "$(containers)" "$before"

	systemctl stop wherry
	check 'a stopped wherry has no lock' is "$(locks)" 0
	systemctl start wherry
	until_true 'shutdown is armed again' armed
	until_true 'all pods run' running
	check 'the containers survived the stop' is "$(containers)" "$before"
}

# Prints the unit of the only guaranteed pod, below kubepods.slice.
slice() { systemctl list-units --all --plain --no-legend 'kubepods-pod*.slice' | awk '{ print $1 }'; }
no_slice() { [ -z "$(slice)" ] && [ -z "$(find /sys/fs/cgroup/kubepods.slice -maxdepth 1 -name 'kubepods-pod*')" ]; }

# Checks the cgroup settings in systemd and in the kernel. Both wherry and runc use the systemd driver.
look_at_cgroups() {
	local unit dir id
	dir=/sys/fs/cgroup/kubepods.slice
	check 'the memory limit of all pods is the memory of the machine' is "$(cat $dir/memory.max)" $(($(awk '/^MemTotal/ { print $2 }' /proc/meminfo) * 1024))
	check 'best-effort pods have the lowest CPU weight' is "$(cat $dir/kubepods-besteffort.slice/cpu.weight)" 1
	check 'the best-effort slice is an active unit' is "$(systemctl show --property=ActiveState --value kubepods-besteffort.slice)" active
	cat >/etc/wherry/manifests/limited.yaml <<-POD
		apiVersion: v1
		kind: Pod
		metadata:
		  name: limited
		spec:
		  containers:
		    - name: main
		      image: localhost/trap:1
		      resources:
		        limits: {cpu: 500m, memory: 64Mi}
	POD
	until_true 'the limited pod runs' sh -c "wherry pods | awk '\$2 == \"limited\"' | grep -q Running"
	unit=$(slice)
	check 'the limited pod has a slice' is "$(wc -w <<<"$unit")" 1
	check 'systemd has its CPU weight' is "$(systemctl show --property=CPUWeight --value "$unit")" 20
	check 'the kernel has its CPU weight' is "$(cat "$dir/$unit/cpu.weight")" 20
	check 'the kernel has its CPU quota' is "$(cat "$dir/$unit/cpu.max")" '50000 100000'
	check 'the kernel has its memory limit' is "$(cat "$dir/$unit/memory.max")" 67108864
	check 'its limit of huge pages is 0' is "$(cat "$dir/$unit/hugetlb.2MB.max")" 0
	check 'its containers are in the slice' is "$(find "$dir/$unit" -maxdepth 1 -name '*.scope' | wc -l)" 2
	id=$(find "$dir/$unit" -maxdepth 1 -name '*.scope' | head -n 1)
	check 'its OOM score is that of a guaranteed pod' at_least -997 "$(cat "/proc/$(head -n 1 "$id/cgroup.procs")/oom_score_adj")"
	rm /etc/wherry/manifests/limited.yaml
	until_true 'its slice is removed' no_slice
}

# Checks the pods after a boot that followed a shutdown.
look_at_pods() {
	local pod status
	status=$(wherry status -o json)
	for pod in low-a low-b middle critical; do
		check "$pod was started once" is "$(starts $pod)" 1
		check "$pod shows $((boot - 1)) restarts or less" at_least $((boot - 1)) "$(wherry pods | awk -v pod=$pod '$2 == pod { print $5 }')"
	done
	check 'no shutdown is in progress' is "$(grep -c '"inProgress"' <<<"$status")" 0
	check 'the begin and the end of the last shutdown are recorded' is "$(grep -cE '"(startedAt|endedAt)"' <<<"$status")" 2
}

# `systemctl` returns when logind has the request; the machine keeps running while logind waits.
go() {
	tell "systemctl $1"
	systemctl "$1"
}

kill_in_the_middle() {
	local pid
	until_true 'the middle group is being stopped' sh -c "dmesg | grep -q 'pod middle stopping\$'"
	pid=$(property MainPID)
	tell "kill -9 $pid"
	kill -9 "$pid"
	again() { [ "$(property MainPID)" != "$pid" ] && wherry status; }
	until_true 'wherry runs again' again
	check 'its lock is still held' is "$(locks)" 1
	check 'systemd stores its descriptor' is "$(property NFileDescriptorStore)" 1
	wherry status
}

[ "$boot" != 1 ] || install_all
until_true 'all pods run' running
until_true 'the shutdown is armed' armed
[ "$boot" = 1 ] || look_at_pods
wherry status
wherry shutdown-plan
wherry pods
if [ "$boot" = 1 ]; then
	look_at_cgroups
	look_at_lock
fi
case $boot in
1 | 4) go poweroff ;;
2) go reboot ;;
3)
	go poweroff
	kill_in_the_middle
	;;
esac
echo "wherry-vm: boot $boot completed"
exit 0
