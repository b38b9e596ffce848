//! The results of the steps of a connection, which tell the caller what to do next.

/// The result of `HttpConnection::drive`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveOutcome {
    /// The connection waits for its client.
    Wait,
    /// The budget is used up. Call `drive` again without waiting.
    Again,
    Close,
}

/// The result of `HttpConnection::written`.
pub(super) enum AfterWrite {
    GoOn,
    /// The body needs more work before there is something to write.
    Yield,
    Close,
}
