//! Jobs with kubectl: completions, failures, indexes, suspension, deadlines, the time after the end, kills, bad input.

use crate::support::agent::{Agent, patience};
use crate::support::kubectl::Kubectl;
use serde_json::Value;

const IMAGE: &str = "localhost/busybox:1.35";

/// A Job of this name. `spec`: further fields of its spec, each in a line. `run`: the shell command of its pods.
fn text(name: &str, spec: &str, run: &str) -> String {
    format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}}}\nspec:\n{spec}  template:\n    spec:\n      \
         restartPolicy: Never\n      terminationGracePeriodSeconds: 1\n      containers:\n      - name: main\n        \
         image: {IMAGE}\n        command: [sh, -c, '{run}']\n"
    )
}

fn apply(k: &Kubectl, name: &str, spec: &str, run: &str) {
    k.ok(&["apply", "-f", &k.file(&format!("{name}.yaml"), &text(name, spec, run))]);
}

fn wait(k: &Kubectl, job: &str, condition: &str) {
    let timeout = format!("--timeout={}s", patience(120).as_secs());
    k.ok(&["wait", &format!("job/{job}"), &format!("--for=condition={condition}"), &timeout]);
}

fn pods(k: &Kubectl, job: &str) -> Vec<Value> {
    let list: Value =
        serde_json::from_str(&k.ok(&["get", "pods", "-l", &format!("job-name={job}"), "-o", "json"])).expect("JSON");
    list["items"].as_array().cloned().expect("items")
}

fn status(k: &Kubectl, job: &str) -> Value {
    k.object(&format!("job/{job}"))["status"].take()
}

/// The reason of the last condition.
fn end(k: &Kubectl, job: &str) -> String {
    let status = status(k, job);
    let last = status["conditions"].as_array().and_then(|all| all.last()).cloned().unwrap_or_default();
    last["reason"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn y18_a_job_is_created_shown_and_deleted_with_kubectl() {
    let agent = Agent::serving("jobs");
    let k = Kubectl::newest(&agent, "jobs");
    k.ok(&["create", "job", "hello", &format!("--image={IMAGE}"), "--", "sh", "-c", "echo well done"]);
    wait(&k, "hello", "complete");
    assert_eq!(k.ok(&["logs", "job/hello"]), "well done\n");
    let line = k.ok(&["get", "jobs", "--no-headers", "-o", "wide"]);
    let cells: Vec<&str> = line.split_whitespace().collect();
    assert!(cells[..3] == ["hello", "Complete", "1/1"] && cells.contains(&IMAGE), "{line}");
    let described = k.ok(&["describe", "job", "hello"]);
    for part in ["1 Succeeded", "Completed", "SuccessfulCreate", "Completions:"] {
        assert!(described.contains(part), "{part}: {described}");
    }
    let job = k.object("job/hello");
    let uid = job["metadata"]["uid"].as_str().expect("a UID");
    let pod = &pods(&k, "hello")[0];
    for (label, value) in [
        ("batch.kubernetes.io/controller-uid", uid),
        ("controller-uid", uid),
        ("batch.kubernetes.io/job-name", "hello"),
        ("job-name", "hello"),
    ] {
        assert_eq!(pod["metadata"]["labels"][label], value, "{label}");
        assert_eq!(job["spec"]["template"]["metadata"]["labels"][label], value, "{label}");
    }
    assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "Job");
    assert_eq!(job["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"], uid);
    // What the API shows can be applied again.
    let shown = k.file("shown.yaml", &k.ok(&["get", "job", "hello", "-o", "yaml"]));
    k.ok(&["apply", "-f", &shown]);
    k.ok(&["delete", "job", "hello"]);
    agent.wait("nothing is left", |agent| agent.pods().is_empty());
    // The same Job runs again.
    k.ok(&["replace", "--force", "-f", &shown]);
    wait(&k, "hello", "complete");
    assert_eq!(pods(&k, "hello").len(), 1);
}

#[test]
fn y18_no_completion_is_lost_or_repeated_by_kills() {
    let mut agent = Agent::serving("jobkill");
    let k = Kubectl::newest(&agent, "jobs");
    apply(&k, "load", "  completions: 6\n  parallelism: 2\n", "sleep 1");
    for succeeded in 0..3 {
        agent.wait("the Job makes progress", |_| {
            status(&k, "load")["succeeded"].as_u64().unwrap_or_default() >= 2 * succeeded
        });
        agent.kill();
        agent.run_with_kubectl();
    }
    wait(&k, "load", "complete");
    let status = status(&k, "load");
    assert_eq!((&status["succeeded"], &status["failed"], &status["active"]), (&6.into(), &Value::Null, &Value::Null));
    assert_eq!(pods(&k, "load").len(), 6, "each completion has one pod");
    agent.kill();
    agent.run_with_kubectl();
    wait(&k, "load", "complete");
    assert_eq!((end(&k, "load"), pods(&k, "load").len()), ("CompletionsReached".to_owned(), 6));
}

#[test]
fn y19_indexes_and_policies_decide_about_a_job() {
    let agent = Agent::serving("jobindex");
    let k = Kubectl::newest(&agent, "jobs");
    let indexed = "  completions: 3\n  parallelism: 3\n  completionMode: Indexed\n";
    let run = "echo index $JOB_COMPLETION_INDEX on $(hostname); [ $JOB_COMPLETION_INDEX != 1 ]";
    apply(&k, "parts", &format!("{indexed}  backoffLimitPerIndex: 0\n"), run);
    let rule = "  podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: [42]}}]}\n";
    apply(&k, "policy", rule, "exit 42");
    let first = "  successPolicy: {rules: [{succeededIndexes: \"0\"}]}\n";
    apply(&k, "first", &format!("{indexed}{first}"), "[ $JOB_COMPLETION_INDEX = 0 ] || sleep 3600");
    apply(&k, "late", "  activeDeadlineSeconds: 1\n", "sleep 3600");
    wait(&k, "parts", "failed");
    let status = status(&k, "parts");
    assert_eq!((&status["completedIndexes"], &status["failedIndexes"]), (&"0,2".into(), &"1".into()));
    assert_eq!((end(&k, "parts"), &status["failed"]), ("FailedIndexes".to_owned(), &1.into()));
    let pod = pods(&k, "parts").into_iter().find(|pod| pod["spec"]["hostname"] == "parts-2").expect("index 2");
    assert_eq!(k.ok(&["logs", pod["metadata"]["name"].as_str().expect("a name")]), "index 2 on parts-2\n");
    wait(&k, "policy", "failed");
    let described = k.ok(&["describe", "job", "policy"]);
    let why = "failed with exit code 42 matching FailJob rule at index 0";
    assert!(end(&k, "policy") == "PodFailurePolicy" && described.contains(why), "{described}");
    wait(&k, "first", "complete");
    assert_eq!((end(&k, "first"), self::status(&k, "first")["succeeded"].as_u64()), ("SuccessPolicy".into(), Some(1)));
    wait(&k, "late", "failed");
    assert_eq!(end(&k, "late"), "DeadlineExceeded");
    agent.wait("no pod runs", |agent| agent.pods().iter().all(|pod| pod["status"]["phase"] != "Running"));
}

#[test]
fn y18_a_job_can_be_suspended_and_is_removed_after_its_time() {
    let agent = Agent::serving("jobtime");
    let k = Kubectl::newest(&agent, "jobs");
    apply(&k, "rests", "  suspend: true\n", "sleep 3600");
    wait(&k, "rests", "suspended");
    assert!(pods(&k, "rests").is_empty() && k.ok(&["get", "job", "rests"]).contains("Suspended"));
    for (suspended, count) in [("false", 1), ("true", 0)] {
        let patch = format!(r#"{{"spec": {{"suspend": {suspended}}}}}"#);
        k.ok(&["patch", "job", "rests", "--type=merge", "-p", &patch]);
        agent.wait("its pod starts or ends", |_| pods(&k, "rests").len() == count);
    }
    apply(&k, "brief", "  ttlSecondsAfterFinished: 1\n", "exit 0");
    let pair = format!("{}---\n{}", text("one", "  ttlSecondsAfterFinished: 1\n", "exit 0"), text("two", "", "exit 0"));
    agent.write("pair.yaml", &pair);
    agent.wait("it is removed", |_| !k.ok(&["get", "jobs", "-o", "name"]).contains("brief"));
    let files = || std::fs::read_dir(agent.manifests()).expect("the manifests").flatten().map(|file| file.file_name());
    assert!(files().all(|name| !name.to_string_lossy().contains("brief")));
    agent.wait("its pods end", |_| pods(&k, "brief").is_empty());
    agent.wait("the event says why the other one stays", |_| {
        let described = k.ok(&["describe", "job", "one", "--namespace=default"]);
        described.contains("FailedDelete") && described.contains("together with 1 other objects")
    });
}

#[test]
fn y18_y19_a_wrong_job_is_refused_with_the_field() {
    let agent = Agent::serving("jobwrong");
    let k = Kubectl::newest(&agent, "jobs");
    let indexed = "  completions: 2\n  completionMode: Indexed\n";
    for (spec, why) in [
        ("  completions: -1\n", "spec.completions: Invalid value: -1"),
        (
            "  parallelism: 2\n  completionMode: Indexed\n",
            "spec.completions: Required value: when completion mode is Indexed",
        ),
        ("  backoffLimitPerIndex: 1\n", "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed"),
        (&format!("{indexed}  maxFailedIndexes: 1\n"), "requires that `backoffLimitPerIndex` is specified"),
        ("  managedBy: example.com/x\n", "spec.managedBy: Unsupported value"),
        ("  parallelism: 100000\n", "spec.parallelism: Invalid value: 100000: must be at most"),
        ("  podFailurePolicy: {rules: [{action: Ignore}]}\n", "one of onExitCodes and onPodConditions is required"),
        (&format!("{indexed}  successPolicy: {{rules: [{{succeededIndexes: 0-9}}]}}\n"), "9 is too large"),
        ("  selector: {matchLabels: {app: x}}\n", "`selector` not auto-generated"),
        ("  complations: 1\n", "complations"),
    ] {
        let said = k.fails(&["apply", "-f", &k.file("wrong.yaml", &text("wrong", spec, "exit 0"))]);
        assert!(said.contains(why), "{spec}: {said}");
    }
    let always = text("wrong", "", "exit 0").replace("restartPolicy: Never", "restartPolicy: Always");
    let said = k.fails(&["apply", "-f", &k.file("wrong.yaml", &always)]);
    assert!(said.contains("restartPolicy: Unsupported value: \"Always\""), "{said}");
    apply(&k, "fixed", "  completions: 2\n", "sleep 3600");
    for (field, value, why) in [
        ("completions", "3", "spec.completions: Forbidden"),
        ("template", r#"{"spec": {"containers": [{"name": "main", "image": "other"}]}}"#, "spec.template: Forbidden"),
    ] {
        let patch = format!(r#"{{"spec": {{"{field}": {value}}}}}"#);
        let said = k.fails(&["patch", "job", "fixed", "-p", &patch]);
        assert!(said.contains(why), "{said}");
    }
    let said = k.fails(&["delete", "job", "fixed", "--cascade=orphan"]);
    assert!(said.contains("orphan"), "{said}");
    assert_eq!(pods(&k, "fixed").len(), 1);
}
