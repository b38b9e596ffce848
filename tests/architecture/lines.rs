//! Lines are short enough to be read beside each other: 120 columns in `src/`, 130 in the prose of the documents. Rows of
//! tables and indented blocks (output as it is printed) are excepted.

use super::sources;
use std::fs;
use std::path::{Path, PathBuf};

/// `file:line` of each line that is longer than `most` characters.
fn longer(path: &Path, most: usize, counts: impl Fn(&str) -> bool) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().enumerate().filter(|(_, line)| line.chars().count() > most && counts(line));
    lines.map(|(index, _)| format!("{}:{}", path.display(), index + 1)).collect()
}

#[test]
fn lines_of_the_source_have_at_most_120_columns() {
    let mut paths = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut paths);
    assert!(paths.len() > 400, "only {} files", paths.len());
    let long: Vec<String> = paths.iter().flat_map(|path| longer(path, 120, |_| true)).collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn lines_of_the_documents_have_at_most_130_columns() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"].map(|name| root.join(name));
    let is_page = |path: &PathBuf| path.extension().is_some_and(|e| e == "md") && path.exists();
    let pages: Vec<PathBuf> = docs.chain(pages).filter(is_page).collect();
    assert!(pages.len() > 15, "only {} pages", pages.len());
    let is_prose = |line: &str| !line.starts_with('|') && !line.starts_with("    ");
    let long: Vec<String> = pages.iter().flat_map(|path| longer(path, 130, is_prose)).collect();
    assert!(long.is_empty(), "{long:#?}");
}
