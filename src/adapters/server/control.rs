//! The requests for the engine on the control socket: parses their bodies (`api::control`) and formats their answers.
//! Pure.

use super::routes::Ask;
use crate::api::claim::ClaimKey;
use crate::api::control::{
    DrainRequest, EphemeralNames, EphemeralRequest, ExecHead, ExecRequest, OutputEnd, StreamChannels, StreamKind,
    StreamRequest, StreamUrl,
};
use crate::api::ephemeral_request::RequestedContainers;
use crate::api::facts::ExecOutput;
use crate::api::names::{FullName, Uid};
use crate::engine::control::ephemeral::Origin;
use crate::engine::control::stream::Terminal;
use crate::engine::control::{self, Command, Reply, RequestError};
use crate::net::http1;
use crate::net::server::exchange::{Body, JSON, Response};
use bytes::Bytes;
use std::time::Duration;

/// Parses a request for the engine. In `query`, `?uid=` is the UID of a pod.
///
/// # Errors
/// The body is not valid JSON for this route.
pub fn parse(ask: Ask, query: &str, body: &[u8]) -> Result<control::Request, RequestError> {
    match ask {
        Ask::Retry => Ok(control::Request::Retry { uid: http1::value_of(query, "uid").unwrap_or_default().into() }),
        Ask::Drain => drain(body).map(|DrainRequest { uids, grace_period_seconds, ignore_budgets }| {
            let grace = grace_period_seconds.map(Duration::from_secs);
            let uids = uids.into_iter().map(Uid::from).collect();
            control::Request::Drain { uids, grace, ignores_budgets: ignore_budgets }
        }),
        Ask::Undrain => drain(body).map(|DrainRequest { uids, .. }| control::Request::Undrain {
            uids: uids.into_iter().map(Uid::from).collect(),
        }),
        Ask::Cordon => Ok(control::Request::Cordon { on: true }),
        Ask::Uncordon => Ok(control::Request::Cordon { on: false }),
        Ask::Ephemeral => ephemeral(body).map(control::Request::Ephemeral),
        Ask::Exec => exec(body).map(control::Request::Exec),
        Ask::Stream => stream(body).map(control::Request::Stream),
        Ask::Usage => Ok(control::Request::Usage),
        Ask::Images => Ok(control::Request::Images),
        Ask::RemoveVolume => {
            let text = |name| http1::value_of(query, name).unwrap_or_default();
            let of = ClaimKey(FullName::new(text("namespace"), text("name")));
            Ok(control::Request::RemoveVolume { of })
        }
    }
}

fn drain(body: &[u8]) -> Result<DrainRequest, RequestError> {
    let expected = "{\"uids\": [...]}";
    serde_json::from_slice(body).map_err(|e| RequestError::Malformed { why: e.to_string(), expected })
}

fn ephemeral(body: &[u8]) -> Result<control::EphemeralRequest, RequestError> {
    let expected = "{\"uid\": \"UID\", \"containers\": [{\"name\": \"debugger\", \"image\": \"busybox\"}]}";
    let malformed = |e: serde_json::Error| RequestError::Malformed { why: e.to_string(), expected };
    let EphemeralRequest { uid, containers } = serde_json::from_slice(body).map_err(malformed)?;
    Ok(control::EphemeralRequest {
        uid: Uid::from(uid),
        origin: Origin::ControlSocket,
        wanted: RequestedContainers::More(containers),
        dry_run: false,
    })
}

fn exec(body: &[u8]) -> Result<control::ExecRequest, RequestError> {
    let malformed = |e: serde_json::Error| RequestError::Malformed { why: e.to_string(), expected: "" };
    let ExecRequest { uid, container, command, timeout_seconds } = serde_json::from_slice(body).map_err(malformed)?;
    let (command, timeout) = (Command(command), Duration::from_secs(timeout_seconds));
    Ok(control::ExecRequest { uid: Uid::from(uid), container, command, timeout })
}

fn stream(body: &[u8]) -> Result<control::StreamRequest, RequestError> {
    let expected = "{\"uid\": \"UID\", \"exec\": {\"command\": [...], \"stdout\": true}}";
    let malformed = |e: serde_json::Error| RequestError::Malformed { why: e.to_string(), expected };
    let StreamRequest { uid, kind } = serde_json::from_slice(body).map_err(malformed)?;
    let kind = match kind {
        StreamKind::Exec { container, command, channels: StreamChannels { stdin, stdout, stderr, tty } } => {
            control::StreamKind::Exec { container, command: Command(command), stdin, stdout, stderr, tty }
        }
        StreamKind::Attach { container, channels: StreamChannels { stdin, stdout, stderr, tty } } => {
            let terminal = Terminal::AsRequested;
            control::StreamKind::Attach { container, stdin, stdout, stderr, tty, terminal }
        }
        StreamKind::PortForward { ports } => control::StreamKind::PortForward { ports },
    };
    Ok(control::StreamRequest { uid: Uid::from(uid), kind })
}

pub fn response<S>(answer: Result<Reply, RequestError>) -> Response<S> {
    match answer {
        Ok(Reply::Drained(drained)) => Response::json(serde_json::to_vec(&drained).unwrap_or_default()),
        Ok(Reply::Shortened) => Response::text(200, ""),
        // No route of the control socket requests these.
        Ok(Reply::Evicted { .. } | Reply::Permitted { .. }) => Response::text(200, ""),
        Ok(Reply::Cordoned { on: true }) => Response::text(200, "the node is cordoned\n"),
        Ok(Reply::Cordoned { on: false }) => Response::text(200, "the node is not cordoned\n"),
        Ok(Reply::Retried { pod, outcome }) => Response::text(200, format!("pod {pod} was retried: {outcome}\n")),
        Ok(Reply::Ephemeral(names)) => {
            Response::json(serde_json::to_vec(&EphemeralNames { names }).unwrap_or_default())
        }
        Ok(Reply::Executed(output, end)) => executed(output, end),
        Ok(Reply::StreamUrl(url)) => Response::json(serde_json::to_vec(&StreamUrl { url }).unwrap_or_default()),
        Ok(Reply::Usage(usage)) => Response::json(serde_json::to_vec(&usage).unwrap_or_default()),
        Ok(Reply::Images(images)) => Response::json(serde_json::to_vec(&images).unwrap_or_default()),
        Err(error) => Response::text(error.status(), format!("{error}\n")),
    }
}

/// Returns the answer for a command that has ended: a line of JSON, the command's stdout, and then its stderr.
fn executed<S>(output: ExecOutput, output_end: OutputEnd) -> Response<S> {
    let ExecOutput { exit_code, stdout, stderr } = output;
    let head = ExecHead { exit_code, stdout_bytes: stdout.len() as u64, output_end };
    let mut body = serde_json::to_vec(&head).unwrap_or_default();
    body.push(b'\n');
    body.extend_from_slice(&stdout);
    drop(stdout);
    body.extend_from_slice(&stderr);
    Response::new(200, JSON, Body::Full(Bytes::from(body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(ask: Ask, body: &'static str) -> control::Request {
        parse(ask, "", body.as_bytes()).unwrap()
    }

    #[test]
    fn each_body_becomes_a_request() {
        let uids = || vec![Uid::from("u")];
        let body = r#"{"uids": ["u"], "gracePeriodSeconds": 3, "later": 1}"#;
        let grace = Some(Duration::from_secs(3));
        assert_eq!(parsed(Ask::Drain, body), control::Request::Drain { uids: uids(), grace, ignores_budgets: false });
        assert_eq!(parsed(Ask::Undrain, body), control::Request::Undrain { uids: uids() });
        assert_eq!(parsed(Ask::Usage, ""), control::Request::Usage);
        assert_eq!(parsed(Ask::Images, ""), control::Request::Images);
        let exec = parsed(Ask::Exec, r#"{"uid": "u", "command": ["ls", "-l"], "timeoutSeconds": 5}"#);
        let command = Command(vec!["ls".to_owned(), "-l".to_owned()]);
        let timeout = Duration::from_secs(5);
        let expected = control::ExecRequest { uid: "u".into(), container: None, command, timeout };
        assert_eq!(exec, control::Request::Exec(expected));
        let wanted = RequestedContainers::More(vec![serde_json::json!({ "name": "d", "image": "b" })]);
        let expected =
            control::EphemeralRequest { uid: "u".into(), origin: Origin::ControlSocket, wanted, dry_run: false };
        let body = r#"{"uid": "u", "containers": [{"name": "d", "image": "b"}], "later": 1}"#;
        assert_eq!(parsed(Ask::Ephemeral, body), control::Request::Ephemeral(expected));
        let stream = |kind| control::Request::Stream(control::StreamRequest { uid: "u".into(), kind });
        let (stdin, stdout, stderr, tty) = (false, true, true, false);
        let command = Command(vec!["ls".to_owned()]);
        let exec = control::StreamKind::Exec { container: None, command, stdin, stdout, stderr, tty };
        let body =
            r#"{"uid": "u", "exec": {"command": ["ls"], "stdout": true, "stderr": true, "later": 1}, "later": 1}"#;
        assert_eq!(parsed(Ask::Stream, body), stream(exec));
        let (container, stderr, tty) = (Some("c".to_owned()), false, true);
        let terminal = Terminal::AsRequested;
        let attach = control::StreamKind::Attach { container, stdin, stdout, stderr, tty, terminal };
        let body = r#"{"uid": "u", "attach": {"container": "c", "stdout": true, "tty": true}}"#;
        assert_eq!(parsed(Ask::Stream, body), stream(attach));
        let forward = control::StreamKind::PortForward { ports: vec![80] };
        assert_eq!(parsed(Ask::Stream, r#"{"uid": "u", "portForward": {"ports": [80]}}"#), stream(forward));
        for (query, expected) in [("", ""), ("x=1&uid=u", "u")] {
            let retry = control::Request::Retry { uid: Uid::from(expected) };
            assert_eq!(parse(Ask::Retry, query, b""), Ok(retry));
        }
    }

    #[test]
    fn a_malformed_body_is_refused_with_the_reason() {
        for (ask, body, start, end) in [
            (Ask::Drain, "", "invalid request: EOF", "; expected {\"uids\": [...]}\n"),
            (Ask::Undrain, "{\"uids\": 1}", "invalid request: invalid type", "; expected {\"uids\": [...]}\n"),
            (
                Ask::Stream,
                "{\"uid\": \"u\"}",
                "invalid request: ",
                "; expected {\"uid\": \"UID\", \"exec\": {\"command\": [...], \"stdout\": true}}\n",
            ),
            (
                Ask::Ephemeral,
                "{\"uid\": \"u\", \"containers\": 1}",
                "invalid request: invalid type",
                "; expected {\"uid\": \"UID\", \"containers\": [{\"name\": \"debugger\", \"image\": \"busybox\"}]}\n",
            ),
            (Ask::Exec, "{\"uid\": 1}", "invalid request: invalid type", "column 9\n"),
        ] {
            let response = response::<()>(parse(ask, "", body.as_bytes()).map(|_| panic!("{body}")));
            let Body::Full(text) = response.body else { panic!() };
            let text = std::str::from_utf8(&text).unwrap();
            assert!(response.status == 400 && text.starts_with(start) && text.ends_with(end), "{body}: {text}");
        }
    }

    #[test]
    fn the_length_of_stdout_separates_it_from_stderr() {
        let output = ExecOutput { exit_code: 3, stdout: b"out\n".to_vec(), stderr: b"err".to_vec() };
        let body = |end| match response::<()>(Ok(Reply::Executed(output.clone(), end))).body {
            Body::Full(body) => String::from_utf8(body.to_vec()).unwrap(),
            _ => panic!(),
        };
        assert_eq!(body(OutputEnd::Complete), "{\"exitCode\":3,\"stdoutBytes\":4}\nout\nerr");
        assert_eq!(body(OutputEnd::Cut), "{\"exitCode\":3,\"stdoutBytes\":4,\"outputEnd\":\"cut\"}\nout\nerr");
    }
}
