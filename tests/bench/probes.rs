//! The cost of 100 pods with an HTTP readiness probe each second. One server of the bench answers all probes, so that only
//! Wherry's own work is measured, and records when each probe arrives.

use crate::idle::{wait_started, window};
use crate::process;
use crate::support::agent::Agent;
use crate::table::Table;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PODS: usize = 100;

/// By path: the arrivals since the start of the bench.
type Arrivals = Arc<Mutex<BTreeMap<String, Vec<Duration>>>>;

pub fn probes(table: &mut Table) {
    let (port, arrivals) = serve();
    let agent = Agent::start("probes");
    let mut cri = agent.cri();
    for i in 0..PODS {
        agent.apply(
            &format!("pod-{i}"),
            &format!(
                "
    terminationGracePeriodSeconds: 1
    containers:
    - name: main
      image: localhost/trap:1
      readinessProbe: {{httpGet: {{host: 127.0.0.1, port: {port}, path: /pod-{i}}}, periodSeconds: 1}}
"
            ),
        );
    }
    wait_started(&mut cri, &agent.namespace, PODS);
    std::thread::sleep(Duration::from_secs(10));
    arrivals.lock().expect("arrivals").clear();
    let (before, begun) = (process::cpu_of_all(agent.pid()), Instant::now());
    std::thread::sleep(window());
    let share = (process::cpu_of_all(agent.pid()) - before) / begun.elapsed().as_secs_f64() * 100.0;
    let memory = process::memory(agent.pid());
    let arrivals = std::mem::take(&mut *arrivals.lock().expect("arrivals"));
    let count: usize = arrivals.values().map(Vec::len).sum();
    let per_second = count as f64 / begun.elapsed().as_secs_f64();
    assert!(per_second > 0.9 * PODS as f64, "{per_second} probes a second");
    table.row("100 pods with a probe each second, CPU, % of a core", share, None, 2.5, "19");
    table.row(
        "the same, latest probe, ms",
        arrivals.values().map(|of| lateness(of)).fold(0.0, f64::max),
        None,
        50.0,
        "",
    );
    table.row("the same, anonymous memory, MB", memory.anonymous, None, 4.0, "60");
    table.row("the same, PSS, MB", memory.proportional, None, 16.0, "");
    table.row("the same, resident, MB", memory.resident, None, 16.0, "113");
    table.row("the same, threads", process::threads(agent.pid()) as f64, None, 2.0, "87");
}

/// The longest interval between two probes of a pod beyond the period of a second, in ms.
fn lateness(arrivals: &[Duration]) -> f64 {
    let intervals = arrivals.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() - 1.0);
    intervals.fold(0.0, f64::max) * 1e3
}

fn serve() -> (u16, Arrivals) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let port = listener.local_addr().expect("address").port();
    let arrivals = Arrivals::default();
    let seen = arrivals.clone();
    // The thread ends with the process.
    std::thread::spawn(move || {
        let begun = Instant::now();
        for client in listener.incoming().flatten() {
            if let Some(path) = answer(client) {
                seen.lock().expect("arrivals").entry(path).or_default().push(begun.elapsed());
            }
        }
    });
    (port, arrivals)
}

fn answer(mut client: TcpStream) -> Option<String> {
    let mut head = [0; 1024];
    let read = client.read(&mut head).ok()?;
    client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").ok()?;
    let head = std::str::from_utf8(head.get(..read)?).ok()?;
    Some(head.split(' ').nth(1)?.to_owned())
}
