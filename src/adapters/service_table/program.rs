//! Runs a program that reads a text from its standard input. Its standard output is discarded, and its error output is
//! limited.
//!
//! The program has its own process group, which is killed at the deadline.

use crate::api::time::Boot;
use crate::event_loop::clock;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::time::Timespec;
use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::process::{Child, ChildStderr, ChildStdin, Command, ExitStatus, Stdio};
use std::time::Duration;

/// How many bytes of the error output are kept. The rest is read and discarded.
const MAX_ERRORS: usize = 4096;
/// A service of systemd may have a PATH without the directories of `nft`.
const DIRECTORIES: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// How often to check whether a program that has closed its error output has exited.
const EXIT_INTERVAL: Duration = Duration::from_millis(10);

/// How a program ended.
pub(super) struct EndOfProgram {
    pub(super) status: ExitStatus,
    /// The beginning of its error output.
    pub(super) errors: String,
}

/// Runs a program to its end. Blocks until `deadline` at most.
///
/// # Errors
/// The program cannot be started, or does not end in time.
pub(super) fn run(command: &[OsString], input: &str, deadline: Boot) -> Result<EndOfProgram, String> {
    let mut running = RunningCommand::start(command)?;
    let errors = running.exchange(input.as_bytes(), deadline)?;
    let status = running.wait(deadline)?;
    Ok(EndOfProgram { status, errors: String::from_utf8_lossy(&errors).into_owned() })
}

/// A started program. Dropping it kills the program if it has not ended.
struct RunningCommand {
    name: String,
    child: Child,
    group: Pid,
    ended: bool,
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        if !self.ended {
            // An error means that no process of the group exists.
            let _ = kill_process_group(self.group, Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

impl RunningCommand {
    fn start(command: &[OsString]) -> Result<RunningCommand, String> {
        use std::os::unix::process::CommandExt;
        let (program, arguments) = command.split_first().ok_or("the command is empty")?;
        let name = program.to_string_lossy().into_owned();
        let path = match std::env::var("PATH") {
            Ok(own) if !own.is_empty() => format!("{own}:{DIRECTORIES}"),
            _ => DIRECTORIES.to_owned(),
        };
        let mut command = Command::new(program);
        command.args(arguments).env_clear().env("PATH", path).env("LC_ALL", "C").current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let child = command.spawn().map_err(|e| match e.kind() {
            ErrorKind::NotFound if name == "nft" => "nft is not installed; install the package nftables".to_owned(),
            ErrorKind::NotFound if name == "conntrack" => {
                "conntrack is not installed; install the package conntrack (Fedora: conntrack-tools)".to_owned()
            }
            ErrorKind::NotFound => format!("{name} is not installed"),
            _ => format!("failed to start {name}: {e}"),
        })?;
        Ok(RunningCommand { name, group: Pid::from_child(&child), child, ended: false })
    }

    fn late(&self) -> String {
        format!("{} did not end in time; killed", self.name)
    }

    /// Writes the input, and reads the error output to its end. Returns its beginning.
    fn exchange(&mut self, input: &[u8], deadline: Boot) -> Result<Vec<u8>, String> {
        let mut pipes = PipesOfCommand {
            stdin: self.child.stdin.take(),
            stderr: self.child.stderr.take(),
            input,
            errors: Vec::new(),
        };
        let failed = |e: io::Error| format!("failed to use the pipes of {}: {e}", self.name);
        pipes.nonblocking().map_err(failed)?;
        while pipes.stderr.is_some() {
            if !pipes.wait(deadline).map_err(failed)? {
                return Err(self.late());
            }
            pipes.advance().map_err(failed)?;
        }
        Ok(pipes.errors)
    }

    fn wait(&mut self, deadline: Boot) -> Result<ExitStatus, String> {
        loop {
            let status = self.child.try_wait();
            if let Some(status) = status.map_err(|e| format!("failed to wait for the exit of {}: {e}", self.name))? {
                self.ended = true;
                return Ok(status);
            }
            if clock::boot() >= deadline {
                return Err(self.late());
            }
            std::thread::sleep(EXIT_INTERVAL);
        }
    }
}

/// The open ends of the program's pipes.
struct PipesOfCommand<'i> {
    stdin: Option<ChildStdin>,
    stderr: Option<ChildStderr>,
    /// The rest of the input.
    input: &'i [u8],
    errors: Vec<u8>,
}

impl PipesOfCommand<'_> {
    fn nonblocking(&self) -> io::Result<()> {
        if let Some(pipe) = &self.stdin {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        if let Some(pipe) = &self.stderr {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        Ok(())
    }

    /// Waits until a pipe is ready. Returns false at the deadline.
    fn wait(&self, deadline: Boot) -> io::Result<bool> {
        let mut fds = Vec::with_capacity(2);
        fds.extend(self.stdin.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::OUT)));
        fds.extend(self.stderr.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        let left = deadline.since(clock::boot());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => Ok(false),
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::INTR) => Ok(clock::boot() < deadline),
            Err(e) => Err(e.into()),
        }
    }

    fn advance(&mut self) -> io::Result<()> {
        if let Some(pipe) = &mut self.stdin {
            match if self.input.is_empty() { Ok(0) } else { pipe.write(self.input) } {
                Ok(n) => self.input = self.input.get(n..).unwrap_or_default(),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                // The program has stopped reading. Its exit status says whether this is an error.
                Err(_) => self.input = &[],
            }
            if self.input.is_empty() {
                self.stdin = None;
            }
        }
        let Some(pipe) = &mut self.stderr else { return Ok(()) };
        let mut buffer = [0; 8192];
        match pipe.read(&mut buffer) {
            Ok(0) => self.stderr = None,
            Ok(n) => {
                let room = MAX_ERRORS.saturating_sub(self.errors.len());
                self.errors.extend_from_slice(buffer.get(..n.min(room)).unwrap_or_default());
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }
}
