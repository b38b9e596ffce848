//! `wherry check --system`: checks whether this machine can run pods. Prints a line for each check.
//!
//! Exit code 0: no error (there may be warnings); 1: an error. The command changes nothing, and does not contact the
//! running agent.

use crate::agent::system_check;
use crate::api::finding::{Count, Finding};
use crate::commands::output::{Failure, document, print_message, shown};
use crate::config::{self, Flags};
use crate::foreign::{self, NoAnswer};
use serde_json::json;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

/// A configuration that cannot be read within this time is considered to be on a file system that hangs.
const PATIENCE: Duration = Duration::from_secs(5);

/// Checks the machine with the configuration selected by `flags`, and prints the findings.
pub fn run(out: &mut dyn Write, flags: &Flags, as_json: bool) -> Result<u8, Failure> {
    print(out, &findings(flags), as_json, "the system")
}

/// Checks the machine with the configuration selected by `flags`.
pub fn findings(flags: &Flags) -> Vec<Finding> {
    let loaded = foreign::within(PATIENCE, {
        let flags = flags.clone();
        move || config::load(&flags)
    });
    let loaded = match loaded {
        Ok(loaded) => loaded,
        // Without a configuration, the paths to check are unknown.
        Err(why) => return vec![no_configuration(flags, &why)],
    };
    let mut findings = vec![configuration(&loaded)];
    findings.extend(system_check::inspect(&loaded.config));
    findings
}

fn no_configuration(flags: &Flags, why: &NoAnswer) -> Finding {
    let or =
        |given: &Option<PathBuf>, default: &str| given.clone().unwrap_or_else(|| default.into()).display().to_string();
    let (file, directory) = (or(&flags.config, config::DEFAULT_FILE), or(&flags.config_dir, config::DEFAULT_DIR));
    let remedy = format!("find the file system (findmnt -T {file}) and repair it, or set a different --config");
    Finding::error("configuration", format!("cannot read {file} or the drop-ins in {directory}: {why}"), remedy)
}

fn configuration(loaded: &config::Loaded) -> Finding {
    let files = match loaded.files.len() {
        0 => "no file: all settings have their defaults".to_owned(),
        _ => loaded.files.iter().map(|f| f.display().to_string()).collect::<Vec<_>>().join(", "),
    };
    match loaded.problems.errors.as_slice() {
        [] => Finding::ok("configuration", files),
        [first, more @ ..] => {
            let more = if more.is_empty() { String::new() } else { format!(", and {} more", more.len()) };
            Finding::error("configuration", format!("{first}{more}"), "run wherry check to see all errors")
        }
    }
}

/// Writes a line for each finding.
pub fn write_lines(out: &mut dyn Write, findings: &[Finding]) -> io::Result<()> {
    let width = findings.iter().map(|f| f.check.len()).max().unwrap_or(0);
    for Finding { check, level, message, remedy } in findings {
        let remedy = remedy.as_ref().map(|r| format!(". To do: {r}")).unwrap_or_default();
        let line = format!("{message}{remedy}").replace('\n', " ");
        writeln!(out, "{:<7}  {check:<width$}  {}", level.name(), shown(&line))?;
    }
    Ok(())
}

/// Prints a line for each finding, and their number. `checked`: what was checked.
pub fn print(out: &mut dyn Write, findings: &[Finding], as_json: bool, checked: &str) -> Result<u8, Failure> {
    let count = Count::of(findings);
    if as_json {
        let Count { ok, warnings, errors } = count;
        let value = json!({ "ok": ok, "warnings": warnings, "errors": errors, "checks": findings });
        document(out, &value, false)?;
    } else {
        write_lines(out, findings)?;
    }
    out.flush()?;
    print_message(&format!("checked {checked}: {count}"));
    Ok(u8::from(count.errors > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(findings: &[Finding], as_json: bool) -> (String, u8) {
        let mut out = Vec::new();
        let code = print(&mut out, findings, as_json, "the system").unwrap();
        (String::from_utf8(out).unwrap(), code)
    }

    #[test]
    fn each_finding_is_one_line_and_only_errors_make_the_exit_code() {
        let fine = [Finding::ok("disk", "much"), Finding::warning("clock", "late\nor not", "set it")];
        let (text, code) = printed(&fine, false);
        assert_eq!(text, "ok       disk   much\nwarning  clock  late or not. To do: set it\n");
        assert_eq!(code, 0);
        let (text, code) = printed(&[Finding::error("runtime", "none", "install one")], true);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((value["errors"].as_u64(), value["ok"].as_u64(), code), (Some(1), Some(0), 1));
        assert_eq!(value["checks"][0]["remedy"], "install one");
    }
}
