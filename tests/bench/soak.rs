//! Many short lives on a real runtime: does the process grow? `make soak ARGS=1000`; not part of the table, since
//! 10,000 lives take the better part of an hour.

use crate::process;
use crate::support::agent::Agent;
use crate::table::Table;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Pods at a time.
const SLOTS: usize = 16;
/// Looks at the process, evenly spread over the lives.
const SAMPLES: usize = 20;
/// A container that ends at once, and the pod with it.
const SHORT: &str = "
    restartPolicy: Never
    containers:
    - name: main
      image: localhost/busybox:1.35
      command: ['true']
";

struct Sample {
    lives: usize,
    resident: f64,
    anonymous: f64,
    descriptors: usize,
}

pub fn soak(table: &mut Table, wanted: usize) {
    let agent = Agent::start("soak");
    let pid = agent.pid();
    let look = |lives| {
        let (resident, anonymous) = (process::resident(pid), process::anonymous(pid));
        let sample = Sample { lives, resident, anonymous, descriptors: process::descriptors(pid) };
        eprintln!(
            "{lives} lives: {resident:.2} MB, {anonymous:.2} of it anonymous, {} descriptors",
            sample.descriptors
        );
        sample
    };
    let (mut begun, mut ended) = (0, 0);
    let mut samples = vec![look(0)];
    // By slot: is its manifest there?
    let mut slots: BTreeMap<String, bool> = (0..SLOTS).map(|i| (format!("slot-{i}"), false)).collect();
    let mut last_end = Instant::now();
    while ended < wanted {
        let pods = agent.pods();
        for (name, there) in &mut slots {
            let pod = pods.iter().find(|p| p["metadata"]["name"] == name.as_str());
            match (*there, pod) {
                // Its life begins.
                (false, None) if begun < wanted => {
                    // (A content of its own: another UID.)
                    agent.apply(name, &format!("{SHORT}    activeDeadlineSeconds: {}\n", 100_000 + begun));
                    begun += 1;
                    *there = true;
                }
                (true, Some(pod)) if pod["status"]["phase"] == "Succeeded" => {
                    agent.delete(name);
                    *there = false;
                    ended += 1;
                    last_end = Instant::now();
                    if ended * SAMPLES >= wanted * samples.len() {
                        samples.push(look(ended));
                    }
                }
                _ => {}
            }
        }
        assert!(last_end.elapsed() < Duration::from_secs(120), "no pod ended for two minutes:\n{}", agent.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    agent.wait("no pod is left", |a| a.pods().is_empty());
    std::thread::sleep(Duration::from_secs(5));
    let last = look(ended);
    // Before that, what is kept for its space has not its size yet.
    let first = samples.iter().find(|s| s.lives * 5 >= wanted).expect("a sample");
    let grown = last.anonymous - first.anonymous;
    table.row("resident before any life, MB", samples[0].resident, None, 6.0, "");
    table.row(&format!("resident after {} lives, MB", last.lives), last.resident, None, 8.0, "");
    table.row(&format!("anonymous memory after {} lives, MB", first.lives), first.anonymous, None, 3.0, "");
    table.row(&format!("... grown from there after {} lives, MB", last.lives), grown, None, 0.2, "");
    let more = last.descriptors as f64 - samples[0].descriptors as f64;
    table.row("descriptors more than before, at the end", more, None, 0.0, "");
}
