//! W24: the questions about a pod, by UID. For a UID without a worker, something may run until the sources have been
//! read.

use super::Engine;
use crate::api::names::Uid;
use crate::engine::pod::worker::Worker;

impl Engine {
    pub fn could_have_running_containers(&self, uid: &Uid) -> bool {
        self.workers.get(uid).map_or(!self.sources_ready, Worker::could_have_running_containers)
    }

    pub fn is_known_terminated(&self, uid: &Uid) -> bool {
        self.workers.get(uid).is_some_and(Worker::is_known_terminated)
    }

    pub fn should_be_finished(&self, uid: &Uid) -> bool {
        self.workers.get(uid).map_or(self.sources_ready, Worker::should_be_finished)
    }

    pub fn termination_was_requested(&self, uid: &Uid) -> bool {
        self.workers.get(uid).is_some_and(Worker::termination_was_requested)
    }

    pub fn containers_should_be_terminating(&self, uid: &Uid) -> bool {
        self.workers.get(uid).map_or(self.sources_ready, Worker::containers_should_be_terminating)
    }

    pub fn runtime_parts_should_be_removed(&self, uid: &Uid) -> bool {
        self.workers.get(uid).map_or(self.sources_ready, Worker::runtime_parts_should_be_removed)
    }

    pub fn content_should_be_removed(&self, uid: &Uid) -> bool {
        self.workers.get(uid).map_or(self.sources_ready, Worker::content_should_be_removed)
    }
}
