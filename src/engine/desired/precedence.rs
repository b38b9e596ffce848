//! D4: decides which of two documents with the same full name or UID is in force, and the order of new pods (A1).
//!
//! The document of a pod that already runs comes first, even after an edit, so that a second file never replaces a
//! running pod. Otherwise the first document by path is in force.

use super::conflict::{Common, Conflict};
use crate::api::names::{FullName, Uid};
use crate::api::ordered::OrderSlice;
use crate::api::pod::Pod;
use crate::api::priority;
use crate::api::source::Source;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What the node knows about a document.
pub enum Known<'a> {
    /// A pod with this UID runs, waits, or is recorded, and comes from this document.
    From(&'a Source),
    /// The desired pod of this name is from the same file, and has another UID: the document was edited.
    Edited,
    /// Only the runtime knows the pod.
    Listed,
    No,
}

/// The precedence of a document, highest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Precedence {
    /// The document of a known pod, perhaps edited under the same UID.
    Own,
    /// An edit gave the document another UID.
    Edited,
    /// Another document with the UID of a known pod.
    SameUid,
    New,
}

pub struct Choice {
    /// The documents in force.
    pub chosen: BTreeMap<Uid, Rc<Pod>>,
    /// The other documents, by source.
    pub conflicts: Vec<Conflict>,
}

/// Chooses among the documents, which are in the order of their paths.
pub fn choose<'m, 'a>(manifests: impl Iterator<Item = &'m Rc<Pod>>, known: impl Fn(&Pod) -> Known<'a>) -> Choice {
    let precedence = |pod: &Pod| match known(pod) {
        Known::From(source) if *source == pod.source => Precedence::Own,
        Known::Edited => Precedence::Edited,
        Known::From(_) | Known::Listed => Precedence::SameUid,
        Known::No => Precedence::New,
    };
    let mut order: Vec<&Rc<Pod>> = manifests.collect();
    order.order_by_key(|pod| precedence(pod));
    let mut names: BTreeMap<&FullName, &Rc<Pod>> = BTreeMap::new();
    let mut chosen: BTreeMap<Uid, Rc<Pod>> = BTreeMap::new();
    let mut conflicts = Vec::new();
    for pod in order {
        // Two pods of the API server with the same name run one after the other (W8): before the first list, the node
        // does not know that the first one is gone.
        let is_other = |other: &&&Rc<Pod>| !(other.is_from_api_server() && pod.is_from_api_server());
        let (common, other) = match (names.get(&pod.name).filter(is_other), chosen.get(&pod.uid)) {
            (Some(other), _) => (Common::Name(pod.name.clone()), *other),
            (None, Some(other)) => (Common::Uid { uid: pod.uid.clone(), other: other.name.clone() }, other),
            (None, None) => {
                names.entry(&pod.name).or_insert(pod);
                chosen.insert(pod.uid.clone(), pod.clone());
                continue;
            }
        };
        conflicts.push(Conflict { source: pod.source.clone(), with: other.source.clone(), common });
    }
    conflicts.order();
    Choice { chosen, conflicts }
}

/// A1: sorts pods that arrive together by priority, highest first, and then by source.
pub fn sort_new(pods: &mut [Rc<Pod>]) {
    pods.order_by(|a, b| {
        let key = |p: &Pod| (Reverse(priority::of(p.spec())), p.source.clone());
        key(a).cmp(&key(b))
    });
}

/// Returns a pod from a document, for tests. Pods with another `version` have another UID.
#[cfg(test)]
pub(super) fn pod(name: &str, path: &str, version: u32) -> Rc<Pod> {
    use crate::api::document;
    use crate::api::document::context::Context;
    let text = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: m, image: \
         \"i:{version}\"}}]}}}}"
    );
    let context = Context::new("lab", "2027-01-15T08:00:00Z");
    Rc::new(document::read(text.as_bytes(), path, context).0.remove(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(choice: &Choice) -> Vec<&str> {
        choice.chosen.values().map(|pod| &*pod.source.path).collect()
    }

    #[test]
    fn d4_of_two_documents_the_first_by_path_is_in_force() {
        let pods = [pod("web", "/m/a.yaml", 1), pod("web", "/m/b.yaml", 2)];
        let choice = choose(pods.iter(), |_| Known::No);
        assert_eq!(paths(&choice), ["/m/a.yaml"]);
        let [conflict] = choice.conflicts.as_slice() else { panic!("{:?}", choice.conflicts) };
        assert_eq!(conflict.common, Common::Name(pods[0].name.clone()));
        assert_eq!(
            conflict.to_string(),
            "/m/b.yaml (document 1): metadata.name: pod default/web is already defined in /m/a.yaml (document 1); \
             change one of them"
        );
    }

    #[test]
    fn d4_two_pods_of_a_cluster_with_one_name_follow_each_other() {
        let of_cluster =
            |uid: &str| Rc::new(Pod { source: Source::api(), uid: uid.into(), ..(*pod("web", "", 1)).clone() });
        let both = [of_cluster("a"), of_cluster("b")];
        let choice = choose(both.iter(), |_| Known::No);
        assert_eq!((choice.chosen.len(), choice.conflicts.len()), (2, 0));
    }

    #[test]
    fn d4_a_manifest_waits_for_the_pod_of_a_cluster_with_its_name() {
        let of_cluster = Rc::new(Pod { source: Source::api(), ..(*pod("web", "", 1)).clone() });
        let mine = pod("web", "/m/b.yaml", 2);
        let known = |pod: &Pod| if pod.uid == of_cluster.uid { Known::From(&of_cluster.source) } else { Known::No };
        let choice = choose([mine, of_cluster.clone()].iter(), known);
        assert_eq!(choice.chosen.keys().collect::<Vec<_>>(), [&of_cluster.uid]);
        assert_eq!(
            choice.conflicts[0].to_string(),
            "/m/b.yaml (document 1): metadata.name: the cluster has a pod default/web; the pod of this manifest starts \
             when that pod is gone"
        );
    }

    #[test]
    fn d4_the_document_of_a_running_pod_stays_in_force() {
        let (first, runs) = (pod("web", "/m/a.yaml", 1), pod("web", "/m/b.yaml", 2));
        let known = |pod: &Pod| if pod.uid == runs.uid { Known::From(&runs.source) } else { Known::No };
        assert_eq!(paths(&choose([first.clone(), runs.clone()].iter(), known)), ["/m/b.yaml"]);
        let listed = |pod: &Pod| if pod.uid == runs.uid { Known::Listed } else { Known::No };
        assert_eq!(paths(&choose([first, runs.clone()].iter(), listed)), ["/m/b.yaml"]);
    }

    #[test]
    fn d4_an_edited_document_precedes_a_copy_with_the_uid_from_before_the_edit() {
        let copy = Rc::new(Pod { uid: "fixed".into(), ..Pod::clone(&pod("web", "/m/a.yaml", 1)) });
        let (edited, before) = (pod("web", "/m/b.yaml", 2), pod("web", "/m/b.yaml", 1).source.clone());
        let known = |pod: &Pod| if pod.source == before { Known::Edited } else { Known::From(&before) };
        assert_eq!(paths(&choose([copy, edited].iter(), known)), ["/m/b.yaml"]);
    }

    #[test]
    fn d4_two_names_with_one_uid_are_a_conflict() {
        let first = pod("web", "/m/a.yaml", 1);
        let second = Rc::new(Pod { uid: first.uid.clone(), ..Pod::clone(&pod("db", "/m/b.yaml", 1)) });
        let choice = choose([first.clone(), second].iter(), |_| Known::No);
        let common = Common::Uid { uid: first.uid.clone(), other: first.name.clone() };
        assert_eq!(choice.conflicts.iter().map(|c| &c.common).collect::<Vec<_>>(), [&common]);
    }
}
