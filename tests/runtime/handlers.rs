//! Probes and hooks on real containers.

use crate::support::agent::{Agent, condition, container};
use std::time::Instant;

#[test]
fn a_readiness_probe_decides_whether_the_pod_is_ready() {
    let agent = Agent::start("readiness");
    agent.apply(
        "web",
        "
        containers:
        - name: main
          image: localhost/busybox:1.35
          command: [sh, -c, 'trap \"exit 0\" TERM; while :; do sleep 0.1; done']
          readinessProbe: {exec: {command: [cat, /tmp/ready]}, periodSeconds: 1, failureThreshold: 1}
        ",
    );
    let id = agent.wait_for("the container runs", |a| a.running("web", "main"));
    let ready = |a: &Agent, wanted: &str| a.pod("web").filter(|p| condition(p, "Ready")["status"] == wanted);
    agent.wait("its failed probe is an event", |a| {
        let events = a.wherry(&["events", "web"]);
        String::from_utf8_lossy(&events.stdout).contains("Readiness probe failed: cat: can't open '/tmp/ready'")
    });
    assert!(ready(&agent, "False").is_some());
    agent.cri().exec(&id, &["touch", "/tmp/ready"]);
    agent.wait_for("it is ready", |a| ready(a, "True"));
    agent.cri().exec(&id, &["rm", "/tmp/ready"]);
    let pod = agent.wait_for("it is not ready any more", |a| ready(a, "False"));
    assert_eq!(container(&pod, "main")["restartCount"], 0);
    assert_eq!(agent.running("web", "main"), Some(id));
}

#[test]
fn a_probe_that_hangs_fails_and_delays_no_other_pod() {
    let agent = Agent::start("hangs");
    agent.apply(
        "stuck",
        "
        terminationGracePeriodSeconds: 1
        containers:
        - name: main
          image: localhost/trap:1
        - name: hangs
          image: localhost/busybox:1.35
          command: [sh, -c, 'trap \"exit 0\" TERM; while :; do sleep 0.1; done']
          livenessProbe: {exec: {command: [sleep, '1000']}, periodSeconds: 2, timeoutSeconds: 1, failureThreshold: 3}
        ",
    );
    agent.wait_for("it runs", |a| a.running("stuck", "hangs"));
    let begun = Instant::now();
    agent.apply("other", crate::support::yaml::TRAP);
    agent.wait_running("other");
    let took = begun.elapsed();
    let pod = agent.wait_for("the container is restarted", |a| {
        a.pod("stuck").filter(|p| container(p, "hangs")["restartCount"] == 1)
    });
    assert_eq!(container(&pod, "main")["restartCount"], 0);
    let events = String::from_utf8_lossy(&agent.wherry(&["events", "stuck"]).stdout).into_owned();
    assert!(events.contains("Liveness probe failed: command \"sleep 1000\" timed out"), "{events}");
    assert!(events.contains("Container hangs failed liveness probe, will be restarted"), "{events}");
    assert!(took.as_secs() < 30, "{took:?}");
}

#[test]
fn hooks_run_after_the_start_and_before_the_stop() {
    let agent = Agent::start("hooks");
    let to_log = |text: &str| format!("[sh, -c, 'echo {text} > /proc/1/fd/1']");
    agent.apply(
        "hooked",
        &format!(
            "
            terminationGracePeriodSeconds: 20
            containers:
            - name: main
              image: localhost/busybox:1.35
              command: [sh, -c, 'trap \"echo term; exit 0\" TERM; while :; do sleep 0.1; done']
              lifecycle:
                postStart: {{exec: {{command: {}}}}}
                preStop: {{exec: {{command: {}}}}}
            - name: second
              image: localhost/trap:1
            ",
            to_log("started"),
            to_log("stopping")
        ),
    );
    let pod = agent.wait_running("hooked");
    assert_eq!(agent.output(&pod, "main", 0), "started\n");
    let path = agent.log_path(&pod, "main", 0);
    let log = std::fs::File::open(path).expect("the log");
    agent.delete("hooked");
    agent.wait_gone("hooked");
    let text = std::io::read_to_string(log).expect("UTF-8");
    let words: Vec<&str> = text.lines().filter_map(|l| l.rsplit(' ').next()).collect();
    assert_eq!(words, ["started", "stopping", "term"]);
}

#[test]
fn w10_a_post_start_hook_that_fails_restarts_its_container() {
    let agent = Agent::start("poststart");
    agent.apply(
        "bad",
        "
        terminationGracePeriodSeconds: 1
        containers:
        - name: main
          image: localhost/trap:1
          lifecycle:
            postStart: {exec: {command: [/nowhere]}}
        ",
    );
    let status = agent.wait_waiting("bad", "PostStartHookError");
    let message = status["state"]["waiting"]["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.starts_with("Exec lifecycle hook ([/nowhere]) for Container \"main\" in Pod \"bad_"), "{message}");
    assert!(message.ends_with(", message: \"\""), "{message}");
}

#[test]
fn http_and_tcp_probes_see_a_server_in_the_pod() {
    let agent = Agent::start("httpget");
    agent.apply(
        "web",
        "
        terminationGracePeriodSeconds: 1
        containers:
        - name: main
          image: localhost/busybox:1.35
          command: [sh, -c, 'mkdir /w && echo fine > /w/ready && exec httpd -f -p 8080 -h /w']
          ports: [{name: http, containerPort: 8080}]
          readinessProbe: {httpGet: {port: http, path: /ready}, periodSeconds: 1, failureThreshold: 1}
          livenessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
        - name: closed
          image: localhost/trap:1
          startupProbe: {httpGet: {port: 9, path: /x}, periodSeconds: 1, failureThreshold: 2}
        ",
    );
    let ready = |a: &Agent, wanted: bool| a.pod("web").is_some_and(|p| container(&p, "main")["ready"] == wanted);
    agent.wait("it is ready", |a| ready(a, true));
    let id = agent.running("web", "main").expect("it runs");
    agent.cri().exec(&id, &["rm", "/w/ready"]);
    agent.wait("it is not ready", |a| ready(a, false));
    let pod = agent.wait_for("the startup probe restarts its container", |a| {
        a.pod("web").filter(|p| container(p, "closed")["restartCount"] == 1)
    });
    assert_eq!(container(&pod, "main")["restartCount"], 0);
    let ip = pod["status"]["podIP"].as_str().expect("an address");
    let events = String::from_utf8_lossy(&agent.wherry(&["events", "web"]).stdout).into_owned();
    let refused =
        format!("Startup probe failed: Get \"http://{ip}:9/x\": dial tcp {ip}:9: connect: connection refused");
    for text in [&refused, "Readiness probe failed: HTTP probe failed with statuscode: 404"] {
        assert!(events.contains(text), "{text}\n{events}");
    }
    assert!(agent.metric("prober_probe_total") > 0.0);
}

#[test]
fn hooks_can_request_a_page_or_sleep() {
    let agent = Agent::start("hookget");
    agent.apply(
        "web",
        "
        terminationGracePeriodSeconds: 20
        containers:
        - name: server
          image: localhost/busybox:1.35
          command: [sh, -c, 'mkdir /w; exec httpd -f -v -p 8080 -h /w']
          lifecycle:
            preStop: {sleep: {seconds: 2}}
        - name: client
          image: localhost/trap:1
          lifecycle:
            postStart: {httpGet: {port: 8080, path: /started}}
            preStop: {httpGet: {port: 8080, path: /stopping}}
        ",
    );
    let pod = agent.wait_running("web");
    let path = agent.log_path(&pod, "server", 0);
    let log = std::fs::File::open(path).expect("the log");
    let begun = Instant::now();
    agent.delete("web");
    agent.wait_gone("web");
    assert!(begun.elapsed().as_secs() >= 2, "the sleep delays the stop");
    // busybox logs each request with its path and status.
    let text = std::io::read_to_string(log).expect("UTF-8");
    assert!(text.contains("response:404"), "{text}");
    assert!(!agent.log().contains("FailedPreStopHook"), "a response is a success");
}
