//! Client certificates: issuing, recording and revoking them.

use super::authority::Authority;
use super::directory::{self, failed};
use super::issue;
use super::revoked::{self, Revocation};
use crate::api::ordered::OrderSlice;
use crate::api::{printable, uid};
use crate::net::x509;
use jiff::{SignedDuration, Timestamp};
use rcgen::{ExtendedKeyUsagePurpose, KeyUsagePurpose};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

const DIRECTORY: &str = "clients";
const SUFFIX: &str = ".json";
/// The maximum length of a name in characters: the limit for a common name in X.520.
const MAX_NAME: usize = 64;
/// How long a revoked certificate stays in `revoked` after it has expired. A clock that is somewhat wrong must not
/// make it valid again.
const MARGIN: SignedDuration = SignedDuration::from_hours(30 * 24);

/// What a client may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Everything, including commands in containers.
    Edit,
    /// Read only.
    View,
}

impl Role {
    pub const ALL: [Role; 2] = [Role::Edit, Role::View];

    /// Returns the organisation (O) in the certificates of the role.
    pub fn organization(self) -> &'static str {
        match self {
            Role::Edit => "wherry:edit",
            Role::View => "wherry:view",
        }
    }

    /// Returns the role that a verified certificate grants through its Wherry organisation. Returns None if it has no
    /// such organisation or two of them; Wherry never issues such a certificate.
    pub fn of(certificate: &x509::Certificate) -> Option<Role> {
        let mut roles =
            Role::ALL.into_iter().filter(|r| certificate.organizations.iter().any(|o| o == r.organization()));
        roles.next().filter(|_| roles.next().is_none())
    }

    /// Returns the name of the role: `edit` or `view`.
    pub fn name(self) -> &'static str {
        match self {
            Role::Edit => "edit",
            Role::View => "view",
        }
    }
}

/// The record of an issued client certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuedClient {
    /// The common name (CN).
    pub name: String,
    pub role: Role,
    /// The serial number, in lower-case hexadecimal digits.
    pub serial: String,
    #[serde(with = "super::timestamp")]
    pub issued: Timestamp,
    /// The end of the validity.
    #[serde(with = "super::timestamp")]
    pub expires: Timestamp,
}

/// A client certificate and its key, which is stored nowhere else.
pub struct Issued {
    pub client: IssuedClient,
    pub certificate_pem: String,
    pub key_pem: String,
}

/// Checks the name of a client.
///
/// # Errors
/// The reason why the name is not valid.
pub fn check_name(name: &str) -> Result<(), String> {
    let length = name.chars().count();
    if length == 0 || length > MAX_NAME {
        return Err(format!("the name has {length} characters; it must have 1 to {MAX_NAME}"));
    }
    if !name.chars().all(printable::is_plain) {
        return Err(format!("the name \"{}\" contains a control character; use printable ones", printable::line(name)));
    }
    if name.starts_with("system:") {
        return Err(format!("{name:?} begins with \"system:\", which Kubernetes reserves; choose another name"));
    }
    Ok(())
}

impl Authority {
    /// Issues a client certificate that is valid for `lifetime`, at most until the CA expires. The certificate is
    /// recorded before it is returned.
    ///
    /// # Errors
    /// The name or the lifetime is invalid, or the record cannot be written.
    pub fn client(&self, name: &str, role: Role, lifetime: Duration, now: Timestamp) -> Result<Issued, String> {
        check_name(name)?;
        if lifetime < Duration::from_secs(1) {
            return Err("a certificate must be valid for at least 1s".to_owned());
        }
        let validity = self.validity(now, lifetime);
        let mut params = issue::params(name, Some(role.organization()), validity)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = issue::generate_key()?;
        let certificate = self.sign(&params, &key)?;
        let serial = x509::read(certificate.der()).map_err(|e| e.to_string())?.serial;
        let issued = Timestamp::from_second(now.as_second()).unwrap_or(now);
        let client =
            IssuedClient { name: name.to_owned(), role, serial: uid::hex(&serial), issued, expires: validity.to };
        let record = serde_json::to_vec(&client).map_err(|e| format!("failed to record the certificate: {e}"))?;
        self.directory.write(&file(&client.serial), &record)?;
        self.prune(now)?;
        Ok(Issued { client, certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }

    /// Revokes all valid certificates of a name, or the one with a serial number (hexadecimal, colons are allowed).
    /// Returns them.
    ///
    /// # Errors
    /// There is no such certificate, all of them are already revoked, or a file cannot be read or written.
    pub fn revoke(&self, name_or_serial: &str, now: Timestamp) -> Result<Vec<IssuedClient>, String> {
        let root = self.directory.root();
        let serial = name_or_serial.replace(':', "").to_lowercase();
        let (clients, damaged) = clients(root)?;
        let found: Vec<IssuedClient> = clients
            .into_iter()
            .filter(|c| now <= c.expires && (c.name == name_or_serial || c.serial == serial))
            .collect();
        if found.is_empty() {
            let shown = printable::line(name_or_serial);
            let also = damaged.first().map(|d| format!(" ({d})")).unwrap_or_default();
            return Err(format!(
                "no valid client certificate has the name or the serial number \"{shown}\"{also}; `wherry kubeconfig \
                 list` shows them"
            ));
        }
        let mut revoked = revoked::revocations(root)?;
        let new: Vec<IssuedClient> =
            found.into_iter().filter(|c| revoked.iter().all(|r| r.serial != c.serial)).collect();
        if new.is_empty() {
            return Err(format!("\"{}\" is revoked already", printable::line(name_or_serial)));
        }
        revoked.extend(new.iter().map(|c| Revocation {
            serial: c.serial.clone(),
            name: c.name.clone(),
            revoked: Timestamp::from_second(now.as_second()).unwrap_or(now),
            expires: c.expires,
        }));
        revoked.retain(|r| now.duration_since(r.expires) <= MARGIN);
        self.directory.write(revoked::FILE, &revoked::text(revoked)?)?;
        self.prune(now)?;
        Ok(new)
    }

    /// Removes the records of expired certificates.
    fn prune(&self, now: Timestamp) -> Result<(), String> {
        let (clients, _) = clients(self.directory.root())?;
        let mut expired = clients.iter().filter(|c| now > c.expires);
        expired.try_for_each(|c| self.directory.remove(&file(&c.serial)))
    }
}

/// Returns the file of a record.
fn file(serial: &str) -> String {
    format!("{DIRECTORY}/{serial}{SUFFIX}")
}

/// Returns the records in `directory` (`super::directory`), ordered by the time of their issue, and a message for
/// each damaged record. Takes no lock.
///
/// # Errors
/// The directory cannot be read.
pub fn clients(directory: &Path) -> Result<(Vec<IssuedClient>, Vec<String>), String> {
    let path = directory.join(DIRECTORY);
    let entries = match fs::read_dir(&path) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok((Vec::new(), Vec::new())),
        Err(e) => return Err(failed("read directory", &path, &e)),
    };
    let (mut clients, mut damaged) = (Vec::new(), Vec::new());
    for entry in entries {
        let path = entry.map_err(|e| failed("read directory", &path, &e))?.path();
        // Other files are unfinished writes: their certificates were never handed out.
        let Some(serial) = path.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_suffix(SUFFIX)) else {
            continue;
        };
        let Some(content) = directory::read(&path)? else { continue };
        match serde_json::from_slice::<IssuedClient>(&content) {
            Ok(client) if client.serial == serial => clients.push(client),
            Ok(_) => damaged.push(format!("{}: contains the wrong serial number", path.display())),
            Err(e) => damaged.push(format!("{}: is damaged: {e}", path.display())),
        }
    }
    clients.order_by(|a, b| (a.issued, &a.serial).cmp(&(b.issued, &b.serial)));
    damaged.order();
    Ok((clients, damaged))
}
