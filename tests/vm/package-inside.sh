#!/bin/bash
# Inside the machine of package.sh: installs the package, upgrades it, harms the agent, looks at what runs. Which of its boots this is
# the kernel's command line tells.
# shellcheck disable=SC2317 # functions are given to others by name
set -uo pipefail

# shellcheck source=tests/vm/inside.sh
. /wherry-vm/inside.sh
MANIFESTS=/etc/wherry/manifests
STEADY=(steady-a steady-b steady-c steady-d)

# `pod NAME GENERATION [POLICY [WHAT]]`, printed. It says on the console that it is started.
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
		      # For /dev/kmsg.
		      securityContext: {privileged: true}
		      command: [sh, -c]
		      args: ["echo '<5>pod $1 generation $2 started' >/dev/kmsg; ${4:-trap 'exit 0' TERM; while :; do sleep 1; done}"]
	POD
}

# As who writes manifests does it: nobody ever sees half of one, and it is on the disk when it has its name.
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
# How many containers of a pod run, its sandbox not counted.
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
	check 'it is installed' is "$(dpkg-query -W -f '${Status}' wherry)" 'install ok installed'
	until_true 'the service is active' agent
	check 'it will start at boot' is "$(systemctl is-enabled wherry)" enabled
	check 'systemd has nothing to say about the unit' is "$(systemd-analyze --man=no verify wherry.service 2>&1)" ''
	systemctl show -p Type,WatchdogUSec,NotifyAccess,StatusText wherry
	for pod in "${STEADY[@]}"; do place "$pod" 1; done
	place crashes 1 Always 'sleep 2; exit 1'
	place once 1 Never 'exit 0'
	place kept 1
	until_true 'its pods run' all_run "${STEADY[@]}" kept
	until_true 'one is done' is_state once Completed
	# A broken version changes nothing, at no time from here on.
	echo 'kind: [Pod' >$MANIFESTS/kept.yaml
	sync $MANIFESTS/kept.yaml
	until_true 'the broken manifest is told of' sh -c 'wherry events | grep -q kept.yaml'
	systemctl status --no-pager wherry | head -n 10
	wherry check --system
	wherry pods
}

upgrade() {
	local before pid text began
	before=$(containers_of_steady)
	pid=$(property MainPID)
	printf '\n# dpkg -i wherry (the second)\n'
	began=$(date +%s%3N)
	dpkg -i /wherry-vm/second.deb 2>&1
	until_true 'another agent is there' another_agent "$pid"
	echo "the upgrade took $(($(date +%s%3N) - began)) ms; without an agent: $(without_agent "$pid") ms"
	check 'it is the second' is "$(dpkg-query -W -f '${Version}' wherry)" "$(dpkg-deb -f /wherry-vm/second.deb Version)"
	until_true 'all pods run' all_run "${STEADY[@]}" kept
	check 'no container was restarted by it' is "$(containers_of_steady)" "$before"

	printf '\n# a conffile that was broken, and dpkg -i wherry (the third)\n'
	pid=$(property MainPID)
	echo 'maxPods: many' >>/etc/wherry/config.yaml
	text=$(dpkg -i --force-confold /wherry-vm/third.deb 2>&1)
	printf '%s\n' "$text"
	check 'it tells which field is wrong' said "$text" maxPods
	check 'the package is installed all the same' is "$(dpkg-query -W -f '${Status}' wherry)" 'install ok installed'
	check 'the agent of before goes on' is "$(property MainPID)" "$pid"
	until_true 'the status of the service tells of it too' sh -c 'systemctl status --no-pager wherry | grep -q maxPods'
	systemctl status --no-pager wherry | head -n 10
	sed -i '$ d' /etc/wherry/config.yaml
	systemctl restart wherry
	until_true 'mended, another agent is there' another_agent "$pid"
	until_true 'all pods run' all_run "${STEADY[@]}" kept
	check 'no container was restarted' is "$(containers_of_steady)" "$before"
}

# Milliseconds between the last word of the agent with that pid and the next one's READY, by the journal.
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
	until_true 'after kill -9 another agent is there' another_agent "$pid"
	until_true 'all pods run' all_run "${STEADY[@]}" kept
	check 'systemd counted it' is "$(property NRestarts)" 1
	check 'no container was restarted' is "$(containers_of_steady)" "$before"

	# The watchdog: a loop that stands still.
	mkdir -p /run/systemd/system/wherry.service.d
	printf '[Service]\nWatchdogSec=10\nTimeoutAbortSec=5\n' >/run/systemd/system/wherry.service.d/watchdog.conf
	systemctl daemon-reload
	systemctl restart wherry
	until_true 'with another watchdog' agent
	pid=$(property MainPID)
	sleep 15
	check 'a loop that goes round is left alone' is "$(property MainPID)" "$pid"
	kill -STOP "$pid"
	until_true 'a loop that stands still is started anew' another_agent "$pid"
	check 'by the watchdog' sh -c 'journalctl -b -u wherry --no-pager | grep -qi "watchdog timeout"'
	until_true 'all pods run' all_run "${STEADY[@]}" kept
	check 'no container was restarted' is "$(containers_of_steady)" "$before"
	rm -r /run/systemd/system/wherry.service.d
	systemctl daemon-reload
	systemctl restart wherry
	until_true 'as before' agent
}

# What is desired, by the manifests: everything runs, once, in the version of its manifest.
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
		check "$name was started once, as its manifest has it" is "$(starts "$name" "$generation") of $(dmesg | grep -c "pod $name generation")" '1 of 1'
		check "$name has one container" is "$(tasks "$name")" 1
	done
	until_true 'the pod of the manifest that is broken runs' runs kept
	check 'it is the last good version' is "$(starts kept 1)" 1
	check 'what was done is not done again' is "$(starts once 1) $(state once)" '0 Completed'
	check 'the one that crashes is known' is "$(wherry pods | awk '$2 == "crashes"' | wc -l)" 1
	check 'no other pod is known' is "$(wherry pods | awk 'NR > 1' | wc -l)" "$(find $MANIFESTS -name '*.yaml' | wc -l)"
	check 'no record is corrupt' is "$(journalctl -b -u wherry --no-pager | grep -c BadRecord)" 0
	wherry pods
}

# Manifests come, change and go for as long as there is power.
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
	check 'nothing of the service is left' is "$(systemctl is-active wherry)" inactive
	check 'its pods go on' is "$(containers_of_steady)" "$before"
	printf '\n# dpkg -P wherry\n'
	dpkg -P wherry 2>&1
	check 'no container is left' is "$(ctr -n k8s.io containers ls -q | wc -l)" 0
	check 'nor its state, nor what it told logind' is "$(ls -d /var/lib/wherry /run/wherry /etc/systemd/logind.conf.d/*wherry* 2>/dev/null)" ''
	check 'nor a pod in a cgroup' is "$(find /sys/fs/cgroup/kubepods.slice -name 'kubepods-*pod*' 2>/dev/null | wc -l)" 0
}

case $boot in
1)
	prepare
	install
	upgrade
	harm
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
echo "wherry-vm: boot $boot did what it was to do"
exit 0
