//! `wherry kubeconfig`: issues, lists and revokes the client certificates of the API for kubectl. It works on the
//! files of `adapters::pki`, whether or not an agent is running, so only users who can write there (root) can use it.
//!
//! `issue` creates a certificate and its kubeconfig, `document` edits the kubeconfig itself, and `place` decides
//! where it is written and who owns the file. `agent` asks a running agent for its configuration.

mod agent;
mod document;
mod files;
mod issue;
mod list;
mod place;
mod revoke;

use crate::commands::output::Failure;
use crate::commands::status_format::StatusFormat;
use files::Files;
use std::io::Write;

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
    /// Revokes all valid certificates of a name, or the one with a serial number. A running agent refuses them at
    /// once, even on connections that are already open. Certificates that are issued to the same name later are not
    /// affected.
    ///
    /// Exit code: 0 at least one certificate was revoked, 1 no valid certificate matches, or a file cannot be
    /// written.
    Revoke {
        /// Name of a client, or serial number of a certificate
        #[arg(value_name = "NAME|SERIAL")]
        which: String,
        #[command(flatten)]
        files: Files,
    },
}

/// Runs the command.
///
/// # Errors
/// The exit code is 1. The message names the argument or the file, and the remedy.
pub fn run(out: &mut dyn Write, arguments: KubeconfigArgs) -> Result<u8, Failure> {
    match arguments.command {
        None => issue::run(out, arguments.issue),
        Some(Command::List { output, files }) => list::run(out, &files.load()?.0, output.is_some()),
        Some(Command::Revoke { which, files }) => revoke::run(out, &files.load()?.0, &which),
    }
}
