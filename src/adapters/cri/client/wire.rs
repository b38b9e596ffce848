//! Between bytes and messages, and from a call's error to an operation's. Pure.

use super::method::Method;
use crate::adapters::cri::proto;
use crate::adapters::cri::transport::CallError;
use crate::api::names::{Uid, label};
use crate::engine::op::{Code, OpError};
use bytes::Bytes;
use protobuf::rt::{WireType, skip_field_for_tag};
use protobuf::{CodedInputStream, Message, MessageField};
use std::collections::BTreeMap;

/// The two lists, filtered by the UID's label.
pub fn lists_of(uid: &Uid) -> (proto::ListPodSandboxRequest, proto::ListContainersRequest) {
    let selector: BTreeMap<String, String> = [(label::POD_UID.to_owned(), uid.to_string())].into();
    let sandboxes = proto::PodSandboxFilter { label_selector: selector.clone(), ..Default::default() };
    let containers = proto::ContainerFilter { label_selector: selector, ..Default::default() };
    (
        proto::ListPodSandboxRequest { filter: MessageField::some(sandboxes), ..Default::default() },
        proto::ListContainersRequest { filter: MessageField::some(containers), ..Default::default() },
    )
}

pub fn parse<M: Message>(method: Method, body: &Bytes) -> Result<M, OpError> {
    M::parse_from_bytes(body).map_err(|e| unreadable(method, &e))
}

/// The items of a list's answer, one after the other: a list of 100,000 containers is never there as messages. Their
/// field is 1 in both answers.
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
    OpError::Unknown(format!("{}: the runtime's answer cannot be read: {e}", method.path))
}

/// A pod that cannot be expressed: nothing was sent, and sending it again would not help.
pub fn invalid(message: String) -> OpError {
    OpError::Answered { code: Code::InvalidArgument, message }
}

/// A runtime that answers "cancelled", "deadline exceeded" or "unavailable" may have done the work or part of it.
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
