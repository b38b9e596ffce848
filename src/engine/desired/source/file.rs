//! One file of the directory: its documents, and the versions that its record contains.

use super::contents::Held;
use crate::api::objects::Given;
use std::borrow::Borrow;
use std::hash::{DefaultHasher, Hash, Hasher};

#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) documents: Vec<Held>,
    /// The versions that the record on the disk contains. None: there is no record, or its content is uncertain.
    pub(super) recorded: Option<Fingerprint>,
}

impl File {
    pub(super) fn in_force(&self) -> impl Iterator<Item = &Held> {
        self.documents.iter().filter_map(Held::in_force)
    }
}

/// Identifies the versions of all documents of a file, with the values of their classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint(u64);

impl Fingerprint {
    pub(super) fn of<'d>(versions: impl Iterator<Item = (&'d str, impl Borrow<Given>)>) -> Fingerprint {
        let mut hasher = DefaultHasher::new();
        for (digest, given) in versions {
            digest.hash(&mut hasher);
            // The values do not implement `Hash`, so their debug format is hashed.
            format!("{:?}", given.borrow()).hash(&mut hasher);
        }
        Fingerprint(hasher.finish())
    }

    /// Returns the fingerprint of the documents in force. None if no document is in force; such a file has no record.
    pub(super) fn of_file(file: &File) -> Option<Fingerprint> {
        file.in_force().next()?;
        Some(Fingerprint::of(file.in_force().map(|held| (held.digest(), held.given()))))
    }
}
