//! The maps of a kubeconfig: their fields, the files that they name, and errors with their positions.

use crate::foreign::{self, Links};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;
use std::path::Path;

/// The maximum size of a file, in bytes.
pub(super) const MAX_BYTES: u64 = 1 << 20;

/// A map of the kubeconfig and its position, for errors.
pub(super) struct KubeconfigMap<'a> {
    pub value: &'a Value,
    pub path: String,
    pub directory: &'a Path,
}

impl<'a> KubeconfigMap<'a> {
    pub fn wrong(&self, field: &str, why: &str) -> String {
        format!("{}: {why}", self.field(field))
    }

    pub fn field(&self, field: &str) -> String {
        format!("{}.{field}", self.path)
    }

    /// Returns the string in a field; None if the field is missing, null or empty.
    pub fn text(&self, field: &str) -> Result<Option<&'a str>, String> {
        match self.value.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
            Some(_) => Err(self.wrong(field, "not a string; put it in quotes")),
        }
    }

    pub fn required(&self, field: &str) -> Result<&'a str, String> {
        self.text(field)?.ok_or_else(|| self.wrong(field, "missing; set it"))
    }

    /// Returns an error if the field has a value other than null, false or an empty string.
    pub fn refuse(&self, field: &str, why: &str) -> Result<(), String> {
        match self.value.get(field) {
            None | Some(Value::Null | Value::Bool(false)) => Ok(()),
            Some(Value::String(text)) if text.is_empty() => Ok(()),
            Some(_) => Err(self.wrong(field, why)),
        }
    }

    /// Returns the object `kind` in the entry `name` of a list.
    pub fn named(&self, list: &str, kind: &str, name: &str) -> Result<KubeconfigMap<'a>, String> {
        let path = format!("{list}[{name:?}].{kind}");
        let entries = self.value.get(list).and_then(Value::as_array);
        let entry = entries.into_iter().flatten().find(|e| e.get("name").and_then(Value::as_str) == Some(name));
        match entry.and_then(|entry| entry.get(kind)).filter(|value| value.is_object()) {
            Some(value) => Ok(KubeconfigMap { value, path, directory: self.directory }),
            None => Err(format!("{path}: missing; add the entry, or correct the name")),
        }
    }

    /// Returns the content of the file that a field names, or the decoded value of the field with the suffix `-data`,
    /// which takes precedence. Also returns the name of the field that was used.
    pub fn content(&self, field: &str) -> Result<Option<(String, Vec<u8>)>, String> {
        let data = format!("{field}-data");
        if let Some(text) = self.text(&data)? {
            let decoded = STANDARD.decode(text.trim());
            // The library's error is not shown: it could contain a part of a key.
            return match decoded {
                Ok(decoded) => Ok(Some((data, decoded))),
                Err(_) => Err(self.wrong(&data, "not base64; encode the PEM file with base64 -w0")),
            };
        }
        match self.text(field)? {
            Some(file) => Ok(Some((field.to_owned(), self.file(field, file)?))),
            None => Ok(None),
        }
    }

    pub fn file(&self, field: &str, file: &str) -> Result<Vec<u8>, String> {
        let path = self.directory.join(file);
        let content = foreign::read(&path, Links::Follow, MAX_BYTES);
        content
            .map_err(|e| self.wrong(field, &format!("{}: {e}; provide the file, or correct the path", path.display())))
    }
}

/// Parses the certificates of a PEM text that a field contains or names.
pub(super) fn certificates(
    object: &KubeconfigMap<'_>,
    field: &str,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => {
            Err(object
                .wrong(field, "no certificate in PEM; provide a file that begins with -----BEGIN CERTIFICATE-----"))
        }
    }
}
