//! The parts of a kubeconfig that a copy of it needs.

use super::map::{KubeconfigMap, MAX_BYTES, certificates};
use crate::api::document;
use crate::foreign::{self, Links};
use rustls::pki_types::CertificateDer;
use std::path::Path;

/// A cluster and a user as texts.
pub struct Contents {
    /// The URL of the server.
    pub server: String,
    /// The name in the server's certificate, if it is not the host of the URL.
    pub tls_name: Option<String>,
    /// The CA in PEM.
    pub authorities: Vec<u8>,
    pub user: User,
}

pub enum User {
    /// In PEM.
    Certificate { chain: Vec<u8>, key: Vec<u8> },
    /// A bearer token.
    Token(String),
    /// No credential.
    Anonymous,
}

impl Contents {
    /// Reads the current context of a kubeconfig that `Credentials::read` accepts.
    ///
    /// # Errors
    /// As for `Credentials::read`.
    pub fn read(path: &Path) -> Result<Contents, String> {
        let text = foreign::read(path, Links::Follow, MAX_BYTES).map_err(|e| format!("{}: {e}", path.display()))?;
        let directory = path.parent().unwrap_or(Path::new("."));
        Contents::parse(&text, directory).map_err(|why| format!("{}: {why}", path.display()))
    }

    /// Parses a kubeconfig. Without a current context, its only cluster is read, as in the `cluster-info` of kubeadm.
    ///
    /// # Errors
    /// Names the field, and the error in it.
    pub fn parse(text: &[u8], directory: &Path) -> Result<Contents, String> {
        let document = document::value(text)?;
        let root = KubeconfigMap { value: &document, path: "kubeconfig".to_owned(), directory };
        let (cluster, user) = match root.text("current-context")? {
            Some(name) => {
                let context = root.named("contexts", "context", name)?;
                let user = context.text("user")?.map(|user| root.named("users", "user", user)).transpose()?;
                (root.named("clusters", "cluster", context.required("cluster")?)?, user)
            }
            None => (only_cluster(&root)?, None),
        };
        let (field, authorities) = cluster
            .content("certificate-authority")?
            .ok_or_else(|| cluster.wrong("certificate-authority-data", "missing; it must be the CA of the cluster"))?;
        certificates(&cluster, &field, &authorities)?;
        Ok(Contents {
            server: cluster.required("server")?.to_owned(),
            tls_name: cluster.text("tls-server-name")?.map(str::to_owned),
            authorities,
            user: user.as_ref().map_or(Ok(User::Anonymous), user_of)?,
        })
    }

    /// Returns the certificates of the CA in DER.
    pub fn authority_certificates(&self) -> Vec<CertificateDer<'static>> {
        use rustls::pki_types::pem::PemObject as _;
        CertificateDer::pem_slice_iter(&self.authorities).filter_map(Result::ok).collect()
    }
}

fn only_cluster<'a>(root: &KubeconfigMap<'a>) -> Result<KubeconfigMap<'a>, String> {
    let entries = root.value.get("clusters").and_then(serde_json::Value::as_array);
    match entries.map(Vec::as_slice) {
        Some([entry]) if entry.get("cluster").is_some_and(serde_json::Value::is_object) => Ok(KubeconfigMap {
            value: &entry["cluster"],
            path: "clusters[0].cluster".to_owned(),
            directory: root.directory,
        }),
        _ => Err(root.wrong("clusters", "it must have one cluster, or a current-context")),
    }
}

fn user_of(user: &KubeconfigMap<'_>) -> Result<User, String> {
    if let (Some((_, chain)), Some((_, key))) = (user.content("client-certificate")?, user.content("client-key")?) {
        return Ok(User::Certificate { chain, key });
    }
    let token = match (user.text("tokenFile")?, user.text("token")?) {
        (Some(file), _) => String::from_utf8(user.file("tokenFile", file)?).ok(),
        (None, token) => token.map(str::to_owned),
    };
    Ok(token.map_or(User::Anonymous, |token| User::Token(token.trim().to_owned())))
}
