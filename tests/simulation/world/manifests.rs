//! The manifest source: PriorityClasses, and the versions of pods that the engine has accepted (A5, D2).

use super::World;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::rc::Rc;
use wherry::api::objects::{AcceptedPod, Objects, PodDocument};
use wherry::api::pod::{Pod, Source};
use wherry::api::priority::{self, PriorityClass};
use wherry::api::problem::Problem;
use wherry::engine::event::Event;

#[derive(Default)]
pub struct Manifests {
    /// By name.
    classes: BTreeMap<String, PriorityClass>,
    /// The last accepted version of each file, on disk.
    accepted: BTreeMap<String, AcceptedPod>,
    /// The problems with PriorityClasses that the engine has reported.
    pub problems: Vec<Problem>,
}

type Files = BTreeMap<String, Rc<Pod>>;

impl Manifests {
    /// The versions that have to be in force, by file: a model of A5 that does not use the engine's code.
    pub fn in_force<'f>(&self, files: &'f Files) -> Cow<'f, Files> {
        let class = |pod: &Pod| pod.spec().priority_class_name.clone();
        if files.values().all(|pod| class(pod).is_none()) {
            return Cow::Borrowed(files);
        }
        let of_file = |(path, pod): (&String, &Rc<Pod>)| {
            let last = self.accepted.get(path);
            if let Some(last) = last.filter(|last| last.pod.digest == pod.digest) {
                return Some((path.clone(), last.pod.clone()));
            }
            let version = match class(pod).map(|name| self.classes.get(&name)) {
                None => pod.clone(),
                Some(Some(class)) => {
                    let mut pod = Pod::clone(pod);
                    if let Some(spec) = &mut pod.object.spec {
                        spec.priority = Some(class.value);
                    }
                    Rc::new(pod)
                }
                Some(None) => last?.pod.clone(),
            };
            Some((path.clone(), version))
        };
        Cow::Owned(files.iter().filter_map(of_file).collect())
    }
}

impl World {
    pub fn define_class(&mut self, name: &str, value: i32) {
        let source = Source { path: format!("/m/class-{name}.yaml"), document: 1 };
        let class = PriorityClass {
            name: name.into(),
            value,
            global_default: false,
            preemption_policy: PriorityClass::preemption_policy(None),
            source,
            digest: String::new(),
        };
        self.manifests.classes.insert(name.into(), class);
        self.set_files(self.files.clone());
    }

    pub fn remove_class(&mut self, name: &str) {
        self.manifests.classes.remove(name);
        self.set_files(self.files.clone());
    }

    /// The engine receives all objects.
    pub(super) fn send_objects(&mut self) {
        let Manifests { classes, accepted, .. } = &mut self.manifests;
        accepted.retain(|path, _| self.files.contains_key(path));
        let document = |(path, pod): (&String, &Rc<Pod>)| match accepted.get(path).cloned() {
            Some(last) if last.pod.digest == pod.digest => PodDocument::Accepted(last),
            last_good => PodDocument::New { pod: pod.clone(), last_good },
        };
        let pods = self.files.iter().map(document).collect();
        let objects = Objects { classes: classes.values().cloned().collect(), pods };
        self.step(Event::Desired(objects));
    }

    /// The engine has accepted these versions.
    pub(super) fn accept_pods(&mut self, pods: Vec<AcceptedPod>) {
        for accepted in pods {
            let path = &accepted.pod.source.path;
            let current = self.files.get(path).is_some_and(|pod| pod.digest == accepted.pod.digest);
            if !current {
                self.checks.fail("A5: only a version that a file defines is accepted", path.clone());
            }
            self.manifests.accepted.insert(path.clone(), accepted);
        }
    }

    /// The priority of the desired pod of this file's name.
    pub fn priority_of(&self, name: &str) -> Option<i32> {
        let pods = self.engine.pods();
        let view = pods.iter().find(|view| view.desired && &*view.pod.name.name == name)?;
        Some(priority::of(view.pod.spec()))
    }
}
