//! The record of the node's last shutdown (S7, S8): one JSON object.

use crate::api::shutdown::Groups;
use crate::api::time::{Boot, Wall};
use crate::engine::record_error::{self, RecordError};
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;

pub const KIND: &str = "shutdown";
/// The only key of this kind.
pub const KEY: &str = "shutdown/last";
const VERSION: u64 = 1;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Record {
    /// The id of the boot during which the shutdown began.
    pub boot_id: String,
    /// The start of the shutdown, on the clock of that boot.
    pub began: Boot,
    pub started: Wall,
    /// When the lock was released or the shutdown was cancelled; zero before.
    pub ended: Wall,
    /// The shutdown was cancelled, or the node has rebooted since.
    pub over: bool,
    /// The granted period of each group, in whole milliseconds, lowest priority first.
    pub periods: Vec<Duration>,
    /// The groups at its start: later settings do not change a shutdown in progress. Empty in a record of an older
    /// Wherry.
    pub groups: Groups,
}

pub fn write(record: &Record) -> String {
    json!({
        "version": VERSION,
        "bootId": record.boot_id,
        "began": record.began.0,
        "started": record.started.0,
        "ended": record.ended.0,
        "over": record.over,
        "periodsMillis": record.periods.iter().map(|p| p.as_millis() as u64).collect::<Vec<_>>(),
        "groups": record.groups.iter().map(|g| json!([g.priority, g.period.as_secs()])).collect::<Vec<_>>(),
    })
    .to_string()
}

/// # Errors
/// The text is not JSON, a field is missing or invalid, or the version is unknown.
pub fn read(text: &str) -> Result<Record, RecordError> {
    use RecordError::{Invalid, Missing};
    let value = record_error::parse(text, VERSION)?;
    let time = |name| value.get(name).and_then(Value::as_i64).ok_or(Missing(name));
    let began = u64::try_from(time("began")?).map_err(|e| Invalid { field: "began", why: e.to_string() })?;
    let periods = value.get("periodsMillis").and_then(Value::as_array).ok_or(Missing("periodsMillis"))?;
    let groups = value.get("groups").and_then(Value::as_array).into_iter().flatten();
    let group = |g: &Value| Some((i32::try_from(g.get(0)?.as_i64()?).ok()?, g.get(1)?.as_u64()?));
    let groups: Option<Vec<(i32, u64)>> = groups.map(group).collect();
    let no_pair = || Invalid { field: "groups", why: "a group is not a pair of priority and seconds".to_owned() };
    Ok(Record {
        boot_id: value.get("bootId").and_then(Value::as_str).ok_or(Missing("bootId"))?.to_owned(),
        began: Boot(began),
        started: Wall(time("started")?),
        ended: Wall(time("ended")?),
        over: value.get("over").and_then(Value::as_bool).ok_or(Missing("over"))?,
        periods: periods.iter().map(|p| Duration::from_millis(p.as_u64().unwrap_or_default())).collect(),
        groups: Groups::by_priority(groups.ok_or_else(no_pair)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_nothing_else_is_one() {
        let record = Record {
            boot_id: "b".into(),
            began: Boot(5),
            started: Wall(6),
            ended: Wall(7),
            over: true,
            periods: vec![Duration::from_secs(2), Duration::ZERO],
            groups: Groups::by_priority([(-5, 10), (1000, 0)]),
        };
        assert_eq!(read(&write(&record)), Ok(record.clone()));
        for bad in ["", "{}", "[]", r#"{"version": 2}"#, r#"{"version": 1, "bootId": "b", "began": -1}"#] {
            assert!(read(bad).is_err(), "{bad}");
        }
        let whole = |groups: Value| {
            let mut value: Value = serde_json::from_str(&write(&record)).unwrap();
            value["groups"] = groups;
            read(&value.to_string())
        };
        assert!(whole(json!([[0, -1]])).is_err() && whole(json!([[1_i64 << 40, 1]])).is_err());
        // An older Wherry writes no groups.
        assert!(whole(Value::Null).is_ok_and(|r| r.groups.is_off()));
    }
}
