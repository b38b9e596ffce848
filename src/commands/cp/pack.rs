//! Packs a local file or directory into an archive for `tar` in a container.

use super::skipped::Skipped;
use crate::api::ordered::OrderSlice;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use tar::{Builder, EntryType, Header};

/// Writes an archive of `source`, which has the name `name` in the archive. The archive contains no owners: the
/// extracted files belong to the user of the container. A file that cannot be read is skipped.
///
/// # Errors
/// `output` fails.
pub fn pack(source: &Path, name: &str, output: &mut impl Write, skipped: &mut Skipped) -> io::Result<()> {
    let mut archive = Builder::new(output);
    // The remaining files: their paths on this machine and in the archive.
    let mut waiting = vec![(source.to_owned(), PathBuf::from(name))];
    while let Some((path, entry)) = waiting.pop() {
        match LocalFile::look(&path) {
            Ok(found) => add(&mut archive, found, &path, entry, &mut waiting)?,
            Err(why) => skipped.warn(&format!("{}: skipped: {why}", path.display())),
        }
    }
    archive.finish()
}

/// A local file, which is opened or read before any part of it is added to the archive.
enum LocalFile {
    File(File, Metadata),
    Directory(Vec<PathBuf>, Metadata),
    Symlink(PathBuf, Metadata),
}

impl LocalFile {
    fn look(path: &Path) -> Result<LocalFile, String> {
        let words = |e: io::Error| e.to_string();
        let metadata = fs::symlink_metadata(path).map_err(words)?;
        let kind = metadata.file_type();
        if kind.is_symlink() {
            Ok(LocalFile::Symlink(fs::read_link(path).map_err(words)?, metadata))
        } else if kind.is_dir() {
            let entries = fs::read_dir(path).map_err(words)?;
            let mut paths: Vec<PathBuf> =
                entries.map(|e| e.map(|e| e.path())).collect::<io::Result<_>>().map_err(words)?;
            paths.order();
            Ok(LocalFile::Directory(paths, metadata))
        } else if kind.is_file() {
            let file = File::open(path).map_err(words)?;
            let metadata = file.metadata().map_err(words)?;
            Ok(LocalFile::File(file, metadata))
        } else {
            Err("it is not a file, a directory or a link".to_owned())
        }
    }
}

fn add<W: Write>(
    archive: &mut Builder<W>,
    found: LocalFile,
    path: &Path,
    entry: PathBuf,
    waiting: &mut Vec<(PathBuf, PathBuf)>,
) -> io::Result<()> {
    match found {
        LocalFile::File(file, metadata) => {
            let mut header = header(EntryType::Regular, &metadata);
            header.set_size(metadata.len());
            let content = Exactly { file, left: metadata.len() };
            archive.append_data(&mut header, entry, content)
        }
        LocalFile::Directory(paths, metadata) => {
            // Reverse the order, so that the files are taken from the end in alphabetical order.
            let named = |p: PathBuf| p.file_name().map(|name| entry.join(name)).map(|entry| (p, entry));
            waiting.extend(paths.into_iter().rev().filter_map(named));
            archive.append_data(&mut header(EntryType::Directory, &metadata), entry, io::empty())
        }
        LocalFile::Symlink(to, metadata) => archive.append_link(&mut header(EntryType::Symlink, &metadata), entry, to),
    }
    .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
}

fn header(kind: EntryType, metadata: &Metadata) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(metadata.mode() & 0o7777);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(0);
    header.set_mtime(u64::try_from(metadata.mtime()).unwrap_or(0));
    header
}

/// The content of a file with exactly the length that the archive's header contains, even if the file changes
/// meanwhile. In that case, the end of the content is cut off or filled with zeros.
struct Exactly {
    file: File,
    left: u64,
}

impl Read for Exactly {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if room == 0 {
            return Ok(0);
        }
        // Zeros are also the only option after a read error in the middle of an entry.
        let n = match self.file.read(&mut buffer[..room]) {
            Ok(n @ 1..) => n,
            Ok(_) | Err(_) => {
                buffer[..room].fill(0);
                room
            }
        };
        self.left -= n as u64;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::os::unix::net::UnixListener;
    use tar::Archive;

    #[test]
    fn a_directory_is_packed_with_modes_links_and_long_names_and_without_owners() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("source");
        let long = "n".repeat(200);
        fs::create_dir_all(top.join("sub")).unwrap();
        fs::write(top.join("sub/run"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(top.join("sub/run"), fs::Permissions::from_mode(0o750)).unwrap();
        fs::write(top.join(&long), "long").unwrap();
        symlink("sub/run", top.join("link")).unwrap();
        let _socket = UnixListener::bind(top.join("socket")).unwrap();
        let (mut bytes, mut skipped) = (Vec::new(), Skipped::default());
        pack(&top, "target", &mut bytes, &mut skipped).unwrap();
        assert_eq!(skipped.count, 1);
        let mut archive = Archive::new(&bytes[..]);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut content = String::new();
            entry.read_to_string(&mut content).unwrap();
            assert_eq!((entry.header().uid().unwrap(), entry.header().gid().unwrap()), (0, 0));
            let mode = entry.header().mode().unwrap() & 0o777;
            (entry.path().unwrap().display().to_string(), entry.header().entry_type(), mode, content)
        });
        let entries: Vec<_> = entries.collect();
        let names: Vec<&str> = entries.iter().map(|(name, ..)| name.as_str()).collect();
        let long = format!("target/{long}");
        assert_eq!(names, ["target", "target/link", long.as_str(), "target/sub", "target/sub/run"]);
        assert_eq!(entries[1].1, EntryType::Symlink);
        assert_eq!((entries[4].2, entries[4].3.as_str()), (0o750, "#!/bin/sh\n"));
    }

    #[test]
    fn a_file_that_changes_keeps_the_archive_valid() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "abc").unwrap();
        for (left, expected) in [(2, &b"ab"[..]), (5, b"abc\0\0"), (0, b"")] {
            let mut content = Vec::new();
            Exactly { file: File::open(&path).unwrap(), left }.read_to_end(&mut content).unwrap();
            assert_eq!(content, expected);
        }
    }
}
