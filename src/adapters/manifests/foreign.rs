//! A look at a file system that a server or another program answers for, in a process of its own.
//!
//! A thread that waits for such a file system may not end even at SIGKILL, and neither does its process: it would keep the agent's
//! locks and sockets. So the agent starts its own program once more, which looks, writes what it found to its standard
//! output, and ends. After the time limit it is killed and left behind. Its standard input is the agent's inotify, to
//! add watches to.
//!
//! The output: a line `at ID` before each mount that it touches, then a line of JSON, then the file's text.

use super::look::{self, Answer, Outcome, Question};
use super::mount::{self, Mount, Table};
use super::walk::{Avoid, Walk};
use crate::event_loop::clock;
use rustix::event::{PollFd, PollFlags, Timespec};
use serde::{Deserialize, Serialize};
use std::io::{Read as _, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of output; an answer has a text of 1 MiB, or some hundred thousand names.
const MOST: usize = 64 << 20;
/// The subcommand of the program.
pub const COMMAND: &str = "look-at-manifest";
/// How long a process that was killed may take to end before it is left behind.
const END: Duration = Duration::from_millis(100);
const END_STEP: Duration = Duration::from_millis(5);

/// What a hung look leaves behind.
#[derive(Debug)]
pub(super) enum Unfinished {
    /// A helper thread that was given up; it holds this.
    Thread(Arc<()>),
    Process(Child),
    /// Nothing.
    Over,
}

impl Unfinished {
    /// Whether it is a thread that has ended after all.
    pub(super) fn has_come_back(&self) -> bool {
        matches!(self, Unfinished::Thread(alive) if Arc::strong_count(alive) == 1)
    }

    /// Whether it has ended after all.
    pub(super) fn is_over(&mut self) -> bool {
        match self {
            Unfinished::Thread(_) => self.has_come_back(),
            // What cannot be waited for is no child any more.
            Unfinished::Process(child) => !matches!(child.try_wait(), Ok(None)),
            Unfinished::Over => true,
        }
    }
}

/// Whether an absolute path leads to a file system that a server or another program answers for. Touches none of these.
pub fn may_hang(path: &Path) -> bool {
    leads_to_foreign(&Table::read(Path::new(mount::TABLE)), path)
}

fn leads_to_foreign(table: &Table, path: &Path) -> bool {
    let avoid = Avoid { foreign: true, ..Avoid::default() };
    Walk { table, avoid: &avoid, at: &|_| {} }.follow(Path::new("/"), path).is_err()
}

#[derive(Serialize, Deserialize)]
enum Line {
    Seen(Box<Answer>),
    Refused(Mount),
    Failed(String),
}

/// Has `reader` answer the question.
pub(super) fn run(reader: &Path, question: &Question, inotify: Option<BorrowedFd<'_>>, limit: Duration) -> Outcome {
    let failed = |doing: &str, why: String| Outcome::Failed(format!("{doing}: {why}"));
    let text = match serde_json::to_string(question) {
        Ok(text) => text,
        Err(e) => return failed("write the question", e.to_string()),
    };
    let stdin = match inotify.map(|fd| fd.try_clone_to_owned()).transpose() {
        Ok(fd) => fd.map_or_else(Stdio::null, Stdio::from),
        Err(e) => return failed("duplicate a descriptor", e.to_string()),
    };
    let mut command = Command::new(reader);
    command.arg(COMMAND).arg(text).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(e) => return failed("start a process", e.to_string()),
    };
    let output = read_within(&mut child, limit);
    let whole = output.is_ok();
    let output = output.unwrap_or_else(|partial| partial);
    // One that is done has nothing more to wait for.
    let unfinished = end(child, if whole { limit } else { END });
    let (at, rest) = progress(&output);
    if !whole {
        let table = Table::read(Path::new(&question.mountinfo));
        return Outcome::Hung(at.and_then(|id| table.by_id(id).cloned()), unfinished);
    }
    outcome(rest)
}

/// What a whole output, without its progress, says.
fn outcome(output: &[u8]) -> Outcome {
    let (line, text) = match output.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&output[..at], &output[at + 1..]),
        None => (output, &[][..]),
    };
    match serde_json::from_slice(line) {
        Ok(Line::Seen(answer)) => Outcome::Seen(answer, text.to_vec()),
        Ok(Line::Refused(mount)) => Outcome::Refused(mount),
        Ok(Line::Failed(why)) => Outcome::Failed(why),
        Err(e) => Outcome::Failed(format!("the process that looks at it gave no answer: {e}")),
    }
}

/// All that it writes until it closes its output; if that takes longer than `limit`, what it wrote by then.
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

/// Ends it, and waits so long for that.
fn end(mut child: Child, patience: Duration) -> Unfinished {
    // Fails only if it has ended.
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

/// The mount that was touched last, and what comes after the lines about that.
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

/// The process: answers the question on standard output.
///
/// # Errors
/// If the output cannot be written.
pub fn answer(question: &str, out: &mut dyn Write) -> std::io::Result<()> {
    let stdin = std::io::stdin();
    let out = std::cell::RefCell::new(out);
    let last = std::cell::Cell::new(None);
    // If nobody reads this any more nobody reads the answer.
    let at = |mount| {
        if last.replace(Some(mount)) != Some(mount) {
            let mut out = out.borrow_mut();
            let _ = writeln!(out, "at {mount}").and_then(|()| out.flush());
        }
    };
    let (line, text) = match serde_json::from_str::<Question>(question) {
        Ok(question) => match look::run(&question, Some(stdin.as_fd()), &at) {
            Outcome::Seen(answer, text) => (Line::Seen(answer), text),
            Outcome::Refused(mount) => (Line::Refused(mount), Vec::new()),
            Outcome::Failed(why) => (Line::Failed(why), Vec::new()),
            Outcome::Hung(..) => (Line::Failed("the look hung".to_owned()), Vec::new()),
        },
        Err(e) => (Line::Failed(format!("read the question: {e}")), Vec::new()),
    };
    let mut out = out.borrow_mut();
    let line = serde_json::to_string(&line).map_err(std::io::Error::other)?;
    writeln!(out, "{line}")?;
    out.write_all(&text)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::super::look::{FileSeen, Reading, Subject};
    use super::*;
    use std::ffi::{OsStr, OsString};
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn an_answer_comes_through_as_it_was_given_whatever_names_and_text_it_has() {
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
            let Outcome::Seen(answer, text) = outcome(rest) else { panic!("{}", String::from_utf8_lossy(&output)) };
            (*answer, text)
        };
        let (Answer::Directory(seen), _) = ask(Subject::Directory { stamps: true }) else { panic!("the directory") };
        assert_eq!(seen.names, Ok([name.clone(), "link".into()].into()));
        assert_eq!(seen.stamps.len(), 1, "the link has none of its own");
        for name in [name, "link".into()] {
            let base = directory.clone().into_os_string();
            let (answer, text) = ask(Subject::File { base, name, known: None, watch: false });
            assert!(matches!(answer, Answer::File(FileSeen { reading: Reading::Text(_), .. })), "{answer:?}");
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
    fn a_process_that_does_not_answer_is_killed_and_where_it_was_is_known() {
        let root = tempfile::tempdir().unwrap();
        let reader = root.path().join("reader");
        let script = |text: &str| {
            // Another process writes it: none that a test starts meanwhile inherits a descriptor of a program.
            let write = format!("printf '#!/bin/sh\\n{text}\\n' >{0} && chmod 755 {0}", reader.display());
            assert!(Command::new("sh").arg("-c").arg(write).status().unwrap().success());
        };
        let mountinfo = root.path().join("mountinfo");
        std::fs::write(&mountinfo, "1 0 8:1 / / rw - ext4 d rw\n7 1 0:9 / /far rw - nfs4 s:/x rw\n").unwrap();
        let subject = Subject::Directory { stamps: false };
        let mountinfo = mountinfo.into_os_string();
        let question = Question { directory: "/far".into(), subject, mountinfo, avoid: Avoid::default() };
        script("echo at 1; echo at 7; exec sleep 1000");
        match run(&reader, &question, None, Duration::from_millis(500)) {
            Outcome::Hung(Some(mount), _) => assert_eq!((mount.id, mount.point.as_str()), (7, "/far")),
            other => panic!("{other:?}"),
        }
        script("exit 1");
        assert!(matches!(run(&reader, &question, None, Duration::from_secs(60)), Outcome::Failed(_)));
        std::fs::remove_file(&reader).unwrap();
        assert!(matches!(run(&reader, &question, None, Duration::from_secs(60)), Outcome::Failed(_)));
    }
}
