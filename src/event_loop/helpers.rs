//! Threads for work that can block whatever the caller does: fsync, the removal of a large tree, a path on a hung network
//! file system. The main thread hands one job at a time to a thread over a channel of the thread's own; answers come back
//! over one channel and a waker. Nothing else is shared.
//!
//! Each class of jobs has threads and a queue of its own (`pool`). A class that is slow, or whose threads hang, delays no
//! job of another class: a hung manifest never keeps a record from being written.
//!
//! A thread ends when its class has no more jobs for it, so an idle process has one thread. Each job has a deadline. A job
//! that misses it is reported. If the job had begun, its thread is abandoned, because nothing can end a thread that hangs
//! in the kernel; up to a bound another thread takes its place. An abandoned thread that returns after all ends, and its
//! answer is dropped.

mod pool;

use crate::api::time::Boot;
use crossbeam_channel::{Receiver, Sender, unbounded};
use mio::{Registry, Token, Waker};
use pool::{Job, Pool};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which jobs share threads and a queue. Jobs of one class begin in the order of their submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Writes that must be durable before the work that waits for them goes on.
    Records,
    /// Reads of manifests and of their directory.
    Manifests,
    /// Accesses to any other path that this process does not own.
    Paths,
    /// Removals of files and trees; one may take minutes.
    Removals,
}

impl Class {
    /// In the order of their declaration.
    pub const ALL: [Class; 4] = [Class::Records, Class::Manifests, Class::Paths, Class::Removals];

    /// The name that people see.
    pub fn name(self) -> &'static str {
        match self {
            Class::Records => "records",
            Class::Manifests => "manifests",
            Class::Paths => "paths",
            Class::Removals => "removals",
        }
    }

    /// Maximum number of threads at work, not counting abandoned ones.
    pub const fn at_work(self) -> usize {
        2
    }

    /// Maximum number of abandoned threads that are replaced. When all of these hang too, the jobs of the class wait until
    /// one returns or their own deadlines pass.
    pub const fn replaced(self) -> usize {
        match self {
            // Several hung manifests must leave the others readable.
            Class::Manifests => 4,
            Class::Records | Class::Paths | Class::Removals => 2,
        }
    }
}

/// Maximum number of helper threads: 8 at work and 10 abandoned ones. Only a process in which jobs hang has more than 8.
pub const MAX_THREADS: usize = {
    let (mut sum, mut n) = (0, 0);
    while n < Class::ALL.len() {
        sum += Class::ALL[n].at_work() + Class::ALL[n].replaced();
        n += 1;
    }
    sum
};

/// Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// Why a job has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobError {
    /// It began, and did not end before its deadline; it may still take effect.
    Stuck { name: &'static str },
    /// It never began: no thread of its class was free before its deadline.
    NotStarted { name: &'static str },
    /// It never began: an earlier access to the path has missed its deadline and has not returned.
    Hangs { name: &'static str, path: PathBuf },
    /// It never began: the system gives no thread.
    NoThread { name: &'static str, why: String },
}

impl std::fmt::Display for JobError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            JobError::Stuck { name } => write!(f, "{name}: not done in time, and abandoned"),
            JobError::NotStarted { name } => write!(f, "{name}: not begun in time: all threads for such jobs are busy"),
            JobError::Hangs { name, path } => {
                write!(f, "{name}: {}: an earlier access has not returned: its file system hangs", path.display())
            }
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

/// A job that has not ended yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    pub id: JobId,
    pub class: Class,
    pub name: &'static str,
    pub deadline: Boot,
    pub begun: bool,
}

type Work<A> = Box<dyn FnOnce() -> A + Send>;

/// What a thread needs to answer.
struct Answering<A> {
    waker: Arc<Waker>,
    answers: Sender<(u64, A)>,
}

impl<A> Clone for Answering<A> {
    fn clone(&self) -> Answering<A> {
        Answering { waker: self.waker.clone(), answers: self.answers.clone() }
    }
}

/// `A` is the answer of all jobs, an enum most likely.
pub struct Helpers<A> {
    answering: Answering<A>,
    answers: Receiver<(u64, A)>,
    /// In the order of `Class::ALL`.
    pools: [Pool<A>; Class::ALL.len()],
    next_job: u64,
    next_thread: u64,
}

impl<A: Send + 'static> Helpers<A> {
    /// `token` is ready when there are answers. There can be only one waker in a poll.
    pub fn new(registry: &Registry, token: Token) -> io::Result<Helpers<A>> {
        let (send, answers) = unbounded();
        Ok(Helpers {
            answering: Answering { waker: Arc::new(Waker::new(registry, token)?), answers: send },
            answers,
            pools: Class::ALL.map(Pool::new),
            next_job: 0,
            next_thread: 0,
        })
    }

    /// The waker behind the token, for others that answer from threads; their receivers are then looked at whenever
    /// the token is ready.
    pub fn waker(&self) -> Arc<Waker> {
        self.answering.waker.clone()
    }

    /// Queues a job. It begins at the next `drive`, or when a thread of its class is free. `name` is for people.
    pub fn submit(
        &mut self,
        class: Class,
        name: &'static str,
        deadline: Boot,
        work: impl FnOnce() -> A + Send + 'static,
    ) -> JobId {
        self.push(class, name, None, deadline, Box::new(work))
    }

    /// Queues a job that accesses a path which may hang. Of the jobs for one path of a class one is at work at a time. If it
    /// hangs, the others fail at once until it returns: each path that hangs takes one thread.
    pub fn submit_for(
        &mut self,
        class: Class,
        name: &'static str,
        path: &Path,
        deadline: Boot,
        work: impl FnOnce() -> A + Send + 'static,
    ) -> JobId {
        self.push(class, name, Some(path.to_owned()), deadline, Box::new(work))
    }

    fn push(
        &mut self,
        class: Class,
        name: &'static str,
        path: Option<PathBuf>,
        deadline: Boot,
        work: Work<A>,
    ) -> JobId {
        let id = JobId(self.next_job);
        self.next_job += 1;
        self.pools[class as usize].push(Job { id, name, deadline, path }, work);
        id
    }

    /// Collects answers, reports the jobs that missed their deadlines, and starts what can be started.
    pub fn drive(&mut self, now: Boot, out: &mut Vec<Finished<A>>) {
        while let Ok((thread, answer)) = self.answers.try_recv() {
            if let Some(pool) = self.pools.iter_mut().find(|pool| pool.has(thread)) {
                pool.answered(thread, answer, now, out);
            }
        }
        for pool in &mut self.pools {
            pool.give_up(now, out);
            pool.start(&self.answering, &mut self.next_thread, out);
        }
    }

    /// When `drive` must be called at the latest: at once if a job can begin.
    pub fn next_deadline(&self) -> Option<Boot> {
        self.pools.iter().filter_map(Pool::next_deadline).min()
    }

    /// Every job that has not ended.
    pub fn pending(&self) -> impl Iterator<Item = Pending> {
        self.pools.iter().flat_map(Pool::pending)
    }

    /// How many abandoned threads of a class have not returned.
    pub fn stuck(&self, class: Class) -> usize {
        self.pools[class as usize].stuck()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_loop::{EventLoop, clock};
    use std::sync::mpsc;
    use std::thread;
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

    /// Jobs that hang until this is dropped.
    struct Hung {
        release: Option<mpsc::Sender<()>>,
        gate: Arc<std::sync::Mutex<mpsc::Receiver<()>>>,
    }

    impl Hung {
        fn new() -> Hung {
            let (release, gate) = mpsc::channel();
            Hung { release: Some(release), gate: Arc::new(std::sync::Mutex::new(gate)) }
        }

        fn job(&self) -> impl FnOnce() -> u32 + Send + 'static {
            let gate = self.gate.clone();
            move || {
                let _ = gate.lock().unwrap().recv();
                0
            }
        }

        fn release(&mut self) {
            self.release = None;
        }
    }

    /// Each class with as many jobs at work as it may have, and `after` more of them in its queue.
    fn fill(rig: &mut Rig, hung: &Hung, class: Class, after: usize, deadline: Boot) {
        for _ in 0..class.at_work() + after {
            rig.helpers.submit(class, "hang", deadline, hung.job());
        }
    }

    /// Held by each test here: all count the threads of the process.
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

    #[test]
    fn a_class_has_few_threads_a_stuck_one_is_reported_and_afterwards_there_is_no_thread() {
        const CLASS: Class = Class::Records;
        let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut rig = Rig::new();
        assert_eq!(helper_threads(), 0);
        let ids: Vec<JobId> = (0..20)
            .map(|n| {
                rig.helpers.submit(CLASS, "test", in_ms(60_000), move || {
                    thread::sleep(Duration::from_millis(5));
                    assert!(helper_threads() <= CLASS.at_work());
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
        let mut hung = Hung::new();
        for _ in 0..(CLASS.at_work() + CLASS.replaced()) / CLASS.at_work() {
            // (Each round gets a deadline of its own, so that no job is late before it begins.)
            fill(&mut rig, &hung, CLASS, 0, in_ms(200));
            let out = rig.collect(CLASS.at_work());
            assert!(out.iter().all(|f| f.result == Err(JobError::Stuck { name: "hang" })), "{out:?}");
        }
        assert_eq!(rig.helpers.stuck(CLASS), CLASS.at_work() + CLASS.replaced());
        let late = rig.helpers.submit(CLASS, "late", in_ms(40), || 7);
        let out = rig.collect(1);
        assert_eq!((out[0].id, &out[0].result), (late, &Err(JobError::NotStarted { name: "late" })));

        // Threads that hang in one class leave all others as they were.
        for class in Class::ALL.into_iter().filter(|class| *class != CLASS) {
            rig.helpers.submit(class, "other", in_ms(60_000), || 9);
            let out = rig.collect(1);
            assert_eq!((out.len(), &out[0].result), (1, &Ok(9)), "{class:?}");
        }

        // They return: their answers are dropped, and there is room again.
        hung.release();
        rig.helpers.submit(CLASS, "again", in_ms(60_000), || 8);
        let out = rig.collect(1);
        assert_eq!((out.len(), &out[0].result), (1, &Ok(8)));
        wait_for_threads(0);

        // All classes at their bounds: no more threads than that, whatever waits.
        let mut hung = Hung::new();
        for class in Class::ALL {
            fill(&mut rig, &hung, class, 30, in_ms(60_000));
        }
        rig.helpers.drive(clock::boot(), &mut Vec::new());
        let at_work: usize = Class::ALL.into_iter().map(Class::at_work).sum();
        wait_for_threads(at_work);
        assert_eq!(rig.helpers.pending().filter(|job| job.begun).count(), at_work);
        assert!(at_work <= MAX_THREADS);
        hung.release();
        assert_eq!(rig.collect(at_work + 30 * Class::ALL.len()).len(), at_work + 30 * Class::ALL.len());
        wait_for_threads(0);

        // Removals that take minutes delay no record, manifest or read.
        let mut hung = Hung::new();
        fill(&mut rig, &hung, Class::Removals, 10, in_ms(60_000));
        for class in [Class::Records, Class::Manifests, Class::Paths] {
            let id = rig.helpers.submit(class, "quick", in_ms(60_000), || 5);
            let out = rig.collect(1);
            assert_eq!((out.len(), out[0].id, &out[0].result), (1, id, &Ok(5)), "{class:?}");
        }
        let removals = rig.helpers.pending().filter(|job| job.class == Class::Removals);
        assert_eq!(removals.filter(|job| job.begun).count(), Class::Removals.at_work());
        hung.release();
        assert_eq!(rig.collect(Class::Removals.at_work() + 10).len(), Class::Removals.at_work() + 10);
        wait_for_threads(0);
    }

    #[test]
    fn a_path_that_hangs_takes_one_thread_and_leaves_other_paths_readable() {
        let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut rig = Rig::new();
        let mut hung = Hung::new();
        let (bad, good) = (Path::new("/bad"), Path::new("/good"));
        // Both wait for one path, so only the first one begins.
        let first = rig.helpers.submit_for(Class::Paths, "bad", bad, in_ms(300), hung.job());
        let second = rig.helpers.submit_for(Class::Paths, "bad", bad, in_ms(60_000), hung.job());
        rig.helpers.drive(clock::boot(), &mut Vec::new());
        let begun: Vec<JobId> = rig.helpers.pending().filter(|job| job.begun).map(|job| job.id).collect();
        assert_eq!(begun, [first]);
        let out = rig.collect(2);
        let hangs = JobError::Hangs { name: "bad", path: bad.to_owned() };
        assert_eq!((out[0].id, &out[0].result), (first, &Err(JobError::Stuck { name: "bad" })));
        assert_eq!((out[1].id, &out[1].result), (second, &Err(hangs.clone())));
        // However often it is tried, and others go on.
        for _ in 0..20 {
            rig.helpers.submit_for(Class::Paths, "bad", bad, in_ms(60_000), hung.job());
            assert_eq!(rig.collect(1)[0].result, Err(hangs.clone()));
            rig.helpers.submit_for(Class::Paths, "good", good, in_ms(60_000), || 1);
            assert_eq!(rig.collect(1)[0].result, Ok(1));
        }
        assert_eq!(rig.helpers.stuck(Class::Paths), 1);
        // It answers again.
        hung.release();
        while rig.helpers.stuck(Class::Paths) > 0 {
            rig.helpers.drive(clock::boot(), &mut Vec::new());
            thread::sleep(Duration::from_millis(5));
        }
        rig.helpers.submit_for(Class::Paths, "bad", bad, in_ms(60_000), || 2);
        assert_eq!(rig.collect(1)[0].result, Ok(2));
        drop(rig);
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
