//! CronJobs: times, restarts around them, concurrency, missed times, time zones, clocks, what remains of their Jobs.
//! The worlds begin at 08:16:40 UTC on the 15th of January 2027.

use super::deployments::{controller, running};
use crate::runtime::Life;
use crate::story::node;
use crate::world::{MS, S, World};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use wherry::api::names::FullName;
use wherry::api::workload::key::WorkloadKind;
use wherry::engine::control::{Reply, Request};
use wherry::engine::workloads::shown;

const WORK: &str = "restartPolicy: Never, containers: [{name: work, image: 'busybox:1.35'}]";
const EACH_MINUTE: &str = "schedule: '* * * * *'";
const HOUR: u64 = 3600 * S;

/// A node on which the containers of Jobs succeed after this time.
fn working(seconds: u64) -> World {
    let mut w = node();
    let life = Life::exits(0, Duration::from_secs(seconds));
    w.processes.lives.insert("*/work".to_owned(), [life].into());
    w
}

/// Runs until this time after 08:16:40, in milliseconds.
fn run_to(w: &mut World, ms: u64) {
    w.run_ms(ms - w.clock.since_start() / MS);
}

/// The names of the Jobs.
fn jobs(w: &World) -> Vec<String> {
    let all = w.engine.workloads().iter().filter(|(key, _)| key.kind == WorkloadKind::Job);
    all.map(|(key, _)| key.name.name.to_string()).collect()
}

fn status(w: &World) -> Value {
    controller(w, WorkloadKind::CronJob, "tick").map(shown::object).map(|mut o| o["status"].take()).unwrap_or_default()
}

fn active(w: &World) -> usize {
    status(w)["active"].as_array().map_or(0, Vec::len)
}

fn records(w: &World, kind: &str) -> usize {
    w.disk.records.keys().filter(|key| key.starts_with(kind)).count()
}

/// The number of containers that each Job has started, by the name of the Job.
fn starts(w: &World) -> BTreeMap<String, usize> {
    let mut starts = BTreeMap::new();
    for container in w.runtime.containers.values() {
        let pod = &container.pod_name.name;
        let (job, _) = pod.rsplit_once('-').expect("a name with random characters");
        *starts.entry(job.to_owned()).or_default() += 1;
    }
    starts
}

#[test]
fn y20_a_cron_job_creates_a_job_at_each_time() {
    let mut w = working(2);
    w.define_cron_job("tick", EACH_MINUTE, "", WORK);
    run_to(&mut w, 19_900);
    assert_eq!((jobs(&w).len(), records(&w, "cronjobs/")), (0, 1));
    run_to(&mut w, 20_500);
    // 1,800,001,020 seconds after 1970 are 30,000,017 minutes.
    assert_eq!((jobs(&w), active(&w)), (vec!["tick-30000017".to_owned()], 1));
    assert_eq!(status(&w)["lastScheduleTime"], "2027-01-15T08:17:00Z");
    run_to(&mut w, 20_500 + 600_000 - 10_000);
    assert_eq!((w.notices("SawCompletedJob").len(), jobs(&w).len()), (10, 3), "three stay");
    assert_eq!(status(&w)["lastSuccessfulTime"].as_str().map(|at| &at[..17]), Some("2027-01-15T08:26:"));
    assert_eq!(w.notices("TooManyMissedTimes").len(), 0);
    w.remove_cron_job("tick");
    w.run(60);
    assert_eq!((w.engine.workloads().is_empty(), records(&w, "cronjobs/"), records(&w, "jobs/")), (true, 0, 0));
    w.assert_well();
}

#[test]
fn y20_a_restart_at_any_moment_neither_loses_nor_repeats_a_job() {
    for reboots in [false, true] {
        for at in 0..24 {
            let mut w = working(2);
            w.define_cron_job("tick", EACH_MINUTE, "", WORK);
            run_to(&mut w, 19_500 + at * 100);
            match reboots {
                false => w.restart_engine(),
                true => w.reboot(S),
            }
            run_to(&mut w, 130_000);
            let names = ["tick-30000017", "tick-30000018"].map(str::to_owned);
            assert_eq!(jobs(&w), names, "{at} {reboots}");
            if !reboots {
                assert_eq!(starts(&w), names.map(|name| (name, 1)).into(), "{at}");
            }
            w.assert_well();
        }
    }
}

#[test]
fn y20_a_kill_after_any_effect_neither_loses_nor_repeats_a_job() {
    for effects in 0..12 {
        let mut w = working(2);
        w.define_cron_job("tick", EACH_MINUTE, "", WORK);
        run_to(&mut w, 19_900);
        w.kill_after(effects, S);
        run_to(&mut w, 130_000);
        let names = ["tick-30000017", "tick-30000018"].map(str::to_owned);
        assert_eq!(starts(&w), names.map(|name| (name, 1)).into(), "{effects}");
        assert_eq!(w.notices("FailedCreate").len(), 0, "{effects}");
        w.assert_well();
    }
}

#[test]
fn y20_the_pods_of_a_job_wait_for_its_record() {
    let mut w = working(2);
    w.define_cron_job("tick", EACH_MINUTE, "", WORK);
    run_to(&mut w, 19_990);
    let mut waited = false;
    while w.engine.pods().is_empty() {
        waited |= jobs(&w).len() == 1 && records(&w, "jobs/") == 0;
        w.run_ms(1);
    }
    assert!(waited && records(&w, "jobs/") == 1);
    w.assert_well();
}

#[test]
fn y20_the_policy_decides_while_an_earlier_job_is_active() {
    for (policy, most) in [("Allow", 3), ("Forbid", 1), ("Replace", 1)] {
        let mut w = working(130);
        w.define_cron_job("tick", &format!("{EACH_MINUTE}, concurrencyPolicy: {policy}"), "", WORK);
        run_to(&mut w, 20_500);
        let mut seen = 0;
        for _ in 0..40 {
            w.run(5);
            seen = seen.max(active(&w));
        }
        assert_eq!(seen, most, "{policy}");
        let counts = [w.notices("JobAlreadyActive").len(), w.notices("SawCompletedJob").len()];
        match policy {
            // The first ends after 130 s, the one that is due follows at once, and the next waits again.
            "Forbid" => assert_eq!(counts, [3, 1]),
            "Replace" => assert_eq!((counts, jobs(&w).len()), ([0, 0], 1)),
            _ => assert_eq!(counts, [0, 2]),
        }
        w.assert_well();
    }
}

#[test]
fn y20_at_most_100_jobs_of_a_cron_job_are_active() {
    let mut w = working(1_000_000);
    w.define_cron_job("tick", "schedule: '@every 5s'", "parallelism: 0, ", WORK);
    w.run(700);
    assert_eq!((jobs(&w).len(), active(&w), records(&w, "jobs/")), (100, 100, 100));
    assert!(!w.notices("JobAlreadyActive").is_empty());
    w.assert_well();
}

#[test]
fn y20_of_the_times_that_were_missed_the_last_one_is_made_up_for() {
    for (deadline, expected) in [("", 1), (", startingDeadlineSeconds: 60", 0)] {
        let mut w = working(2);
        w.define_cron_job("tick", &format!("schedule: '0 * * * *'{deadline}"), "", WORK);
        w.run(30);
        w.reboot(5 * HOUR);
        w.run(5 * 3600 + 120);
        assert_eq!((jobs(&w).len(), w.notices("MissSchedule").len()), (expected, 1 - expected), "{deadline}");
        w.run(3600);
        assert_eq!(jobs(&w).len(), expected + 1);
        w.assert_well();
    }
    let mut w = working(2);
    w.define_cron_job("tick", EACH_MINUTE, "", WORK);
    w.run(30);
    w.reboot(5 * HOUR);
    w.run(5 * 3600 + 20);
    assert_eq!((jobs(&w).len(), w.notices("TooManyMissedTimes").len()), (2, 1));
    w.assert_well();
}

#[test]
fn y20_a_cron_job_that_is_suspended_creates_no_jobs() {
    let mut w = working(200);
    w.define_cron_job("tick", &format!("{EACH_MINUTE}, suspend: true"), "", WORK);
    w.run(200);
    assert_eq!(jobs(&w).len(), 0);
    w.define_cron_job("tick", &format!("{EACH_MINUTE}, suspend: false"), "", WORK);
    w.run(5);
    assert_eq!(active(&w), 1, "the last time that was missed");
    w.define_cron_job("tick", &format!("{EACH_MINUTE}, suspend: true"), "", WORK);
    w.run(120);
    assert_eq!((active(&w), running(&w)), (1, 1), "a Job that exists goes on");
    w.assert_well();
}

#[test]
fn y21_the_times_are_those_of_the_time_zone() {
    let mut w = working(2);
    w.define_cron_job("tick", "schedule: '30 9 * * *', timeZone: Europe/Berlin", "", WORK);
    run_to(&mut w, 799_900);
    assert_eq!(jobs(&w).len(), 0);
    run_to(&mut w, 800_500);
    assert_eq!(jobs(&w).len(), 1, "09:30 in Berlin is 08:30 UTC in winter");
    let job = controller(&w, WorkloadKind::Job, &jobs(&w)[0]).map(shown::object).unwrap_or_default();
    let scheduled = &job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"];
    assert_eq!(scheduled, "2027-01-15T09:30:00+01:00");
    w.assert_well();
}

#[test]
fn y21_a_time_zone_that_the_machine_does_not_have_is_reported() {
    let mut w = working(2);
    w.define_cron_job("tick", &format!("{EACH_MINUTE}, timeZone: Europe/Atlantis"), "", WORK);
    w.run(3600);
    assert_eq!((jobs(&w).len(), w.notices("UnknownTimeZone").len()), (0, 1));
    w.define_cron_job("tick", &format!("{EACH_MINUTE}, timeZone: Etc/UTC"), "", WORK);
    w.run(61);
    assert!(!jobs(&w).is_empty());
    w.assert_well();
}

#[test]
fn y20_a_clock_that_was_set_is_followed() {
    let mut w = working(2);
    w.define_cron_job("tick", "schedule: '0 12 * * *'", "", WORK);
    w.run(30);
    w.set_clock(4 * HOUR as i64);
    w.run(60);
    assert_eq!(jobs(&w).len(), 1);
    // The clock was four years in the future, for example because its battery is empty.
    w.set_clock(4 * 366 * 24 * HOUR as i64);
    w.run(90);
    assert_eq!(jobs(&w).len(), 2);
    w.set_clock(-4 * 366 * 24 * HOUR as i64);
    w.run(90);
    assert_eq!(jobs(&w).len(), 2, "nothing is due");
    w.run(24 * 3600);
    assert_eq!(w.notices("SawCompletedJob").len(), 3, "the next noon counts");
    w.assert_well();
}

#[test]
fn y20_old_jobs_are_removed_with_their_pods() {
    let mut w = working(2);
    let limits = "successfulJobsHistoryLimit: 1, failedJobsHistoryLimit: 0";
    w.define_cron_job("tick", &format!("{EACH_MINUTE}, {limits}"), "", WORK);
    run_to(&mut w, 20_500 + 220_000);
    assert_eq!((jobs(&w).len(), w.engine.pods().len(), records(&w, "jobs/")), (1, 1, 1));
    w.define_cron_job("tick", "schedule: '0 0 1 1 *'", "ttlSecondsAfterFinished: 30, ", WORK);
    w.run(30);
    assert_eq!(jobs(&w).len(), 1, "it was created without the time limit");
    w.assert_well();

    let mut w = working(2);
    w.define_cron_job("tick", EACH_MINUTE, "ttlSecondsAfterFinished: 20, ", WORK);
    run_to(&mut w, 30_000);
    assert_eq!(jobs(&w).len(), 1);
    run_to(&mut w, 60_000);
    assert_eq!((jobs(&w).len(), w.engine.pods().len(), records(&w, "cronjobs/")), (0, 0, 1));
    run_to(&mut w, 90_000);
    assert_eq!(jobs(&w).len(), 1, "the manifest of the CronJob is still there");
    w.assert_well();
}

#[test]
fn y20_a_user_deletes_a_job_of_a_cron_job() {
    let mut w = working(3000);
    w.define_cron_job("tick", "schedule: '17 * * * *'", "", WORK);
    w.until("the Job runs", 60, |w| running(w) == 1);
    let of = FullName::new("default", &jobs(&w)[0]);
    let unknown = w.ask(Request::DeleteJob { of: FullName::new("default", "tick") });
    assert_eq!(w.answer(unknown).map(|answer| answer.as_ref().map_err(ToString::to_string)), {
        Some(Err("no CronJob has created a Job default/tick".to_owned()))
    });
    let id = w.ask(Request::DeleteJob { of });
    w.restart_engine();
    w.run(120);
    assert_eq!((jobs(&w).len(), running(&w), records(&w, "jobs/"), active(&w)), (0, 0, 0, 0), "it is not repeated");
    assert!(matches!(w.answer(id), None | Some(Ok(Reply::Shortened))));
    w.assert_well();
}

#[test]
fn y20_a_job_of_a_manifest_with_the_name_of_the_next_one_stays() {
    let mut w = working(2);
    w.define_job("tick-30000017", "parallelism: 0", WORK);
    w.define_cron_job("tick", EACH_MINUTE, "", WORK);
    run_to(&mut w, 100_000);
    assert_eq!(jobs(&w), ["tick-30000017", "tick-30000018"]);
    assert_eq!((w.notices("FailedCreate").len(), w.notices("Completed").len()), (1, 1));
    w.remove_cron_job("tick");
    w.run(30);
    assert_eq!(jobs(&w), ["tick-30000017"]);
    w.assert_well();
}

#[test]
fn y20_the_record_of_a_removed_job_is_deleted_when_the_disk_works_again() {
    let mut w = working(3000);
    w.define_cron_job("tick", "schedule: '17 * * * *'", "", WORK);
    w.until("the Job runs", 60, |w| running(w) == 1);
    w.disk_fails(20 * S);
    w.ask(Request::DeleteJob { of: FullName::new("default", &jobs(&w)[0]) });
    w.run(10);
    assert_eq!((jobs(&w).len(), records(&w, "jobs/")), (0, 1));
    w.run(60);
    assert_eq!(records(&w, "jobs/"), 0);
    w.restart_engine();
    w.run(60);
    assert_eq!((jobs(&w).len(), running(&w)), (0, 0), "it does not come back");
    w.assert_well();
}

#[test]
fn y20_a_new_template_applies_to_the_next_job() {
    let mut w = working(200);
    w.define_cron_job("tick", EACH_MINUTE, "", WORK);
    run_to(&mut w, 25_000);
    w.define_cron_job("tick", EACH_MINUTE, "", &WORK.replace("1.35", "1.36"));
    w.run(10);
    w.restart_engine();
    run_to(&mut w, 100_000);
    let images: Vec<String> =
        w.engine.pods().iter().map(|pod| pod.pod.spec().containers[0].image.clone().unwrap_or_default()).collect();
    assert_eq!((jobs(&w).len(), running(&w)), (2, 2));
    assert!(images.contains(&"busybox:1.35".to_owned()) && images.contains(&"busybox:1.36".to_owned()), "{images:?}");
    w.assert_well();
}
