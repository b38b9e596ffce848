//! Manifests for tests, written as the specs that matter.

/// A pod whose spec is `spec` (YAML, indented as one likes).
pub fn pod(namespace: &str, name: &str, spec: &str) -> String {
    let mut text = format!("apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: {namespace}\nspec:\n");
    let margin = spec.lines().filter(|l| !l.trim().is_empty()).map(|l| l.len() - l.trim_start().len()).min();
    for line in spec.lines().filter(|l| !l.trim().is_empty()) {
        text.push_str("  ");
        text.push_str(&line[margin.unwrap_or(0)..]);
        text.push('\n');
    }
    text
}

/// The spec of a pod that runs until it is told to end, and then ends at once.
pub const TRAP: &str = "
    containers:
    - name: main
      image: localhost/trap:1
";

/// A spec with one container that runs a shell script. `policy` is the restartPolicy.
pub fn script(policy: &str, script: &str) -> String {
    let quoted = serde_json::to_string(script).expect("a string");
    format!(
        "
        restartPolicy: {policy}
        terminationGracePeriodSeconds: 2
        containers:
        - name: main
          image: localhost/busybox:1.35
          command: [sh, -c, {quoted}]
        "
    )
}
