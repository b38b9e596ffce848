//! The configuration of graceful shutdown (S1). It consists of three fields of KubeletConfiguration, in two forms
//! that exclude each other.
//!
//! Errors in a single value are reported when it is read. Errors in a combination of values, which may come from
//! different files, are reported after all files have been read.

use crate::api::duration::format;
use crate::api::shutdown::{Groups, LONGEST};
use crate::config::field_value::{FieldValue, Wrong};
use crate::config::problem::{Place, Problems};
use crate::config::yaml::{Node, Value};
use std::collections::BTreeMap;
use std::time::Duration;

const TOTAL: &str = "shutdownGracePeriod";
const CRITICAL: &str = "shutdownGracePeriodCriticalPods";
const BY_PRIORITY: &str = "shutdownGracePeriodByPodPriority";
const PRIORITY: &str = "priority";
const SECONDS: &str = "shutdownGracePeriodSeconds";

/// The configured values. A later file overrides an earlier one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Notification {
    pub total: Duration,
    pub critical: Duration,
    /// Pairs of priority and seconds.
    pub by_priority: Vec<(i32, u64)>,
}

/// Parses `shutdownGracePeriod` or `shutdownGracePeriodCriticalPods`.
pub fn period(v: &FieldValue) -> Result<Duration, String> {
    let d = v.duration();
    if d > LONGEST {
        return Err(format!("{} is longer than an hour; it must be at most {}", format(d), format(LONGEST)));
    }
    if !d.is_zero() && d < Duration::from_secs(1) {
        return Err(format!("{} is shorter than a second; it must be 1s or more, or 0s for none", format(d)));
    }
    Ok(d)
}

/// Sets `shutdownGracePeriodByPodPriority`, a list of objects. The table has checked the types.
pub fn by_pod_priority(c: &mut Notification, list: &Node, wrong: Wrong) {
    let Value::List(entries) = &list.value else { return };
    let mut groups: Vec<(i32, u64)> = Vec::new();
    let mut first_with: BTreeMap<i32, usize> = BTreeMap::new();
    for (i, entry) in entries.iter().enumerate() {
        let (line, n) = number_of(entry, PRIORITY);
        let priority = priority(n).and_then(|p| match *first_with.entry(p).or_insert(i) {
            first if first == i => Ok(p),
            first => Err(format!("{p} is also the priority of entry [{first}]; remove one of them")),
        });
        let priority = priority.map_err(|why| wrong(line, &format!("[{i}].{PRIORITY}"), why));
        let (line, n) = number_of(entry, SECONDS);
        let seconds = seconds(n).map_err(|why| wrong(line, &format!("[{i}].{SECONDS}"), why));
        groups.extend(priority.ok().zip(seconds.ok()));
    }
    c.by_priority = groups;
}

/// Returns the line of a number in an entry, and the number. If it is missing, returns the line of the entry and
/// None.
fn number_of(entry: &Node, name: &str) -> (u64, Option<i64>) {
    match entry.value.get(name) {
        Some(Node { line, value: Value::Int(n) }) => (*line, Some(*n)),
        _ => (entry.line, None),
    }
}

fn priority(value: Option<i64>) -> Result<i32, String> {
    let value = value.ok_or("is missing; set the lowest priority of the pods in this entry")?;
    i32::try_from(value)
        .map_err(|_| format!("{value} is out of range; it must be between {} and {}", i32::MIN, i32::MAX))
}

fn seconds(value: Option<i64>) -> Result<u64, String> {
    let value = value.ok_or("is missing; set the period in seconds, or 0 for the minimum grace period")?;
    match u64::try_from(value) {
        Ok(seconds) if seconds <= LONGEST.as_secs() => Ok(seconds),
        Ok(_) => Err(format!("{value} is longer than an hour; it must be at most {}", LONGEST.as_secs())),
        Err(_) => Err(format!("{value} is negative; it must be 0 or more")),
    }
}

/// Computes the groups after all files have been read, and checks the combination of values.
pub fn decide(configured: &Notification, places: &BTreeMap<String, Place>, problems: &mut Problems) -> Groups {
    let Notification { total, critical, by_priority } = configured;
    let place = |field: &str| places.get(field).cloned().unwrap_or_else(Place::flag);
    let total_refused = problems.errors.iter().any(|p| p.field == TOTAL);
    if critical > total && !total_refused {
        let least = format(*critical);
        let message = if total.is_zero() {
            format!("is the last part of {TOTAL}, which is not set; set {TOTAL} to {least} or more")
        } else {
            let total = format(*total);
            format!("{least} exceeds {TOTAL} ({total}), which includes it; increase {TOTAL}")
        };
        problems.error(&place(CRITICAL), CRITICAL, message);
    }
    let other = [(TOTAL, total), (CRITICAL, critical)].into_iter().find(|(_, d)| !d.is_zero());
    if let (false, Some((other, _))) = (by_priority.is_empty(), other) {
        let message = format!(
            "cannot be used together with {other} ({}); keep one of them (a drop-in resets an earlier value with \
             [] or 0s)",
            place(other)
        );
        problems.error(&place(BY_PRIORITY), BY_PRIORITY, message);
    }
    if by_priority.is_empty() {
        Groups::from_total(*total, *critical)
    } else {
        Groups::by_priority(by_priority.iter().copied())
    }
}
