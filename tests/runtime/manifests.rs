//! Changes and errors of manifests.

use crate::support::agent::{Agent, patience};
use crate::support::fuse::Fuse;
use crate::support::yaml::{self, TRAP};
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Instant;

fn status(agent: &Agent) -> String {
    String::from_utf8_lossy(&agent.wherry(&["status"]).stdout).into_owned()
}

#[test]
fn a_bad_manifest_is_reported_and_affects_no_other_pod() {
    let agent = Agent::start("bad");
    let pod = |name: &str, spec: &str| yaml::pod(&agent.namespace, name, spec);
    agent.write("good.yaml", &pod("good", TRAP));
    agent.write("syntax.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: [\n");
    agent.write("unknown.yaml", &pod("unknown", "contaners: []"));
    agent.write("type.yaml", &pod("type", "containers: {name: main}"));
    let quantity = "containers: [{name: main, image: localhost/trap:1, resources: {limits: {memory: 12Q}}}]";
    agent.write("quantity.yaml", &pod("quantity", quantity));
    let volumes = "volumes: [{name: v, nfs: {server: s, path: /}}]\n\
                   containers: [{name: main, image: localhost/trap:1}]";
    agent.write("volume.yaml", &pod("volume", volumes));
    let deep = format!("a: {}{}", "[".repeat(5000), "]".repeat(5000));
    agent.write("deep.yaml", &deep);
    fs::create_dir(agent.manifests().join("directory.yaml")).expect("directory");
    symlink("loop.yaml", agent.manifests().join("loop.yaml")).expect("link");
    let fifo = Command::new("mkfifo").arg(agent.manifests().join("fifo.yaml")).status();
    assert!(fifo.expect("mkfifo").success());
    agent.write("later.yaml", &pod("later", TRAP));

    agent.wait_running("good");
    agent.wait_running("later");
    agent.wait("every bad file is reported", |a| {
        let status = status(a);
        let files = ["syntax.yaml", "unknown.yaml", "type.yaml", "quantity.yaml", "volume.yaml", "deep.yaml"];
        files.iter().all(|f| status.contains(f))
    });
    let status = status(&agent);
    assert!(status.contains("contaners"), "it names the field: {status}");
    assert_eq!(agent.pods().len(), 2);

    // After the correction the pod runs, and the error is no longer reported.
    agent.write("unknown.yaml", &pod("unknown", TRAP));
    agent.wait_running("unknown");
    agent.wait("no longer reported", |a| !self::status(a).contains("contaners"));
}

#[test]
fn a_broken_edit_keeps_the_last_good_version_over_a_restart() {
    let mut agent = Agent::start("broken");
    agent.apply("web", TRAP);
    agent.wait_running("web");
    let id = agent.running("web", "main");
    agent.write("web.yaml", "kind: Pod\n  broken");
    agent.wait("it is reported", |a| status(a).contains("web.yaml"));
    assert_eq!(agent.running("web", "main"), id);
    agent.kill();
    agent.run();
    agent.wait("it is reported again", |a| status(a).contains("web.yaml"));
    agent.wait_running("web");
    assert_eq!(agent.running("web", "main"), id);
}

#[test]
fn files_in_place_several_documents_and_lists_are_read() {
    let agent = Agent::start("forms");
    let ns = agent.namespace.clone();
    // Written in place, not renamed.
    fs::write(agent.manifests().join("place.yaml"), yaml::pod(&ns, "place", TRAP)).expect("write");
    agent.write("two.yaml", &format!("{}---\n{}", yaml::pod(&ns, "a", TRAP), yaml::pod(&ns, "b", TRAP)));
    let list = format!(
        r#"{{"apiVersion":"v1","kind":"List","items":[{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"c","namespace":"{ns}"}},
        "spec":{{"containers":[{{"name":"main","image":"localhost/trap:1"}}]}}}}]}}"#
    );
    agent.write("list.json", &list);
    agent.write(".hidden.yaml", &yaml::pod(&ns, "hidden", TRAP));
    agent.write("backup.yaml~", &yaml::pod(&ns, "backup", TRAP));
    for name in ["place", "a", "b", "c"] {
        agent.wait_running(name);
    }
    assert_eq!(agent.pods().len(), 4, "dot files and editors' copies are none");
    // A document that is removed from its file removes its pod.
    agent.write("two.yaml", &yaml::pod(&ns, "a", TRAP));
    agent.wait_gone("b");
    assert!(agent.running("a", "main").is_some());
}

#[test]
fn of_two_pods_with_one_name_the_one_that_runs_wins() {
    let agent = Agent::start("name");
    let ns = agent.namespace.clone();
    agent.write("b.yaml", &yaml::pod(&ns, "web", TRAP));
    agent.wait_running("web");
    let id = agent.running("web", "main");
    let other = "containers: [{name: main, image: localhost/trap:1, args: [second]}]";
    agent.write("a.yaml", &yaml::pod(&ns, "web", other));
    agent.wait("the other is an error", |a| status(a).contains("a.yaml"));
    assert_eq!(agent.running("web", "main"), id);
    assert_eq!(agent.pods().len(), 1);
}

#[test]
fn the_directory_can_be_removed_and_recreated() {
    let agent = Agent::start("directory");
    agent.apply("web", TRAP);
    agent.wait_running("web");
    let id = agent.running("web", "main");
    let away = agent.dir.join("away");
    fs::rename(agent.manifests(), &away).expect("rename");
    agent.wait("it is reported", |a| status(a).contains("manifests"));
    assert_eq!(agent.running("web", "main"), id, "a missing directory stops nothing");
    fs::rename(&away, agent.manifests()).expect("rename");
    agent.apply("later", TRAP);
    agent.wait_running("later");
    assert_eq!(agent.running("web", "main"), id);
    agent.delete("web");
    agent.wait_gone("web");
}

#[test]
fn pods_keep_running_if_wherry_starts_before_the_directory_exists() {
    let mut agent = Agent::start("late-directory");
    agent.apply("web", TRAP);
    agent.wait_running("web");
    let id = agent.running("web", "main");
    let away = agent.dir.join("away");
    agent.kill();
    fs::rename(agent.manifests(), &away).expect("rename");
    agent.run();
    agent.wait("it is reported", |a| status(a).contains("cannot be read"));
    agent.wait_running("web");
    assert_eq!(agent.running("web", "main"), id);
    fs::rename(&away, agent.manifests()).expect("rename");
    agent.wait("the error is corrected", |a| status(a).contains("no errors"));
    assert_eq!(agent.running("web", "main"), id);
}

#[test]
fn the_log_and_the_status_show_the_outcome_of_a_pod() {
    let agent = Agent::start("told");
    let spec = "containers: [{name: main, image: localhost/busybox:1.35, command: [sh, -c, 'echo why >/dev/termination-log; exit 3']}]";
    agent.apply("crash", spec);
    let name = format!("pod={}/crash", agent.namespace);
    agent.wait("its end is logged with code and message", |a| {
        a.log().lines().any(|l| l.contains(&name) && l.contains("exit_code=3") && l.contains("message=\"why\""))
    });
    agent.wait("the status says what it waits for", |a| status(a).contains("/crash: main: CrashLoopBackOff"));
    agent.delete("crash");
    agent.wait("its removal is logged", |a| a.log().contains(&format!("{name} reason=Removed")));
    assert_eq!(agent.log().matches("reason=Removed").count(), 1, "once");
}

/// Healthy, and `wherry status` reports the hang.
fn is_well(agent: &Agent) -> bool {
    agent.get("/healthz").is_ok_and(|r| r.status == 200) && status(agent).contains("does not respond")
}

#[test]
fn d1_a_manifest_on_a_file_system_that_hangs_stops_nothing_else() {
    let mut agent = Agent::start("hung");
    let point = agent.dir.join("hung");
    fs::create_dir(&point).expect("mount point");
    let fuse = Fuse::mount(&point);
    fuse.put("far.yaml", &yaml::pod(&agent.namespace, "far", TRAP));
    fuse.put("other.yaml", &yaml::pod(&agent.namespace, "other", TRAP));
    symlink(point.join("far.yaml"), agent.manifests().join("far.yaml")).expect("link");
    agent.apply("near", TRAP);
    agent.wait_running("far");
    agent.wait_running("near");
    let (far, near) = (agent.running("far", "main"), agent.running("near", "main"));

    // The file hangs while Wherry runs.
    fuse.hang("far.yaml");
    agent.hang_up();
    agent.wait("it is reported", is_well);
    agent.apply("later", TRAP);
    agent.wait_running("later");
    symlink(point.join("other.yaml"), agent.manifests().join("other.yaml")).expect("link");
    agent.wait_running("other");

    // The file hangs when Wherry starts. Before that, the running process ends at once despite the hang, so its locks
    // and its socket are free.
    let begin = Instant::now();
    assert_eq!(agent.terminate(), Some(0));
    assert!(begin.elapsed() < patience(10), "it took {:?} to end", begin.elapsed());
    agent.run();
    agent.wait("it is reported again", is_well);
    agent.kill();
    agent.run();
    agent.wait("and after a kill", is_well);
    agent.delete("later");
    agent.wait_gone("later");
    assert_eq!((agent.running("far", "main"), agent.running("near", "main")), (far, near.clone()), "as it last said");

    // The file answers again.
    fuse.answer_again("far.yaml");
    drop(fuse);
    let fuse = Fuse::mount(&point);
    fuse.put("far.yaml", &yaml::pod(&agent.namespace, "mended", TRAP));
    fuse.put("other.yaml", &yaml::pod(&agent.namespace, "other", TRAP));
    agent.wait_running("mended");
    agent.wait_gone("far");
    assert_eq!(agent.running("near", "main"), near);
    fs::remove_file(agent.manifests().join("far.yaml")).expect("remove the link");
    fs::remove_file(agent.manifests().join("other.yaml")).expect("remove the link");
    agent.wait_gone("mended");
}

#[test]
fn d2_a_hung_manifest_directory_keeps_its_last_known_pods() {
    let agent = Agent::start("hung-directory");
    let fuse = Fuse::mount(&agent.manifests());
    let pod = |name: &str| yaml::pod(&agent.namespace, name, TRAP);
    fuse.put("a.yaml", &pod("a"));
    fuse.put("b.yaml", &pod("b"));
    agent.wait_running("a");
    agent.wait_running("b");
    let ids = (agent.running("a", "main"), agent.running("b", "main"));
    // One file hangs.
    fuse.hang("b.yaml");
    agent.wait_long("it is reported", 120, |a| is_well(a).then_some(()));
    fuse.put("a.yaml", &pod("a2"));
    agent.wait_long("the other file is read", 120, |a| a.pod("a2"));
    agent.wait_gone("a");
    // The whole file system hangs.
    fuse.hang("");
    agent.wait_long("it is reported", 120, |a| {
        let status = status(a);
        (status.contains("does not respond") && status.contains("the last known pods stay in force")).then_some(())
    });
    assert_eq!(agent.running("b", "main"), ids.1);
    drop(fuse);
    agent.wait_long("the directory below is empty, and not the right one", 120, |a| {
        status(a).contains("is not mounted").then_some(())
    });
    assert_eq!(agent.running("b", "main"), ids.1);
}

#[test]
fn d2_a_file_system_that_is_mounted_over_manifests_or_unmounted_is_noticed() {
    let agent = Agent::start("mounted");
    agent.apply("below", TRAP);
    agent.wait_running("below");
    let other = agent.dir.join("other");
    fs::create_dir(&other).expect("directory");
    fs::write(other.join("above.yaml"), yaml::pod(&agent.namespace, "above", TRAP)).expect("manifest");
    let run = |program: &str, arguments: &[&std::ffi::OsStr]| {
        assert!(Command::new(program).args(arguments).status().expect(program).success());
    };
    let manifests = agent.manifests();
    run("mount", &["--bind".as_ref(), other.as_os_str(), manifests.as_os_str()]);
    agent.wait_running("above");
    agent.wait_gone("below");
    run("umount", &[manifests.as_os_str()]);
    agent.wait_running("below");
    agent.wait_gone("above");
    // The target of a link.
    symlink(&other, agent.dir.join("link")).expect("link");
    let target = agent.dir.join("target");
    fs::create_dir(&target).expect("directory");
    fs::write(target.join("above.yaml"), yaml::pod(&agent.namespace, "linked", TRAP)).expect("manifest");
    symlink(agent.dir.join("link/above.yaml"), manifests.join("linked.yaml")).expect("link");
    agent.wait_running("above");
    run("mount", &["--bind".as_ref(), target.as_os_str(), other.as_os_str()]);
    agent.wait_running("linked");
    run("umount", &[other.as_os_str()]);
    agent.wait_running("above");
}

#[test]
fn d2_a_link_in_the_middle_that_is_swapped_is_noticed() {
    let agent = Agent::start("swapped");
    let place = |name: &str| agent.dir.join("releases").join(name);
    for (release, name) in [("rel1", "one"), ("rel2", "two")] {
        fs::create_dir_all(place(release)).expect("directory");
        fs::write(place(release).join("a.yaml"), yaml::pod(&agent.namespace, name, TRAP)).expect("manifest");
    }
    symlink("rel1", place("current")).expect("link");
    symlink("../releases/current/a.yaml", agent.manifests().join("a.yaml")).expect("link");
    agent.wait_running("one");
    symlink("rel2", place("aside")).expect("link");
    fs::rename(place("aside"), place("current")).expect("rename");
    agent.wait_running("two");
    agent.wait_gone("one");
}
