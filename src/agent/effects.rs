//! The way out: each effect of the engine goes to its adapter. Every one with an `OpId` ends in one `Event::Done`.

use super::paths::{ContainerFiles, Removed, SandboxCall};
use super::{Agent, system_check, views};
use crate::adapters::cri::requests::HostDns;
use crate::adapters::manifests::{NotSeen, Seen};
use crate::adapters::server::http::{Response, Route, Ticket};
use crate::api::finding::Finding;
use crate::api::names::Uid;
use crate::api::time::Now;
use crate::config::Loaded;
use crate::engine::effect::{Effect, FilesCall, RecordChange, RuntimeCall, VolumesCall};
use crate::engine::event::{Answer, Event};
use crate::engine::op::{Code, OpError, OpId};
use crate::event_loop::{Class, Finished, JobError, JobId};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How long a batch of records may take to become durable before it is given up.
const RECORD_TIMEOUT: Duration = Duration::from_secs(60);
/// The same for what a removed pod leaves on disk: a log of gigabytes takes an SD card long.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(300);

/// The same for a look at the manifest directory, or at a file in it. One at a file system that a server answers for ends earlier.
const LOOK_TIMEOUT: Duration = Duration::from_secs(8);

/// After the last work the code that it needed is given back.
pub(super) const REST_AFTER: Duration = Duration::from_secs(10);

/// What is not done again and again on a node on which nothing happens.
fn is_work(effect: &Effect) -> bool {
    match effect {
        Effect::Runtime { call, .. } => {
            !matches!(call, RuntimeCall::Status | RuntimeCall::List | RuntimeCall::ReadPod { .. })
        }
        Effect::Files { .. } | Effect::Cgroup { .. } | Effect::Record { .. } | Effect::Logind { .. } => true,
        _ => false,
    }
}

/// What a helper is asked to do; kept here, so that a job without an answer is known too.
pub enum Job {
    Records(Vec<OpId>),
    /// The last good version of a manifest.
    Manifest,
    /// A look at the manifest directory or at a file in it, by its ticket.
    Look(u64),
    /// Of a pod that is over, or of a container that was removed; or the drop-in for logind.
    Files(OpId),
    /// A container's termination message.
    Message(OpId),
    /// The host's hosts file, for a container of a pod on its network.
    Hosts(ContainerFiles),
    /// The host's DNS settings, for a sandbox.
    Dns(SandboxCall),
    /// Empty results of sandboxes' networks, before the engine hears of the sandboxes.
    Networks {
        op: OpId,
        result: Box<Result<Answer, OpError>>,
    },
    /// Of a reload.
    Configuration,
    /// Why there is no runtime.
    Findings,
}

/// What a helper has done.
pub enum Work {
    Records(Vec<(OpId, Result<(), String>)>),
    Manifest(Result<(), String>),
    Look(Seen),
    Files(Result<(), OpError>),
    Message(String),
    Hosts(Result<String, String>),
    Dns(Result<HostDns, String>),
    Networks(Vec<Removed>),
    Configuration(Box<Loaded>),
    Findings(Vec<Finding>),
    /// Whether the drop-in for logind was written, or said the same before.
    DropIn(Result<bool, OpError>),
}

/// What the helpers are at.
pub type Jobs = BTreeMap<JobId, Job>;

/// Records to be written. One batch at a time, so that changes of one record stay in order; one that is given up changes
/// nothing any more (`Records::batch`).
#[derive(Default)]
pub struct RecordQueue {
    waiting: VecDeque<(OpId, RecordChange)>,
    writing: bool,
    /// How many were ever asked for, and how many of them were written, or were not to be written.
    asked: u64,
    done: u64,
    answers: VecDeque<Durable>,
}

/// An answer that is to be true after a kill of wherry, too: it is given when the records after `from` up to `until` are
/// written.
struct Durable {
    from: u64,
    until: u64,
    ticket: Ticket,
    body: Vec<u8>,
    /// Why one of them could not be written.
    failure: Option<String>,
}

impl RecordQueue {
    fn push(&mut self, op: OpId, change: RecordChange) {
        self.asked += 1;
        self.waiting.push_back((op, change));
    }

    /// The next one, in the order in which they were asked for, is written or was not to be.
    fn one_done(&mut self, failure: Option<&str>) {
        self.done += 1;
        if let Some(why) = failure {
            let of_it = self.answers.iter_mut().filter(|a| a.from < self.done && self.done <= a.until);
            of_it.for_each(|a| a.failure = Some(why.to_owned()));
        }
    }

    /// How many were asked for so far.
    pub fn asked(&self) -> u64 {
        self.asked
    }

    /// Gives `body` as the answer once all that was asked for since `from` is written.
    pub fn answer_then(&mut self, ticket: Ticket, body: Vec<u8>, from: u64) {
        self.answers.push_back(Durable { from, until: self.asked, ticket, body, failure: None });
    }

    /// The answers that can be given now.
    fn answers(&mut self) -> Vec<(Ticket, Response)> {
        let (done, all) = (self.done, std::mem::take(&mut self.answers));
        let (ready, later) = all.into_iter().partition(|a: &Durable| a.until <= done);
        self.answers = later;
        let response = |a: Durable| match a.failure {
            None => Response::json(a.body),
            Some(why) => {
                let words = format!("done, but it would not outlive a restart yet: {why}; it is written again\n");
                Response::text(500, words)
            }
        };
        let ready: VecDeque<Durable> = ready;
        ready.into_iter().map(|a| (a.ticket, response(a))).collect()
    }

    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_writing(&self) -> bool {
        self.writing
    }
}

impl Agent {
    /// True if the runtime was called: the request is to be sent.
    pub(super) fn carry_out(&mut self, effect: Effect, now: Now) -> bool {
        if is_work(&effect) {
            self.rest_at = Some(now.boot + REST_AFTER);
        }
        match effect {
            Effect::Runtime { op, call, timeout } => return self.call_runtime(op, call, timeout, now),
            Effect::Cancel { op } => return self.cancel(op),
            Effect::Files { op, call } => self.use_files(op, call, now),
            Effect::Cgroup { op, call } => self.use_cgroups(op, call, now),
            // No manifest that asks for one is accepted (`api/validate/unsupported.rs`).
            // Nothing was ever mounted.
            Effect::Volumes { op, call: VolumesCall::Unmount { .. }, .. } => {
                self.events.push_back(Event::Done { op, result: Ok(Answer::Ok) });
            }
            Effect::Volumes { op, .. } => self.cannot(op, "volumes"),
            Effect::Hook { op, .. } => self.cannot(op, "lifecycle hooks"),
            Effect::Probe { op, .. } => self.cannot(op, "probes"),
            Effect::Logind { op, call, timeout } => self.ask_logind(op, call, timeout, now),
            Effect::ReleaseLock => self.release_lock(),
            Effect::StoreLock { op } => self.store_lock(op),
            Effect::UseLogind(wanted) => self.use_logind(wanted, now),
            Effect::Record { op, change } => self.record_queue.push(op, change),
            Effect::Watch { uid, id, pid } => {
                let token = self.event_loop.token();
                let watched = self.pidfds.watch(self.event_loop.registry(), token, uid.clone(), &id, pid);
                if let Err(why) = &watched {
                    log::debug!("not watched, the list will tell of its end id={id} pid={pid} error={why:?}");
                }
                self.events.push_back(Event::Watched { uid, id, ok: watched.is_ok() });
            }
            Effect::Unwatch { id } => self.pidfds.unwatch(self.event_loop.registry(), &id),
            Effect::Killed { id } => self.drains.ended(id),
            Effect::Timer { key, at: Some(at) } => self.timers.set(key, at),
            Effect::Timer { key, at: None } => self.timers.clear(&key),
            Effect::Publish { uid, name } => {
                self.service.changed();
                if self.tell_change(&uid, &name, now) && self.server.has_watches(Route::Pods) {
                    let mut line = Vec::with_capacity(4096);
                    match self.engine.pod(&uid) {
                        Some(view) => views::write_change("MODIFIED", &view, &mut line),
                        None => views::write_gone(&uid, &name, &mut line),
                    }
                    self.server.publish(Route::Pods, line, now.boot);
                }
            }
            Effect::Notice(notice) => self.tell(&notice, now),
            Effect::Measure(measure) => self.metrics.observe(&measure),
        }
        false
    }

    fn cannot(&mut self, op: OpId, what: &str) {
        let message = format!("this version of wherry does not have {what}");
        let result = Err(OpError::Answered { code: Code::Unimplemented, message });
        self.events.push_back(Event::Done { op, result });
    }

    /// Small files are made here and now. What is removed may be large, and what is not ours may hang: helpers do that.
    fn use_files(&mut self, op: OpId, call: FilesCall, now: Now) {
        let Some(call) = self.use_foreign_files(op, call, now) else { return };
        let files = self.files.clone();
        let deadline = now.boot + REMOVE_TIMEOUT;
        let id = match call {
            FilesCall::RemovePod { uid, namespace, name, kill, keep_directory } => {
                let (uid, namespace, name) = (uid.to_string(), namespace.to_string(), name.to_string());
                self.helpers.submit(Class::Removals, "remove a pod's files", deadline, move || {
                    Work::Files(files.remove_pod(&uid, &namespace, &name, kill, keep_directory))
                })
            }
            FilesCall::RemoveContainerFiles { id, log_path } => {
                let id = id.to_string();
                self.helpers.submit(Class::Removals, "remove a container's log", deadline, move || {
                    Work::Files(files.remove_container(&id, &log_path))
                })
            }
            other => {
                self.events.push_back(Event::Done { op, result: files.execute(&other) });
                return;
            }
        };
        self.jobs.insert(id, Job::Files(op));
    }

    /// A pod's cgroup, with what its runtime has lost in it: that takes a moment to go.
    pub(super) fn remove_by_force(&mut self, op: OpId, uid: &Uid, now: Now) {
        let (remove, uid) = (self.files.remove_cgroup.clone(), uid.to_string());
        let id = self.helpers.submit(Class::Removals, "remove a pod's cgroup", now.boot + REMOVE_TIMEOUT, move || {
            Work::Files(remove(&uid, true).map_err(OpError::Unknown))
        });
        self.jobs.insert(id, Job::Files(op));
    }

    /// Gives what is to be written to a helper: fsync blocks, on a worn SD card for long.
    pub(super) fn write_records(&mut self, now: Now) {
        let deadline = now.boot + RECORD_TIMEOUT;
        let queue = &mut self.record_queue;
        if !queue.waiting.is_empty() && !queue.writing {
            let batch: Vec<(OpId, RecordChange)> = queue.waiting.drain(..).collect();
            queue.writing = true;
            let ops = batch.iter().map(|(op, _)| *op).collect();
            let records = self.records.batch();
            let id = self.helpers.submit(Class::Records, "write pods' records", deadline, move || {
                let write = |change: &RecordChange| match change {
                    RecordChange::Put { key, value } => records.put(key, value),
                    RecordChange::Delete { key } => records.delete(key),
                    RecordChange::SetAside { key } => records.set_aside(key),
                };
                Work::Records(batch.iter().map(|(op, change)| (*op, write(change))).collect())
            });
            self.jobs.insert(id, Job::Records(ops));
        }
        if let Some(write) = self.manifests.take_write(now) {
            let work = move || Work::Manifest(write.run());
            let id = self.helpers.submit(Class::Records, "write a manifest's record", deadline, work);
            self.jobs.insert(id, Job::Manifest);
        }
    }

    /// Has helpers look at what may have changed of the manifests: each look may block for as long as the file system pleases.
    pub(super) fn look_at_manifests(&mut self, now: Now) {
        while let Some(look) = self.manifests.take_look(now) {
            let ticket = look.ticket();
            let deadline = now.boot + LOOK_TIMEOUT;
            let id =
                self.helpers.submit(Class::Manifests, "look at manifests", deadline, move || Work::Look(look.run()));
            self.jobs.insert(id, Job::Look(ticket));
        }
    }

    /// What was asked for over the control socket, and is durable by now.
    pub(super) fn answer_durable(&mut self, now: Now) {
        for (ticket, response) in self.record_queue.answers() {
            self.answer_later(ticket, response, now);
        }
    }

    /// The answer to a request that was put off.
    pub(super) fn answer_later(&mut self, ticket: Ticket, response: Response, now: Now) {
        self.server.answer(ticket, response, now.boot);
        self.event_loop.again(mio::Token(super::SERVER));
    }

    pub(super) fn helpers_done(&mut self, now: Now) {
        let mut finished = Vec::new();
        self.helpers.drive(now.boot, &mut finished);
        for Finished { id, result } in finished {
            let Some(job) = self.jobs.remove(&id) else { continue };
            match result {
                Ok(work) => self.work_done(job, work, now),
                Err(e) => self.work_failed(job, &e, now),
            }
        }
        self.answer_durable(now);
    }

    fn work_done(&mut self, job: Job, work: Work, now: Now) {
        match (job, work) {
            (_, Work::Records(written)) => {
                self.record_queue.writing = false;
                for (op, result) in written {
                    self.record_queue.one_done(result.as_ref().err().map(String::as_str));
                    let result = result.map(|()| Answer::Ok).map_err(OpError::Unknown);
                    self.events.push_back(Event::Done { op, result });
                }
            }
            (_, Work::Manifest(result)) => self.manifests.written(result, now),
            (Job::Look(ticket), Work::Look(seen)) => self.manifest_looked(ticket, Ok(seen), now),
            (Job::Files(op), Work::Files(result)) => {
                self.events.push_back(Event::Done { op, result: result.map(|()| Answer::Ok) });
            }
            (Job::Message(op), Work::Message(text)) => {
                self.events.push_back(Event::Done { op, result: Ok(Answer::Message(text)) });
            }
            (Job::Hosts(waiting), Work::Hosts(hosts)) => self.prepare_on_host_network(waiting, hosts),
            (Job::Dns(sandbox), Work::Dns(host)) => {
                let host = host.unwrap_or_else(|e| {
                    log::warn!("pods get no DNS settings of the host error={e:?}");
                    HostDns::none()
                });
                self.run_sandbox(sandbox, Some(host), now);
                self.flush_to_runtime(now);
            }
            (Job::Networks { op, result }, Work::Networks(gone)) => self.networks_mended(op, *result, gone),
            (Job::Findings, Work::Findings(found)) => found.iter().for_each(system_check::line),
            (Job::Configuration, Work::Configuration(loaded)) => self.reloaded(Ok(*loaded), now),
            (Job::Files(op), Work::DropIn(result)) => {
                self.events.push_back(Event::Done { op, result: result.map(Answer::Written) });
            }
            // An answer is always of its job's kind.
            _ => {}
        }
    }

    fn work_failed(&mut self, job: Job, e: &JobError, now: Now) {
        if let Job::Look(ticket) = job {
            // The manifests' own errors say it better.
            let not_seen = match e {
                JobError::Stuck { .. } => NotSeen::Stuck,
                e => NotSeen::NotBegun(e.to_string()),
            };
            return self.manifest_looked(ticket, Err(not_seen), now);
        }
        if let Some(repeated) = self.standing.tell(&e.to_string(), now.boot) {
            log::warn!("a helper failed error={:?} repeated={repeated}", e.to_string());
        }
        let result = Err(OpError::Unknown(e.to_string()));
        let ops = match job {
            Job::Records(ops) => {
                self.record_queue.writing = false;
                ops.iter().for_each(|_| self.record_queue.one_done(Some(&e.to_string())));
                ops
            }
            Job::Findings => Vec::new(),
            Job::Manifest => {
                self.manifests.written(Err(e.to_string()), now);
                Vec::new()
            }
            // (A container without a message has an empty one.)
            Job::Files(op) | Job::Message(op) | Job::Hosts(ContainerFiles { op, .. }) => vec![op],
            Job::Dns(sandbox) => {
                self.run_sandbox(sandbox, None, now);
                self.flush_to_runtime(now);
                Vec::new()
            }
            Job::Networks { op, result } => {
                self.networks_mended(op, *result, Vec::new());
                Vec::new()
            }
            Job::Configuration => {
                self.reloaded(Err(e), now);
                Vec::new()
            }
            Job::Look(_) => Vec::new(),
        };
        for op in ops {
            self.events.push_back(Event::Done { op, result: result.clone() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(records: u64) -> RecordQueue {
        let mut queue = RecordQueue::default();
        (0..records).for_each(|n| queue.push(OpId(n), RecordChange::Delete { key: format!("pods/{n}") }));
        queue
    }

    fn statuses(queue: &mut RecordQueue) -> Vec<(u64, u16)> {
        queue.answers().into_iter().map(|(ticket, response)| (ticket.0, response.status)).collect()
    }

    #[test]
    fn w27_an_answer_waits_for_all_records_that_it_speaks_of() {
        let mut queue = queue(2);
        let from = queue.asked();
        queue.push(OpId(2), RecordChange::Delete { key: "pods/2".into() });
        queue.push(OpId(3), RecordChange::Delete { key: "pods/3".into() });
        queue.answer_then(Ticket(1), Vec::new(), from);
        // What comes later is not waited for.
        queue.push(OpId(4), RecordChange::Delete { key: "pods/4".into() });
        // An error in what was asked for before is not this one's.
        queue.one_done(None);
        queue.one_done(Some("disk full"));
        queue.one_done(None);
        assert_eq!(statuses(&mut queue), []);
        queue.one_done(None);
        assert_eq!(statuses(&mut queue), [(1, 200)]);
        queue.one_done(Some("disk full"));
        assert_eq!(statuses(&mut queue), [], "once");
    }

    #[test]
    fn w27_a_record_that_could_not_be_written_is_no_success() {
        let mut queue = queue(0);
        // Nothing to write: at once.
        queue.answer_then(Ticket(1), Vec::new(), 0);
        assert_eq!(statuses(&mut queue), [(1, 200)]);
        for n in 0..3 {
            queue.push(OpId(n), RecordChange::Delete { key: format!("pods/{n}") });
        }
        queue.answer_then(Ticket(2), Vec::new(), 1);
        queue.answer_then(Ticket(3), Vec::new(), 2);
        queue.one_done(None);
        queue.one_done(Some("disk full"));
        queue.one_done(None);
        let answers = queue.answers();
        let said: Vec<(u64, u16)> = answers.iter().map(|(ticket, r)| (ticket.0, r.status)).collect();
        assert_eq!(said, [(2, 500), (3, 200)]);
        assert!(format!("{:?}", answers[0].1.body).contains("would not outlive a restart yet: disk full"));
    }
}
