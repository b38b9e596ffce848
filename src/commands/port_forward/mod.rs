//! `wherry port-forward`: makes ports of a pod available on this machine.
//!
//! Each connection requests its own URL (`tunnel`), so it reaches the currently running pod, even after a restart of
//! the pod or the agent. The failure of one connection does not affect the others. One thread polls all of them.

mod ports;
mod tunnel;

use crate::api::control::{StreamKind, StreamRequest};
use crate::api::kube::pod_row::text;
use crate::commands::output::{Failure, print_message};
use crate::commands::select::{PodArgs, PodTarget};
use crate::commands::streams::lookup::Lookup;
use crate::commands::streams::url;
use mio::net::TcpListener;
use ports::{Local, Ports};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};
use tunnel::{Tunnel, TunnelStep};

/// Maximum number of connections. Further connections wait in the kernel's accept queues.
const MAX_TUNNELS: usize = 256;
/// The pause after a system error, such as a lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, clap::Args)]
pub struct PortForwardArgs {
    #[command(flatten)]
    pod: PodArgs,
    /// [ADDRESS:]LOCAL:REMOTE, REMOTE for the same port on both sides, or :REMOTE for a free local port; REMOTE is a
    /// number or the name of a container's port, ADDRESS an IP address [default: localhost, 127.0.0.1 and ::1]
    #[arg(required = true, value_name = "PORTS", value_parser = Ports::parse)]
    ports: Vec<Ports>,
}

/// A listening socket and the ports that it forwards.
struct Listener {
    socket: TcpListener,
    local: u16,
    remote: u16,
}

/// The pod. Its UID changes when its manifest changes.
struct Pod<'a> {
    socket: &'a Path,
    target: PodTarget,
    uid: String,
}

/// Forwards connections until the command is interrupted.
pub fn run(out: &mut dyn Write, socket: &Path, query: &PortForwardArgs) -> Result<u8, Failure> {
    let target = query.pod.target()?;
    let pod = url::find_pod(socket, &target)?;
    let uid = text(&pod, "/metadata/uid").to_owned();
    // Fail now if the pod is not running, instead of when the first client connects.
    let _ = url::request(socket, &StreamRequest { uid: uid.clone(), kind: kind() })??;
    let mut listeners = Vec::new();
    for ports in &query.ports {
        // The name of a port is resolved once: its number stays the same when the pod is replaced.
        let remote = ports.remote.resolve(&pod).map_err(Failure::message)?;
        listen(ports, remote, &mut listeners)?;
    }
    for Listener { socket, remote, .. } in &listeners {
        writeln!(out, "Forwarding from {} -> {remote}", socket.local_addr()?)?;
    }
    out.flush()?;
    serve(out, &listeners, Pod { socket, target, uid })
}

fn kind() -> StreamKind {
    StreamKind::PortForward { ports: Vec::new() }
}

fn listen(ports: &Ports, remote: u16, listeners: &mut Vec<Listener>) -> Result<(), Failure> {
    let mut local = match ports.local {
        Local::Port(port) => port,
        Local::Same => remote,
        // The system chooses a free port.
        Local::Free => 0,
    };
    for (n, address) in ports.addresses().into_iter().enumerate() {
        let address = SocketAddr::new(address, local);
        match TcpListener::bind(address) {
            Ok(socket) => {
                local = socket.local_addr()?.port();
                listeners.push(Listener { socket, local, remote });
            }
            // The machine may have no IPv6.
            Err(_) if n > 0 => {}
            Err(e) => return Err(Failure::message(format!("cannot listen on {address}: {e}"))),
        }
    }
    Ok(())
}

fn serve(out: &mut dyn Write, listeners: &[Listener], mut pod: Pod<'_>) -> Result<u8, Failure> {
    let mut tunnels: Vec<Tunnel> = Vec::new();
    loop {
        let ready = wait(listeners, &tunnels).map_err(|e| Failure::message(format!("cannot poll: {e}")))?;
        let (accepts, ready) = ready.split_at(listeners.len());
        let mut ready = ready.iter();
        let now = Instant::now();
        tunnels.retain_mut(|tunnel| {
            let due = ready.next().copied().unwrap_or(false) || tunnel.deadline().is_some_and(|d| d <= now);
            !due || step(tunnel, &mut pod.uid)
        });
        for (listener, _) in listeners.iter().zip(accepts).filter(|(_, ready)| **ready) {
            accept(out, listener, &pod, &mut tunnels)?;
        }
    }
}

/// Drives a tunnel. Returns false if it has ended.
fn step(tunnel: &mut Tunnel, uid: &mut String) -> bool {
    match tunnel.drive() {
        Ok(TunnelStep::Continues) => true,
        Ok(TunnelStep::Pod(now)) => {
            *uid = now;
            true
        }
        Ok(TunnelStep::Done) => false,
        Err(why) => {
            failed(tunnel.local, tunnel.remote, &why);
            false
        }
    }
}

fn failed(local: u16, remote: u16, why: &str) {
    print_message(&format!("cannot forward a connection for {local} -> {remote}: {why}"));
}

fn accept(out: &mut dyn Write, listener: &Listener, pod: &Pod<'_>, tunnels: &mut Vec<Tunnel>) -> Result<(), Failure> {
    let Listener { socket, local, remote } = listener;
    while tunnels.len() < MAX_TUNNELS {
        let client = match socket.accept() {
            Ok((client, _)) => client,
            Err(e) if e.kind() == ErrorKind::WouldBlock => break,
            // The client has disconnected.
            Err(e) if matches!(e.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => continue,
            Err(e) => {
                print_message(&format!("cannot accept a connection for {local}: {e}"));
                std::thread::sleep(PAUSE);
                break;
            }
        };
        writeln!(out, "Handling connection for {local}")?;
        out.flush()?;
        let _ = client.set_nodelay(true);
        match Lookup::start(pod.socket, &pod.target, &pod.uid, kind()) {
            Ok(lookup) => tunnels.push(Tunnel::new(client, *local, *remote, lookup)),
            Err(why) => failed(*local, *remote, &why),
        }
    }
    Ok(())
}

/// Waits for listeners and tunnels. Returns for each of them, in order, whether it is ready.
fn wait(listeners: &[Listener], tunnels: &[Tunnel]) -> io::Result<Vec<bool>> {
    let accepts = tunnels.len() < MAX_TUNNELS;
    let (mut fds, mut owners) = (Vec::new(), Vec::new());
    if accepts {
        for (n, listener) in listeners.iter().enumerate() {
            fds.push(PollFd::from_borrowed_fd(listener.socket.as_fd(), PollFlags::IN));
            owners.push(n);
        }
    }
    for (n, tunnel) in tunnels.iter().enumerate() {
        for (fd, flags) in tunnel.interest() {
            fds.push(PollFd::from_borrowed_fd(fd, flags));
            owners.push(listeners.len() + n);
        }
    }
    let deadline = tunnels.iter().filter_map(Tunnel::deadline).min();
    let timeout = deadline.map(|deadline| {
        let left = deadline.saturating_duration_since(Instant::now());
        Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
    });
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(e) => return Err(e.into()),
    }
    let mut ready = vec![false; listeners.len() + tunnels.len()];
    for (fd, owner) in fds.iter().zip(owners) {
        ready[owner] |= !fd.revents().is_empty();
    }
    Ok(ready)
}
