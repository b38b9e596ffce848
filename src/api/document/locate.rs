//! Finds the line of a field by parsing the text a second time. This happens only to report an error.

use crate::api::problem::{FieldPath, FieldStep};
use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle};

/// Returns the line (from 1) of the deepest existing part of `path`: of the key for a field, of the item for a list.
/// `document` is the index of the document in the stream, from 0, without empty documents.
pub(super) fn line(text: &str, document: usize, path: &FieldPath) -> Option<u32> {
    let mut events = Events { parser: Parser::new_from_str(text) };
    let mut seen = 0;
    loop {
        match events.next()? {
            (Event::DocumentStart(..), _) => {
                let (root, line) = events.next()?;
                let empty = matches!(&root, Event::Scalar(s, ScalarStyle::Plain, ..) if is_null(s));
                if !empty && seen == document {
                    return descend(&mut events, root, line, &path.0);
                }
                seen += usize::from(!empty);
                events.skip(&root)?;
            }
            (Event::StreamEnd, _) => return None,
            _ => {}
        }
    }
}

fn is_null(text: &str) -> bool {
    text.is_empty() || text == "~" || text.eq_ignore_ascii_case("null")
}

/// Follows the path through the node that starts with `event`. `line` is the result if the path leads no further.
fn descend(events: &mut Events<'_>, event: Event<'_>, line: u32, path: &[FieldStep]) -> Option<u32> {
    let Some((step, rest)) = path.split_first() else { return Some(line) };
    match (event, step) {
        (Event::MappingStart(..), FieldStep::Field(name) | FieldStep::Key(name) | FieldStep::HiddenKey(name)) => loop {
            let (key, key_line) = events.next()?;
            if matches!(key, Event::MappingEnd) {
                return Some(line);
            }
            let found = matches!(&key, Event::Scalar(text, ..) if text == name);
            events.skip(&key)?;
            let (value, _) = events.next()?;
            if found {
                return descend(events, value, key_line, rest);
            }
            events.skip(&value)?;
        },
        (Event::SequenceStart(..), FieldStep::Item(index)) => {
            for _ in 0..*index {
                let (item, _) = events.next()?;
                if matches!(item, Event::SequenceEnd) {
                    return Some(line);
                }
                events.skip(&item)?;
            }
            let (item, item_line) = events.next()?;
            if matches!(item, Event::SequenceEnd) {
                return Some(line);
            }
            descend(events, item, item_line, rest)
        }
        // An alias or a scalar: the path ends here.
        _ => Some(line),
    }
}

struct Events<'t> {
    parser: Parser<'t, serde_saphyr::granit_parser::StrInput<'t>>,
}

impl<'t> Events<'t> {
    /// Returns the next event and its line. None at the end of the text or at a syntax error, which `parse` has
    /// already reported.
    fn next(&mut self) -> Option<(Event<'t>, u32)> {
        let (event, span) = self.parser.next_event()?.ok()?;
        Some((event, u32::try_from(span.start.line()).unwrap_or(u32::MAX)))
    }

    /// Skips to the end of the node that starts with `event`.
    fn skip(&mut self, event: &Event<'_>) -> Option<()> {
        let mut depth = match event {
            Event::MappingStart(..) | Event::SequenceStart(..) => 1,
            _ => 0,
        };
        while depth > 0 {
            match self.next()?.0 {
                Event::MappingStart(..) | Event::SequenceStart(..) => depth += 1,
                Event::MappingEnd | Event::SequenceEnd => depth -= 1,
                _ => {}
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(steps: &[&str]) -> FieldPath {
        let step = |s: &&str| s.parse().map_or_else(|_| FieldStep::Field((*s).to_owned()), FieldStep::Item);
        FieldPath(steps.iter().map(step).collect())
    }

    #[test]
    fn a_field_is_found_on_its_line() {
        let text = "# comment\nkind: Pod\nspec:\n  containers:\n  - name: a\n    env: [{name: A,\n      value: 1}]\n  \
                    - {name: b}\n\
                    ---\n# nothing\n---\nkind: Pod\nmetadata:\n  name: x\n";
        for (document, steps, expected) in [
            (0, &["kind"][..], 2),
            (0, &["spec", "containers", "0"], 5),
            (0, &["spec", "containers", "0", "env", "0", "value"], 7),
            (0, &["spec", "containers", "1", "name"], 8),
            (0, &["spec", "containers", "1", "image"], 8),
            (0, &["spec", "containers", "7"], 4),
            (0, &["metadata", "name"], 2),
            (1, &["metadata", "name"], 14),
        ] {
            assert_eq!(line(text, document, &path(steps)), Some(expected), "{document} {steps:?}");
        }
        assert_eq!(line(text, 2, &path(&["kind"])), None);
    }

    #[test]
    fn a_field_of_json_is_found_on_its_line() {
        let text =
            "{\n\t\"kind\": \"Pod\",\n\t\"spec\": {\n\t\t\"containers\": [\n\t\t\t{\"name\": \"a\"}\n\t\t]\n\t}\n}\n";
        assert_eq!(line(text, 0, &path(&["spec", "containers", "0", "name"])), Some(5));
    }
}
