//! Executes the engine's runtime calls over a transport. An operation starts, makes one or more gRPC calls, and ends
//! with exactly one `ClientEvent::Done`.
//!
//! Some operations consist of several calls: in parallel if they are independent (the two lists, all statuses of a
//! pod), otherwise in sequence (run, then read). One deadline covers all of them. Once an operation's call that changes
//! the runtime's state has succeeded, every later failure is `OpError::Unknown`.
//!
//! The client makes no decisions about pods. After an operation it keeps only the PIDs of running containers and
//! sandboxes: the PID of an init process never changes, and the verbose status that contains it costs the runtime more
//! than all other calls together, so it is requested once.

mod answered;
mod begin;
pub mod method;
#[cfg(test)]
mod tests;
mod wire;

use self::method::Method;
pub(super) use self::wire::op_error;
use super::proto;
use crate::adapters::cri::requests::RequestConfig;
use crate::api::cgroups::CgroupDriver;
use crate::api::facts::{ImageList, Listed, PodFacts};
use crate::api::names::ContainerId;
use crate::api::time::Boot;
use crate::engine::effect::RuntimeCall;
use crate::engine::event::Answer;
use crate::engine::op::{OpError, OpId};
use crate::net::grpc::{Call, CallError, CallId, Completion, MAX_MESSAGE, Transport};
use bytes::Bytes;
use protobuf::Message;
use std::collections::BTreeMap;
use std::time::Duration;

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
    /// The runtime's cgroup driver, sent before the first `Done` that depends on it. None means that the runtime does
    /// not report it.
    Driver(Option<CgroupDriver>),
    /// One gRPC call has ended; for the metrics. `operation_type` is the kubelet's label. `handler` is the runtime
    /// handler of a RunPodSandbox call.
    Called { operation_type: &'static str, handler: Option<Box<str>>, duration: Duration, error: bool },
    /// An answer is invalid, completely or in part. The valid part is used.
    InvalidAnswer { why: String },
}

pub struct CriClient {
    transport: Box<dyn Transport>,
    config: RequestConfig,
    operations: BTreeMap<OpId, Operation>,
    calls: BTreeMap<CallId, CallInFlight>,
    /// Events that the next drive returns: of operations that ended before their first call, and `InvalidAnswer`.
    ended: Vec<ClientEvent>,
    /// `cgroupDriver` of the configuration, for a runtime that does not report its driver.
    configured_driver: CgroupDriver,
    /// Whether the runtime has answered the request for its cgroup driver on this connection.
    driver_known: bool,
    /// The PIDs of running containers and ready sandboxes, by id.
    pids: BTreeMap<String, u32>,
    /// Whether the runtime reports that it is containerd.
    containerd: bool,
    /// A buffer that is empty between drives, and is kept to reuse its allocation.
    completions: Vec<Completion>,
}

struct Operation {
    deadline: Boot,
    /// Number of calls in flight.
    waiting: u32,
    cancelled: bool,
    /// Whether the call that changes the runtime's state has succeeded.
    changed: bool,
    work: OperationData,
}

/// The data that an operation collects for its answer.
enum OperationData {
    Status(Box<(proto::VersionResponse, proto::StatusResponse)>),
    List(Listed),
    Read(PodFacts),
    /// The image's name, for ImageStatus after the pull.
    Pull(String),
    Images(ImageList),
    /// One call, or two calls of which only the second contributes to the answer.
    Plain,
}

struct CallInFlight {
    op: OpId,
    step: CallRole,
    method: Method,
    begun: Boot,
}

/// The role of a call in its operation.
enum CallRole {
    Version,
    Status,
    RuntimeConfig,
    ListSandboxes,
    ListContainers,
    /// The two lists of one pod.
    FindSandboxes,
    FindContainers,
    /// One status of a pod. NotFound is not an error: the object was removed after the list.
    ReadSandbox,
    ReadContainer {
        sandbox: String,
    },
    Run {
        handler: Box<str>,
    },
    RanSandbox,
    Image,
    Pull,
    Create,
    Start(ContainerId),
    Started,
    Exec,
    /// The URL of a stream.
    ExecUrl,
    AttachUrl,
    PortForwardUrl,
    Usage,
    /// The three calls of ListImages.
    ListImages,
    ListImageUsers,
    SandboxImage,
    ImageFs,
    /// DeleteTask follows, even if containerd answers with an error.
    KillTask(ContainerId),
    /// An answer without content.
    Change,
}

/// The answer of the operation, or None if it continues.
type OperationAnswer = Option<Answer>;

impl CriClient {
    pub fn new(transport: Box<dyn Transport>, config: RequestConfig) -> CriClient {
        CriClient {
            transport,
            configured_driver: config.cgroups.driver,
            config,
            operations: BTreeMap::new(),
            calls: BTreeMap::new(),
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
        let since = |begun: Boot| begun.0 as f64 / 1e9;
        let calls = self.calls.values();
        calls.map(move |c| format!("{} {} since {:.3}", c.op, c.method.operation_type, since(c.begun)))
    }

    /// Returns the node's settings, which apply to later requests.
    pub fn config_mut(&mut self) -> &mut RequestConfig {
        &mut self.config
    }

    /// Starts an operation. Call `drive` afterwards. For a pod that cannot be represented in the CRI, the operation
    /// ends as `InvalidArgument` without a call.
    pub fn start(&mut self, op: OpId, call: RuntimeCall, timeout: Duration, now: Boot) {
        let work = match &call {
            RuntimeCall::Status => OperationData::Status(Box::default()),
            RuntimeCall::List => OperationData::List(Listed::default()),
            RuntimeCall::ReadPod { .. } => OperationData::Read(PodFacts::default()),
            RuntimeCall::PullImage { image, .. } => OperationData::Pull(image.clone()),
            RuntimeCall::ListImages => OperationData::Images(ImageList::default()),
            _ => OperationData::Plain,
        };
        let operation = Operation { deadline: now + timeout, waiting: 0, cancelled: false, changed: false, work };
        self.operations.insert(op, operation);
        if let Err(error) = self.begin(op, call, now) {
            // No call of the operation is in flight here.
            self.operations.remove(&op);
            self.ended.push(ClientEvent::Done { op, result: Err(error) });
        }
    }

    /// Cancels an operation: its calls are reset, and it ends as `Unknown` at the next `drive` unless its answer has
    /// already arrived. Has no effect on an operation that has ended.
    pub fn cancel(&mut self, op: OpId) {
        let Some(operation) = self.operations.get_mut(&op) else { return };
        operation.cancelled = true;
        for (id, _) in self.calls.iter().filter(|(_, call)| call.op == op) {
            self.transport.cancel(*id);
        }
    }

    /// Reads and writes without blocking, and appends the events. Returns true if the budget was used up: call it again
    /// without waiting.
    pub fn drive(&mut self, now: Boot, out: &mut Vec<ClientEvent>) -> bool {
        self.drive_all(now, true, out)
    }

    /// Like `drive`, but for a socket of the runtime that was not reported ready: operations were started, or a
    /// deadline is due.
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
                        begun |= self.call_ended(id, result, now, out);
                    }
                    // No operation uses a stream.
                    Completion::Message { .. } => {}
                }
            }
            self.completions = completions;
            // Calls that were started in response to answers must still be written.
            if again || !begun {
                return again;
            }
        }
    }

    /// Returns when `drive` must be called next.
    pub fn next_deadline(&self) -> Option<Boot> {
        if self.ended.is_empty() { self.transport.next_deadline() } else { Some(Boot(0)) }
    }

    /// Makes one call of an operation.
    fn call(
        &mut self,
        op: OpId,
        step: CallRole,
        method: Method,
        request: &impl Message,
        now: Boot,
    ) -> Result<(), OpError> {
        let body = wire::written(method, request)?;
        self.send(op, step, method, body, now);
        Ok(())
    }

    fn send(&mut self, op: OpId, step: CallRole, method: Method, body: Vec<u8>, now: Boot) {
        let Some(operation) = self.operations.get_mut(&op) else { return };
        operation.waiting += 1;
        let call = Call {
            path: method.path,
            body: Bytes::from(body),
            deadline: Some(operation.deadline),
            server_stream: false,
            header: method.header,
            most: MAX_MESSAGE,
        };
        let id = self.transport.call(call, now);
        self.calls.insert(id, CallInFlight { op, step, method, begun: now });
    }

    /// Handles the end of a call. Returns true if further calls were started.
    fn call_ended(
        &mut self,
        id: CallId,
        result: Result<Bytes, CallError>,
        now: Boot,
        out: &mut Vec<ClientEvent>,
    ) -> bool {
        let Some(CallInFlight { op, step, method, begun }) = self.calls.remove(&id) else { return false };
        out.push(ClientEvent::Called {
            operation_type: method.operation_type,
            handler: if let CallRole::Run { handler } = &step { Some(handler.clone()) } else { None },
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
                    out.push(ClientEvent::InvalidAnswer { why: e.to_string() });
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

    fn work(&mut self, op: OpId) -> Option<&mut OperationData> {
        self.operations.get_mut(&op).map(|o| &mut o.work)
    }
}
