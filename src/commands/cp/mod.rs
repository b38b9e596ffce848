//! `wherry cp`: copies files between this machine and a container, as tar archives. The container must have `tar`.
//!
//! An archive from a container is hostile input: `extract` decides which entries are written, and `tree` writes only
//! below the target. `pack` creates the archive for the other direction.

mod extract;
mod pack;
mod paths;
mod skipped;
mod tree;

use crate::api::control::{ExecHead, ExecRequest, StreamChannels, StreamKind, StreamRequest};
use crate::api::kube::pod_row::text;
use crate::commands::client::{self, AgentAnswer};
use crate::commands::output::{Failure, print_message};
use crate::commands::select::{PodTarget, select};
use crate::commands::streams::bytes::Bytes;
use crate::commands::streams::session::{End, Session};
use crate::commands::streams::url::{self, UrlRefused};
use paths::{Remote, Side};
use skipped::{MAX_WARNINGS, Skipped};
use std::io::BufRead as _;
use std::path::Path;
use std::time::Duration;

/// Time limit for testing whether the target in the container is a directory.
const TEST_SECONDS: u64 = 30;

#[derive(Debug, clap::Args)]
pub struct CopyArgs {
    /// POD:PATH or a local path; POD is NAME, NAMESPACE/NAME, or a UID. A local path with a colon starts with / or ./
    source: String,
    /// POD:PATH or a local path. If it is a directory, the copy is created in it under the name of the source
    target: String,
    /// The pod's namespace [default: any]
    #[arg(short, long)]
    namespace: Option<String>,
    /// Name of the container [default: from the annotation kubectl.kubernetes.io/default-container, else the first]
    #[arg(short, long)]
    container: Option<String>,
}

/// Returns the pod in an argument of the command, if the argument names one.
pub fn pod(argument: &str) -> Option<&str> {
    match Side::parse(argument) {
        Side::Remote { pod, .. } => Some(pod),
        Side::Local(_) => None,
    }
}

/// The container, and how to reach it.
struct Container<'a> {
    socket: &'a Path,
    uid: String,
    name: Option<String>,
}

/// Copies the files. Returns exit code 1 if something was skipped.
pub fn run(socket: &Path, query: CopyArgs) -> Result<u8, Failure> {
    let usage = |words: &str| Failure::Message(words.to_owned(), 2);
    let (source, target) = (Side::parse(&query.source), Side::parse(&query.target));
    let find = |pod: &str| -> Result<Container<'_>, Failure> {
        let target: PodTarget = select(pod, query.namespace.as_deref())?;
        let uid = text(&url::find_pod(socket, &target)?, "/metadata/uid").to_owned();
        Ok(Container { socket, uid, name: query.container.clone() })
    };
    let skipped = match (source, target) {
        (Side::Remote { pod, path }, Side::Local(target)) => {
            download(&find(pod)?, &Remote::parse(path).map_err(|e| usage(&e))?, target)?
        }
        (Side::Local(source), Side::Remote { pod, path }) => upload(source, &find(pod)?, path)?,
        _ => return Err(usage("one of the two paths must be POD:PATH, and the other a local path")),
    };
    if skipped.count > MAX_WARNINGS {
        print_message(&format!("{} files were not copied; the first {MAX_WARNINGS} are listed above", skipped.count));
    }
    Ok(u8::from(skipped.count > 0))
}

fn download(container: &Container<'_>, source: &Remote, target: &Path) -> Result<Skipped, Failure> {
    let tree =
        tree::Tree::open(target, source.name()).map_err(|e| Failure::message(format!("{}: {e}", target.display())))?;
    let command = ["tar", "cf", "-", "-C", source.directory(), &source.entry()];
    let mut skipped = Skipped::default();
    let mut bytes = container.stream(&command, false)?;
    let copied = extract::extract(&mut bytes, source.name(), &tree, &mut skipped);
    container.finish(bytes, copied.as_ref().err())?;
    match copied {
        Ok(0) if skipped.count == 0 => Err(Failure::message("the archive from the container is empty")),
        Ok(_) => Ok(skipped),
        Err(e) => Err(Failure::message(format!("cannot copy to {}: {e}", target.display()))),
    }
}

fn upload(source: &Path, container: &Container<'_>, path: &str) -> Result<Skipped, Failure> {
    let name = paths::local_name(source).map_err(|e| Failure::message(format!("{}: {e}", source.display())))?;
    let cannot = |e: std::io::Error| Failure::message(format!("cannot read {}: {e}", source.display()));
    // Check the source before anything starts in the container.
    std::fs::symlink_metadata(source).map_err(cannot)?;
    let is_directory = path.is_empty() || path.ends_with('/') || container.has_directory(path)?;
    let remote = if is_directory { Remote::inside(path, &name) } else { Remote::parse(path) };
    let remote = remote.map_err(|e| Failure::Message(e, 2))?;
    let name = remote.name().ok_or_else(|| Failure::message(format!("{path:?} names no file")))?;
    let command = ["tar", "xpof", "-", "-C", remote.directory()];
    let mut skipped = Skipped::default();
    let mut bytes = container.stream(&command, true)?;
    let packed = pack::pack(source, name, &mut bytes, &mut skipped);
    container.finish(bytes, packed.as_ref().err())?;
    packed.map_err(cannot)?;
    Ok(skipped)
}

impl Container<'_> {
    /// Starts a command whose output is read, or whose input is written.
    fn stream(&self, command: &[&str], stdin: bool) -> Result<Bytes, Failure> {
        let channels = StreamChannels { stdin, stdout: true, stderr: true, tty: false };
        let command = command.iter().map(|word| (*word).to_owned()).collect();
        let kind = StreamKind::Exec { container: self.name.clone(), command, channels };
        let url = url::request(self.socket, &StreamRequest { uid: self.uid.clone(), kind })?;
        let url = url.map_err(|UrlRefused(_, words)| Failure::message(words))?;
        Ok(Bytes::new(Session::start(&url, channels).map_err(Failure::message)?))
    }

    /// Waits for the end of `tar`. If tar has failed, its failure is reported, because it is the cause of an error on
    /// this side (`ours`). The exception is an error on this side while tar still runs: tar would then fail only
    /// because no process reads its output.
    fn finish(&self, bytes: Bytes, ours: Option<&std::io::Error>) -> Result<(), Failure> {
        if ours.is_some_and(|e| e.kind() != std::io::ErrorKind::BrokenPipe) && !bytes.has_ended() {
            return Ok(());
        }
        let (end, stderr) = bytes.finish().map_err(|e| Failure::message(e.to_string()))?;
        let why = if stderr.is_empty() { String::new() } else { format!(": {stderr}") };
        match end {
            None => Err(Failure::message(format!("tar in the container has failed{why}"))),
            Some(End::Exited(0)) => Ok(()),
            Some(End::Exited(code)) => {
                Err(Failure::message(format!("tar in the container ended with exit code {code}{why}")))
            }
            Some(End::Failed(words))
                if words.contains("executable file not found") || words.contains("no such file") =>
            {
                let remedy = "wherry cp needs the program tar in the container; use `wherry exec` with another program";
                Err(Failure::message(format!("{remedy}: {words}")))
            }
            Some(End::Failed(words)) => Err(Failure::message(words)),
        }
    }

    /// Reports whether the path is a directory. Returns false if the container has no program `test`.
    fn has_directory(&self, path: &str) -> Result<bool, Failure> {
        let command = ["test", "-d", path].map(str::to_owned).to_vec();
        let (uid, container, timeout_seconds) = (self.uid.clone(), self.name.clone(), TEST_SECONDS);
        let request = ExecRequest { uid, container, command, timeout_seconds };
        let patience = Duration::from_secs(2 * TEST_SECONDS);
        match client::post(self.socket, "/exec", &request, patience)? {
            AgentAnswer::Done(mut reader) => {
                let mut head = String::new();
                reader.read_line(&mut head).map_err(|e| Failure::message(format!("/exec: {e}")))?;
                let head: ExecHead = serde_json::from_str(&head)
                    .map_err(|e| Failure::message(format!("/exec: invalid response: {e}")))?;
                Ok(head.exit_code == 0)
            }
            AgentAnswer::Refused(502, _) => Ok(false),
            AgentAnswer::Refused(_, words) => Err(Failure::message(words)),
        }
    }
}
