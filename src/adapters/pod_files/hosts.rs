//! The managed hosts file, mounted at /etc/hosts in all containers of a pod. Its content is identical to a kubelet's.

use crate::api::hostname;
use crate::api::pod::Pod;
use std::fmt::Write;

const HEADER: &str = "# Kubernetes-managed hosts file.\n";
const HEADER_HOST_NETWORK: &str = "# Kubernetes-managed hosts file (host network).\n";
const ALIASES: &str = "\n# Entries added by HostAliases.\n";
const LOCAL: &str = "127.0.0.1\tlocalhost\n\
    ::1\tlocalhost ip6-localhost ip6-loopback\n\
    fe00::0\tip6-localnet\n\
    fe00::0\tip6-mcastprefix\n\
    fe00::1\tip6-allnodes\n\
    fe00::2\tip6-allrouters\n";

/// Returns the content of a pod's hosts file. `host` is the content of the host's file for a pod with `hostNetwork`.
/// It is None for other pods, which get a line for each of `ips`.
pub fn content(pod: &Pod, ips: &[String], cluster_domain: &str, host: Option<&str>) -> String {
    let mut text = match host {
        Some(host) => format!("{HEADER_HOST_NETWORK}{host}"),
        None => {
            let name = hostname::label(pod);
            let mut text = format!("{HEADER}{LOCAL}");
            for ip in ips {
                // Writing to a String cannot fail.
                let _ = match hostname::domain(pod, cluster_domain) {
                    Some(domain) => writeln!(text, "{ip}\t{name}.{domain}\t{name}"),
                    None => writeln!(text, "{ip}\t{name}"),
                };
            }
            text
        }
    };
    let aliases = pod.spec().host_aliases.as_deref().unwrap_or_default();
    if !aliases.is_empty() {
        text.push_str(ALIASES);
        for alias in aliases {
            let _ = writeln!(text, "{}\t{}", alias.ip, alias.hostnames.as_deref().unwrap_or_default().join("\t"));
        }
    }
    text
}
