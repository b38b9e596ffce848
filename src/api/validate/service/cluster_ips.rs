//! Validation of the addresses of a Service inside the machine, and of their families.

use crate::api::k8s::ServiceSpec;
use crate::api::problem::{At, Faults};
use crate::api::validate::address;
use crate::api::validate::complaints::one_of;
use std::net::IpAddr;

/// Checks the fields of a Service that has addresses of its own, or none. Whether the range of Services contains the
/// addresses is checked where the range is known.
pub(super) fn cluster_ips(spec: &ServiceSpec, at: At<'_>, faults: &mut Faults) {
    if spec.type_.as_deref() == Some("ExternalName") {
        return;
    }
    families(spec, at, faults);
    let at = at.field("clusterIPs");
    let texts = spec.cluster_ips.as_deref().unwrap_or_default();
    if let (Some(primary), Some(first)) = (&spec.cluster_ip, texts.first())
        && primary != first
    {
        faults.invalid(at, texts, "first value must match `clusterIP`");
    }
    if is_headless(spec) {
        return;
    }
    if texts.first().is_some_and(|first| first == "None") {
        return faults.invalid(at, texts, "'None' must be the first and only value");
    }
    if texts.len() > 2 {
        faults.invalid(at, texts, "may only hold up to 2 values");
    }
    let parsed = texts.iter().enumerate().map(|(i, text)| address::parse(text, at.item(i), faults));
    let parsed: Vec<Option<IpAddr>> = parsed.collect();
    let Some(addresses) = parsed.into_iter().collect::<Option<Vec<IpAddr>>>() else { return };
    if addresses.len() > 1 && addresses.iter().all(|address| address.is_ipv4() == addresses[0].is_ipv4()) {
        faults.invalid(at, texts, "may specify no more than one IP for each IP family");
    }
    let families = spec.ip_families.as_deref().unwrap_or_default();
    for (i, (address, family)) in addresses.iter().zip(families).enumerate() {
        if ["IPv4", "IPv6"].contains(&family.as_str()) && address.is_ipv4() != (family == "IPv4") {
            let detail = format_args!("expected an {family} value as indicated by `ipFamilies[{i}]`");
            faults.invalid(at.item(i), &texts[i], detail);
        }
    }
}

fn families(spec: &ServiceSpec, at: At<'_>, faults: &mut Faults) {
    const POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    let families = spec.ip_families.as_deref().unwrap_or_default();
    let at_families = at.field("ipFamilies");
    for (i, family) in families.iter().enumerate() {
        let at = at_families.item(i);
        one_of(Some(family), &["IPv4", "IPv6"], at, faults);
        if families[..i].contains(family) {
            faults.duplicate(at, family);
        }
    }
    let at = at.field("ipFamilyPolicy");
    let policy = match spec.ip_family_policy.as_deref() {
        Some(policy) => {
            one_of(Some(policy), &POLICIES, at, faults);
            policy
        }
        // Endpoints that no selector chooses can have both families.
        None if is_headless(spec) && spec.selector.as_ref().is_none_or(|selector| selector.is_empty()) => return,
        None => "SingleStack",
    };
    if policy == "SingleStack" {
        let addresses = spec.cluster_ips.as_ref().map_or(0, Vec::len);
        for (count, what) in [(addresses, "cluster IPs"), (families.len(), "IP families")] {
            if count == 2 {
                let must = "must be 'RequireDualStack' or 'PreferDualStack' when multiple";
                faults.invalid(at, policy, format_args!("{must} {what} are specified"));
            }
        }
    }
}

/// Reports whether the Service has no address of its own.
pub(super) fn is_headless(spec: &ServiceSpec) -> bool {
    spec.cluster_ips.as_deref().is_some_and(|addresses| matches!(addresses, [only] if only == "None"))
}
