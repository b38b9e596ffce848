//! Looks up the name of a host. The resolver of the C library can block for seconds, so this runs on a helper thread.

use std::net::{IpAddr, ToSocketAddrs};

/// Returns the first IPv4 address of a name, or else its first IPv6 address.
///
/// # Errors
/// The name has no address, or the look-up failed. The text is the one that Go uses.
pub fn look_up(name: &str) -> Result<IpAddr, String> {
    let found = (name, 0).to_socket_addrs().map_err(|e| reason(&e.to_string()))?;
    let all: Vec<IpAddr> = found.map(|address| address.ip()).collect();
    all.iter().find(|ip| ip.is_ipv4()).or(all.first()).copied().ok_or_else(|| NO_HOST.to_owned())
}

const NO_HOST: &str = "no such host";

/// Converts an error to Go's text. `error` is the text of the standard library, which ends with that of
/// gai_strerror(3).
fn reason(error: &str) -> String {
    let error = error.rsplit(": ").next().unwrap_or(error);
    match error {
        "Name or service not known" | "No address associated with hostname" | "Name does not resolve" => NO_HOST.into(),
        other => other.to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_the_hosts_file_has_its_address() {
        assert!(look_up("LOCALHOST").unwrap().is_loopback());
    }

    #[test]
    fn errors_are_worded_as_in_go() {
        assert_eq!(reason("failed to lookup address information: Name or service not known"), NO_HOST);
        let temporary = "failed to lookup address information: Temporary failure in name resolution";
        assert_eq!(reason(temporary), "temporary failure in name resolution");
    }
}
