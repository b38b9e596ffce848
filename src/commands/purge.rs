//! `wherry purge`: everything that wherry made on this machine is removed, its pods first. Without --yes it only says what there is.

use crate::agent::purge::{self, PodThere};
use crate::commands::output::{Failure, shown, tell};
use crate::config::{self, Flags};
use std::io::Write;
use std::time::Duration;

/// Lists the pods, or removes all.
///
/// # Errors
/// Exit code 1: something is still there.
pub fn run(out: &mut dyn Write, flags: &Flags, yes: bool, limit: Duration) -> Result<u8, Failure> {
    let loaded = config::load(flags);
    // What could be read of it has to do: the rest is as by default.
    for error in &loaded.problems.errors {
        tell(&format!("configuration: {error}"));
    }
    if !yes {
        let pods = purge::pods(&loaded.config).map_err(Failure::message)?;
        return list(out, &pods);
    }
    // What was told so far is told, whatever comes.
    let mut written = Ok(());
    let mut line = |text: String| {
        if written.is_ok() {
            written = writeln!(out, "{}", shown(&text)).and_then(|()| out.flush());
        }
    };
    let result = purge::purge(&loaded.config, limit, &mut line);
    written?;
    match result {
        Ok(()) => Ok(0),
        Err(errors) => {
            errors.iter().for_each(|e| tell(e));
            let root = loaded.config.root_dir.display();
            Err(Failure::message(format!(
                "not everything is removed, the state in {root} stays: mend that and try again"
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
    tell(&format!("{} pod{plural}; --yes stops and removes them, and all that wherry keeps", pods.len()));
    Ok(0)
}
