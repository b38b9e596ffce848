//! The sysctls that a pod may set: the safe ones, and further ones that the node's configuration allows.

use std::borrow::Cow;

/// Namespaced sysctls that cannot harm the node or other pods (the list of kubelet 1.32).
const SAFE: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];

/// Converts a name to the form with dots, for comparisons. If the first separator is a slash, slashes and dots are
/// exchanged (`net/ipv4/conf/eth0.1/forwarding`), as in sysctl(8) and a kubelet.
pub fn dotted(name: &str) -> Cow<'_, str> {
    match name.find(['.', '/']) {
        Some(first) if name[first..].starts_with('/') => {
            let turn = |c| match c {
                '/' => '.',
                '.' => '/',
                other => other,
            };
            Cow::Owned(name.chars().map(turn).collect())
        }
        _ => Cow::Borrowed(name),
    }
}

/// Reports whether a pod may set the sysctl. `beyond` has the unsafe sysctls that this node allows, as names or
/// prefixes with a trailing `*`.
pub fn is_allowed(name: &str, beyond: &[String]) -> bool {
    let name = dotted(name);
    let matches = |pattern: &String| {
        let pattern = dotted(pattern);
        match pattern.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == pattern,
        }
    };
    SAFE.contains(&name.as_ref()) || beyond.iter().any(matches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_with_dots_and_with_slashes() {
        for (written, name) in [
            ("", ""),
            ("kernel", "kernel"),
            ("net.core.somaxconn", "net.core.somaxconn"),
            ("net/core/somaxconn", "net.core.somaxconn"),
            ("net/ipv4/conf/eth0.1/forwarding", "net.ipv4.conf.eth0/1.forwarding"),
            ("net.ipv4.conf.eth0/1.forwarding", "net.ipv4.conf.eth0/1.forwarding"),
        ] {
            assert_eq!(dotted(written), name, "{written}");
        }
    }

    #[test]
    fn safe_ones_are_allowed_everywhere_and_others_by_name_or_beginning() {
        let allowed = |name: &str, beyond: &[&str]| {
            let beyond: Vec<String> = beyond.iter().map(|s| (*s).to_owned()).collect();
            is_allowed(name, &beyond)
        };
        for (name, beyond, wanted) in [
            ("kernel.shm_rmid_forced", &[][..], true),
            ("net/ipv4/tcp_syncookies", &[], true),
            ("kernel.msgmax", &[], false),
            ("kernel.msgmax", &["kernel.msgmax"], true),
            ("kernel/msgmax", &["kernel.msgmax"], true),
            ("kernel.msgmax", &["kernel/msgmax"], true),
            ("kernel.msgmax", &["kernel.msg"], false),
            ("kernel.msgmax", &["net.*", "kernel.msg*"], true),
            ("net.core.somaxconn", &["net/core/*"], true),
            ("net.core.somaxconn", &["kernel.*"], false),
            ("vm.swappiness", &["*"], true),
        ] {
            assert_eq!(allowed(name, beyond), wanted, "{name} with {beyond:?}");
        }
    }
}
