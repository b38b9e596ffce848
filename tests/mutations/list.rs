//! Reads the list of mutations and applies them to the sources.

// The lists in clippy.toml apply only to `engine` and `api`. This file is also a test of its own.
#![allow(clippy::disallowed_methods)]

use std::ops::Range;
use std::path::Path;

/// This line marks a mutation with which the engine may hang.
const HANGS: &str = "hangs";

#[derive(Debug, PartialEq, Eq)]
pub struct Mutation {
    pub name: String,
    /// The path below `src/`.
    pub file: String,
    /// The mutated engine may hang instead of failing.
    pub hangs: bool,
    original: String,
    mutated: String,
}

impl Mutation {
    /// A part of the names of the stories about the mutation's rule: `w4_` for `w4_a_grace_period_grows`, `eviction`, a module
    /// of stories, for `eviction_of_all_pods_at_once`.
    pub fn rule(&self) -> &str {
        let word = self.name.split('_').next().unwrap_or_default();
        let is_rule = word.ends_with(|c: char| c.is_ascii_digit());
        self.name.get(..word.len() + usize::from(is_rule)).unwrap_or(word)
    }
}

/// Reads blocks of a name, a file, an optional `hangs`, the original lines after `-` and the mutated ones after `+`.
/// `#` starts a comment.
///
/// # Errors
/// If a block is incomplete, or two blocks have the same name.
pub fn read(path: &Path) -> Result<Vec<Mutation>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("read {}: {e}", path.display()))?;
    let mut mutations: Vec<Mutation> = Vec::new();
    for block in text.split("\n\n") {
        let lines: Vec<&str> = block.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty()).collect();
        let [name, file, rest @ ..] = lines.as_slice() else {
            if lines.is_empty() {
                continue;
            }
            return Err(format!("{block}: a name, a file, and what is to be replaced"));
        };
        let hangs = rest.first() == Some(&HANGS);
        let rest = if hangs { &rest[1..] } else { rest };
        let of = |sign: char| {
            let lines = rest.iter().filter_map(|l| l.strip_prefix(sign));
            lines.collect::<Vec<_>>().join("\n").trim().to_string()
        };
        let (name, file) = (name.to_string(), file.to_string());
        let mutation = Mutation { name, file, hangs, original: of('-'), mutated: of('+') };
        let name = &mutation.name;
        let known = rest.iter().all(|l| l.starts_with(['-', '+']));
        if mutation.original.is_empty() || !known || !rest.iter().any(|l| l.starts_with('+')) {
            return Err(format!("{name}: what is replaced (-), and with what (+)"));
        }
        if mutations.iter().any(|m| m.name == *name) {
            return Err(format!("{name} is there twice"));
        }
        mutations.push(mutation);
    }
    Ok(mutations)
}

/// Returns the source with all mutations of the file (number, mutation). Each is in force if
/// `crate::mutation::is(number)`.
///
/// # Errors
/// If an original text does not occur exactly once, or two overlap.
pub fn apply(source: &str, mutations: &[(usize, &Mutation)]) -> Result<String, String> {
    let mut places = Vec::new();
    for (number, m) in mutations {
        let found = find(source, &m.original);
        let [place] = found.as_slice() else {
            return Err(format!(
                "{}: its original text is {} times in src/{}, and has to be there once:\n{}",
                m.name,
                found.len(),
                m.file,
                m.original
            ));
        };
        places.push((place.clone(), *number, *m));
    }
    places.sort_by_key(|(place, ..)| place.start);
    let mut text = String::new();
    let mut at = 0;
    for (place, number, m) in places {
        if place.start < at {
            return Err(format!("{}: another mutation has changed a part of it", m.name));
        }
        text += &source[at..place.start];
        text += &replacement(&source[place.clone()], m, number);
        at = place.end;
    }
    Ok(text + &source[at..])
}

fn replacement(original: &str, m: &Mutation, number: usize) -> String {
    let is = format!("crate::mutation::is({number})");
    if m.mutated.contains("MUTATION") {
        return m.mutated.replace("MUTATION", &is);
    }
    let choice = format!("if {is} {{ {} }} else {{ {original} }}", m.mutated);
    if original.ends_with([';', '}']) { choice } else { format!("({choice})") }
}

/// The positions of a text. White space between words is ignored, because a formatter changes it.
fn find(source: &str, text: &str) -> Vec<Range<usize>> {
    let wanted: Vec<char> = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().collect();
    // The source with single spaces, and the original position of each character.
    let mut packed: Vec<(usize, char)> = Vec::new();
    for (at, c) in source.char_indices() {
        match (c.is_whitespace(), packed.last()) {
            (true, Some((_, ' '))) => {}
            (true, _) => packed.push((at, ' ')),
            (false, _) => packed.push((at, c)),
        }
    }
    let same = |i: &usize| packed[*i..].iter().map(|(_, c)| c).zip(&wanted).all(|(a, b)| a == b);
    let last = packed.len().saturating_sub(wanted.len());
    let found = (0..=last).filter(|_| wanted.len() <= packed.len()).filter(same);
    let range = |i: usize| {
        let (end, c) = packed[i + wanted.len() - 1];
        packed[i].0..end + c.len_utf8()
    };
    found.map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn each_mutation_fits_the_sources() {
        let project = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mutations = read(&project.join("tests/mutations/list")).unwrap();
        let mut by_file: BTreeMap<&str, Vec<(usize, &Mutation)>> = BTreeMap::new();
        for (i, mutation) in mutations.iter().enumerate() {
            by_file.entry(&mutation.file).or_default().push((i + 1, mutation));
        }
        let misfit = |(file, of_file): (&&str, &Vec<(usize, &Mutation)>)| {
            let source =
                std::fs::read_to_string(project.join("src").join(file)).map_err(|e| format!("src/{file}: {e}"));
            source.and_then(|source| apply(&source, of_file)).err()
        };
        let misfits: Vec<String> = by_file.iter().filter_map(misfit).collect();
        assert!(misfits.is_empty(), "tests/mutations/list: {}", misfits.join("\n"));
    }

    #[test]
    fn the_stories_of_a_mutation_are_those_of_its_rule_or_its_module() {
        let rule = |name: &str| {
            let (name, file) = (name.to_owned(), String::new());
            Mutation { name, file, hangs: false, original: String::new(), mutated: String::new() }.rule().to_owned()
        };
        assert_eq!([rule("w4_a_grace_period_grows"), rule("eviction_of_all_pods")], ["w4_", "eviction"]);
    }
}
