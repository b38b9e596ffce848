//! The size and the colours of the user's terminal. Output that is not a terminal gets plain text of unlimited width.

use std::io::IsTerminal;

/// The only control sequences that a command writes to stdout (`output::Guard`): those for colours and for clearing
/// the screen.
pub const SEQUENCES: [&str; 5] = ["\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[33m", NEW_PICTURE];
/// Returns to the start of the line and clears it. Written directly to stderr, because `output::to_stderr` would
/// escape it.
pub const CLEAR_LINE: &str = "\r\x1b[K";
/// Moves the cursor to the top left and clears the screen.
pub const NEW_PICTURE: &str = "\x1b[H\x1b[J";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    Bold,
    Red,
    Yellow,
}

impl Colour {
    fn code(self) -> &'static str {
        match self {
            Colour::Bold => "1",
            Colour::Red => "31",
            Colour::Yellow => "33",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Screen {
    /// The size in columns and lines. None means unlimited.
    pub width: Option<usize>,
    pub height: Option<usize>,
    pub colours: bool,
}

impl Screen {
    pub fn stdout() -> Screen {
        Screen::of(&std::io::stdout())
    }

    pub fn stderr() -> Screen {
        Screen::of(&std::io::stderr())
    }

    fn of(stream: &(impl IsTerminal + std::os::fd::AsFd)) -> Screen {
        if !stream.is_terminal() {
            return Screen::default();
        }
        let size = rustix::termios::tcgetwinsize(stream).ok();
        let (width, height) = size.map_or((0, 0), |s| (usize::from(s.ws_col), usize::from(s.ws_row)));
        let variable = |name| std::env::var(name).unwrap_or_default();
        Screen {
            // A serial console does not report its size.
            width: (width > 0).then_some(width),
            height: (height > 0).then_some(height),
            colours: wants_colours(&variable("NO_COLOR"), &variable("TERM")),
        }
    }

    /// Reports whether the output is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.width.is_some() || self.colours
    }

    pub fn paint(&self, text: &str, colour: Option<Colour>) -> String {
        match colour.filter(|_| self.colours && !text.is_empty()) {
            Some(colour) => format!("\x1b[{}m{text}\x1b[0m", colour.code()),
            None => text.to_owned(),
        }
    }
}

/// Reports whether to use colours. As defined by no-color.org, any non-empty value turns them off.
fn wants_colours(no_color: &str, term: &str) -> bool {
    no_color.is_empty() && !term.is_empty() && term != "dumb"
}

/// Shortens `text` to at most `width` columns. An ellipsis replaces the middle, because names often differ at their
/// ends.
pub fn shorten(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let Some(keep) = width.checked_sub(1) else { return String::new() };
    let (head, tail) = (keep - keep / 2, keep / 2);
    let begin = text.chars().take(head);
    begin.chain(['…']).chain(text.chars().skip(length - tail)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_off_if_no_color_is_set() {
        assert!(wants_colours("", "xterm-256color"));
        for (no_color, term) in [("1", "xterm"), ("0", "xterm"), ("", "dumb"), ("", "")] {
            assert!(!wants_colours(no_color, term), "{no_color} {term}");
        }
        let (plain, coloured) = (Screen::default(), Screen { colours: true, ..Screen::default() });
        assert_eq!(plain.paint("Failed", Some(Colour::Red)), "Failed");
        assert_eq!(coloured.paint("Failed", Some(Colour::Red)), "\x1b[31mFailed\x1b[0m");
        assert_eq!(coloured.paint("Running", None), "Running");
    }

    #[test]
    fn a_long_name_keeps_both_of_its_ends() {
        for (width, short) in [(11, "web-front-1"), (10, "web-f…nt-1"), (3, "w…1"), (2, "w…"), (1, "…"), (0, "")]
        {
            assert_eq!(shorten("web-front-1", width), short);
        }
        assert_eq!(shorten("größe", 4), "gr…e");
    }
}
