//! C12: the load of many nodes on an API server, at rest and after it was away. The stories with the name of the rule have 100 nodes,
//! the others 1,000.

use crate::fleet::Fleet;
use crate::fleet::load::{Kind, Load, Return};
use crate::stories::cluster::running;
use crate::world::{MS, S};
use std::time::Duration;

/// For docs/cluster-offline.md: `make simulate ARGS='--ignored --nocapture a_thousand'`.
fn show(name: &str, load: &Load) {
    println!(
        "{name}: {} requests, at most {} in a second, {} in 100 ms",
        load.total(),
        load.most_in(S),
        load.most_in(100 * MS)
    );
    for kind in Kind::ALL {
        let (least, mean, most) = load.per_node(kind);
        println!("    {kind:?}: {least} to {most} of a node, {mean:.2} on average");
    }
}

fn show_return(name: &str, back: &Return) {
    println!("{name}: first {:?} ms, connected {:?} ms, share {:.3}", back.first, back.connected, back.share);
    show("  10 s", &back.load);
}

/// An hour at rest.
fn rest(nodes: u64) {
    let mut fleet = Fleet::new(nodes);
    show("start", &fleet.take_load());
    fleet.run(60);
    fleet.take_load();
    fleet.run(3600);
    let load = fleet.take_load();
    show("hour", &load);
    let bounds = [
        // Each 10 s, and up to 4 % later.
        (Kind::Lease, 345, 360),
        // Each four to six minutes.
        (Kind::NodeStatus, 9, 15),
        // Two collections, each five to ten minutes, and four single objects, each 30 to 60.
        (Kind::Watch, 16, 2 * 12 + 4 * 2),
        // Three tokens, each replaced after 75 to 80 % of an hour.
        (Kind::Token, 3, 6),
    ];
    for kind in Kind::ALL {
        let (least, _, most) = load.per_node(kind);
        let (from, to) = bounds.iter().find(|(of, ..)| *of == kind).map_or((0, 0), |(_, from, to)| (*from, *to));
        assert!(from <= least && most <= to, "{kind:?}: {least} to {most}");
    }
    // They started together, and do not act together.
    let mean = load.total() / 3600;
    let most = load.most_in(S);
    assert!(most <= mean * 3 / 2 + 15, "{most} in a second, {mean} on average");
}

/// The server is away and returns, for each of these times (ms).
fn outages(fleet: &mut Fleet, share: f64, away: &[u64]) {
    let nodes = fleet.iter().count() as u64;
    for ms in away {
        fleet.run(60);
        let back = fleet.outage(*ms);
        show_return(&format!("away {ms} ms"), &back);
        assert_eq!(back.nodes as u64, nodes, "{ms}: all are connected");
        assert!(back.connected[3] <= 2000, "{ms}: {:?}", back.connected);
        assert!(back.share <= share, "{ms}: {} of the nodes in 100 ms", back.share);
        // The node, its status, twice the lease, six watches, and three events; after an hour also three tokens that have expired.
        let most = if *ms < 1_800_000 { 13 } else { 19 };
        assert!(back.load.most_of_a_node() <= most, "{ms}: {}", back.load.most_of_a_node());
        fleet.run(50);
        // They connected together, and do not act together.
        let most = fleet.take_load().most_in(S) as u64;
        assert!(most <= nodes / 4, "{ms}: {most} in a second");
    }
}

/// All machines start at one moment. Their first requests are spread over 300 ms.
fn power_returns(fleet: &mut Fleet) {
    fleet.run(60);
    fleet.take_load();
    fleet.each(|node| node.reboot(30 * S));
    fleet.run(30);
    let back = fleet.returned();
    show_return("power", &back);
    assert_eq!(back.nodes, fleet.iter().count());
    assert!(back.connected[3] <= 500, "{:?}", back.connected);
    assert!(back.share <= 0.5, "{}", back.share);
}

#[test]
fn c12_a_hundred_nodes_at_rest_are_spread_and_send_few_requests() {
    rest(100);
}

#[test]
#[ignore = "takes half a minute"]
fn a_thousand_nodes_at_rest_are_spread_and_send_few_requests() {
    rest(1000);
}

#[test]
fn c12_a_hundred_nodes_find_the_server_within_two_seconds_and_not_together() {
    outages(&mut Fleet::new(100), 0.25, &[1, 300, 1500, 3000, 60_000, 3_600_000]);
}

/// After an outage of the server, of the connection, and of the power.
#[test]
#[ignore = "takes half a minute"]
fn a_thousand_nodes_find_the_server_within_two_seconds_and_not_together() {
    let mut fleet = Fleet::new(1000);
    outages(&mut fleet, 0.15, &[1, 60_000]);
    power_returns(&mut fleet);
}

#[test]
fn c12_after_a_power_cut_the_nodes_of_a_site_do_not_connect_together() {
    power_returns(&mut Fleet::new(100));
}

#[test]
fn c12_nodes_respect_the_delay_that_a_busy_server_asks_for() {
    let mut fleet = Fleet::new(100);
    fleet.run(60);
    fleet.each(|node| node.api_away(true));
    fleet.run(60);
    fleet.take_load();
    fleet.each(|node| {
        node.api_is_busy_for(30 * S, Duration::from_secs(5));
        node.api_away(false);
    });
    fleet.run(30);
    let load = fleet.take_load();
    // Each node reads its object, and nothing else.
    let (least, _, most) = load.per_node(Kind::NodeRead);
    assert!(least >= 3 && most <= 7, "{least} to {most}");
    assert_eq!(load.most_of_a_node(), most, "nothing else is requested");
    let back = fleet.returned();
    show_return("busy", &back);
    assert!(
        back.nodes == 100 && back.connected[3] <= 7600 && back.share <= 0.25,
        "{:?} {}",
        back.connected,
        back.share
    );
}

#[test]
fn c12_a_server_that_refuses_half_of_the_connections_gets_no_storm() {
    let mut fleet = Fleet::new(100);
    fleet.run(60);
    fleet.each(|node| node.api_away(true));
    fleet.run(60);
    fleet.take_load();
    let mut seed = 0;
    fleet.each(|node| {
        seed += 1;
        node.api_refuses_half_of_the_connections(seed);
        node.api_away(false);
    });
    let back = fleet.returned();
    show_return("half", &back);
    // Ten attempts.
    assert!(back.nodes >= 98 && back.share <= 0.25, "{} {}", back.nodes, back.share);
    assert!(back.load.most_of_a_node() <= 14, "{}", back.load.most_of_a_node());
    fleet.run(10);
    assert!(fleet.iter().all(|node| node.api.watches() == 6), "all are connected");
}

#[test]
fn c12_a_server_that_loses_each_answer_gets_no_storm() {
    let mut w = running("web");
    w.api_away(true);
    w.run(60);
    w.api_loses_answers_for(30 * S);
    w.api_away(false);
    let before = w.api.requests.len();
    w.run(30);
    let requests = w.api.requests.len() - before;
    assert!((10..=25).contains(&requests), "{requests}");
    w.run(2);
    assert_eq!(w.api.watches(), 3, "{}", w.trace());
}
