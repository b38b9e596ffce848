//! The key of the next certificate, and the request for it.

use super::directory::IdentityDirectory;
use super::files::{certificate_file, next_key_file};
use super::store;
use crate::api::cluster::bootstrap::sha256;
use crate::api::cluster::certificate::{ORGANIZATION, Purpose, SigningRequest, common_name, request_name};
use crate::api::cluster::requests::Signer;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData as _, SanType};

impl IdentityDirectory {
    /// Returns the request for a certificate of the node with the next key. The key is generated if there is none,
    /// and is on the disk when the function returns.
    ///
    /// # Errors
    /// The file system reports an error, there are no random numbers, or a name cannot be in a certificate. The error
    /// contains no part of the key.
    pub fn request(&self, node: &str, purpose: &Purpose) -> Result<SigningRequest, String> {
        self.create()?;
        let signer = purpose.signer();
        // If Wherry was killed between the last two steps of `store`, the key in this file already belongs to the
        // certificate in use: do not reuse it.
        let in_use = self.read(certificate_file(signer))?.unwrap_or_default();
        let kept = self
            .read(next_key_file(signer))?
            .filter(|pem| !in_use.ends_with(pem))
            .and_then(|pem| store::read_key(&pem));
        let key = match kept {
            Some(key) => key,
            // There is no usable key: the file is missing or damaged, or its key is already in use.
            None => {
                let key = KeyPair::generate().map_err(|e| format!("failed to generate a key: {e}"))?;
                self.write(next_key_file(signer), key.serialize_pem().as_bytes())?;
                key
            }
        };
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, ORGANIZATION);
        params.distinguished_name.push(DnType::CommonName, common_name(node));
        // An ECDSA signature is random, so derive the name only from the key and the content of the request.
        let mut of = key.subject_public_key_info();
        of.extend_from_slice(node.as_bytes());
        if let Purpose::Serving(names) = purpose {
            for name in &names.dns {
                let text = name.as_str().try_into();
                let text = text.map_err(|e| format!("{name:?} cannot be in a certificate: {e}"))?;
                params.subject_alt_names.push(SanType::DnsName(text));
            }
            params.subject_alt_names.extend(names.addresses.iter().map(|address| SanType::IpAddress(*address)));
            let addresses = names.addresses.iter().map(ToString::to_string);
            names.dns.iter().cloned().chain(addresses).for_each(|name| of.extend(format!("\n{name}").into_bytes()));
        }
        let request = params.serialize_request(&key).and_then(|request| request.pem());
        let request = request.map_err(|e| format!("failed to make a certificate request: {e}"))?;
        Ok(SigningRequest { name: request_name(&sha256(&of)), request: STANDARD.encode(request) })
    }

    /// Removes the next key, because its request was refused. The next request has another key.
    ///
    /// # Errors
    /// The file system reports an error.
    pub fn forget_key(&self, signer: Signer) -> Result<(), String> {
        self.remove(next_key_file(signer))
    }
}
