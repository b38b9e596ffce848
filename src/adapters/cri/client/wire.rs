//! Encodes requests, decodes answers, and converts errors of calls to errors of operations. Pure.

use super::method::Method;
use crate::adapters::cri::proto;
use crate::api::names::{Uid, label};
use crate::engine::op::{Code, OpError};
use crate::net::grpc::CallError;
use bytes::Bytes;
use protobuf::rt::{WireType, skip_field_for_tag};
use protobuf::{CodedInputStream, Message, MessageField};
use std::collections::BTreeMap;

/// Builds the two list requests for one pod, filtered by its UID label.
pub fn lists_of(uid: &Uid) -> (proto::ListPodSandboxRequest, proto::ListContainersRequest) {
    let selector: BTreeMap<String, String> = [(label::POD_UID.to_owned(), uid.to_string())].into();
    let sandboxes = proto::PodSandboxFilter { label_selector: selector.clone(), ..Default::default() };
    let containers = proto::ContainerFilter { label_selector: selector, ..Default::default() };
    (
        proto::ListPodSandboxRequest { filter: MessageField::some(sandboxes), ..Default::default() },
        proto::ListContainersRequest { filter: MessageField::some(containers), ..Default::default() },
    )
}

/// The maximum size of a request in bytes. containerd accepts messages up to `max_recv_message_size` (16 MiB by
/// default), CRI-O up to 80 MiB. The request for an ordinary pod is far smaller.
const MAX_REQUEST: u64 = 16 << 20;

/// Encodes a request. A request that is too large is rejected before memory is allocated for it.
///
/// # Errors
/// The request is too large or cannot be encoded.
pub fn written(method: Method, request: &impl Message) -> Result<Vec<u8>, OpError> {
    let size = request.compute_size();
    if size > MAX_REQUEST {
        return Err(OpError::Refused(format!(
            "{}: the request has {size} bytes, and container runtimes accept at most {MAX_REQUEST}; shorten the pod's \
             annotations, labels, ports, environment, command or arguments",
            method.path
        )));
    }
    let failed = |e| OpError::Refused(format!("{}: failed to encode the request: {e}", method.path));
    request.write_to_bytes().map_err(failed)
}

pub fn parse<M: Message>(method: Method, body: &Bytes) -> Result<M, OpError> {
    M::parse_from_bytes(body).map_err(|e| unreadable(method, &e))
}

/// Decodes the items of a list one after the other, so that a list of 100,000 containers is never in memory as decoded
/// messages. The items are field 1 in all list answers.
pub fn parse_each<M: Message>(method: Method, body: &Bytes, mut item: impl FnMut(M)) -> Result<(), OpError> {
    let mut input = CodedInputStream::from_bytes(body);
    let mut each = || -> protobuf::Result<()> {
        while let Some(tag) = input.read_raw_tag_or_eof()? {
            if tag == 1 << 3 | WireType::LengthDelimited as u32 {
                item(input.read_message()?);
            } else {
                skip_field_for_tag(tag, &mut input)?;
            }
        }
        Ok(())
    };
    each().map_err(|e| unreadable(method, &e))
}

fn unreadable(method: Method, e: &protobuf::Error) -> OpError {
    OpError::Unknown(format!("{}: failed to decode the runtime's response: {e}", method.path))
}

/// Returns the error for a pod that cannot be represented in the CRI. Nothing was sent, and a retry would not help.
pub fn invalid(message: String) -> OpError {
    OpError::Answered { code: Code::InvalidArgument, message }
}

/// Converts the error of a call. CANCELLED, DEADLINE_EXCEEDED and UNAVAILABLE become `Unknown`: the runtime may have
/// completed the call or a part of it.
pub fn op_error(error: CallError) -> OpError {
    match error {
        CallError::NotSent(why) => OpError::NotSent(why),
        CallError::Refused(why) => OpError::Refused(why),
        CallError::Unknown(why) => OpError::Unknown(why),
        CallError::Status { code, message } => match code {
            1 | 4 | 14 => OpError::Unknown(message),
            3 => OpError::Answered { code: Code::InvalidArgument, message },
            5 => OpError::Answered { code: Code::NotFound, message },
            6 => OpError::Answered { code: Code::AlreadyExists, message },
            9 => OpError::Answered { code: Code::FailedPrecondition, message },
            12 => OpError::Answered { code: Code::Unimplemented, message },
            other => OpError::Answered { code: Code::Other(other), message },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::cri::client::method;

    #[test]
    fn a_request_that_no_runtime_takes_is_not_written() {
        let request = |bytes: usize| proto::VersionRequest { version: "x".repeat(bytes), ..Default::default() };
        assert_eq!(written(method::VERSION, &request(9)).unwrap().len(), 11);
        assert!(written(method::VERSION, &request((16 << 20) - 100)).is_ok());
        let Err(OpError::Refused(message)) = written(method::VERSION, &request(16 << 20)) else { panic!() };
        assert!(message.contains("16777221 bytes") && message.contains("at most 16777216"), "{message}");
    }
}
