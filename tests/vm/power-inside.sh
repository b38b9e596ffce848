#!/bin/bash
# Runs inside the machine of power.sh. In the first boot, systemd starts it as run.sh: it prepares the machine. In all other boots it
# is process 1 instead of systemd, because systemd takes most of the time of a boot on an emulated processor: it starts containerd and
# the agent, checks the pods, and changes manifests until the host pulls the plug. The kernel's command line contains the number of
# the boot, a seed, whether to check, and the name of the serial port for the output.
#
# The start of a process takes up to half a second here. So this script waits, reads files and looks for processes by itself.
# shellcheck disable=SC2317 # functions are passed by name
set -uo pipefail
export PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root

MANIFESTS=/etc/wherry/manifests
# What the checks of earlier boots found, on the disk: one file for each pod whose manifest changes.
MODEL=/wherry-vm/model
# In memory: logs, and the list of starts, to which each pod adds a line.
HERE=/run/power
# Pods whose manifests change in all ways, and all pods that can run. The records of the padded pod are larger than a page, which
# Wherry writes in another way.
SLOTS=(slot-0 slot-1 slot-2)
PADDED=slot-1
NAMES=(kept net "${SLOTS[@]}")

# The values of the model and of WANTED (which pod has to run):
#   N        generation N
#   since N  generation N or a later one
#   any      any generation or none
#   none
declare -A WANTED=() PROCESSES=()
passed=0
failed=0
agent=

# `pod NAME GENERATION [POLICY [WHAT]]` prints a manifest. The arguments of the pod's main process contain both values.
pod() {
	local network='hostNetwork: true' padding=
	# A network costs seconds, so only one pod has it.
	if [ "$1" = net ]; then network='hostNetwork: false'; fi
	if [ "$1" = $PADDED ]; then printf -v padding '%5000s' ''; fi
	cat <<-POD
		apiVersion: v1
		kind: Pod
		metadata:
		  name: $1
		  annotations: {padding: "${padding// /x}"}
		spec:
		  $network
		  restartPolicy: ${3:-Always}
		  terminationGracePeriodSeconds: 2
		  dnsPolicy: Default
		  containers:
		    - name: main
		      image: localhost/busybox:1.35
		      command:
		        - sh
		        - -c
		        - echo "\$0 \$1" >>/power/starts; ${4:-trap "exit 0" TERM; while :; do sleep 86400 & wait \$!; done}
		        - $1
		        - "$2"
		      volumeMounts: [{name: power, mountPath: /power}, {name: data, mountPath: /data}]
		  volumes: [{name: power, hostPath: {path: $HERE}}, {name: data, emptyDir: {}}]
		# complete: $2
	POD
}

# `pause SECONDS` waits without a process. Nobody writes to this pipe.
pause() { read -rt "$1" -u 9 || true; }

# `check TEXT COMMAND...` reports only failures, because there are thousands of checks.
check() {
	if "${@:2}"; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "FAILED: $1"
	fi
}
is() { [ "$1" = "$2" ] || { echo "   ${1:-nothing} instead of ${2:-nothing}"; return 1; }; }

# `await SECONDS COMMAND...` waits until the command succeeds.
await() {
	local end=$((SECONDS + $1))
	until "${@:2}"; do
		[ $SECONDS -lt $end ] || return 1
		pause 0.5
	done
}

# `word NAME` prints the value of wherry-vm.NAME on the kernel's command line.
word() { [[ " $(</proc/cmdline) " =~ \ wherry-vm\.$1=([^ ]*) ]] && echo "${BASH_REMATCH[1]}"; }

# Does what systemd does before it starts services. The initrd has mounted /proc, /sys, /dev and /run.
begin() {
	local result
	result=/dev/$(word result)
	# There is no udev. The port of an ARM machine appears some time after its module is loaded.
	modprobe -aq virtio_console virtio_rng
	until [ -c "$result" ]; do sleep 0.1; done
	exec >"$result" 2>&1
	mount -t cgroup2 -o nsdelegate,memory_recursiveprot cgroup2 /sys/fs/cgroup
	echo '+cpu +cpuset +io +memory +pids' >/sys/fs/cgroup/cgroup.subtree_control
	mount -t tmpfs tmpfs /tmp
	mount --make-rshared /
	echo wherry-vm >/proc/sys/kernel/hostname
}

# Starts containerd and, when it listens, the agent.
start() {
	mkdir -p $HERE
	mkfifo $HERE/never
	exec 9<>$HERE/never
	: >$HERE/starts
	containerd >$HERE/containerd.log 2>&1 9>&- &
	await 120 test -S /run/containerd/containerd.sock || echo 'FAILED: containerd does not listen'
	if [ $$ != 1 ]; then
		await 120 ctr version >/dev/null
		ctr -n k8s.io images import /wherry-vm/images.tar >/dev/null
	fi
	: >$HERE/before-agent
	wherry run >$HERE/wherry.log 2>&1 9>&- &
	agent=$!
	echo 'wherry-vm: agent started'
}

# Sets PROCESSES to the generations of the main processes of each pod, and SANDBOXES to the number of sandboxes.
scan() {
	local dir words
	PROCESSES=() SANDBOXES=0
	for dir in /proc/[0-9]*; do
		words=()
		mapfile -d '' -t words <"$dir/cmdline"
		case ${words[0]:-} in
		/pause) SANDBOXES=$((SANDBOXES + 1)) ;;
		sh) if [ ${#words[@]} = 5 ] && is_first "$dir"; then PROCESSES[${words[3]}]+="${PROCESSES[${words[3]}]:+ }${words[4]}"; fi ;;
		esac
	done 2>/dev/null
}

# True if the process is process 1 of a container. The child of its shell has the same arguments for a moment.
is_first() {
	local key value
	while read -r key value; do
		if [ "$key" = NSpid: ]; then
			[[ $value =~ [[:blank:]]1$ ]]
			return
		fi
	done <"$1/status"
	return 1
}

# True if what runs of a pod is what has to run.
matches() {
	local now=${PROCESSES[$1]:-} wanted=${WANTED[$1]}
	case $wanted in
	none) [ -z "$now" ] ;;
	any) [[ $now != *' '* ]] ;;
	since*) [[ $now =~ ^[0-9]+$ ]] && [ "$now" -ge "${wanted#since }" ] ;;
	*) [ "$now" = "$wanted" ] ;;
	esac
}

# `in_version NAME` is a check.
in_version() { matches "$1" || { echo "   generation ${PROCESSES[$1]:-none} instead of ${WANTED[$1]}"; return 1; }; }

# Prints the list of pods as it has to be, for the processes that run.
right_list() {
	local name
	for name in "${!PROCESSES[@]}"; do echo "$name 1/1 Running"; done | sort
	echo 'once 0/1 Completed'
}
list() {
	local rows
	rows=$(wherry pods 2>/dev/null) || return 1
	awk 'NR > 1 && $2 != "once" { print $2, $3, $4 | "sort" }
		$2 == "once" { once = $2 " " $3 " " $4 }
		END { close("sort"); if (once) print once }' <<<"$rows"
}

settled() {
	local name
	scan
	for name in "${NAMES[@]}"; do matches "$name" || return 1; done
	[ "$SANDBOXES" = ${#PROCESSES[@]} ] && [ "$(list)" = "$(right_list)" ]
}

# `generation_of NAME` prints the generation of a valid manifest, "broken" or "none". A power cut may leave an empty file.
generation_of() {
	local lines=()
	if [ ! -e "$MANIFESTS/$1.yaml" ]; then
		echo none
		return
	fi
	mapfile -t lines <"$MANIFESTS/$1.yaml"
	if [ "${lines[0]:-}" = 'apiVersion: v1' ] && [[ ${lines[-1]} =~ ^'# complete: '([0-9]+)$ ]]; then
		echo "${BASH_REMATCH[1]}"
	else
		echo broken
	fi
}

# Sets WANTED from the manifests on the disk. The user's own writes may be lost or old, so the disk decides, not what was written.
want() {
	local name generation last
	WANTED[kept]=1
	for name in net "${SLOTS[@]}"; do
		generation=$(generation_of "$name")
		if [ "$generation" = broken ]; then
			last=any
			if [ -s "$MODEL/$name" ]; then last=$(<"$MODEL/$name"); fi
			# In the last checked boot no version was in force; since then there may have been one.
			if [ "$last" = none ]; then last=any; fi
			if [ "$last" != any ]; then last="since $last"; fi
			generation=$last
		fi
		WANTED[$name]=$generation
	done
}

# `remember NAME VALUE` writes the model of a pod durably.
remember() {
	if [ "$(cat "$MODEL/$1" 2>/dev/null)" = "$2" ]; then return; fi
	echo "$2" >"$MODEL/.$1"
	sync "$MODEL/.$1"
	mv "$MODEL/.$1" "$MODEL/$1"
	sync $MODEL
}

# Checks the pods and the files of the agent. Writes the model.
look() {
	local name found text addresses
	await 300 settled || true
	for name in "${NAMES[@]}"; do check "$name runs as often as it has to, and in the right version" in_version "$name"; done
	check 'each pod has one sandbox' is "$SANDBOXES" ${#PROCESSES[@]}
	check 'wherry lists these pods and no others' is "$(list)" "$(right_list)"
	found=$(for name in "${!PROCESSES[@]}"; do echo "$name ${PROCESSES[$name]}"; done | sort)
	check 'no other pod was started, and none twice' is "$(sort $HERE/starts)" "$found"
	found=$(find /var/lib/wherry -name '*.corrupt' -o -name '*.new' ! -newer $HERE/before-agent)
	check 'no file is corrupt, and none is left from an unfinished write' is "$found" ''
	text=$(<$HERE/wherry.log)
	check 'the log reports neither an error nor a bad record' is "$(grep -E ' ERROR |BadRecord|corrupt' <<<"$text" | head -n 3)" ''
	check 'no event reports a bad record' is "$(wherry events | grep BadRecord)" ''
	check 'the agent runs' kill -0 "$agent"
	check 'the file system is in order' is "$(dmesg | grep -E 'EXT4-fs (error|warning)')" ''
	for name in net "${SLOTS[@]}"; do remember "$name" "${PROCESSES[$name]:-none}"; done
	for name in "${!PROCESSES[@]}"; do echo "runs: $name ${PROCESSES[$name]}"; done
	addresses=(/var/lib/cni/networks/vm/*.*.*.*)
	echo "addresses in use: ${#addresses[@]}"
	echo "unwritten records: $(grep -c 'interrupted the write' <<<"$text")"
}

# Prints what helps to understand a failure.
explain() {
	local name
	for name in "${NAMES[@]}"; do
		echo "$name: wanted ${WANTED[$name]:-}, manifest $(generation_of "$name"), model $(cat "$MODEL/$name" 2>&1)," \
			"processes ${PROCESSES[$name]:-}"
	done
	ls -lA --time-style=full-iso $MANIFESTS /var/lib/wherry /var/lib/wherry/records/* /var/lib/wherry/manifests
	cat $HERE/starts
	wherry pods
	wherry events | tail -n 40
	tail -n 150 $HERE/wherry.log
	tail -n 60 $HERE/containerd.log
	dmesg | tail -n 20
}

# `place NAME GENERATION [POLICY [WHAT]]` writes a manifest with sync and rename: it is complete, and on the disk when it has its name.
place() {
	pod "$@" >"$MANIFESTS/.$1.new"
	sync "$MANIFESTS/.$1.new"
	mv "$MANIFESTS/.$1.new" "$MANIFESTS/$1.yaml"
	sync $MANIFESTS
}

# Changes a manifest in a random way.
change() {
	local name=${SLOTS[RANDOM % ${#SLOTS[@]}]} file
	generation=$((generation + 1))
	file=$MANIFESTS/$name.yaml
	case $((RANDOM % 12)) in
	0 | 1 | 2)
		echo "change: $name $generation, with sync"
		place "$name" $generation
		;;
	3 | 4)
		echo "change: $name $generation, renamed without sync"
		pod "$name" $generation >"$MANIFESTS/.$name.new"
		mv "$MANIFESTS/.$name.new" "$file"
		;;
	5 | 6)
		echo "change: $name $generation, in place without sync"
		pod "$name" $generation >"$file"
		;;
	7 | 8)
		echo "change: $name is removed"
		# After this, no version has to be in force. (Before, so that the model never claims too much.)
		remember "$name" any
		rm -f "$file"
		;;
	9)
		echo "change: $name is broken, without sync"
		{ echo 'kind: [Pod'; pod "$name" $generation; } >"$file"
		;;
	10)
		echo "change: $name is empty, with sync"
		: >"$file"
		sync "$file" $MANIFESTS
		;;
	11)
		echo "change: net $generation, with sync"
		place net $generation
		;;
	esac
}

# A version of a pod never starts twice in a boot, no two versions run at the same time, and the agent keeps running.
watch() {
	local before=" ${doubled:-} " name line
	local -A seen=()
	scan
	doubled=
	for name in "${!PROCESSES[@]}"; do
		# (Not if one of them ended during the scan: both are there in the next one too.)
		if [[ ${PROCESSES[$name]} = *' '* ]]; then
			doubled+=" $name"
			if [[ $before = *" $name "* ]]; then
				failed=$((failed + 1))
				echo "FAILED: $name runs in the versions ${PROCESSES[$name]} at the same time"
			fi
		fi
	done
	while read -r line; do
		if [ -n "${seen[$line]:-}" ]; then failed=$((failed + 1)); echo "FAILED: $line was started twice"; fi
		seen[$line]=1
	done <$HERE/starts
	if ! kill -0 "$agent" 2>/dev/null; then failed=$((failed + 1)); echo 'FAILED: the agent has ended'; fi
}

# Changes manifests until the power cut.
churn() {
	RANDOM=$(word seed)
	generation=$((boot * 1000))
	while [ $failed = 0 ]; do
		change
		watch
		pause "0.$((RANDOM % 8))"
	done
	explain
	echo "wherry-vm: boot $boot failed"
}

uptime() {
	local now
	read -r now _ </proc/uptime
	echo "$now s"
}

# Prepares the machine, creates the first pods, and turns the machine off.
prepare() {
	local name
	cp -rT /wherry-vm/files /
	echo "kernel $(uname -r), $(containerd --version | cut -d' ' -f1,3), $(wherry --version)"
	mkdir -p $MODEL $MANIFESTS
	start
	for name in "${NAMES[@]}"; do
		place "$name" 1
		WANTED[$name]=1
	done
	place once 1 Never 'exit 0'
	if ! await 600 settled; then
		echo 'FAILED: the first pods do not run'
		explain
	fi
	# From here on, a broken version of the manifest must change nothing.
	echo 'kind: [Pod' >$MANIFESTS/kept.yaml
	sync $MANIFESTS/kept.yaml
	await 60 eval 'wherry events | grep -q kept.yaml' || echo 'FAILED: the broken manifest is not reported'
	for name in net "${SLOTS[@]}"; do remember "$name" 1; done
	sync
	echo 'wherry-vm: boot 0 completed'
	systemctl --no-block poweroff
}

boot=$(word boot)
if [ $$ != 1 ]; then
	prepare
	exit 0
fi
begin
# An unfinished write of the user.
rm -f $MANIFESTS/.*.new
want
start
if [ "$(word check)" = yes ]; then
	look
	echo "checks: $passed passed, $failed failed, after $(uptime)"
	if [ $failed = 0 ]; then echo 'wherry-vm: checked'; fi
fi
churn
# (Process 1 must not end.)
while :; do pause 60; done
