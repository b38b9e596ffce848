//! Exec, attach and port-forward: the engine requests a URL of the runtime's streaming server, and Wherry's server
//! forwards the client's connection to that URL.

use crate::api::kube::kubelet_request::SessionKind;
use crate::api::kube::query::Query;
use crate::api::kube::status::Failure;
use crate::engine::control::exec::Command;
use crate::engine::control::stream::{StreamKind, Terminal};
use crate::net::http1::Head;
use crate::net::server::exchange::Upstream;
use std::net::SocketAddr;

/// The protocol that a client requests. The runtime's streaming server implements it; only the head of the request is
/// written here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::agent) enum Session {
    Spdy {
        method: &'static str,
        /// The values of X-Stream-Protocol-Version.
        versions: Vec<String>,
    },
    /// The headers of the handshake.
    WebSocket(Vec<(&'static str, String)>),
}

/// Maximum length of a list of protocol versions, and of the headers of a WebSocket handshake, in bytes.
const LONGEST: usize = 1024;

/// The headers of a WebSocket handshake that are forwarded.
const HANDSHAKE: [&str; 3] = ["Sec-WebSocket-Key", "Sec-WebSocket-Version", "Sec-WebSocket-Protocol"];

/// Returns the protocol that a client of the API for kubectl requests for a session.
///
/// # Errors
/// The request is not an upgrade to SPDY/3.1. kubectl 1.30 and later tries a WebSocket first, and SPDY after this
/// error.
pub(super) fn session(head: &Head) -> Result<Session, Failure> {
    let upgrade = head.values("upgrade").next().unwrap_or_default();
    if upgrade.is_empty() {
        return Err(Failure::bad_request("Upgrade request required"));
    }
    if !upgrade.eq_ignore_ascii_case("SPDY/3.1") {
        let why = format!("unable to upgrade to {upgrade:?}: this server supports SPDY/3.1");
        return Err(Failure::bad_request(why));
    }
    let versions: Vec<String> = head.values("x-stream-protocol-version").map(str::to_owned).collect();
    if versions.iter().map(String::len).sum::<usize>() > LONGEST {
        return Err(Failure::bad_request("X-Stream-Protocol-Version is too long"));
    }
    Ok(Session::Spdy { method: head.method, versions })
}

/// Like `session`, but also accepts a WebSocket: an API server translates the newest WebSocket protocol to SPDY, but
/// forwards the older ones to the node.
///
/// # Errors
/// The request is not an upgrade to SPDY/3.1 or to a WebSocket.
pub(super) fn session_of_kubelet(head: &Head) -> Result<Session, Failure> {
    if !is_websocket(head) {
        return session(head);
    }
    if head.method != "GET" {
        return Err(Failure::bad_request("a WebSocket handshake must use GET"));
    }
    let of = |name: &'static str| head.values(name).map(move |value| (name, value.to_owned()));
    let handshake: Vec<(&str, String)> = HANDSHAKE.into_iter().flat_map(of).collect();
    if handshake.iter().map(|(_, value)| value.len()).sum::<usize>() > LONGEST {
        return Err(Failure::bad_request("the headers of the WebSocket are too long"));
    }
    Ok(Session::WebSocket(handshake))
}

fn is_websocket(head: &Head) -> bool {
    head.values("upgrade").any(|value| value.eq_ignore_ascii_case("websocket"))
}

/// Returns what a client of the node's server wants from the pod. A terminal has no separate stderr.
///
/// # Errors
/// The ports of a port-forward over a WebSocket are not valid.
pub(super) fn kind_of_kubelet(
    kind: SessionKind,
    container: Option<String>,
    query: &Query,
    session: &Session,
) -> Result<StreamKind, Failure> {
    let [stdin, stdout, stderr, tty] = ["input", "output", "error", "tty"].map(|name| query.flag(name));
    let stderr = stderr && !tty;
    Ok(match kind {
        SessionKind::Exec => StreamKind::Exec { container, command: command(query), stdin, stdout, stderr, tty },
        SessionKind::Attach => {
            StreamKind::Attach { container, stdin, stdout, stderr, tty, terminal: Terminal::OfContainer }
        }
        SessionKind::PortForward => match session {
            // Each stream names its port.
            Session::Spdy { .. } => StreamKind::PortForward { ports: Vec::new() },
            Session::WebSocket(_) => StreamKind::PortForward { ports: ports(query)? },
        },
    })
}

/// Parses the ports of a port-forward over a WebSocket: `port=80&port=443` or `port=80,443`.
fn ports(query: &Query) -> Result<Vec<u16>, Failure> {
    let invalid = |text: &str| Failure::bad_request(format!("port: {text:?} is not a number from 1 to 65535"));
    let ports: Vec<u16> = query
        .all("port")
        .flat_map(|list| list.split(','))
        .map(|text| text.parse().ok().filter(|port| *port > 0).ok_or_else(|| invalid(text)))
        .collect::<Result<_, _>>()?;
    if ports.is_empty() {
        return Err(Failure::bad_request(
            "port is missing; a port-forward over a WebSocket must name its ports, for example port=80",
        ));
    }
    Ok(ports)
}

fn command(query: &Query) -> Command {
    Command(query.all("command").map(str::to_owned).collect())
}

impl Session {
    /// Returns the address of the runtime's streaming server and the request to send to it.
    ///
    /// # Errors
    /// The runtime's URL is not one that Wherry's server can use.
    pub(in crate::agent) fn upstream(&self, url: &str) -> Result<Upstream, Failure> {
        let unusable = || {
            let hint = "its streaming server must listen on an IP address without TLS";
            Failure::internal(format!("unusable streaming URL of the container runtime; {hint}"))
        };
        let rest = url.strip_prefix("http://").ok_or_else(unusable)?;
        let (authority, path) = rest.split_at(rest.find('/').ok_or_else(unusable)?);
        let address: SocketAddr = authority.parse().map_err(|_| unusable())?;
        if path.bytes().any(|b| b.is_ascii_whitespace() || b.is_ascii_control()) {
            return Err(unusable());
        }
        let (method, protocol) = match self {
            Session::Spdy { method, .. } => (*method, "SPDY/3.1"),
            Session::WebSocket(_) => ("GET", "websocket"),
        };
        let mut request =
            format!("{method} {path} HTTP/1.1\r\nHost: {authority}\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n");
        // The values contain no control characters: the head parser refuses them.
        match self {
            Session::Spdy { versions, .. } => {
                versions.iter().for_each(|v| request.push_str(&format!("X-Stream-Protocol-Version: {v}\r\n")));
            }
            Session::WebSocket(handshake) => {
                handshake.iter().for_each(|(name, value)| request.push_str(&format!("{name}: {value}\r\n")));
            }
        }
        request.push_str("\r\n");
        let name = "the container runtime's streaming server";
        Ok(Upstream { name, address, request: request.into_bytes() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::http1::{Accepts, Parsed, parse};

    fn head(fields: &str) -> Head {
        let text = format!("POST /x HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
        match parse(text.as_bytes(), |_| Accepts { methods: &["POST"], body: 10, fields: true }) {
            Parsed::Head(head) => head,
            other => panic!("{other:?}"),
        }
    }

    const SPDY: &str = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\
                        X-Stream-Protocol-Version: channel.k8s.io\r\n";

    #[test]
    fn a_session_asks_the_runtime_for_the_protocols_of_the_client() {
        let session = session(&head(SPDY)).unwrap();
        let upstream = session.upstream("http://127.0.0.1:45123/exec/To_ken").unwrap();
        assert_eq!(upstream.address, "127.0.0.1:45123".parse().unwrap());
        let sent = String::from_utf8(upstream.request).unwrap();
        assert!(
            sent.starts_with("POST /exec/To_ken HTTP/1.1\r\nHost: 127.0.0.1:45123\r\n") && sent.ends_with("\r\n\r\n")
        );
        assert_eq!(sent.matches("X-Stream-Protocol-Version").count(), 2);
    }

    #[test]
    fn a_kubelet_has_its_own_names_for_the_streams() {
        let query = Query::parse("command=ls&input=1&output=1&error=1&tty=0");
        let spdy = Session::Spdy { method: "POST", versions: Vec::new() };
        let kind =
            |text: &str| kind_of_kubelet(SessionKind::Exec, Some("c".to_owned()), &Query::parse(text), &spdy).unwrap();
        let (stdin, stdout, stderr, tty) = (true, true, true, false);
        let command = command(&query);
        let expected = StreamKind::Exec { container: Some("c".to_owned()), command, stdin, stdout, stderr, tty };
        assert_eq!(kind("command=ls&input=1&output=1&error=1&tty=0"), expected);
        let StreamKind::Exec { stderr, tty, .. } = kind("command=sh&output=1&error=1&tty=1") else { panic!() };
        assert_eq!((stderr, tty), (false, true));
    }

    #[test]
    fn other_protocols_and_other_urls_are_refused() {
        let refused = |fields: &str| session(&head(fields)).unwrap_err();
        assert_eq!(refused("").code, 400);
        assert!(refused("Connection: Upgrade\r\nUpgrade: websocket\r\n").message.contains("SPDY/3.1"));
        let long = format!("Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: {}\r\n", "v".repeat(2000));
        assert_eq!(refused(&long).code, 400);
        let session = Session::Spdy { method: "POST", versions: Vec::new() };
        for url in
            ["https://127.0.0.1:1/exec/x", "http://host:80/x", "http://127.0.0.1:1", "http://127.0.0.1:1/a b", ""]
        {
            let failure = session.upstream(url).unwrap_err();
            assert!(failure.code == 500 && !failure.message.contains("/exec/"), "{url}");
        }
    }

    #[test]
    fn a_websocket_of_an_api_server_is_passed_on_with_its_handshake() {
        let upgrade = |method: &str, fields: &str| {
            let text = format!("{method} /x HTTP/1.1\r\nHost: localhost\r\nUpgrade: WebSocket\r\n{fields}\r\n");
            match parse(text.as_bytes(), |_| Accepts { methods: &["GET", "POST"], body: 10, fields: true }) {
                Parsed::Head(head) => session_of_kubelet(&head),
                other => panic!("{other:?}"),
            }
        };
        let handshake = "Sec-WebSocket-Key: dGhlIHNhbXBsZQ==\r\nSec-WebSocket-Version: 13\r\nOrigin: http://x\r\n\
                         Sec-WebSocket-Protocol: v4.channel.k8s.io,channel.k8s.io\r\n";
        let session = upgrade("GET", handshake).unwrap();
        let sent = String::from_utf8(session.upstream("http://127.0.0.1:1/exec/T").unwrap().request).unwrap();
        assert_eq!(
            sent,
            "GET /exec/T HTTP/1.1\r\nHost: 127.0.0.1:1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZQ==\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Protocol: v4.channel.k8s.io,channel.k8s.io\r\n\r\n"
        );
        let long = format!("Sec-WebSocket-Protocol: {}\r\n", "v".repeat(2000));
        for (method, fields) in [("GET", long.as_str()), ("POST", handshake)] {
            assert_eq!(upgrade(method, fields).unwrap_err().code, 400, "{method}");
        }
        let ports = |query: &str| kind_of_kubelet(SessionKind::PortForward, None, &Query::parse(query), &session);
        assert_eq!(ports("port=80&port=443,81").unwrap(), StreamKind::PortForward { ports: vec![80, 443, 81] });
        for query in ["", "port=", "port=0", "port=80,x", "port=65536"] {
            assert_eq!(ports(query).unwrap_err().code, 400, "{query}");
        }
    }
}
