//! A node's files, and the command on them.

use base64::Engine as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub struct Node {
    directory: tempfile::TempDir,
}

/// The result of a command.
pub struct Done {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Done {
    fn from(output: Output) -> Done {
        let text = |bytes| String::from_utf8(bytes).expect("text");
        let code = output.status.code().expect("an exit code");
        Done { code, stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl Node {
    /// `settings`: fields of the WherryConfiguration.
    pub fn new(settings: &str) -> Node {
        let directory = tempfile::tempdir().expect("a directory");
        let node = Node { directory };
        let (root, socket) = (node.path("root"), node.path("sock"));
        let fields = format!("rootDir: {}\nsocket: {}\nnodeName: boat-7\n", root.display(), socket.display());
        let text = format!("apiVersion: wherry.io/v1alpha1\nkind: WherryConfiguration\n{fields}{settings}");
        fs::write(node.path("config.yaml"), text).expect("written");
        node
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// `wherry kubeconfig` on this node, with a home and without the variables of the caller.
    pub fn command<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wherry"));
        command.arg("kubeconfig").args(arguments).arg("--config").arg(self.path("config.yaml"));
        command.arg("--config-dir").arg(self.empty());
        command.env_clear().env("HOME", self.path("home"));
        command
    }

    fn empty(&self) -> PathBuf {
        let empty = self.path("config.d");
        fs::create_dir_all(&empty).expect("created");
        fs::create_dir_all(self.path("home")).expect("created");
        empty
    }

    pub fn run(&self, arguments: &str) -> Done {
        self.command(arguments.split_whitespace()).output().expect("wherry").into()
    }

    pub fn ok(&self, arguments: &str) -> Done {
        let done = self.run(arguments);
        assert_eq!(done.code, 0, "{arguments}: {}", done.stderr);
        done
    }

    /// A file of the state.
    pub fn file(&self, name: &str) -> String {
        fs::read_to_string(self.path("root").join(name)).expect("a file")
    }

    /// All files of the state.
    pub fn files(&self) -> Vec<PathBuf> {
        fn below(directory: &Path, found: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(directory).expect("a directory") {
                let path = entry.expect("an entry").path();
                if path.is_dir() { below(&path, found) } else { found.push(path) }
            }
        }
        let mut found = Vec::new();
        below(&self.path("root"), &mut found);
        found
    }

    /// The clients of `list -o json`.
    pub fn list(&self) -> Vec<serde_json::Value> {
        let list: serde_json::Value = serde_json::from_str(&self.ok("list -o json").stdout).expect("JSON");
        list["clients"].as_array().expect("a list").clone()
    }

    /// The only value of a field in a kubeconfig, decoded.
    pub fn decoded(&self, kubeconfig: &str, field: &str) -> String {
        let values: Vec<&str> =
            kubeconfig.lines().filter_map(|l| l.trim().strip_prefix(field)?.strip_prefix(": ")).collect();
        assert_eq!(values.len(), 1, "{field} in {kubeconfig}");
        let bytes = base64::engine::general_purpose::STANDARD.decode(values[0]).expect("base64");
        String::from_utf8(bytes).expect("PEM")
    }

    /// Writes the certificate of a kubeconfig to a file.
    pub fn certificate(&self, kubeconfig: &str, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, self.decoded(kubeconfig, "client-certificate-data")).expect("written");
        path
    }
}

/// The output of openssl, stdout and stderr, and whether it succeeded.
pub fn openssl(arguments: &[&str]) -> (bool, String) {
    let output = Command::new("openssl")
        .args(arguments)
        .stdin(std::process::Stdio::null())
        .output()
        .expect("openssl is installed");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}
