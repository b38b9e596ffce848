//! The ports on the command line: `[ADDRESS:]LOCAL:REMOTE`, `REMOTE` or `:REMOTE`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports {
    /// None: the loopback addresses.
    pub address: Option<IpAddr>,
    /// 0: one that is free.
    pub local: u16,
    pub remote: u16,
}

impl Ports {
    /// # Errors
    /// The text has another form.
    pub fn parse(text: &str) -> Result<Ports, String> {
        let expected = || "expected [ADDRESS:]LOCAL:REMOTE, REMOTE or :REMOTE, with ports from 1 to 65535".to_owned();
        let port = |text: &str| text.parse().ok().filter(|port| *port != 0).ok_or_else(expected);
        let (rest, remote) = match text.rsplit_once(':') {
            Some((rest, remote)) => (rest, port(remote)?),
            None => return port(text).map(|port| Ports { address: None, local: port, remote: port }),
        };
        let (address, local) = match rest.rsplit_once(':') {
            Some((address, local)) => (Some(address), local),
            None => (None, rest),
        };
        let local = if local.is_empty() { 0 } else { port(local)? };
        let address = match address {
            None | Some("localhost") => None,
            Some(address) => {
                let bare = address.strip_prefix('[').and_then(|a| a.strip_suffix(']')).unwrap_or(address);
                Some(bare.parse().map_err(|_| format!("{address:?} is not an IP address or localhost"))?)
            }
        };
        Ok(Ports { address, local, remote })
    }

    /// The addresses on which to listen, the required one first. A machine may lack the second one.
    pub fn addresses(&self) -> Vec<IpAddr> {
        match self.address {
            Some(address) => vec![address],
            None => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_names_an_address_and_two_ports() {
        for (text, address, local, remote) in [
            ("80", None, 80, 80),
            (":80", None, 0, 80),
            ("8080:80", None, 8080, 80),
            ("localhost:8080:80", None, 8080, 80),
            ("0.0.0.0:8080:80", Some("0.0.0.0"), 8080, 80),
            ("10.0.0.1::80", Some("10.0.0.1"), 0, 80),
            ("[::1]:8080:80", Some("::1"), 8080, 80),
            ("::1:8080:80", Some("::1"), 8080, 80),
        ] {
            let address = address.map(|a| a.parse().unwrap());
            assert_eq!(Ports::parse(text), Ok(Ports { address, local, remote }), "{text}");
        }
        for text in ["", ":", "0", "80:", "0:80", "65536", "http", "8080:http", "example.com:80:80", "a:b:c:80"] {
            assert!(Ports::parse(text).is_err(), "{text}");
        }
    }
}
