//! The agent after a crash: the next start says what happened and keeps the last state.

use super::trouble::identity;
use crate::support::agent::Agent;
use crate::support::lab::signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs the unit's ExecStopPost as systemd does after the end of the main process.
fn exec_stop_post(runtime_directory: &Path, result: &str, code: &str, status: &str) {
    let unit = include_str!("../../packaging/wherry.service").replace("\\\n", "");
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStopPost=-/bin/sh -c '")).expect("ExecStopPost");
    let script = line.strip_suffix('\'').expect("a quote").replace("$$", "$");
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(script).env("RUNTIME_DIRECTORY", runtime_directory);
    shell.env("SERVICE_RESULT", result).env("EXIT_CODE", code).env("EXIT_STATUS", status);
    assert!(shell.status().expect("sh").success());
}

fn reports(agent: &Agent) -> Vec<PathBuf> {
    fs::read_dir(agent.root().join("crashes")).into_iter().flatten().flatten().map(|e| e.path()).collect()
}

fn state_file(agent: &Agent) -> PathBuf {
    let mut name = agent.socket.clone().into_os_string();
    name.push(".state");
    name.into()
}

fn events(agent: &Agent) -> String {
    String::from_utf8_lossy(&agent.wherry(&["events"]).stdout).into_owned()
}

#[test]
fn after_a_crash_the_next_start_says_what_happened_and_keeps_the_last_state() {
    let mut agent = Agent::prepare("crash", &crate::support::lab::Runtime::shared());
    let run = agent.dir.join("run");
    fs::create_dir(&run).expect("a runtime directory");
    agent.set("RUNTIME_DIRECTORY", run.to_str().expect("text"));
    agent.run();
    let secret = "not-in-the-state";
    agent.apply(
        "web",
        &format!("containers: [{{name: main, image: localhost/trap:1, env: [{{name: KEY, value: {secret}}}]}}]"),
    );
    agent.wait_running("web");
    let before = identity(&agent, "web");
    let state = agent.wait_for("the state has the pod", |agent| {
        fs::read_to_string(state_file(agent)).ok().filter(|text| text.contains("web"))
    });
    let whole: serde_json::Value = serde_json::from_str(&state).expect("the state is JSON");
    assert!(whole["engine"]["workers"].is_object() && whole["pid"] == agent.pid(), "{state}");
    assert!(state.contains("\"workers\":") && !state.contains(secret), "the state has no specs: {state}");
    assert_eq!(fs::metadata(state_file(&agent)).expect("the state").permissions().mode() & 0o777, 0o600);

    // A kill is not a crash.
    agent.kill();
    exec_stop_post(&run, "signal", "killed", "KILL");
    agent.run();
    agent.wait("the kill is logged", |agent| agent.log().contains("did not stop on request, it was killed"));
    assert_eq!((reports(&agent).len(), agent.metric("wherry_previous_agent_crashed")), (0, 0.0));

    // systemd's watchdog sends SIGABRT.
    agent.wait("the state is there again", |agent| state_file(agent).exists());
    signal(&agent.pid().to_string(), "ABRT");
    assert_eq!(agent.ended(), None, "a signal");
    exec_stop_post(&run, "watchdog", "dumped", "ABRT");
    agent.run();
    agent.wait("the event", |agent| events(agent).contains("AgentCrashed"));
    let said = events(&agent);
    assert!(said.contains("killed by systemd's watchdog, because its event loop had stopped; see "), "{said}");
    let kept = reports(&agent);
    let [report] = &kept[..] else { panic!("{kept:?}") };
    assert!(said.contains(report.to_str().expect("text")), "{said}");
    let text = fs::read_to_string(report).expect("a report");
    assert!(text.contains("watchdog dumped ABRT") && text.contains("\"workers\":"), "{text}");
    assert_eq!(fs::metadata(report).expect("a report").permissions().mode() & 0o777, 0o600);
    assert_eq!(agent.metric("wherry_previous_agent_crashed"), 1.0);
    assert_eq!(identity(&agent, "web"), before, "the pod has not noticed");

    // A stop on request leaves nothing behind.
    assert_eq!(agent.terminate(), Some(0));
    exec_stop_post(&run, "success", "exited", "0");
    assert!(!state_file(&agent).exists() && fs::read_dir(&run).expect("a directory").next().is_none());
    agent.run();
    assert_eq!((reports(&agent).len(), agent.metric("wherry_previous_agent_crashed")), (1, 0.0));
}
