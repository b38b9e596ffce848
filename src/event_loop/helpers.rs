//! Helper threads for work that can block: fsync, removing a large tree, accessing a path on a hung network file
//! system. The main thread sends jobs to a thread over that thread's own channel, one at a time. The answers of all
//! threads arrive over one shared channel, and a waker wakes the event loop. Nothing else is shared.
//!
//! Each class of jobs has its own threads and queue (`pool`). A slow or hung class does not delay other classes: a hung
//! manifest never delays the writing of a record.
//!
//! A thread ends soon after its class has no more jobs, so an idle process has one thread. Each job has a deadline. A
//! job that misses its deadline is reported. If it has started, its thread is abandoned, because a thread that hangs in
//! the kernel cannot be ended. Another thread replaces it, up to a limit. An abandoned thread that returns later ends,
//! and its answer is dropped.

mod class;
mod job;
mod pool;

use crate::api::time::Boot;
pub use class::Class;
use crossbeam_channel::{Receiver, unbounded};
use job::{Answering, Job, Work};
pub use job::{Finished, JobError, JobId, PendingJob};
use mio::{Registry, Token, Waker};
use pool::Pool;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The helper threads and their jobs. `A` is the common answer type of all jobs, usually an enum.
pub struct Helpers<A> {
    answering: Answering<A>,
    answers: Receiver<(u64, A)>,
    /// The pools, in the order of `Class::ALL`.
    pools: [Pool<A>; Class::ALL.len()],
    next_job: u64,
    next_thread: u64,
}

impl<A: Send + 'static> Helpers<A> {
    /// Creates the helpers without any thread. `token` becomes ready when there are answers. A poll can have only one
    /// waker.
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

    /// Queues a job. The job starts at the next `drive`, or when a thread of its class is free. `name` is used in
    /// messages.
    pub fn submit(
        &mut self,
        class: Class,
        name: &'static str,
        deadline: Boot,
        work: impl FnOnce() -> A + Send + 'static,
    ) -> JobId {
        self.push(class, name, None, deadline, Box::new(work))
    }

    /// Queues a job that accesses a path that may hang. In each class, one job per path runs at a time. If that job
    /// hangs, the other jobs for the path fail immediately until it returns, so a hung path occupies only one thread.
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

    /// Collects answers, reports jobs that missed their deadlines, and starts waiting jobs.
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

    /// Returns when `drive` must be called next: at once if a job can start, otherwise at the earliest deadline of a
    /// job.
    pub fn next_deadline(&self) -> Option<Boot> {
        self.pools.iter().filter_map(Pool::next_deadline).min()
    }

    /// Returns all jobs that have not finished.
    pub fn pending(&self) -> impl Iterator<Item = PendingJob> {
        self.pools.iter().flat_map(Pool::pending)
    }

    /// Returns the number of abandoned threads of a class that have not returned.
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

    /// Returns the number of helper threads of this process, which have a name of their own. Other tests run threads,
    /// too.
    fn helper_threads() -> usize {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        tasks
            .filter_map(|t| std::fs::read_to_string(t.ok()?.path().join("comm")).ok())
            .filter(|name| name.trim() == "helper")
            .count()
    }

    /// A source of jobs that hang until it is dropped.
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

    /// Occupies every thread that a class may have with a job that hangs, and queues `after` more such jobs.
    fn fill(rig: &mut Rig, hung: &Hung, class: Class, after: usize, deadline: Boot) {
        for _ in 0..class.at_work() + after {
            rig.helpers.submit(class, "hang", deadline, hung.job());
        }
    }

    /// Every test here holds this lock, because each counts the threads of the process.
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

        // Hung threads are reported at the deadline and replaced, up to the limit.
        let mut hung = Hung::new();
        for _ in 0..(CLASS.at_work() + CLASS.replaced()) / CLASS.at_work() {
            // Each round has its own deadline, so that no job misses its deadline before it starts.
            fill(&mut rig, &hung, CLASS, 0, in_ms(200));
            let out = rig.collect(CLASS.at_work());
            assert!(out.iter().all(|f| f.result == Err(JobError::Stuck { name: "hang" })), "{out:?}");
        }
        assert_eq!(rig.helpers.stuck(CLASS), CLASS.at_work() + CLASS.replaced());
        let late = rig.helpers.submit(CLASS, "late", in_ms(40), || 7);
        let out = rig.collect(1);
        assert_eq!((out[0].id, &out[0].result), (late, &Err(JobError::NotStarted { name: "late" })));

        // Hung threads in one class do not affect other classes.
        for class in Class::ALL.into_iter().filter(|class| *class != CLASS) {
            rig.helpers.submit(class, "other", in_ms(60_000), || 9);
            let out = rig.collect(1);
            assert_eq!((out.len(), &out[0].result), (1, &Ok(9)), "{class:?}");
        }

        // The threads return: their answers are dropped, and new jobs can start.
        hung.release();
        rig.helpers.submit(CLASS, "again", in_ms(60_000), || 8);
        let out = rig.collect(1);
        assert_eq!((out.len(), &out[0].result), (1, &Ok(8)));
        wait_for_threads(0);

        // All classes are at their limits: the number of threads does not grow with the queues.
        let mut hung = Hung::new();
        for class in Class::ALL {
            fill(&mut rig, &hung, class, 30, in_ms(60_000));
        }
        rig.helpers.drive(clock::boot(), &mut Vec::new());
        let at_work: usize = Class::ALL.into_iter().map(Class::at_work).sum();
        wait_for_threads(at_work);
        assert_eq!(rig.helpers.pending().filter(|job| job.begun).count(), at_work);
        hung.release();
        assert_eq!(rig.collect(at_work + 30 * Class::ALL.len()).len(), at_work + 30 * Class::ALL.len());
        wait_for_threads(0);

        // Removals that take minutes do not delay records, manifests or reads.
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
    fn a_thread_that_rests_takes_the_next_job() {
        let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut rig = Rig::new();
        let mut thread = || {
            let id = || rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
            rig.helpers.submit(Class::Records, "id", in_ms(60_000), id);
            *rig.collect(1)[0].result.as_ref().unwrap()
        };
        // On a busy machine, an idle thread may end before the next job arrives.
        let mut last = thread();
        let same = (0..100).any(|_| std::mem::replace(&mut last, thread()) == last);
        assert!(same, "each job had a thread of its own");
        drop(rig);
        wait_for_threads(0);
    }

    #[test]
    fn a_path_that_hangs_takes_one_thread_and_leaves_other_paths_readable() {
        let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut rig = Rig::new();
        let mut hung = Hung::new();
        let (bad, good) = (Path::new("/bad"), Path::new("/good"));
        // Both jobs access the same path, so only the first one starts.
        let first = rig.helpers.submit_for(Class::Paths, "bad", bad, in_ms(300), hung.job());
        let second = rig.helpers.submit_for(Class::Paths, "bad", bad, in_ms(60_000), hung.job());
        rig.helpers.drive(clock::boot(), &mut Vec::new());
        let begun: Vec<JobId> = rig.helpers.pending().filter(|job| job.begun).map(|job| job.id).collect();
        assert_eq!(begun, [first]);
        let out = rig.collect(2);
        let hangs = JobError::Hangs { name: "bad", path: bad.to_owned() };
        assert_eq!((out[0].id, &out[0].result), (first, &Err(JobError::Stuck { name: "bad" })));
        assert_eq!((out[1].id, &out[1].result), (second, &Err(hangs.clone())));
        // Each further attempt fails at once, and other paths stay available.
        for _ in 0..20 {
            rig.helpers.submit_for(Class::Paths, "bad", bad, in_ms(60_000), hung.job());
            assert_eq!(rig.collect(1)[0].result, Err(hangs.clone()));
            rig.helpers.submit_for(Class::Paths, "good", good, in_ms(60_000), || 1);
            assert_eq!(rig.collect(1)[0].result, Ok(1));
        }
        assert_eq!(rig.helpers.stuck(Class::Paths), 1);
        // The path recovers.
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
