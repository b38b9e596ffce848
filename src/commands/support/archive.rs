//! The archive of `wherry support`: its name, the limits of its parts, and the list of what is missing.
//!
//! A part is written as soon as it is collected, so that the command needs the memory of one part only.

use crate::api::printable;
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use std::io::{self, Write};
use tar::{Builder, EntryType, Header};

/// The maximum size of a part in bytes. A longer part is cut.
pub(super) const MAX_PART: usize = 4 << 20;
/// The maximum size of all parts together in bytes, before compression.
const MAX_ALL: usize = 64 << 20;
/// The maximum number of lines in the list of errors.
const MAX_ERRORS: usize = 1000;
/// The list of the parts that are missing or cut. It is the last file of the archive.
pub(super) const ERRORS: &str = "errors.txt";
/// The mode of the files. They can describe the machine in detail, so only their owner can read them.
const MODE: u32 = 0o600;
/// The maximum length of the node's name in the name of the file. A file name has at most 255 bytes.
const MAX_NODE_NAME: usize = 100;

/// Returns the name of the archive without its extension: `wherry-support-NODE-YYYYMMDDTHHMMSSZ`. It is also the name
/// of the directory in the archive. Characters that a node name cannot have become `_`.
pub(super) fn name(node: &str, at: Timestamp) -> String {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    let node: String = node.chars().take(MAX_NODE_NAME).map(|c| if is_valid(c) { c } else { '_' }).collect();
    let node = if node.is_empty() { "node" } else { &node };
    format!("wherry-support-{node}-{}", at.strftime("%Y%m%dT%H%M%SZ"))
}

/// A part of the archive.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CollectedPart {
    pub bytes: Vec<u8>,
    /// What is missing in it.
    pub note: Option<String>,
}

impl From<Vec<u8>> for CollectedPart {
    fn from(bytes: Vec<u8>) -> CollectedPart {
        CollectedPart { bytes, note: None }
    }
}

impl From<String> for CollectedPart {
    fn from(text: String) -> CollectedPart {
        text.into_bytes().into()
    }
}

/// What an archive contains.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ArchiveContents {
    /// The number of files, without the list of errors.
    pub parts: usize,
    /// The number of lines in the list of errors: parts that are missing or cut.
    pub errors: usize,
}

/// An archive that is being written.
pub(super) struct SupportArchive<W: Write> {
    tar: Builder<GzEncoder<W>>,
    directory: String,
    at: Timestamp,
    /// The room for further parts in bytes.
    left: usize,
    parts: usize,
    errors: Vec<String>,
}

impl<W: Write> SupportArchive<W> {
    /// `directory`: the directory that contains all files. `at`: the time that all files get.
    pub(super) fn new(out: W, directory: &str, at: Timestamp) -> SupportArchive<W> {
        SupportArchive {
            tar: Builder::new(GzEncoder::new(out, Compression::default())),
            directory: directory.to_owned(),
            at,
            left: MAX_ALL,
            parts: 0,
            errors: Vec::new(),
        }
    }

    /// Writes a part, or notes why it is missing. A part above the limit is cut at its end.
    ///
    /// # Errors
    /// The output fails.
    pub(super) fn add(&mut self, name: &str, part: Result<CollectedPart, String>) -> io::Result<()> {
        let CollectedPart { mut bytes, note } = match part {
            Ok(part) => part,
            Err(why) => {
                self.note(&format!("{name}: missing: {why}"));
                return Ok(());
            }
        };
        if let Some(note) = note {
            self.note(&format!("{name}: {note}"));
        }
        let limit = MAX_PART.min(self.left);
        if bytes.len() > limit {
            self.note(&format!("{name}: cut: contains the first {limit} bytes"));
            bytes.truncate(limit);
        }
        self.left -= bytes.len();
        self.parts += 1;
        self.write(name, &bytes)
    }

    /// Adds a line to the list of errors.
    pub(super) fn note(&mut self, error: &str) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(printable::line(error).into_owned());
        }
    }

    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(MODE);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(bytes.len() as u64);
        header.set_mtime(u64::try_from(self.at.as_second()).unwrap_or(0));
        self.tar.append_data(&mut header, format!("{}/{name}", self.directory), bytes)
    }

    /// Writes the list of errors and the end of the archive.
    ///
    /// # Errors
    /// The output fails.
    pub(super) fn finish(mut self) -> io::Result<ArchiveContents> {
        let mut text = String::from("Parts that are missing or cut, and the reason:\n");
        self.errors.iter().for_each(|error| text += &format!("{error}\n"));
        if self.errors.is_empty() {
            text += "none\n";
        }
        self.write(ERRORS, text.as_bytes())?;
        let contents = ArchiveContents { parts: self.parts, errors: self.errors.len() };
        self.tar.into_inner()?.finish()?.flush()?;
        Ok(contents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use std::collections::BTreeMap;
    use std::io::Read as _;

    const DIRECTORY: &str = "wherry-support-lab-20261127T120000Z";

    fn at() -> Timestamp {
        "2026-11-27T12:00:00Z".parse().unwrap()
    }

    /// Returns the files of an archive below its directory.
    fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(GzDecoder::new(archive));
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            assert_eq!(entry.header().mode().unwrap(), MODE);
            let name = entry.path().unwrap().display().to_string();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (name.strip_prefix(DIRECTORY).unwrap().trim_start_matches('/').to_owned(), content)
        });
        entries.collect()
    }

    #[test]
    fn the_name_has_the_node_and_the_time_and_fits_a_file_system() {
        assert_eq!(name("lab", at()), DIRECTORY);
        assert_eq!(name("", at()), "wherry-support-node-20261127T120000Z");
        assert_eq!(name("../a\x1b b", at()), "wherry-support-.._a__b-20261127T120000Z");
        assert!(name(&"n".repeat(253), at()).len() + ".tar.gz".len() < 200);
    }

    #[test]
    fn an_archive_can_be_read_back_and_lists_what_is_missing() {
        let mut out = Vec::new();
        let mut archive = SupportArchive::new(&mut out, DIRECTORY, at());
        archive.add("a.txt", Ok("text".to_owned().into())).unwrap();
        archive.add("b/c.txt", Err("no permission\x1b[2J\nfor it".to_owned())).unwrap();
        let part = CollectedPart { bytes: b"half".to_vec(), note: Some("ended early".to_owned()) };
        archive.add("d.txt", Ok(part)).unwrap();
        assert_eq!(archive.finish().unwrap(), ArchiveContents { parts: 2, errors: 2 });
        let files = files(&out);
        assert_eq!(files.keys().collect::<Vec<_>>(), ["a.txt", "d.txt", "errors.txt"]);
        assert_eq!((&files["a.txt"][..], &files["d.txt"][..]), (&b"text"[..], &b"half"[..]));
        let errors = String::from_utf8(files["errors.txt"].clone()).unwrap();
        let lines: Vec<&str> = errors.lines().skip(1).collect();
        assert_eq!(lines, ["b/c.txt: missing: no permission\\x1b[2J\\nfor it", "d.txt: ended early"]);
    }

    #[test]
    fn a_part_above_the_limit_is_cut_and_all_parts_together_have_a_limit() {
        let mut out = Vec::new();
        let mut archive = SupportArchive::new(&mut out, DIRECTORY, at());
        assert_eq!(archive.left, MAX_ALL);
        archive.left = MAX_PART + 7;
        for name in ["a.txt", "b.txt", "c.txt"] {
            archive.add(name, Ok(vec![b'x'; MAX_PART + 1].into())).unwrap();
        }
        assert_eq!(archive.finish().unwrap(), ArchiveContents { parts: 3, errors: 3 });
        let files = files(&out);
        let lengths = ["a.txt", "b.txt", "c.txt"].map(|name| files[name].len());
        assert_eq!(lengths, [MAX_PART, 7, 0]);
        let errors = String::from_utf8_lossy(&files["errors.txt"]);
        assert!(errors.contains("a.txt: cut: contains the first 4194304 bytes\n"), "{errors}");
        assert!(errors.contains("c.txt: cut: contains the first 0 bytes\n"), "{errors}");
    }

    #[test]
    fn an_archive_without_errors_says_so() {
        let mut out = Vec::new();
        SupportArchive::new(&mut out, DIRECTORY, at()).finish().unwrap();
        assert!(String::from_utf8_lossy(&files(&out)["errors.txt"]).ends_with("\nnone\n"));
    }
}
