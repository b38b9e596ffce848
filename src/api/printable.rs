//! Text from outside (a container's last words, a runtime's error, a file's name) as it can be shown on a terminal.
//!
//! A terminal obeys control sequences wherever they come from: they move the cursor, rewrite what stands above, set the
//! clipboard. And a line break makes a second line that looks like one of ours. Therefore every character that is not plain
//! text is shown as an escape. Escapes are plain text, so that a text may be escaped twice.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Is it a character that a terminal shows, rather than obeys? Not so: C0 and C1 controls and DEL, line and paragraph
/// separators, and the marks that reverse the direction of the text after them.
pub fn is_plain(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// `text` on one line: `\n`, `\r`, `\t`, `\x1b`, `\u{9b}` for what is not plain.
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

/// Appends the escape of a character that is not plain.
pub fn push_escaped(out: &mut String, c: char) {
    // Writing to a String does not fail.
    let _ = match c {
        '\n' => out.write_str("\\n"),
        '\r' => out.write_str("\\r"),
        '\t' => out.write_str("\\t"),
        c if c.is_ascii() => write!(out, "\\x{:02x}", u32::from(c)),
        c => write!(out, "\\u{{{:x}}}", u32::from(c)),
    };
}

/// JSON whose strings have no character that is not plain. JSON itself demands escapes of C0 controls only. Line breaks
/// between the values stay.
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
            // All of them are in the basic multilingual plane: one unit of UTF-16.
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_shown_as_an_escape() {
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
