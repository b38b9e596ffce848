//! Documents that define the same object.

use crate::api::names::FullName;
use crate::api::problem::Problem;
use crate::api::source::Source;
use std::collections::BTreeMap;

/// Returns a problem for each document that has the kind and the name of an earlier one, which is in force (D6).
/// `all`: the kind, the name and the place of each document.
pub fn find<'a>(all: impl Iterator<Item = (&'static str, &'a FullName, &'a Source)>) -> Vec<Problem> {
    let mut first: BTreeMap<(&str, &FullName), &Source> = BTreeMap::new();
    let mut problems = Vec::new();
    for (kind, name, source) in all {
        let Some(Source { path, document }) = first.get(&(kind, name)) else {
            first.insert((kind, name), source);
            continue;
        };
        // Some kinds have no namespaces.
        let shown = if name.namespace.is_empty() { name.name.to_string() } else { name.to_string() };
        let message =
            format!("Duplicate value: \"{shown}\": the {kind} in {path} (document {document}) is in force; change one");
        let field = Some("metadata.name".to_owned());
        problems.push(Problem { path: source.path.clone(), document: source.document, line: None, field, message });
    }
    problems
}
