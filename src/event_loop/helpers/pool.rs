//! The threads and the queue of one job class.

use super::class::Class;
use super::job::{Answering, Finished, Job, JobError, PendingJob, Work};
use crate::api::time::Boot;
use crossbeam_channel::{RecvTimeoutError, Sender, unbounded};
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

/// How long a thread waits for another job before it ends. Pods that start together submit jobs at short intervals, and
/// a new thread costs about twenty system calls.
const REST: Duration = Duration::from_millis(200);

/// A thread that missed the deadline of its job and has not returned.
struct Abandoned {
    number: u64,
    path: Option<PathBuf>,
}

/// A thread with a running job.
struct Helper<A> {
    thread: Thread<A>,
    job: Job,
}

struct Thread<A> {
    number: u64,
    jobs: Sender<Work<A>>,
    rest: Arc<Rest>,
}

/// The state of a thread, which shows whether it can take another job. The main thread and the thread itself change
/// it atomically, so that no job is sent to a thread that has just ended.
#[derive(Default)]
struct Rest(AtomicU8);

impl Rest {
    /// The thread has a job, or is about to get one.
    const AT_WORK: u8 = 0;
    const RESTS: u8 = 1;
    const ENDED: u8 = 2;

    /// Marks the thread as idle after its job.
    fn begin(&self) {
        self.0.store(Self::RESTS, Ordering::Release);
    }

    fn change(&self, to: u8) -> bool {
        self.0.compare_exchange(Self::RESTS, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Claims the thread for a job. The main thread calls it. Returns false if the thread has ended.
    fn interrupt(&self) -> bool {
        self.change(Self::AT_WORK)
    }

    /// Marks the thread as ended. The thread itself calls it. Returns false if a job is being sent.
    fn end(&self) -> bool {
        self.change(Self::ENDED)
    }
}

pub(super) struct Pool<A> {
    class: Class,
    waiting: VecDeque<(Job, Work<A>)>,
    busy: Vec<Helper<A>>,
    /// Threads without a job. Some of them may have ended.
    resting: Vec<Thread<A>>,
    stuck: Vec<Abandoned>,
    /// Whether the system could not create a thread while others were active. If so, the queue waits until one of those
    /// is free.
    refused: bool,
}

impl<A: Send + 'static> Pool<A> {
    pub fn new(class: Class) -> Pool<A> {
        Pool {
            class,
            waiting: VecDeque::new(),
            busy: Vec::new(),
            resting: Vec::new(),
            stuck: Vec::new(),
            refused: false,
        }
    }

    pub fn push(&mut self, job: Job, work: Work<A>) {
        self.waiting.push_back((job, work));
    }

    /// Reports whether the thread belongs to this pool.
    pub fn has(&self, number: u64) -> bool {
        self.busy.iter().any(|helper| helper.thread.number == number)
            || self.stuck.iter().any(|thread| thread.number == number)
    }

    /// Handles the answer of a thread. The thread takes the next job or becomes idle.
    pub fn answered(&mut self, number: u64, answer: A, now: Boot, out: &mut Vec<Finished<A>>) {
        let Some(at) = self.busy.iter().position(|helper| helper.thread.number == number) else {
            self.stuck.retain(|thread| thread.number != number);
            return;
        };
        out.push(Finished { id: self.busy[at].job.id, result: Ok(answer) });
        self.refused = false;
        self.drop_late(now, out);
        self.resting.push(self.busy.remove(at).thread);
        if let Some((job, work)) = self.next_job()
            && let Some((job, work)) = self.give(job, work)
        {
            self.waiting.push_front((job, work));
        }
    }

    /// Gives a job to an idle thread. Returns the job if there is no such thread.
    fn give(&mut self, job: Job, mut work: Work<A>) -> Option<(Job, Work<A>)> {
        while let Some(thread) = self.resting.pop() {
            if !thread.rest.interrupt() {
                continue;
            }
            match thread.jobs.send(work) {
                Ok(()) => {
                    self.busy.push(Helper { thread, job });
                    return None;
                }
                Err(refused) => work = refused.into_inner(),
            }
        }
        Some((job, work))
    }

    /// Reports all jobs past their deadlines, and abandons the threads of those that run.
    pub fn give_up(&mut self, now: Boot, out: &mut Vec<Finished<A>>) {
        for helper in self.busy.extract_if(.., |helper| helper.job.deadline <= now) {
            let Job { id, name, path, .. } = helper.job;
            self.stuck.push(Abandoned { number: helper.thread.number, path });
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
            let Some((job, work)) = self.give(job, work) else { continue };
            let number = *next_number;
            *next_number += 1;
            match spawn(self.class, number, answering.clone()) {
                Ok(thread) => {
                    // The new thread waits for the job, so this cannot fail.
                    let _ = thread.jobs.send(work);
                    self.busy.push(Helper { thread, job });
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

    pub fn pending(&self) -> impl Iterator<Item = PendingJob> {
        let class = self.class;
        let shown =
            move |job: &Job, begun| PendingJob { id: job.id, class, name: job.name, deadline: job.deadline, begun };
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

    /// Takes the first waiting job whose path no active thread accesses. This keeps a hung path from occupying all
    /// threads.
    fn next_job(&mut self) -> Option<(Job, Work<A>)> {
        let at = self.waiting.iter().position(|(job, _)| !self.is_busy(job))?;
        self.waiting.remove(at)
    }

    /// Reports whether an active thread accesses the path of the job.
    fn is_busy(&self, job: &Job) -> bool {
        job.path.is_some() && self.busy.iter().any(|helper| helper.job.path == job.path)
    }

    /// Reports whether an abandoned thread accesses the path of the job.
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

/// Starts a thread that runs the jobs sent to it. The thread ends when the sender is dropped, or when it has been
/// idle for `REST`.
fn spawn<A: Send + 'static>(class: Class, number: u64, answering: Answering<A>) -> io::Result<Thread<A>> {
    let (jobs, todo) = unbounded::<Work<A>>();
    let rest = Arc::new(Rest::default());
    let of_thread = rest.clone();
    thread::Builder::new().name("helper".to_string()).stack_size(class.stack()).spawn(move || {
        loop {
            match todo.recv_timeout(REST) {
                Ok(work) => {
                    let answer = work();
                    of_thread.begin();
                    // Both calls fail only if the main thread, and thus the process, has ended.
                    let _ = answering.answers.send((number, answer));
                    let _ = answering.waker.wake();
                }
                Err(RecvTimeoutError::Timeout) if !of_thread.end() => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
    })?;
    Ok(Thread { number, jobs, rest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_rests_either_gets_a_job_or_ends() {
        let rest = Rest::default();
        assert!(!rest.end() && !rest.interrupt(), "a thread at work");
        rest.begin();
        assert!(rest.interrupt() && !rest.end(), "a job is being sent");
        rest.begin();
        assert!(rest.end() && !rest.interrupt(), "the thread has ended");
    }
}
