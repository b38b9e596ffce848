//! Links of the documents lead somewhere: to a file of this repository, and to a heading of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn pages() -> Vec<PathBuf> {
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let others = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path());
    docs.chain(others).filter(|path| path.extension().is_some_and(|e| e == "md")).collect()
}

/// The targets of the links in a text: `TARGET` of `[text](TARGET)`, without those to other hosts.
fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
    targets.filter(|target| !target.contains("://") && !target.contains(' ')).collect()
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let anchor = |heading: &str| -> String {
        let kept = heading.to_lowercase().replace(' ', "-");
        kept.chars().filter(|c| c.is_alphanumeric() || *c == '-' || *c == '_').collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn links_of_the_documents_lead_to_files_and_headings() {
    let (mut count, mut broken) = (0, Vec::new());
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&text) {
            count += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { page.clone() } else { page.parent().unwrap().join(path) };
            let has_anchor = |target: &Path| anchors(&fs::read_to_string(target).unwrap()).contains(anchor);
            if !target.exists() || !anchor.is_empty() && !has_anchor(&target) {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(count > 100, "only {count} links were found");
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn anchors_are_those_of_github() {
    let found = anchors("# Wherry\n## As a node: `join`, and *leave*\ntext\n");
    assert_eq!(found, ["as-a-node-join-and-leave".to_owned(), "wherry".to_owned()].into());
    assert_eq!(links("see [a](b.md#c) and [d](https://e)"), ["b.md#c"]);
}
