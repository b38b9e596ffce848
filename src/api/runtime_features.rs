//! The optional features that a container runtime reports in its status (CRI `StatusResponse`).

use serde::Serialize;
use std::collections::BTreeMap;

/// A runtime that reports nothing has none of the features.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuntimeFeatures {
    /// `supplementalGroupsPolicy: Strict`.
    pub supplemental_groups_policy: bool,
    pub image_volumes: ImageVolumes,
    /// The runtime handlers by name. The default handler has the empty name. Empty if the runtime does not report them.
    pub handlers: BTreeMap<String, HandlerFeatures>,
}

/// The features of one runtime handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HandlerFeatures {
    /// `recursiveReadOnly` of a mount.
    pub recursive_read_only_mounts: bool,
    /// `hostUsers: false`, also for pods with volumes.
    pub user_namespaces: bool,
}

impl RuntimeFeatures {
    /// The features of a handler; none if it is unknown.
    pub fn of_handler(&self, name: &str) -> HandlerFeatures {
        self.handlers.get(name).copied().unwrap_or_default()
    }
}

/// Whether the runtime has volumes with the source `image`. No field of the CRI tells. A runtime without them mounts an empty path,
/// or fails with an error that does not name the cause, and containerd 2.1 mounts the whole image instead of a `subPath`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum ImageVolumes {
    #[default]
    None,
    /// Without `subPath`.
    Whole,
    WithSubPaths,
}

impl ImageVolumes {
    /// From the runtime's name and version. Other runtimes than containerd and CRI-O decide themselves.
    ///
    /// Sources: the release notes of containerd 2.1 and 2.2, and of CRI-O 1.31 and 1.33.
    pub fn of(runtime: &str, version: &str) -> ImageVolumes {
        let (whole, with_sub_paths) = match runtime {
            "containerd" => ((2, 1), (2, 2)),
            "cri-o" => ((1, 31), (1, 33)),
            _ => return ImageVolumes::WithSubPaths,
        };
        let mut numbers = version.trim_start_matches('v').split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < whole => ImageVolumes::None,
            (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < with_sub_paths => ImageVolumes::Whole,
            _ => ImageVolumes::WithSubPaths,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_volumes_depend_on_the_version_of_the_runtime() {
        for (runtime, version, expected) in [
            ("containerd", "1.6.20~ds1", ImageVolumes::None),
            ("containerd", "v1.7.24", ImageVolumes::None),
            ("containerd", "2.0.5", ImageVolumes::None),
            ("containerd", "v2.1.0", ImageVolumes::Whole),
            ("containerd", "2.1.9~ds1", ImageVolumes::Whole),
            ("containerd", "2.2.0", ImageVolumes::WithSubPaths),
            ("containerd", "3.0.0", ImageVolumes::WithSubPaths),
            ("containerd", "unknown", ImageVolumes::WithSubPaths),
            ("cri-o", "1.30.4", ImageVolumes::None),
            ("cri-o", "1.31.0", ImageVolumes::Whole),
            ("cri-o", "1.33.0", ImageVolumes::WithSubPaths),
            ("other", "0.1", ImageVolumes::WithSubPaths),
        ] {
            assert_eq!(ImageVolumes::of(runtime, version), expected, "{runtime} {version}");
        }
    }
}
