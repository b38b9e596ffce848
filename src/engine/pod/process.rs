//! The environment, command and arguments of a container's process.

use crate::api::expand::{self, Expanded};
use k8s_openapi::api::core::v1::Container;

/// Resolves and expands environment, command and arguments.
///
/// # Errors
/// A record of an earlier version may contain values that validation rejects today. The error names the field.
pub fn of(container: &Container) -> Result<Expanded, String> {
    if container.env_from.as_ref().is_some_and(|e| !e.is_empty()) {
        return Err("envFrom is not supported".to_owned());
    }
    if let Some(e) = container.env.iter().flatten().find(|e| e.value_from.is_some()) {
        return Err(format!("env {}: valueFrom is not supported", e.name));
    }
    expand::container(container).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn with_env(env: Value) -> Container {
        serde_json::from_value(json!({"name": "main", "env": env})).unwrap()
    }

    #[test]
    fn a_value_from_elsewhere_is_an_error() {
        let from = json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
        assert_eq!(of(&with_env(from)), Err("env A: valueFrom is not supported".to_owned()));
    }

    #[test]
    fn references_that_multiply_the_environment_are_an_error_and_take_no_memory() {
        // It expands to 2^64 times ten bytes.
        let mut env = vec![json!({"name": "c0", "value": "aaaaaaaaaa"})];
        env.extend((1..64).map(|i| json!({"name": format!("c{i}"), "value": format!("$(c{0})$(c{0})", i - 1)})));
        let why = of(&with_env(Value::from(env))).unwrap_err();
        assert!(why.starts_with("env[17].value: Too long: "), "{why}");
    }
}
