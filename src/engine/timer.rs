//! A timer of the engine: remembers the deadline that the event loop has for it, so that only a change has an effect.

use crate::api::time::Boot;
use crate::engine::effect::{Effect, TimerKey};
use crate::engine::outbox::Outbox;
use serde::Serialize;

/// Serialized as its deadline, in seconds.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Timer {
    at: Option<Boot>,
}

impl Timer {
    /// Sets the deadline, or clears it with None.
    pub fn set(&mut self, key: TimerKey, at: Option<Boot>, outbox: &mut Outbox) {
        if at != self.at {
            self.at = at;
            outbox.push(Effect::Timer { key, at });
        }
    }

    /// The deadline has passed.
    pub fn fired(&mut self) {
        self.at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_change_of_the_deadline_has_an_effect() {
        let (mut timer, mut outbox) = (Timer::default(), Outbox::default());
        let mut set = |timer: &mut Timer, at: Option<u64>| {
            timer.set(TimerKey::Slots, at.map(Boot), &mut outbox);
            outbox.take().len()
        };
        assert_eq!(set(&mut timer, None), 0);
        assert_eq!(set(&mut timer, Some(5)), 1);
        assert_eq!(set(&mut timer, Some(5)), 0);
        assert_eq!(set(&mut timer, None), 1);
        assert_eq!(set(&mut timer, Some(5)), 1);
        timer.fired();
        assert_eq!(set(&mut timer, Some(5)), 1, "the loop forgets a deadline that has passed");
    }
}
