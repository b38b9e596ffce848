//! Threads for work that blocks whatever one does (looking up a name, deleting a big tree, fsync, statfs of a hung NFS
//! mount). The main thread hands one job at a time to a thread over a channel of the thread's own; answers come back
//! over one channel and a waker. Nothing is shared besides.
//!
//! There are at most `MAX_HELPERS` at work, and none when there is nothing to do: a thread whose job is done and for
//! which none waits ends. Each job has a deadline. A job that is past it is reported, and if it had begun its thread is
//! abandoned: nothing can end a thread that hangs in the kernel. Another one may take its place, up to `MAX_STUCK`
//! abandoned ones; then jobs wait for a thread until their own deadline. An abandoned thread that comes back after all
//! ends, and its answer is dropped.

use crate::api::time::Boot;
use crossbeam_channel::{Receiver, Sender, unbounded};
use mio::{Registry, Token, Waker};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread;

/// At work at the same time, abandoned ones not counted.
pub const MAX_HELPERS: usize = 4;

/// Abandoned threads that are replaced; the process has at most 1 + MAX_HELPERS + MAX_STUCK threads.
pub const MAX_STUCK: usize = 4;

/// Bytes of stack of each thread; only what is touched is real. A look-up of a name in glibc takes tens of KiB.
const STACK: usize = 256 << 10;

/// Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// Why a job has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobError {
    /// It began, and was not done at its deadline; it may still take effect.
    Stuck { name: &'static str },
    /// It never began: no thread was free before its deadline.
    NotStarted { name: &'static str },
    /// It never began: the system gives no thread.
    NoThread { name: &'static str, why: String },
}

impl std::fmt::Display for JobError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            JobError::Stuck { name } => write!(f, "{name}: not done in time, and abandoned"),
            JobError::NotStarted { name } => write!(f, "{name}: not begun in time: all helper threads are busy"),
            JobError::NoThread { name, why } => write!(f, "{name}: start a helper thread: {why}"),
        }
    }
}

impl std::error::Error for JobError {}

/// The one end of each job.
#[derive(Debug)]
pub struct Finished<A> {
    pub id: JobId,
    pub result: Result<A, JobError>,
}

type Work<A> = Box<dyn FnOnce() -> A + Send>;

struct Waiting<A> {
    id: JobId,
    name: &'static str,
    deadline: Boot,
    work: Work<A>,
}

struct Helper<A> {
    number: u64,
    jobs: Sender<Work<A>>,
    /// The job that it is at: (id, name, deadline).
    at: (JobId, &'static str, Boot),
}

/// `A` is the answer of all jobs, an enum most likely.
pub struct Helpers<A> {
    waker: Arc<Waker>,
    answer: Sender<(u64, A)>,
    answers: Receiver<(u64, A)>,
    waiting: VecDeque<Waiting<A>>,
    busy: Vec<Helper<A>>,
    /// The numbers of abandoned threads that did not come back yet.
    stuck: Vec<u64>,
    next_job: u64,
    next_helper: u64,
}

impl<A: Send + 'static> Helpers<A> {
    /// `token` is ready when there are answers. There can be only one waker in a poll.
    pub fn new(registry: &Registry, token: Token) -> io::Result<Helpers<A>> {
        let (answer, answers) = unbounded();
        Ok(Helpers {
            waker: Arc::new(Waker::new(registry, token)?),
            answer,
            answers,
            waiting: VecDeque::new(),
            busy: Vec::new(),
            stuck: Vec::new(),
            next_job: 0,
            next_helper: 0,
        })
    }

    /// The waker behind the token, for others that answer from threads; their receivers are then looked at whenever
    /// the token is ready.
    pub fn waker(&self) -> Arc<Waker> {
        self.waker.clone()
    }

    /// Queues a job. It begins at the next `drive`, or when a thread is free. `name` is for people.
    pub fn submit(&mut self, name: &'static str, deadline: Boot, work: impl FnOnce() -> A + Send + 'static) -> JobId {
        let id = JobId(self.next_job);
        self.next_job += 1;
        self.waiting.push_back(Waiting { id, name, deadline, work: Box::new(work) });
        id
    }

    /// Collects answers, gives up what is past its deadline, starts what can be started.
    pub fn drive(&mut self, now: Boot, out: &mut Vec<Finished<A>>) {
        while let Ok((number, answer)) = self.answers.try_recv() {
            if let Some(at) = self.busy.iter().position(|h| h.number == number) {
                out.push(Finished { id: self.busy[at].at.0, result: Ok(answer) });
                self.next_job_for(at, now, out);
            } else {
                self.stuck.retain(|n| *n != number);
            }
        }
        let stuck = &mut self.stuck;
        self.busy.retain(|helper| {
            let (id, name, deadline) = helper.at;
            if deadline <= now {
                stuck.push(helper.number);
                out.push(Finished { id, result: Err(JobError::Stuck { name }) });
            }
            deadline > now
        });
        self.drop_late(now, out);
        while self.busy.len() < MAX_HELPERS && self.busy.len() + self.stuck.len() < MAX_HELPERS + MAX_STUCK {
            let Some(job) = self.waiting.pop_front() else { break };
            self.start(job, out);
        }
    }

    /// When `drive` must be called at the latest. A job that was submitted since is due at once.
    pub fn next_deadline(&self) -> Option<Boot> {
        let can_start = self.busy.len() < MAX_HELPERS && self.busy.len() + self.stuck.len() < MAX_HELPERS + MAX_STUCK;
        if can_start && !self.waiting.is_empty() {
            return Some(Boot(0));
        }
        let busy = self.busy.iter().map(|h| h.at.2);
        busy.chain(self.waiting.iter().map(|w| w.deadline)).min()
    }

    /// Every job: its name, its deadline, and whether it has begun.
    pub fn at_work(&self) -> impl Iterator<Item = (JobId, &'static str, Boot, bool)> {
        let busy = self.busy.iter().map(|h| (h.at.0, h.at.1, h.at.2, true));
        busy.chain(self.waiting.iter().map(|w| (w.id, w.name, w.deadline, false)))
    }

    /// How many abandoned threads have not come back.
    pub fn stuck(&self) -> usize {
        self.stuck.len()
    }

    /// The helper at index `at` is free: its next job, or its end.
    fn next_job_for(&mut self, at: usize, now: Boot, out: &mut Vec<Finished<A>>) {
        self.drop_late(now, out);
        match self.waiting.pop_front() {
            Some(job) => {
                let helper = &mut self.busy[at];
                helper.at = (job.id, job.name, job.deadline);
                if let Err(refused) = helper.jobs.send(job.work) {
                    // The thread is gone (its job panicked): another one takes this job.
                    self.waiting.push_front(Waiting {
                        id: job.id,
                        name: job.name,
                        deadline: job.deadline,
                        work: refused.into_inner(),
                    });
                    self.busy.remove(at);
                }
            }
            // Its sender goes with it: the thread ends.
            None => drop(self.busy.remove(at)),
        }
    }

    fn drop_late(&mut self, now: Boot, out: &mut Vec<Finished<A>>) {
        self.waiting.retain(|job| {
            if job.deadline <= now {
                out.push(Finished { id: job.id, result: Err(JobError::NotStarted { name: job.name }) });
            }
            job.deadline > now
        });
    }

    fn start(&mut self, job: Waiting<A>, out: &mut Vec<Finished<A>>) {
        let number = self.next_helper;
        self.next_helper += 1;
        let (jobs, todo) = unbounded::<Work<A>>();
        let answer = self.answer.clone();
        let waker = self.waker.clone();
        let spawned = thread::Builder::new().name("helper".to_string()).stack_size(STACK).spawn(move || {
            for work in todo {
                // Both fail only when the main thread is gone, and then the process is.
                let _ = answer.send((number, work()));
                let _ = waker.wake();
            }
        });
        match spawned {
            Ok(_) => {
                let _ = jobs.send(job.work);
                self.busy.push(Helper { number, jobs, at: (job.id, job.name, job.deadline) });
            }
            Err(e) if self.busy.is_empty() => {
                let why = e.to_string();
                out.push(Finished { id: job.id, result: Err(JobError::NoThread { name: job.name, why }) });
            }
            Err(_) => self.waiting.push_front(job),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_loop::{EventLoop, clock};
    use std::sync::mpsc;
    use std::time::Duration;

    const HELPERS: Token = Token(1);

    struct Rig {
        event_loop: EventLoop,
        helpers: Helpers<u32>,
    }

    impl Rig {
        fn new() -> Rig {
            let event_loop = EventLoop::new().unwrap();
            let helpers = Helpers::new(event_loop.registry(), HELPERS).unwrap();
            Rig { event_loop, helpers }
        }

        fn collect(&mut self, count: usize) -> Vec<Finished<u32>> {
            let (mut ready, mut out) = (Vec::new(), Vec::new());
            loop {
                self.helpers.drive(clock::boot(), &mut out);
                if out.len() >= count {
                    return out;
                }
                let next = self.helpers.next_deadline();
                assert!(next.is_some(), "nothing to wait for");
                self.event_loop.turn(next, &mut ready).unwrap();
            }
        }
    }

    fn in_ms(ms: u64) -> Boot {
        clock::boot() + Duration::from_millis(ms)
    }

    /// The threads of this process with the helpers' name (other tests have threads too).
    fn helper_threads() -> usize {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        tasks
            .filter_map(|t| std::fs::read_to_string(t.ok()?.path().join("comm")).ok())
            .filter(|name| name.trim() == "helper")
            .count()
    }

    // One test for all that counts threads: tests of one binary run side by side.
    #[test]
    fn jobs_run_on_at_most_four_threads_a_stuck_one_is_reported_and_afterwards_there_is_no_thread() {
        let mut rig = Rig::new();
        assert_eq!(helper_threads(), 0);
        let ids: Vec<JobId> = (0..20)
            .map(|n| {
                rig.helpers.submit("test", in_ms(100_000), move || {
                    thread::sleep(Duration::from_millis(5));
                    assert!(helper_threads() <= MAX_HELPERS);
                    n
                })
            })
            .collect();
        let mut done: Vec<(JobId, u32)> = rig.collect(20).into_iter().map(|f| (f.id, f.result.unwrap())).collect();
        done.sort_unstable();
        assert_eq!(done, ids.into_iter().zip(0..).collect::<Vec<_>>());
        assert_eq!(rig.helpers.next_deadline(), None);
        wait_for_threads(0);

        // Stuck ones are reported at their deadline and replaced, up to the bound.
        let (release, stuck) = mpsc::channel::<()>();
        let stuck = Arc::new(std::sync::Mutex::new(stuck));
        for _ in 0..MAX_HELPERS + MAX_STUCK {
            let stuck = stuck.clone();
            rig.helpers.submit("hang", in_ms(40), move || {
                let _ = stuck.lock().unwrap().recv();
                0
            });
            // Its own turn each, so that none counts as late before it began.
            if rig.helpers.waiting.len() == MAX_HELPERS {
                let out = rig.collect(MAX_HELPERS);
                assert!(out.iter().all(|f| f.result == Err(JobError::Stuck { name: "hang" })), "{out:?}");
            }
        }
        assert_eq!(rig.helpers.stuck(), MAX_HELPERS + MAX_STUCK);
        let late = rig.helpers.submit("late", in_ms(40), || 7);
        let out = rig.collect(1);
        assert_eq!((out[0].id, &out[0].result), (late, &Err(JobError::NotStarted { name: "late" })));

        // They come back: their answers are dropped, and there is room again.
        drop(release);
        rig.helpers.submit("again", in_ms(100_000), || 8);
        let out = rig.collect(1);
        assert_eq!((out.len(), &out[0].result), (1, &Ok(8)));
        wait_for_threads(0);
    }

    fn wait_for_threads(count: usize) {
        for _ in 0..10_000 {
            if helper_threads() == count {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("{} helper threads", helper_threads());
    }
}
