//! Values of Secrets that are credentials of the service (systemd's `LoadCredential=`), so that no file in the manifest
//! directory contains them. An annotation of the Secret names the credentials.

use crate::api::k8s::ByteString;
use crate::api::k8s::Secret;
use crate::api::problem::{At, Fault, Faults};
use crate::api::sealing;
use crate::api::uid;
use serde_json::Value;
use std::fmt;

/// The annotation of a Secret: a comma-separated list of `KEY=CREDENTIAL`. For `CREDENTIAL` alone, the name is also
/// the key.
pub const ANNOTATION: &str = "wherry.io/credentials";

/// The credentials of the service.
#[derive(Clone, Copy)]
pub enum Credentials<'a> {
    /// `wherry check` does not know the credentials, because only the service has them.
    Unknown,
    /// Returns the value of a credential by its name. The error is the reason why it cannot be read.
    Service(&'a dyn Fn(&str) -> Result<Vec<u8>, String>),
}

impl fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Credentials::Unknown => "Unknown",
            Credentials::Service(_) => "Service",
        })
    }
}

/// Adds the credentials that the annotation names to `data`. Returns a digest of the values. The digest is empty
/// without the annotation.
///
/// # Errors
/// The annotation is not valid, or a credential cannot be read. No error contains a value.
pub(crate) fn add(secret: &mut Secret, credentials: Credentials<'_>) -> Result<String, Vec<Fault>> {
    let Some(list) = secret.metadata.annotations.as_ref().and_then(|all| all.get(ANNOTATION)).cloned() else {
        return Ok(String::new());
    };
    let (root, mut faults, mut digests) = (At::Root, Faults::default(), String::new());
    let (metadata, annotations) = (root.field("metadata"), "annotations");
    let annotations = metadata.field(annotations);
    let at = annotations.key(ANNOTATION);
    for (key, name) in list.split(',').map(entry) {
        let has = |key: &str| {
            secret.data.as_ref().is_some_and(|all| all.contains_key(key))
                || secret.string_data.as_ref().is_some_and(|all| all.contains_key(key))
        };
        if key.is_empty() || !is_file_name(name) {
            faults.invalid(at, format!("{key}={name}"), "must be KEY=CREDENTIAL, separated by commas");
            continue;
        }
        if has(key) {
            faults.duplicate(at, key);
            continue;
        }
        // No pod may get the key of the sealed records.
        if name == sealing::CREDENTIAL {
            faults.invalid(at, format!("{key}={name}"), "is the key of the service itself, not a value for pods");
            continue;
        }
        let value = match credentials {
            Credentials::Unknown => {
                // The content of a typed Secret cannot be checked without the value, so the type is dropped.
                secret.type_ = None;
                Vec::new()
            }
            Credentials::Service(read) => match read(name) {
                Ok(value) => value,
                Err(why) => {
                    let remedy = format!("add LoadCredential={name}:/PATH to wherry.service and restart it");
                    faults.add(at, format!("Not found: {name:?}: {why}; {remedy}"));
                    continue;
                }
            },
        };
        digests.push_str(&uid::digest_of_bytes(&value));
        secret.data.get_or_insert_default().insert(key.to_owned(), ByteString(value));
    }
    if faults.0.is_empty() { Ok(digests) } else { Err(faults.0) }
}

/// Returns the names of the credentials to which a document refers. Ignores errors in the annotation.
pub(crate) fn named_in(content: &Value) -> impl Iterator<Item = &str> {
    let is_secret = content.get("kind").and_then(Value::as_str) == Some("Secret");
    let annotation = content.pointer("/metadata/annotations").and_then(|all| all.get(ANNOTATION));
    let list = annotation.filter(|_| is_secret).and_then(Value::as_str);
    list.into_iter()
        .flat_map(|list| list.split(','))
        .map(|text| entry(text).1)
        .filter(|name| is_file_name(name) && *name != sealing::CREDENTIAL)
}

/// Splits an entry of the annotation into the key and the name of the credential.
fn entry(text: &str) -> (&str, &str) {
    let text = text.trim();
    text.split_once('=').map_or((text, text), |(key, name)| (key.trim(), name.trim()))
}

fn is_file_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 255 && name != "." && name != ".." && !name.contains(['/', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(list: &str) -> Secret {
        let mut secret = Secret::default();
        secret.metadata.annotations = Some([(ANNOTATION.to_owned(), list.to_owned())].into());
        secret.string_data = Some([("own".to_owned(), "value".to_owned())].into());
        secret
    }

    fn service(name: &str) -> Result<Vec<u8>, String> {
        match name {
            "missing" => Err("the service has no credential of this name".to_owned()),
            name => Ok(format!("value of {name}").into_bytes()),
        }
    }

    #[test]
    fn each_key_gets_the_value_of_its_credential() {
        let mut made = secret("password = db-password, token");
        let digest = add(&mut made, Credentials::Service(&service)).unwrap();
        assert_eq!(digest.len(), 128);
        let data = made.data.unwrap();
        assert_eq!(data["password"].0, b"value of db-password");
        assert_eq!(data["token"].0, b"value of token");
        assert_eq!(add(&mut Secret::default(), Credentials::Unknown), Ok(String::new()));
    }

    #[test]
    fn wrong_entries_and_missing_credentials_are_errors_with_a_remedy() {
        for (list, wanted) in [
            ("", "Invalid value: \"=\": must be KEY=CREDENTIAL"),
            ("a=../b", "Invalid value: \"a=../b\": must be KEY=CREDENTIAL"),
            ("a=b,", "Invalid value: \"=\": must be KEY=CREDENTIAL"),
            ("own=b", "Duplicate value: \"own\""),
            ("a=wherry.key", "Invalid value: \"a=wherry.key\": is the key of the service itself"),
            ("a=b, a=c", "Duplicate value: \"a\""),
            (
                "a=missing",
                "Not found: \"missing\": the service has no credential of this name; add LoadCredential=missing:",
            ),
        ] {
            let faults = add(&mut secret(list), Credentials::Service(&service)).unwrap_err();
            let [fault] = faults.as_slice() else { panic!("{faults:?}") };
            let text = fault.to_string();
            assert!(text.contains(wanted) && text.starts_with("metadata.annotations["), "{text}");
        }
    }
}
