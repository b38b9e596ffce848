//! `wherry purge`: removes everything that Wherry has created on this machine, starting with the pods. Without --yes,
//! it only lists the pods.

use crate::agent::purge::{self, PodThere};
use crate::commands::join::membership;
use crate::commands::output::{Failure, print_message, shown};
use crate::config::{self, Flags};
use std::io::Write;
use std::time::Duration;

/// Lists the pods, or removes everything.
///
/// # Errors
/// The exit code is 1 if something could not be removed.
pub fn run(out: &mut dyn Write, flags: &Flags, yes: bool, limit: Duration) -> Result<u8, Failure> {
    let loaded = config::load(flags);
    // Continue with the readable part of the configuration, and with defaults.
    for error in &loaded.problems.errors {
        print_message(&format!("configuration: {error}"));
    }
    if !yes {
        let pods = purge::pods(&loaded.config).map_err(Failure::message)?;
        return list(out, &pods);
    }
    // Flush each line, so that the output is kept whatever happens later.
    let mut written = Ok(());
    let mut line = |text: String| {
        if written.is_ok() {
            written = writeln!(out, "{}", shown(&text)).and_then(|()| out.flush());
        }
    };
    let result = purge::purge(&loaded.config, limit, &mut line);
    written?;
    match result {
        // Remove the drop-in only now: it names a file in the state directory, which a failed purge keeps.
        Ok(()) => membership::remove_drop_in(flags).map(|()| 0),
        Err(errors) => {
            errors.iter().for_each(|e| print_message(e));
            let root = loaded.config.root_dir.display();
            Err(Failure::message(format!(
                "the purge is incomplete, so the state in {root} is kept; fix these errors and try again"
            )))
        }
    }
}

fn list(out: &mut dyn Write, pods: &[PodThere]) -> Result<u8, Failure> {
    for pod in pods {
        let plural = if pod.running == 1 { "" } else { "s" };
        writeln!(out, "{}  {} container{plural} running", shown(&pod.name.to_string()), pod.running)?;
    }
    out.flush()?;
    let plural = if pods.len() == 1 { "" } else { "s" };
    print_message(&format!(
        "{} pod{plural}; --yes stops and removes them, and removes all state of wherry",
        pods.len()
    ));
    Ok(0)
}
