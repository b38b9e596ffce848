//! What commands print, and how they end.
//!
//! `println!` panics when its reader has gone (`wherry pods | head`): here a closed pipe is a quiet, successful end.

use crate::api::printable;
use crate::commands::screen;
use serde::Serialize as _;
use serde_json::Value;
use std::borrow::Cow;
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

/// Runs a command with a buffered stdout and turns its end into an exit code. Whatever the command writes passes `Guard`.
pub fn finish(command: impl FnOnce(&mut dyn Write) -> Result<u8, Failure>) -> ExitCode {
    finish_raw(|out| command(&mut Guard::new(out)))
}

/// The same for a command whose output is a container's own, byte for byte (`logs`, `exec`).
pub fn finish_raw(command: impl FnOnce(&mut dyn Write) -> Result<u8, Failure>) -> ExitCode {
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

/// The last thing between a command and the terminal: what is not plain text comes out as an escape (`api::printable`), but
/// for line breaks and our own colours. Commands escape what they show before they lay it out; this holds for one that forgets.
pub struct Guard<W> {
    out: W,
    /// The beginning of a character whose end was not written yet.
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
            tell(&format!("cannot write to stdout: {e}"));
            1
        }
        Err(Failure::Message(text, code)) => {
            tell(&text);
            code
        }
    }
}

/// A line on stderr; further lines of `text` are indented, so that none looks like one of ours. If stderr is gone too, nobody
/// wants to know.
pub fn tell(text: &str) {
    let mut line = String::from("wherry: ");
    for (i, part) in text.lines().enumerate() {
        line.push_str(if i == 0 { "" } else { "\n  " });
        line.push_str(&printable::line(part));
    }
    line.push('\n');
    to_stderr(&line);
}

/// Every line that a command writes to stderr, but for the output of `wherry exec`.
pub fn to_stderr(text: &str) {
    #[cfg(test)]
    TOLD.with_borrow_mut(|told| told.push_str(text));
    let _ = Guard::new(io::stderr()).write_all(text.as_bytes());
}

#[cfg(test)]
thread_local! {
    /// What this thread wrote to stderr.
    pub static TOLD: std::cell::RefCell<String> = const { std::cell::RefCell::new(String::new()) };
}

/// A text of others on one line.
pub fn shown(text: &str) -> Cow<'_, str> {
    printable::line(text)
}

/// A line of JSON, in which nothing is obeyed by a terminal.
pub fn json_line(out: &mut dyn Write, value: &Value) -> io::Result<()> {
    writeln!(out, "{}", printable::json(&value.to_string()))
}

/// A document as kubectl writes it. Its strings have no character that a terminal obeys: JSON and YAML have escapes of their
/// own.
pub fn document(out: &mut dyn Write, value: &Value, yaml: bool) -> Result<(), Failure> {
    if yaml {
        let text = serde_saphyr::to_string(value).map_err(|e| Failure::message(format!("cannot write YAML: {e}")))?;
        // The library escapes controls and leaves marks of direction as they are. A document with those is written as JSON,
        // which is YAML too.
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
        // However it is cut.
        for byte in text.as_bytes() {
            guard.write_all(&[*byte]).unwrap();
        }
        // (A sequence that is written in pieces is not ours: `paint` writes it at once.)
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
        tell("it failed: \x1b[2J\nwherry: all is well\r");
        assert_eq!(TOLD.take(), "wherry: it failed: \\x1b[2J\n  wherry: all is well\\r\n");
    }
}
