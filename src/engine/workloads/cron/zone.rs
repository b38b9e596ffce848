//! The time zone of a CronJob, whose file the agent reads.

use crate::api::time::Boot;
use crate::api::workload::cron_job::{UNKNOWN_ZONE, is_utc};
use crate::engine::effect::Effect;
use crate::engine::event::Answer;
use crate::engine::op::OpError;
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use jiff::tz::TimeZone;
use serde::{Serialize, Serializer};
use std::time::Duration;

/// *(ours)* A zone that the machine does not have is looked for again after this time.
const RETRY: Duration = Duration::from_secs(600);

#[derive(Clone, Debug)]
pub(super) enum Zone {
    NotAsked,
    /// `failure`: why the zone was not known before.
    Asked {
        failure: Option<String>,
    },
    Failed {
        why: String,
        again: Boot,
    },
    Known(TimeZone),
}

impl Zone {
    pub(super) fn of(name: Option<&str>) -> Zone {
        match name {
            Some(name) if is_utc(name) => Zone::Known(TimeZone::UTC),
            _ => Zone::NotAsked,
        }
    }

    /// Returns the zone if it is known. Otherwise asks for its file if it is time.
    pub(super) fn get(
        &mut self,
        owner: &Owner,
        name: Option<&str>,
        now: Boot,
        outbox: &mut Outbox,
    ) -> Option<TimeZone> {
        let failure = match self {
            Zone::Known(zone) => return Some(zone.clone()),
            Zone::Asked { .. } => return None,
            Zone::Failed { again, .. } if *again > now => return None,
            Zone::Failed { why, .. } => Some(std::mem::take(why)),
            Zone::NotAsked => None,
        };
        *self = Zone::Asked { failure };
        let name = name.map(str::to_owned);
        outbox.begin(owner.clone(), |op| Effect::ReadTimeZone { op, name });
        None
    }

    /// Takes the file. Returns why the zone is not known, unless that is not new.
    pub(super) fn read(&mut self, name: Option<&str>, result: Result<Answer, OpError>, now: Boot) -> Option<String> {
        let zone = match result {
            Ok(Answer::TimeZone(Some(file))) => {
                TimeZone::tzif(name.unwrap_or("Local"), &file).map_err(|why| why.to_string())
            }
            // A machine without a setting has the time zone UTC.
            Ok(_) if name.is_none() => Ok(TimeZone::UTC),
            Ok(_) => Err(UNKNOWN_ZONE.to_owned()),
            Err(why) => Err(why.to_string()),
        };
        let before = match self {
            Zone::Asked { failure } => failure.take(),
            Zone::Failed { why, .. } => Some(std::mem::take(why)),
            Zone::NotAsked | Zone::Known(_) => None,
        };
        match zone {
            Ok(zone) => {
                *self = Zone::Known(zone);
                None
            }
            Err(why) => {
                *self = Zone::Failed { why: why.clone(), again: now + RETRY };
                (before.as_ref() != Some(&why)).then_some(why)
            }
        }
    }

    /// Returns when to ask again.
    pub(super) fn retry(&self) -> Option<Boot> {
        match self {
            Zone::Failed { again, .. } => Some(*again),
            Zone::NotAsked | Zone::Asked { .. } | Zone::Known(_) => None,
        }
    }
}

/// For a dump.
impl Serialize for Zone {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Zone::NotAsked => s.serialize_str("not asked"),
            Zone::Asked { .. } => s.serialize_str("asked"),
            Zone::Failed { why, .. } => s.serialize_str(why),
            Zone::Known(zone) => s.serialize_str(zone.iana_name().unwrap_or("UTC")),
        }
    }
}
