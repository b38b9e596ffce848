//! Validation of the IP addresses of Services and endpoints, with the messages of Kubernetes.

use super::complaints::complain;
use super::syntax;
use crate::api::problem::{At, Faults};
use std::net::IpAddr;

/// Parses an address, and reports it if it is invalid. An IPv4 address in the form of IPv6 is invalid too, because its
/// family is not clear.
pub(super) fn parse(text: &str, at: At<'_>, faults: &mut Faults) -> Option<IpAddr> {
    match text.parse() {
        Err(_) => {
            complain(syntax::ip(text), text, at, faults);
            None
        }
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            faults.invalid(at, text, "must not be an IPv4-mapped IPv6 address");
            None
        }
        Ok(address) => Some(address),
    }
}

/// Like `parse`, for an address that other machines or pods use. It also reports one that is special: it is not that
/// of a single machine or pod.
pub(super) fn not_special(text: &str, at: At<'_>, faults: &mut Faults) -> Option<IpAddr> {
    let address = parse(text, at, faults)?;
    let (is_link_local, is_link_local_multicast) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets().starts_with(&[224, 0, 0])),
        IpAddr::V6(v6) => (v6.segments()[0] & 0xffc0 == 0xfe80, v6.segments()[0] & 0xff0f == 0xff02),
    };
    if address.is_unspecified() {
        faults.invalid(at, text, format_args!("may not be unspecified ({text})"));
    } else if address.is_loopback() {
        faults.invalid(at, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
    } else if is_link_local {
        faults.invalid(at, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    } else if is_link_local_multicast {
        faults.invalid(at, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
    Some(address)
}
