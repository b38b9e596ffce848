//! The cells of a Job and of a CronJob in a table.

use super::pod_row::{flag, list, since, text};
use jiff::Timestamp;
use serde_json::Value;

/// Returns the status, the completions and the duration of a Job.
pub(super) fn job_cells(job: &Value, now: Timestamp) -> [Value; 3] {
    [status(job).into(), completions(job).into(), duration(job, now).into()]
}

/// Returns the schedule, the time zone, the suspension, the active Jobs and the time since the last one of a CronJob.
pub(super) fn cron_job_cells(cron_job: &Value, now: Timestamp) -> [Value; 5] {
    let zone = Some(text(cron_job, "/spec/timeZone")).filter(|zone| !zone.is_empty());
    let last = text(cron_job, "/status/lastScheduleTime").parse().ok();
    [
        text(cron_job, "/spec/schedule").into(),
        zone.unwrap_or("<none>").into(),
        if flag(cron_job, "/spec/suspend") { "True" } else { "False" }.into(),
        list(cron_job, "/status/active").len().into(),
        last.map_or_else(|| "<none>".to_owned(), |last| since(last, now)).into(),
    ]
}

/// Returns the condition that says most about the Job, in the order of kubectl.
fn status(job: &Value) -> &'static str {
    let conditions = list(job, "/status/conditions");
    let is_true = |type_: &str| conditions.iter().any(|c| text(c, "/type") == type_ && text(c, "/status") == "True");
    let all = ["Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet"];
    all.into_iter().find(|type_| is_true(type_)).unwrap_or("Running")
}

fn completions(job: &Value) -> String {
    let number = |path: &str| job.pointer(path).and_then(Value::as_i64);
    let succeeded = number("/status/succeeded").unwrap_or_default();
    match (number("/spec/completions"), number("/spec/parallelism")) {
        (Some(completions), _) => format!("{succeeded}/{completions}"),
        (None, Some(parallelism @ 2..)) => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

/// Returns the time from the start to the end of the Job, or to now.
fn duration(job: &Value, now: Timestamp) -> String {
    let Ok(start) = text(job, "/status/startTime").parse() else { return String::new() };
    let failed = list(job, "/status/conditions").iter().find(|c| text(c, "/type") == "Failed");
    let failed = failed.map(|condition| text(condition, "/lastTransitionTime"));
    let end = Some(text(job, "/status/completionTime")).filter(|end| !end.is_empty()).or(failed);
    since(start, end.and_then(|end| end.parse().ok()).unwrap_or(now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_job_is_shown_as_kubectl_shows_it() {
        let now = "2026-01-02T03:10:00Z".parse().expect("a time");
        let cells = |job: Value| job_cells(&job, now).map(|cell| cell.as_str().unwrap_or_default().to_owned());
        let job = json!({"spec": {"completions": 3, "parallelism": 1},
            "status": {"succeeded": 1, "startTime": "2026-01-02T03:09:30Z"}});
        assert_eq!(cells(job), ["Running", "1/3", "30s"]);
        let job = json!({"spec": {"parallelism": 2}, "status": {"conditions": [{"type": "Complete", "status": "True"}],
            "startTime": "2026-01-02T03:00:00Z", "completionTime": "2026-01-02T03:00:05Z"}});
        assert_eq!(cells(job), ["Complete", "0/1 of 2", "5s"]);
        assert_eq!(cells(json!({"spec": {"completions": 1}})), ["Running", "0/1", ""]);
    }

    #[test]
    fn a_cron_job_is_shown_as_kubectl_shows_it() {
        let now = "2026-01-02T03:10:00Z".parse().expect("a time");
        let mut cron_job = json!({"spec": {"schedule": "*/5 * * * *", "suspend": false}});
        let new: [Value; 5] = ["*/5 * * * *".into(), "<none>".into(), "False".into(), 0.into(), "<none>".into()];
        assert_eq!(cron_job_cells(&cron_job, now), new);
        cron_job["spec"]["timeZone"] = "Europe/Berlin".into();
        cron_job["status"] = json!({"active": [{"name": "a"}], "lastScheduleTime": "2026-01-02T03:05:00Z"});
        let [_, zone, _, active, last] = cron_job_cells(&cron_job, now);
        assert_eq!([zone, active, last], [Value::from("Europe/Berlin"), 1.into(), "5m".into()]);
    }
}
