//! Executes the engine's runtime calls over a transport. An operation starts, makes one or more gRPC calls, and ends with
//! exactly one `ClientEvent::Done`.
//!
//! Some operations consist of several calls: in parallel if they are independent (the two lists, all statuses of a pod),
//! otherwise in sequence (run, then read). One deadline covers all of them. Once the changing call of an operation has succeeded,
//! every later failure is `OpError::Unknown`, because the runtime's state has changed.
//!
//! The client makes no decisions about pods. The only state that outlives an operation are the PIDs of running containers and
//! sandboxes: the PID of an init process never changes, and the verbose status that contains it costs the runtime more than all
//! other calls together, so it is requested once.

pub mod direct;
pub mod method;
#[cfg(test)]
mod tests;
mod wire;

use self::direct::{Asked, ClientAnswer, RequestId};
use self::method::Method;
pub(super) use self::wire::op_error;
use self::wire::{invalid, lists_of, parse, parse_each};
use super::{answers, proto, requests};
use crate::adapters::cri::requests::RequestConfig;
use crate::api::cgroups::CgroupDriver;
use crate::api::facts::{ContainerFact, ContainerState, Listed, PodFacts, SandboxFact};
use crate::api::names::ContainerId;
use crate::api::time::Boot;
use crate::engine::effect::RuntimeCall;
use crate::engine::event::Answer;
use crate::engine::op::{Code, OpError, OpId};
use crate::net::grpc::{Call, CallError, CallId, Completion, Transport};
use bytes::Bytes;
use protobuf::{Message, MessageField};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The version of the kubelet API, sent with Version.
const KUBELET_API_VERSION: &str = "0.1.0";

// An event is moved once and then destructured: a box would cost more than it saves.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq)]
pub enum ClientEvent {
    /// The connection to the runtime was established.
    Up,
    /// The connection was lost, or an attempt to connect failed.
    Down { why: String },
    /// An operation has ended. Each operation has exactly one `Done`.
    Done { op: OpId, result: Result<Answer, OpError> },
    /// A request of a user has ended. Each request has exactly one `Answered`.
    Answered { id: RequestId, result: Result<ClientAnswer, OpError> },
    /// The runtime's cgroup driver, sent before the first `Done` that depends on it. None if the runtime does not report it.
    Driver(Option<CgroupDriver>),
    /// One gRPC call has ended. `operation_type` is the kubelet's label. For the metrics.
    Called { operation_type: &'static str, duration: Duration, error: bool },
    /// An answer is invalid, completely or in part. The valid part is used.
    Nonsense { why: String },
}

pub struct Client {
    transport: Box<dyn Transport>,
    config: RequestConfig,
    operations: BTreeMap<OpId, Operation>,
    calls: BTreeMap<CallId, InFlight>,
    asked: BTreeMap<CallId, Asked>,
    /// Events that the next drive returns: of operations that ended before their first call, and `Nonsense`.
    ended: Vec<ClientEvent>,
    /// `cgroupDriver` of the configuration, for a runtime that does not report its driver.
    configured_driver: CgroupDriver,
    /// The runtime was asked for its cgroup driver on this connection.
    driver_known: bool,
    /// The PIDs of running containers and ready sandboxes, by id.
    pids: BTreeMap<String, u32>,
    /// The runtime reports that it is containerd.
    containerd: bool,
    /// Empty between drives; kept to reuse its allocation.
    completions: Vec<Completion>,
}

struct Operation {
    deadline: Boot,
    /// Number of calls in flight.
    waiting: u32,
    cancelled: bool,
    /// The changing call has succeeded.
    changed: bool,
    work: Work,
}

/// The data that an operation collects for its answer.
enum Work {
    Status(Box<(proto::VersionResponse, proto::StatusResponse)>),
    List(Listed),
    Read(PodFacts),
    /// The image's name, for ImageStatus after the pull.
    Pull(String),
    /// One call, or two calls of which only the second contributes to the answer.
    Plain,
}

struct InFlight {
    op: OpId,
    step: Step,
    method: Method,
    begun: Boot,
}

/// The role of a call in its operation.
enum Step {
    Version,
    Status,
    RuntimeConfig,
    ListSandboxes,
    ListContainers,
    /// The two lists of one pod.
    FindSandboxes,
    FindContainers,
    /// One status of a pod. NotFound is no error: the object was removed after the list.
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
    /// DeleteTask follows, whatever the result.
    KillTask(ContainerId),
    /// An answer without content.
    Change,
}

/// The answer of the operation, or None if it continues.
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

    /// Describes the calls in flight: operation, kind and start time in seconds of the boot clock.
    pub fn in_flight(&self) -> impl Iterator<Item = String> {
        let line = |of: String, method: Method, begun: Boot| {
            format!("{of} {} since {:.3}", method.operation_type, begun.0 as f64 / 1e9)
        };
        let operations = self.calls.values().map(move |c| line(c.op.to_string(), c.method, c.begun));
        operations.chain(self.asked.values().map(move |a| line(format!("ask{}", a.id.0), a.method, a.begun)))
    }

    /// The node's settings for later requests.
    pub fn config_mut(&mut self) -> &mut RequestConfig {
        &mut self.config
    }

    /// Starts an operation. Call `drive` afterwards. For a pod that cannot be represented in the CRI, the operation ends as
    /// `InvalidArgument` without a call.
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
            // No call of the operation is in flight here.
            self.operations.remove(&op);
            self.ended.push(ClientEvent::Done { op, result: Err(error) });
        }
    }

    /// Cancels an operation: its calls are reset, and it ends as `Unknown` at the next `drive` unless its answer has already
    /// arrived. No effect on an operation that has ended.
    pub fn cancel(&mut self, op: OpId) {
        let Some(operation) = self.operations.get_mut(&op) else { return };
        operation.cancelled = true;
        for (id, _) in self.calls.iter().filter(|(_, call)| call.op == op) {
            self.transport.cancel(*id);
        }
    }

    /// Reads and writes without blocking, and appends the events. Returns true if the budget was used up: call it again without
    /// waiting.
    pub fn drive(&mut self, now: Boot, out: &mut Vec<ClientEvent>) -> bool {
        self.drive_all(now, true, out)
    }

    /// Like `drive`, if the runtime's socket is not reported ready: operations were started, or a deadline is due.
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
                        // The runtime may have restarted with another configuration.
                        self.driver_known = false;
                        out.push(ClientEvent::Up);
                    }
                    Completion::Down { why } => out.push(ClientEvent::Down { why }),
                    Completion::Done { id, result } => {
                        if !self.ask_ended(id, &result, now, out) {
                            begun |= self.call_ended(id, result, now, out);
                        }
                    }
                    // No operation uses a stream.
                    Completion::Message { .. } => {}
                }
            }
            self.completions = completions;
            // Calls that were started in response to answers still have to be written.
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
                    let message = "the runtime is not containerd and has no tasks".to_owned();
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

    /// Handles the end of a call. Returns true if further calls were started.
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

    /// Ends an operation and cancels its remaining calls.
    fn end(&mut self, op: OpId, result: Result<Answer, OpError>, out: &mut Vec<ClientEvent>) {
        let Some(operation) = self.operations.remove(&op) else { return };
        if operation.waiting > 0 {
            for (id, _) in self.calls.iter().filter(|(_, call)| call.op == op) {
                self.transport.cancel(*id);
            }
        }
        let result = result.map_err(|e| match e {
            error if !operation.changed => error,
            error => OpError::Unknown(format!("the call succeeded, but its result is unknown: {error}")),
        });
        out.push(ClientEvent::Done { op, result });
    }

    fn failed(&mut self, op: OpId, step: &Step, error: CallError, now: Boot) -> Result<Next, OpError> {
        let error = op_error(error);
        match step {
            Step::ReadSandbox | Step::ReadContainer { .. } if error.is_not_found() => self.read_so_far(op),
            // containerd before 2.0 has no RuntimeConfig.
            Step::RuntimeConfig if is_unimplemented(&error) => {
                self.driver_told(None);
                self.status_so_far(op, None, None)
            }
            // The task's process has usually ended already.
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

    /// Decodes the answer of the changing call. Later errors of the operation are `Unknown`, and so is a cancellation.
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

    /// The work of the operation if all its calls have ended.
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

    /// Stores the cgroup driver for later requests.
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
            self.ended.push(ClientEvent::Nonsense { why: "a list contains an id twice".to_owned() });
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

    /// Converts the items of a list to facts. All invalid items are reported in one line.
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

    /// Stores the PID of a running container, or fills it in if the status was not verbose.
    fn with_pid(&mut self, mut fact: ContainerFact) -> ContainerFact {
        fact.pid = self.pid_of(fact.id.as_str(), fact.state == ContainerState::Running, fact.pid);
        fact
    }

    fn with_sandbox_pid(&mut self, mut fact: SandboxFact) -> SandboxFact {
        fact.pid = self.pid_of(fact.id.as_str(), fact.ready, fact.pid);
        fact
    }

    /// Returns the reported PID, otherwise the stored one. None if the object is not running.
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
