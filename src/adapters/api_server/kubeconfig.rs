//! Reads the credentials from a kubeconfig: the cluster and the user of its current context. Fields that would need a
//! program, a proxy or an unverified server are refused, because to ignore them would connect in another way than the
//! file says.

use super::credentials::{Credentials, ServerUrl};
use crate::api::document;
use crate::foreign::{self, Links};
use crate::net::https::Peer;
use crate::net::tls::verified::{Connector, Identity, Unusable};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;
use std::path::Path;

/// The largest file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// See `Credentials::read`.
pub(super) fn read(path: &Path) -> Result<Credentials, String> {
    let text = foreign::read(path, Links::Follow, MAX_BYTES)
        .map_err(|e| format!("{}: {e}; provide a kubeconfig there", path.display()))?;
    let directory = path.parent().unwrap_or(Path::new("."));
    parse(&text, directory).map_err(|why| format!("{}: {why}", path.display()))
}

/// `directory` is that of the file, to which its relative paths refer.
pub(super) fn parse(text: &[u8], directory: &Path) -> Result<Credentials, String> {
    let document = document::value(text)?;
    let root = KubeconfigMap { value: &document, path: "kubeconfig".to_owned(), directory };
    let name =
        root.text("current-context")?.ok_or_else(|| root.wrong("current-context", "missing; set it to a context"))?;
    let context = root.named("contexts", "context", name)?;
    let cluster = context.required("cluster")?;
    let cluster = root.named("clusters", "cluster", cluster)?;
    let user = match context.text("user")? {
        Some(user) => Some(root.named("users", "user", user)?),
        None => None,
    };
    cluster
        .refuse("insecure-skip-tls-verify", "the server must be verified; remove it and set certificate-authority")?;
    cluster.refuse("proxy-url", "proxies are not supported; remove it")?;
    let url = cluster.required("server")?;
    let server = ServerUrl::parse(url).map_err(|why| cluster.wrong("server", &why))?;
    let authorities = authorities(&cluster)?;
    let (identity, token) = match &user {
        Some(user) => (identity(user)?, token(user)?),
        None => (None, None),
    };
    let certificate = identity.as_ref().and_then(|(chain, _)| chain.first()).map(|own| own.to_vec());
    let tls_name = cluster.text("tls-server-name")?;
    let host = server.name();
    let tls = Connector::new(authorities.clone(), identity, tls_name.unwrap_or(&host), b"h2").map_err(|e| match e {
        Unusable::Authority(why) => cluster.wrong("certificate-authority", &format!("{why}; provide the cluster's CA")),
        Unusable::Identity(why) => {
            let user = user.as_ref().unwrap_or(&cluster);
            user.wrong("client-certificate", &format!("{why}; provide a certificate and the key that belongs to it"))
        }
        Unusable::Name if tls_name.is_some() => cluster.wrong("tls-server-name", "not a DNS name or an IP address"),
        Unusable::Name => cluster.wrong("server", "the host is not a DNS name or an IP address"),
        Unusable::Tls(why) => why,
    })?;
    let peer = Peer { host: server.host, port: server.port, tls };
    Ok(Credentials { peer, prefix: server.prefix, token, certificate, authorities })
}

fn authorities(cluster: &KubeconfigMap<'_>) -> Result<Vec<CertificateDer<'static>>, String> {
    let Some((field, pem)) = cluster.content("certificate-authority")? else {
        let why = "missing; set it (or certificate-authority-data) to the CA of the cluster";
        return Err(cluster.wrong("certificate-authority", why));
    };
    certificates(cluster, &field, &pem)
}

/// The certificate chain and the key of the client.
fn identity(user: &KubeconfigMap<'_>) -> Result<Option<Identity>, String> {
    for field in ["exec", "auth-provider"] {
        let why = "programs for credentials are not supported; use client-certificate and client-key, or tokenFile";
        user.refuse(field, why)?;
    }
    for field in ["username", "password"] {
        user.refuse(field, "API servers do not accept passwords; use client-certificate and client-key, or tokenFile")?;
    }
    for field in ["as", "as-uid", "as-groups", "as-user-extra"] {
        user.refuse(field, "impersonation is not supported; remove it")?;
    }
    match (user.content("client-certificate")?, user.content("client-key")?) {
        (None, None) => Ok(None),
        (Some((field, certificate)), Some((key_field, key))) => {
            let chain = certificates(user, &field, &certificate)?;
            // The library's error is not shown: it could contain a part of the key.
            let key = PrivateKeyDer::from_pem_slice(&key)
                .map_err(|_| user.wrong(&key_field, "no private key in PEM; provide the key of the certificate"))?;
            Ok(Some((chain, key)))
        }
        (Some(_), None) => Err(user.wrong("client-key", "missing, but there is a client-certificate; set it")),
        (None, Some(_)) => Err(user.wrong("client-certificate", "missing, but there is a client-key; set it")),
    }
}

/// The value of the header. The file has precedence, as in kubectl.
fn token(user: &KubeconfigMap<'_>) -> Result<Option<HeaderValue>, String> {
    let (field, token) = match (user.text("tokenFile")?, user.text("token")?) {
        (Some(file), _) => {
            let content = user.file("tokenFile", file)?;
            ("tokenFile", String::from_utf8(content).map_err(|_| user.wrong("tokenFile", "the file is not text"))?)
        }
        (None, Some(token)) => ("token", token.to_owned()),
        (None, None) => return Ok(None),
    };
    let token = token.trim();
    let valid = !token.is_empty() && token.bytes().all(|b| b.is_ascii_graphic());
    let value = valid.then(|| HeaderValue::try_from(format!("Bearer {token}")).ok()).flatten();
    let mut value = value.ok_or_else(|| user.wrong(field, "not a token; provide one line of printable ASCII"))?;
    value.set_sensitive(true);
    Ok(Some(value))
}

fn certificates(object: &KubeconfigMap<'_>, field: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => {
            Err(object
                .wrong(field, "no certificate in PEM; provide a file that begins with -----BEGIN CERTIFICATE-----"))
        }
    }
}

/// A map of the kubeconfig and its position, for errors.
struct KubeconfigMap<'a> {
    value: &'a Value,
    path: String,
    directory: &'a Path,
}

impl<'a> KubeconfigMap<'a> {
    fn wrong(&self, field: &str, why: &str) -> String {
        format!("{}: {why}", self.field(field))
    }

    fn field(&self, field: &str) -> String {
        format!("{}.{field}", self.path)
    }

    /// A string. Missing, null and empty are the same.
    fn text(&self, field: &str) -> Result<Option<&'a str>, String> {
        match self.value.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
            Some(_) => Err(self.wrong(field, "not a string; put it in quotes")),
        }
    }

    fn required(&self, field: &str) -> Result<&'a str, String> {
        self.text(field)?.ok_or_else(|| self.wrong(field, "missing; set it"))
    }

    /// An error if the field has a value.
    fn refuse(&self, field: &str, why: &str) -> Result<(), String> {
        match self.value.get(field) {
            None | Some(Value::Null | Value::Bool(false)) => Ok(()),
            Some(Value::String(text)) if text.is_empty() => Ok(()),
            Some(_) => Err(self.wrong(field, why)),
        }
    }

    /// The object `kind` in the entry `name` of a list.
    fn named(&self, list: &str, kind: &str, name: &str) -> Result<KubeconfigMap<'a>, String> {
        let path = format!("{list}[{name:?}].{kind}");
        let entries = self.value.get(list).and_then(Value::as_array);
        let entry = entries.into_iter().flatten().find(|e| e.get("name").and_then(Value::as_str) == Some(name));
        match entry.and_then(|entry| entry.get(kind)).filter(|value| value.is_object()) {
            Some(value) => Ok(KubeconfigMap { value, path, directory: self.directory }),
            None => Err(format!("{path}: missing; add the entry, or correct the name")),
        }
    }

    /// The content of a file that a field names, or the decoded value of the field with `-data`, which has precedence.
    /// Also returns the name of the field.
    fn content(&self, field: &str) -> Result<Option<(String, Vec<u8>)>, String> {
        let data = format!("{field}-data");
        if let Some(text) = self.text(&data)? {
            let decoded = STANDARD.decode(text.trim());
            // The library's error is not shown: it could contain a part of a key.
            return match decoded {
                Ok(decoded) => Ok(Some((data, decoded))),
                Err(_) => Err(self.wrong(&data, "not base64; encode the PEM file with base64 -w0")),
            };
        }
        match self.text(field)? {
            Some(file) => Ok(Some((field.to_owned(), self.file(field, file)?))),
            None => Ok(None),
        }
    }

    fn file(&self, field: &str, file: &str) -> Result<Vec<u8>, String> {
        let path = self.directory.join(file);
        let content = foreign::read(&path, Links::Follow, MAX_BYTES);
        content
            .map_err(|e| self.wrong(field, &format!("{}: {e}; provide the file, or correct the path", path.display())))
    }
}

mod contents;
#[cfg(test)]
mod tests;

pub use contents::{Contents, User};
