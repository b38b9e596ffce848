//! The two clocks of the engine: `Boot` for all decisions, `Wall` for times in output and files.
//!
//! `engine/` and `api/` never read a clock. Both times arrive with each event as `Now`.

use std::time::Duration;

/// Nanoseconds on CLOCK_BOOTTIME, which includes suspend. Only differences are meaningful.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Boot(pub u64);

impl Boot {
    /// Returns the time from `earlier` to `self`. Zero if `earlier` is later.
    pub fn since(self, earlier: Boot) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Serialised in seconds, for the dump of the engine's state.
impl serde::Serialize for Boot {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_f64(self.0 as f64 / 1e9)
    }
}

impl std::ops::Add<Duration> for Boot {
    type Output = Boot;
    fn add(self, d: Duration) -> Boot {
        Boot(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Nanoseconds since the Unix epoch, UTC. Zero means "not set", as in the CRI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall(pub i64);

impl Wall {
    /// Returns the time from `earlier` to `self`. Zero if `earlier` is later, for example because the clock was set
    /// back.
    pub fn since(self, earlier: Wall) -> Duration {
        Duration::from_nanos(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Returns the time `by` earlier.
    pub fn minus(self, by: Duration) -> Wall {
        Wall(self.0.saturating_sub(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX)))
    }

    /// Converts to a Kubernetes `Time` (RFC 3339, UTC); None if not set.
    pub fn timestamp(self) -> Option<jiff::Timestamp> {
        if self.0 == 0 {
            return None;
        }
        jiff::Timestamp::from_nanosecond(i128::from(self.0)).ok()
    }

    /// Formats the time as RFC 3339 in UTC, without fractions of a second. None if not set.
    pub fn whole_seconds(self) -> Option<String> {
        self.timestamp().map(|t| format!("{t:.0}"))
    }
}

impl From<jiff::Timestamp> for Wall {
    fn from(at: jiff::Timestamp) -> Wall {
        Wall(i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX))
    }
}

/// Serialised as RFC 3339; null if not set.
impl serde::Serialize for Wall {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.timestamp() {
            Some(t) => s.collect_str(&t),
            None => s.serialize_none(),
        }
    }
}

impl std::ops::Add<Duration> for Wall {
    type Output = Wall;
    fn add(self, d: Duration) -> Wall {
        Wall(self.0.saturating_add(i64::try_from(d.as_nanos()).unwrap_or(i64::MAX)))
    }
}

/// The time at which an event reached the engine, on both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Now {
    pub boot: Boot,
    pub wall: Wall,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_for_people_has_no_fractions_of_a_second() {
        let at = Wall(1_795_185_999_740_788_540);
        assert_eq!(at.timestamp().unwrap().to_string(), "2026-11-20T14:46:39.74078854Z");
        assert_eq!(at.whole_seconds().unwrap(), "2026-11-20T14:46:39Z");
        assert_eq!(Wall(0).whole_seconds(), None);
    }
}
