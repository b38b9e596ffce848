//! Jobs: completions, failures and their delays, indexes, policies, deadlines, restarts at every moment.

use super::deployments::{controller, pod_names, running};
use crate::runtime::Life;
use crate::story::node;
use crate::world::{MS, S, World};
use serde_json::Value;
use std::time::Duration;
use wherry::api::names::Uid;
use wherry::api::workload::key::WorkloadKind;
use wherry::engine::control::Request;
use wherry::engine::workloads::any_controller::AnyController;
use wherry::engine::workloads::shown;

const WORK: &str = "restartPolicy: Never, containers: [{name: work, image: 'busybox:1.35'}]";

fn job(w: &World) -> Option<&AnyController> {
    controller(w, WorkloadKind::Job, "load")
}

fn status(w: &World) -> Value {
    job(w).map(shown::object).map(|mut object| object["status"].take()).unwrap_or_default()
}

/// Succeeded, failed and active pods.
fn counts(w: &World) -> [u64; 3] {
    let status = status(w);
    ["succeeded", "failed", "active"].map(|field| status[field].as_u64().unwrap_or_default())
}

/// The type and the reason of the last condition.
fn end(w: &World) -> (String, String) {
    let status = status(w);
    let last = status["conditions"].as_array().and_then(|all| all.last()).cloned().unwrap_or_default();
    let text = |field: &str| last[field].as_str().unwrap_or_default().to_owned();
    (text("type"), text("reason"))
}

fn has_ended(w: &World) -> bool {
    matches!(&*end(w).0, "Complete" | "Failed")
}

/// A node on which the containers of Jobs end with these codes after two seconds; the last one repeats.
fn working(codes: &[i32]) -> World {
    let mut w = node();
    let lives = codes.iter().map(|code| Life::exits(*code, Duration::from_secs(2))).collect();
    w.processes.lives.insert("*/work".to_owned(), lives);
    w
}

#[test]
fn y18_a_job_runs_until_enough_pods_have_succeeded() {
    let mut w = working(&[0]);
    w.define_job("load", "completions: 5, parallelism: 2", WORK);
    let mut most = 0;
    for _ in 0..300 {
        w.run_ms(100);
        most = most.max(running(&w));
    }
    assert_eq!((counts(&w), most, end(&w).0), ([5, 0, 0], 2, "Complete".to_owned()));
    assert_eq!((w.notices("Completed").len(), job(&w).map(pod_names).unwrap_or_default().len()), (1, 5));
    assert!(status(&w)["completionTime"].is_string());
    w.restart_engine();
    w.run(120);
    assert_eq!((counts(&w), w.notices("SuccessfulCreate").len()), ([5, 0, 0], 5));
    w.remove_job("load");
    w.run(60);
    assert!(w.engine.workloads().is_empty());
    w.assert_well();
}

#[test]
fn y18_failures_are_repeated_with_growing_delays_up_to_the_limit() {
    let mut w = working(&[1]);
    w.define_job("load", "backoffLimit: 2", WORK);
    w.run(8);
    assert_eq!(counts(&w), [0, 1, 0]);
    w.run(12);
    assert_eq!(counts(&w)[1], 2, "10 s after the first failure");
    w.run(12);
    assert_eq!(counts(&w)[1], 2, "the second delay is 20 s");
    w.until("the Job has failed", 60, has_ended);
    assert_eq!((counts(&w), end(&w)), ([0, 3, 0], ("Failed".into(), "BackoffLimitExceeded".into())));
    assert_eq!(w.notices("BackoffLimitExceeded").len(), 1);
    w.run(600);
    assert_eq!(w.notices("SuccessfulCreate").len(), 3);
    w.assert_well();
}

#[test]
fn y18_no_completion_is_counted_twice_after_a_restart_at_any_moment() {
    for reboots in [false, true] {
        for at in 0..20 {
            let mut w = working(&[0, 1, 0]);
            w.define_job("load", "completions: 3, parallelism: 2", WORK);
            w.run_ms(at * 500);
            match reboots {
                false => w.restart_engine(),
                true => w.reboot(S),
            }
            w.until("the Job is complete", 600, has_ended);
            w.restart_engine();
            w.run(120);
            assert_eq!((counts(&w)[0], end(&w).0.as_str(), running(&w)), (3, "Complete", 0), "{at} {reboots}");
            w.assert_well();
        }
    }
}

#[test]
fn y18_a_pod_that_a_user_deletes_has_failed() {
    let mut w = node();
    w.define_job("load", "backoffLimit: 3", WORK);
    w.until("it runs", 30, |w| running(w) == 1);
    let name = job(&w).map(pod_names).and_then(|names| names.into_iter().next()).expect("a pod");
    let uid = w.shown_uid(&name);
    w.ask(Request::DeleteReplica { uid: Uid::from(uid.as_str()), grace: None });
    w.until("it is replaced", 120, |w| counts(w) == [0, 1, 1] && running(w) == 1);
    w.assert_well();
}

#[test]
fn y18_a_job_that_is_suspended_has_no_pods() {
    let mut w = node();
    w.define_job("load", "suspend: true, activeDeadlineSeconds: 50", WORK);
    w.run(100);
    assert_eq!((counts(&w), end(&w)), ([0; 3], ("Suspended".into(), "JobSuspended".into())));
    w.define_job("load", "suspend: false, activeDeadlineSeconds: 50", WORK);
    w.until("it runs", 30, |w| running(w) == 1);
    w.define_job("load", "suspend: true, activeDeadlineSeconds: 50", WORK);
    w.until("it ends", 60, |w| running(w) == 0);
    assert_eq!(counts(&w), [0; 3]);
    w.define_job("load", "activeDeadlineSeconds: 50", WORK);
    w.run(40);
    assert_eq!(running(&w), 1, "the deadline starts again");
    w.until("the deadline is over", 60, has_ended);
    assert_eq!((end(&w), running(&w)), (("Failed".into(), "DeadlineExceeded".into()), 0));
    w.assert_well();
}

#[test]
fn y19_each_index_succeeds_once() {
    let mut w = working(&[0, 1, 0]);
    w.define_job("load", "completions: 3, parallelism: 3, completionMode: Indexed", WORK);
    w.run(1);
    let pods: Vec<_> = job(&w).into_iter().flat_map(|of| of.get().state().history.pods().cloned()).collect();
    let names: Vec<Option<String>> = pods.iter().map(|pod| pod.spec().hostname.clone()).collect();
    assert!(["load-0", "load-1", "load-2"].iter().all(|name| names.contains(&Some((*name).to_owned()))), "{names:?}");
    let env = pods[0].spec().containers[0].env.clone().unwrap_or_default();
    assert!(env.iter().any(|variable| variable.name == "JOB_COMPLETION_INDEX"));
    w.until("the Job is complete", 120, has_ended);
    assert_eq!((counts(&w), &status(&w)["completedIndexes"]), ([3, 1, 0], &"0-2".into()));
    w.assert_well();
}

#[test]
fn y19_an_index_that_fails_too_often_fails_the_job_at_its_end() {
    let mut w = working(&[1]);
    w.define_job("load", "completions: 2, parallelism: 1, completionMode: Indexed, backoffLimitPerIndex: 1", WORK);
    w.until("the Job has failed", 300, has_ended);
    assert_eq!((counts(&w), end(&w).1.as_str()), ([0, 4, 0], "FailedIndexes"));
    assert_eq!(status(&w)["failedIndexes"], "0,1");
    w.assert_well();
}

#[test]
fn y19_policies_end_a_job_early() {
    let mut w = working(&[42]);
    let rules = "rules: [{action: FailJob, onExitCodes: {operator: In, values: [42]}}]";
    w.define_job("load", &format!("podFailurePolicy: {{{rules}}}"), WORK);
    w.until("the Job has failed", 60, has_ended);
    assert_eq!((counts(&w)[1], end(&w).1.as_str()), (1, "PodFailurePolicy"));
    w.assert_well();
    let mut w = working(&[0]);
    let spec =
        "completions: 4, parallelism: 1, completionMode: Indexed, successPolicy: {rules: [{succeededIndexes: '0'}]}";
    w.define_job("load", spec, WORK);
    w.until("the Job is complete", 60, has_ended);
    assert_eq!((counts(&w)[0], end(&w)), (1, ("Complete".into(), "SuccessPolicy".into())));
    w.assert_well();
}

#[test]
fn y18_a_finished_job_is_removed_after_its_time() {
    for restarts in [false, true] {
        let mut w = working(&[0]);
        w.define_job("load", "ttlSecondsAfterFinished: 60", WORK);
        w.until("the Job is complete", 30, has_ended);
        w.run(30);
        if restarts {
            w.restart_engine();
        }
        w.run(20);
        assert_eq!((has_ended(&w), w.engine.workloads().is_empty()), (true, false));
        w.run(30);
        assert!(w.engine.workloads().is_empty() && job(&w).is_none(), "{}", w.trace());
        w.assert_well();
    }
}

#[test]
fn y18_a_finished_job_in_a_file_with_other_objects_stays_and_says_so() {
    let mut w = working(&[0]);
    w.define_job("load", "ttlSecondsAfterFinished: 5 # --- a second document\n", WORK);
    w.run(3600);
    assert!(has_ended(&w));
    let said = w.notices("FailedDelete");
    assert!(said.len() == 1 && said[0].contains("defines other objects too"), "{said:?}");
    assert_eq!(w.notices("SuccessfulCreate").len(), 1);
    w.assert_well();
}

#[test]
fn y18_a_pod_that_the_node_rejects_is_no_failure() {
    let mut w = node();
    w.define_job("load", "backoffLimit: 0", &format!("nodeSelector: {{disk: none}}, {WORK}"));
    w.run(3600);
    let created = w.notices("SuccessfulCreate").len();
    assert_eq!((counts(&w), has_ended(&w)), ([0; 3], false));
    assert!((8..=12).contains(&created), "10 s, 20 s, ... 600 s between two pods: {created}");
    w.define_job(
        "load",
        "backoffLimit: 0, activeDeadlineSeconds: 3650",
        &format!("nodeSelector: {{disk: none}}, {WORK}"),
    );
    w.until("the deadline is over", 120, has_ended);
    assert_eq!(end(&w).1, "DeadlineExceeded");
    w.assert_well();
}

#[test]
fn y18_restarts_on_failure_count_as_failures() {
    let mut w = working(&[1]);
    w.define_job("load", "backoffLimit: 2", &WORK.replace("Never", "OnFailure"));
    w.until("the Job has failed", 300, has_ended);
    assert_eq!((counts(&w), end(&w).1.as_str(), running(&w)), ([0, 1, 0], "BackoffLimitExceeded", 0));
    assert_eq!(w.notices("SuccessfulCreate").len(), 1);
    w.assert_well();
}

#[test]
fn y18_the_last_pods_that_have_ended_stay() {
    let mut w = working(&[0]);
    w.define_job("load", "completions: 30, parallelism: 5", WORK);
    w.until("the Job is complete", 300, has_ended);
    w.run(30);
    assert_eq!((counts(&w)[0], job(&w).map(pod_names).unwrap_or_default().len()), (30, 10));
    w.restart_engine();
    w.run(60);
    assert_eq!((counts(&w)[0], w.notices("SuccessfulCreate").len()), (30, 30));
    w.assert_well();
}

#[test]
fn y18_no_result_is_lost_when_a_pod_is_forgotten() {
    for at in 0..30 {
        let mut w = working(&[0]);
        w.define_job("load", "completions: 30, parallelism: 30", WORK);
        w.until("some pods have ended", 60, |w| counts(w)[0] > 10);
        w.disk.delay = 400 * MS;
        w.run_ms(at * 100);
        w.restart_engine();
        w.until("the Job is complete", 300, has_ended);
        assert_eq!((counts(&w), w.notices("SuccessfulCreate").len()), ([30, 0, 0], 30), "{at}");
        w.assert_well();
    }
}

#[test]
fn y18_a_pod_that_is_replaced_only_after_its_end_never_runs_beside_the_next_one() {
    let mut w = node();
    w.processes.lives.insert("*/work".to_owned(), [Life::deaf()].into());
    w.define_job("load", "podReplacementPolicy: Failed", WORK);
    w.until("it runs", 30, |w| running(w) == 1);
    let name = job(&w).map(pod_names).and_then(|names| names.into_iter().next()).expect("a pod");
    let uid = w.shown_uid(&name);
    w.ask(Request::DeleteReplica { uid: Uid::from(uid.as_str()), grace: None });
    w.run(15);
    assert_eq!((w.notices("SuccessfulCreate").len(), status(&w)["terminating"].as_u64()), (1, Some(1)));
    w.until("it is replaced", 120, |w| w.notices("SuccessfulCreate").len() == 2 && running(w) == 1);
    w.assert_well();
}

#[test]
fn y18_the_deadline_does_not_depend_on_the_clock_of_the_machine() {
    for by in [-400 * 24 * 3600, 400 * 24 * 3600] {
        let mut w = node();
        w.define_job("load", "activeDeadlineSeconds: 300", WORK);
        w.run(60);
        w.set_clock(by * i64::try_from(S).unwrap_or_default());
        w.run(60);
        // Any change steps the Job, for example that of its parallelism.
        w.define_job("load", "activeDeadlineSeconds: 300, parallelism: 2, completions: 2", WORK);
        w.run(10);
        w.restart_engine();
        w.run(60);
        assert!(!has_ended(&w), "{by}: {}", w.trace());
        w.until("the deadline is over", 240, has_ended);
        assert_eq!(end(&w).1, "DeadlineExceeded");
    }
}

#[test]
fn y18_the_deadline_counts_while_the_machine_is_off() {
    let mut w = node();
    w.define_job("load", "activeDeadlineSeconds: 9000", WORK);
    w.until("it runs", 30, |w| running(w) == 1);
    let started = status(&w)["startTime"].clone();
    // The machine is off for longer than it runs: the Job has started before the boot clock did.
    w.set_clock(i64::try_from(7200 * S).unwrap_or_default());
    w.reboot(S);
    w.run(60);
    assert_eq!((&status(&w)["startTime"], has_ended(&w)), (&started, false));
    w.run(1500);
    assert!(!has_ended(&w), "7200 s and 1560 s have passed");
    w.until("the deadline is over", 400, has_ended);
    assert_eq!(end(&w).1, "DeadlineExceeded");
}

#[test]
fn y19_fewer_completions_end_the_pods_with_higher_indexes() {
    let mut w = node();
    let spec = |n: u32| format!("completions: {n}, parallelism: {n}, completionMode: Indexed");
    w.define_job("load", &spec(4), WORK);
    w.until("all run", 30, |w| running(w) == 4);
    w.define_job("load", &spec(2), WORK);
    w.until("two are left", 60, |w| running(w) == 2);
    let pods: Vec<_> = job(&w).into_iter().flat_map(|of| of.get().state().history.pods().cloned()).collect();
    let mut hosts: Vec<String> = pods.iter().filter_map(|pod| pod.spec().hostname.clone()).collect();
    hosts.sort();
    assert_eq!((hosts.join(" "), counts(&w)), ("load-0 load-1".into(), [0, 0, 2]));
    w.define_job("load", &spec(3), WORK);
    w.until("the third is back", 30, |w| running(w) == 3);
    w.assert_well();
}

#[test]
fn y18_the_template_of_a_job_cannot_be_changed() {
    let mut w = node();
    w.define_job("load", "completions: 1", WORK);
    w.until("it runs", 30, |w| running(w) == 1);
    w.define_job("load", "completions: 1", &WORK.replace("1.35", "1.36"));
    w.run(60);
    assert_eq!((running(&w), w.notices("SuccessfulCreate").len()), (1, 1), "the version in force stays");
    let template = job(&w).map(shown::object).map(|object| object["spec"]["template"].to_string()).unwrap_or_default();
    assert!(template.contains("busybox:1.35"), "{template}");
}

#[test]
fn y18_a_job_that_cannot_be_changed_is_not_changed_by_a_restart_either() {
    let mut w = node();
    w.define_job("load", "completions: 5", WORK);
    w.until("it runs", 30, |w| running(w) == 1);
    w.define_job("load", "completions: 1", WORK);
    w.restart_engine();
    w.run(30);
    let object = job(&w).map(shown::object).unwrap_or_default();
    assert_eq!((&object["spec"]["completions"], running(&w)), (&5.into(), 1));
    assert!(w.notices("BadManifest").iter().all(|text| text.contains("spec.completions: Forbidden")));
    // A file that is removed and added again is another Job.
    w.remove_job("load");
    w.run(60);
    w.define_job("load", "completions: 1", WORK);
    w.until("it runs", 30, |w| running(w) == 1);
    let object = job(&w).map(shown::object).unwrap_or_default();
    assert_eq!(object["spec"]["completions"], 1);
    w.assert_well();
}

#[test]
fn y18_an_eviction_is_no_failure() {
    let mut w = node();
    w.define_job("load", "backoffLimit: 0", WORK);
    w.until("it runs", 30, |w| running(w) == 1);
    let pod = job(&w).map(pod_names).and_then(|names| names.into_iter().next()).expect("a pod");
    let uid = w.shown_uid(&pod);
    w.ask(Request::Cordon { on: true });
    w.run(1);
    w.ask(Request::Evict { uid: Uid::from(uid.as_str()), grace: None });
    w.run(60);
    assert_eq!((running(&w), counts(&w), w.notices("SuccessfulCreate").len()), (0, [0, 0, 1], 1));
    w.ask(Request::Cordon { on: false });
    w.until("it runs again", 60, |w| running(w) == 1);
    assert_eq!((counts(&w), has_ended(&w)), ([0, 0, 1], false));
    w.assert_well();
}
