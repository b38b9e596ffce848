//! The jobs of helper threads, and how the agent uses their results.

use super::Agent;
use crate::api::time::{Boot, Now};
use crate::engine::event::{Answer, Event};
use crate::engine::op::{OpError, OpId};
use crate::event_loop::{Class, Finished, Helpers, JobError, JobId};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// The description of a job, for messages and limits.
pub(super) struct JobSpec<'a> {
    class: Class,
    name: &'static str,
    deadline: Boot,
    path: Option<&'a Path>,
}

impl<'a> JobSpec<'a> {
    pub(super) fn new(class: Class, name: &'static str, deadline: Boot) -> JobSpec<'a> {
        JobSpec { class, name, deadline, path: None }
    }

    /// Sets the path that the job accesses and that may hang. Only one job of a class and a path runs at a time.
    pub(super) fn on(self, path: &'a Path) -> JobSpec<'a> {
        JobSpec { path: Some(path), ..self }
    }
}

/// Handles the result of a job. `Err` means that the job has no result.
pub(super) type Then = Box<dyn FnOnce(&mut Agent, Result<(), JobError>, Now)>;

/// A job whose result is awaited.
struct Awaited {
    name: &'static str,
    /// Cancelling this operation cancels the job.
    op: Option<OpId>,
    then: Then,
}

/// The helper threads and the jobs whose results are awaited.
pub(super) struct Jobs {
    helpers: Helpers<()>,
    awaited: BTreeMap<JobId, Awaited>,
}

impl Jobs {
    pub(super) fn new(helpers: Helpers<()>) -> Jobs {
        Jobs { helpers, awaited: BTreeMap::new() }
    }

    /// Runs `work` on a helper thread, and passes its result to `then` on the main thread.
    pub(super) fn run<T: Send + 'static>(
        &mut self,
        spec: JobSpec<'_>,
        work: impl FnOnce() -> T + Send + 'static,
        then: impl FnOnce(&mut Agent, Result<T, JobError>, Now) + 'static,
    ) -> JobId {
        let JobSpec { class, name, deadline, path } = spec;
        // The thread fills the slot before it reports the end of the job.
        let slot = Arc::new(Mutex::new(None));
        let of_thread = slot.clone();
        let work = move || {
            let result = work();
            *of_thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        };
        let id = match path {
            Some(path) => self.helpers.submit_for(class, name, path, deadline, work),
            None => self.helpers.submit(class, name, deadline, work),
        };
        let then = move |agent: &mut Agent, end: Result<(), JobError>, now: Now| {
            let result = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
            then(agent, end.and_then(|()| result.ok_or(JobError::Stuck { name })), now);
        };
        self.awaited.insert(id, Awaited { name, op: None, then: Box::new(then) });
        id
    }

    /// Runs the work of an operation on a helper thread. `answer` converts the result to the operation's answer.
    pub(super) fn run_op<T: Send + 'static>(
        &mut self,
        op: OpId,
        spec: JobSpec<'_>,
        work: impl FnOnce() -> Result<T, OpError> + Send + 'static,
        answer: fn(T) -> Answer,
    ) {
        self.run(spec, work, move |agent, result, now| {
            let result = agent.reporting.standing.job_result(result, now.boot);
            agent.events.push_back(Event::Done { op, result: result.and_then(|result| result.map(answer)) });
        });
    }

    /// Allows the job to be cancelled with its operation (`cancel`).
    pub(super) fn make_cancellable(&mut self, id: JobId, op: OpId) {
        if let Some(awaited) = self.awaited.get_mut(&id) {
            awaited.op = Some(op);
        }
    }

    /// Drops the result of the operation's job. Returns false if the operation has no job that can be cancelled.
    pub(super) fn cancel(&mut self, op: OpId) -> bool {
        let Some(id) = self.awaited.iter().find(|(_, job)| job.op == Some(op)).map(|(id, _)| *id) else { return false };
        self.drop_result(id);
        true
    }

    /// Drops the result of a job, because it is no longer needed.
    pub(super) fn drop_result(&mut self, id: JobId) {
        self.awaited.remove(&id);
    }

    /// Returns the number of jobs whose results are awaited.
    pub(super) fn count(&self) -> usize {
        self.awaited.len()
    }

    /// Returns the jobs whose results are awaited, with their names.
    pub(super) fn awaited(&self) -> impl Iterator<Item = (JobId, &'static str)> {
        self.awaited.iter().map(|(id, job)| (*id, job.name))
    }

    pub(super) fn helpers(&self) -> &Helpers<()> {
        &self.helpers
    }

    pub(super) fn next_deadline(&self) -> Option<Boot> {
        self.helpers.next_deadline()
    }

    /// Starts waiting jobs. Returns the jobs that have ended.
    pub(super) fn drive(&mut self, now: Boot) -> Vec<Finished<()>> {
        let mut finished = Vec::new();
        self.helpers.drive(now, &mut finished);
        finished
    }

    /// Returns the handler for the result of a job that has ended, or None if the result is no longer needed.
    pub(super) fn ended(&mut self, id: JobId) -> Option<Then> {
        self.awaited.remove(&id).map(|job| job.then)
    }
}
