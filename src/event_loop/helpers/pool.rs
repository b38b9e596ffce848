//! The threads and the queue of one class of jobs.

use super::{Answering, Class, Finished, JobError, JobId, Pending, Work};
use crate::api::time::Boot;
use crossbeam_channel::{Sender, unbounded};
use std::collections::VecDeque;
use std::io;
use std::thread;

/// Bytes of stack of each thread; only touched pages take memory. A look-up of a name in glibc takes tens of KiB.
const STACK: usize = 256 << 10;

#[derive(Clone, Copy)]
struct Job {
    id: JobId,
    name: &'static str,
    deadline: Boot,
}

/// A thread at work.
struct Helper<A> {
    number: u64,
    jobs: Sender<Work<A>>,
    job: Job,
}

pub(super) struct Pool<A> {
    class: Class,
    waiting: VecDeque<(Job, Work<A>)>,
    busy: Vec<Helper<A>>,
    /// The numbers of the abandoned threads that have not returned.
    stuck: Vec<u64>,
    /// The system refused a thread while others were at work: the queue waits until one of these is free.
    refused: bool,
}

impl<A: Send + 'static> Pool<A> {
    pub fn new(class: Class) -> Pool<A> {
        Pool { class, waiting: VecDeque::new(), busy: Vec::new(), stuck: Vec::new(), refused: false }
    }

    pub fn push(&mut self, id: JobId, name: &'static str, deadline: Boot, work: Work<A>) {
        self.waiting.push_back((Job { id, name, deadline }, work));
    }

    /// Whether a thread is of this pool.
    pub fn has(&self, number: u64) -> bool {
        self.busy.iter().any(|helper| helper.number == number) || self.stuck.contains(&number)
    }

    /// A thread has done its job: it takes the next one, or ends.
    pub fn answered(&mut self, number: u64, answer: A, now: Boot, out: &mut Vec<Finished<A>>) {
        let Some(at) = self.busy.iter().position(|helper| helper.number == number) else {
            self.stuck.retain(|n| *n != number);
            return;
        };
        out.push(Finished { id: self.busy[at].job.id, result: Ok(answer) });
        self.refused = false;
        self.drop_late(now, out);
        let Some((job, work)) = self.waiting.pop_front() else {
            // The thread ends when its sender is dropped.
            self.busy.remove(at);
            return;
        };
        let helper = &mut self.busy[at];
        helper.job = job;
        if let Err(refused) = helper.jobs.send(work) {
            // The thread is gone because its job panicked: another one takes this job.
            self.waiting.push_front((job, refused.into_inner()));
            self.busy.remove(at);
        }
    }

    /// Reports every job that is past its deadline, and abandons the threads of those that had begun.
    pub fn give_up(&mut self, now: Boot, out: &mut Vec<Finished<A>>) {
        for helper in self.busy.extract_if(.., |helper| helper.job.deadline <= now) {
            self.stuck.push(helper.number);
            self.refused = false;
            let Job { id, name, .. } = helper.job;
            out.push(Finished { id, result: Err(JobError::Stuck { name }) });
        }
        self.drop_late(now, out);
    }

    /// Starts threads for the jobs that wait, as far as the bounds allow.
    pub fn start(&mut self, answering: &Answering<A>, next_number: &mut u64, out: &mut Vec<Finished<A>>) {
        while self.can_start()
            && let Some((job, work)) = self.waiting.pop_front()
        {
            let number = *next_number;
            *next_number += 1;
            match spawn(number, answering.clone()) {
                Ok(jobs) => {
                    // (The thread waits for it.)
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
        if self.can_start() && !self.waiting.is_empty() {
            return Some(Boot(0));
        }
        let busy = self.busy.iter().map(|helper| helper.job.deadline);
        busy.chain(self.waiting.iter().map(|(job, _)| job.deadline)).min()
    }

    pub fn pending(&self) -> impl Iterator<Item = Pending> {
        let shown =
            |job: Job, begun| Pending { id: job.id, class: self.class, name: job.name, deadline: job.deadline, begun };
        let busy = self.busy.iter().map(move |helper| shown(helper.job, true));
        busy.chain(self.waiting.iter().map(move |(job, _)| shown(*job, false)))
    }

    pub fn stuck(&self) -> usize {
        self.stuck.len()
    }

    fn can_start(&self) -> bool {
        let (at_work, replaced) = (self.class.at_work(), self.class.replaced());
        !self.refused && self.busy.len() < at_work && self.busy.len() + self.stuck.len() < at_work + replaced
    }

    fn drop_late(&mut self, now: Boot, out: &mut Vec<Finished<A>>) {
        self.waiting.retain(|(job, _)| {
            if job.deadline <= now {
                out.push(Finished { id: job.id, result: Err(JobError::NotStarted { name: job.name }) });
            }
            job.deadline > now
        });
    }
}

/// A thread that does the jobs sent to it, until the sender is dropped.
fn spawn<A: Send + 'static>(number: u64, answering: Answering<A>) -> io::Result<Sender<Work<A>>> {
    let (jobs, todo) = unbounded::<Work<A>>();
    thread::Builder::new().name("helper".to_string()).stack_size(STACK).spawn(move || {
        for work in todo {
            // Both fail only when the main thread is gone, and with it the process.
            let _ = answering.answers.send((number, work()));
            let _ = answering.waker.wake();
        }
    })?;
    Ok(jobs)
}
