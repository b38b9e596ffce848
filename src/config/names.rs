//! The rules for names of nodes and paths of sockets.

use std::path::PathBuf;

/// Returns the path in `unix:///path` or `/path`.
pub(crate) fn unix_endpoint(endpoint: &str) -> Result<PathBuf, String> {
    let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
    if !path.starts_with('/') {
        return Err(format!("{endpoint:?} is not a unix socket; write it like unix:///run/containerd/containerd.sock"));
    }
    check_socket(path)?;
    Ok(path.into())
}

/// Checks the kernel's limit on the length of a socket path.
pub(crate) fn check_socket(path: &str) -> Result<(), String> {
    if path.len() > 107 {
        return Err(format!("{path:?} is too long for a socket (107 bytes at most)"));
    }
    Ok(())
}

pub(crate) fn check_node_name(name: &str) -> Result<(), String> {
    if is_dns_subdomain(name) {
        return Ok(());
    }
    Err(format!(
        "{name:?} is not a valid node name; use lower case letters, digits, '-' and '.', at most 253 characters"
    ))
}

/// Reports whether this is an RFC 1123 subdomain as defined by Kubernetes: labels of lower case letters, digits and
/// inner dashes, joined by dots.
pub(crate) fn is_dns_subdomain(name: &str) -> bool {
    let label = |l: &str| {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        !l.is_empty() && l.bytes().all(inner) && !l.starts_with('-') && !l.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label)
}
