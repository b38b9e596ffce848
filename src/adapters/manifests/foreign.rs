//! Inspects a path on a foreign file system in a separate process. A foreign file system is one that a server or
//! another program serves (NFS, virtiofs, FUSE).
//!
//! A thread that waits for such a file system may not terminate even on SIGKILL. Its process then does not terminate
//! either, and would keep holding the agent's locks and sockets. The agent therefore starts a second instance of its
//! own program. This helper process inspects the path, writes the result to standard output and exits. If it exceeds
//! the time limit, the agent kills it and abandons it. Its standard input is the agent's inotify descriptor, to which
//! it adds watches.
//!
//! The output consists of a line `at ID` before each access to another mount, then one line of JSON, then the text of
//! the file.

use super::inspection::{self, InspectionAnswer, InspectionOutcome, Question};
use super::unfinished::Unfinished;
use super::walk::{Avoid, Walk};
use crate::adapters::mount_table::{self, Mount, Table};
use crate::event_loop::clock;
use rustix::event::{PollFd, PollFlags, Timespec};
use serde::{Deserialize, Serialize};
use std::io::{Read as _, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Maximum output in bytes. A result contains at most a file of 2 MiB or a few hundred thousand names.
const MOST: usize = 64 << 20;
/// The subcommand that runs the helper process.
pub const COMMAND: &str = "inspect-manifest";
/// How long the agent waits for a killed process to exit before it abandons the process.
const END: Duration = Duration::from_millis(100);
const END_STEP: Duration = Duration::from_millis(5);

/// Reports whether an absolute path leads to a foreign file system, without accessing that file system.
pub fn may_hang(path: &Path) -> bool {
    leads_to_foreign(&Table::read(Path::new(mount_table::TABLE)), path)
}

fn leads_to_foreign(table: &Table, path: &Path) -> bool {
    let avoid = Avoid { foreign: true, ..Avoid::default() };
    Walk { table, avoid: &avoid, at: &|_| {} }.follow(Path::new("/"), path).is_err()
}

#[derive(Serialize, Deserialize)]
enum Line {
    Seen(Box<InspectionAnswer>),
    Refused(Mount),
    Failed(String),
}

/// Runs the program `reader` to perform the inspection that `question` requests. Kills the process after `limit`.
pub(super) fn run(
    reader: &Path,
    question: &Question,
    inotify: Option<BorrowedFd<'_>>,
    limit: Duration,
) -> InspectionOutcome {
    let failed = |doing: &str, why: String| InspectionOutcome::Failed(format!("failed to {doing}: {why}"));
    let text = match serde_json::to_string(question) {
        Ok(text) => text,
        Err(e) => return failed("serialize the request", e.to_string()),
    };
    let stdin = match inotify.map(|fd| fd.try_clone_to_owned()).transpose() {
        Ok(fd) => fd.map_or_else(Stdio::null, Stdio::from),
        Err(e) => return failed("duplicate a descriptor", e.to_string()),
    };
    let mut command = Command::new(reader);
    command.arg(COMMAND).arg(text).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(e) => return failed("start a helper process", e.to_string()),
    };
    let output = read_within(&mut child, limit);
    let whole = output.is_ok();
    let output = output.unwrap_or_else(|partial| partial);
    // A process that has written all its output exits soon, so a longer wait is safe.
    let unfinished = end(child, if whole { limit } else { END });
    let (at, rest) = progress(&output);
    if !whole {
        let table = Table::read(Path::new(&question.mountinfo));
        return InspectionOutcome::Hung(at.and_then(|id| table.by_id(id)), unfinished);
    }
    outcome(rest)
}

/// Parses the complete output that follows the progress lines.
fn outcome(output: &[u8]) -> InspectionOutcome {
    let (line, text) = match output.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&output[..at], &output[at + 1..]),
        None => (output, &[][..]),
    };
    match serde_json::from_slice(line) {
        Ok(Line::Seen(answer)) => InspectionOutcome::Seen(answer, text.to_vec()),
        Ok(Line::Refused(mount)) => InspectionOutcome::Refused(mount),
        Ok(Line::Failed(why)) => InspectionOutcome::Failed(why),
        Err(e) => InspectionOutcome::Failed(format!("the helper process returned an invalid response: {e}")),
    }
}

/// Reads the output until the process closes it. After `limit`, or if the output is too long, returns the part
/// received so far as the error.
fn read_within(child: &mut Child, limit: Duration) -> Result<Vec<u8>, Vec<u8>> {
    let mut output = Vec::new();
    let Some(mut stdout) = child.stdout.take() else { return Ok(output) };
    let until = clock::boot() + limit;
    let mut buffer = vec![0; 64 << 10];
    loop {
        let left = until.since(clock::boot());
        let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        match rustix::event::poll(&mut [PollFd::new(&stdout, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err(output),
            Ok(_) => match stdout.read(&mut buffer) {
                Ok(0) | Err(_) => return Ok(output),
                Ok(_) if output.len() > MOST => return Err(output),
                Ok(length) => output.extend_from_slice(&buffer[..length]),
            },
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Err(output),
        }
    }
}

/// Kills the process and waits at most `patience` for it to exit.
fn end(mut child: Child, patience: Duration) -> Unfinished {
    // This fails only if the process has already exited.
    let _ = child.kill();
    let until = clock::boot() + patience;
    loop {
        match child.try_wait() {
            Ok(None) if clock::boot() < until => std::thread::sleep(END_STEP),
            Ok(None) => return Unfinished::Process(child),
            _ => return Unfinished::Over,
        }
    }
}

/// Returns the id of the mount that was accessed last, and the output after the progress lines.
fn progress(output: &[u8]) -> (Option<u64>, &[u8]) {
    let (mut at, mut rest) = (None, output);
    while let Some(line) = rest.strip_prefix(b"at ")
        && let Some(end) = line.iter().position(|byte| *byte == b'\n')
    {
        at = std::str::from_utf8(&line[..end]).ok().and_then(|id| id.parse().ok()).or(at);
        rest = &line[end + 1..];
    }
    (at, rest)
}

/// Runs in the helper process: performs the inspection that `question` requests and writes the result to `out`.
///
/// # Errors
/// The output cannot be written.
pub fn answer(question: &str, out: &mut dyn Write) -> std::io::Result<()> {
    let stdin = std::io::stdin();
    let out = std::cell::RefCell::new(out);
    let last = std::cell::Cell::new(None);
    // A failed write means that the agent no longer reads the output, so it can be ignored.
    let at = |mount| {
        if last.replace(Some(mount)) != Some(mount) {
            let mut out = out.borrow_mut();
            let _ = writeln!(out, "at {mount}").and_then(|()| out.flush());
        }
    };
    let (line, text) = match serde_json::from_str::<Question>(question) {
        Ok(question) => match inspection::run(&question, Some(stdin.as_fd()), &at) {
            InspectionOutcome::Seen(answer, text) => (Line::Seen(answer), text),
            InspectionOutcome::Refused(mount) => (Line::Refused(mount), Vec::new()),
            InspectionOutcome::Failed(why) => (Line::Failed(why), Vec::new()),
            InspectionOutcome::Hung(..) => (Line::Failed("reading the manifests timed out".to_owned()), Vec::new()),
        },
        Err(e) => (Line::Failed(format!("failed to parse the request: {e}")), Vec::new()),
    };
    let mut out = out.borrow_mut();
    let line = serde_json::to_string(&line).map_err(std::io::Error::other)?;
    writeln!(out, "{line}")?;
    out.write_all(&text)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::super::inspection::{FileReading, FileSeen, InspectionSubject};
    use super::*;
    use std::ffi::{OsStr, OsString};
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn an_answer_is_transferred_unchanged_with_any_names_and_text() {
        let root = tempfile::tempdir().unwrap();
        let directory = std::fs::canonicalize(root.path()).unwrap();
        let name = OsStr::from_bytes(b"\xff\n.yaml").to_owned();
        std::fs::write(directory.join(&name), b"one\ntwo\n\xff").unwrap();
        std::os::unix::fs::symlink(&name, directory.join("link")).unwrap();
        let ask = |subject| {
            let directory = directory.clone().into_os_string();
            let mountinfo = OsString::from("/proc/self/mountinfo");
            let question = Question { directory, subject, mountinfo, avoid: Avoid::default() };
            let mut output = Vec::new();
            answer(&serde_json::to_string(&question).unwrap(), &mut output).unwrap();
            let (at, rest) = progress(&output);
            assert!(at.is_some());
            let InspectionOutcome::Seen(answer, text) = outcome(rest) else {
                panic!("{}", String::from_utf8_lossy(&output))
            };
            (*answer, text)
        };
        let (InspectionAnswer::Directory(seen), _) = ask(InspectionSubject::Directory { stamps: true }) else {
            panic!("the directory")
        };
        assert_eq!(seen.names, Ok([name.clone(), "link".into()].into()));
        assert_eq!(seen.stamps.len(), 1, "a link has no stamp");
        for name in [name, "link".into()] {
            let base = directory.clone().into_os_string();
            let (answer, text) = ask(InspectionSubject::File { base, name, known: None, watch: false });
            assert!(
                matches!(answer, InspectionAnswer::File(FileSeen { reading: FileReading::Text { .. }, .. })),
                "{answer:?}"
            );
            assert_eq!(text, b"one\ntwo\n\xff");
        }
    }

    #[test]
    fn a_path_may_hang_if_it_leads_to_a_foreign_file_system_through_a_link_too() {
        let root = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(root.path()).unwrap();
        for name in ["far", "near"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        std::os::unix::fs::symlink("far/m", root.join("link")).unwrap();
        let text = format!("1 0 8:1 / / rw - ext4 d rw\n7 1 0:9 / {}/far rw - fuse.x s rw\n", root.display());
        let table = Table::parse(text.as_bytes());
        for (name, may) in [("far", true), ("far/m", true), ("link", true), ("near", false), ("none/m", false)] {
            assert_eq!(leads_to_foreign(&table, &root.join(name)), may, "{name}");
        }
        assert!(!may_hang(Path::new("/proc/self")));
    }

    #[test]
    fn a_process_that_does_not_answer_is_killed_and_its_mount_is_reported() {
        let root = tempfile::tempdir().unwrap();
        let reader = root.path().join("reader");
        let script = |text: &str| {
            // A separate process writes the script, so that no process started by a parallel test inherits a descriptor
            // open for writing (ETXTBSY).
            let write = format!("printf '#!/bin/sh\\n{text}\\n' >{0} && chmod 755 {0}", reader.display());
            assert!(Command::new("sh").arg("-c").arg(write).status().unwrap().success());
        };
        let mountinfo = root.path().join("mountinfo");
        std::fs::write(&mountinfo, "1 0 8:1 / / rw - ext4 d rw\n7 1 0:9 / /far rw - nfs4 s:/x rw\n").unwrap();
        let subject = InspectionSubject::Directory { stamps: false };
        let mountinfo = mountinfo.into_os_string();
        let question = Question { directory: "/far".into(), subject, mountinfo, avoid: Avoid::default() };
        script("echo at 1; echo at 7; exec sleep 1000");
        match run(&reader, &question, None, Duration::from_millis(500)) {
            InspectionOutcome::Hung(Some(mount), _) => assert_eq!((mount.id, mount.point.as_str()), (7, "/far")),
            other => panic!("{other:?}"),
        }
        script("exit 1");
        assert!(matches!(run(&reader, &question, None, Duration::from_secs(60)), InspectionOutcome::Failed(_)));
        std::fs::remove_file(&reader).unwrap();
        assert!(matches!(run(&reader, &question, None, Duration::from_secs(60)), InspectionOutcome::Failed(_)));
    }
}
