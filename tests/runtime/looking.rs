//! describe, events, logs and the dump, for real pods.

use crate::support::agent::{Agent, container, patience, uid};
use crate::support::lab::signal;
use crate::support::yaml::{TRAP, script};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

fn text(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    out.into_owned()
}

/// A running command, and its lines as they come.
/// A command that keeps printing.
pub struct Going {
    child: Child,
    lines: Receiver<String>,
    pub seen: Vec<String>,
}

impl Going {
    pub fn start(agent: &Agent, arguments: &[&str]) -> Going {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wherry"));
        command.args(arguments).arg("--socket").arg(&agent.socket).stdout(Stdio::piped());
        let mut child = command.spawn().expect("wherry");
        let out = child.stdout.take().expect("piped");
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Going { child, lines, seen: Vec::new() }
    }

    /// Waits for a matching line. All earlier lines are in `seen`, too.
    pub fn wait(&mut self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + patience(240);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            let line = line.unwrap_or_else(|e| panic!("{what}: {e}; came: {:#?}", self.seen));
            self.seen.push(line.clone());
            if wanted(&line) {
                return line;
            }
        }
    }

    /// Waits until the command exits by itself. Returns the exit code.
    fn ended(&mut self) -> Option<i32> {
        let end = Instant::now() + patience(240);
        loop {
            if let Some(status) = self.child.try_wait().expect("wait") {
                self.seen.extend(self.lines.iter());
                return status.code();
            }
            assert!(Instant::now() < end, "the command still runs; output: {:#?}", self.seen);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_crashing_pod_describes_its_end_its_back_off_and_its_events() {
    let agent = Agent::start("describe");
    agent.apply("loop", &script("Always", "echo bye; exit 7"));
    agent.wait_waiting("loop", "CrashLoopBackOff");
    let name = format!("{}/loop", agent.namespace);
    // At an instant within the back-off.
    let shown = agent.wait_for("a back-off is described", |a| {
        Some(text(&a.wherry(&["describe", &name])))
            .filter(|t| t.contains("CrashLoopBackOff") && t.contains("Next Start"))
    });
    let has = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(shown.lines().any(|l| l.split_whitespace().collect::<Vec<_>>().starts_with(&words)), "{line}\n{shown}");
    };
    for line in [
        "Name: loop",
        "Restart Policy: Always",
        "QoS Class: BestEffort",
        "Worker: Sync",
        "Waits For: main: next start in",
        "State: Waiting",
        "Reason: CrashLoopBackOff",
        "Next Start: in",
        "Last State: Terminated",
        "Reason: Error",
        "Exit Code: 7",
        "Ready: False",
        "ContainersReady False ContainersNotReady",
        "Normal Started",
        "Warning ContainerDied",
        "Warning BackOff",
    ] {
        has(line);
    }
    let source = agent.manifests().join("loop.yaml");
    has(&format!("Source: {} (document 1)", source.display()));
    // It started and died at least twice.
    let counted = |reason: &str| shown.lines().any(|l| l.contains(reason) && l.contains("(x"));
    assert!(counted("Started") && counted("ContainerDied"), "{shown}");

    let value: Value =
        serde_json::from_str(&text(&agent.wherry(&["describe", "pod/loop", "-o", "json"]))).expect("JSON");
    assert_eq!(value["metadata"]["namespace"], agent.namespace.as_str());
    assert_eq!(value["wherry"]["state"], "Sync");
    assert!(value["events"].as_array().is_some_and(|e| e.iter().any(|e| e["reason"] == "BackOff")));

    let missing = agent.wherry(&["describe", "loop2"]);
    assert_eq!(missing.status.code(), Some(1));
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(said.contains(&format!("pod loop2 was not found; similar names: {name}")), "{said}");
}

#[test]
fn completions_have_the_names_of_pods_and_containers() {
    let agent = Agent::start("complete");
    agent.apply("web", TRAP);
    agent.wait_running("web");
    let socket = agent.socket.to_str().expect("text");
    let complete = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wherry"));
        text(&command.arg("__complete").args(words).output().expect("wherry"))
    };
    assert_eq!(complete(&["describe", "--socket", socket, ""]), "web\n");
    assert_eq!(complete(&["drain", "--socket", socket, "-n", "comp"]), format!("{}\n", agent.namespace));
    assert_eq!(complete(&["logs", "--socket", socket, "web", "-c", ""]), "main\n");
    assert_eq!(complete(&["logs", "--socket", socket, "web", "-c", "x"]), "");
}

#[test]
fn events_are_streamed_and_outlive_their_pod() {
    let mut agent = Agent::start("events");
    let mut watch = Going::start(&agent, &["events", "--watch", "-o", "json"]);
    watch.wait("the list", |l| l.contains("\"Starting\""));
    agent.apply("web", TRAP);
    agent.wait_running("web");
    watch.wait("the start", |l| l.contains("\"Started\""));
    let id = agent.running("web", "main").expect("runs");
    signal(&agent.cri().container_pid(&id).to_string(), "KILL");
    let died = watch.wait("the end", |l| l.contains("\"ContainerDied\""));
    let died: Value = serde_json::from_str(&died).expect("JSON");
    assert_eq!((&died["type"], &died["count"]), (&Value::from("Warning"), &Value::from(1)));
    assert_eq!(died["involvedObject"]["name"], "web");
    assert_eq!(died["message"], "Container main ended with exit code 137 (Error)");
    let started = watch.wait("the restart", |l| l.contains("\"Started\""));
    let started: Value = serde_json::from_str(&started).expect("JSON");
    assert_eq!(started["count"], 2);

    agent.write("bad.yaml", "kind: Pod\n");
    watch.wait("the bad manifest", |l| l.contains("\"BadManifest\"") && l.contains("bad.yaml"));
    agent.delete("web");
    agent.wait_gone("web");
    watch.wait("the removal", |l| l.contains("\"Removed\""));
    let name = format!("{}/web", agent.namespace);
    let table = text(&agent.wherry(&["events", &name]));
    let reasons: Vec<&str> = table.lines().filter_map(|l| l.split("pod/").next()?.split_whitespace().last()).collect();
    for reason in ["Pulled", "Created", "ContainerDied", "Started", "Killing", "Removed"] {
        assert!(reasons.contains(&reason), "{reason}: {table}");
    }
    assert!(!table.contains("BadManifest"), "that is the node's: {table}");
    let warnings = text(&agent.wherry(&["events", "--types", "Warning"]));
    assert!(warnings.contains("BadManifest") && !warnings.contains("Killing"), "{warnings}");
    let gone = agent.wherry(&["describe", &name]);
    assert!(String::from_utf8_lossy(&gone.stderr).contains("it existed earlier: see wherry events"));
    agent.terminate();
    assert_eq!(watch.ended(), Some(1), "the agent's end is the watch's");
}

/// Counts up, one line every 20 ms.
const COUNTER: &str = "i=0; while :; do echo \"line $i\"; i=$((i+1)); sleep 0.02; done";

#[test]
fn logs_are_followed_through_a_rotation_and_a_restart_to_the_pod_s_end() {
    let agent = Agent::start("follow");
    agent.apply("count", &script("Always", COUNTER));
    let pod = agent.wait_running("count");
    let name = format!("{}/count", agent.namespace);
    let mut follow = Going::start(&agent, &["logs", "-f", &name]);
    follow.wait("a line", |l| l == "line 10");

    // As a kubelet rotates: rename the file, then make the runtime open a new one.
    let id = agent.running("count", "main").expect("runs");
    let log = agent.log_path(&pod, "main", 0);
    let rotated = log.with_file_name("0.log.20261120-150000");
    std::fs::rename(&log, &rotated).expect("rename");
    std::thread::sleep(std::time::Duration::from_millis(100));
    agent.cri().reopen_log(&id);
    agent.wait("the new file is written to", |_| std::fs::metadata(&log).is_ok_and(|m| m.len() > 0));
    let newest = std::fs::read_to_string(&log).expect("log");
    let number = newest.lines().next().and_then(|l| l.rsplit(' ').next()).expect("a line").to_string();
    // The link for log collectors leads to the new file.
    let link = agent.dir.join(format!("log/containers/count_{}_main-{id}.log", agent.namespace));
    assert_eq!(std::fs::read_link(&link).expect("link"), log);
    assert_ne!(std::fs::canonicalize(&link).expect("target"), std::fs::canonicalize(&rotated).expect("rotated file"));
    assert!(std::fs::read_to_string(&link).expect("log").starts_with(&newest), "it is the new file");

    let far = format!("line {}", number.parse::<u32>().expect("a number") + 20);
    follow.wait("a line after the rotation", |l| l == far);
    // The output includes the rotated file, both of all lines and of the last ones.
    let all = text(&agent.wherry(&["logs", &name]));
    assert!(all.starts_with("line 0\nline 1\n"), "{all}");
    let count = all.lines().count();
    assert!(count > number.parse::<usize>().expect("a number"));
    let tail = text(&agent.wherry(&["logs", &name, "--tail", &count.to_string()]));
    assert_eq!(tail.lines().count(), count);
    let tail = text(&agent.wherry(&["logs", &name, "--tail", "1000000"]));
    assert!(tail.starts_with("line 0\nline 1\n"), "{tail}");

    signal(&agent.cri().container_pid(&id).to_string(), "KILL");
    follow.wait("the next run", |l| l == "line 0");
    let before = follow.seen.len() - 1;
    follow.wait("a line of the next run", |l| l == "line 15");
    let run = |lines: &[String]| {
        for (i, line) in lines.iter().enumerate() {
            assert_eq!(*line, format!("line {i}"), "{lines:#?}");
        }
    };
    run(&follow.seen[..before]);
    run(&follow.seen[before..]);

    let previous = text(&agent.wherry(&["logs", "-p", &name, "--timestamps"]));
    assert_eq!(previous.lines().count(), before, "all of the first run");
    let last = previous.lines().next_back().expect("a line");
    assert!(last.starts_with("20") && last.ends_with(&format!("Z line {}", before - 1)), "{last}");
    let three = text(&agent.wherry(&["logs", &name, "--tail=3"]));
    assert_eq!(three.lines().count(), 3);
    assert_eq!(text(&agent.wherry(&["logs", &name, "--since", "1h", "--limit-bytes", "13"])), "line 0\nline 1");

    agent.delete("count");
    agent.wait_gone("count");
    for file in [&link, &rotated, &log] {
        agent.wait(&format!("{} is removed", file.display()), |_| std::fs::symlink_metadata(file).is_err());
    }
    assert_eq!(follow.ended(), Some(0), "it ends with the pod");
    run(&follow.seen[before..]);
}

#[test]
fn logs_of_several_containers_of_one_that_waits_and_without_an_agent() {
    let mut agent = Agent::start("logs");
    agent.apply(
        "pair",
        "
        restartPolicy: Never
        containers:
        - name: one
          image: localhost/busybox:1.35
          command: [sh, -c, 'echo out; echo err >&2']
        - name: two
          image: localhost/busybox:1.35
          command: [sh, -c, 'echo second; exec sleep 1000']
        - name: three
          image: localhost/nowhere:1
          imagePullPolicy: Never
    ",
    );
    agent.wait("both have begun and the third waits", |a| {
        a.pod("pair").is_some_and(|p| {
            container(&p, "one")["state"]["terminated"].is_object()
                && container(&p, "two")["state"]["running"].is_object()
                && container(&p, "three")["state"]["waiting"]["reason"] == "ErrImageNeverPull"
        })
    });
    let output = agent.wherry(&["logs", "pair"]);
    let mut lines: Vec<String> = text(&output).lines().map(str::to_string).collect();
    lines.sort();
    assert_eq!(lines, ["err", "out"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("defaulted container \"one\" out of: one, two, three"), "{said}");
    let all = text(&agent.wherry(&["logs", "pair", "--all-containers"]));
    assert!(all.ends_with("second\n") && all.lines().count() == 3, "{all}");
    let fails = |arguments: &[&str], why: &str| {
        let output = agent.wherry(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && said.contains(why), "{arguments:?}: {said}");
    };
    fails(&["logs", "pair", "-c", "three"], "it is waiting to start: ErrImageNeverPull");
    fails(&["logs", "pair", "-c", "four"], "it has one, two, three");
    fails(&["logs", "pair", "-p"], "there is no previous terminated container");
    fails(&["logs", "nope"], "pod nope was not found");
    // `logs -f` exits if the container does not restart.
    let mut follow = Going::start(&agent, &["logs", "-f", "pair", "-c", "one"]);
    assert_eq!(follow.ended(), Some(0));
    assert_eq!(follow.seen.len(), 2);

    agent.terminate();
    let log_dir = agent.dir.join("log/pods");
    let log_dir = log_dir.to_str().expect("a path");
    let output = agent.wherry(&["logs", "pair", "-c", "two", "--log-dir", log_dir]);
    assert_eq!(text(&output), "second\n");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("wherry is not running") && said.contains(log_dir), "{said}");
}

#[test]
fn the_dump_names_every_pod_and_no_secret() {
    let agent = Agent::start("dump");
    agent.apply("loop", &script("Always", "exit 7"));
    agent.apply(
        "web",
        "
        containers:
        - name: main
          image: localhost/trap:1
          env: [{name: TOKEN, value: s3cr3t}]
    ",
    );
    let web = agent.wait_running("web");
    agent.wait_waiting("loop", "CrashLoopBackOff");
    let dump = text(&agent.wherry(&["debug", "dump"]));
    assert!(!dump.contains("s3cr3t"));
    let dump: Value = serde_json::from_str(&dump).expect("JSON");
    let engine = &dump["engine"];
    assert_eq!(engine["workers"].as_object().map(|w| w.len()), Some(2));
    let worker = &engine["workers"][&uid(&web)];
    assert_eq!(worker["name"], format!("{}/web", agent.namespace).as_str());
    assert!(worker["state"]["Sync"].is_object(), "{worker}");
    let facts = &engine["pleg"]["cache"][&uid(&web)]["facts"];
    assert_eq!(facts["containers"][0]["id"], agent.running("web", "main").expect("runs").as_str());
    let looping = engine["workers"].as_object().and_then(|w| w.values().find(|w| w["uid"] != uid(&web).as_str()));
    let until = looping
        .and_then(|w| w["containers"]["backoffs"]["by_name"]["main"]["until"].as_f64())
        .unwrap_or_else(|| panic!("{looping:?}"));
    let now = dump["now"]["boot"].as_f64().expect("now");
    assert!(until > now && until < now + 301.0, "{until} {now}");
    // A container and two sandboxes are watched, and the dump names timers and descriptors.
    let agent_side = &dump["agent"];
    assert!(agent_side["processesWatched"].as_object().is_some_and(|w| w.len() >= 3), "{agent_side}");
    let timers = agent_side["timers"].as_object().expect("timers");
    assert!(timers.keys().any(|k| k == "Relist") && timers.keys().filter(|k| k.starts_with("Pod(")).count() == 2);
    let descriptors = agent_side["descriptors"].as_object().expect("descriptors");
    assert!(descriptors.values().any(|d| d.as_str().is_some_and(|d| d.contains("pidfd"))), "{descriptors:?}");
}

/// The watch is read only at the end.
#[test]
fn a_watch_that_reads_late_gets_the_states_of_a_pod_in_order_and_is_not_closed() {
    let agent = Agent::start("latewatch");
    let mut watch = UnixStream::connect(&agent.socket).expect("the control socket");
    watch.write_all(b"GET /pods?watch=1 HTTP/1.0\r\n\r\n").expect("a request");
    agent.apply("late", TRAP);
    agent.wait_running("late");
    agent.delete("late");
    agent.wait_gone("late");
    let mut kinds: Vec<String> = Vec::new();
    for line in BufReader::new(watch).lines() {
        let line = line.expect("the watch is open");
        let Ok(change) = serde_json::from_str::<Value>(&line) else { continue };
        kinds.push(change["type"].as_str().expect("a type").to_owned());
        if change["type"] == "DELETED" {
            break;
        }
    }
    let [first, second, changes @ .., last] = &kinds[..] else { panic!("{kinds:?}") };
    assert_eq!((&**first, &**second, &**last), ("BOOKMARK", "ADDED", "DELETED"), "{kinds:?}");
    assert!(!changes.is_empty() && changes.iter().all(|kind| kind == "MODIFIED"), "{kinds:?}");
}
