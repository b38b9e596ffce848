//! The id of a request.

use serde::Serialize;

/// Identifies a request. The server assigns it and never reuses it within the same process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct RequestId(pub u64);
