#!/bin/bash
# Runs inside the machine of package.sh: installs and upgrades the package, damages the agent, and checks the pods. The kernel's
# command line contains the number of the boot.
# shellcheck disable=SC2317 # functions are passed by name
set -uo pipefail

# shellcheck source=tests/vm/inside.sh
. /wherry-vm/inside.sh
MANIFESTS=/etc/wherry/manifests
STEADY=(steady-a steady-b steady-c steady-d)

# `pod NAME GENERATION [POLICY [WHAT]]` prints a manifest. The pod reports its start on the console.
pod() {
	cat <<-POD
		apiVersion: v1
		kind: Pod
		metadata:
		  name: $1
		spec:
		  restartPolicy: ${3:-Always}
		  terminationGracePeriodSeconds: 2
		  dnsPolicy: Default
		  containers:
		    - name: main
		      image: localhost/busybox:1.35
		      # Required for writes to /dev/kmsg.
		      securityContext: {privileged: true}
		      command: [sh, -c]
		      args: ["echo '<5>pod $1 generation $2 started' >/dev/kmsg; ${4:-trap 'exit 0' TERM; while :; do sleep 1; done}"]
	POD
}

# Writes a manifest with sync and rename, so that it appears complete and is on the disk when it has its name.
place() {
	pod "$@" >"$MANIFESTS/.$1.new"
	sync "$MANIFESTS/.$1.new"
	mv "$MANIFESTS/.$1.new" "$MANIFESTS/$1.yaml"
	sync "$MANIFESTS"
}

state() { wherry pods | awk -v pod="$1" '$2 == pod { print $4 }'; }
is_state() { [ "$(state "$1")" = "$2" ]; }
runs() { [ "$(wherry pods | awk -v pod="$1" '$2 == pod { print $3, $4 }')" = '1/1 Running' ]; }
all_run() {
	local pod
	for pod in "$@"; do runs "$pod" || return 1; done
}
starts() { dmesg | grep -c "pod $1 generation $2 started\$"; }
# Prints the number of running containers of a pod, without its sandbox.
tasks() {
	local id count=0
	for id in $(ctr -n k8s.io containers ls -q "labels.\"io.kubernetes.pod.name\"==$1,labels.\"io.cri-containerd.kind\"==container"); do
		ctr -n k8s.io tasks ls | awk -v id="$id" '$1 == id && $3 == "RUNNING" { found = 1 } END { exit !found }' && count=$((count + 1))
	done
	echo "$count"
}
agent() { [ "$(systemctl is-active wherry)" = active ] && wherry status >/dev/null; }
another_agent() { [ "$(property MainPID)" != "$1" ] && [ "$(property MainPID)" != 0 ] && agent; }
said() { grep -qF "$2" <<<"$1" || { printf '%s\n' "$1" | sed 's/^/   /'; return 1; }; }

prepare() {
	echo "kernel $(uname -r), $(systemctl --version | head -n 1), $(containerd --version | cut -d' ' -f1,3), cgroups $(stat -f -c %T /sys/fs/cgroup)"
	cp -rT /wherry-vm/files /
	rm -f /etc/systemd/system/containerd.service
	systemctl daemon-reload
	systemctl enable --now containerd 2>/dev/null
	until_true 'containerd answers' ctr version
	ctr -n k8s.io images import /wherry-vm/images.tar >/dev/null
	sync
}

install() {
	printf '\n# dpkg -i wherry (the first)\n'
	dpkg -i /wherry-vm/first.deb 2>&1
	check 'the package is installed' is "$(dpkg-query -W -f '${Status}' wherry)" 'install ok installed'
	until_true 'the service is active' agent
	check 'the service is enabled' is "$(systemctl is-enabled wherry)" enabled
	check 'systemd-analyze verify reports nothing' is "$(systemd-analyze --man=no verify wherry.service 2>&1)" ''
	systemctl show -p Type,WatchdogUSec,NotifyAccess,StatusText wherry
	for pod in "${STEADY[@]}"; do place "$pod" 1; done
	place crashes 1 Always 'sleep 2; exit 1'
	place once 1 Never 'exit 0'
	place kept 1
	until_true 'the pods run' all_run "${STEADY[@]}" kept
	until_true 'the pod once has completed' is_state once Completed
	# From here on, a broken version of the manifest must change nothing.
	echo 'kind: [Pod' >$MANIFESTS/kept.yaml
	sync $MANIFESTS/kept.yaml
	until_true 'the broken manifest is reported' sh -c 'wherry events | grep -q kept.yaml'
	systemctl status --no-pager wherry | head -n 10
	wherry check --system
	wherry pods
	show_memory
}

# Prints the agent's memory. An emulated processor does not change it.
show_memory() {
	local pid
	pid=$(property MainPID)
	echo "memory of the agent with $(wherry pods | awk 'NR > 1' | wc -l) pods on $(dpkg-query -W -f '${Architecture}' wherry)," \
		"binary of $(stat -L -c %s "/proc/$pid/exe") bytes:"
	awk '/^(Rss|Pss|Anonymous):/ { print "  " $0 }' "/proc/$pid/smaps_rollup"
}

upgrade() {
	local before pid text began
	before=$(containers_of_steady)
	pid=$(property MainPID)
	printf '\n# dpkg -i wherry (the second)\n'
	began=$(date +%s%3N)
	dpkg -i /wherry-vm/second.deb 2>&1
	until_true 'the new agent runs' another_agent "$pid"
	echo "the upgrade took $(($(date +%s%3N) - began)) ms; without an agent: $(without_agent "$pid") ms"
	check 'the second version is installed' is "$(dpkg-query -W -f '${Version}' wherry)" "$(dpkg-deb -f /wherry-vm/second.deb Version)"
	until_true 'all pods run' all_run "${STEADY[@]}" kept
	check 'the upgrade restarted no container' is "$(containers_of_steady)" "$before"

	printf '\n# an invalid conffile, and dpkg -i wherry (the third)\n'
	pid=$(property MainPID)
	echo 'maxPods: many' >>/etc/wherry/config.yaml
	text=$(dpkg -i --force-confold /wherry-vm/third.deb 2>&1)
	printf '%s\n' "$text"
	check 'the package names the invalid field' said "$text" maxPods
	check 'the package is installed nevertheless' is "$(dpkg-query -W -f '${Status}' wherry)" 'install ok installed'
	check 'the previous agent continues to run' is "$(property MainPID)" "$pid"
	until_true 'the status of the service shows the error too' sh -c 'systemctl status --no-pager wherry | grep -q maxPods'
	systemctl status --no-pager wherry | head -n 10
	sed -i '$ d' /etc/wherry/config.yaml
	systemctl restart wherry
	until_true 'after the correction a new agent runs' another_agent "$pid"
	until_true 'all pods run' all_run "${STEADY[@]}" kept
	check 'no container was restarted' is "$(containers_of_steady)" "$before"
}

# Prints the milliseconds between the stop of the old agent and the READY of the new one, from the journal.
without_agent() {
	journalctl -b -u wherry -o short-unix --no-pager |
		awk '/: Stopping wherry|: Deactivated|Stopped wherry/ { if (/Stopping/) from = $1 } /: Started wherry/ { to = $1 } END { printf "%d", (to - from) * 1000 }'
}

containers_of_steady() {
	local pod
	for pod in "${STEADY[@]}"; do
		ctr -n k8s.io containers ls -q "labels.\"io.kubernetes.pod.name\"==$pod" | sort | tr '\n' ' '
	done
}

harm() {
	local before pid
	before=$(containers_of_steady)
	pid=$(property MainPID)
	kill -9 "$pid"
	until_true 'after kill -9 a new agent runs' another_agent "$pid"
	until_true 'all pods run' all_run "${STEADY[@]}" kept
	check 'systemd counted the restart' is "$(property NRestarts)" 1
	check 'no container was restarted' is "$(containers_of_steady)" "$before"

	# The watchdog: a loop that hangs.
	mkdir -p /run/systemd/system/wherry.service.d
	printf '[Service]\nWatchdogSec=10\nTimeoutAbortSec=5\n' >/run/systemd/system/wherry.service.d/watchdog.conf
	systemctl daemon-reload
	systemctl restart wherry
	until_true 'the agent runs with a shorter watchdog' agent
	pid=$(property MainPID)
	sleep 15
	check 'a working loop is not restarted' is "$(property MainPID)" "$pid"
	kill -STOP "$pid"
	until_true 'an agent whose loop hangs is restarted' another_agent "$pid"
	check 'the watchdog caused the restart' sh -c 'journalctl -b -u wherry --no-pager | grep -qi "watchdog timeout"'
	until_true 'the new agent says what happened' sh -c 'wherry events | grep -q "AgentCrashed .*watchdog"'
	check 'there is a report with the last state' grep -q '"workers":' /var/lib/wherry/crashes/watchdog-*.txt
	check 'the kill -9 before it left none' is "$(find /var/lib/wherry/crashes -type f | wc -l)" 1
	check 'wherry support writes a file' wherry support -o /root/support.tar.gz
	check 'the file has the report' sh -c 'tar tzf /root/support.tar.gz | grep -q /crashes/watchdog-'
	check 'the file has the log of the service' sh -c 'tar xzOf /root/support.tar.gz --wildcards "*/journal.txt" | grep -qi "watchdog timeout"'
	until_true 'all pods run' all_run "${STEADY[@]}" kept
	check 'no container was restarted' is "$(containers_of_steady)" "$before"
	rm -r /run/systemd/system/wherry.service.d
	systemctl daemon-reload
	systemctl restart wherry
	until_true 'the agent runs with the normal watchdog' agent
}

# The state on a file system of its own, whose device appears after the start of the service was tried.
late_state() {
	local before image=/root/state.ext4
	before=$(containers_of_steady)
	printf '\n# /var/lib/wherry on a file system that appears late\n'
	systemctl stop wherry
	truncate -s 64M $image
	mke2fs -q -t ext4 $image
	mount -o loop $image /mnt
	cp -a /var/lib/wherry/. /mnt/
	umount /mnt
	mv $image $image.away
	echo "$image /var/lib/wherry ext4 loop,nofail 0 0" >>/etc/fstab
	systemctl daemon-reload
	systemctl start wherry 2>&1
	check 'without its file system the service does not start' is "$(systemctl is-active wherry)" inactive
	mv $image.away $image
	systemctl start var-lib-wherry.mount
	until_true 'the service starts with the mount' agent
	until_true 'all pods run' all_run "${STEADY[@]}" kept
	check 'no container was restarted' is "$(containers_of_steady)" "$before"
	check 'the records are on the mounted file system' is "$(findmnt -n -o FSTYPE -T /var/lib/wherry/records)" ext4
	# Back to the disk of the machine.
	systemctl stop wherry
	sed -i '$ d' /etc/fstab
	cp -a /var/lib/wherry /root/state
	umount /var/lib/wherry
	cp -a /root/state/. /var/lib/wherry/
	systemctl daemon-reload
	systemctl start wherry
	until_true 'the service runs as before' agent
}

# Checks that each desired pod runs once, in the version of its manifest.
look() {
	local file name generation
	until_true 'the service is active' agent
	for file in "$MANIFESTS"/*.yaml; do
		name=$(basename "$file" .yaml)
		case $name in
		once | kept | crashes) continue ;;
		esac
		until_true "$name runs" runs "$name"
		generation=$(sed -n 's/.* generation \([0-9]*\) started.*/\1/p' "$file")
		check "$name was started once, in the version of its manifest" is "$(starts "$name" "$generation") of $(dmesg | grep -c "pod $name generation")" '1 of 1'
		check "$name has one container" is "$(tasks "$name")" 1
	done
	until_true 'the pod of the broken manifest runs' runs kept
	check 'that pod has the last good version' is "$(starts kept 1)" 1
	check 'the completed pod does not run again' is "$(starts once 1) $(state once)" '0 Completed'
	check 'the crashing pod is listed' is "$(wherry pods | awk '$2 == "crashes"' | wc -l)" 1
	check 'no other pod is listed' is "$(wherry pods | awk 'NR > 1' | wc -l)" "$(find $MANIFESTS -name '*.yaml' | wc -l)"
	check 'no record is corrupt' is "$(journalctl -b -u wherry --no-pager | grep -c BadRecord)" 0
	wherry pods
}

# Creates, changes and deletes manifests until the power cut.
churn() {
	local generation=$((boot * 10000)) slot
	echo 'wherry-vm: churning'
	while :; do
		slot=$((RANDOM % 6))
		generation=$((generation + 1))
		case $((RANDOM % 4)) in
		0) rm -f "$MANIFESTS/slot-$slot.yaml" ;;
		*) place "slot-$slot" $generation ;;
		esac
		sleep "0.$((RANDOM % 10))"
	done
}

remove() {
	local before
	before=$(containers_of_steady)
	printf '\n# dpkg -r wherry\n'
	dpkg -r wherry 2>&1
	check 'the service is inactive' is "$(systemctl is-active wherry)" inactive
	check 'the pods keep running' is "$(containers_of_steady)" "$before"
	printf '\n# dpkg -P wherry\n'
	dpkg -P wherry 2>&1
	check 'no container remains' is "$(ctr -n k8s.io containers ls -q | wc -l)" 0
	check 'neither the state nor the drop-in for logind remains' is "$(ls -d /var/lib/wherry /run/wherry /etc/systemd/logind.conf.d/*wherry* 2>/dev/null)" ''
	check 'no pod cgroup remains' is "$(find /sys/fs/cgroup/kubepods.slice -name 'kubepods-*pod*' 2>/dev/null | wc -l)" 0
}

case $boot in
1)
	prepare
	install
	upgrade
	harm
	late_state
	churn
	;;
6)
	look
	systemctl reboot
	;;
7)
	look
	systemctl poweroff
	;;
8)
	look
	remove
	systemctl poweroff
	;;
*)
	look
	churn
	;;
esac
echo "wherry-vm: boot $boot completed"
exit 0
