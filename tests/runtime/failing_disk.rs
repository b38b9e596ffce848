//! The root directory on a file system that fails in operation, is unmounted, or appears late: pods go on, the error is
//! shown, and Wherry continues by itself when the file system is right again.

use super::trouble::identity;
use crate::support::agent::{Agent, make_cgroup};
use crate::support::lab::{Runtime, run, signal, text};
use crate::support::on_disk::OnDisk;
use crate::support::yaml::TRAP;
use std::fs;
use std::path::Path;
use std::time::Duration;

fn events(agent: &Agent) -> String {
    String::from_utf8_lossy(&agent.wherry(&["events"]).stdout).into_owned()
}

/// Starts an agent with the pods `web` and `gone` on a file system of its own.
fn with_pods(name: &str) -> OnDisk {
    let mut on = OnDisk::prepare(name);
    start_pods(&mut on);
    on
}

fn start_pods(on: &mut OnDisk) {
    // Otherwise the pods of a small disk are evicted.
    on.agent.configure("evictionHard: {memory.available: 1Mi}\n");
    on.agent.run();
    for pod in ["web", "gone"] {
        on.agent.apply(pod, TRAP);
    }
    for pod in ["web", "gone"] {
        on.agent.wait_running(pod);
    }
}

/// Returns the number of records of pods. All must be valid.
fn number_of_records(agent: &Agent) -> usize {
    let records = fs::read_dir(agent.root().join("records/pods")).expect("records").flatten();
    let names: Vec<String> = records.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    assert!(!names.iter().any(|name| name.ends_with(".corrupt")), "{names:?}");
    names.len()
}

/// Adds a pod, whose record cannot be written. Checks that this is an event, and makes no storm of attempts.
fn a_new_pod_lacks_its_record(agent: &Agent, why: &str) {
    agent.apply("new", TRAP);
    agent.wait("the error is an event", |agent| {
        let said = events(agent);
        said.lines().any(|line| line.contains("FailedRecord") && line.contains(why))
    });
    std::thread::sleep(Duration::from_secs(5));
    let attempts = agent.log().matches("FailedRecord").count();
    assert!(attempts < 20, "{attempts} lines about records: {}", agent.log());
    assert_eq!(agent.get("/healthz").expect("/healthz").status, 200);
}

#[test]
fn a_disk_that_becomes_read_only_stops_no_pod_and_needs_no_restart_afterwards() {
    let mut on = with_pods("readonly");
    let before = identity(&on.agent, "web");
    on.remount("ro");
    a_new_pod_lacks_its_record(&on.agent, "Read-only file system");
    assert!(on.agent.running("new", "main").is_none(), "its directories cannot be created");
    assert_eq!(identity(&on.agent, "web"), before);
    // A container that ends is restarted, and a pod whose manifest is gone stops.
    signal(&before.1.to_string(), "KILL");
    on.agent.wait("it is restarted", |agent| agent.running("web", "main").is_some_and(|id| id != before.0));
    on.agent.delete("gone");
    on.agent.wait("it has stopped", |agent| agent.running("gone", "main").is_none());

    on.remount("rw");
    on.agent.wait_running("new");
    on.agent.wait_gone("gone");
    on.agent.wait_running("web");
    let now = ["web", "new"].map(|pod| identity(&on.agent, pod));
    on.agent.kill();
    on.agent.run();
    on.agent.wait_running("new");
    on.agent.wait_running("web");
    assert_eq!(["web", "new"].map(|pod| identity(&on.agent, pod)), now);
    assert_eq!(number_of_records(&on.agent), 2);
}

#[test]
fn an_error_of_the_file_system_stops_no_pod_and_a_repair_at_the_next_boot_loses_none() {
    let runtime = Runtime::own("fserror");
    let mut on = OnDisk::prepare_on("fserror", &runtime);
    start_pods(&mut on);
    let before = identity(&on.agent, "web");
    // The kernel finds an error, aborts the journal and remounts the file system read-only.
    let name = on.device().file_name().expect("a name").to_owned();
    fs::write(Path::new("/sys/fs/ext4").join(name).join("trigger_fs_error"), "1").expect("an ext4");
    a_new_pod_lacks_its_record(&on.agent, "file system");
    on.agent.kill();
    on.agent.run();
    on.agent.wait_running("web");
    assert_eq!(identity(&on.agent, "web"), before, "it is adopted from records on a broken disk");
    signal(&before.1.to_string(), "KILL");
    on.agent.wait("it is restarted", |agent| agent.running("web", "main").is_some_and(|id| id != before.0));

    // The machine reboots, which checks the file system. Running pods would keep it in use.
    on.agent.kill();
    runtime.cut_power();
    on.unmount();
    on.mount_repaired();
    runtime.start_again();
    make_cgroup(&on.agent.cgroup);
    on.agent.run();
    for pod in ["web", "gone", "new"] {
        on.agent.wait_running(pod);
    }
    assert_eq!(number_of_records(&on.agent), 3);
}

#[test]
fn an_unmounted_root_directory_gets_no_records_and_is_used_again_when_it_is_back() {
    let mut on = with_pods("unmounted");
    let before = identity(&on.agent, "web");
    on.unmount();
    a_new_pod_lacks_its_record(&on.agent, "mount its file system again");
    // A pod starts although its record cannot be written.
    on.agent.wait_running("new");
    let below = on.agent.root();
    assert!(!below.join("records").exists() && !below.join("manifests").exists(), "in the directory below the mount");
    on.mount();
    on.agent.wait("its record is written", |agent| number_of_records(agent) == 3);
    let now = ["web", "new"].map(|pod| identity(&on.agent, pod));
    assert_eq!(now[0], before);
    on.agent.kill();
    on.agent.run();
    on.agent.wait_running("new");
    assert_eq!(["web", "new"].map(|pod| identity(&on.agent, pod)), now);
}

/// Lists the file system in /etc/fstab, which only the lab sees.
fn list_in_fstab(on: &OnDisk) {
    let file = on.agent.dir.join("fstab");
    let line = format!("{} {} ext4 loop,nofail 0 0\n", on.image().display(), on.agent.root().display());
    fs::write(&file, line).expect("fstab");
    run("mount", &["--bind", text(&file), "/etc/fstab"]);
}

#[test]
fn the_agent_waits_for_the_file_system_of_its_root_directory() {
    if !Path::new("/etc/fstab").exists() {
        eprintln!("skipped: this machine has no /etc/fstab");
        return;
    }
    let mut on = with_pods("late");
    let before = identity(&on.agent, "web");
    on.agent.terminate();
    on.unmount();
    list_in_fstab(&on);
    on.agent.launch();
    let root = on.agent.root();
    let why = format!("waiting for the root directory: /etc/fstab has a file system for {}", root.display());
    on.agent.wait("it waits", |agent| agent.log().contains(&why));
    let check = on.agent.command_of("check").arg("--system").output().expect("wherry check");
    let shown = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(shown.contains("that is not mounted; wherry waits for it"), "{shown}");
    assert_eq!(fs::read_dir(&root).expect("a directory").count(), 0, "nothing is written below the mount point");
    on.mount();
    on.agent.wait("healthy", |agent| agent.get("/healthz").is_ok_and(|answer| answer.status == 200));
    on.agent.wait_running("web");
    assert_eq!(identity(&on.agent, "web"), before);
    run("umount", &["/etc/fstab"]);
}
