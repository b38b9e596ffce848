//! The outcome of an exchange, and the words of its failures.

use crate::net::http1_client::Response;
use std::io;

pub(super) enum ExchangeOutcome {
    /// `again`: the budget of the turn was used up, and the poll will not report the rest.
    Pending {
        again: bool,
    },
    Connected,
    Response(Response),
    /// The reason in the words of Go.
    Failed(String),
    /// The server of an https URL has no TLS. The reason in the words of Go.
    NotTls(String),
}

/// The text of an error as Go writes it: lower case, without the number.
pub(super) fn words(e: &io::Error) -> String {
    let text = e.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}
