//! The types of the access control of the node's server: the requests of its clients, the settings of a
//! KubeletConfiguration, and the refusals. `reviews` makes the decisions.

use crate::api::cluster::reviews::{Attributes, Credential};
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// The maximum number of reviews in flight, so that unauthorized clients cannot overload the API server.
pub const MOST_REVIEWS: usize = 32;

/// The settings of the access control, as in a KubeletConfiguration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Policy {
    /// `authentication.anonymous.enabled`
    pub anonymous: bool,
    /// How long the user of a token is cached (`authentication.webhook.cacheTTL`). None: tokens are not accepted.
    pub tokens: Option<Duration>,
    pub authorization: Authorization,
}

/// `authorization.mode`
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Authorization {
    /// Every authenticated user may do everything.
    AlwaysAllow,
    /// How long a permission and a denial by the API server are cached.
    Webhook { yes: Duration, no: Duration },
}

impl Default for Policy {
    /// Returns the defaults of a KubeletConfiguration.
    fn default() -> Policy {
        let authorization = Authorization::Webhook { yes: Duration::from_secs(300), no: Duration::from_secs(30) };
        Policy { anonymous: false, tokens: Some(Duration::from_secs(120)), authorization }
    }
}

/// A request from a client of the node's server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessRequest {
    pub credential: Credential,
    pub attributes: Attributes,
}

/// Why the node's server rejects a client's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessError {
    /// The request has no credential or an invalid one.
    Unauthorized,
    Forbidden {
        user: String,
        attributes: Attributes,
    },
    /// The API server cannot be asked for a review.
    Unavailable {
        why: String,
    },
    /// The API server refuses the review.
    Refused {
        why: String,
    },
    TooManyReviews,
}

impl AccessError {
    /// Returns the HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            AccessError::Unauthorized => 401,
            AccessError::Forbidden { .. } => 403,
            AccessError::TooManyReviews => 429,
            AccessError::Refused { .. } => 500,
            AccessError::Unavailable { .. } => 503,
        }
    }
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AccessError::Unauthorized => f.write_str("Unauthorized"),
            // The same text as a kubelet's.
            AccessError::Forbidden { user, attributes: Attributes { verb, subresources } } => {
                let all = subresources.join(" ");
                write!(f, "Forbidden (user={user}, verb={verb}, resource=nodes, subresource(s)=[{all}])")
            }
            AccessError::Unavailable { why } => write!(
                f,
                "the node cannot ask the API server whether this is permitted: {why}; try again when the server \
                 responds, or use the wherry command on the node (wherry logs, wherry exec, wherry top)"
            ),
            AccessError::Refused { why } => {
                write!(
                    f,
                    "the API server does not say whether this is permitted: {why}; the node needs the role system:node"
                )
            }
            AccessError::TooManyReviews => {
                write!(f, "the API server has not yet responded to {MOST_REVIEWS} reviews; try again in a moment")
            }
        }
    }
}

/// The name of the authorized user, or why the request is rejected.
pub type Access = Result<String, AccessError>;
