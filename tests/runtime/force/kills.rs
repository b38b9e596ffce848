//! Wherry is killed with SIGKILL at random instants while pods are added, changed and removed, and crash.
//! WHERRY_FORCE_SEED repeats the choices of a run (not the timing in the runtime), WHERRY_FORCE_KILLS makes it longer.

use super::exact::{self, Desired, GENERATION, Life, Pod, is_created, label, runs, wait_exact};
use super::foreign_objects::ForeignObjects;
use crate::support::agent::{Agent, container};
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};
use wherry::engine::rng::Rng;

const KILLS: u64 = 100;
/// The number of pods that change.
const PODS: u64 = 20;
/// Pods that never change.
const CONTROLS: [&str; 4] = ["control-0", "control-1", "control-2", "control-3"];

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// A shell script that ends at SIGTERM.
const STEADY: &str = "trap 'exit 0' TERM; while :; do sleep 0.2; done";
const DEAF: &str = "trap '' TERM; while :; do sleep 0.2; done";
const SLOW: &str = "trap 'sleep 0.4; exit 0' TERM; while :; do sleep 0.2; done";

/// The spec of the pod in a slot, and its expected state.
fn spec(slot: u64) -> (String, Life) {
    let one = |policy: &str, grace: u64, script: &str| {
        let main = format!("{{name: main, image: 'localhost/busybox:1.35', command: [sh, -c, \"{script}\"]}}");
        format!("{{restartPolicy: {policy}, terminationGracePeriodSeconds: {grace}, containers: [{main}]}}")
    };
    match slot % 8 {
        0 => (one("Always", 30, STEADY), Life::Runs),
        1 => (one("Always", 2, "sleep 0.3; exit 1"), Life::Cycles(vec![])),
        2 => (one("OnFailure", 2, "sleep 0.2; exit 0"), Life::Ends(vec!["Succeeded"])),
        3 => (one("Never", 2, "sleep 0.2; exit 3"), Life::Ends(vec!["Failed"])),
        4 => (one("Always", 1 + slot % 3, DEAF), Life::Runs),
        5 => {
            let crashes = "{name: crashes, image: 'localhost/busybox:1.35', command: [sh, -c, 'sleep 0.5; exit 1']}";
            let steady = "{name: steady, image: 'localhost/trap:1'}";
            let spec = format!("{{terminationGracePeriodSeconds: 2, containers: [{crashes}, {steady}]}}");
            (spec, Life::Cycles(vec!["steady"]))
        }
        6 => (one("OnFailure", 30, STEADY), Life::Runs),
        _ => (one("Never", 30, SLOW), Life::Runs),
    }
}

/// Whether the pod of this slot has a fixed UID.
fn fixed_uid(slot: u64) -> bool {
    slot % 8 == 6
}

struct Storm {
    agent: Agent,
    rng: Rng,
    desired: Desired,
    generation: u64,
    /// Generations that returned unchanged, with the same UID.
    came_back: BTreeSet<u64>,
    /// Pods of which a container was killed. A second kill would cost 10 s of back-off.
    harmed: BTreeSet<u64>,
    /// The highest attempt so far, by generation and container.
    attempts: BTreeMap<(u64, String), u32>,
    controls: BTreeMap<String, (String, u32)>,
}

impl Storm {
    fn below(&mut self, n: u64) -> u64 {
        self.rng.draw() % n
    }

    fn pause(&mut self, up_to: u64) {
        let millis = self.below(up_to + 1);
        sleep(Duration::from_millis(millis));
    }

    fn apply(&mut self, slot: u64) {
        self.generation += 1;
        let (name, generation) = (format!("pod-{slot}"), self.generation);
        let (spec, life) = spec(slot);
        // R5: a new annotation alone would not replace the pod.
        let spec = spec.replacen('{', &format!("{{hostname: g{generation}, "), 1);
        let uid = if fixed_uid(slot) {
            format!("  uid: 11111111-0000-0000-{:04}-{slot:012}\n", self.agent.healthz_port % 10_000)
        } else {
            String::new()
        };
        self.agent.write(
            &format!("{name}.yaml"),
            &format!(
                "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: {}\n{uid}  annotations:\n    \
                 {GENERATION}: '{generation}'\nspec: {spec}\n",
                self.agent.namespace
            ),
        );
        self.desired.insert(name, Pod { generation, life });
    }

    /// Adds, changes, removes or restores one pod, or kills its container.
    fn touch(&mut self) {
        let slot = self.below(PODS);
        let name = format!("pod-{slot}");
        let Some(pod) = self.desired.get(&name).cloned() else { return self.apply(slot) };
        match self.below(10) {
            0..=3 => {
                self.agent.delete(&name);
                self.desired.remove(&name);
            }
            4..=6 => self.apply(slot),
            7 => {
                // W6: the pod is removed, and returns before the old one has ended.
                let file = format!("{name}.yaml");
                let text = std::fs::read_to_string(self.agent.manifests().join(&file)).expect("the manifest");
                self.agent.delete(&name);
                self.came_back.insert(pod.generation);
                self.attempts.retain(|(generation, _), _| *generation != pod.generation);
                self.pause(100);
                self.agent.write(&file, &text);
            }
            _ if pod.life == Life::Runs && slot % 8 != 7 && self.harmed.insert(pod.generation) => self.hit(&name),
            _ => {}
        }
    }

    /// Kills the pod's container with SIGKILL, if it runs.
    fn hit(&self, pod: &str) {
        let all = exact::containers(&self.agent);
        let Some(one) = all.iter().find(|c| runs(c) && label(&c.labels, "pod.name") == pod) else { return };
        // The container may be gone by now.
        let status = self.agent.cri().container_status(&one.id);
        let pid = status.ok().and_then(|s| {
            let info: serde_json::Value = serde_json::from_str(s.info.get("info")?).ok()?;
            info["pid"].as_u64()
        });
        if let Some(pid) = pid.filter(|pid| *pid > 1) {
            let mut kill = Command::new("kill");
            let _ = kill.args(["-KILL", &pid.to_string()]).stderr(Stdio::null()).status();
        }
    }

    /// Checks the invariants of every instant.
    fn look(&mut self, kill: u64) {
        let mut running: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
        let mut highest: BTreeMap<(String, String), u32> = BTreeMap::new();
        let all = exact::containers(&self.agent);
        for c in &all {
            let (pod, name) = (label(&c.labels, "pod.name").to_string(), c.metadata.name.clone());
            if runs(c) {
                running.entry((pod.clone(), name.clone())).or_default().push(c.id.clone());
            }
            // A created container may be replaced by one whose start was cancelled and took effect later.
            if is_created(c) {
                continue;
            }
            let uid = label(&c.labels, "pod.uid").to_string();
            let highest = highest.entry((uid, name)).or_default();
            *highest = c.metadata.attempt.max(*highest);
        }
        for (what, ids) in &running {
            assert!(ids.len() == 1, "kill {kill}: {what:?} runs {} times: {ids:?}", ids.len());
        }
        for (name, (id, _)) in &self.controls {
            assert!(running.values().flatten().any(|r| r == id), "kill {kill}: {name} was stopped");
        }
        // The sandbox identifies the generation of its containers.
        let uids: BTreeMap<String, u64> = self
            .agent
            .cri()
            .sandboxes(&self.agent.namespace)
            .iter()
            .filter_map(|s| {
                Some((label(&s.labels, "pod.uid").to_string(), s.annotations.get(GENERATION)?.parse().ok()?))
            })
            .collect();
        for ((uid, name), attempt) in highest {
            let Some(generation) = uids.get(&uid).copied() else { continue };
            let desired = self.desired.iter().find(|(_, p)| p.generation == generation);
            let slot = desired.and_then(|(name, _)| name.strip_prefix("pod-")?.parse().ok());
            if slot.is_none_or(fixed_uid) || self.came_back.contains(&generation) {
                continue;
            }
            let before = self.attempts.entry((generation, name)).or_default();
            assert!(attempt >= *before, "kill {kill}: generation {generation}: attempt {attempt} after {before}");
            *before = attempt;
        }
    }

    fn identity(&self, pod: &str) -> (String, u32) {
        let all = exact::containers(&self.agent);
        let one = all.iter().find(|c| runs(c) && label(&c.labels, "pod.name") == pod).expect("it runs");
        (one.id.clone(), self.agent.cri().container_pid(&one.id))
    }
}

#[test]
fn w25_killed_a_hundred_times_while_pods_come_crash_change_and_go() {
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64);
    let seed = variable("WHERRY_FORCE_SEED").unwrap_or(clock % 1_000_000);
    let kills = variable("WHERRY_FORCE_KILLS").unwrap_or(KILLS);
    println!("seed {seed}: WHERRY_FORCE_SEED={seed} make test-runtime ARGS=w25_killed repeats it");
    let began = Instant::now();
    let agent = Agent::start("storm");
    let foreign = ForeignObjects::start(&agent);
    let mut storm = Storm {
        agent,
        rng: Rng::new(seed),
        desired: Desired::new(),
        generation: 0,
        came_back: BTreeSet::new(),
        harmed: BTreeSet::new(),
        attempts: BTreeMap::new(),
        controls: BTreeMap::new(),
    };
    for (i, name) in CONTROLS.iter().enumerate() {
        let more = ["", "restartPolicy: Never, ", "hostNetwork: true, ", "terminationGracePeriodSeconds: 1, "][i];
        let spec = format!("{{{more}containers: [{{name: main, image: 'localhost/trap:1'}}]}}");
        storm.agent.write(
            &format!("{name}.yaml"),
            &format!(
                "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: {}}}, spec: {spec}}}\n",
                storm.agent.namespace
            ),
        );
        storm.desired.insert(name.to_string(), Pod { generation: 0, life: Life::Runs });
    }
    for name in CONTROLS {
        storm.agent.wait_running(name);
        storm.controls.insert(name.to_string(), storm.identity(name));
    }
    for kill in 1..=kills {
        // From time to time a longer pause lets pending work complete.
        let long = if kill % 12 == 0 { 2_000 } else { 600 };
        for _ in 0..1 + storm.below(3) {
            storm.touch();
        }
        storm.pause(long);
        storm.agent.kill();
        storm.look(kill);
        if storm.below(4) == 0 {
            // While Wherry is not running.
            storm.touch();
            storm.pause(200);
        }
        storm.agent.launch();
    }
    println!("{kills} kills in {:.0?}; {} pods desired", began.elapsed(), storm.desired.len());
    wait_exact(&storm.agent, &storm.desired);
    storm.look(kills);
    for name in CONTROLS {
        assert_eq!(storm.identity(name), storm.controls[name], "{name} was restarted");
        let pod = storm.agent.pod(name).expect("listed");
        assert_eq!(container(&pod, "main")["restartCount"], 0);
    }
    for ((generation, name), attempt) in &storm.attempts {
        let Some((pod, _)) = storm.desired.iter().find(|(_, p)| p.generation == *generation) else { continue };
        let count = container(&storm.agent.pod(pod).expect("listed"), name)["restartCount"].as_u64();
        assert!(
            count >= Some(u64::from(*attempt)),
            "{pod}: {count:?} restarts of {name} are shown, there were {attempt}"
        );
    }
    foreign.assert_untouched(&storm.agent);

    for name in storm.desired.keys() {
        storm.agent.delete(name);
    }
    wait_exact(&storm.agent, &Desired::new());
    foreign.assert_untouched(&storm.agent);
    println!("{kills} kills survived; all in {:.0?}", began.elapsed());
}
