//! Events for the API server: core/v1 Event, as kubelets write them.

use crate::api::event_object::{
    COMPONENT, EventObject, EventSource, InvolvedObject, Metadata, NODE_NAMESPACE, Reporting,
};
use crate::api::names::{FullName, Uid};
use crate::api::printable::cut;
use crate::api::time::Wall;
use serde::Serialize;

/// The API's limit for a message, in bytes.
const MAX_MESSAGE: usize = 1024;
/// The API's limit for a name, in bytes.
const MAX_NAME: usize = 253;

/// The message prefix of an event that stands for similar ones, as in a Kubernetes client.
const COMBINED: &str = "(combined from similar events): ";

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Involved<'a> {
    Pod {
        name: &'a FullName,
        uid: &'a Uid,
        /// For example `spec.containers{main}`. None: the event is about the pod itself.
        field_path: Option<&'a str>,
    },
    /// The node that reports the event.
    Node,
}

/// One event, which may have occurred several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    pub involved: Involved<'a>,
    /// The name of the node.
    pub node: &'a str,
    pub is_warning: bool,
    pub reason: &'a str,
    pub message: &'a str,
    pub first: Wall,
    pub last: Wall,
    pub count: u32,
    /// The event stands for similar ones.
    pub combined: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Repeated {
    count: u32,
    last_timestamp: Option<String>,
    /// Only sent for a combined event, whose message changes with each occurrence.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

impl<'a> Event<'a> {
    /// Returns the namespace of the event: that of its object.
    pub fn namespace(&self) -> &'a str {
        match self.involved {
            Involved::Pod { name, .. } => &name.namespace,
            Involved::Node => NODE_NAMESPACE,
        }
    }

    /// Returns the name of the event: the name of its object, and the time of its first occurrence in nanoseconds. An
    /// event and its repetitions have the same name.
    pub fn name(&self) -> String {
        let of = match self.involved {
            Involved::Pod { name, .. } => &name.name,
            Involved::Node => self.node,
        };
        let suffix = format!(".{:016x}", self.first.0);
        // Names of objects are ASCII. No part of a name may be empty, so a dot or dash at the end is removed.
        let of = cut(of, MAX_NAME - suffix.len()).trim_end_matches(['.', '-']);
        format!("{of}{suffix}")
    }

    /// Returns the event in JSON, for a POST.
    pub fn object(&self) -> String {
        let involved_object = match self.involved {
            Involved::Pod { name, uid, field_path } => InvolvedObject {
                api_version: "v1",
                kind: "Pod",
                namespace: Some(&name.namespace),
                name: &name.name,
                uid: uid.as_str(),
                field_path,
            },
            Involved::Node => InvolvedObject {
                api_version: "v1",
                kind: "Node",
                namespace: None,
                name: self.node,
                uid: self.node,
                field_path: None,
            },
        };
        let message = self.message();
        let object = EventObject {
            api_version: "v1",
            kind: "Event",
            metadata: Metadata { name: self.name(), namespace: self.namespace() },
            involved_object,
            reason: self.reason,
            message: &message,
            source: EventSource { component: COMPONENT, host: self.node },
            first_timestamp: self.first.whole_seconds(),
            last_timestamp: self.last.whole_seconds(),
            count: self.count,
            r#type: if self.is_warning { "Warning" } else { "Normal" },
            reporting: Some(Reporting {
                event_time: None,
                reporting_component: COMPONENT,
                reporting_instance: self.node,
            }),
        };
        // Serialization cannot fail: all keys are strings.
        serde_json::to_string(&object).unwrap_or_default()
    }

    fn message(&self) -> String {
        let combined = if self.combined { COMBINED } else { "" };
        cut(&format!("{combined}{}", self.message), MAX_MESSAGE).to_owned()
    }

    /// Returns the strategic merge patch for an event that has occurred again.
    pub fn repeated(&self) -> String {
        let message = self.combined.then(|| self.message());
        let patch = Repeated { count: self.count, last_timestamp: self.last.whole_seconds(), message };
        serde_json::to_string(&patch).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// 2026-11-22T07:43:26Z
    const AT: Wall = Wall(0x18ea_4e38_af3f_f453);

    fn event<'a>(involved: Involved<'a>, reason: &'a str, message: &'a str) -> Event<'a> {
        Event {
            involved,
            node: "n1",
            is_warning: false,
            reason,
            message,
            first: AT,
            last: AT,
            count: 1,
            combined: false,
        }
    }

    fn value(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn an_event_of_a_container_is_that_of_a_kubelet() {
        let (name, uid) = (FullName::new("default", "life"), Uid::from("450ff913"));
        let involved = Involved::Pod { name: &name, uid: &uid, field_path: Some("spec.containers{main}") };
        let expected = json!({
            "kind": "Event", "apiVersion": "v1",
            "metadata": { "name": "life.18ea4e38af3ff453", "namespace": "default" },
            "involvedObject": {
                "kind": "Pod", "namespace": "default", "name": "life", "uid": "450ff913", "apiVersion": "v1",
                "fieldPath": "spec.containers{main}",
            },
            "reason": "Started", "message": "Started container main",
            "source": { "component": "wherry", "host": "n1" },
            "firstTimestamp": "2026-11-22T07:43:26Z", "lastTimestamp": "2026-11-22T07:43:26Z",
            "count": 1, "type": "Normal", "eventTime": null,
            "reportingComponent": "wherry", "reportingInstance": "n1",
        });
        assert_eq!(value(&event(involved, "Started", "Started container main").object()), expected);
    }

    #[test]
    fn an_event_of_the_node_is_in_the_default_namespace() {
        let started = event(Involved::Node, "Starting", "Starting wherry.");
        let object = value(&started.object());
        assert_eq!(object["metadata"], json!({ "name": "n1.18ea4e38af3ff453", "namespace": "default" }));
        let reference = json!({ "kind": "Node", "name": "n1", "uid": "n1", "apiVersion": "v1" });
        assert_eq!((&object["involvedObject"], started.namespace()), (&reference, "default"));
    }

    #[test]
    fn a_repetition_changes_count_and_last_time() {
        let again = Event { count: 2, last: Wall(AT.0 + 1_000_000_000), ..event(Involved::Node, "a", "b") };
        let expected = json!({ "count": 2, "lastTimestamp": "2026-11-22T07:43:27Z" });
        assert_eq!(value(&again.repeated()), expected);
        assert_eq!(again.name(), event(Involved::Node, "a", "b").name());
    }

    #[test]
    fn long_texts_are_cut_to_the_limits_of_the_api() {
        let name = FullName::new("default", &format!("{}-{}", "a".repeat(235), "b".repeat(17)));
        let uid = Uid::from("u");
        let message = "\u{e4}".repeat(1000);
        let event = event(Involved::Pod { name: &name, uid: &uid, field_path: None }, "x", &message);
        assert_eq!(event.name(), format!("{}.18ea4e38af3ff453", "a".repeat(235)));
        let object = value(&event.object());
        assert_eq!(object["message"].as_str().unwrap().len(), 1024);
        assert_eq!(object["involvedObject"].get("fieldPath"), None);
    }
}
