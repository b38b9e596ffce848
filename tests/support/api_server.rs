//! A kube-apiserver with its etcd (`tests/lab/control-plane.sh`), on loopback. It has no controllers, no scheduler
//! and no node.

use super::component::{Component, NODE_ADDRESS, wait_until};
use super::kubectl::Kubectl;
use super::lab::Runtime;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TOKEN: &str = "comparison";

pub struct ApiServer {
    /// The API server is the first one, so that it ends before its etcd.
    components: Vec<Component>,
    pub kubeconfig: PathBuf,
}

/// Returns the directory of the programs. None if they are not built here.
pub fn programs() -> Option<PathBuf> {
    let directory = PathBuf::from(std::env::var("WHERRY_LAB_API_SERVER").unwrap_or_default());
    directory.join("kube-apiserver").exists().then_some(directory)
}

impl ApiServer {
    /// Starts the API server and etcd, and waits until the server is ready. `port` is the first of three free ports.
    pub fn start(programs: &Path, name: &str, port: u16, kubectl: &Path) -> ApiServer {
        let dir = Runtime::shared().dir.join("api-servers").join(name);
        fs::create_dir_all(&dir).expect("a directory");
        let secure = port + 2;
        let (key, tokens) = (dir.join("account.key"), dir.join("tokens"));
        let made = Command::new("openssl").args(["genrsa", "-out"]).arg(&key).arg("2048").output().expect("openssl");
        assert!(made.status.success(), "{made:?}");
        fs::write(&tokens, format!("{TOKEN},admin,1,system:masters\n")).expect("a file");
        let kubeconfig = dir.join("kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:{secure}', insecure-skip-tls-verify: true}}}}]\n\
             users: [{{name: c, user: {{token: {TOKEN}}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: c}}}}]\n"
        );
        fs::write(&kubeconfig, text).expect("a kubeconfig");
        let (etcd, storage) = Component::etcd(programs, &dir, port);
        let arguments = [
            format!("--etcd-servers={storage}"),
            format!("--secure-port={secure}"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--advertise-address={NODE_ADDRESS}"),
            format!("--cert-dir={}", dir.join("certificates").display()),
            format!("--token-auth-file={}", tokens.display()),
            "--authorization-mode=RBAC".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", key.display()),
            format!("--service-account-signing-key-file={}", key.display()),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            // No controller creates service accounts.
            "--disable-admission-plugins=ServiceAccount".to_owned(),
        ];
        let server = Component::start(programs, &dir, "kube-apiserver", &arguments);
        let mut server = ApiServer { components: vec![server, etcd], kubeconfig };
        let probe = server.client(0, kubectl, "default");
        wait_until("the API server is ready", &mut server.components, || probe.run("get --raw /readyz").code == 0);
        server
    }

    /// Returns a kubectl for this server, in the namespace `namespace`.
    pub fn client(&self, minor: u32, program: &Path, namespace: &str) -> Kubectl {
        let text = fs::read_to_string(&self.kubeconfig).expect("a kubeconfig");
        let text = text.replace("user: c}}]", &format!("user: c, namespace: {namespace}}}}}]"));
        Kubectl::of_server(self.kubeconfig.with_file_name(format!("home-{namespace}-{minor}")), &text, minor, program)
    }
}
