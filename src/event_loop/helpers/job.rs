//! A job of a helper thread: its id, its work, its result.

use super::class::Class;
use crate::api::time::Boot;
use crossbeam_channel::Sender;
use mio::Waker;
use std::path::PathBuf;
use std::sync::Arc;

/// The id of a job. Ids are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// The reason why a job has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobError {
    /// The job started and missed its deadline. It may still take effect.
    Stuck { name: &'static str },
    /// The job did not start: no thread of its class was free before its deadline.
    NotStarted { name: &'static str },
    /// The job did not start: an earlier access to the path missed its deadline and has not returned.
    Hangs { name: &'static str, path: PathBuf },
    /// The job did not start: the system could not create a thread.
    NoThread { name: &'static str, why: String },
}

impl std::fmt::Display for JobError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            JobError::Stuck { name } => write!(f, "{name}: not finished before its deadline; abandoned"),
            JobError::NotStarted { name } => {
                write!(f, "{name}: not started before its deadline: all helper threads of its class are busy")
            }
            JobError::Hangs { name, path } => {
                write!(f, "{name}: {}: an earlier access has not returned; the file system hangs", path.display())
            }
            JobError::NoThread { name, why } => write!(f, "{name}: failed to start a helper thread: {why}"),
        }
    }
}

impl std::error::Error for JobError {}

/// The result of a job. Each job has exactly one.
#[derive(Debug)]
pub struct Finished<A> {
    pub id: JobId,
    pub result: Result<A, JobError>,
}

/// A job that has not finished yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingJob {
    pub id: JobId,
    pub class: Class,
    pub name: &'static str,
    pub deadline: Boot,
    pub begun: bool,
}

/// A waiting or running job.
#[derive(Clone)]
pub(super) struct Job {
    pub id: JobId,
    pub name: &'static str,
    pub deadline: Boot,
    /// The path that the job accesses, if the access may hang.
    pub path: Option<PathBuf>,
}

/// The function that a thread runs for a job.
pub(super) type Work<A> = Box<dyn FnOnce() -> A + Send>;

/// The channel over which a thread sends its answers, and the waker of the event loop.
pub(super) struct Answering<A> {
    pub waker: Arc<Waker>,
    pub answers: Sender<(u64, A)>,
}

impl<A> Clone for Answering<A> {
    fn clone(&self) -> Answering<A> {
        Answering { waker: self.waker.clone(), answers: self.answers.clone() }
    }
}
