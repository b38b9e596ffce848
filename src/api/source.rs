//! Where an object comes from: a document of a manifest, or the API server.

use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Source {
    pub path: String,
    pub document: u32,
}

impl Source {
    /// The path of a pod of an API server. A manifest has an absolute path.
    const API: &str = "api";

    /// The API server of the cluster. It has one object of each name, so there is no number.
    pub fn api() -> Source {
        Source { path: Source::API.to_owned(), document: 0 }
    }

    /// Whether the pod comes from the API server, not from a manifest.
    pub fn is_api(&self) -> bool {
        self.path == Source::API
    }
}
