//! What the node gets when it registers with the API server: `registerWithTaints` and `providerID`. As in a kubelet,
//! they have no effect on a node that already exists.

use crate::api::cluster::node::Taint;
use crate::config::field_value::Wrong;
use crate::config::yaml::{Node, Value};

/// The key of the default taint. *(ours)* Pods of the cluster may use fields that Wherry does not support, and would
/// fail on this node. They are scheduled to the node only if they tolerate this taint, or if the configuration sets
/// `registerWithTaints`, which may be empty.
pub const DEFAULT: &str = "wherry.io/limited";

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Registration {
    /// The taints of the new node. None selects the default taint.
    pub taints: Option<Vec<Taint>>,
    pub provider_id: String,
}

impl Registration {
    pub fn taints(&self) -> Vec<Taint> {
        self.taints.clone().unwrap_or_else(|| {
            vec![Taint { key: DEFAULT.to_owned(), value: String::new(), effect: "NoSchedule".to_owned() }]
        })
    }
}

/// Sets `registerWithTaints`, a list of objects. The table has checked the types.
pub fn taints(c: &mut Registration, list: &Node, wrong: Wrong) {
    let Value::List(entries) = &list.value else { return };
    let mut taints: Vec<Taint> = Vec::new();
    for (i, entry) in entries.iter().enumerate() {
        let text = |field: &str| match entry.value.get(field) {
            Some(Node { value: Value::Text(text), .. }) => text.clone(),
            _ => String::new(),
        };
        let taint = Taint { key: text("key"), value: text("value"), effect: text("effect") };
        if taint.key.is_empty() {
            wrong(entry.line, &format!("[{i}].key"), "Required value: the key of the taint".to_owned());
        } else if taint.effect.is_empty() {
            wrong(
                entry.line,
                &format!("[{i}].effect"),
                "Required value: NoSchedule, PreferNoSchedule or NoExecute".to_owned(),
            );
        } else if taints.iter().any(|other| (&other.key, &other.effect) == (&taint.key, &taint.effect)) {
            wrong(
                entry.line,
                &format!("[{i}]"),
                format!("Duplicate value: {}:{}; remove one of them", taint.key, taint.effect),
            );
        } else {
            taints.push(taint);
        }
    }
    c.taints = Some(taints);
}
