//! Deployments compared with the same number of pods of manifests: the time until all replicas run, and their cost at rest.

use crate::crowd::{self, Start};
use crate::idle::window;
use crate::process::{self, now};
use crate::support::agent::Agent;
use crate::support::yaml::TRAP;
use crate::table::Table;
use std::fs;
use std::time::{Duration, Instant};

const SIZES: [usize; 4] = [1, 10, 50, 110];
/// The sizes whose cost at rest is measured.
const AT_REST: [usize; 2] = [10, 110];
/// The limits of the project, as parts of the values with manifests.
const TIME: f64 = 1.05;
const COST: f64 = 1.1;

#[derive(Clone, Copy)]
enum Kind {
    Deployment,
    Manifests,
}

struct Measured {
    start: Start,
    /// Anonymous memory in MB, and CPU seconds a minute.
    at_rest: Option<(f64, f64)>,
}

pub fn workloads(table: &mut Table) {
    for pods in SIZES {
        let [manifests, deployment] = [Kind::Manifests, Kind::Deployment].map(|kind| measure(pods, kind));
        let direct = crowd::directly(pods);
        let name = format!("Deployment of {pods}");
        let (taken, limit) = (deployment.start.taken, TIME * manifests.start.taken);
        table.row(&format!("{name}, all started, s"), taken, Some(direct), limit, "");
        table.row(&format!("{name}, CPU, s"), deployment.start.cpu, None, COST * manifests.start.cpu, "");
        if let (Some((memory, cpu)), Some((of_manifests, cpu_of_manifests))) = (deployment.at_rest, manifests.at_rest) {
            table.row(&format!("{name}, anonymous memory, MB"), memory, None, COST * of_manifests, "");
            table.row(&format!("{name}, CPU a minute, s"), cpu, None, COST * cpu_of_manifests, "");
        }
    }
}

fn measure(pods: usize, kind: Kind) -> Measured {
    let mut agent = Agent::start(&format!("workload{pods}"));
    let namespace = agent.namespace.clone();
    match kind {
        Kind::Manifests => crowd::write_aside(&agent, pods),
        Kind::Deployment => fs::write(agent.dir.join("aside/web.yaml"), text(&namespace, pods)).expect("write"),
    }
    let appear = |agent: &mut Agent| {
        let begun = now();
        match kind {
            Kind::Manifests => crowd::publish(agent, pods),
            Kind::Deployment => {
                fs::rename(agent.dir.join("aside/web.yaml"), agent.manifests().join("web.yaml")).expect("rename");
            }
        }
        begun
    };
    let start = crowd::measure(&mut agent, &namespace, pods, appear, || ());
    let at_rest = AT_REST.contains(&pods).then(|| at_rest(agent.pid()));
    match kind {
        Kind::Manifests => crowd::remove(&agent, pods),
        Kind::Deployment => {
            fs::remove_file(agent.manifests().join("web.yaml")).expect("remove");
            crowd::wait_removed(&mut agent.cri(), &namespace);
        }
    }
    Measured { start, at_rest }
}

pub fn at_rest(pid: u32) -> (f64, f64) {
    std::thread::sleep(Duration::from_secs(5));
    let (before, begun) = (process::cpu(pid), Instant::now());
    std::thread::sleep(window());
    let minute = (process::cpu(pid) - before) / begun.elapsed().as_secs_f64() * 60.0;
    (process::memory(pid).anonymous, minute)
}

pub fn text(namespace: &str, replicas: usize) -> String {
    let pod: String = TRAP.lines().map(|line| format!("    {line}\n")).collect();
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, namespace: {namespace}}}\nspec:\n  \
         replicas: {replicas}\n  selector: {{matchLabels: {{app: web}}}}\n  template:\n    \
         metadata: {{labels: {{app: web}}}}\n    spec:\n{pod}"
    )
}
