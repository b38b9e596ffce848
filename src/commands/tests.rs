mod hostile;

use super::*;
use crate::adapters::server::routes::{Ask, LISTENERS, ListenerKind, Page, Route};
use crate::adapters::server::status::NodeStatus;
use crate::api::shutdown::view::PlanView;
use crate::api::time::Boot;
use crate::net::http1::{self, Accepts};
use crate::net::listener::Place;
use crate::net::server::Server;
use crate::net::server::exchange::{Body, Content, JSON, Part, Request, Response, StreamedBody};
use crate::net::server::listeners::ListenerId;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
fn the_command_line_is_sound() {
    definition().debug_assert();
}

#[test]
fn w27_all_commands_select_pods_in_the_same_way() {
    let parsed = |args: &str| Cli::try_parse_from(args.split_whitespace()).map(|cli| cli.command);
    for good in [
        "wherry drain web",
        "wherry drain shop/web db --grace-period 5 --timeout 90s",
        "wherry drain -l app=web -n shop --no-wait",
        "wherry drain --all",
        "wherry undrain --all -n shop",
        "wherry undrain web db",
        "wherry cordon",
        "wherry uncordon",
        "wherry exec web -- ls -l",
        "wherry exec web -c main --timeout 5m -- sh -c exit",
        "wherry top",
        "wherry top web --containers --sort-by memory --watch --interval 5s",
    ] {
        assert!(parsed(good).is_ok(), "{good}: {:?}", parsed(good).err());
    }
    for bad in [
        "wherry drain",
        "wherry undrain",
        "wherry drain -n shop",
        "wherry drain web --all",
        "wherry drain --all -l app=web",
        "wherry drain -l app=",
        "wherry drain -l a=b=c",
        "wherry drain web --timeout 5s --no-wait",
        "wherry exec web",
        "wherry exec web ls",
        "wherry exec web --timeout 0s -- ls",
        "wherry exec web --timeout 25h -- ls",
        "wherry top --interval 5s",
        "wherry top --watch --interval 10ms",
    ] {
        let error = parsed(bad).err().map(|e| e.exit_code());
        assert_eq!(error, if bad.ends_with("app=") { None } else { Some(2) }, "{bad}");
    }
}

#[test]
fn what_users_of_kubectl_write_is_understood() {
    let parsed = |args: &str| Cli::try_parse_from(args.split_whitespace()).map(|cli| cli.command);
    for command in ["pods", "events", "top"] {
        for flag in ["-A", "--all-namespaces", "-n shop", "--namespace shop", "-n=shop"] {
            assert!(parsed(&format!("wherry {command} {flag}")).is_ok(), "{command} {flag}");
        }
        let error = parsed(&format!("wherry {command} -A -n shop")).unwrap_err().to_string();
        assert!(error.contains("cannot be used with"), "{error}");
    }
    let Ok(Command::Pods { query, .. }) = parsed("wherry pods pod/web -A -o wide -w") else { panic!() };
    assert!(query.all_namespaces && query.watch && query.names == ["pod/web"]);
}

#[test]
fn flags_reach_the_configuration() {
    let args = "wherry run --config /c --manifests /m --root-dir /r --log-dir /l --runtime-endpoint /e --socket /s \
                --hostname h --healthz-port 0 -v4";
    let Command::Run(flags) = Cli::try_parse_from(args.split_whitespace()).unwrap().command else { panic!() };
    let expected = Flags {
        config: Some("/c".into()),
        manifests: Some("/m".into()),
        root_dir: Some("/r".into()),
        log_dir: Some("/l".into()),
        runtime_endpoint: Some("/e".into()),
        socket: Some("/s".into()),
        hostname: Some("h".into()),
        healthz_port: Some(0),
        verbosity: Some(4),
        ..Flags::default()
    };
    assert_eq!(flags, expected);
}

#[test]
fn the_machine_is_checked_without_files_and_other_formats_are_only_for_it() {
    let parse = |line: &str| Cli::try_parse_from(line.split_whitespace()).map(|cli| cli.command);
    let found = parse("wherry check --system -o json --root-dir /r");
    assert!(matches!(found, Ok(Command::Check { system: true, output: Some(StatusFormat::Json), .. })));
    assert!(matches!(parse("wherry check a.yaml"), Ok(Command::Check { system: false, .. })));
    assert!(parse("wherry check --system a.yaml").is_err());
    assert!(parse("wherry check -o json").is_err());
}

/// A node with 300 pods of 2 kB each.
struct Node;

impl Node {
    fn pod(i: u32) -> String {
        let filler = "x".repeat(2000);
        format!(
            r#"{{"metadata":{{"name":"p{i:03}","namespace":"default","uid":"u{i}","labels":{{"f":"{filler}"}}}},
            "spec":{{"containers":[{{}}]}},"status":{{"phase":"Running"}}}}"#
        )
    }
}

/// The number of pods that were written.
struct Written(u32);

impl StreamedBody for Written {
    fn is_watch(&self) -> bool {
        false
    }
}

fn route(request: &Request<'_>) -> Option<Route> {
    Route::find(ListenerKind::Control, &request.head.path)
}

impl Content for Node {
    type Stream = Written;

    fn accepts(&self, _: ListenerId, path: &str) -> Accepts {
        Route::accepts(ListenerKind::Control, path)
    }

    fn answer(&mut self, request: &Request<'_>) -> Response<Written> {
        match route(request).expect("a route") {
            Route::Page(Page::Pods) => Response::new(200, JSON, Body::Stream(Written(0))),
            // Pod 7 was rejected, pod 8 is running.
            Route::Ask(Ask::Retry) => match http1::value_of(&request.head.query, "uid") {
                Some("u7") => Response::text(200, "pod default/p007 was retried: it is admitted\n"),
                Some("u8") => Response::text(409, "pod default/p008 is not rejected, it is Running\n"),
                other => Response::text(404, format!("there is no pod with the UID {other:?}\n")),
            },
            Route::Page(Page::Status) => {
                let status = NodeStatus { node_name: "lab".into(), ..NodeStatus::default() };
                Response::json(serde_json::to_vec(&status).unwrap())
            }
            Route::Page(Page::ShutdownPlan) => {
                let plan = PlanView { enabled: true, needed_seconds: 30, ..PlanView::default() };
                Response::json(serde_json::to_vec(&plan).unwrap())
            }
            _ => Response::text(200, "ok"),
        }
    }

    fn next(&mut self, Written(pods): &mut Written, out: &mut Vec<u8>) -> Part {
        out.extend_from_slice(if *pods == 0 { br#"{"kind":"PodList","items":["# } else { b"," });
        out.extend_from_slice(Node::pod(*pods).as_bytes());
        *pods += 1;
        if *pods < 300 {
            return Part::More;
        }
        out.extend_from_slice(b"]}");
        Part::End
    }
}

/// A server that runs in a thread until this is dropped.
struct Running {
    dir: tempfile::TempDir,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    fn start() -> Running {
        Running::start_with(|| Node)
    }

    fn start_with<C: Content<Stream = Written>>(content: impl FnOnce() -> C + Send + 'static) -> Running {
        let dir = tempfile::tempdir().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let control = Place::Unix(dir.path().join("s"));
        let told = stop.clone();
        let (listening, wait) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut content = content();
            let mut poll = mio::Poll::new().unwrap();
            let mut server = Server::new(&LISTENERS, 0);
            server.listen(ListenerKind::Control.id(), control);
            server.drive(poll.registry(), Boot(1), &mut content);
            listening.send(()).unwrap();
            let began = Instant::now();
            let mut events = mio::Events::with_capacity(16);
            while !told.load(Ordering::Relaxed) {
                poll.poll(&mut events, Some(Duration::from_millis(20))).unwrap();
                events.iter().for_each(|e| server.ready(e.token()));
                while server.drive(poll.registry(), Boot(1) + began.elapsed(), &mut content) {}
            }
        });
        wait.recv().unwrap();
        Running { dir, stop, thread: Some(thread) }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("s")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn print(command: impl FnOnce(&mut dyn Write, &Path) -> Result<u8, Failure>, socket: &Path) -> String {
    let mut out = Vec::new();
    assert_eq!(command(&mut out, socket).unwrap(), 0);
    String::from_utf8(out).unwrap()
}

#[test]
fn commands_and_server_understand_each_other() {
    let node = Running::start();
    let text = print(|out, socket| pods::run(out, socket, &pods::PodQuery::default()), &node.socket());
    assert_eq!(text.lines().count(), 301);
    assert!(text.contains("default     p299   0/1     Running   0          <unknown>\n"), "{text}");
    let text = print(|out, socket| status::run(out, socket, false), &node.socket());
    assert!(text.contains(" on lab, up 0s\n"), "{text}");
    let text = print(|out, socket| status::run(out, socket, true), &node.socket());
    assert!(text.contains("\"nodeName\": \"lab\""), "{text}");
    let text = print(|out, socket| shutdown_plan::run(out, socket, false), &node.socket());
    assert!(text.starts_with("Not armed") && text.ends_with("There are no pods.\n"), "{text}");
    let text = print(|out, socket| shutdown_plan::run(out, socket, true), &node.socket());
    let plan: PlanView = serde_json::from_str(&text).unwrap();
    assert_eq!((plan.enabled, plan.needed_seconds), (true, 30));
}

#[test]
fn a3_a_retry_prints_its_outcome_and_exits_with_its_code() {
    let node = Running::start();
    let retry = |pod: &str| {
        let mut out = Vec::new();
        let end = retry::run(&mut out, &node.socket(), &select::PodTarget::parse(pod, None).unwrap());
        (end, String::from_utf8(out).unwrap())
    };
    for pod in ["default/p007", "p007", "pod/p007"] {
        let (end, text) = retry(pod);
        assert_eq!((end.unwrap(), text.as_str()), (0, "pod default/p007 was retried: it is admitted\n"), "{pod}");
    }
    let (end, text) = retry("p008");
    assert_eq!((end.unwrap(), text.as_str()), (1, ""));
    let (end, text) = retry("default/nobody");
    assert!(matches!(end, Err(Failure::Message(m, 1)) if m.contains("default/nobody was not found")));
    assert_eq!(text, "");
}

/// A reader that has closed the pipe.
struct Closed;

impl Write for Closed {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_closed_pipe_ends_a_command_quietly() {
    let node = Running::start();
    let end = pods::run(&mut Closed, &node.socket(), &pods::PodQuery::default());
    assert!(matches!(end, Err(Failure::Output(e)) if e.kind() == std::io::ErrorKind::BrokenPipe));
}
