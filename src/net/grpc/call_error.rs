//! Why a call has no answer.

#[derive(Clone, Debug, PartialEq)]
pub enum CallError {
    /// The call was certainly not sent, because there is no connection.
    NotSent(String),
    /// The call was certainly not processed although there is a connection: the message is too large or cannot be
    /// encoded, or the peer refused the stream.
    Refused(String),
    /// The call may have reached the peer: deadline exceeded, cancelled, connection lost or stream reset.
    Unknown(String),
    /// A gRPC status other than OK, with the decoded message.
    Status { code: u32, message: String },
}
