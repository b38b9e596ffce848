//! The environment of a container: users, capabilities, variables, network, names, limits.

use crate::support::agent::Agent;
use crate::support::cgroups;
use crate::support::http;
use crate::support::yaml::script;

/// The value of a line in /proc/self/status.
fn field(text: &str, name: &str) -> String {
    let line = text.lines().find_map(|l| l.strip_prefix(&format!("{name}:")));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_security_context_is_what_the_process_has() {
    let agent = Agent::start("security");
    agent.apply(
        "strict",
        "
        securityContext:
          runAsUser: 1000
          runAsGroup: 2000
          supplementalGroups: [3000, 4000]
          seccompProfile:
            type: RuntimeDefault
        containers:
        - name: main
          image: localhost/trap:1
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop: [ALL]
              add: [NET_BIND_SERVICE]
        - name: loose
          image: localhost/trap:1
          securityContext:
            runAsUser: 0
            seccompProfile:
              type: Unconfined
    ",
    );
    agent.wait_running("strict");
    let mut cri = agent.cri();
    let main = agent.running("strict", "main").expect("runs");
    let (_, status) = cri.exec(&main, &["cat", "/proc/1/status"]);
    assert_eq!(field(&status, "Uid"), "1000 1000 1000 1000");
    assert_eq!(field(&status, "Gid"), "2000 2000 2000 2000");
    // The image's own /etc/group (1500) is merged in, as Kubernetes does by default.
    assert_eq!(field(&status, "Groups"), "1500 2000 3000 4000");
    assert_eq!(field(&status, "CapBnd"), "0000000000000400");
    assert_eq!(field(&status, "CapEff"), "0000000000000000");
    assert_eq!(field(&status, "NoNewPrivs"), "1");
    assert_eq!(field(&status, "Seccomp"), "2");
    let (code, _) = cri.exec(&main, &["touch", "/file"]);
    assert_ne!(code, 0, "the root file system is read-only");

    let loose = agent.running("strict", "loose").expect("runs");
    let (_, status) = cri.exec(&loose, &["cat", "/proc/1/status"]);
    assert_eq!(field(&status, "Uid"), "0 0 0 0");
    assert_eq!(field(&status, "Seccomp"), "0");
    assert_eq!(field(&status, "CapBnd"), "00000000a80425fb");
}

#[test]
fn the_environment_is_expanded_in_order() {
    let agent = Agent::start("environment");
    agent.apply(
        "env",
        "
        restartPolicy: Never
        containers:
        - name: main
          image: localhost/busybox:1.35
          command: [sh, -c]
          args: ['echo \"$B|$C|$D|$(A)|$EMPTY|${EMPTY-unset}\"']
          env:
          - {name: A, value: alpha}
          - {name: B, value: 'b-$(A)-$(LATER)'}
          - {name: C, value: '$$(A)'}
          - {name: D, value: '$(UNDEFINED)'}
          - {name: LATER, value: later}
          - {name: EMPTY}
    ",
    );
    let pod = agent.wait_phase("env", "Succeeded");
    assert_eq!(agent.output(&pod, "main", 0), "b-alpha-$(LATER)|$(A)|$(UNDEFINED)|alpha||\n");
}

#[test]
fn names_hosts_and_dns_are_the_pods() {
    let agent = Agent::start("names");
    agent.apply(
        "named",
        "
        hostname: hosty
        dnsPolicy: None
        dnsConfig:
          nameservers: [192.0.2.53]
          searches: [example.org]
          options: [{name: ndots, value: '3'}]
        hostAliases:
        - ip: 192.0.2.7
          hostnames: [seven, sieben]
        containers:
        - name: main
          image: localhost/trap:1
    ",
    );
    let pod = agent.wait_running("named");
    let id = agent.running("named", "main").expect("runs");
    let mut cri = agent.cri();
    assert_eq!(cri.exec(&id, &["hostname"]).1, "hosty\n");
    let resolv = cri.exec(&id, &["cat", "/etc/resolv.conf"]).1;
    assert_eq!(resolv.lines().collect::<Vec<_>>(), ["search example.org", "nameserver 192.0.2.53", "options ndots:3"]);
    let hosts = cri.exec(&id, &["cat", "/etc/hosts"]).1;
    assert!(hosts.starts_with("# Kubernetes-managed hosts file.\n"), "{hosts}");
    let ip = pod["status"]["podIP"].as_str().expect("an address").to_string();
    assert!(hosts.contains(&format!("{ip}\thosty\n")), "{hosts}");
    assert!(hosts.contains("192.0.2.7\tseven\tsieben\n"), "{hosts}");
}

#[test]
fn a_host_port_leads_to_the_container() {
    let agent = Agent::start("port");
    agent.apply(
        "web",
        "
        terminationGracePeriodSeconds: 2
        containers:
        - name: main
          image: localhost/busybox:1.35
          command: [sh, -c, 'echo page > /tmp/index.html; httpd -f -p 8080 -h /tmp']
          ports:
          - containerPort: 8080
            hostPort: 18080
    ",
    );
    agent.wait_running("web");
    agent.wait("the page over the host's port", |_| {
        http::get_tcp("127.0.0.1:18080", "/").is_ok_and(|r| r.status == 200 && r.body == "page\n")
    });
    agent.delete("web");
    agent.wait_gone("web");
    assert!(http::get_tcp("127.0.0.1:18080", "/").is_err(), "the port is free again");
}

#[test]
fn the_host_s_namespaces_are_shared_on_request() {
    let agent = Agent::start("host");
    agent.apply(
        "host",
        "
        hostNetwork: true
        hostPID: true
        hostIPC: true
        containers:
        - name: main
          image: localhost/trap:1
    ",
    );
    let pod = agent.wait_running("host");
    assert!(pod["status"].get("podIP").is_none_or(|ip| ip.is_null()), "as a kubelet shows it: {}", pod["status"]);
    let id = agent.running("host", "main").expect("runs");
    let mut cri = agent.cri();
    for kind in ["net", "pid", "ipc"] {
        let inside = cri.exec(&id, &["readlink", &format!("/proc/self/ns/{kind}")]).1;
        let ours = std::fs::read_link(format!("/proc/self/ns/{kind}")).expect("namespace");
        assert_eq!(inside.trim(), ours.to_string_lossy(), "{kind}");
    }
    let hosts = cri.exec(&id, &["head", "-n", "1", "/etc/hosts"]).1;
    assert_eq!(hosts, "# Kubernetes-managed hosts file (host network).\n");
}

#[test]
fn a_shared_process_namespace_shows_the_pause_as_process_one() {
    let agent = Agent::start("shared");
    agent.apply(
        "pid",
        "
        shareProcessNamespace: true
        containers:
        - name: main
          image: localhost/trap:1
        - name: other
          image: localhost/trap:1
          args: [other]
    ",
    );
    agent.wait_running("pid");
    let id = agent.running("pid", "main").expect("runs");
    let mut cri = agent.cri();
    assert_eq!(cri.exec(&id, &["cat", "/proc/1/comm"]).1, "pause\n");
    let processes = cri.exec(&id, &["ps", "-o", "args"]).1;
    assert!(processes.contains("trap-term other"), "{processes}");
    agent.apply("own", &script("Always", "trap 'exit 0' TERM; while :; do sleep 0.1; done"));
    agent.wait_running("own");
    let id = agent.running("own", "main").expect("runs");
    assert_eq!(cri.exec(&id, &["cat", "/proc/1/comm"]).1, "sh\n");
}

#[test]
fn limits_are_in_the_cgroup() {
    let agent = Agent::start("limits");
    agent.apply(
        "limited",
        "
        containers:
        - name: main
          image: localhost/trap:1
          resources:
            requests: {cpu: 100m, memory: 16Mi}
            limits: {cpu: 250m, memory: 64Mi}
    ",
    );
    let pod = agent.wait_running("limited");
    assert_eq!(pod["status"]["qosClass"], "Burstable");
    let id = agent.running("limited", "main").expect("runs");
    let pid = agent.cri().container_pid(&id);
    assert_eq!(cgroups::memory_limit(pid), (64 << 20).to_string());
    assert_eq!(cgroups::cpu_quota(pid), "25000");
    let path = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("cgroup");
    assert!(path.contains("/kubepods/burstable/pod"), "{path}");
    assert!(path.contains(&agent.cgroup), "{path}");
}

#[test]
fn a_pod_sets_its_whole_host_name() {
    let agent = Agent::start("whole-name");
    let containers = "containers: [{name: main, image: 'localhost/trap:1'}]";
    agent.apply("named", &format!("hostname: short\nsubdomain: sub\nhostnameOverride: db.example.com\n{containers}"));
    let pod = agent.wait_running("named");
    let id = agent.running("named", "main").expect("runs");
    assert_eq!(agent.cri().exec(&id, &["hostname"]).1, "db.example.com\n");
    let hosts = agent.cri().exec(&id, &["cat", "/etc/hosts"]).1;
    let ip = pod["status"]["podIP"].as_str().expect("an address");
    assert!(hosts.contains(&format!("{ip}\tdb.example.com\n")), "{hosts}");
    agent.apply("host", &format!("hostNetwork: true\nhostnameOverride: db.example.com\n{containers}"));
    agent.wait("the reason is an error", |a| a.log().contains("may not be set together with hostNetwork"));
}
