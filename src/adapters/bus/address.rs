//! Parses the address of the system bus in libdbus's format: `method:key=value,key=value;...`. Values are escaped with
//! %xx. Pure.

use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The default of libdbus, and the path that older systems without /run use.
pub const DEFAULT: &str = "unix:path=/run/dbus/system_bus_socket;unix:path=/var/run/dbus/system_bus_socket";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BusSocket {
    Path(PathBuf),
    Abstract(Vec<u8>),
}

/// One alternative of an address list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BusAddress {
    /// This alternative alone, for libdbus.
    pub(super) address: String,
    pub(super) socket: BusSocket,
}

impl fmt::Display for BusAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.socket {
            BusSocket::Path(path) => write!(f, "{}", path.display()),
            BusSocket::Abstract(name) => write!(f, "@{}", String::from_utf8_lossy(name)),
        }
    }
}

/// Returns the alternatives of an address in their order. Only unix sockets are accepted: the logind of another machine
/// is of no use, and the other methods (resolve a name, start a program) would block.
///
/// # Errors
/// Names the first alternative that is not usable. The whole address is then rejected.
pub(super) fn parse(address: &str) -> Result<Vec<BusAddress>, String> {
    let places: Result<Vec<BusAddress>, String> = address.split(';').filter(|a| !a.is_empty()).map(place).collect();
    match places {
        Ok(places) if places.is_empty() => Err("the system bus address is empty".to_owned()),
        other => other,
    }
}

fn place(address: &str) -> Result<BusAddress, String> {
    let wrong = |why: &str| format!("invalid system bus address {address:?}: {why}");
    let (method, rest) = address.split_once(':').ok_or_else(|| wrong("no transport; use unix:path=..."))?;
    if method != "unix" {
        return Err(wrong("only unix:path=... and unix:abstract=... are supported"));
    }
    let pairs = rest.split(',').filter_map(|pair| pair.split_once('='));
    for (key, value) in pairs {
        let value = || unescaped(value).ok_or_else(|| wrong("a value is not escaped as D-Bus requires"));
        let socket = match key {
            "path" => BusSocket::Path(PathBuf::from(std::ffi::OsString::from_vec(value()?))),
            "abstract" => BusSocket::Abstract(value()?),
            _ => continue,
        };
        return Ok(BusAddress { address: address.to_owned(), socket });
    }
    Err(wrong("no path= and no abstract="))
}

/// Returns None for an incomplete %xx and for a zero byte.
fn unescaped(value: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let (byte, after) = match first {
            b'%' => (u8::from_str_radix(std::str::from_utf8(after.get(..2)?).ok()?, 16).ok()?, &after[2..]),
            other => (other, after),
        };
        if byte == 0 {
            return None;
        }
        bytes.push(byte);
        rest = after;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sockets(address: &str) -> Vec<BusSocket> {
        parse(address).unwrap().into_iter().map(|p| p.socket).collect()
    }

    #[test]
    fn the_places_of_an_address_in_their_order() {
        let path = |p: &str| BusSocket::Path(p.into());
        assert_eq!(sockets(DEFAULT), [path("/run/dbus/system_bus_socket"), path("/var/run/dbus/system_bus_socket")],);
        assert_eq!(
            sockets("unix:guid=00ff,path=/a%20b;unix:abstract=/x"),
            [path("/a b"), BusSocket::Abstract(b"/x".into())]
        );
        let places = parse("unix:path=/a;unix:path=/b,guid=1").unwrap();
        assert_eq!(
            places.iter().map(|p| p.address.as_str()).collect::<Vec<_>>(),
            ["unix:path=/a", "unix:path=/b,guid=1"]
        );
        assert_eq!(places.iter().map(BusAddress::to_string).collect::<Vec<_>>(), ["/a", "/b"]);
    }

    #[test]
    fn an_unusable_address_is_reported_by_name() {
        for (address, why) in [
            ("", "empty"),
            (";;", "empty"),
            ("/run/dbus/system_bus_socket", "no transport"),
            ("tcp:host=localhost,port=1", "only unix:"),
            ("unixexec:path=/bin/sh", "only unix:"),
            ("unix:tmpdir=/tmp", "no path="),
            ("unix:path=/a%2", "escaped"),
            ("unix:path=/a%zz", "escaped"),
            ("unix:path=/a%00", "escaped"),
            ("unix:path=/a;systemd:", "only unix:"),
        ] {
            let error = parse(address).unwrap_err();
            assert!(error.contains(why), "{address}: {error}");
        }
    }
}
