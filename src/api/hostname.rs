//! The host name and domain of a pod, from `hostname`, `subdomain` and `setHostnameAsFQDN`, or from `hostnameOverride`
//! alone. They are used for the sandbox and for the pod's own line in /etc/hosts.

use crate::api::pod::Pod;
use crate::api::printable;

/// The maximum length of a host name on Linux, in bytes.
const HOST_NAME_MAX: usize = 64;
/// The maximum length of a DNS label, in bytes.
const LABEL_MAX: usize = 63;

/// Returns `hostnameOverride`, if it is set. It can have several labels, and no domain is added to it.
fn overriding(pod: &Pod) -> Option<&str> {
    pod.spec().hostname_override.as_deref().filter(|name| !name.is_empty())
}

/// Returns `<subdomain>.<namespace>.svc.<cluster domain>`, if the pod has a subdomain.
pub fn domain(pod: &Pod, cluster_domain: &str) -> Option<String> {
    if overriding(pod).is_some() {
        return None;
    }
    let subdomain = pod.spec().subdomain.as_deref().filter(|s| !s.is_empty())?;
    Some(format!("{subdomain}.{}.svc.{cluster_domain}", pod.name.namespace))
}

/// Returns `hostnameOverride`, or the first label of the pod's host name: `hostname`, otherwise the pod's name,
/// truncated to the length of a label.
pub fn label(pod: &Pod) -> &str {
    if let Some(name) = overriding(pod) {
        return name;
    }
    match pod.spec().hostname.as_deref() {
        Some(h) if !h.is_empty() => h,
        _ => {
            let name: &str = &pod.name.name;
            let begin = printable::cut(name, LABEL_MAX);
            if begin.len() < name.len() { begin.trim_end_matches(['-', '.']) } else { name }
        }
    }
}

/// Returns the host name for the kernel's UTS namespace, or an error if it is too long.
pub fn kernel_name(pod: &Pod, cluster_domain: &str) -> Result<String, String> {
    let label = label(pod);
    if pod.spec().set_hostname_as_fqdn != Some(true) {
        return Ok(label.to_owned());
    }
    let Some(domain) = domain(pod, cluster_domain) else { return Ok(label.to_owned()) };
    let fqdn = format!("{label}.{domain}");
    if fqdn.len() > HOST_NAME_MAX {
        return Err(format!(
            "spec.setHostnameAsFQDN: the name {fqdn} has {} characters, but a host name has at most {HOST_NAME_MAX}; \
             shorten spec.hostname or spec.subdomain",
            fqdn.len()
        ));
    }
    Ok(fqdn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::k8s;

    #[test]
    fn the_name_is_the_pods_own_cut_to_a_label() {
        assert_eq!(label(&Pod::of_spec("web", k8s::PodSpec::default())), "web");
        let long = format!("{}-{}", "a".repeat(62), "b".repeat(20));
        assert_eq!(label(&Pod::of_spec(&long, k8s::PodSpec::default())), "a".repeat(62));
    }

    #[test]
    fn a_name_that_the_pod_sets_replaces_all_others() {
        let spec = k8s::PodSpec {
            hostname: Some("hosty".into()),
            subdomain: Some("subby".into()),
            hostname_override: Some("db.example.com".into()),
            ..Default::default()
        };
        let pod = Pod::of_spec("web", spec);
        assert_eq!((label(&pod), domain(&pod, "cluster.local")), ("db.example.com", None));
        assert_eq!(kernel_name(&pod, "cluster.local").as_deref(), Ok("db.example.com"));
    }

    #[test]
    fn fqdn_has_a_trailing_dot_without_a_cluster_domain_as_recorded() {
        let spec = k8s::PodSpec {
            hostname: Some("hosty".into()),
            subdomain: Some("subby".into()),
            set_hostname_as_fqdn: Some(true),
            ..Default::default()
        };
        let p = Pod::of_spec("x", spec);
        assert_eq!(domain(&p, "").as_deref(), Some("subby.default.svc."));
        assert_eq!(kernel_name(&p, ""), Ok("hosty.subby.default.svc.".to_owned()));
        assert!(kernel_name(&p, &"d".repeat(50)).is_err_and(|e| e.contains("setHostnameAsFQDN")));
    }
}
