//! Sets up an emptyDir. The file `ready`, in a directory that containers cannot reach, marks a volume as set up: its
//! files then belong to the containers, and a restarted Wherry does not change their owners again.

use super::error::{Cause, SystemCallFailure};
use super::mounts::{self, FileSystem};
use super::ownership::{self, GroupAccess};
use super::paths::PodPaths;
use crate::api::volume::{FsGroup, Medium};
use rustix::fs::{Mode, OFlags};

/// All users may write to a volume, as in a kubelet.
pub(super) const MODE: u32 = 0o777;

pub(super) fn set_up(
    paths: &PodPaths,
    directory: &str,
    marker: &str,
    medium: Medium,
    fs_group: Option<FsGroup>,
) -> Result<(), Cause> {
    let file = format!("{marker}/ready");
    let fs = match medium {
        Medium::Disk => None,
        Medium::Memory { size } => Some(FileSystem::Tmpfs { size }),
        Medium::HugePages { page_size, size } => Some(FileSystem::Hugetlbfs { page_size, size }),
    };
    paths.create(directory, MODE)?;
    let mounted = match &fs {
        None => true,
        Some(fs) => mounts::is_mounted(directory, fs)?,
    };
    if mounted && std::path::Path::new(&file).exists() {
        return Ok(());
    }
    if let Some(fs) = &fs {
        mounts::mount(directory, fs)?;
    }
    if let Some(group) = fs_group {
        ownership::give_all(directory, group, GroupAccess::Write)?;
    }
    paths.create(marker, 0o750)?;
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(&file, flags, Mode::from_raw_mode(0o640)).map_err(SystemCallFailure::of("create file", &file))?;
    Ok(())
}
