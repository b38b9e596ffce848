//! A real registry (Debian's docker-registry) on 127.0.0.1 with TLS and one user.

use super::agent::patience;
use super::lab::Runtime;
use super::registry::trust;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

pub const USER: &str = "puller";
pub const PASSWORD: &str = "correct-horse-7";
/// The bcrypt hash of `PASSWORD`.
const HTPASSWD: &str = "puller:$2y$10$abcdefghijklmnopqrstuuinwxd5XaoJ0b2dmbw/Pf8DXVZgrgprm\n";

pub struct DockerRegistry {
    pub dir: PathBuf,
    address: SocketAddr,
    child: Child,
}

fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

impl DockerRegistry {
    /// Starts an empty registry. `name` is the name of its directory.
    pub fn start(name: &str) -> DockerRegistry {
        let dir = Runtime::shared().dir.join("registries").join(name);
        fs::create_dir_all(&dir).expect("directory");
        let (key, certificate, users) = (dir.join("key.pem"), dir.join("cert.pem"), dir.join("htpasswd"));
        run(Command::new("openssl")
            .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=127.0.0.1"])
            .args(["-addext", "subjectAltName=IP:127.0.0.1"])
            .arg("-keyout")
            .arg(&key)
            .arg("-out")
            .arg(&certificate));
        fs::write(&users, HTPASSWD).expect("htpasswd");
        // The lab has its own network namespace, so it is unlikely that another process takes the port in the
        // meantime.
        let address = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port");
        let config = format!(
            "version: 0.1\nlog: {{level: warn}}\nstorage: {{filesystem: {{rootdirectory: {storage}}}}}\n\
             http: {{addr: '{address}', tls: {{certificate: {certificate}, key: {key}}}}}\n\
             auth: {{htpasswd: {{realm: lab, path: {users}}}}}\n",
            storage = dir.join("storage").display(),
            certificate = certificate.display(),
            key = key.display(),
            users = users.display(),
        );
        fs::write(dir.join("config.yml"), config).expect("config.yml");
        let log = fs::File::create(dir.join("log")).expect("log");
        let child = Command::new("docker-registry")
            .arg("serve")
            .arg(dir.join("config.yml"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("log"))
            .stderr(log)
            .spawn()
            .expect("docker-registry");
        trust(address, "https", Some(&certificate));
        let registry = DockerRegistry { dir, address, child };
        let end = Instant::now() + patience(60);
        while TcpStream::connect(address).is_err() {
            let log = fs::read_to_string(registry.dir.join("log")).unwrap_or_default();
            assert!(Instant::now() < end, "the registry does not answer: {log}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        registry
    }

    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Pushes a local image (for example `localhost/trap:1`). Returns its reference in the registry.
    pub fn push(&self, name: &str, local: &str) -> String {
        let image = format!("{}/{name}:1", self.address);
        let bin = std::env::var_os("WHERRY_LAB_BIN").unwrap_or_default();
        let path = std::env::join_paths(
            std::env::split_paths(&bin)
                .filter(|dir| !dir.as_os_str().is_empty())
                .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
        );
        run(Command::new("ctr")
            .env("PATH", path.expect("valid directories"))
            .arg("-a")
            .arg(&Runtime::shared().socket)
            .args(["-n", "k8s.io", "images", "push", "--user", &format!("{USER}:{PASSWORD}")])
            .arg("--hosts-dir")
            .arg(Runtime::shared().dir.join("certs.d"))
            .args([&image, local]));
        image
    }
}

impl Drop for DockerRegistry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
