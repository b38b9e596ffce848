//! Keys, serial numbers and signatures, with rcgen and ring.

use super::validity::Validity;
use crate::net::x509;
use rcgen::{CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, SerialNumber};
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::path::Path;

/// The maximum length of a common name in X.520, in characters.
const MAX_NAME: usize = 64;
const SERIAL_BYTES: usize = 16;

/// Generates a key: ECDSA on P-256.
pub(super) fn generate_key() -> Result<KeyPair, String> {
    KeyPair::generate().map_err(|e| format!("failed to generate a key: {e}"))
}

/// Reads a key in PEM (PKCS #8). The error contains no part of it.
pub(super) fn read_key(pem: &[u8], path: &Path) -> Result<KeyPair, String> {
    let text = std::str::from_utf8(pem).ok();
    text.and_then(|text| KeyPair::from_pem(text).ok())
        .ok_or_else(|| format!("{}: is not a private key in PEM (PKCS #8)", path.display()))
}

/// Reads a certificate in PEM. Returns it in DER, and its parts.
pub(super) fn read_certificate(
    pem: &[u8],
    path: &Path,
) -> Result<(CertificateDer<'static>, x509::Certificate), String> {
    let der = CertificateDer::from_pem_slice(pem)
        .map_err(|_| format!("{}: is not a certificate in PEM", path.display()))?
        .into_owned();
    let parts = x509::read(&der).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok((der, parts))
}

/// Returns the parameters that all certificates have in common: subject, serial number, validity.
///
/// # Errors
/// The system has no random numbers.
pub(super) fn params(
    common_name: &str,
    organization: Option<&str>,
    validity: Validity,
) -> Result<CertificateParams, String> {
    let mut params = CertificateParams::default();
    params.distinguished_name = subject(common_name);
    if let Some(organization) = organization {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    params.serial_number = Some(SerialNumber::from_slice(&serial()?));
    params.is_ca = IsCa::ExplicitNoCa;
    params.use_authority_key_identifier_extension = true;
    validity.set(&mut params);
    Ok(params)
}

/// Returns a name that consists of a common name. A name that is too long is truncated.
pub(super) fn subject(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name.chars().take(MAX_NAME).collect::<String>());
    name
}

/// Returns the issuer that signs with `key` under the common name of its own certificate.
pub(super) fn issuer(common_name: &str, key: KeyPair) -> Issuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.distinguished_name = subject(common_name);
    Issuer::new(params, key)
}

/// Returns a serial number with 126 random bits. Its first byte is positive and not zero, so that every serial number
/// has the same length.
fn serial() -> Result<[u8; SERIAL_BYTES], String> {
    let mut serial = [0; SERIAL_BYTES];
    let random = ring::default_provider().secure_random;
    random.fill(&mut serial).map_err(|_| "failed to generate a serial number: no random numbers".to_owned())?;
    serial[0] = serial[0] & 0x7f | 0x40;
    Ok(serial)
}
