//! The ports on the command line: `[ADDRESS:]LOCAL:REMOTE`, `REMOTE` or `:REMOTE`, where REMOTE is a number or the name
//! of a port.

use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum length of a port's name, as in a manifest.
const LONGEST_NAME: usize = 15;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The address to listen on. None for the loopback addresses.
    pub address: Option<IpAddr>,
    pub local: Local,
    pub remote: Remote,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Local {
    Port(u16),
    /// A free port that the kernel chooses.
    Free,
    /// The same port as the remote one.
    Same,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remote {
    Port(u16),
    /// The name of a container port.
    Name(String),
}

impl Ports {
    /// Parses an argument of the command.
    ///
    /// # Errors
    /// The text does not have this form.
    pub fn parse(text: &str) -> Result<Ports, String> {
        let expected = || {
            "expected [ADDRESS:]LOCAL:REMOTE, REMOTE or :REMOTE, with ports from 1 to 65535, or, for REMOTE, the \
             name of a port"
                .to_owned()
        };
        let number = |text: &str| text.parse().ok().filter(|port| *port != 0);
        let remote = |text: &str| {
            let name = || is_name(text).then(|| Remote::Name(text.to_owned()));
            number(text).map(Remote::Port).or_else(name).ok_or_else(expected)
        };
        let (rest, remote) = match text.rsplit_once(':') {
            Some((rest, text)) => (rest, remote(text)?),
            None => return Ok(Ports { address: None, local: Local::Same, remote: remote(text)? }),
        };
        let (address, local) = match rest.rsplit_once(':') {
            Some((address, local)) => (Some(address), local),
            None => (None, rest),
        };
        let local = if local.is_empty() { Local::Free } else { Local::Port(number(local).ok_or_else(expected)?) };
        let address = match address {
            None | Some("localhost") => None,
            Some(address) => {
                let bare = address.strip_prefix('[').and_then(|a| a.strip_suffix(']')).unwrap_or(address);
                Some(bare.parse().map_err(|_| format!("{address:?} is not an IP address or localhost"))?)
            }
        };
        Ok(Ports { address, local, remote })
    }

    /// Returns the addresses to listen on. The first is required; the second may not exist on the machine.
    pub fn addresses(&self) -> Vec<IpAddr> {
        match self.address {
            Some(address) => vec![address],
            None => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
        }
    }
}

fn is_name(text: &str) -> bool {
    let characters = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    text.len() <= LONGEST_NAME && text.bytes().all(characters) && text.bytes().any(|b| b.is_ascii_lowercase())
}

impl Remote {
    /// Returns the number of the port in this pod.
    ///
    /// # Errors
    /// The pod has no TCP port of this name.
    pub fn resolve(&self, pod: &Value) -> Result<u16, String> {
        let wanted = match self {
            Remote::Port(port) => return Ok(*port),
            Remote::Name(name) => name,
        };
        let text = |place: &str| pod.pointer(place).and_then(Value::as_str).unwrap_or_default();
        let pod_name = format!("{}/{}", text("/metadata/namespace"), text("/metadata/name"));
        let containers = ["/spec/containers", "/spec/initContainers"].map(|list| pod.pointer(list));
        let containers = containers.into_iter().flatten().filter_map(Value::as_array).flatten();
        let ports = containers.filter_map(|container| container["ports"].as_array()).flatten();
        let named: Vec<(&str, &Value)> = ports.filter_map(|port| Some((port["name"].as_str()?, port))).collect();
        let Some((_, port)) = named.iter().find(|(name, _)| name == wanted) else {
            let list: Vec<String> =
                named.iter().map(|(name, port)| format!("{name} ({})", port["containerPort"])).collect();
            let has = if list.is_empty() { "no named ports".to_owned() } else { list.join(", ") };
            return Err(format!("pod {pod_name} has no port named {wanted}; it has {has}"));
        };
        if let Some(protocol) = port["protocol"].as_str().filter(|protocol| *protocol != "TCP") {
            return Err(format!(
                "port {wanted} of pod {pod_name} has the protocol {protocol}; only TCP can be forwarded"
            ));
        }
        let number = port["containerPort"].as_u64().and_then(|port| u16::try_from(port).ok());
        number.ok_or_else(|| format!("port {wanted} of pod {pod_name} has no valid number"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_form_names_an_address_and_two_ports() {
        let named = |name: &str| Remote::Name(name.to_owned());
        for (text, address, local, remote) in [
            ("80", None, Local::Same, Remote::Port(80)),
            (":80", None, Local::Free, Remote::Port(80)),
            ("8080:80", None, Local::Port(8080), Remote::Port(80)),
            ("localhost:8080:80", None, Local::Port(8080), Remote::Port(80)),
            ("0.0.0.0:8080:80", Some("0.0.0.0"), Local::Port(8080), Remote::Port(80)),
            ("10.0.0.1::80", Some("10.0.0.1"), Local::Free, Remote::Port(80)),
            ("[::1]:8080:80", Some("::1"), Local::Port(8080), Remote::Port(80)),
            ("::1:8080:80", Some("::1"), Local::Port(8080), Remote::Port(80)),
            ("http", None, Local::Same, named("http")),
            (":http-2", None, Local::Free, named("http-2")),
            ("[::1]:8080:http", Some("::1"), Local::Port(8080), named("http")),
        ] {
            let address = address.map(|a| a.parse().unwrap());
            assert_eq!(Ports::parse(text), Ok(Ports { address, local, remote }), "{text}");
        }
        for text in
            ["", ":", "0", "80:", "0:80", "65536", "HTTP", "http:80", "example.com:80:80", "a:b:c:80", "-", "8080:x_y"]
        {
            assert!(Ports::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_name_is_that_of_a_tcp_port_of_a_container() {
        let pod = json!({
            "metadata": { "namespace": "shop", "name": "web" },
            "spec": {
                "containers": [
                    { "ports": [{ "containerPort": 1 }, { "name": "http", "containerPort": 8080, "protocol": "TCP" }] },
                    { "ports": [{ "name": "dns", "containerPort": 53, "protocol": "UDP" }] },
                    {},
                ],
                "initContainers": [{ "ports": [{ "name": "side", "containerPort": 9 }] }],
            },
        });
        let resolve = |name: &str| Remote::Name(name.to_owned()).resolve(&pod);
        assert_eq!((Remote::Port(7).resolve(&pod), resolve("http"), resolve("side")), (Ok(7), Ok(8080), Ok(9)));
        let missing = "pod shop/web has no port named x; it has http (8080), dns (53), side (9)";
        assert_eq!(resolve("x"), Err(missing.to_owned()));
        assert!(resolve("dns").unwrap_err().ends_with("has the protocol UDP; only TCP can be forwarded"));
        let bare = json!({ "metadata": { "namespace": "shop", "name": "web" }, "spec": { "containers": [{}] } });
        let none = Remote::Name("http".to_owned()).resolve(&bare).unwrap_err();
        assert_eq!(none, "pod shop/web has no port named http; it has no named ports");
    }
}
