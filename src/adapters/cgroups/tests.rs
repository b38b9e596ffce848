use super::fixture::{hierarchy, names};
use super::*;
use crate::api::k8s;
use crate::api::names::FullName;
use crate::api::source::Source;
use std::path::PathBuf;
use std::rc::Rc;

struct Place {
    dir: tempfile::TempDir,
    cgroups: PodCgroups,
}

impl Place {
    /// Sets up a cgroup file system with the cpu controller, and a runtime that uses cgroupfs.
    fn new() -> Place {
        Place::with(names(CgroupDriver::Cgroupfs))
    }

    fn with(names: CgroupNames) -> Place {
        let dir = tempfile::tempdir().unwrap();
        let hierarchies = vec![hierarchy(dir.path().to_str().unwrap(), &["cpu"], false)];
        let tree = Tree::new(Cgroups { hierarchies, names: names.clone() });
        let settings = CgroupSettings {
            names,
            rules: PodRules { cpu_cfs_quota: true, cpu_cfs_period: 100_000, pids_limit: None, huge_page_sizes: vec![] },
            capacity: Resources::default(),
            reserved: Resources::default(),
        };
        Place { dir, cgroups: PodCgroups::on(Ok(tree), settings, Token(0)) }
    }

    fn path(&self, cgroup: &str) -> PathBuf {
        self.dir.path().join(cgroup)
    }

    /// Makes a call, and returns its results without those for the metrics.
    fn call(&mut self, op: u64, call: CgroupCall) -> Vec<CgroupResult> {
        self.cgroups.call(OpId(op), call, Boot(0));
        let mut results = self.cgroups.take_results();
        results.retain(|r| !matches!(r, CgroupResult::Counted { .. }));
        results
    }
}

fn pod() -> Rc<Pod> {
    Rc::new(Pod {
        ephemeral: Vec::new(),
        uid: Uid::from("u1"),
        name: FullName::new("default", "web"),
        source: Source { path: String::new(), document: 1 },
        digest: String::new(),
        object: k8s::Pod { spec: Some(k8s::PodSpec::default()), ..Default::default() },
    })
}

fn done(op: u64) -> Vec<CgroupResult> {
    vec![CgroupResult::Done { op: OpId(op), result: Ok(Answer::Ok) }]
}

#[test]
fn a_pod_gets_its_cgroup_below_the_levels_and_loses_only_its_own() {
    let mut place = Place::new();
    assert_eq!(place.call(1, CgroupCall::Make { pod: pod() }), done(1));
    assert!(place.path("kubepods/besteffort/podu1").is_dir() && place.path("kubepods/burstable").is_dir());
    assert_eq!(place.call(2, CgroupCall::Remove { uid: Uid::from("u1"), kill: false }), done(2));
    assert!(!place.path("kubepods/besteffort/podu1").exists() && place.path("kubepods/besteffort").is_dir());
}

#[test]
fn a_cpu_weight_waits_until_the_driver_is_known() {
    let mut place = Place::new();
    assert_eq!(place.call(1, CgroupCall::SetCpuWeight { burstable: 300 }), done(1));
    assert!(!place.path("kubepods").exists());
    place.cgroups.take_driver(None, Boot(0));
    assert!(place.path("kubepods/burstable").is_dir());
}

#[test]
fn a_forced_removal_runs_on_a_helper_thread() {
    let mut place = Place::new();
    let uid = Uid::from("u1");
    let results = place.call(1, CgroupCall::Remove { uid: uid.clone(), kill: true });
    assert_eq!(results, [CgroupResult::RemoveByForce { op: OpId(1), uid }]);
}

#[test]
fn without_cgroups_per_qos_nothing_is_created() {
    let mut place = Place::with(CgroupNames { per_qos: false, ..names(CgroupDriver::Cgroupfs) });
    assert_eq!(place.call(1, CgroupCall::Make { pod: pod() }), done(1));
    assert!(!place.path("kubepods").exists());
}
