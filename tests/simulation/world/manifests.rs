//! The manifest source: PriorityClasses, and the versions of pods that the engine has accepted (A5, D2).

use super::World;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use wherry::api::data_object::{DataKey, DataKind, DataObject, DataValue, DockerFormat};
use wherry::api::names::FullName;
use wherry::api::objects::{AcceptedPod, Objects, PodDocument};
use wherry::api::pod::{Pod, Source};
use wherry::api::priority::{self, PriorityClass};
use wherry::api::problem::Problem;
use wherry::api::runtime_class::RuntimeClass;
use wherry::engine::desired::conflict::Common;
use wherry::engine::effect::RuntimeCall;
use wherry::engine::event::Event;

#[derive(Default)]
pub struct Manifests {
    /// By name.
    classes: BTreeMap<String, PriorityClass>,
    runtime_classes: BTreeMap<String, RuntimeClass>,
    /// ConfigMaps and Secrets.
    data: BTreeMap<DataKey, Rc<DataObject>>,
    /// Copies of the files of classes and Secrets. They sort before the originals.
    copied_classes: BTreeMap<String, PriorityClass>,
    copied_data: BTreeMap<DataKey, Rc<DataObject>>,
    /// The last accepted version of each file, on disk.
    accepted: BTreeMap<String, AcceptedPod>,
    /// The files that define a pod and that no conflict keeps out of force, as this engine has received them.
    in_force: BTreeSet<String>,
    /// The problems with PriorityClasses that the engine has reported.
    pub problems: Vec<Problem>,
}

/// The key of a Secret in the namespace `default`.
fn secret(name: &str) -> DataKey {
    DataKey { kind: DataKind::Secret, name: FullName::new("default", name) }
}

type Files = BTreeMap<String, Rc<Pod>>;

impl Manifests {
    /// Files define classes or Secrets.
    pub fn has_objects(&self) -> bool {
        !self.classes.is_empty() || !self.runtime_classes.is_empty() || !self.data.is_empty()
    }

    /// The versions that have to be in force, by file: a model of A5 that does not use the engine's code.
    pub fn in_force<'f>(&self, files: &'f Files) -> Cow<'f, Files> {
        let class = |pod: &Pod| pod.spec().priority_class_name.clone();
        let runtime_class = |pod: &Pod| pod.spec().runtime_class_name.clone();
        if files.values().all(|pod| class(pod).is_none() && runtime_class(pod).is_none()) {
            return Cow::Borrowed(files);
        }
        let of_file = |(path, pod): (&String, &Rc<Pod>)| {
            let last = self.accepted.get(path);
            if let Some(last) = last.filter(|last| last.pod.digest == pod.digest) {
                return Some((path.clone(), last.pod.clone()));
            }
            if runtime_class(pod).is_some_and(|name| !self.runtime_classes.contains_key(&name)) {
                return Some((path.clone(), last?.pod.clone()));
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

impl Manifests {
    /// Without a record of a pod, an engine that has just started cannot know which file was in force.
    pub fn forget_precedence(&mut self) {
        self.in_force.clear();
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
            description: String::new(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            source,
            digest: String::new(),
        };
        self.manifests.classes.insert(name.into(), class);
        self.set_files(self.files.clone());
    }

    /// Copies the file of a class, as an administrator does before an edit.
    pub fn copy_class(&mut self, name: &str) {
        let source = Source { path: format!("/m/a-copy-of-class-{name}.yaml"), document: 1 };
        if let Some(class) = self.manifests.classes.get(name) {
            self.manifests.copied_classes.insert(name.into(), PriorityClass { source, ..class.clone() });
        }
        self.set_files(self.files.clone());
    }

    pub fn copy_secret(&mut self, name: &str) {
        let source = Source { path: format!("/m/a-copy-of-secret-{name}.yaml"), document: 1 };
        if let Some(object) = self.manifests.data.get(&secret(name)) {
            let copy = DataObject { source, ..DataObject::clone(object) };
            self.manifests.copied_data.insert(copy.key.clone(), Rc::new(copy));
        }
        self.set_files(self.files.clone());
    }

    pub fn remove_class(&mut self, name: &str) {
        self.manifests.classes.remove(name);
        self.set_files(self.files.clone());
    }

    /// Defines a class with an overhead of 100m of cpu.
    pub fn define_runtime_class(&mut self, name: &str, handler: &str) {
        let class = RuntimeClass {
            name: name.into(),
            handler: handler.into(),
            overhead: [("cpu".to_owned(), Quantity("100m".into()))].into(),
            node_selector: BTreeMap::new(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            source: Source { path: format!("/m/runtime-class-{name}.yaml"), document: 1 },
            digest: handler.into(),
        };
        self.manifests.runtime_classes.insert(name.into(), class);
        self.set_files(self.files.clone());
    }

    pub fn remove_runtime_class(&mut self, name: &str) {
        self.manifests.runtime_classes.remove(name);
        self.set_files(self.files.clone());
    }

    /// Defines a Secret with one value, in a file of its own.
    pub fn define_secret(&mut self, name: &str, key: &str, value: &str) {
        let object = DataObject {
            key: secret(name),
            immutable: false,
            labels: Default::default(),
            annotations: Default::default(),
            secret_type: "Opaque".into(),
            values: [(key.into(), DataValue::Text(value.into()))].into(),
            docker: (key == DockerFormat::ConfigJson.key()).then_some(DockerFormat::ConfigJson),
            source: Source { path: format!("/m/secret-{name}.yaml"), document: 1 },
            digest: value.into(),
        };
        self.checks.bounds.secret_changed();
        self.manifests.data.insert(object.key.clone(), Rc::new(object));
        self.set_files(self.files.clone());
    }

    pub fn remove_secret(&mut self, name: &str) {
        self.checks.bounds.secret_changed();
        self.manifests.data.remove(&secret(name));
        self.set_files(self.files.clone());
    }

    /// D6: a container gets the current values of its Secrets, and none is created without them.
    pub(super) fn check_environment(&mut self, call: &RuntimeCall) {
        let RuntimeCall::CreateContainer(create) = call else { return };
        if create.pod.is_from_api_server() {
            return;
        }
        let spec = create.pod.container(&create.container);
        for variable in spec.into_iter().flat_map(|c| c.env.iter().flatten()) {
            let Some(of) = variable.value_from.as_ref().and_then(|from| from.secret_key_ref.as_ref()) else { continue };
            let key = secret(&of.name);
            let object = self.manifests.data.get(&key).or_else(|| self.manifests.copied_data.get(&key));
            let value = object.and_then(|object| object.values.get(of.key.as_str())).map(DataValue::bytes);
            let given = create.process.env.iter().find(|(name, _)| *name == variable.name).map(|(_, v)| v.as_bytes());
            if value.is_none() || value != given {
                let what = format!("{}/{} gets another value of {}", create.pod.name, create.container, of.name);
                self.checks.fail("D6", what);
            }
        }
    }

    /// The engine receives all objects.
    pub(super) fn send_objects(&mut self) {
        let Manifests { classes, runtime_classes, data, copied_classes, copied_data, accepted, .. } =
            &mut self.manifests;
        accepted.retain(|path, _| self.files.contains_key(path));
        let document = |(path, pod): (&String, &Rc<Pod>)| match accepted.get(path).cloned() {
            Some(last) if last.pod.digest == pod.digest => PodDocument::Accepted(last),
            last_good => PodDocument::New { pod: pod.clone(), last_good },
        };
        let pods = self.files.iter().map(document).collect();
        let classes = copied_classes.values().chain(classes.values()).cloned().collect();
        let data = copied_data.values().chain(data.values()).cloned().collect();
        let runtime_classes = runtime_classes.values().cloned().collect();
        let objects = Objects { classes, runtime_classes, data, pods };
        self.step(Event::Desired(objects));
        self.check_precedence();
    }

    /// D4: a file stays in force while it defines its pod. (Each file of a life has one name.)
    fn check_precedence(&mut self) {
        let conflicts = self.engine.conflicts();
        let out: BTreeSet<&str> = conflicts.iter().map(|c| c.source.path.as_str()).collect();
        let of_name = conflicts.iter().filter(|c| !c.with.is_api() && matches!(c.common, Common::Name(_)));
        let lost =
            of_name.map(|c| (&c.source.path, &c.with.path)).find(|(path, _)| self.manifests.in_force.contains(*path));
        let lost = lost.map(|(path, other)| format!("{path} is not in force any more, but {other} is"));
        let files = self.manifests.in_force(&self.files);
        let in_force = files.keys().filter(|path| !out.contains(path.as_str())).cloned().collect();
        self.manifests.in_force = in_force;
        if let Some(what) = lost {
            self.checks.fail("D4", what);
        }
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
