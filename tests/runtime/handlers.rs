//! Probes and hooks on real containers.

use crate::support::agent::{Agent, condition, container};
use crate::support::grpc_server::{GrpcServer, Health};
use crate::support::tls_server::TlsServer;
use std::sync::atomic::Ordering;
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
    agent.wait("the output of the hook", |a| !a.output(&pod, "main", 0).is_empty());
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
fn the_host_of_a_probe_may_be_a_name() {
    let agent = Agent::start("names");
    // (The kernel completes the connections.)
    let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a server");
    let port = server.local_addr().expect("an address").port();
    // Only `localhost` in lower case needs no lookup.
    agent.apply(
        "web",
        &format!(
            "
            terminationGracePeriodSeconds: 1
            containers:
            - name: main
              image: localhost/trap:1
              readinessProbe: {{tcpSocket: {{host: LOCALHOST, port: {port}}}, periodSeconds: 1, timeoutSeconds: 30}}
            - name: other
              image: localhost/trap:1
              readinessProbe: {{httpGet: {{host: no-such-host.invalid, port: {port}}}, timeoutSeconds: 30}}
            "
        ),
    );
    agent.wait("the name is found", |a| a.pod("web").is_some_and(|p| container(&p, "main")["ready"] == true));
    let failure = format!("Get \"http://no-such-host.invalid:{port}/\": dial tcp: lookup no-such-host.invalid: ");
    agent.wait("the other name is not found", |a| {
        String::from_utf8_lossy(&a.wherry(&["events", "web"]).stdout).contains(&failure)
    });
    assert_eq!(container(&agent.pod("web").expect("it runs"), "other")["ready"], false);
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

#[test]
fn an_https_hook_of_a_server_without_tls_succeeds_over_http() {
    let agent = Agent::start("hookplain");
    // (The server is the agent itself.)
    let port = agent.healthz_port;
    let hook = |host: &str| format!("{{httpGet: {{scheme: HTTPS, host: {host}, port: {port}, path: /healthz}}}}");
    let spec = format!(
        "
        terminationGracePeriodSeconds: 5
        containers:
        - name: main
          image: localhost/trap:1
          lifecycle: {{postStart: {}, preStop: {}}}
        ",
        hook("127.0.0.1"),
        hook("localhost")
    );
    agent.apply("web", &spec);
    agent.wait_running("web");
    let reported = |a: &Agent, host: &str| {
        let server = format!("{host}:{port}");
        a.log()
            .contains(&format!("request to HTTPS lifecycle hook {server} got HTTP response, retry with HTTP succeeded"))
    };
    agent.wait("the fallback of postStart is reported", |a| reported(a, "127.0.0.1"));
    assert!(!reported(&agent, "localhost"));
    agent.delete("web");
    agent.wait_gone("web");
    assert!(reported(&agent, "localhost"), "{}", agent.log());
    assert!(!agent.log().contains("PreStopHook failed"), "{}", agent.log());
}

/// A pod with a probe of a server on the node.
fn probing(port: u16, path: &str, scheme: &str) -> String {
    format!(
        "
        terminationGracePeriodSeconds: 1
        containers:
        - name: main
          image: localhost/trap:1
          readinessProbe:
            httpGet: {{scheme: {scheme}, host: 127.0.0.1, port: {port}, path: {path}}}
            periodSeconds: 1
            failureThreshold: 1
        "
    )
}

#[test]
fn an_https_probe_accepts_a_certificate_of_another_name() {
    let agent = Agent::start("https");
    let server = TlsServer::start(&agent.dir, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let failing = TlsServer::start(&agent.dir, "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
    agent.apply("ready", &probing(server.port, "/healthz", "HTTPS"));
    agent.apply("busy", &probing(failing.port, "/healthz", "HTTPS"));
    let is_ready = |a: &Agent, pod: &str| a.pod(pod).is_some_and(|p| condition(&p, "Ready")["status"] == "True");
    agent.wait("it is ready", |a| is_ready(a, "ready"));
    assert!(server.requests.load(Ordering::SeqCst) >= 1);
    let event =
        |a: &Agent, pod: &str, text: &str| String::from_utf8_lossy(&a.wherry(&["events", pod]).stdout).contains(text);
    agent.wait("the status is reported", |a| {
        event(a, "busy", "Readiness probe failed: HTTP probe failed with statuscode: 503")
    });
    assert!(!is_ready(&agent, "busy"));
}

#[test]
fn an_https_probe_of_a_server_without_tls_says_so() {
    let agent = Agent::start("nottls");
    // The health port of the agent is an HTTP server. It answers anything else with an HTTP error.
    agent.apply("plain", &probing(agent.healthz_port, "/healthz", "HTTPS"));
    agent.wait("the reason is reported", |a| {
        let events = String::from_utf8_lossy(&a.wherry(&["events", "plain"]).stdout).into_owned();
        events.contains("http: server gave HTTP response to HTTPS client")
    });
    // A hook with the wrong scheme.
    let server = TlsServer::start(&agent.dir, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let hook = format!(
        "
        terminationGracePeriodSeconds: 5
        containers:
        - name: main
          image: localhost/trap:1
          lifecycle:
            postStart: {{httpGet: {{scheme: HTTPS, host: 127.0.0.1, port: {}, path: /started}}}}
            preStop: {{httpGet: {{scheme: HTTPS, host: 127.0.0.1, port: {}, path: /stopping}}}}
        ",
        server.port, server.port
    );
    agent.apply("hooked", &hook);
    agent.wait_running("hooked");
    assert_eq!(server.requests.load(Ordering::SeqCst), 1, "postStart");
    agent.delete("hooked");
    agent.wait_gone("hooked");
    assert_eq!(server.requests.load(Ordering::SeqCst), 2, "preStop");
}

#[test]
fn a_grpc_probe_asks_for_the_health_of_a_service() {
    const NOT_SERVING: u8 = 2;
    let agent = Agent::start("grpc");
    let server = GrpcServer::start(Health::Status(NOT_SERVING));
    let silent = GrpcServer::start(Health::Silent);
    let pod = |port: u16| {
        format!(
            "
        terminationGracePeriodSeconds: 1
        hostNetwork: true
        containers:
        - name: main
          image: localhost/trap:1
          readinessProbe: {{grpc: {{port: {port}, service: db}}, periodSeconds: 1, failureThreshold: 1}}
        "
        )
    };
    agent.apply("silent", &pod(silent.port));
    agent.apply("db", &pod(server.port));
    let is_ready = |a: &Agent, pod: &str| a.pod(pod).is_some_and(|p| condition(&p, "Ready")["status"] == "True");
    let reports = |pod: &'static str, text: &'static str| {
        agent.wait(text, |a| String::from_utf8_lossy(&a.wherry(&["events", pod]).stdout).contains(text));
    };
    reports("db", "Readiness probe failed: service unhealthy (responded with \"NOT_SERVING\")");
    server.set(Health::Error(12, "unknown service"));
    reports(
        "db",
        "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown service",
    );
    server.set(Health::Error(5, "no db"));
    reports("db", "error: health rpc probe failed: rpc error: code = NotFound desc = no db");
    server.set(Health::Status(1));
    agent.wait("it is ready", |a| is_ready(a, "db"));
    let (user, body) = server.requests.lock().expect("requests").last().cloned().expect("a request");
    assert_eq!((user.as_str(), &body[..]), ("kube-probe/1.33", &b"\0\0\0\0\x04\x0a\x02db"[..]));
    reports("silent", "Readiness probe failed: timeout: health rpc did not complete within 1s");
    assert!(!is_ready(&agent, "silent"));
}

#[test]
fn a_stop_signal_ends_the_container_where_the_runtime_has_them() {
    let agent = Agent::start("stopsignal");
    agent.apply(
        "web",
        "
        os: {name: linux}
        terminationGracePeriodSeconds: 20
        containers:
        - name: main
          image: localhost/busybox:1.35
          command: [sh, -c, 'trap \"echo stopped by USR1; exit 0\" USR1; trap \"echo stopped by TERM; exit 0\" TERM; while :; do sleep 0.1; done']
          lifecycle: {stopSignal: SIGUSR1}
        ",
    );
    let pod = agent.wait_running("web");
    let log = std::fs::File::open(agent.log_path(&pod, "main", 0)).expect("the log");
    let shown = container(&pod, "main")["stopSignal"] == "SIGUSR1";
    let ignored = agent.log().contains("the container runtime does not support lifecycle.stopSignal SIGUSR1");
    assert_ne!(shown, ignored, "{}", agent.log());
    agent.delete("web");
    agent.wait_gone("web");
    let text = std::io::read_to_string(log).expect("UTF-8");
    assert!(text.contains(if shown { "stopped by USR1" } else { "stopped by TERM" }), "{text}");
}
