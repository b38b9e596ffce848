//! Writes log lines and events of pods for the engine's notices, and when containers end or pods are removed. Each
//! event is one log line, which begins with `pod=... container=... reason=...` for searching and ends with the message.
//!
//! Each restart of a crashing container is logged, since the back-off makes restarts rare. A notice that repeats is
//! logged at most once a minute.

use super::logging::LogDeduplicator;
use crate::api::k8s::ContainerState;
use crate::api::names::{FullName, Uid};
use crate::api::ordered::CollectOrdered;
use crate::api::problem::Problem;
use crate::api::reason::Reason;
use crate::api::time::Now;
use crate::engine::effect::{ContainerEnd, ManifestNews, Notice, Severity, Subject};
use crate::engine::node::{Engine, PodView};
use crate::kubectl_api::event_cache::{EventCache, Involved, Occurrence};
use log::Level;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Maximum length of a stored warning, in characters. A longer one is truncated.
const MAX_WARNING: usize = 500;

/// Writes the log lines and the events of pods and of the node.
#[derive(Debug, Default)]
pub struct EventRecorder {
    /// The pods for which something was logged.
    pods: BTreeMap<Uid, OfPod>,
    cache: EventCache,
    /// The errors of manifests that have already been recorded as events.
    manifest_errors: BTreeSet<String>,
    /// Whether events were recorded since the last `take_changed`.
    changed: bool,
}

#[derive(Debug, Default)]
struct OfPod {
    /// The last warning, until one of the pod's containers starts.
    warning: Option<String>,
}

impl EventRecorder {
    /// Creates a recorder. `cache` has the events of earlier runs.
    pub(super) fn new(cache: EventCache) -> EventRecorder {
        EventRecorder { cache, ..EventRecorder::default() }
    }

    pub(super) fn cache(&self) -> &EventCache {
        &self.cache
    }

    /// Reports whether events were recorded since the last call.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    pub(super) fn record_notice(&mut self, notice: &Notice, engine: &Engine, log: &mut LogDeduplicator, now: Now) {
        if let Subject::Pod(pod) = &notice.subject {
            if engine.pod(&pod.uid).is_some() {
                self.pods.entry(pod.uid.clone()).or_default();
            }
            self.keep(notice);
        }
        let field_path = notice.subject.pod().zip(notice.container.as_ref()).map(|(pod, name)| pod.field_of(name));
        let object = match &notice.subject {
            Subject::Node => None,
            Subject::Pod(pod) => Some(Involved::pod(&pod.uid, &pod.name)),
            Subject::Workload { kind, name, uid } => Some(Involved { kind: *kind, uid, name }),
        };
        self.record(
            &Occurrence {
                object,
                field_path: field_path.as_deref(),
                severity: notice.severity,
                reason: &notice.reason,
                message: &notice.message,
            },
            now,
        );
        let line = line(notice);
        match notice.severity {
            // A Created event is of little use: it always follows Pulled and precedes Started.
            Severity::Normal if notice.reason == Reason::Created => log::debug!("{line}"),
            Severity::Normal => log::info!("{line}"),
            Severity::Warning => log_once(log, Level::Warn, &line, now),
        }
    }

    /// Logs that the pod's status has changed or that the pod was forgotten. Returns false if its removal was logged
    /// before.
    pub(super) fn report_change(&mut self, engine: &Engine, uid: &Uid, name: &FullName, now: Now) -> bool {
        if let Some(view) = engine.pod(uid) {
            log::debug!("{}", summary(&view));
            self.pods.entry(uid.clone()).or_default();
            self.cache.pod_exists(uid);
            return true;
        }
        let news = self.pods.remove(uid).is_some();
        if news {
            let message = "the pod has stopped and its manifest or object is gone; its files are being removed";
            log::info!("pod={name} reason=Removed message={message:?}");
            let (object, severity, reason) = (Some(Involved::pod(uid, name)), Severity::Normal, &Reason::Removed);
            self.record(&Occurrence { object, field_path: None, severity, reason, message }, now);
        }
        self.cache.pod_gone(uid);
        news
    }

    /// Logs the end of a container.
    pub(super) fn report_end(&mut self, of: &ContainerEnd, now: Now) {
        let ContainerEnd { pod, container, end, .. } = of;
        let severity = if end.exit_code == 0 { Severity::Normal } else { Severity::Warning };
        match severity {
            Severity::Normal => log::info!("{}", ended_line(of)),
            Severity::Warning => log::warn!("{}", ended_line(of)),
        }
        let reason = end.reason.as_deref().filter(|r| !r.is_empty()).map(|r| format!(" ({r})")).unwrap_or_default();
        // The message contains only what similar ends have in common, so that they are counted as one event.
        let message = &format!("Container {container} ended with exit code {}{reason}", end.exit_code);
        let field_path = pod.field_of(container);
        let (object, field_path) = (Some(Involved::pod(&pod.uid, &pod.name)), Some(field_path.as_str()));
        self.record(&Occurrence { object, field_path, severity, reason: &Reason::ContainerDied, message }, now);
    }

    /// Logs news about manifests, and records each new error as an event of the node.
    pub(super) fn report_manifests(&mut self, news: &ManifestNews, engine: &Engine, now: Now) {
        match news {
            ManifestNews::Errors { log } => {
                log.iter().for_each(|problem| log::warn!("{}", manifest_error_line(problem)));
            }
            ManifestNews::Corrected { path } => log::info!("manifest corrected file={path:?}"),
            ManifestNews::Warning { path, warning } => log::warn!("manifest warning file={path:?} warning={warning:?}"),
        }
        let problems: BTreeSet<String> =
            engine.manifest_problems().flat_map(|p| &p.problems).map(ToString::to_string).collect_set();
        let before = std::mem::replace(&mut self.manifest_errors, problems);
        let new: Vec<String> = self.manifest_errors.difference(&before).cloned().collect();
        for problem in new {
            self.node_event(Severity::Warning, Reason::BadManifest, &problem, now);
        }
    }

    pub(super) fn node_event(&mut self, severity: Severity, reason: Reason, message: &str, now: Now) {
        self.record(&Occurrence { object: None, field_path: None, severity, reason: &reason, message }, now);
    }

    /// Stores an event for later clients.
    fn record(&mut self, event: &Occurrence<'_>, now: Now) {
        self.changed = true;
        self.cache.record(event, now);
    }

    /// Returns the last warning about a pod whose containers do not start. The pod's status has no field for it.
    pub fn warning(&self, uid: &Uid) -> Option<&str> {
        self.pods.get(uid)?.warning.as_deref()
    }

    fn keep(&mut self, notice: &Notice) {
        let Some(pod) = notice.subject.pod().and_then(|pod| self.pods.get_mut(&pod.uid)) else { return };
        match notice.severity {
            Severity::Warning => pod.warning = Some(notice.message.chars().take(MAX_WARNING).collect()),
            Severity::Normal if notice.reason == Reason::Started => pod.warning = None,
            Severity::Normal => {}
        }
    }
}

fn log_once(log: &mut LogDeduplicator, level: Level, line: &str, now: Now) {
    match log.repetitions(line, now.boot) {
        Some(0) => log::log!(level, "{line}"),
        Some(times) => log::log!(level, "{line} repeated={times}"),
        None => {}
    }
}

fn line(notice: &Notice) -> String {
    let mut line = String::new();
    // Writing to a String does not fail.
    match &notice.subject {
        Subject::Node => {}
        Subject::Pod(pod) => {
            let _ = write!(line, "pod={} ", pod.name);
            if log::log_enabled!(Level::Debug) {
                let _ = write!(line, "uid={} ", pod.uid);
            }
        }
        Subject::Workload { kind, name, .. } => {
            let _ = write!(line, "{}={name} ", kind.in_api().0.to_lowercase());
        }
    }
    if let Some(container) = &notice.container {
        let _ = write!(line, "container={container} ");
    }
    let _ = write!(line, "reason={} message={:?}", notice.reason, notice.message);
    line
}

/// Returns the log line for a problem of a manifest. Fields that the problem does not have are omitted.
fn manifest_error_line(problem: &Problem) -> String {
    let mut text = format!("manifest error file={:?}", problem.path);
    // Writing to a String cannot fail.
    let _ = match (problem.line, problem.document) {
        (Some(line), _) => write!(text, " line={line}"),
        (None, document) if document > 1 => write!(text, " document={document}"),
        _ => Ok(()),
    };
    if let Some(field) = &problem.field {
        let _ = write!(text, " field={field:?}");
    }
    let _ = write!(text, " error={:?}", problem.message);
    text
}

/// Returns a line such as `pod=default/web status phase=Running ready=True main=running`.
fn summary(view: &PodView<'_>) -> String {
    let status = view.status;
    let of = |conditions: &[crate::api::k8s::PodCondition], kind: &str| {
        conditions.iter().find(|c| c.type_ == kind).map_or("Unknown".to_owned(), |c| c.status.clone())
    };
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let phase = status.phase.as_deref().unwrap_or("Unknown");
    let mut line = format!("pod={} status phase={phase} ready={}", view.pod.name, of(conditions, "Ready"));
    for c in status.container_statuses.iter().flatten() {
        let _ = match &c.state {
            Some(ContainerState { running: Some(_), .. }) => write!(line, " {}=running", c.name),
            Some(ContainerState { terminated: Some(t), .. }) => write!(line, " {}=exited:{}", c.name, t.exit_code),
            Some(ContainerState { waiting: Some(w), .. }) => {
                write!(line, " {}=waiting:{}", c.name, w.reason.as_deref().unwrap_or("?"))
            }
            _ => write!(line, " {}=unknown", c.name),
        };
    }
    line
}

fn ended_line(ContainerEnd { pod, container, restart_count, end }: &ContainerEnd) -> String {
    let reason = end.reason.as_deref().unwrap_or("Ended");
    let mut line = format!("pod={} container={container} reason={reason} exit_code={}", pod.name, end.exit_code);
    // The start time of a container that never started is the epoch.
    let from = end.started_at.as_ref().filter(|at| at.0.as_second() > 0);
    if let (Some(from), Some(to)) = (from, &end.finished_at) {
        let _ = write!(line, " ran={}s", (to.0.as_second() - from.0.as_second()).max(0));
    }
    let _ = write!(line, " restarts={restart_count}");
    if let Some(message) = end.message.as_deref().map(str::trim_end).filter(|m| !m.is_empty()) {
        // A termination message can have up to 4,096 bytes; its first part is enough for the log.
        let start: String = message.chars().take(200).collect();
        let more = if start.len() < message.len() { "..." } else { "" };
        let _ = write!(line, " message={:?}", format!("{start}{more}"));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::document;
    use crate::api::document::context::Context;
    use crate::api::k8s::ContainerStateTerminated;
    use std::rc::Rc;

    const POD: &str =
        "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: main, image: i:1}]}}";
    const CONTEXT: Context<'_> = Context::new("lab", "2027-01-15T08:00:00Z");

    fn notice(container: Option<&str>, message: &str) -> Notice {
        Notice {
            subject: Subject::Node,
            container: container.map(str::to_owned),
            severity: Severity::Normal,
            reason: Reason::Started,
            message: message.into(),
        }
    }

    #[test]
    fn a_notice_has_its_keys_first_and_its_words_quoted() {
        assert_eq!(line(&notice(None, "x \"y\"\nz")), r#"reason=Started message="x \"y\"\nz""#);
        assert_eq!(line(&notice(Some("main"), "m")), r#"container=main reason=Started message="m""#);
    }

    #[test]
    fn a_manifest_error_has_only_the_known_fields() {
        let whole = Problem::of_file("/m/a", "a FIFO");
        assert_eq!(manifest_error_line(&whole), r#"manifest error file="/m/a" error="a FIFO""#);
        let field = Problem { document: 2, line: Some(7), field: Some("spec.x".into()), ..whole };
        assert_eq!(manifest_error_line(&field), r#"manifest error file="/m/a" line=7 field="spec.x" error="a FIFO""#);
    }

    #[test]
    fn an_end_is_logged_with_its_code_and_how_long_it_ran() {
        let time = |s: i64| jiff::Timestamp::from_second(s).ok().map(crate::api::k8s::Time);
        let terminated = ContainerStateTerminated {
            exit_code: 3,
            reason: Some("Error".into()),
            started_at: time(10),
            finished_at: time(15),
            message: Some(format!("{}\n", "\u{e4}".repeat(201))),
            ..Default::default()
        };
        let pod = Rc::new(document::read(POD.as_bytes(), "/m/web.yaml", CONTEXT).0.remove(0));
        let end = ContainerEnd { pod, container: "main".into(), restart_count: 2, end: terminated };
        let line = ended_line(&end);
        let start = "pod=default/web container=main reason=Error exit_code=3 ran=5s restarts=2 message=\"";
        assert_eq!(line, format!("{start}{}...\"", "\u{e4}".repeat(200)));
    }
}
