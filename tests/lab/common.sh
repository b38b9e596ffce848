# shellcheck shell=bash
# Functions that the scripts of the lab share. Sourced, never run.
#
# The lab is the environment of the tests: packages, images, a private container runtime, and namespaces in which a test
# may change anything. Nothing here touches the system's own containerd, its networks or its services.

LAB=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck disable=SC2034 # used by scripts that source this file
PROJECT=$(cd "$LAB/../.." && pwd)
# Debian has iptables, runc and ip in sbin, which is not in a user's PATH. WHERRY_LAB_BIN: the directory of another
# containerd than the system's (newer-runtime.sh).
PATH=${WHERRY_LAB_BIN:+$WHERRY_LAB_BIN:}$PATH:/usr/local/sbin:/usr/sbin:/sbin

say() { printf '%s\n' "$*" >&2; }

die() {
	say "$(basename "$0"): $*"
	exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# True if commands can run as root. Asks for a password only on a terminal.
can_be_root() {
	[ "$(id -u)" = 0 ] || { have sudo && { sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; }; }; }
}

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# Runs a command as the user who called make, which under sudo is not root.
as_caller() {
	if [ "$(id -u)" = 0 ] && [ -n "${SUDO_USER:-}" ] && [ "$SUDO_USER" != root ]; then
		runuser -u "$SUDO_USER" -- env HOME="$(caller_home)" USER="$SUDO_USER" LOGNAME="$SUDO_USER" "$@"
	else
		"$@"
	fi
}

caller_home() {
	if [ "$(id -u)" = 0 ] && [ -n "${SUDO_USER:-}" ]; then
		getent passwd "$SUDO_USER" | cut -d: -f6
	else
		printf '%s\n' "${HOME:-/root}"
	fi
}

# `at_least 1.89 1.95.0`: the second version is not older than the first.
at_least() {
	[ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]
}

# Prints the directory of the CNI plugins, which depends on the distribution.
cni_plugins() {
	local d
	for d in "${CNI_BIN_DIR:-}" /usr/lib/cni /opt/cni/bin /usr/libexec/cni; do
		if [ -n "$d" ] && [ -x "$d/bridge" ] && [ -x "$d/portmap" ] && [ -x "$d/host-local" ]; then
			printf '%s\n' "$d"
			return 0
		fi
	done
	return 1
}

# Prints the path of a static busybox: the system's, otherwise the one that install.sh unpacked.
static_busybox() {
	local b
	for b in "$(command -v busybox || true)" "$(caller_home)/.cache/wherry/busybox/bin/busybox"; do
		if [ -n "$b" ] && [ -x "$b" ] && ! ldd "$b" >/dev/null 2>&1; then
			printf '%s\n' "$b"
			return 0
		fi
	done
	return 1
}

# Prints the mount points of the cgroup hierarchies: one on pure v2, several on v1 and hybrid.
cgroup_mounts() {
	awk '/ - cgroup2? / && $4 == "/" { print $5 }' /proc/self/mountinfo | sort -u
}

# Kills every process below the cgroup $1 (a path below the root of each hierarchy), and removes the cgroup in all
# hierarchies. No other program removes the cgroups that a runtime created for a pod.
remove_cgroups() {
	local parent=${1#/} try mount dir pid left
	[ -n "$parent" ] || return 0
	for try in $(seq 1 100); do
		left=
		while read -r mount; do
			[ -d "$mount/$parent" ] || continue
			while read -r dir; do
				while read -r pid; do
					# 0 stands for a process of another PID namespace; `kill 0` would signal our own group.
					if [ "$pid" != 0 ]; then kill -KILL "$pid" 2>/dev/null || true; fi
				done <"$dir/cgroup.procs" 2>/dev/null || true
				rmdir "$dir" 2>/dev/null || true
			done < <(find "$mount/$parent" -depth -type d 2>/dev/null)
			if [ -d "$mount/$parent" ]; then left=$mount/$parent; fi
		done < <(cgroup_mounts)
		[ -n "$left" ] || return 0
		[ "$try" -lt 4 ] || sleep 0.1
	done
	say "failed to remove the cgroup $left"
	return 1
}
