//! The root directory's disk is full or read-only for a while; records are damaged or have another version.

use super::exact::{self, wait_exact};
use super::{all_run, identities};
use crate::support::agent::Agent;
use crate::support::lab::{Runtime, run, text};
use crate::support::yaml::TRAP;
use std::fs;
use std::path::Path;
use wherry::engine::effect::RecordChange;

const LIVES: [&str; 2] = ["lives-0", "lives-1"];

/// An agent whose root directory is a small file system of its own, with running pods.
fn agent(name: &str) -> Agent {
    let mut agent = Agent::prepare(name, &Runtime::shared());
    run("mount", &["-t", "tmpfs", "-o", "size=2m,mode=755", "tmpfs", text(&agent.root())]);
    // Without thresholds for the disk, so that Wherry itself is what a full one must not disturb.
    agent.configure("evictionHard: {memory.available: 1Mi}\n");
    agent.run();
    for name in LIVES.iter().chain(&["goes"]) {
        agent.apply(name, TRAP);
    }
    let mut desired = all_run(&LIVES);
    desired.extend(all_run(&["goes"]));
    wait_exact(&agent, &desired);
    agent
}

/// One pod is removed, another is added, and Wherry is killed, while nothing can be written. `brim` ensures that after
/// the removal, `again` makes the disk writable again.
fn survives(mut agent: Agent, error: &str, brim: impl Fn(&Agent), again: impl FnOnce(&Agent)) {
    let before = identities(&agent, &LIVES);
    agent.delete("goes");
    agent.wait("it is stopped", |a| a.running("goes", "main").is_none());
    agent.kill();
    agent.run();
    brim(&agent);
    agent.apply("comes", TRAP);
    for name in LIVES {
        agent.wait_running(name);
    }
    agent.wait("the log says why", |a| {
        a.log().lines().any(|l| l.contains("/comes ") && l.contains(error) && l.contains("WARN"))
    });
    assert!(agent.running("comes", "main").is_none());
    assert_eq!(identities(&agent, &LIVES), before);
    // An edited pod continues to run: its new version could not start.
    agent.apply(LIVES[0], &format!("{TRAP}\n    terminationGracePeriodSeconds: 7\n"));
    agent.wait("the log has the reason and the remedy", |a| {
        let parts =
            ["/lives-0 ", "the old version continues", error, "records/pods/", "make the root directory writable"];
        a.log().lines().any(|l| parts.iter().all(|part| l.contains(part)))
    });
    assert_eq!(identities(&agent, &LIVES), before);
    again(&agent);
    agent.wait("its successor runs", |a| {
        a.pod(LIVES[0]).is_some_and(|p| p["spec"]["terminationGracePeriodSeconds"] == 7)
            && a.containers(LIVES[0]).len() == 1
    });
    agent.wait_running(LIVES[0]);
    let now = identities(&agent, &LIVES);
    let same = now.iter().filter(|(name, id)| before.get(*name) == Some(*id)).count();
    assert_eq!(same, 1, "the other one runs on: {before:?} {now:?}");
    let before = now;
    let mut desired = all_run(&LIVES);
    desired.extend(all_run(&["comes"]));
    wait_exact(&agent, &desired);
    agent.kill();
    agent.run();
    wait_exact(&agent, &desired);
    assert_eq!(identities(&agent, &LIVES), before);
    for name in desired.keys() {
        agent.delete(name);
    }
    wait_exact(&agent, &exact::Desired::new());
    agent.kill();
    run("umount", &["-l", text(&agent.root())]);
}

#[test]
fn a_full_disk_stops_no_pod_and_waiting_pods_start_once_it_has_space() {
    let agent = agent("full");
    let filler = agent.root().join("filler");
    let fill = || {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(&filler).expect("filler");
        let full = std::io::Write::write_all(&mut file, &vec![0; 4 << 20]);
        assert!(full.is_err_and(|e| e.kind() == std::io::ErrorKind::StorageFull));
    };
    fill();
    // Fills the space that the removed pod has freed.
    let brim = |agent: &Agent| {
        agent.wait_gone("goes");
        agent.wait("its directory is gone", |a| exact::names(&a.root().join("pods")).len() == LIVES.len());
        agent.wait("its record is gone", |a| exact::names(&a.root().join("records/pods")).len() == LIVES.len());
        fill();
    };
    survives(agent, "No space left", brim, |_| fs::remove_file(&filler).expect("remove"));
}

#[test]
fn a_disk_that_is_read_only_for_a_while_stops_no_pod_and_loses_none() {
    let agent = agent("readonly");
    // A bind mount on itself: only so can a file system with open files become read-only.
    let root = agent.root();
    run("mount", &["--bind", text(&root), text(&root)]);
    run("mount", &["-o", "remount,bind,ro", text(&root)]);
    assert!(fs::write(root.join("x"), "").is_err());
    survives(agent, "Read-only file system", |_| (), |a| run("umount", &["-l", text(&a.root())]));
}

#[test]
fn records_that_cannot_be_read_are_set_aside_and_their_pods_run_on() {
    let mut agent = Agent::start("records");
    let pods = ["cut", "old", "older", "well"];
    for name in pods {
        agent.apply(name, TRAP);
    }
    let desired = all_run(&pods);
    wait_exact(&agent, &desired);
    let before = identities(&agent, &pods);
    let records = agent.root().join("records/pods");
    let file = |agent: &Agent, name: &str| {
        let uid = crate::support::agent::uid(&agent.pod(name).expect("listed"));
        records.join(format!("{uid}.json"))
    };
    let files: Vec<_> = pods.iter().map(|name| file(&agent, name)).collect();
    agent.kill();
    let text = fs::read_to_string(&files[0]).expect("record");
    fs::write(&files[0], &text[..text.len() / 2]).expect("cut");
    // One file has an old version, and another has valid framing around an old record.
    let text = fs::read_to_string(&files[1]).expect("record");
    fs::write(&files[1], text.replacen("\"version\":1", "\"version\":0", 1)).expect("old");
    let own = wherry::adapters::records::Records::open(&agent.root(), None).expect("records");
    let uid = files[2].file_stem().expect("a name").to_string_lossy().into_owned();
    let value = "{\"version\":0,\"of\":\"another time\"}".to_owned();
    own.make(&[RecordChange::Put { key: format!("pods/{uid}"), value }]).remove(0).expect("older");
    agent.run();
    for (name, file) in pods.iter().zip(&files).take(3) {
        let aside = format!("{}.corrupt", file.display());
        agent.wait(&format!("the record of {name} is set aside"), |_| Path::new(&aside).exists());
        assert!(
            agent.log().lines().any(|l| l.contains("WARN") && l.contains("set aside") && l.contains(&aside)),
            "{name}: {aside}"
        );
        fs::remove_file(&aside).expect("remove");
    }
    wait_exact(&agent, &desired);
    assert_eq!(identities(&agent, &pods), before);
}
