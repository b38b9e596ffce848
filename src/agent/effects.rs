//! The way out: each effect of the engine goes to its adapter. Every one with an `OpId` ends in one `Event::Done`.

use super::{Agent, start, views};
use crate::adapters::cri::requests::dns_notices;
use crate::adapters::manifests;
use crate::api::pod::Pod;
use crate::api::time::Now;
use crate::engine::effect::{Effect, Notice, RecordChange, RuntimeCall, Severity};
use crate::engine::event::{Answer, Event};
use crate::engine::op::{OpError, OpId};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

/// How long a batch of records may take to become durable before it is given up.
const RECORD_TIMEOUT: Duration = Duration::from_secs(60);

/// What a helper has done.
pub enum Written {
    Records(Vec<(OpId, Result<(), String>)>),
    /// The last good version of a manifest.
    Manifest(manifests::Write, Result<(), String>),
}

/// Records to be written. One batch at a time, so that changes of one record stay in order.
#[derive(Default)]
pub struct RecordQueue {
    waiting: VecDeque<(OpId, RecordChange)>,
    writing: Vec<OpId>,
}

impl Agent {
    /// True if the runtime was called: the request is to be sent.
    pub(super) fn carry_out(&mut self, effect: Effect, now: Now) -> bool {
        match effect {
            Effect::Runtime { op, call, timeout } => {
                if let RuntimeCall::RunSandbox { pod, .. } = &call {
                    self.settle_dns(pod, now);
                }
                self.client.start(op, call, timeout, now.boot);
                return true;
            }
            Effect::Cancel { op } => {
                self.client.cancel(op);
                return true;
            }
            Effect::Files { op, call } => {
                let result = self.files.execute(&call);
                self.events.push_back(Event::Done { op, result });
            }
            Effect::Record { op, change } => self.record_queue.waiting.push_back((op, change)),
            Effect::Timer { key, at: Some(at) } => self.timers.set(key, at),
            Effect::Timer { key, at: None } => self.timers.clear(&key),
            Effect::Publish { uid, name } => {
                if self.server.has_watches() {
                    let mut line = Vec::with_capacity(4096);
                    match self.engine.pod(&uid) {
                        Some(view) => views::write_change("MODIFIED", &view, &mut line),
                        None => views::write_gone(&uid, &name, &mut line),
                    }
                    self.server.publish(line, now.boot);
                }
            }
            Effect::Notice(notice) => self.tell(&notice, now),
            Effect::Measure(measure) => self.metrics.observe(&measure),
        }
        false
    }

    /// For a new sandbox: the host's resolvers are those of now (a network may come up after us), and what the pod does not
    /// get of its DNS settings is told.
    fn settle_dns(&mut self, pod: &Rc<Pod>, now: Now) {
        let cfg = self.client.config_mut();
        cfg.host_dns = start::host_dns(&self.config);
        for (reason, message) in dns_notices(pod, cfg) {
            let severity = Severity::Warning;
            self.tell(&Notice { pod: Some(pod.clone()), container: None, severity, reason, message }, now);
        }
    }

    fn tell(&mut self, notice: &Notice, now: Now) {
        let mut line = notice.message.clone();
        if let Some(pod) = &notice.pod {
            line.push_str(&format!(" pod={} uid={}", pod.name, pod.uid));
        }
        if let Some(container) = &notice.container {
            line.push_str(&format!(" container={container}"));
        }
        line.push_str(&format!(" reason={}", notice.reason));
        match notice.severity {
            Severity::Normal => log::info!("{line}"),
            Severity::Warning => match self.standing.tell(&line, now.boot) {
                Some(0) => log::warn!("{line}"),
                Some(times) => log::warn!("{line} repeated={times}"),
                None => {}
            },
        }
    }

    /// Gives what is to be written to a helper: fsync blocks, on a worn SD card for long.
    pub(super) fn write_records(&mut self, now: Now) {
        let deadline = now.boot + RECORD_TIMEOUT;
        let queue = &mut self.record_queue;
        if !queue.waiting.is_empty() && queue.writing.is_empty() {
            let batch: Vec<(OpId, RecordChange)> = queue.waiting.drain(..).collect();
            queue.writing = batch.iter().map(|(op, _)| *op).collect();
            let records = self.records.clone();
            self.helpers.submit("write pods' records", deadline, move || {
                let write = |change: &RecordChange| match change {
                    RecordChange::Put { key, value } => records.put(key, value),
                    RecordChange::Delete { key } => records.delete(key),
                };
                Written::Records(batch.iter().map(|(op, change)| (*op, write(change))).collect())
            });
        }
        if let Some(write) = self.manifests.take_write(now) {
            self.helpers.submit("write a manifest's record", deadline, move || {
                let result = write.run();
                Written::Manifest(write, result)
            });
        }
    }

    pub(super) fn helpers_done(&mut self, now: Now) {
        let mut finished = Vec::new();
        self.helpers.drive(now.boot, &mut finished);
        for job in finished {
            match job.result {
                Ok(Written::Records(written)) => {
                    self.record_queue.writing.clear();
                    for (op, result) in written {
                        let result = result.map(|()| Answer::Ok).map_err(OpError::Unknown);
                        self.events.push_back(Event::Done { op, result });
                    }
                }
                Ok(Written::Manifest(write, result)) => self.manifests.written(&write, result, now),
                // Of manifests' records one is written at a time, so a job without an answer is the batch's.
                Err(e) => {
                    log::warn!("{e}");
                    for op in std::mem::take(&mut self.record_queue.writing) {
                        let result = Err(OpError::Unknown(e.to_string()));
                        self.events.push_back(Event::Done { op, result });
                    }
                }
            }
        }
    }
}
