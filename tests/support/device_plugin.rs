//! A device plugin (v1beta1) in a process of its own: this test program, executed again. Its messages are encoded by
//! hand, so that they do not depend on the code under test.
//!
//! The directory of the plugin contains its socket and these files: `list`, the devices and their health, which a
//! test can change; `calls`, the calls that the plugin has received; `failure`, a message with which Allocate fails
//! while the file exists; `flood`: while it exists, lists of 100 devices are sent without a pause.

use super::grpc_server::{NonBlocking, block_on};
use bytes::Bytes;
use h2::server::{Connection, SendResponse};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use std::fs::{self, OpenOptions};
use std::future::{Future, poll_fn};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const DIRECTORY: &str = "DEVICE_PLUGIN_DIRECTORY";
const RESOURCE: &str = "DEVICE_PLUGIN_RESOURCE";
const ENDPOINT: &str = "plugin.sock";

/// A running plugin.
pub struct DevicePlugin {
    directory: PathBuf,
    resource: String,
    child: Child,
}

impl DevicePlugin {
    /// Starts a plugin for the resource. `entry` is the name of the test that calls `run`. `directory` contains the
    /// socket `kubelet.sock` of the agent.
    pub fn start(directory: &Path, resource: &str, devices: &str, entry: &str) -> DevicePlugin {
        fs::create_dir_all(directory).expect("a directory");
        fs::write(directory.join("list"), devices).expect("list");
        let child = DevicePlugin::spawn(directory, resource, entry);
        DevicePlugin { directory: directory.to_owned(), resource: resource.to_owned(), child }
    }

    fn spawn(directory: &Path, resource: &str, entry: &str) -> Child {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args(["--ignored", "--exact", entry, "--test-threads", "1"]);
        command.env(DIRECTORY, directory).env(RESOURCE, resource);
        command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("a plugin")
    }

    /// Sets the list, with `id Healthy` or `id Unhealthy` on each line.
    pub fn set(&self, devices: &str) {
        let new = self.directory.join("list.new");
        fs::write(&new, devices).expect("list");
        fs::rename(new, self.directory.join("list")).expect("list");
    }

    /// Makes Allocate fail with this message until `succeed` is called.
    pub fn fail(&self, message: &str) {
        fs::write(self.directory.join("failure"), message).expect("failure");
    }

    pub fn succeed(&self) {
        fs::remove_file(self.directory.join("failure")).expect("failure");
    }

    /// Returns the calls so far, for example `Allocate a,b` and `PreStartContainer a`.
    pub fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.directory.join("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub fn start_again(&mut self, entry: &str) {
        self.end();
        self.child = DevicePlugin::spawn(&self.directory, &self.resource, entry);
    }
}

impl Drop for DevicePlugin {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs in the process of a plugin: serves and registers until the process is killed.
pub fn run() {
    let Ok(directory) = std::env::var(DIRECTORY).map(PathBuf::from) else { return };
    let resource = std::env::var(RESOURCE).expect("a resource");
    let _ = fs::remove_file(directory.join(ENDPOINT));
    let listener = UnixListener::bind(directory.join(ENDPOINT)).expect("listen");
    let of_server = directory.clone();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            client.set_nonblocking(true).expect("non-blocking");
            let directory = of_server.clone();
            std::thread::spawn(move || serve(client, &directory));
        }
    });
    // Like most plugins, it registers again when the agent has created a new socket.
    let socket = directory.join("kubelet.sock");
    let mut registered = None;
    loop {
        let current = fs::metadata(&socket).ok().map(|m| (m.ino(), m.ctime(), m.ctime_nsec()));
        if current.is_some() && current != registered && register(&socket, &resource).is_ok() {
            registered = current;
        }
        std::thread::sleep(Duration::from_millis(50));
        // The test has ended without killing this process.
        if !directory.exists() {
            return;
        }
    }
}

fn field(number: u8, value: &[u8]) -> Vec<u8> {
    assert!(value.len() < 128, "short values only");
    [&[number << 3 | 2, value.len() as u8], value].concat()
}

fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).expect("short").to_be_bytes();
    [&[0][..], &length, message].concat().into()
}

/// Returns the strings of the repeated field 1 of this message.
fn strings(mut message: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    while let [10, length, rest @ ..] = message {
        let (text, rest) = rest.split_at(usize::from(*length));
        found.push(String::from_utf8_lossy(text).into_owned());
        message = rest;
    }
    found
}

fn register(socket: &Path, resource: &str) -> Result<(), Box<dyn std::error::Error>> {
    let stream = UnixStream::connect(socket)?;
    stream.set_nonblocking(true)?;
    // version, endpoint, resource_name, options {pre_start_required: true}
    let options = if resource.ends_with("/prepared") { field(4, &[8, 1]) } else { Vec::new() };
    let message =
        [field(1, b"v1beta1"), field(2, ENDPOINT.as_bytes()), field(3, resource.as_bytes()), options].concat();
    let call = async {
        let (mut send, connection) = h2::client::handshake(NonBlocking(stream)).await?;
        let request = Request::post("http://localhost/v1beta1.Registration/Register")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .expect("a request");
        let (answer, mut body) = send.send_request(request, false)?;
        body.send_data(framed(&message), true)?;
        let mut connection = pin!(connection);
        let mut answer = pin!(answer);
        let head = poll_fn(|cx| {
            let _ = connection.as_mut().poll(cx);
            answer.as_mut().poll(cx)
        });
        let head = head.await?;
        let mut body = head.into_body();
        let trailers = poll_fn(|cx| {
            let _ = connection.as_mut().poll(cx);
            while let Poll::Ready(Some(_)) = body.poll_data(cx) {}
            body.poll_trailers(cx)
        });
        let trailers = trailers.await?;
        let ok = trailers.is_some_and(|t| t.get("grpc-status").is_some_and(|s| s == "0"));
        if ok { Ok(()) } else { Err::<(), Box<dyn std::error::Error>>("refused".into()) }
    };
    block_on(call)
}

struct Reading {
    path: String,
    body: RecvStream,
    bytes: Vec<u8>,
    respond: SendResponse<Bytes>,
}

fn serve(client: UnixStream, directory: &Path) {
    let Ok(mut connection) = block_on(h2::server::handshake(NonBlocking(client))) else { return };
    let (mut reading, mut watchers): (Vec<Reading>, Vec<(SendStream<Bytes>, String)>) = (Vec::new(), Vec::new());
    let mut number = 0;
    let mut cx = Context::from_waker(Waker::noop());
    while step(&mut connection, &mut reading, &mut cx) {
        for mut request in std::mem::take(&mut reading) {
            let mut complete = false;
            while let Poll::Ready(data) = request.body.poll_data(&mut cx) {
                match data {
                    Some(Ok(bytes)) => request.bytes.extend_from_slice(&bytes),
                    _ => {
                        complete = true;
                        break;
                    }
                }
            }
            if complete {
                answer(request, &mut watchers, directory);
            } else {
                reading.push(request);
            }
        }
        let list = fs::read_to_string(directory.join("list")).unwrap_or_default();
        for (stream, sent) in watchers.iter_mut().filter(|(_, sent)| *sent != list) {
            let device = |line: &str| {
                let (id, health) = line.split_once(' ').expect("id and health");
                field(1, &[field(1, id.as_bytes()), field(2, health.as_bytes())].concat())
            };
            let message: Vec<u8> = list.lines().flat_map(device).collect();
            let _ = stream.send_data(framed(&message), false);
            sent.clone_from(&list);
        }
        if watchers.is_empty() || !directory.join("flood").exists() {
            std::thread::sleep(Duration::from_millis(5));
        } else {
            watchers.iter_mut().for_each(|(stream, _)| flood(stream, &mut number));
        }
    }
}

/// Sends lists as long as the agent accepts them. In each list, all devices have changed.
fn flood(stream: &mut SendStream<Bytes>, number: &mut usize) {
    loop {
        *number += 1;
        let health: &[u8] = if number.is_multiple_of(2) { b"Healthy" } else { b"Unhealthy" };
        let device = |n: usize| field(1, &[field(1, format!("cam{n}").as_bytes()), field(2, health)].concat());
        let message = framed(&(0..100).flat_map(device).collect::<Vec<u8>>());
        stream.reserve_capacity(message.len());
        if stream.capacity() < message.len() || stream.send_data(message, false).is_err() {
            return;
        }
    }
}

/// Accepts requests. Returns false when the connection has ended.
fn step(
    connection: &mut Connection<NonBlocking<UnixStream>, Bytes>,
    reading: &mut Vec<Reading>,
    cx: &mut Context<'_>,
) -> bool {
    loop {
        match connection.poll_accept(cx) {
            Poll::Ready(Some(Ok((request, respond)))) => {
                let path = request.uri().path().to_owned();
                reading.push(Reading { path, body: request.into_body(), bytes: Vec::new(), respond });
            }
            Poll::Ready(_) => return false,
            Poll::Pending => return true,
        }
    }
}

fn answer(mut request: Reading, watchers: &mut Vec<(SendStream<Bytes>, String)>, directory: &Path) {
    let head = || Response::builder().header("content-type", "application/grpc").body(()).expect("a head");
    let name = request.path.rsplit('/').next().expect("a name").to_owned();
    if name == "ListAndWatch" {
        let stream = request.respond.send_response(head(), false).expect("a response");
        return watchers.push((stream, String::new()));
    }
    // AllocateRequest {container_requests: [{devices_ids}]}, PreStartContainerRequest {devices_ids}
    let message = request.bytes.get(5..).unwrap_or_default();
    let ids = if name == "Allocate" { strings(message.get(2..).unwrap_or_default()) } else { strings(message) };
    let mut calls = OpenOptions::new().create(true).append(true).open(directory.join("calls")).expect("calls");
    writeln!(calls, "{name} {}", ids.join(",")).expect("calls");
    let mut trailers = HeaderMap::new();
    let failure = fs::read_to_string(directory.join("failure")).ok().filter(|_| name == "Allocate");
    let mut stream = request.respond.send_response(head(), false).expect("a response");
    if let Some(message) = failure {
        trailers.insert("grpc-status", 2.into());
        trailers.insert("grpc-message", HeaderValue::from_str(&message).expect("ASCII"));
    } else {
        let body = if name == "Allocate" {
            allocated(&ids, &std::env::var(RESOURCE).expect("a resource"), directory)
        } else {
            Vec::new()
        };
        let _ = stream.send_data(framed(&body), false);
        trailers.insert("grpc-status", 0.into());
    }
    let _ = stream.send_trailers(trailers);
}

/// Returns the response to Allocate: an environment variable, a mount, a device node for each device, an annotation,
/// and CDI devices if the resource is `*/cdi`.
fn allocated(ids: &[String], resource: &str, directory: &Path) -> Vec<u8> {
    let pair = |key: &str, value: &str| [field(1, key.as_bytes()), field(2, value.as_bytes())].concat();
    let mount = [field(1, b"/plugin"), field(2, directory.join("given").to_string_lossy().as_bytes()), vec![24, 1]];
    let mut container = [field(1, &pair("DEVICES", &ids.join(","))), field(2, &mount.concat())].concat();
    for id in ids {
        let node = [field(1, format!("/dev/{id}").as_bytes()), field(2, b"/dev/zero"), field(3, b"r")];
        container.extend(field(3, &node.concat()));
    }
    container.extend(field(4, &pair("v.io/devices", &ids.join(","))));
    if resource.ends_with("/cdi") {
        container.extend(ids.iter().flat_map(|id| field(5, &field(1, format!("{resource}={id}").as_bytes()))));
    }
    [&[10][..], &varint(container.len()), &container].concat()
}

fn varint(n: usize) -> Vec<u8> {
    assert!(n < 1 << 14, "short values only");
    if n < 128 { vec![n as u8] } else { vec![(n & 127) as u8 | 128, (n >> 7) as u8] }
}
