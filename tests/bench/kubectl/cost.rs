//! Memory and system calls of the port: off, open and idle, and after requests.

use super::{TABLE, list};
use crate::idle::window;
use crate::process::{self, Memory};
use crate::support::agent::Agent;
use crate::support::api_client::ApiClient;
use crate::table::Table;
use std::time::Duration;

const REQUESTS: usize = 400;
/// Limits of the additional memory, in MB.
const ANONYMOUS: f64 = 0.3;
const RESIDENT: f64 = 1.2;
/// The number of system calls a second of two idle agents differs by less than this, because periodic work falls into the window or not.
const NOISE: f64 = 0.5;

pub struct Measured {
    memory: Memory,
    /// For each second. None without strace.
    calls: Option<f64>,
}

/// An agent with the port off.
pub fn measure(agent: &Agent) -> Measured {
    std::thread::sleep(Duration::from_secs(5));
    let memory = process::memory(agent.pid());
    Measured { memory, calls: process::system_calls(agent.pid(), window()) }
}

pub fn with_the_port(table: &mut Table, agent: &Agent, client: &ApiClient, closed: &Measured) {
    let open = measure(agent);
    memory(table, "port for kubectl open and idle", &open.memory, &closed.memory);
    if let Some((open, closed)) = open.calls.zip(closed.calls) {
        table.row("port for kubectl open and idle, more system calls a second", open - closed, None, NOISE, "");
    }
    let path = list(agent);
    let mut connection = client.connect().expect("a connection");
    for n in 0..REQUESTS {
        if n % 10 == 0 {
            connection = client.connect().expect("a connection");
        }
        assert_eq!(connection.get(&path, TABLE).expect("a table").status, 200);
    }
    drop(connection);
    std::thread::sleep(Duration::from_secs(2));
    memory(table, "port for kubectl after 400 requests", &process::memory(agent.pid()), &closed.memory);
}

fn memory(table: &mut Table, when: &str, now: &Memory, closed: &Memory) {
    for (kind, now, closed, more) in [
        ("anonymous", now.anonymous, closed.anonymous, ANONYMOUS),
        ("PSS", now.proportional, closed.proportional, RESIDENT),
        ("resident", now.resident, closed.resident, RESIDENT),
    ] {
        table.row(&format!("{when}, more {kind} memory, MB"), now - closed, None, more, "");
    }
}
