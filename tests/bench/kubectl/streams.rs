//! Sessions through Wherry, compared with sessions directly at the runtime's streaming server: throughput and first byte.

use crate::support::agent::Agent;
use crate::support::api_client::{ApiClient, TlsStream};
use crate::support::cri::Cri;
use crate::support::spdy::{self, PORT_FORWARD, REMOTE_COMMAND, Spdy};
use crate::table::{Table, median};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

const ROUNDS: usize = 3;
const FIRST_BYTES: usize = 51;
/// At least this share of the runtime's throughput.
const SHARE: f64 = 0.8;
/// The limit of the additional time until the first byte, in milliseconds.
const FIRST_BYTE: f64 = 5.0;
const BLOCK: usize = 32 * 1024;
const PORT: &str = "9";

/// The length of a stream in MB (10^6 bytes).
fn megabytes() -> usize {
    std::env::var("WHERRY_BENCH_STREAM").ok().and_then(|s| s.parse().ok()).unwrap_or(256)
}

/// A pod with a server that sends to each client and ends.
fn server(bytes: usize) -> String {
    format!(
        "
        terminationGracePeriodSeconds: 1
        containers:
        - name: main
          image: localhost/busybox:1.35
          command: [nc, -ll, -p, \"{PORT}\", -e, head, -c, \"{bytes}\", /dev/zero]
        "
    )
}

/// The path of a command in the API.
pub fn exec_path(agent: &Agent, pod: &str, command: &[&str], stdin: bool) -> String {
    let words: String = command.iter().map(|word| format!("&command={word}")).collect();
    format!("/api/v1/namespaces/{}/pods/{pod}/exec?stdout=true&stdin={stdin}{words}", agent.namespace)
}

/// The two ways to the container runtime.
struct Ways<'a> {
    agent: &'a Agent,
    client: &'a ApiClient,
    cri: Cri,
    container: String,
    sandbox: String,
}

impl Ways<'_> {
    fn by_wherry(&self, path: &str, protocol: &str) -> Spdy<TlsStream> {
        let stream = self.client.connect().expect("a connection").into_stream();
        Spdy::start(stream, "localhost", path, protocol).expect("a session")
    }

    /// The times of a command by Wherry and directly. `each` uses the session.
    fn exec(&mut self, command: &[&str], stdin: bool, mut each: impl FnMut(&mut dyn Stream)) -> (f64, f64) {
        let begun = Instant::now();
        let path = exec_path(self.agent, "server", command, stdin);
        each(&mut self.by_wherry(&path, REMOTE_COMMAND));
        let (by_wherry, begun) = (begun.elapsed().as_secs_f64(), Instant::now());
        let url = self.cri.exec_url(&self.container, command, stdin);
        each(&mut spdy::connect(&url, REMOTE_COMMAND).expect("a session"));
        (by_wherry, begun.elapsed().as_secs_f64())
    }

    /// The times of a connection to the port.
    fn forward(&mut self, bytes: usize) -> (f64, f64) {
        let begun = Instant::now();
        let path = format!("/api/v1/namespaces/{}/pods/server/portforward", self.agent.namespace);
        assert_eq!(self.by_wherry(&path, PORT_FORWARD).port_output(bytes), bytes);
        let (by_wherry, begun) = (begun.elapsed().as_secs_f64(), Instant::now());
        let url = self.cri.forward_url(&self.sandbox);
        assert_eq!(spdy::connect(&url, PORT_FORWARD).expect("a session").port_output(bytes), bytes);
        (by_wherry, begun.elapsed().as_secs_f64())
    }
}

/// The uses of a session.
trait Stream {
    /// Reads this many bytes of stdout.
    fn output(&mut self, wanted: usize) -> usize;
    /// Sends zeros to stdin, ends it, and reads stdout to its end.
    fn input(&mut self, bytes: usize) -> usize;
    /// Reads this many bytes from the port.
    fn port_output(&mut self, wanted: usize) -> usize;
}

impl<S: Read + Write> Stream for Spdy<S> {
    fn output(&mut self, wanted: usize) -> usize {
        let [_, stdout] = self.open([&[("streamtype", "error")], &[("streamtype", "stdout")]]).expect("streams");
        self.receive(stdout, wanted).expect("the output")
    }

    fn input(&mut self, bytes: usize) -> usize {
        let streams = [&[("streamtype", "error")], &[("streamtype", "stdin")], &[("streamtype", "stdout")]];
        let [_, stdin, stdout] = self.open(streams.map(|s| &s[..])).expect("streams");
        let block = vec![0; BLOCK];
        for _ in 0..bytes / BLOCK {
            self.send(stdin, &block).expect("the input");
        }
        self.end(stdin).expect("the end");
        self.receive(stdout, usize::MAX).expect("the output")
    }

    fn port_output(&mut self, wanted: usize) -> usize {
        let of = |kind| [("streamtype", kind), ("port", PORT), ("requestid", "0")];
        let [error, data] = self.open([&of("error"), &of("data")]).expect("streams");
        self.end(error).expect("the end");
        self.receive(data, wanted).expect("the data")
    }
}

pub fn streams(table: &mut Table, agent: &Agent, client: &ApiClient) {
    let bytes = megabytes() * 1_000_000 / BLOCK * BLOCK;
    agent.apply("server", &server(bytes));
    agent.wait_running("server");
    let container = agent.running("server", "main").expect("runs");
    let sandbox = agent.sandboxes("server").remove(0).id;
    let mut ways = Ways { agent, client, cri: agent.cri(), container, sandbox };
    // The server listens soon after its start.
    std::thread::sleep(Duration::from_secs(1));

    let echo = |stream: &mut dyn Stream| assert_eq!(stream.output(1), 2);
    let firsts: Vec<_> = (0..FIRST_BYTES).map(|_| ways.exec(&["echo", "x"], false, echo)).collect();
    let (by_wherry, directly) = medians(firsts);
    let (by_wherry, directly) = (by_wherry * 1e3, directly * 1e3);
    table.row("exec, first byte, ms", by_wherry, Some(directly), directly + FIRST_BYTE, "");

    let count = bytes.to_string();
    let out: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let command = ["head", "-c", &count, "/dev/zero"];
            ways.exec(&command, false, |stream| assert_eq!(stream.output(bytes), bytes))
        })
        .collect();
    throughput(table, "exec, output", medians(out));
    let input: Vec<_> = (0..ROUNDS)
        .map(|_| ways.exec(&["wc", "-c"], true, |stream| assert_eq!(stream.input(bytes), count.len() + 1)))
        .collect();
    throughput(table, "exec, input", medians(input));
    let forward: Vec<_> = (0..ROUNDS).map(|_| ways.forward(bytes)).collect();
    throughput(table, "port-forward, output", medians(forward));
}

fn medians(taken: Vec<(f64, f64)>) -> (f64, f64) {
    let (by_wherry, directly) = taken.into_iter().unzip();
    (median(by_wherry), median(directly))
}

fn throughput(table: &mut Table, what: &str, (by_wherry, directly): (f64, f64)) {
    let what = format!("{what} of {} MB, s", megabytes());
    table.row(&what, by_wherry, Some(directly), directly / SHARE, "");
}
