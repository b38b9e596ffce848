//! Runs many short-lived pods on a real runtime and measures the growth of the process. `make soak ARGS=1000`. This is not
//! part of `make bench`, because 10,000 pods take almost an hour.

use crate::process::{self, Memory};
use crate::support::agent::Agent;
use crate::table::Table;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Number of pods at the same time.
const SLOTS: usize = 16;
/// Number of samples of the process, evenly spread over the pods.
const SAMPLES: usize = 20;
/// A pod with one container that exits at once, and a volume of each kind that needs work: on disk, in memory, of objects, and a
/// part of one.
const SHORT: &str = "
    restartPolicy: Never
    containers:
    - name: main
      image: localhost/busybox:1.35
      command: ['true']
      volumeMounts:
      - {name: scratch, mountPath: /scratch, subPath: part}
      - {name: memory, mountPath: /memory}
      - {name: page, mountPath: /page}
      - {name: login, mountPath: /login}
    volumes:
    - {name: scratch, emptyDir: {}}
    - {name: memory, emptyDir: {medium: Memory}}
    - {name: page, configMap: {name: page}}
    - {name: login, secret: {secretName: login}}
";

/// The objects of the volumes.
const OBJECTS: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {namespace: NAMESPACE, name: page}
data: {page: hello}
---
apiVersion: v1
kind: Secret
metadata: {namespace: NAMESPACE, name: login}
stringData: {password: secret}
";

pub struct Sample {
    pub lives: usize,
    pub memory: Memory,
    descriptors: usize,
}

pub fn soak(table: &mut Table, wanted: usize) {
    let agent = Agent::start("soak");
    let samples = lives(&agent, wanted);
    let (last, first) = (&samples[samples.len() - 1], settled(&samples, wanted));
    let grown = last.memory.anonymous - first.memory.anonymous;
    table.row("resident before the first pod, MB", samples[0].memory.resident, None, 10.0, "");
    table.row(&format!("resident after {} pods, MB", last.lives), last.memory.resident, None, 12.0, "");
    table.row(&format!("anonymous memory after {} pods, MB", first.lives), first.memory.anonymous, None, 3.0, "");
    table.row(&format!("... growth until the end, after {} pods, MB", last.lives), grown, None, 0.2, "");
    let more = last.descriptors as f64 - samples[0].descriptors as f64;
    // The inotify descriptor for the logs is opened with the first container, and stays.
    table.row("additional descriptors at the end", more, None, 1.0, "");
    table.row("mounts at the end", mounts_below(&agent.dir) as f64, None, 0.0, "");
    table.row("directories of pods and of their logs at the end", directories_of_pods(&agent) as f64, None, 0.0, "");
    table.row("cgroups of pods at the end", agent.pod_cgroups().len() as f64, None, 0.0, "");
}

/// Retained buffers reach their final size during the first fifth of the lives: the first sample after it.
pub fn settled(samples: &[Sample], wanted: usize) -> &Sample {
    samples.iter().find(|sample| sample.lives * 5 >= wanted).expect("a sample")
}

/// Runs the pods, and samples the process: first before the first pod, last after all have gone.
pub fn lives(agent: &Agent, wanted: usize) -> Vec<Sample> {
    agent.write("objects.yaml", &OBJECTS.replace("NAMESPACE", &agent.namespace));
    let pid = agent.pid();
    let look = |lives| {
        let sample = Sample { lives, memory: process::memory(pid), descriptors: process::descriptors(pid) };
        let Memory { anonymous, proportional, resident } = sample.memory;
        eprintln!(
            "{lives} pods: {anonymous:.2} MB anonymous, {proportional:.2} MB PSS, {resident:.2} MB resident, {} descriptors",
            sample.descriptors
        );
        sample
    };
    let (mut begun, mut ended) = (0, 0);
    let mut samples = vec![look(0)];
    // For each slot: whether its manifest exists.
    let mut slots: BTreeMap<String, bool> = (0..SLOTS).map(|i| (format!("slot-{i}"), false)).collect();
    let mut last_end = Instant::now();
    while ended < wanted {
        let pods = agent.pods();
        for (name, there) in &mut slots {
            let pod = pods.iter().find(|p| p["metadata"]["name"] == name.as_str());
            match (*there, pod) {
                (false, None) if begun < wanted => {
                    // The deadline differs each time, so that each pod gets a new UID.
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
    samples.push(look(ended));
    samples
}

fn mounts_below(directory: &Path) -> usize {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    points.filter(|point| Path::new(point).starts_with(directory)).count()
}

fn directories_of_pods(agent: &Agent) -> usize {
    let count = |directory: PathBuf| fs::read_dir(directory).map_or(0, Iterator::count);
    count(agent.root().join("pods")) + count(agent.dir.join("log/pods"))
}
