//! W21: other owners with pods under the UID of a pod of ours: an agent with another root directory, and a kubelet.

use crate::support::agent::{Agent, uid};
use crate::support::cri::{ContainerConfig, PodSandboxConfig};
use crate::support::yaml::{TRAP, pod};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

/// The other owner's container, and the objects named after the UID.
struct Theirs {
    container: String,
    pid: u32,
    log: PathBuf,
    cgroups: Vec<PathBuf>,
}

impl Theirs {
    fn assert_untouched(&self, agent: &Agent, uid: &str) {
        let mut cri = agent.cri();
        assert_eq!(cri.container_pid(&self.container), self.pid);
        assert!(PathBuf::from(format!("/proc/{}", self.pid)).exists(), "its process is gone");
        assert!(self.log.exists(), "{:?}", self.log);
        let there: BTreeSet<PathBuf> = agent.cgroups(uid).into_iter().collect();
        assert!(!self.cgroups.is_empty() && self.cgroups.iter().all(|c| there.contains(c)), "{there:?}");
    }
}

fn wait_for_the_uid(agent: &Agent, name: &str) -> Value {
    agent.wait_for("it waits for its UID", |a| a.pod(name).filter(|p| p["status"]["reason"] == "UIDInUse"))
}

/// Removes the manifest and waits until Wherry no longer shows the pod.
fn remove(agent: &Agent, name: &str) {
    agent.delete(name);
    agent.wait("it is no longer shown", |a| a.pod(name).is_none());
}

#[test]
fn w21_a_new_root_directory_with_the_same_manifests_does_not_affect_the_pods_of_the_old_one() {
    let mut agent = Agent::start("newroot");
    agent.apply("web", TRAP);
    let web = agent.wait_running("web");
    let uid = uid(&web);
    let container = agent.running("web", "main").expect("runs");
    let sandbox = agent.sandboxes("web").remove(0).id;
    let pid = agent.cri().container_pid(&container);
    let theirs = Theirs { container, pid, log: agent.log_path(&web, "main", 0), cgroups: agent.cgroups(&uid) };
    agent.terminate();
    fs::rename(agent.root(), agent.dir.join("old-root")).expect("the old root directory");
    fs::create_dir(agent.root()).expect("a new root directory");

    agent.run();
    let waits = wait_for_the_uid(&agent, "web");
    let message = waits["status"]["message"].as_str().unwrap_or_default();
    assert!(message.contains(&format!("the UID {uid} is in use by sandbox {sandbox} of another Wherry")), "{message}");
    theirs.assert_untouched(&agent, &uid);
    // Neither the removal of the manifest nor a restart changes the other owner's objects.
    remove(&agent, "web");
    theirs.assert_untouched(&agent, &uid);
    agent.apply("web", TRAP);
    wait_for_the_uid(&agent, "web");
    agent.kill();
    agent.run();
    wait_for_the_uid(&agent, "web");
    theirs.assert_untouched(&agent, &uid);

    // When the other pod has ended, ours starts.
    agent.cri().remove_sandbox(&sandbox);
    let own = agent.wait_long("a container of our own runs", 60, |a| a.running("web", "main"));
    assert_ne!(own, theirs.container);
    agent.delete("web");
    agent.wait_gone("web");
    agent.wait("its cgroup is gone", |a| a.cgroups(&uid).is_empty());
}

/// A pod as a kubelet creates it from a manifest with this UID: a different name, the same log directory and cgroup.
fn kubelets_pod(agent: &Agent, name: &str, uid: &str) -> (String, Theirs) {
    let mut sandbox = PodSandboxConfig::new();
    let metadata = sandbox.metadata.mut_or_insert_default();
    metadata.name = format!("{name}-node");
    metadata.namespace.clone_from(&agent.namespace);
    metadata.uid = uid.to_owned();
    let logs = agent.dir.join("log/pods").join(format!("{}_{name}_{uid}", agent.namespace));
    sandbox.log_directory = logs.to_string_lossy().into_owned();
    let parent = format!("{}/kubepods/besteffort/pod{uid}", agent.cgroup);
    sandbox.linux.mut_or_insert_default().cgroup_parent = parent;
    for (key, value) in [
        ("io.kubernetes.pod.name", format!("{name}-node")),
        ("io.kubernetes.pod.namespace", agent.namespace.clone()),
        ("io.kubernetes.pod.uid", uid.to_owned()),
    ] {
        sandbox.labels.insert(key.to_owned(), value);
    }
    sandbox.annotations.insert("kubernetes.io/config.source".to_owned(), "file".to_owned());
    let mut cri = agent.cri();
    let id = cri.run_sandbox(&sandbox);
    let mut config = ContainerConfig::new();
    config.metadata.mut_or_insert_default().name = "main".into();
    config.image.mut_or_insert_default().image = "localhost/trap:1".into();
    config.log_path = "kubelets.log".into();
    config.labels.clone_from(&sandbox.labels);
    config.labels.insert("io.kubernetes.container.name".to_owned(), "main".to_owned());
    let container = cri.create_container(&id, &config, &sandbox);
    cri.start_container(&container);
    let pid = cri.container_pid(&container);
    let theirs = Theirs { container, pid, log: logs.join("kubelets.log"), cgroups: agent.cgroups(uid) };
    (id, theirs)
}

#[test]
fn w21_a_kubelets_pod_that_shares_the_uid_of_a_manifest_is_left_alone() {
    let agent = Agent::start("kubelet");
    let with_uid = |name: &str, uid: &str| {
        let text = pod(&agent.namespace, name, TRAP).replace("metadata:\n", &format!("metadata:\n  uid: {uid}\n"));
        agent.write(&format!("{name}.yaml"), &text);
    };
    // The kubelet's pod was first.
    let (first, theirs) = kubelets_pod(&agent, "web", "one-uid");
    with_uid("web", "one-uid");
    wait_for_the_uid(&agent, "web");
    remove(&agent, "web");
    theirs.assert_untouched(&agent, "one-uid");

    // Our pod was first.
    with_uid("db", "other-uid");
    agent.wait_running("db");
    let own = agent.running("db", "main").expect("runs");
    let (second, theirs) = kubelets_pod(&agent, "db", "other-uid");
    let pid = agent.cri().container_pid(&own);
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(agent.running("db", "main"), Some(own.clone()));
    assert_eq!(agent.cri().container_pid(&own), pid);
    agent.delete("db");
    agent.wait("ours is gone", |a| a.pod("db").is_none() && a.containers("db").is_empty());
    theirs.assert_untouched(&agent, "other-uid");
    for id in [first, second] {
        agent.cri().remove_sandbox(&id);
    }
}
