//! `wherry exec`: runs a command in a running container, prints the command's output and returns its exit code.
//!
//! Without -i and -t, the agent calls the runtime's ExecSync: only then does the runtime kill the command after a
//! timeout or when the client disconnects. With -i or -t, the command has its own streaming connection (`streams`).

use crate::api::control::{ExecHead, ExecRequest, OutputEnd, StreamChannels, StreamKind, StreamRequest};
use crate::api::kube::pod_row::text;
use crate::commands::client::{self, AgentAnswer};
use crate::commands::output::{Failure, print_message};
use crate::commands::select::PodArgs;
use crate::commands::streams::detach::{self, DetachKeys};
use crate::commands::streams::interactive::{self, Local, SessionEnd};
use crate::commands::streams::session::{End, Session};
use crate::commands::streams::url::{self, UrlRefused};
use crate::config::duration;
use std::io::{BufRead, IsTerminal as _, Read, Write};
use std::path::Path;
use std::time::Duration;

// Exit codes of wherry itself, as in `timeout`, `env` and shells.
const TIMED_OUT: u8 = 124;
/// The command was not started, or the runtime does not report its result.
const FAILED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

const MAYBE_CUT: &str = "the end of the output may be missing: container runtimes keep at most 16 MiB of it, some \
                         less; write the output to a file, print only a part of it (head, tail), or use -i, which \
                         passes the output on at once";

/// The default timeout of a command without -i and -t.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time from the command's timeout to the agent's response.
const MARGIN: Duration = Duration::from_secs(30);

#[derive(Debug, clap::Args)]
pub struct ExecArgs {
    #[command(flatten)]
    pod: PodArgs,
    /// Name of the container [default: from the annotation kubectl.kubernetes.io/default-container, else the first]
    #[arg(short, long)]
    container: Option<String>,
    /// Pass stdin to the command, and print its output immediately
    #[arg(short = 'i', long)]
    stdin: bool,
    /// Give the command a terminal, and print its output immediately; usually with -i
    #[arg(short = 't', long)]
    tty: bool,
    /// Keys that end the session, at a terminal with -it; "" for none
    #[arg(long, value_name = "KEYS", default_value = detach::DEFAULT, value_parser = DetachKeys::parse)]
    detach_keys: DetachKeys,
    /// Kill the command after this time, such as 10s or 5m [default: 1m; with -i or -t unlimited]
    #[arg(long, value_name = "DURATION", conflicts_with_all = ["stdin", "tty"], value_parser = timeout)]
    timeout: Option<Duration>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

/// Parses a timeout from one second to one day.
fn timeout(text: &str) -> Result<Duration, String> {
    let timeout = duration::parse(text).map_err(|e| e.to_string())?;
    let fits = (1..=24 * 3600).contains(&timeout.as_secs());
    fits.then_some(timeout).ok_or_else(|| "must be from 1s to 24h".to_owned())
}

/// Runs the command. Returns its exit code.
pub fn run(out: &mut dyn Write, err: &mut dyn Write, socket: &Path, query: ExecArgs) -> Result<u8, Failure> {
    let target = query.pod.target()?;
    let pod = url::find_pod(socket, &target).map_err(ours)?;
    let uid = text(&pod, "/metadata/uid").to_owned();
    if query.stdin || query.tty {
        return stream(out, err, socket, uid, query);
    }
    let timeout = query.timeout.unwrap_or(TIMEOUT);
    let request = ExecRequest {
        uid,
        container: query.container,
        command: query.command,
        timeout_seconds: timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0),
    };
    match client::post(socket, "/exec", &request, timeout + MARGIN).map_err(ours)? {
        AgentAnswer::Done(mut reader) => output(&mut reader, out, err),
        AgentAnswer::Refused(status, words) => Err(Failure::Message(words.clone(), code_of(status, &words))),
    }
}

/// Assigns a separate exit code to failures that occur before the command starts.
fn ours(failure: Failure) -> Failure {
    match failure {
        Failure::Message(text, 1) => Failure::Message(text, FAILED),
        other => other,
    }
}

fn stream(
    out: &mut dyn Write,
    err: &mut dyn Write,
    socket: &Path,
    uid: String,
    query: ExecArgs,
) -> Result<u8, Failure> {
    let has_terminal = std::io::stdin().is_terminal();
    let tty = query.tty && (has_terminal || !query.stdin);
    if query.tty && !tty {
        print_message("stdin is not a terminal; ignoring -t: the command runs without a terminal");
    }
    let channels = StreamChannels { stdin: query.stdin, stdout: true, stderr: !tty, tty };
    let kind = StreamKind::Exec { container: query.container, command: query.command, channels };
    let refused = |UrlRefused(status, words)| Failure::Message(words.clone(), code_of(status, &words));
    let url = url::request(socket, &StreamRequest { uid, kind }).map_err(ours)?.map_err(refused)?;
    let failed = |words| Failure::Message(words, FAILED);
    let mut session = Session::start(&url, channels).map_err(failed)?;
    let local = Local { stdin: query.stdin, resize: tty, raw: tty && query.stdin, detach: &query.detach_keys };
    let ended = interactive::run(&mut session, local, out, err);
    match ended.map_err(|e| failed(format!("cannot set up the terminal: {e}")))? {
        SessionEnd::Session(End::Exited(code)) => Ok(u8::try_from(code).unwrap_or(FAILED)),
        SessionEnd::Session(End::Failed(words)) => {
            let code = code_of(502, &words);
            Err(Failure::Message(words, code))
        }
        SessionEnd::Detached => {
            print_message("detached; the command sees the end of its input");
            Ok(0)
        }
        SessionEnd::Signal(number) => Ok(128 + number),
        SessionEnd::Lost(words) => Err(failed(words)),
        SessionEnd::Output(e) => Err(Failure::Output(e)),
    }
}

fn output(reader: &mut impl BufRead, out: &mut dyn Write, err: &mut dyn Write) -> Result<u8, Failure> {
    let cut = |e: std::io::Error| Failure::Message(format!("the response is cut short: {e}"), FAILED);
    let mut head = Vec::new();
    reader.read_until(b'\n', &mut head).map_err(cut)?;
    let head: ExecHead =
        serde_json::from_slice(&head).map_err(|e| Failure::Message(format!("invalid response: {e}"), FAILED))?;
    let mut stdout = Vec::new();
    let read = reader.by_ref().take(head.stdout_bytes).read_to_end(&mut stdout).map_err(cut)?;
    if read as u64 != head.stdout_bytes {
        return Err(Failure::Message("the response is cut short".to_owned(), FAILED));
    }
    out.write_all(&stdout)?;
    out.flush()?;
    let mut stderr = Vec::new();
    reader.read_to_end(&mut stderr).map_err(cut)?;
    // stderr may be closed; the exit code still counts.
    let _ = err.write_all(&stderr).and_then(|()| err.flush());
    // A runtime may report its own failure as an exit code outside 0 to 255.
    let code = u8::try_from(head.exit_code).unwrap_or(FAILED);
    match (head.output_end, code) {
        (OutputEnd::Complete, _) => Ok(code),
        // A script must not mistake partial output for the whole.
        (OutputEnd::Cut, 0) => Err(Failure::Message(MAYBE_CUT.to_owned(), FAILED)),
        (OutputEnd::Cut | OutputEnd::Unknown, _) => {
            let _ = writeln!(err, "wherry: {MAYBE_CUT}");
            Ok(code)
        }
    }
}

/// Returns the exit code for a failure. Only the text of the runtime's message, which comes from runc or crun, shows
/// why a command could not be executed.
fn code_of(status: u16, words: &str) -> u8 {
    let says = |any: &[&str]| any.iter().any(|w| words.contains(w));
    match status {
        504 => TIMED_OUT,
        502 if says(&["executable file not found", "no such file or directory", "No such file or directory"]) => {
            NOT_FOUND
        }
        502 if says(&["permission denied", "Permission denied", "exec format error", "is a directory"]) => {
            NOT_EXECUTABLE
        }
        _ => FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(answer: &[u8]) -> (Result<u8, Failure>, String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let end = output(&mut &*answer, &mut out, &mut err);
        (end, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    #[test]
    fn both_outputs_and_the_exit_code_become_ours() {
        let (end, out, err) = put(b"{\"exitCode\":3,\"stdoutBytes\":6}\none\n\n\noops\n");
        assert_eq!((end.unwrap(), out.as_str(), err.as_str()), (3, "one\n\n\n", "oops\n"));
        let (end, out, err) = put(b"{\"exitCode\":0,\"stdoutBytes\":0}\n");
        assert_eq!((end.unwrap(), out.as_str(), err.as_str()), (0, "", ""));
    }

    #[test]
    fn an_output_whose_end_may_be_missing_is_printed_and_reported() {
        let answer = |code, end| format!("{{\"exitCode\":{code},\"stdoutBytes\":4,\"outputEnd\":\"{end}\"}}\none\n");
        let (end, out, _) = put(answer(0, "cut").as_bytes());
        assert!(
            matches!(&end, Err(Failure::Message(why, FAILED)) if why.contains("16 MiB")) && out == "one\n",
            "{end:?}"
        );
        for (code, cut) in [(3, "cut"), (0, "unknown")] {
            let (end, out, err) = put(answer(code, cut).as_bytes());
            assert_eq!((end.unwrap(), out.as_str()), (code, "one\n"));
            assert!(err.starts_with("wherry: the end of the output may be missing"), "{err}");
        }
    }

    #[test]
    fn a_truncated_answer_prints_no_output() {
        for answer in [&b""[..], b"{\"exitCode\":0", b"{\"exitCode\":0,\"stdoutBytes\":9}\nshort"] {
            let (end, out, _) = put(answer);
            assert!(matches!(end, Err(Failure::Message(_, FAILED))), "{end:?}");
            assert_eq!(out, "");
        }
    }

    #[test]
    fn a_command_that_did_not_run_has_the_exit_code_of_a_shell() {
        let runc = "OCI runtime exec failed: exec failed: unable to start container process: exec:";
        for (status, words, code) in [
            (504, "the command exceeded its timeout of 1 s".to_owned(), TIMED_OUT),
            (502, format!("{runc} \"nope\": executable file not found in $PATH: unknown"), NOT_FOUND),
            (502, format!("{runc} \"/nope\": stat /nope: no such file or directory: unknown"), NOT_FOUND),
            (502, format!("{runc} \"/etc/passwd\": permission denied: unknown"), NOT_EXECUTABLE),
            (502, "transport is closing".to_owned(), FAILED),
            (404, "there is no pod".to_owned(), FAILED),
            (409, "container main is not running: no such file or directory".to_owned(), FAILED),
        ] {
            assert_eq!(code_of(status, &words), code, "{status} {words}");
        }
    }
}
