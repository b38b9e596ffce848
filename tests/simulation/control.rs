//! Users and the control socket: they send requests, receive answers, or disconnect. Each request must have exactly one
//! answer, and an answer to a drain or undrain must be true for an engine that is killed right after it (W27).

use crate::chance::below;
use crate::world::{MS, S, World};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use wherry::api::control::DrainOutcome;
use wherry::api::disruption_budget::DisruptionBudget;
use wherry::api::ephemeral_request::RequestedContainers;
use wherry::api::facts::{ExecOutput, MemoryFact, UsageFact};
use wherry::api::names::{FullName, Uid};
use wherry::engine::control::ephemeral::Origin;
use wherry::engine::control::limits::{MAX_EXECS, MAX_STREAM_CALLS};
use wherry::engine::control::stream::{Channels, Terminal};
use wherry::engine::control::{
    Command, EphemeralRequest, ExecRequest, Reply, Request, RequestError, RequestId, StreamKind, StreamRequest,
    StreamTarget,
};
use wherry::engine::effect::{ExecCall, RuntimeCall, StreamCall};
use wherry::engine::event::{Answer, Event};
use wherry::engine::node::PodView;
use wherry::engine::op::{Code, OpError};
use wherry::engine::pod::kill::TerminationSource;
use wherry::engine::rng::Rng;

/// The argument of every command. It must not be visible anywhere.
pub const SECRET: &str = "--token=hunter2";

/// The environment of every ephemeral container. It must not be visible in a dump.
pub const ENVIRONMENT: &str = "swordfish";

/// A command or a read ends within this time, also under faults (ns).
const PATIENCE: u64 = 100 * S;

pub type Answered = Result<Reply, RequestError>;

#[derive(Default)]
pub struct Users {
    last: u64,
    /// The requests that wait for their answers, and when they were sent (ns).
    pub open: BTreeMap<RequestId, u64>,
    /// The pods of the requests for ephemeral containers that have to change a record.
    pub debugged: BTreeMap<RequestId, Uid>,
    /// The answers, in stories.
    pub answers: BTreeMap<RequestId, Answered>,
    /// How long the next commands run, and their results; after that each ends at once with 0.
    pub commands: VecDeque<(Duration, i32)>,
    /// The size of the output of the next commands.
    pub output: usize,
    /// The runtime reports a command's time-out as a result, as CRI-O does.
    pub timeouts_are_results: bool,
    /// What attaches wanted.
    pub attached: Vec<Channels>,
    /// A container disappears during each of the next reads of the usage.
    pub disappearing: u32,
}

impl World {
    pub fn ask(&mut self, request: Request) -> RequestId {
        self.users.last += 1;
        let id = RequestId(self.users.last);
        // Nothing listens.
        if self.process.alive {
            self.ask_as(id, request);
        }
        id
    }

    /// The engine receives a request with this id.
    pub fn ask_as(&mut self, id: RequestId, request: Request) {
        self.expect(&request);
        if let Request::Ephemeral(EphemeralRequest { uid, dry_run: false, wanted, .. }) = &request {
            self.users.debugged.insert(id, uid.clone());
            // A user may use a name of an earlier run of the pod again.
            let (RequestedContainers::More(list) | RequestedContainers::All(list)) = wanted;
            let pod = self.engine.pod(uid).map(|view| view.pod.clone());
            let is_new = |name: &str| {
                list.iter().any(|c| c["name"] == name) && pod.as_ref().is_some_and(|pod| pod.ephemeral(name).is_none())
            };
            self.checks.ephemeral.retain(|(of, name)| of != uid || !is_new(name));
        }
        self.users.open.insert(id, self.clock.now);
        self.step(Event::Request { id, request });
    }

    /// Y32: removes the pods that budgets protect from those of a drain. A drained pod no longer counts for the next one.
    fn leave_protected(&self, uids: &mut Vec<Uid>) {
        let mut left: BTreeMap<FullName, u32> = BTreeMap::new();
        uids.retain(|uid| {
            let pod = self.engine.pod(uid).map(|view| view.pod.clone());
            let budgets = self.engine.plain_objects().iter().filter_map(|object| DisruptionBudget::of(object));
            let Some(budget) = budgets.into_iter().find(|budget| pod.as_ref().is_some_and(|pod| budget.selects(pod)))
            else {
                return true;
            };
            let allowed = self.engine.budget_status(&budget).disruptions_allowed;
            let left = left.entry(budget.name).or_insert(allowed);
            let may_end = self.engine.budget_refuses(uid).is_none() && *left > 0;
            *left = left.saturating_sub(1);
            may_end
        });
    }

    /// What the checks have to know before the engine does.
    fn expect(&mut self, request: &Request) {
        let known = |w: &World, uid: &&Uid| w.engine.pod(uid).is_some();
        match request {
            Request::Drain { uids, grace, ignores_budgets } => {
                let mut uids: Vec<Uid> = uids.iter().filter(|uid| known(self, uid)).cloned().collect();
                if !ignores_budgets {
                    self.leave_protected(&mut uids);
                }
                for uid in &uids {
                    self.checks.killed(uid, TerminationSource::Drain, &self.engine, &self.runtime);
                    self.checks.bounds.end_requested(uid, *grace, self.clock.now, &self.runtime);
                }
            }
            Request::Evict { uid, grace } => {
                if known(self, &uid) && self.engine.budget_refuses(uid).is_none() {
                    self.checks.killed(uid, TerminationSource::ApiEviction, &self.engine, &self.runtime);
                    self.checks.bounds.end_requested(uid, *grace, self.clock.now, &self.runtime);
                }
            }
            Request::DeleteReplica { uid, grace } => {
                self.checks.bounds.end_requested(uid, *grace, self.clock.now, &self.runtime);
            }
            Request::Undrain { uids } => {
                let uids: BTreeSet<Uid> = uids.iter().filter(|uid| known(self, uid)).cloned().collect();
                self.checks.undrained(&uids);
            }
            Request::Shorten { pod, grace } => {
                let ends = |view: &PodView<'_>| view.pod.name == *pod && !view.desired;
                let views = self.engine.pods().into_iter().filter(ends);
                for uid in views.map(|view| view.pod.uid.clone()).collect::<Vec<_>>() {
                    self.checks.bounds.end_requested(&uid, Some(*grace), self.clock.now, &self.runtime);
                }
            }
            Request::Cordon { .. }
            | Request::DeleteJob { .. }
            | Request::DeleteClaim { .. }
            | Request::RemoveVolume { .. }
            | Request::Retry { .. }
            | Request::Ephemeral(_)
            | Request::Exec(_)
            | Request::Stream(_)
            | Request::Usage
            | Request::Images
            | Request::Access(_) => {}
        }
    }

    pub fn client_gone(&mut self, id: RequestId) {
        if self.users.open.remove(&id).is_some() {
            self.step(Event::RequestGone { id });
        }
    }

    pub fn answered(&mut self, id: RequestId, answer: Answered) {
        self.note(|| format!("  < answer {id:?} {answer:?}"));
        if self.users.open.remove(&id).is_none() {
            self.checks.fail("each request has one answer", format!("{id:?} has another one: {answer:?}"));
        }
        if format!("{answer:?}").contains(SECRET) {
            self.checks.fail("a command's arguments are secret", format!("{answer:?}"));
        }
        if let Ok(Reply::Drained(drained)) = &answer {
            for pod in &drained.pods {
                self.durable(&Uid::from(pod.uid.as_str()), pod.outcome);
            }
        }
        if let (Ok(Reply::Ephemeral(names)), Some(uid)) = (&answer, self.users.debugged.remove(&id)) {
            self.ephemeral_is_durable(&uid, names);
        }
        let Some(answer) = self.answered_kubectl(id, answer) else { return };
        if self.chaos.is_none() {
            self.users.answers.insert(id, answer);
        }
    }

    /// W29: the record contains the containers of the answer, as long as the pod continues.
    fn ephemeral_is_durable(&mut self, uid: &Uid, names: &[String]) {
        let record = self.disk.records.get(&format!("pods/{uid}")).map(String::as_str).unwrap_or_default();
        let continues = |name: &str| self.engine.pod(uid).is_some_and(|view| view.pod.ephemeral(name).is_some());
        let is_missing = |name: &&String| continues(name) && !record.contains(&format!("\"name\":\"{name}\""));
        if let Some(name) = names.iter().find(is_missing) {
            self.checks.fail("W29: the answer is durable", format!("{name} of {uid} is not in its record: {record:?}"));
        }
    }

    /// W27: the record says what the answer says. A later request may have changed it already.
    fn durable(&mut self, uid: &Uid, outcome: DrainOutcome) {
        let is_drained = self.engine.worker_status(uid, self.time().boot).is_some_and(|status| status.drained);
        let is_desired = self.engine.pod(uid).is_some_and(|view| view.desired);
        if !is_desired || is_drained != outcome.is_drained() {
            return;
        }
        let record = self.disk.records.get(&format!("pods/{uid}")).map(String::as_str).unwrap_or_default();
        let record: serde_json::Value = serde_json::from_str(record).unwrap_or_default();
        let recorded = record["waitsFor"].as_array().is_some_and(|all| all.iter().any(|by| by == "drain"));
        let wrong = match outcome {
            DrainOutcome::Ending | DrainOutcome::Down => !recorded,
            DrainOutcome::Starts | DrainOutcome::Waits | DrainOutcome::NotDrained => recorded,
            DrainOutcome::Completed | DrainOutcome::Undesired | DrainOutcome::Refused | DrainOutcome::NotFound => false,
        };
        if wrong {
            let what = format!("{uid} is {outcome:?}, and its record says {record:?}");
            self.checks.fail("W27: the answer is durable", what);
        }
    }

    /// Clients of an engine that was killed are disconnected.
    pub fn users_are_disconnected(&mut self) {
        self.users.open.clear();
    }

    /// Every request has its answer in time.
    pub fn users_are_answered(&mut self) {
        if let Some((id, at)) = self.users.open.iter().find(|(_, at)| **at + PATIENCE < self.clock.now) {
            let what = format!("{id:?} has none after {} s", (self.clock.now - at) / S);
            self.checks.fail("each request has one answer", what);
        }
    }

    /// How long the runtime needs for this call of a user (ns). None: it is a call of another kind.
    pub fn time_of_user_call(&mut self, call: &RuntimeCall) -> Option<u64> {
        match call {
            RuntimeCall::Exec(exec) => {
                let (runs, _) = self.users.commands.front()?;
                Some(runs.min(&exec.timeout).as_nanos() as u64)
            }
            _ => None,
        }
    }

    pub fn user_call(&mut self, call: &RuntimeCall) -> Option<Result<Answer, OpError>> {
        match call {
            RuntimeCall::Exec(exec) => Some(self.run_command(exec)),
            RuntimeCall::Stream(stream) => Some(self.stream_url(stream)),
            RuntimeCall::Usage => Some(self.measure_usage()),
            RuntimeCall::ReopenContainerLog { id } => Some(self.reopen_log(id)),
            _ => None,
        }
    }

    fn run_command(&mut self, exec: &ExecCall) -> Result<Answer, OpError> {
        let failed = |code, message: String| Err(OpError::Answered { code, message });
        let (runs, exit_code) = self.users.commands.pop_front().unwrap_or_default();
        match self.runtime.containers.get(exec.id.as_str()) {
            None => failed(Code::NotFound, format!("an error occurred when try to find container {}", exec.id)),
            Some(c) if !c.runs() => failed(Code::Other(2), "container is in CONTAINER_EXITED state".into()),
            Some(_) if runs > exec.timeout && self.users.timeouts_are_results => Ok(timed_out()),
            Some(_) if runs > exec.timeout => self.runtime.personality.command_timed_out(exec.timeout.as_secs()),
            Some(_) => {
                let mut stdout = format!("{:?}", exec.command.0).into_bytes();
                stdout.resize(stdout.len().max(self.users.output), b'x');
                Ok(Answer::Executed(ExecOutput { exit_code, stdout, stderr: Vec::new() }))
            }
        }
    }

    /// A runtime checks the state of the object, and returns a URL with a token.
    fn stream_url(&mut self, stream: &StreamCall) -> Result<Answer, OpError> {
        if let StreamTarget::Attach { channels, .. } = &stream.target {
            self.users.attached.push(*channels);
        }
        let (id, runs) = match &stream.target {
            StreamTarget::Exec { id, .. } | StreamTarget::Attach { id, .. } => {
                (id.as_str(), self.runtime.containers.get(id.as_str()).map(|c| c.runs()))
            }
            StreamTarget::PortForward { sandbox, .. } => {
                (sandbox.as_str(), self.runtime.sandboxes.get(sandbox.as_str()).map(|s| s.ready))
            }
        };
        match runs {
            Some(true) => Ok(Answer::StreamUrl(format!("http://127.0.0.1:4242/{id}"))),
            Some(false) => Err(OpError::Answered { code: Code::Other(2), message: format!("{id} is not running") }),
            None => Err(OpError::Answered { code: Code::NotFound, message: format!("{id} was not found") }),
        }
    }

    fn measure_usage(&mut self) -> Result<Answer, OpError> {
        if let Some(left) = self.users.disappearing.checked_sub(1) {
            self.users.disappearing = left;
            return Err(OpError::Answered { code: Code::NotFound, message: "container not found".into() });
        }
        let running = self.runtime.containers.values().filter(|c| c.runs());
        let (memory, layers) = (&self.host.memory_of, &self.host.layer_of);
        let usage = running.map(|c| UsageFact {
            id: c.id.as_str().into(),
            cpu_at: self.clock.now as i64,
            cpu_nanos: Some(MS),
            cpu_nano_cores: None,
            memory_bytes: Some(memory.get(&format!("{}/{}", c.pod_name.name, c.name)).copied().unwrap_or(1 << 20)),
            memory_at: self.clock.now as i64,
            memory: MemoryFact::default(),
            swap_bytes: None,
            disk_bytes: layers.get(&format!("{}/{}", c.pod_name.name, c.name)).copied(),
            disk_inodes: None,
        });
        Ok(Answer::Usage(usage.collect()))
    }

    /// At most `MAX_EXECS` commands run at one time, and only in containers of the engine's own pods.
    pub fn check_exec(&mut self, call: &RuntimeCall, in_flight: usize) {
        let RuntimeCall::Exec(exec) = call else { return };
        if in_flight > MAX_EXECS {
            self.checks.fail("commands are bounded", format!("{in_flight} are in flight"));
        }
        let other = self.runtime.containers.get(exec.id.as_str()).is_some_and(|c| {
            c.uid != exec.pod.uid || c.name != exec.container || c.owner.as_ref() != Some(&self.runtime.owner)
        });
        if other {
            self.checks.fail("W21", format!("a command runs in {}, which is not of {}", exec.id, exec.pod.name));
        }
        if format!("{call:?}").contains(SECRET) || self.engine.dump().to_string().contains(SECRET) {
            self.checks.fail("a command's arguments are secret", exec.id.to_string());
        }
    }

    /// At most `MAX_STREAM_CALLS` calls are in flight, and only for objects of the engine's own pods.
    pub fn check_stream(&mut self, call: &RuntimeCall, in_flight: usize) {
        let RuntimeCall::Stream(stream) = call else { return };
        if in_flight > MAX_STREAM_CALLS {
            self.checks.fail("streams are bounded", format!("{in_flight} are in flight"));
        }
        let owner = Some(&self.runtime.owner);
        let other = match &stream.target {
            StreamTarget::Exec { id, container, .. } | StreamTarget::Attach { id, container, .. } => self
                .runtime
                .containers
                .get(id.as_str())
                .is_some_and(|c| c.uid != stream.pod.uid || c.name != *container || c.owner.as_ref() != owner),
            StreamTarget::PortForward { sandbox, .. } => {
                let sandbox = self.runtime.sandboxes.get(sandbox.as_str());
                sandbox.is_some_and(|s| s.uid != stream.pod.uid || s.owner.as_ref() != owner)
            }
        };
        if other {
            self.checks.fail("W21", format!("a stream of {call:?}, which is not of {}", stream.pod.name));
        }
        if format!("{call:?}").contains(SECRET) || self.engine.dump().to_string().contains(SECRET) {
            self.checks.fail("a command's arguments are secret", stream.pod.name.to_string());
        }
    }

    /// One action of a user: a request about some pods, or the end of a client. `dice` are the user's own, so that other
    /// decisions of a life do not depend on it.
    pub fn user_acts(&mut self, dice: &mut Rng) {
        let mut uids: Vec<Uid> = self.engine.pods().iter().map(|view| view.pod.uid.clone()).collect();
        uids.push(Uid::from("nobody"));
        let some = |dice: &mut Rng| {
            let pick = |dice: &mut Rng| uids[below(dice, uids.len() as u64) as usize].clone();
            (0..1 + below(dice, 3)).map(|_| pick(dice)).collect::<Vec<Uid>>()
        };
        let request = match below(dice, 25) {
            0 | 1 => {
                let grace = [None, Some(1), Some(4)][below(dice, 3) as usize].map(Duration::from_secs);
                Request::Drain { uids: some(dice), grace, ignores_budgets: false }
            }
            2..=5 => Request::Undrain { uids: some(dice) },
            6 | 7 => Request::Retry { uid: some(dice).remove(0) },
            8..=11 => {
                let runs = Duration::from_millis(below(dice, 9000));
                self.users.commands.push_back((runs, below(dice, 2) as i32));
                Request::Exec(command(some(dice).remove(0), 1 + below(dice, 8)))
            }
            12 => Request::Usage,
            13 => Request::Images,
            14 => {
                let grace = Duration::from_secs(1 + below(dice, 3));
                let uid = some(dice).remove(0);
                let pod =
                    self.engine.pod(&uid).map_or_else(|| FullName::new("no", "pod"), |view| view.pod.name.clone());
                Request::Shorten { pod, grace }
            }
            16 => Request::Stream(stream_of_command(some(dice).remove(0), None)),
            17 => Request::Stream(attach(some(dice).remove(0), below(dice, 2) == 0)),
            19 | 20 => Request::Cordon { on: below(dice, 2) == 0 },
            21 | 22 => {
                let grace = [None, Some(1), Some(4)][below(dice, 3) as usize].map(Duration::from_secs);
                Request::Evict { uid: some(dice).remove(0), grace }
            }
            23 | 24 => {
                let target = ["main", ""][below(dice, 2) as usize];
                Request::Ephemeral(debugger(some(dice).remove(0), &format!("d{}", below(dice, 3)), target))
            }
            18 => Request::Stream(forward(some(dice).remove(0), &[80])),
            _ => {
                let open: Vec<RequestId> = self.users.open.keys().copied().collect();
                if let Some(id) = open.get(below(dice, 8) as usize) {
                    self.client_gone(*id);
                }
                return;
            }
        };
        self.ask(request);
    }
}

/// A command in the pod's first container.
pub fn command(uid: Uid, seconds: u64) -> ExecRequest {
    let command = Command(vec!["login".to_owned(), SECRET.to_owned()]);
    ExecRequest { uid, container: None, command, timeout: Duration::from_secs(seconds) }
}

/// A command with all streams and without a terminal.
pub fn stream_of_command(uid: Uid, container: Option<&str>) -> StreamRequest {
    let command = Command(vec!["login".to_owned(), SECRET.to_owned()]);
    let container = container.map(str::to_owned);
    let kind = StreamKind::Exec { container, command, stdin: true, stdout: true, stderr: true, tty: false };
    StreamRequest { uid, kind }
}

/// An ephemeral container with this name; without a target if that is empty.
pub fn debugger(uid: Uid, name: &str, target: &str) -> EphemeralRequest {
    let environment = [json!({ "name": "TOKEN", "value": ENVIRONMENT })];
    let container = json!({ "name": name, "image": "busybox:1.35", "targetContainerName": target, "env": environment });
    EphemeralRequest { uid, origin: Origin::Api, wanted: RequestedContainers::More(vec![container]), dry_run: false }
}

/// CRI-O's answer for a command that was killed at its time limit.
pub fn timed_out() -> Answer {
    Answer::Executed(ExecOutput { exit_code: -1, stdout: Vec::new(), stderr: b"command timed out".to_vec() })
}

/// The outputs of the pod's first container.
pub fn attach(uid: Uid, stdin: bool) -> StreamRequest {
    let terminal = Terminal::AsRequested;
    let kind = StreamKind::Attach { container: None, stdin, stdout: true, stderr: true, tty: false, terminal };
    StreamRequest { uid, kind }
}

pub fn forward(uid: Uid, ports: &[u16]) -> StreamRequest {
    StreamRequest { uid, kind: StreamKind::PortForward { ports: ports.to_vec() } }
}
