//! Runs the program of a credential provider, which reads the request from its standard input and writes the response
//! to its standard output.
//!
//! The program has its own process group, which is killed at the deadline. Its output is limited and never logged.

use crate::api::credential_provider::{Provided, Provider};
use crate::api::time::Boot;
use crate::event_loop::clock;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::time::Timespec;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

/// The maximum length of a response in bytes.
const MAX_OUTPUT: usize = 1 << 20;
/// How many bytes are shown from the end of the error output.
const MAX_ERROR: usize = 500;
/// The variables that systemd sets for Wherry itself. They are not passed to the program.
const OWN_VARIABLES: [&str; 6] =
    ["NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"];
/// How often to check whether a program that has closed its output has exited.
const EXIT_INTERVAL: Duration = Duration::from_millis(10);

/// Asks the provider for credentials of a repository. Blocks until `deadline` at most.
///
/// # Errors
/// The program cannot be started, fails, or does not respond in time, or its response is invalid. The message contains
/// the end of its error output, but nothing from its standard output.
pub fn ask(directory: &Path, provider: &Provider, repository: &str, deadline: Boot) -> Result<Provided, String> {
    let mut command = Command::new(directory.join(&provider.name));
    command.args(&provider.args);
    OWN_VARIABLES.into_iter().for_each(|name| {
        command.env_remove(name);
    });
    command.envs(provider.env.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = command.spawn().map_err(|e| format!("failed to start: {e}"))?;
    let mut running = RunningProgram { group: Pid::from_child(&child), child, ended: false };
    let (output, errors) = running.exchange(&provider.request(repository), deadline)?;
    let status = running.wait(deadline)?;
    if !status.success() {
        let errors = String::from_utf8_lossy(&errors);
        let errors = errors.trim();
        return Err(if errors.is_empty() { status.to_string() } else { format!("{status}: {errors}") });
    }
    provider.response(&output).map_err(|why| format!("invalid response: {why}"))
}

/// A started program. Dropping it kills the program if it has not ended.
struct RunningProgram {
    child: Child,
    group: Pid,
    ended: bool,
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        if !self.ended {
            // An error means that no process of the group exists.
            let _ = kill_process_group(self.group, Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

fn late() -> String {
    "no response in time; killed".to_owned()
}

impl RunningProgram {
    /// Writes the input and reads both outputs to their ends. Returns standard output and the end of the error output.
    fn exchange(&mut self, input: &str, deadline: Boot) -> Result<(Vec<u8>, Vec<u8>), String> {
        let mut pipes = Pipes {
            stdin: self.child.stdin.take(),
            stdout: self.child.stdout.take(),
            stderr: self.child.stderr.take(),
            input: input.as_bytes(),
            output: Vec::new(),
            errors: Vec::new(),
        };
        pipes.nonblocking().map_err(|e| format!("failed to use its pipes: {e}"))?;
        while pipes.stdout.is_some() || pipes.stderr.is_some() {
            pipes.wait(deadline)?;
            pipes.advance().map_err(|e| format!("failed to exchange data: {e}"))?;
            if pipes.output.len() > MAX_OUTPUT {
                return Err(format!("the response is larger than {MAX_OUTPUT} bytes; killed"));
            }
        }
        Ok((pipes.output, pipes.errors))
    }

    fn wait(&mut self, deadline: Boot) -> Result<ExitStatus, String> {
        loop {
            if let Some(status) = self.child.try_wait().map_err(|e| format!("failed to wait for its exit: {e}"))? {
                self.ended = true;
                return Ok(status);
            }
            if clock::boot() >= deadline {
                return Err(late());
            }
            std::thread::sleep(EXIT_INTERVAL);
        }
    }
}

/// The open ends of the program's pipes.
struct Pipes<'i> {
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    /// The rest of the input.
    input: &'i [u8],
    output: Vec<u8>,
    errors: Vec<u8>,
}

impl Pipes<'_> {
    fn nonblocking(&self) -> io::Result<()> {
        let fds = [
            self.stdin.as_ref().map(AsFd::as_fd),
            self.stdout.as_ref().map(AsFd::as_fd),
            self.stderr.as_ref().map(AsFd::as_fd),
        ];
        for fd in fds.into_iter().flatten() {
            rustix::io::ioctl_fionbio(fd, true)?;
        }
        Ok(())
    }

    /// Waits until a pipe is ready.
    fn wait(&self, deadline: Boot) -> Result<(), String> {
        let mut fds = Vec::with_capacity(3);
        fds.extend(self.stdin.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::OUT)));
        fds.extend(self.stdout.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        fds.extend(self.stderr.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        let left = deadline.since(clock::boot());
        let timeout = Timespec::try_from(left).map_err(|e| e.to_string())?;
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => Err(late()),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(format!("failed to wait for it: {e}")),
        }
    }

    fn advance(&mut self) -> io::Result<()> {
        if let Some(pipe) = &mut self.stdin {
            match pipe.write(self.input) {
                Ok(n) => self.input = self.input.get(n..).unwrap_or_default(),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                // The program does not read its input.
                Err(_) => self.input = &[],
            }
            if self.input.is_empty() {
                self.stdin = None;
            }
        }
        if let Some(pipe) = &mut self.stdout
            && !read(pipe, &mut self.output)?
        {
            self.stdout = None;
        }
        if let Some(pipe) = &mut self.stderr
            && !read(pipe, &mut self.errors)?
        {
            self.stderr = None;
        }
        let excess = self.errors.len().saturating_sub(MAX_ERROR);
        self.errors.drain(..excess);
        Ok(())
    }
}

/// Reads what is available, up to one buffer. Returns false at the end of the input.
fn read(pipe: &mut impl Read, into: &mut Vec<u8>) -> io::Result<bool> {
    let mut buffer = [0; 8192];
    match pipe.read(&mut buffer) {
        Ok(0) => Ok(false),
        Ok(n) => {
            into.extend_from_slice(buffer.get(..n).unwrap_or_default());
            Ok(true)
        }
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(true),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::credential_provider::{API_VERSIONS, CacheKey};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// Runs a shell script as a provider, and returns the result.
    fn run(script: &str, milliseconds: u64) -> Result<Provided, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cloud");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let provider = Provider {
            name: "cloud".into(),
            api_version: API_VERSIONS[0].into(),
            match_images: vec!["r.io".into()],
            default_cache: Duration::ZERO,
            args: vec!["first arg".into()],
            env: vec![("WHO".into(), "me".into())],
        };
        // A child process of another test may still have the script open for writing.
        loop {
            let deadline = clock::boot() + Duration::from_millis(milliseconds);
            match ask(dir.path(), &provider, "r.io/app", deadline) {
                Err(why) if why.contains("Text file busy") => std::thread::sleep(EXIT_INTERVAL),
                result => return result,
            }
        }
    }

    const HEAD: &str = r#"{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1","#;

    #[test]
    fn a_program_gets_its_request_arguments_and_environment() {
        let script = format!(
            "input=$(cat)\ncase $input in *'\"image\":\"r.io/app\"'*) ;; *) exit 3 ;; esac\n\
             echo '{HEAD}\"cacheKeyType\":\"Image\",\
             \"auth\":{{\"r.io\":{{\"username\":\"'\"$WHO\"'\",\"password\":\"'\"$1\"'\"}}}}}}'"
        );
        let provided = run(&script, 60_000).unwrap();
        let credential = provided.keyring.lookup("r.io/app")[0].clone();
        assert_eq!((credential.username.as_str(), credential.password.as_str()), ("me", "first arg"));
        assert_eq!(provided.key, CacheKey::Image);
    }

    #[test]
    fn a_failure_shows_the_error_output_and_never_the_output() {
        let why = run("echo hunter2; echo no token >&2; exit 7", 60_000).unwrap_err();
        assert_eq!(why, "exit status: 7: no token");
        let why = run("cat >/dev/null; echo '{\"hunter2\"'", 60_000).unwrap_err();
        assert_eq!(why, "invalid response: not valid JSON (line 2, column 0)");
        let why = run("head -c 3000000 /dev/zero", 60_000).unwrap_err();
        assert!(why.contains("larger than 1048576 bytes"), "{why}");
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().join("pid");
        let script = format!("sleep 1000 & echo $! >{}; wait", mark.display());
        assert_eq!(run(&script, 300).unwrap_err(), "no response in time; killed");
        // On a slow machine, the sleep may not have started.
        if let Ok(pid) = fs::read_to_string(&mark) {
            let state = || fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
            let end = std::time::Instant::now() + Duration::from_secs(60);
            while !state().is_empty() && !state().contains(") Z ") {
                assert!(std::time::Instant::now() < end, "{}", state());
                std::thread::sleep(EXIT_INTERVAL);
            }
        }
        // The program closes its output and continues to run.
        assert_eq!(run("exec >&- 2>&-; sleep 1000", 300).unwrap_err(), "no response in time; killed");
    }

    #[test]
    fn a_missing_program_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let provider = Provider {
            name: "none".into(),
            api_version: String::new(),
            match_images: Vec::new(),
            default_cache: Duration::ZERO,
            args: Vec::new(),
            env: Vec::new(),
        };
        let why = ask(dir.path(), &provider, "r.io/app", clock::boot()).unwrap_err();
        assert!(why.starts_with("failed to start: "), "{why}");
    }
}
