//! The cost of the API for kubectl: answers, memory, system calls, the delay of other work, and sessions. The clients are those of
//! the tests, because kubectl itself would take longer than what is measured.

mod cost;
mod load;
mod requests;
mod streams;

use crate::idle::wait_started;
use crate::support::agent::Agent;
use crate::support::api_client::{ApiClient, enable};
use crate::support::lab::Runtime;
use crate::support::yaml::TRAP;
use crate::table::Table;
use std::time::{Duration, Instant};

const PODS: usize = 10;

pub fn kubectl(table: &mut Table) {
    let mut agent = Agent::prepare("kubectl", &Runtime::shared());
    agent.run();
    for i in 0..PODS {
        agent.apply(&format!("pod-{i}"), TRAP);
    }
    wait_started(&mut agent.cri(), &agent.namespace, PODS);
    let closed = cost::measure(&agent);
    agent.terminate();
    enable(&agent);
    agent.run();
    let client = ApiClient::new(&agent, &[]);
    wait_served(&client);
    wait_started(&mut agent.cri(), &agent.namespace, PODS);
    cost::with_the_port(table, &agent, &client, &closed);
    requests::requests(table, &agent, &client);
    streams::streams(table, &agent, &client);
    load::load(table, &agent, &client);
}

fn wait_served(client: &ApiClient) {
    let end = Instant::now() + Duration::from_secs(30);
    while !client.get("/healthz").is_ok_and(|r| r.status == 200) {
        assert!(Instant::now() < end, "the API is not served");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// As kubectl requests a list.
fn list(agent: &Agent) -> String {
    format!("/api/v1/namespaces/{}/pods?limit=500", agent.namespace)
}

const TABLE: &str = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io,application/json\r\n";
