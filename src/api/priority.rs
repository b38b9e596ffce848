//! The priority of a pod (A5): its own, that of its class, or that of the default class. Manifests can define classes
//! in addition to the two built-in ones.
//!
//! The class is resolved once for each version of a pod, as an API server does when it creates a pod. Later changes of
//! the class do not affect existing pods.

use crate::api::k8s::PodSpec;
use crate::api::problem::Problem;
use crate::api::source::Source;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The lowest critical priority (A5).
pub const CRITICAL: i32 = 2_000_000_000;
/// The highest value of a user-defined class (Kubernetes' `HighestUserDefinablePriority`).
pub const HIGHEST_OF_USERS: i32 = 1_000_000_000;
/// The prefix that is reserved for built-in classes.
pub const SYSTEM_PREFIX: &str = "system-";
/// The default preemption policy of classes and pods.
pub const PREEMPT: &str = "PreemptLowerPriority";

/// Returns the value of a built-in class. None for every other name.
pub fn system_class(name: &str) -> Option<i32> {
    match name {
        "system-cluster-critical" => Some(CRITICAL),
        "system-node-critical" => Some(CRITICAL + 1000),
        _ => None,
    }
}

/// Returns the priority of a spec. Zero if the spec does not set one.
pub fn of(spec: &PodSpec) -> i32 {
    let class = || spec.priority_class_name.as_deref().and_then(system_class);
    spec.priority.or_else(class).unwrap_or(0)
}

/// A valid class from a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriorityClass {
    pub name: String,
    pub value: i32,
    /// Applies to pods without a class.
    pub global_default: bool,
    /// `PreemptLowerPriority` or `Never`.
    pub preemption_policy: String,
    pub description: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub source: Source,
    /// The digest of the parsed content, as for a pod (D3).
    pub digest: String,
}

impl PriorityClass {
    /// Returns the policy of a class. `policy` is the value in the manifest.
    pub fn preemption_policy(policy: Option<&str>) -> String {
        policy.unwrap_or(PREEMPT).to_owned()
    }
}

/// The values that a pod gets from its class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Given {
    pub class: String,
    pub value: i32,
    pub preemption_policy: String,
    /// True if the pod names no class, so that the default class applies.
    pub by_default: bool,
}

impl Given {
    /// Sets the values in the spec. A preemption policy in the spec takes precedence.
    pub fn apply(&self, spec: &mut PodSpec) {
        spec.priority_class_name = Some(self.class.clone());
        spec.priority = Some(self.value);
        spec.preemption_policy.get_or_insert_with(|| self.preemption_policy.clone());
    }
}

/// Returns the class name in a spec.
pub fn named(spec: &PodSpec) -> Option<&str> {
    spec.priority_class_name.as_deref().filter(|name| !name.is_empty())
}

/// All user-defined classes in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classes {
    /// Value and preemption policy by name.
    named: BTreeMap<String, (i32, String)>,
    default: Option<String>,
}

impl Classes {
    /// Collects the classes in force. Of several classes with the same name, and of several defaults, the first is in
    /// force. The others are reported as problems.
    pub fn collect<'c>(classes: impl IntoIterator<Item = &'c PriorityClass>) -> (Classes, Vec<Problem>) {
        let mut all = Classes::default();
        let mut places: BTreeMap<&str, &Source> = BTreeMap::new();
        let mut problems = Vec::new();
        for class in classes {
            let mut problem = |field: &str, message: String| {
                let Source { path, document } = class.source.clone();
                problems.push(Problem { path, document, line: None, field: Some(field.to_owned()), message });
            };
            if let Some(first) = places.get(class.name.as_str()) {
                let (name, path, document) = (&class.name, &first.path, first.document);
                let message = format!(
                    "Duplicate value: {name:?}: {path} (document {document}) also defines this PriorityClass, and only \
                     that definition is in force; rename one of them"
                );
                problem("metadata.name", message);
                continue;
            }
            if class.global_default {
                match all.default.as_deref().and_then(|name| Some((name, places.get(name)?))) {
                    Some((name, first)) => {
                        let (path, document) = (&first.path, first.document);
                        let message = format!(
                            "Invalid value: true: PriorityClass {name:?} of {path} (document {document}) is already \
                             the global default; set globalDefault in only one class"
                        );
                        problem("globalDefault", message);
                    }
                    None => all.default = Some(class.name.clone()),
                }
            }
            places.insert(&class.name, &class.source);
            all.named.insert(class.name.clone(), (class.value, class.preemption_policy.clone()));
        }
        (all, problems)
    }

    pub fn knows(&self, name: &str) -> bool {
        system_class(name).is_some() || self.named.contains_key(name)
    }

    /// Returns the values for a pod. None if the pod names no class, and either it has a priority of its own or there
    /// is no default class (priority 0).
    ///
    /// # Errors
    /// `spec.priorityClassName` is unknown, or it contradicts `spec.priority`.
    pub fn give(&self, spec: &PodSpec) -> Result<Option<Given>, String> {
        let given = |name: &str, value, policy: &str, by_default| Given {
            class: name.to_owned(),
            value,
            preemption_policy: policy.to_owned(),
            by_default,
        };
        let Some(name) = named(spec) else {
            let default = self.default.as_deref().filter(|_| spec.priority.is_none());
            let class = |name: &str| self.named.get(name).map(|(value, policy)| given(name, *value, policy, true));
            return Ok(default.and_then(class));
        };
        let given = match (system_class(name), self.named.get(name)) {
            (Some(value), _) => given(name, value, PREEMPT, false),
            (None, Some((value, policy))) => given(name, *value, policy, false),
            (None, None) => return Err(not_found(name)),
        };
        match spec.priority {
            Some(own) if own != given.value => Err(format!(
                "Invalid value: {name:?}: its priority is {}, which differs from spec.priority",
                given.value
            )),
            _ => Ok(Some(given)),
        }
    }
}

/// Returns the API server's message for an unknown class, and the remedy.
pub fn not_found(class: &str) -> String {
    format!("no PriorityClass with name {class} was found; add a manifest of kind PriorityClass with this name")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(name: &str, value: i32, path: &str) -> PriorityClass {
        PriorityClass {
            name: name.into(),
            value,
            global_default: false,
            preemption_policy: PriorityClass::preemption_policy(None),
            description: String::new(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            source: Source { path: path.into(), document: 1 },
            digest: String::new(),
        }
    }

    fn spec(class: &str, priority: Option<i32>) -> PodSpec {
        PodSpec { priority_class_name: Some(class.into()), priority, ..PodSpec::default() }
    }

    #[test]
    fn a5_a_pod_has_the_priority_of_its_class() {
        let never = PriorityClass { preemption_policy: "Never".into(), ..class("low", -7, "/m/b") };
        let (classes, problems) = Classes::collect([&class("gold", 5, "/m/a"), &never]);
        assert_eq!(problems, []);
        for (name, own, value, policy) in [
            ("gold", None, 5, PREEMPT),
            ("gold", Some(5), 5, PREEMPT),
            ("low", None, -7, "Never"),
            ("system-node-critical", None, 2_000_001_000, PREEMPT),
            ("system-cluster-critical", Some(2_000_000_000), 2_000_000_000, PREEMPT),
        ] {
            let mut spec = spec(name, own);
            classes.give(&spec).unwrap().unwrap().apply(&mut spec);
            let found = (of(&spec), spec.preemption_policy.as_deref(), spec.priority_class_name.as_deref());
            assert_eq!(found, (value, Some(policy), Some(name)));
        }
        let mut own = PodSpec { preemption_policy: Some(PREEMPT.into()), ..spec("low", None) };
        classes.give(&own).unwrap().unwrap().apply(&mut own);
        assert_eq!(own.preemption_policy.as_deref(), Some(PREEMPT), "the pod's own policy takes precedence");
    }

    #[test]
    fn a5_an_unknown_class_or_a_different_priority_is_an_error() {
        let (classes, _) = Classes::collect([&class("gold", 5, "/m/a")]);
        for (spec, message) in [
            (
                spec("silver", None),
                "no PriorityClass with name silver was found; add a manifest of kind PriorityClass with this name",
            ),
            (spec("gold", Some(6)), "Invalid value: \"gold\": its priority is 5, which differs from spec.priority"),
            (
                spec("system-node-critical", Some(6)),
                "Invalid value: \"system-node-critical\": its priority is 2000001000, which differs from spec.priority",
            ),
        ] {
            assert_eq!(classes.give(&spec).unwrap_err(), message);
        }
    }

    #[test]
    fn a5_without_a_class_the_default_applies_unless_the_pod_has_a_priority() {
        let default = PriorityClass { global_default: true, ..class("usual", 3, "/m/a") };
        let (classes, _) = Classes::collect([&default]);
        let mut plain = PodSpec::default();
        let given = classes.give(&plain).unwrap().unwrap();
        assert!(given.by_default);
        given.apply(&mut plain);
        assert_eq!((of(&plain), plain.priority_class_name.as_deref()), (3, Some("usual")));
        assert_eq!(classes.give(&PodSpec { priority: Some(0), ..PodSpec::default() }), Ok(None));
        assert_eq!(Classes::default().give(&PodSpec::default()), Ok(None));
    }

    #[test]
    fn a5_of_two_classes_alike_and_of_two_defaults_the_first_is_in_force() {
        let default =
            |name: &str, value, path: &str| PriorityClass { global_default: true, ..class(name, value, path) };
        let all = [default("a", 1, "/m/1"), class("a", 2, "/m/2"), default("b", 3, "/m/3"), default("a", 4, "/m/4")];
        let (classes, problems) = Classes::collect(&all);
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            problems,
            [
                "/m/2: metadata.name: Duplicate value: \"a\": /m/1 (document 1) also defines this PriorityClass, and \
                 only that definition is in force; rename one of them",
                "/m/3: globalDefault: Invalid value: true: PriorityClass \"a\" of /m/1 (document 1) is already the \
                 global default; set globalDefault in only one class",
                "/m/4: metadata.name: Duplicate value: \"a\": /m/1 (document 1) also defines this PriorityClass, and \
                 only that definition is in force; rename one of them",
            ]
        );
        assert_eq!(classes.give(&spec("a", None)).unwrap().unwrap().value, 1);
        assert_eq!(classes.give(&spec("b", None)).unwrap().unwrap().value, 3);
        assert_eq!(classes.give(&PodSpec::default()).unwrap().unwrap().class, "a");
    }
}
