//! `make test-unit` names its test programs; each one of Cargo.toml that a plain `cargo test` runs is among them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[test]
fn make_test_unit_runs_every_test_program() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| fs::read_to_string(project.join(name)).unwrap();
    let mut expected = BTreeSet::new();
    for file in ["Cargo.toml", "src/pure/api/Cargo.toml", "src/pure/engine/Cargo.toml"] {
        let text = read(file);
        let sections = text.split("\n[").filter(|section| section.starts_with("[test]]"));
        for section in sections.filter(|section| !section.contains("\ntest = false")) {
            let name = section.lines().find_map(|line| line.strip_prefix("name = ")).expect("each test has a name");
            expected.insert(name.trim_matches('"').to_owned());
        }
    }
    let makefile = read("Makefile");
    let named = makefile.lines().find_map(|line| line.strip_prefix("SUITES := ")).expect("the Makefile has SUITES");
    let named: BTreeSet<String> = named.split_whitespace().map(str::to_owned).collect();
    assert_eq!(named, expected);
}
