//! The delay of a restart while 1,000 watches and 50 exec sessions are open.

use super::streams::exec_path;
use crate::latency::{ROUNDS, create_seen_by_runtime, ms, running, until};
use crate::process::{self, now};
use crate::support::agent::Agent;
use crate::support::api_client::{ApiClient, ApiConnection, TlsStream};
use crate::support::cri::Cri;
use crate::support::lab::{Runtime, signal};
use crate::support::spdy::{REMOTE_COMMAND, Spdy};
use crate::support::yaml::TRAP;
use crate::table::{Table, median};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const WATCHES: usize = 1000;
const SESSIONS: usize = 50;
/// In milliseconds.
const LIMIT: f64 = 10.0;

pub fn load(table: &mut Table, agent: &Agent, client: &ApiClient) {
    let mut cri = agent.cri();
    let alone = restarts(agent, &mut cri, "alone");
    let sessions: Vec<Spdy<TlsStream>> = (0..SESSIONS).map(|_| session(agent, client)).collect();
    let watches = Watches::start(client);
    // The initial states have been sent.
    thread::sleep(Duration::from_secs(5));
    let (before, loaded) = (process::cpu(agent.pid()), restarts(agent, &mut cri, "loaded"));
    eprintln!("CPU of wherry for {ROUNDS} restarts with all clients: {:.2} s", process::cpu(agent.pid()) - before);
    let memory = process::memory(agent.pid());
    eprintln!("anonymous memory with all clients: {:.2} MB", memory.anonymous);
    watches.stop();
    drop(sessions);
    for (what, alone, loaded) in
        [("CreateContainer seen", alone.0, loaded.0), ("container started again", alone.1, loaded.1)]
    {
        eprintln!("container killed -> {what}: {alone:.1} ms without clients, {loaded:.1} ms with all of them");
        let what = format!("container killed -> {what}, longer with 1,000 watches and 50 sessions, ms");
        table.row(&what, loaded - alone, None, LIMIT, "");
    }
}

fn session(agent: &Agent, client: &ApiClient) -> Spdy<TlsStream> {
    let path = exec_path(agent, "pod-0", &["sleep", "86400"], false);
    let stream = client.connect().expect("a connection").into_stream();
    let mut session = Spdy::start(stream, "localhost", &path, REMOTE_COMMAND).expect("a session");
    session.open([&[("streamtype", "error")], &[("streamtype", "stdout")]]).expect("streams");
    session
}

/// Kills containers. Medians in milliseconds of the time until CreateContainer and of the time until the start. Only the first restart of a pod is
/// immediate, so each round has a pod of its own.
fn restarts(agent: &Agent, cri: &mut Cri, name: &str) -> (f64, f64) {
    let (mut created, mut started) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let pod = format!("{name}-{round}");
        agent.apply(&pod, TRAP);
        let first = until("the pod runs", || running(cri, &agent.namespace, &pod, ""));
        thread::sleep(Duration::from_millis(500));
        let pid = cri.container_pid(&first).to_string();
        let begun = now();
        signal(&pid, "KILL");
        let second = until("the container was restarted", || running(cri, &agent.namespace, &pod, &first));
        started.push(ms(begun, crate::direct::started(cri, &second)));
        created.extend(create_seen_by_runtime(&Runtime::shared(), begun).map(|at| ms(begun, at)));
        agent.delete(&pod);
        until("the pod is gone", || agent.sandboxes(&pod).is_empty().then_some(()));
    }
    (median(created), median(started))
}

/// Clients that watch all pods. One thread reads what they get, and does not decrypt it.
struct Watches {
    stop: Arc<AtomicBool>,
    reader: thread::JoinHandle<usize>,
}

impl Watches {
    fn start(client: &ApiClient) -> Watches {
        let stop = Arc::new(AtomicBool::new(false));
        let mut all: Vec<TlsStream> = Vec::new();
        for _ in 0..WATCHES {
            let mut connection: ApiConnection = client.connect().expect("a connection");
            let request = "GET /api/v1/pods?watch=true&allowWatchBookmarks=true HTTP/1.1\r\nHost: localhost\r\n\r\n";
            connection.start(request.as_bytes()).expect("a watch");
            all.push(connection.into_stream());
        }
        for stream in &all {
            stream.socket().set_nonblocking(true).expect("a socket");
        }
        let stopped = stop.clone();
        Watches { stop, reader: thread::spawn(move || discard(&all, &stopped)) }
    }

    fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        let received = self.reader.join().expect("the reader");
        eprintln!("the watches received {:.1} MB", received as f64 / 1e6);
    }
}

fn discard(all: &[TlsStream], stop: &AtomicBool) -> usize {
    let (mut received, mut buffer) = (0, vec![0; 64 * 1024]);
    while !stop.load(Ordering::SeqCst) {
        let mut fds: Vec<PollFd<'_>> = all.iter().map(|s| PollFd::new(s.socket(), PollFlags::IN)).collect();
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 200_000_000 })).expect("poll");
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        for (stream, _) in all.iter().zip(ready).filter(|(_, ready)| *ready) {
            let mut socket = stream.socket();
            match socket.read(&mut buffer) {
                Ok(0) => panic!("a watch has ended"),
                Ok(n) => received += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => panic!("a watch: {e}"),
            }
        }
        // Otherwise this thread would take a CPU while one watch after the other gets its change.
        thread::sleep(Duration::from_millis(20));
    }
    received
}
