//! The handlers against real servers on the loopback interface.

use super::*;
use crate::api::document;
use crate::api::document::context::Context;
use crate::api::pod::Pod;
use crate::engine::effect::{HookCall, HookKind, Kind, PodAddress, ProbeCall};
use crate::net::refused::closed;
use mio::{Events, Poll};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::rc::Rc;
use std::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

struct Lab {
    handlers: Handlers,
    poll: Poll,
    begun: Instant,
    last: u64,
    /// How often a handler stopped at its budget.
    stopped: usize,
    /// The address of every name.
    found: Result<IpAddr, String>,
}

impl Lab {
    fn new() -> Lab {
        let found = Ok(IpAddr::from([127, 0, 0, 1]));
        Lab {
            handlers: Handlers::default(),
            poll: Poll::new().unwrap(),
            begun: Instant::now(),
            last: 0,
            stopped: 0,
            found,
        }
    }

    fn now(&self) -> Boot {
        Boot(0) + self.begun.elapsed()
    }

    fn start(&mut self, handler: &str, timeout: Duration) -> OpId {
        self.last += 1;
        let (op, token) = (OpId(self.last), Token(self.last as usize));
        let call = ProbeCall {
            kind: Kind::Readiness,
            pod: pod(handler),
            container: "main".into(),
            id: "c".into(),
            address: PodAddress::Own("127.0.0.1".into()),
        };
        let now = self.now();
        let mut target = call.target();
        if let Ok(target) = &mut target
            && target.name().is_some()
        {
            target.set_address(self.found.clone());
        }
        self.handlers.probe(op, target, timeout, now, self.poll.registry(), token);
        op
    }

    fn hook(&mut self, handler: &str, timeout: Duration) -> Result<Answer, OpError> {
        self.last += 1;
        let (op, token) = (OpId(self.last), Token(self.last as usize));
        let handler = serde_json::from_value(serde_saphyr::from_str(handler).unwrap()).unwrap();
        let call = HookCall {
            kind: HookKind::PreStop,
            pod: None,
            container: "main".into(),
            id: "c".into(),
            handler,
            address: PodAddress::Own("127.0.0.1".into()),
        };
        let now = self.now();
        self.handlers.hook(op, call.target(), timeout, now, self.poll.registry(), token);
        self.wait(1).remove(0).1
    }

    /// Waits for `count` results.
    fn wait(&mut self, count: usize) -> Vec<Done> {
        let mut done = self.handlers.take_done();
        let mut events = Events::with_capacity(64);
        let mut again: Vec<Token> = Vec::new();
        while done.len() < count {
            let left = self.handlers.next_deadline().map(|at| at.since(self.now()));
            let left = if again.is_empty() { left } else { Some(Duration::ZERO) };
            self.poll.poll(&mut events, left).unwrap();
            for token in std::mem::take(&mut again).into_iter().chain(events.iter().map(|event| event.token())) {
                if self.handlers.ready(token, self.poll.registry()) {
                    again.push(token);
                    self.stopped += 1;
                }
            }
            let now = self.now();
            self.handlers.expire(now);
            done.extend(self.handlers.take_done());
        }
        done
    }

    fn probe(&mut self, handler: &str) -> ProbeResult {
        let op = self.start(handler, 10 * SECOND);
        let (done, result) = self.wait(1).remove(0);
        assert_eq!(done, op);
        match result {
            Ok(Answer::Probe(result)) => result,
            other => panic!("{other:?}"),
        }
    }
}

fn pod(handler: &str) -> Rc<Pod> {
    let text = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: web}}, spec: {{containers: [{{name: main, image: 'i:1', \
         readinessProbe: {{{handler}}}}}]}}}}"
    );
    let document = document::parse(text.as_bytes(), "/m/a.yaml").unwrap().remove(0);
    Rc::new(document.pod_with_unsupported("/m/a.yaml", Context::new("lab", "")).unwrap())
}

/// Starts a server that answers each connection with the next of these texts. Returns its address, and a receiver of
/// the requests.
fn server(answers: Vec<String>) -> (SocketAddr, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (seen, requests) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for answer in answers {
            let Ok((mut stream, _)) = listener.accept() else { return };
            let mut request = Vec::new();
            let mut buffer = [0; 1024];
            while !request.ends_with(b"\r\n\r\n") {
                match stream.read(&mut buffer) {
                    Ok(n) if n > 0 => request.extend_from_slice(&buffer[..n]),
                    _ => break,
                }
            }
            let _ = seen.send(String::from_utf8_lossy(&request).into_owned());
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (address, requests)
}

/// Like `server`, but answers the first bytes of the first connection in two parts, and a whole request on each
/// further connection.
fn tls_refused(answers: Vec<String>) -> (SocketAddr, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (seen, requests) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for (n, answer) in answers.into_iter().enumerate() {
            let Ok((mut stream, _)) = listener.accept() else { return };
            let mut request = Vec::new();
            let mut buffer = [0; 16_384];
            while !(n == 0 && !request.is_empty() || request.ends_with(b"\r\n\r\n")) {
                match stream.read(&mut buffer) {
                    Ok(n) if n > 0 => request.extend_from_slice(&buffer[..n]),
                    _ => break,
                }
            }
            if n > 0 {
                let _ = seen.send(String::from_utf8_lossy(&request).into_owned());
                let _ = stream.write_all(answer.as_bytes());
            } else {
                let (begin, rest) = answer.as_bytes().split_at(2);
                let _ = stream.write_all(begin);
                std::thread::sleep(Duration::from_millis(50));
                let _ = stream.write_all(rest);
            }
        }
    });
    (address, requests)
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn http(address: SocketAddr, path: &str) -> String {
    format!("httpGet: {{port: {}, path: {path}}}", address.port())
}

#[test]
fn an_http_probe_passes_from_200_to_399_and_fails_with_its_status() {
    let mut lab = Lab::new();
    let (address, requests) =
        server(vec![ok("fine"), "HTTP/1.1 500 Bad\r\n\r\n".into(), "HTTP/1.1 304 X\r\n\r\n".into()]);
    assert_eq!(lab.probe(&http(address, "/ok?x=1")), ProbeResult::Passed);
    let request = requests.recv().unwrap();
    assert!(
        request.starts_with(&format!("GET /ok?x=1 HTTP/1.1\r\nHost: {address}\r\nUser-Agent: kube-probe/")),
        "{request}"
    );
    let failed = ProbeResult::Failed("HTTP probe failed with statuscode: 500".into());
    assert_eq!(lab.probe(&http(address, "/")), failed);
    assert!(matches!(lab.probe(&http(address, "/")), ProbeResult::Warning(_)));
}

#[test]
fn a_refused_connection_is_a_failure_in_the_words_of_a_kubelet() {
    let mut lab = Lab::new();
    let address = closed();
    let refused = format!("dial tcp {address}: connect: connection refused");
    let failed = ProbeResult::Failed(format!("Get \"http://{address}/x\": {refused}"));
    assert_eq!(lab.probe(&http(address, "/x")), failed);
    let tcp = format!("tcpSocket: {{port: {}}}", address.port());
    assert_eq!(lab.probe(&tcp), ProbeResult::Failed(refused));
}

#[test]
fn a_tcp_probe_passes_with_the_connection() {
    let mut lab = Lab::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let tcp = format!("tcpSocket: {{port: {}}}", listener.local_addr().unwrap().port());
    assert_eq!(lab.probe(&tcp), ProbeResult::Passed);
}

#[test]
fn a_server_that_hangs_delays_no_other_probe_and_fails_at_its_deadline() {
    let mut lab = Lab::new();
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    let slow = lab.start(&http(hanging.local_addr().unwrap(), "/"), Duration::from_millis(300));
    let (address, _requests) = server(vec![ok("")]);
    let quick = lab.start(&http(address, "/"), 10 * SECOND);
    assert_eq!(lab.wait(1), [(quick, Ok(Answer::Probe(ProbeResult::Passed)))]);
    let [(op, Ok(Answer::Probe(ProbeResult::Failed(why))))] = &lab.wait(1)[..] else { panic!("a failure") };
    assert_eq!(*op, slow);
    assert!(why.ends_with("context deadline exceeded (Client.Timeout exceeded while awaiting headers)"), "{why}");
    assert!(lab.handlers.flights.is_empty() && lab.handlers.tokens.is_empty() && lab.handlers.deadlines.is_empty());
}

#[test]
fn redirects_on_the_same_host_are_followed_up_to_ten() {
    let mut lab = Lab::new();
    let to = |location: &str| format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 5\r\n\r\nmoved");
    let (address, requests) = server(vec![to("/next"), ok("")]);
    assert_eq!(lab.probe(&http(address, "/")), ProbeResult::Passed);
    assert!(requests.iter().nth(1).unwrap().starts_with("GET /next "));
    let (address, _requests) = server(vec![to("http://192.0.2.1/x")]);
    let warning = ProbeResult::Warning("Probe terminated redirects, Response body: moved".into());
    assert_eq!(lab.probe(&http(address, "/")), warning);
    let (address, _requests) = server(vec![to("/"); 20]);
    let ProbeResult::Failed(why) = lab.probe(&http(address, "/")) else { panic!("a failure") };
    assert!(why.ends_with("stopped after 10 redirects"), "{why}");
}

#[test]
fn a_name_is_in_the_request_and_its_address_is_connected_to() {
    let mut lab = Lab::new();
    let moved = "HTTP/1.1 302 Found\r\nLocation: /next\r\nContent-Length: 0\r\n\r\n".to_owned();
    let (address, requests) = server(vec![moved, ok("")]);
    let named = format!("httpGet: {{host: web.example, port: {}, path: /}}", address.port());
    assert_eq!(lab.probe(&named), ProbeResult::Passed);
    let host = format!("\r\nHost: web.example:{}\r\n", address.port());
    assert!(requests.iter().take(2).all(|request| request.contains(&host)), "even after a redirect");
    lab.found = Err("no such host".to_owned());
    let ProbeResult::Failed(why) = lab.probe(&named) else { panic!("a failure") };
    let url = format!("http://web.example:{}/", address.port());
    assert_eq!(why, format!("Get \"{url}\": dial tcp: lookup web.example: no such host"));
    let tcp = lab.probe("tcpSocket: {host: web.example, port: 80}");
    assert_eq!(tcp, ProbeResult::Failed("dial tcp: lookup web.example: no such host".into()));
}

#[test]
fn a_server_that_sends_garbage_or_closes_early_is_a_failure() {
    let mut lab = Lab::new();
    let half = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf".to_owned();
    let (address, _requests) = server(vec!["SSH-2.0\r\n".into(), String::new(), half]);
    for _ in 0..3 {
        assert!(matches!(lab.probe(&http(address, "/")), ProbeResult::Failed(_)));
    }
}

#[test]
fn a_hook_succeeds_with_any_response_and_fails_without_one() {
    let mut lab = Lab::new();
    let (address, _requests) = server(vec!["HTTP/1.1 500 Bad\r\nContent-Length: 100\r\n\r\n".into()]);
    let get = |port: u16| format!("{{httpGet: {{port: {port}, path: /stop}}}}");
    assert_eq!(lab.hook(&get(address.port()), 10 * SECOND), Ok(Answer::Ok));
    let Err(e) = lab.hook(&get(closed().port()), 10 * SECOND) else { panic!("an error") };
    assert!(e.message().contains("connection refused"), "{e}");
}

#[test]
fn an_https_hook_of_a_server_without_tls_is_sent_again_over_http_without_its_credentials() {
    let mut lab = Lab::new();
    let plain = || "HTTP/1.0 400 Bad Request\r\n\r\n".to_owned();
    let get = |port: u16| {
        format!(
            "{{httpGet: {{scheme: HTTPS, port: {port}, path: /stop, httpHeaders: [{{name: authorization, \
             value: Basic x}}, \
             {{name: X-Kept, value: kept}}]}}}}"
        )
    };
    let (address, requests) = tls_refused(vec![plain(), ok("")]);
    assert_eq!(lab.hook(&get(address.port()), 10 * SECOND), Ok(Answer::WithoutTls(address.to_string())));
    let again = requests.recv().unwrap();
    assert!(again.starts_with("GET /stop HTTP/1.1\r\n") && again.contains("X-Kept: kept"), "{again}");
    assert!(!again.to_lowercase().contains("authorization"), "{again}");
    // The first failure is the result if the second request fails too.
    let (address, _requests) = tls_refused(vec![plain(), "SSH-2.0\r\n".into()]);
    let Err(e) = lab.hook(&get(address.port()), 10 * SECOND) else { panic!("an error") };
    assert!(e.message().ends_with("http: server gave HTTP response to HTTPS client"), "{e}");
}

#[test]
fn a_tcp_probe_of_a_server_on_this_machine_ends_without_a_turn_of_the_loop() {
    let mut lab = Lab::new();
    let listening = TcpListener::bind("127.0.0.1:0").unwrap();
    let tcp = format!("tcpSocket: {{port: {}}}", listening.local_addr().unwrap().port());
    // On a busy machine the kernel may open the connection a moment later.
    let at_once = (0..100).any(|_| {
        let op = lab.start(&tcp, 10 * SECOND);
        let done = lab.handlers.take_done();
        let at_once = !done.is_empty();
        assert_eq!(if at_once { done } else { lab.wait(1) }, [(op, Ok(Answer::Probe(ProbeResult::Passed)))]);
        at_once
    });
    assert!(at_once);
}

#[test]
fn a_sleep_ends_after_its_time_or_is_cut_at_its_deadline() {
    let mut lab = Lab::new();
    assert_eq!(lab.hook("{sleep: {seconds: 0}}", SECOND), Ok(Answer::Ok));
    let begun = Instant::now();
    assert!(lab.hook("{sleep: {seconds: 100}}", Duration::from_millis(100)).is_err());
    assert!(begun.elapsed() < 10 * SECOND);
}

#[test]
fn a_cancelled_handler_ends_once_and_a_thousand_leave_no_descriptor() {
    let mut lab = Lab::new();
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    let tcp = http(hanging.local_addr().unwrap(), "/");
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let op = lab.start(&tcp, 10 * SECOND);
    assert!(lab.handlers.cancel(op) && !lab.handlers.cancel(op));
    assert_eq!(lab.wait(1), [(op, Err(OpError::Unknown("cancelled".into())))]);
    let before = open();
    let address = closed();
    for _ in 0..1000 {
        lab.probe(&http(address, "/"));
    }
    // Other tests of this process open descriptors too.
    assert!(open() < before + 500);
}

#[test]
fn a_probe_of_a_server_with_informational_responses_without_end_fails() {
    let mut lab = Lab::new();
    let informational = |count| "HTTP/1.1 100 Continue\r\n\r\n".repeat(count);
    let (address, _requests) = server(vec![informational(5) + &ok(""), informational(100_000)]);
    assert_eq!(lab.probe(&http(address, "/")), ProbeResult::Passed);
    let ProbeResult::Failed(why) = lab.probe(&http(address, "/")) else { panic!("a failure") };
    assert!(why.ends_with("more than 5 informational responses (1xx)"), "{why}");
}

#[test]
fn a_long_response_is_read_in_several_turns() {
    let mut lab = Lab::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let op = lab.start(&http(listener.local_addr().unwrap(), "/"), 10 * SECOND);
    let (mut stream, _) = listener.accept().unwrap();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: 8000\r\nX: {}\r\n\r\n", "x".repeat(63_000));
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&[b'y'; 8000]).unwrap();
    assert_eq!(lab.wait(1), [(op, Ok(Answer::Probe(ProbeResult::Passed)))]);
    // If the last bytes arrived late, the socket was empty for a moment.
    assert_eq!(lab.stopped, 1);
}

#[test]
fn a_grpc_server_that_floods_is_read_within_a_budget_and_given_up() {
    let mut lab = Lab::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let flood = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut answers = stream.try_clone().unwrap();
        let reader = std::thread::spawn(move || std::io::copy(&mut answers, &mut std::io::sink()));
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let pings = [&[0, 0, 8, 6, 0, 0, 0, 0, 0][..], &[0; 8]].concat().repeat(1000);
        let mut sent = stream.write_all(&settings);
        while sent.is_ok() {
            sent = stream.write_all(&pings);
        }
        let _ = reader.join().unwrap();
    });
    let ProbeResult::Failed(why) = lab.probe(&format!("grpc: {{port: {}}}", address.port())) else {
        panic!("a failure")
    };
    assert!(why.ends_with("the server sent 1 MiB without a complete response"), "{why}");
    assert!(lab.stopped >= 8, "{}", lab.stopped);
    flood.join().unwrap();
}
