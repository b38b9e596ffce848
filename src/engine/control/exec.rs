//! Commands in containers: the checks of a request, the commands that run, and the meaning of the runtime's errors.
//!
//! The arguments of a command may contain secrets. The engine's state does not contain them, and `Debug` shows only
//! their number.

use super::error::{NotRunning, RequestError};
use super::limits::{LONGEST_EXEC, MAX_EXECS};
use super::request_id::RequestId;
use crate::api::facts::{ContainerFact, ContainerState};
use crate::api::names::{ContainerId, Uid};
use crate::api::pod::Pod;
use crate::engine::op::{OpError, OpId};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

/// Added to the time limit of a command to get the deadline of the call, because the runtime has to kill the command
/// first.
pub const AFTER_TIMEOUT: Duration = Duration::from_secs(10);

/// The program and its arguments. They are not passed through a shell.
#[derive(Clone, PartialEq, Eq)]
pub struct Command(pub Vec<String>);

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Command({} words)", self.0.len())
    }
}

impl Command {
    /// # Errors
    /// No program can be started with these words.
    pub fn check(&self) -> Result<(), RequestError> {
        let Command(words) = self;
        if words.first().is_none_or(String::is_empty) {
            return Err(RequestError::NoCommand);
        }
        if words.iter().any(|word| word.contains('\0')) {
            return Err(RequestError::NulByte);
        }
        Ok(())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecRequest {
    pub uid: Uid,
    /// None: the container that the pod's annotation names, or else the first one.
    pub container: Option<String>,
    pub command: Command,
    /// The runtime kills the command after this time.
    pub timeout: Duration,
}

/// The call that runs the command.
#[derive(Clone, Debug, PartialEq)]
pub struct ExecCall {
    pub pod: Rc<Pod>,
    /// The container's name in the spec.
    pub container: String,
    pub id: ContainerId,
    pub command: Command,
    pub timeout: Duration,
}

impl ExecRequest {
    /// # Errors
    /// The request cannot be carried out, whatever the state of the pod.
    pub fn check(&self) -> Result<(), RequestError> {
        self.command.check()?;
        if !(Duration::from_secs(1)..=LONGEST_EXEC).contains(&self.timeout) {
            return Err(RequestError::TimeoutOutOfRange);
        }
        Ok(())
    }
}

/// Returns the requested container. If the request names none, it is the one in kubectl's annotation, or else the
/// first one.
///
/// # Errors
/// The pod has no such container.
pub fn container_of<'a>(pod: &'a Pod, named: Option<&str>) -> Result<&'a str, RequestError> {
    const DEFAULT: &str = "kubectl.kubernetes.io/default-container";
    let find = |name: &str| pod.every_container().map(|c| c.name.as_str()).find(|c| *c == name);
    let Some(name) = named else {
        let annotated = pod.object.metadata.annotations.as_ref().and_then(|a| a.get(DEFAULT));
        let first = pod.containers().first().map(|c| c.name.as_str());
        let container = annotated.and_then(|name| find(name)).or(first);
        return container.ok_or_else(|| RequestError::NoContainers { pod: pod.name.clone() });
    };
    find(name).ok_or_else(|| RequestError::UnknownContainer {
        pod: pod.name.clone(),
        container: name.to_owned(),
        containers: pod.every_container().map(|c| c.name.clone()).collect(),
    })
}

/// Returns the id of the newest instance of a container. The instance has to be running.
///
/// # Errors
/// The container is not running.
pub fn running(facts: &[ContainerFact], name: &str) -> Result<ContainerId, NotRunning> {
    let Some(fact) = facts.iter().filter(|c| c.name == name).max_by_key(|c| c.attempt) else {
        return Err(NotRunning::Absent);
    };
    match fact.state {
        ContainerState::Running => Ok(fact.id.clone()),
        ContainerState::Created => Err(NotRunning::Created),
        ContainerState::Exited => Err(NotRunning::Exited { exit_code: fact.exit_code }),
        ContainerState::Unknown => Err(NotRunning::Unknown),
    }
}

/// Returns the error of a command that the runtime did not run to completion.
pub fn failure(e: &OpError, timeout: Duration) -> RequestError {
    let lower = e.message().to_lowercase();
    match e {
        OpError::NotSent(why) => RequestError::NotConnected { why: why.clone() },
        e if e.is_timeout() => RequestError::CommandTimedOut { seconds: timeout.as_secs() },
        _ if lower.contains("larger than max") || lower.contains("over the limit") => RequestError::OutputTooLarge,
        e => RequestError::ExecFailed { why: e.message().to_owned() },
    }
}

/// The commands whose calls have not ended.
#[derive(Debug, Default, Serialize)]
pub struct Execs {
    open: BTreeMap<OpId, Exec>,
}

#[derive(Debug, Serialize)]
struct Exec {
    timeout: Duration,
    client: Client,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
enum Client {
    Waits(RequestId),
    /// The client has disconnected, and the call is cancelled. It counts against the limit until it ends, because it
    /// still needs memory.
    Gone,
}

impl Execs {
    pub fn has_room(&self) -> bool {
        self.open.len() < MAX_EXECS
    }

    pub fn begun(&mut self, op: OpId, request: RequestId, timeout: Duration) {
        self.open.insert(op, Exec { timeout, client: Client::Waits(request) });
    }

    /// Handles the end of a call. Returns its request and the time limit, unless its client has disconnected.
    pub fn ended(&mut self, op: OpId) -> Option<(RequestId, Duration)> {
        match self.open.remove(&op)? {
            Exec { timeout, client: Client::Waits(request) } => Some((request, timeout)),
            Exec { client: Client::Gone, .. } => None,
        }
    }

    /// Notes that a client has disconnected. Returns the call to cancel.
    pub fn gone(&mut self, request: RequestId) -> Option<OpId> {
        let (op, exec) = self.open.iter_mut().find(|(_, exec)| exec.client == Client::Waits(request))?;
        exec.client = Client::Gone;
        Some(*op)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::op::Code;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn the_words_of_a_command_are_not_shown() {
        let command = Command(vec!["login".to_owned(), "--password=secret".to_owned()]);
        let request = ExecRequest { uid: Uid::from("u"), container: None, command, timeout: MINUTE };
        assert_eq!(request.check(), Ok(()));
        let shown = format!("{request:?}");
        assert!(shown.contains("Command(2 words)") && !shown.contains("secret") && !shown.contains("login"), "{shown}");
    }

    #[test]
    fn an_error_of_the_runtime_becomes_the_error_of_its_kind() {
        let answered = |message: &str| OpError::Answered { code: Code::Other(2), message: message.to_owned() };
        let late = "failed to exec in container: timeout 60s exceeded: context deadline exceeded";
        let large = answered("grpc: trying to send message larger than max (16785415 vs. 16777216)");
        let missing = "exec: \"nope\": executable file not found in $PATH: unknown";
        for (e, status, words) in [
            (OpError::NotSent("no such file".into()), 503, "there is no connection to the container runtime: no such"),
            (OpError::Unknown(late.into()), 504, "the command exceeded its timeout of 60 s"),
            (large, 502, "the command wrote more than the runtime's limit of 16 MiB, and its output was lost; write"),
            (answered(missing), 502, missing),
        ] {
            let error = failure(&e, MINUTE);
            assert!(error.status() == status && error.to_string().starts_with(words), "{e}: {error}");
        }
    }

    #[test]
    fn a_cancelled_command_counts_until_its_call_ends() {
        let mut execs = Execs::default();
        (0..MAX_EXECS as u64).for_each(|n| execs.begun(OpId(n), RequestId(n + 100), MINUTE));
        assert!(!execs.has_room());
        assert_eq!((execs.gone(RequestId(103)), execs.gone(RequestId(103))), (Some(OpId(3)), None));
        assert!(!execs.has_room());
        assert_eq!((execs.ended(OpId(3)), execs.ended(OpId(4))), (None, Some((RequestId(104), MINUTE))));
        assert!(execs.has_room());
        assert_eq!(execs.gone(RequestId(104)), None, "it has its answer");
    }
}
