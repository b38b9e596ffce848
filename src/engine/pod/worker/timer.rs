//! The worker's one timer: when `step` is due without an event.

use crate::api::time::Boot;
use serde::Serialize;

#[derive(Debug, Default, Serialize)]
pub struct Timer {
    /// The earliest time that this step requested.
    wake: Option<Boot>,
    armed: Option<Boot>,
}

impl Timer {
    /// A step begins and requests its times anew.
    pub fn clear(&mut self) {
        self.wake = None;
    }

    pub fn wake_at(&mut self, at: Boot) {
        self.wake = Some(self.wake.map_or(at, |w| w.min(at)));
    }

    /// Some only if the time changed since the last call.
    pub fn take_change(&mut self) -> Option<Option<Boot>> {
        (self.armed != self.wake).then(|| {
            self.armed = self.wake;
            self.wake
        })
    }

    /// The timer is no longer armed.
    pub fn fired(&mut self) {
        self.armed = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_time_is_armed_once() {
        let mut timer = Timer::default();
        assert_eq!(timer.take_change(), None);
        timer.wake_at(Boot(5));
        timer.wake_at(Boot(3));
        timer.wake_at(Boot(9));
        assert_eq!((timer.take_change(), timer.take_change()), (Some(Some(Boot(3))), None));
        timer.clear();
        assert_eq!(timer.take_change(), Some(None));
        timer.wake_at(Boot(3));
        assert_eq!(timer.take_change(), Some(Some(Boot(3))));
        timer.fired();
        assert_eq!(timer.take_change(), Some(Some(Boot(3))), "it fired, so it is armed again");
    }
}
