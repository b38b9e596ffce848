//! `wherry port-forward`.

use super::{piped, run, wherry};
use crate::support::agent::{Agent, patience, uid};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, ChildStderr, ChildStdout};
use std::thread;
use std::time::Duration;

/// An echo server, and one that never stops to send.
fn servers(version: u32) -> String {
    format!(
        "
        terminationGracePeriodSeconds: 1
        containers:
        - name: main
          image: localhost/busybox:1.35
          command: [sh, -c, 'nc -ll -p 9 -e yes & exec nc -ll -p 7 -e cat']
          env: [{{name: VERSION, value: \"{version}\"}}]
          ports: [{{name: echo, containerPort: 7}}]
        "
    )
}

struct Forward {
    child: Child,
    out: BufReader<ChildStdout>,
    err: BufReader<ChildStderr>,
}

impl Forward {
    fn start(agent: &Agent, arguments: &[&str]) -> Forward {
        let mut child = piped(wherry(agent, "port-forward", arguments));
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        let err = BufReader::new(child.stderr.take().expect("a pipe"));
        Forward { child, out, err }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.out.read_line(&mut line).expect("a pipe") > 0, "the command has ended: {}", self.error());
        line.trim().to_owned()
    }

    fn error(&mut self) -> String {
        let mut line = String::new();
        self.err.read_line(&mut line).expect("a pipe");
        line.trim().to_owned()
    }

    /// The local port of `Forwarding from ADDRESS:PORT -> REMOTE`, of the two addresses of localhost.
    fn port(&mut self, remote: u16) -> u16 {
        let first = self.line();
        let port =
            first.strip_prefix("Forwarding from 127.0.0.1:").and_then(|l| l.strip_suffix(&format!(" -> {remote}")));
        let port = port.unwrap_or_else(|| panic!("{first}"));
        assert_eq!(self.line(), format!("Forwarding from [::1]:{port} -> {remote}"));
        port.parse().expect("a port")
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn connect(host: &str, port: u16) -> TcpStream {
    let stream = TcpStream::connect((host, port)).expect("a listener");
    stream.set_read_timeout(Some(patience(60))).expect("a timeout");
    stream
}

/// Sends bytes, ends the output, and reads the echo to its end.
fn echo(mut stream: TcpStream, bytes: &[u8]) -> Vec<u8> {
    let mut writer = stream.try_clone().expect("a descriptor");
    let sent = bytes.to_vec();
    let sender = thread::spawn(move || {
        // A refused connection may be reset meanwhile.
        let _ = writer.write_all(&sent).and_then(|()| writer.shutdown(Shutdown::Write));
    });
    let mut received = Vec::new();
    let _ = stream.read_to_end(&mut received);
    sender.join().expect("the sender");
    received
}

/// The echo server has been started and listens.
fn wait_listening(agent: &Agent) {
    let mut forward = Forward::start(agent, &["web", ":echo"]);
    let port = forward.port(7);
    agent.wait("the server listens", |_| echo(connect("127.0.0.1", port), b"?") == b"?");
}

#[test]
fn connections_are_independent_and_each_direction_ends_by_itself() {
    let agent = Agent::start("forward");
    agent.apply("web", &servers(1));
    agent.wait_running("web");
    wait_listening(&agent);
    let mut forward = Forward::start(&agent, &["web", ":7", ":9", ":81"]);
    let (echoes, endless, nobody) = (forward.port(7), forward.port(9), forward.port(81));
    // A client that does not read stops no other one.
    let mut lazy = connect("127.0.0.1", endless);
    assert_eq!(forward.line(), format!("Handling connection for {endless}"));
    lazy.read_exact(&mut [0; 100]).expect("the server sends");
    thread::sleep(Duration::from_millis(300));
    let clients: Vec<_> = (0..10u8)
        .map(|n| {
            let host = if n % 2 == 0 { "127.0.0.1" } else { "::1" };
            thread::spawn(move || {
                let bytes: Vec<u8> = (0..2_000_000u32).map(|i| (i * 7 + u32::from(n)) as u8).collect();
                assert!(echo(connect(host, echoes), &bytes) == bytes, "connection {n}");
            })
        })
        .collect();
    // A port on which nobody listens ends only its own connection.
    assert_eq!(echo(connect("127.0.0.1", nobody), b"x"), b"");
    let error = forward.error();
    let start = format!("wherry: cannot forward a connection for {nobody} -> 81: ");
    assert!(error.starts_with(&start) && error.contains("refused"), "{error}");
    clients.into_iter().for_each(|client| client.join().expect("the same bytes"));
    assert_eq!(echo(connect("::1", echoes), b"one more"), b"one more");
    lazy.read_exact(&mut [0; 1_000_000]).expect("the server still sends");
    for _ in 0..12 {
        assert!(forward.line().starts_with("Handling connection for "));
    }
}

#[test]
fn later_connections_reach_a_new_version_of_the_pod_and_open_ones_survive_the_agent() {
    let mut agent = Agent::start("moves");
    agent.apply("web", &servers(1));
    let first = uid(&agent.wait_running("web"));
    wait_listening(&agent);
    let mut forward = Forward::start(&agent, &["web", ":7"]);
    let port = forward.port(7);
    let mut open = connect("127.0.0.1", port);
    let mut answer = [0; 4];
    open.write_all(b"open").and_then(|()| open.read_exact(&mut answer)).expect("an echo");
    agent.kill();
    open.write_all(b"more").and_then(|()| open.read_exact(&mut answer)).expect("an echo without an agent");
    assert_eq!(&answer, b"more");
    assert_eq!(echo(connect("127.0.0.1", port), b"x"), b"");
    let error = forward.error();
    assert!(error.contains("cannot request a stream from wherry") && error.contains("is it running?"), "{error}");
    agent.run();
    agent.wait_running("web");
    assert_eq!(echo(connect("127.0.0.1", port), b"again"), b"again");

    agent.apply("web", &servers(2));
    agent.wait("the new pod runs", |a| a.pod("web").is_some_and(|p| uid(&p) != first));
    agent.wait_running("web");
    agent.wait("its server answers", |_| echo(connect("127.0.0.1", port), b"new") == b"new");
}

#[test]
fn a_pod_or_a_port_that_is_not_there_is_an_error_at_once() {
    let agent = Agent::start("noforward");
    agent.apply("web", &servers(1));
    agent.apply("job", &crate::support::yaml::script("Never", "exit 0"));
    agent.wait_running("web");
    agent.wait_phase("job", "Succeeded");
    agent.wait("its sandbox is stopped", |a| {
        let mut forward = Forward::start(a, &["job", ":80"]);
        let ended = forward.out.read_line(&mut String::new()).expect("a pipe") == 0;
        ended && forward.error().contains("has no running sandbox")
    });
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    for (arguments, code, why) in [
        (["nobody", "80"], 1, "pod nobody was not found"),
        (["job", ":80"], 1, "has no running sandbox"),
        (["web", ":nope"], 1, "has no port named nope; it has echo (7)"),
        (["web", "x:80"], 2, "expected [ADDRESS:]LOCAL:REMOTE"),
        (["web", &format!("{port}:80")], 1, &format!("cannot listen on 127.0.0.1:{port}")),
    ] {
        let s = run(&agent, "port-forward", &arguments);
        assert!(s.code == Some(code) && s.err.contains(why), "{arguments:?}: {:?} {}", s.code, s.err);
    }
}
