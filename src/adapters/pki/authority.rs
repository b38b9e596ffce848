//! The CA of the node.

use super::directory::LockedDirectory;
use super::issue;
use super::validity::{self, Validity, check_clock, wrong_clock};
use crate::net::x509;
use jiff::Timestamp;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData as _};
use rustls::pki_types::CertificateDer;
use std::path::Path;

const KEY: &str = "ca.key";
const CERTIFICATE: &str = "ca.crt";

/// The CA, and the lock on its directory until the value is dropped. Drop it as soon as the work is done, because
/// commands wait for the lock.
pub struct Authority {
    pub(super) directory: LockedDirectory,
    /// The certificate in DER.
    pub(super) der: CertificateDer<'static>,
    pub(super) parts: x509::Certificate,
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Opens the CA of `directory` (`super::directory`), or creates it, with the name of the node in its certificate.
    /// Completes a creation that was interrupted. Waits for the disk, and up to 10 s for another process that holds the
    /// lock.
    ///
    /// # Errors
    /// The clock is wrong, the files cannot be read or written, a file is damaged or missing, or the CA has expired.
    pub fn open_or_create(directory: &Path, node: &str, now: Timestamp) -> Result<Authority, String> {
        check_clock(now)?;
        let directory = LockedDirectory::open(directory)?;
        let (key_path, path) = (directory.path(KEY), directory.path(CERTIFICATE));
        let (key, certificate) = (directory.read(KEY)?, directory.read(CERTIFICATE)?);
        let reset = reset(&directory);
        let key = match (key, &certificate) {
            (Some(pem), _) => issue::read_key(&pem, &key_path).map_err(|e| format!("{e}; {reset}"))?,
            (None, None) => {
                let key = issue::generate_key()?;
                directory.write(KEY, key.serialize_pem().as_bytes())?;
                key
            }
            (None, Some(_)) => {
                return Err(format!("{} exists, but {} does not; {reset}", path.display(), key_path.display()));
            }
        };
        let pem = match certificate {
            Some(pem) => pem,
            // This also completes a creation that was interrupted after the key was written.
            None => {
                let pem = certify(&key, node, now)?.into_bytes();
                directory.write(CERTIFICATE, &pem)?;
                pem
            }
        };
        let (der, parts) = issue::read_certificate(&pem, &path).map_err(|e| format!("{e}; {reset}"))?;
        if parts.public_key != key.subject_public_key_info() {
            let (path, key) = (path.display(), key_path.display());
            return Err(format!("{path} does not belong to the key {key}; {reset}"));
        }
        if now < parts.not_before {
            let why = format!("{} was created at {:.0}", path.display(), parts.not_before);
            return Err(format!("{}; if the clock was only wrong at that time: {reset}", wrong_clock(now, &why)));
        }
        if now > parts.not_after {
            let path = path.display();
            return Err(format!("{path} expired at {:.0} (and it is {now:.0} now); {reset}", parts.not_after));
        }
        let pem = String::from_utf8(pem).map_err(|_| format!("{}: is not text; {reset}", path.display()))?;
        let issuer = issue::issuer(parts.common_name.as_deref().unwrap_or_default(), key);
        Ok(Authority { directory, der, parts, pem, issuer })
    }

    /// Returns the certificate in PEM, for kubeconfigs.
    pub fn certificate_pem(&self) -> &str {
        &self.pem
    }

    /// Returns the certificate in DER, for verifying clients.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// Returns the end of the CA's validity, which limits the validity of everything that the CA signs.
    pub fn expires(&self) -> Timestamp {
        self.parts.not_after
    }

    /// Returns a validity that starts now and does not exceed that of the CA.
    pub(super) fn validity(&self, now: Timestamp, lifetime: std::time::Duration) -> Validity {
        let own = Validity { from: self.parts.not_before, to: self.parts.not_after };
        Validity::starting(now, lifetime).within(own)
    }

    /// Signs a certificate for `key`.
    ///
    /// # Errors
    /// The certificate of the CA has a subject that Wherry never writes, so clients would not find the issuer.
    pub(super) fn sign(&self, params: &CertificateParams, key: &KeyPair) -> Result<rcgen::Certificate, String> {
        let failure = |e: &dyn std::fmt::Display| format!("failed to sign a certificate: {e}");
        let certificate = params.signed_by(key, &self.issuer).map_err(|e| failure(&e))?;
        let parts = x509::read(certificate.der()).map_err(|e| failure(&e))?;
        if parts.issuer != self.parts.subject {
            let path = self.directory.path(CERTIFICATE);
            return Err(format!(
                "{}: its subject is not just a common name; {}",
                path.display(),
                reset(&self.directory)
            ));
        }
        Ok(certificate)
    }
}

/// Creates the certificate of the CA, in PEM.
fn certify(key: &KeyPair, node: &str, now: Timestamp) -> Result<String, String> {
    let mut params = issue::params(&format!("wherry-ca@{node}"), None, Validity::starting(now, validity::CA))?;
    // The CA signs only certificates of servers and clients.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.use_authority_key_identifier_extension = false;
    let certificate = params.self_signed(key).map_err(|e| format!("failed to create the CA: {e}"))?;
    Ok(certificate.pem())
}

/// Returns the remedy for a CA that can no longer be used.
fn reset(directory: &LockedDirectory) -> String {
    format!(
        "restore the file from a backup, or remove the directory {}, restart wherry and issue new kubeconfigs (the old \
         ones become invalid)",
        directory.root().display()
    )
}
