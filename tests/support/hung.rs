//! A file system that never answers, like an NFS mount without its server: a FUSE mount whose server never reads a
//! request. Every access to the mount point or to a path below it blocks until the caller is killed or the mount
//! fails.
//!
//! This needs root and a kernel with FUSE. The test programs run in a separate mount namespace, so no other process
//! sees the mount. When the test program ends, the kernel closes the FUSE connection.

use rustix::fs::{CWD, FileType, Mode, OFlags, makedev, mknodat, open};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

const DEVICE: &str = "/dev/fuse";
/// The device numbers, to create the device node if it is missing.
const MAJOR: u32 = 10;
const MINOR: u32 = 229;

pub struct Hung {
    path: PathBuf,
    /// The server end of the connection. Requests wait while it is open, because nothing reads from it.
    server: Option<OwnedFd>,
}

impl Hung {
    /// Mounts the file system on a directory. Creates the directory if it is missing.
    pub fn mount(path: &Path) -> Hung {
        std::fs::create_dir_all(path).expect("the mount point");
        let server = device();
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
        let options = CString::new(options).expect("no NUL");
        mount("hung", path, "fuse", MountFlags::empty(), Some(options.as_c_str())).expect("mount a FUSE file system");
        Hung { path: path.to_owned(), server: Some(server) }
    }

    /// Closes the server end: pending and later accesses fail with ENOTCONN.
    pub fn fail(&mut self) {
        self.server = None;
    }

    /// Unmounts the file system. The files below the mount point become visible again.
    pub fn unmount(self) {}
}

impl Drop for Hung {
    fn drop(&mut self) {
        self.fail();
        // A lazy unmount: a process that was blocked may still use the mount.
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
