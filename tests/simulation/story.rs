//! The vocabulary of the stories: manifests, the passing of time, calls to the runtime, published status.

use crate::runtime::{Life, Personality};
use crate::text::brief;
use crate::world::{MS, S, World, config};
use std::rc::Rc;
use std::time::Duration;
use wherry::api::document::context::Context;
use wherry::api::document::parse;
use wherry::api::eviction::{EvictionPolicy, Limit, Signal, Threshold, ThresholdKind};
use wherry::api::pod::Pod;
use wherry::engine::event::Event;
use wherry_engine::api::k8s;

/// The variable with which the stories run on CRI-O.
pub const ANOTHER_RUNTIME: &str = "WHERRY_STORIES_ON_CRI_O";

pub const IMAGE: &str = "busybox:1.35";

/// One container named main.
pub const ONE: &str = "containers: [{name: main, image: 'busybox:1.35'}]";
pub const NEVER: &str = "restartPolicy: Never, containers: [{name: main, image: 'busybox:1.35'}]";
pub const ON_FAILURE: &str = "restartPolicy: OnFailure, containers: [{name: main, image: 'busybox:1.35'}]";
/// Two init containers before main.
pub const INIT: &str = "initContainers: [{name: i1, image: 'busybox:1.35'}, {name: i2, image: 'busybox:1.35'}], \
                        containers: [{name: main, image: 'busybox:1.35'}]";
/// A sidecar, an init container, then main.
pub const SIDECAR: &str = "initContainers: [{name: side, image: 'busybox:1.35', restartPolicy: Always}, \
                           {name: i2, image: 'busybox:1.35'}], containers: [{name: main, image: 'busybox:1.35'}]";
pub const TWO: &str = "containers: [{name: one, image: 'busybox:1.35'}, {name: two, image: 'busybox:1.35'}]";

/// A manifest with one pod: its text, and the pod that a node reads from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    pub text: Rc<str>,
    pub pod: Rc<Pod>,
}

impl std::ops::Deref for Manifest {
    type Target = Rc<Pod>;

    fn deref(&self) -> &Rc<Pod> {
        &self.pod
    }
}

/// A pod in the namespace default; `uid` may be empty.
pub fn pod(path: &str, name: &str, uid: &str, spec: &str) -> Manifest {
    let uid = if uid.is_empty() { String::new() } else { format!(", uid: {uid}") };
    let text = format!("{{apiVersion: v1, kind: Pod, metadata: {{name: {name}{uid}}}, spec: {{{spec}}}}}");
    Manifest { pod: read(path, &text), text: text.into() }
}

/// The pod of a manifest.
pub fn read(path: &str, text: &str) -> Rc<Pod> {
    let context = Context::new("lab", "2027-01-15T08:00:00Z");
    let documents = parse(text.as_bytes(), path).unwrap_or_else(|problem| panic!("{problem}"));
    let pod = documents[0].pod(path, None, context);
    Rc::new(pod.unwrap_or_else(|problems| panic!("{problems:?}: {text}")))
}

/// The runtime of the stories: containerd, unless `stories_with_another_runtime` plays them.
// The parent process sets it.
#[allow(clippy::disallowed_methods)]
pub fn runtime_of_the_stories() -> Personality {
    if std::env::var_os(ANOTHER_RUNTIME).is_some() { Personality::CriO } else { Personality::Containerd }
}

/// A node that is up, with the image present and without pods.
pub fn node() -> World {
    node_with(config())
}

/// The same with this runtime.
pub fn node_on(personality: Personality) -> World {
    let mut w = World::new(config());
    w.runtime.becomes(personality);
    begun(w)
}

pub fn node_with(config: wherry::engine::config::EngineConfig) -> World {
    begun(World::new(config))
}

fn begun(mut w: World) -> World {
    w.history = Some(Vec::new());
    w.runtime.images.insert(IMAGE.into());
    w.start();
    w.run(1);
    w.observed.calls.clear();
    w
}

impl World {
    /// Writes a manifest file of that name, with one pod of that name.
    pub fn file(&mut self, name: &str, spec: &str) {
        self.file_with_uid(name, "", spec);
    }

    pub fn file_with_uid(&mut self, name: &str, uid: &str, spec: &str) {
        let path = format!("/m/{name}.yaml");
        let pod = pod(&path, name, uid, spec);
        self.document(&path, pod);
    }

    pub fn document(&mut self, path: &str, pod: Manifest) {
        let mut files = self.files.clone();
        files.insert(path.into(), pod);
        self.set_files(files);
    }

    pub fn remove(&mut self, name: &str) {
        let mut files = self.files.clone();
        assert!(files.remove(&format!("/m/{name}.yaml")).is_some(), "no file of {name}");
        self.set_files(files);
    }

    /// A9: from now on preempted pods do not start again.
    pub fn has_no_room(&mut self) {
        self.config.node.allocatable = Default::default();
        self.step(Event::Configure(Box::new(self.config.clone())));
    }

    pub fn has_room(&mut self) {
        self.config.node = config().node;
        self.step(Event::Configure(Box::new(self.config.clone())));
    }

    /// E6: from now on the node has a condition because of which no pod is evicted, but evicted pods wait.
    pub fn has_pressure(&mut self) {
        let kind = ThresholdKind::Soft(Duration::MAX);
        let threshold = Threshold { signal: Signal::PidAvailable, kind, limit: Limit::Amount(100), reclaim: None };
        self.host.pids_free = 0;
        self.set_policy(EvictionPolicy { thresholds: vec![threshold], ..EvictionPolicy::default() });
        self.run_ms(100);
    }

    pub fn has_no_pressure(&mut self) {
        self.set_policy(EvictionPolicy::default());
    }

    pub fn set_policy(&mut self, policy: EvictionPolicy) {
        self.config.eviction = policy;
        self.step(Event::Configure(Box::new(self.config.clone())));
    }

    /// Sets the lives of `pod/container` in order; the last one repeats.
    pub fn life(&mut self, of: &str, lives: &[Life]) {
        self.processes.lives.insert(of.into(), lives.iter().copied().collect());
    }

    /// The next call whose text begins like this has the fault.
    pub fn fault(&mut self, call: &str, fault: crate::world::Fault) {
        self.faults.planned.push((call.into(), fault));
    }

    /// From now on, calls whose text begins like this are neither carried out nor answered.
    pub fn hang(&mut self, call: &str) {
        self.faults.hangs.insert(call.into());
    }

    /// Isolation: this pod has no faults, so it must run within this time, whatever else hangs. Returns the time in ms.
    pub fn starts_within(&mut self, seconds: u64, pod: &str) -> u64 {
        self.until(&format!("{pod} runs"), seconds, |w| w.status(pod).phase.as_deref() == Some("Running"))
    }

    /// Isolation: this container has no faults. Its process dies, and it must run again within this time.
    pub fn restarts_within(&mut self, seconds: u64, of: &str) -> u64 {
        let before = self.running(of);
        self.exit_of(of, 1);
        self.until(&format!("{of} runs again"), seconds, |w| w.runs(of) && w.running(of) != before)
    }

    /// The calls to the runtime since the last `take_calls`.
    pub fn take_calls(&mut self) -> Vec<String> {
        std::mem::take(&mut self.observed.calls).into_iter().map(|(_, text)| text).collect()
    }

    /// The times, in ms after `since`, of calls whose text begins like this.
    pub fn times(&self, text: &str, since: u64) -> Vec<u64> {
        let at = self.observed.calls.iter().filter(|(at, t)| *at >= since && t.starts_with(text));
        at.map(|(at, _)| at.saturating_sub(since) / MS).collect()
    }

    pub fn status(&self, name: &str) -> k8s::PodStatus {
        let view = self.engine.pods().into_iter().find(|v| &*v.pod.name.name == name);
        view.map(|v| v.status.clone()).unwrap_or_default()
    }

    /// The UID of the published pod; empty if it is not published.
    pub fn shown_uid(&self, name: &str) -> String {
        let view = self.engine.pods().into_iter().find(|v| &*v.pod.name.name == name);
        view.map(|v| v.pod.uid.to_string()).unwrap_or_default()
    }

    /// A short form of phase and container states; empty if the pod is not published.
    pub fn shown(&self, name: &str) -> String {
        let view = self.engine.pods().into_iter().find(|v| &*v.pod.name.name == name);
        view.map(|v| brief(v.status)).unwrap_or_default()
    }

    pub fn container_status(&self, pod: &str, container: &str) -> k8s::ContainerStatus {
        let status = self.status(pod);
        let all = [status.init_container_statuses, status.container_statuses, status.ephemeral_container_statuses];
        let all = all.into_iter().flatten().flatten();
        all.into_iter().find(|c| c.name == container).unwrap_or_default()
    }

    /// The waiting reason and message.
    pub fn waiting(&self, pod: &str, container: &str) -> (String, String) {
        let state = self.container_status(pod, container).state.unwrap_or_default();
        let w = state.waiting.unwrap_or_default();
        (w.reason.unwrap_or_default(), w.message.unwrap_or_default())
    }

    /// The condition's status, reason and message.
    pub fn condition(&self, pod: &str, kind: &str) -> (String, String, String) {
        let c = self.status(pod).conditions.into_iter().flatten().find(|c| c.type_ == kind);
        c.map(|c| (c.status, c.reason.unwrap_or_default(), c.message.unwrap_or_default())).unwrap_or_default()
    }

    /// The messages of events with that reason.
    pub fn notices(&self, reason: &str) -> Vec<String> {
        self.observed
            .notices
            .iter()
            .filter(|(_, n)| n.reason.as_str() == reason)
            .map(|(_, n)| n.message.clone())
            .collect()
    }

    /// The id of the running container of `pod/container`.
    pub fn running(&self, of: &str) -> String {
        let c = self.runtime.containers.values().find(|c| c.runs() && format!("{}/{}", c.pod_name.name, c.name) == of);
        c.map(|c| c.id.clone()).unwrap_or_default()
    }

    pub fn runs(&self, of: &str) -> bool {
        !self.running(of).is_empty()
    }

    pub fn sandbox(&self, pod: &str) -> String {
        let s = self.runtime.sandboxes.values().find(|s| s.ready && &*s.name.name == pod);
        s.map(|s| s.id.clone()).unwrap_or_default()
    }

    pub fn exit_of(&mut self, of: &str, code: i32) {
        let id = self.running(of);
        assert!(!id.is_empty(), "{of} does not run");
        self.exit(&id, code);
    }

    /// Runs until the condition is true. Returns the time in ms.
    pub fn until(&mut self, what: &str, within_seconds: u64, so: impl Fn(&World) -> bool) -> u64 {
        let begin = self.clock.now;
        let end = begin + within_seconds * S;
        while !so(self) {
            assert!(self.happen(end), "within {within_seconds} s: {what}\n{}", self.trace());
        }
        (self.clock.now - begin) / MS
    }

    /// The number of operations without an answer, according to the engine.
    pub fn operations_in_flight(&self) -> usize {
        self.engine.dump()["ops"]["owners"].as_object().expect("the dump contains the operations").len()
    }

    /// The history so far, for a failing test.
    pub fn trace(&self) -> String {
        self.history.as_ref().map(|h| h.join("\n")).unwrap_or_default()
    }

    /// Asserts that only the pods of the files exist anywhere.
    pub fn assert_clean(&self) {
        self.assert_well();
        let all: Vec<String> = self.runtime.sandboxes.keys().chain(self.runtime.containers.keys()).cloned().collect();
        assert!(all.is_empty(), "left in the runtime: {all:?}\n{}", self.trace());
        // The version of the last change of a binding stays (C14).
        let records: Vec<&String> = self.disk.records.keys().filter(|key| *key != "cluster/pods").collect();
        assert!(records.is_empty(), "left: {records:?}");
        assert!(self.disk.directories.is_empty(), "left: {:?}", self.disk.directories);
        let cgroups = &self.runtime.cgroups;
        assert!(cgroups.is_empty(), "left: the cgroups of {cgroups:?}\n{}", self.trace());
    }

    pub fn assert_well(&self) {
        assert_eq!(self.checks.violation, None, "{}", self.trace());
    }
}
