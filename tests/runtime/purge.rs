//! `wherry purge` removes everything of one Wherry and nothing of another.

use crate::support::agent::Agent;
use crate::support::lab::Runtime;
use crate::support::yaml::{TRAP, script};
use std::fs;
use std::path::Path;
use std::process::Output;

/// Uses the agent's own directories, as a package's postrm uses the defaults.
fn purge(agent: &Agent, more: &[&str]) -> Output {
    let mut command = agent.command_of("purge");
    command.args(more).output().expect("wherry")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_purge_stops_and_removes_the_pods_of_this_wherry_and_all_that_it_keeps() {
    let other = Agent::start("bystander");
    other.apply("one", TRAP);
    let mut agent = Agent::start("purge");
    let dropins = agent.dir.join("logind");
    fs::create_dir(&dropins).expect("directory");
    fs::write(dropins.join("99-wherry.conf"), "[Login]\n").expect("drop-in");
    fs::write(dropins.join("10-theirs.conf"), "[Login]\n").expect("drop-in");
    let ours =
        format!("apiVersion: wherry.io/v1alpha1\nkind: WherryConfiguration\nlogindConfDir: {}\n", dropins.display());
    fs::write(agent.dir.join("config.d/logind.yaml"), ours).expect("config");
    agent.apply("kind", TRAP);
    // Ignores SIGTERM: SIGKILL follows after its grace period of 2 s.
    agent.apply("deaf", &script("Always", "trap '' TERM; while :; do sleep 0.1; done"));
    agent.apply("over", &script("Never", "exit 0"));
    let uids: Vec<String> = ["kind", "deaf"].map(|name| uid(&agent.wait_running(name))).into();
    agent.wait_phase("over", "Succeeded");
    other.wait_running("one");

    // Refused while the agent runs, because the agent would start the pods again.
    let refused = purge(&agent, &["--yes"]);
    assert_eq!(refused.status.code(), Some(1), "{}", err(&refused));
    assert!(err(&refused).contains("is in use by another wherry (pid"), "{}", err(&refused));
    assert_eq!(agent.terminate(), Some(0));

    // Without --yes it only lists the pods.
    let said = purge(&agent, &[]);
    let lines: Vec<String> = out(&said).lines().map(|l| l.replace(&agent.namespace, "NS")).collect();
    assert_eq!(
        lines,
        ["NS/deaf  1 container running", "NS/kind  1 container running", "NS/over  0 containers running"]
    );
    assert!(err(&said).contains("3 pods; --yes"), "{}", err(&said));
    assert!(agent.running("kind", "main").is_some() && agent.running("deaf", "main").is_some());

    fs::create_dir_all(agent.root().join("claims/shop/data")).expect("directories");
    let done = purge(&agent, &["--yes"]);
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
    assert!(out(&done).contains("kept the directories of claims in"), "{}", out(&done));
    assert_eq!(names(&agent.root()), ["claims"]);
    fs::remove_dir_all(agent.root()).expect("the directory");
    for name in ["kind", "deaf", "over"] {
        let line = format!("stopped and removed pod {}/{name}\n", agent.namespace);
        assert_eq!(out(&done).matches(&line).count(), 1, "{}", out(&done));
        assert!(agent.sandboxes(name).is_empty() && agent.containers(name).is_empty(), "{name}");
    }
    for uid in uids {
        assert!(agent.cgroups(&uid).is_empty(), "{:?}", agent.cgroups(&uid));
    }
    assert!(!agent.root().exists(), "the state is gone");
    assert_eq!(names(&agent.dir.join("log/pods")), Vec::<String>::new());
    assert_eq!(names(&agent.dir.join("log/containers")), Vec::<String>::new());
    assert_eq!(names(&dropins), ["10-theirs.conf"]);
    // The operator's manifests stay.
    assert_eq!(names(&agent.manifests()), ["deaf.yaml", "kind.yaml", "over.yaml"]);
    assert!(other.running("one", "main").is_some());

    let again = purge(&agent, &["--yes"]);
    assert_eq!((again.status.code(), out(&again).as_str()), (Some(0), ""), "{}", err(&again));
}

#[test]
fn without_a_runtime_a_purge_fails_and_keeps_the_state() {
    let runtime = Runtime::own("purge");
    let mut agent = Agent::prepare("purgeaway", &runtime);
    agent.run();
    agent.apply("one", TRAP);
    agent.wait_running("one");
    assert_eq!(agent.terminate(), Some(0));
    // The directory `purge`, which belongs to the package, stays.
    fs::create_dir(agent.root().join("purge")).expect("directory");
    runtime.kill();
    let failed = purge(&agent, &["--yes", "--timeout", "2s"]);
    assert_eq!(failed.status.code(), Some(1), "{}", err(&failed));
    assert!(err(&failed).contains("the container runtime on unix://"), "{}", err(&failed));
    assert!(err(&failed).contains("is kept; fix these errors and try again"), "{}", err(&failed));
    assert!(agent.root().join("id").exists());

    runtime.start_again();
    let done = purge(&agent, &["--yes"]);
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
    assert!(agent.sandboxes("one").is_empty());
    assert_eq!(names(&agent.root()), ["purge"]);
}

fn uid(pod: &serde_json::Value) -> String {
    pod["metadata"]["uid"].as_str().expect("a UID").to_owned()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
