//! The objects that kubeadm adds to a cluster so that nodes can join: `cluster-info`, roles, the kubelets'
//! configuration, and tokens.

use super::ControlPlane;
use serde_json::{Value, json};
use std::sync::Mutex;

/// The group of kubeadm's tokens, whose requests for certificates are approved automatically.
pub const APPROVED: &str = "system:bootstrappers:kubeadm:default-node-token";
/// A group whose requests have to be approved by a person.
pub const WAITING: &str = "system:bootstrappers:waiting";

/// Allows only one setup at a time.
static SETUP: Mutex<()> = Mutex::new(());

fn binding(name: &str, role: &str, groups: &[&str]) -> Value {
    let subjects: Vec<Value> = groups.iter().map(|name| subject("Group", name)).collect();
    json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role }, "subjects": subjects })
}

fn subject(kind: &str, name: &str) -> Value {
    json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name })
}

/// Returns a role that allows reading one ConfigMap, and its binding.
fn role(namespace: &str, name: &str, config_map: &str, subjects: &[Value]) -> [Value; 2] {
    let metadata = json!({ "name": name, "namespace": namespace });
    let rule =
        json!({ "apiGroups": [""], "resources": ["configmaps"], "resourceNames": [config_map], "verbs": ["get"] });
    let of = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name });
    let api_version = "rbac.authorization.k8s.io/v1";
    [
        json!({ "apiVersion": api_version, "kind": "Role", "metadata": metadata, "rules": [rule] }),
        json!({ "apiVersion": api_version, "kind": "RoleBinding", "metadata": metadata, "roleRef": of, "subjects": subjects }),
    ]
}

impl ControlPlane {
    fn apply(&self, object: &Value) {
        let applied = self.admin.run_words(&["apply", "-f", "-"], object.to_string().as_bytes());
        assert_eq!(applied.code, 0, "{applied:?}");
    }

    /// Prepares the cluster for joins. Can be repeated.
    pub fn accept_joins(&self) {
        let _one = SETUP.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let kubeconfig = json!({ "apiVersion": "v1", "kind": "Config", "clusters": [{ "name": "", "cluster": {
            "server": self.server, "certificate-authority-data": base64(self.ca().as_bytes()) } }] });
        let config_map = |namespace: &str, name: &str, key: &str, value: String| {
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": namespace },
                "data": { key: value } })
        };
        let kubelet = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nclusterDNS: [10.96.0.10]\n\
                       clusterDomain: cluster.local\ncgroupDriver: systemd\nstaticPodPath: /etc/kubernetes/manifests\n";
        let certificates = "system:certificates.k8s.io:certificatesigningrequests";
        let mut objects = vec![
            config_map("kube-system", "kubelet-config", "kubelet", kubelet.to_owned()),
            binding("kubeadm:kubelet-bootstrap", "system:node-bootstrapper", &[APPROVED, WAITING]),
            binding("kubeadm:node-autoapprove-bootstrap", &format!("{certificates}:nodeclient"), &[APPROVED]),
            binding(
                "kubeadm:node-autoapprove-certificate-rotation",
                &format!("{certificates}:selfnodeclient"),
                &["system:nodes"],
            ),
        ];
        // An existing ConfigMap has signatures, so it is not replaced.
        if self.get("/api/v1/namespaces/kube-public/configmaps/cluster-info").is_none() {
            objects.push(config_map("kube-public", "cluster-info", "kubeconfig", kubeconfig.to_string()));
        }
        let nodes = [subject("Group", "system:nodes"), subject("Group", APPROVED)];
        objects.extend(role(
            "kube-public",
            "kubeadm:bootstrap-signer-clusterinfo",
            "cluster-info",
            &[subject("User", "system:anonymous")],
        ));
        objects.extend(role("kube-system", "kubeadm:kubelet-config", "kubelet-config", &nodes));
        self.wait("kube-public exists", |plane| plane.get("/api/v1/namespaces/kube-public").is_some());
        self.apply(&json!({ "apiVersion": "v1", "kind": "List", "items": objects }));
    }

    /// Creates a token `ID.SECRET` for the group, valid for this number of seconds, and waits until cluster-info has
    /// its signature.
    pub fn create_token(&self, id: &str, group: &str, seconds: i64) -> String {
        let secret = "f395accd246ae52d";
        let expiration = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
        self.apply(&json!({ "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
            "metadata": { "name": format!("bootstrap-token-{id}"), "namespace": "kube-system" },
            "stringData": { "token-id": id, "token-secret": secret, "expiration": format!("{expiration:.0}"),
                "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true", "auth-extra-groups": group } }));
        self.wait("cluster-info is signed", |plane| plane.is_signed_by(id));
        format!("{id}.{secret}")
    }

    /// Reports whether cluster-info has the signature of the token.
    pub fn is_signed_by(&self, id: &str) -> bool {
        let info = self.get("/api/v1/namespaces/kube-public/configmaps/cluster-info").unwrap_or_default();
        info["data"][format!("jws-kubeconfig-{id}")].is_string()
    }

    /// Returns the hash of the CA's key: `sha256:HEX`.
    pub fn pin(&self) -> String {
        self.authority.pin()
    }

    /// Returns `HOST:PORT` of the API server.
    pub fn address(&self) -> &str {
        self.server.trim_start_matches("https://")
    }

    /// Returns the certificate signing requests for this node.
    pub fn requests_for(&self, node: &str) -> Vec<Value> {
        use base64::Engine as _;
        let all = self.list("/apis/certificates.k8s.io/v1/certificatesigningrequests");
        let is_for = |csr: &Value| {
            let pem =
                base64::engine::general_purpose::STANDARD.decode(csr["spec"]["request"].as_str().unwrap_or_default());
            let pem = String::from_utf8(pem.unwrap_or_default()).unwrap_or_default();
            let body: String = pem.lines().filter(|line| !line.starts_with("---")).collect();
            let der = base64::engine::general_purpose::STANDARD.decode(body).unwrap_or_default();
            let name = format!("system:node:{node}");
            // The public key follows the name: a sequence.
            let end = |at: usize| der.get(at + name.len()) == Some(&0x30);
            (0..der.len()).any(|at| der[at..].starts_with(name.as_bytes()) && end(at))
        };
        all.into_iter().filter(is_for).collect()
    }
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
