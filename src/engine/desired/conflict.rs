//! Two documents that cannot both be in force (D4).

use crate::api::names::{FullName, Uid};
use crate::api::source::Source;
use serde::Serialize;
use std::fmt;

/// What two documents have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Common {
    Name(FullName),
    /// The other document defines a pod with this UID and another name.
    Uid {
        uid: Uid,
        other: FullName,
    },
}

/// A document that yields to another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Conflict {
    pub source: Source,
    /// The document that is in force.
    pub with: Source,
    pub common: Common,
}

impl Conflict {
    /// Returns the field, the other document and the remedy, as text for users.
    pub fn message(&self) -> String {
        if let (Common::Name(name), true) = (&self.common, self.with.is_api()) {
            return format!(
                "metadata.name: the cluster has a pod {name}; the pod of this manifest starts when that pod is gone"
            );
        }
        let what = match &self.common {
            Common::Name(name) => format!("metadata.name: pod {name} is already defined in"),
            Common::Uid { uid, other } => format!("metadata.uid: {uid} already belongs to {other} in"),
        };
        format!("{what} {} (document {}); change one of them", self.with.path, self.with.document)
    }
}

/// Formats as the document that yields, and the message.
impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (document {}): {}", self.source.path, self.source.document, self.message())
    }
}
