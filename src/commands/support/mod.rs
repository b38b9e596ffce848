//! `wherry support`: writes one file for a bug report, a compressed archive of what describes Wherry and the machine.
//!
//! A part that cannot be collected becomes a line of `errors.txt` in the archive, and the other parts follow. Each
//! part has a limit in bytes (`archive`) and in time: `reading` reads paths that can hang, `agent` queries the running
//! agent, `programs` runs journalctl. `redact` decides which data of pods stays out of the archive. Records, keys,
//! kubeconfigs, credentials, manifests and the logs of containers are never read.

mod agent;
mod archive;
mod configuration;
mod listing;
mod machine;
mod output_file;
mod programs;
mod reading;
mod redact;

use crate::adapters::crash_files::REPORTS as CRASHES;
use crate::api::ordered::OrderSlice as _;
use crate::commands::output::{Failure, print_message, shown};
use crate::config::{self, Flags};
use crate::foreign::Links;
use archive::{ArchiveContents, SupportArchive};
use configuration::{FoundConfiguration, safe_name};
use jiff::Timestamp;
use output_file::UnfinishedFile;
use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The maximum number of crash reports in the archive. The agent keeps fewer.
const MAX_CRASHES: usize = 10;

/// The arguments of `wherry support`.
#[derive(Debug, clap::Args)]
pub struct SupportArgs {
    /// File to create, - for standard output [default: wherry-support-NODE-TIME.tar.gz in the current directory]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Age of the oldest lines of the service's log, such as 90m or 48h
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = config::duration::parse)]
    since: Duration,
    #[command(flatten)]
    config: Flags,
}

/// Writes the archive. The exit code is 0 even if parts of it are missing.
///
/// # Errors
/// The file cannot be written, or already exists.
pub fn run(out: &mut dyn Write, arguments: &SupportArgs) -> Result<u8, Failure> {
    let is_stdout = arguments.output.as_deref() == Some(Path::new("-"));
    if is_stdout && io::stdout().is_terminal() {
        let usage = "the archive is not text: redirect standard output, or set --output to a file";
        return Err(Failure::Message(usage.to_owned(), 2));
    }
    let found = FoundConfiguration::load(&arguments.config);
    let now = Timestamp::now();
    let name = archive::name(&found.config.node_name, now);
    if is_stdout {
        let contents = collect(&mut *out, &found, arguments, &name, now)?;
        out.flush()?;
        print_message(&format!("wrote {} parts", contents.parts));
        print_advice(&contents);
        return Ok(0);
    }
    let path = arguments.output.clone().unwrap_or_else(|| format!("{name}.tar.gz").into());
    let unfinished = UnfinishedFile::create(&path).map_err(Failure::message)?;
    let contents = collect(unfinished.file(), &found, arguments, &name, now)
        .map_err(|e| Failure::message(output_file::failed(&path, &e)))?;
    let size = unfinished.finish().map_err(Failure::message)?;
    let line = format!("{}: {} kB, {} parts", path.display(), size.div_ceil(1000), contents.parts);
    writeln!(out, "{}", shown(&line))?;
    out.flush()?;
    print_advice(&contents);
    Ok(0)
}

/// Prints what the user should know before sending the file.
fn print_advice(contents: &ArchiveContents) {
    match contents.errors {
        0 => {}
        1 => print_message(&format!("1 part is missing or cut, see {} in the archive", archive::ERRORS)),
        n => print_message(&format!("{n} parts are missing or cut, see {} in the archive", archive::ERRORS)),
    }
    print_message("look through the archive before you send it: names and messages can be confidential");
}

/// Collects all parts and writes them into an archive.
///
/// # Errors
/// The output fails.
fn collect<W: Write>(
    out: W,
    found: &FoundConfiguration,
    arguments: &SupportArgs,
    name: &str,
    now: Timestamp,
) -> io::Result<ArchiveContents> {
    let config = &found.config;
    let mut archive = SupportArchive::new(out, name, now);
    archive.add("version.txt", Ok(machine::version(now)))?;
    found.add_to(&mut archive)?;
    agent::add_to(&mut archive, config)?;
    add_crashes(&mut archive, &config.root_dir)?;
    archive.add("check-system.txt", machine::system_check(&arguments.config))?;
    archive.add("manifests.txt", listing::manifests(&config.manifests))?;
    archive.add("root.txt", listing::root(&config.root_dir))?;
    archive.add("disks.txt", Ok(machine::disks(config)))?;
    archive.add("mounts.txt", reading::file(Path::new("/proc/self/mountinfo")))?;
    archive.add("meminfo.txt", reading::file(Path::new("/proc/meminfo")))?;
    archive.add("journal.txt", programs::service_log(now, arguments.since))?;
    archive.add("kernel.txt", programs::kernel_log())?;
    archive.finish()
}

/// Adds the crash reports that the agent has written. There is no error if there is none.
fn add_crashes<W: Write>(archive: &mut SupportArchive<W>, root: &Path) -> io::Result<()> {
    let paths = match reading::read(&root.join(CRASHES), crash_reports) {
        Ok(paths) => paths,
        Err(why) => return archive.add(CRASHES, Err(why)),
    };
    paths.iter().take(MAX_CRASHES).try_for_each(|path| {
        let report = reading::text(path, Links::Refuse).map(|text| redact::crash_report(&text).into());
        archive.add(&format!("{CRASHES}/{}", safe_name(path)), report)
    })
}

/// Returns the paths of the crash reports. A missing directory contains none.
fn crash_reports(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e.to_string()),
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.order();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crash_reports_are_found_and_a_missing_directory_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let crashes = dir.path().join(CRASHES);
        assert_eq!(crash_reports(&crashes), Ok(Vec::new()));
        std::fs::create_dir(&crashes).unwrap();
        for name in ["panic-2.txt", "panic-1.txt", "panic-3.txt.new"] {
            std::fs::write(crashes.join(name), "a panic\n").unwrap();
        }
        let expected: Vec<PathBuf> = ["panic-1.txt", "panic-2.txt"].map(|name| crashes.join(name)).into();
        assert_eq!(crash_reports(&crashes), Ok(expected));
        let mut out = Vec::new();
        let mut archive = SupportArchive::new(&mut out, "d", Timestamp::UNIX_EPOCH);
        add_crashes(&mut archive, dir.path()).unwrap();
        assert_eq!(archive.finish().unwrap(), ArchiveContents { parts: 2, errors: 0 });
    }
}
