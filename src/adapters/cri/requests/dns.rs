//! The `dns_config` of a sandbox, from the pod's `dnsPolicy` and `dnsConfig` and the host's resolv.conf.

use super::host_dns::{HostDns, set_options};
use super::request_config::RequestConfig;
use crate::adapters::cri::proto;
use crate::api::k8s;
use crate::api::pod::Pod;
use crate::api::reason::Reason;

/// Limits of resolvers. Further entries are dropped, as in a kubelet.
const MAX_SERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
/// The maximum total length of the search domains in bytes, including the spaces between them.
const MAX_SEARCH_BYTES: usize = 2048;
/// Names with fewer than five dots are first tried with the search domains.
const CLUSTER_OPTION: &str = "ndots:5";

/// The reason and the message of a kubelet's event about a DNS setting that is not applied.
pub type DnsNotice = (Reason, String);

pub fn dns_config(pod: &Pod, cfg: &RequestConfig) -> proto::DNSConfig {
    let (dns, _) = form(pod, cfg);
    proto::DNSConfig { servers: dns.servers, searches: dns.searches, options: dns.options, ..Default::default() }
}

/// Returns the events about the pod's DNS settings that are reported when its sandbox is created.
pub fn dns_notices(pod: &Pod, cfg: &RequestConfig) -> Vec<DnsNotice> {
    form(pod, cfg).1
}

fn form(pod: &Pod, cfg: &RequestConfig) -> (HostDns, Vec<DnsNotice>) {
    let spec = pod.spec();
    let wants_cluster = match spec.dns_policy.as_deref() {
        Some("None" | "Default") => false,
        Some("ClusterFirstWithHostNet") => true,
        _ => !pod.host_network(),
    };
    let mut notices = Vec::new();
    // Unlike a kubelet, which warns about every pod because an API server fills in `ClusterFirst`, warn only about pods
    // that set it.
    if wants_cluster && cfg.cluster_dns.is_empty() && spec.dns_policy.is_some() {
        let whose = format!("{}_{}({})", pod.name.name, pod.name.namespace, pod.uid);
        notices.push((
            Reason::MissingClusterDNS,
            format!(
                "pod: \"{whose}\". kubelet does not have ClusterDNS IP configured and cannot create Pod using \
                 \"ClusterFirst\" policy. Falling back to \"Default\" policy."
            ),
        ));
    }
    let mut dns = match spec.dns_policy.as_deref() {
        Some("None") => HostDns::default(),
        Some("Default") => cfg.host_dns.clone(),
        _ if wants_cluster => cluster(pod, cfg),
        _ => cfg.host_dns.clone(),
    };
    if let Some(own) = &spec.dns_config {
        extend_unique(&mut dns.servers, own.nameservers.iter().flatten());
        extend_unique(&mut dns.searches, own.searches.iter().flatten());
        let option = |option: &k8s::PodDNSConfigOption| {
            let name = option.name.as_deref().unwrap_or_default();
            let value = option.value.as_ref().filter(|value| !value.is_empty());
            value.map_or_else(|| name.to_owned(), |value| format!("{name}:{value}"))
        };
        set_options(&mut dns.options, own.options.iter().flatten().map(option));
    }
    limit(&mut dns, &mut notices);
    (dns, notices)
}

/// Returns the cluster's servers, and the cluster's search domains followed by those of the host. Without a cluster
/// DNS, returns the host's settings.
fn cluster(pod: &Pod, cfg: &RequestConfig) -> HostDns {
    if cfg.cluster_dns.is_empty() {
        return cfg.host_dns.clone();
    }
    let mut searches = Vec::new();
    if !cfg.cluster_domain.is_empty() {
        let domain = &cfg.cluster_domain;
        searches.push(format!("{}.svc.{domain}", pod.name.namespace));
        searches.push(format!("svc.{domain}"));
        searches.push(domain.clone());
    }
    extend_unique(&mut searches, &cfg.host_dns.searches);
    HostDns { servers: cfg.cluster_dns.clone(), searches, options: vec![CLUSTER_OPTION.into()] }
}

fn extend_unique<'a>(list: &mut Vec<String>, more: impl IntoIterator<Item = &'a String>) {
    for item in more {
        if !list.contains(item) {
            list.push(item.clone());
        }
    }
}

fn limit(dns: &mut HostDns, notices: &mut Vec<DnsNotice>) {
    let (servers, searches) = (dns.servers.len(), dns.searches.len());
    dns.servers.truncate(MAX_SERVERS);
    dns.searches.truncate(MAX_SEARCHES);
    let mut bytes = 0;
    dns.searches.retain(|s| {
        bytes += s.len() + usize::from(bytes > 0);
        bytes <= MAX_SEARCH_BYTES
    });
    let mut omitted = |title: &str, what: &str, line: &str, applied: &[String]| {
        let message = format!(
            "{title} limits were exceeded, some {what} have been omitted, the applied {line} line is: {}",
            applied.join(" ")
        );
        notices.push((Reason::DNSConfigForming, message));
    };
    if dns.servers.len() < servers {
        omitted("Nameserver", "nameservers", "nameserver", &dns.servers);
    }
    if dns.searches.len() < searches {
        omitted("Search Line", "search paths", "search", &dns.searches);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{config, pod};
    use super::*;

    fn strings(s: &[&str]) -> Vec<String> {
        s.iter().map(|s| (*s).to_owned()).collect()
    }

    #[test]
    fn a_resolv_conf_is_read_as_resolvers_read_it() {
        let dns = HostDns::parse(
            "# c\n; c\nnameserver 192.0.2.1\nnameserver 2001:db8::1\nsearch old.example\n\
             search a.example. b.example .\n\
             options ndots:2 rotate\noptions ndots:3\nsortlist x\nnameserver\n",
        );
        assert_eq!(dns.servers, strings(&["192.0.2.1", "2001:db8::1"]));
        assert_eq!(dns.searches, strings(&["a.example", "b.example", "."]));
        assert_eq!(dns.options, strings(&["ndots:3", "rotate"]));
    }

    #[test]
    fn each_dns_policy_gives_the_same_result_as_in_a_kubelet() {
        let mut cfg = config();
        cfg.host_dns = HostDns::parse("nameserver 10.255.255.53\nsearch lan\noptions rotate\n");
        let dns = |spec: &str, cfg: &RequestConfig| dns_config(&pod(spec), cfg);

        let d = dns("{}", &cfg);
        assert_eq!(
            (d.servers, d.searches, d.options),
            (strings(&["10.255.255.53"]), strings(&["lan"]), strings(&["rotate"]))
        );

        cfg.cluster_dns = strings(&["10.96.0.10"]);
        cfg.cluster_domain = "cluster.local".into();
        let d = dns("{}", &cfg);
        assert_eq!(d.servers, strings(&["10.96.0.10"]));
        assert_eq!(d.searches, strings(&["default.svc.cluster.local", "svc.cluster.local", "cluster.local", "lan"]));
        assert_eq!(d.options, strings(&["ndots:5"]));
        assert_eq!(dns(r#"{"hostNetwork":true}"#, &cfg).servers, strings(&["10.255.255.53"]));
        let d = dns(r#"{"hostNetwork":true,"dnsPolicy":"ClusterFirstWithHostNet"}"#, &cfg);
        assert_eq!(d.servers, strings(&["10.96.0.10"]));

        let none = r#"{"dnsPolicy":"None","dnsConfig":{"nameservers":["192.0.2.53"],"searches":["x.y"],
            "options":[{"name":"ndots","value":"2"},{"name":"edns0"},{"name":"rotate","value":""}]}}"#;
        let d = dns(none, &cfg);
        assert_eq!((d.servers, d.searches), (strings(&["192.0.2.53"]), strings(&["x.y"])));
        assert_eq!(d.options, strings(&["ndots:2", "edns0", "rotate"]));

        let add = r#"{"dnsPolicy":"Default",
            "dnsConfig":{"nameservers":["10.255.255.53","a","b","c"],"options":[{"name":"rotate"}]}}"#;
        let d = dns(add, &cfg);
        assert_eq!((d.servers, d.options), (strings(&["10.255.255.53", "a", "b"]), strings(&["rotate"])));
    }

    #[test]
    fn omitted_dns_settings_are_reported_with_the_kubelets_messages() {
        let mut cfg = config();
        let notices = |spec: &str, cfg: &RequestConfig| dns_notices(&pod(spec), cfg);
        let missing = "pod: \"p_default(u)\". kubelet does not have ClusterDNS IP configured and cannot create Pod \
                       using \"ClusterFirst\" policy. Falling back to \"Default\" policy.";
        let by_name = r#"{"dnsPolicy":"ClusterFirst"}"#;
        assert_eq!(notices(by_name, &cfg), [(Reason::MissingClusterDNS, missing.to_owned())]);
        assert_eq!(notices(r#"{"hostNetwork":true,"dnsPolicy":"ClusterFirstWithHostNet"}"#, &cfg).len(), 1);
        for quiet in ["{}", r#"{"hostNetwork":true}"#, r#"{"dnsPolicy":"Default"}"#, r#"{"dnsPolicy":"None"}"#] {
            assert!(notices(quiet, &cfg).is_empty(), "{quiet}");
        }
        cfg.cluster_dns = strings(&["192.0.2.1"]);
        assert!(notices(by_name, &cfg).is_empty());
        let many: Vec<String> = (0..40).map(|i| format!("d{i}")).collect();
        let spec = serde_json::json!({"dnsPolicy": "None",
            "dnsConfig": {"nameservers": ["1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4"], "searches": many}});
        let told = notices(&spec.to_string(), &cfg);
        assert_eq!(
            told[0].1,
            "Nameserver limits were exceeded, some nameservers have been omitted, \
            the applied nameserver line is: 1.1.1.1 1.1.1.2 1.1.1.3"
        );
        assert_eq!(told[1].0, Reason::DNSConfigForming);
        assert!(told[1].1.ends_with(" d30 d31"), "{}", told[1].1);
    }
}
