//! Changes that wait until the current batch ends. Of several changes to one record, only the last is made. A record
//! that changes faster than the disk stores it therefore does not make the queue longer.

use crate::engine::effect::RecordChange;
use crate::engine::op::OpId;
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub struct Queue {
    waiting: VecDeque<QueuedChange>,
}

/// A queued change, and the operations that complete with it: its own, and those of the earlier changes that it
/// supersedes.
#[derive(Debug)]
struct QueuedChange {
    ops: Vec<OpId>,
    change: RecordChange,
}

/// The changes of a batch, and the operations of each.
pub type Batch = (Vec<Vec<OpId>>, Vec<RecordChange>);

impl Queue {
    pub fn push(&mut self, op: OpId, change: RecordChange) {
        let mut ops = Vec::new();
        if let Some(key) = replaced(&change)
            && let Some(at) = self.waiting.iter().rposition(|waiting| is_of(&waiting.change, key))
            && replaced(&self.waiting[at].change).is_some()
            && let Some(before) = self.waiting.remove(at)
        {
            ops = before.ops;
        }
        ops.push(op);
        self.waiting.push_back(QueuedChange { ops, change });
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn take(&mut self) -> Batch {
        std::mem::take(&mut self.waiting).into_iter().map(|waiting| (waiting.ops, waiting.change)).unzip()
    }
}

/// Returns the record if a later change to it supersedes this one. Setting a record aside is not superseded, because
/// it keeps the record under another name.
fn replaced(change: &RecordChange) -> Option<&str> {
    match change {
        RecordChange::Put { key, .. } | RecordChange::Seal { key, .. } | RecordChange::Delete { key } => Some(key),
        RecordChange::SetAside { .. } | RecordChange::RemoveCorrupt { .. } => None,
    }
}

/// Reports whether the change affects the record.
fn is_of(change: &RecordChange, record: &str) -> bool {
    match change {
        RecordChange::SetAside { key } => key == record,
        RecordChange::RemoveCorrupt { kind } => record.split_once('/').is_some_and(|(of, _)| of == kind),
        other => replaced(other) == Some(record),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, value: &str) -> RecordChange {
        RecordChange::Put { key: key.into(), value: value.into() }
    }

    #[test]
    fn of_several_changes_of_one_record_only_the_last_is_made() {
        let mut queue = Queue::default();
        queue.push(OpId(1), put("pods/a", "1"));
        queue.push(OpId(2), put("pods/b", "1"));
        for n in 3..1000 {
            queue.push(OpId(n), put("pods/a", &n.to_string()));
        }
        queue.push(OpId(1000), RecordChange::Delete { key: "pods/b".into() });
        assert_eq!(queue.len(), 2);
        let (ops, changes) = queue.take();
        assert_eq!(changes, [put("pods/a", "999"), RecordChange::Delete { key: "pods/b".into() }]);
        assert_eq!((ops[0].len(), ops[0].last(), &ops[1]), (998, Some(&OpId(999)), &vec![OpId(2), OpId(1000)]));
        assert!(queue.is_empty());
    }

    #[test]
    fn a_record_is_set_aside_with_its_content() {
        let mut queue = Queue::default();
        queue.push(OpId(1), put("pods/a", "1"));
        queue.push(OpId(2), RecordChange::SetAside { key: "pods/a".into() });
        queue.push(OpId(3), put("pods/a", "2"));
        queue.push(OpId(4), RecordChange::RemoveCorrupt { kind: "pods".into() });
        queue.push(OpId(5), put("pods/a", "3"));
        assert_eq!(queue.take().1.len(), 5);
    }
}
