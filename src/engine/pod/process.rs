//! The environment, command and arguments of a container's process.

use crate::api::environment::{self, Facts};
use crate::api::expand::{self, Expanded};
use crate::api::k8s::Container;

/// Resolves and expands the environment, the command and the arguments.
///
/// # Errors
/// A value does not exist, or the result is too large. The message is the kubelet's.
pub fn of(container: &Container, facts: Facts<'_>) -> Result<Expanded, String> {
    let variables = environment::variables(container, facts).map_err(|missing| missing.to_string())?;
    expand::process(&variables, container).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::data_object::DataObjects;
    use crate::api::document;
    use crate::api::document::context::Context;
    use crate::api::resources::Resources;
    use serde_json::{Value, json};

    #[test]
    fn references_that_multiply_the_environment_are_an_error_and_take_no_memory() {
        // A record of an earlier version may contain such variables. They expand to 2^64 times ten bytes.
        let mut env = vec![json!({"name": "c0", "value": "aaaaaaaaaa"})];
        env.extend((1..64).map(|i| json!({"name": format!("c{i}"), "value": format!("$(c{0})$(c{0})", i - 1)})));
        let container: Container = serde_json::from_value(json!({"name": "main", "env": Value::from(env)})).unwrap();
        let text =
            b"{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: main, image: 'i:1'}]}}";
        let pod = document::read(text, "/m/a.yaml", Context::new("lab", "")).0.remove(0);
        let (objects, allocatable) = (DataObjects::default(), Resources::default());
        let facts = Facts {
            pod: &pod,
            ips: &[],
            host_ips: &[],
            allocatable: &allocatable,
            objects: &objects,
            services: None,
            cluster: None,
        };
        let why = of(&container, facts).unwrap_err();
        assert!(why.starts_with("env[17].value: Too long: "), "{why}");
    }
}
