//! Tables as kubectl prints them: columns as wide as their widest cell so far, blanks apart.

use std::io::{self, Write};

/// Between two columns.
pub const GAP: &str = "   ";

pub struct Table {
    header: Vec<&'static str>,
    widths: Vec<usize>,
}

impl Table {
    pub fn new(header: &[&'static str]) -> Table {
        Table { header: header.to_vec(), widths: header.iter().map(|h| h.chars().count()).collect() }
    }

    /// Makes room for these cells; those beyond the last column do not count.
    pub fn widen<T: AsRef<str>>(&mut self, cells: &[T]) {
        for (width, cell) in self.widths.iter_mut().zip(cells) {
            *width = (*width).max(cell.as_ref().chars().count());
        }
    }

    /// The header, if asked for, and the rows.
    pub fn print<T: AsRef<str>>(&mut self, out: &mut dyn Write, header: bool, rows: &[&[T]]) -> io::Result<()> {
        rows.iter().for_each(|row| self.widen(row));
        if header {
            self.line(out, &self.header)?;
        }
        rows.iter().try_for_each(|row| self.line(out, row))
    }

    fn line<T: AsRef<str>>(&self, out: &mut dyn Write, cells: &[T]) -> io::Result<()> {
        let mut line = String::new();
        for (width, cell) in self.widths.iter().zip(cells) {
            line.push_str(&format!("{:<width$}{GAP}", cell.as_ref()));
        }
        writeln!(out, "{}", line.trim_end())
    }
}
