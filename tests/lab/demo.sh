#!/bin/bash
# `demo.sh up` runs real pods on this machine in a private container runtime. `demo.sh down` removes everything. The demo
# uses only .demo/ in the checkout, /run/wherry-demo, the bridge wy-demo and the cgroup /wherry-demo. It can be run again
# at any time, also after a reboot or a kill.
set -euo pipefail
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/common.sh"

DEMO=$PROJECT/.demo
RUN=/run/wherry-demo
SOCKET=$RUN/wherry.sock
BUILT=${CARGO_TARGET_DIR:-$PROJECT/target}/release/wherry
WHERRY=${WHERRY:-$BUILT}
PORT=18080
KUBECTL_PORT=16443
# The node port of the Service in packaging/examples/shop.yaml.
SHOP_PORT=30080
# The path of a kubectl; empty if there is none.
KUBECTL=${KUBECTL:-}
export WHERRY_LAB_CGROUP=/wherry-demo
unset WHERRY_LAB_SUBNET

title() { printf '\n== %s\n' "$*"; }

show_pods() {
	echo '   $ wherry pods'
	pods
}

agent_pid() {
	local pid
	pid=$(cat "$DEMO/wherry.pid" 2>/dev/null) && [ -n "$pid" ] && [ -r "/proc/$pid/cmdline" ] &&
		tr '\0' '\n' <"/proc/$pid/cmdline" | grep -qxF "$SOCKET" && printf '%s\n' "$pid"
}

stop_agent() {
	local pid
	pid=$(agent_pid) || return 0
	kill -TERM "$pid"
	for _ in $(seq 1 600); do
		agent_pid >/dev/null || return 0
		sleep 0.1
	done
	say "wherry (pid $pid) did not stop after SIGTERM; killing it"
	kill -KILL "$pid"
}

fail() {
	say
	touch "$DEMO/stop" 2>/dev/null || true
	say "demo: $*"
	if [ -f "$DEMO/wherry.log" ]; then
		say "--- the end of $DEMO/wherry.log"
		tail -n 25 "$DEMO/wherry.log" >&2
	fi
	if [ -f "$DEMO/lab/containerd.log" ]; then
		say "--- warnings at the end of $DEMO/lab/containerd.log"
		grep -E 'level=(warn|error|fatal)' "$DEMO/lab/containerd.log" | tail -n 10 >&2 || true
	fi
	say "--- \`make demo-down\` removes everything"
	exit 1
}

pods() { "$WHERRY" pods --socket "$SOCKET" "$@"; }

# `until_true SECONDS WHAT COMMAND...`
until_true() {
	local seconds=$1 what=$2 end
	shift 2
	end=$((SECONDS + seconds))
	until "$@" >/dev/null 2>&1; do
		if ! agent_pid >/dev/null; then fail "wherry ended while waiting until $what"; fi
		if [ $SECONDS -ge $end ]; then
			pods >&2 || true
			fail "gave up after $seconds s waiting until $what"
		fi
		sleep 0.2
	done
}

# `line POD` prints the pod's line of the table. `has POD WORD` is true if that line contains the word.
line() { pods | awk -v pod="$1" '{ for (i = 1; i <= 2; i++) if ($i == pod) print }'; }
has() { line "$1" | grep -qw -- "$2"; }
answers() { pods; }
gone() { [ -z "$(line "$1")" ]; }
# A pod's directory is removed last, after its volumes.
no_directories() { [ -z "$(ls -A "$DEMO/root/pods")" ]; }
no_pods() { [ -z "$(pods -o name)" ]; }
# The file exists as long as the kernel may have the rules of the Services.
no_rules() { ! compgen -G "$RUN/service-rules*" >/dev/null; }
# `page PATH` prints a page of the web server.
page() { env -u http_proxy -u HTTP_PROXY "$(static_busybox)" wget -q -O - "http://127.0.0.1:$PORT/$1"; }

container_of() {
	local id
	ctr -a "$RUN/containerd.sock" -n k8s.io containers ls -q "labels.\"io.kubernetes.pod.name\"==$1,labels.\"io.kubernetes.container.name\"==$2" |
		while read -r id; do
			ctr -a "$RUN/containerd.sock" -n k8s.io tasks ls | awk -v id="$id" '$1 == id && $3 == "RUNNING" { print $1 }'
		done
}

start_agent() {
	local mount
	# The agent treats a missing cgroupRoot as an error.
	while read -r mount; do mkdir -p "$mount/wherry-demo"; done < <(cgroup_mounts)
	mkdir -p "$DEMO/config.d" "$DEMO/manifests"
	cat >"$DEMO/config.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupRoot: /wherry-demo
healthzPort: 0
# The demo works on a machine with a nearly full disk, too.
evictionHard: {memory.available: 100Mi}
---
apiVersion: wherry.io/v1alpha1
kind: WherryConfiguration
# The socket of this machine's node agent, if it has one, is not touched.
devicePluginSocket: ""
kubectlPort: $KUBECTL_PORT
END
	setsid "$WHERRY" run --config "$DEMO/config.yaml" --config-dir "$DEMO/config.d" --manifests "$DEMO/manifests" \
		--root-dir "$DEMO/root" --log-dir "$DEMO/log/pods" --container-log-dir "$DEMO/log/containers" \
		--runtime-endpoint "unix://$RUN/containerd.sock" --socket "$SOCKET" --hostname demo \
		>>"$DEMO/wherry.log" 2>&1 </dev/null &
	printf '%s\n' "$!" >"$DEMO/wherry.pid"
	for _ in $(seq 1 1000); do
		agent_pid >/dev/null && break
		sleep 0.02
	done
}

# The time in milliseconds.
now() { echo $(($(date +%s%N) / 1000000)); }

# `edit FILE EXPRESSION` changes a manifest with sed.
edit() {
	sed "$2" "$DEMO/manifests/$1" >"$DEMO/manifests/.$1.new"
	mv "$DEMO/manifests/.$1.new" "$DEMO/manifests/$1"
}
edit_web() { edit web.yaml "$1"; }

# The address of this machine on the bridge of the pods.
own_address() { ip -4 -o addr show wy-demo | awk '{ sub("/.*", "", $4); print $4; exit }'; }
# `shop` prints the page of the shop, through the node port of its Service.
shop() { env -u http_proxy -u HTTP_PROXY timeout 5 "$(static_busybox)" wget -q -O - "http://$(own_address):$SHOP_PORT/"; }
shop_shows() { shop | grep -q "^$1 of the shop"; }
# The pods of the shop: all, or those that are ready.
shop_pods() { pods | awk '$1 ~ /^shop-/ || $2 ~ /^shop-/' | grep -c "${1:-.}" || true; }

# Sends requests without a pause until the file stop exists. The file requests has the first word of each page.
send_requests() {
	until [ -e "$DEMO/stop" ]; do
		shop | grep -o '^v[0-9]* of the shop' || echo lost
	done >"$DEMO/requests"
}

show_application() {
	local since before requests lost client
	title 'an application: a Deployment of two replicas, a Service, and a claim for their data'
	until_true 60 'the shop answers' shop_shows v1
	both() { [ "$(shop_pods 1/1)" = 2 ]; }
	until_true 60 'both pods are ready' both
	echo "   \$ wget -q -O - http://$(own_address):$SHOP_PORT/"
	printf '   %s\n' "$(shop)"

	title 'a new version of the application, while a client sends requests without a pause'
	rm -f "$DEMO/stop"
	send_requests &
	client=$!
	sleep 1
	since=$(now) before=$(shop_starts v2)
	edit shop.yaml 's/value: v1/value: v2/'
	new_version() { [ "$(shop_pods)" = 2 ] && both && [ "$(shop_starts v2)" -ge $((before + 2)) ]; }
	until_true 120 'both pods have the new version' new_version
	echo "   replaced after $(($(now) - since)) ms"
	sleep 1
	touch "$DEMO/stop"
	wait "$client" || true
	requests=$(wc -l <"$DEMO/requests")
	lost=$(grep -c lost "$DEMO/requests" || true)
	printf '   %s requests: %s of v1, %s of v2, %s lost\n' "$requests" "$(grep -c v1 "$DEMO/requests" || true)" \
		"$(grep -c v2 "$DEMO/requests" || true)" "$lost"
	[ "$lost" = 0 ] || fail 'requests were lost'
	echo "   \$ cat $(shop_data | sed "s|^$PROJECT/||")/starts"
	sed 's/^/   /' "$(shop_data)/starts"
}
# The directory of the claim, and how many pods of a version have started.
shop_data() { dirname "$(find "$DEMO/root" -name starts | head -n 1)"; }
shop_starts() { grep -c " with $1\$" "$(shop_data)/starts" || true; }

up_as_root() {
	local file before after id since sudo=
	[ -z "${SUDO_USER:-}" ] || sudo='sudo '
	title 'a private container runtime (containerd)'
	stop_agent
	WHERRY_LAB_IMAGES=$DEMO/images "$LAB/runtime.sh" up "$DEMO/lab" demo
	echo "   socket $RUN/containerd.sock, everything else in .demo/lab"

	title 'wherry with the manifests of packaging/examples'
	mkdir -p "$DEMO/manifests"
	for file in "$PROJECT"/packaging/examples/*.yaml; do
		cp "$file" "$DEMO/manifests/.${file##*/}.new"
		mv "$DEMO/manifests/.${file##*/}.new" "$DEMO/manifests/${file##*/}"
	done
	start_agent
	until_true 30 'wherry answers on its socket' answers
	until_true 120 'the web server runs' has web Running
	until_true 120 'the web server is ready' has web 1/1
	until_true 120 'the worker runs' has worker Running
	until_true 120 'the job is done' has job Completed
	show_pods

	title 'pages of the web server through its hostPort: from a ConfigMap, and from its init container'
	until_true 30 "the web server answers on port $PORT" page pages/greeting
	for file in pages/greeting scratch/prepared; do
		echo "   \$ wget -q -O - http://127.0.0.1:$PORT/$file"
		printf '   %s\n' "$(page "$file")"
	done

	title 'a change of the ConfigMap reaches the running container'
	edit_web "s/greeting: .*/greeting: The page has changed/"
	since=$(now)
	changed() { [ "$(page pages/greeting)" = 'The page has changed' ]; }
	until_true 30 'the page has changed' changed
	echo "   \$ wget -q -O - http://127.0.0.1:$PORT/pages/greeting"
	printf '   %s (after %s ms)\n' "$(page pages/greeting)" "$(($(now) - since))"

	title 'without its page, the readiness probe fails: the pod runs, and is not ready'
	edit_web '/^  ready:/d'
	until_true 30 'the probe fails' has web 0/1
	line web | sed 's/^/   /'
	"$WHERRY" events web --socket "$SOCKET" | grep -m1 Unhealthy | sed 's/^/   /' || true
	edit_web 's/^data:/data:\n  ready: "yes"/'
	until_true 30 'the probe succeeds' has web 1/1
	line web | sed 's/^/   /'

	title 'a crash: the worker is killed and restarted'
	contained() { [ -n "$(container_of worker main)" ]; }
	until_true 30 'the worker has a running container' contained
	id=$(container_of worker main)
	before=$(line worker)
	ctr -a "$RUN/containerd.sock" -n k8s.io tasks kill -s SIGKILL "$id" >/dev/null
	restarted() { [ -n "$(container_of worker main)" ] && [ "$(container_of worker main)" != "$id" ] && has worker Running; }
	until_true 120 'the worker was restarted' restarted
	after=$(line worker)
	printf '   before: %s\n   after:  %s\n' "$before" "$after"

	title 'a manifest is deleted, and its pod is removed'
	echo '   $ rm .demo/manifests/worker.yaml'
	rm "$DEMO/manifests/worker.yaml"
	until_true 120 'the worker is gone' gone worker
	show_pods
	show_application
	# A helper thread of the removal may still be working.
	sleep 0.5

	show_kubectl

	title 'the demo keeps running'
	cat <<END
   list      ${sudo}${WHERRY#"$PROJECT"/} pods --socket $SOCKET
             ${sudo}${WHERRY#"$PROJECT"/} status --socket $SOCKET
   change    add, edit or delete a manifest in .demo/manifests/ (for example packaging/examples/worker.yaml)
   open      http://127.0.0.1:$PORT/pages/greeting and http://$(own_address):$SHOP_PORT/
   logs      .demo/wherry.log; the pods: .demo/log/pods/
   one thread: ls /proc/$(agent_pid)/task ($(find "/proc/$(agent_pid)/task" -mindepth 1 -maxdepth 1 | wc -l)), $(awk '/^RssAnon/ { anonymous = $2 } /^VmRSS/ { resident = $2 } END { print anonymous, "kB anonymous,", resident, "kB resident" }' "/proc/$(agent_pid)/status")
   stop      make demo-down

the pods once more, to paste:
END
	if [ -n "$KUBECTL" ]; then
		echo "$sudo$KUBECTL --kubeconfig $DEMO/kubeconfig get pods"
	else
		echo "$sudo$WHERRY pods --socket $SOCKET"
	fi
}

# The same pods for kubectl, if there is one.
show_kubectl() {
	title 'kubectl, with a certificate of this agent'
	if [ -z "$KUBECTL" ]; then
		echo '   (there is no kubectl on this machine, and it could not be downloaded)'
		return
	fi
	until_true 60 'the API for kubectl is served' "$WHERRY" kubeconfig --socket "$SOCKET" --for demo --output "$DEMO/kubeconfig"
	# A proxy of the environment cannot reach this machine.
	kube() { env -u https_proxy -u HTTPS_PROXY "$KUBECTL" --kubeconfig "$DEMO/kubeconfig" "$@"; }
	until_true 60 'kubectl gets an answer' kube get nodes
	local command
	for command in 'get nodes' 'get deployments,services,pvc' 'get pods' 'exec web -- cat /proc/1/comm'; do
		echo "   \$ kubectl $command"
		# shellcheck disable=SC2086
		kube $command | sed 's/^/   /'
	done
}

down_as_root() {
	# Remove the pods in the usual way: delete their manifests.
	if agent_pid >/dev/null; then
		rm -f "$DEMO"/manifests/* "$DEMO"/manifests/.[!.]*
		for _ in $(seq 1 1200); do
			if ! agent_pid >/dev/null || { no_pods && no_directories && no_rules; } 2>/dev/null; then break; fi
			sleep 0.2
		done
		stop_agent
	fi
	if [ -d "$DEMO/lab" ]; then "$LAB/runtime.sh" down "$DEMO/lab"; fi
	# Volumes of pods that were killed before their agent could remove them.
	local mount
	while read -r mount; do umount "$mount"; done < <(awk -v root="$DEMO/root/" 'index($5, root) == 1 { print $5 }' /proc/self/mountinfo)
	rm -rf "$DEMO"
	echo 'the demo has been removed'
}

case ${1:-} in
up)
	title 'missing packages of the distribution'
	"$LAB/install.sh" build runtime
	hash -r
	echo '   all packages are installed'
	if [ "$WHERRY" = "$BUILT" ]; then
		title 'wherry (a release build: some minutes the first time)'
		"$LAB/cargo.sh" build --release
	fi
	title 'container images, built locally'
	as_caller mkdir -p "$DEMO"
	as_caller "$LAB/images.sh" "$DEMO/images"
	echo '   localhost/busybox:1.35, localhost/pause:3.9'
	can_be_root || die 'the start of containers needs root or sudo, which are not available'
	kubectl=$(command -v kubectl) || kubectl=$(as_caller "$LAB/kubectl.sh" 1.32) || kubectl=
	as_root env WHERRY="$WHERRY" KUBECTL="$kubectl" "$LAB/demo.sh" up-as-root
	;;
down)
	if [ ! -e "$DEMO" ] && [ ! -e "$RUN" ]; then
		echo 'no demo is installed'
		exit 0
	fi
	can_be_root || die 'needs root or sudo'
	as_root env WHERRY="$WHERRY" "$LAB/demo.sh" down-as-root
	;;
up-as-root) up_as_root ;;
down-as-root) down_as_root ;;
*) die 'usage: demo.sh up | down' ;;
esac
