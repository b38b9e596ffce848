//! Parties that send without end, against the real agent under a limit of its address space: it answers others, its memory is
//! bounded, and it ends in time. `--nocapture` prints the figures.

use crate::support::agent::{Agent, patience};
use crate::support::api_client::ApiClient;
use crate::support::device_plugin::{self, DevicePlugin};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const ENTRY: &str = "hostile_parties::process_of_a_plugin";

/// Not a test: the process of the plugin.
#[test]
#[ignore = "the process of the plugin in the other tests"]
fn process_of_a_plugin() {
    device_plugin::run();
}

/// A debug build has some 35 MB.
const MAX_RESIDENT_KB: u64 = 150_000;

/// The address space of the agent. A new helper thread reserves some of it.
const ADDRESS_SPACE: &str = "--as=1073741824";

fn peak_kb(agent: &Agent) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", agent.pid())).expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.split_whitespace().next().and_then(|kb| kb.parse().ok()).expect("kB")
}

/// The slowest answer of `/healthz` during 10 s is in time, the memory is bounded, and SIGTERM ends the agent in time.
fn withstands(mut agent: Agent, party: &str) {
    let begun = Instant::now();
    let (mut slowest, mut answers) = (Duration::ZERO, 0);
    while begun.elapsed() < Duration::from_secs(10) {
        let asked = Instant::now();
        assert_eq!(agent.get("/healthz").expect("an answer").status, 200);
        slowest = slowest.max(asked.elapsed());
        answers += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    let peak = peak_kb(&agent);
    let asked = Instant::now();
    let code = agent.terminate();
    let end = asked.elapsed();
    println!("{party}: slowest of {answers} answers {slowest:?}, peak {peak} kB, end after {end:?}");
    assert!(slowest < patience(1) && peak < MAX_RESIDENT_KB && end < patience(2), "{party}");
    assert_eq!(code, Some(0));
}

#[test]
fn probes_with_informational_responses_without_end_harm_nothing_else() {
    let mut agent = Agent::prepare("floodprobe", &crate::support::lab::Runtime::shared());
    agent.under = vec!["prlimit", ADDRESS_SPACE];
    agent.run();
    let mut spec = String::from("terminationGracePeriodSeconds: 1\ncontainers:\n");
    for n in 0..8 {
        let port = 8080 + n;
        // The lines of `yes` end with a line feed.
        let serve = format!(
            "while :; do yes \"$(printf 'HTTP/1.1 100 Continue\\r\\n\\r')\" | nc -l -p {port} >/dev/null; echo served; done"
        );
        spec.push_str(&format!(
            "- name: c{n}\n  image: localhost/busybox:1.35\n  command: [sh, -c, {serve:?}]\n  \
             readinessProbe: {{httpGet: {{port: {port}, path: /}}, periodSeconds: 1, timeoutSeconds: 5}}\n"
        ));
    }
    agent.apply("flood", &spec);
    agent.wait_running("flood");
    agent.wait("the probes fail", |a| {
        let events = String::from_utf8_lossy(&a.wherry(&["events"]).stdout).into_owned();
        events.contains("informational responses")
    });
    withstands(agent, "HTTP probes of 8 containers");
}

#[test]
fn a_device_plugin_that_floods_harms_nothing_else() {
    let mut agent = Agent::prepare("floodplugin", &crate::support::lab::Runtime::shared());
    let directory = PathBuf::from(format!("/run/{}", agent.namespace));
    fs::create_dir_all(&directory).expect("a directory");
    agent.accept_device_plugins(&directory.join("kubelet.sock"));
    agent.under = vec!["prlimit", ADDRESS_SPACE];
    agent.run();
    fs::write(directory.join("flood"), "").expect("flood");
    let plugin = DevicePlugin::start(&directory, "v.io/cam", "cam0 Healthy\n", ENTRY);
    agent.wait("the plugin's devices are known", |a| {
        String::from_utf8_lossy(&a.wherry(&["status", "-o", "json"]).stdout).contains("v.io/cam")
    });
    withstands(agent, "device plugin");
    drop(plugin);
    fs::remove_dir_all(&directory).expect("removed");
}

fn anonymous_kb(agent: &Agent) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", agent.pid())).expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("RssAnon");
    line.split_whitespace().next().and_then(|kb| kb.parse().ok()).expect("kB")
}

#[test]
fn patches_that_grow_are_refused_and_cost_little_memory() {
    let mut agent = Agent::prepare("growpatch", &crate::support::lab::Runtime::shared());
    agent.serve_kubectl();
    // As in the service: free memory goes back to the system.
    let heap = ["env", "MALLOC_ARENA_MAX=1", "MALLOC_TRIM_THRESHOLD_=32768", "MALLOC_TOP_PAD_=32768"];
    agent.under = [&heap[..], &["prlimit", ADDRESS_SPACE]].concat();
    let metadata = format!("metadata: {{name: grow, namespace: {}}}", agent.namespace);
    agent.write("grow.yaml", &format!("apiVersion: v1\nkind: ConfigMap\n{metadata}\ndata: {{a: b}}\n"));
    agent.run_with_kubectl();
    let client = ApiClient::new(&agent, &[]);
    let path = format!("/api/v1/namespaces/{}/configmaps/grow", agent.namespace);
    agent.wait("the object is served", |_| client.get(&path).is_ok_and(|found| found.status == 200));
    let before = anonymous_kb(&agent);
    // Each operation doubles the depth, or the size.
    let deep: Vec<String> =
        (0..40).map(|n| format!("{{\"op\": \"copy\", \"from\": \"\", \"path\": \"/x{n}\"}}")).collect();
    let text = "y".repeat(1000);
    let mut wide = vec![format!("{{\"op\": \"add\", \"path\": \"/w\", \"value\": {{\"a\": \"{text}\"}}}}")];
    wide.extend((0..40).flat_map(|n| {
        let copy = |to: &str| format!("{{\"op\": \"copy\", \"from\": \"/w\", \"path\": \"/{to}\"}}");
        [copy("v"), format!("{{\"op\": \"move\", \"from\": \"/v\", \"path\": \"/w/n{n}\"}}")]
    }));
    let items: Vec<String> = (0..30_000).map(|n| format!("{{\"name\": \"c{n}\", \"image\": \"i\"}}")).collect();
    let bodies = [
        ("application/json-patch+json", format!("[{}]", deep.join(","))),
        ("application/json-patch+json", format!("[{}]", wide.join(","))),
        (
            "application/strategic-merge-patch+json",
            format!("{{\"data\": {}}}", "{\"a\": ".repeat(500) + "1" + &"}".repeat(500)),
        ),
        ("application/strategic-merge-patch+json", format!("{{\"spec\": {{\"containers\": [{}]}}}}", items.join(","))),
    ];
    for _ in 0..5 {
        for (media_type, body) in &bodies {
            let head = format!(
                "PATCH {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            let mut connection = client.connect().expect("a connection");
            let answer = connection.exchange(&[head.as_bytes(), body.as_bytes()].concat()).expect("an answer");
            assert!((400..500).contains(&answer.status), "{} {media_type}: {}", answer.status, &body[..60]);
            assert_eq!(agent.get("/healthz").expect("an answer").status, 200);
        }
    }
    let kept = anonymous_kb(&agent).saturating_sub(before);
    println!("patches that grow: {kept} kB more than {before} kB are kept");
    assert!(kept < 30_000, "{kept}");
    let unchanged = client.get(&path).expect("an answer").body;
    assert!(unchanged.contains("\"data\":{\"a\":\"b\"}"), "{unchanged}");
    withstands(agent, "patches that grow");
}
