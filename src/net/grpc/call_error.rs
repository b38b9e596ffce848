//! The reason why a call failed.

#[derive(Clone, Debug, PartialEq)]
pub enum CallError {
    /// The call was definitely not sent, because there is no connection.
    NotSent(String),
    /// The call was definitely not processed although there is a connection: the message is too large or cannot be
    /// encoded, or the peer refused the stream.
    Refused(String),
    /// The call may have reached the peer: deadline exceeded, cancelled, connection lost or stream reset.
    Unknown(String),
    /// A gRPC status other than OK, with the decoded message.
    Status { code: u32, message: String },
}
