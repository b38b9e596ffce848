//! Escaping of external text (termination messages, runtime errors, file names) for display on a terminal.
//!
//! A terminal executes control sequences from any source: they can move the cursor, overwrite earlier output or set the
//! clipboard. A line break could forge a line of our own output. Therefore every character that is not plain text is
//! shown as an escape. Escapes are plain text, so escaping a string twice is harmless.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Reports whether a terminal displays the character and does not interpret it. False for control characters
/// (including DEL), line and paragraph separators, and marks that change the text direction.
pub fn is_plain(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns `text` on one line, with the escapes `\n`, `\r`, `\t`, `\x1b` and `\u{9b}` for characters that are not
/// plain.
pub fn line(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_plain(c) {
            out.push(c);
        } else {
            push_escaped(&mut out, c);
        }
    }
    Cow::Owned(out)
}

/// Returns at most the first `bytes` bytes of the text, and never a part of a character.
pub fn cut(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// Appends the escape of a character that is not plain.
pub fn push_escaped(out: &mut String, c: char) {
    // Writing to a String cannot fail.
    let _ = match c {
        '\n' => out.write_str("\\n"),
        '\r' => out.write_str("\\r"),
        '\t' => out.write_str("\\t"),
        c if c.is_ascii() => write!(out, "\\x{:02x}", u32::from(c)),
        c => write!(out, "\\u{{{:x}}}", u32::from(c)),
    };
}

/// Escapes the characters in JSON strings that are not plain; JSON itself requires this only for U+0000 to U+001F.
/// Line breaks and tabs between values are kept.
pub fn json(text: &str) -> Cow<'_, str> {
    let stays = |c: char| is_plain(c) || matches!(c, '\n' | '\t' | '\r');
    if text.chars().all(stays) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if stays(c) {
            out.push(c);
        } else {
            // All such characters are in the basic multilingual plane, so one UTF-16 unit is enough.
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_control_characters_are_escaped() {
        for (text, shown) in [
            ("plain — größe 日本 🚀 \\n", "plain — größe 日本 🚀 \\n"),
            ("a\nb\r\tc\0", "a\\nb\\r\\tc\\x00"),
            ("\x1b]52;c;aGk=\x07", "\\x1b]52;c;aGk=\\x07"),
            ("\x7f\u{80}\u{9b}31m\u{9f}", "\\x7f\\u{80}\\u{9b}31m\\u{9f}"),
            ("\u{202e}gpj.exe\u{2069}\u{200f}", "\\u{202e}gpj.exe\\u{2069}\\u{200f}"),
            ("\u{2028}\u{2029}", "\\u{2028}\\u{2029}"),
        ] {
            assert_eq!(line(text), shown);
            assert_eq!(line(&line(text)), shown, "an escape is plain");
        }
        assert!(matches!(line("plain"), Cow::Borrowed(_)));
    }

    #[test]
    fn json_stays_the_same_value() {
        let value = serde_json::json!({"a\u{9b}\u{202e}": ["\x1b[31m\n\x7f", "größe", "\u{2028}"]});
        for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            let shown = json(&text);
            assert!(shown.chars().all(|c| is_plain(c) || c == '\n'), "{shown:?}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
        }
    }
}
