//! Tables in kubectl's format: columns are as wide as their widest cell so far and separated by blanks. On a
//! terminal, the header is bold, cells may be coloured, and flexible columns are shortened if the terminal is too
//! narrow. A cell is one line of plain text; other characters are escaped.

use super::output::shown;
use super::screen::{Colour, Screen, shorten};
use std::io::{self, Write};

/// The gap between two columns.
pub const GAP: &str = "   ";
/// Minimum width of a shortened column, in characters. It is never narrower than its header.
const LEAST: usize = 8;
/// Maximum width of a column other than the last, in characters. Names have at most 253 characters. A very long cell
/// must not make every line very long.
const WIDEST: usize = 256;

/// Returns the colour of a cell, given its column's header and its text.
pub type Paint = fn(&str, &str) -> Option<Colour>;

pub struct Table {
    header: Vec<&'static str>,
    widths: Vec<usize>,
    screen: Screen,
    /// Headers of columns that may be shortened.
    flexible: &'static [&'static str],
    paint: Paint,
}

impl Table {
    pub fn new(header: &[&'static str]) -> Table {
        Table {
            header: header.to_vec(),
            widths: header.iter().map(|h| h.chars().count()).collect(),
            screen: Screen::default(),
            flexible: &[],
            paint: |_, _| None,
        }
    }

    /// Fits the table to a screen. Columns with the headers in `flexible` may be shortened.
    pub fn on(mut self, screen: Screen, flexible: &'static [&'static str], paint: Paint) -> Table {
        (self.screen, self.flexible, self.paint) = (screen, flexible, paint);
        self
    }

    /// Widens the columns so that these cells fit. Cells beyond the last column are ignored.
    pub fn widen<T: AsRef<str>>(&mut self, cells: &[T]) {
        let last = self.widths.len().saturating_sub(1);
        for (at, (width, cell)) in self.widths.iter_mut().zip(cells).enumerate() {
            let length = shown(cell.as_ref()).chars().count();
            *width = (*width).max(if at == last { length } else { length.min(WIDEST) });
        }
    }

    /// Prints the rows, with the header if `header` is set.
    pub fn print<T: AsRef<str>>(&mut self, out: &mut dyn Write, header: bool, rows: &[&[T]]) -> io::Result<()> {
        rows.iter().for_each(|row| self.widen(row));
        let widths = self.fitting();
        if header {
            let bold = |_: &str, _: &str| Some(Colour::Bold);
            self.line(out, &self.header, &widths, bold)?;
        }
        rows.iter().try_for_each(|row| self.line(out, row, &widths, self.paint))
    }

    /// Returns column widths that fit the screen. The widest flexible column is shortened first.
    fn fitting(&self) -> Vec<usize> {
        let mut widths = self.widths.clone();
        let Some(room) = self.screen.width else { return widths };
        let gaps = GAP.len() * widths.len().saturating_sub(1);
        let mut over = (widths.iter().sum::<usize>() + gaps).saturating_sub(room);
        while over > 0 {
            let least = |i: usize| LEAST.max(self.header[i].len());
            let may = |i: &usize| self.flexible.contains(&self.header[*i]) && widths[*i] > least(*i);
            let Some(widest) = (0..widths.len()).filter(may).max_by_key(|i| widths[*i]) else { break };
            widths[widest] -= 1;
            over -= 1;
        }
        widths
    }

    fn line<T: AsRef<str>>(
        &self,
        out: &mut dyn Write,
        cells: &[T],
        widths: &[usize],
        paint: impl Fn(&str, &str) -> Option<Colour>,
    ) -> io::Result<()> {
        let mut line = String::new();
        // Blanks are written before the next cell, so that a line has no trailing blanks.
        let mut blanks = 0;
        for ((header, width), cell) in self.header.iter().zip(widths).zip(cells) {
            let cell = shorten(&shown(cell.as_ref()), *width);
            if !cell.is_empty() {
                line.extend(std::iter::repeat_n(' ', std::mem::take(&mut blanks)));
                line.push_str(&self.screen.paint(&cell, paint(header, &cell)));
            }
            blanks += width - cell.chars().count() + GAP.len();
        }
        writeln!(out, "{}", line.trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: [&[&str]; 2] = [&["default", "web-frontend-0", "Running"], &["default", "db", "Failed"]];

    fn printed(screen: Screen) -> String {
        let red: Paint = |header, cell| (header == "STATUS" && cell == "Failed").then_some(Colour::Red);
        let mut out = Vec::new();
        let mut table = Table::new(&["NAMESPACE", "NAME", "STATUS"]).on(screen, &["NAMESPACE", "NAME"], red);
        table.print(&mut out, true, &ROWS).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn without_a_terminal_no_cell_is_shortened() {
        let expected = "NAMESPACE   NAME             STATUS\n\
                        default     web-frontend-0   Running\n\
                        default     db               Failed\n";
        assert_eq!(printed(Screen::default()), expected);
    }

    #[test]
    fn every_width_is_kept_while_there_is_something_to_shorten() {
        let width = |w| Screen { width: Some(w), ..Screen::default() };
        assert_eq!(printed(width(36)), printed(Screen::default()));
        assert!(printed(width(32)).contains("default     web-f…nd-0   Running\n"), "{}", printed(width(32)));
        for w in 30..40 {
            let text = printed(width(w));
            assert!(text.lines().all(|l| l.chars().count() <= w), "{w}:\n{text}");
        }
        // Columns are not shortened below the minimum.
        assert_eq!(printed(width(10)), printed(width(30)));
    }

    #[test]
    fn colours_do_not_move_the_columns() {
        let text = printed(Screen { colours: true, ..Screen::default() });
        assert!(
            text.starts_with("\x1b[1mNAMESPACE\x1b[0m   \x1b[1mNAME\x1b[0m             \x1b[1mSTATUS\x1b[0m\n"),
            "{text}"
        );
        assert!(text.ends_with("default     db               \x1b[31mFailed\x1b[0m\n"), "{text}");
        let plain: String = text.replace("\x1b[1m", "").replace("\x1b[31m", "").replace("\x1b[0m", "");
        assert_eq!(plain, printed(Screen::default()));
    }

    #[test]
    fn a_cell_is_one_line_and_as_wide_as_its_escapes() {
        let mut out = Vec::new();
        let mut table = Table::new(&["NAME", "STATUS"]);
        table.print(&mut out, true, &[&["a\n\x1b[2Jb", "x"], &["c", "y"]]).unwrap();
        let expected = "NAME          STATUS\na\\n\\x1b[2Jb   x\nc             y\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn an_endless_cell_does_not_make_every_line_endless() {
        let mut out = Vec::new();
        let long = "x".repeat(1_000_000);
        let mut table = Table::new(&["NAME", "STATUS", "MESSAGE"]);
        table.print(&mut out, true, &[&["web", &long, &long], &["db", "Running", "fine"]]).unwrap();
        let lengths: Vec<usize> = String::from_utf8(out).unwrap().lines().map(|line| line.chars().count()).collect();
        // The last column is complete.
        assert_eq!(lengths, [7 + WIDEST + 3 + 7, 7 + WIDEST + 3 + 1_000_000, 7 + WIDEST + 3 + 4]);
    }
}
