//! CronJobs with kubectl: Jobs at their times, kills, suspension, history, Jobs by hand, time zones, bad input.

use crate::support::agent::{Agent, patience};
use crate::support::kubectl::Kubectl;
use serde_json::Value;

const IMAGE: &str = "localhost/busybox:1.35";

/// A CronJob of this name. `spec`: further fields of its spec, each in a line. `run`: the shell command of its pods.
fn text(name: &str, spec: &str, run: &str) -> String {
    format!(
        "apiVersion: batch/v1\nkind: CronJob\nmetadata: {{name: {name}}}\nspec:\n{spec}  jobTemplate:\n    spec:\n      \
         template:\n        spec:\n          restartPolicy: Never\n          terminationGracePeriodSeconds: 1\n          \
         containers:\n          - name: main\n            image: {IMAGE}\n            command: [sh, -c, '{run}']\n"
    )
}

fn apply(k: &Kubectl, name: &str, spec: &str, run: &str) {
    k.ok(&["apply", "-f", &k.file(&format!("{name}.yaml"), &text(name, spec, run))]);
}

fn objects(k: &Kubectl, resource: &str) -> Vec<Value> {
    let list: Value = serde_json::from_str(&k.ok(&["get", resource, "-o", "json"])).expect("JSON");
    list["items"].as_array().cloned().expect("items")
}

/// The names of the Jobs, the oldest first.
fn jobs(k: &Kubectl) -> Vec<String> {
    objects(k, "jobs").iter().map(|job| job["metadata"]["name"].as_str().expect("a name").to_owned()).collect()
}

fn patch(k: &Kubectl, name: &str, spec: &str) {
    k.ok(&["patch", "cronjob", name, "--type=merge", "-p", &format!(r#"{{"spec": {spec}}}"#)]);
}

#[test]
fn y20_a_cron_job_is_created_shown_and_deleted_with_kubectl() {
    let agent = Agent::serving("cron");
    let k = Kubectl::newest(&agent, "cron");
    let image = format!("--image={IMAGE}");
    k.ok(&["create", "cronjob", "tick", &image, "--schedule=@every 2s", "--", "sh", "-c", "echo well done"]);
    let cells = |k: &Kubectl| -> Vec<String> {
        k.ok(&["get", "cj", "--no-headers"]).split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(cells(&k)[..4], ["tick", "@every", "2s", "<none>"]);
    agent.wait("Jobs have succeeded, and three of them stay", |_| {
        let done = |job: &Value| job["status"]["succeeded"] == 1;
        let last = k.object("cronjob/tick")["status"]["lastSuccessfulTime"].is_string();
        last && objects(&k, "jobs").iter().filter(|job| done(job)).count() == 3 && jobs(&k).len() <= 5
    });
    let job = objects(&k, "jobs").remove(0);
    let owner = &job["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["uid"]), (&"CronJob".into(), &k.object("cronjob/tick")["metadata"]["uid"]));
    assert!(job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"].is_string());
    let described = k.ok(&["describe", "cronjob", "tick"]);
    for part in ["Schedule:", "@every 2s", "Concurrency Policy:", "Allow", "SuccessfulCreate", "SawCompletedJob"] {
        assert!(described.contains(part), "{part}: {described}");
    }
    patch(&k, "tick", r#"{"suspend": true}"#);
    agent.wait("nothing is active", |_| cells(&k).contains(&"True".to_owned()) && cells(&k)[5] == "0");
    let name = jobs(&k).pop().expect("a Job");
    assert_eq!(k.ok(&["logs", &format!("job/{name}")]), "well done\n");
    // A Job by hand has the template of the CronJob.
    k.ok(&["create", "job", "by-hand", "--from=cronjob/tick"]);
    k.ok(&["wait", "job/by-hand", "--for=condition=complete", &format!("--timeout={}s", patience(120).as_secs())]);
    assert_eq!(k.ok(&["logs", "job/by-hand"]), "well done\n");
    // What the API shows can be applied again.
    k.ok(&["apply", "-f", &k.file("shown.yaml", &k.ok(&["get", "cronjob", "tick", "-o", "yaml"]))]);
    let said = k.fails(&["patch", "job", &name, "-p", r#"{"spec": {"suspend": true}}"#]);
    assert!(said.contains("it was created by a controller"), "{said}");
    k.ok(&["delete", "job", &name]);
    assert!(!jobs(&k).contains(&name));
    k.ok(&["delete", "cronjob", "tick"]);
    agent.wait("its Jobs end with it", |_| jobs(&k) == ["by-hand"] && agent.pods().len() == 1);
}

#[test]
fn y20_no_job_is_lost_or_repeated_by_kills() {
    let mut agent = Agent::serving("cronkill");
    let k = Kubectl::newest(&agent, "cron");
    let limit = "  successfulJobsHistoryLimit: 50\n";
    let run = "echo \"$HOSTNAME\" >> /out/runs; sleep 1";
    let out = agent.manifests().parent().expect("a directory").join("out");
    std::fs::create_dir(&out).expect("the directory of the results");
    let volume = format!("          volumes: [{{name: out, hostPath: {{path: {}}}}}]\n", out.display());
    let mount = "            volumeMounts: [{name: out, mountPath: /out}]\n";
    let text = text("load", &format!("  schedule: \"@every 3s\"\n{limit}"), run) + mount + &volume;
    k.ok(&["apply", "-f", &k.file("load.yaml", &text)]);
    for number in 1..4 {
        agent.wait("another Job has begun", |_| jobs(&k).len() >= 2 * number);
        agent.kill();
        agent.run_with_kubectl();
    }
    patch(&k, "load", r#"{"suspend": true}"#);
    agent.wait("all Jobs are complete", |_| objects(&k, "jobs").iter().all(|job| job["status"]["succeeded"] == 1));
    let (jobs, runs) = (jobs(&k), std::fs::read_to_string(out.join("runs")).expect("the results"));
    let mut of_jobs: Vec<&str> = runs.lines().filter_map(|pod| pod.rsplit_once('-')).map(|(job, _)| job).collect();
    of_jobs.sort_unstable();
    assert_eq!(of_jobs, jobs, "each Job runs once");
    assert_eq!(objects(&k, "pods").len(), jobs.len());
}

#[test]
fn y20_the_policy_decides_while_a_job_is_active() {
    let agent = Agent::serving("cronpolicy");
    let k = Kubectl::newest(&agent, "cron");
    let spec = |policy: &str| format!("  schedule: \"@every 2s\"\n  concurrencyPolicy: {policy}\n");
    apply(&k, "forbid", &spec("Forbid"), "sleep 3600");
    apply(&k, "replace", &spec("Replace"), "sleep 3600");
    agent.wait("the events say so", |_| {
        let forbids = k.ok(&["describe", "cronjob", "forbid"]).contains("JobAlreadyActive");
        forbids && k.ok(&["describe", "cronjob", "replace"]).contains("SuccessfulDelete")
    });
    for name in ["forbid", "replace"] {
        assert_eq!(
            k.object(&format!("cronjob/{name}"))["status"]["active"].as_array().map(Vec::len),
            Some(1),
            "{name}"
        );
    }
    let of = |name: &str| jobs(&k).iter().filter(|job| job.starts_with(name)).count();
    assert_eq!((of("forbid"), of("replace")), (1, 1));
}

#[test]
fn y21_a_time_zone_is_that_of_the_machine_or_is_reported() {
    let agent = Agent::serving("cronzone");
    let k = Kubectl::newest(&agent, "cron");
    let every_minute = |zone: &str| format!("  schedule: \"* * * * *\"\n  timeZone: {zone}\n");
    apply(&k, "known", &every_minute("Asia/Kolkata"), "exit 0");
    let said = agent.command_of("check").output().expect("wherry check");
    assert!(said.status.success() && !String::from_utf8_lossy(&said.stdout).contains("warning"), "{said:?}");
    apply(&k, "unknown", &every_minute("Europe/Atlantis"), "exit 0");
    agent.wait("the event names the zone", |_| {
        let described = k.ok(&["describe", "cronjob", "unknown"]);
        described.contains("UnknownTimeZone") && described.contains("Europe/Atlantis")
    });
    let said = agent.command_of("check").output().expect("wherry check");
    let said = (said.status.success(), String::from_utf8_lossy(&said.stdout).into_owned());
    assert!(said.0 && said.1.contains("spec.timeZone: this machine does not have the time zone"), "{said:?}");
    agent.wait("a minute begins", |_| !jobs(&k).is_empty());
    let job = objects(&k, "jobs").remove(0);
    let at = &job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"];
    assert!(at.as_str().is_some_and(|at| at.ends_with(":00+05:30")), "{at}");
    assert!(jobs(&k).iter().all(|job| job.starts_with("known-")));
}

#[test]
fn y20_y21_a_wrong_cron_job_is_refused_with_the_field() {
    let agent = Agent::serving("cronwrong");
    let k = Kubectl::newest(&agent, "cron");
    let daily = "  schedule: \"@daily\"\n";
    for (spec, why) in [
        ("  suspend: true\n", "spec.schedule: Required value"),
        (
            "  schedule: \"61 * * * *\"\n",
            "spec.schedule: Invalid value: \"61 * * * *\": minute: 61 is not from 0 to 59",
        ),
        ("  schedule: \"TZ=UTC @daily\"\n", "use timeZone field instead"),
        (&format!("{daily}  timeZone: ../shadow\n"), "spec.timeZone: Invalid value"),
        (&format!("{daily}  timeZone: Local\n"), "timeZone must be an explicit time zone"),
        (&format!("{daily}  concurrencyPolicy: Maybe\n"), "spec.concurrencyPolicy: Unsupported value: \"Maybe\""),
        (&format!("{daily}  startingDeadlineSeconds: -1\n"), "spec.startingDeadlineSeconds: Invalid value: -1"),
        (&format!("{daily}  successfulJobsHistoryLimit: 101\n"), "must be at most 100 on one machine"),
        (&format!("{daily}  shedule: x\n"), "shedule"),
    ] {
        let said = k.fails(&["apply", "-f", &k.file("wrong.yaml", &text("wrong", spec, "exit 0"))]);
        assert!(said.contains(why), "{spec}: {said}");
    }
    for (wrong, why) in [
        ("restartPolicy: Always", "spec.jobTemplate.spec.template.spec.restartPolicy: Unsupported value: \"Always\""),
        ("restartPolicy: Never\n          hostname: A_B", "spec.jobTemplate.spec.template.spec.hostname"),
    ] {
        let text = text("wrong", daily, "exit 0").replace("restartPolicy: Never", wrong);
        let said = k.fails(&["apply", "-f", &k.file("wrong.yaml", &text)]);
        assert!(said.contains(why), "{said}");
    }
    let long = text(&"x".repeat(53), daily, "exit 0");
    let said = k.fails(&["apply", "-f", &k.file("wrong.yaml", &long)]);
    assert!(said.contains("must be no more than 52 characters"), "{said}");
    assert_eq!(k.ok(&["get", "cronjobs", "-o", "name"]), "");
}
