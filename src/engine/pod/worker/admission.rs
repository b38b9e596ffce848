//! What the node says of a pod (A3, A4): nothing of it begins before it is admitted. Of a pod that began in an earlier life of
//! wherry that is asked again once nothing of it runs any more (after a reboot).

use super::{Record, State, Worker};
use crate::engine::admission::pod_requests::PodRequests;
use crate::engine::admission::{self, Admission};
use crate::engine::context::Context;
use crate::engine::effect::{Measure, Severity};
use crate::engine::pleg::cache::Entry;
use crate::engine::pod::kill::TerminationSource;
use crate::engine::pod::status::{self, Cause};
use k8s_openapi::api::core::v1 as core;

impl Worker {
    pub fn admission(&self) -> &Admission {
        &self.admission
    }

    pub fn is_admitted(&self) -> bool {
        self.admission == Admission::Admitted
    }

    /// It was not admitted yet, and it may be: it waits, or began in an earlier life.
    pub fn may_be_admitted(&self) -> bool {
        matches!(self.admission, Admission::Open | Admission::Waits(_))
            && matches!(self.state, State::Waiting | State::Sync)
    }

    /// Of one that may be admitted: nothing but room keeps it from having a sandbox.
    pub fn wants_room(&self) -> bool {
        matches!(self.state, State::Waiting) || self.wants_room
    }

    /// It began in an earlier life, and what became of it since is not known: its status is being read, or cannot be.
    pub fn is_unread(&self, entry: &Entry) -> bool {
        matches!(self.state, State::Sync) && !entry.usable()
    }

    pub fn admit(&mut self) {
        self.admission = Admission::Admitted;
        self.wants_room = false;
    }

    /// A4: not yet; `why` is for people.
    pub fn wait_for_room(&mut self, why: String) {
        self.go_back();
        self.admission = Admission::Waits(why);
    }

    pub fn waits_because(&self, why: &str) -> bool {
        matches!(&self.admission, Admission::Waits(told) if told == why)
    }

    /// W6: it is to run again once this is over, and nothing else keeps it.
    pub fn waits_only_for(&self, source: TerminationSource) -> bool {
        self.waits_for.len() == 1 && self.waits_for.contains(&source)
    }

    /// What it starts anew as under its UID (W6), if only its end keeps it from that.
    pub fn asks_then(&self) -> Option<PodRequests> {
        let pod = self.restart.as_deref().filter(|_| self.desired && self.waits_for.is_empty())?;
        Some(PodRequests::of(pod))
    }

    /// A3: the node does not take it. A rejection for as long as a shutdown lasts is not recorded.
    pub fn reject(&mut self, cause: Cause, ctx: &mut Context<'_>) {
        let reason = admission::counted(&cause.reason);
        ctx.measure(Measure::AdmissionRejected { reason });
        ctx.tell(self.pod.as_ref(), None, (Severity::Warning, reason), cause.message.clone());
        self.wants_room = false;
        self.go_back();
        self.admission = Admission::Rejected(cause);
        if !self.is_rejected_for_now() {
            self.record = Record::Writing;
            self.put_record(None, None, ctx);
        }
    }

    /// What kept it out is to be looked at again: a shutdown is over, or somebody asks for it.
    pub fn ask_again(&mut self, ctx: &mut Context<'_>) {
        let recorded = !self.is_rejected_for_now();
        self.admission = Admission::Open;
        if recorded {
            self.record = Record::Writing;
            self.put_record(None, None, ctx);
        }
    }

    /// A kill takes the place of a rejection: the pod waits for the end of the kill, and a retry must not start it.
    pub(super) fn withdraw_rejection(&mut self) {
        if self.rejection().is_some() {
            self.admission = Admission::Open;
        }
    }

    pub fn rejection(&self) -> Option<&Cause> {
        match &self.admission {
            Admission::Rejected(cause) => Some(cause),
            _ => None,
        }
    }

    /// S4: it ends with the shutdown.
    pub fn is_rejected_for_now(&self) -> bool {
        self.rejection() == Some(&Cause::node_shutdown())
    }

    /// Nothing of it runs, and nothing is to begin.
    pub(super) fn go_back(&mut self) {
        if matches!(self.state, State::Sync) && self.op.is_none() {
            self.state = State::Waiting;
        }
    }

    /// The status of a pod that waits.
    pub(super) fn status_before(&self) -> core::PodStatus {
        match &self.admission {
            Admission::Rejected(cause) => status::rejected(cause),
            Admission::Waits(why) => status::waits_for_room(why),
            Admission::Open | Admission::Admitted => status::waiting(),
        }
    }
}
