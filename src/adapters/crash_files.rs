//! The files by which the next process learns how this one has ended: the last state of the engine, the report of a
//! panic, and what systemd says. They are beside the control socket, on the tmpfs `/run`, so they cost no disk writes
//! and do not survive a reboot. A crash report in the root directory contains them.
//!
//! A hung loop or a panic cannot write its state. The agent therefore writes it now and then while it runs, and removes
//! the file when it stops on request.

use crate::adapters::durable;
use crate::api::ordered::OrderSlice;
use crate::api::previous_end::PreviousEnd;
use crate::api::printable;
use crate::api::uid;
use crate::foreign::{self, Links};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The maximum size of the state in bytes. A longer one is cut.
const MAX_STATE: usize = 512 << 10;
/// The maximum size in bytes of the report of a panic, and of the words of systemd.
const MAX_PANIC: usize = 4096;
/// The maximum number of crash reports. The oldest are removed.
const MAX_REPORTS: usize = 5;
/// A report is not replaced before this time, so that a crash loop does not wear out a flash card.
const PAUSE: Duration = Duration::from_secs(3600);
/// The directory of the crash reports in the root directory.
pub const REPORTS: &str = "crashes";
const REPORT: &str = ".txt";
/// The file in the unit's runtime directory into which its ExecStopPost writes (packaging/wherry.service).
const ENDED: &str = "ended";

/// The paths of these files.
#[derive(Clone, Debug)]
pub struct CrashFiles {
    state: PathBuf,
    panic: PathBuf,
    /// None if the agent is not a service.
    ended: Option<PathBuf>,
    reports: PathBuf,
}

/// How the previous process has ended, and the file with the report if there is one.
#[derive(Debug, PartialEq, Eq)]
pub struct PreviousRun {
    pub end: PreviousEnd,
    pub report: Option<PathBuf>,
}

impl CrashFiles {
    /// `socket`: the control socket. `root`: the root directory.
    pub fn new(socket: &Path, root: &Path) -> CrashFiles {
        let runtime_directory = std::env::var_os("RUNTIME_DIRECTORY").map(PathBuf::from);
        CrashFiles {
            state: durable::appended(socket, ".state"),
            panic: durable::appended(socket, ".panic"),
            ended: runtime_directory.filter(|path| path.is_absolute()).map(|path| path.join(ENDED)),
            reports: root.join(REPORTS),
        }
    }

    /// Reports how the previous process has ended, writes a crash report if that was a crash, and removes the files
    /// that this process will write itself. None: the previous process stopped on request, or there was none since the
    /// machine booted. The caller holds the lock of the root directory, so the previous process has ended.
    pub fn take(&self) -> Option<PreviousRun> {
        let (state, panic) = (read(&self.state, MAX_STATE), read(&self.panic, MAX_PANIC));
        let systemd = self.ended.as_deref().and_then(|path| read(path, MAX_PANIC));
        let end = PreviousEnd::of(panic.as_deref(), systemd.as_deref(), state.is_some());
        let report = end.as_ref().filter(|end| end.is_crash()).and_then(|end| {
            let text = report_text(end, systemd.as_deref(), state.as_deref());
            self.write_report(end, &text)
                .inspect_err(|e| log::warn!("failed to write a crash report directory={:?} error={e}", self.reports))
                .ok()
        });
        self.remove_traces();
        end.map(|end| PreviousRun { end, report })
    }

    /// Removes what would make the next process believe that this one was killed.
    pub fn remove_traces(&self) {
        for path in [Some(&self.state), Some(&self.panic), self.ended.as_ref()].into_iter().flatten() {
            let _ = fs::remove_file(path);
        }
    }

    /// Replaces the last state, and cuts it after `MAX_STATE` bytes. Only root can read it.
    ///
    /// # Errors
    /// The file cannot be written and keeps its old content.
    pub fn write_state(&self, state: &str) -> Result<(), String> {
        let content = printable::cut(state, MAX_STATE);
        durable::replace(&self.state, &durable::appended(&self.state, ".new"), content.as_bytes(), 0o600)
            .map_err(|e| format!("write {}: {e}", self.state.display()))
    }

    /// Has panics leave a report, in addition to the message on stderr.
    pub fn report_panics(&self) {
        let path = self.panic.clone();
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            usual(info);
            let thread = std::thread::current();
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            let payload = info.payload();
            let text = payload.downcast_ref::<&str>().copied();
            let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
            let report = format!("{} at {place}: {text}", thread.name().unwrap_or("a thread"));
            let _ = durable::replace(
                &path,
                &durable::appended(&path, ".new"),
                printable::cut(&report, MAX_PANIC).as_bytes(),
                0o600,
            );
        }));
    }

    /// Writes a report and returns its path. The same crash within `PAUSE` keeps the first report.
    fn write_report(&self, end: &PreviousEnd, text: &str) -> io::Result<PathBuf> {
        let digest = uid::digest_of_bytes(end.to_string().as_bytes());
        let path = self.reports.join(format!("{}-{}{REPORT}", end.kind(), &digest[..8]));
        let age = |path: &Path| SystemTime::now().duration_since(fs::metadata(path).ok()?.modified().ok()?).ok();
        if age(&path).is_some_and(|age| age < PAUSE) {
            return Ok(path);
        }
        durable::make_directory(&self.reports, 0o700)?;
        durable::replace(&path, &durable::appended(&path, ".new"), text.as_bytes(), 0o600)?;
        durable::sync(&self.reports)?;
        self.remove_oldest(&path);
        Ok(path)
    }

    /// Removes the oldest reports above the limit, and unfinished ones. `new` was just written and stays: others can
    /// have later times if the clock was set back, and are the oldest then.
    fn remove_oldest(&self, new: &Path) {
        let mut reports = Vec::new();
        let now = fs::metadata(new).and_then(|meta| meta.modified()).unwrap_or_else(|_| SystemTime::now());
        for entry in fs::read_dir(&self.reports).into_iter().flatten().flatten().filter(|entry| entry.path() != new) {
            let modified = entry.metadata().and_then(|meta| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
            match entry.path().to_string_lossy().ends_with(REPORT) {
                true => reports.push((modified <= now, modified, entry.path())),
                false => drop(fs::remove_file(entry.path())),
            }
        }
        reports.order();
        for (.., path) in &reports[..reports.len().saturating_sub(MAX_REPORTS - 1)] {
            let _ = fs::remove_file(path);
        }
    }
}

/// Returns the text of a file up to a limit in bytes. None if there is no such file.
fn read(path: &Path, limit: usize) -> Option<String> {
    let content = foreign::read(path, Links::Refuse, limit as u64 + 1024).ok()?;
    Some(String::from_utf8_lossy(&content).into_owned())
}

fn report_text(end: &PreviousEnd, systemd: Option<&str>, state: Option<&str>) -> String {
    let mut text = format!("The previous wherry {end}\n\nreported by: wherry {}\n", env!("CARGO_PKG_VERSION"));
    if let Some(systemd) = systemd {
        text += &format!("result, code and status from systemd: {}\n", printable::line(systemd.trim()));
    }
    if let PreviousEnd::Panic(whole) = end {
        text += &format!("\n{whole}\n");
    }
    text += "\nIts last state, written after its last change or up to a minute earlier:\n\n";
    text += state.unwrap_or("none");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn files(dir: &Path) -> CrashFiles {
        CrashFiles { ended: Some(dir.join(ENDED)), ..CrashFiles::new(&dir.join("socket"), &dir.join("root")) }
    }

    fn reports(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir.join("root/crashes")).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|e| e.file_name().into_string().unwrap()).collect();
        names.order();
        names
    }

    #[test]
    fn a_crash_leaves_one_report_with_the_last_state_and_a_stop_or_a_kill_none() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(dir.path());
        assert_eq!(files.take(), None, "there was no previous process");
        files.write_state("{\"pods\":7}").unwrap();
        files.remove_traces();
        assert_eq!(files.take(), None, "it stopped on request");
        files.write_state("{\"pods\":7}").unwrap();
        assert_eq!(files.take(), Some(PreviousRun { end: PreviousEnd::Killed, report: None }));
        assert_eq!(files.take(), None, "each end is reported once");

        for _ in 0..3 {
            files.write_state("{\"pods\":8}").unwrap();
            fs::write(dir.path().join(ENDED), "watchdog dumped ABRT\n").unwrap();
            let run = files.take().unwrap();
            assert_eq!(run.end, PreviousEnd::Watchdog);
            let text = fs::read_to_string(run.report.unwrap()).unwrap();
            for part in ["The previous wherry was killed by systemd's watchdog", "{\"pods\":8}", "watchdog dumped ABRT"]
            {
                assert!(text.contains(part), "{text}");
            }
        }
        assert_eq!(reports(dir.path()).len(), 1);
    }

    #[test]
    fn only_the_newest_reports_are_kept_and_a_crash_loop_does_not_write_again() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(dir.path());
        let old = |path: &Path, hours: u64| {
            let at = SystemTime::now() - Duration::from_secs(hours * 3600);
            fs::File::options().write(true).open(path).unwrap().set_modified(at).unwrap();
        };
        for n in 0..8_u64 {
            let path = files.write_report(&PreviousEnd::Signal(format!("S{n}")), "first").unwrap();
            old(&path, 100 - n);
        }
        assert_eq!(reports(dir.path()).len(), MAX_REPORTS);
        let end = PreviousEnd::Signal("S7".into());
        let path = files.write_report(&end, "after a pause").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "after a pause");
        files.write_report(&end, "at once").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "after a pause");
        assert!(files.write_report(&end, "x").is_ok() && reports(dir.path()).len() == MAX_REPORTS);
    }

    #[test]
    fn a_new_report_stays_after_the_clock_was_set_back() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(dir.path());
        for n in 0..10_u64 {
            let path = files.write_report(&PreviousEnd::Signal(format!("S{n}")), "first").unwrap();
            assert!(path.exists(), "{n}");
            if n < 5 {
                let at = SystemTime::now() + Duration::from_secs(365 * 86_400 + n);
                fs::File::options().write(true).open(&path).unwrap().set_modified(at).unwrap();
            }
        }
        let now = SystemTime::now();
        let later = |name: &String| {
            let modified = fs::metadata(dir.path().join("root/crashes").join(name)).unwrap().modified().unwrap();
            modified > now + PAUSE
        };
        let kept = reports(dir.path());
        assert_eq!((kept.len(), kept.iter().filter(|name| later(name)).count()), (MAX_REPORTS, 0), "{kept:?}");
    }

    #[test]
    fn a_large_state_is_cut() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(dir.path());
        files.write_state(&"\u{e4}".repeat(MAX_STATE)).unwrap();
        let state = fs::read_to_string(&files.state).unwrap();
        assert!(state.len() <= MAX_STATE && state.len() > MAX_STATE - 4);
        fs::write(&files.panic, "main at a.rs:1: on purpose").unwrap();
        let report = files.take().unwrap().report.unwrap();
        assert!(fs::metadata(report).unwrap().len() < MAX_STATE as u64 + 1000);
    }

    /// Runs in a process of its own: the hook belongs to a whole process.
    #[test]
    fn a_panic_leaves_its_place_and_its_message() {
        const DIRECTORY: &str = "WHERRY_TEST_PANIC";
        let name = "adapters::crash_files::tests::a_panic_leaves_its_place_and_its_message";
        if let Some(dir) = std::env::var_os(DIRECTORY) {
            files(Path::new(&dir)).report_panics();
            panic!("this is {}", "on purpose");
        }
        let dir = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap());
        let ended = child.args(["--exact", name, "--nocapture"]).env(DIRECTORY, dir.path()).output().unwrap();
        assert!(!ended.status.success());
        let run = files(dir.path()).take().unwrap();
        let PreviousEnd::Panic(text) = &run.end else { panic!("{run:?}") };
        assert!(text.contains("crash_files.rs:") && text.ends_with(": this is on purpose"), "{text}");
        assert!(reports(dir.path())[0].starts_with("panic-"));
        let report = fs::read_to_string(run.report.unwrap()).unwrap();
        assert!(report.contains(&format!("\n{text}\n")), "{report}");
    }
}
