//! The settings of the node's server in a cluster (`port` and related fields).

use super::field_value::FieldValue;
use super::problem::{Place, Problems, absolute};
use crate::api::duration;
use crate::engine::cluster::access::{Authorization, Policy};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeServer {
    /// The port of the server. 0 turns the server off.
    pub port: u16,
    /// The files of the serving certificate (`tlsCertFile`) and its key (`tlsPrivateKeyFile`).
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// `serverTLSBootstrap`
    pub bootstrap: bool,
    /// The CA of the clients' certificates. None selects the CA of the kubeconfig.
    pub client_ca: Option<PathBuf>,
    /// `authentication.anonymous.enabled`
    pub anonymous: bool,
    /// `authentication.webhook.enabled`
    pub tokens: bool,
    pub token_ttl: Duration,
    /// `authorization.mode: AlwaysAllow`
    pub always_allow: bool,
    pub authorized_ttl: Duration,
    pub unauthorized_ttl: Duration,
    /// Whether logs, sessions and commands are served.
    pub debugging_handlers: bool,
}

/// The source of the serving certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateSource {
    /// Files that the administrator provides and replaces.
    Files { certificate: PathBuf, key: PathBuf },
    /// The cluster issues the certificate.
    Cluster,
    /// Wherry issues the certificate itself.
    Own,
}

impl Default for NodeServer {
    fn default() -> NodeServer {
        NodeServer {
            port: 10250,
            certificate: None,
            key: None,
            bootstrap: false,
            client_ca: None,
            anonymous: false,
            tokens: true,
            token_ttl: Duration::from_secs(120),
            always_allow: false,
            authorized_ttl: Duration::from_secs(300),
            unauthorized_ttl: Duration::from_secs(30),
            debugging_handlers: true,
        }
    }
}

impl NodeServer {
    pub fn policy(&self) -> Policy {
        let authorization = match self.always_allow {
            true => Authorization::AlwaysAllow,
            false => Authorization::Webhook { yes: self.authorized_ttl, no: self.unauthorized_ttl },
        };
        Policy { anonymous: self.anonymous, tokens: self.tokens.then_some(self.token_ttl), authorization }
    }

    pub fn source(&self) -> CertificateSource {
        match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => {
                CertificateSource::Files { certificate: certificate.clone(), key: key.clone() }
            }
            _ if self.bootstrap => CertificateSource::Cluster,
            _ => CertificateSource::Own,
        }
    }

    /// Returns the fields as they appear in `/configz`.
    pub fn shown(&self) -> Map<String, Value> {
        let path = |path: &Option<PathBuf>| path.as_ref().map_or(String::new(), |path| path.display().to_string());
        let format = duration::format;
        let shown = json!({
            "authentication": {
                "anonymous": { "enabled": self.anonymous },
                "webhook": { "cacheTTL": format(self.token_ttl), "enabled": self.tokens },
                "x509": { "clientCAFile": path(&self.client_ca) },
            },
            "authorization": {
                "mode": if self.always_allow { "AlwaysAllow" } else { "Webhook" },
                "webhook": {
                    "cacheAuthorizedTTL": format(self.authorized_ttl),
                    "cacheUnauthorizedTTL": format(self.unauthorized_ttl),
                },
            },
            "enableDebuggingHandlers": self.debugging_handlers,
            "port": self.port,
            "serverTLSBootstrap": self.bootstrap,
            "tlsCertFile": path(&self.certificate),
            "tlsPrivateKeyFile": path(&self.key),
        });
        match shown {
            Value::Object(fields) => fields,
            _ => Map::new(),
        }
    }
}

/// Parses a path. "" means that there is none.
pub(super) fn file(v: &FieldValue) -> Result<Option<PathBuf>, String> {
    match v.text() {
        "" => Ok(None),
        path => absolute(path).map(Some),
    }
}

/// Returns a cache lifetime. As in a kubelet, zero selects the default.
pub(super) fn ttl(v: &FieldValue, default: fn(&NodeServer) -> Duration) -> Duration {
    match v.duration() {
        Duration::ZERO => default(&NodeServer::default()),
        ttl => ttl,
    }
}

/// Checks the fields that depend on each other.
pub(super) fn check(server: &NodeServer, places: &BTreeMap<String, Place>, problems: &mut Problems) {
    let place = |field: &str| places.get(field).cloned().unwrap_or_else(Place::flag);
    match (&server.certificate, &server.key) {
        (Some(_), None) => {
            problems.error(&place("tlsCertFile"), "tlsCertFile", "needs tlsPrivateKeyFile; set both, or none");
        }
        (None, Some(_)) => {
            problems.error(&place("tlsPrivateKeyFile"), "tlsPrivateKeyFile", "needs tlsCertFile; set both, or none");
        }
        (Some(_), Some(_)) if server.bootstrap => {
            let message =
                "has no effect together with tlsCertFile; set it to false, or remove tlsCertFile and tlsPrivateKeyFile";
            problems.warning(&place("serverTLSBootstrap"), "serverTLSBootstrap", message);
        }
        _ => {}
    }
    if server.anonymous && server.always_allow {
        let field = "authentication.anonymous.enabled";
        let message = "with authorization.mode AlwaysAllow, anyone who can reach the port could run commands in the \
                       pods; set it to false, or the mode to Webhook";
        problems.error(&place(field), field, message);
    }
}
