//! The storage classes: where the claims of this machine have their directories.

use crate::api::storage_class::{ReclaimPolicy, StorageClass};
use crate::api::validate;
use crate::config::field_value::Wrong;
use crate::config::yaml::{Node, Value};

/// Sets `storageClasses`, a list of objects. The table has checked the types.
pub fn classes(c: &mut Vec<StorageClass>, list: &Node, wrong: Wrong) {
    let Value::List(entries) = &list.value else { return };
    let mut classes: Vec<StorageClass> = Vec::new();
    for (i, entry) in entries.iter().enumerate() {
        let text = |field: &str| match entry.value.get(field) {
            Some(Node { line, value: Value::Text(text) }) => (*line, text.as_str()),
            _ => (entry.line, ""),
        };
        let ((name_line, name), (line, directory)) = (text("name"), text("directory"));
        let at_name = format!("[{i}].name");
        if let Some(why) = validate::subdomain(name).into_iter().next() {
            wrong(name_line, &at_name, format!("Invalid value: {name:?}: {why}"));
        } else if classes.iter().any(|other| other.name == name) {
            wrong(name_line, &at_name, format!("Duplicate value: {name:?}; remove one of them"));
        } else if let Err(why) = check_directory(directory) {
            wrong(line, &format!("[{i}].directory"), why);
        } else {
            let reclaim_policy = match text("reclaimPolicy").1 {
                "Delete" => ReclaimPolicy::Delete,
                _ => ReclaimPolicy::Retain,
            };
            let directory = directory.trim_end_matches('/').to_owned();
            classes.push(StorageClass { name: name.to_owned(), directory, reclaim_policy });
        }
    }
    *c = classes;
}

fn check_directory(path: &str) -> Result<(), String> {
    if path.is_empty() {
        return Err("Required value: the directory below which the claims have theirs".to_owned());
    }
    let is_plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    let parts = path.strip_prefix('/').map(|rest| rest.trim_end_matches('/'));
    match parts {
        None => Err(format!("{path:?} must be an absolute path")),
        Some("") => Err(format!("{path:?} must be a directory below the root of the file system")),
        Some(rest) if rest.split('/').all(is_plain) => Ok(()),
        Some(_) => Err(format!("{path:?} must not contain '.', '..' or '//'")),
    }
}
