//! kubectl of several versions (`tests/lab/kubectl.sh`) as clients of an agent.

use super::agent::{Agent, patience};
use super::lab::Runtime;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The time after which a command is killed, in seconds, so that a test fails instead of waiting forever.
const LONGEST: &str = "240";

impl Agent {
    /// Starts an agent that serves kubectl, on the runtime that tests share.
    pub fn serving(name: &str) -> Agent {
        let mut agent = Agent::prepare(name, &Runtime::shared());
        agent.serve_kubectl();
        agent.run_with_kubectl();
        agent
    }

    /// Returns the port of the Kubernetes API, if the agent serves it.
    pub fn kubectl_port(&self) -> u16 {
        // The lab has its own network namespace, so no other process uses the port.
        self.healthz_port + 10_000
    }

    /// Enables the API. Takes effect at the next start.
    pub fn serve_kubectl(&self) {
        let text = format!(
            "apiVersion: wherry.io/v1alpha1\nkind: WherryConfiguration\nkubectlPort: {}\n",
            self.kubectl_port()
        );
        fs::write(self.dir.join("config.d/20-kubectl.yaml"), text).expect("a drop-in");
    }

    /// Starts the agent and waits until the API accepts connections.
    pub fn run_with_kubectl(&mut self) {
        self.run();
        self.wait("the API is served", |a| TcpStream::connect(("127.0.0.1", a.kubectl_port())).is_ok());
    }

    /// Runs `wherry kubeconfig` with these arguments for this agent.
    pub fn kubeconfig(&self, words: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wherry"));
        command.arg("kubeconfig").args(words.split_whitespace()).args(["--hostname", "node"]);
        command.arg("--config").arg(self.dir.join("config.yaml")).arg("--config-dir").arg(self.dir.join("config.d"));
        command.arg("--root-dir").arg(self.root()).arg("--socket").arg(&self.socket);
        command.output().expect("wherry")
    }
}

/// The exit code and the output of a command.
#[derive(Debug)]
pub struct Printed {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Printed {
    /// Returns the words of each line of stdout.
    pub fn words(&self) -> Vec<Vec<&str>> {
        self.out.lines().map(|line| line.split_whitespace().collect()).collect()
    }
}

/// A kubectl of one version with a certificate of its own.
pub struct Kubectl {
    /// The minor version.
    pub minor: u32,
    program: PathBuf,
    /// The directory for the cache of the discovery documents, and for files of the test.
    pub home: PathBuf,
    pub kubeconfig: PathBuf,
}

/// Returns the available versions of kubectl. Reports on stderr if some are missing. Empty if the suite cannot run
/// here.
pub fn programs() -> Vec<(u32, PathBuf)> {
    let of = |name: &str| std::env::var(name).unwrap_or_default();
    let (wanted, found) = (of("WHERRY_KUBECTL"), of("WHERRY_LAB_KUBECTL"));
    let programs: Vec<(u32, PathBuf)> = found
        .split_whitespace()
        .filter_map(|one| one.split_once('='))
        .map(|(version, path)| {
            let minor = version.strip_prefix("1.").and_then(|minor| minor.parse().ok()).expect("a version");
            (minor, PathBuf::from(path))
        })
        .collect();
    if programs.len() < wanted.split_whitespace().count() || programs.is_empty() {
        let minors: Vec<u32> = programs.iter().map(|(minor, _)| *minor).collect();
        eprintln!("NOT TESTED: of kubectl {wanted:?} only these minor versions are available: {minors:?}");
    }
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let is_debian_12 = release.contains("\nID=debian\n") && release.contains("VERSION_ID=\"12\"");
    assert!(!programs.is_empty() || wanted.is_empty() || !is_debian_12, "no kubectl is available (kubectl.sh)");
    programs
}

impl Kubectl {
    /// Issues a certificate with `options` (of `wherry kubeconfig`) for the name `client`.
    pub fn new(agent: &Agent, minor: u32, program: &Path, client: &str, options: &str) -> Kubectl {
        let home = agent.dir.join(format!("home-{client}"));
        fs::create_dir_all(&home).expect("a directory");
        let kubeconfig = home.join("kubeconfig");
        let words = format!("--for {client} --namespace {} --output {}", agent.namespace, kubeconfig.display());
        let issued = agent.kubeconfig(&format!("{words} {options}"));
        assert!(issued.status.success(), "{}", String::from_utf8_lossy(&issued.stderr));
        Kubectl { minor, program: program.to_owned(), home, kubeconfig }
    }

    /// Returns a client with this kubeconfig. `home` is the directory for its files.
    pub fn of_server(home: PathBuf, kubeconfig: &str, minor: u32, program: &Path) -> Kubectl {
        fs::create_dir_all(&home).expect("a directory");
        let path = home.join("kubeconfig");
        fs::write(&path, kubeconfig).expect("a kubeconfig");
        Kubectl { minor, program: program.to_owned(), home, kubeconfig: path }
    }

    /// Returns the command line, for a program that runs it.
    pub fn line(&self, words: &str) -> String {
        format!("{} {words}", self.program.display())
    }

    /// Sets the environment and the working directory of the command. Its standard input is empty.
    pub fn environment(&self, command: &mut Command) {
        command
            .env("HOME", &self.home)
            .env("KUBECONFIG", &self.kubeconfig)
            // As its editor, `kubectl edit` calls a command that replaces one word.
            .env("KUBE_EDITOR", "sed -i s/first/second/")
            .env_remove("KUBECTL_REMOTE_COMMAND_WEBSOCKETS");
        command.current_dir(&self.home).stdin(Stdio::null());
    }

    fn command(&self, arguments: &[&str]) -> Command {
        // `timeout` kills a kubectl that takes too long, and passes signals on to it.
        let mut command = Command::new("timeout");
        command.args(["--foreground", "-k", "5", LONGEST]).arg(&self.program).args(arguments);
        self.environment(&mut command);
        command
    }

    /// Returns a client with the newest kubectl of the lab. `client`: its name.
    pub fn newest(agent: &Agent, client: &str) -> Kubectl {
        let (minor, program) = programs().into_iter().max_by_key(|(minor, _)| *minor).expect("a kubectl");
        Kubectl::new(agent, minor, &program, client, "")
    }

    /// Runs a command that must succeed.
    pub fn ok(&self, words: &[&str]) -> String {
        let Printed { code, out, err } = self.run_words(words, b"");
        assert_eq!(code, 0, "1.{} {words:?}: {out} {err}", self.minor);
        out
    }

    /// Runs a command that must fail.
    pub fn fails(&self, words: &[&str]) -> String {
        let Printed { code, out, err } = self.run_words(words, b"");
        assert_eq!(code, 1, "1.{} {words:?}: {out} {err}", self.minor);
        err
    }

    /// Returns an object, or a list, as JSON.
    pub fn object(&self, what: &str) -> Value {
        serde_json::from_str(&self.ok(&["get", what, "-o", "json"])).expect("JSON")
    }

    /// Writes a file in the client's home. Returns its path.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.home.join(name);
        fs::write(&path, text).expect("a file");
        path.display().to_string()
    }

    /// Runs a command, given as words that are separated by spaces. (Words in single quotes are one argument.)
    pub fn run(&self, line: &str) -> Printed {
        self.run_with(line, b"")
    }

    /// Runs a command with this input.
    pub fn run_with(&self, line: &str, input: &[u8]) -> Printed {
        let words = words(line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.run_words(&words, input)
    }

    /// Runs a command, given as arguments, with this input.
    pub fn run_words(&self, words: &[&str], input: &[u8]) -> Printed {
        let mut command = self.command(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("kubectl");
        // A command that does not read its input closes the pipe.
        let _ = child.stdin.take().expect("a pipe").write_all(input);
        printed(&child.wait_with_output().expect("kubectl"))
    }

    /// Starts a command that keeps running.
    pub fn start(&self, line: &str) -> Running {
        let words = words(line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command = self.command(&words);
        Running::start(&mut command, format!("1.{} {line}", self.minor))
    }
}

pub fn printed(output: &Output) -> Printed {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Printed { code: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) }
}

/// Splits at spaces, except in single quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (at, part) in line.split('\'').enumerate() {
        if at % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// A command that keeps running, with the lines that it has printed. Dropping this value terminates the command.
pub struct Running {
    child: Child,
    what: String,
    lines: Arc<Mutex<Vec<String>>>,
    pub input: Option<ChildStdin>,
}

impl Running {
    fn start(command: &mut Command, what: String) -> Running {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("kubectl");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sources: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().expect("a pipe")), Box::new(child.stderr.take().expect("a pipe"))];
        for source in sources {
            let lines = lines.clone();
            // The thread ends with the command.
            std::thread::spawn(move || {
                for line in BufReader::new(source).lines().map_while(Result::ok) {
                    lines.lock().expect("lines").push(line);
                }
            });
        }
        let input = child.stdin.take();
        Running { child, what, lines, input }
    }

    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("lines").clone()
    }

    /// Waits for a line that contains these parts in this order, and returns it.
    pub fn wait(&self, parts: &[&str]) -> String {
        let end = Instant::now() + patience(120);
        loop {
            let lines = self.lines();
            if let Some(line) = lines.iter().find(|line| in_order(line, parts)) {
                return line.clone();
            }
            assert!(Instant::now() < end, "{}: no line with {parts:?}: {lines:#?}", self.what);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the command ends by itself. Returns its exit code.
    pub fn ended(&mut self) -> i32 {
        let end = Instant::now() + patience(120);
        loop {
            if let Some(status) = self.child.try_wait().expect("wait") {
                return status.code().unwrap_or(-1);
            }
            assert!(Instant::now() < end, "{} is still running: {:#?}", self.what, self.lines());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

fn in_order(line: &str, parts: &[&str]) -> bool {
    let mut rest = line;
    parts.iter().all(|part| match rest.find(part) {
        Some(at) => {
            rest = &rest[at + part.len()..];
            true
        }
        None => false,
    })
}

impl Drop for Running {
    fn drop(&mut self) {
        // `timeout` passes the signal on.
        if self.is_running() {
            super::lab::signal(&self.child.id().to_string(), "TERM");
        }
        let _ = self.child.wait();
    }
}
