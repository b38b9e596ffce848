//! A kube-apiserver with its etcd (`tests/lab/control-plane.sh`), on loopback. It has no controllers, no scheduler and no node.

use super::agent::patience;
use super::kubectl::Kubectl;
use super::lab::{Runtime, signal};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const TOKEN: &str = "comparison";

pub struct ApiServer {
    /// The last one is the API server, which ends before its etcd.
    processes: Vec<Child>,
    pub kubeconfig: PathBuf,
}

/// The directory of the programs; None if they are not built here.
pub fn programs() -> Option<PathBuf> {
    let directory = PathBuf::from(std::env::var("WHERRY_LAB_API_SERVER").unwrap_or_default());
    directory.join("kube-apiserver").exists().then_some(directory)
}

impl ApiServer {
    /// Starts both and waits until the server is ready. `port`: the first of three free ports.
    pub fn start(programs: &Path, name: &str, port: u16, kubectl: &Path) -> ApiServer {
        let dir = Runtime::shared().dir.join("api-servers").join(name);
        fs::create_dir_all(&dir).expect("a directory");
        let (client, peer, secure) = (port, port + 1, port + 2);
        let etcd = format!("http://127.0.0.1:{client}");
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
        let start = |program: &str, arguments: &[String]| {
            let log = File::create(dir.join(format!("{program}.log"))).expect("a log");
            Command::new(programs.join(program))
                .args(arguments)
                .stdin(Stdio::null())
                .stdout(log.try_clone().expect("a file"))
                .stderr(log)
                .spawn()
                .expect(program)
        };
        let peers = format!("http://127.0.0.1:{peer}");
        let mut server = ApiServer { processes: Vec::new(), kubeconfig };
        server.processes.push(start(
            "etcd",
            &[
                format!("--data-dir={}", dir.join("etcd").display()),
                format!("--listen-client-urls={etcd}"),
                format!("--advertise-client-urls={etcd}"),
                format!("--listen-peer-urls={peers}"),
                format!("--initial-advertise-peer-urls={peers}"),
                format!("--initial-cluster=default={peers}"),
            ],
        ));
        server.processes.push(start(
            "kube-apiserver",
            &[
                format!("--etcd-servers={etcd}"),
                format!("--secure-port={secure}"),
                "--bind-address=127.0.0.1".to_owned(),
                "--advertise-address=192.0.2.2".to_owned(),
                format!("--cert-dir={}", dir.join("certificates").display()),
                format!("--token-auth-file={}", tokens.display()),
                "--authorization-mode=RBAC".to_owned(),
                "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
                format!("--service-account-key-file={}", key.display()),
                format!("--service-account-signing-key-file={}", key.display()),
                "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
                // There is no controller that creates service accounts.
                "--disable-admission-plugins=ServiceAccount".to_owned(),
            ],
        ));
        let log = dir.join("kube-apiserver.log");
        let end = Instant::now() + patience(240);
        let probe = server.client(0, kubectl, "default");
        while probe.run("get --raw /readyz").code != 0 {
            let ended = server.processes.iter_mut().any(|p| p.try_wait().is_ok_and(|status| status.is_some()));
            if ended || Instant::now() > end {
                let text = fs::read_to_string(&log).unwrap_or_default();
                let last: Vec<&str> = text.lines().rev().take(15).collect();
                panic!("the API server does not become ready: {last:#?}");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        server
    }

    /// A kubectl for this server, in the namespace `namespace`.
    pub fn client(&self, minor: u32, program: &Path, namespace: &str) -> Kubectl {
        let text = fs::read_to_string(&self.kubeconfig).expect("a kubeconfig");
        let text = text.replace("user: c}}]", &format!("user: c, namespace: {namespace}}}}}]"));
        Kubectl::of_server(self.kubeconfig.with_file_name(format!("home-{namespace}-{minor}")), &text, minor, program)
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().rev() {
            signal(&process.id().to_string(), "KILL");
            let _ = process.wait();
        }
    }
}
