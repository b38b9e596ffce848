//! Container logs for kubectl: read from the runtime's files in pieces, and followed with inotify.

use crate::adapters::logs::print::{Printer, Stop};
use crate::adapters::logs::reader::{Progress, Reader};
use crate::adapters::logs::watch::Watch;
use crate::adapters::server::api::{self, ApiCursor, Log, Part};
use crate::adapters::server::http::{Body, Response, TEXT};
use crate::api::kube::status::Failure;
use crate::api::names::Uid;
use jiff::Timestamp;
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
    reader: Reader,
    watch: Option<Watch>,
}

/// # Errors
/// There is no such log, or it cannot be read.
pub(super) fn open(request: LogRequest) -> Result<Opened, String> {
    // The watch begins before the log is read, so that it misses nothing.
    let watch = match request.follow {
        true => Some(Watch::new().map_err(|e| format!("failed to watch the log: {e}"))?),
        false => None,
    };
    if let Some(watch) = &watch {
        watch.add(&request.directory).map_err(|e| format!("failed to watch {}: {e}", request.directory.display()))?;
    }
    let mut reader = Reader::open(&request.directory, request.instance, request.tail, request.since)?;
    reader.limit(PIECE);
    Ok(Opened { request, reader, watch })
}

pub(super) fn response(opened: Result<Opened, String>) -> Response {
    match opened {
        Ok(Opened { request, reader, watch }) => {
            let left = request.limit;
            let uid = Uid::from(request.uid.as_str());
            let log = Following { uid, request, reader, watch, left, finishing: false };
            Response::new(200, TEXT, Body::Api(ApiCursor::Log(Box::new(log))))
        }
        Err(why) => api::failure(&Failure::bad_request(why)),
    }
}

struct Following {
    uid: Uid,
    request: LogRequest,
    reader: Reader,
    watch: Option<Watch>,
    left: Option<u64>,
    /// The container has ended: the rest is read, and nothing follows.
    finishing: bool,
}

impl Log for Following {
    fn container(&self) -> (&Uid, &str, u32) {
        (&self.uid, &self.request.container, self.request.instance)
    }

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
            Ok(Progress::Paused) => Part::More,
            Ok(Progress::End) if self.watch.is_none() || self.finishing => Part::End,
            Ok(Progress::End) if !runs => {
                // The runtime has written everything before it reports the end.
                self.finishing = true;
                Part::More
            }
            Ok(Progress::End) => Part::Wait,
            Ok(Progress::Gone) | Err(Stop::Full | Stop::Output(_)) => Part::End,
            Err(Stop::Log(why)) => {
                log::warn!("failed to read a log for a client error={why:?}");
                Part::End
            }
        }
    }

    fn source(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }
}
