//! A container's environment, and the words of its command: literal values with `$(NAME)` expanded.

use super::expand::expand;
use crate::adapters::cri::proto;
use k8s_openapi::api::core::v1 as core;
use std::collections::BTreeMap;

/// The variables in the spec's order, one each: the last value of a name counts.
pub struct Environment {
    order: Vec<String>,
    values: BTreeMap<String, String>,
}

impl Environment {
    /// A value sees the variables before it.
    pub fn of(container: &core::Container) -> Result<Environment, String> {
        let mut env = Environment { order: Vec::new(), values: BTreeMap::new() };
        if container.env_from.as_ref().is_some_and(|e| !e.is_empty()) {
            return Err(format!("container {}: envFrom is not supported", container.name));
        }
        for var in container.env.iter().flatten() {
            if var.value_from.is_some() {
                return Err(format!("container {}: env {}: valueFrom is not supported", container.name, var.name));
            }
            let value = expand(var.value.as_deref().unwrap_or_default(), &env.values);
            if env.values.insert(var.name.clone(), value).is_none() {
                env.order.push(var.name.clone());
            }
        }
        Ok(env)
    }

    pub fn expand_all(&self, words: Option<&[String]>) -> Vec<String> {
        words.unwrap_or_default().iter().map(|w| expand(w, &self.values)).collect()
    }

    pub fn into_proto(mut self) -> Vec<proto::KeyValue> {
        self.order
            .into_iter()
            .map(|key| {
                let value = self.values.remove(&key).unwrap_or_default();
                proto::KeyValue { key, value, ..Default::default() }
            })
            .collect()
    }
}
