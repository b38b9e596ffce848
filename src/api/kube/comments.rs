//! Finds comments in a YAML text. They are lost when a client changes the object in the text.

/// Reports whether the text has a comment. A `#` in a quoted string or in a block (`|`, `>`) does not begin a
/// comment.
pub fn has_comment(text: &str) -> bool {
    let mut state = ScanState::Plain;
    text.lines().any(|line| state.line(line))
}

#[derive(Clone, Copy)]
enum ScanState {
    Plain,
    /// In a string that began with this quotation mark.
    Quoted(char),
    /// In a block below a line with this indentation. `content`: the indentation of the block, once it is known.
    Block {
        parent: Option<usize>,
        content: Option<usize>,
    },
}

impl ScanState {
    /// Reads the next line. Returns true if a comment begins in it.
    fn line(&mut self, line: &str) -> bool {
        if let ScanState::Block { parent, content } = *self {
            let indentation = line.len() - line.trim_start_matches(' ').len();
            if line.trim().is_empty() {
                return false;
            }
            let is_in_block = content.map_or(parent.is_none_or(|p| indentation > p), |content| indentation >= content);
            if is_in_block {
                *self = ScanState::Block { parent, content: content.or(Some(indentation)) };
                return false;
            }
            *self = ScanState::Plain;
        }
        self.tokens(line)
    }

    fn tokens(&mut self, line: &str) -> bool {
        let mut before = ' ';
        // The last character outside of quotes that is not white space. It decides whether a quotation mark begins a
        // string.
        let mut last = ':';
        let mut chars = line.chars();
        while let Some(c) = chars.next() {
            match *self {
                ScanState::Quoted('"') if c == '\\' => drop(chars.next()),
                // In a single-quoted string, `''` stands for a quotation mark. This code treats it as the end of the
                // string and the beginning of another one.
                ScanState::Quoted(mark) if c == mark => (*self, last) = (ScanState::Plain, c),
                ScanState::Quoted(_) => {}
                _ if c == '#' && before.is_whitespace() => return true,
                _ if matches!(c, '"' | '\'') && matches!(last, ':' | '-' | ',' | '[' | '{' | '?' | '\'') => {
                    *self = ScanState::Quoted(c);
                }
                _ if !c.is_whitespace() => last = c,
                _ => {}
            }
            before = c;
        }
        if matches!(self, ScanState::Plain) && is_block_header(line) {
            *self = ScanState::Block { parent: parent(line), content: None };
        }
        false
    }
}

/// Returns true if the line ends with a YAML block scalar header: `|`, `>-`, `|2+`.
fn is_block_header(line: &str) -> bool {
    let Some((before, sign)) = line.trim_end().rsplit_once(' ').or(Some(("", line.trim_end()))) else { return false };
    let mut rest = sign.chars();
    let is_sign = matches!(rest.next(), Some('|' | '>')) && rest.all(|c| matches!(c, '+' | '-' | '1'..='9'));
    let before = before.trim_end();
    let after_tag = before.rsplit(' ').next().is_some_and(|word| word.starts_with(['!', '&']));
    is_sign && (before.is_empty() || before.ends_with([':', '-', '?']) || after_tag)
}

/// Returns the indentation of the key or the item that the block belongs to; None for the whole document.
fn parent(line: &str) -> Option<usize> {
    let (mut rest, mut at, mut found) = (line, 0, None);
    loop {
        let skipped = rest.len() - rest.trim_start_matches(' ').len();
        (rest, at) = (&rest[skipped..], at + skipped);
        match rest.strip_prefix("- ") {
            Some(item) => (found, rest, at) = (Some(at), item, at + 2),
            None if rest.starts_with(['|', '>']) => return found,
            None if rest.starts_with("--- ") => return None,
            None => return Some(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_is_found_where_it_begins() {
        for text in [
            "# first\na: 1\n",
            "a: 1 # after\n",
            "a: 1\n  # indented\nb: 2\n",
            "a: |\n  #!/bin/sh\n  echo\n# after the block\nb: 1\n",
            "a: it's # a comment\n",
            "a: say \"x\" # a comment\n",
            "a: 'x' # a comment\n",
            "a: \"x\\\"\" # a comment\n",
            "- |\n x\n# after\n",
            "list:\n- a: |-\n    # no\n  # yes\n  b: 1\n",
        ] {
            assert!(has_comment(text), "{text}");
        }
    }

    #[test]
    fn a_number_sign_in_a_text_is_no_comment() {
        for text in [
            "",
            "a: 1\n",
            "a: x#y\nb: http://host/#anchor\n",
            "a: |\n  #!/bin/sh\n  # in the script\n\n  echo\nb: 1\n",
            "a: >-\n\n  text\n   # more\nb: |2+\n    # x\nc: 1\n",
            "a: '# quoted'\nb: \"# quoted\"\nc: ['# x', \"# y\"]\n",
            "a: \"one\n  # two\n  three\"\nb: 'one\n  # two ''x'' # three\n  '\n",
            "{\"a\": \"# x\", \"b\": \"\\\" # y\"}\n",
            "- |\n  # x\n- a: |\n    # y\n  b: !!str |\n    # z\n",
            "--- |\n# the whole document\n",
        ] {
            assert!(!has_comment(text), "{text}");
        }
    }
}
