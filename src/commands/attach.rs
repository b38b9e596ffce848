//! `wherry attach`: connects to the standard streams of a container's own process.

use crate::api::control::{StreamChannels, StreamKind, StreamRequest};
use crate::api::kube::pod_row::text;
use crate::commands::output::{Failure, print_message};
use crate::commands::select::PodArgs;
use crate::commands::streams::detach::{self, DetachKeys};
use crate::commands::streams::interactive::{self, Local, SessionEnd};
use crate::commands::streams::session::{End, Session};
use crate::commands::streams::url;
use serde_json::Value;
use std::io::{IsTerminal as _, Write};
use std::path::Path;

#[derive(Debug, clap::Args)]
pub struct AttachArgs {
    #[command(flatten)]
    pod: PodArgs,
    /// Name of the container [default: from the annotation kubectl.kubernetes.io/default-container, else the first]
    #[arg(short, long)]
    container: Option<String>,
    /// Pass stdin to the container, which must have `stdin: true` in its manifest
    #[arg(short = 'i', long)]
    stdin: bool,
    /// Use the terminal of the container, which must have `tty: true` in its manifest; all keys go to the container
    #[arg(short = 't', long)]
    tty: bool,
    /// Keys that detach from the container, at a terminal with -it; "" for none
    #[arg(long, value_name = "KEYS", default_value = detach::DEFAULT, value_parser = DetachKeys::parse)]
    detach_keys: DetachKeys,
}

/// Attaches to the container. Returns when its process ends or the user detaches.
pub fn run(out: &mut dyn Write, err: &mut dyn Write, socket: &Path, query: AttachArgs) -> Result<u8, Failure> {
    let pod = url::find_pod(socket, &query.pod.target()?)?;
    let uid = text(&pod, "/metadata/uid").to_owned();
    // A terminal has only one output, so stderr must not be requested. With -t and a container without a terminal,
    // the agent returns an error.
    let tty = query.tty || has_terminal(&pod, query.container.as_deref());
    let channels = StreamChannels { stdin: query.stdin, stdout: true, stderr: !tty, tty };
    let kind = StreamKind::Attach { container: query.container, channels };
    let url = url::request(socket, &StreamRequest { uid, kind })??;
    connect(
        out,
        err,
        &url,
        channels,
        Local { stdin: query.stdin, resize: query.tty, raw: query.tty && query.stdin, detach: &query.detach_keys },
    )
}

/// Connects the standard streams of the command to those of the container until its process ends. With `raw`, all
/// keys that are typed at a terminal go to the container.
pub fn connect(
    out: &mut dyn Write,
    err: &mut dyn Write,
    url: &str,
    channels: StreamChannels,
    local: Local<'_>,
) -> Result<u8, Failure> {
    let mut session = Session::start(url, channels).map_err(Failure::message)?;
    let local = Local { raw: local.raw && std::io::stdin().is_terminal(), ..local };
    if local.raw {
        let keys = local.detach.to_string();
        let detach = if keys.is_empty() { String::new() } else { format!("; {keys} detaches") };
        print_message(&format!("attached; if there is no prompt, press Enter{detach}"));
    }
    let ended = interactive::run(&mut session, local, out, err);
    match ended.map_err(|e| Failure::message(format!("cannot set up the terminal: {e}")))? {
        SessionEnd::Session(End::Exited(code)) => Ok(u8::try_from(code).unwrap_or(1)),
        SessionEnd::Session(End::Failed(words)) | SessionEnd::Lost(words) => Err(Failure::message(words)),
        SessionEnd::Detached => {
            print_message("detached; the container continues");
            Ok(0)
        }
        SessionEnd::Signal(number) => Ok(128 + number),
        SessionEnd::Output(e) => Err(Failure::Output(e)),
    }
}

/// Reports whether the container of an attach has a terminal. The container is chosen as in the agent.
fn has_terminal(pod: &Value, named: Option<&str>) -> bool {
    let of = |list: &str| pod["spec"][list].as_array().cloned().unwrap_or_default();
    let containers = of("containers");
    let all: Vec<Value> =
        containers.iter().cloned().chain(of("initContainers")).chain(of("ephemeralContainers")).collect();
    let find = |name: &str| all.iter().find(|container| container["name"] == name);
    let annotated = pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"].as_str();
    let chosen = match named {
        Some(name) => find(name),
        None => annotated.and_then(find).or(containers.first()),
    };
    chosen.is_some_and(|container| container["tty"] == true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_terminal_is_that_of_the_container_that_the_agent_chooses() {
        let pod = |annotation: &str| {
            json!({
                "metadata": {"annotations": {"kubectl.kubernetes.io/default-container": annotation}},
                "spec": {"initContainers": [{"name": "side", "tty": true}],
                         "containers": [{"name": "a"}, {"name": "b", "tty": true}]},
            })
        };
        for (annotation, named, expected) in [
            ("", None, false),
            ("b", None, true),
            ("side", None, true),
            ("nobody", None, false),
            ("b", Some("a"), false),
            ("", Some("side"), true),
            ("", Some("x"), false),
        ] {
            assert_eq!(has_terminal(&pod(annotation), named), expected, "{annotation} {named:?}");
        }
    }
}
