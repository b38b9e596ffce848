//! libdbus's connection, and its one socket in our loop.

use super::address::Place;
use dbus::channel::Channel;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

/// To a bus that has just answered.
pub(super) fn open(place: &Place) -> Result<Channel, String> {
    let mut channel = Channel::open_private(&place.address)
        .map_err(|e| format!("connect to {place}: {}", e.message().unwrap_or("no reason given")))?;
    channel.set_watch_enabled(true);
    Ok(channel)
}

/// Asks the poll for what libdbus waits for. It tells of what is there already, too: libdbus does not say whether it has
/// read everything.
pub(super) fn watch(channel: &Channel, registry: &Registry, token: Token, new: bool) -> Result<(), String> {
    let watch = channel.watch();
    let interest = if watch.write { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
    let fd = &mut SourceFd(&watch.fd);
    let result = if new { registry.register(fd, token, interest) } else { registry.reregister(fd, token, interest) };
    result.map_err(|e| format!("watch the system bus's socket: {e}"))
}
