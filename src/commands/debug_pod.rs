//! `wherry debug POD`: adds an ephemeral container to a running pod (W29), waits until it runs, and attaches to it.

use crate::api::control::{EphemeralRequest, StreamChannels, StreamKind, StreamRequest};
use crate::api::kube::pod_row::{list, text};
use crate::commands::client::{self, AgentAnswer};
use crate::commands::output::{Failure, print_message};
use crate::commands::select::{self, PodTarget};
use crate::commands::streams::detach::{self, DetachKeys};
use crate::commands::streams::interactive::Local;
use crate::commands::streams::url::{self, UrlRefused};
use crate::commands::{attach, logs};
use serde_json::{Value, json};
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{BufRead, IsTerminal as _, Write};
use std::path::Path;
use std::time::Duration;

/// Maximum time until the agent has written the pod's record.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Args)]
pub struct DebugPodArgs {
    /// NAME, NAMESPACE/NAME, or a UID
    // Optional, because `wherry debug dump` has no pod.
    #[arg(required = true)]
    pod: Option<String>,
    /// The pod's namespace [default: any]
    #[arg(short, long)]
    namespace: Option<String>,
    /// Image of the container
    #[arg(long, required = true)]
    image: Option<String>,
    /// When to pull the image: Always, IfNotPresent or Never [default: Always for :latest, else IfNotPresent]
    #[arg(long, value_name = "POLICY")]
    image_pull_policy: Option<String>,
    /// Name of the container [default: debugger-XXXXX]
    #[arg(short = 'c', long = "container", value_name = "NAME")]
    name: Option<String>,
    /// Share the process namespace of this container
    #[arg(long, value_name = "CONTAINER")]
    target: Option<String>,
    /// Attach, and pass stdin to the container
    #[arg(short = 'i', long)]
    stdin: bool,
    /// Attach, and give the container a terminal; usually with -i
    #[arg(short = 't', long)]
    tty: bool,
    /// Keys that detach from the container, at a terminal with -it; "" for none
    #[arg(long, value_name = "KEYS", default_value = detach::DEFAULT, value_parser = DetachKeys::parse)]
    detach_keys: DetachKeys,
    /// The command and its arguments, instead of those of the image
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

impl DebugPodArgs {
    fn target(&self) -> Result<PodTarget, Failure> {
        select::select(self.pod.as_deref().unwrap_or_default(), self.namespace.as_deref())
    }
}

pub fn run(out: &mut dyn Write, err: &mut dyn Write, socket: &Path, query: DebugPodArgs) -> Result<u8, Failure> {
    let target = query.target()?;
    let pod = url::find_pod(socket, &target)?;
    let uid = text(&pod, "/metadata/uid").to_owned();
    let name = query.name.clone().unwrap_or_else(new_name);
    let tty = query.tty && (std::io::stdin().is_terminal() || !query.stdin);
    if query.tty && !tty {
        print_message("stdin is not a terminal; ignoring -t: the container runs without a terminal");
    }
    // The watch begins before the request, so it shows every state of the container.
    let mut watch = client::get(socket, "/pods?watch=1", true)?;
    let containers = vec![container(&query, &name, tty)];
    match client::post(socket, "/ephemeral", &EphemeralRequest { uid: uid.clone(), containers }, PATIENCE)? {
        AgentAnswer::Done(_) => {}
        AgentAnswer::Refused(_, words) => return Err(Failure::message(words)),
    }
    if query.name.is_none() {
        print_message(&format!("the container is {name}"));
    }
    if let Some(code) = wait_for_start(&mut watch, &uid, &name)? {
        return ended(out, socket, &query, name, code);
    }
    if !query.stdin && !tty {
        return Ok(0);
    }
    let channels = StreamChannels { stdin: query.stdin, stdout: true, stderr: !tty, tty };
    let kind = StreamKind::Attach { container: Some(name.clone()), channels };
    match url::request(socket, &StreamRequest { uid: uid.clone(), kind })? {
        Ok(url) => attach::connect(
            out,
            err,
            &url,
            channels,
            Local { stdin: query.stdin, resize: tty, raw: tty && query.stdin, detach: &query.detach_keys },
        ),
        // The container may have ended meanwhile.
        Err(UrlRefused(409, words)) => match state_of(&url::find_pod(socket, &target)?, &name) {
            DebugContainerState::Ended(code) => ended(out, socket, &query, name, code),
            _ => Err(Failure::message(words)),
        },
        Err(refused) => Err(refused.into()),
    }
}

/// Waits until the container runs. Returns its exit code if it has ended.
fn wait_for_start(watch: &mut impl BufRead, uid: &str, name: &str) -> Result<Option<u8>, Failure> {
    let mut shown = String::new();
    loop {
        let change =
            client::next_change(watch, "the agent has stopped; the container starts when the agent runs again")?;
        let pod = &change["object"];
        if text(pod, "/metadata/uid") != uid {
            continue;
        }
        if text(&change, "/type") == "DELETED" {
            return Err(Failure::message("the pod has ended"));
        }
        match state_of(pod, name) {
            DebugContainerState::Waits(why) => {
                if !why.is_empty() && why != shown {
                    print_message(&why);
                    shown = why;
                }
            }
            DebugContainerState::Runs => return Ok(None),
            DebugContainerState::Ended(code) => return Ok(Some(code)),
        }
    }
}

/// Returns the container as an item of `spec.ephemeralContainers`.
fn container(query: &DebugPodArgs, name: &str, tty: bool) -> Value {
    let mut container = json!({ "name": name, "image": query.image });
    let mut some = |field: &str, value: Value, is_set: bool| {
        if is_set {
            container[field] = value;
        }
    };
    some("imagePullPolicy", json!(query.image_pull_policy), query.image_pull_policy.is_some());
    some("targetContainerName", json!(query.target), query.target.is_some());
    some("command", json!(query.command), !query.command.is_empty());
    some("stdin", json!(true), query.stdin);
    // The end of a piped input also ends the process's input. With a terminal, the user can detach and attach again.
    some("stdinOnce", json!(true), query.stdin && !tty);
    some("tty", json!(true), tty);
    container
}

/// Prints the output of a container that ended before the attach.
fn ended(out: &mut dyn Write, socket: &Path, query: &DebugPodArgs, name: String, code: u8) -> Result<u8, Failure> {
    let query = logs::LogQuery {
        target: query.target()?,
        container: Some(name),
        all: false,
        follow: false,
        previous: false,
        tail: None,
        since: None,
        timestamps: false,
        limit: None,
    };
    logs::run(out, socket, Path::new("/var/log/pods"), &query)?;
    Ok(code)
}

#[derive(Debug, PartialEq, Eq)]
enum DebugContainerState {
    /// The reason and the message of the wait, if there is a message.
    Waits(String),
    Runs,
    Ended(u8),
}

fn state_of(pod: &Value, name: &str) -> DebugContainerState {
    let none = Value::Null;
    let all = list(pod, "/status/ephemeralContainerStatuses");
    let status = all.iter().find(|status| text(status, "/name") == name).unwrap_or(&none);
    if status.pointer("/state/running").is_some_and(Value::is_object) {
        return DebugContainerState::Runs;
    }
    if let Some(code) = status.pointer("/state/terminated/exitCode").and_then(Value::as_i64) {
        return DebugContainerState::Ended(u8::try_from(code).unwrap_or(1));
    }
    match (text(status, "/state/waiting/reason"), text(status, "/state/waiting/message")) {
        (_, "") => DebugContainerState::Waits(String::new()),
        (reason, message) => DebugContainerState::Waits(format!("{reason}: {message}")),
    }
}

/// Returns a random name such as `debugger-x7k2p`.
fn new_name() -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut random = std::hash::RandomState::new().build_hasher().finish();
    let mut name = String::from("debugger-");
    for _ in 0..5 {
        name.push(char::from(LETTERS[(random % 27) as usize]));
        random /= 27;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_name_is_a_label() {
        let name = new_name();
        assert!(name.len() == 14 && name.starts_with("debugger-"), "{name}");
        assert_ne!(name, new_name());
    }

    #[test]
    fn the_state_is_that_of_the_ephemeral_container() {
        let of = |state: Value| {
            let statuses = json!([{ "name": "d", "state": state }]);
            state_of(&json!({ "status": { "ephemeralContainerStatuses": statuses } }), "d")
        };
        assert_eq!(of(json!({ "running": {} })), DebugContainerState::Runs);
        assert_eq!(of(json!({ "terminated": { "exitCode": 3 } })), DebugContainerState::Ended(3));
        assert_eq!(
            of(json!({ "waiting": { "reason": "ContainerCreating" } })),
            DebugContainerState::Waits(String::new())
        );
        let back_off = json!({ "waiting": { "reason": "ErrImagePull", "message": "not found" } });
        assert_eq!(of(back_off), DebugContainerState::Waits("ErrImagePull: not found".into()));
        assert_eq!(state_of(&json!({}), "d"), DebugContainerState::Waits(String::new()));
    }
}
