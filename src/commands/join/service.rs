//! The restart of the service after a change of the membership. Pods keep running.

use crate::commands::output::{Failure, print_message};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

const UNIT: &str = "wherry.service";

/// systemd manages this machine.
fn has_systemd() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

fn systemctl(arguments: &[&str]) -> bool {
    let mut command = Command::new("systemctl");
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
    command.status().is_ok_and(|status| status.success())
}

/// Restarts the service if it runs and `wanted`. `next`: a sentence on the next step.
///
/// # Errors
/// stdout cannot be written. A service that cannot be restarted is a message.
pub fn restart(out: &mut dyn Write, wanted: bool, next: &str) -> Result<(), Failure> {
    out.flush()?;
    if !wanted || !has_systemd() {
        writeln!(out, "restart wherry for the change to take effect; pods keep running")?;
    } else if !systemctl(&["is-active", "--quiet", UNIT]) {
        writeln!(out, "wherry does not run; to start it: systemctl enable --now wherry")?;
    } else if systemctl(&["restart", UNIT]) {
        writeln!(out, "restarted wherry; pods keep running. {next}")?;
    } else {
        print_message("the service cannot be restarted; see systemctl status wherry, and restart it");
    }
    Ok(())
}
