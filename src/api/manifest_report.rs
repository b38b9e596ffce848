//! The reports of the manifest reader to the engine, and the records that the reader stores for the engine (D1, D2).

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

/// The changes since the last report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ManifestReport {
    /// The changed files, in the order in which the reader has seen the changes.
    pub files: Vec<FileReport>,
    /// The names of files that have disappeared. Unless a file reappears shortly afterwards, a separate report says
    /// that it was removed.
    pub missing: BTreeSet<OsString>,
    pub directory: DirectoryState,
    /// True if more changes that were seen at the same time follow, so that nothing comes into force yet. True in all
    /// reports until the first scan is complete (D1).
    pub more: bool,
}

/// The directory at the time of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DirectoryState {
    /// The directory is readable, and it is the one that contained manifests before.
    #[default]
    Usable,
    /// The directory cannot be read, or it is not the right one; with the reason.
    Unusable(String),
}

#[derive(Clone, Debug, PartialEq)]
pub struct FileReport {
    /// The name in the directory.
    pub name: OsString,
    /// The record of the last good version. Only the first report of a file in a run of Wherry contains it.
    pub recorded: Option<Vec<RecordedDocument>>,
    pub content: FileContent,
    /// The credentials of the service to which the documents and the record refer.
    pub credentials: NamedCredentials,
}

impl FileReport {
    /// Returns the report of a settled file with this text and without a record, for tests.
    #[doc(hidden)]
    pub fn of_text(name: &str, path: &str, text: &str) -> FileReport {
        let (bytes, documents) = (text.as_bytes().to_vec(), document::parse(text.as_bytes(), path));
        let content = FileContent::Text(Box::new(FileText { bytes, documents, open: false, settled: true }));
        FileReport { content, ..FileReport::removed(name) }
    }

    /// Returns the report of a removed file without a record, for tests.
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
    /// The file exists but cannot be read; with the reason.
    Unreadable(String),
    /// The file no longer exists. Also used for a file that was removed before this run but still has a record.
    Removed,
}

#[derive(Clone, PartialEq)]
pub struct FileText {
    pub bytes: Vec<u8>,
    /// The result of `document::parse`.
    pub documents: Result<Vec<Document>, Problem>,
    /// True if every user of the machine can read the file.
    pub open: bool,
    /// False if the file has just changed, so that its writer may not have finished. Another report follows.
    pub settled: bool,
}

/// Omits the content, which may contain Secrets.
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

/// Replaces the record of a file. Without documents, the record is removed.
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
    /// The JSON text. None if the existing record already has the document with this digest.
    pub content: Option<Arc<str>>,
    pub given: Given,
}

impl fmt::Debug for DocumentUpdate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DocumentUpdate({}, {})", self.number, self.digest)
    }
}

/// The credentials of the service by name: the value of each, or why it cannot be read.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct NamedCredentials(pub BTreeMap<String, Result<Vec<u8>, String>>);

impl NamedCredentials {
    /// Calls `read` for each credential to which one of the documents refers.
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

/// Shows only the names.
impl fmt::Debug for NamedCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
