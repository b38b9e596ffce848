//! For tests: an address that refuses connections.

use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

/// Returns an address at which nothing listens. Its port stays bound until the process ends. The kernel could give a
/// free port to a server of another test, which would then get the connections of this test.
pub fn closed() -> SocketAddr {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = getsockname(&socket).unwrap();
    std::mem::forget(socket);
    address.try_into().unwrap()
}
