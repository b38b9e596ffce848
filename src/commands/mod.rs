//! The command line: one file per subcommand, and shared code.
//!
//! `run` is the daemon. The other commands query it over the control socket, or read files themselves (`check`).

mod attach;
pub mod check;
mod check_system;
mod client;
mod command_line;
mod complete;
mod containers;
mod cordon;
mod cp;
mod debug;
mod debug_pod;
mod describe;
mod drain;
mod events;
mod exec;
mod images;
mod join;
mod keep;
mod kubeconfig;
mod leave;
mod logs;
mod output;
mod pods;
mod port_forward;
mod purge;
mod retry;
mod screen;
mod select;
mod shutdown_plan;
mod status;
mod status_format;
mod streams;
mod support;
mod table;
mod top;
mod volumes;

use crate::adapters::manifests;
use crate::agent::{self, logging};
use crate::config::{self, Flags};
use clap::Parser as _;
pub use command_line::definition;
use command_line::{Cli, Command, DebugArgs, DebugCommand, DrainArgs, LogsArgs, TopArgs, VolumesCommand};
use jiff::Timestamp;
use output::Failure;
use select::select;
use status_format::StatusFormat;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// Runs the whole program and returns its exit code.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    // The internal command that the agent calls. It is hidden from users.
    if let [_, command, question] = args.as_slice()
        && command == manifests::INSPECT_COMMAND
    {
        // The process may hang in a read, and is useless once the agent has ended, so it ends with the agent. The call
        // fails only for an invalid signal.
        let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
        return output::finish_raw(|out| {
            manifests::answer_inspection(&question.to_string_lossy(), out)?;
            Ok(0)
        });
    }
    if let [_, command, words @ ..] = args.as_slice()
        && command == complete::COMMAND
    {
        let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        return output::finish_raw(|out| {
            write!(out, "{}", complete::candidates(&words))?;
            Ok(0)
        });
    }
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        // Requests for help or the version also end up here.
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
        Command::Run(args) => run(args),
        Command::Logs(args) => output::finish_raw(|out| logs(out, args)),
        Command::Exec { query, socket } => {
            output::finish_raw(|out| exec::run(out, &mut std::io::stderr(), &socket.path(), query))
        }
        Command::Attach { query, socket } => {
            output::finish_raw(|out| attach::run(out, &mut std::io::stderr(), &socket.path(), query))
        }
        Command::Debug(DebugArgs { command: None, query, socket }) => {
            output::finish_raw(|out| debug_pod::run(out, &mut std::io::stderr(), &socket.path(), query))
        }
        // The archive can go to stdout.
        Command::Support(args) => output::finish_raw(|out| support::run(out, &args)),
        command => output::finish(|out| show(out, command)),
    }
}

/// Runs every command whose output wherry itself generates, as text, JSON or YAML.
fn show(out: &mut dyn Write, command: Command) -> Result<u8, Failure> {
    match command {
        Command::Check { system: true, output, config, .. } => check_system::run(out, &config, output.is_some()),
        Command::Check { join: true, files, target, output, config, .. } => {
            join::check::run(out, &config, target, &files, output.is_some())
        }
        Command::Check { target, .. } if target.is_given() => {
            Err(Failure::Message("the options of wherry join require --join".to_owned(), 2))
        }
        Command::Check { files, config, .. } => check::run(out, &config, &files),
        Command::Pods { query, socket } => pods::run(out, &socket.path(), &query),
        Command::Describe { pod, output, socket } => describe::run(out, &socket.path(), &pod.target()?, output),
        Command::Events { pod, namespace, all_namespaces: _, types, output, watch, socket } => {
            let pod = pod.map(|pod| select(&pod, namespace.as_deref())).transpose()?;
            let query = events::EventQuery { pod, namespace, types, json: output.is_some(), watch };
            events::run(out, &socket.path(), &query)
        }
        Command::Retry { pod, socket } => retry::run(out, &socket.path(), &pod.target()?),
        Command::Drain(args) => drain(out, args),
        Command::Top(args) => top(out, args),
        Command::Cp { query, socket } => cp::run(&socket.path(), query),
        Command::PortForward { query, socket } => port_forward::run(out, &socket.path(), &query),
        Command::Volumes { command: None, output, socket } => volumes::run(out, &socket.path(), output),
        Command::Volumes { command: Some(VolumesCommand::Remove { claims, socket }), .. } => {
            volumes::remove(out, &socket.path(), &claims)
        }
        Command::Images { output, socket } => images::run(out, &socket.path(), output),
        Command::Kubeconfig(arguments) => kubeconfig::run(out, arguments),
        Command::Join(arguments) => join::run(out, arguments),
        Command::Leave(arguments) => leave::run(out, &arguments),
        Command::Keep(arguments) => keep::run(out, &arguments),
        Command::Cordon { socket } => cordon::run(out, &socket.path(), true),
        Command::Uncordon { socket } => cordon::run(out, &socket.path(), false),
        Command::Undrain { which, socket } => drain::undrain(out, &socket.path(), &which.which()?),
        Command::Debug(DebugArgs { command: Some(DebugCommand::Dump { socket }), .. }) => {
            debug::dump(out, &socket.path())
        }
        Command::Debug(DebugArgs { command: Some(DebugCommand::Fds { output, socket }), .. }) => {
            debug::fds(out, &socket.path(), output.is_some())
        }
        Command::Status { output, socket } => status::run(out, &socket.path(), output == Some(StatusFormat::Json)),
        Command::ShutdownPlan { output, socket } => {
            shutdown_plan::run(out, &socket.path(), output == Some(StatusFormat::Json))
        }
        Command::Purge { yes, timeout, config } => purge::run(out, &config, yes, timeout),
        Command::Version => {
            writeln!(out, "wherry {}", env!("CARGO_PKG_VERSION"))?;
            Ok(0)
        }
        // `main` runs these commands itself.
        Command::Run(_)
        | Command::Logs(_)
        | Command::Exec { .. }
        | Command::Attach { .. }
        | Command::Support(_)
        | Command::Debug(DebugArgs { command: None, .. }) => Ok(0),
    }
}

fn drain(out: &mut dyn Write, args: DrainArgs) -> Result<u8, Failure> {
    let query = drain::DrainOptions {
        which: args.which.which()?,
        grace_period_seconds: args.grace_period,
        timeout: args.timeout,
        wait: !args.no_wait,
        ignore_budgets: args.ignore_budgets,
    };
    drain::drain(out, &args.socket.path(), &query)
}

fn top(out: &mut dyn Write, args: TopArgs) -> Result<u8, Failure> {
    let query = top::TopQuery {
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

fn logs(out: &mut dyn Write, args: LogsArgs) -> Result<u8, Failure> {
    let ago = |d| Timestamp::now().checked_sub(d).unwrap_or(Timestamp::MIN);
    let query = logs::LogQuery {
        target: args.pod.target()?,
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

/// Reads the configuration and runs the agent. If the configuration has errors, logs all of them and does not start.
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
        agent::service::notify_failure(&format!("the configuration has errors: {first}"));
        return ExitCode::FAILURE;
    }
    agent::run(loaded.config)
}

#[cfg(test)]
mod tests;
