//! The engine's runtime calls, carried over a transport: an operation begins, makes one or more gRPC calls, and ends
//! in exactly one `ClientEvent::Done`.
//!
//! Some operations are several calls: side by side where one does not need the other (the two lists, all statuses of
//! a pod), one after the other where it does (run, then read). One deadline covers them all. Once the changing half
//! of an operation has succeeded, whatever goes wrong after it is `OpError::Unknown`: something did change.
//!
//! The client decides nothing about pods. What it keeps beyond an operation's life are the PIDs of what
//! runs: an init process' PID never changes, and the verbose status that tells it costs the runtime more than all
//! others together, so it is asked for once.

pub mod direct;
pub mod method;
#[cfg(test)]
mod tests;
mod wire;

use self::direct::{Asked, ClientAnswer, RequestId};
use self::method::Method;
pub(super) use self::wire::op_error;
use self::wire::{invalid, lists_of, parse, parse_each};
use super::transport::{Call, CallError, CallId, Completion, Transport};
use super::{answers, proto, requests};
use crate::adapters::cri::requests::RequestConfig;
use crate::api::cgroups::CgroupDriver;
use crate::api::facts::{ContainerFact, ContainerState, Listed, PodFacts, SandboxFact};
use crate::api::names::ContainerId;
use crate::api::time::Boot;
use crate::engine::effect::RuntimeCall;
use crate::engine::event::Answer;
use crate::engine::op::{Code, OpError, OpId};
use bytes::Bytes;
use protobuf::{Message, MessageField};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The version of the kubelet's side of the interface, sent with Version.
const KUBELET_API_VERSION: &str = "0.1.0";

// Moved once, to be taken apart: a box would cost more than it saves.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq)]
pub enum ClientEvent {
    /// The connection to the runtime is there.
    Up,
    /// It was lost, or could not be made.
    Down { why: String },
    /// The one end of an operation.
    Done { op: OpId, result: Result<Answer, OpError> },
    /// The one end of what people asked for.
    Answered { id: RequestId, result: Result<ClientAnswer, OpError> },
    /// The driver that the runtime uses for cgroups, before the first `Done` that depends on it; None: it does not
    /// tell.
    Driver(Option<CgroupDriver>),
    /// One gRPC call has ended, by the kubelet's name of it: to be counted and timed.
    Called { operation_type: &'static str, duration: Duration, error: bool },
    /// An answer, or something in it, makes no sense. What can be used of it was.
    Nonsense { why: String },
}

pub struct Client {
    transport: Box<dyn Transport>,
    config: RequestConfig,
    operations: BTreeMap<OpId, Operation>,
    calls: BTreeMap<CallId, InFlight>,
    asked: BTreeMap<CallId, Asked>,
    /// To be told at the next drive: of operations that ended before they made a call, and nonsense.
    ended: Vec<ClientEvent>,
    /// For a runtime that does not tell its driver.
    configured_driver: CgroupDriver,
    /// The runtime has been asked which cgroup driver it uses since it was connected.
    driver_known: bool,
    /// Of running containers and ready sandboxes, by their id.
    pids: BTreeMap<String, u32>,
    /// The runtime said that it is containerd.
    containerd: bool,
    /// Kept for its space.
    completions: Vec<Completion>,
}

struct Operation {
    deadline: Boot,
    /// Calls that have not ended.
    waiting: u32,
    cancelled: bool,
    /// Its changing call has succeeded.
    changed: bool,
    work: Work,
}

/// What an operation collects on its way to its answer.
enum Work {
    Status(Box<(proto::VersionResponse, proto::StatusResponse)>),
    List(Listed),
    Read(PodFacts),
    /// The image's name, for the look after the pull.
    Pull(String),
    /// One call, or two of which the second says it all.
    Plain,
}

struct InFlight {
    op: OpId,
    step: Step,
    method: Method,
    begun: Boot,
}

/// What a call's answer means to its operation.
enum Step {
    Version,
    Status,
    RuntimeConfig,
    ListSandboxes,
    ListContainers,
    /// The two lists of one pod.
    FindSandboxes,
    FindContainers,
    /// One of a pod's statuses: nothing is missing if it vanished in between.
    ReadSandbox,
    ReadContainer {
        sandbox: String,
    },
    Run,
    RanSandbox,
    Image,
    Pull,
    Create,
    Start(ContainerId),
    Started,
    /// Whatever comes of it, the task's removal follows.
    KillTask(ContainerId),
    /// An answer without content.
    Change,
}

/// After a call's answer: the operation's own, or None while it goes on.
type Next = Option<Answer>;

impl Client {
    pub fn new(transport: Box<dyn Transport>, config: RequestConfig) -> Client {
        Client {
            transport,
            configured_driver: config.cgroups.driver,
            config,
            operations: BTreeMap::new(),
            calls: BTreeMap::new(),
            asked: BTreeMap::new(),
            ended: Vec::new(),
            driver_known: false,
            pids: BTreeMap::new(),
            containerd: false,
            completions: Vec::new(),
        }
    }

    pub fn is_up(&self) -> bool {
        self.transport.is_up()
    }

    /// The calls in flight, a text each: operation, kind, since when in seconds of the boot clock.
    pub fn in_flight(&self) -> impl Iterator<Item = String> {
        let line = |of: String, method: Method, begun: Boot| {
            format!("{of} {} since {:.3}", method.operation_type, begun.0 as f64 / 1e9)
        };
        let operations = self.calls.values().map(move |c| line(c.op.to_string(), c.method, c.begun));
        operations.chain(self.asked.values().map(move |a| line(format!("ask{}", a.id.0), a.method, a.begun)))
    }

    /// The node's settings for the requests from now on.
    pub fn config_mut(&mut self) -> &mut RequestConfig {
        &mut self.config
    }

    /// Begins an operation; `drive` must be called for it to get anywhere. A pod that cannot be expressed to the
    /// runtime ends as `InvalidArgument` without a call.
    pub fn start(&mut self, op: OpId, call: RuntimeCall, timeout: Duration, now: Boot) {
        let work = match &call {
            RuntimeCall::Status => Work::Status(Box::default()),
            RuntimeCall::List => Work::List(Listed::default()),
            RuntimeCall::ReadPod { .. } => Work::Read(PodFacts::default()),
            RuntimeCall::PullImage { image, .. } => Work::Pull(image.clone()),
            _ => Work::Plain,
        };
        let operation = Operation { deadline: now + timeout, waiting: 0, cancelled: false, changed: false, work };
        self.operations.insert(op, operation);
        if let Err(error) = self.begin(op, call, now) {
            // What was begun of it (nothing, as it is) goes with it.
            self.operations.remove(&op);
            self.ended.push(ClientEvent::Done { op, result: Err(error) });
        }
    }

    /// Gives an operation up: its calls are reset, and it ends as `Unknown` at the next `drive` unless its answer was
    /// there already. No effect on an operation that has ended.
    pub fn cancel(&mut self, op: OpId) {
        let Some(operation) = self.operations.get_mut(&op) else { return };
        operation.cancelled = true;
        for (id, _) in self.calls.iter().filter(|(_, call)| call.op == op) {
            self.transport.cancel(*id);
        }
    }

    /// Moves bytes and appends what came of it. True if it stopped for its budget and wants to be driven again
    /// without waiting.
    pub fn drive(&mut self, now: Boot, out: &mut Vec<ClientEvent>) -> bool {
        self.drive_all(now, true, out)
    }

    /// The same where operations were begun, or a deadline is due, and nothing said that the runtime has answered.
    pub fn flush(&mut self, now: Boot, out: &mut Vec<ClientEvent>) -> bool {
        self.drive_all(now, false, out)
    }

    fn drive_all(&mut self, now: Boot, mut look: bool, out: &mut Vec<ClientEvent>) -> bool {
        out.append(&mut self.ended);
        loop {
            let mut completions = std::mem::take(&mut self.completions);
            let again = match std::mem::take(&mut look) {
                true => self.transport.drive(now, &mut completions),
                false => self.transport.flush(now, &mut completions),
            };
            let mut begun = false;
            for completion in completions.drain(..) {
                match completion {
                    Completion::Up => {
                        // It may have been restarted with another configuration.
                        self.driver_known = false;
                        out.push(ClientEvent::Up);
                    }
                    Completion::Down { why } => out.push(ClientEvent::Down { why }),
                    Completion::Done { id, result } => {
                        if !self.ask_ended(id, &result, now, out) {
                            begun |= self.call_ended(id, result, now, out);
                        }
                    }
                    // No operation has a stream.
                    Completion::Message { .. } => {}
                }
            }
            self.completions = completions;
            // Calls that were begun by answers are still to be written.
            if again || !begun {
                return again;
            }
        }
    }

    /// When `drive` must be called at the latest.
    pub fn next_deadline(&self) -> Option<Boot> {
        if self.ended.is_empty() { self.transport.next_deadline() } else { Some(Boot(0)) }
    }

    fn begin(&mut self, op: OpId, call: RuntimeCall, now: Boot) -> Result<(), OpError> {
        match call {
            RuntimeCall::Status => {
                let version = proto::VersionRequest { version: KUBELET_API_VERSION.into(), ..Default::default() };
                self.call(op, Step::Version, method::VERSION, &version, now)?;
                self.call(op, Step::Status, method::STATUS, &proto::StatusRequest::new(), now)?;
                if !self.driver_known {
                    let request = proto::RuntimeConfigRequest::new();
                    self.call(op, Step::RuntimeConfig, method::RUNTIME_CONFIG, &request, now)?;
                }
                Ok(())
            }
            RuntimeCall::List => {
                let (sandboxes, containers) =
                    (proto::ListPodSandboxRequest::new(), proto::ListContainersRequest::new());
                self.call(op, Step::ListSandboxes, method::LIST_POD_SANDBOX, &sandboxes, now)?;
                self.call(op, Step::ListContainers, method::LIST_CONTAINERS, &containers, now)
            }
            RuntimeCall::ReadPod { uid } => {
                let (sandboxes, containers) = lists_of(&uid);
                self.call(op, Step::FindSandboxes, method::LIST_POD_SANDBOX, &sandboxes, now)?;
                self.call(op, Step::FindContainers, method::LIST_CONTAINERS, &containers, now)
            }
            RuntimeCall::RunSandbox { pod, attempt } => {
                let config = requests::sandbox_config(&pod, attempt, &self.config).map_err(invalid)?;
                let request = proto::RunPodSandboxRequest { config: MessageField::some(config), ..Default::default() };
                self.call(op, Step::Run, method::RUN_POD_SANDBOX, &request, now)
            }
            RuntimeCall::StopSandbox { id } => {
                let request = proto::StopPodSandboxRequest { pod_sandbox_id: id.to_string(), ..Default::default() };
                self.call(op, Step::Change, method::STOP_POD_SANDBOX, &request, now)
            }
            RuntimeCall::RemoveSandbox { id } => {
                let request = proto::RemovePodSandboxRequest { pod_sandbox_id: id.to_string(), ..Default::default() };
                self.call(op, Step::Change, method::REMOVE_POD_SANDBOX, &request, now)
            }
            RuntimeCall::ImageStatus { image } => self.image_status(op, image, now),
            RuntimeCall::PullImage { pod, image } => {
                let config = requests::sandbox_config(&pod, 0, &self.config).map_err(invalid)?;
                let annotations = pod.object.metadata.annotations.clone().unwrap_or_default();
                let request = proto::PullImageRequest {
                    image: MessageField::some(proto::ImageSpec { image, annotations, ..Default::default() }),
                    sandbox_config: MessageField::some(config),
                    ..Default::default()
                };
                self.call(op, Step::Pull, method::PULL_IMAGE, &request, now)
            }
            RuntimeCall::CreateContainer(create) => {
                let config = requests::container_config(&create, &self.config).map_err(invalid)?;
                let sandbox = requests::sandbox_config(&create.pod, create.sandbox_attempt, &self.config);
                let request = proto::CreateContainerRequest {
                    pod_sandbox_id: create.sandbox.to_string(),
                    config: MessageField::some(config),
                    sandbox_config: MessageField::some(sandbox.map_err(invalid)?),
                    ..Default::default()
                };
                self.call(op, Step::Create, method::CREATE_CONTAINER, &request, now)
            }
            RuntimeCall::StartContainer { id } => {
                let request = proto::StartContainerRequest { container_id: id.to_string(), ..Default::default() };
                self.call(op, Step::Start(id), method::START_CONTAINER, &request, now)
            }
            RuntimeCall::StopContainer { id, grace } => {
                let seconds = grace.as_secs() + u64::from(grace.subsec_nanos() > 0);
                let request = proto::StopContainerRequest {
                    container_id: id.to_string(),
                    timeout: i64::try_from(seconds).unwrap_or(i64::MAX),
                    ..Default::default()
                };
                self.call(op, Step::Change, method::STOP_CONTAINER, &request, now)
            }
            RuntimeCall::RemoveContainer { id } => {
                let request = proto::RemoveContainerRequest { container_id: id.to_string(), ..Default::default() };
                self.call(op, Step::Change, method::REMOVE_CONTAINER, &request, now)
            }
            RuntimeCall::DeleteTask { id } => {
                if !self.containerd {
                    let message = "the runtime has no tasks".to_owned();
                    return Err(OpError::Answered { code: Code::Unimplemented, message });
                }
                let request = proto::containerd::KillRequest {
                    container_id: id.to_string(),
                    signal: Signal::KILL.as_raw() as u32,
                    all: true,
                    ..Default::default()
                };
                self.call(op, Step::KillTask(id), method::KILL_TASK, &request, now)
            }
        }
    }

    fn delete_task(&mut self, op: OpId, id: &ContainerId, now: Boot) -> Result<Next, OpError> {
        let request = proto::containerd::DeleteTaskRequest { container_id: id.to_string(), ..Default::default() };
        self.call(op, Step::Change, method::DELETE_TASK, &request, now).map(|()| None)
    }

    fn image_status(&mut self, op: OpId, image: String, now: Boot) -> Result<(), OpError> {
        let image = MessageField::some(proto::ImageSpec { image, ..Default::default() });
        let request = proto::ImageStatusRequest { image, ..Default::default() };
        self.call(op, Step::Image, method::IMAGE_STATUS, &request, now)
    }

    fn sandbox_status(&mut self, op: OpId, step: Step, id: String, verbose: bool, now: Boot) -> Result<(), OpError> {
        let request = proto::PodSandboxStatusRequest { pod_sandbox_id: id, verbose, ..Default::default() };
        self.call(op, step, method::POD_SANDBOX_STATUS, &request, now)
    }

    fn container_status(&mut self, op: OpId, step: Step, id: String, verbose: bool, now: Boot) -> Result<(), OpError> {
        let request = proto::ContainerStatusRequest { container_id: id, verbose, ..Default::default() };
        self.call(op, step, method::CONTAINER_STATUS, &request, now)
    }

    /// Makes one call of an operation.
    fn call(&mut self, op: OpId, step: Step, method: Method, request: &impl Message, now: Boot) -> Result<(), OpError> {
        let body = wire::written(method, request)?;
        self.send(op, step, method, body, now);
        Ok(())
    }

    fn send(&mut self, op: OpId, step: Step, method: Method, body: Vec<u8>, now: Boot) {
        let Some(operation) = self.operations.get_mut(&op) else { return };
        operation.waiting += 1;
        let call = Call {
            path: method.path,
            body: Bytes::from(body),
            deadline: Some(operation.deadline),
            server_stream: false,
            header: method.header,
        };
        let id = self.transport.call(call, now);
        self.calls.insert(id, InFlight { op, step, method, begun: now });
    }

    /// True if further calls were begun.
    fn call_ended(
        &mut self,
        id: CallId,
        result: Result<Bytes, CallError>,
        now: Boot,
        out: &mut Vec<ClientEvent>,
    ) -> bool {
        let Some(InFlight { op, step, method, begun }) = self.calls.remove(&id) else { return false };
        out.push(ClientEvent::Called {
            operation_type: method.operation_type,
            duration: now.since(begun),
            error: result.is_err(),
        });
        let Some(operation) = self.operations.get_mut(&op) else { return false };
        operation.waiting -= 1;
        let before = self.calls.len();
        let next = match result {
            Ok(body) => {
                let cancelled = operation.cancelled;
                let next = self.answered(op, step, method, &body, now);
                if let Err(e) = &next
                    && !cancelled
                {
                    out.push(ClientEvent::Nonsense { why: e.to_string() });
                }
                next
            }
            Err(error) => self.failed(op, &step, error, now),
        };
        out.append(&mut self.ended);
        match next {
            Ok(None) => {}
            Ok(Some(answer)) => self.end(op, Ok(answer), out),
            Err(error) => self.end(op, Err(error), out),
        }
        self.calls.len() > before
    }

    /// Takes the operation out, whatever is left of it.
    fn end(&mut self, op: OpId, result: Result<Answer, OpError>, out: &mut Vec<ClientEvent>) {
        let Some(operation) = self.operations.remove(&op) else { return };
        if operation.waiting > 0 {
            for (id, _) in self.calls.iter().filter(|(_, call)| call.op == op) {
                self.transport.cancel(*id);
            }
        }
        let result = result.map_err(|e| match e {
            error if !operation.changed => error,
            error => OpError::Unknown(format!("done, but what came of it is not known: {error}")),
        });
        out.push(ClientEvent::Done { op, result });
    }

    fn failed(&mut self, op: OpId, step: &Step, error: CallError, now: Boot) -> Result<Next, OpError> {
        let error = op_error(error);
        match step {
            Step::ReadSandbox | Step::ReadContainer { .. } if error.is_not_found() => self.read_so_far(op),
            // containerd before 2.0.
            Step::RuntimeConfig if is_unimplemented(&error) => {
                self.driver_told(None);
                self.status_so_far(op, None, None)
            }
            // Its process is gone already, as a rule.
            Step::KillTask(id) if matches!(error, OpError::Answered { .. }) => self.delete_task(op, id, now),
            _ => Err(error),
        }
    }

    fn answered(&mut self, op: OpId, step: Step, method: Method, body: &Bytes, now: Boot) -> Result<Next, OpError> {
        match step {
            Step::Version => self.status_so_far(op, Some(parse(method, body)?), None),
            Step::Status => self.status_so_far(op, None, Some(parse(method, body)?)),
            Step::RuntimeConfig => {
                let answer: proto::RuntimeConfigResponse = parse(method, body)?;
                self.driver_told(answers::cgroup_driver(&answer));
                self.status_so_far(op, None, None)
            }
            Step::ListSandboxes => {
                let sandboxes = self.list(method, body, answers::odd_sandbox, answers::listed_sandbox)?;
                if let Some(Work::List(listed)) = self.work(op) {
                    listed.sandboxes = sandboxes;
                }
                self.list_so_far(op)
            }
            Step::ListContainers => {
                let containers = self.list(method, body, answers::odd_container, answers::listed_container)?;
                if let Some(Work::List(listed)) = self.work(op) {
                    listed.containers = containers;
                }
                self.list_so_far(op)
            }
            Step::FindSandboxes => {
                let list: proto::ListPodSandboxResponse = parse(method, body)?;
                self.unless_cancelled(op)?;
                for sandbox in list.items {
                    let ready = sandbox.state == proto::PodSandboxState::SANDBOX_READY.into();
                    let verbose = ready && !self.pids.contains_key(&sandbox.id);
                    self.sandbox_status(op, Step::ReadSandbox, sandbox.id, verbose, now)?;
                }
                self.read_so_far(op)
            }
            Step::FindContainers => {
                let list: proto::ListContainersResponse = parse(method, body)?;
                self.unless_cancelled(op)?;
                for c in list.containers {
                    let running = c.state == proto::ContainerState::CONTAINER_RUNNING.into();
                    let verbose = running && !self.pids.contains_key(&c.id);
                    let step = Step::ReadContainer { sandbox: c.pod_sandbox_id };
                    self.container_status(op, step, c.id, verbose, now)?;
                }
                self.read_so_far(op)
            }
            Step::ReadSandbox => {
                let fact = answers::sandbox(&parse(method, body)?).map(|f| self.with_sandbox_pid(f));
                if let Some(Work::Read(facts)) = self.work(op) {
                    facts.sandboxes.extend(fact);
                }
                self.read_so_far(op)
            }
            Step::ReadContainer { sandbox } => {
                let fact = answers::container(&parse(method, body)?, Some(&sandbox)).map(|f| self.with_pid(f));
                if let Some(Work::Read(facts)) = self.work(op) {
                    facts.containers.extend(fact);
                }
                self.read_so_far(op)
            }
            Step::Run => {
                let answer: proto::RunPodSandboxResponse = self.parse_change(op, method, body)?;
                self.sandbox_status(op, Step::RanSandbox, answer.pod_sandbox_id, true, now).map(|()| None)
            }
            Step::RanSandbox => match answers::sandbox(&parse(method, body)?) {
                Some(fact) => Ok(Some(Answer::Sandbox(self.with_sandbox_pid(fact)))),
                None => Err(OpError::Unknown("the runtime's answer has no status of a pod's sandbox".into())),
            },
            Step::Image => Ok(Some(Answer::Image(answers::image(&parse(method, body)?)))),
            Step::Pull => {
                let _: proto::PullImageResponse = self.parse_change(op, method, body)?;
                let image = match self.work(op) {
                    Some(Work::Pull(image)) => std::mem::take(image),
                    _ => String::new(),
                };
                self.image_status(op, image, now).map(|()| None)
            }
            Step::Create => {
                let answer: proto::CreateContainerResponse = parse(method, body)?;
                if answer.container_id.is_empty() {
                    return Err(OpError::Unknown(format!("{}: the runtime's answer has no id", method.path)));
                }
                Ok(Some(Answer::Created(ContainerId::from(answer.container_id))))
            }
            Step::Start(id) => {
                let _: proto::StartContainerResponse = self.parse_change(op, method, body)?;
                self.container_status(op, Step::Started, id.to_string(), true, now).map(|()| None)
            }
            Step::Started => match answers::container(&parse(method, body)?, None) {
                Some(fact) => Ok(Some(Answer::Container(self.with_pid(fact)))),
                None => Err(OpError::Unknown("the runtime's answer has no status of a pod's container".into())),
            },
            Step::KillTask(id) => self.delete_task(op, &id, now),
            Step::Change => Ok(Some(Answer::Ok)),
        }
    }

    fn work(&mut self, op: OpId) -> Option<&mut Work> {
        self.operations.get_mut(&op).map(|o| &mut o.work)
    }

    /// The answer of the changing half: from now on an error is `Unknown`, and so is a cancelled operation.
    fn parse_change<M: Message>(&mut self, op: OpId, method: Method, body: &Bytes) -> Result<M, OpError> {
        if let Some(operation) = self.operations.get_mut(&op) {
            operation.changed = true;
        }
        self.unless_cancelled(op)?;
        parse(method, body)
    }

    fn unless_cancelled(&self, op: OpId) -> Result<(), OpError> {
        match self.operations.get(&op) {
            Some(operation) if operation.cancelled => Err(OpError::Unknown("cancelled".into())),
            _ => Ok(()),
        }
    }

    /// The operation, if none of its calls is left to wait for.
    fn complete(&mut self, op: OpId) -> Option<&mut Work> {
        self.operations.get_mut(&op).filter(|o| o.waiting == 0).map(|o| &mut o.work)
    }

    fn status_so_far(
        &mut self,
        op: OpId,
        new_version: Option<proto::VersionResponse>,
        new_status: Option<proto::StatusResponse>,
    ) -> Result<Next, OpError> {
        if let Some(Work::Status(both)) = self.work(op) {
            let (version, status) = &mut **both;
            if let Some(new) = new_version {
                *version = new;
            }
            if let Some(new) = new_status {
                *status = new;
            }
        }
        Ok(match self.complete(op) {
            Some(Work::Status(both)) => {
                let fact = answers::runtime(&both.0, &both.1);
                self.containerd = fact.name == "containerd";
                Some(Answer::Runtime(fact))
            }
            _ => None,
        })
    }

    /// What is asked of the runtime from now on is in terms of its driver.
    fn driver_told(&mut self, driver: Option<CgroupDriver>) {
        self.driver_known = true;
        self.config.cgroups.driver = driver.unwrap_or(self.configured_driver);
        self.ended.push(ClientEvent::Driver(driver));
    }

    fn list_so_far(&mut self, op: OpId) -> Result<Next, OpError> {
        let Some(Work::List(listed)) = self.complete(op) else { return Ok(None) };
        let mut listed = std::mem::take(listed);
        let containers = listed.containers.iter().map(|c| c.id.as_str());
        let there: BTreeSet<&str> = containers.chain(listed.sandboxes.iter().map(|s| s.id.as_str())).collect();
        if !self.pids.is_empty() {
            self.pids.retain(|id, _| there.contains(id.as_str()));
        }
        if there.len() < listed.containers.len() + listed.sandboxes.len() {
            let mut seen = BTreeSet::new();
            listed.containers.retain(|c| seen.insert(c.id.to_string()));
            listed.sandboxes.retain(|s| seen.insert(s.id.to_string()));
            self.ended.push(ClientEvent::Nonsense { why: "a list has one id twice".to_owned() });
        }
        Ok(Some(Answer::Listed(listed)))
    }

    fn read_so_far(&mut self, op: OpId) -> Result<Next, OpError> {
        let Some(Work::Read(facts)) = self.complete(op) else { return Ok(None) };
        let mut facts = std::mem::take(facts);
        facts.sandboxes.sort_by_key(|s| std::cmp::Reverse((s.created_at, s.attempt)));
        facts.containers.sort_by_key(|c| std::cmp::Reverse((c.created_at, c.attempt)));
        Ok(Some(Answer::Pod(facts)))
    }

    /// The facts of a list's items. What makes no sense in them is told in one line.
    fn list<M: Message, T>(
        &mut self,
        method: Method,
        body: &Bytes,
        odd: fn(&M) -> Option<String>,
        fact: fn(&M) -> Option<T>,
    ) -> Result<Vec<T>, OpError> {
        let (mut facts, mut first, mut more) = (Vec::new(), None, 0);
        parse_each(method, body, |item: M| {
            match (odd(&item), &first) {
                (Some(_), Some(_)) => more += 1,
                (Some(why), None) => first = Some(why),
                (None, _) => {}
            }
            facts.extend(fact(&item));
        })?;
        if let Some(first) = first {
            let more = if more > 0 { format!(", and {more} more") } else { String::new() };
            self.ended.push(ClientEvent::Nonsense { why: format!("{first}{more}") });
        }
        Ok(facts)
    }

    /// Remembers or supplies the PID of a running container.
    fn with_pid(&mut self, mut fact: ContainerFact) -> ContainerFact {
        fact.pid = self.pid_of(fact.id.as_str(), fact.state == ContainerState::Running, fact.pid);
        fact
    }

    fn with_sandbox_pid(&mut self, mut fact: SandboxFact) -> SandboxFact {
        fact.pid = self.pid_of(fact.id.as_str(), fact.ready, fact.pid);
        fact
    }

    /// The PID just told, else the one known of before; none of what does not run.
    fn pid_of(&mut self, id: &str, runs: bool, told: Option<u32>) -> Option<u32> {
        match (runs, told) {
            (false, _) => {
                self.pids.remove(id);
                None
            }
            (true, Some(pid)) => {
                self.pids.insert(id.to_owned(), pid);
                told
            }
            (true, None) => self.pids.get(id).copied(),
        }
    }
}

fn is_unimplemented(error: &OpError) -> bool {
    matches!(error, OpError::Answered { code: Code::Unimplemented, .. })
}
