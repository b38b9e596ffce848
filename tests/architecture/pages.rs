//! The pages in docs/: none is too large to be read at once, and README.md lists each of them.

use std::fs;
use std::path::{Path, PathBuf};

/// The maximum size of a page, in bytes.
const LARGEST: usize = 25_000;

/// The name and the text of each page in docs/.
fn pages() -> Vec<(String, String)> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let paths = fs::read_dir(docs).unwrap().map(|entry| entry.unwrap().path());
    let paths = paths.filter(|path| path.extension().is_some_and(|e| e == "md"));
    let read = |path: PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(&path).unwrap())
    };
    let pages: Vec<(String, String)> = paths.map(read).collect();
    assert!(pages.len() > 15, "only {} pages were found", pages.len());
    pages
}

#[test]
fn no_page_is_larger_than_25_000_bytes() {
    let pages = pages();
    let sizes = pages.iter().map(|(name, text)| (name, text.len()));
    let large: Vec<_> = sizes.filter(|(_, size)| *size > LARGEST).collect();
    assert!(large.is_empty(), "split these pages: {large:?}");
}

#[test]
fn the_readme_lists_every_page() {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let (_, documents) = readme.split_once("\n## Documents\n").expect("README.md has the section Documents");
    let unlisted = |name: &String| !documents.contains(&format!("](docs/{name})"));
    let missing: Vec<String> = pages().into_iter().map(|(name, _)| name).filter(unlisted).collect();
    assert!(missing.is_empty(), "not in the section Documents of README.md: {missing:?}");
}
