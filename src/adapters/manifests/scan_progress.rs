//! The progress of the scans of the directory, and the result of the last scan.

use super::file::Stamp;
use super::store::MountPlace;
use crate::adapters::mount_table::Mount;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanStage {
    /// No scan has started.
    New,
    /// The first scan is running.
    First,
    /// The desired pods are known (D1).
    Read,
}

/// The directory at the last scan.
#[derive(Debug)]
pub(super) struct ScannedDirectory {
    /// The path without links.
    pub(super) real: PathBuf,
    pub(super) identity: Stamp,
    pub(super) mount: Option<Mount>,
}

/// A scan in progress.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) names: BTreeSet<OsString>,
    /// Names that have not been inspected yet.
    pub(super) left: BTreeSet<OsString>,
    /// Time after which a file that is not in `names` is considered removed.
    pub(super) gone: Duration,
    /// The recorded mount, if the current one differs or is unknown.
    pub(super) doubt: Option<MountPlace>,
}
