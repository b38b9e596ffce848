//! Where an object comes from: a document of a manifest, or the API server.

use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Source {
    pub path: String,
    pub document: u32,
}

impl Source {
    /// The path of an object of the API server. It cannot be the path of a manifest, because that is absolute.
    const API: &str = "api";

    /// Returns the source of an object of the API server. There is only one object of each name, so there is no
    /// document number.
    pub fn api() -> Source {
        Source { path: Source::API.to_owned(), document: 0 }
    }

    /// Reports whether the object comes from the API server, not from a manifest.
    pub fn is_api(&self) -> bool {
        self.path == Source::API
    }
}
