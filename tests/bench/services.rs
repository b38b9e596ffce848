//! Services in front of a Deployment, compared with the same Deployment without them: the time until all replicas get
//! connections, the changes of the rules in the kernel, the CPU time of the agent and of `nft`, and the cost at rest.

use crate::crowd;
use crate::process::{self, now};
use crate::support::agent::Agent;
use crate::table::Table;
use crate::workloads::{at_rest, text};
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PODS: usize = 50;
const SERVICES: usize = 10;
/// The rules change at most every 100 ms.
const CHANGES_A_SECOND: f64 = 10.0;
/// The limits of the project for the additional cost, as a part of the cost without services.
const COST: f64 = 1.1;

/// What the start of the pods, and the time at rest after it, cost.
struct Cost {
    /// From the manifests to the last start of a container, in seconds.
    started: f64,
    /// Until the rules in the kernel lead to all pods.
    reachable: f64,
    /// CPU seconds of the agent, and of the programs that it ran.
    cpu: f64,
    cpu_of_programs: f64,
    changes: usize,
    /// Anonymous memory in MB, and CPU seconds a minute.
    at_rest: (f64, f64),
}

pub fn services(table: &mut Table) {
    let (without, with) = (measure(0), measure(SERVICES));
    let name = format!("{PODS} pods behind {SERVICES} services");
    table.row(&format!("{name}, all started, s"), with.started, None, COST * without.started, "");
    table.row(&format!("{name}, all reachable, s"), with.reachable, None, with.started + 1.0, "");
    table.row(&format!("{name}, CPU, s"), with.cpu, None, 2.0 * without.cpu, "");
    table.row(&format!("{name}, CPU of nft, s"), with.cpu_of_programs, None, 2.0, "");
    let changes = with.changes as f64 / with.reachable;
    table.row(&format!("{name}, changes of the rules a second"), changes, None, CHANGES_A_SECOND, "");
    let ((memory, cpu), (memory_without, cpu_without)) = (with.at_rest, without.at_rest);
    table.row(&format!("{name}, anonymous memory, MB"), memory, None, COST * memory_without, "");
    // Each minute, a program looks for the rules.
    table.row(&format!("{name}, CPU a minute, s"), cpu, None, cpu_without + 0.01, "");
}

fn measure(services: usize) -> Cost {
    let mut agent = Agent::start(&format!("services{services}"));
    let namespace = agent.namespace.clone();
    for index in 0..services {
        let text = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: web-{index}, namespace: {namespace}}}\nspec: {{selector: \
             {{app: web}}, ports: [{{port: 80}}]}}\n"
        );
        fs::write(agent.manifests().join(format!("service-{index}.yaml")), text).expect("write");
    }
    fs::write(agent.dir.join("aside/web.yaml"), text(&namespace, PODS)).expect("write");
    let monitor = RuleMonitor::start();
    let programs = process::cpu_of_programs(agent.pid());
    let begun = now();
    let mut reachable = 0.0;
    let appear = |agent: &mut Agent| {
        fs::rename(agent.dir.join("aside/web.yaml"), agent.manifests().join("web.yaml")).expect("rename");
        begun
    };
    let start = crowd::measure(&mut agent, &namespace, PODS, appear, || {
        if services > 0 {
            wait_reachable();
        }
        reachable = (now() - begun) as f64 / 1e9;
    });
    let changes = monitor.changes();
    let cpu_of_programs = process::cpu_of_programs(agent.pid()) - programs;
    let at_rest = at_rest(agent.pid());
    fs::remove_file(agent.manifests().join("web.yaml")).expect("remove");
    crowd::wait_removed(&mut agent.cri(), &namespace);
    Cost { started: start.taken, reachable, cpu: start.cpu, cpu_of_programs, changes, at_rest }
}

fn nft(arguments: &[&str]) -> Command {
    let mut command = Command::new("nft");
    command.args(arguments).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").stdin(Stdio::null());
    command
}

/// Waits until each forward of a table has all pods.
fn wait_reachable() {
    let last = format!("{} : ", PODS - 1);
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        let output = nft(&["list", "ruleset"]).output().expect("nft");
        let text = String::from_utf8_lossy(&output.stdout);
        if text.matches(&last).count() >= SERVICES {
            return;
        }
        assert!(Instant::now() < end, "the rules do not lead to all pods:\n{text}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Counts how often a table is replaced.
struct RuleMonitor {
    process: Child,
    output: std::path::PathBuf,
}

impl RuleMonitor {
    fn start() -> RuleMonitor {
        let output = std::env::temp_dir().join(format!("wherry-bench-nft-{}", std::process::id()));
        let file = fs::File::create(&output).expect("a file");
        let process = nft(&["monitor", "tables"]).stdout(file).stderr(Stdio::null()).spawn().expect("nft");
        // It listens within this time.
        std::thread::sleep(Duration::from_millis(500));
        RuleMonitor { process, output }
    }

    fn changes(mut self) -> usize {
        std::thread::sleep(Duration::from_millis(500));
        let _ = self.process.kill();
        let _ = self.process.wait();
        let text = fs::read_to_string(&self.output).unwrap_or_default();
        let _ = fs::remove_file(&self.output);
        text.lines().filter(|line| line.starts_with("add table inet wherry")).count()
    }
}
