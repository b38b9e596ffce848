//! Paths outside Wherry's control on a file system that hangs: the agent continues with everything else, and commands
//! report the path that does not answer.

use crate::support::agent::{Agent, container, is_running, patience};
use crate::support::hung::Hung;
use crate::support::lab::Runtime;
use crate::support::yaml::{TRAP, script};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

fn check(agent: &Agent, more: &[&Path]) -> Output {
    let run = agent.command();
    let mut command = Command::new(run.get_program());
    command.arg("check").args(run.get_args().skip(1)).args(more);
    command.output().expect("wherry check")
}

fn findings(agent: &Agent) -> Vec<Value> {
    let output = check(agent, &[Path::new("--system"), Path::new("--output=json")]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    value["checks"].as_array().expect("checks").clone()
}

/// The errors of `wherry check --system`: the check and its message.
fn errors(agent: &Agent) -> Vec<(String, String)> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let errors = findings(agent).into_iter().filter(|f| f["level"] == "error");
    errors.map(|f| (text(&f["check"]), text(&f["message"]))).collect()
}

/// The number of threads of the agent.
fn threads(agent: &Agent) -> usize {
    fs::read_dir(format!("/proc/{}/task", agent.pid())).expect("tasks").count()
}

fn dump(agent: &Agent) -> Value {
    serde_json::from_str(&agent.get("/debug/dump").expect("/debug/dump").body).expect("JSON")
}

#[test]
fn check_names_the_hung_path_and_exits() {
    let agent = Agent::prepare("hungcheck", &Runtime::shared());
    let hung = Hung::mount(&agent.manifests());
    let began = Instant::now();
    let found = errors(&agent);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, "manifests");
    let path = agent.manifests().display().to_string();
    assert_eq!(found[0].1, format!("{path}: no response for 5 s: the file system hangs"));

    // A file in the directory, the directory, and the manifest directory of the configuration.
    for (arguments, what) in [
        (vec![agent.manifests().join("web.yaml")], format!("{path}/web.yaml: no response")),
        (vec![agent.manifests()], format!("{path}: no response")),
        (vec![], format!("{path}: no response")),
    ] {
        let arguments: Vec<&Path> = arguments.iter().map(AsRef::as_ref).collect();
        let output = check(&agent, &arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains(&what) && output.status.code() == Some(2), "{output:?}");
    }
    assert!(began.elapsed() < patience(200), "{:?}", began.elapsed());
    drop(hung);
}

#[test]
fn check_reports_a_hung_configuration() {
    let agent = Agent::prepare("hungconfig", &Runtime::shared());
    let hung = Hung::mount(&agent.dir.join("config.d"));
    let found = errors(&agent);
    assert!(
        found.len() == 1 && found[0].0 == "configuration" && found[0].1.contains("no response for 5 s"),
        "{found:?}"
    );
    drop(hung);
}

#[test]
fn pods_start_while_resolv_conf_hangs_and_the_agent_answers() {
    let mut agent = Agent::prepare("hungdns", &Runtime::shared());
    let directory = agent.dir.join("resolv");
    agent.configure(&format!("resolvConf: {}/resolv.conf\n", directory.display()));
    let hung = Hung::mount(&directory);
    agent.run();
    // The pod waits for the settings. If it is removed meanwhile, it stops waiting.
    agent.apply("gone", TRAP);
    agent.wait("a helper waits", |a| {
        let jobs = dump(a)["agent"]["helpers"].as_array().cloned().unwrap_or_default();
        jobs.iter().any(|job| job["class"] == "paths" && job["begun"] == true)
    });
    agent.delete("gone");
    agent.wait_gone("gone");
    // The event loop does not block: it answers at once, and records are written meanwhile.
    for name in ["a", "b", "c"] {
        agent.apply(name, TRAP);
    }
    let answered = Instant::now();
    assert_eq!(agent.get("/livez").expect("/livez").status, 200);
    assert!(answered.elapsed() < patience(3), "{:?}", answered.elapsed());
    for name in ["a", "b", "c"] {
        agent.wait_running(name);
    }
    let dump = dump(&agent);
    assert_eq!(dump["agent"]["helpersStuck"]["records"], 0, "{dump:#}");
    assert_eq!(dump["agent"]["helpersStuck"]["paths"], 1, "one path, one thread: {dump:#}");
    let why =
        format!("read the host's resolv.conf: {}/resolv.conf: an earlier access has not returned", directory.display());
    assert!(agent.log().contains(&why), "{}", agent.log());

    // When the file system is back, the threads end.
    drop(hung);
    fs::write(directory.join("resolv.conf"), "nameserver 192.0.2.7\n").expect("resolv.conf");
    agent.wait("no thread is left", |a| threads(a) == 1);
    agent.apply("d", &script("Never", "cat /etc/resolv.conf"));
    let pod = agent.wait_phase("d", "Succeeded");
    assert_eq!(agent.output(&pod, "main", 0), "nameserver 192.0.2.7\n");
}

#[test]
fn a_log_that_hangs_leaves_the_message_empty_and_stops_nothing_else() {
    let agent = Agent::start("hunglog");
    let spec = script("Never", "echo last words; while [ ! -e /tmp/end ]; do sleep 0.1; done; exit 3")
        .replace("name: main", "name: main\n          terminationMessagePolicy: FallbackToLogsOnError");
    agent.apply("job", &spec);
    let pod = agent.wait_running("job");
    let log = agent.log_path(&pod, "main", 0);
    agent.wait("the log is written", |_| fs::read_to_string(&log).is_ok_and(|text| text.contains("last words")));
    // The runtime has the log open: only a new open hangs.
    let hung = Hung::mount(log.parent().expect("a directory"));
    let mut end = Command::new(agent.command().get_program());
    end.args(["exec", "-n", &agent.namespace, "--socket"]).arg(&agent.socket).args(["job", "--", "touch", "/tmp/end"]);
    let ended = end.output().expect("wherry exec");
    // 137: the container ended as soon as the file existed, and touch was killed with it.
    assert!(matches!(ended.status.code(), Some(0 | 137)), "{ended:?}");
    agent.wait("the end is known", |a| a.pod("job").is_some_and(|p| !is_running(&p)));
    // Meanwhile another pod starts and ends.
    agent.apply("other", TRAP);
    agent.wait_running("other");
    agent.delete("other");
    agent.wait_gone("other");
    let pod = agent.wait_phase("job", "Failed");
    let ended = &container(&pod, "main")["state"]["terminated"];
    assert_eq!((&ended["exitCode"], ended["message"].as_str().unwrap_or_default()), (&Value::from(3), ""));
    agent.wait("it is said", |a| a.log().contains("read a termination message: not finished before its deadline"));
    drop(hung);
    agent.wait("no thread is left", |a| threads(a) == 1);
    agent.delete("job");
    agent.wait_gone("job");
}

#[test]
fn a_reload_with_a_hung_configuration_keeps_the_previous_one() {
    let agent = Agent::start("hungreload");
    agent.apply("web", TRAP);
    agent.wait_running("web");
    let id = agent.running("web", "main");
    let hung = Hung::mount(&agent.dir.join("config.d"));
    agent.hang_up();
    agent.wait("it is said", |a| a.log().contains("failed to read the configuration: "));
    assert_eq!(agent.get("/livez").expect("/livez").status, 200);
    assert_eq!(agent.running("web", "main"), id);
    drop(hung);
    agent.hang_up();
    agent.wait("it is read again", |a| a.log().matches("reloaded manifests=").count() == 2);
    assert_eq!(agent.running("web", "main"), id);
}
