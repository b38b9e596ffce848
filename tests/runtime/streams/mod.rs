//! Streams on a real runtime: `wherry exec -i` and `-t`, `attach`, `port-forward` and `cp`.

mod copy;
mod exec;
mod forward;
pub mod pty;
mod websocket;

use crate::support::agent::Agent;
use std::process::{Child, Command, Output, Stdio};

/// A container for commands, one with an open stdin, and one with a terminal.
const POD: &str = "
    terminationGracePeriodSeconds: 1
    containers:
    - name: main
      image: localhost/trap:1
    - name: reader
      image: localhost/busybox:1.35
      command: [sh, -c, 'echo ready; while read line; do echo \"got $line\"; echo \"err $line\" >&2; done; echo end; sleep 86400']
      stdin: true
    - name: term
      image: localhost/busybox:1.35
      command: [sh]
      stdin: true
      tty: true
";

struct Printed {
    code: Option<i32>,
    out: String,
    err: String,
}

fn printed(output: &Output) -> Printed {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Printed { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// `wherry COMMAND --socket SOCKET ...`.
fn wherry(agent: &Agent, command: &str, arguments: &[&str]) -> Command {
    let mut wherry = Command::new(env!("CARGO_BIN_EXE_wherry"));
    wherry.arg(command).arg("--socket").arg(&agent.socket).args(arguments);
    wherry
}

/// Starts it with pipes.
fn piped(mut command: Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("wherry")
}

fn run(agent: &Agent, command: &str, arguments: &[&str]) -> Printed {
    printed(&wherry(agent, command, arguments).stdin(Stdio::null()).output().expect("wherry"))
}
