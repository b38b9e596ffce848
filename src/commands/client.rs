//! The client of the control socket, for the commands. It uses HTTP/1.0, where the body ends when the connection is
//! closed.

use crate::api::printable;
use crate::commands::output::Failure;
use serde_json::Value;
use std::borrow::Cow;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Why an older agent refuses a request: it does not know the route.
pub const UNSUPPORTED: &str = "the running wherry does not support this; restart it to run the installed version";

const PATIENCE: Duration = Duration::from_secs(30);
/// The time limit while a user waits for a shell completion.
const HURRY: Duration = Duration::from_secs(2);
const MAX_HEAD: usize = 16 * 1024;
/// Maximum length of a response in plain text, in bytes.
const MAX_SENTENCE: u64 = 16 * 1024;

/// Sends a GET request and returns a reader of the body. With `endless`, the body may pause for any time without an
/// error.
pub fn get(socket: &Path, target: &str, endless: bool) -> Result<BufReader<UnixStream>, Failure> {
    let (status, reader) = request_answer(socket, &format!("GET {target} HTTP/1.0\r\n\r\n"))?;
    if status != 200 {
        return Err(Failure::message(format!("{target}: {status} {}", sentence(reader))));
    }
    if endless {
        let broken = |e: std::io::Error| Failure::message(format!("{}: {e}", socket.display()));
        reader.get_ref().set_read_timeout(None).map_err(broken)?;
    }
    Ok(reader)
}

/// Sends a POST request without a body. Returns the status (200 means done) and the agent's message.
pub fn post_plain(socket: &Path, target: &str) -> Result<(u16, String), Failure> {
    let (status, reader) = request_answer(socket, &format!("POST {target} HTTP/1.0\r\nContent-Length: 0\r\n\r\n"))?;
    Ok((status, sentence(reader)))
}

/// Sends `body` in a POST request and parses the response.
///
/// # Errors
/// The message contains the agent's reason if it refuses the request.
pub fn post_json<T: serde::de::DeserializeOwned>(
    socket: &Path,
    target: &str,
    body: &impl serde::Serialize,
) -> Result<T, Failure> {
    let mut reader = match post(socket, target, body, PATIENCE)? {
        AgentAnswer::Done(reader) => reader,
        AgentAnswer::Refused(_, words) => return Err(Failure::message(words)),
    };
    let mut answer = Vec::new();
    reader.read_to_end(&mut answer).map_err(|e| no_answer(socket, &e))?;
    serde_json::from_slice(&answer).map_err(|e| Failure::message(format!("{target}: invalid response: {e}")))
}

/// The result of a request.
#[derive(Debug)]
pub enum AgentAnswer {
    /// The body of the response.
    Done(BufReader<UnixStream>),
    /// The status, and the agent's message.
    Refused(u16, String),
}

/// Sends `body` in a POST request. The response must start within `patience`.
pub fn post(
    socket: &Path,
    target: &str,
    body: &impl serde::Serialize,
    patience: Duration,
) -> Result<AgentAnswer, Failure> {
    let body = serde_json::to_string(body).map_err(|e| Failure::message(e.to_string()))?;
    let (status, reader) = request_within(socket, &post_request(target, &body), patience)?;
    match status {
        200 => Ok(AgentAnswer::Done(reader)),
        // An old agent also responds with 405 to an unknown route.
        405 => Err(Failure::message(UNSUPPORTED)),
        status => Ok(AgentAnswer::Refused(status, sentence(reader))),
    }
}

fn post_request(target: &str, body: &str) -> String {
    format!("POST {target} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// Reads a short response, up to `MAX_SENTENCE`.
fn sentence(reader: impl Read) -> String {
    let mut body = Vec::new();
    let _ = reader.take(MAX_SENTENCE).read_to_end(&mut body);
    String::from_utf8_lossy(&body).trim().to_owned()
}

fn request_answer(socket: &Path, request: &str) -> Result<(u16, BufReader<UnixStream>), Failure> {
    request_within(socket, request, PATIENCE)
}

fn request_within(socket: &Path, request: &str, patience: Duration) -> Result<(u16, BufReader<UnixStream>), Failure> {
    crate::config::check_socket(&socket.to_string_lossy()).map_err(Failure::message)?;
    let mut stream = UnixStream::connect(socket).map_err(|e| cannot_connect(socket, &e))?;
    let broken = |e: std::io::Error| Failure::message(format!("{}: {e}", socket.display()));
    stream.set_read_timeout(Some(patience)).map_err(broken)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(broken)?;
    stream.write_all(request.as_bytes()).map_err(broken)?;
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let n =
            reader.by_ref().take(MAX_HEAD as u64).read_until(b'\n', &mut head).map_err(|e| no_answer(socket, &e))?;
        if n == 0 || head.len() > MAX_HEAD {
            return Err(Failure::message(format!("{}: the response is not HTTP", socket.display())));
        }
    }
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut headers);
    let status = match response.parse(&head) {
        Ok(httparse::Status::Complete(_)) => response.code.unwrap_or(0),
        _ => return Err(Failure::message(format!("{}: the response is not HTTP", socket.display()))),
    };
    Ok((status, reader))
}

/// Reads a whole JSON response. The agent must begin it within `HURRY`, and must not pause for longer than that.
pub fn get_json_quickly(socket: &Path, target: &str) -> Result<Value, Failure> {
    let (status, mut reader) = request_within(socket, &format!("GET {target} HTTP/1.0\r\n\r\n"), HURRY)?;
    let mut body = Vec::new();
    reader.read_to_end(&mut body).map_err(|e| no_answer(socket, &e))?;
    let value = serde_json::from_slice(&body).ok().filter(|_| status == 200);
    value.ok_or_else(|| Failure::message(format!("{target}: {status} is not a valid response")))
}

/// Reads a whole JSON response.
pub fn get_json(socket: &Path, target: &str) -> Result<serde_json::Value, Failure> {
    let mut body = Vec::new();
    get(socket, target, false)?.read_to_end(&mut body).map_err(|e| no_answer(socket, &e))?;
    let cut = |e| Failure::message(format!("{target}: the response is broken or cut short: {e}"));
    serde_json::from_slice(&body).map_err(cut)
}

/// Reads the next change of a watch, a line of JSON.
///
/// # Errors
/// The watch ended, for the reason `ended`, or is broken.
pub fn next_change(stream: &mut impl BufRead, ended: &str) -> Result<Value, Failure> {
    let mut line = String::new();
    match stream.read_line(&mut line) {
        Ok(0) => Err(Failure::message(format!("the watch ended: {ended}"))),
        Ok(_) => serde_json::from_str(&line).map_err(|e| Failure::message(format!("the watch sent invalid JSON: {e}"))),
        Err(e) => Err(Failure::message(format!("the watch failed: {e}"))),
    }
}

/// Removes the items from a list and returns them.
pub fn take_items(list: &mut Value) -> Vec<Value> {
    match list.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

/// Escapes every string in a response, in one place for all commands. Field names are not changed.
fn escape(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(escaped) = printable::line(text) {
                *text = escaped;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(escape),
        Value::Object(map) => map.values_mut().for_each(escape),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Gets a JSON response and prints it: unchanged if `json` is set, otherwise with `show`, which gets every string as
/// one line of plain text.
pub fn print<T: serde::de::DeserializeOwned>(
    out: &mut dyn Write,
    socket: &Path,
    target: &str,
    json: bool,
    show: impl FnOnce(&mut dyn Write, &T) -> std::io::Result<()>,
) -> Result<u8, Failure> {
    let mut value = get_json(socket, target)?;
    if json {
        let text = serde_json::to_string_pretty(&value).map_err(|e| Failure::message(e.to_string()))?;
        writeln!(out, "{}", printable::json(&text))?;
        return Ok(0);
    }
    escape(&mut value);
    let unknown = |e| Failure::message(format!("{target}: invalid response: {e}"));
    let answer: T = serde_json::from_value(value).map_err(unknown)?;
    show(out, &answer)?;
    Ok(0)
}

fn no_answer(socket: &Path, e: &std::io::Error) -> Failure {
    let path = socket.display();
    match e.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Failure::message(format!(
            "{path}: no response for {} s; wherry may be suspended or hanging, see systemctl status wherry",
            PATIENCE.as_secs()
        )),
        _ => Failure::message(format!("{path}: {e}")),
    }
}

fn cannot_connect(socket: &Path, e: &std::io::Error) -> Failure {
    let path = socket.display();
    Failure::message(match e.kind() {
        ErrorKind::NotFound => {
            format!("there is no socket {path}: wherry is not running, or uses a different socket (set --socket)")
        }
        ErrorKind::ConnectionRefused => format!("nothing listens on {path}: wherry is not running"),
        ErrorKind::PermissionDenied => {
            format!("no permission for {path}: only root and the members of its group have access")
        }
        _ => format!("cannot connect to {path}: {e}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn failure(socket: &Path) -> String {
        match get(socket, "/x", false) {
            Err(Failure::Message(text, 1)) => text,
            other => panic!("{other:?}"),
        }
    }

    /// Starts a server that sends `answer` to one request.
    fn answer(answer: &'static [u8]) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let mut buffer = [0; 1024];
            let _ = stream.read(&mut buffer);
            let _ = stream.write_all(answer);
        });
        (dir, path)
    }

    #[test]
    fn without_an_agent_the_message_names_the_socket() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        assert!(failure(&path).contains("there is no socket") && failure(&path).contains("--socket"));
        drop(UnixListener::bind(&path).unwrap());
        assert!(failure(&path).contains("nothing listens on"));
    }

    #[test]
    fn answers_are_read_and_invalid_ones_are_reported() {
        let (_dir, path) = answer(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n{\"a\":1}");
        assert_eq!(get_json(&path, "/x").unwrap()["a"], 1);
        let (_dir, path) = answer(b"HTTP/1.1 200 OK\r\n\r\n{\"a\":");
        assert!(matches!(get_json(&path, "/x"), Err(Failure::Message(m, 1)) if m.contains("cut short")));
        let (_dir, path) = answer(b"HTTP/1.1 409 Conflict\r\n\r\nit is Running\n");
        assert_eq!(post_plain(&path, "/x").unwrap(), (409, "it is Running".into()));
        let (_dir, path) = answer(b"HTTP/1.1 503 Service Unavailable\r\n\r\ntoo many watches\n");
        assert_eq!(failure(&path), "/x: 503 too many watches");
        let shown = |body, json| {
            let (_dir, path) = answer(body);
            let mut out = Vec::new();
            let show = |out: &mut dyn Write, n: &u8| writeln!(out, "it is {n}");
            print(&mut out, &path, "/x", json, show).map(|code| (code, String::from_utf8(out).unwrap()))
        };
        assert_eq!(shown(b"HTTP/1.1 200 OK\r\n\r\n7", false).unwrap(), (0, "it is 7\n".into()));
        // With `json`, a response of another version is also printed unchanged.
        assert_eq!(shown(b"HTTP/1.1 200 OK\r\n\r\n[7]", true).unwrap(), (0, "[\n  7\n]\n".into()));
        let message = "/x: invalid response";
        let result = shown(b"HTTP/1.1 200 OK\r\n\r\n[7]", false);
        assert!(matches!(result, Err(Failure::Message(m, 1)) if m.starts_with(message)));
        let (_dir, path) = answer(b"hello\r\n\r\n");
        assert!(failure(&path).contains("not HTTP"));
    }
}
