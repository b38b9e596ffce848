//! The serving certificate.

use super::authority::Authority;
use super::{issue, validity};
use crate::api::kube::access;
use crate::api::ordered::CollectOrdered;
use jiff::{SignedDuration, Timestamp};
use rcgen::{ExtendedKeyUsagePurpose, KeyUsagePurpose, PublicKeyData as _, SanType};
use rustls::RootCertStore;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::ParsedCertificate;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const KEY: &str = "server.key";
const CERTIFICATE: &str = "server.crt";
/// A certificate is replaced when less than a third (1 / `LEAST_PART`) of its lifetime is left.
const LEAST_PART: i32 = 3;

/// The names under which clients reach the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    dns: BTreeSet<String>,
    addresses: BTreeSet<IpAddr>,
}

impl Names {
    /// Creates the names: the DNS names of `access::dns_names`, 127.0.0.1, ::1, and these addresses. Unspecified
    /// addresses (0.0.0.0, ::) are omitted, because no client connects to them.
    pub fn new(node: &str, addresses: impl IntoIterator<Item = IpAddr>) -> Names {
        let own = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        Names {
            dns: access::dns_names(node).map(str::to_owned).into(),
            addresses: own.into_iter().chain(addresses).filter(|a: &IpAddr| !a.is_unspecified()).collect_set(),
        }
    }
}

/// A serving certificate and its key.
#[derive(Debug)]
pub struct Serving {
    pub certificate: CertificateDer<'static>,
    pub key: PrivateKeyDer<'static>,
    /// The time from which `Authority::server` returns another certificate.
    pub renew: Timestamp,
    /// Whether the call has created the certificate.
    pub is_new: bool,
}

impl Authority {
    /// Returns the stored certificate if it is valid for at least a third of its lifetime, has all of these names,
    /// and belongs to the key and to the CA. Otherwise creates and stores another one, which is valid for a year. A
    /// server that calls this again at `Serving::renew` and when its names change never has to restart.
    ///
    /// # Errors
    /// The files cannot be read or written, or a name is invalid. A damaged file is not an error and is replaced.
    pub fn server(&self, names: &Names, now: Timestamp) -> Result<Serving, String> {
        if let Some(existing) = self.existing_server(names, now)? {
            return Ok(existing);
        }
        let node =
            self.parts.common_name.as_deref().and_then(|ca| ca.split_once('@')).map_or("wherry", |(_, node)| node);
        let mut params = issue::params(node, None, self.validity(now, validity::SERVER))?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        for name in &names.dns {
            let name = name.as_str().try_into().map_err(|e| format!("{name:?} cannot be in a certificate: {e}"))?;
            params.subject_alt_names.push(SanType::DnsName(name));
        }
        params.subject_alt_names.extend(names.addresses.iter().map(|a| SanType::IpAddress(*a)));
        let key = issue::generate_key()?;
        let certificate = self.sign(&params, &key)?;
        // An interruption between the two writes leaves a certificate that does not belong to the key. The next call
        // then replaces both.
        self.directory.write(KEY, key.serialize_pem().as_bytes())?;
        self.directory.write(CERTIFICATE, certificate.pem().as_bytes())?;
        let stored = self.existing_server(names, now)?;
        stored.map(|serving| Serving { is_new: true, ..serving }).ok_or_else(|| {
            let path = self.directory.path(CERTIFICATE);
            format!(
                "{}: the new certificate is not valid; the CA may expire too soon ({:.0})",
                path.display(),
                self.expires()
            )
        })
    }

    /// Returns the stored certificate, if it can be used.
    fn existing_server(&self, names: &Names, now: Timestamp) -> Result<Option<Serving>, String> {
        let (Some(pem), Some(key)) = (self.directory.read(CERTIFICATE)?, self.directory.read(KEY)?) else {
            return Ok(None);
        };
        let paths = (self.directory.path(CERTIFICATE), self.directory.path(KEY));
        let (Ok((certificate, parts)), Ok(key)) =
            (issue::read_certificate(&pem, &paths.0), issue::read_key(&key, &paths.1))
        else {
            return Ok(None);
        };
        let life = parts.not_after.duration_since(parts.not_before);
        let renew = parts.not_after.checked_sub(life / LEAST_PART).unwrap_or(parts.not_before);
        let usable = life > SignedDuration::ZERO
            && (parts.not_before..=renew).contains(&now)
            && parts.public_key == key.subject_public_key_info()
            && names.dns.iter().all(|name| parts.dns_names.contains(name))
            && names.addresses.iter().all(|address| parts.addresses.contains(address))
            && self.has_signed_server(&certificate, now);
        Ok(usable.then(|| Serving { certificate, key: key.into(), renew, is_new: false }))
    }

    /// Reports whether a rustls client that trusts the CA would trust the certificate.
    fn has_signed_server(&self, certificate: &CertificateDer<'_>, now: Timestamp) -> bool {
        let mut roots = RootCertStore::empty();
        let Ok(certificate) = ParsedCertificate::try_from(certificate) else { return false };
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now.as_second().try_into().unwrap_or(0)));
        let algorithms = ring::default_provider().signature_verification_algorithms.all;
        roots.add(self.der.clone()).is_ok()
            && verify_server_cert_signed_by_trust_anchor(&certificate, &roots, &[], now, algorithms).is_ok()
    }
}
