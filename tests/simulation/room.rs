//! A2: no more pods run than fit. A6: no pod is rejected for lack of room while pods that it may preempt hold enough of it. This check has its own accounting,
//! from the manifests and the published status. In doubt it counts a pod as not preemptable.

use crate::runtime::Container;
use crate::world::World;
use std::collections::BTreeSet;
use std::rc::Rc;
use wherry::api::names::Uid;
use wherry::api::pod::Pod;
use wherry::api::pod_resources::requested_by;
use wherry::api::priority::{self, CRITICAL};
use wherry::api::resources::Resources;
use wherry::engine::admission::preempt::may_preempt;
use wherry::engine::effect::{Notice, RuntimeCall};
use wherry::engine::node::PodView;

impl World {
    /// A2: no more pods run than fit. Pods unknown to the engine are not counted.
    pub fn no_start_without_room(&mut self, call: &RuntimeCall) {
        let (Some(fit), RuntimeCall::RunSandbox { pod, .. }) = (self.scarce, call) else { return };
        let requests =
            |pod: &Pod| pod.containers().iter().any(|c| c.resources.as_ref().is_some_and(|r| r.requests.is_some()));
        let known = |uid: &Uid| self.engine.pod(uid).is_some_and(|v| requests(v.pod));
        let ours = |c: &&Container| c.owner.as_ref() == Some(&self.runtime.owner);
        let running =
            self.runtime.containers.values().filter(ours).filter(|c| c.runs() && c.uid != pod.uid && known(&c.uid));
        let others: BTreeSet<Uid> = running.map(|c| c.uid.clone()).collect();
        if requests(pod) && others.len() >= fit {
            self.checks.fail("A2", format!("RunSandbox of {} while {others:?} run", pod.uid));
        }
    }

    /// Called when a pod's rejection is reported.
    pub fn no_rejection_while_lower_pods_hold_the_room(&mut self, notice: &Notice) {
        let Some(pod) = notice.subject.pod().filter(|_| notice.reason.as_str().starts_with("OutOf")) else { return };
        let spec = pod.spec();
        let by = priority::of(spec);
        // With any other reason no pod is preempted (A6). The message contains all reasons.
        let only_resources =
            notice.message.split("; ").all(|part| part.starts_with("Node didn't have enough resource"));
        // Of the pods of an API server, only critical ones preempt others.
        let is_modest = pod.is_from_api_server() && priority::of(spec) < CRITICAL;
        if !only_resources || is_modest || spec.preemption_policy.as_deref() == Some("Never") {
            return;
        }
        let mut stays = Resources::default();
        let mut goes = Vec::new();
        for view in self.engine.pods().iter().filter(|v| v.pod.uid != pod.uid) {
            let versions = self.versions(view);
            let preemptable = versions.iter().all(|p| may_preempt(by, priority::of(p.spec())));
            match preemptable {
                true => goes.push(view.pod.name.to_string()),
                false if self.may_have_a_share(view) => {
                    let mut most = Resources::default();
                    versions.iter().for_each(|p| most.raise_to(&requested_by(p)));
                    stays.add(&most);
                }
                false => {}
            }
        }
        // A pod that waits for the end of an orphan with its UID is not shown.
        let hidden = |p: &&Rc<Pod>| {
            self.engine.pod(&p.uid).is_none() && self.engine.worker_status(&p.uid, self.time().boot).is_some()
        };
        self.manifests.in_force.values().filter(hidden).for_each(|p| stays.add(&requested_by(p)));
        let allocatable = &self.config.node.allocatable;
        let fits = |(name, amount): (&str, u64)| amount.saturating_add(stays.get(name)) <= allocatable.get(name);
        if requested_by(pod).iter().all(fits) {
            let what = format!("{} is rejected ({}) while {goes:?} could go", pod.name, notice.message);
            self.checks.fail("A6", what);
        }
    }

    /// The pod as published, and as in its current manifest.
    fn versions(&self, view: &PodView<'_>) -> Vec<Rc<Pod>> {
        let now = self.manifests.in_force.values().filter(|p| p.uid == view.pod.uid).cloned();
        std::iter::once(view.pod.clone()).chain(now).collect()
    }

    /// The pod is neither rejected nor ended, or it starts again.
    fn may_have_a_share(&self, view: &PodView<'_>) -> bool {
        let over = matches!(view.status.phase.as_deref(), Some("Succeeded" | "Failed"));
        let worker_status = self.engine.worker_status(&view.pod.uid, self.time().boot);
        let starts_anew = worker_status.is_some_and(|i| i.waits_for.iter().any(|what| what.contains("to start again")));
        let rejected = matches!(view.admission, wherry::engine::admission::Admission::Rejected(_));
        view.desired && (starts_anew || !rejected && !over)
    }
}
