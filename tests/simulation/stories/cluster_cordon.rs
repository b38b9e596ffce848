//! C16: the cordon of a member at the API server.

use crate::stories::cluster::{member, running};
use crate::story::ONE;
use crate::world::{S, World};
use serde_json::{Value, json};
use wherry::api::names::annotation::CORDONED;

const NODES: &str = "/api/v1/nodes";

impl World {
    /// The annotation and `spec.unschedulable` at the server.
    fn shown_cordon(&self) -> (bool, bool) {
        let node = self.api.node().cloned().unwrap_or_default();
        (node["metadata"]["annotations"][CORDONED] == "true", node["spec"]["unschedulable"] == true)
    }

    /// Another program changes the node's object.
    fn change_node(&mut self, change: impl FnOnce(&mut Value)) {
        let mut node = self.api.node().cloned().expect("the node is registered");
        change(&mut node);
        self.api_set(NODES, node);
    }

    fn cordon_patches(&self) -> usize {
        self.api.count("PATCH /api/v1/nodes/lab?")
    }
}

#[test]
fn c16_the_server_shows_the_cordon_until_its_end() {
    let mut w = running("web");
    w.cordon(true);
    w.run(1);
    assert_eq!(w.shown_cordon(), (true, true), "{}", w.trace());
    // A pod that was bound before waits, and runs on where it has started.
    w.api_pod("late", "uid-2", ONE);
    w.run(5);
    assert!(w.runs("web/main") && !w.runs("late/main"));
    w.cordon(false);
    w.run(2);
    assert_eq!((w.shown_cordon(), w.cordon_patches()), ((false, false), 2), "{}", w.trace());
    w.run(5);
    assert!(w.runs("late/main"), "{}", w.trace());
    w.run(3600);
    assert_eq!(w.cordon_patches(), 2, "nothing is changed again");
    w.assert_well();
}

#[test]
fn c16_the_cordon_of_an_administrator_at_the_server_stays_as_it_is() {
    let mut w = member();
    w.change_node(|node| node["spec"]["unschedulable"] = json!(true));
    w.run(600);
    w.restart_engine();
    w.run(600);
    assert_eq!((w.shown_cordon(), w.cordon_patches()), ((false, true), 0));
    assert!(!w.engine.is_cordoned());
    // The end of Wherry's cordon there is not taken back.
    w.cordon(true);
    w.run(1);
    w.change_node(|node| node["spec"]["unschedulable"] = Value::Null);
    w.run(600);
    w.restart_engine();
    w.run(600);
    assert_eq!((w.shown_cordon(), w.cordon_patches()), ((true, false), 1), "{}", w.trace());
    w.assert_well();
}

#[test]
fn c16_a_change_that_the_server_does_not_get_follows_also_after_a_kill() {
    for on in [true, false] {
        let mut w = member();
        if !on {
            w.cordon(true);
            w.run(5);
        }
        w.api_away(true);
        w.run(5);
        w.cordon(on);
        w.restart_engine();
        w.run(60);
        assert_eq!(w.shown_cordon(), (!on, !on));
        w.api_away(false);
        w.run(10);
        assert_eq!(w.shown_cordon(), (on, on), "{}", w.trace());
        w.assert_well();
    }
}

#[test]
fn c16_a_node_that_is_created_again_is_cordoned_again() {
    let mut w = member();
    w.cordon(true);
    w.run(5);
    w.api_remove(NODES, "lab");
    w.run(20);
    assert_eq!(w.shown_cordon(), (true, true), "{}", w.trace());
    w.assert_well();
}

#[test]
fn c16_a_refused_change_is_repeated_and_reported() {
    let mut w = member();
    w.api_refuses_for(20 * S, 0);
    w.cordon(true);
    w.run(10);
    assert_eq!(w.shown_cordon(), (false, false));
    assert!((2..8).contains(&w.cordon_patches()), "{}", w.cordon_patches());
    assert!(w.notices("ApiServerError").iter().any(|text| text.contains("cordon of the node")), "{}", w.trace());
    w.run(60);
    assert_eq!(w.shown_cordon(), (true, true), "{}", w.trace());
    w.assert_well();
}

#[test]
fn c16_a_program_that_takes_back_each_change_gets_no_storm() {
    let mut w = member();
    w.cordon(true);
    for _ in 0..6000 {
        w.run_ms(100);
        if w.shown_cordon().0 {
            w.change_node(|node| node["metadata"]["annotations"] = json!({}));
        }
    }
    // In 600 s, with a delay of 30 s in the end.
    assert!((10..45).contains(&w.cordon_patches()), "{}", w.cordon_patches());
    w.assert_well();
}
