//! The kubeconfig of the node.

use super::directory::IdentityDirectory;
use super::files::{CERTIFICATE, KUBECONFIG};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// The server of a kubeconfig.
pub struct NodeKubeconfig<'a> {
    /// The URL of the server.
    pub server: &'a str,
    /// The name in the server's certificate, if it is not the host of the URL.
    pub tls_name: Option<&'a str>,
    /// The CA in PEM.
    pub authorities: &'a [u8],
}

impl NodeKubeconfig<'_> {
    /// Writes the kubeconfig. It refers to the certificate of the node, which is in another file.
    ///
    /// # Errors
    /// The file system reports an error.
    pub fn write(&self, directory: &IdentityDirectory) -> Result<(), String> {
        let file = directory.path(CERTIFICATE).to_string_lossy().into_owned();
        let user = json!({ "client-certificate": file, "client-key": file });
        let text = format!("# Written by wherry join.\n{}\n", self.text(&user));
        directory.write(KUBECONFIG, text.as_bytes())
    }

    /// Returns a kubeconfig with a bearer token, or without credentials. It is for the join itself and is not stored.
    pub fn with_token(&self, token: Option<&str>) -> String {
        self.text(&token.map_or(json!({}), |token| json!({ "token": token })))
    }

    /// Returns a kubeconfig with a client certificate and its key, in PEM. It is not stored.
    pub fn with_certificate(&self, chain: &[u8], key: &[u8]) -> String {
        let [chain, key] = [chain, key].map(|pem| STANDARD.encode(pem));
        self.text(&json!({ "client-certificate-data": chain, "client-key-data": key }))
    }

    /// Returns the text in JSON, which is also YAML.
    fn text(&self, user: &Value) -> String {
        let mut cluster =
            json!({ "server": self.server, "certificate-authority-data": STANDARD.encode(self.authorities) });
        if let Some(name) = self.tls_name {
            cluster["tls-server-name"] = json!(name);
        }
        let document = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "cluster",
            "clusters": [{ "name": "cluster", "cluster": cluster }],
            "users": [{ "name": "node", "user": user }],
            "contexts": [{ "name": "cluster", "context": { "cluster": "cluster", "user": "node" } }],
        });
        format!("{document:#}")
    }
}
