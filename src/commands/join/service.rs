//! Restarts the service after the machine has joined or left a cluster. Pods keep running.

use crate::commands::output::{Failure, print_message};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

const UNIT: &str = "wherry.service";

/// Reports whether systemd manages this machine.
fn has_systemd() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

fn systemctl(arguments: &[&str]) -> bool {
    let mut command = Command::new("systemctl");
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
    command.status().is_ok_and(|status| status.success())
}

/// Restarts the service if it is running and `wanted` is set. `next` is a sentence about the next step.
///
/// # Errors
/// stdout cannot be written. If the service cannot be restarted, only a message is printed.
pub fn restart(out: &mut dyn Write, wanted: bool, next: &str) -> Result<(), Failure> {
    out.flush()?;
    if !wanted || !has_systemd() {
        writeln!(out, "restart wherry for the change to take effect; pods keep running")?;
    } else if !systemctl(&["is-active", "--quiet", UNIT]) {
        writeln!(out, "wherry is not running; to start it: systemctl enable --now wherry")?;
    } else if systemctl(&["restart", UNIT]) {
        writeln!(out, "restarted wherry; pods keep running. {next}")?;
    } else {
        print_message("the service cannot be restarted; see systemctl status wherry, and restart it");
    }
    Ok(())
}
