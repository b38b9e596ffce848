//! Checks docs/limits.md: each row of its table names a limit and a test that exists.

use super::sources;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rows(text: &str) -> Vec<Vec<&str>> {
    let cells = |line: &'_ str| -> bool { line.starts_with('|') && !line.starts_with("|---") };
    let split = |line| -> Vec<&str> { str::trim_matches(line, '|').split('|').map(str::trim).collect() };
    text.lines().filter(|line| cells(line)).skip(1).map(split).collect()
}

/// The words in backquotes that are names of tests: in lower case, with underlines.
fn tests_in(cell: &str) -> Vec<&str> {
    let is_name = |word: &&str| {
        word.contains('_') && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    cell.split('`').skip(1).step_by(2).filter(is_name).collect()
}

/// The functions of all tests.
fn functions() -> BTreeSet<String> {
    let mut paths = Vec::new();
    for dir in ["src", "tests"] {
        sources(&root().join(dir), &mut paths);
    }
    let texts = paths.iter().map(|path| fs::read_to_string(path).unwrap());
    let after_fn = |text: String| -> Vec<String> {
        text.split("fn ").skip(1).filter_map(|after| Some(after.split_once('(')?.0.to_owned())).collect()
    };
    texts.flat_map(after_fn).collect()
}

#[test]
fn each_row_names_a_limit_and_a_test_that_exists() {
    let text = fs::read_to_string(root().join("docs/limits.md")).unwrap();
    let functions = functions();
    let rows = rows(&text);
    assert!(rows.len() > 20, "the table has {} rows", rows.len());
    for row in rows {
        assert_eq!(row.len(), 4, "party, what it can grow or repeat, limit, test: {row:?}");
        assert!(!row[1].is_empty() && !row[2].is_empty(), "{row:?}");
        let tests = tests_in(row[3]);
        assert!(!tests.is_empty(), "no test in {row:?}");
        for test in tests {
            assert!(functions.contains(test), "docs/limits.md names the test {test}, which does not exist");
        }
    }
}
