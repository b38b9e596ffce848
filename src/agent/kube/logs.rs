//! Container logs for kubectl and for the node's server: read from the runtime's files in pieces, and followed with
//! inotify (L6).

use super::body::now;
use crate::adapters::logs::print::{Printer, Stop};
use crate::adapters::logs::reader::{LogReader, ReadProgress};
use crate::adapters::logs::watch::LogWatch;
use crate::agent::bodies::PieceWriter;
use crate::agent::content::{Drive, Response, View};
use crate::api::facts::ContainerState;
use crate::api::k8s::PodStatus;
use crate::api::kube::log_choice;
use crate::api::kube::query::Query;
use crate::api::kube::resources::Kind;
use crate::api::kube::status::Failure;
use crate::api::names::Uid;
use crate::api::pod::Pod;
use crate::net::server::exchange::{Body, Part, TEXT};
use jiff::{SignedDuration, Timestamp};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

/// The number of bytes that one turn of the loop reads.
const PIECE: usize = 16 * 1024;

/// Which log, and which part of it.
#[derive(Clone, Debug)]
pub(in crate::agent) struct LogRequest {
    /// (A `Uid` cannot be passed to a helper.)
    pub uid: String,
    pub container: String,
    pub directory: PathBuf,
    pub instance: u32,
    pub follow: bool,
    pub tail: Option<u64>,
    pub since: Option<Timestamp>,
    pub timestamps: bool,
    pub limit: Option<u64>,
}

/// A log at the begin of the requested part.
pub(in crate::agent) struct Opened {
    request: LogRequest,
    reader: LogReader,
    watch: Option<LogWatch>,
}

/// # Errors
/// There is no such log, or it cannot be read.
pub(in crate::agent) fn open(request: LogRequest) -> Result<Opened, String> {
    // The watch begins before the log is read, so that it misses nothing.
    let mut watch = match request.follow {
        true => Some(LogWatch::new().map_err(|e| format!("failed to watch the log: {e}"))?),
        false => None,
    };
    if let Some(watch) = &mut watch {
        watch.add(&request.directory).map_err(|e| format!("failed to watch {}: {e}", request.directory.display()))?;
        if let Some(why) = watch.without_inotify() {
            log::warn!(
                "follows the log of a container without inotify directory={} error={why:?}",
                request.directory.display()
            );
        }
    }
    let mut reader = LogReader::open(&request.directory, request.instance, request.tail, request.since)?;
    reader.limit(PIECE);
    Ok(Opened { request, reader, watch })
}

pub(in crate::agent) fn response(opened: Result<Opened, String>) -> Result<Response, Failure> {
    let Opened { request, reader, watch } = opened.map_err(Failure::bad_request)?;
    let left = request.limit;
    let uid = Uid::from(request.uid.as_str());
    let log = Following { uid, request, reader, watch, left, finishing: false };
    Ok(Response::new(200, TEXT, Body::Stream(Box::new(log))))
}

/// The container with this name, otherwise the only one, with the messages of an API server.
pub(super) fn container_of<'a>(pod: &'a Pod, wanted: Option<&str>) -> Result<&'a str, Failure> {
    let name = &pod.name.name;
    let containers: Vec<&str> = pod.every_container().map(|c| c.name.as_str()).collect();
    match wanted {
        Some(wanted) => containers
            .iter()
            .find(|c| **c == wanted)
            .copied()
            .ok_or_else(|| Failure::bad_request(format!("container {wanted} is not valid for pod {name}"))),
        None if containers.len() == 1 => Ok(containers[0]),
        None => {
            let choice = containers.join(" ");
            let why = format!("a container name must be specified for pod {name}, choose one of: [{choice}]");
            Err(Failure::bad_request(why))
        }
    }
}

/// The query of a kubelet with the names of the API: an older one has `tail`, which can be `all`.
pub(super) fn kubelet_query(query: Query) -> Query {
    let is_needed = |tail: &&str| *tail != "all" && query.get("tailLines").is_none();
    match query.get("tail").filter(is_needed).map(str::to_owned) {
        Some(tail) => query.with("tailLines", &tail),
        None => query,
    }
}

/// The requested part of the log of a container, with the messages of a kubelet.
pub(super) fn request(view: &View<'_>, pod: &Pod, container: &str, query: &Query) -> Result<LogRequest, Failure> {
    let name = &pod.name.name;
    let uid: Uid = pod.uid.clone();
    let directory = PathBuf::from(view.layout.pod_logs(&pod.name, &uid)).join(container);
    let facts = view.engine.containers(&uid);
    let attempt = |id: &str| facts.iter().find(|c| c.id.as_str() == id).map(|c| c.attempt);
    let shown = view.engine.pod(&uid);
    let none = PodStatus::default();
    let status = shown.as_ref().map_or(&none, |shown| shown.status);
    let instance = log_choice::run(status, container, query.flag("previous"), attempt)
        .map_err(|why| Failure::bad_request(why.describe(container, name)))?;
    let number = |name: &str| query.number(name).map_err(Failure::bad_request);
    let since = match (number("sinceSeconds")?, query.get("sinceTime")) {
        (Some(_), Some(_)) => {
            return Err(Failure::bad_request("at most one of sinceTime or sinceSeconds may be specified"));
        }
        (Some(seconds), None) => {
            let ago = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
            Some(now(view).checked_sub(ago).unwrap_or(Timestamp::MIN))
        }
        (None, Some(time)) => {
            Some(time.parse().map_err(|e| Failure::bad_request(format!("sinceTime: invalid time {time:?}: {e}")))?)
        }
        (None, None) => None,
    };
    Ok(LogRequest {
        uid: uid.to_string(),
        container: container.to_owned(),
        directory,
        instance,
        follow: query.flag("follow") && !query.flag("previous"),
        tail: number("tailLines")?,
        since,
        timestamps: query.flag("timestamps"),
        limit: number("limitBytes")?,
    })
}

struct Following {
    uid: Uid,
    request: LogRequest,
    reader: LogReader,
    watch: Option<LogWatch>,
    left: Option<u64>,
    /// The container has ended: the rest is read, and nothing follows.
    finishing: bool,
}

impl Following {
    /// `runs`: the instance of the container is running.
    fn read(&mut self, runs: bool, out: &mut Vec<u8>) -> Part {
        let (since, timestamps) = (self.request.since, self.request.timestamps);
        let mut printer = Printer { out, since, timestamps, left: self.left };
        let progress = match &mut self.watch {
            None => self.reader.print(&mut printer),
            Some(_) if self.finishing => self.reader.finish(&mut printer),
            Some(watch) => {
                if let Err(e) = watch.drain() {
                    log::warn!(
                        "failed to read the changes of a log; its follower may be late error={:?}",
                        e.to_string()
                    );
                }
                self.reader.follow(&mut printer)
            }
        };
        self.left = printer.left;
        match progress {
            Ok(ReadProgress::Paused) => Part::More,
            Ok(ReadProgress::End) if self.watch.is_none() || self.finishing => Part::End,
            Ok(ReadProgress::End) if !runs => {
                // The runtime has written everything before it reports the end.
                self.finishing = true;
                Part::More
            }
            Ok(ReadProgress::End) => Part::Wait,
            Ok(ReadProgress::Gone) | Err(Stop::Full | Stop::Output(_)) => Part::End,
            Err(Stop::Log(why)) => {
                log::warn!("failed to read a log for a client error={why:?}");
                Part::End
            }
        }
    }
}

impl PieceWriter for Following {
    fn next(&mut self, drive: &mut Drive<'_>, out: &mut Vec<u8>) -> Part {
        let LogRequest { container, instance, .. } = &self.request;
        let mut facts = drive.view.engine.containers(&self.uid).iter();
        let runs = facts.any(|c| c.name == *container && c.attempt == *instance && c.state == ContainerState::Running);
        self.read(runs, out)
    }

    /// A log that is followed ends with its container.
    fn waits_for(&self) -> Option<Kind> {
        self.watch.is_some().then_some(Kind::Pod)
    }

    fn source(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }
}
