//! Stores a certificate after checking that it is the one that was requested.

use super::directory::IdentityDirectory;
use super::files::{certificate_file, next_key_file};
use crate::api::cluster::certificate::{ORGANIZATION, Validity, common_name};
use crate::api::cluster::requests::Signer;
use crate::net::x509;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rcgen::KeyPair;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub fn validity(certificate: &x509::Certificate) -> Validity {
    Validity { not_before: certificate.not_before.into(), not_after: certificate.not_after.into() }
}

/// Stores the certificate for the next key, with the key in the same file, and removes the file of the next key.
/// Returns the certificate.
///
/// # Errors
/// It is not a certificate of this node for that key, or the file system reports an error. The certificate in use
/// stays.
pub fn store(
    directory: &IdentityDirectory,
    node: &str,
    signer: Signer,
    chain: &str,
) -> Result<x509::Certificate, String> {
    let key = directory.read(next_key_file(signer))?.ok_or("the key of the certificate no longer exists")?;
    let stored = put(directory, node, signer, chain.as_bytes(), &key)?;
    directory.remove(next_key_file(signer))?;
    Ok(stored)
}

/// Stores a client certificate and a key that were given. Returns the certificate.
///
/// # Errors
/// As for `store`.
pub fn import(
    directory: &IdentityDirectory,
    node: &str,
    chain: &[u8],
    key: &[u8],
) -> Result<x509::Certificate, String> {
    put(directory, node, Signer::Client, chain, key)
}

fn put(
    directory: &IdentityDirectory,
    node: &str,
    signer: Signer,
    chain: &[u8],
    key: &[u8],
) -> Result<x509::Certificate, String> {
    let certificate = check(node, chain, key)?;
    if certificate.not_after < Timestamp::now() {
        return Err(format!("the certificate expired at {:.0}", certificate.not_after));
    }
    let mut both = certificates(chain);
    both.extend_from_slice(key);
    directory.write(certificate_file(signer), &both)?;
    Ok(certificate)
}

/// Checks that a certificate is for this node and for this key. Returns its parts.
///
/// # Errors
/// It is not a certificate of this node for this key.
pub(super) fn check(node: &str, chain: &[u8], key: &[u8]) -> Result<x509::Certificate, String> {
    let first = CertificateDer::from_pem_slice(chain).map_err(|_| "the certificate is not in PEM")?;
    let certificate = x509::read(&first).map_err(|e| e.to_string())?;
    let name = common_name(node);
    if certificate.common_name.as_ref() != Some(&name) || !certificate.organizations.iter().any(|o| o == ORGANIZATION) {
        let found = certificate.common_name.unwrap_or_default();
        return Err(format!("the certificate is for {found:?}, not for {name:?} in {ORGANIZATION}"));
    }
    let unusable = "the key is not a private key in PEM that Wherry can use";
    // The library's errors are not shown, because they could contain a part of the key.
    let key_der = PrivateKeyDer::from_pem_slice(key).map_err(|_| unusable)?;
    let signer = any_supported_type(&key_der).map_err(|_| unusable)?;
    let public = signer.public_key();
    if public.is_none_or(|public| *public != *certificate.public_key) {
        return Err("the certificate belongs to a different key".to_owned());
    }
    Ok(certificate)
}

/// Returns only the certificates of a PEM text, because the file of a kubelet contains the key, too.
fn certificates(chain: &[u8]) -> Vec<u8> {
    let mut text = String::new();
    for der in CertificateDer::pem_slice_iter(chain).flatten() {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        // Base64 is ASCII, so each chunk is valid text.
        for line in STANDARD.encode(&der).as_bytes().chunks(64) {
            text.push_str(&String::from_utf8_lossy(line));
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text.into_bytes()
}

/// Reads a key in PEM. Returns None instead of an error, which could contain a part of the key.
pub(super) fn read_key(pem: &[u8]) -> Option<KeyPair> {
    KeyPair::from_pem(std::str::from_utf8(pem).ok()?).ok()
}
