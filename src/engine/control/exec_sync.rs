//! Interprets the response of ExecSync beyond the exit code: the command may have timed out, or its output may be
//! incomplete.
//!
//! Runtimes keep at most 16 MiB of output and drop the rest without an error. CRI-O applies the limit to its log of
//! the output, in which each line has a timestamp, and cuts off the end.

use crate::api::control::OutputEnd;
use crate::api::facts::ExecOutput;
use crate::engine::event::Answer;
use crate::engine::op::{Code, OpError};

/// The limit of runtimes, in bytes.
const LIMIT: usize = 16 << 20;
/// An output that was cut off may be this much shorter than the limit: CRI-O's log has a timestamp for each piece,
/// and its last piece may be missing.
const MARGIN: usize = 512 << 10;
/// What CRI-O adds to a piece of the output: a timestamp, the name of the stream, a tag, and a line end.
const PER_PIECE: usize = 46;
/// The maximum length of a piece.
const PIECE: usize = 8 << 10;

/// gRPC's status code for an exceeded deadline.
const DEADLINE_EXCEEDED: u32 = 4;

/// Turns a response that reports a command's timeout as a result into an error. In CRI-O, this is the exit code -1,
/// which no command has, with the text "command timed out".
///
/// # Errors
/// The error of `result`, or the timeout.
pub fn judged(result: Result<Answer, OpError>) -> Result<Answer, OpError> {
    match result {
        Ok(Answer::Executed(output)) if is_timeout(&output) => {
            let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(OpError::Answered { code: Code::Other(DEADLINE_EXCEEDED), message })
        }
        other => other,
    }
}

fn is_timeout(output: &ExecOutput) -> bool {
    output.exit_code < 0 && String::from_utf8_lossy(&output.stderr).to_lowercase().contains("timed out")
}

/// Reports whether the output is complete.
pub fn end(output: &ExecOutput) -> OutputEnd {
    let length = output.stdout.len() + output.stderr.len();
    if length >= LIMIT - MARGIN {
        return OutputEnd::Cut;
    }
    let pieces: usize = [&output.stdout, &output.stderr].into_iter().map(|stream| pieces(stream)).sum();
    if length + pieces * PER_PIECE >= LIMIT - MARGIN { OutputEnd::Unknown } else { OutputEnd::Complete }
}

/// Returns the number of pieces in CRI-O's log.
fn pieces(stream: &[u8]) -> usize {
    stream.split(|byte| *byte == b'\n').map(|line| line.len() / PIECE + 1).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(exit_code: i32, stdout: Vec<u8>, stderr: &str) -> ExecOutput {
        ExecOutput { exit_code, stdout, stderr: stderr.as_bytes().to_vec() }
    }

    #[test]
    fn a_time_out_that_is_reported_as_a_result_is_an_error() {
        let late = judged(Ok(Answer::Executed(output(-1, Vec::new(), "command timed out"))));
        assert!(matches!(&late, Err(e) if e.is_timeout() && e.message() == "command timed out"), "{late:?}");
        for (exit_code, stderr) in [(1, "command timed out"), (-1, "killed"), (0, "timed out")] {
            let answer = Ok(Answer::Executed(output(exit_code, Vec::new(), stderr)));
            assert_eq!(judged(answer.clone()), answer, "{exit_code} {stderr}");
        }
    }

    #[test]
    fn an_output_near_the_limit_may_be_cut() {
        let lines = |length: usize, count: usize| {
            let line = [vec![b'x'; length - 1], vec![b'\n']].concat();
            end(&output(0, line.repeat(count), ""))
        };
        assert_eq!(end(&output(0, Vec::new(), "")), OutputEnd::Complete);
        assert_eq!(lines(15 << 20, 1), OutputEnd::Complete);
        // What CRI-O keeps of 20 MB in lines of 1 kB.
        assert_eq!(lines(1000, 16_037), OutputEnd::Unknown);
        // What CRI-O keeps of short lines.
        assert_eq!(lines(10, 299_000), OutputEnd::Unknown);
        assert_eq!(lines(10, 100_000), OutputEnd::Complete);
        let both = ExecOutput { exit_code: 0, stdout: vec![b'x'; 8 << 20], stderr: vec![b'x'; 8 << 20] };
        assert_eq!(end(&both), OutputEnd::Cut);
    }
}
