//! Tests with real directories and a real inotify. Only the clock is simulated.

mod broken;
mod classes;
mod hung;
mod links;
mod records;
mod seen;

use super::*;
use crate::api::document::Checked;
use crate::api::manifest_report::RecordUpdate;
use crate::api::pod::Pod;
use crate::api::time::Wall;
use crate::engine::desired::Desired;
use crate::engine::desired::source::Setting;
use crate::engine::effect::Effect;
use crate::engine::outbox::Outbox;
use mio::{Events, Poll, Token};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::rc::Rc;

const CHECK: Duration = Duration::from_secs(20);
const MOMENT: Duration = Duration::from_millis(20);
const NONE: [&str; 0] = [];

/// A root directory, a manifest directory in it, and one run of `Manifests` with the part of the engine that decides
/// which pods are in force.
struct Lab {
    poll: Poll,
    manifests: Manifests,
    desired: Desired,
    refuse_open_secrets: bool,
    boot: Boot,
    /// Added to the wall clock. With 10 s, no file appears recently changed.
    ahead: Duration,
    /// The pods in force, once they are known.
    in_force: Option<Vec<Rc<Pod>>>,
    root: tempfile::TempDir,
}

fn pod(name: &str) -> String {
    pod_with(name, "i:1")
}

fn pod_with(name: &str, image: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: c, image: '{image}'}}]}}\n"
    )
}

impl Lab {
    /// Creates the manifest directory. Nothing has been read yet.
    fn new() -> Lab {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("m")).unwrap();
        Lab::on(root)
    }

    fn on(root: tempfile::TempDir) -> Lab {
        let poll = Poll::new().unwrap();
        let directory = root.path().join("m");
        let mut settings = ManifestSettings::new(&directory, &root.path().join("root"), CHECK);
        let mountinfo = root.path().join("mountinfo");
        if mountinfo.exists() {
            settings.mountinfo = mountinfo;
        }
        let manifests = Manifests::open(settings, poll.registry(), Token(7), Token(8));
        Lab {
            poll,
            manifests,
            desired: Desired::default(),
            refuse_open_secrets: false,
            boot: Boot(1_000_000_000_000),
            ahead: Duration::from_secs(10),
            in_force: None,
            root,
        }
    }

    /// Returns a lab after its first scan, and the names of its pods.
    fn started() -> (Lab, Vec<String>) {
        Lab::new().start()
    }

    fn start(mut self) -> (Lab, Vec<String>) {
        let now = self.now();
        assert!(self.manifests.next_deadline() <= now.boot);
        assert!(self.manifests.due(now).is_none(), "nothing has been inspected yet");
        let first = names(&self.inspection().expect("D1: the first objects are always returned"));
        (self, first)
    }

    /// Passes the report to the part of the engine that evaluates it, and returns the pods in force if they changed.
    fn resolve(&mut self, report: ManifestReport) -> Option<Vec<Rc<Pod>>> {
        let mut outbox = Outbox::default();
        let in_force = self.with_desired(|desired, setting| {
            let changed = desired.update(report, setting, |_| None, &mut outbox);
            changed.then(|| desired.manifests().to_vec())
        })?;
        let same = |(new, old): (&Rc<Pod>, &Rc<Pod>)| Rc::ptr_eq(new, old);
        let before = self.in_force.replace(in_force.clone());
        let unchanged = before.is_some_and(|old| old.len() == in_force.len() && in_force.iter().zip(&old).all(same));
        (!unchanged).then_some(in_force)
    }

    fn with_desired<R>(&mut self, act: impl FnOnce(&mut Desired, &Setting<'_>) -> R) -> R {
        let directory = self.manifests.directory().to_string_lossy().into_owned();
        let (now, refuse_open_secrets) = (self.now(), self.refuse_open_secrets);
        act(
            &mut self.desired,
            &Setting { directory: &directory, node_name: "lab", refuse_open_secrets, now, ..Setting::default() },
        )
    }

    /// Returns the records that the engine wants to write now; none while a write is in flight.
    fn take_updates(&mut self) -> Option<Vec<RecordUpdate>> {
        let (now, mut outbox) = (self.now().boot, Outbox::default());
        self.desired.files.write_records(now, &mut outbox);
        outbox.take().into_iter().find_map(|effect| match effect {
            Effect::StoreManifests { updates, .. } => Some(updates),
            _ => None,
        })
    }

    fn written(&mut self, result: Result<(), String>) {
        let mut outbox = Outbox::default();
        self.with_desired(|desired, setting| desired.files.records_written(result, setting, &mut outbox));
    }

    /// Runs all wanted inspections, as helper threads would. Returns the last set of pods in force that differs from
    /// the previous one.
    fn inspection(&mut self) -> Option<Vec<Rc<Pod>>> {
        let mut last = None;
        loop {
            let now = self.now();
            let Some(inspection) = self.manifests.take_inspection(now) else { return last };
            let ticket = inspection.ticket();
            let seen = inspection.run();
            last = self.answer(ticket, Ok(seen)).or(last);
        }
    }

    /// Handles the result of an inspection.
    fn answer(&mut self, ticket: u64, seen: Result<Inspected, NotSeen>) -> Option<Vec<Rc<Pod>>> {
        let report = self.manifests.inspected(ticket, seen, self.now())?;
        self.resolve(report)
    }

    /// Reloads the manifests as after SIGHUP.
    fn reload(&mut self) -> Option<Vec<Rc<Pod>>> {
        let now = self.now();
        self.manifests.reload(now);
        self.inspection()
    }

    fn due(&mut self) -> Option<Vec<Rc<Pod>>> {
        let now = self.now();
        let due = self.manifests.due(now).and_then(|report| self.resolve(report));
        self.inspection().or(due)
    }

    /// Restarts Wherry after all records are written.
    fn again(mut self) -> (Lab, Vec<String>) {
        self.flush();
        self.again_without_flush()
    }

    fn again_without_flush(self) -> (Lab, Vec<String>) {
        let Lab { root, .. } = self;
        Lab::on(root).start()
    }

    fn flush(&mut self) {
        let now = self.now();
        while let Some(updates) = self.take_updates() {
            let result = self.manifests.store(updates).run();
            self.written(result);
        }
        while let Some(write) = self.manifests.take_write() {
            self.manifests.written(write.run(), now);
        }
    }

    fn now(&self) -> Now {
        let wall = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap() + self.ahead;
        Now { boot: self.boot, wall: Wall(wall.as_nanos() as i64) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join("m").join(name)
    }

    /// Writes a temporary file and renames it into place, as users should.
    fn place(&self, name: &str, text: &str) {
        let aside = self.root.path().join("aside");
        fs::write(&aside, text).unwrap();
        fs::rename(aside, self.path(name)).unwrap();
    }

    /// Like `place`, but within the directory, which is on another file system.
    fn place_copy(&self, name: &str, text: &str) {
        fs::write(self.path(".aside"), text).unwrap();
        fs::rename(self.path(".aside"), self.path(name)).unwrap();
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Handles all pending events. Returns the last set of desired pods, if there was one.
    fn events(&mut self) -> Option<Vec<String>> {
        self.raw_events().map(|pods| names(&pods))
    }

    fn raw_events(&mut self) -> Option<Vec<Rc<Pod>>> {
        let mut last = None;
        let mut events = Events::with_capacity(8);
        self.poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        for event in &events {
            let now = self.now();
            match event.token() {
                Token(7) => {
                    let report = self.manifests.ready(now);
                    last = report.and_then(|report| self.resolve(report)).or(last);
                }
                token => {
                    assert_eq!(token, Token(8));
                    self.manifests.mounted(now);
                }
            }
        }
        last = self.inspection().or(last);
        while self.manifests.next_deadline() <= self.boot {
            last = self.due().or(last);
        }
        last
    }

    /// Lets time pass and handles every deadline in it.
    fn pass(&mut self, time: Duration) -> Option<Vec<String>> {
        let end = self.boot + time;
        let mut last = self.events();
        while self.manifests.next_deadline() <= end {
            self.boot = self.manifests.next_deadline().max(self.boot);
            last = self.due().map(|pods| names(&pods)).or(last);
        }
        self.boot = end;
        last
    }

    fn pods(&self) -> &[Rc<Pod>] {
        self.in_force.as_deref().expect("the pods are known")
    }

    fn desired(&self) -> Vec<String> {
        names(self.pods())
    }

    /// Returns the current problems, without the path of the directory.
    fn problems(&self) -> Vec<String> {
        let root = self.root.path().to_string_lossy().into_owned();
        let all = self.desired.files.problems().flat_map(|open| &open.problems);
        all.map(|problem| problem.to_string().replace(&format!("{root}/m"), "M").replace(&root, "R")).collect()
    }
}

fn names(pods: &[Rc<Pod>]) -> Vec<String> {
    pods.iter().map(|pod| pod.name.name.to_string()).collect()
}

fn some(names: &[&str]) -> Option<Vec<String>> {
    Some(names.iter().map(|name| (*name).to_owned()).collect())
}
