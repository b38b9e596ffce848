//! Functions fit a screen: at most 60 lines, with their signature and comments. Tests are excepted.

use super::sources;
use std::fs;
use std::path::Path;

const MOST: usize = 60;

/// The functions in formatted source text: the number of the first line, the number of lines, and the signature.
fn functions(text: &str) -> Vec<(usize, usize, &str)> {
    let lines: Vec<&str> = text.lines().collect();
    let of_tests =
        |at: &usize| lines[*at] == "#[cfg(test)]" && lines.get(at + 1).is_some_and(|l| l.starts_with("mod "));
    let end = (0..lines.len()).find(of_tests).unwrap_or(lines.len());
    let mut found = Vec::new();
    for (at, line) in lines[..end].iter().enumerate() {
        let signature = line.trim_start();
        let indent = &line[..line.len() - signature.len()];
        let words = signature.split(' ').take_while(|word| *word != "fn");
        let is_function = signature.contains("fn ")
            && words.clone().count() < 4
            && words.clone().all(|w| w.starts_with("pub") || w.starts_with("in") || ["const", "unsafe"].contains(&w));
        if is_function && !line.ends_with('}') && !line.ends_with(';') {
            let closing = format!("{indent}}}");
            let length = lines[at..].iter().position(|l| *l == closing || *l == format!("{indent});"));
            found.push((at + 1, length.map_or(0, |length| length + 1), *line));
        }
    }
    found
}

#[test]
fn functions_have_at_most_60_lines() {
    let mut paths = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut paths);
    paths.retain(|path| !path.to_string_lossy().contains("tests"));
    let (mut count, mut long) = (0, Vec::new());
    for path in &paths {
        let text = fs::read_to_string(path).unwrap();
        for (line, length, signature) in functions(&text) {
            count += 1;
            if length > MOST {
                long.push(format!("{}:{line}: {length} lines: {}", path.display(), signature.trim()));
            }
        }
    }
    assert!(count > 4000, "only {count} functions were found");
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn a_long_function_is_found() {
    let body = "    let x = 1;\n".repeat(MOST - 1);
    let text = format!("pub(super) fn long(\n    a: u8,\n) -> u8 {{\n{body}}}\n\nfn short() {{\n    long(1);\n}}\n");
    let lengths: Vec<usize> = functions(&text).iter().map(|(_, length, _)| *length).collect();
    assert_eq!(lengths, [MOST + 3, 3]);
}
