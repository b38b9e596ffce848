//! When `step` is due without an event.

use crate::api::time::Boot;
use serde::Serialize;

/// The earliest of the times that the last step requested. Serialized as that time, in seconds.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Timer {
    wake: Option<Boot>,
}

impl Timer {
    /// Clears the timer at the beginning of a step, which requests its times again.
    pub fn clear(&mut self) {
        self.wake = None;
    }

    pub fn wake_at(&mut self, at: Boot) {
        self.wake = Some(self.wake.map_or(at, |w| w.min(at)));
    }

    pub fn next(&self) -> Option<Boot> {
        self.wake
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_time_counts() {
        let mut timer = Timer::default();
        assert_eq!(timer.next(), None);
        timer.wake_at(Boot(5));
        timer.wake_at(Boot(3));
        timer.wake_at(Boot(9));
        assert_eq!(timer.next(), Some(Boot(3)));
        timer.clear();
        assert_eq!(timer.next(), None);
    }
}
