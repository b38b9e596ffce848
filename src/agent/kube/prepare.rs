//! Reads and writes the files that the API needs. Runs on a helper thread, because it waits for the disk and for a
//! lock.

use crate::adapters::host::machine_identity;
use crate::adapters::pki::{self, Authority, Names};
use crate::api::cluster::machine::MachineIdentity;
use crate::event_loop::clock;
use crate::net::tls::server::Acceptor;
use jiff::Timestamp;
use std::path::Path;

/// The server's certificate.
pub(in crate::agent) struct Certificate {
    pub acceptor: Acceptor,
    /// The time from which the certificate must be replaced.
    pub renew: Timestamp,
}

pub(in crate::agent) struct Prepared {
    /// The number of this run of the API (`api::kube::versions`).
    pub run: u64,
    pub machine: MachineIdentity,
    pub certificate: Certificate,
}

/// Reads or creates the certificates, and counts the run of the API.
///
/// # Errors
/// A file cannot be read or written, or the time of the system clock is out of range.
pub(in crate::agent) fn prepare(root: &Path, node: &str, names: &Names) -> Result<Box<Prepared>, String> {
    let wall = clock::now().wall.timestamp().ok_or("the time of the system clock is out of range")?;
    let directory = pki::directory(root);
    let authority = Authority::open_or_create(&directory, node, wall)?;
    let serving = authority.server(names, wall)?;
    if serving.is_new {
        log::info!("created the certificate of the API for kubectl renew={}", serving.renew);
    }
    let ca = authority.certificate().clone();
    let run = authority.next_run()?;
    drop(authority);
    let acceptor = Acceptor::new(vec![serving.certificate], serving.key, ca)?;
    let certificate = Certificate { acceptor, renew: serving.renew };
    Ok(Box::new(Prepared { run, machine: machine_identity::read(), certificate }))
}
