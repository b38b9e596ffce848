//! Errors in a document, with the information needed to correct them: file, line, field and remedy.

use std::borrow::Cow;
use std::fmt;

/// The maximum length of a value or field name in an error, in characters.
const MAX_SHOWN: usize = 200;

/// Truncates a string for use in an error. Values in manifests can be as large as a megabyte.
pub(crate) fn brief(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => Cow::Owned(format!("{}...", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// One error of a manifest file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The path of the file.
    pub path: String,
    /// The document in the file, from 1 (an item of a List counts as one); 0 for an error of the whole file.
    pub document: u32,
    /// The line, from 1. None if no line applies.
    pub line: Option<u32>,
    /// The field path, for example `spec.containers[0].image`.
    pub field: Option<String>,
    pub message: String,
}

impl Problem {
    /// Returns an error of the whole file.
    pub fn of_file(path: &str, message: impl Into<String>) -> Problem {
        Problem { path: path.to_owned(), document: 0, line: None, field: None, message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        match self.line {
            Some(line) => write!(f, ":{line}: ")?,
            None if self.document > 1 => write!(f, ": document {}: ", self.document)?,
            None => f.write_str(": ")?,
        }
        if let Some(field) = &self.field {
            write!(f, "{field}: ")?;
        }
        f.write_str(&self.message)
    }
}

/// One step to a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldStep {
    /// A field of an object: `.name`.
    Field(String),
    /// An entry of a map with arbitrary keys: `[cpu]`.
    Key(String),
    /// A key that is not shown: `[...]`.
    HiddenKey(String),
    /// An item of a list: `[0]`.
    Item(usize),
}

/// The path to a field from the root of the document. `Display` uses the notation of Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldPath(pub Vec<FieldStep>);

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.0.iter().enumerate() {
            match step {
                FieldStep::Field(name) if i == 0 => f.write_str(&brief(name))?,
                FieldStep::Field(name) => write!(f, ".{}", brief(name))?,
                FieldStep::Key(key) => write!(f, "[{}]", brief(key))?,
                FieldStep::HiddenKey(_) => f.write_str("[...]")?,
                FieldStep::Item(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// The current position in a walk through a document, as a linked list on the stack. It is converted to a `FieldPath`
/// only for an error.
#[derive(Clone, Copy)]
pub(crate) enum At<'a> {
    Root,
    Field(&'a At<'a>, &'a str),
    Key(&'a At<'a>, &'a str),
    Item(&'a At<'a>, usize),
}

impl<'a> At<'a> {
    pub(crate) fn field(&'a self, name: &'a str) -> At<'a> {
        At::Field(self, name)
    }

    pub(crate) fn key(&'a self, key: &'a str) -> At<'a> {
        At::Key(self, key)
    }

    pub(crate) fn item(&'a self, index: usize) -> At<'a> {
        At::Item(self, index)
    }

    pub(crate) fn path(&self) -> FieldPath {
        let mut steps = Vec::new();
        let mut here = self;
        loop {
            here = match here {
                At::Root => break,
                At::Field(up, name) => {
                    steps.push(FieldStep::Field((*name).to_owned()));
                    up
                }
                At::Key(up, key) => {
                    steps.push(FieldStep::Key((*key).to_owned()));
                    up
                }
                At::Item(up, index) => {
                    steps.push(FieldStep::Item(*index));
                    up
                }
            };
        }
        steps.reverse();
        FieldPath(steps)
    }
}

/// An error at a field, before its line is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) at: FieldPath,
    pub(crate) what: What,
}

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Kubernetes has the field, but it is not implemented yet.
    NotYet,
    /// As `NotYet`, with a remedy.
    Unsupported(String),
    /// The field works only on a node of a cluster.
    NeedsCluster(String),
    /// The value violates a rule that applies only to manifests; with the message. A pod from an API server can
    /// violate it and still run.
    OfManifests(String),
    /// The value is invalid; with the message of Kubernetes.
    Invalid(String),
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::NotYet => f.write_str("not supported yet"),
            What::Unsupported(detail) | What::NeedsCluster(detail) => write!(f, "Forbidden: {detail}"),
            What::OfManifests(message) | What::Invalid(message) => f.write_str(message),
        }
    }
}

impl Fault {
    /// Hides an invalid key in the path of an error in the values of a Secret: if the colon after a key is missing,
    /// the key contains the value.
    pub(crate) fn hide_invalid_key(&mut self, is_valid: impl Fn(&str) -> bool) {
        if let [FieldStep::Field(_), step @ FieldStep::Key(_)] = &mut self.at.0[..]
            && let FieldStep::Key(key) = step
            && !is_valid(key)
        {
            *step = FieldStep::HiddenKey(std::mem::take(key));
        }
    }

    /// Replaces the message of an error in the values of a Secret, because it may quote the value.
    pub(crate) fn hide_secret(&mut self) {
        let message = match self.at.0.first() {
            Some(FieldStep::Field(field)) if field == "data" => "must be a map from keys to base64 text",
            Some(FieldStep::Field(field)) if field == "stringData" => {
                "must be a map from keys to text; put numbers in quotes"
            }
            _ => return,
        };
        self.what = What::Invalid(format!("Invalid value: {message}"));
    }

    pub(crate) fn invalid(at: FieldPath, message: impl Into<String>) -> Fault {
        Fault { at, what: What::Invalid(message.into()) }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.at.0.is_empty() { self.what.fmt(f) } else { write!(f, "{}: {}", self.at, self.what) }
    }
}

fn invalid_value(value: &impl fmt::Debug, detail: &impl fmt::Display) -> String {
    format!("Invalid value: {}: {detail}", brief(&format!("{value:?}")))
}

/// Collects the faults of one document. The messages are those of Kubernetes.
#[derive(Debug, Default)]
pub(crate) struct Faults(pub(crate) Vec<Fault>);

impl Faults {
    pub(crate) fn add(&mut self, at: At<'_>, message: impl Into<String>) {
        self.0.push(Fault::invalid(at.path(), message));
    }

    pub(crate) fn required(&mut self, at: At<'_>, detail: &str) {
        let colon = if detail.is_empty() { "" } else { ": " };
        self.add(at, format!("Required value{colon}{detail}"));
    }

    /// Reports an invalid value. `value` is shown with quotes if it is a string, and without if it is a number.
    pub(crate) fn invalid(&mut self, at: At<'_>, value: impl fmt::Debug, detail: impl fmt::Display) {
        self.add(at, invalid_value(&value, &detail));
    }

    /// As `invalid`, for a value that an API server accepts and that a pod can run with.
    pub(crate) fn invalid_in_manifest(&mut self, at: At<'_>, value: impl fmt::Debug, detail: impl fmt::Display) {
        self.0.push(Fault { at: at.path(), what: What::OfManifests(invalid_value(&value, &detail)) });
    }

    pub(crate) fn unsupported_value(&mut self, at: At<'_>, value: &str, supported: &[&str]) {
        let list: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
        let value = format!("{value:?}");
        self.add(at, format!("Unsupported value: {}: supported values: {}", brief(&value), list.join(", ")));
    }

    pub(crate) fn duplicate(&mut self, at: At<'_>, value: impl fmt::Debug) {
        self.add(at, format!("Duplicate value: {}", brief(&format!("{value:?}"))));
    }

    pub(crate) fn not_found(&mut self, at: At<'_>, value: &str) {
        self.add(at, format!("Not found: {}", brief(&format!("{value:?}"))));
    }

    pub(crate) fn forbidden(&mut self, at: At<'_>, detail: impl fmt::Display) {
        self.add(at, format!("Forbidden: {detail}"));
    }

    /// As `not_yet`, with a remedy.
    pub(crate) fn unsupported(&mut self, at: At<'_>, detail: &str) {
        self.0.push(Fault { at: at.path(), what: What::Unsupported(detail.to_owned()) });
    }

    /// Reports a field that works only on a node of a cluster.
    pub(crate) fn needs_cluster(&mut self, at: At<'_>, detail: &str) {
        self.0.push(Fault { at: at.path(), what: What::NeedsCluster(detail.to_owned()) });
    }

    pub(crate) fn too_many(&mut self, at: At<'_>, count: usize, most: usize) {
        self.add(at, format!("Too many: {count}: must have at most {most} items"));
    }

    /// Reports a Kubernetes field that is not implemented yet. Such fields are never ignored silently.
    pub(crate) fn not_yet(&mut self, at: At<'_>) {
        self.0.push(Fault { at: at.path(), what: What::NotYet });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_file_line_field_and_fix() {
        let mut problem = Problem {
            path: "/m/web.yaml".into(),
            document: 2,
            line: Some(7),
            field: Some("spec.containers[0].imagePulPolicy".into()),
            message: "unknown field; did you mean imagePullPolicy?".into(),
        };
        assert_eq!(
            problem.to_string(),
            "/m/web.yaml:7: spec.containers[0].imagePulPolicy: unknown field; did you mean imagePullPolicy?"
        );
        problem.line = None;
        assert!(problem.to_string().starts_with("/m/web.yaml: document 2: spec."));
        assert_eq!(Problem::of_file("/m/x", "read: denied").to_string(), "/m/x: read: denied");
    }

    #[test]
    fn a_path_is_written_as_kubernetes_does() {
        let root = At::Root;
        let (spec, list) = (root.field("spec"), "containers");
        let (containers, limits) = (spec.field(list), "limits");
        let container = containers.item(1);
        let limits = container.field(limits);
        assert_eq!(limits.key("cpu").path().to_string(), "spec.containers[1].limits[cpu]");
    }
}
