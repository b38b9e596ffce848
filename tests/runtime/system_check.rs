//! `wherry check --system` on this machine with the real runtime, and the preflight of `wherry run`: no problem, no
//! runtime, a runtime that hangs, a disk that is read-only or full.

use crate::support::agent::{Agent, patience};
use crate::support::lab::{Runtime, run, text};
use crate::support::store::Store;
use crate::support::yaml::TRAP;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixListener;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Runs the check with the flags of this agent.
fn check(agent: &Agent, more: &[&str]) -> Output {
    let run = agent.command();
    let mut command = Command::new(run.get_program());
    command.args(["check", "--system"]).args(run.get_args().skip(1)).args(more);
    command.output().expect("wherry check --system")
}

/// The lines of a check by name: level and message.
fn lines(output: &Output) -> BTreeMap<String, (String, String)> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = |line: &str| {
        let (level, rest) = line.split_once(' ').expect("level");
        let (name, message) = rest.trim_start().split_once(' ').expect("name");
        (name.to_owned(), (level.to_owned(), message.trim().to_owned()))
    };
    text.lines().map(line).collect()
}

fn errors(output: &Output) -> Vec<String> {
    // `disk` may occur more than once.
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = |line: &str| line.strip_prefix("error ")?.split_whitespace().next().map(str::to_owned);
    text.lines().filter_map(error).collect()
}

/// The preflight lines of this level in the agent's log.
fn findings_in_the_log(agent: &Agent, level: &str) -> Vec<String> {
    let log = agent.log();
    let wanted = format!(" level={level} ");
    log.lines().filter(|l| l.contains("preflight=") && l.contains(&wanted)).map(str::to_owned).collect()
}

#[test]
fn a_suitable_machine_passes_all_checks() {
    let mut agent = Agent::prepare("fit", &Runtime::shared());
    let output = check(&agent, &[]);
    assert_eq!((output.status.code(), errors(&output)), (Some(0), vec![]), "{output:?}");
    let lines = lines(&output);
    for name in ["manifests", "state", "logs", "run", "runtime", "network", "cni"] {
        assert_eq!(lines[name].0, "ok", "{name}: {lines:?}");
    }
    // Whether it is ok depends on the machine.
    assert!(lines.contains_key("swap") && lines.contains_key("clock"), "{lines:?}");
    let version = agent.cri().version().expect("Version").runtime_version;
    let runtime = format!("{} {version} at ", agent.cri().name());
    assert!(lines["runtime"].1.starts_with(&runtime) && lines["runtime"].1.ends_with(" is ready"), "{lines:?}");
    // Every supported containerd reports its configuration, in one of two ways.
    assert_eq!(lines["cgroup-driver"].1, "cgroupfs, the same as the runtime");
    assert!(lines["cni"].1.contains("(bridge host-local portmap loopback)"), "{lines:?}");

    let json = check(&agent, &["-o", "json"]);
    let json: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    let checks = json["checks"].as_array().expect("checks");
    let count = |level: &str| checks.iter().filter(|c| c["level"] == level).count() as u64;
    assert_eq!(json["ok"], count("ok"));
    assert_eq!(json["warnings"], count("warning"));
    assert_eq!((json["errors"].as_u64(), checks.len()), (Some(0), lines.len()));

    agent.run();
    let log = agent.log();
    assert!(findings_in_the_log(&agent, "error").is_empty(), "{log}");
    let place = |what: &str| log.find(what).unwrap_or_else(|| panic!("no {what:?} in {log}"));
    assert!(place(" preflight: ") < place(" started version="), "{log}");
    assert_eq!(log.matches(" preflight: ").count(), 1, "{log}");
}

#[test]
fn a_cgroup_driver_that_is_not_the_runtimes_is_found() {
    let agent = Agent::prepare("driver", &Runtime::shared());
    agent.configure("cgroupDriver: systemd\n");
    let output = check(&agent, &[]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // Wherry uses the driver that the runtime reports. The setting alone still needs systemd.
    let (level, message) = match agent.cri().reports_driver() {
        false => ("error ", "the runtime uses cgroupfs, and cgroupDriver is systemd"),
        true => ("warning ", "the runtime uses cgroupfs, which overrides cgroupDriver: systemd"),
    };
    let line = text.lines().find(|l| l.contains(message));
    assert!(line.is_some_and(|l| l.starts_with(level)), "{text}");
}

#[test]
fn without_a_runtime_the_agent_logs_one_remedy_and_waits() {
    let mut agent = Agent::prepare("nosocket", &Runtime::shared());
    let gone = agent.dir.join("no.sock");
    agent.set_runtime_socket(&gone);
    let output = check(&agent, &[]);
    assert_eq!((output.status.code(), errors(&output)), (Some(1), vec!["runtime".to_owned()]), "{output:?}");
    let message = lines(&output)["runtime"].1.clone();
    assert!(
        message.contains(&format!("there is no socket {}", gone.display())) && message.contains("To do: "),
        "{message}"
    );

    agent.launch();
    agent.wait("the error is logged", |a| findings_in_the_log(a, "error").len() == 1);
    // It continues to check and reports the problem only once.
    std::thread::sleep(Duration::from_secs(3));
    assert!(agent.alive());
    let told = findings_in_the_log(&agent, "error");
    assert!(told.len() == 1 && told[0].contains("preflight=runtime") && told[0].contains("remedy="), "{told:?}");
    assert!(agent.get("/readyz?verbose").is_ok_and(|r| r.status != 200 && r.body.contains("runtime")));
}

#[test]
fn a_runtime_that_never_answers_delays_neither_check_nor_agent() {
    let mut agent = Agent::prepare("hangs", &Runtime::shared());
    let socket = agent.dir.join("hangs.sock");
    // Dropped before the agent: the agent's drop checks the runtime for leftovers.
    let _listener = UnixListener::bind(&socket).expect("listen");
    agent.set_runtime_socket(&socket);
    let began = Instant::now();
    let output = check(&agent, &[]);
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(4) && took < patience(120), "{took:?}");
    assert_eq!((output.status.code(), errors(&output)), (Some(1), vec!["runtime".to_owned()]), "{output:?}");
    assert!(lines(&output)["runtime"].1.contains("hangs.sock: no response for 5 s"), "{output:?}");

    agent.launch();
    agent.wait("/livez answers all the same", |a| a.get("/livez").is_ok_and(|r| r.status == 200));
    agent.wait("the error is logged", |a| findings_in_the_log(a, "error").len() == 1);
    assert!(
        findings_in_the_log(&agent, "error")[0].contains("no response"),
        "{:?}",
        findings_in_the_log(&agent, "error")
    );
    assert!(agent.alive());
}

/// An agent whose root directory is a file system of its own; dropping it unmounts the file system.
struct OnTmpfs {
    agent: Agent,
}

impl OnTmpfs {
    fn prepare(name: &str) -> OnTmpfs {
        let agent = Agent::prepare(name, &Runtime::shared());
        run("mount", &["-t", "tmpfs", "-o", "size=1536k,mode=755", "tmpfs", text(&agent.root())]);
        OnTmpfs { agent }
    }
}

impl Drop for OnTmpfs {
    fn drop(&mut self) {
        // A lazy unmount: the agent may still use the directory.
        let _ = Command::new("umount").arg("-l").arg(self.agent.root()).status();
    }
}

fn waits_then_starts(agent: &mut Agent, why: &str, mend: impl FnOnce(&Agent)) {
    agent.launch();
    agent.wait("it waits", |a| a.log().contains("waiting for the root directory: "));
    std::thread::sleep(Duration::from_secs(5));
    assert!(agent.alive());
    let log = agent.log();
    let waits: Vec<&str> = log.lines().filter(|l| l.contains("waiting for the root directory: ")).collect();
    assert!(waits.len() == 1 && waits[0].contains(why), "{log}");
    mend(agent);
    agent.wait("healthy", |a| a.get("/healthz").is_ok_and(|r| r.status == 200));
    agent.apply("web", TRAP);
    agent.wait_running("web");
}

#[test]
fn the_agent_reports_a_read_only_root_directory_and_waits() {
    let mut on = OnTmpfs::prepare("rootro");
    let root = on.agent.root();
    run("mount", &["-o", "remount,ro", text(&root)]);
    let output = check(&on.agent, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        errors(&output).contains(&"state".to_owned()) && errors(&output).contains(&"disk".to_owned()),
        "{output:?}"
    );
    let state = lines(&output)["state"].1.clone();
    assert!(state.contains("Read-only file system") && state.contains("remount,rw"), "{state}");
    // systemd gets READY=1 and the reason of the wait, and the watchdog continues.
    let mut store = Store::new(&on.agent.dir);
    store.listen_to(&mut on.agent);
    waits_then_starts(&mut on.agent, "its file system is read-only", |a| {
        let said = store.messages();
        assert!(said[0].starts_with("READY=1 STATUS=waiting for the root directory: "), "{said:?}");
        assert!(said.len() >= 2 && said[1..].iter().all(|m| m == "WATCHDOG=1"), "{said:?}");
        run("mount", &["-o", "remount,rw", text(&a.root())]);
    });
    assert!(
        findings_in_the_log(&on.agent, "error").iter().any(|l| l.contains("preflight=state")),
        "{}",
        on.agent.log()
    );
}

#[test]
fn the_agent_waits_for_a_full_root_directory_only_at_its_start() {
    let mut on = OnTmpfs::prepare("rootfull");
    // Otherwise the full disk evicts the pod.
    on.agent.configure("evictionHard: {memory.available: 1Mi}\n");
    let filler = on.agent.root().join("filler");
    let fill = || {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(&filler).expect("filler");
        let full = std::io::Write::write_all(&mut file, &vec![0; 4 << 20]);
        assert!(full.is_err_and(|e| e.kind() == std::io::ErrorKind::StorageFull));
    };
    fill();
    let output = check(&on.agent, &[]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.lines().any(|l| l.starts_with("error ") && l.contains(" is full: ")), "{text}");
    waits_then_starts(&mut on.agent, "its file system is full", |_| fs::remove_file(&filler).expect("remove"));
    let id = on.agent.running("web", "main").expect("runs");
    // With its state intact the agent starts at once.
    on.agent.kill();
    fill();
    let before = findings_in_the_log(&on.agent, "error").len();
    on.agent.run();
    on.agent.wait_running("web");
    assert_eq!(on.agent.running("web", "main"), Some(id));
    assert!(findings_in_the_log(&on.agent, "error").len() > before, "{}", on.agent.log());
    fs::remove_file(&filler).expect("remove");
}
