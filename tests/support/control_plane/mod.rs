//! A control plane (`tests/lab/control-plane.sh`): etcd, kube-apiserver, kube-controller-manager and kube-scheduler
//! of version 1.20.
//!
//! The API server listens on the address of the node, which pods reach through their bridge. Pods can also reach it
//! at the address of the service `kubernetes`. Nodes are restricted as in a real cluster (Node authorizer,
//! NodeRestriction). There is no kube-proxy and no DNS.
//!
//! With two feature gates, 1.20 gives pods the projected tokens of later versions. It ignores fields that it does not
//! know, for example `hostIPs` in the status of a pod, and rejects some field selectors, for example
//! `spec.clusterIP!=None`.

mod audit;
pub mod bootstrap;
pub mod certificates;
mod client;
pub mod partition;
mod service;

pub use audit::NodeRequest;
pub use client::Client;

use super::agent::patience;
use super::component::{Component, NODE_ADDRESS, wait_until};
use super::http;
use super::kubectl::{self, Kubectl};
use super::lab::Runtime;
use certificates::Authority;
use serde_json::Value;
use service::Service;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Instant;

const API_SERVER: &str = "kube-apiserver";
/// Enables projected tokens that expire with their pod, as is the default since 1.21.
const FEATURES: &str = "--feature-gates=BoundServiceAccountTokenVolume=true,RootCAConfigMap=true";

/// The number of control planes so far. Each has its own ports and service addresses.
static COUNT: AtomicU16 = AtomicU16::new(0);

/// The ports of a control plane. etcd has two.
enum Port {
    Etcd = 0,
    ApiServer = 2,
    ControllerManager = 3,
    Scheduler = 4,
}

/// Returns a port below those that the kernel assigns to clients.
fn port(control_plane: u16, which: Port) -> u16 {
    16_000 + 10 * control_plane + which as u16
}

fn newest_kubectl() -> (u32, PathBuf) {
    kubectl::programs().into_iter().max().expect("a kubectl (tests/lab/kubectl.sh)")
}

pub struct ControlPlane {
    /// `control-planes/NAME` in the directory of the lab: logs, certificates, kubeconfigs, the audit log, the
    /// storage.
    pub dir: PathBuf,
    /// The URL of the API server.
    pub server: String,
    /// The address of the service `kubernetes`. Its port is 443.
    pub service_address: String,
    programs: PathBuf,
    number: u16,
    /// The URL of etcd.
    storage: String,
    authority: Authority,
    admin: Kubectl,
    /// Clients come before their servers, because the components are dropped in this order.
    components: Mutex<Vec<Component>>,
    kubectls: AtomicU32,
    is_shared: bool,
    nodes: NodeServers,
    _service: Service,
}

/// Whether the API server verifies the certificates of the nodes' servers.
#[derive(Clone, Copy, PartialEq)]
pub enum NodeServers {
    /// As in a cluster that kubeadm has set up.
    NotVerified,
    /// The certificates must be issued by the CA of the cluster.
    Verified,
}

impl ControlPlane {
    /// Returns the control plane that tests share, so that it is started only once. Each test has namespaces and
    /// nodes of its own in it. The processes end with the Linux namespaces of the test program.
    pub fn shared() -> &'static ControlPlane {
        static SHARED: OnceLock<ControlPlane> = OnceLock::new();
        SHARED.get_or_init(|| {
            let mut plane = ControlPlane::start("shared");
            plane.is_shared = true;
            plane
        })
    }

    /// Starts a control plane and waits until it is ready. When it is dropped, its processes and files are removed.
    pub fn start(name: &str) -> ControlPlane {
        ControlPlane::start_with(name, NodeServers::NotVerified)
    }

    pub fn start_with(name: &str, nodes: NodeServers) -> ControlPlane {
        let programs = PathBuf::from(std::env::var("WHERRY_LAB_CONTROL_PLANE").unwrap_or_default());
        assert!(programs.join(API_SERVER).exists(), "there is no control plane (make test-cluster)");
        let number = COUNT.fetch_add(1, Ordering::SeqCst);
        let dir = Runtime::shared().dir.join("control-planes").join(format!("{name}-{number}"));
        let authority = Authority::create(&dir.join("pki"));
        let server = format!("https://{NODE_ADDRESS}:{}", port(number, Port::ApiServer));
        let service_address = format!("10.96.{number}.1");
        fs::write(dir.join("audit-policy"), audit::POLICY).expect("a file");
        authority.generate("accounts");
        let names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", NODE_ADDRESS, &service_address];
        authority.issue_to_server(API_SERVER, &names.map(str::to_owned));
        authority.issue_to_client("kubelet-client", "kube-apiserver-kubelet-client", Some("system:masters"));
        authority.issue_to_client("admin", "admin", Some("system:masters"));
        let (minor, program) = newest_kubectl();
        let admin = Kubectl::of_server(dir.join("admin"), &authority.kubeconfig("admin", &server), minor, &program);
        let (etcd, storage) = Component::etcd(&programs, &dir, port(number, Port::Etcd));
        let service = Service::publish(&service_address, port(number, Port::ApiServer));
        let plane = ControlPlane {
            dir,
            server,
            service_address,
            programs,
            number,
            storage,
            authority,
            admin,
            components: Mutex::new(vec![etcd]),
            kubectls: AtomicU32::new(0),
            is_shared: false,
            nodes,
            _service: service,
        };
        plane.run_api_server();
        plane.run_clients();
        plane.wait_for_account("default");
        plane
    }

    // ---- the components

    fn components(&self) -> MutexGuard<'_, Vec<Component>> {
        // A test that failed while it held the lock has not changed the list.
        self.components.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Returns the process ids of the components.
    pub fn processes(&self) -> Vec<u32> {
        self.components().iter().map(Component::pid).collect()
    }

    fn run(&self, program: &str, arguments: &[String]) {
        let component = Component::start(&self.programs, &self.dir, program, arguments);
        self.components().insert(0, component);
    }

    fn run_api_server(&self) {
        let pki = |file: &str| self.authority.path(file).display().to_string();
        let mut arguments = vec![
            format!("--etcd-servers={}", self.storage),
            format!("--bind-address={NODE_ADDRESS}"),
            format!("--advertise-address={NODE_ADDRESS}"),
            format!("--secure-port={}", port(self.number, Port::ApiServer)),
            format!("--tls-cert-file={}", pki("kube-apiserver.crt")),
            format!("--tls-private-key-file={}", pki("kube-apiserver.key")),
            format!("--client-ca-file={}", pki("ca.crt")),
            format!("--kubelet-client-certificate={}", pki("kubelet-client.crt")),
            format!("--kubelet-client-key={}", pki("kubelet-client.key")),
            "--kubelet-preferred-address-types=InternalIP,Hostname".to_owned(),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            "--allow-privileged=true".to_owned(),
            "--enable-bootstrap-token-auth=true".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", pki("accounts.pub")),
            format!("--service-account-signing-key-file={}", pki("accounts.key")),
            format!("--service-cluster-ip-range=10.96.{}.0/24", self.number),
            format!("--audit-policy-file={}", self.dir.join("audit-policy").display()),
            format!("--audit-log-path={}", self.audit_log().display()),
            FEATURES.to_owned(),
        ];
        if self.nodes == NodeServers::Verified {
            arguments.push(format!("--kubelet-certificate-authority={}", pki("ca.crt")));
        }
        self.run(API_SERVER, &arguments);
        // The server creates the roles of nodes and controllers before it is ready.
        let ready = || self.admin.run("get --raw /readyz").code == 0;
        wait_until("the API server is ready", &mut self.components(), ready);
    }

    /// Starts the controller manager and the scheduler. Without leader election, they survive when the API server
    /// stops.
    fn run_clients(&self) {
        let pki = |file: &str| self.authority.path(file).display().to_string();
        let run = |name: &str, which: Port, more: &[String]| {
            self.authority.issue_to_client(name, &format!("system:{name}"), None);
            let port = port(self.number, which);
            let mut arguments = vec![
                format!("--kubeconfig={}", self.write_kubeconfig(name).display()),
                "--leader-elect=false".to_owned(),
                // Only `/healthz` and metrics, without TLS.
                "--secure-port=0".to_owned(),
                "--address=127.0.0.1".to_owned(),
                format!("--port={port}"),
                FEATURES.to_owned(),
            ];
            arguments.extend_from_slice(more);
            self.run(name, &arguments);
            let healthy = || http::get_tcp(&format!("127.0.0.1:{port}"), "/healthz").is_ok_and(|r| r.status == 200);
            wait_until(&format!("{name} is ready"), &mut self.components(), healthy);
        };
        let more = [
            "--use-service-account-credentials=true".to_owned(),
            // The last two sign cluster-info and remove expired tokens, and are off by default.
            "--controllers=*,bootstrapsigner,tokencleaner".to_owned(),
            format!("--service-account-private-key-file={}", pki("accounts.key")),
            format!("--root-ca-file={}", pki("ca.crt")),
            format!("--cluster-signing-cert-file={}", pki("ca.crt")),
            format!("--cluster-signing-key-file={}", pki("ca.key")),
        ];
        run("kube-controller-manager", Port::ControllerManager, &more);
        run("kube-scheduler", Port::Scheduler, &[]);
    }

    /// Kills the API server. The connections of its clients break, and new ones are refused.
    pub fn stop_api_server(&self) {
        assert!(!self.is_shared, "other tests use this API server");
        let mut components = self.components();
        let before = components.len();
        components.retain(|component| component.name != API_SERVER);
        assert_eq!(components.len(), before - 1, "the API server runs");
    }

    /// Starts the API server again, with the same port and storage, and waits until it is ready.
    pub fn start_api_server(&self) {
        self.run_api_server();
    }

    /// Returns the resident memory of each component, in MiB.
    pub fn memory(&self) -> Vec<(String, u64)> {
        self.components().iter().map(|component| (component.name.clone(), component.memory())).collect()
    }

    // ---- credentials

    fn write_kubeconfig(&self, file: &str) -> PathBuf {
        let path = self.dir.join(format!("{file}.kubeconfig"));
        fs::write(&path, self.authority.kubeconfig(file, &self.server)).expect("a kubeconfig");
        path
    }

    pub fn kubeconfig_of_admin(&self) -> PathBuf {
        self.admin.kubeconfig.clone()
    }

    /// Issues a client certificate to the node: `system:node:NODE` in the group `system:nodes`.
    pub fn kubeconfig_of_node(&self, node: &str) -> PathBuf {
        let file = format!("node-{node}");
        self.authority.issue_to_client(&file, &format!("system:node:{node}"), Some("system:nodes"));
        self.write_kubeconfig(&file)
    }

    /// Like `kubeconfig_of_node`, with a certificate that is valid between these two times, in seconds from now.
    pub fn kubeconfig_of_node_for(&self, node: &str, validity: (i64, i64)) -> PathBuf {
        let file = format!("node-{node}");
        self.authority.issue_for(&file, &format!("system:node:{node}"), Some("system:nodes"), validity);
        self.write_kubeconfig(&file)
    }

    /// Issues a client certificate. Returns the paths of the certificate and of its key.
    pub fn certificate_of(&self, user: &str, group: Option<&str>) -> (PathBuf, PathBuf) {
        let file = format!("user-{user}");
        self.authority.issue_to_client(&file, user, group);
        (self.authority.path(&format!("{file}.crt")), self.authority.path(&format!("{file}.key")))
    }

    /// Returns the CA's certificate in PEM.
    pub fn ca(&self) -> String {
        self.authority.certificate()
    }

    // ---- clients

    /// Returns the newest kubectl of the lab, as the administrator, in this namespace.
    pub fn kubectl(&self, namespace: &str) -> Kubectl {
        self.kubectl_with(&self.kubeconfig_of_admin(), namespace)
    }

    /// Returns the newest kubectl of the lab with another kubeconfig.
    pub fn kubectl_with(&self, kubeconfig: &Path, namespace: &str) -> Kubectl {
        let (minor, program) = newest_kubectl();
        let text = fs::read_to_string(kubeconfig).expect("a kubeconfig");
        let text = text.replace("user: c}}]", &format!("user: c, namespace: {namespace}}}}}]"));
        let number = self.kubectls.fetch_add(1, Ordering::SeqCst);
        Kubectl::of_server(self.dir.join(format!("kubectl-{number}")), &text, minor, &program)
    }

    /// Returns a client that acts as the administrator and needs no separate process.
    pub fn client(&self) -> Client {
        Client::new(&self.authority, "admin", NODE_ADDRESS, port(self.number, Port::ApiServer))
    }

    /// Returns a kubectl with the credentials of a node.
    pub fn kubectl_of_node(&self, node: &str, namespace: &str) -> Kubectl {
        self.kubectl_with(&self.kubeconfig_of_node(node), namespace)
    }

    /// Creates a namespace, waits until pods can start in it, and returns a kubectl for it.
    pub fn namespace(&self, name: &str) -> Kubectl {
        let kubectl = self.kubectl(name);
        let created = kubectl.run(&format!("create namespace {name}"));
        assert_eq!(created.code, 0, "{created:?}");
        self.wait_for_account(name);
        kubectl
    }

    /// Waits for the objects that the controller manager creates in every namespace: the service account `default`,
    /// without which no pod is admitted, and the CA's certificate, which every pod mounts.
    fn wait_for_account(&self, namespace: &str) {
        for path in ["serviceaccounts/default", "configmaps/kube-root-ca.crt"] {
            let path = format!("/api/v1/namespaces/{namespace}/{path}");
            self.wait_for(&format!("{path} exists"), |plane| plane.get(&path));
        }
    }

    /// Returns the object at `path`, as the administrator sees it. None on any error.
    pub fn get(&self, path: &str) -> Option<Value> {
        let printed = self.admin.run_words(&["get", "--raw", path], b"");
        (printed.code == 0).then(|| serde_json::from_str(&printed.out).ok()).flatten()
    }

    /// Returns the items of the list at `path`.
    pub fn list(&self, path: &str) -> Vec<Value> {
        self.get(path).and_then(|list| list["items"].as_array().cloned()).unwrap_or_default()
    }

    /// Polls until `look` returns a value. If that takes too long, or a component ends, the test fails.
    pub fn wait_for<T>(&self, what: &str, look: impl Fn(&ControlPlane) -> Option<T>) -> T {
        let end = Instant::now() + patience(240);
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            let ended = self.components().iter_mut().find_map(|c| c.has_ended().then(|| c.end_of_log()));
            assert!(ended.is_none(), "waited until {what}, but a component has ended\n{}", ended.unwrap_or_default());
            assert!(Instant::now() < end, "timed out: {what}");
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }

    pub fn wait(&self, what: &str, condition: impl Fn(&ControlPlane) -> bool) {
        self.wait_for(what, |plane| condition(plane).then_some(()));
    }

    // ---- the audit log

    fn audit_log(&self) -> PathBuf {
        self.dir.join("audit.log")
    }

    /// Returns when the server responded to the creation of a pod by the administrator, in nanoseconds since the
    /// epoch.
    pub fn time_of_creation(&self, namespace: &str, name: &str) -> Option<i64> {
        audit::time_of_creation(&self.audit_log(), namespace, name)
    }

    /// Returns the requests of a node so far.
    pub fn requests_of_node(&self, node: &str) -> Vec<NodeRequest> {
        audit::requests(&self.audit_log(), node)
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        let mut components = self.components();
        if std::thread::panicking() {
            components.iter().for_each(|component| eprint!("{}", component.end_of_log()));
        }
        components.clear();
        drop(components);
        // After a failure, in-lab.sh can keep the files (WHERRY_LAB_KEEP).
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}
