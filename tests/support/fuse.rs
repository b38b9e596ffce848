//! A FUSE file system with one directory, served by a thread of the test. A test can make individual names hang: the
//! server then reads the request of the kernel and never replies.

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Operation codes of the FUSE protocol (linux/fuse.h).
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const OPENDIR: u32 = 27;
const READDIR: u32 = 28;
const RELEASEDIR: u32 = 29;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

/// FUSE_PARALLEL_DIROPS: lookups in one directory run in parallel.
const PARALLEL: u32 = 1 << 18;

const ENOENT: i32 = -2;
const ENOSYS: i32 = -38;
const ROOT: u64 = 1;

#[derive(Default)]
struct Content {
    files: BTreeMap<String, Vec<u8>>,
    /// Names that hang. The empty name is the root directory.
    hung: BTreeSet<String>,
}

/// The mount. Dropping it unmounts the file system and ends all pending accesses.
pub struct Fuse {
    point: PathBuf,
    content: Arc<Mutex<Content>>,
}

impl Fuse {
    /// Mounts the file system on a directory.
    pub fn mount(point: &Path) -> Fuse {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let device = rustix::fs::open("/dev/fuse", flags, Mode::empty()).expect("open /dev/fuse");
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        let options = std::ffi::CString::new(options).expect("options");
        rustix::mount::mount("a-server", point, "fuse", MountFlags::empty(), options.as_c_str()).expect("mount fuse");
        let content = Arc::new(Mutex::new(Content::default()));
        let (mut device, shared) = (File::from(device), content.clone());
        std::thread::spawn(move || {
            let mut buffer = vec![0; 128 << 10];
            // The read fails once the file system is unmounted.
            while let Ok(length) = device.read(&mut buffer) {
                let answer = shared.lock().ok().and_then(|content| content.answer(&buffer[..length]));
                if let Some((error, body)) = answer {
                    let mut text = Vec::new();
                    text.extend_from_slice(&(16 + body.len() as u32).to_ne_bytes());
                    text.extend_from_slice(&error.to_ne_bytes());
                    text.extend_from_slice(&buffer[8..16]);
                    text.extend_from_slice(&body);
                    let _ = device.write(&text);
                }
            }
        });
        Fuse { point: point.to_owned(), content }
    }

    pub fn put(&self, name: &str, text: &str) {
        self.content.lock().expect("content").files.insert(name.to_owned(), text.as_bytes().to_vec());
    }

    /// Makes a name hang: later requests for it get no reply. The empty name is the root directory.
    pub fn hang(&self, name: &str) {
        self.content.lock().expect("content").hung.insert(name.to_owned());
    }

    pub fn answer_again(&self, name: &str) {
        self.content.lock().expect("content").hung.remove(name);
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        let flags = UnmountFlags::FORCE | UnmountFlags::DETACH;
        let _ = rustix::mount::unmount(&self.point, flags);
    }
}

impl Content {
    /// Returns the reply. None if the request gets no reply.
    fn answer(&self, request: &[u8]) -> Option<(i32, Vec<u8>)> {
        let u32_at = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap_or_default());
        let u64_at = |at: usize| u64::from_ne_bytes(request[at..at + 8].try_into().unwrap_or_default());
        let (operation, node, body) = (u32_at(4), u64_at(16), &request[40..]);
        let name = if operation == LOOKUP {
            String::from_utf8_lossy(body.strip_suffix(b"\0").unwrap_or(body)).into_owned()
        } else {
            self.name(node)
        };
        if self.hung.contains(&name) && operation != INIT {
            return None;
        }
        let found = self.files.get(&name);
        match operation {
            INIT => {
                let mut out = [7u32, 31, 4096, PARALLEL, 0, 4096, 1].map(u32::to_ne_bytes).concat();
                out.resize(64, 0);
                Some((0, out))
            }
            LOOKUP => match found {
                Some(text) => {
                    let id = self.id(&name);
                    let mut out = [id, 0, 0, 0, 0].map(u64::to_ne_bytes).concat();
                    out.extend(attributes(id, text.len() as u64));
                    Some((0, out))
                }
                None => Some((ENOENT, Vec::new())),
            },
            GETATTR => {
                let mut out = vec![0; 16];
                out.extend(attributes(node, found.map_or(0, Vec::len) as u64));
                Some((0, out))
            }
            // FOPEN_DIRECT_IO: the kernel caches nothing, and the server receives each read.
            OPEN | OPENDIR => Some((0, [0u64, u64::from(operation == OPEN)].map(u64::to_ne_bytes).concat())),
            READ => {
                let (offset, size) = (u64_at(48) as usize, u32_at(56) as usize);
                let text = found.map_or(&[][..], Vec::as_slice);
                Some((0, text.iter().skip(offset).take(size).copied().collect()))
            }
            READDIR => Some((0, self.entries(u64_at(48)))),
            FORGET | BATCH_FORGET | INTERRUPT => None,
            FLUSH | RELEASE | RELEASEDIR => Some((0, Vec::new())),
            _ => Some((ENOSYS, Vec::new())),
        }
    }

    fn id(&self, name: &str) -> u64 {
        self.files.keys().position(|n| n == name).map_or(ROOT, |at| at as u64 + 2)
    }

    fn name(&self, node: u64) -> String {
        node.checked_sub(2).and_then(|at| self.files.keys().nth(at as usize)).cloned().unwrap_or_default()
    }

    fn entries(&self, offset: u64) -> Vec<u8> {
        let mut out = Vec::new();
        for (at, name) in self.files.keys().enumerate().skip(offset as usize) {
            out.extend([at as u64 + 2, at as u64 + 1].map(u64::to_ne_bytes).concat());
            out.extend([name.len() as u32, 8].map(u32::to_ne_bytes).concat());
            out.extend(name.as_bytes());
            out.resize(out.len().next_multiple_of(8), 0);
        }
        out
    }
}

/// Returns the attributes (struct fuse_attr) of a regular file or of the root directory.
fn attributes(node: u64, size: u64) -> Vec<u8> {
    const LONG_AGO: u64 = 1_000_000_000;
    let mut out = [node, size, 1, LONG_AGO, LONG_AGO, LONG_AGO].map(u64::to_ne_bytes).concat();
    let mode = if node == ROOT { 0o040_755 } else { 0o100_644 };
    out.extend([0u32, 0, 0, mode, 1, 0, 0, 0, 4096, 0].map(u32::to_ne_bytes).concat());
    out
}
