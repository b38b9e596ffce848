//! The paths of a kubelet, which collectors read: directly, and below `/api/v1/nodes/NODE/proxy`.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubeletPath {
    /// `/metrics`
    Metrics,
    /// `/metrics/resource`
    ResourceMetrics,
    /// `/metrics/cadvisor`
    CadvisorMetrics,
    /// `/metrics/probes`
    ProbeMetrics,
    /// `/stats/summary`
    Summary,
    /// `/pods`
    Pods,
    /// `/configz`
    Configz,
    /// `/healthz`
    Healthz,
}

impl KubeletPath {
    /// Returns the path with these parts, if it exists.
    pub fn find(parts: &[&str]) -> Option<KubeletPath> {
        Some(match parts {
            ["metrics"] => KubeletPath::Metrics,
            ["metrics", "resource"] => KubeletPath::ResourceMetrics,
            ["metrics", "cadvisor"] => KubeletPath::CadvisorMetrics,
            ["metrics", "probes"] => KubeletPath::ProbeMetrics,
            ["stats", "summary"] => KubeletPath::Summary,
            ["pods"] => KubeletPath::Pods,
            ["configz"] => KubeletPath::Configz,
            ["healthz"] => KubeletPath::Healthz,
            _ => return None,
        })
    }

    /// Returns the subresource of nodes for which a kubelet requires the verb `get` (fine-grained authorization, the
    /// default since 1.33).
    pub fn subresource(self) -> &'static str {
        match self {
            KubeletPath::Metrics
            | KubeletPath::ResourceMetrics
            | KubeletPath::CadvisorMetrics
            | KubeletPath::ProbeMetrics => "metrics",
            KubeletPath::Summary => "stats",
            KubeletPath::Pods => "pods",
            KubeletPath::Configz => "configz",
            KubeletPath::Healthz => "healthz",
        }
    }
}
