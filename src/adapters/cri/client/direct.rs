//! Requests of users that go to the runtime through the agent: a command in a container, and the resource usage of containers.
//! Each is one call. The engine is not involved, because the requests change no state that it depends on.

use super::method::{self, Method};
use super::wire::{op_error, parse, parse_each};
use super::{Client, ClientEvent};
use crate::adapters::cri::proto;
use crate::api::facts::UsageFact;
use crate::api::names::ContainerId;
use crate::api::time::Boot;
use crate::engine::op::OpError;
use crate::net::grpc::{Call, CallError, CallId};
use bytes::Bytes;
use protobuf::Message;
use std::time::Duration;

/// Added to the timeout of a command for the deadline of the call, because the runtime has to kill the command first.
const AFTER_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of ListContainerStats, for which the runtime reads several files for each container.
const USAGE_TIMEOUT: Duration = Duration::from_secs(20);

/// Identifies a request. The caller assigns it and never reuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientRequest {
    /// ExecSync. The runtime kills a command that runs for longer than `timeout`.
    Exec { id: ContainerId, command: Vec<String>, timeout: Duration },
    /// ListContainerStats for all running containers.
    Usage,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ClientAnswer {
    Executed { exit_code: i32, stdout: Vec<u8>, stderr: Vec<u8> },
    Usage(Vec<UsageFact>),
}

pub(super) struct Asked {
    pub(super) id: RequestId,
    pub(super) method: Method,
    pub(super) begun: Boot,
}

impl Client {
    /// Starts a request. It ends with exactly one `ClientEvent::Answered`.
    pub fn ask(&mut self, id: RequestId, ask: ClientRequest, now: Boot) {
        let (method, request, timeout) = match ask {
            ClientRequest::Exec { id, command, timeout } => {
                let seconds = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
                let request = proto::ExecSyncRequest {
                    container_id: id.to_string(),
                    cmd: command,
                    timeout: i64::try_from(seconds).unwrap_or(i64::MAX),
                    ..Default::default()
                };
                (method::EXEC_SYNC, request.write_to_bytes(), timeout + AFTER_TIMEOUT)
            }
            ClientRequest::Usage => {
                let request = proto::ListContainerStatsRequest::new().write_to_bytes();
                (method::LIST_CONTAINER_STATS, request, USAGE_TIMEOUT)
            }
        };
        let body = match request {
            Ok(body) => Bytes::from(body),
            Err(e) => {
                let why = format!("{}: failed to encode the request: {e}", method.path);
                self.ended.push(ClientEvent::Answered { id, result: Err(OpError::Refused(why)) });
                return;
            }
        };
        let deadline = Some(now + timeout);
        let call = Call { path: method.path, body, deadline, server_stream: false, header: method.header };
        let call = self.transport.call(call, now);
        self.asked.insert(call, Asked { id, method, begun: now });
    }

    /// Cancels a request whose client has gone. Resetting the call ends a command. `Answered` follows nevertheless.
    pub fn cancel_ask(&mut self, id: RequestId) {
        for (call, _) in self.asked.iter().filter(|(_, asked)| asked.id == id) {
            self.transport.cancel(*call);
        }
    }

    /// Handles the end of a call. Returns false if the call does not belong to a request.
    pub(super) fn ask_ended(
        &mut self,
        call: CallId,
        result: &Result<Bytes, CallError>,
        now: Boot,
        out: &mut Vec<ClientEvent>,
    ) -> bool {
        let Some(Asked { id, method, begun }) = self.asked.remove(&call) else { return false };
        let (operation_type, duration) = (method.operation_type, now.since(begun));
        out.push(ClientEvent::Called { operation_type, duration, error: result.is_err() });
        let result = result.clone().map_err(op_error).and_then(|body| told(method, &body));
        out.push(ClientEvent::Answered { id, result });
        true
    }
}

fn told(method: Method, body: &Bytes) -> Result<ClientAnswer, OpError> {
    if method == method::LIST_CONTAINER_STATS {
        let mut usage = Vec::new();
        parse_each(method, body, |stats: proto::ContainerStats| usage.extend(of_container(stats)))?;
        return Ok(ClientAnswer::Usage(usage));
    }
    let proto::ExecSyncResponse { stdout, stderr, exit_code, .. } = parse(method, body)?;
    Ok(ClientAnswer::Executed { exit_code, stdout, stderr })
}

/// Returns None for stats without a container id.
fn of_container(mut stats: proto::ContainerStats) -> Option<UsageFact> {
    let id = stats.attributes.take()?.id;
    let cpu = stats.cpu.take().unwrap_or_default();
    let memory = stats.memory.take().unwrap_or_default();
    let value = |v: protobuf::MessageField<proto::UInt64Value>| v.into_option().map(|v| v.value);
    (!id.is_empty()).then(|| UsageFact {
        id: ContainerId::from(id),
        cpu_at: cpu.timestamp,
        cpu_nanos: value(cpu.usage_core_nano_seconds),
        cpu_nano_cores: value(cpu.usage_nano_cores),
        memory_bytes: value(memory.working_set_bytes),
    })
}
