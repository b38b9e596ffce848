//! The destinations of handlers that do not need the runtime: http, tcp, grpc and sleep.

use crate::api::k8s::IntOrString;
use crate::api::k8s::{Container, HTTPGetAction};
use std::net::IpAddr;
use std::time::Duration;

const NO_ADDRESS: &str =
    "the container runtime reports no address of the pod; if this lasts, delete the pod, so that it gets a new sandbox";

/// The handlers that do not need the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Http(HttpTarget),
    /// Succeeds if a TCP connection can be opened.
    Tcp(Destination),
    Grpc(GrpcTarget),
    Sleep(Duration),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpTarget {
    /// `scheme: HTTPS`.
    pub tls: bool,
    pub to: Destination,
    /// The path with the query. Starts with `/`.
    pub path: String,
    pub headers: Vec<(String, String)>,
}

/// The health check of a gRPC server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcTarget {
    pub to: Destination,
    /// Empty for the server as a whole.
    pub service: String,
}

/// The address of a pod, for a handler that names no host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodAddress {
    Own(String),
    /// The pod uses the node's network.
    Node,
    /// The runtime reports no address. The node's address is no substitute: another service may listen there.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// An IP address or a name. None: the node itself, because the pod uses the node's network.
    pub host: Option<String>,
    pub port: u16,
    /// The address of a host name, or the reason why there is none. None before the look-up.
    pub looked_up: Option<Result<IpAddr, String>>,
}

impl Target {
    /// Returns the host name that has to be looked up before the handler starts. A gRPC probe has no host.
    pub fn name(&self) -> Option<&str> {
        let to = match self {
            Target::Http(http) => &http.to,
            Target::Tcp(to) => to,
            Target::Grpc(_) | Target::Sleep(_) => return None,
        };
        to.host.as_deref().filter(|host| *host != "localhost" && host.parse::<IpAddr>().is_err())
    }

    /// Sets the address of the host name. The error is the reason why there is none.
    pub fn set_address(&mut self, address: Result<IpAddr, String>) {
        match self {
            Target::Http(http) => http.to.looked_up = Some(address),
            Target::Tcp(to) => to.looked_up = Some(address),
            Target::Grpc(_) | Target::Sleep(_) => {}
        }
    }
}

impl Destination {
    /// # Errors
    /// The container has no port of this name, the number is not a port, or the pod's address is unknown.
    pub(super) fn new(
        host: Option<&String>,
        port: &IntOrString,
        container: &Container,
        pod: &PodAddress,
    ) -> Result<Destination, String> {
        let number = match port {
            IntOrString::Int(number) => Some(*number),
            IntOrString::String(text) => text.parse().ok().or_else(|| {
                let mut ports = container.ports.iter().flatten();
                ports.find(|port| port.name.as_deref() == Some(text)).map(|port| port.container_port)
            }),
        };
        let number = number.and_then(|n| u16::try_from(n).ok()).filter(|n| *n > 0);
        let Some(port) = number else { return Err(format!("couldn't find port: {port:?}")) };
        let host = match (host.filter(|host| !host.is_empty()), pod) {
            (Some(host), _) | (None, PodAddress::Own(host)) => Some(host.clone()),
            (None, PodAddress::Node) => None,
            (None, PodAddress::Unknown) => return Err(NO_ADDRESS.to_owned()),
        };
        Ok(Destination { host, port, looked_up: None })
    }
}

impl HttpTarget {
    pub(super) fn new(get: &HTTPGetAction, container: &Container, pod: &PodAddress) -> Result<HttpTarget, String> {
        let to = Destination::new(get.host.as_ref(), &get.port, container, pod)?;
        let path = get.path.as_deref().unwrap_or_default();
        let slash = if path.starts_with('/') { "" } else { "/" };
        let headers = get.http_headers.iter().flatten().map(|h| (h.name.clone(), h.value.clone())).collect();
        let tls = get.scheme.as_deref() == Some("HTTPS");
        Ok(HttpTarget { tls, to, path: format!("{slash}{path}"), headers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_has_the_pods_address_and_a_port_by_number_or_name() {
        let container: Container = serde_json::from_value(serde_json::json!({
            "name": "main", "ports": [{"name": "web", "containerPort": 8080}]
        }))
        .unwrap();
        let own = PodAddress::Own("10.0.0.5".to_owned());
        let to = |host: Option<&str>, port: IntOrString, pod: &PodAddress| {
            Destination::new(host.map(str::to_owned).as_ref(), &port, &container, pod)
        };
        let at = |host: Option<&str>, port| Ok(Destination { host: host.map(str::to_owned), port, looked_up: None });
        let named = |name: &str| IntOrString::String(name.to_owned());
        assert_eq!(to(None, IntOrString::Int(80), &own), at(Some("10.0.0.5"), 80));
        assert_eq!(to(Some("127.0.0.1"), named("web"), &own), at(Some("127.0.0.1"), 8080));
        assert_eq!(to(Some(""), named("81"), &PodAddress::Node), at(None, 81));
        assert_eq!(to(Some("db"), named("81"), &PodAddress::Unknown), at(Some("db"), 81));
        assert!(to(Some(""), named("81"), &PodAddress::Unknown).is_err_and(|why| why.contains("no address")));
        for port in [named("nosuch"), IntOrString::Int(0), IntOrString::Int(65_536)] {
            assert!(to(None, port, &own).is_err());
        }
    }
}
