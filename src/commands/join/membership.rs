//! Determines which cluster this machine belongs to, from its configuration and the files of an earlier join. Also
//! writes the configuration drop-in of `wherry join`.

use super::discovery;
use crate::adapters::api_server::{Contents, Credentials};
use crate::adapters::identity;
use crate::api::cluster::bootstrap::CaHash;
use crate::api::cluster::certificate::common_name;
use crate::commands::output::Failure;
use crate::config::{self, Config, DEFAULT_DIR, Flags, wherry};
use crate::net::x509;
use jiff::Timestamp;
use serde_json::json;
use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

/// The name sorts before a user's drop-ins that begin with a higher number or a letter, so those override it.
const NAME: &str = "50-wherry-join.yaml";

/// The membership of this machine.
pub struct Membership(MembershipState);

enum MembershipState {
    None,
    /// `wherry join` has written the files.
    Joined(Box<Joined>),
    /// `wherry join` has written the files, but they cannot be read.
    Broken,
}

struct Joined {
    cluster: Contents,
    /// The client certificate. None if it cannot be read.
    certificate: Option<x509::Certificate>,
}

impl Membership {
    /// Determines the membership from the configuration and the files of `wherry join`.
    ///
    /// # Errors
    /// The configuration names a kubeconfig that is not from `wherry join`.
    pub fn read(config: &Config) -> Result<Membership, Failure> {
        let Some(path) = &config.kubeconfig else { return Ok(Membership(MembershipState::None)) };
        if !identity::is_managed(path, &config.root_dir) {
            return Err(Failure::message(format!(
                "the configuration sets kubeconfig: {}, which is not from wherry join; remove the setting, so that \
                 wherry join can set its own",
                path.display()
            )));
        }
        let Ok(cluster) = Contents::read(path) else { return Ok(Membership(MembershipState::Broken)) };
        let credentials = Credentials::read(path).ok();
        let der = credentials.as_ref().and_then(Credentials::client_certificate);
        let certificate = der.and_then(|der| x509::read(der).ok());
        Ok(Membership(MembershipState::Joined(Box::new(Joined { cluster, certificate }))))
    }

    /// Reports whether `wherry join` has run on this machine before.
    pub fn is_managed(&self) -> bool {
        !matches!(self.0, MembershipState::None)
    }

    /// Returns the URL of the server, or an empty string if it is not known.
    pub fn server(&self) -> &str {
        match &self.0 {
            MembershipState::Joined(joined) => &joined.cluster.server,
            MembershipState::None | MembershipState::Broken => "",
        }
    }

    /// Checks that the machine can join a cluster whose CA has one of these keys.
    ///
    /// # Errors
    /// The machine belongs to a cluster whose CA has none of these keys.
    pub(super) fn accepts(&self, hashes: &[CaHash]) -> Result<(), Failure> {
        let MembershipState::Joined(joined) = &self.0 else { return Ok(()) };
        let own = discovery::hashes(&joined.cluster);
        if own.iter().any(|hash| hashes.contains(hash)) {
            return Ok(());
        }
        Err(Failure::message(format!(
            "this machine is a node of another cluster ({}); run wherry leave before it joins this one",
            joined.cluster.server
        )))
    }

    /// Reports whether the machine is this node, with a valid certificate.
    ///
    /// # Errors
    /// The machine is another node of the cluster.
    pub(super) fn is_node(&self, node: &str) -> Result<bool, Failure> {
        let MembershipState::Joined(joined) = &self.0 else { return Ok(false) };
        let Some(certificate) = &joined.certificate else { return Ok(false) };
        let name = certificate.common_name.as_deref().unwrap_or_default();
        if name != common_name(node) {
            let name = name.trim_start_matches("system:node:");
            return Err(Failure::message(format!(
                "this machine is the node {name} of this cluster; run wherry leave before it joins as {node}"
            )));
        }
        Ok(certificate.not_after > Timestamp::now())
    }
}

/// Returns the path of the drop-in.
///
/// # Errors
/// `--config-dir` turns drop-ins off.
pub fn drop_in(flags: &Flags) -> Result<PathBuf, Failure> {
    let dir = flags.config_dir.as_deref().unwrap_or(Path::new(DEFAULT_DIR));
    if dir.as_os_str().is_empty() {
        return Err(Failure::message("wherry join needs a directory of drop-ins; --config-dir must not be empty"));
    }
    Ok(dir.join(NAME))
}

/// Writes the drop-in that makes the machine a member at the next start of the agent. `has_settings` tells whether the
/// cluster has settings for its nodes.
pub(super) fn write_drop_in(flags: &Flags, config: &Config, has_settings: bool) -> Result<(), Failure> {
    let path = drop_in(flags)?;
    let kubeconfig = identity::kubeconfig(&config.root_dir);
    let before = fs::read_to_string(&path).unwrap_or_default();
    let without_flag = config::load(&Flags { hostname: None, ..flags.clone() }).config.node_name;
    let mut text = format!(
        "# Written by wherry join; wherry leave removes it.\napiVersion: {}\nkind: {}\nkubeconfig: {}\n",
        wherry::API_VERSION,
        wherry::KIND,
        json!(kubeconfig)
    );
    // Writing to a String does not fail.
    if has_settings {
        let _ = writeln!(text, "clusterDefaults: {}", json!(identity::settings(&config.root_dir)));
    }
    if without_flag != config.node_name || before.contains("\nnodeName: ") {
        let _ = writeln!(text, "nodeName: {}", json!(config.node_name));
    }
    replace(&path, &text).map_err(|e| Failure::message(format!("failed to write {}: {e}", path.display())))?;
    let loaded = config::load(flags);
    if let Some(error) = loaded.problems.errors.first() {
        return Err(Failure::message(format!("configuration: {error}")));
    }
    let (has, wants) = (&loaded.config.kubeconfig, Some(kubeconfig));
    if *has != wants || loaded.config.node_name != config.node_name {
        return Err(Failure::message(format!(
            "{} has no effect, because another drop-in sets kubeconfig or nodeName; remove the setting there",
            path.display()
        )));
    }
    Ok(())
}

/// Removes the drop-in if it exists.
pub fn remove_drop_in(flags: &Flags) -> Result<(), Failure> {
    let Ok(path) = drop_in(flags) else { return Ok(()) };
    match fs::remove_file(&path) {
        Err(e) if e.kind() != ErrorKind::NotFound => {
            Err(Failure::message(format!("failed to remove {}: {e}", path.display())))
        }
        _ => Ok(()),
    }
}

/// Replaces the file durably and atomically. It contains no secret.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(dir)?;
    // The extension differs from that of a drop-in, so the temporary file has no effect.
    let aside = path.with_extension("new");
    let mut file = fs::File::create(&aside)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&aside, path))?;
    fs::File::open(dir)?.sync_all()
}
