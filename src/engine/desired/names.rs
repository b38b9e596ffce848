//! W8: for each full name, the pod that may run and the pods that wait for the name, first come first served.

use crate::api::names::{FullName, Uid};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Names {
    /// The first pod of each queue has the name. No queue is empty.
    queues: BTreeMap<FullName, VecDeque<Uid>>,
}

impl Names {
    /// Returns the pod that has the name.
    pub fn first(&self, name: &FullName) -> Option<&Uid> {
        self.queues.get(name)?.front()
    }

    pub fn is_first(&self, name: &FullName, uid: &Uid) -> bool {
        self.first(name) == Some(uid)
    }

    /// Returns the pod that has the name, for each name.
    pub fn firsts(&self) -> impl Iterator<Item = &Uid> {
        self.queues.values().filter_map(VecDeque::front)
    }

    /// Returns the pods of this name, in order.
    pub fn pods(&self, name: &FullName) -> impl Iterator<Item = &Uid> {
        self.queues.get(name).into_iter().flatten()
    }

    /// Returns true if at least one pod has this name.
    pub fn is_taken(&self, name: &FullName) -> bool {
        self.pods(name).next().is_some()
    }

    /// Returns the pods that wait behind this one.
    pub fn behind(&self, name: &FullName, uid: &Uid) -> impl Iterator<Item = &Uid> {
        self.pods(name).skip_while(move |other| *other != uid).skip(1)
    }

    /// Adds a pod at the end of the queue. Returns true if it has the name.
    pub fn add(&mut self, name: FullName, uid: Uid) -> bool {
        let queue = self.queues.entry(name).or_default();
        queue.push_back(uid);
        queue.len() == 1
    }

    /// Moves a pod to the front of the queue, or to the position behind the pod that has the name.
    pub fn put_first(&mut self, name: &FullName, uid: &Uid, behind_first: bool) {
        if let Some(queue) = self.queues.get_mut(name) {
            queue.retain(|other| other != uid);
            queue.insert(usize::from(behind_first).min(queue.len()), uid.clone());
        }
    }

    /// Removes a pod that no longer needs its name. Returns the pod that has the name now.
    pub fn leave(&mut self, name: &FullName, uid: &Uid) -> Option<Uid> {
        let queue = self.queues.get_mut(name)?;
        queue.retain(|other| other != uid);
        let first = queue.front().cloned();
        if first.is_none() {
            self.queues.remove(name);
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w8_pods_with_one_name_run_one_after_another_in_the_order_of_arrival() {
        let (mut names, web) = (Names::default(), FullName::new("default", "web"));
        let [a, b, c] = ["a", "b", "c"].map(Uid::from);
        let added = [&a, &b, &c].map(|uid| names.add(web.clone(), uid.clone()));
        assert_eq!(added, [true, false, false]);
        assert!(names.is_first(&web, &a) && !names.is_first(&web, &b));
        assert_eq!(names.behind(&web, &a).collect::<Vec<_>>(), [&b, &c]);
        assert_eq!(names.leave(&web, &a), Some(b.clone()));
        assert_eq!(names.leave(&web, &c), Some(b.clone()));
        assert_eq!(names.leave(&web, &b), None);
        assert_eq!((names.first(&web), names.firsts().count()), (None, 0));
    }

    #[test]
    fn w8_a_running_pod_comes_before_pods_that_wait() {
        let (mut names, web) = (Names::default(), FullName::new("default", "web"));
        let [a, b, c] = ["a", "b", "c"].map(Uid::from);
        for uid in [&a, &b, &c] {
            names.add(web.clone(), uid.clone());
        }
        names.put_first(&web, &c, true);
        assert_eq!(names.pods(&web).collect::<Vec<_>>(), [&a, &c, &b]);
        names.put_first(&web, &b, false);
        assert_eq!(names.pods(&web).collect::<Vec<_>>(), [&b, &a, &c]);
    }
}
