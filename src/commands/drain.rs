//! `wherry drain` and `wherry undrain` (W27): selects the pods, sends the request to the agent, and waits until the
//! pods have stopped.

use crate::api::control::{DrainOutcome, DrainRequest, Drained, DrainedPod};
use crate::api::kube::pod_row::{self as row, flag, human, text};
use crate::api::ordered::CollectOrdered;
use crate::api::selector::Selector;
use crate::commands::client;
use crate::commands::output::{Failure, print_message, shown, to_stderr};
use crate::commands::screen::{CLEAR_LINE, Screen};
use crate::commands::select::PodTarget;
use serde_json::Value;
use signal_hook::consts::SIGINT;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The exit code after Ctrl-C, as in shells.
const INTERRUPTED: u8 = 130;
/// The interval at which the agent is polled for progress.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The interval at which Ctrl-C is checked.
const NOTICE_EVERY: Duration = Duration::from_millis(100);
/// How long a restart of the agent may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The selected pods.
#[derive(Clone, Debug, Default)]
pub struct Which {
    pub targets: Vec<PodTarget>,
    /// Restricts `selector` and `all` to a namespace.
    pub namespace: Option<String>,
    pub selector: Option<Selector>,
    pub all: bool,
}

impl Which {
    /// Returns the pods of a list that are selected.
    ///
    /// # Errors
    /// A named pod does not exist.
    fn find(&self, list: &Value) -> Result<Vec<Value>, Failure> {
        let mut found: BTreeMap<String, Value> = BTreeMap::new();
        let mut add = |pods: Vec<Value>| {
            found.extend(pods.into_iter().map(|pod| (key(&pod), pod)));
        };
        for target in &self.targets {
            add(target.find(&mut list.clone()).map_err(Failure::message)?);
        }
        if self.all || self.selector.is_some() {
            add(row::list(list, "/items").iter().filter(|pod| self.selects(pod)).cloned().collect());
        }
        Ok(found.into_values().collect())
    }

    fn selects(&self, pod: &Value) -> bool {
        let labels = pod.pointer("/metadata/labels");
        let label = |key: &str| labels.and_then(|l| l.get(key)).and_then(Value::as_str);
        self.namespace.as_deref().is_none_or(|n| n == text(pod, "/metadata/namespace"))
            && self.selector.as_ref().is_none_or(|s| s.matches(label))
    }
}

/// Returns the key by which pods are sorted, in the output and in the request.
fn key(pod: &Value) -> String {
    [text(pod, "/metadata/namespace"), text(pod, "/metadata/name"), text(pod, "/metadata/uid")].join("/")
}

#[derive(Clone, Debug)]
pub struct DrainOptions {
    pub which: Which,
    pub grace_period_seconds: Option<u64>,
    /// Time limit of the wait. None means no limit.
    pub timeout: Option<Duration>,
    pub wait: bool,
    /// Also drain pods that a disruption budget protects.
    pub ignore_budgets: bool,
}

/// Returns 0 once all pods have stopped. Fails with exit code 1 if they have not stopped in time.
pub fn drain(out: &mut dyn Write, socket: &Path, query: &DrainOptions) -> Result<u8, Failure> {
    let pods = query.which.find(&client::get_json(socket, "/pods?verbose")?)?;
    if pods.is_empty() {
        print_message("no pod matches");
        return Ok(0);
    }
    let mut ask = |uids: Vec<String>| {
        let DrainOptions { grace_period_seconds, ignore_budgets, .. } = *query;
        client::post_json(socket, "/drain", &DrainRequest { uids, grace_period_seconds, ignore_budgets })
    };
    let drained = ask(pods.iter().map(uid_of).collect())?;
    // Register the handler before any output, so that a script that sends SIGINT after the first line always gets the
    // exit code of an interrupt.
    let interrupted = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGINT, interrupted.clone())?;
    let Outcomes { ending, refused } = print_outcomes(out, &drained)?;
    for pod in refused.values() {
        print_message(&format!("a disruption budget allows no disruption of pod {pod} now; see kubectl get pdb"));
    }
    if ending.is_empty() && refused.is_empty() {
        return Ok(0);
    }
    if !query.wait {
        for pod in ending.values() {
            writeln!(out, "pod {pod} is being stopped")?;
        }
        return Ok(u8::from(!refused.is_empty()));
    }
    let of = ending.len() + refused.len();
    let mut waiting = DrainWait { left: ending, refused, of, screen: Screen::stderr(), shown: false };
    let mut read = || client::get_json(socket, "/pods?verbose");
    let mut pause = || {
        let until = Instant::now() + LOOK_EVERY;
        while Instant::now() < until && !interrupted.load(Ordering::Relaxed) {
            std::thread::sleep(NOTICE_EVERY);
        }
        interrupted.load(Ordering::Relaxed)
    };
    waiting.wait(out, query.timeout, &mut ask, &mut read, &mut pause)
}

/// Returns 0 if a pod may run again, and 1 if none of the pods was drained.
pub fn undrain(out: &mut dyn Write, socket: &Path, which: &Which) -> Result<u8, Failure> {
    let mut pods = which.find(&client::get_json(socket, "/pods?verbose")?)?;
    if which.targets.is_empty() {
        pods.retain(|pod| flag(pod, "/wherry/drained"));
    }
    if pods.is_empty() {
        print_message("no drained pod matches");
        return Ok(0);
    }
    let uids = pods.iter().map(uid_of).collect();
    let drained: Drained = client::post_json(socket, "/undrain", &DrainRequest { uids, ..DrainRequest::default() })?;
    print_outcomes(out, &drained)?;
    let none = drained.pods.iter().all(|p| p.outcome == DrainOutcome::NotDrained);
    Ok(u8::from(none))
}

fn uid_of(pod: &Value) -> String {
    text(pod, "/metadata/uid").to_owned()
}

/// The names of the pods that have not stopped yet, by UID.
#[derive(Default)]
struct Outcomes {
    ending: BTreeMap<String, String>,
    /// Those that a disruption budget protects.
    refused: BTreeMap<String, String>,
}

/// Prints a line for each pod that is not being stopped. Returns the other pods.
fn print_outcomes(out: &mut dyn Write, drained: &Drained) -> Result<Outcomes, Failure> {
    let mut outcomes = Outcomes::default();
    for DrainedPod { uid, namespace, name, outcome } in &drained.pods {
        let name = shown(&format!("{namespace}/{name}")).into_owned();
        match outcome {
            DrainOutcome::Ending => drop(outcomes.ending.insert(uid.clone(), name)),
            DrainOutcome::Refused => drop(outcomes.refused.insert(uid.clone(), name)),
            DrainOutcome::Down => writeln!(out, "pod {name} has stopped")?,
            DrainOutcome::Completed => writeln!(out, "pod {name} has ended on its own; it is left unchanged")?,
            DrainOutcome::Undesired => {
                writeln!(out, "pod {name} is terminating, because its manifest or object is gone")?
            }
            DrainOutcome::Starts => writeln!(out, "pod {name} is no longer drained and can start again")?,
            DrainOutcome::Waits => writeln!(out, "pod {name} is no longer drained, but waits for another reason")?,
            DrainOutcome::NotDrained => writeln!(out, "pod {name} is not drained")?,
            DrainOutcome::NotFound => writeln!(out, "the pod with the UID {} no longer exists", shown(uid))?,
        }
    }
    out.flush()?;
    Ok(outcomes)
}

/// The wait for drained pods to stop.
struct DrainWait {
    /// The names of the pods that have not stopped yet, by UID.
    left: BTreeMap<String, String>,
    /// The names of the pods that a disruption budget protects, by UID. Their drain is requested again and again.
    refused: BTreeMap<String, String>,
    /// Number of pods at the start.
    of: usize,
    /// The screen that shows the progress.
    screen: Screen,
    /// Whether a line of progress is on the screen.
    shown: bool,
}

impl DrainWait {
    /// Waits until all pods have stopped. `again` requests the drain of pods again, and `pause` waits until the next
    /// poll, and returns true if the wait was interrupted.
    fn wait(
        &mut self,
        out: &mut dyn Write,
        timeout: Option<Duration>,
        again: &mut dyn FnMut(Vec<String>) -> Result<Drained, Failure>,
        read: &mut dyn FnMut() -> Result<Value, Failure>,
        pause: &mut dyn FnMut() -> bool,
    ) -> Result<u8, Failure> {
        let began = Instant::now();
        let mut answered = began;
        let mut code = 0;
        loop {
            match self.ask_again(out, again).and_then(|()| read()) {
                Ok(list) => {
                    answered = Instant::now();
                    code = code.max(self.print_stopped(out, &list, began.elapsed())?);
                }
                Err(Failure::Message(why, _)) if answered.elapsed() < PATIENCE => {
                    self.progress(&format!("{}; the drain continues when wherry is back", why));
                }
                Err(failure) => return Err(failure),
            }
            if self.left.is_empty() && self.refused.is_empty() {
                return Ok(code);
            }
            let over = timeout.is_some_and(|t| began.elapsed() >= t);
            if over || pause() {
                self.clear();
                return Err(self.given_up(over));
            }
        }
    }

    /// Requests the drain of the pods that a budget protected at the last request.
    fn ask_again(
        &mut self,
        out: &mut dyn Write,
        again: &mut dyn FnMut(Vec<String>) -> Result<Drained, Failure>,
    ) -> Result<(), Failure> {
        if !self.refused.is_empty() {
            let drained = again(self.refused.keys().cloned().collect())?;
            let Outcomes { ending, refused } = print_outcomes(out, &drained)?;
            self.left.extend(ending);
            self.refused = refused;
        }
        Ok(())
    }

    /// Returns the message and the exit code after a wait that was interrupted, or too long (`over`).
    fn given_up(&self, over: bool) -> Failure {
        let names = |of: &BTreeMap<String, String>| of.values().cloned().collect::<Vec<_>>().join(", ");
        let (why, code) = if over { ("timeout", 1) } else { ("interrupted", INTERRUPTED) };
        let mut message = why.to_owned();
        if !self.left.is_empty() {
            message.push_str(&format!(
                ", still waiting for {}; the drain continues; `wherry pods` shows its progress, `wherry undrain` ends \
                 it",
                names(&self.left)
            ));
        }
        if !self.refused.is_empty() {
            message.push_str(&format!(
                "; not drained because of a disruption budget: {}; drain it later, or with --ignore-budgets",
                names(&self.refused)
            ));
        }
        Failure::Message(message, code)
    }

    /// Prints the pods that have stopped. Returns 1 if one of the pods is no longer drained, otherwise 0.
    fn print_stopped(&mut self, out: &mut dyn Write, list: &Value, took: Duration) -> Result<u8, Failure> {
        let mut code = 0;
        let mut ending = Vec::new();
        let pods: BTreeMap<&str, &Value> =
            row::list(list, "/items").iter().map(|pod| (text(pod, "/metadata/uid"), pod)).collect_map();
        for (uid, name) in std::mem::take(&mut self.left) {
            let took = human(i64::try_from(took.as_secs()).unwrap_or(i64::MAX));
            let line = match pods.get(uid.as_str()) {
                None => format!("pod {name} has stopped and is gone ({took})"),
                Some(pod) if text(pod, "/wherry/state") == "Finished" => format!("pod {name} has stopped ({took})"),
                Some(pod) if !flag(pod, "/wherry/drained") => {
                    code = 1;
                    format!("pod {name} is no longer drained: it was undrained in the meantime")
                }
                Some(pod) => {
                    ending.push(format!("{name} {}", at_what(pod)));
                    self.left.insert(uid, name);
                    continue;
                }
            };
            self.clear();
            writeln!(out, "{line}")?;
        }
        out.flush()?;
        if !ending.is_empty() {
            let stopped = self.of.saturating_sub(self.left.len() + self.refused.len());
            let line = format!("{stopped} of {} stopped, waiting for {}", self.of, ending.join(", "));
            self.progress(&line);
        }
        Ok(code)
    }

    /// Shows the progress in one line, which replaces the previous one. Does nothing without a terminal.
    fn progress(&mut self, line: &str) {
        if !self.screen.is_terminal() {
            return;
        }
        self.clear();
        // Keep the cursor on the line.
        let room = self.screen.width.unwrap_or(80).saturating_sub(1);
        let line = shown(line);
        let line = match line.char_indices().nth(room) {
            Some(_) => line.chars().take(room.saturating_sub(1)).chain(['…']).collect(),
            None => line.into_owned(),
        };
        to_stderr(&line);
        self.shown = true;
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = std::io::stderr().write_all(CLEAR_LINE.as_bytes());
        }
    }
}

/// Returns the rest of the grace period as `(12s left)`, or the worker's current activity after the grace period.
fn at_what(pod: &Value) -> String {
    let left = pod.pointer("/wherry/graceLeftSeconds").and_then(Value::as_i64).filter(|s| *s > 0);
    match (left, text(pod, "/wherry/doing")) {
        (Some(seconds), _) => format!("({} left)", human(seconds)),
        (None, "") => format!("({})", text(pod, "/wherry/state")),
        (None, doing) => format!("({doing})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(namespace: &str, name: &str, app: &str, wherry: Value) -> Value {
        let metadata =
            json!({"namespace": namespace, "name": name, "uid": format!("uid-{name}"), "labels": {"app": app}});
        json!({"metadata": metadata, "wherry": wherry})
    }

    fn list(pods: &[Value]) -> Value {
        json!({"items": pods})
    }

    fn names(which: &Which, list: &Value) -> Vec<String> {
        let found = which.find(list).unwrap();
        found.iter().map(|p| text(p, "/metadata/name").to_owned()).collect()
    }

    #[test]
    fn w27_pods_are_meant_by_name_by_label_or_all_of_them() {
        let none = || json!({});
        let list = list(&[
            pod("shop", "web", "w", none()),
            pod("default", "db", "d", none()),
            pod("shop", "cache", "d", none()),
        ]);
        let named = |names: &[&str]| Which {
            targets: names.iter().map(|n| PodTarget::parse(n, None).unwrap()).collect(),
            ..Which::default()
        };
        assert_eq!(names(&named(&["shop/web", "db", "web"]), &list), ["db", "web"], "each once");
        assert!(named(&["web", "nobody"]).find(&list).is_err());
        let selected = |selector: &str, namespace: Option<&str>| Which {
            selector: Some(Selector::parse(selector).unwrap()),
            namespace: namespace.map(str::to_owned),
            ..Which::default()
        };
        assert_eq!(names(&selected("app=d", None), &list), ["db", "cache"]);
        assert_eq!(names(&selected("app=d", Some("shop")), &list), ["cache"]);
        assert_eq!(names(&selected("app=x", None), &list), [""; 0]);
        assert_eq!(names(&Which { all: true, ..Which::default() }, &list), ["db", "cache", "web"]);
    }

    fn waiting(names: &[&str]) -> DrainWait {
        let left = names.iter().map(|n| (format!("uid-{n}"), format!("default/{n}"))).collect();
        DrainWait { left, refused: BTreeMap::new(), of: names.len(), screen: Screen::default(), shown: false }
    }

    /// Returns the output and the result of a wait that polls these lists one after the other.
    fn wait(names: &[&str], answers: Vec<Option<Value>>, timeout: Option<Duration>) -> (String, Result<u8, Failure>) {
        let mut answers = answers.into_iter();
        let mut left = answers.len();
        let mut read = || match answers.next().expect("one read too many") {
            Some(list) => Ok(list),
            None => Err(Failure::message("nothing listens")),
        };
        let mut pause = || {
            left -= 1;
            left == 0
        };
        let mut out = Vec::new();
        let mut again = |_| panic!("no budget protects a pod");
        let end = waiting(names).wait(&mut out, timeout, &mut again, &mut read, &mut pause);
        (String::from_utf8(out).unwrap(), end)
    }

    #[test]
    fn w27_the_wait_reports_each_pod_once_and_ends_with_the_last() {
        let ending = |name| pod("default", name, "", json!({"state": "Terminating", "drained": true}));
        let down = |name| pod("default", name, "", json!({"state": "Finished", "drained": true}));
        let answers = vec![
            Some(list(&[ending("a"), ending("b"), ending("c")])),
            // Wherry is being restarted.
            None,
            Some(list(&[down("a"), ending("b"), ending("c")])),
            Some(list(&[down("a"), down("b")])),
            None,
        ];
        let (text, end) = wait(&["a", "b", "c"], answers, None);
        let expected = "pod default/a has stopped (0s)\npod default/b has stopped (0s)\n\
                        pod default/c has stopped and is gone (0s)\n";
        assert_eq!(text, expected);
        assert_eq!(end.unwrap(), 0);
    }

    #[test]
    fn w27_an_interrupted_wait_reports_that_the_drain_continues() {
        let ending = || list(&[pod("default", "a", "", json!({"state": "Terminating", "drained": true}))]);
        for (timeout, why, expected) in [
            (None, "interrupted, still waiting for default/a", INTERRUPTED),
            (Some(Duration::ZERO), "timeout, still waiting for default/a", 1),
        ] {
            let (text, end) = wait(&["a"], vec![Some(ending())], timeout);
            assert_eq!(text, "");
            let Err(Failure::Message(message, code)) = end else { panic!("{end:?}") };
            assert!(message.starts_with(why) && message.contains("the drain continues"), "{message}");
            assert_eq!(code, expected);
        }
    }

    #[test]
    fn y32_a_pod_that_a_budget_protects_is_drained_when_the_budget_allows_it() {
        let pod_of = |outcome| DrainedPod {
            uid: "uid-a".to_owned(),
            namespace: "default".to_owned(),
            name: "a".to_owned(),
            outcome,
        };
        let outcomes = [DrainOutcome::Refused, DrainOutcome::Refused, DrainOutcome::Ending];
        for (timeout, expected) in [(None, Ok(0)), (Some(Duration::ZERO), Err(1))] {
            let refused = [("uid-a".to_owned(), "default/a".to_owned())].into_iter().collect_map();
            let (left, of) = (BTreeMap::new(), 1);
            let mut wait = DrainWait { left, refused, of, screen: Screen::default(), shown: false };
            let mut next = outcomes.into_iter();
            let mut again = |uids: Vec<String>| {
                assert_eq!(uids, ["uid-a"]);
                Ok(Drained { pods: vec![pod_of(next.next().expect("one request too many"))] })
            };
            let down = list(&[pod("default", "a", "", json!({"state": "Finished", "drained": true}))]);
            let (mut out, mut read, mut pause) = (Vec::new(), || Ok(down.clone()), || false);
            match (wait.wait(&mut out, timeout, &mut again, &mut read, &mut pause), expected) {
                (Ok(code), Ok(expected)) => {
                    assert_eq!(
                        (code, String::from_utf8(out).unwrap().as_str()),
                        (expected, "pod default/a has stopped (0s)\n")
                    );
                }
                (Err(Failure::Message(message, code)), Err(expected)) => {
                    assert_eq!(code, expected);
                    assert!(message.contains("not drained because of a disruption budget: default/a"), "{message}");
                }
                (found, _) => panic!("{found:?}"),
            }
        }
    }

    #[test]
    fn w27_a_pod_that_is_undrained_during_the_wait_is_a_failure() {
        let undrained = list(&[pod("default", "a", "", json!({"state": "Sync"}))]);
        let (text, end) = wait(&["a"], vec![Some(undrained)], None);
        assert_eq!(text, "pod default/a is no longer drained: it was undrained in the meantime\n");
        assert_eq!(end.unwrap(), 1);
    }

    #[test]
    fn the_activity_of_a_pod_is_short() {
        let of = |wherry| at_what(&pod("default", "a", "", wherry));
        let doing = json!({"state": "Terminating", "graceLeftSeconds": 12, "doing": "stopping containers"});
        assert_eq!(of(doing), "(12s left)");
        assert_eq!(
            of(json!({"state": "Terminating", "graceLeftSeconds": 0, "doing": "stopping its sandbox"})),
            "(stopping its sandbox)"
        );
        assert_eq!(of(json!({"state": "Terminated"})), "(Terminated)");
    }
}
