//! The table of the services in the kernel. The program `nft` replaces it as a whole.
//!
//! A marker file says that the kernel may have a table of Wherry, so that a machine without services does not need
//! `nft`. A restart of the machine removes the table, so the marker does not have to be on disk before the table
//! exists.

mod program;
mod script;
#[cfg(test)]
mod tests;
pub mod udp_flows;

use script::{script, version};

use crate::api::printable;
use crate::api::service_table::ServiceTable;
use crate::event_loop::clock;
use program::EndOfProgram;
use rustix::fs::{Mode, OFlags};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

/// How many lines of the error output a message contains, and how many bytes of each.
const SHOWN_LINES: usize = 3;
const SHOWN_BYTES: usize = 200;

/// Where the kernel has the table.
#[derive(Clone, Debug)]
pub struct KernelPlace {
    /// The name of the table, whose family is `inet`.
    pub name: String,
    /// A file that exists if the kernel may have the table. Its directory must exist.
    pub marker: PathBuf,
}

impl KernelPlace {
    /// Puts the table into force. An empty table removes that of the kernel. Blocks until `timeout` at most.
    ///
    /// The marker file is created before a table, and removed after it. Without a marker, an empty table needs nothing.
    ///
    /// # Errors
    /// The marker cannot be created or removed, or `nft` is missing, fails, or does not end in time. The kernel then
    /// has the earlier table, or (after a timeout) possibly the new one.
    pub fn apply(&self, table: &ServiceTable, timeout: Duration) -> Result<(), String> {
        Nft::of_machine(timeout).apply(table, self)
    }

    /// Returns whether the kernel has exactly this table: for an empty one, whether it has none. Blocks until `timeout`
    /// at most.
    ///
    /// # Errors
    /// `nft` is missing, fails, or does not end in time.
    pub fn is_in_force(&self, table: &ServiceTable, timeout: Duration) -> Result<bool, String> {
        Nft::of_machine(timeout).is_in_force(table, self)
    }

    /// Removes the table and the marker, and returns whether the marker existed. Blocks until `timeout` at most.
    ///
    /// # Errors
    /// The marker cannot be removed, or `nft` is missing, fails, or does not end in time.
    pub fn remove(&self, timeout: Duration) -> Result<bool, String> {
        Nft::of_machine(timeout).remove(self)
    }

    /// Returns whether the kernel may have the table.
    fn may_have_table(&self) -> bool {
        std::fs::symlink_metadata(&self.marker).map_or_else(|e| e.kind() != ErrorKind::NotFound, |_| true)
    }
}

/// How to run `nft`. Tests run it in a network namespace.
struct Nft {
    /// The program and its first arguments.
    command: Vec<OsString>,
    timeout: Duration,
}

impl Nft {
    fn of_machine(timeout: Duration) -> Nft {
        Nft { command: vec!["nft".into()], timeout }
    }

    fn apply(&self, table: &ServiceTable, place: &KernelPlace) -> Result<(), String> {
        if table.is_empty() {
            return self.remove(place).map(|_| ());
        }
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::open(&place.marker, flags, Mode::from_raw_mode(0o600))
            .map_err(|e| format!("failed to create {}: {e}", place.marker.display()))?;
        self.load(table, &place.name)
    }

    fn remove(&self, place: &KernelPlace) -> Result<bool, String> {
        if !place.may_have_table() {
            return Ok(false);
        }
        self.load(&ServiceTable::default(), &place.name)?;
        match std::fs::remove_file(&place.marker) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                Err(format!("failed to remove {}: {e}", place.marker.display()))
            }
            _ => Ok(true),
        }
    }

    fn load(&self, table: &ServiceTable, name: &str) -> Result<(), String> {
        let end = self.run(&["-f", "-"], &script(table, name))?;
        if end.status.success() { Ok(()) } else { Err(failure(&end)) }
    }

    fn is_in_force(&self, table: &ServiceTable, place: &KernelPlace) -> Result<bool, String> {
        let version = version(table, &place.name);
        let found = match table.is_empty() {
            true => self.run(&["--terse", "list", "table", "inet", &place.name], "")?,
            false => self.run(&["list", "chain", "inet", &place.name, &version], "")?,
        };
        let is_missing =
            found.errors.lines().any(|line| line.starts_with("Error:") && line.contains("No such file or directory"));
        match found.status.success() {
            true => Ok(!table.is_empty()),
            false if is_missing => Ok(table.is_empty()),
            false => Err(failure(&found)),
        }
    }

    fn run(&self, arguments: &[&str], input: &str) -> Result<EndOfProgram, String> {
        let arguments = arguments.iter().map(OsString::from);
        let command: Vec<OsString> = self.command.iter().cloned().chain(arguments).collect();
        program::run(&command, input, clock::boot() + self.timeout)
    }
}

/// Describes the failure of `nft`, and the remedy.
fn failure(end: &EndOfProgram) -> String {
    let remedy = "check that the kernel supports nf_tables with NAT (nft_nat, nft_masq, nft_numgen, nft_hash, \
                  nft_fib_inet and nft_reject_inet)";
    failure_of("nft", end, remedy)
}

/// Describes the failure of a program. `remedy`: what helps, unless the program lacks a permission.
fn failure_of(program: &str, end: &EndOfProgram, remedy: &str) -> String {
    let remedy = match end.errors.contains("Operation not permitted") {
        true => "run Wherry as root, with CAP_NET_ADMIN",
        false => remedy,
    };
    format!("{program} failed with {}: {}; {remedy}", end.status, first_lines(end))
}

/// Returns the first lines of the error output.
fn first_lines(end: &EndOfProgram) -> String {
    // These lines of nft mark a place in the line above.
    let is_mark = |line: &&str| line.chars().all(|c| matches!(c, ' ' | '^' | '~'));
    let lines = end.errors.lines().filter(|line| !is_mark(line)).take(SHOWN_LINES);
    let lines: Vec<String> =
        lines.map(|line| printable::line(printable::cut(line.trim(), SHOWN_BYTES)).into()).collect();
    lines.join(" | ")
}
