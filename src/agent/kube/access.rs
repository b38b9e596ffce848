//! Decides who may use the API. Holds the server's certificate and the list of revoked client certificates.

use super::prepare::Certificate;
use crate::adapters::pki::Revoked;
use crate::api::kube::access::Role;
use crate::api::kube::status::Failure;
use crate::api::time::{Boot, Now};
use crate::kubectl_api::request::VerifiedClient;
use crate::net::tls::server::Acceptor;
use crate::net::x509;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

pub(super) struct Access {
    /// The directory that contains the certificates.
    directory: PathBuf,
    certificate: Certificate,
    renewal: Renewal,
    /// The revoked certificates. None until the first request, and while the list cannot be read.
    revoked: Option<Revoked>,
}

enum Renewal {
    /// The renewal is due at the certificate's renewal time.
    InTime,
    Running,
    /// The last renewal failed, or the addresses have changed. It is due at this time.
    Again(Boot),
}

impl Access {
    pub fn new(directory: PathBuf, certificate: Certificate) -> Access {
        Access { directory, certificate, renewal: Renewal::InTime, revoked: None }
    }

    pub fn acceptor(&self) -> Acceptor {
        self.certificate.acceptor.clone()
    }

    /// Reports whether the server's certificate must be replaced. Returns true only once: `renewed` or `not_renewed`
    /// must be called afterwards.
    pub fn is_renewal_due(&mut self, now: Now) -> bool {
        let due = match self.renewal {
            Renewal::InTime => now.wall.timestamp().is_some_and(|now| now >= self.certificate.renew),
            Renewal::Again(at) => at <= now.boot,
            Renewal::Running => false,
        };
        if due {
            self.renewal = Renewal::Running;
        }
        due
    }

    pub fn renewed(&mut self, certificate: Certificate) {
        self.certificate = certificate;
        self.renewal = Renewal::InTime;
    }

    pub fn not_renewed(&mut self, again: Boot) {
        self.renewal = Renewal::Again(again);
    }

    /// Returns the client with this certificate, which TLS verified when the connection began.
    ///
    /// # Errors
    /// The certificate is revoked, has expired since, or has no role. If the list of revoked certificates cannot be
    /// read, every client is refused.
    pub fn client(&mut self, certificate: &[u8], now: Now) -> Result<Rc<VerifiedClient>, Failure> {
        let read =
            x509::read(certificate).map_err(|_| Failure::unauthorized("the client certificate cannot be read"))?;
        let Some(revoked) = self.revoked() else {
            let why = "the list of revoked certificates cannot be read; see the log of wherry for the reason";
            return Err(Failure::service_unavailable(why));
        };
        let is_revoked = revoked.contains(&read.serial);
        let name = read.common_name.unwrap_or_default();
        if is_revoked {
            let serial = crate::api::uid::hex(&read.serial);
            return Err(Failure::unauthorized(format!("the certificate {serial} of {name:?} is revoked")));
        }
        let left = now.wall.timestamp().and_then(|now| Duration::try_from(read.not_after.duration_since(now)).ok());
        let Some(left) = left else {
            let expired = format!("the certificate of {name:?} expired at {}", read.not_after);
            return Err(Failure::unauthorized(expired));
        };
        let Some(role) = Role::of(read.organizations.iter().map(String::as_str)) else {
            return Err(Failure::unauthorized(format!("the certificate of {name:?} has no role")));
        };
        Ok(Rc::new(VerifiedClient { name, role, expires: now.boot + left }))
    }

    /// Returns the revoked certificates, which are read again if the file has changed, or None if the file cannot be
    /// read.
    pub fn revoked(&mut self) -> Option<&Revoked> {
        if self.revoked.as_ref().is_none_or(Revoked::changed) {
            self.revoked = match Revoked::load(&self.directory) {
                Ok(revoked) => Some(revoked),
                Err(why) => {
                    log::error!("refusing all clients of the API for kubectl error={why:?}");
                    None
                }
            };
        }
        self.revoked.as_ref()
    }
}
