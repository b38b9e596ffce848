//! C13: two machines act as one node.

use crate::stories::cluster::cluster;
use crate::story::{IMAGE, ONE};
use crate::world::pair::Pair;
use crate::world::{S, World};

/// A machine of that name, which has not started.
fn machine(id: &str) -> World {
    let mut config = cluster();
    config.fixed.owner = format!("root-{id}");
    config.fixed.boot_id = format!("boot-{id}");
    config.fixed.seed += u64::from(id.as_bytes()[0]);
    let info = &mut config.cluster.as_mut().unwrap().info;
    // The disk is a copy.
    (info.machine_id, info.system_uuid, info.boot_id) = ("disk".into(), format!("uuid-{id}"), format!("boot-{id}"));
    let mut w = World::new(config);
    w.runtime.images.insert(IMAGE.into());
    w.history = Some(Vec::new());
    w
}

/// Two machines run the pod `web` of the node.
fn pair() -> Pair {
    let mut pair = Pair::new(machine("a"), machine("b"));
    pair.change(0, |w| {
        w.start();
        w.api_pod("web", "uid-1", ONE);
        // The checks of statuses know one machine.
        w.checks.of_server.clear();
    });
    pair.run(60);
    pair.change(1, World::start);
    pair.run(60);
    pair
}

fn conflicts(w: &World) -> usize {
    w.notices("NodeNameConflict").len()
}

#[test]
fn c13_two_machines_with_one_name_notice_each_other_and_do_not_fight() {
    let mut pair = pair();
    for number in [0, 1] {
        let w = pair.machine(number);
        assert_eq!(conflicts(w), 1, "{number}: {}", w.trace());
        let message = w.notices("NodeNameConflict").concat();
        assert!(message.contains(["uuid-b", "uuid-a"][number]) && message.contains("wherry leave"), "{message}");
        assert!(w.runs("web/main"), "{number}: {}", w.trace());
        assert!(w.api.requests.len() < 60, "{number}: {:?}", w.api.requests);
        w.api.requests.clear();
    }
    assert!(pair.machine(0).api.events().contains(&"NodeNameConflict".to_owned()));
    // At rest.
    pair.run(3600);
    for number in [0, 1] {
        let w = pair.machine(number);
        let (statuses, all) = (w.api.count("PATCH /api/v1/nodes/lab/status"), w.api.requests.len());
        assert!(statuses <= 15 && all <= 400, "{number}: {statuses} of {all}");
        assert_eq!((w.api.count("PATCH /api/v1/namespaces/default/pods"), w.api.count("DELETE")), (0, 0), "{number}");
        assert_eq!(conflicts(w), 1, "once");
    }
}

#[test]
fn c13_a_change_of_a_pod_on_one_of_two_machines_is_reported_once() {
    let mut pair = pair();
    pair.change(0, |w| {
        w.api.requests.clear();
        w.exit_of("web/main", 1);
    });
    pair.machine(1).api.requests.clear();
    pair.run(300);
    let patches = |w: &mut World| w.api.count("PATCH /api/v1/namespaces/default/pods/web/status");
    let (first, second) = (patches(pair.machine(0)), patches(pair.machine(1)));
    assert!((1..=3).contains(&first) && second == 0, "{first} {second}");
    assert_eq!(pair.machine(1).api.pod("web").unwrap()["status"]["containerStatuses"][0]["restartCount"], 1);
}

#[test]
fn c13_two_machines_do_not_remove_each_others_mirrors_without_end() {
    let mut pair = pair();
    pair.change(0, |w| w.file("on-a", ONE));
    pair.change(1, |w| w.file("on-b", ONE));
    pair.run(600);
    for (number, pod) in [(0, "on-a/main"), (1, "on-b/main")] {
        let w = pair.machine(number);
        assert!(w.runs(pod) && w.runs("web/main"), "{number}: {}", w.trace());
        assert_eq!((w.api.count("DELETE"), w.api.count("POST /api/v1/namespaces/default/pods")), (0, 0), "{number}");
    }
}

#[test]
fn c13_two_machines_do_not_take_back_each_others_cordon() {
    let mut pair = pair();
    pair.change(0, |w| w.cordon(true));
    pair.run(600);
    for number in [0, 1] {
        let w = pair.machine(number);
        assert_eq!(w.api.count("PATCH /api/v1/nodes/lab?"), 0, "{number}: {}", w.trace());
    }
    pair.change(1, World::kill_engine);
    pair.run(1000);
    assert_eq!(pair.machine(0).api.node().unwrap()["spec"]["unschedulable"], true);
}

#[test]
fn c13_a_deleted_pod_ends_on_both_machines() {
    let mut pair = pair();
    pair.change(0, |w| w.api_delete_pod("web", 1));
    pair.run(60);
    assert!(pair.machine(0).api.pod("web").is_none());
    for number in [0, 1] {
        let w = pair.machine(number);
        assert!(!w.runs("web/main") && w.api.count("DELETE") <= 1, "{number}: {}", w.trace());
    }
}

#[test]
fn c13_when_one_machine_leaves_the_other_reports_again() {
    let mut pair = pair();
    pair.change(0, World::kill_engine);
    pair.run(1000);
    let w = pair.machine(1);
    assert_eq!(conflicts(w), 2, "{}", w.trace());
    // A mirror for a pod of a manifest, and the status that another changes.
    pair.change(1, |w| {
        w.file("later", ONE);
        let mut pod = w.api.pod("web").cloned().unwrap();
        pod["status"]["podIP"] = "192.0.2.9".into();
        w.api_set("/api/v1/namespaces/default/pods", pod);
    });
    pair.run(10);
    let w = pair.machine(1);
    assert_eq!(w.api.mirrors().count(), 1, "{}", w.trace());
    assert_ne!(w.api.pod("web").unwrap()["status"]["podIP"], "192.0.2.9");
}

#[test]
fn c13_a_reboot_is_no_other_machine() {
    let mut w = machine("a");
    w.start();
    w.run(60);
    w.reboot(S);
    w.config.cluster.as_mut().unwrap().info.boot_id = "boot-a+".into();
    w.run(600);
    assert_eq!(w.api.node().unwrap()["status"]["nodeInfo"]["bootID"], "boot-a+", "{}", w.trace());
    assert_eq!(conflicts(&w), 0);
}
