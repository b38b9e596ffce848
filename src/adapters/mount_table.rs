//! The mount table from /proc/self/mountinfo: finds the mount of a path, and decides whether its file system is
//! foreign (served by another machine or program).
//!
//! The table also has the device and the options of a mount, and every line of it has the same escapes.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::io::Read as _;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The mount table of this process.
pub(super) const TABLE: &str = "/proc/self/mountinfo";
/// The size of most mount tables, in bytes. A longer table needs more reads.
const USUAL: usize = 16 << 10;
/// Maximum size in bytes; the rest is ignored.
const MOST: u64 = 64 << 20;

/// The types of foreign file systems, which a server or another process serves. They can hang, and inotify does not
/// report changes made on the other side. Types that start with `fuse` (such as `fuse.sshfs`) are recognized by that
/// prefix.
const FOREIGN: [&str; 20] = [
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "virtiofs", "ceph", "afs", "coda", "lustre", "gfs2", "ocfs2",
    "orangefs", "beegfs", "gpfs", "vboxsf", "vmhgfs", "autofs", "ncpfs",
];

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mount {
    /// Unique among the mounts that exist at the same time.
    pub(super) id: u64,
    parent: u64,
    /// The mount point. Bytes that are not UTF-8 are replaced, because this text is only recorded and shown.
    pub(super) point: String,
    /// The type of the file system: `ext4`, `nfs4`.
    pub(super) kind: String,
    /// The device, or the server and its directory.
    pub(super) source: String,
}

impl Mount {
    /// Reports whether the file system is foreign: the kernel of this machine does not serve it alone.
    pub(super) fn is_foreign(&self) -> bool {
        self.kind.starts_with("fuse") || FOREIGN.contains(&self.kind.as_str())
    }
}

/// What only a check of the machine needs to know about a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MountDetails {
    /// The numbers of the device: `179:2`.
    pub(super) device: String,
    /// The options of the file system, separated by commas.
    pub(super) options: String,
}

/// All mounts. A machine with many containers has hundreds, and each start of a container changes them, so only the
/// kernel's text is kept, and a `Mount` is created only for a row that is requested.
#[derive(Debug, Default)]
pub(super) struct Table {
    text: Vec<u8>,
    rows: Vec<MountRow>,
}

/// A line such as `36 35 98:0 /root /point rw,noatime master:1 - ext4 /dev/sda1 rw`.
#[derive(Debug)]
struct MountRow {
    id: u64,
    parent: u64,
    /// The position of the mount point in the text of the table, including its escapes.
    point: Range<usize>,
    /// The end of the line, as a position in the table's text.
    end: usize,
}

impl Table {
    /// Reads the table; returns an empty one if that fails. Reading from /proc never blocks.
    pub(super) fn read(mountinfo: &Path) -> Table {
        // Reserve the usual size instead of asking for it, because /proc reports no size.
        let mut text = Vec::with_capacity(USUAL);
        let read = std::fs::File::open(mountinfo).and_then(|file| file.take(MOST).read_to_end(&mut text));
        if read.is_ok() { Table::parse(text) } else { Table::default() }
    }

    pub(super) fn parse(text: impl Into<Vec<u8>>) -> Table {
        let text = text.into();
        let mut begin = 0;
        let lines = text.split(|byte| *byte == b'\n').map(|line| {
            let at = begin;
            begin += line.len() + 1;
            row(line, at)
        });
        let rows = lines.flatten().collect();
        Table { text, rows }
    }

    pub(super) fn by_id(&self, id: u64) -> Option<Mount> {
        self.rows.iter().find(|row| row.id == id).map(|row| self.mount(row))
    }

    /// Returns the mount of an absolute path without symbolic links, which need not exist; None if the table has no
    /// such mount.
    pub(super) fn of(&self, path: &Path) -> Option<Mount> {
        // One slash between two names, as the kernel writes them.
        let path: PathBuf = path.components().collect();
        let on_path: Vec<&MountRow> =
            self.rows.iter().filter(|row| self.holds(row, path.as_os_str().as_bytes())).collect();
        // The parent of the root is not in the table.
        let is_root = |row: &MountRow| row.parent == row.id || !self.rows.iter().any(|other| other.id == row.parent);
        let mut here = on_path.iter().filter(|row| is_root(row)).max_by_key(|row| row.point.len())?;
        // Descends from each mount to its first child mount on the path. A mount that a later one hides is never
        // reached.
        for _ in 0..on_path.len() {
            let below = on_path.iter().filter(|row| row.parent == here.id && row.id != here.id);
            let Some(next) = below.min_by_key(|row| row.point.len()) else { break };
            here = next;
        }
        Some(self.mount(here))
    }

    pub(super) fn details(&self, mount: &Mount) -> Option<MountDetails> {
        let row = self.rows.iter().find(|row| row.id == mount.id)?;
        let before = self.text[..row.point.start].rsplit(|byte| *byte == b'\n').next()?;
        let device = before.split(|byte| *byte == b' ').nth(2)?;
        let options = self.of_file_system(row).nth(2)?;
        Some(MountDetails { device: shown(device), options: shown(options) })
    }

    /// Returns the fields after the dash: the type, the source, the options.
    fn of_file_system(&self, row: &MountRow) -> impl Iterator<Item = &[u8]> {
        let rest = self.text[row.point.end..row.end].split(|byte| *byte == b' ');
        rest.skip_while(|field| *field != b"-").skip(1)
    }

    /// Returns true if the mount point is the path or a directory above it.
    fn holds(&self, row: &MountRow, path: &[u8]) -> bool {
        let point = unescaped(&self.text[row.point.clone()]);
        let below = path.strip_prefix(&*point);
        below.is_some_and(|below| below.is_empty() || below[0] == b'/' || *point == *b"/")
    }

    fn mount(&self, row: &MountRow) -> Mount {
        let mut fields = self.of_file_system(row);
        let mut next = || shown(fields.next().unwrap_or_default());
        let (kind, source) = (next(), next());
        Mount { id: row.id, parent: row.parent, point: shown(&self.text[row.point.clone()]), kind, source }
    }
}

/// Parses a line that begins at this offset of the table.
fn row(line: &[u8], at: usize) -> Option<MountRow> {
    let mut offset = at;
    let mut fields = line.split(|byte| *byte == b' ').map(|field| {
        let begin = offset;
        offset += field.len() + 1;
        (begin, field)
    });
    let mut number = || std::str::from_utf8(fields.next()?.1).ok()?.parse().ok();
    let (id, parent) = (number()?, number()?);
    let (begin, point) = fields.nth(2)?;
    Some(MountRow { id, parent, point: begin..begin + point.len(), end: at + line.len() })
}

/// Decodes a field. Bytes that are not UTF-8 are replaced.
pub(super) fn shown(field: &[u8]) -> String {
    String::from_utf8_lossy(&unescaped(field)).into_owned()
}

/// Decodes a field. Space, tab, newline, `#` and backslash are written as octal escapes such as `\040`.
pub(super) fn unescaped(field: &[u8]) -> Cow<'_, [u8]> {
    if !field.contains(&b'\\') {
        return Cow::Borrowed(field);
    }
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, more)) = rest.split_first() {
        let octal = more.get(..3).filter(|digits| *first == b'\\' && digits.iter().all(|d| (b'0'..b'8').contains(d)));
        match octal {
            Some(digits) => {
                plain.push(digits.iter().fold(0u8, |n, d| n.wrapping_mul(8).wrapping_add(d - b'0')));
                rest = &more[3..];
            }
            None => {
                plain.push(*first);
                rest = more;
            }
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(text: &str, path: &str) -> Option<String> {
        Table::parse(text.as_bytes()).of(Path::new(path)).map(|mount| mount.point)
    }

    #[test]
    fn d2_the_mount_of_a_path_is_the_innermost_one() {
        let text = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 22 0:20 / /etc/wherry rw shared:1 - tmpfs tmpfs rw\n\
                    24 23 0:21 / /etc/wherry/man rw - tmpfs tmpfs rw\n25 22 0:22 / /a\\040b rw - tmpfs tmpfs rw\n";
        for (path, point) in [
            ("/etc/wherry/manifests", "/etc/wherry"),
            ("/etc/wherry/man", "/etc/wherry/man"),
            ("/etc/other", "/"),
            ("/etc/wherry2", "/"),
            ("/etc//wherry/", "/etc/wherry"),
            ("/a b/c", "/a b"),
            ("/", "/"),
        ] {
            assert_eq!(points(text, path).as_deref(), Some(point), "{path}");
        }
        assert_eq!(points("", "/"), None);
        assert_eq!(points("nonsense\n\n1 2\n", "/"), None);
    }

    #[test]
    fn a_field_is_read_as_it_is_named() {
        assert_eq!(&*unescaped(br"/a\040b\134c\011\9"), b"/a b\\c\t\\9");
        assert_eq!(shown(br"/a\040b\134c\x"), "/a b\\c\\x");
    }

    #[test]
    fn the_details_of_a_mount_are_its_device_and_its_options() {
        let text = "22 1 179:2 / / rw,noatime shared:1 - ext4 /dev/root rw,errors=continue\n\
                    23 22 0:9 / /a rw - overlay overlay rw,upperdir=/up\\040per\n24 22 0:1 / /short rw - tmpfs\n";
        let table = Table::parse(text.as_bytes());
        let details = |path: &str| table.details(&table.of(Path::new(path)).unwrap());
        let of = |device: &str, options: &str| Some(MountDetails { device: device.into(), options: options.into() });
        assert_eq!(details("/x"), of("179:2", "rw,errors=continue"));
        assert_eq!(details("/a/b"), of("0:9", "rw,upperdir=/up per"));
        assert_eq!(details("/short"), None);
    }

    #[test]
    fn a_mount_hides_earlier_mounts_below_it_and_a_reused_id_is_harmless() {
        // /x/m was mounted first, then a file system on /x, then another one on /x with a smaller id.
        let text = "22 1 8:1 / / rw - ext4 a rw\n30 22 0:1 / /x/m rw - nfs4 server:/m rw\n\
                    31 22 0:2 / /x rw - ext4 b rw\n\
                    25 31 0:3 / /x rw - ext4 c rw\n";
        let table = Table::parse(text.as_bytes());
        assert_eq!(table.of(Path::new("/x/m/a.yaml")).map(|m| m.source).as_deref(), Some("c"));
    }

    #[test]
    fn file_systems_served_by_another_machine_or_program_are_foreign() {
        let foreign = |kind: &str| {
            let text = format!("1 0 0:1 / / rw shared:1 - {kind} source rw\n");
            Table::parse(text.as_bytes()).of(Path::new("/x")).is_some_and(|mount| mount.is_foreign())
        };
        for kind in ["nfs", "nfs4", "cifs", "9p", "virtiofs", "fuse", "fuse.sshfs", "fuseblk", "ceph", "autofs"] {
            assert!(foreign(kind), "{kind}");
        }
        for kind in ["ext4", "tmpfs", "overlay", "btrfs", "xfs", "vfat", "squashfs"] {
            assert!(!foreign(kind), "{kind}");
        }
    }
}
