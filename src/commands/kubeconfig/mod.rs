//! `wherry kubeconfig`: issues, lists and revokes the client certificates of the API for kubectl. It works on the files
//! of `adapters::pki`, whether or not an agent runs, so only users who can write there (root) can use it.
//!
//! `issue` makes a certificate and its kubeconfig, `document` is the kubeconfig itself, `place` decides where it goes
//! and whom the file belongs to. `agent` asks a running agent for its configuration.

mod agent;
mod document;
mod issue;
mod list;
mod place;
mod revoke;

use crate::commands::StatusFormat;
use crate::commands::output::{Failure, print_message};
use crate::config::{self, Config, Flags};
use std::io::Write;
use std::path::PathBuf;

/// The command line of `wherry kubeconfig`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct KubeconfigArgs {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    issue: issue::Issue,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the client certificates
    ///
    /// Shows the certificates that were issued and have not been pruned. The record of an expired certificate is pruned
    /// when another one is issued or revoked.
    List {
        /// Output format instead of the table
        #[arg(short, long, value_enum)]
        output: Option<StatusFormat>,
        #[command(flatten)]
        files: Files,
    },
    /// Revoke client certificates
    ///
    /// Revokes all valid certificates of a name, or the one with a serial number. A running agent refuses them at once,
    /// also on connections that are open. A later certificate of the same name is not affected.
    ///
    /// Exit code: 0 at least one certificate was revoked, 1 there is none, or a file cannot be written.
    Revoke {
        /// Name of a client, or serial number of a certificate
        #[arg(value_name = "NAME|SERIAL")]
        which: String,
        #[command(flatten)]
        files: Files,
    },
}

/// The options that name the configuration and the files.
#[derive(Debug, Default, clap::Args)]
struct Files {
    /// Configuration file [default: /etc/wherry/config.yaml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory of drop-ins for the configuration [default: /etc/wherry/config.d, if it exists]
    #[arg(long, value_name = "DIR")]
    config_dir: Option<PathBuf>,
    /// Directory for state and volumes [default: /var/lib/wherry]
    #[arg(long, value_name = "DIR")]
    root_dir: Option<PathBuf>,
    /// Control socket [default: that of the configuration, else /run/wherry/wherry.sock]. Without --config, the agent
    /// there tells its directory for state, its name, and its port for kubectl
    #[arg(long, value_name = "FILE")]
    socket: Option<PathBuf>,
    /// The node's name [default: that of the configuration, else the host name in lower case]
    #[arg(long, value_name = "NAME")]
    hostname: Option<String>,
}

impl Files {
    /// The configuration, of the agent at the socket if the arguments name a socket and no configuration. Errors of a
    /// configuration are printed, and returned as true.
    ///
    /// # Errors
    /// No agent answers at the socket.
    fn load(self) -> Result<(Config, bool), Failure> {
        let Files { config, config_dir, root_dir, socket, hostname } = self;
        let named = socket.clone().filter(|_| config.is_none() && config_dir.is_none());
        let flags = Flags { config, config_dir, root_dir, socket, hostname, ..Flags::default() };
        let loaded = config::load(&flags);
        if let Some(socket) = named {
            match agent::configuration(&socket, loaded.config.clone(), &flags) {
                Ok(config) => return Ok((config, false)),
                // Its CA can be used without the agent.
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

/// Runs the command.
///
/// # Errors
/// Exit code 1. The message names the argument or the file, and the remedy.
pub fn run(out: &mut dyn Write, arguments: KubeconfigArgs) -> Result<u8, Failure> {
    match arguments.command {
        None => issue::run(out, arguments.issue),
        Some(Command::List { output, files }) => list::run(out, &files.load()?.0, output.is_some()),
        Some(Command::Revoke { which, files }) => revoke::run(out, &files.load()?.0, &which),
    }
}
