//! RuntimeClasses (node.k8s.io/v1): a class provides the runtime handler of a pod's sandbox, and the overhead and the
//! node selector of the pod.
//!
//! As with a PriorityClass, each version of a pod gets the overhead and the node selector once (A5). The handler is
//! looked up when a sandbox is created, as in a kubelet.

use crate::api::k8s::PodSpec;
use crate::api::k8s::Quantity;
use crate::api::problem::Problem;
use crate::api::source::Source;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A valid class from a manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimeClass {
    pub name: String,
    /// The name of a handler in the configuration of the runtime.
    pub handler: String,
    /// `overhead.podFixed`.
    pub overhead: BTreeMap<String, Quantity>,
    /// `scheduling.nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub source: Source,
    /// The digest of the parsed content, as for a pod (D3).
    pub digest: String,
}

/// The values that a pod gets from its class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Given {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub overhead: BTreeMap<String, Quantity>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
}

impl Given {
    /// Sets the values in the spec.
    pub fn apply(&self, spec: &mut PodSpec) {
        if !self.overhead.is_empty() {
            spec.overhead = Some(self.overhead.clone());
        }
        if !self.node_selector.is_empty() {
            spec.node_selector.get_or_insert_default().extend(self.node_selector.clone());
        }
    }
}

/// Returns the class name in a spec.
pub fn named(spec: &PodSpec) -> Option<&str> {
    spec.runtime_class_name.as_deref().filter(|name| !name.is_empty())
}

/// Returns the message for an unknown class, and the remedy.
pub fn not_found(class: &str) -> String {
    format!("no RuntimeClass with name {class} was found; add a RuntimeClass with this name")
}

/// All classes in force.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimeClasses(BTreeMap<String, RuntimeClass>);

impl RuntimeClasses {
    /// Collects the classes in force. Of several classes with the same name, the first is in force. The others are
    /// reported as problems.
    pub fn collect(classes: impl IntoIterator<Item = RuntimeClass>) -> (RuntimeClasses, Vec<Problem>) {
        let mut all: BTreeMap<String, RuntimeClass> = BTreeMap::new();
        let mut problems = Vec::new();
        for class in classes {
            if let Some(first) = all.get(&class.name) {
                let Source { path, document } = class.source;
                let message = format!(
                    "Duplicate value: {:?}: {} (document {}) also defines this RuntimeClass, and only that definition \
                     is in force; rename one of them",
                    class.name, first.source.path, first.source.document
                );
                problems.push(Problem { path, document, line: None, field: Some("metadata.name".to_owned()), message });
                continue;
            }
            all.insert(class.name.clone(), class);
        }
        (RuntimeClasses(all), problems)
    }

    pub fn iter(&self) -> impl Iterator<Item = &RuntimeClass> {
        self.0.values()
    }

    /// Returns the handler for a pod. It is empty for a pod without a class, which means the default handler of the
    /// runtime.
    ///
    /// # Errors
    /// The class does not exist.
    pub fn handler(&self, spec: &PodSpec) -> Result<&str, String> {
        let Some(name) = named(spec) else { return Ok("") };
        self.0.get(name).map(|class| class.handler.as_str()).ok_or_else(|| not_found(name))
    }

    /// Returns the values for a pod. None if the pod names no class.
    ///
    /// # Errors
    /// The class does not exist, or its overhead or node selector contradicts the spec. The error is the field, and a
    /// message like that of the API server.
    pub fn give(&self, spec: &PodSpec) -> Result<Option<Given>, (&'static str, String)> {
        let Some(name) = named(spec) else { return Ok(None) };
        let Some(class) = self.0.get(name) else { return Err(("spec.runtimeClassName", not_found(name))) };
        if let Some(own) = spec.overhead.as_ref().filter(|own| !own.is_empty() && **own != class.overhead) {
            let names: Vec<&str> = own.keys().map(String::as_str).collect();
            let message = format!(
                "Invalid value: {}: the pod's overhead differs from that of RuntimeClass {name:?}; remove \
                 spec.overhead from the pod",
                names.join(", ")
            );
            return Err(("spec.overhead", message));
        }
        let contradicts = |(key, value): &(&String, &String)| {
            spec.node_selector.as_ref().and_then(|own| own.get(*key)).is_some_and(|own| own != *value)
        };
        if let Some((key, value)) = class.node_selector.iter().find(contradicts) {
            let message = format!("Invalid value: {key:?}: RuntimeClass {name:?} requires the value {value:?}");
            return Err(("spec.nodeSelector", message));
        }
        Ok(Some(Given { overhead: class.overhead.clone(), node_selector: class.node_selector.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(name: &str, handler: &str, path: &str) -> RuntimeClass {
        RuntimeClass {
            name: name.into(),
            handler: handler.into(),
            overhead: BTreeMap::from([("memory".into(), Quantity("120Mi".into()))]),
            node_selector: BTreeMap::from([("sandbox".into(), "yes".into())]),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            source: Source { path: path.into(), document: 1 },
            digest: String::new(),
        }
    }

    fn spec(class: &str) -> PodSpec {
        PodSpec { runtime_class_name: Some(class.into()), ..PodSpec::default() }
    }

    #[test]
    fn a5_a_pod_gets_handler_overhead_and_node_selector_of_its_class() {
        let (classes, problems) = RuntimeClasses::collect([class("gvisor", "runsc", "/m/a")]);
        assert_eq!(problems, []);
        let mut pod = spec("gvisor");
        pod.node_selector = Some(BTreeMap::from([("zone".into(), "a".into())]));
        assert_eq!(classes.handler(&pod), Ok("runsc"));
        classes.give(&pod).unwrap().unwrap().apply(&mut pod);
        assert_eq!(pod.overhead.as_ref().unwrap()["memory"].0, "120Mi");
        assert_eq!(pod.node_selector.as_ref().unwrap().len(), 2);
        // A pod that has the values already is unchanged.
        assert_eq!(classes.give(&pod).unwrap().unwrap().overhead, pod.overhead.unwrap());
        assert_eq!((classes.handler(&PodSpec::default()), classes.give(&PodSpec::default())), (Ok(""), Ok(None)));
        assert_eq!((classes.handler(&spec("")), classes.give(&spec(""))), (Ok(""), Ok(None)));
    }

    #[test]
    fn a5_an_unknown_class_or_a_contradiction_is_an_error() {
        let (classes, _) = RuntimeClasses::collect([class("gvisor", "runsc", "/m/a")]);
        let missing = "no RuntimeClass with name kata was found; add a RuntimeClass with this name";
        assert_eq!(classes.handler(&spec("kata")), Err(missing.into()));
        assert_eq!(classes.give(&spec("kata")), Err(("spec.runtimeClassName", missing.into())));
        let own = BTreeMap::from([("cpu".into(), Quantity("1".into()))]);
        let other = PodSpec { overhead: Some(own), ..spec("gvisor") };
        assert_eq!(classes.give(&other).unwrap_err().0, "spec.overhead");
        let selector = BTreeMap::from([("sandbox".into(), "no".into())]);
        let other = PodSpec { node_selector: Some(selector), ..spec("gvisor") };
        assert_eq!(
            classes.give(&other).unwrap_err(),
            (
                "spec.nodeSelector",
                "Invalid value: \"sandbox\": RuntimeClass \"gvisor\" requires the value \"yes\"".into()
            )
        );
    }

    #[test]
    fn a5_of_two_classes_with_one_name_the_first_is_in_force() {
        let (classes, problems) = RuntimeClasses::collect([class("a", "runsc", "/m/1"), class("a", "kata", "/m/2")]);
        assert_eq!(classes.handler(&spec("a")), Ok("runsc"));
        assert_eq!(
            problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["/m/2: metadata.name: Duplicate value: \"a\": /m/1 (document 1) also defines this RuntimeClass, and \
                 only that definition is in force; rename one of them"]
        );
    }
}
