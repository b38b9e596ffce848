//! Names and addresses: host name, DNS, host aliases, ports.

use crate::api::k8s::{ContainerPort, PodSpec};
use crate::api::problem::{At, Faults};
use crate::api::validate::complaints::complain;
use crate::api::validate::syntax;

/// The maximum number of name servers. glibc ignores further ones.
const MAX_NAMESERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
/// The maximum length of the search list in characters, including the spaces between the domains.
const MAX_SEARCH_CHARACTERS: usize = 2048;

/// The kernel's limit for a host name, in bytes, which is also the limit of the field.
const MAX_HOST_NAME: usize = 64;

/// The protocols of a port.
pub(super) const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

/// Validates `hostnameOverride`. It has no effect on a host-network pod, so it is rejected there, as by the API
/// server.
fn host_name_override(spec: &PodSpec, at: At<'_>, faults: &mut Faults) {
    let Some(name) = spec.hostname_override.as_deref().filter(|name| !name.is_empty()) else { return };
    complain(syntax::dns_subdomain(name), name, at, faults);
    if name.len() > MAX_HOST_NAME {
        faults.invalid(at, name, format_args!("must be no more than {MAX_HOST_NAME} bytes"));
    }
    if spec.set_hostname_as_fqdn == Some(true) {
        faults.forbidden(at, "may not be set together with setHostnameAsFQDN");
    }
    if spec.host_network == Some(true) {
        faults.forbidden(at, "may not be set together with hostNetwork");
    }
}

pub(super) fn names(spec: &PodSpec, at: At<'_>, faults: &mut Faults) {
    for (name, field) in [(&spec.hostname, "hostname"), (&spec.subdomain, "subdomain")] {
        if let Some(name) = name.as_deref().filter(|name| !name.is_empty()) {
            complain(syntax::dns_label(name), name, at.field(field), faults);
        }
    }
    host_name_override(spec, at.field("hostnameOverride"), faults);
    let aliases = at.field("hostAliases");
    for (i, alias) in spec.host_aliases.iter().flatten().enumerate() {
        let at = aliases.item(i);
        complain(syntax::ip(&alias.ip), &alias.ip, at.field("ip"), faults);
        let at = at.field("hostnames");
        for (i, name) in alias.hostnames.iter().flatten().enumerate() {
            complain(syntax::dns_subdomain(name), name, at.item(i), faults);
        }
    }
}

pub(super) fn dns(spec: &PodSpec, at: At<'_>, faults: &mut Faults) {
    const POLICIES: [&str; 4] = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];
    let policy = spec.dns_policy.as_deref().unwrap_or("ClusterFirst");
    if !POLICIES.contains(&policy) {
        faults.unsupported_value(at.field("dnsPolicy"), policy, &POLICIES);
    }
    let at = at.field("dnsConfig");
    let Some(config) = &spec.dns_config else {
        if policy == "None" {
            faults.required(at, "must provide `dnsConfig` when `dnsPolicy` is None");
        }
        return;
    };
    let servers = config.nameservers.as_deref().unwrap_or_default();
    let at_servers = at.field("nameservers");
    if servers.is_empty() && policy == "None" {
        faults.required(at_servers, "must provide at least one DNS nameserver when `dnsPolicy` is None");
    }
    if servers.len() > MAX_NAMESERVERS {
        faults.too_many(at_servers, servers.len(), MAX_NAMESERVERS);
    }
    for (i, server) in servers.iter().enumerate() {
        complain(syntax::ip(server), server, at_servers.item(i), faults);
    }
    let searches = config.searches.as_deref().unwrap_or_default();
    let at_searches = at.field("searches");
    if searches.len() > MAX_SEARCHES {
        faults.too_many(at_searches, searches.len(), MAX_SEARCHES);
    }
    if searches.join(" ").len() > MAX_SEARCH_CHARACTERS {
        let detail = format_args!(
            "must not have more than {MAX_SEARCH_CHARACTERS} characters (including spaces) in the search list"
        );
        faults.invalid(at_searches, searches, detail);
    }
    for (i, search) in searches.iter().enumerate() {
        // "." is the root domain, which means no search.
        if search != "." {
            let name = search.strip_suffix('.').unwrap_or(search);
            complain(syntax::dns_subdomain(name), search, at_searches.item(i), faults);
        }
    }
    let at_options = at.field("options");
    for (i, option) in config.options.iter().flatten().enumerate() {
        let at = at_options.item(i);
        let name = option.name.as_deref().unwrap_or_default();
        if name.is_empty() {
            faults.required(at.field("name"), "must not be empty");
        }
        for (text, field) in [(name, "name"), (option.value.as_deref().unwrap_or_default(), "value")] {
            if text.contains(char::is_whitespace) {
                faults.invalid(at.field(field), text, "must not contain whitespace");
            }
        }
    }
}

/// Checks the ports of one container. `host_ports` contains the host ports of the pod's previous containers.
pub(super) fn ports(
    ports: &[ContainerPort],
    host_network: bool,
    host_ports: &mut Vec<String>,
    at: At<'_>,
    faults: &mut Faults,
) {
    let mut names: Vec<&str> = Vec::new();
    for (i, port) in ports.iter().enumerate() {
        let at = at.item(i);
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            complain(syntax::port_name(name), name, at.field("name"), faults);
            if names.contains(&name) {
                faults.duplicate(at.field("name"), name);
            }
            names.push(name);
        }
        if port.container_port == 0 {
            faults.required(at.field("containerPort"), "");
        } else {
            number(port.container_port, at.field("containerPort"), faults);
        }
        let protocol = port.protocol.as_deref().unwrap_or_default();
        if !PROTOCOLS.contains(&protocol) {
            faults.unsupported_value(at.field("protocol"), protocol, &PROTOCOLS);
        }
        let host_ip = port.host_ip.as_deref().unwrap_or_default();
        if !host_ip.is_empty() {
            complain(syntax::ip(host_ip), host_ip, at.field("hostIP"), faults);
        }
        let Some(host_port) = port.host_port.filter(|p| *p != 0) else { continue };
        number(host_port, at.field("hostPort"), faults);
        if host_network && host_port != port.container_port {
            let detail = "must match `hostPort` when `hostNetwork` is true";
            faults.invalid(at.field("containerPort"), port.container_port, detail);
        }
        let key = format!("{protocol}/{host_ip}/{host_port}");
        if host_ports.contains(&key) {
            faults.duplicate(at.field("hostPort"), &key);
        }
        host_ports.push(key);
    }
}

/// Checks the number of a port.
pub(super) fn number(port: i32, at: At<'_>, faults: &mut Faults) {
    if !(1..=65535).contains(&port) {
        faults.invalid(at, port, "must be between 1 and 65535, inclusive");
    }
}
