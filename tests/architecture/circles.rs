//! Circles of imports between the files of `src/`: files that use each other, directly or through others. Their number
//! and the size of the largest one may only fall. `mod x;` is no import; `use` is one, and so is a path to another file
//! in the code: `crate::a::b`, `super::a`, or `a::b` of a child `a`. Imports of tests do not count.

use super::room;
use std::collections::{BTreeMap, BTreeSet};

/// The circles of today. Lower these numbers when you have removed one or made the largest one smaller.
const CIRCLES: usize = 1;
const LARGEST: usize = 34;

/// The path of a module, from the root of the crate: `["agent", "kube"]`.
type Module = Vec<String>;

/// The module of a file. None: a test, or the root of a crate.
fn module_of(file: &str) -> Option<Module> {
    let path = file.strip_suffix(".rs")?;
    let path = path.strip_suffix("/mod").unwrap_or(path);
    let is_module = !path.starts_with("pure/") && !path.contains("tests") && !["lib", "main"].contains(&path);
    is_module.then(|| path.split('/').map(str::to_owned).collect())
}

/// The code before the tests at the end of a file.
fn without_tests(text: &str) -> &str {
    text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default()
}

fn segments(path: &str) -> Vec<String> {
    path.split("::").map(str::trim).filter(|segment| !segment.is_empty()).map(str::to_owned).collect()
}

/// The paths of a `use`: `a::{b, c::{d, e}}` has `a::b`, `a::c::d` and `a::c::e`.
fn paths_of_tree(prefix: &[String], tree: &str, out: &mut Vec<Module>) {
    let tree = tree.trim();
    let Some((head, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        return out.push([prefix, &segments(path)].concat());
    };
    let prefix = [prefix, &segments(head)].concat();
    let inner = rest.trim_end().strip_suffix('}').unwrap_or(rest);
    let (mut depth, mut start) = (0, 0);
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                paths_of_tree(&prefix, &inner[start..at], out);
                start = at + 1;
            }
            _ => {}
        }
    }
    if !inner[start..].trim().is_empty() {
        paths_of_tree(&prefix, &inner[start..], out);
    }
}

/// The tree of a `use` that begins in this line.
fn begin_of_use(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let after_visibility = match line.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ")?.1,
        None => line.strip_prefix("pub ").unwrap_or(line),
    };
    after_visibility.strip_prefix("use ")
}

/// All paths in the code: of its `use`s, and those that are written out.
fn paths(code: &str) -> Vec<Module> {
    let mut found = Vec::new();
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        if let Some(begin) = begin_of_use(line) {
            let mut tree = begin.to_owned();
            while !tree.ends_with(';') {
                let Some(line) = lines.next() else { break };
                tree.push_str(line);
            }
            paths_of_tree(&[], tree.trim_end_matches(';'), &mut found);
            continue;
        }
        // (A visibility is no import.)
        let line = line.replace("(in crate::", "(in ");
        let words = line.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
        found.extend(words.filter(|word| !word.starts_with(':')).map(segments).filter(|path| path.len() > 1));
    }
    found
}

/// The modules that a module imports.
fn imports(module: &Module, code: &str, modules: &BTreeSet<Module>) -> BTreeSet<Module> {
    let absolute = |path: Module| -> Option<Module> {
        let ups = path.iter().take_while(|segment| *segment == "super").count();
        match path[0].as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some([module, &path[1..]].concat()),
            _ if ups > 0 => Some([&module[..module.len().checked_sub(ups)?], &path[ups..]].concat()),
            child => {
                let is_child = modules.contains(&[module.as_slice(), &[child.to_owned()]].concat());
                is_child.then(|| [module.as_slice(), &path].concat())
            }
        }
    };
    // The longest part of the path that is a module.
    let file = |path: Module| (1..=path.len()).rev().map(|n| path[..n].to_vec()).find(|part| modules.contains(part));
    let imported = paths(without_tests(code)).into_iter().filter_map(absolute).filter_map(file);
    imported.filter(|imported| imported != module).collect()
}

/// The groups of at least two modules that reach each other, the largest one first.
fn circles(files: &[(String, String)]) -> Vec<BTreeSet<Module>> {
    let codes: BTreeMap<Module, &str> =
        files.iter().filter_map(|(file, code)| Some((module_of(file)?, code.as_str()))).collect();
    let modules: BTreeSet<Module> = codes.keys().cloned().collect();
    let imported: BTreeMap<&Module, BTreeSet<Module>> =
        codes.iter().map(|(module, code)| (module, imports(module, code, &modules))).collect();
    let reached = |from: &Module| {
        let mut reached = BTreeSet::new();
        let mut rest: Vec<&Module> = imported[from].iter().collect();
        while let Some(module) = rest.pop() {
            if reached.insert(module.clone()) {
                rest.extend(&imported[module]);
            }
        }
        reached
    };
    let reached: BTreeMap<&Module, BTreeSet<Module>> = modules.iter().map(|m| (m, reached(m))).collect();
    let circle = |module: &Module| -> BTreeSet<Module> {
        reached[module].iter().filter(|other| reached[other].contains(module)).cloned().collect()
    };
    let all: BTreeSet<BTreeSet<Module>> = modules.iter().map(circle).filter(|circle| circle.len() > 1).collect();
    let mut all: Vec<BTreeSet<Module>> = all.into_iter().collect();
    all.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    all
}

fn shown(circles: &[BTreeSet<Module>]) -> Vec<String> {
    let names = |circle: &BTreeSet<Module>| circle.iter().map(|m| m.join("::")).collect::<Vec<_>>().join(", ");
    circles.iter().map(|circle| format!("{}: {}", circle.len(), names(circle))).collect()
}

#[test]
fn circles_of_imports_do_not_grow() {
    let circles = circles(&room(""));
    let largest = circles.first().map_or(0, BTreeSet::len);
    assert_eq!(
        (circles.len(), largest),
        (CIRCLES, LARGEST),
        "circles of imports, and files of the largest one: more than before, or fewer: {:#?}",
        shown(&circles)
    );
}

#[test]
fn a_circle_is_found_in_every_form_of_an_import() {
    let found = |files: &[(&str, &str)]| {
        let files: Vec<_> = files.iter().map(|(file, code)| ((*file).to_owned(), (*code).to_owned())).collect();
        shown(&circles(&files))
    };
    let two = ["2: a, a::b"];
    // The parent only declares the child.
    let child = ("a/b.rs", "use super::{\n    C,\n    d as e,\n};\n");
    assert!(found(&[("a/mod.rs", "mod b;\npub struct C;\n"), child]).is_empty());
    for code in
        ["use b::X;", "pub(super) use self::b::X;", "use crate::{a::{b::{X, Y}}};", "fn f(x: crate::a::b::X) {}"]
    {
        assert_eq!(found(&[("a/mod.rs", code), child]), two, "{code}");
    }
    assert_eq!(found(&[("a/mod.rs", "struct C {\n    b: Vec<b::X>,\n}\n"), child]), two);
    for code in
        ["#[cfg(test)]\nmod tests {\n    use super::b::X;\n}\n", "pub(in crate::a::b) fn f() {}", "use std::b::X;"]
    {
        assert!(found(&[("a/mod.rs", &format!("mod b;\n\n{code}")), child]).is_empty(), "{code}");
    }
    // A circle of three files, and a file that only uses them.
    let three = [
        ("a.rs", "use crate::b::c::X;"),
        ("b/c.rs", "use super::super::d::Y;"),
        ("d.rs", "fn f() {\n    crate::a::g();\n}\n"),
        ("e.rs", "use crate::a::g;"),
    ];
    assert_eq!(found(&three), ["3: a, b::c, d"]);
}
