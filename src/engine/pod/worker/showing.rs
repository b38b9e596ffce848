//! Builds the worker's own status (`WorkerStatus`).

use super::Worker;
use super::ops::{ActiveOp, Operations};
use super::state::{State, Terminating};
use super::worker_status::{NextPull, NextStart, PullProgress, WorkerStatus};
use crate::api::pod::Pod;
use crate::api::time::Boot;
use crate::engine::pod::backoff::in_words;
use crate::engine::pod::kill::TerminationSource;
use std::time::Duration;

impl Worker {
    pub fn worker_status(&self, now: Boot) -> WorkerStatus {
        let left = |until: Boot| (until > now).then(|| seconds_up(until.since(now)));
        let mut worker_status = WorkerStatus {
            state: self.state.name(),
            drained: self.demand.is_drained(),
            doing: self.ops.in_words(self.pod.as_deref(), now),
            ..WorkerStatus::default()
        };
        match &self.state {
            State::Sync(sync) => {
                worker_status.pull = sync.starting.pull().map(|pull| PullProgress {
                    image: pull.image.clone(),
                    seconds: now.since(pull.began().unwrap_or(pull.wanted)).as_secs(),
                    ahead: None,
                });
                let backoffs = self.containers.backoffs.all().filter_map(|(name, until, after_end)| {
                    Some(NextStart { container: name.to_owned(), seconds: left(until)?, after_end })
                });
                worker_status.back_off = backoffs.collect();
                let pulls = self.containers.failures.pulls().iter().filter_map(|(image, b)| {
                    let (failures, error) = (b.failures, b.error.clone());
                    Some(NextPull { image: image.clone(), seconds: left(b.until)?, failures, error })
                });
                worker_status.pull_back_off = pulls.collect();
                if let Some(s) = self.sandbox.hold(now).and_then(left) {
                    worker_status.waits_for.push(format!("the next attempt to start its sandbox, in {}", words(s)));
                }
                if self.state.is_outdated() {
                    let waits = "its record to be written; then the new version replaces it";
                    worker_status.waits_for.push(waits.into());
                } else if self.record.is_writing() {
                    worker_status.waits_for.push("its record to be written to the disk".into());
                }
                if let Some(s) = self.deadline.and_then(|d| left(d.at())) {
                    worker_status.waits_for.push(format!("its activeDeadlineSeconds to expire, in {}", words(s)));
                }
            }
            State::Terminating(t) => {
                worker_status.grace_left_seconds = Some(seconds_up(t.grace_deadline.since(now)));
                worker_status.waits_for.extend(waits_to_end(t, now));
            }
            State::Finished(_) => {
                if let Some(s) = self.removals.retry.waits_until(now).and_then(left) {
                    worker_status.waits_for.push(format!("the next attempt to remove its leftovers, in {}", words(s)));
                }
            }
            State::Waiting | State::Terminated(_) | State::Forgotten(_) => {}
        }
        worker_status
            .waits_for
            .extend(self.demand.waits_for.iter().map(|source| starts_again_after(*source).to_owned()));
        if self.demand.successor.is_some() && self.demand.waits_for.is_empty() {
            worker_status.waits_for.push("its termination, to start again from the current manifest".into());
        }
        worker_status
    }
}

/// Returns what a pod that ends waits for.
fn waits_to_end(t: &Terminating, now: Boot) -> Option<String> {
    if t.delay().is_some() {
        return Some("services to lead to it no more".into());
    }
    let at = t.sandbox.waits_until(now).filter(|at| *at > now)?;
    Some(format!("the next attempt to stop its sandbox, in {}", words(seconds_up(at.since(now)))))
}

impl Operations {
    /// Describes the operation in flight.
    fn in_words(&self, pod: Option<&Pod>, now: Boot) -> Option<String> {
        let container = |index: usize| pod.map_or("?", |p| p.at(index).name.as_str());
        let Some(doing) = self.active() else {
            return self.is_stopping().then(|| "stopping containers".to_owned());
        };
        Some(match doing {
            ActiveOp::PreparePod { .. } => "creating its directories".into(),
            ActiveOp::MakeCgroup { .. } => "creating its cgroup".into(),
            ActiveOp::RunSandbox { attempt, .. } => format!("creating sandbox {attempt}"),
            ActiveOp::StopSandbox { .. } => "stopping its sandbox".into(),
            ActiveOp::ImageStatus { index, .. } => format!("checking the image of {}", container(*index)),
            ActiveOp::DockerConfig { index, .. } => {
                format!("reading the node's registry credentials for the image of {}", container(*index))
            }
            ActiveOp::AskProvider { index, name, .. } => {
                format!("asking the credential provider {name} for the image of {}", container(*index))
            }
            ActiveOp::Pull { image, began, .. } => {
                format!("pulling {image} for {}", words(now.since(*began).as_secs()))
            }
            ActiveOp::PrepareContainer { index, .. } => format!("preparing the files of {}", container(*index)),
            ActiveOp::Create { index, .. } => format!("creating {}", container(*index)),
            ActiveOp::Start { index, .. } => format!("starting {}", container(*index)),
            ActiveOp::MountInContainer { index, .. } => format!("mounting the volumes of {}", container(*index)),
            ActiveOp::PostStart { index, .. } => format!("waiting for the postStart hook of {}", container(*index)),
            ActiveOp::Allocate { index, resource, .. } => format!("allocating {resource} for {}", container(*index)),
            ActiveOp::PreStartDevices { index, resource, .. } => {
                format!("preparing {resource} for {}", container(*index))
            }
            ActiveOp::MountVolumes => "mounting its volumes".into(),
            ActiveOp::RaiseCgroup | ActiveOp::SettleCgroup => "resizing its cgroup".into(),
            ActiveOp::MeasureMemory { .. } => "measuring its memory for a resize".into(),
            ActiveOp::UpdateContainer { .. } => "resizing a container".into(),
            ActiveOp::RemoveContainer { .. } => "removing a dead container".into(),
            ActiveOp::RemoveSandbox { .. } => "removing a dead sandbox".into(),
        })
    }
}

fn seconds_up(d: Duration) -> u64 {
    d.as_secs() + u64::from(d.subsec_nanos() > 0)
}

fn words(seconds: u64) -> String {
    in_words(Duration::from_secs(seconds))
}

/// Returns what a pod that was killed for this cause waits for.
fn starts_again_after(source: TerminationSource) -> &'static str {
    match source {
        // A9: the victim waits for room.
        TerminationSource::Preemption => "room, to start again",
        TerminationSource::ApiEviction => "`wherry uncordon`, to start again",
        TerminationSource::Drain => "`wherry undrain`, to start again",
        TerminationSource::Eviction => "the end of the node pressure, to start again",
        TerminationSource::Shutdown => "the end of the shutdown, to start again",
    }
}
