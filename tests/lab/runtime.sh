#!/bin/bash
# A private containerd: `runtime.sh up DIR NAME` starts it, `runtime.sh down DIR` stops it and everything in it. Both can
# be called again at any time, also after a crash or a reboot. `runtime.sh again DIR` restarts a killed containerd; its
# containers keep running. `runtime.sh cut DIR` leaves what a power failure leaves: only the files on the disk. Needs root.
#
#   DIR (on a real disk)     root/ (images, layers), cni/, cdi/, certs.d/ (registries), containerd.toml, containerd.log, env
#   /run/wherry-NAME         state/, containerd.sock, containerd.pid (short: a socket's path has at most 108 bytes)
#   bridge wy-NAME, cgroup /wherry-NAME (the parent of the pods: wherry's cgroupRoot)
#
# `DIR/env` can be sourced: WHERRY_LAB_NAME, _DIR, _RUN, _SOCKET, _CGROUP, _BRIDGE, _SUBNET.
set -euo pipefail
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/common.sh"

usage() { die "usage: runtime.sh up DIR NAME | again DIR | cut DIR | down DIR"; }

# Sets the variables derived from DIR and NAME.
names() {
	RUN=/run/wherry-$NAME
	SOCKET=$RUN/containerd.sock
	BRIDGE=wy-$NAME
	CGROUP=${WHERRY_LAB_CGROUP:-/wherry-$NAME}
}

ours() {
	[ -r "/proc/$1/cmdline" ] && { tr '\0' '\n' <"/proc/$1/cmdline"; } 2>/dev/null | grep -qxF "$DIR/containerd.toml"
}

running() {
	local pid
	pid=$(cat "$RUN/containerd.pid" 2>/dev/null) && [ -n "$pid" ] && ours "$pid" && printf '%s\n' "$pid"
}

# True if containerd answers and has a working CRI plugin.
answers() {
	timeout 60 ctr -a "$SOCKET" plugins ls 2>/dev/null | awk '$2 == "cri" && $NF == "ok" { found = 1 } END { exit !found }'
}

# Prints the first /22 that no address or route of this machine uses.
free_subnet() {
	local n taken
	taken=$(ip -4 route show table all 2>/dev/null; ip -4 -o addr show)
	for n in $(seq 201 250); do
		if ! grep -qE "(^|[^0-9.])10\.$n\." <<<"$taken"; then
			printf '10.%s.0.0/22\n' "$n"
			return 0
		fi
	done
	die "no free network among 10.201.0.0/22 to 10.250.0.0/22"
}

write_cni() {
	mkdir -p "$DIR/cni" "$DIR/cni-data"
	cat >"$DIR/cni/10-wherry.conflist" <<END
{
  "cniVersion": "0.4.0",
  "name": "wherry-$NAME",
  "plugins": [
    {
      "type": "bridge", "bridge": "$BRIDGE", "isGateway": true, "ipMasq": true, "hairpinMode": true,
      "ipam": {
        "type": "host-local", "dataDir": "$DIR/cni-data",
        "ranges": [[{ "subnet": "$SUBNET" }]], "routes": [{ "dst": "0.0.0.0/0" }]
      }
    },
    { "type": "portmap", "capabilities": { "portMappings": true } }
  ]
}
END
}

write_config() {
	local apparmor=true oom=true snapshotter=native
	[ "$(cat /sys/module/apparmor/parameters/enabled 2>/dev/null)" = Y ] && have apparmor_parser && apparmor=false
	# Without CAP_SYS_RESOURCE, containerd cannot lower an OOM score, and every sandbox would fail.
	if (echo -998 >/proc/self/oom_score_adj) 2>/dev/null; then oom=false; fi
	mkdir -p "$DIR/try"/{lower,upper,work,merged}
	if mount -t overlay overlay -o "lowerdir=$DIR/try/lower,upperdir=$DIR/try/upper,workdir=$DIR/try/work" "$DIR/try/merged" 2>/dev/null; then
		snapshotter=overlayfs
		umount "$DIR/try/merged"
	fi
	rm -rf "$DIR/try"
	cat >"$DIR/containerd.toml" <<END
version = 2
root = "$DIR/root"
state = "$RUN/state"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper"]

[grpc]
  address = "$SOCKET"

[plugins."io.containerd.internal.v1.opt"]
  path = "$DIR/opt"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:3.9"
  disable_apparmor = $apparmor
  restrict_oom_score_adj = $oom
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  enable_cdi = true
  cdi_spec_dirs = ["$DIR/cdi"]

  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "${WHERRY_LAB_CERTS:-$DIR/certs.d}"

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$(cni_plugins)"
    conf_dir = "$DIR/cni"

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "$snapshotter"
    default_runtime_name = "runc"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "$(command -v runc)"
        Root = "$RUN/runc"
        SystemdCgroup = false

    # A second handler for RuntimeClasses.
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.other]
      runtime_type = "io.containerd.runc.v2"

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.other.options]
        BinaryName = "$(command -v runc)"
        Root = "$RUN/runc-other"
        SystemdCgroup = false
END
}

quote() { printf "%s='%s'\n" "$1" "$2"; }

write_env() {
	{
		quote WHERRY_LAB_NAME "$NAME"
		quote WHERRY_LAB_DIR "$DIR"
		quote WHERRY_LAB_RUN "$RUN"
		quote WHERRY_LAB_SOCKET "$SOCKET"
		quote WHERRY_LAB_CGROUP "$CGROUP"
		quote WHERRY_LAB_BRIDGE "$BRIDGE"
		quote WHERRY_LAB_SUBNET "$SUBNET"
		quote WHERRY_LAB_FORWARD "$FORWARD"
	} >"$DIR/env"
}

start() {
	local pid
	# In a session of its own it survives the shell that starts it.
	setsid containerd --config "$DIR/containerd.toml" >>"$DIR/containerd.log" 2>&1 </dev/null &
	pid=$!
	for _ in $(seq 1 1000); do
		ours "$pid" && break
		sleep 0.02
	done
	printf '%s\n' "$pid" >"$RUN/containerd.pid"
	for _ in $(seq 1 1200); do
		if answers; then return 0; fi
		kill -0 "$pid" 2>/dev/null || break
		sleep 0.1
	done
	tail -n 30 "$DIR/containerd.log" >&2
	die "containerd does not answer on $SOCKET; see the end of $DIR/containerd.log above"
}

import_images() {
	local images=${WHERRY_LAB_IMAGES:-$DIR/images}
	"$LAB/images.sh" "$images"
	if [ "$(cat "$DIR/imported" 2>/dev/null)" != "$(cat "$images/stamp")" ] ||
		! ctr -a "$SOCKET" -n k8s.io images ls -q | grep -qx localhost/pause:3.9; then
		ctr -a "$SOCKET" -n k8s.io images import "$images/images.tar" >>"$DIR/containerd.log" 2>&1 ||
			die "failed to import the images; see the end of $DIR/containerd.log"
		cp "$images/stamp" "$DIR/imported"
	fi
}

up() {
	local tool
	[ "${#NAME}" -le 12 ] || die "the name $NAME is too long for a bridge (12 bytes at most)"
	case $NAME in *[!a-z0-9-]*) die "the name $NAME may contain only a to z, 0 to 9 and -" ;; esac
	for tool in containerd ctr runc ip iptables; do
		have "$tool" || die "$tool not found in PATH (install it with tests/lab/install.sh)"
	done
	cni_plugins >/dev/null || die "CNI plugins not found (install them with tests/lab/install.sh)"
	mkdir -p "$DIR"
	DIR=$(cd "$DIR" && pwd)
	names
	if running >/dev/null && answers; then
		import_images
		return 0
	fi
	# Remove the leftovers of a crash or a reboot; keep the images.
	if [ -f "$DIR/env" ]; then down; fi
	# If DIR was deleted, only the bridge of its runtime may be left.
	if ip link show "$BRIDGE" >/dev/null 2>&1; then
		if answers; then die "another runtime uses $SOCKET and $BRIDGE; stop it first (make demo-down in its checkout)"; fi
		ip link del "$BRIDGE"
	fi
	SUBNET=${WHERRY_LAB_SUBNET:-$(free_subnet)}
	FORWARD=$(cat /proc/sys/net/ipv4/ip_forward)
	mkdir -p "$RUN"
	write_cni
	write_config
	write_env
	start
	import_images
}

# Stops and removes containers through containerd, if it answers.
end_tasks() {
	local id
	[ -S "$SOCKET" ] || return 0
	timeout 120 ctr -a "$SOCKET" -n k8s.io tasks ls -q 2>/dev/null | while read -r id; do
		timeout 120 ctr -a "$SOCKET" -n k8s.io tasks rm -f "$id" >/dev/null 2>&1 || true
	done
	timeout 120 ctr -a "$SOCKET" -n k8s.io containers ls -q 2>/dev/null | while read -r id; do
		timeout 120 ctr -a "$SOCKET" -n k8s.io containers rm "$id" >/dev/null 2>&1 || true
	done
}

end_containerd() {
	local pid
	if pid=$(running); then
		kill "$pid" 2>/dev/null || true
		for _ in $(seq 1 600); do
			ours "$pid" || return 0
			sleep 0.1
		done
		kill -KILL "$pid" 2>/dev/null || true
	fi
}

# Finds shims by our socket in their arguments. The children of a shim are its containers.
end_shims() {
	local dir pid child
	for dir in /proc/[0-9]*; do
		pid=${dir#/proc/}
		if { tr '\0' '\n' <"$dir/cmdline"; } 2>/dev/null | grep -qxF "$SOCKET"; then
			cat "$dir"/task/*/children 2>/dev/null | tr ' ' '\n' | while read -r child; do
				[ -z "$child" ] || kill -KILL "$child" 2>/dev/null || true
			done
			kill -KILL "$pid" 2>/dev/null || true
		fi
	done
	# The socket of a shim is in a system directory; only the bundle contains its name.
	for dir in "$RUN"/state/io.containerd.runtime.v2.task/k8s.io/*/address; do
		child=$(cat "$dir" 2>/dev/null)
		case $child in unix:///run/containerd/s/*) rm -f "${child#unix://}" ;; esac
	done
	rmdir /run/containerd/s /run/containerd 2>/dev/null || true
}

unmount_below() {
	local try mounts mount
	for try in 1 2 3; do
		mounts=$(awk -v d="$1/" 'index($5, d) == 1 { print $5 }' /proc/self/mountinfo | sort -r)
		[ -n "$mounts" ] || return 0
		while read -r mount; do
			umount "$mount" 2>/dev/null || { [ "$try" -lt 2 ] || umount -l "$mount" 2>/dev/null || true; }
		done <<<"$mounts"
		sleep 0.1
	done
}

# Deletes the rules of chain $1 of the nat table whose text contains $TEXT. Prints their targets.
forget_rules() {
	local number target
	iptables -w -t nat -S "$1" 2>/dev/null | grep '^-A' | awk '
		index($0, ENVIRON["TEXT"]) {
			target = ""
			for (i = 1; i < NF; i++) if ($i == "-j") target = $(i + 1)
			print NR, target
		}' | sort -rn | while read -r number target; do
		if iptables -w -t nat -D "$1" "$number"; then printf '%s\n' "$target"; fi
	done
}

forget_chain() {
	iptables -w -t nat -F "$1" 2>/dev/null || true
	iptables -w -t nat -X "$1" 2>/dev/null || true
}

# Deletes every rule of our network and the chains of single containers to which they jump. The comment of a rule
# contains the name of its network.
forget_network() {
	local chain target
	for chain in POSTROUTING CNI-HOSTPORT-DNAT; do
		TEXT='name: \"'wherry-$NAME'\"' forget_rules "$chain" | while read -r target; do
			case $target in CNI-*) forget_chain "$target" ;; esac
		done
	done
}

# Deletes portmap's common chains unless they contain rules of other networks.
forget_portmap() {
	local chain
	if iptables -w -t nat -S CNI-HOSTPORT-DNAT 2>/dev/null | grep -q '^-A'; then return 0; fi
	for chain in PREROUTING OUTPUT; do TEXT='-j CNI-HOSTPORT-DNAT' forget_rules "$chain" >/dev/null; done
	TEXT='-j CNI-HOSTPORT-MASQ' forget_rules POSTROUTING >/dev/null
	for chain in CNI-HOSTPORT-DNAT CNI-HOSTPORT-SETMARK CNI-HOSTPORT-MASQ; do forget_chain "$chain"; done
}

remove_network() {
	ip link del "$BRIDGE" 2>/dev/null || true
	# (In private namespaces, the rules disappear with the namespaces. Until then another network may add rules, which
	# would change the rule numbers between listing and deletion.)
	if [ -z "${WHERRY_LAB_ISOLATED:-}" ]; then
		forget_network
		forget_portmap
	fi
	rm -rf "$DIR/cni-data"
	rm -f /var/lib/cni/results/"wherry-$NAME"-*
	# libcni's results for loopback have the same names for all runtimes; the namespace paths identify ours.
	{ grep -lsF "$RUN/" /var/lib/cni/results/cni-loopback-* || true; } | xargs -r rm -f
	rmdir /var/lib/cni/results /var/lib/cni/cache /var/lib/cni 2>/dev/null || true
	# The bridge plugin turns forwarding on permanently. Turn it off again if it was off and no bridge remains.
	if [ "${WHERRY_LAB_FORWARD:-1}" = 0 ] && [ -z "$(ip -o link show type bridge)" ]; then
		echo 0 >/proc/sys/net/ipv4/ip_forward
	fi
}

# Restores the names that `up` chose.
recall() {
	DIR=$(cd "$DIR" && pwd)
	# shellcheck disable=SC1091
	. "$DIR/env"
	NAME=$WHERRY_LAB_NAME
	names
	CGROUP=$WHERRY_LAB_CGROUP
}

down() {
	[ -f "$DIR/env" ] || return 0
	recall
	# Run each step even if others fail.
	set +e +o pipefail
	end_tasks
	end_containerd
	end_shims
	remove_cgroups "$CGROUP"
	unmount_below "$RUN"
	unmount_below "$DIR"
	remove_network
	set -e -o pipefail
	rm -rf "$RUN"
	rm -f "$DIR/env"
}

# The records of the CNI plugins stay, as on a disk. (A function `cut` would hide the program.)
cut_power() {
	local pid
	recall
	if pid=$(running); then kill -KILL "$pid"; fi
	set +e +o pipefail
	end_shims
	remove_cgroups "$CGROUP"
	unmount_below "$RUN"
	unmount_below "$DIR"
	ip link del "$BRIDGE" 2>/dev/null
	set -e -o pipefail
	rm -rf "${RUN:?}"
	mkdir -p "$RUN"
}

[ $# -ge 2 ] || usage
[ "$(id -u)" = 0 ] || die "needs root"
DIR=$2
case $1 in
up)
	[ $# = 3 ] || usage
	NAME=$3
	up
	;;
again)
	[ -f "$DIR/env" ] || die "no containerd was started in $DIR"
	recall
	running >/dev/null || start
	;;
cut)
	[ -f "$DIR/env" ] || die "no containerd was started in $DIR"
	cut_power
	;;
down) down ;;
*) usage ;;
esac
