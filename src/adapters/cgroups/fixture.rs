//! Hierarchies and cgroup names for the tests of this module.

use super::hierarchies::Hierarchy;
use crate::api::cgroups::{CgroupDriver, CgroupNames};

pub(super) fn hierarchy(mount_point: &str, controllers: &[&str], unified: bool) -> Hierarchy {
    let controllers = controllers.iter().map(|c| (*c).to_owned()).collect();
    Hierarchy { mount_point: mount_point.into(), root: "/".into(), unified, controllers }
}

pub(super) fn names(driver: CgroupDriver) -> CgroupNames {
    CgroupNames { root: "/".into(), driver, per_qos: true }
}
