//! The orders of a shutdown with two groups: 20 s, and then 10 s for critical pods.

use super::*;
use crate::api::names::FullName;
use crate::api::time::Boot;
use crate::engine::pleg::Pleg;
use crate::engine::pleg::cache::Entry;
use crate::engine::pod::worker::Worker;
use std::collections::BTreeMap;

struct Node {
    shutdown: Shutdown,
    groups: Groups,
    workers: BTreeMap<Uid, Box<Worker>>,
    pleg: Pleg,
    knows_its_pods: bool,
    now: Now,
    outbox: Outbox,
}

impl Node {
    /// Makes a node with two pods of priority 0, of which the runtime shows nothing yet.
    fn new() -> Node {
        let groups = Groups::from_total(seconds(30), seconds(10));
        let mut node = Node {
            shutdown: Shutdown::new(groups.clone()),
            groups,
            workers: BTreeMap::new(),
            pleg: Pleg::new(1),
            knows_its_pods: true,
            now: Now::default(),
            outbox: Outbox::default(),
        };
        for uid in ["a", "b"].map(Uid::from) {
            let worker = Worker::orphan(uid.clone(), FullName::new("default", uid.as_str()), seconds(30), node.now);
            node.workers.insert(uid.clone(), worker.into());
            node.pleg.add(uid, Entry::default());
        }
        node
    }

    /// Makes a node with an inhibitor lock that systemd has kept for it.
    fn with_lock() -> Node {
        let mut node = Node::new();
        node.event(LogindEvent::Inherited);
        node
    }

    fn with<R>(&mut self, f: impl FnOnce(&mut Shutdown, &Pods<'_>, &mut Context<'_>) -> R) -> R {
        let pods = Pods { workers: &self.workers, pleg: &self.pleg, now: self.now.boot };
        let mut ctx = Context {
            now: self.now,
            groups: &self.groups,
            boot_id: "this boot",
            knows_its_pods: self.knows_its_pods,
            outbox: &mut self.outbox,
        };
        f(&mut self.shutdown, &pods, &mut ctx)
    }

    fn event(&mut self, event: LogindEvent) -> Option<Order> {
        self.with(|shutdown, _, ctx| shutdown.logind(event, ctx))
    }

    fn found(&mut self, record: &record::Record) -> Option<Order> {
        self.with(|shutdown, _, ctx| shutdown.record_found(Some(&record::write(record)), ctx))
    }

    fn step_at(&mut self, at: u64) -> Option<Order> {
        self.now.boot = Boot(0) + seconds(at);
        self.with(|shutdown, pods, ctx| shutdown.step(pods, ctx))
    }

    fn forget(&mut self, uid: &str) {
        self.workers.remove(&Uid::from(uid));
    }
}

fn seconds(s: u64) -> Duration {
    Duration::from_secs(s)
}

fn kill(pods: &[&str], period: Option<u64>) -> Option<Order> {
    let pods = pods.iter().map(|uid| Uid::from(*uid)).collect();
    Some(Order::Kill(Kill { pods, period: period.map(seconds) }))
}

/// Returns a record of a shutdown in progress.
fn in_progress() -> record::Record {
    let groups = Groups::from_total(seconds(30), seconds(10));
    let periods = vec![seconds(20), seconds(10)];
    record::Record { boot_id: "this boot".into(), periods, groups, ..record::Record::default() }
}

#[test]
fn s4_a_group_is_killed_once_and_the_lock_is_released_when_its_pods_have_ended() {
    let mut node = Node::with_lock();
    assert_eq!((node.event(LogindEvent::Preparing(true)), node.step_at(1)), (None, kill(&["a", "b"], Some(19))));
    node.forget("a");
    assert_eq!(node.step_at(2), None);
    node.forget("b");
    assert_eq!(node.step_at(3), Some(Order::StopSandboxes), "the group of critical pods is empty");
    assert_eq!(node.step_at(4), None);
}

#[test]
fn s4_the_lock_is_released_at_the_end_of_the_last_period() {
    let mut node = Node::with_lock();
    node.event(LogindEvent::Preparing(true));
    assert!(matches!(node.step_at(0), Some(Order::Kill(_))));
    assert_eq!(node.step_at(19), None);
    assert_eq!(node.step_at(20), Some(Order::StopSandboxes), "no pod is critical");
}

#[test]
fn s4_no_group_is_killed_before_the_pods_are_known() {
    let mut node = Node::with_lock();
    node.knows_its_pods = false;
    node.event(LogindEvent::Preparing(true));
    assert_eq!(node.step_at(5), None);
    node.knows_its_pods = true;
    assert_eq!(node.step_at(8), kill(&["a", "b"], Some(12)));
}

#[test]
fn s7_without_a_lock_each_pod_has_the_minimum_grace_period() {
    let mut node = Node::new();
    node.event(LogindEvent::Preparing(true));
    let Some(Order::Kill(kill)) = node.step_at(0) else { panic!("no kill") };
    assert_eq!(kill.grace(seconds(30)), LEAST);
}

#[test]
fn s6_a_cancelled_shutdown_lets_the_pods_continue() {
    let mut node = Node::with_lock();
    assert_eq!(node.event(LogindEvent::Preparing(false)), None, "no shutdown is in progress");
    node.event(LogindEvent::Preparing(true));
    assert_eq!(node.event(LogindEvent::Preparing(false)), Some(Order::Continue));
    assert_eq!(node.step_at(1), None);
}

#[test]
fn s7_a_recorded_shutdown_is_over_after_a_reboot() {
    let record = record::Record { boot_id: "another boot".into(), ..in_progress() };
    assert_eq!(Node::new().found(&record), Some(Order::Continue));
}

#[test]
fn s7_a_recorded_shutdown_of_this_boot_is_over_unless_logind_confirms_it() {
    let mut node = Node::new();
    assert_eq!((node.found(&in_progress()), node.step_at(9)), (None, None));
    assert_eq!(node.step_at(10), Some(Order::Continue));

    let mut node = Node::with_lock();
    node.found(&in_progress());
    node.event(LogindEvent::Inherited);
    node.event(LogindEvent::Preparing(true));
    assert_eq!(node.step_at(10), kill(&["a", "b"], Some(10)), "the rest of the group's period");
}
