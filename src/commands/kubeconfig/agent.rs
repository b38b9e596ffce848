//! Gets the configuration of the agent at a control socket: its root directory (which contains the CA), its name, and
//! its port for kubectl.

use crate::adapters::server::status::NodeStatus;
use crate::commands::client;
use crate::commands::output::{Failure, shown};
use crate::config::{Config, Flags};
use std::net::SocketAddr;
use std::path::Path;

/// Returns `config` with the settings of the agent. Values in `flags` have priority.
///
/// # Errors
/// The agent does not respond, or does not report its settings.
pub(super) fn configuration(socket: &Path, config: Config, flags: &Flags) -> Result<Config, Failure> {
    let status = client::get_json(socket, "/status")?;
    let status: NodeStatus = serde_json::from_value(status)
        .map_err(|e| Failure::message(format!("{}: unexpected status: {e}", shown(&socket.to_string_lossy()))))?;
    of_status(status, config, flags)
        .map_err(|why| Failure::message(format!("the agent at {} {why}", shown(&socket.to_string_lossy()))))
}

fn of_status(status: NodeStatus, mut config: Config, flags: &Flags) -> Result<Config, String> {
    if flags.root_dir.is_none() {
        let root = Path::new(&status.root_directory);
        if !root.is_absolute() {
            return Err(
                "does not report its root directory; update it, or name the directory with --root-dir".to_owned()
            );
        }
        config.root_dir = root.to_owned();
    }
    if flags.hostname.is_none() {
        config.node_name = status.node_name;
    }
    config.kubectl_port = 0;
    if let Some(text) = status.kubectl {
        let address: SocketAddr =
            text.parse().map_err(|_| format!("reports an unexpected address for kubectl: {}", shown(&text)))?;
        (config.kubectl_address, config.kubectl_port) = (address.ip(), address.port());
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_precede_what_the_agent_reports() {
        let status = |root: &str, kubectl: Option<&str>| NodeStatus {
            node_name: "boat".into(),
            root_directory: root.into(),
            kubectl: kubectl.map(str::to_owned),
            ..NodeStatus::default()
        };
        let before =
            Config { kubectl_port: 1, node_name: "name".into(), root_dir: "/mine".into(), ..Config::default() };
        let of = |status: NodeStatus, flags: &Flags| {
            let config = of_status(status, before.clone(), flags)?;
            Ok::<_, String>((
                config.root_dir.display().to_string(),
                config.kubectl().map(|a| a.to_string()),
                config.node_name,
            ))
        };
        let none = Flags::default();
        let expected = ("/r".to_owned(), Some("[::1]:7000".to_owned()), "boat".to_owned());
        assert_eq!(of(status("/r", Some("[::1]:7000")), &none), Ok(expected));
        let flags = Flags { root_dir: Some("/mine".into()), hostname: Some("name".into()), ..Flags::default() };
        assert_eq!(of(status("/r", None), &flags), Ok(("/mine".to_owned(), None, "name".to_owned())));
        assert!(of(status("", None), &none).unwrap_err().contains("--root-dir"));
        assert!(of(status("/r", Some("\u{1b}[2J")), &none).unwrap_err().contains("unexpected address"));
    }
}
