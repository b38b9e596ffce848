//! The command line: a file per subcommand, and what they share.
//!
//! `run` is the daemon; the others ask it over the control socket, or look at files themselves (`check`).

pub mod check;
mod check_system;
mod client;
mod debug;
mod describe;
mod drain;
mod events;
mod exec;
mod logs;
mod output;
mod pods;
mod purge;
mod retry;
mod row;
mod screen;
mod select;
mod shutdown_plan;
mod status;
mod table;
mod top;

use crate::adapters::manifests;
use crate::agent::{self, logging};
use crate::api::selector::Selector;
use crate::config::{self, Flags};
use clap::{ArgGroup, Args, CommandFactory as _, Parser, Subcommand};
use jiff::Timestamp;
use output::Failure;
use select::Target;
use std::ffi::OsString;
use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

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
    /// Check configuration and manifests, or the machine
    ///
    /// Checks FILES (configuration or manifests, each says which it is), or without any the configuration and all
    /// manifests that `wherry run` would read. Prints a line for each problem: file, line, field, and what is wrong. FILE
    /// is a regular file or a directory; nothing else is opened. - reads standard input.
    ///
    /// With --system the machine instead: kernel, cgroups, container runtime and its network, logind, directories, disk,
    /// clock. A line for each: ok, warning or error, and what to do. Nothing is changed; it takes 5 s at the
    /// longest, or some seconds more if a file system hangs, and says which path gives no answer.
    ///
    /// Exit code: 0 nothing is wrong (with --system: there may be warnings), 1 something is, 2 a file cannot be read, or
    /// the command line is wrong.
    Check {
        /// Files, directories of manifests, or - for standard input
        #[arg(conflicts_with = "system")]
        files: Vec<PathBuf>,
        /// The machine, not files
        #[arg(long)]
        system: bool,
        /// Another format than text, with --system
        #[arg(short, long, value_enum, requires = "system")]
        output: Option<StatusFormat>,
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
    /// Show all about a pod
    ///
    /// Its spec in brief, the states of its containers, conditions, what it waits for and for how long, and its last
    /// events. Where one pod takes another's place, both are shown.
    Describe {
        /// NAME, NAMESPACE/NAME, or a UID
        pod: String,
        /// The pod's namespace [default: any]
        #[arg(short, long)]
        namespace: Option<String>,
        /// A document instead of text: the pod, with `wherry` and `events`
        #[arg(short, long, value_enum)]
        output: Option<describe::Format>,
        #[command(flatten)]
        socket: SocketArgs,
    },
    /// Show what happened
    ///
    /// The events of pods and of the node, the last ones last. They are kept in memory: 50 of a pod, as long as it is there
    /// and an hour longer; those of the node for an hour.
    Events {
        /// Only of this pod: NAME, NAMESPACE/NAME, or a UID
        pod: Option<String>,
        /// Only of pods of this namespace
        #[arg(short, long)]
        namespace: Option<String>,
        /// Only these types: Normal, Warning
        #[arg(long, value_delimiter = ',', value_name = "TYPE")]
        types: Vec<String>,
        /// Another format than the table; with --watch a document on each line
        #[arg(short, long, value_enum)]
        output: Option<StatusFormat>,
        /// Go on with each new event, and each repetition of one
        #[arg(short, long)]
        watch: bool,
        #[command(flatten)]
        socket: SocketArgs,
    },
    /// Print what a pod's containers wrote
    ///
    /// The log of a container's newest run, through the files that rotation has made of it. With --follow it goes on when the
    /// container is started again (kubectl does not), and ends when the pod is gone or the container is not started again.
    /// Without a running agent the files are found by their names.
    Logs(LogsArgs),
    /// Try a pod again that the node has rejected
    ///
    /// A pod that the node did not take (OutOfcpu, NodeAffinity, ...) stays rejected until its manifest changes. This looks
    /// at it again, as if it had come now, and prints what came of it. A pod rejected as the node shuts down is tried again
    /// when that ends, without this; one that waits for room, or was preempted, needs it neither.
    ///
    /// Exit code: 0 it was tried again, 1 it was not: it is not rejected, or is not there.
    Retry {
        /// NAME, NAMESPACE/NAME, or a UID
        pod: String,
        /// The pod's namespace [default: any]
        #[arg(short, long)]
        namespace: Option<String>,
        #[command(flatten)]
        socket: SocketArgs,
    },
    /// Stop pods until `wherry undrain`
    ///
    /// Each pod is stopped with its grace period and its preStop hooks, ends as Failed with the reason Drained, and is not
    /// started again until `wherry undrain`: not by a restart of wherry, not by a reboot, and not by a new version of its
    /// manifest. It takes no part of the node meanwhile. Only a manifest that is taken away, and comes back once the pod is
    /// gone, begins anew. Waits until nothing of the pods runs any more; Ctrl-C ends the wait and not the drain.
    ///
    /// Exit code: 0 the pods are down, 1 not in time, or one is not there, 130 after Ctrl-C.
    #[command(after_help = DRAIN_EXAMPLES)]
    Drain(DrainArgs),
    /// Run a command in a container
    ///
    /// The command runs in the container's own namespaces, without a shell, a terminal or input, and its output is printed when
    /// it has ended: stdout, then stderr. (Interactive commands and output as it comes are for a later version; the runtime
    /// hands over at most 16 MiB.) Ctrl-C ends the command.
    ///
    /// Exit code: the command's own. 124 it was killed as it took too long, 126 it cannot be executed, 127 it is not there,
    /// 125 anything else kept it from running: no such pod or container, one that does not run, no agent.
    #[command(after_help = EXEC_EXAMPLES)]
    Exec(ExecArgs),
    /// Show what pods and containers use
    ///
    /// Processor time over a second (over the interval with --watch; 1000m is one processor), memory (the working set) and
    /// restarts, as the runtime tells them, those that use most first. A `-` is not known: the container has just been started.
    #[command(after_help = TOP_EXAMPLES)]
    Top(TopArgs),
    /// Let drained pods run again
    ///
    /// They are looked at as if they had come now: each starts if it fits, else waits or is rejected.
    ///
    /// Exit code: 0 they may run again, 1 none of those named was drained.
    #[command(after_help = UNDRAIN_EXAMPLES)]
    Undrain {
        #[command(flatten)]
        which: WhichArgs,
        #[command(flatten)]
        socket: SocketArgs,
    },
    /// Look for a mistake in wherry
    #[command(subcommand)]
    Debug(DebugCommand),
    /// Show how the node does
    ///
    /// The runtime and its version, the age of the last look at it, counts of pods, what the node has, how much of it pods
    /// may ask for and do ask for, manifests with errors, whether the machine waits for the pods when it is shut down, and
    /// what wherry waits for.
    Status {
        /// Another format than text
        #[arg(short, long, value_enum)]
        output: Option<StatusFormat>,
        #[command(flatten)]
        socket: SocketArgs,
    },
    /// Show who would be stopped when, were the machine shut down now
    ///
    /// A bar for each group of pods over the time that the machine waits, and for each pod when it is told to end and how long
    /// it has. "cut off": it asks for more grace than it gets.
    ShutdownPlan {
        /// Another format than text
        #[arg(short, long, value_enum)]
        output: Option<StatusFormat>,
        #[command(flatten)]
        socket: SocketArgs,
    },
    /// Remove all pods of this node, and all that wherry keeps
    ///
    /// For a machine that wherry leaves for good, when no agent runs. Without --yes the pods are listed, and nothing is changed.
    /// With it they are stopped, each with its own grace period as far as --timeout allows, and removed, with their
    /// logs; then the state directory and logind's drop-in go. Pods of others, the configuration and the manifests stay.
    ///
    /// Exit code: 0 nothing is left, 1 something is, stderr says what.
    Purge {
        /// Do it
        #[arg(long)]
        yes: bool,
        /// How long it may take, as 90s or 5m
        #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = config::duration::parse)]
        timeout: Duration,
        #[command(flatten)]
        config: ConfigArgs,
    },
    /// Print the version
    Version,
}

const DRAIN_EXAMPLES: &str = "\
Examples:
  wherry drain default/db                   stop one pod, and wait until it is down
  wherry drain -l app=web,tier!=cache       those with these labels
  wherry drain --all --timeout 5m           all, but wait no longer than that
  wherry drain --all --grace-period 5 --no-wait";

const UNDRAIN_EXAMPLES: &str = "\
Examples:
  wherry undrain default/db
  wherry undrain --all                      all that are drained";

const EXEC_EXAMPLES: &str = "\
Examples:
  wherry exec shop/web -- nginx -T
  wherry exec shop/web -c sidecar -- sh -c 'ls /tmp | wc -l'
  wherry exec db --timeout 10m -- pg_dump -f /backup/db.sql";

const TOP_EXAMPLES: &str = "\
Examples:
  wherry top                                those that use most first
  wherry top --containers --sort-by memory
  wherry top -l app=web --watch
  wherry top -o json | jq '.pods[0]'";

#[derive(Debug, Args)]
struct ExecArgs {
    /// NAME, NAMESPACE/NAME, or a UID
    pod: String,
    /// The pod's namespace [default: any]
    #[arg(short, long)]
    namespace: Option<String>,
    /// The container [default: that of the annotation kubectl.kubernetes.io/default-container, else the first]
    #[arg(short, long)]
    container: Option<String>,
    /// The command is killed after so long, as 10s or 5m
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = exec_timeout)]
    timeout: Duration,
    #[command(flatten)]
    socket: SocketArgs,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

/// From a second to a day.
fn exec_timeout(text: &str) -> Result<Duration, String> {
    let timeout = config::duration::parse(text).map_err(|e| e.to_string())?;
    let fits = (1..=24 * 3600).contains(&timeout.as_secs());
    fits.then_some(timeout).ok_or_else(|| "it is from 1s to 24h".to_owned())
}

#[derive(Debug, Args)]
struct TopArgs {
    /// Only this pod: NAME, NAMESPACE/NAME, or a UID
    pod: Option<String>,
    /// Only pods of this namespace
    #[arg(short, long)]
    namespace: Option<String>,
    /// Only pods with these labels, as in `wherry drain`
    #[arg(short = 'l', long, value_parser = Selector::parse)]
    selector: Option<Selector>,
    /// A line for each container, too
    #[arg(long)]
    containers: bool,
    /// What comes first
    #[arg(long, value_enum, default_value = "cpu")]
    sort_by: top::SortBy,
    /// Another format than the table; with --watch a document on each line
    #[arg(short, long, value_enum)]
    output: Option<StatusFormat>,
    /// Go on until Ctrl-C
    #[arg(short, long)]
    watch: bool,
    /// Between two looks of --watch
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = interval, requires = "watch")]
    interval: Duration,
    #[command(flatten)]
    socket: SocketArgs,
}

/// At least a second: each look costs the runtime something.
fn interval(text: &str) -> Result<Duration, String> {
    let every = config::duration::parse(text).map_err(|e| e.to_string())?;
    (every.as_secs() >= 1).then_some(every).ok_or_else(|| "it is at least 1s".to_owned())
}

#[derive(Debug, Args)]
#[group(skip)]
#[command(group(ArgGroup::new("which").args(["pods", "selector", "all"]).required(true).multiple(true)))]
struct WhichArgs {
    /// NAME, NAMESPACE/NAME, or a UID
    #[arg(conflicts_with_all = ["selector", "all"])]
    pods: Vec<String>,
    /// Only pods of this namespace
    #[arg(short, long)]
    namespace: Option<String>,
    /// Pods with these labels: app=web,tier!=cache, 'env in (test,dev)', canary, '!canary'
    #[arg(short = 'l', long, conflicts_with = "all", value_parser = Selector::parse)]
    selector: Option<Selector>,
    /// All pods
    #[arg(long)]
    all: bool,
}

impl WhichArgs {
    fn which(self) -> Result<drain::Which, Failure> {
        let targets = self.pods.iter().map(|pod| select(pod, self.namespace.as_deref())).collect::<Result<_, _>>()?;
        Ok(drain::Which { targets, namespace: self.namespace, selector: self.selector, all: self.all })
    }
}

#[derive(Debug, Args)]
struct DrainArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// How long the pods have to end, instead of their own terminationGracePeriodSeconds; at least 1 s
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=604_800))]
    grace_period: Option<u64>,
    /// How long to wait, as 90s or 5m [default: as long as it takes]
    #[arg(long, value_name = "DURATION", value_parser = config::duration::parse, conflicts_with = "no_wait")]
    timeout: Option<Duration>,
    /// Do not wait until the pods are down
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

#[derive(Debug, Args)]
struct LogsArgs {
    /// NAME, NAMESPACE/NAME, or a UID
    pod: String,
    /// The pod's namespace [default: any]
    #[arg(short, long)]
    namespace: Option<String>,
    /// The container [default: the first]
    #[arg(short, long)]
    container: Option<String>,
    /// All containers of the pod, one after another, with --follow as their lines come
    #[arg(long, conflicts_with = "container")]
    all_containers: bool,
    /// Go on with what is written from now on
    #[arg(short, long)]
    follow: bool,
    /// The run before: the last one that ended
    #[arg(short, long, conflicts_with = "follow")]
    previous: bool,
    /// Only the last lines, -1 for all
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    tail: Option<i64>,
    /// Only lines of the last time, as 90s, 5m or 1h30m
    #[arg(long, value_name = "DURATION", value_parser = config::duration::parse)]
    since: Option<Duration>,
    /// Only lines since then, as 2026-11-20T14:46:39Z
    #[arg(long, value_name = "TIME", conflicts_with = "since")]
    since_time: Option<Timestamp>,
    /// Put each line's time before it
    #[arg(long)]
    timestamps: bool,
    /// End after so many bytes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit_bytes: Option<u64>,
    /// Directory of pods' logs, for when no agent runs [default: the configuration's, else /var/log/pods]
    #[arg(long, value_name = "DIR")]
    log_dir: Option<PathBuf>,
    #[command(flatten)]
    socket: SocketArgs,
}

#[derive(Debug, Subcommand)]
enum DebugCommand {
    /// Print the state of the running agent as JSON
    ///
    /// Every pod's worker, what the runtime showed last, operations in flight, timers, queues, descriptors. Its form changes
    /// from version to version; specs of pods, which may hold secrets, are not in it.
    Dump {
        #[command(flatten)]
        socket: SocketArgs,
    },
    /// List the descriptors of the running agent
    ///
    /// Each with its kind, the events that the loop has seen for it, and what it waits for: what one needs to read a
    /// trace of its system calls (strace).
    Fds {
        /// Another format than the table
        #[arg(short, long, value_enum)]
        output: Option<StatusFormat>,
        #[command(flatten)]
        socket: SocketArgs,
    },
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

/// The command line as it is defined: for its man pages and completions (packaging/texts).
pub fn definition() -> clap::Command {
    Cli::command()
}

/// The whole program.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    // The agent's own business, and no command for people.
    if let [_, command, question] = args.as_slice()
        && command == manifests::LOOK_COMMAND
    {
        // It may hang for as long as the agent runs, and is of no use without it. (Fails only for a wrong signal.)
        let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
        return output::finish_raw(|out| {
            manifests::answer_look(&question.to_string_lossy(), out)?;
            Ok(0)
        });
    }
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
            output::to_stderr(&e.render().to_string());
            return ExitCode::from(2);
        }
    };
    match cli.command {
        Command::Run(args) => run(args.into()),
        Command::Logs(args) => output::finish_raw(|out| logs(out, args)),
        Command::Exec(args) => output::finish_raw(|out| exec(out, args)),
        command => output::finish(|out| show(out, command)),
    }
}

/// Every command whose output is ours: a person reads it, or a program as JSON or YAML.
fn show(out: &mut dyn Write, command: Command) -> Result<u8, Failure> {
    match command {
        Command::Check { system: true, output, config, .. } => check_system::run(out, &config.into(), output.is_some()),
        Command::Check { files, config, .. } => check::run(out, &config.into(), &files),
        Command::Pods { names, namespace, output, watch, socket } => {
            let query = pods::Query { names, namespace, format: output, watch };
            pods::run(out, &socket.path(), &query)
        }
        Command::Describe { pod, namespace, output, socket } => {
            let target = select(&pod, namespace.as_deref())?;
            describe::run(out, &socket.path(), &target, output)
        }
        Command::Events { pod, namespace, types, output, watch, socket } => {
            let pod = pod.map(|pod| select(&pod, namespace.as_deref())).transpose()?;
            let query = events::Query { pod, namespace, types, json: output.is_some(), watch };
            events::run(out, &socket.path(), &query)
        }
        Command::Retry { pod, namespace, socket } => {
            let target = select(&pod, namespace.as_deref())?;
            retry::run(out, &socket.path(), &target)
        }
        Command::Drain(args) => {
            let query = drain::Query {
                which: args.which.which()?,
                grace_period_seconds: args.grace_period,
                timeout: args.timeout,
                wait: !args.no_wait,
            };
            drain::drain(out, &args.socket.path(), &query)
        }
        Command::Top(args) => {
            let query = top::Query {
                target: args.pod.map(|pod| select(&pod, args.namespace.as_deref())).transpose()?,
                namespace: args.namespace,
                selector: args.selector,
                containers: args.containers,
                sort: args.sort_by,
                json: args.output.is_some(),
                watch: args.watch.then_some(args.interval),
            };
            top::run(out, &args.socket.path(), &query)
        }
        Command::Undrain { which, socket } => drain::undrain(out, &socket.path(), &which.which()?),
        Command::Debug(DebugCommand::Dump { socket }) => debug::dump(out, &socket.path()),
        Command::Debug(DebugCommand::Fds { output, socket }) => debug::fds(out, &socket.path(), output.is_some()),
        Command::Status { output, socket } => status::run(out, &socket.path(), output == Some(StatusFormat::Json)),
        Command::ShutdownPlan { output, socket } => {
            shutdown_plan::run(out, &socket.path(), output == Some(StatusFormat::Json))
        }
        Command::Purge { yes, timeout, config } => purge::run(out, &config.into(), yes, timeout),
        Command::Version => {
            writeln!(out, "wherry {}", env!("CARGO_PKG_VERSION"))?;
            Ok(0)
        }
        // (`main` runs these in another way.)
        Command::Run(_) | Command::Logs(_) | Command::Exec(_) => Ok(0),
    }
}

fn exec(out: &mut dyn Write, args: ExecArgs) -> Result<u8, Failure> {
    let query = exec::Query {
        target: select(&args.pod, args.namespace.as_deref())?,
        container: args.container,
        command: args.command,
        timeout: args.timeout,
    };
    exec::run(out, &mut std::io::stderr(), &args.socket.path(), &query)
}

fn logs(out: &mut dyn Write, args: LogsArgs) -> Result<u8, Failure> {
    let ago = |d| Timestamp::now().checked_sub(d).unwrap_or(Timestamp::MIN);
    let query = logs::Query {
        target: select(&args.pod, args.namespace.as_deref())?,
        container: args.container,
        all: args.all_containers,
        follow: args.follow,
        previous: args.previous,
        tail: args.tail.and_then(|n| u64::try_from(n).ok()),
        since: args.since.map(ago).or(args.since_time),
        timestamps: args.timestamps,
        limit: args.limit_bytes,
    };
    let log_dir = args.log_dir.unwrap_or_else(|| config::load(&Flags::default()).config.pod_logs_dir);
    logs::run(out, &args.socket.path(), &log_dir, &query)
}

/// What is wrong with a name is an error of the command line.
fn select(pod: &str, namespace: Option<&str>) -> Result<Target, Failure> {
    Target::parse(pod, namespace).map_err(|e| Failure::Message(e, 2))
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
    if let Some(first) = loaded.problems.errors.first() {
        agent::service::tell_failure(&format!("the configuration has errors: {first}"));
        return ExitCode::FAILURE;
    }
    agent::run(loaded.config)
}

#[cfg(test)]
mod tests;
