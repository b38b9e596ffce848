//! Requests of clients that need the runtime, for `wherry exec` and `wherry top`: the request is checked against the
//! engine's state, sent on the agent's connection to the runtime, and answered with the runtime's answer. If a client
//! disconnects, its command is ended, and nothing else.

use super::{Agent, RUNTIME};
use crate::adapters::cri::client::direct::{ClientAnswer, ClientRequest, RequestId};
use crate::adapters::server::http::{Body, JSON, Response, Ticket};
use crate::api::control::{ContainerUsage, ExecHead, ExecRequest, PodUsage, Usage};
use crate::api::facts::{ContainerFact, ContainerState, UsageFact};
use crate::api::names::{FullName, Uid};
use crate::api::pod::Pod;
use crate::api::time::Now;
use crate::engine::node::Engine;
use crate::engine::op::OpError;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum number of commands at one time: each may need up to 16 MiB of memory for its output for a moment.
const MAX_EXECS: usize = 8;
/// Maximum time limit of a command: a day, in seconds.
const LONGEST_EXEC: u64 = 24 * 3600;
/// How often the usage is requested if containers keep disappearing between list and read.
const USAGE_TRIES: u32 = 5;

/// Requests that wait for the runtime.
#[derive(Debug, Default)]
pub(super) struct RuntimeRequests {
    last: u64,
    open: BTreeMap<RequestId, Asked>,
}

#[derive(Debug)]
struct Asked {
    ticket: Ticket,
    what: What,
}

#[derive(Debug)]
enum What {
    Exec {
        pod: FullName,
        container: String,
        timeout: Duration,
    },
    /// How often the request may be repeated.
    Usage {
        again: u32,
    },
}

/// A checked request for the runtime.
#[derive(Debug)]
pub(super) struct Wanted {
    ask: ClientRequest,
    what: What,
}

impl RuntimeRequests {
    pub fn execs(&self) -> usize {
        self.open.values().filter(|a| matches!(a.what, What::Exec { .. })).count()
    }
}

pub(super) fn usage() -> Wanted {
    Wanted { ask: ClientRequest::Usage, what: What::Usage { again: USAGE_TRIES } }
}

/// # Errors
/// An HTTP status and a message: there is no such container, or it does not run.
pub(super) fn exec(engine: &Engine, execs: usize, body: &[u8]) -> Result<Wanted, (u16, String)> {
    let request: ExecRequest = serde_json::from_slice(body).map_err(|e| (400, format!("invalid request: {e}")))?;
    let ExecRequest { uid, container, command, timeout_seconds } = request;
    if command.first().is_none_or(String::is_empty) {
        return Err((400, "the request has no command".to_owned()));
    }
    if command.iter().any(|word| word.contains('\0')) {
        return Err((400, "an argument of the command contains a NUL byte".to_owned()));
    }
    if !(1..=LONGEST_EXEC).contains(&timeout_seconds) {
        return Err((400, format!("timeoutSeconds must be from 1 to {LONGEST_EXEC}")));
    }
    let uid = Uid::from(uid);
    let Some(view) = engine.pod(&uid) else { return Err((404, format!("there is no pod with the UID {uid}"))) };
    let pod = view.pod;
    let name = container_of(pod, container.as_deref())?;
    let fact = engine.containers(&uid).iter().filter(|c| c.name == name).max_by_key(|c| c.attempt);
    let Some(id) = fact.filter(|c| c.state == ContainerState::Running).map(|c| c.id.clone()) else {
        return Err((409, format!("container {name} of pod {} is not running: {}", pod.name, why_not(fact))));
    };
    if execs >= MAX_EXECS {
        return Err((503, format!("{MAX_EXECS} commands are already running; try again when one has ended")));
    }
    let timeout = Duration::from_secs(timeout_seconds);
    let what = What::Exec { pod: pod.name.clone(), container: name.to_owned(), timeout };
    Ok(Wanted { ask: ClientRequest::Exec { id, command, timeout }, what })
}

/// The requested container. If none is named, kubectl's annotation decides, otherwise it is the first one.
fn container_of<'a>(pod: &'a Pod, named: Option<&str>) -> Result<&'a str, (u16, String)> {
    const DEFAULT: &str = "kubectl.kubernetes.io/default-container";
    let find = |name: &str| pod.all_containers().map(|c| c.name.as_str()).find(|c| *c == name);
    let Some(name) = named else {
        let said = pod.object.metadata.annotations.as_ref().and_then(|a| a.get(DEFAULT));
        let first = pod.containers().first().map(|c| c.name.as_str());
        return said.and_then(|name| find(name)).or(first).ok_or((409, format!("pod {} has no container", pod.name)));
    };
    find(name).ok_or_else(|| {
        let all: Vec<&str> = pod.all_containers().map(|c| c.name.as_str()).collect();
        (404, format!("pod {} has no container {name}; it has {}", pod.name, all.join(", ")))
    })
}

fn why_not(fact: Option<&ContainerFact>) -> String {
    match fact.map(|c| (c.state, c.exit_code)) {
        None => "it has not been created yet, or was removed".to_owned(),
        Some((ContainerState::Created, _)) => "it is being started".to_owned(),
        Some((ContainerState::Exited, code)) => format!("it has ended with exit code {code}"),
        Some(_) => "the runtime does not know its state".to_owned(),
    }
}

impl Agent {
    pub(super) fn ask_runtime(&mut self, ticket: Ticket, wanted: Wanted, now: Now) {
        let Wanted { ask, what } = wanted;
        if let What::Exec { pod, container, timeout } = &what {
            // Access to the control socket permits this; the log makes it visible. The command's arguments may be
            // secrets.
            log::info!("pod={pod} container={container} reason=Exec timeout={}s", timeout.as_secs());
        }
        self.asks.last += 1;
        let id = RequestId(self.asks.last);
        self.asks.open.insert(id, Asked { ticket, what });
        self.client.ask(id, ask, now.boot);
        // The request is sent in the next turn, which does not wait.
        self.event_loop.again(RUNTIME);
    }

    /// The client of a request has disconnected.
    pub(super) fn asker_gone(&mut self, ticket: Ticket) {
        let of_it = self.asks.open.iter().find(|(_, asked)| asked.ticket == ticket).map(|(id, _)| *id);
        if let Some(id) = of_it {
            self.client.cancel_ask(id);
            self.event_loop.again(RUNTIME);
        }
    }

    pub(super) fn runtime_told(&mut self, id: RequestId, result: Result<ClientAnswer, OpError>, now: Now) {
        let Some(Asked { ticket, what }) = self.asks.open.remove(&id) else { return };
        let response = match (what, result) {
            (_, Ok(ClientAnswer::Executed { exit_code, stdout, stderr })) => executed(exit_code, stdout, &stderr),
            (_, Ok(ClientAnswer::Usage(usage))) => {
                let usage = of_pods(&self.engine, usage);
                Response::json(serde_json::to_vec(&usage).unwrap_or_default())
            }
            (What::Exec { timeout, .. }, Err(e)) => {
                let (status, words) = exec_failed(&e, timeout);
                Response::text(status, words + "\n")
            }
            (What::Usage { again }, Err(e)) if asks_again(again, &e) => {
                let wanted = Wanted { ask: ClientRequest::Usage, what: What::Usage { again: again - 1 } };
                return self.ask_runtime(ticket, wanted, now);
            }
            (What::Usage { .. }, Err(e)) => {
                Response::text(502, format!("failed to read the containers' resource usage from the runtime: {e}\n"))
            }
        };
        self.answer_later(ticket, response, now);
    }
}

/// If a container disappears meanwhile, containerd 1.7 returns NotFound and no usage of any container.
fn asks_again(times_left: u32, e: &OpError) -> bool {
    times_left > 0 && e.is_not_found()
}

/// The body of the answer: a line of JSON, the command's stdout, and then its stderr.
fn executed(exit_code: i32, stdout: Vec<u8>, stderr: &[u8]) -> Response {
    let head = ExecHead { exit_code, stdout_bytes: stdout.len() as u64 };
    let mut body = serde_json::to_vec(&head).unwrap_or_default();
    body.push(b'\n');
    body.extend_from_slice(&stdout);
    drop(stdout);
    body.extend_from_slice(stderr);
    Response { status: 200, content_type: JSON, body: Body::Full(Bytes::from(body)) }
}

/// 504: the command took too long; 503: the request was not sent; 502: the runtime's own error.
fn exec_failed(e: &OpError, timeout: Duration) -> (u16, String) {
    let seconds = timeout.as_secs();
    let lower = e.message().to_lowercase();
    match e {
        OpError::NotSent(why) => (503, format!("there is no connection to the container runtime: {why}")),
        // containerd: "timeout 1s exceeded"; CRI-O: "command timed out"; gRPC: the call's deadline.
        _ if ["deadline exceeded", "timeout", "timed out"].iter().any(|w| lower.contains(w)) => {
            (504, format!("the command did not end within {seconds} s and was killed (--timeout)"))
        }
        _ if lower.contains("larger than max") || lower.contains("over the limit") => {
            let remedy = "write the output to a file, or print only a part of it (head, tail)";
            (
                502,
                format!("the command wrote more than the runtime's limit of 16 MiB, and its output was lost; {remedy}"),
            )
        }
        e => (502, e.message().to_owned()),
    }
}

/// The usage of the containers of Wherry's own pods.
fn of_pods(engine: &Engine, usage: Vec<UsageFact>) -> Usage {
    let by_id: BTreeMap<&str, &UsageFact> = usage.iter().map(|u| (u.id.as_str(), u)).collect();
    let container = |c: &ContainerFact| {
        let used = by_id.get(c.id.as_str()).copied();
        ContainerUsage {
            name: c.name.clone(),
            id: c.id.to_string(),
            restarts: c.attempt,
            cpu_at: used.map_or(0, |u| u.cpu_at),
            cpu_nanos: used.and_then(|u| u.cpu_nanos),
            cpu_nano_cores: used.and_then(|u| u.cpu_nano_cores),
            memory_bytes: used.and_then(|u| u.memory_bytes),
        }
    };
    let pods = engine.pods().into_iter().map(|view| {
        let pod = view.pod;
        let running = engine.containers(&pod.uid).iter().filter(|c| c.state == ContainerState::Running);
        PodUsage {
            namespace: pod.name.namespace.to_string(),
            name: pod.name.name.to_string(),
            uid: pod.uid.to_string(),
            labels: pod.object.metadata.labels.clone().unwrap_or_default(),
            containers: running.map(container).collect(),
        }
    });
    Usage { pods: pods.filter(|p| !p.containers.is_empty()).collect() }
}

#[cfg(test)]
mod tests {
    use super::super::retry::lab::{node, pod};
    use super::*;

    fn asked(engine: &Engine, execs: usize, request: serde_json::Value) -> (u16, String) {
        exec(engine, execs, request.to_string().as_bytes()).map(drop).unwrap_err()
    }

    #[test]
    fn what_cannot_be_executed_says_why() {
        let web = pod("web", 1);
        let engine = node(vec![web.clone()]);
        let uid = web.uid.as_str();
        let request = |uid: &str, container: Option<&str>, command: &[&str], seconds: u64| serde_json::json!({"uid": uid, "container": container, "command": command, "timeoutSeconds": seconds});
        for (request, status, why) in [
            (request("nobody", None, &["ls"], 5), 404, "there is no pod with the UID nobody"),
            (request(uid, Some("x"), &["ls"], 5), 404, "pod default/web has no container x; it has m"),
            (
                request(uid, None, &["ls"], 5),
                409,
                "container m of pod default/web is not running: it has not been created yet",
            ),
            (request(uid, None, &[], 5), 400, "the request has no command"),
            (request(uid, None, &[""], 5), 400, "the request has no command"),
            (request(uid, None, &["a\0b"], 5), 400, "an argument of the command contains a NUL"),
            (request(uid, None, &["ls"], 0), 400, "timeoutSeconds must be from 1 to 86400"),
            (request(uid, None, &["ls"], 86401), 400, "timeoutSeconds must be from 1 to 86400"),
            (serde_json::json!({"uid": 1}), 400, "invalid request"),
        ] {
            let (got, said) = asked(&engine, 0, request.clone());
            assert!(got == status && said.starts_with(why), "{request}: {got} {said}");
        }
    }

    #[test]
    fn an_error_of_the_runtime_is_told_by_its_kind() {
        let minute = Duration::from_secs(60);
        let answered =
            |message: &str| OpError::Answered { code: crate::engine::op::Code::Other(2), message: message.to_owned() };
        for (e, status) in [
            (OpError::NotSent("no such file".into()), 503),
            (
                OpError::Unknown("failed to exec in container: timeout 60s exceeded: context deadline exceeded".into()),
                504,
            ),
            (answered("grpc: trying to send message larger than max (16785415 vs. 16777216)"), 502),
            (answered("exec: \"nope\": executable file not found in $PATH: unknown"), 502),
        ] {
            assert_eq!(exec_failed(&e, minute).0, status, "{e}");
        }
        let (_, words) = exec_failed(&answered("trying to send message larger than max"), minute);
        assert!(words.contains("16 MiB") && words.contains("write the output to a file"), "{words}");
    }

    #[test]
    fn usage_is_asked_again_only_where_a_container_has_gone_and_not_for_ever() {
        use crate::engine::op::Code;
        let error = |code| OpError::Answered { code, message: "x".into() };
        assert!(asks_again(1, &error(Code::NotFound)));
        assert!(!asks_again(0, &error(Code::NotFound)));
        assert!(!asks_again(5, &error(Code::Unimplemented)));
        assert!(!asks_again(5, &OpError::Unknown("cancelled".into())));
    }

    #[test]
    fn output_is_told_apart_by_its_length() {
        let Body::Full(body) = executed(3, b"out\n".to_vec(), b"err").body else { panic!() };
        assert_eq!(&body[..], b"{\"exitCode\":3,\"stdoutBytes\":4}\nout\nerr");
    }
}
