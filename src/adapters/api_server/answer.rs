//! The answer to one request, assembled from its parts within the limits.

use super::arrived::{AnswerLimits, Arrived};
use crate::api::cluster::items::{Broken, Items};
use crate::api::cluster::lines::Lines;
use crate::api::cluster::request::{ApiError, ApiResponse, BodyDelivery};
use crate::engine::op::OpId;
use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use std::time::Duration;

pub(super) enum PartialAnswer {
    /// Nothing has arrived yet.
    Awaited {
        reading: BodyDelivery,
        limits: AnswerLimits,
    },
    Begun {
        status: u16,
        retry_after: Option<Duration>,
        body: Body,
        limits: AnswerLimits,
    },
    Over,
}

pub(super) enum Body {
    Whole(Vec<u8>),
    Items(Items),
    Lines(Lines),
}

impl PartialAnswer {
    pub(super) fn new(reading: BodyDelivery, limits: AnswerLimits) -> PartialAnswer {
        PartialAnswer::Awaited { reading, limits }
    }

    pub(super) fn head(&mut self, status: StatusCode, headers: &HeaderMap) {
        let PartialAnswer::Awaited { reading, limits } = *self else { return };
        let body = match reading {
            // The body is a `Status`.
            _ if !status.is_success() => Body::Whole(Vec::new()),
            BodyDelivery::Whole => Body::Whole(Vec::new()),
            BodyDelivery::Items => Body::Items(Items::new(limits.part)),
            BodyDelivery::Lines => Body::Lines(Lines::new(limits.part)),
        };
        *self = PartialAnswer::Begun { status: status.as_u16(), retry_after: retry_after(headers), body, limits };
    }

    /// Adds a part of the body, and appends the items or lines that are complete.
    ///
    /// # Errors
    /// The answer is too large, or is not a list.
    pub(super) fn body(&mut self, id: OpId, bytes: &[u8], out: &mut Vec<Arrived>) -> Result<(), ApiError> {
        let PartialAnswer::Begun { body, limits, .. } = self else { return Ok(()) };
        match body {
            Body::Whole(whole) if whole.len() + bytes.len() > limits.whole => {
                Err(ApiError::TooLarge(format!("the response is larger than {} bytes", limits.whole)))
            }
            Body::Whole(whole) => {
                whole.extend_from_slice(bytes);
                Ok(())
            }
            Body::Items(items) => {
                items.push(bytes, &mut |json| out.push(Arrived::Item { id, json })).map_err(|e| broken(e, limits.part))
            }
            Body::Lines(lines) => lines
                .push(bytes, &mut |json| out.push(Arrived::Line { id, json }))
                .map_err(|_| ApiError::TooLarge(format!("a line of the watch is longer than {} bytes", limits.part))),
        }
    }

    /// Completes the answer. Call it when the server has sent everything.
    ///
    /// # Errors
    /// The answer ends inside a list or a line.
    pub(super) fn finish(&mut self) -> Result<ApiResponse, ApiError> {
        let PartialAnswer::Begun { status, retry_after, body, limits } = std::mem::replace(self, PartialAnswer::Over)
        else {
            return Err(ApiError::Unknown("the API server sent no response".to_owned()));
        };
        let body = match body {
            Body::Whole(whole) => whole,
            Body::Items(items) => items.finish().map_err(|e| broken(e, limits.part))?,
            Body::Lines(lines) if lines.is_partial() => {
                return Err(ApiError::Unknown("the watch ended in the middle of a line".to_owned()));
            }
            Body::Lines(_) => Vec::new(),
        };
        Ok(ApiResponse { status, retry_after, body })
    }
}

fn broken(error: Broken, limit: usize) -> ApiError {
    match error {
        Broken::TooLarge => ApiError::TooLarge(format!("{error}: more than {limit} bytes")),
        Broken::Malformed { .. } | Broken::Truncated => ApiError::Unknown(error.to_string()),
    }
}

/// Returns the value of `Retry-After`, which must be in seconds. A date, which an API server does not send, is
/// ignored.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}
