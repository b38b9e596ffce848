//! The stored certificate of the node's server.

use super::directory::IdentityDirectory;
use super::files::SERVING_CERTIFICATE;
use super::store;
use crate::api::cluster::certificate::{InUse, ServingNames};
use crate::api::ordered::CollectOrdered;
use crate::net::x509;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A serving certificate that the cluster has issued.
pub struct Serving {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
    pub in_use: InUse,
}

/// The result of a read.
pub enum FoundServing {
    /// The certificate may have expired.
    Certificate(Box<Serving>),
    /// There is no certificate of this node, for this reason.
    Nothing(String),
}

/// Converts a serving certificate for the engine.
pub fn serving_in_use(certificate: x509::Certificate) -> InUse {
    let validity = store::validity(&certificate);
    let x509::Certificate { dns_names, addresses, .. } = certificate;
    let names =
        ServingNames { dns: dns_names.into_iter().collect_set(), addresses: addresses.into_iter().collect_set() };
    InUse::Serving { validity, names }
}

/// Reads the serving certificate of the node with its key.
///
/// # Errors
/// The file system reports an error. For a file that is missing, damaged or for another node, returns `Nothing`
/// instead.
pub fn serving(directory: &IdentityDirectory, node: &str) -> Result<FoundServing, String> {
    let path = directory.path(SERVING_CERTIFICATE);
    let Some(pem) = directory.read(SERVING_CERTIFICATE)? else {
        return Ok(FoundServing::Nothing(format!("{} does not exist", path.display())));
    };
    let chain: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    // The key's error is not shown, because it could contain a part of the key.
    Ok(match (store::check(node, &pem, &pem), chain, PrivateKeyDer::from_pem_slice(&pem)) {
        (Ok(certificate), Ok(chain), Ok(key)) => {
            FoundServing::Certificate(Box::new(Serving { chain, key, in_use: serving_in_use(certificate) }))
        }
        (Err(why), _, _) => FoundServing::Nothing(format!("{}: {why}", path.display())),
        _ => FoundServing::Nothing(format!("{}: the file is damaged", path.display())),
    })
}
