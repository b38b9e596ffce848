//! The sorts of the standard library are compiled for each type, so one place uses them (src/api/ordered.rs).

use super::room;

/// Whether a line calls a sort of the standard library.
fn sorts(line: &str) -> bool {
    ["(", "_by(", "_by_key(", "_by_cached_key(", "_unstable(", "_unstable_by(", "_unstable_by_key("]
        .iter()
        .any(|end| line.contains(&format!(".sort{end}")))
}

#[test]
fn one_place_uses_the_sorts_of_the_standard_library() {
    assert!(sorts("    names.sort();") && sorts("    pods.sort_unstable_by_key(|pod| pod.uid);"));
    let is_test = |path: &str| path.contains("tests/") || path.ends_with("tests.rs");
    let files = room("").into_iter().filter(|(path, _)| !is_test(path));
    let found: Vec<String> = files
        .flat_map(|(path, text)| {
            let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default().to_owned();
            let lines = code.lines().filter(|line| sorts(line)).map(|line| format!("{path}: {}", line.trim()));
            lines.collect::<Vec<String>>()
        })
        .collect();
    let expected = ["api/ordered.rs: indices.sort_by(|a, b| compare(*a, *b));"];
    assert_eq!(found, expected, "use OrderSlice (order, order_by, order_by_key)");
}
