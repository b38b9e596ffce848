//! Converts a page of the manual (Markdown) to a man page. The rows of tables with two or more columns become paragraphs with
//! the first column as their tag, because a terminal is too narrow for tables.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use std::fmt::Write as _;

/// Pages of the manual that are also man pages. A link text that is the file name is replaced with the name of the man page.
const PAGES: [(&str, &str); 2] = [("configuration.md", "wherry-config(5)"), ("manifests.md", "wherry-manifests(5)")];

/// The contents of the page's header and footer and of its NAME section.
pub struct Title<'a> {
    pub name: &'a str,
    pub about: &'a str,
    pub date: &'a str,
    pub source: &'a str,
    pub manual: &'a str,
}

/// Returns the page in roff. Its section is 5. `see_also` is roff.
pub fn roff(title: &Title<'_>, markdown: &str, see_also: &str) -> String {
    let Title { name, about, date, source, manual } = title;
    let mut page = Page::default();
    // A write to a string does not fail.
    let _ = write!(
        page.out,
        ".\\\" Made from the manual by packaging/texts.\n.TH {} 5 \"{date}\" \"{source}\" \"{manual}\"\n.SH NAME\n{} \\- {}\n\
         .SH DESCRIPTION\n",
        escaped(&name.to_uppercase()),
        escaped(name),
        escaped(about)
    );
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
        page.add(event);
    }
    page.fresh_line();
    page.out.push_str(".SH SEE ALSO\n");
    page.out.push_str(see_also);
    page.out
}

/// Returns the text of a line of Markdown without its markup.
#[cfg(test)]
pub fn plain(markdown: &str) -> String {
    let texts = Parser::new(markdown).filter_map(|e| match e {
        Event::Text(t) | Event::Code(t) => Some(t.to_string()),
        _ => None,
    });
    texts.collect()
}

/// Escapes text for roff, so that no character is a command or an escape.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\e"),
            '-' => out.push_str("\\-"),
            '\'' => out.push_str("\\(aq"),
            '^' => out.push_str("\\(ha"),
            '~' => out.push_str("\\(ti"),
            '`' => out.push_str("\\(ga"),
            c => out.push(c),
        }
    }
    out
}

#[derive(Default)]
struct Page {
    out: String,
    /// Inside a section heading, whose text is converted to capitals.
    heading: bool,
    code_block: bool,
    /// In a table: the names of its columns, and the cells of the current row so far.
    columns: Vec<String>,
    cells: Vec<String>,
    in_table: bool,
    item: bool,
}

impl Page {
    /// Returns the buffer to which text is written now: a table cell or the page.
    fn to(&mut self) -> &mut String {
        if self.in_table
            && let Some(cell) = self.cells.last_mut()
        {
            return cell;
        }
        &mut self.out
    }

    fn fresh_line(&mut self) {
        if !self.out.is_empty() && !self.out.ends_with('\n') {
            self.out.push('\n');
        }
    }

    fn request(&mut self, request: &str) {
        self.fresh_line();
        self.out.push_str(request);
        self.out.push('\n');
    }

    fn text(&mut self, text: &str) {
        let text = if self.heading { text.to_uppercase() } else { text.to_owned() };
        let mut text = escaped(&text);
        // A line that begins with a dot is a command. (A quote would be too, but it is escaped.)
        let fresh = {
            let to = self.to();
            to.is_empty() || to.ends_with('\n')
        };
        if fresh && text.starts_with('.') {
            text.insert_str(0, "\\&");
        }
        if self.code_block {
            text = text.replace("\n.", "\n\\&.");
        }
        self.to().push_str(&text);
    }

    fn add(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => {
                self.text(PAGES.iter().find(|(file, _)| **file == *text).map_or(&*text, |(_, page)| page))
            }
            Event::Code(code) => {
                let code = escaped(&code);
                let mark = if self.heading { code } else { format!("\\fB{code}\\fR") };
                self.to().push_str(&mark);
            }
            Event::SoftBreak if self.in_table => self.to().push(' '),
            Event::SoftBreak | Event::HardBreak => self.fresh_line(),
            // The manual contains none of these.
            Event::Html(_)
            | Event::InlineHtml(_)
            | Event::InlineMath(_)
            | Event::DisplayMath(_)
            | Event::FootnoteReference(_)
            | Event::TaskListMarker(_)
            | Event::Rule => {}
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            // The page already has a title.
            Tag::Heading { level: HeadingLevel::H1, .. } => self.request(".ig"),
            Tag::Heading { level, .. } => {
                self.fresh_line();
                let section = level == HeadingLevel::H2;
                self.heading = section;
                self.out.push_str(if section { ".SH " } else { ".SS " });
            }
            Tag::Paragraph if self.item => {}
            Tag::Paragraph => self.request(".PP"),
            Tag::CodeBlock(CodeBlockKind::Fenced(_) | CodeBlockKind::Indented) => {
                self.request(".PP\n.RS 4\n.EX");
                self.code_block = true;
            }
            Tag::Item => {
                self.request(".IP \\(bu 2");
                self.item = true;
            }
            Tag::Table(_) => self.in_table = true,
            Tag::TableRow => self.cells.clear(),
            Tag::TableCell => self.cells.push(String::new()),
            Tag::Emphasis => self.to().push_str("\\fI"),
            Tag::Strong => self.to().push_str("\\fB"),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(HeadingLevel::H1) => self.request(".."),
            TagEnd::Heading(_) => {
                self.heading = false;
                self.fresh_line();
            }
            TagEnd::CodeBlock => {
                self.code_block = false;
                self.request(".EE\n.RE");
            }
            TagEnd::Item => self.item = false,
            TagEnd::TableHead => {
                self.columns = std::mem::take(&mut self.cells);
            }
            TagEnd::TableRow => self.row(),
            TagEnd::Table => {
                self.in_table = false;
                self.cells.clear();
            }
            TagEnd::Emphasis | TagEnd::Strong => self.to().push_str("\\fR"),
            _ => {}
        }
    }

    /// Writes a table row: the first cell is the tag, and the last one is the text. The cells between them come before the
    /// text, in parentheses, each with the name of its column.
    fn row(&mut self) {
        let cells = std::mem::take(&mut self.cells);
        let [tag, between @ .., last] = cells.as_slice() else { return };
        self.request(".TP");
        let _ = writeln!(self.out, "{tag}");
        let names = self.columns.iter().skip(1);
        let named = names.zip(between).filter(|(_, cell)| !cell.trim().is_empty());
        let before: Vec<String> = named.map(|(name, cell)| format!("{name} {cell}")).collect();
        if !before.is_empty() {
            let _ = writeln!(self.out, "({})", before.join(", "));
        }
        let guard = if last.starts_with('.') { "\\&" } else { "" };
        let _ = writeln!(self.out, "{guard}{last}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TITLE: Title<'_> = Title { name: "x-y", about: "an x", date: "2026-11-20", source: "x 1", manual: "X" };

    fn body(markdown: &str) -> String {
        let page = roff(&TITLE, markdown, ".BR x (1)\n");
        let body = page.split(".SH DESCRIPTION\n").nth(1).unwrap();
        body.strip_suffix(".SH SEE ALSO\n.BR x (1)\n").unwrap().to_owned()
    }

    #[test]
    fn a_page_has_its_head_and_its_sections() {
        let page = roff(&TITLE, "# Title\n\nWords.\n\n## The `a` of it\n\nMore\nwords.\n", "");
        assert!(page.contains(".TH X\\-Y 5 \"2026-11-20\" \"x 1\" \"X\"\n.SH NAME\nx\\-y \\- an x\n"), "{page}");
        assert!(page.contains(".ig\nTitle\n..\n.PP\nWords.\n.SH THE a OF IT\n.PP\nMore\nwords.\n"), "{page}");
    }

    #[test]
    fn tables_become_tagged_paragraphs() {
        let text = "| field | default | flag | meaning |\n|---|---|---|---|\n| `a` | `1s` | | what [it](b.md) is, [configuration.md](configuration.md) |\n";
        assert_eq!(body(text), ".TP\n\\fBa\\fR\n(default \\fB1s\\fR)\nwhat it is, wherry\\-config(5)\n");
    }

    #[test]
    fn nothing_in_a_text_is_a_command() {
        assert_eq!(body("    .x\n    y\\z\n    .q\n"), ".PP\n.RS 4\n.EX\n\\&.x\ny\\ez\n\\&.q\n.EE\n.RE\n");
        assert_eq!(body(".dot 'q' a-b\n"), ".PP\n\\&.dot \\(aqq\\(aq a\\-b\n");
        assert_eq!(body("- one\n- **two** *it*\n"), ".IP \\(bu 2\none\n.IP \\(bu 2\n\\fBtwo\\fR \\fIit\\fR\n");
    }
}
