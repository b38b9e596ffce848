//! Known messages, reasons, conditions and values of a kubelet that no recording of a whole pod contains.

use crate::support::agent::{Agent, condition, container, uid};
use crate::support::cri::NamespaceMode;
use crate::support::yaml::{TRAP, script};
use serde_json::{Value, json};

/// The config of a container (or of the sandbox: "") as the runtime reports it.
fn config(agent: &Agent, pod: &str, name: &str) -> Value {
    let mut cri = agent.cri();
    let info = if name.is_empty() {
        cri.sandbox_status(&agent.sandboxes(pod)[0].id).expect("PodSandboxStatus").info
    } else {
        let of_name = agent.containers(pod).into_iter().find(|c| c.metadata.name == name).expect("a container");
        cri.container_status(&of_name.id).expect("ContainerStatus").info
    };
    let info: Value = serde_json::from_str(&info["info"]).expect("JSON");
    info["config"].clone()
}

/// Waits until one line of the agent's log contains all of these parts.
fn wait_for_line(agent: &Agent, parts: &[&str]) {
    agent.wait(&format!("{parts:?} is in the log"), |a| {
        let log = a.log().replace("\\\"", "\"");
        log.lines().any(|line| parts.iter().all(|part| line.contains(part)))
    });
}

fn full_name(agent: &Agent, pod: &Value, name: &str) -> String {
    format!("{name}_{}({})", agent.namespace, uid(pod))
}

#[test]
fn a_pod_that_ended_shows_its_end_in_every_condition() {
    let agent = Agent::start("ended");
    agent.apply("done", &script("OnFailure", "exit 0"));
    let pod = agent.wait_for("its sandbox is stopped", |a| {
        a.pod("done").filter(|p| {
            condition(p, "PodReadyToStartContainers")["status"] == "False" && p["status"]["phase"] == "Succeeded"
        })
    });
    for (kind, status, reason) in [
        ("Initialized", "True", json!("PodCompleted")),
        ("Ready", "False", json!("PodCompleted")),
        ("ContainersReady", "False", json!("PodCompleted")),
        ("PodScheduled", "True", Value::Null),
    ] {
        let c = condition(&pod, kind);
        assert_eq!((&c["status"], &c["reason"], &c["message"]), (&json!(status), &reason, &Value::Null), "{kind}");
    }
    assert!(pod["status"]["podIP"].is_string(), "its address is kept: {}", pod["status"]);

    // One container failed while the other runs: the phase is Running until the last one has ended.
    agent.apply(
        "one",
        "
        restartPolicy: Never
        containers:
        - {name: bad, image: localhost/busybox:1.35, command: [sh, -c, 'exit 3']}
        - {name: good, image: localhost/busybox:1.35, command: [sh, -c, 'sleep 1']}
    ",
    );
    let pod = agent.wait_for("one ended", |a| {
        a.pod("one").filter(|p| {
            container(p, "bad")["state"]["terminated"].is_object()
                && container(p, "good")["state"]["running"].is_object()
        })
    });
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!(condition(&pod, "Ready")["message"], "containers with unready status: [bad]");
    let pod = agent.wait_phase("one", "Failed");
    assert_eq!(container(&pod, "good")["state"]["terminated"]["exitCode"], 0);

    agent.apply(
        "nothing",
        "
        restartPolicy: Never
        containers:
        - {name: main, image: localhost/busybox:1.35, command: [/no/such/binary]}
    ",
    );
    let pod = agent.wait_phase("nothing", "Failed");
    let ended = &container(&pod, "main")["state"]["terminated"];
    assert_eq!((&ended["exitCode"], &ended["reason"]), (&json!(128), &json!("StartError")));
    assert_eq!(ended["startedAt"], "1970-01-01T00:00:00Z");
    wait_for_line(&agent, &["Error: failed to create containerd task", "reason=Failed"]);
}

#[test]
fn termination_messages_are_the_end_of_the_file_or_of_the_log() {
    let agent = Agent::start("messages");
    let fallback = |name: &str, script: &str| {
        agent.apply(
            name,
            &format!(
                "
            restartPolicy: Never
            containers:
            - name: main
              image: localhost/busybox:1.35
              terminationMessagePolicy: FallbackToLogsOnError
              command: [sh, -c, {}]
        ",
                json!(script)
            ),
        );
    };
    fallback(
        "long",
        "i=0; while [ $i -lt 1000 ]; do printf 'line%05d\\n' $i; i=$((i+1)); done > /dev/termination-log; exit 1",
    );
    fallback("lines", "i=0; while [ $i -lt 200 ]; do echo $i; i=$((i+1)); done; exit 1");
    fallback("quiet", "echo said; exit 0");
    fallback("both", "echo said; printf file > /dev/termination-log; exit 1");
    let message = |name: &str, phase: &str| {
        container(&agent.wait_phase(name, phase), "main")["state"]["terminated"]["message"].clone()
    };
    let long = message("long", "Failed");
    let long = long.as_str().expect("a message");
    assert_eq!(long.len(), 4096, "{long}");
    assert!(long.ends_with("line00999\n"));
    let lines = message("lines", "Failed");
    let lines: Vec<&str> = lines.as_str().expect("a message").lines().collect();
    assert_eq!((lines.len(), lines[0], lines[79]), (80, "120", "199"));
    assert_eq!(message("quiet", "Succeeded"), Value::Null);
    assert_eq!(message("both", "Failed"), "file");
}

#[test]
fn a_failed_pull_has_the_message_of_the_runtime() {
    let agent = Agent::start("pulls");
    let image = "127.0.0.1:1/nosuch:1";
    agent.apply("pull", &TRAP.replace("localhost/trap:1", image));
    let status = agent.wait_waiting("pull", "ErrImagePull");
    let message = status["state"]["waiting"]["message"].as_str().expect("a message").to_string();
    // A kubelet omits the code Unknown.
    assert!(message.starts_with("failed to pull and unpack image"), "{message}");
    let status = agent.wait_waiting("pull", "ImagePullBackOff");
    let waiting = &status["state"]["waiting"];
    assert_eq!(waiting["message"], format!("Back-off pulling image \"{image}\": ErrImagePull: {message}"));
    assert_eq!((&status["image"], &status["imageID"], &status["started"]), (&json!(image), &json!(""), &json!(false)));
    wait_for_line(&agent, &[&format!("Pulling image \"{image}\""), "reason=Pulling"]);
    wait_for_line(&agent, &[&format!("Failed to pull image \"{image}\": failed to pull"), "reason=Failed"]);
    wait_for_line(&agent, &["Error: ErrImagePull", "reason=Failed"]);
    wait_for_line(&agent, &[&format!("Back-off pulling image \"{image}\""), "reason=BackOff"]);
    wait_for_line(&agent, &["Error: ImagePullBackOff", "reason=Failed"]);

    agent.apply("name", &TRAP.replace("localhost/trap:1", "localhost/UPPER:1"));
    let status = agent.wait_waiting("name", "InvalidImageName");
    assert_eq!(
        status["state"]["waiting"]["message"],
        "Failed to apply default image tag \"localhost/UPPER:1\": couldn't parse image name \"localhost/UPPER:1\": \
         invalid reference format: repository name (UPPER) must be lowercase"
    );
    wait_for_line(&agent, &["Failed to apply default image tag", "reason=InspectFailed"]);
    wait_for_line(&agent, &["Error: InvalidImageName", "reason=Failed"]);
}

#[test]
fn security_contexts_are_those_of_a_kubelet() {
    let agent = Agent::start("contexts");
    agent.apply(
        "root",
        "
        securityContext: {runAsNonRoot: true}
        containers: [{name: main, image: localhost/busybox:1.35}]
    ",
    );
    agent.apply(
        "privileged",
        "
        containers: [{name: main, image: localhost/trap:1, securityContext: {privileged: true}}]
    ",
    );
    agent.apply(
        "groups",
        "
        securityContext:
          fsGroup: 3000
          supplementalGroups: [4000]
          sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: '80'}]
        containers: [{name: main, image: localhost/trap:1}]
    ",
    );
    let status = agent.wait_waiting("root", "CreateContainerConfigError");
    let pod = agent.pod("root").expect("listed");
    assert_eq!(pod["status"]["phase"], "Pending");
    let message = format!(
        "container has runAsNonRoot and image will run as root (pod: \"{}\", container: main)",
        full_name(&agent, &pod, "root")
    );
    assert_eq!(status["state"]["waiting"]["message"], message);
    wait_for_line(&agent, &[&format!("Error: {message}"), "reason=Failed"]);

    agent.wait_running("privileged");
    for name in ["", "main"] {
        assert_eq!(config(&agent, "privileged", name)["linux"]["security_context"]["privileged"], true, "{name:?}");
    }
    agent.wait_running("groups");
    for name in ["", "main"] {
        let context = &config(&agent, "groups", name)["linux"]["security_context"];
        assert_eq!(context["supplemental_groups"], json!([3000, 4000]), "{name:?}");
    }
    let sysctls = &config(&agent, "groups", "")["linux"]["sysctls"];
    assert_eq!(sysctls["net.ipv4.ip_unprivileged_port_start"], "80");
    // containerd 2 adds this one.
    let others = sysctls.as_object().expect("sysctls").keys().filter(|key| *key != "net.ipv4.ping_group_range");
    assert_eq!(others.count(), 1, "{sysctls}");
}

#[test]
fn names_in_the_cluster_domain_and_dns_settings() {
    let agent = Agent::start("domains");
    agent.apply(
        "sub",
        "
        hostname: hosty
        subdomain: subby
        dnsPolicy: ClusterFirst
        dnsConfig: {searches: [example.org], options: [{name: ndots, value: '3'}]}
        containers: [{name: main, image: localhost/trap:1}]
    ",
    );
    agent.apply(
        "fqdn",
        "
        hostname: hosty
        subdomain: subby
        setHostnameAsFQDN: true
        dnsPolicy: Default
        containers: [{name: main, image: localhost/trap:1}]
    ",
    );
    let pod = agent.wait_running("sub");
    let sandbox = config(&agent, "sub", "");
    assert_eq!(sandbox["hostname"], "hosty");
    let searches = sandbox["dns_config"]["searches"].as_array().expect("searches");
    assert_eq!(searches.last(), Some(&json!("example.org")), "added to the host's");
    assert!(sandbox["dns_config"]["options"].as_array().is_some_and(|o| o.contains(&json!("ndots:3"))));
    let id = agent.running("sub", "main").expect("runs");
    let hosts = agent.cri().exec(&id, &["cat", "/etc/hosts"]).1;
    let (ip, namespace) = (pod["status"]["podIP"].as_str().expect("an address"), &agent.namespace);
    assert!(hosts.contains(&format!("{ip}\thosty.subby.{namespace}.svc.\thosty\n")), "{hosts}");
    let whose = full_name(&agent, &pod, "sub");
    wait_for_line(
        &agent,
        &[
            &format!("pod: \"{whose}\". kubelet does not have ClusterDNS IP configured"),
            "Falling back to \"Default\" policy.",
            "reason=MissingClusterDNS",
        ],
    );
    agent.wait_running("fqdn");
    assert_eq!(config(&agent, "fqdn", "")["hostname"], format!("hosty.subby.{namespace}.svc."));
    assert!(!agent.log().lines().any(|l| l.contains("MissingClusterDNS") && l.contains("/fqdn ")), "it requests none");
}

#[test]
fn resources_are_rounded_and_classed_as_in_a_kubelet() {
    let agent = Agent::start("classes");
    let with = |name: &str, more: &str, resources: &str| {
        let container = format!("containers: [{{name: main, image: localhost/trap:1, resources: {resources}}}]");
        agent.apply(name, &format!("{more}\n{container}"));
    };
    with("limits", "hostname: limits", "{limits: {cpu: 250m, memory: 32Mi}}");
    with("least", "hostname: least", "{requests: {cpu: 1m}, limits: {cpu: 5m}}");
    with("critical", "priorityClassName: system-node-critical", "{requests: {cpu: 1m}}");
    with("best", "hostname: best", "{}");
    let class = |name: &str| agent.wait_running(name)["status"]["qosClass"].clone();
    let resources = |name: &str| config(&agent, name, "main")["linux"]["resources"].clone();
    assert_eq!(class("limits"), "Guaranteed");
    let r = resources("limits");
    assert_eq!((&r["cpu_shares"], &r["cpu_quota"], &r["oom_score_adj"]), (&json!(256), &json!(25000), &json!(-997)));
    // On cgroup v2, swap has a limit of its own.
    let swap = (&r["memory_swap_limit_in_bytes"], &r["unified"]["memory.swap.max"]);
    assert!(swap == (&json!(32 << 20), &Value::Null) || swap == (&Value::Null, &json!("0")), "{r}");
    let parent = config(&agent, "limits", "")["linux"]["cgroup_parent"].as_str().expect("a parent").to_string();
    assert!(parent.contains("/kubepods/pod"), "{parent}");
    assert_eq!(class("least"), "Burstable");
    let r = resources("least");
    assert_eq!((&r["cpu_shares"], &r["cpu_quota"], &r["cpu_period"]), (&json!(2), &json!(1000), &json!(100_000)));
    assert_eq!(class("critical"), "Burstable");
    assert_eq!(resources("critical")["oom_score_adj"], -997);
    assert_eq!(agent.pod("critical").expect("listed")["spec"]["priorityClassName"], "system-node-critical");
    assert_eq!(class("best"), "BestEffort");
    assert_eq!(resources("best")["oom_score_adj"], 1000);
}

#[test]
fn a_sandbox_that_died_is_followed_by_another_attempt() {
    let agent = Agent::start("changed");
    agent.apply("web", TRAP);
    agent.wait_running("web");
    let sandbox = agent.sandboxes("web")[0].id.clone();
    let pid = agent.cri().sandbox_pid(&sandbox);
    crate::support::lab::signal(&pid.to_string(), "KILL");
    agent.wait("another sandbox", |a| a.sandboxes("web").iter().any(|s| s.metadata.attempt == 1));
    let pod = agent.wait_for("restarted", |a| {
        a.pod("web").filter(|p| container(p, "main")["restartCount"] == 1 && crate::support::agent::is_running(p))
    });
    assert!(container(&pod, "main")["lastState"]["terminated"].is_object());
    assert_eq!(config(&agent, "web", "main")["metadata"]["attempt"], 1);
    wait_for_line(&agent, &["Pod sandbox changed, it will be killed and re-created.", "reason=SandboxChanged"]);
    let network = agent.sandboxes("web")[0].clone();
    let status = agent.cri().sandbox_status(&network.id).expect("PodSandboxStatus").status.unwrap();
    assert_eq!(status.linux.namespaces.options.pid.enum_value(), Ok(NamespaceMode::CONTAINER));
}

#[test]
fn a_list_of_pods_is_a_podlist() {
    let agent = Agent::start("list");
    agent.apply("web", TRAP);
    agent.wait_running("web");
    let list: Value = serde_json::from_str(&agent.get("/pods").expect("/pods").body).expect("JSON");
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("PodList"), &json!("v1")));
    assert!(list["metadata"].is_object());
    let events = ["reason=Pulled", "reason=Started"];
    let log = agent.log();
    let at = |reason: &str| log.find(reason).unwrap_or_else(|| panic!("{reason} is not in the log"));
    assert!(events.windows(2).all(|two| at(two[0]) < at(two[1])));
    wait_for_line(&agent, &["Container image \"localhost/trap:1\" already present on machine"]);
    wait_for_line(&agent, &["Started container main"]);
    agent.delete("web");
    wait_for_line(&agent, &["Stopping container main", "reason=Killing"]);
}
