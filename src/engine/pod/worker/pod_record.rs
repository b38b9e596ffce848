//! Whether the pod's record on disk is up to date (W25), and when a failed write is retried.
//!
//! A failed write must not stop the pod, because the disk may be full or worn out. After a failure the record
//! therefore counts as durable until the retry. Devices are the exception: without a record, another pod could get
//! them after Wherry is killed (G3).
//!
//! A state machine that changes the content of the record only requests the write. The worker carries it out once, at
//! the end of the step (`recording`).

use super::ops::Operations;
use super::outdated::{Outdated, RETRY};
use super::timer::Timer;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::time::Boot;
use crate::engine::context::Context;
use crate::engine::op::OpError;
use serde::Serialize;
use std::rc::Rc;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum State {
    None,
    /// The record says that the pod waits, which is no longer true, or it belongs to the previous pod under this UID.
    Stale,
    Writing,
    Durable,
    /// The last write failed.
    Failed {
        retry_at: Boot,
    },
}

/// The pod that the record describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Of {
    ThisPod,
    /// The pod that had the UID before. It has ended.
    Predecessor,
}

/// Whether the record contains all devices of the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Devices {
    Recorded,
    Missing,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct PodRecord {
    state: State,
    of: Of,
    devices: Devices,
    /// The last record says that the pod starts again after its end (W6).
    again: bool,
    /// A write is requested. Always false between two steps.
    #[serde(skip)]
    requested: bool,
}

impl PodRecord {
    pub fn none() -> PodRecord {
        let (of, devices) = (Of::ThisPod, Devices::Recorded);
        PodRecord { state: State::None, of, devices, again: false, requested: false }
    }

    /// Returns the state of a record that a previous run wrote.
    pub fn read(again: bool) -> PodRecord {
        PodRecord { state: State::Durable, again, ..PodRecord::none() }
    }

    /// Returns the state of this record for the successor under the same UID. The successor's first write replaces
    /// the record.
    pub fn inherited(self) -> PodRecord {
        match self.exists() {
            true => PodRecord { state: State::Stale, of: Of::Predecessor, ..PodRecord::none() },
            false => PodRecord::none(),
        }
    }

    /// Returns true if there is a record, or one is being written.
    pub fn exists(&self) -> bool {
        self.state != State::None
    }

    pub fn says_again(&self) -> bool {
        self.again
    }

    /// Returns true if the pod's first container may be created.
    pub fn is_durable(&self) -> bool {
        matches!(self.state, State::Durable | State::Failed { .. })
    }

    /// Returns true if the last write succeeded.
    pub fn is_written(&self) -> bool {
        self.state == State::Durable
    }

    pub fn is_writing(&self) -> bool {
        self.state == State::Writing
    }

    /// Returns true if a write is in flight or follows at the end of the step, whether the pod waits for it or not.
    pub fn is_being_written(&self, ops: &Operations) -> bool {
        self.requested || ops.is_writing_record()
    }

    /// Requests a write unless a current record exists. The pod waits for it.
    pub fn keep(&mut self) {
        if matches!(self.state, State::None | State::Stale) {
            self.wait_for_write();
        }
    }

    /// Requests a write if there is a record. The pod does not wait for it.
    pub fn update(&mut self) {
        self.requested |= self.exists();
    }

    /// Notes that the record is out of date: it says that the pod waits, but the pod no longer waits.
    pub fn outdate(&mut self) {
        if self.exists() {
            self.state = State::Stale;
        }
    }

    /// Requests a write. The pod waits until the write has ended.
    pub fn wait_for_write(&mut self) {
        self.state = State::Writing;
        self.requested = true;
    }

    /// Like `wait_for_write`, for a pod that got another device.
    pub fn wait_for_devices(&mut self) {
        self.wait_for_write();
        self.devices = Devices::Missing;
    }

    pub fn lacks_devices(&self) -> bool {
        self.devices == Devices::Missing
    }

    /// Requests a write. The pod waits for it only if the existing record does not suffice for the pod to continue.
    pub fn rewrite(&mut self) {
        self.state = if self.is_durable() { State::Durable } else { State::Writing };
        self.requested = true;
    }

    /// Takes the request. Returns true if a write was requested. Then the caller starts it now.
    pub fn take_request(&mut self) -> bool {
        std::mem::take(&mut self.requested)
    }

    /// Notes that a write starts. `again` says whether, according to the new record, the pod starts again after its
    /// end (W6).
    pub fn write_began(&mut self, again: bool) {
        self.again = again;
    }

    /// Notes that a write succeeded. `last` says that no later write is in flight. Returns true if the record lacked
    /// devices before, and contains them now.
    pub fn written(&mut self, last: bool) -> bool {
        if last && self.state != State::Stale {
            self.state = State::Durable;
        }
        self.of = Of::ThisPod;
        last && std::mem::replace(&mut self.devices, Devices::Recorded) == Devices::Missing
    }

    /// Handles a failed write. The disk may be full or worn out, which must not stop the pod. `outdated` is given if
    /// the pod's replacement waits for the write. Returns true if the existing record has to be removed: it belongs
    /// to the predecessor and says that the pod has ended, but this pod starts now.
    pub fn failed(
        &mut self,
        e: &OpError,
        outdated: Option<&mut Outdated>,
        pod: Option<&Rc<Pod>>,
        ctx: &mut Context<'_>,
    ) -> bool {
        let (wait, message) = match outdated {
            Some(outdated) => {
                let wait = ctx.rng.jitter(outdated.next_delay());
                let message = format!(
                    "the manifest changed, but the old version continues to run, because the new version could not \
                     start: failed to write the pod's record: {e}; make the root directory writable, or free space on \
                     its disk; retrying in {} s",
                    wait.as_secs()
                );
                (wait, message)
            }
            None => {
                let message = format!("failed to write the pod's record: {e}; the pod continues to run");
                (ctx.rng.jitter(RETRY), message)
            }
        };
        ctx.emit_warning(pod, None, Reason::FailedRecord, message);
        self.write_failed(ctx.now.boot + wait)
    }

    fn write_failed(&mut self, retry_at: Boot) -> bool {
        self.state = State::Failed { retry_at };
        std::mem::replace(&mut self.of, Of::ThisPod) == Of::Predecessor
    }

    /// Requests a failed write again when its retry is due.
    pub fn retry(&mut self, now: Boot, timer: &mut Timer) {
        let State::Failed { retry_at } = self.state else { return };
        if retry_at > now {
            return timer.wake_at(retry_at);
        }
        self.state = State::Durable;
        self.requested = true;
    }

    pub fn removed(&mut self) {
        (self.state, self.requested) = (State::None, false);
    }

    /// Notes that the removal failed, so that the record still exists.
    pub fn not_removed(&mut self) {
        self.state = State::Durable;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w25_the_first_container_waits_for_the_record_and_not_for_a_broken_disk() {
        let mut record = PodRecord::none();
        assert!(!record.exists());
        record.keep();
        assert!(record.is_writing() && !record.is_durable() && record.take_request());
        record.keep();
        assert!(!record.take_request());
        record.write_failed(Boot(60));
        let mut timer = Timer::default();
        record.retry(Boot(59), &mut timer);
        assert_eq!((record.is_durable(), record.is_written(), timer.next()), (true, false, Some(Boot(60))));
        assert!(!record.take_request());
        record.retry(Boot(60), &mut timer);
        assert!(record.is_written() && record.take_request());
    }

    #[test]
    fn of_several_writes_the_last_one_counts() {
        let mut record = PodRecord::none();
        record.wait_for_write();
        record.written(false);
        assert!(record.is_writing());
        record.written(true);
        assert!(record.is_written());
    }

    #[test]
    fn g3_devices_count_only_when_they_are_written() {
        let mut record = PodRecord::read(false);
        record.wait_for_devices();
        record.write_failed(Boot(60));
        assert!(record.is_durable() && record.lacks_devices());
        record.retry(Boot(60), &mut Timer::default());
        assert!(record.lacks_devices());
        record.written(true);
        assert!(!record.lacks_devices());
    }

    #[test]
    fn w8_a_record_marked_as_waiting_is_rewritten_before_the_start() {
        let mut record = PodRecord::none();
        record.outdate();
        assert!(!record.exists());
        record.wait_for_write();
        record.outdate();
        record.written(true);
        assert!(record.exists() && record.take_request());
        record.keep();
        assert!(record.take_request(), "the earlier write says that the pod waits");
    }

    #[test]
    fn a_record_that_does_not_exist_is_not_updated() {
        let mut record = PodRecord::none();
        record.update();
        assert!(!record.take_request());
        record.wait_for_write();
        record.removed();
        assert!(!record.take_request(), "a removed record is not written");
        let mut record = PodRecord::read(false);
        record.update();
        assert!(record.is_written() && record.take_request());
    }
}
