//! Checks the rule numbers: the pages docs/behaviour*.md define each rule that the code or a test cites, and the name of at
//! least one test contains each rule.

use super::sources;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The letters of the chapters.
const CHAPTERS: &str = "DWPASIELRGCY";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The pages of the specification: docs/behaviour.md and docs/behaviour-*.md.
fn specification() -> Vec<PathBuf> {
    let is_page = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("behaviour") && name.ends_with(".md")
    };
    let entries = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages: Vec<PathBuf> = entries.filter(is_page).collect();
    assert!(pages.len() > 1, "the pages of the specification are missing: {pages:?}");
    pages
}

/// The definitions of the specification. A definition is a list item that begins with the number in bold.
fn definitions() -> Vec<String> {
    let text: String = specification().iter().map(|page| read(page)).collect();
    let number = |line: &str| Some(line.strip_prefix("- **")?.split_once("**")?.0.to_owned());
    text.lines().filter_map(number).collect()
}

/// The rules whose citations and tests are checked.
fn defined() -> Vec<String> {
    definitions().into_iter().filter(|n| is_number(n)).collect()
}

fn is_number(word: &str) -> bool {
    let mut letters = word.chars();
    let chapter = letters.next().is_some_and(|c| CHAPTERS.contains(c));
    let digits = letters.as_str();
    chapter && matches!(digits.len(), 1 | 2) && digits.bytes().all(|b| b.is_ascii_digit())
}

/// All Rust sources, and tests/mutations/list. Other files, such as recordings of other programs, do not cite rules.
fn texts() -> Vec<(PathBuf, String)> {
    let mut paths = Vec::new();
    for dir in ["src", "tests"] {
        sources(&root().join(dir), &mut paths);
    }
    paths.push(root().join("tests/mutations/list"));
    assert!(paths.len() > 100, "the paths in this test are wrong: {paths:?}");
    paths.into_iter().map(|p| (p.strip_prefix(root()).unwrap().to_owned(), read(&p))).collect()
}

/// The rules in the name of a test or of a mutation: `w8_w27_a_drain_holds_back...` contains W8 and W27.
fn rules_in_name(name: &str) -> impl Iterator<Item = String> {
    name.split('_').map(str::to_ascii_uppercase).take_while(|word| is_number(word))
}

fn test_names(text: &str) -> impl Iterator<Item = &str> {
    text.split("#[test]").skip(1).filter_map(|after| Some(after.split_once("fn ")?.1.split_once('(')?.0))
}

#[test]
fn no_rule_is_defined_twice() {
    let all = definitions();
    let distinct: BTreeSet<&String> = all.iter().collect();
    assert!(all.len() > 40, "docs/behaviour*.md define {all:?}");
    assert_eq!(distinct.len(), all.len(), "a rule is defined twice: {all:?}");
}

#[test]
fn every_cited_rule_is_defined() {
    let defined: BTreeSet<String> = defined().into_iter().collect();
    let mut undefined: BTreeMap<String, PathBuf> = BTreeMap::new();
    for (path, text) in texts() {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| is_number(w)).map(str::to_owned);
        let names = test_names(&text).flat_map(rules_in_name);
        for rule in words.chain(names).filter(|rule| !defined.contains(rule)) {
            undefined.insert(rule, path.clone());
        }
    }
    assert!(undefined.is_empty(), "not in docs/behaviour*.md: {undefined:?}");
}

#[test]
fn a_test_names_every_rule() {
    let named: BTreeSet<String> =
        texts().iter().flat_map(|(_, text)| test_names(text).flat_map(rules_in_name).collect::<Vec<_>>()).collect();
    let unnamed: Vec<String> = defined().into_iter().filter(|rule| !named.contains(rule)).collect();
    assert!(unnamed.is_empty(), "docs/behaviour*.md define rules that no test names: {unnamed:?}");
}
