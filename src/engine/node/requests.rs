//! Carries out the requests of users (`engine::control`) and sends their answers. A drain or retry takes effect within
//! the step of its request, so that its answer contains the outcome.

use super::Engine;
use crate::api::control::{DrainOutcome, Drained, DrainedPod, Usage};
use crate::api::facts::UsageFact;
use crate::api::names::{ContainerId, SandboxId};
use crate::api::names::{FullName, Uid};
use crate::api::ordered::CollectOrdered;
use crate::api::pod::Pod;
use crate::engine::admission::Admission;
use crate::engine::control::limits::STREAM_TIMEOUT;
use crate::engine::control::stream::{Channels, StreamKind, Terminal};
use crate::engine::control::{
    ExecCall, ExecRequest, LONGEST_GRACE, Reply, Request, RequestError, RequestId, RetryOutcome, StreamCall,
    StreamRequest, StreamTarget, exec, exec_sync, stream, usage,
};
use crate::engine::effect::{Effect, RuntimeCall};
use crate::engine::event::Answer;
use crate::engine::op::{OpError, OpId};
use crate::engine::owner::Owner;
use crate::engine::pod::kill::Cause;
use crate::engine::pod::kill::{Kill, KillId, TerminationSource};
use crate::engine::pod::record;
use crate::engine::pod::worker::Worker;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

impl Engine {
    pub(super) fn request(&mut self, id: RequestId, request: Request) {
        let answer = match request {
            Request::Drain { uids, grace, ignores_budgets } => self.drain(id, &uids, grace, ignores_budgets),
            Request::Undrain { uids } => self.undrain(id, &uids),
            Request::Cordon { on } => self.cordon(id, on).transpose(),
            Request::Evict { uid, grace } => self.evict(id, &uid, grace),
            Request::Shorten { pod, grace } => self.shorten(id, &pod, grace),
            Request::DeleteReplica { uid, grace } => self.delete_replica(id, &uid, grace),
            Request::DeleteJob { of } => self.delete_job(id, &of),
            Request::DeleteClaim { of } => self.delete_claim(id, &of),
            Request::RemoveVolume { of } => self.remove_volume(id, &of),
            Request::Retry { uid } => self.retry_rejected(&uid).map(Some),
            Request::Ephemeral(request) => self.add_ephemeral(id, request),
            Request::Exec(request) => self.exec(id, request).map(|()| None),
            Request::Stream(request) => self.stream(id, request).map(|()| None),
            Request::Usage => {
                self.read_usage(usage::UsageRead::first(id));
                Ok(None)
            }
            Request::Images => {
                self.list_images(id);
                Ok(None)
            }
            Request::Access(request) => {
                self.ask_for_access(id, request);
                Ok(None)
            }
        };
        if let Some(answer) = answer.transpose() {
            self.answer(id, answer);
        }
    }

    /// Handles the disconnection of a client. A change that it requested remains (W27); its call in flight is
    /// cancelled.
    pub(super) fn request_gone(&mut self, id: RequestId) {
        self.requests.durable.gone(id);
        self.cordon.gone(id);
        self.review_gone(id);
        let call = self.requests.execs.gone(id).or_else(|| self.requests.usages.gone(id));
        let call = call.or_else(|| self.requests.streams.gone(id)).or_else(|| self.requests.images.gone(id));
        if let Some(op) = call {
            self.outbox.push(Effect::Cancel { op });
        }
    }

    pub(super) fn answer(&mut self, id: RequestId, answer: Result<Reply, RequestError>) {
        self.outbox.push(Effect::Answer { id, answer });
    }

    fn drain(
        &mut self,
        id: RequestId,
        uids: &[Uid],
        grace: Option<Duration>,
        ignores_budgets: bool,
    ) -> Result<Option<Reply>, RequestError> {
        self.check_pods(uids)?;
        if grace.is_some_and(|grace| grace > LONGEST_GRACE) {
            return Err(RequestError::GraceTooLong);
        }
        let kill = Kill { by: TerminationSource::Drain, message: None, grace };
        let (named, before) = (self.named(uids), self.outbox.begun_records().len());
        // Kill all pods before any worker is stepped, so that the slots of the first pods do not go to the last ones.
        let budgets = if ignores_budgets { Vec::new() } else { self.budgets() };
        let mut refused: BTreeSet<Uid> = BTreeSet::new();
        for (uid, name) in &named {
            // Y32: a killed pod no longer counts for the next one.
            if self.refusal(uid, &budgets).is_some() {
                refused.insert(uid.clone());
            } else if let Some(name) = name {
                self.kill(KillId::Drain(name.clone()), uid.clone(), kill.clone());
            }
        }
        self.settle_all();
        self.answer_each(id, named, before, |engine, uid| match refused.contains(uid) {
            true => DrainOutcome::Refused,
            false => engine.drain_outcome(uid),
        })
    }

    fn undrain(&mut self, id: RequestId, uids: &[Uid]) -> Result<Option<Reply>, RequestError> {
        self.check_pods(uids)?;
        let (named, before) = (self.named(uids), self.outbox.begun_records().len());
        self.answer_each(id, named, before, |engine, uid| {
            if !engine.is_drained(uid) {
                return DrainOutcome::NotDrained;
            }
            if engine.cordon.is_on()
                && let Some(worker) = engine.workers.get_mut(uid)
            {
                worker.demand.wait_for_uncordon();
            }
            engine.release(TerminationSource::Drain, Some(vec![uid.clone()]));
            engine.settle_all();
            let held = engine.shutting_down() || engine.is_held_back(uid);
            if held { DrainOutcome::Waits } else { DrainOutcome::Starts }
        })
    }

    /// W4: shortens the grace period of the terminating pods with this name. A pod and its successors can terminate
    /// at the same time. The API server decides about its own pods.
    fn shorten(&mut self, id: RequestId, pod: &FullName, grace: Duration) -> Result<Option<Reply>, RequestError> {
        let before = self.outbox.begun_records().len();
        let ends = |worker: &Worker| worker.name == *pod && !worker.demand.desired && !worker.is_from_api_server();
        let uids: Vec<Uid> = self.workers.values().filter(|worker| ends(worker)).map(|w| w.uid.clone()).collect();
        for uid in &uids {
            self.with_worker(uid, |worker, entry, ctx| worker.shorten(grace, entry, ctx));
            self.steps.touch(uid.clone());
        }
        self.settle_all();
        self.answer_durably(id, Reply::Shortened, &uids, before)
    }

    /// Answers a request as soon as its change would remain even if Wherry were killed. `before` is the number of
    /// changed records before the change of these pods.
    pub(super) fn answer_durably(
        &mut self,
        id: RequestId,
        reply: Reply,
        uids: &[Uid],
        before: usize,
    ) -> Result<Option<Reply>, RequestError> {
        let keys = uids.iter().map(record::key).collect_set();
        let records = &self.outbox.begun_records()[before..];
        self.requests.durable.answer_when_durable(id, reply, records, keys).transpose()
    }

    pub(super) fn check_pods(&self, uids: &[Uid]) -> Result<(), RequestError> {
        // D1: until every source has been read, the set of pods is unknown.
        match (self.desired.is_known(), uids.is_empty()) {
            (false, _) => Err(RequestError::ManifestsNotRead),
            (true, true) => Err(RequestError::NoPods),
            (true, false) => Ok(()),
        }
    }

    /// Returns the pods' names. This precedes the change, after which a pod that is not desired may be forgotten.
    fn named(&self, uids: &[Uid]) -> Vec<(Uid, Option<FullName>)> {
        uids.iter().map(|uid| (uid.clone(), self.pod(uid).map(|view| view.pod.name.clone()))).collect()
    }

    /// Answers with the outcome for each pod as soon as the change would remain even if Wherry were killed. `before`
    /// is the number of changed records before the change.
    fn answer_each(
        &mut self,
        id: RequestId,
        named: Vec<(Uid, Option<FullName>)>,
        before: usize,
        mut outcome: impl FnMut(&mut Engine, &Uid) -> DrainOutcome,
    ) -> Result<Option<Reply>, RequestError> {
        let mut one = |(uid, name): (Uid, Option<FullName>)| {
            let Some(FullName { namespace, name }) = name else {
                let (namespace, name) = Default::default();
                return DrainedPod { uid: uid.to_string(), namespace, name, outcome: DrainOutcome::NotFound };
            };
            let outcome = outcome(self, &uid);
            let (namespace, name) = (namespace.to_string(), name.to_string());
            DrainedPod { uid: uid.to_string(), namespace, name, outcome }
        };
        let drained = Drained { pods: named.into_iter().map(&mut one).collect() };
        let depends = |pod: &&DrainedPod| {
            use DrainOutcome::{Completed, Down, Ending, NotDrained, NotFound, Refused, Starts, Undesired, Waits};
            match pod.outcome {
                Ending | Down | Starts | Waits | NotDrained => true,
                Completed | Undesired | Refused | NotFound => false,
            }
        };
        let uids = drained.pods.iter().filter(depends).map(|pod| Uid::from(pod.uid.as_str()));
        let uids: Vec<Uid> = uids.collect();
        self.answer_durably(id, Reply::Drained(drained), &uids, before)
    }

    fn drain_outcome(&self, uid: &Uid) -> DrainOutcome {
        let Some(view) = self.pod(uid) else { return DrainOutcome::Undesired };
        match (view.desired, self.is_drained(uid), self.is_finished(uid)) {
            (false, _, _) => DrainOutcome::Undesired,
            (true, false, _) => DrainOutcome::Completed,
            (true, true, true) => DrainOutcome::Down,
            (true, true, false) => DrainOutcome::Ending,
        }
    }

    fn is_drained(&self, uid: &Uid) -> bool {
        self.workers.get(uid).is_some_and(|worker| worker.demand.is_drained())
    }

    /// Answers the requests that waited for this change of a record. The change is complete or has failed.
    pub(super) fn answer_durable(&mut self, op: OpId, error: Option<&OpError>) {
        for (id, answer) in self.requests.durable.ended(op, error.map(OpError::message)) {
            self.answer(id, answer);
        }
    }

    fn retry_rejected(&mut self, uid: &Uid) -> Result<Reply, RequestError> {
        if uid.as_str().is_empty() {
            return Err(RequestError::NoPod);
        }
        let Some(view) = self.pod(uid) else { return Err(RequestError::UnknownPod(uid.clone())) };
        let pod = view.pod.name.clone();
        match view.admission {
            Admission::Rejected(_) if view.pod.is_from_api_server() => {
                return Err(RequestError::RejectedForGood { pod });
            }
            Admission::Rejected(cause) if *cause == Cause::node_shutdown() => {
                return Err(RequestError::RejectedByShutdown { pod });
            }
            Admission::Rejected(_) => {}
            _ => {
                let phase = view.status.phase.clone().unwrap_or_else(|| "Unknown".to_owned());
                let reason = view.status.reason.clone();
                return Err(RequestError::NotRejected { pod, phase, reason, drained: self.is_drained(uid) });
            }
        }
        self.retry(uid);
        self.settle_all();
        Ok(Reply::Retried { pod, outcome: self.retry_outcome(uid) })
    }

    fn retry_outcome(&self, uid: &Uid) -> RetryOutcome {
        match self.pod(uid).map(|view| view.admission) {
            Some(Admission::Admitted) => RetryOutcome::Admitted,
            Some(Admission::Waits(why)) => RetryOutcome::Waits(why.clone()),
            Some(Admission::Rejected(cause)) => RetryOutcome::RejectedAgain(cause.clone()),
            Some(Admission::Open) if self.shutting_down() => RetryOutcome::AfterShutdown,
            Some(Admission::Open | Admission::Cordoned) | None => {
                let worker_status = self.worker_status(uid, self.now.boot);
                RetryOutcome::InItsTurn(worker_status.map(|status| status.waits_for).unwrap_or_default())
            }
        }
    }

    fn exec(&mut self, id: RequestId, request: ExecRequest) -> Result<(), RequestError> {
        request.check()?;
        let ExecRequest { uid, container, command, timeout } = request;
        let Some(view) = self.pod(&uid) else { return Err(RequestError::UnknownPod(uid)) };
        let pod = view.pod.clone();
        let (container, instance) = self.running_container(&pod, container.as_deref())?;
        if !self.requests.execs.has_room() {
            return Err(RequestError::TooManyCommands);
        }
        let op = self.outbox.ops.begin(Owner::Exec);
        self.requests.execs.begun(op, id, timeout);
        let call = RuntimeCall::Exec(Box::new(ExecCall { pod, container, id: instance, command, timeout }));
        self.outbox.push(Effect::Runtime { op, call, timeout: timeout + exec::AFTER_TIMEOUT });
        Ok(())
    }

    /// Returns the name and the running instance of the requested container.
    fn running_container(&self, pod: &Pod, named: Option<&str>) -> Result<(String, ContainerId), RequestError> {
        let container = exec::container_of(pod, named)?.to_owned();
        match exec::running(self.containers(&pod.uid), &container) {
            Ok(instance) => Ok((container, instance)),
            Err(state) => Err(RequestError::NotRunning { pod: pod.name.clone(), container, state }),
        }
    }

    fn stream(&mut self, id: RequestId, request: StreamRequest) -> Result<(), RequestError> {
        request.check()?;
        let StreamRequest { uid, kind } = request;
        let Some(view) = self.pod(&uid) else { return Err(RequestError::UnknownPod(uid)) };
        let pod = view.pod.clone();
        let target = self.stream_target(&pod, kind)?;
        if !self.requests.streams.has_room() {
            return Err(RequestError::TooManyStreams);
        }
        let op = self.outbox.ops.begin(Owner::Stream);
        self.requests.streams.begun(op, id);
        let call = RuntimeCall::Stream(Box::new(StreamCall { pod, target }));
        self.outbox.push(Effect::Runtime { op, call, timeout: STREAM_TIMEOUT });
        Ok(())
    }

    fn stream_target(&self, pod: &Rc<Pod>, kind: StreamKind) -> Result<StreamTarget, RequestError> {
        Ok(match kind {
            StreamKind::Exec { container, command, stdin, stdout, stderr, tty } => {
                let (container, id) = self.running_container(pod, container.as_deref())?;
                StreamTarget::Exec { container, id, command, channels: Channels { stdin, stdout, stderr, tty } }
            }
            StreamKind::Attach { container, stdin, stdout, stderr, tty, terminal } => {
                let (container, id) = self.running_container(pod, container.as_deref())?;
                let channels = Channels { stdin, stdout, stderr, tty };
                let channels = match terminal {
                    Terminal::AsRequested => stream::check_attach(pod, &container, channels).map(|()| channels)?,
                    Terminal::OfContainer => stream::as_container(pod, &container, channels),
                };
                StreamTarget::Attach { container, id, channels }
            }
            StreamKind::PortForward { ports } => {
                let no_sandbox = || RequestError::NoSandbox { pod: pod.name.clone() };
                let sandbox = self.ready_sandbox(&pod.uid).ok_or_else(no_sandbox)?;
                StreamTarget::PortForward { sandbox, ports }
            }
        })
    }

    /// Returns the newest sandbox of the pod, if it is ready.
    fn ready_sandbox(&self, uid: &Uid) -> Option<SandboxId> {
        let sandboxes = &self.pleg.cache.get(uid)?.facts().sandboxes;
        sandboxes.iter().max_by_key(|s| s.attempt).filter(|s| s.ready).map(|s| s.id.clone())
    }

    pub(super) fn stream_answered(&mut self, op: OpId, result: Result<Answer, OpError>) {
        let Some(id) = self.requests.streams.ended(op) else { return };
        let answer = match result {
            Ok(Answer::StreamUrl(url)) => Ok(Reply::StreamUrl(url)),
            Ok(_) => Err(RequestError::StreamFailed { why: "the runtime's reply belongs to another call".to_owned() }),
            Err(e) => Err(stream::failure(&e)),
        };
        self.answer(id, answer);
    }

    pub(super) fn executed(&mut self, op: OpId, result: Result<Answer, OpError>) {
        let Some((id, timeout)) = self.requests.execs.ended(op) else { return };
        let answer = match exec_sync::judged(result) {
            Ok(Answer::Executed(output)) => {
                let end = exec_sync::end(&output);
                Ok(Reply::Executed(output, end))
            }
            Ok(_) => Err(RequestError::ExecFailed { why: "the runtime's reply belongs to another call".to_owned() }),
            Err(e) => Err(exec::failure(&e, timeout)),
        };
        self.answer(id, answer);
    }

    fn read_usage(&mut self, read: usage::UsageRead) {
        let op = self.outbox.ops.begin(Owner::Usage);
        self.requests.usages.begun(op, read);
        self.outbox.push(Effect::Runtime { op, call: RuntimeCall::Usage, timeout: usage::TIMEOUT });
    }

    pub(super) fn usage_read(&mut self, op: OpId, result: Result<Answer, OpError>) {
        let Some(read) = self.requests.usages.ended(op) else { return };
        let answer = match result {
            Ok(Answer::Usage(facts)) => Ok(Reply::Usage(self.usage_of_pods(&facts))),
            Ok(_) => Ok(Reply::Usage(self.usage_of_pods(&[]))),
            Err(e) => match read.after(&e) {
                Some(next) => return self.read_usage(next),
                None => Err(RequestError::UsageFailed(e)),
            },
        };
        self.answer(read.request, answer);
    }

    /// Returns the usage of the containers of Wherry's own pods. Pods without a running container are left out.
    fn usage_of_pods(&self, facts: &[UsageFact]) -> Usage {
        let by_id: BTreeMap<&str, &UsageFact> = facts.iter().map(|u| (u.id.as_str(), u)).collect_map();
        let pods = self.pods().into_iter();
        let pods = pods.map(|view| usage::of_pod(view.pod, self.containers(&view.pod.uid), &by_id));
        Usage { pods: pods.filter(|p| !p.containers.is_empty()).collect() }
    }
}
