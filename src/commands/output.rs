//! What commands print, and how they end.
//!
//! `println!` panics when its reader has gone (`wherry pods | head`): here a closed pipe is a quiet, successful end.

use serde::Serialize as _;
use serde_json::Value;
use std::io::{self, Write};
use std::process::ExitCode;

/// Why a command stopped early.
#[derive(Debug)]
pub enum Failure {
    /// stdout could not be written.
    Output(io::Error),
    /// To be told on stderr; with the exit code.
    Message(String, u8),
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Failure {
        Failure::Output(e)
    }
}

impl Failure {
    pub fn message(text: impl Into<String>) -> Failure {
        Failure::Message(text.into(), 1)
    }
}

/// Runs a command with a buffered stdout and turns its end into an exit code.
pub fn finish(command: impl FnOnce(&mut dyn Write) -> Result<u8, Failure>) -> ExitCode {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let result = command(&mut out).and_then(|code| {
        out.flush()?;
        Ok(code)
    });
    let code = end(result);
    // What is left in the buffer has nobody to go to.
    let _ = out.into_parts();
    ExitCode::from(code)
}

fn end(result: Result<u8, Failure>) -> u8 {
    match result {
        Ok(code) => code,
        Err(Failure::Output(e)) if e.kind() == io::ErrorKind::BrokenPipe => 0,
        Err(Failure::Output(e)) => {
            tell(&format!("cannot write to stdout: {e}"));
            1
        }
        Err(Failure::Message(text, code)) => {
            tell(&text);
            code
        }
    }
}

/// A line on stderr; if that is gone too, nobody wants to know.
pub fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "wherry: {text}");
}

/// A document as kubectl writes it.
pub fn document(out: &mut dyn Write, value: &Value, yaml: bool) -> Result<(), Failure> {
    if yaml {
        let text = serde_saphyr::to_string(value).map_err(|e| Failure::message(format!("cannot write YAML: {e}")))?;
        out.write_all(text.as_bytes())?;
        if !text.ends_with('\n') {
            writeln!(out)?;
        }
        return Ok(());
    }
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut text = Vec::new();
    value
        .serialize(&mut serde_json::Serializer::with_formatter(&mut text, formatter))
        .map_err(|e| Failure::message(format!("cannot write JSON: {e}")))?;
    out.write_all(&text)?;
    writeln!(out)?;
    Ok(())
}
