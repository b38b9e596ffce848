//! The threads and the queue of one job class.

use super::{Answering, Class, Finished, JobError, JobId, Pending, Work};
use crate::api::time::Boot;
use crossbeam_channel::{Sender, unbounded};
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::thread;

/// A waiting or running job.
#[derive(Clone)]
pub(super) struct Job {
    pub id: JobId,
    pub name: &'static str,
    pub deadline: Boot,
    /// The path that it accesses, if that may hang.
    pub path: Option<PathBuf>,
}

/// A thread that missed the deadline of its job and has not returned.
struct Abandoned {
    number: u64,
    path: Option<PathBuf>,
}

/// A thread with a running job.
struct Helper<A> {
    number: u64,
    jobs: Sender<Work<A>>,
    job: Job,
}

pub(super) struct Pool<A> {
    class: Class,
    waiting: VecDeque<(Job, Work<A>)>,
    busy: Vec<Helper<A>>,
    stuck: Vec<Abandoned>,
    /// The system could not create a thread while others were active. The queue waits until one of those is free.
    refused: bool,
}

impl<A: Send + 'static> Pool<A> {
    pub fn new(class: Class) -> Pool<A> {
        Pool { class, waiting: VecDeque::new(), busy: Vec::new(), stuck: Vec::new(), refused: false }
    }

    pub fn push(&mut self, job: Job, work: Work<A>) {
        self.waiting.push_back((job, work));
    }

    /// True if the thread belongs to this pool.
    pub fn has(&self, number: u64) -> bool {
        self.busy.iter().any(|helper| helper.number == number)
            || self.stuck.iter().any(|thread| thread.number == number)
    }

    /// Handles the answer of a thread. The thread takes the next job, or ends.
    pub fn answered(&mut self, number: u64, answer: A, now: Boot, out: &mut Vec<Finished<A>>) {
        let Some(at) = self.busy.iter().position(|helper| helper.number == number) else {
            self.stuck.retain(|thread| thread.number != number);
            return;
        };
        out.push(Finished { id: self.busy[at].job.id, result: Ok(answer) });
        self.refused = false;
        self.drop_late(now, out);
        let mut helper = self.busy.remove(at);
        // Without a job the sender is dropped, and the thread ends.
        let Some((job, work)) = self.next_job() else { return };
        match helper.jobs.send(work) {
            Ok(()) => {
                helper.job = job;
                self.busy.push(helper);
            }
            // The thread has ended because its job panicked. Another thread takes this job.
            Err(refused) => self.waiting.push_front((job, refused.into_inner())),
        }
    }

    /// Reports all jobs past their deadlines, and abandons the threads of running ones.
    pub fn give_up(&mut self, now: Boot, out: &mut Vec<Finished<A>>) {
        for helper in self.busy.extract_if(.., |helper| helper.job.deadline <= now) {
            let Job { id, name, path, .. } = helper.job;
            self.stuck.push(Abandoned { number: helper.number, path });
            self.refused = false;
            out.push(Finished { id, result: Err(JobError::Stuck { name }) });
        }
        self.drop_late(now, out);
    }

    /// Starts threads for waiting jobs within the limits.
    pub fn start(&mut self, answering: &Answering<A>, next_number: &mut u64, out: &mut Vec<Finished<A>>) {
        while self.can_start()
            && let Some((job, work)) = self.next_job()
        {
            let number = *next_number;
            *next_number += 1;
            match spawn(self.class, number, answering.clone()) {
                Ok(jobs) => {
                    // The new thread waits for the job, so this cannot fail.
                    let _ = jobs.send(work);
                    self.busy.push(Helper { number, jobs, job });
                }
                Err(e) if self.busy.is_empty() => {
                    let error = JobError::NoThread { name: job.name, why: e.to_string() };
                    out.push(Finished { id: job.id, result: Err(error) });
                }
                Err(_) => {
                    self.waiting.push_front((job, work));
                    self.refused = true;
                }
            }
        }
    }

    pub fn next_deadline(&self) -> Option<Boot> {
        let begins = |(job, _): &(Job, Work<A>)| self.hangs(job) || (self.can_start() && !self.is_busy(job));
        if self.waiting.iter().any(begins) {
            return Some(Boot(0));
        }
        let busy = self.busy.iter().map(|helper| helper.job.deadline);
        busy.chain(self.waiting.iter().map(|(job, _)| job.deadline)).min()
    }

    pub fn pending(&self) -> impl Iterator<Item = Pending> {
        let class = self.class;
        let shown =
            move |job: &Job, begun| Pending { id: job.id, class, name: job.name, deadline: job.deadline, begun };
        let busy = self.busy.iter().map(move |helper| shown(&helper.job, true));
        busy.chain(self.waiting.iter().map(move |(job, _)| shown(job, false)))
    }

    pub fn stuck(&self) -> usize {
        self.stuck.len()
    }

    fn can_start(&self) -> bool {
        let (at_work, replaced) = (self.class.at_work(), self.class.replaced());
        !self.refused && self.busy.len() < at_work && self.busy.len() + self.stuck.len() < at_work + replaced
    }

    /// The first waiting job whose path no active thread accesses. This keeps a hung path from occupying all threads.
    fn next_job(&mut self) -> Option<(Job, Work<A>)> {
        let at = self.waiting.iter().position(|(job, _)| !self.is_busy(job))?;
        self.waiting.remove(at)
    }

    /// True if an active thread accesses the path of the job.
    fn is_busy(&self, job: &Job) -> bool {
        job.path.is_some() && self.busy.iter().any(|helper| helper.job.path == job.path)
    }

    /// True if an abandoned thread accesses the path of the job.
    fn hangs(&self, job: &Job) -> bool {
        job.path.is_some() && self.stuck.iter().any(|thread| thread.path == job.path)
    }

    /// Ends waiting jobs that cannot start: their deadline has passed, or their path hangs.
    fn drop_late(&mut self, now: Boot, out: &mut Vec<Finished<A>>) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|(job, _)| {
            let error = match &job.path {
                Some(path) if self.hangs(job) => JobError::Hangs { name: job.name, path: path.clone() },
                _ if job.deadline <= now => JobError::NotStarted { name: job.name },
                _ => return true,
            };
            out.push(Finished { id: job.id, result: Err(error) });
            false
        });
        self.waiting = waiting;
    }
}

/// Starts a thread that runs the jobs sent to it until the sender is dropped.
fn spawn<A: Send + 'static>(class: Class, number: u64, answering: Answering<A>) -> io::Result<Sender<Work<A>>> {
    let (jobs, todo) = unbounded::<Work<A>>();
    thread::Builder::new().name("helper".to_string()).stack_size(class.stack()).spawn(move || {
        for work in todo {
            // Both calls fail only if the main thread, and thus the process, has ended.
            let _ = answering.answers.send((number, work()));
            let _ = answering.waker.wake();
        }
    })?;
    Ok(jobs)
}
