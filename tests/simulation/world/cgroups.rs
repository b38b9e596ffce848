//! The pods' cgroups. The runtime model holds them, because RunPodSandbox creates one too.

use super::{Item, MS, World};
use std::collections::BTreeSet;
use wherry::api::names::Uid;
use wherry::api::pod_resources::requested_by;
use wherry::api::resources::CPU;
use wherry::engine::effect::CgroupCall;
use wherry::engine::event::Answer;
use wherry::engine::op::{Code, OpError, OpId};

#[derive(Default)]
pub struct Cgroups {
    /// The CPU weight of the burstable class, in milli-CPU.
    pub burstable_weight: Option<u64>,
    /// Old, empty cgroups of pods that no run of the engine has made.
    pub dead: BTreeSet<Uid>,
    /// The pods that each sweep leaves alone.
    pub sweeps: Vec<BTreeSet<Uid>>,
}

impl World {
    pub(super) fn cgroup_call(&mut self, op: OpId, call: &CgroupCall) {
        let text = match call {
            CgroupCall::Make { pod } => format!("MakeCgroup {}", pod.name),
            CgroupCall::Remove { uid, .. } => format!("RemoveCgroup {uid}"),
            CgroupCall::SetCpuWeight { burstable } => format!("WeighCgroups {burstable}m"),
            CgroupCall::Sweep { known } => format!("SweepCgroups, but {known:?}"),
        };
        self.note(|| format!("  < {op} {text}"));
        self.begin(op);
        match call {
            CgroupCall::SetCpuWeight { burstable } => self.cgroups.burstable_weight = Some(*burstable),
            CgroupCall::Sweep { known } => {
                self.cgroups.dead.retain(|uid| known.contains(uid));
                self.cgroups.sweeps.push(known.clone());
            }
            CgroupCall::Remove { uid, .. } if self.volumes.mounted.contains(uid) => {
                self.checks.fail("W2", format!("{uid} is taken away while its volumes are mounted"));
            }
            CgroupCall::Make { pod } => {
                let cpu = requested_by(pod).get(CPU);
                self.observed.resizes.push(format!("cgroup {cpu}m"));
            }
            _ => {}
        }
        let key = (self.process.life, op);
        let result = match self.goes_wrong("an I/O error in", &text, 2) {
            true => Err(OpError::Answered { code: Code::Other(5), message: "input/output error".into() }),
            false => match call {
                CgroupCall::Make { pod } => {
                    self.runtime.cgroups.insert(pod.uid.clone());
                    Ok(Answer::Ok)
                }
                CgroupCall::Remove { uid, kill } => self.remove_cgroup(uid, *kill),
                CgroupCall::SetCpuWeight { .. } | CgroupCall::Sweep { .. } => Ok(Answer::Ok),
            },
        };
        self.at(MS / 2, Item::Answer { key, result });
    }

    /// A cgroup cannot be removed while something of the pod runs.
    pub(super) fn remove_cgroup(&mut self, uid: &Uid, kill: bool) -> Result<Answer, OpError> {
        self.checks.nothing_of_others(&self.runtime, uid, self.clock.now);
        let busy = self.runtime.of(uid).any(|c| c.runs() || c.stuck && !kill)
            || self.runtime.ours().any(|s| s.uid == *uid && s.ready);
        if busy && self.runtime.cgroups.contains(uid) {
            return Err(OpError::Answered { code: Code::Other(13), message: "processes are left in it".into() });
        }
        self.runtime.cgroups.remove(uid);
        Ok(Answer::Ok)
    }
}
