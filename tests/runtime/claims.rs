//! Claims with kubectl on real containers: a directory with the first pod, its files over pods, claims and kills, its
//! users, its removal, storage classes, bad input.

use crate::support::agent::Agent;
use crate::support::kubectl::Kubectl;
use crate::support::lab::Runtime;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

const IMAGE: &str = "localhost/busybox:1.35";

/// A claim of this name. `spec`: further fields.
fn claim(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: {name}}}\nspec: {{accessModes: [ReadWriteOnce], \
         resources: {{requests: {{storage: 1Gi}}}}{spec}}}\n"
    )
}

/// A pod with a claim at /data. `run`: its shell command. `more`: further lines of the spec.
fn user(name: &str, claim: &str, run: &str, more: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 1\n{more}  \
         containers:\n  - name: main\n    image: {IMAGE}\n    command: [sh, -c, \"{run}; exec sleep 1000\"]\n    \
         volumeMounts: [{{name: v, mountPath: /data}}]\n  volumes: [{{name: v, persistentVolumeClaim: {{claimName: \
         {claim}}}}}]\n"
    )
}

fn apply(k: &Kubectl, name: &str, text: &str) {
    k.ok(&["apply", "-f", &k.file(&format!("{name}.yaml"), text)]);
}

fn cells(k: &Kubectl, args: &[&str]) -> Vec<String> {
    let all: Vec<&str> = args.iter().copied().chain(["--no-headers"]).collect();
    k.ok(&all).split_whitespace().map(str::to_owned).collect()
}

fn ready(agent: &Agent, k: &Kubectl, pod: &str) {
    let ready =
        |k: &Kubectl| k.ok(&["get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0].ready}"]) == "true";
    agent.wait("the pod is ready", |_| ready(k));
}

/// The directory of a claim of the class `local`.
fn directory(agent: &Agent, claim: &str) -> PathBuf {
    agent.root().join("claims").join(&agent.namespace).join(claim)
}

#[test]
fn y22_the_files_of_a_claim_outlive_pods_claims_and_kills() {
    let mut agent = Agent::serving("claims");
    let k = Kubectl::newest(&agent, "claims");
    apply(&k, "data", &claim("data", ""));
    assert_eq!(cells(&k, &["get", "pvc"])[..2], ["data", "Pending"]);
    let described = k.ok(&["describe", "pvc", "data"]);
    assert!(described.contains("waiting for first consumer to be created before binding"), "{described}");
    apply(&k, "web", &user("web", "data", "echo first > /data/file", ""));
    ready(&agent, &k, "web");
    let volume = k.ok(&["get", "pvc", "data", "-o", "jsonpath={.spec.volumeName}"]);
    assert_eq!(cells(&k, &["get", "pvc"])[..6], ["data", "Bound", &volume, "1Gi", "RWO", "local"]);
    let namespace = agent.namespace.clone();
    let of_volume = cells(&k, &["get", "pv", &volume]);
    assert_eq!(of_volume[..7], [&volume, "1Gi", "RWO", "Retain", "Bound", &format!("{namespace}/data"), "local"]);
    assert_eq!(
        cells(&k, &["get", "sc"])[..5],
        ["local", "(default)", "wherry.io/directory", "Retain", "WaitForFirstConsumer"]
    );
    let described = k.ok(&["describe", "pvc", "data"]);
    for part in ["Used By:", "web", "Successfully provisioned volume", "Filesystem"] {
        assert!(described.contains(part), "{part}: {described}");
    }
    assert!(k.ok(&["describe", "pv", &volume]).contains("the directory has no limit"));
    let path = directory(&agent, "data");
    let mode = |path: &std::path::Path| fs::metadata(path).expect("a directory").permissions().mode() & 0o7777;
    assert_eq!((mode(&path), mode(path.parent().expect("a parent"))), (0o777, 0o700));

    // A deleted claim that a pod uses stays, and the command waits.
    k.ok(&["delete", "pvc", "data", "--wait=false"]);
    assert_eq!(cells(&k, &["get", "pvc"])[1], "Terminating");
    k.ok(&["delete", "pvc", "data", "--wait=false"]);
    agent.kill();
    agent.run_with_kubectl();
    agent.wait("the claim is known again", |_| cells(&k, &["get", "pvc"]).get(1).is_some_and(|s| s == "Terminating"));
    k.ok(&["exec", "web", "--", "sh", "-c", "echo second >> /data/file"]);
    k.ok(&["delete", "pod", "web"]);
    agent.wait("the claim is gone", |_| cells(&k, &["get", "pvc", "--ignore-not-found"]).is_empty());
    assert_eq!(cells(&k, &["get", "pv", &volume])[4], "Released");
    assert_eq!(fs::read_to_string(path.join("file")).expect("the file"), "first\nsecond\n");
    let listed = String::from_utf8(agent.wherry(&["volumes"]).stdout).expect("UTF-8");
    let line: Vec<&str> = listed.lines().nth(1).expect("a line").split_whitespace().collect();
    assert_eq!(line[..4], [&format!("{namespace}/data"), "Released", "local", "Retain"]);
    assert!(line[4].ends_with("Ki") && line[5] == "-" && line[6] == path.to_str().expect("UTF-8"), "{listed}");

    // The next claim of this name has the files.
    apply(&k, "data", &claim("data", ""));
    apply(&k, "next", &user("next", "data", "cat /data/file", ""));
    ready(&agent, &k, "next");
    agent.wait("the pod reads the files", |_| k.ok(&["logs", "next"]) == "first\nsecond\n");
    let refused = agent.wherry(&["volumes", "remove", &format!("{namespace}/data")]);
    let why = String::from_utf8(refused.stderr).expect("UTF-8");
    assert!(refused.status.code() == Some(1) && why.contains("it has a claim or pods use it"), "{why}");
    k.ok(&["delete", "pod/next", "pvc/data"]);
    assert!(agent.wherry(&["volumes", "remove", &format!("{namespace}/data")]).status.success());
    agent.wait("the directory is removed", |_| !path.exists() && k.ok(&["get", "pv"]).is_empty());
}

#[test]
fn y22_a_class_of_the_configuration_removes_directories_that_wherry_has_created() {
    let place = tempfile::tempdir().expect("a directory");
    let base = place.path().to_str().expect("UTF-8").to_owned();
    let mut agent = Agent::prepare("classes", &Runtime::shared());
    agent.serve_kubectl();
    let classes = format!(
        "apiVersion: wherry.io/v1alpha1\nkind: WherryConfiguration\nstorageClasses:\n- {{name: disk, directory: {base}, \
         reclaimPolicy: Delete}}\n"
    );
    fs::write(agent.dir.join("config.d/30-classes.yaml"), classes).expect("a drop-in");
    agent.run_with_kubectl();
    let namespace = agent.namespace.clone();
    let k = Kubectl::newest(&agent, "classes");
    let at = |name: &str| place.path().join(&namespace).join(name);
    fs::create_dir_all(at("old")).expect("a directory");
    fs::write(at("old").join("file"), "precious\n").expect("a file");
    apply(&k, "claims", &[claim("new", ""), claim("old", ", storageClassName: disk")].join("---\n"));
    let group = "  securityContext: {fsGroup: 4000, runAsUser: 1000, runAsGroup: 1000}\n";
    apply(&k, "a", &user("a", "new", "mkdir /data/deep; ln -s / /data/deep/root; touch /data/deep/file", group));
    apply(&k, "b", &user("b", "old", "cat /data/file", ""));
    ready(&agent, &k, "a");
    ready(&agent, &k, "b");
    agent.wait("the container has written", |_| at("new").join("deep/file").exists());
    let found = fs::metadata(at("new").join("deep/file")).expect("a file");
    assert_eq!((found.uid(), found.gid()), (1000, 4000));
    agent.wait("the pod reads the file", |_| k.ok(&["logs", "b"]) == "precious\n");
    k.ok(&["delete", "pod/a", "pod/b", "pvc/new", "pvc/old"]);
    agent.wait("the directory of the new claim is removed", |_| !at("new").exists());
    agent.wait("the other one stays", |_| cells(&k, &["get", "pv"]).contains(&"Released".to_owned()));
    assert_eq!(fs::read_to_string(at("old").join("file")).expect("the file"), "precious\n");
    let events = k.ok(&["get", "events"]);
    assert!(events.contains("VolumeFailedDelete") && events.contains("stays: it existed before the claim"), "{events}");
}

#[test]
fn y22_read_only_sub_paths_ephemeral_volumes_and_one_pod_at_a_time() {
    let agent = Agent::serving("claim-uses");
    let k = Kubectl::newest(&agent, "claim-uses");
    let one = claim("one", "").replace("ReadWriteOnce", "ReadWriteOncePod");
    apply(&k, "claims", &[claim("data", ""), one].join("---\n"));
    apply(&k, "web", &user("web", "data", "mkdir -p /data/www; echo page > /data/www/index", ""));
    // (A file exists before its content.)
    let page = directory(&agent, "data").join("www/index");
    agent.wait("the page is written", |_| fs::read_to_string(&page).is_ok_and(|text| text == "page\n"));
    // (The runtime copies the two outputs of a container independently, so their lines have no order.)
    let reader = user("reader", "data", "cat /data/index; touch /data/x 2>/dev/null || echo read-only", "")
        .replace("mountPath: /data", "mountPath: /data, subPath: www")
        .replace("claimName: data", "claimName: data, readOnly: true");
    apply(&k, "reader", &reader);
    ready(&agent, &k, "reader");
    agent.wait("the pod has read and not written", |_| k.ok(&["logs", "reader"]) == "page\nread-only\n");

    apply(&k, "first", &user("first", "one", "true", ""));
    ready(&agent, &k, "first");
    apply(&k, "second", &user("second", "one", "true", ""));
    agent.wait("the second pod waits", |_| {
        k.ok(&["describe", "pod", "second"]).contains("its access mode is ReadWriteOncePod")
    });
    k.ok(&["delete", "pod", "first"]);
    ready(&agent, &k, "second");

    let template = "ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}}}";
    let ephemeral =
        user("job", "data", "touch /data/mine", "").replace("persistentVolumeClaim: {claimName: data}", template);
    apply(&k, "job", &ephemeral);
    ready(&agent, &k, "job");
    let path = directory(&agent, "job-v");
    agent.wait("the container has written", |_| path.join("mine").exists());
    let owner = k.ok(&[
        "get",
        "pvc",
        "job-v",
        "-o",
        "jsonpath={.metadata.ownerReferences[0].kind}/{.metadata.ownerReferences[0].name}",
    ]);
    assert_eq!(owner, "Pod/job");
    k.ok(&["delete", "pod", "job"]);
    agent.wait("its directory is removed", |_| !path.exists());
}

#[test]
fn y22_bad_claims_are_refused_with_the_field_and_the_remedy() {
    let agent = Agent::serving("bad-claims");
    let k = Kubectl::newest(&agent, "bad-claims");
    for (text, part) in [
        (claim("a", ", volumeMode: Block"), "spec.volumeMode: Forbidden: a claim is a directory of this machine"),
        (
            claim("a", "").replace("1Gi", "0"),
            "spec.resources.requests[storage]: Invalid value: \"0\": must be greater than zero",
        ),
        (claim("a", "").replace("[ReadWriteOnce]", "[]"), "spec.accessModes: Required value: at least 1 access mode"),
        (claim("a", "").replace("ReadWriteOnce", "Write"), "spec.accessModes[0]: Unsupported value: \"Write\""),
        (claim("a", ", dataSource: {kind: PersistentVolumeClaim, name: x}"), "spec.dataSource: Forbidden: a new claim"),
        (claim("a", "").replace("requests:", "limits: {storage: 2Gi}, requests:"), "spec.resources.limits: Forbidden"),
        (claim("a", ", storageClassName: A_B"), "spec.storageClassName: Invalid value"),
        (claim("A", ""), "metadata.name: Invalid value"),
    ] {
        let refused = k.fails(&["apply", "-f", &k.file("bad.yaml", &text)]);
        assert!(refused.contains(part), "{part}: {refused}");
    }
    apply(&k, "slow", &claim("slow", ", storageClassName: fast"));
    apply(&k, "web", &user("web", "slow", "true", ""));
    let why = "storageclass.storage.k8s.io \"fast\" not found; add it to storageClasses in the configuration";
    agent.wait("the claim says why", |_| k.ok(&["describe", "pvc", "slow"]).contains(why));
    agent.wait("and the pod", |_| k.ok(&["describe", "pod", "web"]).contains(why));
    let checked = agent.command_of("check").arg(agent.manifests()).output().expect("wherry");
    let said = String::from_utf8(checked.stdout).expect("UTF-8");
    assert!(said.contains(&format!("spec.storageClassName: {why}")) && said.contains("warning: "), "{said}");
    // The class of a claim in use cannot be changed.
    apply(&k, "data", &claim("data", ""));
    let refused = k.fails(&["apply", "-f", &k.file("data.yaml", &claim("data", ", storageClassName: fast"))]);
    assert!(refused.contains("spec is immutable after creation except resources.requests"), "{refused}");
    apply(&k, "data", &claim("data", "").replace("1Gi", "2Gi"));
    assert_eq!(k.ok(&["get", "pvc", "data", "-o", "jsonpath={.spec.resources.requests.storage}"]), "2Gi");
}

/// A StatefulSet with a claim for each pod. Each pod adds its name to a file.
fn sequence(replicas: u32, more: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {{name: db}}\nspec:\n  serviceName: db\n  replicas: {replicas}\n{more}  \
         selector: {{matchLabels: {{app: db}}}}\n  template:\n    metadata: {{labels: {{app: db}}}}\n    spec:\n      \
         terminationGracePeriodSeconds: 1\n      containers:\n      - name: main\n        image: {IMAGE}\n        \
         command: [sh, -c, 'hostname >> /data/names; exec sleep 1000']\n        \
         volumeMounts: [{{name: data, mountPath: /data}}]\n  volumeClaimTemplates:\n  - metadata: {{name: data, labels: \
         {{tier: db}}}}\n    spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}\n"
    )
}

#[test]
fn y23_the_claims_of_a_stateful_set_are_its_pods_own_and_stay_over_kills_scaling_and_deletion() {
    let mut agent = Agent::serving("sequence");
    let k = Kubectl::newest(&agent, "sequence");
    let names = |agent: &Agent, ordinal: u32| {
        let file = directory(agent, &format!("data-db-{ordinal}")).join("names");
        fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    // Kills in the middle of the creation of the claims and of their pods.
    apply(&k, "db", &sequence(2, "  podManagementPolicy: Parallel\n"));
    for pause in [20, 60, 120] {
        agent.kill();
        agent.run_with_kubectl();
        std::thread::sleep(std::time::Duration::from_millis(pause));
    }
    let ready = |k: &Kubectl| k.ok(&["get", "sts", "db", "-o", "jsonpath={.status.readyReplicas}"]);
    agent.wait("both pods are ready", |_| ready(&k) == "2");
    agent.wait("each has written", |a| names(a, 0) == ["db-0"] && names(a, 1) == ["db-1"]);
    let labels = k.ok(&["get", "pvc", "-l", "app=db,tier=db", "-o", "name"]);
    assert_eq!(labels, "persistentvolumeclaim/data-db-0\npersistentvolumeclaim/data-db-1\n");
    k.ok(&["scale", "sts/db", "--replicas=1"]);
    k.ok(&["wait", "--for=delete", "pod/db-1", "--timeout=60s"]);
    k.ok(&["scale", "sts/db", "--replicas=2"]);
    agent.wait("the second pod has its files again", |a| names(a, 1) == ["db-1", "db-1"]);
    let refused = k.fails(&[
        "apply",
        "-f",
        &k.file("db.yaml", &sequence(2, "  podManagementPolicy: Parallel\n").replace("1Gi", "2Gi")),
    ]);
    assert!(refused.contains("spec.volumeClaimTemplates: Forbidden: field is immutable"), "{refused}");
    k.ok(&["delete", "sts", "db"]);
    agent.wait("the pods are gone", |_| k.ok(&["get", "pods"]).is_empty());
    assert_eq!(cells(&k, &["get", "pvc"]).iter().filter(|cell| *cell == "Bound").count(), 2);
    let refused =
        k.fails(&["patch", "pvc", "data-db-0", "--type=merge", "-p", r#"{"metadata": {"labels": {"x": "y"}}}"#]);
    assert!(refused.contains("a StatefulSet or a pod has created it; change its template"), "{refused}");
    k.ok(&["delete", "pvc", "data-db-0"]);
    apply(&k, "db", &sequence(2, "  persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete}\n"));
    agent.wait("both pods have their files again", |a| names(a, 0).len() == 2 && names(a, 1).len() == 3);
    k.ok(&["delete", "sts", "db"]);
    agent.wait("the claims are gone", |_| k.ok(&["get", "pvc"]).is_empty());
    assert_eq!(names(&agent, 0).len(), 2, "the policy of the class keeps the files");
}
