//! Opens a libdbus connection and registers its socket with the event loop.

use super::address::Place;
use dbus::channel::Channel;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

/// Connects to a bus that has just answered a probe. libdbus connects with a blocking connect(2).
pub(in crate::adapters) fn open(place: &Place) -> Result<Channel, String> {
    let mut channel = Channel::open_private(&place.address)
        .map_err(|e| format!("connect to {place}: {}", e.message().unwrap_or("no reason given")))?;
    channel.set_watch_enabled(true);
    Ok(channel)
}

/// Registers the events that libdbus waits for. The registration is repeated after each drive because mio is edge-triggered and
/// libdbus does not report whether it has read everything; it also reports data that is already available.
pub(in crate::adapters) fn watch(
    channel: &Channel,
    registry: &Registry,
    token: Token,
    new: bool,
) -> Result<(), String> {
    let watch = channel.watch();
    let interest = if watch.write { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
    let fd = &mut SourceFd(&watch.fd);
    let result = if new { registry.register(fd, token, interest) } else { registry.reregister(fd, token, interest) };
    result.map_err(|e| format!("watch the socket of the system bus: {e}"))
}
