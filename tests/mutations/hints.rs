//! Which story or life caught each mutation in an earlier run. It runs first, so that most mutations take a fraction of a second. A
//! wrong hint costs only time: then everything runs.

// The lists in clippy.toml apply only to `engine` and `api`. This file is also a test of its own.
#![allow(clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::path::Path;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// The whole name of a story.
    Story(String),
    /// A life of the ordinary random ones.
    Seed(u32),
}

/// By the names of the mutations.
pub type Hints = BTreeMap<String, Hint>;

impl Hint {
    fn parse(text: &str) -> Hint {
        match text.strip_prefix("seed ").and_then(|number| number.parse().ok()) {
            Some(seed) => Hint::Seed(seed),
            None => Hint::Story(text.to_owned()),
        }
    }

    /// From the message of a life that failed: `seed 71: ...`.
    pub fn of_life(message: &str) -> Option<Hint> {
        let number = message.strip_prefix("seed ")?;
        let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
        Some(Hint::Seed(number[..end].parse().ok()?))
    }
}

impl std::fmt::Display for Hint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Hint::Story(name) => f.write_str(name),
            Hint::Seed(seed) => write!(f, "seed {seed}"),
        }
    }
}

/// Lines of the form `MUTATION STORY` or `MUTATION seed NUMBER`. `#` starts a comment. Without the file there are no hints.
pub fn read(path: &Path) -> Hints {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(' ')).map(|(name, hint)| (name.to_owned(), Hint::parse(hint))).collect()
}

/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, hints: &Hints) -> Result<(), String> {
    let mut text =
        "# Written by `WHERRY_MUTATIONS_LEARN=1 make test-mutations`: what caught each mutation (see hints.rs).\n"
            .to_owned();
    hints.iter().for_each(|(name, hint)| text += &format!("{name} {hint}\n"));
    std::fs::write(path, text).map_err(|e| format!("write {}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_read_as_they_were_written() {
        let hints: Hints = [("w1_a", Hint::Story("stories::w1::a".to_owned())), ("w2_b", Hint::Seed(71))]
            .map(|(name, hint)| (name.to_owned(), hint))
            .into();
        let path = std::env::temp_dir().join(format!("wherry-hints-{}", std::process::id()));
        write(&path, &hints).unwrap();
        assert_eq!(read(&path), hints);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read(&path), Hints::new());
    }

    #[test]
    fn a_failed_life_is_a_hint() {
        assert_eq!(Hint::of_life("seed 71: C2: the server"), Some(Hint::Seed(71)));
        assert_eq!(Hint::of_life("the lives aborted"), None);
    }
}
