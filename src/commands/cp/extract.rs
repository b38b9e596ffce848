//! Extracts an archive from a container, which may be hostile.
//!
//! An entry is skipped if its path is absolute, contains `..`, or is outside the requested path. A symbolic link is
//! created only if it leads to a location within the copy, even through other links. Devices, pipes and sockets are
//! skipped. Memory does not grow with the archive: `Limited` bounds the headers, which the tar library reads as a
//! whole.

use super::skipped::Skipped;
use super::tree::Tree;
use crate::commands::screen::shorten;
use std::cell::Cell;
use std::ffi::OsStr;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::rc::Rc;
use tar::{Archive, Entry, EntryType};

/// Maximum length of an entry's headers, including its long names, in bytes.
const MAX_HEADERS: u64 = 1 << 20;
/// Maximum memory, in bytes, for the directories whose permissions are set only at the end, because they do not let
/// their owner write.
const MAX_DEFERRED: usize = 4 << 20;

/// Extracts the entries below `name` to the tree, or all entries if it is None. Returns the number of extracted
/// entries.
///
/// # Errors
/// The archive is invalid or truncated, or `input` fails.
pub fn extract(input: impl Read, name: Option<&str>, tree: &Tree, skipped: &mut Skipped) -> io::Result<u64> {
    let left = Rc::new(Cell::new(Some(MAX_HEADERS)));
    let mut archive = Archive::new(Limited { input, left: left.clone() });
    extract_all(&mut archive, &left, name, tree, skipped)
}

fn extract_all<R: Read>(
    archive: &mut Archive<Limited<R>>,
    left: &Cell<Option<u64>>,
    name: Option<&str>,
    tree: &Tree,
    skipped: &mut Skipped,
) -> io::Result<u64> {
    let mut copied = 0;
    let mut deferred = Deferred::default();
    let mut entries = archive.entries()?;
    loop {
        left.set(Some(MAX_HEADERS));
        let Some(entry) = entries.next() else { break };
        let mut entry = entry?;
        left.set(None);
        let full = entry.path_bytes().into_owned();
        if matches!(entry.header().entry_type(), EntryType::XGlobalHeader) {
            continue;
        }
        let result = match below(&full, name) {
            Ok(path) => extract_one(&mut entry, &path, name, tree, &mut deferred),
            Err(why) => Err(Fault::Skip(why.to_owned())),
        };
        match result {
            Ok(()) => copied += 1,
            Err(Fault::Skip(why)) => skipped.warn(&format!("{}: skipped: {why}", String::from_utf8_lossy(&full))),
            Err(Fault::Input(e)) => return Err(e),
        }
        // Skip the rest of the entry here: in `next`, the library would read it under the limit for headers.
        io::copy(&mut entry, &mut io::sink())?;
    }
    for (full, mode) in deferred.directories.iter().rev() {
        if let Err(e) = below(full, name).map_err(io::Error::other).and_then(|path| tree.set_mode(&path, *mode)) {
            skipped.warn(&format!("{}: permissions not set: {e}", String::from_utf8_lossy(full)));
        }
    }
    Ok(copied)
}

/// The directories whose permissions are set at the end: their paths in the archive and their modes.
#[derive(Default)]
struct Deferred {
    directories: Vec<(Box<[u8]>, u32)>,
    bytes: usize,
}

impl Deferred {
    /// Adds a directory. Returns false if the limit does not allow it.
    fn push(&mut self, full: &[u8], mode: u32) -> bool {
        let bytes = full.len() + size_of::<(Box<[u8]>, u32)>();
        let fits = self.bytes + bytes <= MAX_DEFERRED;
        if fits {
            self.bytes += bytes;
            self.directories.push((full.into(), mode));
        }
        fits
    }
}

/// Why an entry was not copied.
enum Fault {
    /// This entry cannot be copied. Later entries may still be copied.
    Skip(String),
    /// The archive cannot be read further.
    Input(io::Error),
}

impl From<io::Error> for Fault {
    fn from(e: io::Error) -> Fault {
        Fault::Skip(e.to_string())
    }
}

/// Returns the components of an entry's path below the requested file or directory.
///
/// # Errors
/// The path leads elsewhere.
fn below<'a>(full: &'a [u8], name: Option<&str>) -> Result<Vec<&'a OsStr>, &'static str> {
    if full.starts_with(b"/") {
        return Err("an absolute path");
    }
    let parts = full.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    let mut parts: Vec<&OsStr> = parts.map(OsStr::from_bytes).collect();
    if parts.iter().any(|part| *part == "..") {
        return Err("a path with ..");
    }
    if let Some(name) = name {
        if parts.first().is_none_or(|first| *first != name) {
            return Err("a path outside the requested one");
        }
        parts.remove(0);
    }
    Ok(parts)
}

/// Reports whether a symbolic link leads to a location within the copy. `depth` is the depth of its directory. `..` is
/// permitted only at the beginning, where it starts from a directory that is not a link itself. Therefore each link
/// stays inside, and so does any chain of links.
fn stays_inside(depth: usize, to: &[u8]) -> bool {
    let parts: Vec<&[u8]> = to.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b".")).collect();
    let ups = parts.iter().take_while(|part| **part == b"..").count();
    !to.is_empty() && !to.starts_with(b"/") && ups <= depth && !parts[ups..].contains(&&b".."[..])
}

fn extract_one<R: Read>(
    entry: &mut Entry<'_, R>,
    path: &[&OsStr],
    name: Option<&str>,
    tree: &Tree,
    deferred: &mut Deferred,
) -> Result<(), Fault> {
    let skip = |why: &str| Err(Fault::Skip(why.to_owned()));
    let mode = entry.header().mode()?;
    let to = entry.link_name_bytes().map(|to| to.into_owned()).unwrap_or_default();
    match entry.header().entry_type() {
        // The header of a sparse file can claim any size, and all the zeros would have to be written. tar creates
        // such entries only with --sparse.
        EntryType::GNUSparse => {
            let name = shorten(&String::from_utf8_lossy(&entry.path_bytes()), 200);
            let why = format!("{name}: a sparse file, which cannot be copied; use `wherry exec POD -- cat FILE`");
            Err(Fault::Input(io::Error::other(why)))
        }
        EntryType::Regular | EntryType::Continuous => {
            let mut file = tree.create_file(path)?;
            copy(entry, &mut file)?;
            Ok(tree.finish_file(&file, mode)?)
        }
        EntryType::Directory => {
            tree.create_directory(path, mode)?;
            if mode & 0o700 != 0o700 && !deferred.push(&entry.path_bytes(), mode) {
                return skip("too many directories are not writable for their owner; this one stays writable");
            }
            Ok(())
        }
        EntryType::Symlink if path.is_empty() => {
            let to = String::from_utf8_lossy(&to).into_owned();
            Err(Fault::Skip(format!("it is a symbolic link to {to}; copy that instead")))
        }
        EntryType::Symlink if stays_inside(path.len() - 1, &to) => {
            Ok(tree.create_symlink(path, OsStr::from_bytes(&to))?)
        }
        EntryType::Symlink => skip("a symbolic link that points outside the copy"),
        EntryType::Link => match below(&to, name) {
            Ok(from) => Ok(tree.create_hard_link(path, &from)?),
            Err(why) => Err(Fault::Skip(format!("a hard link to {why}"))),
        },
        EntryType::Block | EntryType::Char | EntryType::Fifo => skip("it is not a file, a directory or a link"),
        other => Err(Fault::Skip(format!("unknown type {:?}", char::from(other.as_byte())))),
    }
}

/// Copies the content of an entry. It is an error if the content is incomplete.
fn copy<R: Read>(entry: &mut Entry<'_, R>, file: &mut impl Write) -> Result<(), Fault> {
    let (mut buffer, mut copied) = (vec![0; 64 * 1024], 0);
    loop {
        match entry.read(&mut buffer) {
            Ok(0) if copied < entry.size() => {
                return Err(Fault::Input(io::Error::new(ErrorKind::UnexpectedEof, "the archive is truncated")));
            }
            Ok(0) => return Ok(()),
            Ok(n) => {
                file.write_all(&buffer[..n])?;
                copied += n as u64;
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(Fault::Input(e)),
        }
    }
}

/// Limits the number of bytes that the tar library reads while it collects the headers of an entry.
struct Limited<R> {
    input: R,
    /// The number of bytes that may still be read. None means no limit.
    left: Rc<Cell<Option<u64>>>,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(left) = self.left.get() else { return self.input.read(buffer) };
        let room = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if room == 0 && !buffer.is_empty() {
            return Err(io::Error::other("the headers of an entry are too long"));
        }
        let n = self.input.read(&mut buffer[..room])?;
        self.left.set(Some(left - n as u64));
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::Path;
    use tar::{Builder, Header};

    /// Adds an entry with exactly this path, which the library would refuse.
    fn add(archive: &mut Builder<Vec<u8>>, kind: EntryType, path: &str, to: &str, mode: u32, content: &[u8]) {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(content.len() as u64);
        let old = header.as_old_mut();
        old.name[..path.len()].copy_from_slice(path.as_bytes());
        old.linkname[..to.len()].copy_from_slice(to.as_bytes());
        header.set_cksum();
        archive.append(&header, content).unwrap();
    }

    fn file(archive: &mut Builder<Vec<u8>>, path: &str, content: &str) {
        add(archive, EntryType::Regular, path, "", 0o644, content.as_bytes());
    }

    /// Extracts `top` of an archive to the directory `target`. Returns the number of copied and skipped entries.
    fn extracted(archive: Builder<Vec<u8>>, target: &Path) -> (u64, usize) {
        let bytes = archive.into_inner().unwrap();
        let tree = Tree::open(target, Some("top")).unwrap();
        let mut skipped = Skipped::default();
        let copied = extract(&bytes[..], Some("top"), &tree, &mut skipped);
        (copied.unwrap(), skipped.count)
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn files_directories_and_links_are_copied_with_their_modes() {
        let dir = tempfile::tempdir().unwrap();
        let mut archive = Builder::new(Vec::new());
        add(&mut archive, EntryType::Directory, "./top/", "", 0o755, b"");
        add(&mut archive, EntryType::Directory, "./top/closed/", "", 0o500, b"");
        add(&mut archive, EntryType::Regular, "./top/closed/run", "", 0o4711, b"#!/bin/sh\n");
        file(&mut archive, "./top/deep/er/file", "content");
        add(&mut archive, EntryType::Symlink, "./top/deep/link", "../closed/run", 0o777, b"");
        add(&mut archive, EntryType::Link, "./top/hard", "./top/deep/er/file", 0o644, b"");
        assert_eq!(extracted(archive, dir.path()), (6, 0));
        let top = dir.path().join("top");
        assert_eq!(fs::read(top.join("deep/link")).unwrap(), b"#!/bin/sh\n");
        assert_eq!(fs::read(top.join("hard")).unwrap(), b"content");
        assert_eq!((mode(&top.join("closed")), mode(&top.join("closed/run"))), (0o500, 0o711));
        // Lets the temporary directory be removed.
        fs::set_permissions(top.join("closed"), fs::Permissions::from_mode(0o700)).unwrap();
    }

    #[test]
    fn nothing_is_written_outside_of_the_target() {
        let dir = tempfile::tempdir().unwrap();
        let (outside, target) = (dir.path().join("outside"), dir.path().join("target"));
        fs::create_dir_all(target.join("top")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "old").unwrap();
        // A link of the user that existed before.
        symlink(&outside, target.join("top/old")).unwrap();
        let absolute = outside.join("file").display().to_string();
        let mut archive = Builder::new(Vec::new());
        let hostile: [(EntryType, &str, &str); 15] = [
            (EntryType::Regular, "../outside/file", ""),
            (EntryType::Regular, "./top/../../outside/file", ""),
            (EntryType::Regular, &absolute, ""),
            (EntryType::Regular, "./other", ""),
            (EntryType::Regular, "./top/old/file", ""),
            (EntryType::Regular, "./top/old", ""),
            (EntryType::Symlink, "./top/a", "../../outside"),
            (EntryType::Symlink, "./top/b", &absolute),
            (EntryType::Symlink, "./top/c", "d/../../outside"),
            (EntryType::Symlink, "./top", "outside"),
            (EntryType::Link, "./top/e", "../outside/file"),
            (EntryType::Link, "./top/f", "./top/old/file"),
            (EntryType::Link, "./top/g", "./top/old"),
            (EntryType::Fifo, "./top/h", ""),
            (EntryType::Char, "./top/i", ""),
        ];
        for (kind, path, to) in hostile {
            add(&mut archive, kind, path, to, 0o666, if kind == EntryType::Regular { b"evil" } else { b"" });
        }
        // A link that leads inside, and a file through it.
        add(&mut archive, EntryType::Symlink, "./top/dir/up", "..", 0o777, b"");
        file(&mut archive, "./top/dir/up/through", "evil");
        // A link through a link: it would lead outside if `..` were permitted after a name.
        add(&mut archive, EntryType::Symlink, "./top/dir/out", "up/../outside", 0o777, b"");
        file(&mut archive, "./top/fine", "fine");
        assert_eq!(extracted(archive, &target), (2, hostile.len() + 2));
        assert_eq!(fs::read(outside.join("file")).unwrap(), b"old");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        assert_eq!(fs::read(target.join("top/fine")).unwrap(), b"fine");
        let mut names: Vec<_> = fs::read_dir(target.join("top")).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["dir", "fine", "old"]);
    }

    #[test]
    fn a_link_stays_inside_if_its_leading_dots_do() {
        for (depth, to, inside) in [
            (0, "a", true),
            (0, "./a/b", true),
            (0, "..", false),
            (1, "../a", true),
            (1, "../../a", false),
            (2, "a/..", false),
            (2, ".././../a", true),
            (9, "/a", false),
            (9, "", false),
        ] {
            assert_eq!(stays_inside(depth, to.as_bytes()), inside, "{depth} {to}");
        }
    }

    #[test]
    fn endless_headers_and_a_cut_archive_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::open(dir.path(), Some("top")).unwrap();
        // A file name with a length of a gigabyte.
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::GNULongName);
        header.set_size(1 << 30);
        header.set_cksum();
        let input = header.as_bytes().chain(io::repeat(b'x'));
        let copied = extract(input, Some("top"), &tree, &mut Skipped::default());
        assert!(copied.unwrap_err().to_string().contains("the headers of an entry are too long"));
        let mut archive = Builder::new(Vec::new());
        file(&mut archive, "./top/a", &"x".repeat(5000));
        let bytes = archive.into_inner().unwrap();
        let copied = extract(&bytes[..3000], Some("top"), &tree, &mut Skipped::default());
        assert_eq!(copied.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn memory_does_not_grow_with_closed_directories() {
        let mut deferred = Deferred::default();
        let path = vec![b'x'; 100_000];
        let kept = (0..1000).filter(|_| deferred.push(&path, 0o500)).count();
        let bytes: usize = deferred.directories.iter().map(|(full, _)| full.len()).sum();
        assert!(kept == 41 && bytes <= MAX_DEFERRED, "{kept} {bytes}");
        // Directories beyond the limit are reported as skipped.
        let dir = tempfile::tempdir().unwrap();
        let mut archive = Builder::new(Vec::new());
        for _ in 0..45 {
            let mut long = Header::new_gnu();
            let name = format!("./top/{}closed/", "./".repeat(50_000));
            long.set_entry_type(EntryType::GNULongName);
            long.set_size(name.len() as u64);
            long.set_cksum();
            archive.append(&long, name.as_bytes()).unwrap();
            add(&mut archive, EntryType::Directory, "./top/closed/", "", 0o500, b"");
        }
        assert_eq!(extracted(archive, dir.path()), (41, 4));
        let closed = dir.path().join("top/closed");
        assert_eq!(mode(&closed), 0o500);
        fs::set_permissions(closed, fs::Permissions::from_mode(0o700)).unwrap();
    }

    #[test]
    fn a_sparse_file_is_refused_before_its_zeros_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::open(dir.path(), Some("top")).unwrap();
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::GNUSparse);
        header.set_mode(0o644);
        header.set_size(0);
        let gnu = header.as_gnu_mut().unwrap();
        gnu.name[..5].copy_from_slice(b"top/a");
        gnu.set_real_size(1 << 30);
        gnu.sparse[0].set_offset(1 << 30);
        gnu.sparse[0].set_length(0);
        header.set_cksum();
        let mut archive = Builder::new(Vec::new());
        archive.append(&header, io::empty()).unwrap();
        let bytes = archive.into_inner().unwrap();
        let copied = extract(&bytes[..], Some("top"), &tree, &mut Skipped::default());
        assert!(copied.unwrap_err().to_string().starts_with("top/a: a sparse file, which cannot be copied"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_user_may_name_a_link_or_a_new_name() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("real"), "old, and longer").unwrap();
        symlink("real", dir.path().join("link")).unwrap();
        for target in ["link", "new"] {
            let mut archive = Builder::new(Vec::new());
            file(&mut archive, "./top", "content");
            assert_eq!(extracted(archive, &dir.path().join(target)), (1, 0));
        }
        for name in ["real", "new"] {
            assert_eq!(fs::read(dir.path().join(name)).unwrap(), b"content");
        }
    }
}
