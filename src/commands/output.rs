//! The output of commands and their exit codes.
//!
//! `println!` panics if the reader of stdout has closed the pipe (`wherry pods | head`). Here, a closed pipe ends the
//! command successfully and without a message.

use crate::api::printable;
use crate::commands::screen;
use serde::Serialize as _;
use serde_json::Value;
use std::borrow::Cow;
use std::io::{self, Write};
use std::process::ExitCode;

/// The reason why a command stopped early.
#[derive(Debug)]
pub enum Failure {
    /// stdout could not be written.
    Output(io::Error),
    /// A message for stderr, and the exit code.
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

/// Runs a command with a buffered stdout and returns its exit code. All output goes through `Guard`.
pub fn finish(command: impl FnOnce(&mut dyn Write) -> Result<u8, Failure>) -> ExitCode {
    finish_raw(|out| command(&mut Guard::new(out)))
}

/// Like `finish`, for a command that prints a container's output unchanged (`logs`, `exec`).
pub fn finish_raw(command: impl FnOnce(&mut dyn Write) -> Result<u8, Failure>) -> ExitCode {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let result = command(&mut out).and_then(|code| {
        out.flush()?;
        Ok(code)
    });
    let code = end(result);
    // Discard the rest of the buffer: stdout is closed.
    let _ = out.into_parts();
    ExitCode::from(code)
}

/// A filter between a command and the terminal: it escapes all characters that are not plain text (`api::printable`),
/// except line breaks and Wherry's own colours. Commands escape text before they format it; the guard catches text
/// that a command forgot to escape.
pub struct Guard<W> {
    out: W,
    /// The first bytes of a character whose remaining bytes have not arrived yet.
    begun: Vec<u8>,
}

impl<W: Write> Guard<W> {
    pub fn new(out: W) -> Guard<W> {
        Guard { out, begun: Vec::new() }
    }

    fn pass(&mut self, text: &str) -> io::Result<()> {
        let mut rest = text;
        while let Some(at) = rest.find(|c: char| !printable::is_plain(c) && c != '\n') {
            self.out.write_all(&rest.as_bytes()[..at])?;
            rest = &rest[at..];
            if let Some(own) = screen::SEQUENCES.iter().find(|own| rest.starts_with(**own)) {
                self.out.write_all(own.as_bytes())?;
                rest = &rest[own.len()..];
            } else if let Some(c) = rest.chars().next() {
                let mut escaped = String::new();
                printable::push_escaped(&mut escaped, c);
                self.out.write_all(escaped.as_bytes())?;
                rest = &rest[c.len_utf8()..];
            }
        }
        self.out.write_all(rest.as_bytes())
    }
}

impl<W: Write> Write for Guard<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let bytes = [std::mem::take(&mut self.begun).as_slice(), buf].concat();
        let mut rest = bytes.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    self.pass(text)?;
                    return Ok(buf.len());
                }
                Err(e) => {
                    let (good, bad) = rest.split_at(e.valid_up_to());
                    self.pass(&String::from_utf8_lossy(good))?;
                    match e.error_len() {
                        Some(length) => {
                            self.pass("\u{fffd}")?;
                            rest = &bad[length..];
                        }
                        None => {
                            self.begun = bad.to_vec();
                            return Ok(buf.len());
                        }
                    }
                }
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

pub fn end(result: Result<u8, Failure>) -> u8 {
    match result {
        Ok(code) => code,
        Err(Failure::Output(e)) if e.kind() == io::ErrorKind::BrokenPipe => 0,
        Err(Failure::Output(e)) => {
            print_message(&format!("cannot write to stdout: {e}"));
            1
        }
        Err(Failure::Message(text, code)) => {
            print_message(&text);
            code
        }
    }
}

/// Prints a message on stderr. Further lines of `text` are indented, so that none of them looks like a message of
/// Wherry. Errors are ignored.
pub fn print_message(text: &str) {
    let mut line = String::from("wherry: ");
    for (i, part) in text.lines().enumerate() {
        line.push_str(if i == 0 { "" } else { "\n  " });
        line.push_str(&printable::line(part));
    }
    line.push('\n');
    to_stderr(&line);
}

/// Writes to stderr. Commands write every line this way, except the output of `wherry exec`.
pub fn to_stderr(text: &str) {
    #[cfg(test)]
    TOLD.with_borrow_mut(|told| told.push_str(text));
    let _ = Guard::new(io::stderr()).write_all(text.as_bytes());
}

#[cfg(test)]
thread_local! {
    /// What this thread has written to stderr.
    pub static TOLD: std::cell::RefCell<String> = const { std::cell::RefCell::new(String::new()) };
}

/// Escapes text from outside to one line.
pub fn shown(text: &str) -> Cow<'_, str> {
    printable::line(text)
}

/// Writes a line of JSON without terminal control characters.
pub fn json_line(out: &mut dyn Write, value: &Value) -> io::Result<()> {
    writeln!(out, "{}", printable::json(&value.to_string()))
}

/// Writes a document in kubectl's format. Terminal control characters in strings become JSON or YAML escapes.
pub fn document(out: &mut dyn Write, value: &Value, yaml: bool) -> Result<(), Failure> {
    if yaml {
        let text = serde_saphyr::to_string(value).map_err(|e| Failure::message(format!("cannot write YAML: {e}")))?;
        // The library escapes control characters but not directional marks. A document with such marks is written as
        // JSON, which is valid YAML.
        if text.chars().all(|c| printable::is_plain(c) || c == '\n') {
            out.write_all(text.as_bytes())?;
            if !text.ends_with('\n') {
                writeln!(out)?;
            }
            return Ok(());
        }
    }
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut text = Vec::new();
    value
        .serialize(&mut serde_json::Serializer::with_formatter(&mut text, formatter))
        .map_err(|e| Failure::message(format!("cannot write JSON: {e}")))?;
    writeln!(out, "{}", printable::json(&String::from_utf8_lossy(&text)))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_guard_lets_text_lines_and_our_own_colours_pass() {
        let mut out = Vec::new();
        let mut guard = Guard::new(&mut out);
        let text = "a\n\x1b[31mred\x1b[0m größe \x1b[2J\x1b]52;c;eA==\x07\u{9b}1m\u{202e}\t\r|";
        // The result does not depend on how the text is split.
        for byte in text.as_bytes() {
            guard.write_all(&[*byte]).unwrap();
        }
        // The guard escapes a sequence that is written in pieces, because `paint` always writes a sequence at once.
        let cut = "a\n\\x1b[31mred\\x1b[0m größe \\x1b[2J\\x1b]52;c;eA==\\x07\\u{9b}1m\\u{202e}\\t\\r|";
        guard.write_all(text.as_bytes()).unwrap();
        let whole = cut.replace("\\x1b[31m", "\x1b[31m").replace("\\x1b[0m", "\x1b[0m");
        guard.write_all(b"\xff\xc3(").unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), format!("{cut}{whole}\u{fffd}\u{fffd}("));
    }

    #[test]
    fn documents_have_no_control_characters_and_keep_their_values() {
        let hostile = "\x1b[2J\u{9b}31m\u{7f}\r\n\u{2028}é";
        for value in [json!({"a": hostile, "b": [1]}), json!({"a": format!("{hostile}\u{202e}"), "k\u{202e}": "x"})] {
            for yaml in [false, true] {
                let mut out = Vec::new();
                document(&mut out, &value, yaml).unwrap();
                let text = String::from_utf8(out).unwrap();
                assert!(text.chars().all(|c| printable::is_plain(c) || c == '\n'), "{text:?}");
                let read: Value = serde_saphyr::from_str(&text).unwrap();
                assert_eq!(read, value, "{text}");
            }
            let mut out = Vec::new();
            json_line(&mut out, &value).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert!(text.lines().count() == 1 && text.trim_end().chars().all(printable::is_plain), "{text:?}");
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        }
    }

    #[test]
    fn a_message_of_several_lines_is_indented_and_escaped() {
        TOLD.take();
        print_message("it failed: \x1b[2J\nwherry: all is well\r");
        assert_eq!(TOLD.take(), "wherry: it failed: \\x1b[2J\n  wherry: all is well\\r\n");
    }
}
