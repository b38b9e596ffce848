//! The conditions of a Deployment, with the reasons and messages of the Deployment controller.

use crate::api::k8s::{DeploymentCondition, Time};
use crate::api::time::{Boot, Now, Wall};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How far the roll-out of the present template is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum RolloutProgress {
    /// The roll-out goes on. `last`: when it made progress.
    Moving {
        step: RolloutStep,
        last: Boot,
    },
    /// All pods are of the present template and available. This remains if pods fail later.
    Complete,
    /// There was no progress for `progressDeadlineSeconds`. The roll-out continues if there is progress.
    TimedOut,
    Paused,
}

/// The last step of a roll-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum RolloutStep {
    Created,
    /// An earlier revision has the same template.
    Found,
    Updated,
    Resumed,
}

/// The part of the progress that the record contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoredProgress {
    #[default]
    Moving,
    Complete,
    TimedOut,
}

/// The numbers of pods that show progress when they change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PodCounts {
    pub replicas: u32,
    pub updated: u32,
    pub ready: u32,
    pub available: u32,
    pub terminating: u32,
}

impl PodCounts {
    /// Returns true if the roll-out is further than it was with the counts `before`.
    fn is_further_than(&self, before: &PodCounts) -> bool {
        let old = |counts: &PodCounts| counts.replicas.saturating_sub(counts.updated);
        self.updated > before.updated
            || old(self) < old(before)
            || self.ready > before.ready
            || self.available > before.available
    }

    /// Returns true if all pods are of the present template and available.
    pub fn is_complete(&self, replicas: u32) -> bool {
        self.updated == replicas && self.replicas == replicas && self.available == replicas
    }
}

impl RolloutProgress {
    /// Returns the progress in a record.
    pub fn restored(stored: StoredProgress, now: Boot) -> RolloutProgress {
        match stored {
            StoredProgress::Moving => RolloutProgress::Moving { step: RolloutStep::Updated, last: now },
            StoredProgress::Complete => RolloutProgress::Complete,
            StoredProgress::TimedOut => RolloutProgress::TimedOut,
        }
    }

    pub fn stored(&self) -> StoredProgress {
        match self {
            RolloutProgress::Moving { .. } | RolloutProgress::Paused => StoredProgress::Moving,
            RolloutProgress::Complete => StoredProgress::Complete,
            RolloutProgress::TimedOut => StoredProgress::TimedOut,
        }
    }

    /// Returns the progress after the counts have changed from `before` to `counts`.
    pub fn next(self, before: &PodCounts, counts: &PodCounts, goal: &RolloutGoal, now: Boot) -> RolloutProgress {
        let moved = |step| RolloutProgress::Moving { step, last: now };
        let is_late = |last| goal.deadline.is_some_and(|deadline| now.since(last) >= deadline);
        match self {
            _ if goal.is_paused => RolloutProgress::Paused,
            RolloutProgress::Paused => moved(RolloutStep::Resumed),
            RolloutProgress::Complete => RolloutProgress::Complete,
            _ if counts.is_complete(goal.replicas) => RolloutProgress::Complete,
            _ if counts.is_further_than(before) => moved(RolloutStep::Updated),
            RolloutProgress::Moving { last, .. } if is_late(last) => RolloutProgress::TimedOut,
            RolloutProgress::Moving { .. } | RolloutProgress::TimedOut => self,
        }
    }

    /// Returns when the roll-out times out, unless there is progress.
    pub fn times_out(&self, deadline: Option<Duration>) -> Option<Boot> {
        match (self, deadline) {
            (RolloutProgress::Moving { last, .. }, Some(deadline)) => Some(*last + deadline),
            _ => None,
        }
    }
}

/// What the Deployment asks for.
#[derive(Clone, Copy, Debug)]
pub struct RolloutGoal {
    pub replicas: u32,
    pub deadline: Option<Duration>,
    pub is_paused: bool,
}

/// A condition, and since when it has its status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RolloutCondition {
    status: &'static str,
    reason: &'static str,
    message: String,
    updated: Wall,
    since: Wall,
}

impl RolloutCondition {
    /// Changes the condition. Returns true if something other than the times has changed.
    pub fn set(&mut self, status: &'static str, reason: &'static str, message: String, now: Now) -> bool {
        if (self.status, self.reason, &self.message) == (status, reason, &message) {
            return false;
        }
        if self.status != status {
            self.since = now.wall;
        }
        (self.status, self.reason, self.message, self.updated) = (status, reason, message, now.wall);
        true
    }

    pub fn is_true(&self) -> bool {
        self.status == "True"
    }

    /// Returns the condition in its form in the API.
    pub fn object(&self, type_: &str) -> DeploymentCondition {
        DeploymentCondition {
            last_transition_time: self.since.timestamp().map(whole),
            last_update_time: self.updated.timestamp().map(whole),
            message: Some(self.message.clone()),
            reason: Some(self.reason.to_owned()),
            status: self.status.to_owned(),
            type_: type_.to_owned(),
        }
    }
}

/// Returns the time in whole seconds, as in the API.
pub fn whole(at: jiff::Timestamp) -> Time {
    Time(jiff::Timestamp::from_second(at.as_second()).unwrap_or(at))
}

/// Returns the status, the reason and the message of the condition `Available`.
pub fn availability(is_enough: bool) -> (&'static str, &'static str, String) {
    match is_enough {
        true => ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.".to_owned()),
        false => ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.".to_owned()),
    }
}

/// Returns the status, the reason and the message of the condition `Progressing`. `set`: the name of the ReplicaSet.
pub fn progressing(progress: RolloutProgress, set: &str) -> (&'static str, &'static str, String) {
    match progress {
        RolloutProgress::Moving { step, .. } => match step {
            RolloutStep::Created => ("True", "NewReplicaSetCreated", format!("Created new replica set {set:?}")),
            RolloutStep::Found => ("True", "FoundNewReplicaSet", format!("Found new replica set {set:?}")),
            RolloutStep::Updated => ("True", "ReplicaSetUpdated", format!("ReplicaSet {set:?} is progressing.")),
            RolloutStep::Resumed => ("Unknown", "DeploymentResumed", "Deployment is resumed".to_owned()),
        },
        RolloutProgress::Complete => {
            ("True", "NewReplicaSetAvailable", format!("ReplicaSet {set:?} has successfully progressed."))
        }
        RolloutProgress::TimedOut => {
            ("False", "ProgressDeadlineExceeded", format!("ReplicaSet {set:?} has timed out progressing."))
        }
        RolloutProgress::Paused => ("Unknown", "DeploymentPaused", "Deployment is paused".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOAL: RolloutGoal = RolloutGoal { replicas: 2, deadline: Some(Duration::from_secs(600)), is_paused: false };

    fn at(seconds: u64) -> Boot {
        Boot(0) + Duration::from_secs(seconds)
    }

    fn counts(replicas: u32, updated: u32, available: u32) -> PodCounts {
        PodCounts { replicas, updated, ready: available, available, terminating: 0 }
    }

    #[test]
    fn a_roll_out_times_out_without_progress_and_goes_on_with_it() {
        let begun = RolloutProgress::Moving { step: RolloutStep::Created, last: at(0) };
        let none = counts(2, 0, 2);
        assert_eq!(begun.next(&none, &none, &GOAL, at(599)), begun);
        assert_eq!(begun.next(&none, &none, &GOAL, at(600)), RolloutProgress::TimedOut);
        assert_eq!(begun.times_out(GOAL.deadline), Some(at(600)));
        let some = counts(3, 1, 2);
        let moved = RolloutProgress::Moving { step: RolloutStep::Updated, last: at(700) };
        assert_eq!(RolloutProgress::TimedOut.next(&none, &some, &GOAL, at(700)), moved);
        assert_eq!(moved.next(&some, &counts(2, 2, 2), &GOAL, at(701)), RolloutProgress::Complete);
        let failed = RolloutProgress::Complete.next(&counts(2, 2, 2), &counts(2, 2, 0), &GOAL, at(9999));
        assert_eq!(failed, RolloutProgress::Complete);
    }

    #[test]
    fn a_paused_roll_out_never_times_out() {
        let paused = RolloutGoal { is_paused: true, ..GOAL };
        let none = counts(2, 0, 2);
        let begun = RolloutProgress::Moving { step: RolloutStep::Created, last: at(0) };
        let progress = begun.next(&none, &none, &paused, at(5));
        assert_eq!((progress, progress.times_out(GOAL.deadline)), (RolloutProgress::Paused, None));
        assert_eq!(
            progress.next(&none, &none, &GOAL, at(900)),
            RolloutProgress::Moving { step: RolloutStep::Resumed, last: at(900) }
        );
    }

    #[test]
    fn a_condition_keeps_the_time_of_its_last_change_of_status() {
        let now = |seconds: i64| Now { boot: Boot(0), wall: Wall(seconds * 1_000_000_000) };
        let mut condition = RolloutCondition::default();
        assert!(condition.set("True", "A", "a".to_owned(), now(1)));
        assert!(!condition.set("True", "A", "a".to_owned(), now(2)));
        assert!(condition.set("True", "B", "b".to_owned(), now(3)));
        let object = condition.object("Available");
        assert_eq!(object.last_transition_time.map(|t| t.0.as_second()), Some(1));
        assert_eq!(object.last_update_time.map(|t| t.0.as_second()), Some(3));
    }
}
