//! The command line of `wherry join` and `wherry check --join`. The options have the names that kubeadm uses.

use super::discovery::{self, Pins};
use crate::adapters::api_server::Contents;
use crate::api::cluster::bootstrap::{CaHash, Token};
use crate::commands::output::Failure;
use crate::config::{self, Flags};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub struct JoinArgs {
    /// Address of the API server: HOST:PORT
    #[arg(value_name = "SERVER", conflicts_with = "kubeconfig")]
    pub(super) server: Option<String>,
    #[command(flatten)]
    pub(super) target: JoinTarget,
    /// Name of the node; the same as --hostname
    #[arg(long, value_name = "NAME", conflicts_with = "hostname")]
    pub(super) node_name: Option<String>,
    /// Maximum time to wait for the approval of the certificate
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = config::duration::parse)]
    pub(super) timeout: Duration,
    /// Do not restart the service; the node joins at its next start
    #[arg(long)]
    pub(super) no_restart: bool,
    #[command(flatten)]
    pub(super) config: Flags,
}

/// The cluster, and the credential for joining it.
#[derive(Debug, Default, clap::Args)]
pub struct JoinTarget {
    /// Bootstrap token of the cluster
    #[arg(long, value_name = "ID.SECRET")]
    token: Option<String>,
    /// Hash of the public key of the cluster's CA; can be repeated
    #[arg(long, value_name = "sha256:HEX")]
    discovery_token_ca_cert_hash: Vec<String>,
    /// Accept any CA that the owner of the token has signed
    #[arg(long)]
    discovery_token_unsafe_skip_ca_verification: bool,
    /// Kubeconfig of the node, or one with a bootstrap token
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

/// The starting point of a join.
#[derive(Debug)]
pub(super) enum JoinSource {
    Server { address: String, token: Token, pins: Pins },
    Kubeconfig(PathBuf),
}

impl JoinTarget {
    /// Reports whether at least one of the options is given.
    pub fn is_given(&self) -> bool {
        self.token.is_some()
            || self.kubeconfig.is_some()
            || !self.discovery_token_ca_cert_hash.is_empty()
            || self.discovery_token_unsafe_skip_ca_verification
    }

    /// Returns the starting point of the join that the options describe.
    ///
    /// # Errors
    /// An option is missing or invalid. The message names the option and contains no secret.
    pub(super) fn source(self, server: Option<&str>) -> Result<JoinSource, String> {
        let hashes = self.discovery_token_ca_cert_hash;
        let skip = self.discovery_token_unsafe_skip_ca_verification;
        let (server, token) = match (self.kubeconfig, server, self.token) {
            (Some(_), _, Some(_)) => {
                return Err("--token: the kubeconfig already has a credential; remove one of them".to_owned());
            }
            (Some(path), None, None) => {
                let path = std::path::absolute(&path).map_err(|e| format!("--kubeconfig: {}: {e}", path.display()))?;
                return Ok(JoinSource::Kubeconfig(path));
            }
            (Some(_), Some(_), None) => return Err("--kubeconfig names the server; remove one of them".to_owned()),
            (None, None, _) => {
                return Err("name the cluster: SERVER:PORT with --token, or --kubeconfig".to_owned());
            }
            (None, Some(_), None) => return Err("--token is missing; or use --kubeconfig".to_owned()),
            (None, Some(server), Some(token)) => (server.to_owned(), token),
        };
        let token = Token::parse(token.trim()).map_err(|why| format!("--token: {why}"))?;
        let parsed: Result<Vec<CaHash>, String> = hashes.iter().map(|hash| CaHash::parse(hash.trim())).collect();
        let parsed = parsed.map_err(|why| format!("--discovery-token-ca-cert-hash: {why}"))?;
        let pins = match (parsed.is_empty(), skip) {
            (false, _) => Pins::Hashes(parsed),
            (true, true) => Pins::Unsafe,
            (true, false) => {
                return Err(
                    "--discovery-token-ca-cert-hash is missing: without it, any holder of the token could pose as \
                            the cluster. kubeadm token create --print-join-command prints it"
                        .to_owned(),
                );
            }
        };
        Ok(JoinSource::Server { address: server, token, pins })
    }
}

impl JoinSource {
    /// Returns the keys that the cluster's CA may have, or None if they are not known before the discovery.
    pub(super) fn authorities(&self) -> Result<Option<Vec<CaHash>>, Failure> {
        match self {
            JoinSource::Server { pins: Pins::Hashes(hashes), .. } => Ok(Some(hashes.clone())),
            JoinSource::Server { pins: Pins::Unsafe, .. } => Ok(None),
            JoinSource::Kubeconfig(path) => {
                Ok(Some(discovery::hashes(&Contents::read(path).map_err(Failure::message)?)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const TOKEN: &str = "07401b.f395accd246ae52d";
    const HASH: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn target(token: Option<&str>, hash: Option<&str>, kubeconfig: Option<&str>) -> JoinTarget {
        JoinTarget {
            token: token.map(str::to_owned),
            discovery_token_ca_cert_hash: hash.map(str::to_owned).into_iter().collect(),
            kubeconfig: kubeconfig.map(PathBuf::from),
            ..JoinTarget::default()
        }
    }

    #[test]
    fn a_join_begins_with_a_server_and_a_token_or_with_a_kubeconfig() {
        match target(Some(TOKEN), Some(HASH), None).source(Some("10.0.0.1:6443")) {
            Ok(JoinSource::Server { address, pins: Pins::Hashes(hashes), .. }) => {
                assert_eq!((address.as_str(), hashes.len()), ("10.0.0.1:6443", 1));
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(target(None, None, Some("/f")).source(None),
                Ok(JoinSource::Kubeconfig(p)) if p.as_path() == Path::new("/f")));
        let skip = JoinTarget { discovery_token_unsafe_skip_ca_verification: true, ..target(Some(TOKEN), None, None) };
        assert!(matches!(skip.source(Some("a:1")), Ok(JoinSource::Server { pins: Pins::Unsafe, .. })));
    }

    #[test]
    fn an_incomplete_command_line_names_what_is_missing_and_no_secret() {
        for (target, server, why) in [
            (target(None, None, None), None, "name the cluster"),
            (target(None, None, None), Some("a:1"), "--token is missing"),
            (target(Some(TOKEN), None, None), Some("a:1"), "--discovery-token-ca-cert-hash is missing"),
            (target(Some(TOKEN), Some("sha256:ab"), None), Some("a:1"), "64 hexadecimal digits"),
            (target(Some("07401b.f395accd246ae52"), Some(HASH), None), Some("a:1"), "16 more"),
            (target(Some(TOKEN), None, Some("/f")), None, "remove one"),
            (target(None, None, Some("/f")), Some("a:1"), "remove one"),
        ] {
            let error = target.source(server).unwrap_err();
            assert!(error.contains(why) && !error.contains("f395"), "{error}");
        }
    }
}
