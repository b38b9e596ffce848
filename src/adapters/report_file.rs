//! Stores what the agent has reported: events, and when the status of each node condition last changed. The file is
//! next to the control socket, on the tmpfs `/run`, so it survives a restart of the agent but not a reboot, and causes
//! no disk writes. Each line is a JSON object.

use crate::adapters::durable;
use crate::api::kept_reports::{KeptCondition, KeptEvent};
use crate::foreign::{self, Links};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The maximum size of the file in bytes. If not all events fit, the file contains the latest ones.
pub const MAX_BYTES: usize = 1 << 20;
const VERSION: u64 = 1;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    version: u64,
    /// The boot to which the times on the boot clock belong.
    boot_id: String,
    conditions: Vec<KeptCondition>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Reports {
    pub conditions: Vec<KeptCondition>,
    /// The events, the latest first.
    pub events: Vec<KeptEvent>,
}

/// Returns the path of the report file of the agent that has this control socket.
pub fn path(socket: &Path) -> PathBuf {
    durable::appended(socket, ".reports")
}

/// Returns the content of the file. `events`: the latest first.
pub fn content(boot_id: &str, conditions: Vec<KeptCondition>, events: impl Iterator<Item = KeptEvent>) -> Vec<u8> {
    let head = Head { version: VERSION, boot_id: boot_id.to_owned(), conditions };
    let mut out = line(&head);
    for event in events {
        let line = line(&event);
        if out.len() + line.len() > MAX_BYTES {
            break;
        }
        out.extend(line);
    }
    out
}

fn line(value: &impl Serialize) -> Vec<u8> {
    // Serialization cannot fail, because the types contain no maps with keys that JSON does not allow.
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Replaces the file. Only root can read it, because messages can contain parts of specs.
///
/// # Errors
/// The file cannot be written and keeps its old content.
pub fn write(path: &Path, content: &[u8]) -> Result<(), String> {
    durable::replace(path, &durable::appended(path, ".new"), content, 0o600)
        .map_err(|e| format!("write {}: {e}", path.display()))
}

/// Reads the file. Returns no reports if the file is missing, or was written in another boot or by another version.
///
/// # Errors
/// The file cannot be read or is damaged.
pub fn read(path: &Path, boot_id: &str) -> Result<Reports, String> {
    let failed = |e: &dyn std::fmt::Display| format!("read {}: {e}", path.display());
    let bytes = match foreign::read(path, Links::Refuse, MAX_BYTES as u64) {
        Ok(bytes) => bytes,
        Err(e) if e.is_missing() => return Ok(Reports::default()),
        Err(e) => return Err(failed(&e)),
    };
    let mut lines = bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty());
    let Some(head) = lines.next() else { return Ok(Reports::default()) };
    let head: Head = serde_json::from_slice(head).map_err(|e| failed(&e))?;
    if head.version != VERSION || head.boot_id.is_empty() || head.boot_id != boot_id {
        return Ok(Reports::default());
    }
    let events = lines.map(serde_json::from_slice).collect::<Result<_, _>>().map_err(|e| failed(&e))?;
    Ok(Reports { conditions: head.conditions, events })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::event_object::InvolvedKind;
    use std::os::unix::fs::PermissionsExt;

    fn event(id: u64, message: &str) -> KeptEvent {
        KeptEvent {
            kind: InvolvedKind::Pod,
            pod: Some(("u".into(), "default".into(), "web".into())),
            id,
            order: id,
            reason: "Started".into(),
            message: message.into(),
            field_path: None,
            first: 1,
            last: 2,
            last_boot: 3,
            count: 1,
            warning: false,
        }
    }

    #[test]
    fn reports_are_read_as_they_were_written_in_the_same_boot_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = path(&dir.path().join("s.sock"));
        assert_eq!(read(&path, "b"), Ok(Reports::default()));
        let conditions = vec![KeptCondition { kind: "Ready".into(), is_true: true, since: 7 }];
        let events = vec![event(2, "two\nlines"), event(1, "one")];
        write(&path, &content("b", conditions.clone(), events.iter().cloned())).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file");
        assert_eq!(read(&path, "b"), Ok(Reports { conditions, events }));
        assert_eq!(read(&path, "another"), Ok(Reports::default()));
        std::fs::write(&path, "{").unwrap();
        assert!(read(&path, "b").unwrap_err().contains("s.sock.reports"));
        std::fs::write(&path, vec![b' '; MAX_BYTES + 1]).unwrap();
        assert!(read(&path, "b").is_err());
    }

    #[test]
    fn the_latest_events_are_kept_within_the_limit() {
        let long = "x".repeat(1000);
        let text = content("b", Vec::new(), (0..2000).rev().map(|id| event(id, &long)));
        assert!(text.len() <= MAX_BYTES && text.len() > MAX_BYTES - 2000, "{}", text.len());
        assert!(String::from_utf8(text).unwrap().contains("\"id\":1999,"));
    }
}
