//! The sealing of Secrets and tokens on the disk (C15): the setting, the state of the key, and the records that
//! Wherry finds when it starts. An adapter seals and opens the records; the engine decides which records are sealed.

use serde::Serialize;
use std::fmt;

/// The credential of the service that contains the key.
pub const CREDENTIAL: &str = "wherry.key";
/// Where the documentation tells users to store the encrypted credential.
pub const CREDENTIAL_FILE: &str = "/etc/credstore.encrypted/wherry.key";

/// `sealSecrets`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Policy {
    /// Records are sealed if the service has a key.
    #[default]
    Auto,
    /// Without a key, no Secret and no token is written.
    Required,
    /// Records are plain text. Sealed records are converted back to plain text.
    Never,
}

impl Policy {
    pub const NAMES: &[&str] = &["Auto", "Required", "Never"];

    pub fn of_name(name: &str) -> Policy {
        match name {
            "Required" => Policy::Required,
            "Never" => Policy::Never,
            _ => Policy::Auto,
        }
    }
}

/// The state of the service's key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub enum KeyState {
    /// The service has no such credential.
    #[default]
    Missing,
    /// The service has the credential, but it is not a valid key; with the reason.
    Unusable(String),
    Usable,
}

/// Says why sealed records cannot be opened, as part of a sentence.
impl fmt::Display for KeyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyState::Missing => write!(f, "the service has no credential {CREDENTIAL}"),
            KeyState::Unusable(why) => write!(f, "the credential {CREDENTIAL} of the service cannot be used: {why}"),
            KeyState::Usable => write!(f, "they are sealed with a key other than the credential {CREDENTIAL}"),
        }
    }
}

impl KeyState {
    /// Returns the recommended action if sealed records cannot be opened.
    pub fn remedy(&self) -> String {
        match self {
            KeyState::Missing => format!(
                "add LoadCredentialEncrypted={CREDENTIAL}:{CREDENTIAL_FILE} to wherry.service (systemctl edit wherry) \
                 and restart it; if the key is lost, create a new one (man wherry-config, sealSecrets)"
            ),
            KeyState::Unusable(_) => {
                format!(
                    "restore {CREDENTIAL_FILE} or create a new key (man wherry-config, sealSecrets), and restart wherry"
                )
            }
            KeyState::Usable => format!(
                "restore the former {CREDENTIAL_FILE} and restart wherry; otherwise Wherry replaces the records with \
                 the responses of the API server"
            ),
        }
    }
}

/// A record that Wherry finds when it starts.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredRecord {
    /// `kind/name`
    pub key: String,
    pub content: Content,
}

#[derive(Clone, PartialEq, Eq)]
pub enum Content {
    Plain(String),
    /// The value of a sealed record that the key has opened.
    Sealed(String),
    /// A sealed record that cannot be opened, because there is no key or because it is not the right one. The record
    /// is not damaged.
    Locked,
}

impl StoredRecord {
    pub fn plain(key: &str, value: &str) -> StoredRecord {
        StoredRecord { key: key.to_owned(), content: Content::Plain(value.to_owned()) }
    }

    /// Returns the key and the value. None if the record is locked.
    pub fn opened(self) -> Option<(String, String)> {
        match self.content {
            Content::Plain(value) | Content::Sealed(value) => Some((self.key, value)),
            Content::Locked => None,
        }
    }

    /// Returns the value. None if the record is locked.
    pub fn value(&self) -> Option<&str> {
        match &self.content {
            Content::Plain(value) | Content::Sealed(value) => Some(value),
            Content::Locked => None,
        }
    }
}

/// Omits the value, which may be secret.
impl fmt::Debug for StoredRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.key, self.content)
    }
}

/// Also omits the value.
impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Content::Plain(_) => "plain",
            Content::Sealed(_) => "sealed",
            Content::Locked => "locked",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_of_the_setting_has_a_meaning_of_its_own() {
        let policies: Vec<Policy> = Policy::NAMES.iter().map(|name| Policy::of_name(name)).collect();
        assert_eq!(policies, [Policy::Auto, Policy::Required, Policy::Never]);
        assert_eq!(Policy::of_name(""), Policy::default());
    }

    #[test]
    fn a_record_is_shown_without_its_value() {
        for content in [Content::Plain("hunter2".into()), Content::Sealed("hunter2".into())] {
            let record = StoredRecord { key: "objects/secret.a.b".into(), content };
            assert!(!format!("{record:?}").contains("hunter2") && record.value() == Some("hunter2"));
        }
    }
}
