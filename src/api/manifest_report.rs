//! What the reader of the manifest directory reports to the engine, and the records that it stores for it (D1, D2).

use super::document::{self, Document};
use super::objects::Given;
use super::problem::Problem;
use super::system_credentials::Credentials;
use crate::api::ordered::CollectOrdered;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;

/// What has changed since the last report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ManifestReport {
    /// In the order in which the reader has seen the changes.
    pub files: Vec<FileReport>,
    /// The names of files that were there and are missing now. Each of them counts as removed a moment later, with a
    /// report of its own, unless it appears again.
    pub missing: BTreeSet<OsString>,
    pub directory: DirectoryState,
    /// More changes of the same moment follow, so nothing comes into force yet. Until the first scan is complete, all
    /// reports are such (D1).
    pub more: bool,
}

/// The directory at the time of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DirectoryState {
    /// It is readable, and is the one that contained manifests before.
    #[default]
    Usable,
    /// It cannot be read, or is not the right one, for this reason.
    Unusable(String),
}

#[derive(Clone, Debug, PartialEq)]
pub struct FileReport {
    /// The name in the directory.
    pub name: OsString,
    /// The record of the last good version. Only the first report of a file in a run has it.
    pub recorded: Option<Vec<RecordedDocument>>,
    pub content: FileContent,
    /// The credentials of the service that the documents and the record name.
    pub credentials: NamedCredentials,
}

impl FileReport {
    /// A settled file with this text, and without a record. For tests.
    #[doc(hidden)]
    pub fn of_text(name: &str, path: &str, text: &str) -> FileReport {
        let (bytes, documents) = (text.as_bytes().to_vec(), document::parse(text.as_bytes(), path));
        let content = FileContent::Text(Box::new(FileText { bytes, documents, open: false, settled: true }));
        FileReport { content, ..FileReport::removed(name) }
    }

    /// A file without a record that was removed. For tests.
    #[doc(hidden)]
    pub fn removed(name: &str) -> FileReport {
        let (recorded, credentials) = (None, NamedCredentials::default());
        FileReport { name: name.into(), recorded, content: FileContent::Removed, credentials }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum FileContent {
    Text(Box<FileText>),
    /// The file or its directory exists, but it has not been read yet. A report with its text follows.
    NotRead,
    /// The file exists and cannot be read, for this reason.
    Unreadable(String),
    /// The file no longer exists. Also for a file that was removed before this run and has a record.
    Removed,
}

#[derive(Clone, PartialEq)]
pub struct FileText {
    pub bytes: Vec<u8>,
    /// The result of `document::parse`.
    pub documents: Result<Vec<Document>, Problem>,
    /// Every user of the machine can read the file.
    pub open: bool,
    /// False: the file has just changed, so its writer may not have finished. Another report follows.
    pub settled: bool,
}

/// Without the content, which may contain Secrets.
impl fmt::Debug for FileText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let documents = self.documents.as_ref().map(Vec::len);
        write!(f, "FileText({} bytes, {documents:?}, open: {}, settled: {})", self.bytes.len(), self.open, self.settled)
    }
}

/// A document of the last good version of a file, in its record.
#[derive(Clone, PartialEq)]
pub struct RecordedDocument {
    /// The position in the file, from 1.
    pub number: u32,
    pub digest: String,
    pub content: Value,
    pub given: Given,
}

impl fmt::Debug for RecordedDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordedDocument({}, {})", self.number, self.digest)
    }
}

/// The record of a file is replaced. Without documents it is removed.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordUpdate {
    /// The name of the file in the directory.
    pub name: OsString,
    pub documents: Vec<DocumentUpdate>,
}

/// A document of the last good version of a file, to be recorded.
#[derive(Clone, PartialEq)]
pub struct DocumentUpdate {
    pub number: u32,
    pub digest: String,
    /// JSON text. None: the present record has the document with this digest.
    pub content: Option<Arc<str>>,
    pub given: Given,
}

impl fmt::Debug for DocumentUpdate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DocumentUpdate({}, {})", self.number, self.digest)
    }
}

/// The credentials of the service by name: their values, or why there is none.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct NamedCredentials(pub BTreeMap<String, Result<Vec<u8>, String>>);

impl NamedCredentials {
    /// Calls `read` for each credential that one of the documents names.
    pub fn of<'d>(
        contents: impl Iterator<Item = &'d Value>,
        read: impl Fn(&str) -> Result<Vec<u8>, String>,
    ) -> NamedCredentials {
        let names = contents.flat_map(super::system_credentials::named_in);
        NamedCredentials(names.map(|name| (name.to_owned(), read(name))).collect_map())
    }

    /// Calls `use_them` with the credentials in the form that documents need.
    pub fn with<R>(&self, use_them: impl FnOnce(Credentials<'_>) -> R) -> R {
        let read = |name: &str| match self.0.get(name) {
            Some(value) => value.clone(),
            None => Err("the credential was not read".to_owned()),
        };
        use_them(Credentials::Service(&read))
    }
}

/// Only the names.
impl fmt::Debug for NamedCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
