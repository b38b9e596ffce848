#!/bin/bash
# Runs inside the machine of cluster.sh. The kernel's command line contains the number of the boot. The test outside waits for the lines
# `wherry-vm: WORD`, and ends or starts the API server after them.
# shellcheck disable=SC2317 # functions are passed by name
set -uo pipefail

# shellcheck source=tests/vm/inside.sh
. /wherry-vm/inside.sh
# A pod of a manifest and two of the API server.
PODS=3
KEY=/etc/credstore.encrypted/wherry.key

running() { [ "$(wherry pods | awk '$3 == "1/1" && $4 == "Running"' | wc -l)" = "$1" ]; }
has_event() { wherry events | grep -q "$1"; }
has_address() { ip -4 -o addr show scope global up | grep -q 'inet 10\.0\.2\.15/'; }
mount_namespace() { readlink "/proc/$1/ns/mnt"; }
# Prints the ids of the running containers.
containers() { ctr -n k8s.io tasks ls | awk '$3 == "RUNNING" { print $1 }' | sort | tr '\n' ' '; }
# The records of Secrets and tokens, and those of them that are sealed.
records() { find /var/lib/wherry/records/objects /var/lib/wherry/records/tokens -type f ! -name 'configmap.*' 2>/dev/null; }
sealed() { records | while read -r file; do if [ "$(head -c 16 "$file")" = 'wherry-sealed 1 ' ]; then echo "$file"; fi; done; }
# The files of the disk with the value of the Secret, as it is and in base64. (Volumes of Secrets are in memory.)
with_value() { grep -rlF -e hunter2-quay -e aHVudGVyMi1xdWF5 --exclude-dir=pods /var/lib/wherry /var/log/pods; }

install_all() {
	cp -rT /wherry-vm/files /
	rm -f /etc/systemd/system/containerd.service
	systemctl daemon-reload
	systemctl enable --now systemd-networkd 2>/dev/null
	systemctl start containerd
	until_true 'containerd answers' ctr version
	ctr -n k8s.io images import /wherry-vm/images.tar >/dev/null
	# containerd does not flush the files that it unpacks. A power cut within the next half a minute would leave empty programs.
	sync
	# As in docs/configuration.md, "Sealed Secrets".
	mkdir -p -m 700 "${KEY%/*}"
	head -c 32 /dev/urandom | systemd-creds encrypt --with-key=host --name=wherry.key - $KEY
	check 'systemd-analyze verify reports nothing' is "$(systemd-analyze --man=no verify wherry.service 2>&1)" ''
	systemctl enable --now containerd wherry 2>/dev/null
	until_true 'the pod of the manifest runs' running 1
	until_true 'the machine has an address' has_address
}

join() {
	local arguments before
	mapfile -t arguments </wherry-vm/join
	before=$(containers)
	wherry check --join "${arguments[@]}"
	check 'wherry check --join finds no error' is $? 0
	wherry join "${arguments[@]}"
	check 'wherry join succeeds' is $? 0
	until_true 'the node is registered' has_event NodeRegistered
	check 'the join has restarted no container' is "$(containers)" "$before"
	echo 'wherry-vm: joined'
}

look_at_service() {
	local pid
	pid=$(property MainPID)
	check 'the service has the mount namespace of the machine' is "$(mount_namespace "$pid")" "$(mount_namespace 1)"
	# One Secret, and a token for each of two pods.
	check 'three records are Secrets or tokens' is "$(records | wc -l)" 3
	check 'all of them are sealed' is "$(sealed | wc -l)" 3
	check 'no file has the value of the Secret' is "$(with_value)" ''
	check 'no record is readable by others' is "$(find /var/lib/wherry/records -type f -perm /077)" ''
}

case $boot in
1)
	install_all
	join
	until_true 'all pods run' running $PODS
	look_at_service
	echo 'wherry-vm: online'
	until_true 'the node notices that the server is away' has_event ApiServerDisconnected
	echo 'wherry-vm: away'
	# The test cuts the power.
	sleep infinity
	;;
2)
	until_true 'all pods run without a network' running $PODS
	check 'the machine has no address' is "$(ip -o addr show scope global | grep -v cni0)" ''
	look_at_service
	wherry status
	check 'the state of the connection is shown' grep -q ', has not responded for ' <<<"$(wherry status)"
	wherry pods
	echo 'wherry-vm: boot 2 completed'
	systemctl reboot
	;;
3)
	until_true 'all pods run without the server' running $PODS
	look_at_service
	check 'the last shutdown is recorded' is "$(wherry status -o json | grep -cE '"(startedAt|endedAt)"')" 2
	before=$(containers)
	echo 'wherry-vm: offline'
	until_true 'the node notices that the server is back' has_event ApiServerConnected
	check 'no container was restarted' is "$(containers)" "$before"
	echo 'wherry-vm: back'
	until_true 'only the pod of the manifest is left' running 1
	no_records() { [ -z "$(records)" ]; }
	until_true 'the records of Secrets and tokens are gone' no_records
	before=$(containers)
	wherry leave
	check 'wherry leave succeeds' is $? 0
	until_true 'the pod of the manifest still runs' running 1
	check 'the leave has restarted no container' is "$(containers)" "$before"
	check 'the files of the membership are gone' is "$(ls -A /var/lib/wherry/cluster /etc/wherry/config.d/50-wherry-join.yaml 2>/dev/null)" ''
	wherry events | tail -n 40
	echo 'wherry-vm: boot 3 completed'
	systemctl poweroff
	;;
esac
exit 0
