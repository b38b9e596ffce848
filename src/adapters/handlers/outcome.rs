//! The outcome of an exchange, and the texts of its failures.

use crate::net::http1_client::Response;
use std::io;

pub(super) enum ExchangeOutcome {
    /// `again`: the budget of this turn ran out, so call again in the next turn, because the poll does not report the
    /// remaining input.
    Pending {
        again: bool,
    },
    Connected,
    Response(Response),
    /// The reason, in the text that Go uses.
    Failed(String),
    /// The server of an https URL has no TLS. Contains the reason, in the text that Go uses.
    NotTls(String),
}

/// Returns the text of an error as Go writes it: lower case, without the number.
pub(super) fn words(e: &io::Error) -> String {
    let text = e.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}
