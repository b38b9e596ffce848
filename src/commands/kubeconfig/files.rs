//! The options of `wherry kubeconfig` that name the configuration and the files.

use super::agent;
use crate::commands::output::{Failure, print_message};
use crate::config::{self, Config, Flags};
use std::path::PathBuf;

/// The options that name the configuration and the files.
#[derive(Debug, Default, clap::Args)]
pub(super) struct Files {
    /// Configuration file [default: /etc/wherry/config.yaml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory of configuration drop-ins [default: /etc/wherry/config.d, if it exists]
    #[arg(long, value_name = "DIR")]
    config_dir: Option<PathBuf>,
    /// Directory for state and volumes [default: /var/lib/wherry]
    #[arg(long, value_name = "DIR")]
    root_dir: Option<PathBuf>,
    /// Control socket [default: from the configuration, else /run/wherry/wherry.sock]. Without --config, the agent at
    /// this socket reports its state directory, its name, and its port for kubectl
    #[arg(long, value_name = "FILE")]
    socket: Option<PathBuf>,
    /// The node's name [default: from the configuration, else the host name in lower case]
    #[arg(long, value_name = "NAME")]
    hostname: Option<String>,
}

impl Files {
    /// Returns the configuration. If the arguments name a socket and no configuration, this is the configuration of
    /// the agent at the socket. Configuration errors are printed; the second value is true if there are any.
    ///
    /// # Errors
    /// No agent responds at the socket.
    pub(super) fn load(self) -> Result<(Config, bool), Failure> {
        let Files { config, config_dir, root_dir, socket, hostname } = self;
        let named = socket.clone().filter(|_| config.is_none() && config_dir.is_none());
        let flags = Flags { config, config_dir, root_dir, socket, hostname, ..Flags::default() };
        let loaded = config::load(&flags);
        if let Some(socket) = named {
            match agent::configuration(&socket, loaded.config.clone(), &flags) {
                Ok(config) => return Ok((config, false)),
                // With a root directory, the command needs no agent, because it can use the CA in that directory.
                Err(_) if flags.root_dir.is_some() => {}
                Err(e) => return Err(e),
            }
        }
        for error in &loaded.problems.errors {
            print_message(&format!("configuration: {error}"));
        }
        let is_ok = loaded.is_ok();
        Ok((loaded.config, !is_ok))
    }
}
