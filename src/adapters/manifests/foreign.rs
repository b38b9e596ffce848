//! A look at a file system that a server or another program answers for, in a process of its own.
//!
//! A thread that waits for such a file system may not end even at SIGKILL, and neither does its process: it would keep the agent's
//! locks and sockets. So the agent starts its own program once more, which looks, writes what it found to its standard
//! output, and ends. After the time limit it is killed and left behind. Its standard input is the agent's inotify, to
//! add watches to.
//!
//! The output: a line `at ID` before each mount that it touches, then a line of JSON, then the file's text.

use super::look::{self, Answer, Outcome, Question};
use super::mount::{Mount, Table};
use crate::event_loop::clock;
use rustix::event::{PollFd, PollFlags, Timespec};
use serde::{Deserialize, Serialize};
use std::io::{Read as _, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// The subcommand of the program.
pub const COMMAND: &str = "look-at-manifest";
/// How long a process that was killed, or is done, may take to end before it is left behind.
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
    let unfinished = end(child, !whole);
    let (at, rest) = progress(&output);
    if !whole {
        let table = Table::read(Path::new(&question.mountinfo));
        return Outcome::Hung(at.and_then(|id| table.by_id(id).cloned()), unfinished);
    }
    let (line, text) = match rest.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => (rest, &[][..]),
    };
    match serde_json::from_slice(line) {
        Ok(Line::Seen(answer)) => Outcome::Seen(answer, text.to_vec()),
        Ok(Line::Refused(mount)) => Outcome::Refused(mount),
        Ok(Line::Failed(why)) => Outcome::Failed(why),
        Err(e) => failed("read the answer", e.to_string()),
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
                Ok(length) => output.extend_from_slice(&buffer[..length]),
            },
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Err(output),
        }
    }
}

/// Waits for a moment for its end.
fn end(mut child: Child, kill: bool) -> Unfinished {
    if kill {
        // It can only have ended already.
        let _ = child.kill();
    }
    let until = clock::boot() + END;
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
