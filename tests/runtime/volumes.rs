//! Volumes on real containers: their contents, changes that arrive in running containers, and what remains of them.

use crate::support::agent::{Agent, condition, patience, uid};
use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

fn config_map(namespace: &str, data: &str) -> String {
    format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{namespace: {namespace}, name: page}}, data: {{{data}}}}}\n")
}

fn secret(namespace: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Secret, metadata: {{namespace: {namespace}, name: login}}, stringData: {{password: hunter2}}}}\n"
    )
}

/// The mount points below a directory.
fn mounts_below(directory: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
    let points = table.lines().filter_map(|l| l.split(' ').nth(4)).map(PathBuf::from);
    points.filter(|point| point.starts_with(directory)).collect()
}

#[test]
fn d6_a_container_has_the_files_of_its_volumes_and_sees_changes() {
    let mut agent = Agent::start("volumes");
    let namespace = agent.namespace.clone();
    agent.write("page.yaml", &config_map(&namespace, "index.html: first, mode: m1"));
    agent.apply(
        "web",
        "
        terminationGracePeriodSeconds: 1
        securityContext: {fsGroup: 3000}
        initContainers:
        - name: writer
          image: localhost/busybox:1.35
          command: [sh, -c, 'echo shared > /scratch/file; mkdir -p /scratch/a/b; echo deep > /scratch/a/b/c']
          volumeMounts: [{name: scratch, mountPath: /scratch}]
        containers:
        - name: main
          image: localhost/busybox:1.35
          command: [sh, -c, 'trap \"exit 0\" TERM; while :; do sleep 0.1; done']
          env: [{name: PART, value: b}]
          volumeMounts:
          - {name: scratch, mountPath: /scratch, readOnly: true}
          - {name: scratch, mountPath: /part, subPathExpr: a/$(PART)}
          - {name: memory, mountPath: /memory}
          - {name: page, mountPath: /page}
          - {name: login, mountPath: /login}
          - {name: all, mountPath: /all}
        volumes:
        - {name: scratch, emptyDir: {}}
        - {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
        - {name: page, configMap: {name: page}}
        - {name: login, secret: {secretName: login, defaultMode: 0400}}
        - name: all
          projected:
            sources:
            - configMap: {name: page, items: [{key: mode, path: sub/mode}]}
            - downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}
        ",
    );
    // It waits for the Secret, without a sandbox.
    agent.wait("the missing Secret is an event", |a| {
        let events = a.wherry(&["events", "web"]);
        String::from_utf8_lossy(&events.stdout)
            .contains("MountVolume.SetUp failed for volume \"login\" : secret \"login\" not found")
    });
    assert!(agent.sandboxes("web").is_empty());
    agent.write("login.yaml", &secret(&namespace));
    let pod = agent.wait_running("web");
    let id = agent.running("web", "main").expect("it runs");
    let run =
        |agent: &Agent, script: &str| -> String { agent.cri().exec(&id, &["sh", "-c", script]).1.trim().to_owned() };
    for (script, expected) in [
        ("cat /scratch/file /part/c", "shared\ndeep"),
        ("touch /scratch/x 2>&1 | grep -c Read-only", "1"),
        ("stat -c %a:%g /scratch", "2777:3000"),
        ("grep -c ' /memory tmpfs ' /proc/mounts", "1"),
        ("df -k /memory | tail -1 | tr -s ' ' | cut -d' ' -f2", "1024"),
        ("cat /page/index.html /login/password", "firsthunter2"),
        ("stat -L -c %a:%g /login/password", "440:3000"),
        ("grep -c ' /login tmpfs ro' /proc/mounts", "1"),
        ("cat /all/sub/mode /all/name", "m1web"),
        ("touch /page/x 2>&1 | grep -c Read-only", "1"),
    ] {
        assert_eq!(run(&agent, script), expected, "{script}");
    }

    // A change arrives in the running container, all files at once.
    let begun = Instant::now();
    agent.write("page.yaml", &config_map(&namespace, "index.html: second, mode: m2"));
    agent.wait("the change arrives", |a| run(a, "cat /page/index.html /all/sub/mode") == "secondm2");
    assert!(begun.elapsed() < patience(10), "{:?}", begun.elapsed());
    // A removed ConfigMap leaves the files.
    fs::remove_file(agent.manifests().join("page.yaml")).expect("remove");

    // A change while Wherry does not run arrives after its start.
    agent.kill();
    agent.write("page.yaml", &config_map(&namespace, "index.html: third, mode: m3"));
    agent.run();
    agent.wait("the change after a restart arrives", |a| run(a, "cat /page/index.html") == "third");
    assert_eq!(agent.running("web", "main"), Some(id.clone()));

    let own = agent.root().join("pods").join(uid(&pod));
    assert_eq!(mounts_below(&own).len(), 4, "two tmpfs of files, one of an emptyDir, one sub-path");
    agent.delete("web");
    agent.wait_gone("web");
    agent.wait("nothing of it remains", |_| mounts_below(&own).is_empty() && !own.exists());
}

#[test]
fn a_host_path_is_checked_and_never_removed() {
    let agent = Agent::start("hostpath");
    let kept = agent.dir.join("kept");
    fs::create_dir(&kept).expect("directory");
    fs::write(kept.join("data"), "mine").expect("file");
    let spec = |path: &Path, kind: &str| {
        format!(
            "
            terminationGracePeriodSeconds: 1
            containers:
            - name: main
              image: localhost/busybox:1.35
              command: [sh, -c, 'cat /host/data; echo; trap \"exit 0\" TERM; while :; do sleep 0.1; done']
              volumeMounts: [{{name: host, mountPath: /host}}]
            volumes: [{{name: host, hostPath: {{path: {}, type: {kind}}}}}]
            ",
            path.display()
        )
    };
    agent.apply("good", &spec(&kept, "Directory"));
    agent.apply("bad", &spec(&kept.join("data"), "Directory"));
    agent.apply("new", &spec(&agent.dir.join("new"), "DirectoryOrCreate"));
    let pod = agent.wait_running("good");
    agent.wait_running("new");
    agent.wait("the output", |a| a.output(&pod, "main", 0) == "mine\n");
    let why = format!("hostPath type check failed: {} is not a directory", kept.join("data").display());
    agent.wait("the wrong type is an event", |a| {
        let events = String::from_utf8_lossy(&a.wherry(&["events", "bad"]).stdout).into_owned();
        events.contains(&format!("MountVolume.SetUp failed for volume \"host\" : {why}"))
    });
    let bad = agent.pod("bad").expect("the pod");
    assert_eq!(
        (bad["status"]["phase"].as_str(), condition(&bad, "Ready")["status"].as_str()),
        (Some("Pending"), Some("False"))
    );
    for name in ["good", "bad", "new"] {
        agent.delete(name);
        agent.wait_gone(name);
    }
    assert_eq!(fs::read_to_string(kept.join("data")).expect("the file"), "mine");
    assert!(agent.dir.join("new").is_dir());
}

#[test]
fn the_volumes_of_a_pod_are_removed_although_wherry_was_killed_meanwhile() {
    let mut agent = Agent::start("volkill");
    let namespace = agent.namespace.clone();
    agent.write("login.yaml", &secret(&namespace));
    for i in 0..5 {
        agent.apply(
            &format!("web-{i}"),
            "
            terminationGracePeriodSeconds: 1
            containers:
            - {name: main, image: 'localhost/trap:1', volumeMounts: [{name: login, mountPath: /login}, {name: d, mountPath: /d, subPath: x}]}
            volumes: [{name: login, secret: {secretName: login}}, {name: d, emptyDir: {}}]
            ",
        );
    }
    let pods = agent.root().join("pods");
    agent.wait("some volumes are set up", |_| mounts_below(&pods).len() >= 3);
    agent.kill();
    agent.run();
    (0..5).for_each(|i| drop(agent.wait_running(&format!("web-{i}"))));
    (0..5).for_each(|i| agent.delete(&format!("web-{i}")));
    agent.wait("the first are stopping", |a| a.pods().len() < 5);
    agent.kill();
    agent.run();
    (0..5).for_each(|i| agent.wait_gone(&format!("web-{i}")));
    agent.wait("nothing remains", |_| {
        // W26: an empty directory may stay for a while.
        let is_empty = |pod: &fs::DirEntry| fs::read_dir(pod.path()).is_ok_and(|mut all| all.next().is_none());
        let left = fs::read_dir(&pods).into_iter().flatten().flatten().filter(|pod| !is_empty(pod)).count();
        mounts_below(&pods).is_empty() && left == 0
    });
}

#[test]
fn d6_a_container_with_a_sub_path_starts_while_its_config_map_changes() {
    const PODS: usize = 16;
    let agent = Agent::start("sub-path-update");
    let namespace = agent.namespace.clone();
    agent.write("page.yaml", &config_map(&namespace, "index.html: '0'"));
    for n in 0..PODS {
        agent.apply(
            &format!("p{n}"),
            "
            restartPolicy: Never
            containers:
            - {name: main, image: 'localhost/busybox:1.35', command: [cat, /page],
               volumeMounts: [{name: page, mountPath: /page, subPath: index.html}]}
            volumes: [{name: page, configMap: {name: page}}]
            ",
        );
    }
    let version = Cell::new(0);
    agent.wait("all pods have ended", |a| {
        version.set(version.get() + 1);
        a.write("page.yaml", &config_map(&namespace, &format!("index.html: '{}'", version.get())));
        let phase = |pod: &serde_json::Value| pod["status"]["phase"].as_str().unwrap_or_default().to_owned();
        let phases: Vec<String> = a.pods().iter().map(phase).collect();
        phases.len() == PODS && phases.iter().all(|phase| phase == "Succeeded" || phase == "Failed")
    });
    let failed: Vec<_> = agent.pods().into_iter().filter(|pod| pod["status"]["phase"] != "Succeeded").collect();
    assert!(failed.is_empty(), "{} of {PODS} have failed: {:#}", failed.len(), failed[0]["status"]);
    assert!(version.get() > 3, "{version:?}");
}
