//! Cost of an idle agent with 0, 10, 50 and 110 pods: memory, threads, CPU and system calls.

use crate::process;
use crate::support::agent::Agent;
use crate::support::cri::{ContainerState, Cri};
use crate::support::yaml::TRAP;
use crate::table::Table;
use std::time::{Duration, Instant};

struct Step {
    pods: usize,
    /// Limits in MB.
    anonymous: f64,
    resident: f64,
    /// Limit of CPU seconds per minute.
    cpu: f64,
    /// Resident MB and CPU seconds per minute of a kubelet.
    kubelet: (&'static str, &'static str),
}

const STEPS: [Step; 4] = [
    Step { pods: 0, anonymous: 1.1, resident: 10.0, cpu: 0.02, kubelet: ("72", "0.29") },
    Step { pods: 10, anonymous: 1.3, resident: 11.0, cpu: 0.05, kubelet: ("81", "0.78") },
    Step { pods: 50, anonymous: 2.0, resident: 12.0, cpu: 0.1, kubelet: ("91", "1.5") },
    Step { pods: 110, anonymous: 3.0, resident: 14.0, cpu: 0.2, kubelet: ("113", "3.1") },
];

pub fn window() -> Duration {
    let seconds = std::env::var("WHERRY_BENCH_WINDOW").ok().and_then(|s| s.parse().ok()).unwrap_or(60);
    Duration::from_secs(seconds)
}

pub fn wait_started(cri: &mut Cri, namespace: &str, count: usize) {
    let end = Instant::now() + Duration::from_secs(600);
    loop {
        let all = cri.containers(namespace);
        let running = all.iter().filter(|c| c.state.enum_value() == Ok(ContainerState::CONTAINER_RUNNING)).count();
        if running >= count {
            return;
        }
        assert!(Instant::now() < end, "only {running} of {count} containers run");
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub fn idle(table: &mut Table) {
    let agent = Agent::start("idle");
    let pid = agent.pid();
    let mut cri = agent.cri();
    let mut there = 0;
    for Step { pods, anonymous, resident, cpu, kubelet: (kubelet_memory, kubelet_cpu) } in STEPS {
        while there < pods {
            agent.apply(&format!("pod-{there}"), TRAP);
            there += 1;
        }
        wait_started(&mut cri, &agent.namespace, pods);
        std::thread::sleep(Duration::from_secs(5));
        let (before, begun) = (process::cpu(pid), Instant::now());
        std::thread::sleep(window());
        let minute = (process::cpu(pid) - before) / begun.elapsed().as_secs_f64() * 60.0;
        let memory = process::memory(pid);
        table.row(&format!("anonymous memory with {pods} pods, MB"), memory.anonymous, None, anonymous, "");
        // At most the resident memory, so it has the same limit.
        table.row(&format!("PSS with {pods} pods, MB"), memory.proportional, None, resident, "");
        table.row(&format!("resident with {pods} pods, MB"), memory.resident, None, resident, kubelet_memory);
        table.row(&format!("threads with {pods} pods"), process::threads(pid) as f64, None, 1.0, "10 to 13");
        table.row(&format!("CPU a minute with {pods} pods, s"), minute, None, cpu, kubelet_cpu);
        let kubelet = if pods == 10 { "1228" } else { "" };
        match process::system_calls(pid, window() / 2) {
            Some(calls) => table.row(&format!("system calls a second with {pods} pods"), calls, None, 20.0, kubelet),
            None => eprintln!("strace is not available; not counting system calls"),
        }
    }
}
