//! How a step of a connection ends, and so what its caller has to do.

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
