//! The optional features of a container runtime: those that it reports in its status (CRI `StatusResponse`), and
//! those that follow from its name and version.

use crate::api::k8s;
use serde::Serialize;
use std::collections::BTreeMap;

/// A runtime that reports no features has none of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuntimeFeatures {
    /// `supplementalGroupsPolicy: Strict`.
    pub supplemental_groups_policy: bool,
    pub image_volumes: ImageVolumes,
    pub cdi_devices: CdiDevices,
    pub stop_signals: StopSignals,
    /// The runtime handlers by name. The default handler has the empty name. Empty if the runtime does not report them.
    pub handlers: BTreeMap<String, HandlerFeatures>,
}

/// The features of one runtime handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HandlerFeatures {
    /// `recursiveReadOnly` of a mount.
    pub recursive_read_only_mounts: bool,
    /// `hostUsers: false`, including for pods with volumes.
    pub user_namespaces: bool,
}

impl RuntimeFeatures {
    /// Returns the features of a handler. An unknown handler has none.
    pub fn of_handler(&self, name: &str) -> HandlerFeatures {
        self.handlers.get(name).copied().unwrap_or_default()
    }
}

/// Whether the runtime supports volumes with the source `image`. The CRI has no field for this. A runtime without
/// support mounts an empty path, or fails with an error that does not name the cause. containerd 2.1 mounts the whole
/// image instead of a `subPath`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum ImageVolumes {
    #[default]
    None,
    /// Without `subPath`.
    Whole,
    WithSubPaths,
}

impl ImageVolumes {
    /// Derives the support from the runtime's name and version. Runtimes other than containerd and CRI-O are assumed
    /// to have full support.
    ///
    /// Sources: the release notes of containerd 2.1 and 2.2, and of CRI-O 1.31 and 1.33.
    pub fn of(runtime: &str, version: &str) -> ImageVolumes {
        let (whole, with_sub_paths) = match runtime {
            "containerd" => ((2, 1), (2, 2)),
            "cri-o" => ((1, 31), (1, 33)),
            _ => return ImageVolumes::WithSubPaths,
        };
        match numbers(version) {
            Some(version) if version < whole => ImageVolumes::None,
            Some(version) if version < with_sub_paths => ImageVolumes::Whole,
            _ => ImageVolumes::WithSubPaths,
        }
    }
}

/// Whether the runtime gives a container the devices of the Container Device Interface (CDI) that a CRI request
/// names. The CRI has no field for this. A runtime without support ignores the names and starts the container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum CdiDevices {
    #[default]
    Ignored,
    /// Unless the configuration of the runtime disables CDI.
    Supported,
}

impl CdiDevices {
    /// Derives the support from the runtime's name and version. containerd supports CDI since 1.7 (release notes).
    /// Other runtimes support it in all versions that implement today's CRI v1 API.
    pub fn of(runtime: &str, version: &str) -> CdiDevices {
        match numbers(version) {
            Some(version) if runtime == "containerd" && version < (1, 7) => CdiDevices::Ignored,
            _ => CdiDevices::Supported,
        }
    }
}

/// How the runtime shows that it honours `lifecycle.stopSignal`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum StopSignals {
    /// The status of a container contains the signal, as the CRI requires. If it does not, the runtime ignores the
    /// signal in the spec.
    #[default]
    Reported,
    /// The runtime honours the signal in the spec without reporting it.
    Unreported,
}

impl StopSignals {
    /// Derives the behaviour from the runtime's name and version. CRI-O honours the signal since 1.33 (according to
    /// its source), but 1.37 does not report it yet.
    pub fn of(runtime: &str, version: &str) -> StopSignals {
        match numbers(version) {
            Some(version) if runtime == "cri-o" && version >= (1, 33) => StopSignals::Unreported,
            _ => StopSignals::Reported,
        }
    }

    /// Returns the signal that ends a container. None if it is unknown.
    pub fn of_container<'s>(self, spec: &'s k8s::Container, reported: Option<&'s str>) -> Option<&'s str> {
        match self {
            StopSignals::Reported => reported,
            StopSignals::Unreported => reported.or(spec.lifecycle.as_ref()?.stop_signal.as_deref()),
        }
    }
}

/// Returns the first two numbers of a version.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.trim_start_matches('v').split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containerd_has_cdi_devices_since_1_7() {
        for (runtime, version, expected) in [
            ("containerd", "1.6.20~ds1", CdiDevices::Ignored),
            ("containerd", "v1.7.0", CdiDevices::Supported),
            ("containerd", "2.1.9", CdiDevices::Supported),
            ("cri-o", "1.34.1", CdiDevices::Supported),
        ] {
            assert_eq!(CdiDevices::of(runtime, version), expected, "{runtime} {version}");
        }
    }

    #[test]
    fn cri_o_honours_stop_signals_without_reporting_them() {
        let mut spec = k8s::Container::default();
        spec.lifecycle.get_or_insert_default().stop_signal = Some("SIGUSR1".to_owned());
        for (runtime, version, reported, expected) in [
            ("containerd", "2.2.0", Some("SIGUSR1"), Some("SIGUSR1")),
            ("containerd", "2.1.0", None, None),
            ("cri-o", "1.32.9", None, None),
            ("cri-o", "1.33.0", None, Some("SIGUSR1")),
            ("cri-o", "1.99.0", Some("SIGTERM"), Some("SIGTERM")),
        ] {
            let signals = StopSignals::of(runtime, version);
            assert_eq!(signals.of_container(&spec, reported), expected, "{runtime} {version}");
        }
        assert_eq!(StopSignals::Unreported.of_container(&k8s::Container::default(), None), None);
    }

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
