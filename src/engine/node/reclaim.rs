//! What frees resources on the node: image garbage collection, node-pressure eviction, which may wait for it, and log
//! rotation.

use crate::engine::eviction::Eviction;
use crate::engine::images::Images;
use crate::engine::log_rotation::LogRotation;
use serde::Serialize;

#[derive(Debug, Default, Serialize)]
pub(super) struct Reclaim {
    pub images: Images,
    pub eviction: Eviction,
    pub logs: LogRotation,
}

impl Reclaim {
    /// Returns true if the eviction waits for a removal of images that has ended.
    pub fn images_are_reclaimed(&self) -> bool {
        self.eviction.waits_for_images() && !self.images.is_busy()
    }
}
