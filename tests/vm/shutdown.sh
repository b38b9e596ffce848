#!/bin/bash
# Graceful shutdown by a real logind on a real machine (`make test-vm-shutdown`): wherry under its unit, with pods in three priority
# groups that take 5 s to end. One disk is booted four times:
#
#   1  installs everything; what holds the lock; `systemctl poweroff`
#   2  the pods run again by themselves (S5); `systemctl reboot`
#   3  the pods run again; `systemctl poweroff`, and wherry is killed with -9 while pods stop (S7)
#   4  the pods run again; `systemctl poweroff`
#
# What must be true while a machine runs is looked at in there (shutdown-inside.sh). How it went off is judged here, from its
# console: pods, wherry, logind and the kernel all write to it, with one clock.
#
# Ends with 77 where no virtual machine can be run.
set -euo pipefail
# shellcheck source=tests/vm/machine.sh
. "$(dirname "$0")/machine.sh"

# Seconds; each boot.
LIMIT=${WHERRY_VM_LIMIT:-900}
# Seconds that a pod takes to end, of each group that it gets, and that systemd may take for what comes after.
TAKES=5
LOW=40
MIDDLE=35
CRITICAL=30
SLACK=90
PODS=(low-a low-b middle critical)

prepare_machine
cd "$PROJECT"
"$LAB/install.sh" build runtime
as_caller "$LAB/images.sh" "$PROJECT/target/lab-images"
"$LAB/cargo.sh" build --bin wherry

# `pod NAME LINE`: with a line of its spec. It says on the console what happens to it.
pod() {
	cat >"$files/etc/wherry/manifests/$1.yaml" <<POD
apiVersion: v1
kind: Pod
metadata:
  name: $1
spec:
  $2
  dnsPolicy: Default
  containers:
    - name: main
      image: localhost/busybox:1.35
      # For /dev/kmsg.
      securityContext:
        privileged: true
      command: ["sh", "-c"]
      args:
        - |
          say() { echo "\$1"; echo "<5>pod $1 \$1" >/dev/kmsg; }
          stop() {
            say stopping
            for i in $(seq -s ' ' $TAKES); do sleep 1; done
            say ended
            exit 0
          }
          trap stop TERM
          say started
          while :; do sleep 3600 & wait \$!; done
POD
}

in=$work/in
files=$in/wherry-vm/files
mkdir -p "$files"/etc/{containerd,cni/net.d,wherry/manifests} "$files"/usr/{bin,lib/systemd/system}
cp "$VM/shutdown-inside.sh" "$in/wherry-vm/run.sh"
cp "$VM/inside.sh" "$in/wherry-vm/"
cp target/lab-images/images.tar "$in/wherry-vm/"
strip -o "$files/usr/bin/wherry" target/debug/wherry
cp packaging/wherry.service "$files/usr/lib/systemd/system/"
cat >"$files/etc/wherry/config.yaml" <<CONFIG
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: systemd
shutdownGracePeriodByPodPriority:
  - priority: 0
    shutdownGracePeriodSeconds: $LOW
  - priority: 1000
    shutdownGracePeriodSeconds: $MIDDLE
  - priority: 2000000000
    shutdownGracePeriodSeconds: $CRITICAL
CONFIG
runtime_configuration "$files"
pod low-a 'priority: 0'
pod low-b 'priority: 999'
pod middle 'priority: 1000'
pod critical 'priorityClassName: system-node-critical'
pack_input "$in"

disk=$work/disk.ext4
cp --sparse=always "$CACHE/rootfs.ext4" "$disk"

bad=0
# `check TEXT COMMAND...`
check() {
	if "${@:2}"; then
		printf 'passed: %s\n' "$1"
	else
		printf 'FAILED: %s\n' "$1"
		bad=$((bad + 1))
	fi
}

# What the console said from the moment when the machine was told to go off, to $work/events, a line each: milliseconds since
# then, and the text.
read_console() {
	awk 'match($0, /\[ *[0-9]+\.[0-9]+\] /) {
		text = substr($0, RSTART + RLENGTH)
		time = substr($0, RSTART + 1, RLENGTH - 3) * 1000
		sub(/\r$/, "", text)
		if (text ~ /^wherry-vm: systemctl /) asked = time
		if (asked) printf "%d %s\n", time - asked, text
	}' "$work/console.log" >"$work/events"
}

# When the lines came whose whole text matches.
times() { awk -v pattern="^($1)\$" '{ time = $1; sub(/^[^ ]* /, "") } $0 ~ pattern { print time }' "$work/events"; }
first() { times "$1" | head -n 1; }
last() { times "$1" | tail -n 1; }
once() { [ "$(times "$1" | wc -l)" = 1 ]; }
never() { [ -z "$(times "$1")" ]; }
# Was the last of these lines there before the first of those?
before() {
	local a b
	a=$(last "$1")
	b=$(first "$2")
	[ -n "$a" ] && [ -n "$b" ] && [ "$a" -le "$b" ]
}
within() {
	local a
	a=$(last "$1")
	[ -n "$a" ] && [ "$a" -le "$2" ]
}
# From the one to the other, in milliseconds.
took() {
	local a b
	a=$(first "$1")
	b=$(last "$2")
	[ -n "$a" ] && [ -n "$b" ] && [ $((b - a)) -ge "$3" ]
}

timeline() {
	awk '{ time = $1; sub(/^[^ ]* /, "") }
		/^(pod|wherry-vm:|reboot:) / || /^(wherry|systemd-logind)\[/ || /^systemd\[1\]: .*(wherry|containerd)\.service/ {
			printf "  %8.3f  %s\n", time / 1000, $0
		}' "$work/events"
}

# How the machine went off; $1 is what the kernel says last.
judge() {
	local pod
	read_console
	timeline
	for pod in "${PODS[@]}"; do
		check "$pod was told to stop once" once "pod $pod stopping"
		check "$pod had its time, and ended by itself" once "pod $pod ended"
		check "$pod took its $TAKES s" took "pod $pod stopping" "pod $pod ended" $((TAKES * 1000))
		check "$pod was not started again" never "pod $pod started"
	done
	check 'the middle group waited for the lowest' before 'pod low-[ab] ended' 'pod middle stopping'
	check 'the critical pod was the last' before 'pod middle ended' 'pod critical stopping'
	check 'logind went on when all had ended' before 'pod critical ended' "$POWERING_DOWN"
	check 'logind waited no longer than the groups may take' within "$POWERING_DOWN" $(((LOW + MIDDLE + CRITICAL) * 1000))
	check 'logind cut nothing off' never 'systemd-logind.*inhibitor timeout is reached.*'
	check 'wherry and the runtime were still there' before "$POWERING_DOWN" 'systemd[[]1[]]: Stopping (wherry|containerd)[.]service.*'
	check 'wherry was stopped before the runtime' before 'systemd[[]1[]]: Stopped wherry[.]service.*' 'systemd[[]1[]]: Stopping containerd[.]service.*'
	check 'nothing held up the end' never 'systemd.*timed out.*'
	check "the kernel: $1" within "reboot: $1" $(((LOW + MIDDLE + CRITICAL + SLACK) * 1000))
}

# What logind logs once no lock holds it any more.
POWERING_DOWN='systemd-logind.*: System is (powering down|rebooting)[.]'

for n in 1 2 3 4; do
	printf '\n--- boot %s\n' "$n"
	boot "$LIMIT" "$disk" "wherry-vm.boot=$n" printk.devkmsg=on systemd.show_status=no \
		systemd.journald.forward_to_kmsg=1 systemd.journald.max_level_kmsg=info
	judge_boot "$n"
	case $n in
	1 | 3 | 4) judge 'Power down' ;;
	2) judge 'Restarting system' ;;
	esac
	end_boot "$n"
done
judge_checks
