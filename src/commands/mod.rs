//! The command line: a file per subcommand, and what they share.
//!
//! `run` is the daemon; the others ask it over the control socket, or look at files themselves (`check`).

pub mod check;
mod client;
mod output;
mod pods;
mod row;
mod status;

use crate::agent::logging;
use crate::config::{self, Flags};
use clap::{Args, Parser, Subcommand};
use output::Failure;
use std::ffi::OsString;
use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// A Kubernetes node agent for small machines: runs the pods of a directory of manifests.
#[derive(Debug, Parser)]
#[command(name = "wherry", version, max_term_width = 100, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Files:
  /etc/wherry/config.yaml   configuration (a KubeletConfiguration), drop-ins in /etc/wherry/config.d
  /etc/wherry/manifests     pods, one or more in a file
  /run/wherry/wherry.sock   control socket";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the node agent
    ///
    /// Reads the configuration and the manifests, connects to the container runtime, and keeps the pods running until
    /// it is stopped. Pods go on running when it stops (SIGTERM), and are taken over when it starts again. SIGHUP reads
    /// configuration and manifests again.
    Run(ConfigArgs),
    /// Check configuration and manifests
    ///
    /// Checks FILES (configuration or manifests, each says which it is), or without any the configuration and all
    /// manifests that `wherry run` would read. Prints a line for each problem: file, line, field, and what is wrong.
    ///
    /// Exit code: 0 nothing is wrong, 1 something is, 2 a file cannot be read, or the command line is wrong.
    Check {
        /// Files, or directories of manifests
        files: Vec<PathBuf>,
        #[command(flatten)]
        config: ConfigArgs,
    },
    /// List the pods on this node
    Pods {
        /// Only pods of these names
        names: Vec<String>,
        /// Only pods of this namespace
        #[arg(short, long)]
        namespace: Option<String>,
        /// Another format than the table
        #[arg(short, long, value_enum)]
        output: Option<pods::Format>,
        /// Go on with a line for each change
        #[arg(short, long)]
        watch: bool,
        #[command(flatten)]
        socket: SocketArgs,
    },
    /// Show how the node does
    ///
    /// The runtime and its version, the age of the last look at it, counts of pods, manifests with errors, and what
    /// wherry waits for.
    Status {
        /// Another format than text
        #[arg(short, long, value_enum)]
        output: Option<StatusFormat>,
        #[command(flatten)]
        socket: SocketArgs,
    },
    /// Print the version
    Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum StatusFormat {
    Json,
}

/// Flags over the configuration.
#[derive(Debug, Args)]
struct ConfigArgs {
    /// File of configuration [default: /etc/wherry/config.yaml, if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory of drop-ins [default: /etc/wherry/config.d, if it is there]
    #[arg(long, value_name = "DIR")]
    config_dir: Option<PathBuf>,
    /// Directory of manifests [default: /etc/wherry/manifests]
    #[arg(long, value_name = "DIR")]
    manifests: Option<PathBuf>,
    /// Directory for state and volumes [default: /var/lib/wherry]
    #[arg(long, value_name = "DIR")]
    root_dir: Option<PathBuf>,
    /// Directory for pods' logs [default: /var/log/pods]
    #[arg(long, value_name = "DIR")]
    log_dir: Option<PathBuf>,
    /// Directory for links to containers' logs [default: /var/log/containers]
    #[arg(long, value_name = "DIR")]
    container_log_dir: Option<PathBuf>,
    /// Socket of the container runtime [default: unix:///run/containerd/containerd.sock]
    #[arg(long, value_name = "ENDPOINT")]
    runtime_endpoint: Option<String>,
    /// Control socket [default: /run/wherry/wherry.sock]
    #[arg(long, value_name = "FILE")]
    socket: Option<PathBuf>,
    /// The node's name [default: the host name in lower case]
    #[arg(long, value_name = "NAME")]
    hostname: Option<String>,
    /// Address of the health port [default: 127.0.0.1]
    #[arg(long, value_name = "IP")]
    healthz_address: Option<IpAddr>,
    /// Port of /healthz, /livez and /readyz, 0 for none [default: 10248]
    #[arg(long, value_name = "PORT")]
    healthz_port: Option<u16>,
    /// Port of /healthz, /metrics and /pods for everybody, 0 for none [default: 0]
    #[arg(long, value_name = "PORT")]
    read_only_port: Option<u16>,
    /// How much to log: 0 what matters, 4 to debug, 6 everything [default: 0]
    #[arg(short = 'v', long = "v", value_name = "LEVEL")]
    verbosity: Option<u32>,
}

impl From<ConfigArgs> for Flags {
    fn from(a: ConfigArgs) -> Flags {
        Flags {
            config: a.config,
            config_dir: a.config_dir,
            manifests: a.manifests,
            root_dir: a.root_dir,
            log_dir: a.log_dir,
            container_log_dir: a.container_log_dir,
            runtime_endpoint: a.runtime_endpoint,
            socket: a.socket,
            hostname: a.hostname,
            healthz_port: a.healthz_port,
            healthz_address: a.healthz_address,
            read_only_port: a.read_only_port,
            verbosity: a.verbosity,
        }
    }
}

/// Where the running agent is to be found.
#[derive(Debug, Args)]
struct SocketArgs {
    /// Control socket [default: the configuration's, else /run/wherry/wherry.sock]
    #[arg(long, value_name = "FILE")]
    socket: Option<PathBuf>,
}

impl SocketArgs {
    /// What the agent would listen on with the usual configuration. Its errors are `check`'s business.
    fn path(self) -> PathBuf {
        self.socket.unwrap_or_else(|| config::load(&Flags::default()).config.socket)
    }
}

/// The whole program.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        // Help and the version come this way too.
        Err(e) if !e.use_stderr() => {
            return output::finish(|out| {
                write!(out, "{}", e.render())?;
                Ok(0)
            });
        }
        Err(e) => {
            let _ = write!(std::io::stderr(), "{}", e.render());
            return ExitCode::from(2);
        }
    };
    match cli.command {
        Command::Run(args) => run(args.into()),
        Command::Check { files, config } => output::finish(|out| check::run(out, &config.into(), &files)),
        Command::Pods { names, namespace, output, watch, socket } => {
            let query = pods::Query { names, namespace, format: output, watch };
            output::finish(|out| pods::run(out, &socket.path(), &query))
        }
        Command::Status { output, socket } => {
            output::finish(|out| status::run(out, &socket.path(), output == Some(StatusFormat::Json)))
        }
        Command::Version => output::finish(|out| {
            writeln!(out, "wherry {}", env!("CARGO_PKG_VERSION"))?;
            Ok::<u8, Failure>(0)
        }),
    }
}

/// Reads the configuration and becomes the agent. With an error in it, all errors are told and nothing begins.
fn run(flags: Flags) -> ExitCode {
    let loaded = config::load(&flags);
    logging::init(loaded.config.verbosity);
    for warning in &loaded.problems.warnings {
        log::warn!("configuration: {warning}");
    }
    for error in &loaded.problems.errors {
        log::error!("configuration: {error}");
    }
    if !loaded.is_ok() {
        return ExitCode::FAILURE;
    }
    crate::agent::run(loaded.config)
}

#[cfg(test)]
mod tests;
