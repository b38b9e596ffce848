//! Turns the outcome of a probe's or a hook's call into a result, as a kubelet does.

use crate::api::facts::ExecOutput;
use crate::engine::control::exec_sync;
use crate::engine::event::{Answer, ProbeResult};
use crate::engine::op::{Code, OpError};

/// The maximum number of bytes that a kubelet reads from a probe's output.
const MAX_PROBE_OUTPUT: usize = 10 << 10;

/// Returns the result of a probe. `command` is the command of an exec handler. An error means that the result is
/// unknown.
pub fn probed(command: Option<&[String]>, result: Result<Answer, OpError>) -> Result<ProbeResult, OpError> {
    match (exec_sync::judged(result), command) {
        (Ok(Answer::Probe(result)), _) => Ok(result),
        (Ok(Answer::Executed(output)), _) if output.exit_code == 0 => Ok(ProbeResult::Passed),
        (Ok(Answer::Executed(output)), _) => Ok(ProbeResult::Failed(text(&output, MAX_PROBE_OUTPUT))),
        (Err(e), Some(command)) if e.is_timeout() => {
            Ok(ProbeResult::Failed(format!("command {:?} timed out", command.join(" "))))
        }
        (Err(e), _) => Err(e),
        (Ok(_), _) => Err(OpError::Unknown("the reply belongs to another call".to_owned())),
    }
}

/// Checks the result of a hook. `command` is the command of an exec handler.
///
/// # Errors
/// The hook failed. The message is the kubelet's.
pub fn hooked(command: Option<&[String]>, result: Result<Answer, OpError>) -> Result<(), OpError> {
    let Some(command) = command else { return result.map(drop) };
    let failed = |why: String, output: &str| OpError::Answered {
        code: Code::Other(2),
        message: format!("{why}, message: {output:?}"),
    };
    match exec_sync::judged(result) {
        Ok(Answer::Executed(output)) if output.exit_code != 0 => {
            let stderr = String::from_utf8_lossy(&output.stderr);
            let why = format!("command '{}' exited with {}: {stderr}", command.join(" "), output.exit_code);
            Err(failed(why, &text(&output, usize::MAX)))
        }
        Ok(_) => Ok(()),
        Err(OpError::Answered { message, .. }) => Err(failed(message, "")),
        Err(e) => Err(e),
    }
}

/// Returns stdout followed by stderr, cut to `longest` bytes.
fn text(output: &ExecOutput, longest: usize) -> String {
    let bytes: Vec<u8> = output.stdout.iter().chain(&output.stderr).take(longest).copied().collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn executed(exit_code: i32, stdout: &str, stderr: &str) -> Result<Answer, OpError> {
        Ok(Answer::Executed(ExecOutput { exit_code, stdout: stdout.into(), stderr: stderr.into() }))
    }

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_probe_passes_with_exit_code_0_and_fails_with_its_output() {
        let command = words("cat /tmp/ok");
        let judge = |result| probed(Some(&command), result);
        assert_eq!(judge(executed(0, "fine", "")), Ok(ProbeResult::Passed));
        assert_eq!(judge(executed(1, "out", "err")), Ok(ProbeResult::Failed("outerr".into())));
        let long = "x".repeat(MAX_PROBE_OUTPUT + 1);
        assert_eq!(judge(executed(1, &long, "err")), Ok(ProbeResult::Failed(long[1..].into())));
    }

    #[test]
    fn a_command_that_exceeds_its_time_fails_and_an_error_is_no_result() {
        let command = words("sleep 9");
        let late = OpError::Answered { code: Code::Other(4), message: "timeout 1s exceeded".into() };
        let timed_out = ProbeResult::Failed("command \"sleep 9\" timed out".into());
        assert_eq!(probed(Some(&command), Err(late.clone())), Ok(timed_out.clone()));
        // CRI-O reports the timeout as a result.
        assert_eq!(probed(Some(&command), executed(-1, "", "command timed out")), Ok(timed_out));
        assert_eq!(probed(None, Err(late.clone())), Err(late));
        let lost = OpError::Unknown("connection reset".into());
        assert_eq!(probed(Some(&command), Err(lost.clone())), Err(lost));
    }

    #[test]
    fn a_hooks_error_has_the_command_its_exit_code_and_its_output() {
        let command = words("sh -c x");
        let failed = hooked(Some(&command), executed(9, "bad\n", ""));
        let message = failed.map_err(|e| e.message().to_owned());
        assert_eq!(message, Err("command 'sh -c x' exited with 9: , message: \"bad\\n\"".to_owned()));
        assert_eq!(hooked(Some(&command), executed(0, "x", "y")), Ok(()));
        assert_eq!(hooked(None, Ok(Answer::Ok)), Ok(()));
    }
}
