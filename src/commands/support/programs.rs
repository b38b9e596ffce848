//! Runs `journalctl`. A program that does not end in time is killed, and its output up to then is used.

use super::archive::{CollectedPart, MAX_PART};
use super::redact;
use crate::foreign;
use jiff::Timestamp;
use std::io::{ErrorKind, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const UNIT: &str = "wherry";
/// The maximum number of lines of the service's log, and of the kernel's.
const MAX_LINES: &str = "20000";
const MAX_KERNEL_LINES: &str = "300";
/// Time limit of a program.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long to wait for the end of a killed program, and of its output.
const END: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(20);
/// The maximum size in bytes of the error output that is used.
const MAX_WORDS: usize = 1000;

/// Returns the log of the service of the last `since`.
pub(super) fn service_log(now: Timestamp, since: Duration) -> Result<CollectedPart, String> {
    let from = now.as_second().saturating_sub(i64::try_from(since.as_secs()).unwrap_or(i64::MAX)).max(0);
    let since = format!("--since=@{from}");
    let part = journal(&["-u", UNIT, &since, "-n", MAX_LINES])?;
    let text = redact::log(&String::from_utf8_lossy(&part.bytes));
    Ok(CollectedPart { bytes: text.into_bytes(), ..part })
}

/// Returns the last lines of the kernel's log since the machine booted.
pub(super) fn kernel_log() -> Result<CollectedPart, String> {
    journal(&["-k", "-n", MAX_KERNEL_LINES])
}

fn journal(arguments: &[&str]) -> Result<CollectedPart, String> {
    let mut command = Command::new("journalctl");
    command.args(["--no-pager", "-o", "short-precise"]).args(arguments);
    output(command, PATIENCE, MAX_PART)
}

/// Runs a program and returns the end of its output, at most `limit` bytes.
///
/// # Errors
/// The program cannot be started, or fails without output.
fn output(mut command: Command, patience: Duration, limit: usize) -> Result<CollectedPart, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| match e.kind() {
        ErrorKind::NotFound => format!("{program} is not installed; add the log of the service yourself"),
        _ => format!("failed to start {program}: {e}"),
    })?;
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(format!("{program} has no output"));
    };
    let stdout = foreign::start(move || tail(stdout, limit));
    let stderr = foreign::start(move || tail(stderr, MAX_WORDS));
    let status = wait(&mut child, patience);
    // A child of the program may keep the output open.
    let no_output = |_| format!("the output of {program} does not end");
    let (bytes, is_cut) = stdout.answer(patience + 2 * END).map_err(no_output)?;
    let (words, _) = stderr.answer(patience + 2 * END).unwrap_or_default();
    let words = String::from_utf8_lossy(&words).trim().to_owned();
    if let Some(status) = status.filter(|status| !status.success() && bytes.is_empty()) {
        return Err(format!("{program} failed ({status}): {words}"));
    }
    let notes = [
        status.is_none().then(|| format!("{program} did not end within {} s and was killed", patience.as_secs())),
        is_cut.then(|| format!("cut: contains the last {limit} bytes")),
        (!words.is_empty()).then(|| format!("{program} says: {words}")),
    ];
    let notes: Vec<String> = notes.into_iter().flatten().collect();
    let note = (!notes.is_empty()).then(|| notes.join("; "));
    Ok(CollectedPart { bytes, note })
}

/// Reads a source to its end and returns its last bytes, and whether they are not all. The first line is whole.
fn tail(mut source: impl Read, limit: usize) -> (Vec<u8>, bool) {
    let (mut bytes, mut is_cut) = (Vec::new(), false);
    let mut buffer = vec![0; 64 << 10];
    let mut keep_end = |bytes: &mut Vec<u8>, above: usize| {
        if bytes.len() > above {
            bytes.drain(..bytes.len() - limit);
            is_cut = true;
        }
    };
    loop {
        match source.read(&mut buffer) {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => break,
            Ok(length) => {
                bytes.extend_from_slice(&buffer[..length]);
                // The end is moved seldom, because that copies it.
                keep_end(&mut bytes, 2 * limit);
            }
        }
    }
    keep_end(&mut bytes, limit);
    if is_cut && let Some(at) = bytes.iter().position(|byte| *byte == b'\n') {
        bytes.drain(..=at);
    }
    (bytes, is_cut)
}

/// Waits for the end of a program. After `patience`, kills it and returns None.
fn wait(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let mut until = Instant::now() + patience;
    let mut is_killed = false;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return (!is_killed).then_some(status),
            Ok(None) if Instant::now() < until => thread::sleep(STEP),
            Ok(None) if !is_killed => {
                // This fails only if the program has ended.
                let _ = child.kill();
                (is_killed, until) = (true, Instant::now() + END);
            }
            Ok(None) | Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn the_end_of_a_long_output_is_kept_from_a_whole_line_on() {
        let part = output(shell("seq 1 100000"), Duration::from_secs(60), 1000).unwrap();
        let text = String::from_utf8(part.bytes).unwrap();
        assert!(text.ends_with("\n99999\n100000\n") && text.len() <= 1000 && text.len() > 900, "{text}");
        assert!(text.lines().all(|line| line.len() >= 5), "{text}");
        assert!(part.note.unwrap().contains("the last 1000 bytes"));
        let part = output(shell("echo a; echo hint >&2"), Duration::from_secs(60), 1000).unwrap();
        assert_eq!((part.bytes.as_slice(), part.note.as_deref()), (&b"a\n"[..], Some("sh says: hint")));
    }

    #[test]
    fn a_program_that_does_not_end_is_killed_and_its_output_is_used() {
        let began = Instant::now();
        let part = output(shell("echo begun; exec sleep 1000"), Duration::from_millis(300), 1000).unwrap();
        assert_eq!(part.bytes, b"begun\n");
        assert!(part.note.unwrap().contains("was killed"));
        assert!(began.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn a_program_that_is_missing_or_fails_is_an_error() {
        let missing = output(Command::new("no-such-program"), END, 9).unwrap_err();
        assert!(missing.contains("no-such-program is not installed"), "{missing}");
        let failed = output(shell("echo no permission >&2; exit 7"), Duration::from_secs(60), 9).unwrap_err();
        assert!(failed.contains("exit status: 7") && failed.ends_with("no permission"), "{failed}");
    }
}
