//! The time until a node is connected again after its API server or its network was away: until the server has answered its first
//! request.

use super::{nanoseconds, wait_ready};
use crate::latency::ms;
use crate::process::now;
use crate::support::agent::Agent;
use crate::support::control_plane::partition::{self, Partition};
use crate::support::control_plane::{Client, ControlPlane};
use crate::support::lab::Runtime;
use crate::table::{Table, median};
use serde_json::Value;
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;
const NODE: &str = "back";
/// In seconds, for the median and for the largest value.
const LIMIT: f64 = 2.0;
/// The shortest absence. It is longer than the time after which the kernel gives up the packets of an old connection
/// (`TCP_USER_TIMEOUT`): an old request that arrives late is no connection.
const ABSENCE: Duration = Duration::from_secs(20);

pub fn back(table: &mut Table) {
    let plane = ControlPlane::start("bench-back");
    let mut agent = Agent::prepare(NODE, &Runtime::shared());
    // The node is the only client that uses the address of the service, so a rule can drop its packets alone.
    agent.set_cluster(NODE, &partition::kubeconfig(&plane, NODE, &agent));
    agent.run();
    wait_ready(&plane, NODE);
    let (mut ready, mut listening, mut dropped) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let killed = after_a_kill(&plane, &agent);
        ready.push(killed.ready);
        listening.push(killed.listening);
        dropped.push(after_dropped_packets(&plane, &agent));
    }
    rows(table, "the API server was killed and is ready", ready);
    rows(table, "the API server was killed and answers, ready or not", listening);
    rows(table, "packets are not dropped any more", dropped);
}

fn rows(table: &mut Table, what: &str, taken: Vec<f64>) {
    let largest = taken.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let row = format!("cluster: {what} -> first answer to the node");
    table.row(&format!("{row}, s"), median(taken), None, LIMIT, "");
    table.row(&format!("{row}, largest of {ROUNDS}, s"), largest, None, LIMIT, "");
}

/// The seconds until the first answer to the node, from two moments of the start of an API server.
struct AfterKill {
    /// From the first 200 of `/readyz`. Negative if the server answers the node before it calls itself ready.
    ready: f64,
    /// From the first answer to anybody, whatever its status is.
    listening: f64,
}

fn after_a_kill(plane: &ControlPlane, agent: &Agent) -> AfterKill {
    let absence = Absence::of(agent);
    plane.stop_api_server();
    absence.wait();
    let (client, begun) = (plane.client(), now());
    // In another thread: `start_api_server` looks less often.
    let (listening, ready) = std::thread::scope(|scope| {
        let times = scope.spawn(|| times_of_start(&client));
        plane.start_api_server();
        times.join().expect("the times")
    });
    let answered = first_answer(plane, begun);
    absence.end();
    AfterKill { ready: ms(ready, answered) / 1000.0, listening: ms(listening, answered) / 1000.0 }
}

fn after_dropped_packets(plane: &ControlPlane, agent: &Agent) -> f64 {
    let absence = Absence::of(agent);
    let partition = Partition::begin(plane);
    absence.wait();
    let begun = now();
    drop(partition);
    let taken = ms(begun, first_answer(plane, begun)) / 1000.0;
    absence.end();
    taken
}

/// Polls every 10 ms. Returns the times of the first answer, and of the first one with 200.
fn times_of_start(client: &Client) -> (i64, i64) {
    let end = Instant::now() + Duration::from_secs(240);
    let mut first = None;
    loop {
        if let Ok(answer) = client.get("/readyz") {
            let at = now();
            let first = *first.get_or_insert(at);
            if answer.status == 200 {
                return (first, at);
            }
        }
        assert!(Instant::now() < end, "the API server does not become ready");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// When the server first answered a request that the node sent after `since`, and did not refuse it, in nanoseconds since the epoch.
/// A server that starts refuses requests until it knows its roles, and the end of an old watch is in the log as an answer, too.
fn first_answer(plane: &ControlPlane, since: i64) -> i64 {
    plane.wait_for("the server answers the node", |plane| {
        let requests = plane.requests_of_node(NODE);
        let new = requests.iter().filter(|request| request.code < 400 && nanoseconds(&request.at) > since);
        new.map(|request| nanoseconds(&request.answered)).min()
    })
}

/// A time without the server, as the events of the node show it. (The log does not repeat an event with an equal text.)
struct Absence<'a> {
    agent: &'a Agent,
    begun: Instant,
    /// The number of earlier absences.
    earlier: i64,
}

impl Absence<'_> {
    fn of(agent: &Agent) -> Absence<'_> {
        let absence = Absence { agent, begun: Instant::now(), earlier: 0 };
        Absence { earlier: absence.count("ApiServerDisconnected"), ..absence }
    }

    /// Waits until the node has noticed, for at least `ABSENCE`.
    fn wait(&self) {
        self.wait_for("ApiServerDisconnected");
        std::thread::sleep(ABSENCE.saturating_sub(self.begun.elapsed()));
    }

    /// Waits until the node has noticed the end, and until it has nothing left to report.
    fn end(self) {
        self.wait_for("ApiServerConnected");
        std::thread::sleep(Duration::from_secs(5));
    }

    fn wait_for(&self, reason: &str) {
        self.agent.wait(reason, |_| self.count(reason) > self.earlier);
    }

    fn count(&self, reason: &str) -> i64 {
        let answer = self.agent.get("/events").expect("/events");
        let list: Value = serde_json::from_str(&answer.body).expect("JSON");
        let events = list["items"].as_array().into_iter().flatten().filter(|event| event["reason"] == reason);
        events.filter_map(|event| event["count"].as_i64()).sum()
    }
}
