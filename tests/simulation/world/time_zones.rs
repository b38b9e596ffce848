//! The machine's files of time zones: one zone with daylight-saving time.

use super::{Item, MS, World};
use wherry::engine::event::Answer;
use wherry::engine::op::OpId;

/// The only zone that has a file.
const BERLIN: &str = "Europe/Berlin";

impl World {
    pub(super) fn read_time_zone(&mut self, op: OpId, name: Option<&str>) {
        self.note(|| format!("  < {op} read the time zone {name:?}"));
        self.begin(op);
        let result = Ok(Answer::TimeZone((name == Some(BERLIN)).then(berlin)));
        self.at(MS, Item::Answer { key: (self.process.life, op), result });
    }
}

/// Returns a file of version 2 (RFC 8536) without transitions: its last line has the rule.
fn berlin() -> Box<[u8]> {
    let mut file = Vec::new();
    for _ in 0..2 {
        file.extend(b"TZif2");
        file.extend([0; 15]);
        // One type with a name of four bytes, and no transitions, leap seconds or indicators.
        for count in [0u32, 0, 0, 0, 1, 4] {
            file.extend(count.to_be_bytes());
        }
        file.extend(3600i32.to_be_bytes());
        file.extend([0, 0]);
        file.extend(b"CET\0");
    }
    file.extend(b"\nCET-1CEST,M3.5.0,M10.5.0/3\n");
    file.into()
}
