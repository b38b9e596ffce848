//! Quotes text as Go does (`%q`), for the files of the downward API.

use std::fmt::Write as _;

/// Returns the text in double quotes. Characters that cannot be printed are escaped: common ones by a letter, others
/// below 128 as `\\x7f`, other 16-bit characters as `\\u00a0`, and the rest as `\\U000e0001`.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        let code = u32::from(c);
        // Writing to a String cannot fail.
        let _ = match c {
            '"' | '\\' => write!(out, "\\{c}"),
            '\x07' => write!(out, "\\a"),
            '\x08' => write!(out, "\\b"),
            '\x0c' => write!(out, "\\f"),
            '\n' => write!(out, "\\n"),
            '\r' => write!(out, "\\r"),
            '\t' => write!(out, "\\t"),
            '\x0b' => write!(out, "\\v"),
            _ if is_printable(c) => write!(out, "{c}"),
            _ if code < 0x80 => write!(out, "\\x{code:02x}"),
            _ if code <= 0xffff => write!(out, "\\u{code:04x}"),
            _ => write!(out, "\\U{code:08x}"),
        };
    }
    out.push('"');
    out
}

/// Reports whether the character is a letter, a mark, a number, punctuation, a symbol, or the ASCII space. Rust's own
/// escaping uses the same classes. (At the beginning of a string it also escapes marks, so a letter is put before the
/// character.)
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        // This shortcut matters because annotations can be as large as 256 KiB and are mostly ASCII, and the general
        // check below allocates twice for each character.
        return c == ' ' || c.is_ascii_graphic();
    }
    !c.is_control() && !format!("a{c}").escape_debug().to_string().contains("\\u{")
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn text_is_quoted_as_in_go() {
        for (text, expected) in [
            ("", r#""""#),
            ("plain text", r#""plain text""#),
            ("a\"b\\c'd", r#""a\"b\\c'd""#),
            ("\x07\x08\x0c\n\r\t\x0b", r#""\a\b\f\n\r\t\v""#),
            ("\0\x1b\x7f", r#""\x00\x1b\x7f""#),
            ("Größe 東京 é\u{301} 😀", "\"Größe 東京 é\u{301} 😀\""),
            ("\u{85}\u{a0}\u{200b}\u{feff}", r#""\u0085\u00a0\u200b\ufeff""#),
            ("\u{e0001}", r#""\U000e0001""#),
            ("\u{a0}\u{2028}\u{3000}\u{e000}\u{fffd}", "\"\\u00a0\\u2028\\u3000\\ue000\u{fffd}\""),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }

    #[test]
    fn ascii_is_escaped_below_the_space_and_at_127() {
        for code in 0..128_u8 {
            let c = char::from(code);
            let as_it_is = quoted(&c.to_string()) == format!("\"{c}\"");
            assert_eq!(as_it_is, (32..127).contains(&code) && c != '"' && c != '\\', "{code}");
        }
    }
}
