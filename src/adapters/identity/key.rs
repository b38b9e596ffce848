//! The key of the next certificate, and the request for it.

use super::directory::Directory;
use super::{CERTIFICATE, NEXT_KEY, store};
use crate::api::cluster::bootstrap::sha256;
use crate::api::cluster::certificate::{ORGANIZATION, Request, common_name, request_name};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData as _};

impl Directory {
    /// The request for the certificate of the node with the next key. The key is made if there is none, and is on the disk when the
    /// function returns.
    ///
    /// # Errors
    /// The file system reports an error, or there are no random numbers. The error contains nothing of the key.
    pub fn request(&self, node: &str) -> Result<Request, String> {
        // After a kill between the last two steps of `store`, the key belongs to the certificate in use.
        let in_use = self.read(CERTIFICATE)?.unwrap_or_default();
        let kept = self.read(NEXT_KEY)?.filter(|pem| !in_use.ends_with(pem)).and_then(|pem| store::read_key(&pem));
        let key = match kept {
            Some(key) => key,
            // A damaged file is of no use.
            None => {
                let key = KeyPair::generate().map_err(|e| format!("failed to generate a key: {e}"))?;
                self.write(NEXT_KEY, key.serialize_pem().as_bytes())?;
                key
            }
        };
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, ORGANIZATION);
        params.distinguished_name.push(DnType::CommonName, common_name(node));
        let request = params.serialize_request(&key).and_then(|request| request.pem());
        let request = request.map_err(|e| format!("failed to make a certificate request: {e}"))?;
        // A signature of ECDSA is random, so the name depends on the key and the subject.
        let mut of = key.subject_public_key_info();
        of.extend_from_slice(node.as_bytes());
        Ok(Request { name: request_name(&sha256(&of)), request: STANDARD.encode(request) })
    }

    /// The next key is not used any more: its request was refused. The next request has another key.
    ///
    /// # Errors
    /// The file system reports an error.
    pub fn forget_key(&self) -> Result<(), String> {
        self.remove(NEXT_KEY)
    }
}
