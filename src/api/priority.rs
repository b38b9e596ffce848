//! The priority of a pod: `spec.priority`, else that of a system class (A5).

use k8s_openapi::api::core::v1::PodSpec;

/// From this on a pod is critical (A5).
pub const CRITICAL: i32 = 2_000_000_000;

/// The value of a built-in class; None for every other name.
pub fn system_class(name: &str) -> Option<i32> {
    match name {
        "system-cluster-critical" => Some(CRITICAL),
        "system-node-critical" => Some(CRITICAL + 1000),
        _ => None,
    }
}

/// Zero if the spec says none.
pub fn of(spec: &PodSpec) -> i32 {
    let class = || spec.priority_class_name.as_deref().and_then(system_class);
    spec.priority.or_else(class).unwrap_or(0)
}

/// Critical pods preempt others, stop last, and are the last that the kernel kills for memory.
pub fn is_critical(spec: &PodSpec) -> bool {
    of(spec) >= CRITICAL
}
