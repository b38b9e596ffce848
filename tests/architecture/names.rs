//! A name of a type says of what it is, so that a search finds the type: `ReadProgress` instead of a tenth `Progress`.
//! Names that are defined in many places may only become fewer. Tests are excepted.

use super::room;
use std::collections::BTreeMap;

/// The number of definitions that makes a name too general.
const MANY: usize = 4;

/// The number of such names. It may only fall: a lower number has to be written here.
const TODAY: usize = 9;

/// The name that a line defines. Indented lines with `type` are the associated types of implementations.
fn defined(line: &str) -> Option<&str> {
    let code = line.trim_start();
    let mut words = code.split(' ').skip_while(|word| word.starts_with("pub") || word.ends_with(')'));
    let is_definition = match words.next()? {
        "struct" | "enum" | "trait" => true,
        "type" => code.len() == line.len(),
        _ => false,
    };
    let name = words.next()?.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (is_definition && name.starts_with(char::is_uppercase)).then_some(name)
}

/// The names with many definitions, and the files of these.
fn general(files: &[(String, String)]) -> BTreeMap<&str, Vec<&str>> {
    let mut names: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (path, text) in files {
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        for name in code.lines().filter_map(defined) {
            names.entry(name).or_default().push(path);
        }
    }
    names.retain(|_, places| places.len() >= MANY);
    names
}

#[test]
fn names_of_types_with_many_definitions_do_not_become_more() {
    let is_test = |path: &str| path.contains("tests/") || path.ends_with("tests.rs");
    let files: Vec<(String, String)> = room("").into_iter().filter(|(path, _)| !is_test(path)).collect();
    let found = general(&files);
    assert_eq!(found.len(), TODAY, "more than before: say of what the type is; or fewer: lower the number: {found:#?}");
}

#[test]
fn a_name_with_many_definitions_is_found() {
    let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let mut files = vec![
        file("a.rs", "pub struct State {\n    x: u8,\n}\n\nimpl Iterator for State {\n    type Item = u8;\n}\n"),
        file("b.rs", "pub(in crate::adapters) enum State<W> {\n}\n\n#[cfg(test)]\nmod tests {\n    struct State;\n}\n"),
        file("c.rs", "type State = Option<u8>;\n"),
    ];
    assert!(general(&files).is_empty());
    files.push(file("d.rs", "fn run() {\n    trait State {}\n}\n"));
    assert_eq!(general(&files), BTreeMap::from([("State", vec!["a.rs", "b.rs", "c.rs", "d.rs"])]));
}
