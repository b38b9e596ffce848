//! A file system that never answers, as an NFS mount whose server is gone: a FUSE mount whose server never reads a request.
//! Every access to the mount point or to a path below it blocks until the caller is killed or the mount fails.
//!
//! It needs root and a kernel with FUSE. The lab's programs run in a mount namespace of their own, so no other process sees
//! it; if the test program ends, however hard, the kernel ends the connection.

use rustix::fs::{CWD, FileType, Mode, OFlags, makedev, mknodat, open};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

const DEVICE: &str = "/dev/fuse";
/// Its numbers, for a machine on which nothing has made it.
const MAJOR: u32 = 10;
const MINOR: u32 = 229;

pub struct Hung {
    path: PathBuf,
    /// The server's end. While it is open and nothing reads from it, all requests wait.
    server: Option<OwnedFd>,
}

impl Hung {
    /// Mounts it at a directory, which is made if it is missing.
    pub fn mount(path: &Path) -> Hung {
        std::fs::create_dir_all(path).expect("the mount point");
        let server = device();
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
        let options = CString::new(options).expect("no NUL");
        mount("hung", path, "fuse", MountFlags::empty(), Some(options.as_c_str())).expect("mount a FUSE file system");
        Hung { path: path.to_owned(), server: Some(server) }
    }

    /// Whatever waits, and every later access, fails at once with ENOTCONN: the server is gone for good.
    pub fn fail(&mut self) {
        self.server = None;
    }

    /// Takes the mount away; what was below the mount point is visible again.
    pub fn unmount(self) {}
}

impl Drop for Hung {
    fn drop(&mut self) {
        self.fail();
        // (Lazily: a process that waited may still hold it.)
        let _ = unmount(&self.path, UnmountFlags::DETACH);
    }
}

fn device() -> OwnedFd {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match open(DEVICE, flags, Mode::empty()) {
        Err(Errno::NOENT) => {
            let mode = Mode::from_raw_mode(0o600);
            match mknodat(CWD, DEVICE, FileType::CharacterDevice, mode, makedev(MAJOR, MINOR)) {
                Ok(()) | Err(Errno::EXIST) => open(DEVICE, flags, Mode::empty()),
                Err(e) => Err(e),
            }
        }
        other => other,
    }
    .unwrap_or_else(|e| panic!("open {DEVICE}: {e}: this test needs root and a kernel with FUSE (modprobe fuse)"))
}
