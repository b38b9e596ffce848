//! Connects claims (`engine/claims`) with the pods that refer to them and with the manifests.

use super::Engine;
use crate::api::claim::{Claim, ClaimKey, of_volume};
use crate::api::control::Volumes;
use crate::api::k8s::PersistentVolumeClaim;
use crate::api::names::{FullName, Uid};
use crate::api::ordered::OrderSlice;
use crate::api::pod::Pod;
use crate::api::storage_class::{self, StorageClass};
use crate::api::workload::key::{WorkloadKey, WorkloadKind};
use crate::engine::claims::definition::{ClaimOrigin, Definition};
use crate::engine::claims::inputs::{ClaimInputs, ClaimUser};
use crate::engine::claims::{Claims, Demand, shown};
use crate::engine::control::{Reply, RequestError, RequestId};
use crate::engine::effect::Effect;
use crate::engine::event::Answer;
use crate::engine::op::OpError;
use crate::engine::pod::worker::Worker;
use crate::engine::pod::worker::volumes::VolumesHold;
use crate::engine::workloads::any_controller::AnyController;
use crate::engine::workloads::controller::Controller;
use crate::engine::workloads::stateful_set::Sequence;
use std::rc::Rc;

impl Engine {
    /// Returns the claims and their directories.
    pub fn claims(&self) -> &Claims {
        &self.shared.claims
    }

    /// Returns the directories of claims for `wherry volumes`.
    pub fn volumes(&self) -> Volumes {
        Volumes { volumes: self.shared.claims.iter().filter_map(|(key, entry)| shown::view(key, entry)).collect() }
    }

    /// Returns the claims of the manifests.
    pub fn manifest_claims(&self) -> &[Rc<Claim>] {
        self.desired.claims()
    }

    /// Returns the storage classes. The first is that of a claim without a class.
    pub fn storage_classes(&self) -> &[StorageClass] {
        &self.config.storage_classes
    }

    /// Steps the claims, if a manifest, a pod or a directory has changed.
    pub(super) fn step_claims(&mut self) {
        if !self.desired.is_known() || !self.shared.claims.is_touched(self.now.boot) {
            return;
        }
        let demand = self.demand();
        let woken = self.with_claims(|claims, inputs| claims.step(demand, inputs));
        for uid in &woken {
            if let Some(worker) = self.workers.get_mut(uid) {
                worker.volumes.claims_changed();
                self.steps.touch(uid.clone());
            }
        }
        if !woken.is_empty() {
            self.settle_all();
        }
        if self.shared.claims.take_changed() {
            self.outbox.push(Effect::PublishClaims);
        }
    }

    /// Returns what the manifests and the pods ask for.
    fn demand(&self) -> Demand {
        let mut demand = Demand {
            claims: self.desired.claims().iter().map(|claim| Definition::of_manifest(claim)).collect(),
            ..Demand::default()
        };
        let mut workers: Vec<&Worker> = self.workers.values().map(|worker| &**worker).collect();
        workers.order_by_key(|worker| worker.admission.place);
        for worker in workers {
            let Some(pod) = worker.pod.as_ref().filter(|pod| !pod.is_from_api_server()) else { continue };
            demand.claims.extend(ephemeral(pod));
            let holds = match worker.volumes.hold() {
                VolumesHold::Ended => continue,
                VolumesHold::Holds => true,
                VolumesHold::Waits => false,
            };
            let user = || ClaimUser { uid: pod.uid.clone(), name: pod.name.clone(), holds };
            demand.users.extend(pod.claims().map(|key| (key, user())));
        }
        self.demand_of_stateful_sets(&mut demand);
        demand
    }

    /// Adds the claims of the StatefulSets' pods, and those that stay without a pod.
    fn demand_of_stateful_sets(&self, demand: &mut Demand) {
        let origin = |of: &Sequence| ClaimOrigin::StatefulSet {
            name: of.head().name().name.to_string(),
            ends_with_it: of.stateful_set().claims_end().0,
        };
        let all = self.workloads.iter().filter_map(|(_, one)| match one {
            AnyController::StatefulSet(of) => Some(&**of),
            _ => None,
        });
        for of in all {
            let define = |(key, object)| (key, Definition { object: Rc::new(object), origin: origin(of) });
            demand.claims.extend(of.claims().map(define));
        }
        for (key, entry) in self.shared.claims.iter() {
            let Some(Definition { object, origin: ClaimOrigin::StatefulSet { name, ends_with_it } }) =
                entry.definition()
            else {
                continue;
            };
            let owner = WorkloadKey::new(WorkloadKind::StatefulSet, FullName::new(&key.0.namespace, name));
            match self.workloads.get(&owner) {
                Some(AnyController::StatefulSet(of)) => {
                    match of.stateful_set().claims_end().1 && !of.wants_claim(key) {
                        true => demand.ended.push(key.clone()),
                        false => {
                            let (object, origin) = (object.clone(), origin(of));
                            demand.kept.push((key.clone(), Definition { object, origin }));
                        }
                    }
                }
                _ if *ends_with_it => demand.ended.push(key.clone()),
                _ => {}
            }
        }
    }

    /// Notes that an operation of the pod has ended, which may have been a mount.
    pub(super) fn pod_of_claim_changed(&mut self, uid: &Uid) {
        let pod = self.workers.get(uid).and_then(|worker| worker.pod.as_ref());
        if pod.is_some_and(|pod| pod.claims().next().is_some()) {
            self.shared.claims.touch();
        }
    }

    fn with_claims<T>(&mut self, f: impl FnOnce(&mut Claims, &mut ClaimInputs<'_>) -> T) -> T {
        let Engine { shared, config, outbox, now, .. } = self;
        let own_base = storage_class::own_directory(&config.root);
        let (now, classes, own_base) = (*now, &config.storage_classes, own_base.as_str());
        f(&mut shared.claims, &mut ClaimInputs { now, classes, own_base, outbox, may_remove: false })
    }

    pub(super) fn claim_answered(&mut self, key: &ClaimKey, result: Result<Answer, OpError>) {
        self.with_claims(|claims, inputs| claims.answered(key, result, inputs));
    }

    /// Deletes a claim that no manifest defines.
    ///
    /// # Errors
    /// There is no such claim.
    pub(super) fn delete_claim(&mut self, id: RequestId, key: &ClaimKey) -> Result<Option<Reply>, RequestError> {
        let before = self.outbox.begun_records().len();
        if !self.shared.claims.delete(key) {
            return Err(RequestError::UnknownClaim(key.0.clone()));
        }
        self.step_claims();
        self.answer_durably(id, Reply::Shortened, &[], before)
    }

    /// Removes the directory of a claim that is gone.
    ///
    /// # Errors
    /// There is no such directory, it is in use, or Wherry has not created it.
    pub(super) fn remove_volume(&mut self, id: RequestId, key: &ClaimKey) -> Result<Option<Reply>, RequestError> {
        let before = self.outbox.begun_records().len();
        match self.shared.claims.remove_released(key) {
            None => return Err(RequestError::UnknownVolume(key.0.clone())),
            Some(false) => return Err(RequestError::VolumeStays(key.0.clone())),
            Some(true) => {}
        }
        self.step_claims();
        self.answer_durably(id, Reply::Shortened, &[], before)
    }
}

/// Returns the claims of the pod's ephemeral volumes.
fn ephemeral(pod: &Pod) -> Vec<(ClaimKey, Definition)> {
    let volumes = pod.spec().volumes.iter().flatten();
    let of = |volume| {
        let key = of_volume(pod, volume)?;
        let template = volume.ephemeral.as_ref()?.volume_claim_template.as_ref()?;
        let object = PersistentVolumeClaim {
            metadata: template.metadata.clone().unwrap_or_default(),
            spec: Some(template.spec.clone()),
            ..PersistentVolumeClaim::default()
        };
        let origin = ClaimOrigin::Pod { name: pod.name.name.to_string(), uid: pod.uid.clone() };
        Some((key, Definition { object: Rc::new(object), origin }))
    };
    volumes.filter_map(of).collect()
}
