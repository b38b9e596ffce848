//! Applies the disruption budgets of the manifests to evictions and drains (Y32).

use super::Engine;
use crate::api::disruption_budget::{BudgetPods, BudgetRefusal, BudgetStatus, DisruptionBudget};
use crate::api::names::{FullName, Uid};
use crate::api::pod::Pod;
use crate::api::workload::Workload;
use crate::api::workload::key::{WorkloadKey, WorkloadKind};
use crate::engine::pod::worker::{State, Worker};
use std::collections::BTreeMap;

impl Engine {
    /// Returns the budgets of the manifests.
    pub(super) fn budgets(&self) -> Vec<DisruptionBudget> {
        self.desired.plain().iter().filter_map(|object| DisruptionBudget::of(object)).collect()
    }

    /// Returns why the pod must not be stopped now. A pod that does not run, or that ends anyway, can always be
    /// stopped.
    pub fn budget_refuses(&self, uid: &Uid) -> Option<BudgetRefusal> {
        self.refusal(uid, &self.budgets())
    }

    /// Returns which of these budgets refuses the end of a pod, and why.
    pub(super) fn refusal(&self, uid: &Uid, budgets: &[DisruptionBudget]) -> Option<BudgetRefusal> {
        let worker = self.workers.get(uid).filter(|worker| counts(worker) && !worker.is_from_api_server())?;
        let pod = worker.pod.as_ref()?;
        let mut budgets = budgets.iter().filter(|budget| budget.selects(pod));
        let (budget, None) = (budgets.next()?, budgets.next()) else { return Some(BudgetRefusal::Several) };
        let status = self.budget_status(budget);
        let BudgetStatus { current_healthy, desired_healthy, disruptions_allowed, .. } = status;
        let has_enough = current_healthy >= desired_healthy && desired_healthy > 0;
        let is_free = !is_healthy(worker) && (budget.ignores_unhealthy() || has_enough);
        let violated = disruptions_allowed == 0 && !is_free;
        violated.then_some(BudgetRefusal::Violated { budget: budget.name.clone(), status })
    }

    /// Returns the present numbers of a budget.
    pub fn budget_status(&self, budget: &DisruptionBudget) -> BudgetStatus {
        let mut pods = BudgetPods { replicas: Some(0), ..BudgetPods::default() };
        let mut workloads: BTreeMap<WorkloadKey, u32> = BTreeMap::new();
        for worker in self.workers.values().filter(|worker| worker.is_shown() && !worker.is_from_api_server()) {
            let Some(pod) = worker.pod.as_ref().filter(|pod| budget.selects(pod)) else { continue };
            pods.all += 1;
            pods.healthy += u32::from(is_healthy(worker));
            match self.replicas_of(pod) {
                Some((key, replicas)) => drop(workloads.insert(key, replicas)),
                None => pods.replicas = None,
            }
        }
        pods.replicas = pods.replicas.map(|_| workloads.values().sum());
        budget.status(pods)
    }

    /// Returns the workload of a pod and the number of its replicas. None: the pod has none with such a number.
    fn replicas_of(&self, pod: &Pod) -> Option<(WorkloadKey, u32)> {
        let owners = pod.object.metadata.owner_references.iter().flatten();
        let owner = owners.into_iter().find(|owner| owner.controller == Some(true))?;
        let kind = WorkloadKind::of(&owner.kind)?;
        let name = FullName::new(&pod.name.namespace, &owner.name);
        let own = WorkloadKey::new(kind, name.clone());
        let workloads = self.workloads();
        let of = workloads.get(&own).or_else(|| Some(workloads.revision(WorkloadKind::Deployment, &name)?.0))?;
        let key = of.get().head().key.clone();
        let workload = self.desired.workloads().iter().find(|workload| workload.head().key == key)?;
        let replicas = match workload {
            Workload::Deployment(of) => of.replicas(),
            Workload::ReplicaSet(of) => of.replicas(),
            Workload::StatefulSet(of) => of.replicas(),
            Workload::CronJob(_) | Workload::DaemonSet(_) | Workload::Job(_) => return None,
        };
        Some((key, replicas))
    }
}

/// Reports whether budgets protect the pod: it runs, and nothing stops it. A drain or an eviction ends this at once.
fn counts(worker: &Worker) -> bool {
    matches!(worker.state, State::Sync(_))
        && worker.demand.desired
        && worker.shown.status.phase.as_deref() == Some("Running")
}

fn is_healthy(worker: &Worker) -> bool {
    let mut conditions = worker.shown.status.conditions.iter().flatten();
    counts(worker) && conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
