//! Tests against a real containerd with separate root, state and socket in a temporary directory.

use crate::rig::{Factory, Rig};
use bytes::Bytes;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use wherry::net::grpc::{CallError, Completion};

over_each_transport!(
    version_status_and_lists_are_answered,
    many_calls_at_once_are_answered,
    killed_and_started_again_it_is_down_and_up_and_calls_work_again,
);

const VERSION: &str = "/runtime.v1.RuntimeService/Version";
const STATUS: &str = "/runtime.v1.RuntimeService/Status";
const LIST_IMAGES: &str = "/runtime.v1.ImageService/ListImages";
const POD_SANDBOX_STATUS: &str = "/runtime.v1.RuntimeService/PodSandboxStatus";

struct Containerd {
    dir: TempDir,
    child: Child,
}

impl Containerd {
    /// Returns None and prints the reason if containerd cannot be started.
    fn start() -> Option<Containerd> {
        let test = std::thread::current().name().unwrap_or_default().to_string();
        if !rustix::process::geteuid().is_root() {
            println!("skipped: {test}: needs root for a containerd of its own");
            return None;
        }
        if Command::new("containerd").arg("--version").stdout(Stdio::null()).status().is_err() {
            println!("skipped: {test}: needs containerd in PATH");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("config.toml"), config(dir.path())).unwrap();
        let child = spawn(dir.path());
        Some(Containerd { dir, child })
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("containerd.sock")
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn start_again(&mut self) {
        self.child = spawn(self.dir.path());
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(dir: &Path) -> Child {
    let log = File::options().create(true).append(true).open(dir.join("log")).unwrap();
    // containerd ends with the test, even if the test is killed.
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "containerd", "--config"])
        .arg(dir.join("config.toml"))
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

fn config(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        r#"version = 2
root = "{dir}/root"
state = "{dir}/state"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
  address = "{dir}/containerd.sock"
[ttrpc]
  address = "{dir}/containerd.sock.ttrpc"
[plugins."io.containerd.internal.v1.opt"]
  path = "{dir}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  disable_apparmor = true
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".cni]
    conf_dir = "{dir}/cni"
"#
    )
}

/// Waits until the CRI plugin answers. The connection is up before that, and the server answers UNAVAILABLE or
/// UNIMPLEMENTED.
fn up(factory: Factory, path: &Path) -> Rig {
    let mut rig = Rig::new(factory, path);
    rig.until("Up", |seen| seen.contains(&Completion::Up));
    until_served(&mut rig);
    rig
}

fn until_served(rig: &mut Rig) {
    for _ in 0..300 {
        let id = rig.call(VERSION, "");
        match rig.end(id) {
            Ok(answer) => {
                assert!(contains(&answer, "containerd"), "{answer:?}");
                return;
            }
            Err(CallError::Status { code: 12 | 14, .. }) => rig.run_for(Duration::from_millis(100)),
            Err(e) => panic!("{e:?}"),
        }
    }
    panic!("the CRI plugin does not answer");
}

fn contains(answer: &Bytes, word: &str) -> bool {
    answer.windows(word.len()).any(|w| w == word.as_bytes())
}

fn version_status_and_lists_are_answered(factory: Factory) {
    let Some(containerd) = Containerd::start() else { return };
    let mut rig = up(factory, &containerd.socket());
    let status = rig.call(STATUS, "");
    assert!(rig.end(status).is_ok_and(|answer| contains(&answer, "RuntimeReady")));
    // An empty list is an empty message.
    let images = rig.call(LIST_IMAGES, "");
    assert_eq!(rig.end(images), Ok(Bytes::new()));
    // Field 1 is the ID "nobody".
    let missing = rig.call(POD_SANDBOX_STATUS, &b"\x0a\x06nobody"[..]);
    let result = rig.end(missing);
    assert!(
        matches!(&result, Err(CallError::Status { code: 5, message }) if message.contains("not found")),
        "{result:?}"
    );
    let unknown = rig.call("/runtime.v1.RuntimeService/NoSuchMethod", "");
    assert!(matches!(rig.end(unknown), Err(CallError::Status { code: 12, .. })));
}

fn many_calls_at_once_are_answered(factory: Factory) {
    let Some(containerd) = Containerd::start() else { return };
    let mut rig = up(factory, &containerd.socket());
    rig.seen.clear();
    let ids: Vec<_> = (0..500).map(|_| rig.call(VERSION, "")).collect();
    rig.until("ends", |seen| seen.len() >= ids.len());
    assert_eq!(rig.seen.len(), ids.len());
    assert!(rig.seen.iter().all(|c| matches!(c, Completion::Done { result: Ok(_), .. })));
}

fn killed_and_started_again_it_is_down_and_up_and_calls_work_again(factory: Factory) {
    let Some(mut containerd) = Containerd::start() else { return };
    let socket = containerd.socket();
    let mut rig = up(factory, &socket);
    rig.seen.clear();
    containerd.kill();
    rig.until("Down", |seen| seen.iter().any(|c| matches!(c, Completion::Down { .. })));
    assert!(rig.downs()[0].contains(socket.to_str().unwrap()), "{:?}", rig.downs());
    let id = rig.call(VERSION, "");
    assert!(matches!(rig.end(id), Err(CallError::NotSent(_))));
    containerd.start_again();
    rig.until("Up", |seen| seen.contains(&Completion::Up));
    until_served(&mut rig);
    assert_eq!(rig.downs().len(), 1, "{:?}", rig.downs());
}
