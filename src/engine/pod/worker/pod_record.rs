//! Whether the pod's record on disk is up to date (W25), and when a failed write is retried.
//!
//! A failed write must not stop the pod, because the disk may be full or worn out. After a failure the record therefore
//! counts as durable until the retry. Devices are the exception: without a record, another pod could get them after a
//! kill (G3).

use crate::api::time::Boot;
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum State {
    None,
    /// The record says that the pod waits, which is no longer true, or it is that of the previous pod under this UID.
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
}

impl PodRecord {
    pub fn none() -> PodRecord {
        PodRecord { state: State::None, of: Of::ThisPod, devices: Devices::Recorded, again: false }
    }

    /// A record of a previous run.
    pub fn read(again: bool) -> PodRecord {
        PodRecord { state: State::Durable, of: Of::ThisPod, devices: Devices::Recorded, again }
    }

    /// The record of the pod that had the UID before. The first write replaces it.
    pub fn inherited(self) -> PodRecord {
        match self.exists() {
            true => PodRecord { state: State::Stale, of: Of::Predecessor, ..PodRecord::none() },
            false => PodRecord::none(),
        }
    }

    /// There is a record, or one is being written.
    pub fn exists(&self) -> bool {
        self.state != State::None
    }

    pub fn says_again(&self) -> bool {
        self.again
    }

    /// The pod's first container may be created.
    pub fn is_durable(&self) -> bool {
        matches!(self.state, State::Durable | State::Failed { .. })
    }

    /// The last write succeeded.
    pub fn is_written(&self) -> bool {
        self.state == State::Durable
    }

    pub fn is_writing(&self) -> bool {
        self.state == State::Writing
    }

    /// A current record is missing.
    pub fn is_wanted(&self) -> bool {
        matches!(self.state, State::None | State::Stale)
    }

    /// The pod no longer waits, although its record says so.
    pub fn outdate(&mut self) {
        if self.exists() {
            self.state = State::Stale;
        }
    }

    /// The pod waits until the write that starts now has ended.
    pub fn wait_for_write(&mut self) {
        self.state = State::Writing;
    }

    /// As `wait_for_write`: the pod has another device.
    pub fn wait_for_devices(&mut self) {
        self.state = State::Writing;
        self.devices = Devices::Missing;
    }

    pub fn lacks_devices(&self) -> bool {
        self.devices == Devices::Missing
    }

    /// As `wait_for_write`, unless the existing record suffices for the pod to continue.
    pub fn rewrite(&mut self) {
        self.state = if self.is_durable() { State::Durable } else { State::Writing };
    }

    /// A write starts. `again`: its content.
    pub fn write_began(&mut self, again: bool) {
        self.again = again;
    }

    /// A write succeeded. `last`: no later one is in flight. Returns true if the record lacked devices before, and has
    /// them now.
    pub fn written(&mut self, last: bool) -> bool {
        if last && self.state != State::Stale {
            self.state = State::Durable;
        }
        self.of = Of::ThisPod;
        last && std::mem::replace(&mut self.devices, Devices::Recorded) == Devices::Missing
    }

    /// Returns true if the existing record has to be removed: it says that the pod has ended, and the pod starts now.
    pub fn write_failed(&mut self, retry_at: Boot) -> bool {
        self.state = State::Failed { retry_at };
        std::mem::replace(&mut self.of, Of::ThisPod) == Of::Predecessor
    }

    /// When the failed write is due again.
    pub fn retry_at(&self) -> Option<Boot> {
        match self.state {
            State::Failed { retry_at } => Some(retry_at),
            _ => None,
        }
    }

    /// The failed write is repeated now.
    pub fn retry(&mut self) {
        self.state = State::Durable;
    }

    pub fn removed(&mut self) {
        self.state = State::None;
    }

    /// The removal failed, so the record still exists.
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
        assert!(record.is_wanted() && !record.exists());
        record.wait_for_write();
        assert!(record.is_writing() && !record.is_durable() && !record.is_wanted());
        record.write_failed(Boot(60));
        assert_eq!((record.is_durable(), record.is_written(), record.retry_at()), (true, false, Some(Boot(60))));
        record.retry();
        assert_eq!((record.is_written(), record.retry_at()), (true, None));
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
        record.retry();
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
        assert!(record.is_wanted() && record.exists(), "the write of before says that the pod waits");
    }
}
