//! Adds a cluster, a user and a context of the same name to a kubeconfig (`kind: Config`, apiVersion v1), and changes
//! nothing else. Unknown fields, other entries and the order of both are kept. Comments are lost, and anchors are
//! expanded.

use crate::config::yaml::{self, MapEntry, Node, Value};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::ser::{Serialize, SerializeMap as _, Serializer};

/// The content of the new entries. Certificates and the key are in PEM.
pub(super) struct KubeconfigEntries<'a> {
    /// The name of the context, of the cluster and of the user.
    pub context: &'a str,
    pub server: &'a str,
    /// The name in the server's certificate, if it is not the host of `server`.
    pub tls_name: Option<&'a str>,
    pub namespace: Option<&'a str>,
    pub authority: &'a str,
    pub certificate: &'a str,
    pub key: &'a str,
}

/// Fields of an existing entry that are kept when it is replaced. All others may describe another server or another
/// identity: a token or `insecure-skip-tls-verify` next to the certificates would make kubectl fail.
const KEPT: [&str; 2] = ["extensions", "proxy-url"];

/// Parses the text of a kubeconfig. An empty text has no entries.
///
/// # Errors
/// The message names the line and what is wrong there.
pub(super) fn parse(text: &str) -> Result<Vec<MapEntry>, String> {
    let mut documents = yaml::read(text).map_err(|e| at(e.line, &e.message))?;
    if documents.len() > 1 {
        return Err(at(documents[1].line, "a second document; a kubeconfig has one"));
    }
    let Some(document) = documents.pop() else { return Ok(Vec::new()) };
    let entries = match document.value {
        Value::Map(entries) => entries,
        Value::Null => Vec::new(),
        other => return Err(at(document.line, &format!("expected a kubeconfig, found {}", other.describe()))),
    };
    for (key, expected) in HEAD {
        if let Some(entry) = entries.iter().find(|e| e.key == key)
            && entry.node.value != Value::Text(expected.to_owned())
        {
            let found = entry.node.value.describe();
            return Err(at(entry.line, &format!("{key}: expected {expected} (a kubeconfig), found {found}")));
        }
    }
    Ok(entries)
}

const HEAD: [(&str, &str); 2] = [("apiVersion", "v1"), ("kind", "Config")];

fn at(line: u64, message: &str) -> String {
    if line == 0 { message.to_owned() } else { format!("line {line}: {message}") }
}

/// Adds the entries to a kubeconfig, or replaces those of the same name. Makes the new context the current one if
/// there is no current context, or if `select` is set.
///
/// # Errors
/// A field has the wrong type; the message names its line.
pub(super) fn merge(
    mut document: Vec<MapEntry>,
    access: &KubeconfigEntries<'_>,
    select: bool,
) -> Result<Vec<MapEntry>, String> {
    for (at, (key, value)) in HEAD.into_iter().enumerate() {
        if document.iter().all(|e| e.key != key) {
            document.insert(at.min(document.len()), entry(key, text_node(value)));
        }
    }
    let data = |pem: &str| STANDARD.encode(pem);
    let mut cluster = vec![("server", access.server.to_owned())];
    cluster.extend(access.tls_name.map(|name| ("tls-server-name", name.to_owned())));
    cluster.push(("certificate-authority-data", data(access.authority)));
    let user = vec![("client-certificate-data", data(access.certificate)), ("client-key-data", data(access.key))];
    let mut context = vec![("cluster", access.context.to_owned()), ("user", access.context.to_owned())];
    context.extend(access.namespace.map(|namespace| ("namespace", namespace.to_owned())));
    for (list, kind, fields, kept) in [
        ("clusters", "cluster", cluster, &KEPT[..]),
        ("users", "user", user, &KEPT[..1]),
        // A namespace that the user has chosen is kept.
        ("contexts", "context", context, &["namespace", "extensions"][..]),
    ] {
        put(&mut document, list, kind, access.context, fields, kept)?;
    }
    let current = match document.iter_mut().find(|e| e.key == "current-context") {
        Some(current) => current,
        None => {
            document.push(entry("current-context", text_node("")));
            let last = document.len() - 1;
            &mut document[last]
        }
    };
    let is_set = !matches!(&current.node.value, Value::Null) && current.node.value.text() != Some("");
    if select || !is_set {
        current.node = text_node(access.context);
    }
    Ok(document)
}

/// Replaces the object of the entry `name` in `list`, or appends an entry.
fn put(
    document: &mut Vec<MapEntry>,
    list: &str,
    kind: &str,
    name: &str,
    fields: Vec<(&str, String)>,
    kept: &[&str],
) -> Result<(), String> {
    if document.iter().all(|e| e.key != list) {
        document.push(entry(list, node(Value::Null)));
    }
    let Some(MapEntry { line, node: there, .. }) = document.iter_mut().find(|e| e.key == list) else { return Ok(()) };
    if there.value == Value::Null {
        there.value = Value::List(Vec::new());
    }
    let found = there.value.describe();
    let Value::List(items) = &mut there.value else {
        return Err(at(*line, &format!("{list}: expected a list, found {found}")));
    };
    let mut new: Vec<MapEntry> = fields.into_iter().map(|(key, value)| entry(key, text_node(&value))).collect();
    let mut existing = None;
    for item in &mut *items {
        let found = item.value.describe();
        let Value::Map(entries) = &mut item.value else {
            return Err(at(item.line, &format!("{list}: expected a map with the key name, found {found}")));
        };
        if entries.iter().any(|e| e.key == "name" && e.node.value.text() == Some(name)) {
            existing = Some(entries);
            break;
        }
    }
    let Some(entries) = existing else {
        items.push(node(Value::Map(vec![entry("name", text_node(name)), entry(kind, node(Value::Map(new)))])));
        return Ok(());
    };
    match entries.iter_mut().find(|e| e.key == kind) {
        Some(object) => {
            if let Value::Map(old) = &object.node.value {
                let is_new = |e: &MapEntry| new.iter().any(|n| n.key == e.key);
                let stays: Vec<MapEntry> =
                    old.iter().filter(|e| kept.contains(&e.key.as_str()) && !is_new(e)).cloned().collect();
                new.extend(stays);
            }
            object.node = node(Value::Map(new));
        }
        None => entries.push(entry(kind, node(Value::Map(new)))),
    }
    Ok(())
}

fn node(value: Value) -> Node {
    Node { line: 0, value }
}

fn text_node(text: &str) -> Node {
    node(Value::Text(text.to_owned()))
}

fn entry(key: &str, node: Node) -> MapEntry {
    MapEntry { key: key.to_owned(), line: 0, node }
}

/// Returns the kubeconfig as YAML. Strings that a YAML parser could take for another type are quoted.
///
/// # Errors
/// The YAML library reports an error.
pub(super) fn text(document: &[MapEntry]) -> Result<String, String> {
    let options = serde_saphyr::ser_options! {
        // Keeps base64 on one line.
        prefer_block_scalars: false,
    };
    serde_saphyr::to_string_with_options(&Written(&Value::Map(document.to_vec())), options)
        .map_err(|e| format!("cannot write YAML: {e}"))
}

/// A value that serialises its entries in their own order.
struct Written<'a>(&'a Value);

impl Serialize for Written<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Null => s.serialize_unit(),
            Value::Bool(b) => s.serialize_bool(*b),
            Value::Int(n) => s.serialize_i64(*n),
            Value::Float(n) => s.serialize_f64(*n),
            Value::Text(text) => s.serialize_str(text),
            Value::List(items) => s.collect_seq(items.iter().map(|item| Written(&item.value))),
            Value::Map(entries) => {
                let mut map = s.serialize_map(Some(entries.len()))?;
                for entry in entries {
                    map.serialize_entry(&entry.key, &Written(&entry.node.value))?;
                }
                map.end()
            }
        }
    }
}

#[cfg(test)]
mod tests;
