//! Reads the credentials from a kubeconfig: the cluster and the user of its current context. Fields that would need a
//! program, a proxy or an unverified server are refused: a connection that ignores them would not be the one that the
//! file describes.

mod contents;
mod map;
#[cfg(test)]
mod tests;

pub use contents::{Contents, User};

use super::credentials::{Credentials, ServerUrl};
use crate::api::document;
use crate::foreign::{self, Links};
use crate::net::https::Peer;
use crate::net::tls::verified::{Connector, Identity, Unusable};
use http::HeaderValue;
use map::{KubeconfigMap, MAX_BYTES, certificates};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::Path;

impl Credentials {
    /// Reads the current context of a kubeconfig. Waits for the disk: the agent runs it on a helper thread.
    ///
    /// # Errors
    /// Names the file, the field, the error, and the remedy. The text contains no secret.
    pub fn read(path: &Path) -> Result<Credentials, String> {
        let text = foreign::read(path, Links::Follow, MAX_BYTES)
            .map_err(|e| format!("{}: {e}; provide a kubeconfig there", path.display()))?;
        let directory = path.parent().unwrap_or(Path::new("."));
        parse(&text, directory).map_err(|why| format!("{}: {why}", path.display()))
    }

    /// Reads the text of a kubeconfig that refers to no other files.
    ///
    /// # Errors
    /// As for `read`.
    pub fn parse(text: &str) -> Result<Credentials, String> {
        parse(text.as_bytes(), Path::new("/"))
    }
}

/// Parses a kubeconfig. Its relative paths start at `directory`, the directory of the file.
fn parse(text: &[u8], directory: &Path) -> Result<Credentials, String> {
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

/// Returns the certificate chain and the key of the client.
fn identity(user: &KubeconfigMap<'_>) -> Result<Option<Identity>, String> {
    for field in ["exec", "auth-provider"] {
        let why = "credential plugins are not supported; use client-certificate and client-key, or tokenFile";
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

/// Returns the value of the header `Authorization`. `tokenFile` takes precedence over `token`, as in kubectl.
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
