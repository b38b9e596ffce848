//! Requests over the control socket: drain, undrain, retry, exec and resource usage, with their answers (W27, A3).

use super::admission::{cpu_requests, small};
use crate::control::{Answered, SECRET, attach, command, forward, stream_of_command};
use crate::runtime::Life;
use crate::story::{NEVER, ONE, TWO, node, node_with};
use crate::world::{Fault, MS, World, config};
use std::time::Duration;
use wherry::api::control::DrainOutcome::{self, Completed, Down, Ending, NotDrained, NotFound, Starts, Waits};
use wherry::api::control::OutputEnd;
use wherry::api::names::{FullName, Uid};
use wherry::api::shutdown::Groups;
use wherry::engine::control::limits::{MAX_EXECS, MAX_STREAM_CALLS};
use wherry::engine::control::stream::{Channels, Terminal};
use wherry::engine::control::{
    Command, Reply, Request, RequestError, RequestId, RetryOutcome, StreamKind, StreamRequest,
};
use wherry::engine::node::Engine;

fn running(name: &str) -> World {
    let mut w = node();
    w.file(name, ONE);
    w.run(2);
    assert!(w.runs(&format!("{name}/main")));
    w.observed.calls.clear();
    w
}

/// A node that takes part in shutdowns, with a running pod.
fn running_with_shutdown(name: &str) -> World {
    let mut config = config();
    config.shutdown = Groups::from_total(Duration::from_secs(30), Duration::from_secs(10));
    let mut w = node_with(config);
    w.file(name, ONE);
    w.run(2);
    w
}

impl World {
    fn uid(&self, name: &str) -> Uid {
        self.files.get(&format!("/m/{name}.yaml")).map_or_else(|| Uid::from(name), |pod| pod.uid.clone())
    }

    fn drain(&mut self, names: &[&str]) -> RequestId {
        let uids = names.iter().map(|name| self.uid(name)).collect();
        self.ask(Request::Drain { uids, grace: Some(Duration::from_secs(2)), ignores_budgets: false })
    }

    fn undrain(&mut self, names: &[&str]) -> RequestId {
        let uids = names.iter().map(|name| self.uid(name)).collect();
        self.ask(Request::Undrain { uids })
    }

    fn exec(&mut self, name: &str, seconds: u64) -> RequestId {
        self.ask(Request::Exec(command(self.uid(name), seconds)))
    }

    pub fn answer(&self, id: RequestId) -> Option<&Answered> {
        self.users.answers.get(&id)
    }

    /// The answer of a request that must have one: its status and text.
    fn error(&self, id: RequestId) -> (u16, String) {
        match self.answer(id) {
            Some(Err(e)) => (e.status(), e.to_string()),
            other => panic!("{other:?}\n{}", self.trace()),
        }
    }

    fn refused(&mut self, request: Request) -> (u16, String) {
        let id = self.ask(request);
        self.error(id)
    }

    fn outcomes(&self, id: RequestId) -> Vec<DrainOutcome> {
        match self.answer(id) {
            Some(Ok(Reply::Drained(drained))) => drained.pods.iter().map(|pod| pod.outcome).collect(),
            other => panic!("{other:?}\n{}", self.trace()),
        }
    }

    fn exit_code(&self, id: RequestId) -> Option<i32> {
        match self.answer(id)? {
            Ok(Reply::Executed(output, OutputEnd::Complete)) => Some(output.exit_code),
            other => panic!("{other:?}\n{}", self.trace()),
        }
    }

    fn stream(&mut self, request: StreamRequest) -> RequestId {
        self.ask(Request::Stream(request))
    }

    fn url(&self, id: RequestId) -> &str {
        match self.answer(id) {
            Some(Ok(Reply::StreamUrl(url))) => url,
            other => panic!("{other:?}\n{}", self.trace()),
        }
    }

    fn retry_outcome(&mut self, name: &str) -> RetryOutcome {
        let id = self.ask(Request::Retry { uid: self.uid(name) });
        match self.answer(id) {
            Some(Ok(Reply::Retried { outcome, .. })) => outcome.clone(),
            other => panic!("{other:?}\n{}", self.trace()),
        }
    }
}

#[test]
fn w8_w27_a_drain_holds_a_renamed_pod_that_still_runs_under_its_former_name() {
    let mut w = node();
    w.file_with_uid("web", "own-uid", ONE);
    w.run(2);
    let old = w.sandbox("web");
    w.runtime_down();
    w.kill_engine();
    w.disk.records.remove("pods/own-uid");
    w.remove("web");
    w.file_with_uid("renamed", "own-uid", ONE);
    w.start();
    let drain = w.drain(&["renamed"]);
    w.run(1);
    w.runtime_up();
    w.run(10);
    assert!(!w.runtime.sandboxes.get(&old).is_some_and(|s| s.ready), "{}", w.trace());
    assert!(!w.runs("renamed/main"));
    assert!(w.answer(drain).is_some());
    w.undrain(&["renamed"]);
    w.run(5);
    assert!(w.runs("renamed/main"));
    w.assert_well();
}

#[test]
fn w27_a_drain_of_two_pods_does_not_start_the_second_in_the_slot_of_the_first() {
    let mut config = config();
    config.parallel_containers = 1;
    let mut w = node_with(config);
    w.runtime.images.insert("other:1".into());
    w.hang("ImageStatus other:1");
    w.file("a", &ONE.replace("busybox:1.35", "other:1"));
    w.run_ms(100);
    w.file("b", ONE);
    w.run_ms(100);
    w.drain(&["a", "b"]);
    w.run(20);
    assert!(w.trace().contains("ImageStatus other:1") && !w.trace().contains("ImageStatus busybox"), "{}", w.trace());
}

#[test]
fn w27_a_drain_is_answered_for_each_pod_when_its_records_are_durable() {
    let mut w = running("a");
    w.file("b", ONE);
    w.file("done", NEVER);
    w.life("done/main", &[Life::exits(0, Duration::from_millis(10))]);
    w.run(3);
    let first = w.drain(&["a", "nobody", "b", "done"]);
    assert_eq!(w.answer(first), None, "the records are being written");
    // A request for the same pod waits for the same record.
    let second = w.drain(&["a"]);
    assert_eq!(w.answer(second), None);
    w.run_ms(5);
    assert_eq!(w.outcomes(first), [Ending, NotFound, Ending, Completed]);
    assert_eq!(w.outcomes(second), [Ending]);
    w.run(5);
    let third = w.drain(&["a"]);
    assert_eq!(w.outcomes(third), [Down], "nothing is written");
    let undrain = w.undrain(&["a", "nobody", "done", "a"]);
    assert_eq!(w.answer(undrain), None);
    w.run_ms(5);
    assert_eq!(w.outcomes(undrain), [Starts, NotFound, NotDrained, NotDrained]);
    w.run(5);
    assert!(w.runs("a/main") && !w.runs("b/main"), "{}", w.trace());
}

#[test]
fn w27_an_answered_drain_outlives_a_kill_of_wherry_and_a_drain_without_an_answer_may_be_lost() {
    for ms in 0..4 {
        let mut w = running("web");
        let id = w.drain(&["web"]);
        w.run_ms(ms);
        let answered = w.answer(id).is_some();
        w.restart_engine();
        w.run(10);
        assert_eq!(answered, ms >= 2);
        assert!(!answered || !w.runs("web/main"), "{}", w.trace());
    }
}

#[test]
fn w27_a_drain_whose_record_cannot_be_written_is_an_error_until_it_is_written() {
    let mut w = running("web");
    w.disk.full = true;
    let first = w.drain(&["web"]);
    w.run(1);
    let words = "done, but a restart would undo it: no space left on device; Wherry retries the write";
    assert_eq!(w.error(first), (500, words.to_owned()));
    let second = w.drain(&["web"]);
    assert_eq!(w.error(second).0, 500, "the record is not durable yet");
    w.disk.full = false;
    // The worker repeats the write.
    w.run(100);
    let third = w.drain(&["web"]);
    assert_eq!(w.outcomes(third), [Down]);
}

#[test]
fn w27_the_end_of_a_client_does_not_end_its_drain() {
    let mut w = running("web");
    let id = w.drain(&["web"]);
    w.client_gone(id);
    w.run(5);
    assert!(w.answer(id).is_none() && !w.runs("web/main"), "{}", w.trace());
}

#[test]
fn w27_a_failed_drain_returns_the_reason_and_changes_nothing() {
    let mut w = running("web");
    let uids = vec![w.uid("web")];
    let week = Duration::from_secs(7 * 24 * 3600);
    let grace = Some(week + Duration::from_secs(1));
    let too_long = (400, "gracePeriodSeconds may be at most 604800".to_owned());
    assert_eq!(w.refused(Request::Drain { uids: uids.clone(), grace, ignores_budgets: false }), too_long);
    let none = (400, "the request names no pods; expected {\"uids\": [...]}".to_owned());
    assert_eq!(w.refused(Request::Drain { uids: Vec::new(), grace: None, ignores_budgets: false }), none);
    assert_eq!(w.refused(Request::Undrain { uids: Vec::new() }), none);
    w.kill_engine();
    w.engine = Engine::new(w.config.clone());
    w.process.alive = true;
    let unread = (503, "the manifests have not been read yet; try again in a moment".to_owned());
    assert_eq!(w.refused(Request::Drain { uids: uids.clone(), grace: None, ignores_budgets: false }), unread, "D1");
    assert_eq!(w.refused(Request::Undrain { uids }), unread);
    w.start();
    w.run(5);
    assert!(w.runs("web/main"));
}

#[test]
fn w27_drains_and_undrains_are_carried_out_in_a_shutdown_without_the_runtime_and_in_order() {
    let mut w = running_with_shutdown("web");
    w.power_off();
    w.run(5);
    let drain = w.drain(&["web"]);
    let undrain = w.undrain(&["web"]);
    w.run_ms(10);
    assert_eq!((w.outcomes(drain), w.outcomes(undrain)), (vec![Down], vec![Waits]), "{}", w.trace());
    w.call_off();
    w.run(5);
    assert!(w.runs("web/main"), "{}", w.trace());

    let mut w = running("web");
    w.runtime_down();
    let drain = w.drain(&["web"]);
    w.run_ms(10);
    assert_eq!(w.outcomes(drain), [Ending]);
    w.runtime_up();
    w.run(5);
    assert!(!w.runs("web/main"), "{}", w.trace());
}

#[test]
fn a3_the_answer_to_a_retry_is_its_outcome() {
    let mut w = small();
    w.file("first", &cpu_requests(600));
    w.file("second", &cpu_requests(700));
    w.run(2);
    let RetryOutcome::RejectedAgain(cause) = w.retry_outcome("second") else { panic!("{}", w.trace()) };
    assert_eq!(cause.reason.as_str(), "OutOfcpu");
    w.remove("first");
    w.run(40);
    assert_eq!(w.reason("second"), "OutOfcpu", "room alone is no retry");
    let outcome = w.retry_outcome("second");
    assert_eq!(outcome, RetryOutcome::Admitted);
    assert_eq!(outcome.to_string(), "it is admitted");
    let again = w.refused(Request::Retry { uid: w.uid("second") });
    assert_eq!(again, (409, "pod default/second is not rejected, it is Pending".to_owned()));
}

#[test]
fn a3_a_failed_retry_returns_the_reason() {
    let mut w = running_with_shutdown("web");
    let unknown = (404, "there is no pod with the UID nobody".to_owned());
    assert_eq!(w.refused(Request::Retry { uid: "nobody".into() }), unknown);
    let none = (400, "the request names no pod; expected /retry?uid=UID".to_owned());
    assert_eq!(w.refused(Request::Retry { uid: "".into() }), none);
    w.drain(&["web"]);
    w.run(5);
    let drained = "pod default/web is not rejected, it is Failed, Drained; `wherry undrain` lets it run again";
    assert_eq!(w.refused(Request::Retry { uid: w.uid("web") }), (409, drained.to_owned()));
    w.power_off();
    w.run(1);
    w.file("late", ONE);
    w.run(1);
    let shutdown =
        "pod default/late is rejected because the node is shutting down; Wherry retries it when the shutdown is over";
    assert_eq!(w.refused(Request::Retry { uid: w.uid("late") }), (409, shutdown.to_owned()));
}

#[test]
fn s4_a_pod_that_is_retried_in_a_shutdown_is_evaluated_after_it() {
    let mut config = config();
    config.shutdown = Groups::from_total(Duration::from_secs(30), Duration::from_secs(10));
    config.node.allocatable.set("cpu", 1000);
    let mut w = node_with(config);
    w.file("big", &cpu_requests(2000));
    w.run(1);
    w.power_off();
    w.run(1);
    let outcome = w.retry_outcome("big");
    assert_eq!(outcome, RetryOutcome::AfterShutdown);
    assert_eq!(outcome.to_string(), "it is considered when the node's shutdown is over");
}

#[test]
fn a_command_runs_in_the_first_container_or_in_the_named_one() {
    let mut w = node();
    w.file("web", TWO);
    w.run(2);
    w.observed.calls.clear();
    w.users.commands = [(Duration::from_millis(900), 3), (Duration::from_millis(900), 0)].into();
    let first = w.exec("web", 5);
    let mut request = command(w.uid("web"), 5);
    request.container = Some("two".to_owned());
    let second = w.ask(Request::Exec(request));
    w.run_ms(500);
    assert_eq!((w.answer(first), w.answer(second)), (None, None));
    w.run(1);
    assert_eq!((w.exit_code(first), w.exit_code(second)), (Some(3), Some(0)));
    assert_eq!(w.take_calls(), ["Exec web/one#0", "Exec web/two#0"]);
    assert!(!w.trace().contains(SECRET));
}

#[test]
fn a_command_that_cannot_run_returns_the_reason() {
    let mut w = running("web");
    w.file("gone", NEVER);
    w.life("gone/main", &[Life::exits(3, Duration::from_millis(10))]);
    w.run(2);
    w.observed.calls.clear();
    let web = w.uid("web");
    let with = |words: &[&str], container: Option<&str>, seconds: u64| {
        let mut request = command(web.clone(), seconds);
        request.command = Command(words.iter().map(|word| (*word).to_owned()).collect());
        request.container = container.map(str::to_owned);
        Request::Exec(request)
    };
    for (request, status, words) in [
        (Request::Exec(command("nobody".into(), 5)), 404, "there is no pod with the UID nobody"),
        (with(&["ls"], Some("x"), 5), 404, "pod default/web has no container x; it has main"),
        (with(&[], None, 5), 400, "the request has no command"),
        (with(&[""], None, 5), 400, "the request has no command"),
        (with(&["a\0b"], None, 5), 400, "an argument of the command contains a NUL byte"),
        (with(&["ls"], None, 0), 400, "timeoutSeconds must be from 1 to 86400"),
        (with(&["ls"], None, 86_401), 400, "timeoutSeconds must be from 1 to 86400"),
        (
            Request::Exec(command(w.uid("gone"), 5)),
            409,
            "container main of pod default/gone is not running: it has ended with exit code 3",
        ),
    ] {
        assert_eq!(w.refused(request), (status, words.to_owned()));
    }
    w.drain(&["web"]);
    w.run(5);
    assert_eq!(w.refused(with(&["ls"], None, 5)).0, 409);
    assert_eq!(w.take_calls(), ["StopContainer web/main#0 2000ms", "StopSandbox web#0"]);
}

#[test]
fn a_command_that_takes_too_long_or_loses_the_runtime_is_an_error() {
    let mut w = running("web");
    w.users.commands = [(Duration::from_secs(9), 0), (Duration::from_secs(9), 0)].into();
    let late = w.exec("web", 2);
    w.run(3);
    assert_eq!(w.error(late), (504, "the command exceeded its timeout of 2 s and was killed".to_owned()));
    let lost = w.exec("web", 20);
    w.run(1);
    w.runtime_down();
    assert_eq!(w.error(lost), (502, "connection lost".to_owned()));
    let down = w.exec("web", 20);
    w.run(1);
    assert_eq!(w.error(down), (503, "there is no connection to the container runtime: no connection".to_owned()));
    w.runtime_up();
    w.run(5);
    w.users.commands.clear();
    w.fault("Exec", Fault::Error("exec: \"nope\": executable file not found in $PATH: unknown".into()));
    let nope = w.exec("web", 2);
    w.run(1);
    assert_eq!(w.error(nope), (502, "exec: \"nope\": executable file not found in $PATH: unknown".to_owned()));
}

#[test]
fn a_time_out_that_the_runtime_reports_as_a_result_is_one() {
    let mut w = running("web");
    w.users.timeouts_are_results = true;
    w.users.commands = [(Duration::from_secs(9), 0)].into();
    let late = w.exec("web", 2);
    w.run(3);
    assert_eq!(w.error(late), (504, "the command exceeded its timeout of 2 s and was killed".to_owned()));
}

#[test]
fn an_output_whose_end_may_be_lost_is_marked() {
    let mut w = running("web");
    w.users.output = 16_600_000;
    let cut = w.exec("web", 2);
    w.run(1);
    let Some(Ok(Reply::Executed(output, end))) = w.answer(cut) else { panic!("{:?}", w.answer(cut)) };
    assert_eq!((output.stdout.len() >= 16_600_000, *end), (true, OutputEnd::Cut));
    w.users.output = 0;
    let short = w.exec("web", 2);
    w.run(1);
    assert_eq!(w.exit_code(short), Some(0));
}

#[test]
fn a_command_whose_client_disconnects_is_cancelled_and_counts_until_its_call_ends() {
    let mut w = running("web");
    w.users.commands = (0..MAX_EXECS).map(|_| (Duration::from_secs(60), 0)).collect();
    let ids: Vec<RequestId> = (0..MAX_EXECS).map(|_| w.exec("web", 100)).collect();
    w.run(1);
    let full = (503, "8 commands are already running; try again when one has ended".to_owned());
    let id = w.exec("web", 100);
    assert_eq!(w.error(id), full);
    w.client_gone(ids[0]);
    let id = w.exec("web", 100);
    assert_eq!(w.error(id), full, "the cancelled call has not ended yet");
    w.run_ms(1);
    let last = w.exec("web", 100);
    w.run(200);
    assert_eq!(w.answer(ids[0]), None);
    assert!(ids[1..].iter().all(|id| w.exit_code(*id) == Some(0)) && w.answer(last).is_some(), "{}", w.trace());
}

#[test]
fn commands_run_while_their_pod_ends_and_end_with_it() {
    let mut w = running_with_shutdown("web");
    w.users.commands = [(Duration::from_millis(1500), 0)].into();
    w.life("web/main", &[Life::deaf()]);
    let id = w.exec("web", 5);
    w.power_off();
    w.run(1);
    let during = w.exec("web", 5);
    w.run(3);
    assert!(w.answer(id).is_some() && w.answer(during).is_some(), "{}", w.trace());
}

#[test]
fn the_usage_is_that_of_the_running_containers_of_our_pods() {
    let mut w = running("a");
    w.file("b", ONE);
    w.run(2);
    w.drain(&["b"]);
    w.run(5);
    w.observed.calls.clear();
    let id = w.ask(Request::Usage);
    assert_eq!(w.answer(id), None);
    w.run_ms(100);
    let Some(Ok(Reply::Usage(usage))) = w.answer(id) else { panic!("{}", w.trace()) };
    let names: Vec<&str> = usage.pods.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!(names, ["a"]);
    let container = &usage.pods[0].containers[0];
    assert_eq!((container.name.as_str(), container.cpu_nanos), ("main", Some(MS)));
}

#[test]
fn the_usage_is_read_again_if_a_container_disappears_meanwhile_but_not_for_ever() {
    let mut w = running("web");
    for (disappearing, calls) in [(0, 1), (5, 6), (6, 6)] {
        w.users.disappearing = disappearing;
        let id = w.ask(Request::Usage);
        w.run(1);
        assert_eq!(w.take_calls().len(), calls);
        match w.answer(id) {
            Some(Ok(Reply::Usage(_))) => assert!(disappearing < 6),
            Some(Err(RequestError::UsageFailed(_))) => {
                let words = "failed to read the containers' resource usage from the runtime: rpc error: \
                             code = NotFound desc = container not found";
                assert_eq!(w.error(id), (502, words.to_owned()));
            }
            other => panic!("{other:?}"),
        }
    }
    w.runtime_down();
    let id = w.ask(Request::Usage);
    w.run(1);
    assert_eq!(w.error(id).0, 502);
}

#[test]
fn a_read_of_the_usage_whose_client_disconnects_is_cancelled_and_not_repeated() {
    let mut w = running("web");
    w.users.disappearing = 3;
    let id = w.ask(Request::Usage);
    w.client_gone(id);
    w.client_gone(id);
    w.run(1);
    assert_eq!((w.take_calls(), w.answer(id)), (vec!["Usage".to_owned()], None));
    assert_eq!(w.pending_ops(), 0);
}

/// A container with an open stdin, and one with a terminal.
const STREAMS: &str = "containers: [{name: main, image: 'busybox:1.35', stdin: true}, \
                       {name: term, image: 'busybox:1.35', stdin: true, tty: true}]";

fn terminal(container: &str, stderr: bool, tty: bool) -> impl Fn(Uid) -> StreamRequest {
    let container = Some(container.to_owned());
    move |uid| {
        let terminal = Terminal::AsRequested;
        let kind =
            StreamKind::Attach { container: container.clone(), stdin: true, stdout: true, stderr, tty, terminal };
        StreamRequest { uid, kind }
    }
}

#[test]
fn the_url_of_a_stream_is_that_of_the_running_instance() {
    let mut w = node();
    w.file("web", STREAMS);
    w.run(2);
    w.observed.calls.clear();
    let uid = w.uid("web");
    let exec = w.stream(stream_of_command(uid.clone(), Some("term")));
    assert_eq!(w.answer(exec), None);
    let attached = w.stream(attach(uid.clone(), true));
    let terminal = w.stream(terminal("term", false, true)(uid.clone()));
    let forwarded = w.stream(forward(uid, &[80, 443]));
    w.run_ms(100);
    assert_eq!(
        w.take_calls(),
        ["ExecUrl web/term#0", "AttachUrl web/main#0", "AttachUrl web/term#0", "PortForwardUrl web#0 [80, 443]"]
    );
    for id in [exec, attached, terminal, forwarded] {
        assert!(w.url(id).starts_with("http://127.0.0.1:4242/"), "{}", w.url(id));
    }
    assert!(w.url(exec) == w.url(terminal) && w.url(exec) != w.url(attached));
    assert!(!w.trace().contains(SECRET));
}

#[test]
fn an_attach_of_a_client_of_kubernetes_follows_the_container() {
    let mut w = node();
    w.file("web", STREAMS);
    w.file("plain", ONE);
    w.run(2);
    let mut channels = |pod: &str, container: &str, stderr, tty| {
        let terminal = Terminal::OfContainer;
        let container = Some(container.to_owned());
        let kind = StreamKind::Attach { container, stdin: true, stdout: true, stderr, tty, terminal };
        let uid = w.uid(pod);
        let id = w.stream(StreamRequest { uid, kind });
        w.run(1);
        let _ = w.url(id);
        w.users.attached.pop().unwrap()
    };
    let with = |stderr, tty| Channels { stdin: true, stdout: true, stderr, tty };
    // A terminal has one output.
    assert_eq!(channels("web", "term", true, false), with(false, true));
    assert_eq!(channels("web", "term", false, true), with(false, true));
    assert_eq!(channels("web", "main", false, true), with(false, false));
    assert_eq!(channels("plain", "main", true, false), with(true, false));
}

#[test]
fn a_stream_that_a_pod_does_not_have_returns_the_reason() {
    let mut w = node();
    w.file("web", STREAMS);
    w.file("plain", ONE);
    w.file("gone", NEVER);
    w.life("gone/main", &[Life::exits(3, Duration::from_millis(10))]);
    w.run(4);
    w.observed.calls.clear();
    let (web, plain, gone) = (w.uid("web"), w.uid("plain"), w.uid("gone"));
    let mut nothing = stream_of_command(plain.clone(), None);
    nothing.kind = StreamKind::Exec {
        container: None,
        command: Command(Vec::new()),
        stdin: true,
        stdout: true,
        stderr: false,
        tty: true,
    };
    for (request, status, words) in [
        (forward("nobody".into(), &[80]), 404, "there is no pod with the UID nobody"),
        (stream_of_command(web.clone(), Some("x")), 404, "pod default/web has no container x; it has main, term"),
        (nothing, 400, "the request has no command"),
        (forward(web.clone(), &[0]), 400, "a port must be from 1 to 65535"),
        (terminal("term", true, true)(web.clone()), 400, "a terminal has one output; request stdout without stderr"),
        (
            terminal("main", false, true)(web.clone()),
            409,
            "container main of pod default/web has no terminal; set `tty: true` in its manifest",
        ),
        (
            terminal("term", false, false)(web),
            409,
            "container term of pod default/web has a terminal; request tty without stderr",
        ),
        (
            attach(plain, true),
            409,
            "container main of pod default/plain has no standard input; set `stdin: true` in its manifest",
        ),
        (
            attach(gone.clone(), false),
            409,
            "container main of pod default/gone is not running: it has ended with exit code 3",
        ),
        (
            forward(gone, &[80]),
            409,
            "pod default/gone has no running sandbox, and so no network; see `wherry describe default/gone`",
        ),
    ] {
        assert_eq!(w.refused(Request::Stream(request)), (status, words.to_owned()));
    }
    assert!(w.take_calls().is_empty());
}

#[test]
fn a_runtime_that_hangs_or_is_lost_gives_no_url_and_few_calls_wait_for_it() {
    let mut w = running("web");
    let uid = w.uid("web");
    w.hang("PortForwardUrl");
    let ids: Vec<RequestId> = (0..MAX_STREAM_CALLS).map(|_| w.stream(forward(uid.clone(), &[]))).collect();
    w.run(1);
    let full = "the container runtime has not yet responded to 32 requests for streams; try again in a moment";
    assert_eq!(w.refused(Request::Stream(forward(uid.clone(), &[]))), (503, full.to_owned()));
    w.client_gone(ids[0]);
    w.run(25);
    let late = "the container runtime did not respond within 20 s; is it hanging?";
    assert_eq!((w.error(ids[1]), w.answer(ids[0])), ((504, late.to_owned()), None));
    assert_eq!(w.pending_ops(), 0);
    w.runtime_down();
    let down = w.stream(attach(uid.clone(), false));
    w.run(1);
    assert_eq!(w.error(down), (503, "there is no connection to the container runtime: no connection".to_owned()));
    w.runtime_up();
    w.run(5);
    w.fault("AttachUrl", Fault::Error("streaming server is off".into()));
    let refused = w.stream(attach(uid, false));
    w.run(1);
    assert_eq!(w.error(refused), (502, "the container runtime offers no stream: streaming server is off".to_owned()));
}

fn shorten(w: &mut World, seconds: u64) -> RequestId {
    w.ask(Request::Shorten { pod: FullName::new("default", "web"), grace: Duration::from_secs(seconds) })
}

#[test]
fn w4_the_grace_period_of_a_deleted_pod_can_be_shortened() {
    let mut w = node();
    w.life("web/main", &[Life::deaf()]);
    w.file("web", "terminationGracePeriodSeconds: 30, containers: [{name: main, image: 'busybox:1.35'}]");
    w.run(2);
    // A pod that is desired goes on.
    shorten(&mut w, 1);
    w.run(3);
    assert!(w.runs("web/main"));
    w.observed.calls.clear();
    w.remove("web");
    w.run(3);
    // A longer grace period changes nothing.
    let ids = [shorten(&mut w, 60), shorten(&mut w, 5)];
    w.run_ms(5);
    for id in ids {
        assert_eq!(w.answer(id), Some(&Ok(Reply::Shortened)));
    }
    let stops: Vec<_> = w.take_calls().into_iter().filter(|c| c.starts_with("StopContainer")).collect();
    assert_eq!(
        stops,
        ["StopContainer web/main#0 30000ms", "StopContainer web/main#0 2000ms"],
        "two of five seconds are left"
    );
    w.run(3);
    assert!(!w.runs("web/main"));
    w.run(5);
    let gone = shorten(&mut w, 1);
    assert_eq!(w.answer(gone), Some(&Ok(Reply::Shortened)), "nothing of it is left");
    w.assert_clean();
}

#[test]
fn w4_a_shorter_period_that_was_answered_outlives_a_kill_of_wherry() {
    let mut w = node();
    w.life("web/main", &[Life::deaf()]);
    w.file("web", "terminationGracePeriodSeconds: 30, containers: [{name: main, image: 'busybox:1.35'}]");
    w.run(2);
    w.remove("web");
    w.run(3);
    let id = shorten(&mut w, 10);
    assert_eq!(w.answer(id), None, "the record is being written");
    w.run_ms(5);
    assert_eq!(w.answer(id), Some(&Ok(Reply::Shortened)));
    w.restart_engine();
    w.take_calls();
    w.run(2);
    assert_eq!(w.take_calls(), ["StopContainer web/main#0 7000ms"]);
    w.run(9);
    assert!(!w.runs("web/main"));
    w.assert_clean();
}

#[test]
fn w4_a_shorter_period_counts_from_the_first_request_also_after_a_restart_of_wherry() {
    let mut w = node();
    w.life("web/main", &[Life::deaf()]);
    w.file("web", "terminationGracePeriodSeconds: 30, containers: [{name: main, image: 'busybox:1.35'}]");
    w.run(2);
    w.remove("web");
    w.run(3);
    w.restart_engine();
    w.run(2);
    w.take_calls();
    shorten(&mut w, 10);
    w.run(1);
    assert_eq!(w.take_calls(), ["StopContainer web/main#0 5000ms"], "{}", w.trace());
    w.run(5);
    assert!(!w.runs("web/main"));
    w.assert_clean();
}
