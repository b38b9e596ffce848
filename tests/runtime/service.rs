//! The messages to systemd (sd_notify(3)), read from a notification socket as systemd reads them.

use crate::support::agent::{Agent, patience};
use crate::support::lab::{Runtime, signal};
use crate::support::store::Store;
use crate::support::yaml::TRAP;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Receives messages up to and including the first one that contains all of `parts`.
fn until(store: &mut Store, parts: &[&str]) -> Vec<String> {
    let end = Instant::now() + patience(240);
    loop {
        if let Some(said) = store.messages_until(parts) {
            return said;
        }
        assert!(Instant::now() < end, "no message has {parts:?}: {:?}", store.messages());
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn count(messages: &[String], what: &str) -> usize {
    messages.iter().filter(|m| m.contains(what)).count()
}

fn served(name: &str) -> (Agent, Store) {
    let mut agent = Agent::prepare(name, &Runtime::shared());
    let store = Store::new(&agent.dir);
    store.listen_to(&mut agent);
    (agent, store)
}

#[test]
fn systemd_is_notified_of_readiness_status_reload_and_stop() {
    let (mut agent, mut store) = served("notify");
    agent.run();
    let said = until(&mut store, &["READY=1"]);
    assert_eq!(count(&said, "READY=1"), 1, "{said:?}");
    let ready = said.last().expect("a message");
    assert!(ready.contains("STATUS="), "{ready}");
    if !ready.contains("no pods") {
        until(&mut store, &["STATUS=no pods"]);
    }
    assert_eq!(count(&said, "WATCHDOG=1"), 0, "no watchdog is configured");

    agent.apply("one", TRAP);
    agent.apply("absent", "{containers: [{name: main, image: 'localhost/absent:1', imagePullPolicy: Never}]}");
    let said = until(&mut store, &["1 of 2 pods running; pod ", "ErrImageNeverPull"]);
    assert_eq!(count(&said, "READY=1"), 0, "once");
    agent.delete("absent");
    until(&mut store, &["STATUS=1 pod running"]);

    // A pod in CrashLoopBackOff has the phase Running but does not run.
    agent.apply("crash", "{containers: [{name: main, image: 'localhost/busybox:1.35', command: ['false']}]}");
    until(&mut store, &["1 of 2 pods running; pod ", "CrashLoopBackOff"]);
    agent.delete("crash");
    until(&mut store, &["STATUS=1 pod running"]);

    agent.hang_up();
    let said = until(&mut store, &["READY=1"]);
    let begun = said.iter().position(|m| m.starts_with("RELOADING=1 MONOTONIC_USEC=")).expect("it begins");
    let done = said.iter().position(|m| m.starts_with("READY=1")).expect("it ends");
    assert!(begun < done && count(&said, "RELOADING=1") == 1, "{said:?}");

    // An invalid configuration is not applied, and the status names the position of the error.
    agent.configure("maxPods: many\n");
    agent.hang_up();
    let file = agent.dir.join("config.yaml");
    let line = format!("; invalid configuration; keeping the previous one: {}:", file.display());
    let said = until(&mut store, &[&line, "maxPods"]);
    if count(&said, "READY=1") == 0 {
        until(&mut store, &["READY=1"]);
    }
    agent.configure("");
    agent.hang_up();
    let said = until(&mut store, &["READY=1"]);
    assert!(said.last().is_some_and(|m| m.ends_with("STATUS=1 pod running")), "{said:?}");

    assert_eq!(agent.terminate(), Some(0));
    let said = until(&mut store, &["STOPPING=1"]);
    assert!(said.last().is_some_and(|m| m.contains("pods keep running")), "{said:?}");
}

#[test]
fn systemd_hears_why_it_does_not_start() {
    let (mut agent, mut store) = served("refuse");
    agent.configure("maxPods: many\n");
    agent.launch();
    assert_eq!(agent.ended(), Some(1));
    let said = store.messages();
    let [only] = said.as_slice() else { panic!("{said:?}") };
    assert!(only.starts_with("STATUS=cannot start: the configuration has errors: "), "{only}");
    assert!(only.contains("config.yaml:6: maxPods"), "{only}");
    // Another process uses the root directory.
    agent.configure("");
    agent.run();
    until(&mut store, &["READY=1"]);
    let mut second = agent.command();
    let done = second.env("NOTIFY_SOCKET", agent.dir.join("notify")).output().expect("wherry");
    assert_eq!(done.status.code(), Some(1));
    let said = until(&mut store, &["cannot start"]);
    assert!(said.iter().any(|m| m.contains("is in use by another wherry")), "{said:?}");
}

#[test]
fn an_unavailable_runtime_delays_no_readiness_and_a_slow_one_no_watchdog_notification() {
    let runtime = Runtime::own("slow");
    runtime.kill();
    let mut agent = Agent::prepare("slow", &runtime);
    let mut store = Store::new(&agent.dir);
    store.listen_to(&mut agent);
    agent.set("WATCHDOG_USEC", "400000");
    agent.launch();
    let said = until(&mut store, &["READY=1"]);
    assert!(said.last().is_some_and(|m| m.contains("no connection to the container runtime")), "{said:?}");
    runtime.start_again();
    until(&mut store, &["STATUS=no pods"]);

    // The runtime accepts connections but does not answer.
    let pid = fs::read_to_string(&runtime.pid_file).expect("containerd.pid").trim().to_owned();
    signal(&pid, "STOP");
    agent.apply("one", TRAP);
    store.messages();
    for _ in 0..5 {
        until(&mut store, &["WATCHDOG=1"]);
    }
    signal(&pid, "CONT");
    until(&mut store, &["STATUS=1 pod running"]);
    agent.delete("one");
    agent.wait_gone("one");
}

#[test]
fn a_hung_event_loop_sends_no_watchdog_notification() {
    let (mut agent, mut store) = served("watchdog");
    agent.set("WATCHDOG_USEC", "400000");
    agent.run();
    for _ in 0..3 {
        until(&mut store, &["WATCHDOG=1"]);
    }
    let pid = agent.pid().to_string();
    signal(&pid, "STOP");
    let state = || fs::read_to_string(Path::new("/proc").join(&pid).join("stat")).expect("stat");
    agent.wait("it is stopped", |_| state().rsplit(')').next().is_some_and(|s| s.trim_start().starts_with('T')));
    store.messages();
    // Ten watchdog intervals.
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(store.messages(), Vec::<String>::new());
    signal(&pid, "CONT");
    until(&mut store, &["WATCHDOG=1"]);

    // WATCHDOG_PID names another process (the parent): then the watchdog is off.
    assert_eq!(agent.terminate(), Some(0));
    agent.set("WATCHDOG_PID", "1");
    store.messages();
    agent.run();
    until(&mut store, &["READY=1"]);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(count(&store.messages(), "WATCHDOG=1"), 0);
}

/// The target is 100 ms on a quiet machine. Waiting for the pods or for the runtime would take longer than this limit.
#[test]
fn the_agent_is_ready_immediately_with_ten_running_pods() {
    let (mut agent, mut store) = served("tenready");
    agent.run();
    let names: Vec<String> = (0..10).map(|n| format!("p{n}")).collect();
    names.iter().for_each(|name| agent.apply(name, TRAP));
    until(&mut store, &["STATUS=10 pods running"]);
    agent.kill();
    store.messages();
    let begun = Instant::now();
    agent.launch();
    until(&mut store, &["READY=1"]);
    let took = begun.elapsed();
    println!("ready after {} ms", took.as_millis());
    assert!(took < patience(10), "{took:?}");
    until(&mut store, &["STATUS=10 pods running"]);
}
