#!/bin/bash
# Tests graceful shutdown with a real logind in a virtual machine (`make test-vm-shutdown`): wherry with its unit, and pods in three
# priority groups that take 5 s to end. The same disk is booted four times:
#
#   1  installs everything; checks the lock; `systemctl poweroff`
#   2  the pods run again by themselves (S5); `systemctl reboot`
#   3  the pods run again; `systemctl poweroff`, and wherry is killed with -9 while pods stop (S7)
#   4  the pods run again; `systemctl poweroff`
#
# shutdown-inside.sh makes the checks while the machine runs. This script evaluates the end of each boot from the console, to which
# pods, wherry, logind and the kernel write with the same clock.
#
# Exits with 77 if no virtual machine can run.
set -euo pipefail
# shellcheck source=tests/vm/machine.sh
. "$(dirname "$0")/machine.sh"
# shellcheck source=tests/lab/check.sh
. "$LAB/check.sh"

# Seconds, for each boot.
LIMIT=${WHERRY_VM_LIMIT:-900}
# Seconds: the time that a pod takes to end, the period of each group, and the maximum time for systemd's part after that.
TAKES=5
LOW=40
MIDDLE=35
CRITICAL=30
SLACK=90
PODS=(low-a low-b middle critical)

prepare_machine
cd "$PROJECT"
"$LAB/install.sh" build runtime
as_caller "$LAB/images.sh" "$CONTAINER_IMAGES" $OTHER
if [ -n "$OTHER" ]; then
	# The package's binary, whose build takes minutes, is tested by package.sh too.
	dpkg-deb --fsys-tarfile "$(package_for_machine)" | tar -xO ./usr/bin/wherry >"$work/wherry"
else
	"$LAB/cargo.sh" build --bin wherry
	strip -o "$work/wherry" "${CARGO_TARGET_DIR:-target}/debug/wherry"
fi

# `pod NAME LINE`: writes a manifest with a line of its spec. The pod reports its state changes on the console.
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
      # Required for writes to /dev/kmsg.
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
cp "$CONTAINER_IMAGES/images.tar" "$in/wherry-vm/"
install -m 755 "$work/wherry" "$files/usr/bin/wherry"
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
cp --sparse=always "$IMAGE/rootfs.ext4" "$disk"

# Writes the console output since the shutdown request to $work/events. Each line has the milliseconds since the request and the
# text.
read_console() {
	awk 'match($0, /\[ *[0-9]+\.[0-9]+\] /) {
		text = substr($0, RSTART + RLENGTH)
		time = substr($0, RSTART + 1, RLENGTH - 3) * 1000
		sub(/\r$/, "", text)
		if (text ~ /^wherry-vm: systemctl /) asked = time
		if (asked) printf "%d %s\n", time - asked, text
	}' "$work/console.log" >"$work/events"
}

# Prints the times of the lines whose whole text matches.
times() { awk -v pattern="^($1)\$" '{ time = $1; sub(/^[^ ]* /, "") } $0 ~ pattern { print time }' "$work/events"; }
first() { times "$1" | head -n 1; }
last() { times "$1" | tail -n 1; }
once() { [ "$(times "$1" | wc -l)" = 1 ]; }
never() { [ -z "$(times "$1")" ]; }
# True if the last line of the first pattern precedes the first line of the second one.
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
# True if at least $3 milliseconds passed between the two lines.
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

# Evaluates the shutdown of the machine; $1 is the last message of the kernel.
judge() {
	local pod
	read_console
	timeline
	for pod in "${PODS[@]}"; do
		check "$pod received one SIGTERM" once "pod $pod stopping"
		check "$pod ended by itself" once "pod $pod ended"
		check "$pod took its $TAKES s" took "pod $pod stopping" "pod $pod ended" $((TAKES * 1000))
		check "$pod was not started again" never "pod $pod started"
	done
	check 'the middle group waited for the lowest' before 'pod low-[ab] ended' 'pod middle stopping'
	check 'the critical pod was stopped last' before 'pod middle ended' 'pod critical stopping'
	check 'logind continued after all pods had ended' before 'pod critical ended' "$POWERING_DOWN"
	check 'logind waited no longer than the sum of the periods' within "$POWERING_DOWN" $(((LOW + MIDDLE + CRITICAL) * 1000))
	check 'the delay of logind did not expire' never 'systemd-logind.*inhibitor timeout is reached.*'
	check 'wherry and the runtime still ran at that time' before "$POWERING_DOWN" 'systemd[[]1[]]: Stopping (wherry|containerd)[.]service.*'
	check 'wherry was stopped before the runtime' before 'systemd[[]1[]]: Stopped wherry[.]service.*' 'systemd[[]1[]]: Stopping containerd[.]service.*'
	check 'no unit timed out' never 'systemd.*timed out.*'
	check "the kernel: $1" within "reboot: $1" $(((LOW + MIDDLE + CRITICAL + SLACK) * 1000))
}

# logind's log line when no lock delays the shutdown any more.
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
