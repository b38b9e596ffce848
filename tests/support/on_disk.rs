//! A root directory on a file system of its own, an ext4 in a file.

use super::agent::Agent;
use super::lab::{Runtime, run, text};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An agent whose root directory is an ext4. Dropping it unmounts the file system, and the kernel then frees its device.
pub struct OnDisk {
    pub agent: Agent,
}

impl OnDisk {
    pub fn prepare(name: &str) -> OnDisk {
        OnDisk::prepare_on(name, &Runtime::shared())
    }

    pub fn prepare_on(name: &str, runtime: &Runtime) -> OnDisk {
        let on = OnDisk { agent: Agent::prepare(name, runtime) };
        fs::File::create(on.image()).and_then(|file| file.set_len(256 << 20)).expect("an image");
        // Blocks of 4 kB, as on a real card. Without the work that ext4 otherwise does in the background after the
        // first mount.
        let lazy = "lazy_itable_init=0,lazy_journal_init=0";
        run("mkfs.ext4", &["-q", "-b", "4096", "-E", lazy, text(&on.image())]);
        fs::create_dir_all(on.agent.root()).expect("the root directory");
        on.mount();
        on
    }

    pub fn image(&self) -> PathBuf {
        self.agent.dir.join("root.ext4")
    }

    pub fn mount(&self) {
        self.mount_image(&self.image());
    }

    fn mount_image(&self, image: &Path) {
        run("mount", &["-o", "loop,noatime,errors=remount-ro", text(image), text(&self.agent.root())]);
    }

    /// Repairs and mounts what is on the disk, as a boot after an error does. It is a copy, because the file system stays
    /// in use as long as a process has it.
    pub fn mount_repaired(&self) {
        let copy = self.agent.dir.join("repaired.ext4");
        run("cp", &["--sparse=always", text(&self.image()), text(&copy)]);
        // Exit code 1: errors were corrected.
        let repair = Command::new("e2fsck").args(["-fy", text(&copy)]).output().expect("e2fsck");
        assert!(repair.status.code().is_some_and(|code| code <= 1), "{repair:?}");
        self.mount_image(&copy);
    }

    /// Unmounts the file system, also while the agent has a file of it open.
    pub fn unmount(&self) {
        run("umount", &["-l", text(&self.agent.root())]);
    }

    pub fn remount(&self, options: &str) {
        run("mount", &["-o", &format!("remount,{options}"), text(&self.agent.root())]);
    }

    /// Returns the path of the block device in /sys.
    pub fn device(&self) -> PathBuf {
        let device = fs::metadata(self.agent.root()).expect("the root directory").dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).expect("a block device")
    }
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        // A lazy unmount: the agent may still use the directory.
        let _ = Command::new("umount").arg("-l").arg(self.agent.root()).status();
    }
}
