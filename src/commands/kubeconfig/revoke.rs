//! `wherry kubeconfig revoke`: revokes client certificates, and notifies a running agent.

use crate::adapters::pki::{self, Authority};
use crate::commands::client;
use crate::commands::output::{Failure, print_message, shown};
use crate::config::Config;
use jiff::Timestamp;
use std::io::Write;
use std::path::Path;

/// The route of the control socket that makes the agent read the revoked certificates again.
const RELOAD: &str = "/kubectl/reload";

pub(super) fn run(out: &mut dyn Write, config: &Config, which: &str) -> Result<u8, Failure> {
    let now = Timestamp::now();
    let directory = pki::directory(&config.root_dir);
    // If no certificate exists, do not create a CA just for this command.
    let (clients, _) = pki::clients(&directory).map_err(Failure::message)?;
    if clients.is_empty() {
        return Err(Failure::message("no client certificate has been issued, so there is nothing to revoke"));
    }
    let revoked = Authority::open_or_create(&directory, &config.node_name, now)
        .and_then(|authority| authority.revoke(which, now))
        .map_err(Failure::message)?;
    for client in &revoked {
        let (name, role) = (shown(&client.name), client.role.name());
        writeln!(out, "revoked the certificate of {name} (role {role}, serial number {})", client.serial)?;
    }
    out.flush()?;
    tell_agent(&config.socket);
    Ok(0)
}

/// Notifies the agent. It notices a changed file itself at the next connection, but only this request closes
/// connections that are already open.
fn tell_agent(socket: &Path) {
    // No agent is running.
    if !socket.exists() {
        return;
    }
    let why = match client::post_plain(socket, RELOAD) {
        Ok((200, _)) => return,
        Ok((404 | 405, _)) => "the running wherry does not support this".to_owned(),
        Ok((status, words)) => format!("{status} {words}"),
        Err(Failure::Message(text, _)) => text,
        Err(Failure::Output(e)) => e.to_string(),
    };
    print_message(&format!(
        "note: the agent was not told to close the open connections of these certificates ({why}); restart it if one \
         of them may be in use"
    ));
}
