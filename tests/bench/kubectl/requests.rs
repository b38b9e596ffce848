//! The time of `kubectl get pods`: the table of 10 pods, on an open connection and on new ones.

use super::{PODS, TABLE, list};
use crate::support::agent::Agent;
use crate::support::api_client::ApiClient;
use crate::table::{Table, median, percentile_99};
use std::time::Instant;

const ON_ONE_CONNECTION: usize = 1000;
const CONNECTIONS: usize = 300;
/// In milliseconds.
const LIMIT: f64 = 3.0;

pub fn requests(table: &mut Table, agent: &Agent, client: &ApiClient) {
    let path = list(agent);
    let mut taken = Vec::new();
    let mut open = client.connect().expect("a connection");
    for _ in 0..ON_ONE_CONNECTION {
        let begun = Instant::now();
        let response = open.get(&path, TABLE).expect("a table");
        taken.push(begun.elapsed().as_secs_f64() * 1e3);
        assert_eq!((response.status, response.body.matches("\"Running\"").count()), (200, PODS), "{}", response.body);
    }
    drop(open);
    rows(table, "get pods on an open connection", taken);
    let mut taken = Vec::new();
    for _ in 0..CONNECTIONS {
        let begun = Instant::now();
        let response = client.connect().and_then(|mut new| new.get(&path, TABLE)).expect("a table");
        taken.push(begun.elapsed().as_secs_f64() * 1e3);
        assert_eq!(response.status, 200);
    }
    rows(table, "get pods on a new connection", taken);
}

fn rows(table: &mut Table, what: &str, taken: Vec<f64>) {
    table.row(&format!("{what}, median, ms"), median(taken.clone()), None, LIMIT, "");
    table.row(&format!("{what}, 99 %, ms"), percentile_99(taken), None, LIMIT, "");
}
