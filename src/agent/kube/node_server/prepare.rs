//! Reads or creates the certificates of the node's server. Runs on a helper thread, because it waits for the disk.

use crate::adapters::api_server::Credentials;
use crate::adapters::host::machine_identity;
use crate::adapters::identity::{self, FoundServing, IdentityDirectory};
use crate::adapters::pki::{Authority, Names};
use crate::api::cluster::certificate::InUse;
use crate::api::cluster::machine::MachineIdentity;
use crate::config::{CertificateSource, Config};
use crate::event_loop::clock;
use crate::foreign::{self, Links};
use crate::net::tls::server::Acceptor;
use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The directory below the root directory.
const DIRECTORY: &str = "server";
/// The CA, which is valid for ten years, is replaced when its remaining lifetime is shorter than this value, which
/// exceeds the lifetime of a certificate.
const LEAST_OF_CA: SignedDuration = SignedDuration::from_hours(400 * 24);
/// Maximum size of a file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 20;

pub(super) struct Inputs {
    root: PathBuf,
    node: String,
    names: Names,
    pub kubeconfig: PathBuf,
    client_ca: Option<PathBuf>,
    certificate: CertificateSource,
    own: Option<Arc<Own>>,
}

/// The certificate that Wherry has issued itself. It is kept in memory, because each use of the directory would write
/// its lock file.
pub(super) struct Own {
    names: Names,
    /// The time at which the certificate is due for replacement.
    renew: Timestamp,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

/// The certificates in use, for detecting a change. The keys are not included, because a key changes together with its
/// certificate.
#[derive(PartialEq, Eq)]
pub(super) struct Material {
    chain: Vec<CertificateDer<'static>>,
    clients: Vec<CertificateDer<'static>>,
}

pub(in crate::agent) struct Prepared {
    pub(super) acceptor: Acceptor,
    pub(super) material: Material,
    pub(super) machine: MachineIdentity,
    pub(super) own: Option<Arc<Own>>,
    pub(super) of_cluster: OfCluster,
}

/// The serving certificate that the cluster has issued.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum OfCluster {
    /// The configuration selects a certificate from another source.
    Unwanted,
    /// The certificate that was found. It may have expired.
    Found(InUse),
    /// There is no certificate, for this reason.
    Nothing(String),
}

impl Inputs {
    /// Returns the inputs, or None if the node has no cluster. `addresses` are the node's addresses, `own` is from the
    /// last preparation.
    pub fn new(config: &Config, addresses: &[String], own: Option<Arc<Own>>) -> Option<Inputs> {
        let settings = &config.node_server;
        Some(Inputs {
            root: config.root_dir.clone(),
            node: config.node_name.clone(),
            names: super::super::names(&config.node_name, config.address, addresses),
            kubeconfig: config.kubeconfig.clone()?,
            client_ca: settings.client_ca.clone(),
            certificate: settings.source(),
            own,
        })
    }
}

/// Reads or creates the certificates.
///
/// # Errors
/// A file cannot be read or written, or has the wrong content. The message names the configuration field and the
/// file, and contains no part of a key.
pub(super) fn prepare(inputs: &Inputs) -> Result<Prepared, String> {
    let clients = match &inputs.client_ca {
        Some(path) => certificates("authentication.x509.clientCAFile", path)?,
        None => Credentials::read(&inputs.kubeconfig)?.authorities().to_vec(),
    };
    let now = clock::now().wall;
    let mut of_cluster = OfCluster::Unwanted;
    let given = match &inputs.certificate {
        CertificateSource::Files { certificate, key } => {
            Some((certificates("tlsCertFile", certificate)?, private_key("tlsPrivateKeyFile", key)?))
        }
        CertificateSource::Cluster => match identity::serving(&IdentityDirectory::new(&inputs.root), &inputs.node)? {
            FoundServing::Certificate(serving) => {
                let is_valid = now <= serving.in_use.validity().not_after;
                of_cluster = OfCluster::Found(serving.in_use);
                is_valid.then_some((serving.chain, serving.key))
            }
            FoundServing::Nothing(why) => {
                of_cluster = OfCluster::Nothing(why);
                None
            }
        },
        CertificateSource::Own => None,
    };
    let mut own = None;
    let (chain, key) = match given {
        Some(given) => given,
        None => {
            let now = now.timestamp().ok_or("the time of the system clock is out of range")?;
            let last = inputs.own.clone().filter(|own| own.names == inputs.names && now < own.renew);
            let current = match last {
                Some(last) => last,
                None => Arc::new(own_certificate(inputs, now)?),
            };
            let parts = (vec![current.certificate.clone()], current.key.clone_key());
            own = Some(current);
            parts
        }
    };
    let acceptor = Acceptor::with_optional_clients(chain.clone(), key, clients.clone()).map_err(|why| {
        format!("{why}; correct the files of tlsCertFile, tlsPrivateKeyFile and authentication.x509.clientCAFile")
    })?;
    Ok(Prepared { acceptor, material: Material { chain, clients }, machine: machine_identity::read(), own, of_cluster })
}

/// Returns the certificate that Wherry issues itself. It is replaced before it expires, and when the node's addresses
/// change.
fn own_certificate(inputs: &Inputs, now: Timestamp) -> Result<Own, String> {
    let directory = inputs.root.join(DIRECTORY);
    let mut authority = Authority::open_or_create(&directory, &inputs.node, now)?;
    if authority.expires().duration_since(now) < LEAST_OF_CA {
        drop(authority);
        set_aside(&directory)?;
        log::info!("replacing the CA of the node's server, which expires soon");
        authority = Authority::open_or_create(&directory, &inputs.node, now)?;
    }
    let serving = authority.server(&inputs.names, now)?;
    if serving.is_new {
        log::info!("created the certificate of the node's server renew={}", serving.renew);
    }
    let (certificate, key, renew) = (serving.certificate, serving.key, serving.renew);
    Ok(Own { names: inputs.names.clone(), renew, certificate, key })
}

/// Removes the directory. An interruption leaves the directory complete, or leaves a renamed remainder, which is
/// harmless.
fn set_aside(directory: &Path) -> Result<(), String> {
    let old = directory.with_extension("old");
    let removed = match fs::remove_dir_all(&old) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => fs::rename(directory, &old).and_then(|()| fs::remove_dir_all(&old)),
    };
    removed.map_err(|e| format!("failed to replace {}: {e}", directory.display()))
}

fn read(field: &str, path: &Path) -> Result<Vec<u8>, String> {
    foreign::read(path, Links::Follow, MAX_BYTES)
        .map_err(|e| format!("{field}: {}: {e}; provide the file, or correct the path", path.display()))
}

fn certificates(field: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = read(field, path)?;
    let all: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        _ => Err(format!("{field}: {}: contains no PEM certificate; provide one", path.display())),
    }
}

fn private_key(field: &str, path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    // The library's error is not shown: it could contain a part of the key.
    PrivateKeyDer::from_pem_slice(&read(field, path)?).map_err(|_| {
        format!("{field}: {}: contains no PEM private key; provide the key for tlsCertFile", path.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::cluster::certificate::{Purpose, ServingNames};
    use crate::api::cluster::requests::Signer;
    use crate::net::https::tests::server::Ca;

    #[test]
    fn the_certificate_survives_a_restart_and_follows_the_addresses_and_files() {
        let dir = tempfile::tempdir().unwrap();
        let ca_dir = dir.path().join("ca");
        let now = clock::now().wall.timestamp().unwrap();
        let ca = Authority::open_or_create(&ca_dir, "cluster", now).unwrap().certificate_pem().to_owned();
        let ca_file = dir.path().join("ca.pem");
        fs::write(&ca_file, &ca).unwrap();
        let names = |address: &str| Names::new("n1", [address.parse().unwrap()]);
        let inputs = |address: &str| Inputs {
            root: dir.path().join("root"),
            node: "n1".to_owned(),
            names: names(address),
            kubeconfig: dir.path().join("none"),
            client_ca: Some(ca_file.clone()),
            certificate: CertificateSource::Own,
            own: None,
        };
        let first = prepare(&inputs("10.0.0.1")).unwrap().material;
        assert!(first == prepare(&inputs("10.0.0.1")).unwrap().material);
        let other = prepare(&inputs("10.0.0.2")).unwrap().material;
        assert!(first.chain != other.chain && first.clients == other.clients);
        let key = dir.path().join("root/server/server.key");
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
        // The certificate in memory is used as long as it matches the addresses.
        let last = prepare(&inputs("10.0.0.2")).unwrap();
        let with_last = |address: &str| Inputs { own: last.own.clone(), ..inputs(address) };
        fs::rename(dir.path().join("root"), dir.path().join("away")).unwrap();
        assert!(prepare(&with_last("10.0.0.2")).unwrap().material == other);
        assert!(!dir.path().join("root").exists());
        assert!(prepare(&with_last("10.0.0.3")).unwrap().material.chain != other.chain);
        fs::remove_dir_all(dir.path().join("root")).unwrap();
        fs::rename(dir.path().join("away"), dir.path().join("root")).unwrap();
        // The CA is replaced before it expires, after nine years.
        let stored = || fs::read(dir.path().join("root/server/ca.crt")).unwrap();
        let (before, years) = (stored(), |years: i64| now + SignedDuration::from_hours(years * 365 * 24));
        own_certificate(&inputs("10.0.0.1"), years(8)).unwrap();
        assert_eq!(stored(), before);
        own_certificate(&inputs("10.0.0.1"), years(9)).unwrap();
        assert!(stored() != before && !dir.path().join("root/server.old").exists());
        fs::remove_dir_all(dir.path().join("root/server")).unwrap();
        let other = prepare(&inputs("10.0.0.2")).unwrap().material;
        // During a rotation, the file contains the old and the new CA.
        fs::write(&ca_file, format!("{ca}{ca}")).unwrap();
        assert_eq!(prepare(&inputs("10.0.0.2")).unwrap().material.clients.len(), 2);
        // Files that the administrator provides.
        let given = (dir.path().join("root/server/server.crt"), key);
        let with = |(certificate, key): (PathBuf, PathBuf)| {
            let certificate = CertificateSource::Files { certificate, key };
            Inputs { certificate, ..inputs("10.0.0.9") }
        };
        assert!(prepare(&with(given.clone())).unwrap().material.chain == other.chain);
        let error = |inputs: &Inputs| prepare(inputs).err().unwrap();
        let text = error(&with((given.0.clone(), ca_file.clone())));
        assert!(text.starts_with("tlsPrivateKeyFile: ") && text.contains("contains no PEM private key"), "{text}");
        let text = error(&with((dir.path().join("missing"), given.1.clone())));
        assert!(text.starts_with("tlsCertFile: ") && text.contains("provide the file"), "{text}");
        let text = error(&with((ca_file.clone(), given.1)));
        assert!(text.contains("correct the files of tlsCertFile"), "{text}");
        fs::write(&ca_file, "").unwrap();
        let text = error(&inputs("10.0.0.1"));
        assert!(text.starts_with("authentication.x509.clientCAFile: "), "{text}");
    }

    #[test]
    fn the_certificate_of_the_cluster_is_used_while_it_is_valid_and_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let (root, ca_file) = (dir.path().join("root"), dir.path().join("ca.pem"));
        let ca = Ca::new();
        fs::write(&ca_file, &ca.pem).unwrap();
        fs::create_dir(&root).unwrap();
        let prepared = |certificate: CertificateSource| {
            let inputs = Inputs {
                root: root.clone(),
                node: "n1".to_owned(),
                names: Names::new("n1", []),
                kubeconfig: dir.path().join("none"),
                client_ca: Some(ca_file.clone()),
                certificate,
                own: None,
            };
            prepare(&inputs).unwrap()
        };
        let own = prepared(CertificateSource::Own);
        assert!(own.of_cluster == OfCluster::Unwanted);
        // The cluster has not issued the certificate yet.
        let before = prepared(CertificateSource::Cluster);
        assert!(before.material == own.material);
        assert!(
            matches!(before.of_cluster, OfCluster::Nothing(why) if why.ends_with("cluster/serving.pem does not exist"))
        );
        let directory = IdentityDirectory::new(&root);
        directory.request("n1", &Purpose::Serving(ServingNames::default())).unwrap();
        let key = fs::read_to_string(root.join("cluster/serving-next.key")).unwrap();
        let issued = ca.serving("n1", &key, &["n1"], (2020, 2100));
        identity::store(&directory, "n1", Signer::Serving, &issued).unwrap();
        let with = prepared(CertificateSource::Cluster);
        assert!(with.material.chain != own.material.chain && matches!(with.of_cluster, OfCluster::Found(_)));
        // The configuration no longer selects it.
        assert!(prepared(CertificateSource::Own).material == own.material);
        // The engine learns of an expired certificate, but it is not served to clients.
        let expired = ca.serving("n1", &key, &["n1"], (2020, 2021));
        fs::write(root.join("cluster/serving.pem"), format!("{expired}{key}")).unwrap();
        let after = prepared(CertificateSource::Cluster);
        assert!(after.material == own.material && matches!(after.of_cluster, OfCluster::Found(_)));
    }
}
