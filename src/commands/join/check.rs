//! `wherry check --join`: checks whether `wherry join` with the same arguments can succeed. Prints a line for each
//! check.
//!
//! Exit code 0: no error (there may be warnings); 1: an error. The command changes nothing on this machine or in the
//! cluster.

use super::arguments::JoinSource;
use super::discovery::{DiscoveryStage, NEW_TOKEN, TIMEOUT, discover, unreachable};
use super::membership::Membership;
use super::{Cluster, JoinTarget};
use crate::adapters::api_server::{Blocking, Contents, Credentials, User};
use crate::adapters::host::checks::cni;
use crate::api::cluster::request::ApiRequest;
use crate::api::cluster::requests;
use crate::api::cluster::status::{Failure as Cause, Refusal};
use crate::api::finding::Finding;
use crate::api::kube::KUBERNETES_MINOR as MINOR;
use crate::commands::check_system::print;
use crate::commands::output::Failure;
use crate::config::{self, Config, Flags};
use jiff::Timestamp;
use serde_json::Value;
use std::io::{ErrorKind, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

const CONNECT: Duration = Duration::from_secs(5);
/// The difference between the clocks, in seconds, from which new certificates may not be valid yet on this machine. The
/// control plane backdates certificates by only five minutes.
const CLOCK_ERROR: i64 = 300;
const CLOCK_WARNING: i64 = 30;
/// Maximum number of minor versions by which a node may be older than the API server.
const SKEW: u32 = 3;

const CSRS: (&str, &str) = ("certificates.k8s.io", "certificatesigningrequests");
/// The calls for joining with a token: verb, group, resource.
const OF_TOKEN: [(&str, &str, &str); 2] = [("create", CSRS.0, CSRS.1), ("get", CSRS.0, CSRS.1)];
/// The calls of a node.
const OF_NODE: [(&str, &str, &str); 14] = [
    ("create", "", "nodes"),
    ("get", "", "nodes"),
    ("patch", "", "nodes"),
    ("patch", "", "nodes/status"),
    ("create", "coordination.k8s.io", "leases"),
    ("patch", "coordination.k8s.io", "leases"),
    ("list", "", "pods"),
    ("watch", "", "pods"),
    ("delete", "", "pods"),
    ("patch", "", "pods/status"),
    ("create", "", "events"),
    ("list", "", "services"),
    ("create", CSRS.0, CSRS.1),
    ("get", CSRS.0, CSRS.1),
];

/// Runs the checks. `files` are the positional arguments: only the server is allowed.
pub fn run(
    out: &mut dyn Write,
    flags: &Flags,
    target: JoinTarget,
    files: &[PathBuf],
    as_json: bool,
) -> Result<u8, Failure> {
    let usage = |why: &str| Failure::Message(why.to_owned(), 2);
    let server = match files {
        [] => None,
        [server] => Some(server.to_str().ok_or_else(|| usage("the address of the server is not text"))?),
        _ => return Err(usage("--join takes one server address")),
    };
    let source = target.source(server).map_err(|why| Failure::Message(why, 2))?;
    let loaded = config::load(flags);
    let mut found = vec![configuration(&loaded), membership(&loaded.config, &source)];
    found.extend(cluster(source, &loaded.config.node_name));
    found.push(cni::inspect(Path::new(cni::CONFIGURATIONS), &cni::PROGRAMS.map(PathBuf::from)));
    found.push(port(&loaded.config));
    print(out, &found, as_json, "the join")
}

fn configuration(loaded: &config::Loaded) -> Finding {
    match loaded.problems.errors.first() {
        None => Finding::ok("configuration", format!("the node is {}", loaded.config.node_name)),
        Some(error) => Finding::error("configuration", error.to_string(), "run wherry check to see all errors"),
    }
}

fn membership(config: &Config, source: &JoinSource) -> Finding {
    let check = "membership";
    let failed = |failure: Failure| match failure {
        Failure::Message(why, _) => Finding::error(check, why, "see wherry leave --help"),
        Failure::Output(e) => Finding::error(check, e.to_string(), "try again"),
    };
    let membership = match Membership::read(config) {
        Ok(membership) => membership,
        Err(failure) => return failed(failure),
    };
    if !membership.is_managed() {
        return Finding::ok(check, "this machine is not a node of a cluster");
    }
    let accepted = source.authorities().and_then(|hashes| hashes.map_or(Ok(()), |hashes| membership.accepts(&hashes)));
    match accepted.and_then(|()| membership.is_node(&config.node_name)) {
        Err(failure) => failed(failure),
        Ok(true) => Finding::ok(check, format!("this machine is already a node of {}", membership.server())),
        Ok(false) => Finding::ok(check, "this machine is a node of this cluster, and needs a new certificate"),
    }
}

/// Checks the server. Stops at the first check that fails.
fn cluster(source: JoinSource, node: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    let cluster = match source {
        JoinSource::Server { address, token, pins } => {
            let Some(connected) = connected(&address) else {
                let message = format!("{address:?} is not a valid server address");
                return vec![Finding::error("address", message, "use the form HOST:PORT")];
            };
            found.push(connected);
            if found.iter().any(|finding| finding.remedy.is_some()) {
                return found;
            }
            let (stages, cluster) = staged(discover(&address, &token, &pins));
            found.extend(stages);
            cluster.map(|contents| Cluster { user: User::Token(token.bearer()), contents })
        }
        JoinSource::Kubeconfig(path) => match Cluster::find(JoinSource::Kubeconfig(path.clone())) {
            Ok(cluster) => {
                found.push(Finding::ok("kubeconfig", path.display().to_string()));
                found.extend(connected(cluster.contents.server.trim_start_matches("https://")));
                Some(cluster)
            }
            Err(Failure::Message(why, _)) => {
                found.push(Finding::error("kubeconfig", why, "correct the file, or get a new one"));
                None
            }
            Err(Failure::Output(_)) => None,
        },
    };
    if let Some(cluster) = cluster.filter(|_| found.iter().all(|finding| finding.remedy.is_none())) {
        found.extend(with_credential(&cluster, node));
    }
    found
}

/// Checks whether the server accepts connections. Returns None if `address` is not an address.
fn connected(address: &str) -> Option<Finding> {
    let check = "address";
    let authority = Credentials::unverified(address.split('/').next().unwrap_or_default()).ok()?.authority();
    let addresses: Vec<_> = match authority.to_socket_addrs() {
        Ok(addresses) => addresses.collect(),
        Err(e) => {
            let message = format!("{authority}: {e}");
            return Some(Finding::error(check, message, "correct the name, or the resolver (/etc/resolv.conf)"));
        }
    };
    let mut why = "the name resolves to no address".to_owned();
    for address in addresses {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(_) => return Some(Finding::ok(check, format!("{address} accepts connections"))),
            Err(e) => why = format!("{address}: {e}"),
        }
    }
    let remedy = "correct the address, or open this port in the firewalls on the way to the control plane";
    Some(Finding::error(check, why, remedy))
}

/// Converts the steps of the discovery to findings.
fn staged(result: Result<Contents, (DiscoveryStage, String)>) -> (Vec<Finding>, Option<Contents>) {
    let stages = [
        (
            DiscoveryStage::ClusterInfo,
            "cluster-info",
            "the server provides it",
            "use the address of an API server of a kubeadm cluster",
        ),
        (DiscoveryStage::Token, "token", "has signed cluster-info", NEW_TOKEN),
        (
            DiscoveryStage::Authority,
            "ca",
            "has the given hash",
            "compare the hash with the one that kubeadm prints on the control plane",
        ),
        (
            DiscoveryStage::Verified,
            "tls",
            "the server's certificate is signed by the CA",
            "use an address that is in the server's certificate",
        ),
    ];
    let failed = result.as_ref().err().map(|(stage, why)| (*stage, why.clone()));
    let mut found = Vec::new();
    for (stage, check, fine, remedy) in stages {
        if let Some((_, why)) = failed.as_ref().filter(|(failed, _)| *failed == stage) {
            found.push(Finding::error(check, why.clone(), remedy));
            break;
        }
        found.push(Finding::ok(check, fine));
    }
    (found, result.ok())
}

/// Performs the checks that need the credential for joining.
fn with_credential(cluster: &Cluster, node: &str) -> Vec<Finding> {
    let check = "credential";
    let remedy = "provide a valid token or client certificate";
    let (mut api, name) = match cluster.connect(node) {
        Ok(connected) => connected,
        Err(why) => return vec![Finding::error(check, why, remedy)],
    };
    let calls = if matches!(cluster.user, User::Certificate { .. }) { &OF_NODE[..] } else { &OF_TOKEN[..] };
    let url = api.url();
    let answered = match api.call(requests::read_version(), TIMEOUT) {
        Ok(answered) => answered,
        Err(e) => return vec![Finding::error("tls", unreachable(&url, &e), "correct the kubeconfig or the address")],
    };
    let mut found = vec![clock(answered.date, Timestamp::now()), version(&answered.response.body)];
    let settings = match get(&mut api, requests::read_kubelet_configuration()) {
        Ok(_) => Finding::ok("settings", "the cluster's kubelet configuration can be read"),
        Err(Wrong::Refused(refusal)) if refusal.failure == Cause::Unauthorized => {
            found.push(Finding::error(check, format!("the server does not accept the {name} ({refusal})"), remedy));
            return found;
        }
        Err(wrong) => Finding::warning(
            "settings",
            format!("the cluster's kubelet configuration cannot be read ({wrong})"),
            "set clusterDNS and clusterDomain in the configuration if pods need them",
        ),
    };
    found.push(Finding::ok(check, format!("the server accepts the {name}")));
    found.push(settings);
    found.push(permissions(&mut api, calls, node));
    found
}

enum Wrong {
    Refused(Refusal),
    NoAnswer(String),
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Wrong::Refused(refusal) => write!(f, "{refusal}"),
            Wrong::NoAnswer(why) => f.write_str(why),
        }
    }
}

fn get(api: &mut Blocking, request: ApiRequest) -> Result<Value, Wrong> {
    let url = api.url();
    let answered = api.call(request, TIMEOUT).map_err(|e| Wrong::NoAnswer(unreachable(&url, &e)))?;
    match Refusal::of(&answered.response) {
        None => serde_json::from_slice(&answered.response.body).map_err(|e| Wrong::NoAnswer(e.to_string())),
        Some(refusal) => Err(Wrong::Refused(refusal)),
    }
}

fn permissions(api: &mut Blocking, calls: &[(&str, &str, &str)], node: &str) -> Finding {
    let check = "permissions";
    let mut denied = Vec::new();
    for (verb, group, resource) in calls {
        let (name, namespace) = match *resource {
            "nodes" | "nodes/status" => (node, ""),
            "leases" => (node, "kube-node-lease"),
            _ => ("", ""),
        };
        match get(api, requests::review_own_access(verb, group, resource, name, namespace)) {
            Ok(review) if review["status"]["allowed"] == true => {}
            Ok(_) => denied.push(format!("{verb} {resource}")),
            Err(wrong) => {
                let message = format!("the permissions cannot be determined ({wrong})");
                return Finding::warning(check, message, "try again, or just join");
            }
        }
    }
    match denied.is_empty() {
        true => Finding::ok(check, format!("all {} calls are permitted", calls.len())),
        false => Finding::error(
            check,
            format!("not permitted: {}", denied.join(", ")),
            "bind the ClusterRole system:node-bootstrapper to the group of the token; a node needs \
             --authorization-mode=Node,RBAC",
        ),
    }
}

fn clock(server: Option<Timestamp>, now: Timestamp) -> Finding {
    let check = "clock";
    let Some(server) = server else {
        return Finding::warning(check, "the server sends no time", "compare the clocks of both machines");
    };
    let difference = (now.as_second() - server.as_second()).abs();
    let message = format!("differs by {difference} s from that of the server");
    let remedy = "synchronise both clocks (timedatectl set-ntp true)";
    match difference {
        d if d >= CLOCK_ERROR => Finding::error(check, message, remedy),
        d if d >= CLOCK_WARNING => Finding::warning(check, message, remedy),
        _ => Finding::ok(check, message),
    }
}

/// Checks the version of the API server against Kubernetes' version skew policy for nodes.
fn version(body: &[u8]) -> Finding {
    let check = "version";
    let object: Value = serde_json::from_slice(body).unwrap_or_default();
    let version = object["gitVersion"].as_str().unwrap_or_default().to_owned();
    let minor = version.trim_start_matches("v1.").split('.').next().and_then(|m| m.parse::<u32>().ok());
    let Some(minor) = minor.filter(|_| version.starts_with("v1.")) else {
        return Finding::warning(
            check,
            "the server does not report its version",
            "check that it is a Kubernetes API server",
        );
    };
    let message = format!("the API server has version {version}; this node behaves like 1.{MINOR}");
    match minor {
        m if m < MINOR => Finding::warning(
            check,
            message,
            "a node should not be newer than its API server; some fields have no effect",
        ),
        m if m > MINOR + SKEW => Finding::warning(
            check,
            message,
            format!("a node may be at most {SKEW} minor versions older than its API server; update wherry"),
        ),
        _ => Finding::ok(check, message),
    }
}

/// Checks the port of the node's server, which the API server connects to. Another node agent would also use this
/// port.
fn port(config: &Config) -> Finding {
    let (check, port) = ("port", config.node_server.port);
    if port == 0 {
        let message = "the node's server is off (port: 0): kubectl logs and exec do not work";
        return Finding::warning(check, message, "remove the field port from the configuration");
    }
    match TcpListener::bind(("0.0.0.0", port)) {
        Ok(_) => Finding::ok(check, format!("{port} is free")),
        // The running agent is already a node, and uses the port itself.
        Err(e) if e.kind() == ErrorKind::AddrInUse && config.kubeconfig.is_some() => {
            Finding::ok(check, format!("{port} is in use, as on every node"))
        }
        Err(e) if e.kind() == ErrorKind::AddrInUse => Finding::error(
            check,
            format!("{port} is in use"),
            "stop the program that uses it; a machine can have only one node agent (systemctl disable --now kubelet)",
        ),
        Err(e) => Finding::warning(check, format!("{port}: {e}"), "run the check as root"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::finding::Level;

    #[test]
    fn a_clock_that_differs_is_a_warning_and_then_an_error() {
        let at = |seconds: i64| Timestamp::from_second(1_000_000 + seconds).unwrap();
        for (difference, level) in [(0, Level::Ok), (29, Level::Ok), (-30, Level::Warning), (301, Level::Error)] {
            assert_eq!(clock(Some(at(0)), at(difference)).level, level, "{difference}");
        }
        assert_eq!(clock(None, at(0)).level, Level::Warning);
    }

    #[test]
    fn the_version_of_the_server_is_compared() {
        let of = |version: &str| version_level(&format!("{{\"gitVersion\": \"{version}\"}}"));
        fn version_level(body: &str) -> Level {
            version(body.as_bytes()).level
        }
        assert_eq!(of(&format!("v1.{MINOR}.1")), Level::Ok);
        assert_eq!(of(&format!("v1.{}.0-rc.1+k3s1", MINOR + 3)), Level::Ok);
        assert_eq!((of("v1.20.2"), of(&format!("v1.{}.0", MINOR + 4))), (Level::Warning, Level::Warning));
        for body in ["", "[]", "{\"gitVersion\": 7}", "{\"gitVersion\": \"2.0\"}"] {
            assert_eq!(version_level(body), Level::Warning, "{body}");
        }
    }

    #[test]
    fn the_steps_before_the_one_that_failed_are_fine() {
        let (found, cluster) = staged(Err((DiscoveryStage::Authority, "another key".into())));
        let levels: Vec<_> = found.iter().map(|finding| (finding.check, finding.level)).collect();
        assert_eq!(levels, [("cluster-info", Level::Ok), ("token", Level::Ok), ("ca", Level::Error)]);
        assert!(cluster.is_none());
    }

    #[test]
    fn a_server_that_does_not_accept_connections_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(connected(&listener.local_addr().unwrap().to_string()).unwrap().level, Level::Ok);
        let address = crate::net::refused::closed().to_string();
        let finding = connected(&address).unwrap();
        assert!(finding.level == Level::Error && finding.message.contains(&address), "{finding:?}");
        assert!(connected("a b").is_none());
    }
}
