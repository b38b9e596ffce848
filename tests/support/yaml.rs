//! Builds manifests for tests from pod specs.

/// Returns the manifest of a pod. `spec` is YAML with any indentation.
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

/// The spec of a pod that runs until SIGTERM and then exits at once.
pub const TRAP: &str = "
    containers:
    - name: main
      image: localhost/trap:1
";

/// Returns the spec of a pod with one container that runs a shell script. `policy` is the restartPolicy.
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
