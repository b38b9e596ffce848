//! The in-place resize of running pods (R).

use crate::support::agent::{Agent, condition, container, uid};
use crate::support::cgroups::{cpu_quota, memory_limit};
use serde_json::json;

const MI: u64 = 1 << 20;

/// Two containers, of which the second has these limits; `more` follows them.
fn spec(cpu: &str, memory: &str, more: &str) -> String {
    format!(
        "
        terminationGracePeriodSeconds: 2
        containers:
        - name: beside
          image: localhost/trap:1
        - name: main
          image: localhost/trap:1
          resources: {{requests: {{cpu: 10m, memory: 8Mi}}, limits: {{cpu: {cpu}, memory: {memory}}}}}{more}
        "
    )
}

fn pid(agent: &Agent) -> u32 {
    agent.cri().container_pid(&agent.running("web", "main").expect("runs"))
}

fn has(agent: &Agent, cpu: &str, memory: u64) -> bool {
    let pid = pid(agent);
    cpu_quota(pid) == cpu && memory_limit(pid) == memory.to_string()
}

/// The resize is complete, as the status shows it.
fn complete(agent: &Agent, cpu: &str) -> bool {
    let pod = agent.pod("web").unwrap_or_default();
    container(&pod, "main")["resources"]["limits"]["cpu"] == cpu && condition(&pod, "PodResizeInProgress").is_null()
}

#[test]
fn a_running_pod_gets_other_limits_without_a_restart() {
    let mut agent = Agent::start("resize");
    agent.apply("web", &spec("100m", "32Mi", ""));
    let before = agent.wait_running("web");
    assert!(has(&agent, "10000", 32 * MI));
    let ids = ["main", "beside"].map(|name| agent.running("web", name));
    let process = pid(&agent);

    agent.apply("web", &spec("200m", "64Mi", ""));
    agent.wait("it has grown", |a| has(a, "20000", 64 * MI) && complete(a, "200m"));
    agent.apply("web", &spec("50m", "16Mi", ""));
    agent.wait("it has shrunk", |a| has(a, "5000", 16 * MI) && complete(a, "50m"));
    let after = agent.pod("web").expect("a pod");
    assert_eq!(uid(&after), uid(&before));
    assert_eq!(["main", "beside"].map(|name| agent.running("web", name)), ids);
    assert_eq!(container(&after, "main")["restartCount"], 0);
    assert_eq!(container(&after, "main")["allocatedResources"], json!({"cpu": "10m", "memory": "8Mi"}));
    let events = agent.wherry(&["events", "web"]);
    assert!(String::from_utf8_lossy(&events.stdout).contains("ResizeCompleted"), "{events:?}");

    // After a kill the pod still has the UID of its first version.
    agent.kill();
    agent.run();
    agent.wait("it is known again", |a| complete(a, "50m"));
    agent.apply("web", &spec("100m", "32Mi", ""));
    agent.wait("it has grown again", |a| has(a, "10000", 32 * MI) && complete(a, "100m"));
    assert_eq!(pid(&agent), process);
    assert_eq!(uid(&agent.pod("web").expect("a pod")), uid(&before));
}

#[test]
fn a_resize_policy_restarts_the_container() {
    let policy = "\n          resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]";
    let agent = Agent::start("resizerestart");
    agent.apply("web", &spec("100m", "32Mi", policy));
    let before = agent.wait_running("web");
    let ids = ["main", "beside"].map(|name| agent.running("web", name));
    agent.apply("web", &spec("200m", "32Mi", policy));
    agent.wait("it has more cpu", |a| has(a, "20000", 32 * MI) && complete(a, "200m"));
    assert_eq!(["main", "beside"].map(|name| agent.running("web", name)), ids);
    agent.apply("web", &spec("200m", "48Mi", policy));
    let restarted = |a: &Agent| a.running("web", "main").is_some_and(|id| Some(id) != ids[0]);
    agent.wait("it has more memory", |a| restarted(a) && has(a, "20000", 48 * MI) && complete(a, "200m"));
    let after = agent.pod("web").expect("a pod");
    assert_eq!((uid(&after), &container(&after, "main")["restartCount"]), (uid(&before), &json!(1)));
    assert_eq!(agent.running("web", "beside"), ids[1]);
}

#[test]
fn a_resize_that_does_not_fit_is_shown_and_changes_nothing() {
    let agent = Agent::start("resizewait");
    agent.apply("web", &spec("100m", "32Mi", ""));
    agent.wait_running("web");
    let huge = spec("100m", "32Mi", "").replace("cpu: 10m", "cpu: 100m").replace("memory: 8Mi", "memory: 900000Gi");
    agent.apply("web", &huge.replace("memory: 32Mi", "memory: 900000Gi"));
    let pending = |a: &Agent| condition(&a.pod("web").unwrap_or_default(), "PodResizePending");
    agent.wait("it is infeasible", |a| pending(a)["reason"] == "Infeasible");
    let message = pending(&agent)["message"].to_string();
    assert!(message.contains("Node didn't have enough capacity: memory, requested: 966367641600000"), "{message}");
    assert!(has(&agent, "10000", 32 * MI));
    let described = agent.wherry(&["describe", "web"]);
    assert!(String::from_utf8_lossy(&described.stdout).contains("Infeasible"), "{described:?}");
    agent.apply("web", &spec("100m", "32Mi", ""));
    agent.wait("the change was taken back", |a| pending(a).is_null());
}

/// The pod uses more memory than its new limit.
#[test]
fn a_memory_limit_below_the_use_waits() {
    let agent = Agent::start("resizeuse");
    let of = |memory: &str| {
        format!(
            "
        terminationGracePeriodSeconds: 2
        volumes: [{{name: m, emptyDir: {{medium: Memory}}}}]
        containers:
        - name: main
          image: localhost/busybox:1.35
          command: [sh, -c, 'trap \"exit 0\" TERM; dd if=/dev/zero of=/m/a bs=1M count=40; echo full; while :; do sleep 0.1; done']
          volumeMounts: [{{name: m, mountPath: /m}}]
          resources: {{requests: {{memory: 8Mi}}, limits: {{memory: {memory}}}}}
        "
        )
    };
    agent.apply("web", &of("128Mi"));
    let pod = agent.wait_running("web");
    agent.wait("it uses memory", |a| a.output(&pod, "main", 0).contains("full"));
    agent.apply("web", &of("16Mi"));
    let progress = |a: &Agent| condition(&a.pod("web").unwrap_or_default(), "PodResizeInProgress");
    agent.wait("an error is shown", |a| progress(a)["reason"] == "Error");
    assert!(progress(&agent)["message"].to_string().contains("below its current usage"), "{}", progress(&agent));
    assert_eq!(memory_limit(pid(&agent)), (128 * MI).to_string());
    let id = agent.running("web", "main").expect("runs");
    assert_eq!(agent.cri().exec(&id, &["rm", "/m/a"]).0, 0);
    agent.wait("the limit is set", |a| memory_limit(pid(a)) == (16 * MI).to_string());
    assert_eq!(container(&agent.pod("web").expect("a pod"), "main")["restartCount"], 0);
}
