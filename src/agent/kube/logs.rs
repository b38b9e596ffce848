//! Container logs for kubectl and for the node's server: read from the runtime's files in pieces, and followed with
//! inotify (L6).

use crate::adapters::logs::print::{Printer, Stop};
use crate::adapters::logs::reader::{LogReader, ReadProgress};
use crate::adapters::logs::watch::LogWatch;
use crate::agent::bodies::PieceWriter;
use crate::agent::content::{Drive, Response};
use crate::api::facts::ContainerState;
use crate::api::kube::resources::Kind;
use crate::api::kube::status::Failure;
use crate::api::names::Uid;
use crate::kubectl_api::log_request::LogRequest;
use crate::net::server::exchange::{Body, Part, TEXT};
use std::os::fd::{AsFd, BorrowedFd};

/// Maximum number of bytes that are read in one turn of the loop.
const PIECE: usize = 16 * 1024;

/// An open log, positioned at the start of the requested part.
pub(in crate::agent) struct Opened {
    request: LogRequest,
    reader: LogReader,
    watch: Option<LogWatch>,
}

/// Opens the requested log, positioned at the start of the requested part.
///
/// # Errors
/// The log does not exist or cannot be read.
pub(in crate::agent) fn open(request: LogRequest) -> Result<Opened, String> {
    // The watch begins before the log is read, so that no change is missed.
    let mut watch = match request.follow {
        true => Some(LogWatch::new().map_err(|e| format!("failed to watch the log: {e}"))?),
        false => None,
    };
    if let Some(watch) = &mut watch {
        watch.add(&request.directory).map_err(|e| format!("failed to watch {}: {e}", request.directory.display()))?;
        if let Some(why) = watch.without_inotify() {
            log::warn!(
                "following the log of a container without inotify directory={} error={why:?}",
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

struct Following {
    uid: Uid,
    request: LogRequest,
    reader: LogReader,
    watch: Option<LogWatch>,
    left: Option<u64>,
    /// Whether the container has ended, so that only the rest of the log must be read.
    finishing: bool,
}

impl Following {
    /// Reads the next piece. `runs` tells whether the container's instance is running.
    fn read(&mut self, runs: bool, out: &mut Vec<u8>) -> Part {
        let (since, timestamps) = (self.request.since, self.request.timestamps);
        let mut printer = Printer { out, since, timestamps, left: self.left };
        let progress = match &mut self.watch {
            None => self.reader.print(&mut printer),
            Some(_) if self.finishing => self.reader.finish(&mut printer),
            Some(watch) => {
                if let Err(e) = watch.drain() {
                    log::warn!(
                        "failed to read the changes of a log; new lines may arrive late error={:?}",
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
                // The runtime writes the whole log before it reports the end of the container.
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

    /// A followed log waits for changes of pods, because it ends with its container.
    fn waits_for(&self) -> Option<Kind> {
        self.watch.is_some().then_some(Kind::Pod)
    }

    fn source(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }
}
