//! The parts of the archive that the running agent provides over its control socket, and the kernel's data about its
//! process.

use super::archive::{CollectedPart, SupportArchive};
use super::{reading, redact};
use crate::api::printable;
use crate::commands::client;
use crate::commands::output::Failure;
use crate::config::Config;
use crate::foreign::{self, Links};
use serde_json::Value;
use std::io::{self, Read as _, Write};
use std::path::Path;
use std::time::Duration;

/// The time limit of a response.
const PATIENCE: Duration = Duration::from_secs(20);
/// The maximum length of a response in bytes. It is larger than a part, because the response is reduced before it is
/// cut.
const MAX_RESPONSE: u64 = 16 << 20;

/// The responses: the file in the archive, the path, and what of the response is used.
const RESPONSES: [(&str, &str, Reduction); 9] = [
    ("status.json", "/status", Reduction::Response),
    ("pods.json", "/pods?verbose", Reduction::Pods),
    ("events.json", "/events", Reduction::Response),
    ("shutdown-plan.json", "/shutdown-plan", Reduction::Response),
    ("usage.json", "/usage", Reduction::Response),
    ("images.json", "/images", Reduction::Response),
    ("dump.json", "/debug/dump", Reduction::Response),
    ("fds.json", "/debug/fds", Reduction::Response),
    ("metrics.txt", "/metrics", Reduction::None),
];

/// The files in /proc/PID.
const PROCESS: [&str; 4] = ["cgroup", "limits", "smaps_rollup", "status"];

/// How a response is reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reduction {
    Response,
    Pods,
    /// The response is text without data of pods' specs.
    None,
}

/// Adds the responses of the agent and the data about its process. Without an agent, adds one error.
///
/// # Errors
/// The output fails.
pub(super) fn add_to<W: Write>(archive: &mut SupportArchive<W>, config: &Config) -> io::Result<()> {
    let socket = config.socket.as_path();
    let [(first, path, _), others @ ..] = RESPONSES;
    let status = match response(socket, path).and_then(|body| parsed(&body)) {
        Ok(status) => status,
        Err(why) => {
            archive.note(&format!("{first} and all other data of the running agent: missing: {why}"));
            return Ok(());
        }
    };
    archive.add(first, Ok(text_of(&redact::response(status.clone()))))?;
    for (name, path, reduction) in others {
        archive.add(name, response(socket, path).and_then(|body| reduced(body, reduction)))?;
    }
    let root = status["rootDirectory"].as_str().unwrap_or_default();
    if Path::new(root) != config.root_dir {
        archive.note(&format!(
            "the running agent has the root directory {root}, and this command {}; repeat it with the --config or \
             --root-dir of the agent",
            config.root_dir.display()
        ));
    }
    add_process(archive, &config.root_dir)
}

/// Adds the kernel's data about the process that holds the lock of the root directory.
fn add_process<W: Write>(archive: &mut SupportArchive<W>, root: &Path) -> io::Result<()> {
    let lock = root.join("lock");
    let pid = reading::text(&lock, Links::Refuse)
        .and_then(|text| text.trim().parse::<u32>().map_err(|_| format!("{} contains no process id", lock.display())));
    match pid {
        Ok(pid) => PROCESS.into_iter().try_for_each(|name| {
            let path = Path::new("/proc").join(pid.to_string()).join(name);
            archive.add(&format!("process/{name}.txt"), reading::file(&path))
        }),
        Err(why) => {
            archive.note(&format!("process: missing: {why}"));
            Ok(())
        }
    }
}

/// Requests a path and returns the body.
fn response(socket: &Path, path: &'static str) -> Result<Vec<u8>, String> {
    let of_thread = socket.to_owned();
    let body = foreign::within(PATIENCE, move || {
        let reader = client::get(&of_thread, path, false).map_err(|e| match e {
            Failure::Message(message, _) => message,
            Failure::Output(e) => e.to_string(),
        })?;
        let mut body = Vec::new();
        reader.take(MAX_RESPONSE + 1).read_to_end(&mut body).map_err(|e| e.to_string())?;
        if body.len() as u64 > MAX_RESPONSE {
            return Err(format!("the response is longer than {MAX_RESPONSE} bytes"));
        }
        Ok(body)
    });
    let late = |_| format!("{}: no response to {path} for {} s", socket.display(), PATIENCE.as_secs());
    body.map_err(late)?
}

fn parsed(body: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(body).map_err(|e| format!("the response is broken or cut short: {e}"))
}

fn reduced(body: Vec<u8>, reduction: Reduction) -> Result<CollectedPart, String> {
    Ok(match reduction {
        Reduction::Response => text_of(&redact::response(parsed(&body)?)),
        Reduction::Pods => text_of(&redact::pod_list(parsed(&body)?)),
        Reduction::None => body.into(),
    })
}

fn text_of(value: &Value) -> CollectedPart {
    format!("{}\n", printable::json(&format!("{value:#}"))).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_reduced_and_readable() {
        let pods = br#"{"items":[{"spec":{"containers":[{"name":"a\u009b","env":[{"name":"A","value":"s3cr3t"}]}]}}]}"#;
        let part = reduced(pods.to_vec(), Reduction::Pods).unwrap();
        let text = String::from_utf8(part.bytes).unwrap();
        assert!(
            text.contains("\"name\": \"a\\u009b\"") && text.lines().count() > 5 && !text.contains("s3cr3t"),
            "{text}"
        );
        assert!(reduced(b"{".to_vec(), Reduction::Response).unwrap_err().contains("cut short"));
        assert_eq!(reduced(b"a 1\n".to_vec(), Reduction::None).unwrap().bytes, b"a 1\n");
    }

    #[test]
    fn without_an_agent_one_error_names_the_socket() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config { socket: dir.path().join("s.sock"), ..Config::default() };
        let mut out = Vec::new();
        let mut archive = SupportArchive::new(&mut out, "d", jiff::Timestamp::UNIX_EPOCH);
        add_to(&mut archive, &config).unwrap();
        assert_eq!(archive.finish().unwrap().errors, 1);
        let why = response(&config.socket, "/status").unwrap_err();
        assert!(why.contains(&config.socket.display().to_string()), "{why}");
    }
}
