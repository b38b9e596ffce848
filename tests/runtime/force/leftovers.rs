//! Leftovers of a previous run or of another program, and files that another program removed.

use super::exact::{Desired, names, wait_exact};
use super::{all_run, identities};
use crate::support::agent::{Agent, container, uid};
use crate::support::lab::Runtime;
use crate::support::yaml::TRAP;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use wherry::adapters::host::cni_cache::RESULTS;

#[test]
fn a_start_removes_only_the_directories_of_unknown_pods() {
    let mut agent = Agent::start("leftover");
    agent.apply("web", TRAP);
    wait_exact(&agent, &all_run(&["web"]));
    let before = identities(&agent, &["web"]);
    agent.kill();
    // The state after a kill between the creation of a pod's directories and of its record.
    let (pods, logs) = (agent.root().join("pods"), agent.dir.join("log/pods"));
    fs::create_dir_all(pods.join("0123/containers")).expect("directory");
    fs::create_dir_all(logs.join(format!("{}_lost_0123", agent.namespace))).expect("directory");
    fs::create_dir_all(pods.join("4567/volumes")).expect("directory");
    fs::write(pods.join("4567/etc-hosts"), "127.0.0.1 localhost\n").expect("file");
    // Files of others: logs of a pod without a directory here, a link, a file.
    fs::create_dir_all(logs.join("ns_theirs_89ab")).expect("directory");
    let theirs = agent.dir.join("theirs");
    fs::create_dir_all(&theirs).expect("directory");
    fs::write(theirs.join("file"), "kept").expect("file");
    symlink(&theirs, pods.join("link")).expect("link");
    symlink(&theirs, pods.join("4567/link")).expect("link");
    fs::write(pods.join("file"), "kept").expect("file");
    // A volume that is still mounted and in use. It is a directory of others.
    let volume = pods.join("cdef/volumes/data");
    fs::create_dir_all(&volume).expect("directory");
    let status = Command::new("mount").arg("--bind").args([&theirs, &volume]).status().expect("mount");
    assert!(status.success());
    let in_use = fs::File::open(volume.join("file")).expect("file");

    agent.run();
    agent.wait("the directories of lost pods are gone", |_| !pods.join("0123").exists() && !pods.join("4567").exists());
    agent.wait("the volume is reported", |a| a.log().lines().any(|l| l.contains("cdef") && l.contains("busy")));
    for file in [theirs.join("file"), volume.join("file"), pods.join("file")] {
        assert_eq!(fs::read_to_string(&file).expect("the file exists"), "kept");
    }
    assert!(fs::symlink_metadata(pods.join("link")).is_ok_and(|m| m.is_symlink()));
    let logged: Vec<String> =
        names(&logs).into_iter().filter(|n| n.ends_with("_0123") || n.ends_with("_89ab")).collect();
    assert_eq!(logged, ["ns_theirs_89ab"]);
    assert!(agent.log().contains(&pods.join("0123").display().to_string()), "the path is in the log");
    assert_eq!(identities(&agent, &["web"]), before);

    drop(in_use);
    agent.wait("it is unmounted and removed when it is free", |_| !pods.join("cdef").exists());
    assert_eq!(fs::read_to_string(theirs.join("file")).expect("the file exists"), "kept");
    fs::remove_file(pods.join("link")).expect("link");
    fs::remove_file(pods.join("file")).expect("file");
    fs::remove_dir(logs.join("ns_theirs_89ab")).expect("directory");
    wait_exact(&agent, &all_run(&["web"]));
    assert_eq!(identities(&agent, &["web"]), before);
}

#[test]
fn the_control_socket_is_made_again_when_its_file_is_removed() {
    let agent = Agent::start("socket");
    for _ in 0..3 {
        fs::remove_file(&agent.socket).expect("remove");
        agent.wait("it is there again", |a| a.get("/livez").is_ok_and(|r| r.status == 200));
    }
    let aside = agent.socket.with_extension("moved");
    fs::rename(&agent.socket, &aside).expect("rename");
    agent.wait("it is there again", |a| a.get("/livez").is_ok_and(|r| r.status == 200));
    fs::remove_file(aside).expect("remove");
}

/// A task of a container that containerd shows as exited. containerd leaves such a task if the caller of StartContainer
/// is killed during the call, but this one runs. No CRI call can remove it.
#[test]
fn w26_a_task_lost_by_containerd_is_removed_with_its_pod() {
    let agent = Agent::start("task");
    agent.apply(
        "web",
        "
        restartPolicy: OnFailure
        containers:
        - name: main
          image: localhost/trap:1
        - name: ends
          image: localhost/busybox:1.35
          command: [sh, -c, 'test ! -e /again || sleep 10000; touch /again']
    ",
    );
    agent.wait("one of its containers has ended", |a| {
        a.pod("web").is_some_and(|p| container(&p, "ends")["state"]["terminated"]["exitCode"] == 0)
    });
    let all = agent.containers("web");
    let ended = &all.iter().find(|c| c.metadata.name == "ends").expect("it is kept").id;
    let runtime = Runtime::shared();
    let ctr = |arguments: &[&str]| {
        let mut ctr = Command::new("ctr");
        ctr.arg("-a").arg(&runtime.socket).args(["-n", "k8s.io"]).args(arguments);
        let output = ctr.output().expect("ctr");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    ctr(&["tasks", "start", "-d", ended]);
    assert!(ctr(&["tasks", "ls", "-q"]).contains(ended.as_str()));
    assert_eq!(agent.running("web", "ends"), None, "the CRI shows nothing of it");

    agent.delete("web");
    wait_exact(&agent, &Desired::new());
    assert!(!ctr(&["tasks", "ls", "-q"]).contains(ended.as_str()));
    assert!(!ctr(&["containers", "ls", "-q"]).contains(ended.as_str()));
}

#[test]
fn a_process_unknown_to_the_runtime_is_killed_with_its_pod() {
    let agent = Agent::start("lost");
    agent.apply("web", TRAP);
    agent.apply("other", TRAP);
    wait_exact(&agent, &all_run(&["web", "other"]));
    let before = identities(&agent, &["other"]);
    let mut lost = Command::new("sleep").arg("10000").spawn().expect("sleep");
    for cgroup in agent.cgroups(&uid(&agent.pod("web").expect("listed"))) {
        let inside = cgroup.join("lost");
        fs::create_dir(&inside).expect("cgroup");
        // A cpuset accepts no process before its CPUs and memory nodes are set.
        let _ = fs::write(inside.join("cgroup.procs"), lost.id().to_string());
    }
    let within = fs::read_to_string(format!("/proc/{}/cgroup", lost.id())).expect("its cgroups");
    assert!(within.contains("/lost\n"), "{within}");
    agent.delete("web");
    wait_exact(&agent, &all_run(&["other"]));
    assert_eq!(lost.wait().expect("it ends").signal(), Some(9));
    assert_eq!(identities(&agent, &["other"]), before);
}

/// A directory for `PATH` with a wrapper of `program`. The wrapper takes two seconds longer if the shell condition
/// `slow_when` holds and the file `slow` exists next to it. It logs each slow start in the file `began`.
fn slow_program(name: &str, program: &str, slow_when: &str) -> PathBuf {
    let directory = Runtime::shared().dir.join(name);
    let variable = |name| std::env::var(name).unwrap_or_default();
    let path = format!("{}:{}:/usr/local/sbin:/usr/sbin:/sbin", variable("WHERRY_LAB_BIN"), variable("PATH"));
    let real = path.split(':').map(|d| Path::new(d).join(program)).find(|p| p.exists()).expect(program);
    let (here, real) = (directory.display(), real.display());
    let text = format!(
        "#!/bin/sh\nif {slow_when} && [ -e {here}/slow ]; then echo >>{here}/began; sleep 2; fi\nexec {real} \"$@\"\n"
    );
    fs::create_dir_all(&directory).expect("directory");
    fs::write(directory.join(program), text).expect("script");
    fs::set_permissions(directory.join(program), fs::Permissions::from_mode(0o755)).expect("mode");
    directory
}

/// The number of slow starts of a program of `slow_program`.
fn began(programs: &Path) -> usize {
    fs::read_to_string(programs.join("began")).map_or(0, |text| text.lines().count())
}

/// When the caller of RunPodSandbox is gone, containerd undoes the call except for the pod's cgroup, which is created
/// after everything else of the pod is gone.
#[test]
fn w26_a_cgroup_created_late_by_a_cancelled_sandbox_is_removed() {
    let programs = slow_program("slow-runc", "runc", "case \" $* \" in *' create '*) ;; *) false;; esac");
    let runtime = Runtime::own_with("fslow", Some(&programs));
    let mut agent = Agent::prepare("fslow", &runtime);
    agent.run();
    agent.apply("web", TRAP);
    wait_exact(&agent, &all_run(&["web"]));
    let before = identities(&agent, &["web"]);
    let apply = |agent: &Agent, name: &str, count: usize| {
        let spec = "{containers: [{name: main, image: 'localhost/trap:1'}]}";
        let meta = format!("{{name: {name}, namespace: {}, uid: uid-{name}}}", agent.namespace);
        agent.write(
            &format!("{name}.yaml"),
            &format!("{{apiVersion: v1, kind: Pod, metadata: {meta}, spec: {spec}}}\n"),
        );
        agent.wait("runc makes its sandbox", |_| began(&programs) == count);
    };
    fs::write(programs.join("slow"), "").expect("file");
    // One call is cancelled, another one loses its caller.
    apply(&agent, "cancelled", 1);
    agent.delete("cancelled");
    agent.wait("it is gone", |a| a.pod("cancelled").is_none());
    apply(&agent, "killed", 2);
    agent.kill();
    agent.delete("killed");
    agent.launch();
    for name in ["cancelled", "killed"] {
        agent.wait("its cgroup turns up", |a| !a.cgroups(&format!("uid-{name}")).is_empty());
    }
    fs::remove_file(programs.join("slow")).expect("file");
    wait_exact(&agent, &all_run(&["web"]));
    assert_eq!(identities(&agent, &["web"]), before);
}

/// containerd kills the helper process that starts a container's shim when the caller is gone, and reports that as the
/// container's exit.
#[test]
fn w25_a_start_interrupted_before_the_shim_does_not_count_under_restart_policy_never() {
    // Only in the bundle of a container, not in that of a sandbox.
    let of_a_container = "grep -q '\"io.kubernetes.cri.container-type\":\"container\"' config.json 2>/dev/null";
    let programs = slow_program("slow-shim", "containerd-shim-runc-v2", of_a_container);
    let runtime = Runtime::own_with("fshim", Some(&programs));
    // From version 2 on the containers of a pod share the shim of its sandbox, which runs already.
    if !runtime.connect().version().expect("Version").runtime_version.starts_with("1.") {
        return;
    }
    let mut agent = Agent::prepare("fshim", &runtime);
    agent.run();
    fs::write(programs.join("slow"), "").expect("file");
    agent.apply("once", "{restartPolicy: Never, containers: [{name: main, image: 'localhost/trap:1'}]}");
    agent.wait("its shim is being started", |_| began(&programs) == 1);
    agent.kill();
    fs::remove_file(programs.join("slow")).expect("file");
    agent.launch();
    wait_exact(&agent, &all_run(&["once"]));
    let pod = agent.pod("once").expect("listed");
    assert_eq!(container(&pod, "main")["restartCount"], 1, "{}", pod["status"]);
}

/// libcni does not sync its network results. With an empty result file the runtime cannot stop the sandbox.
#[test]
fn an_empty_cni_result_after_a_power_failure_delays_no_termination() {
    let mut agent = Agent::start("powercut");
    agent.apply("web", TRAP);
    wait_exact(&agent, &all_run(&["web"]));
    let id = agent.sandboxes("web").remove(0).id;
    agent.kill();
    let of_it: Vec<String> = names(Path::new(RESULTS)).into_iter().filter(|name| name.contains(&id)).collect();
    let path = |name: &str| Path::new(RESULTS).join(name);
    // The empty result of another owner stays. If this test fails, the file is removed with the network, whose name is
    // its prefix.
    let network = of_it.iter().find(|name| name.starts_with("wherry-")).expect("libcni keeps its results there");
    let theirs = path(&network.replace(&id, &"0".repeat(id.len())));
    fs::write(&theirs, "").expect("file");
    of_it.iter().for_each(|name| fs::write(path(name), "").expect("it is emptied"));
    agent.launch();
    agent.delete("web");
    wait_exact(&agent, &Desired::new());
    fs::remove_file(&theirs).expect("the file exists");
    assert!(agent.log().contains("removed an empty CNI result of a sandbox"));
}
