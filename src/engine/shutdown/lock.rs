//! The inhibitor lock (S2, S3, S6, S7, S9): the order of Wherry's calls to logind, and the reaction to each response.
//!
//! A whole round reads logind's delay. If the delay is too short, the round writes the drop-in, reloads logind, and
//! reads the delay until it has changed. Then it takes the lock, unless logind still lists Wherry's lock. After that,
//! it subscribes to PrepareForShutdown, and reads whether a shutdown has begun. If logind's delay is longer than
//! necessary, the round finally lowers the delay in the drop-in. A failed step does not prevent the later ones.
//!
//! A round that leaves a problem is retried with a back-off. Without a problem, Wherry reads the delay once a minute:
//! InhibitDelayMaxUSec is a constant property, so logind sends no signal when it changes.

use super::problem::{Delay, Problems};
use super::round::{Change, Held, Kind, Link, Read, Round, Step, Work};
use super::store::Store;
use crate::api::shutdown::{Groups, retry};
use crate::api::time::Boot;
use crate::engine::effect::LogindCall;
use crate::engine::event::Answer;
use crate::engine::op::{OpError, OpId};
use serde::Serialize;
use std::time::Duration;

/// The timeout of one call.
pub const TIMEOUT: Duration = Duration::from_secs(5);
/// S2: how often the delay is read after a reload, and the pause between two reads.
const READS: u32 = 5;
const APART: Duration = Duration::from_millis(200);
/// The interval between two reads of a delay that is long enough.
const READ_AGAIN: Duration = Duration::from_secs(60);
/// Stands for a logind without a limit ("infinity"): a thousand years, so that views can show it as a number.
const NO_LIMIT: Duration = Duration::from_secs(1000 * 365 * 86_400);

/// What the lock's state machine requests from the engine.
#[derive(Debug, PartialEq, Eq)]
pub enum LockRequest {
    Call(LogindCall),
    /// Close the descriptor of the lock.
    Release,
    /// Make systemd's descriptor store contain exactly the lock that Wherry holds.
    Store,
    /// logind reports whether a shutdown is in progress.
    Preparing(bool),
    /// The delay for the shutdown in progress; None if the read failed.
    DelayRead(Option<Duration>),
    /// The shutdown in progress continues without a lock.
    Unlocked,
    /// A change to report, once. Ok if the lock is armed and has no problem.
    Report(Result<String, String>),
}

#[derive(Debug, Serialize)]
pub struct Lock {
    groups: Groups,
    link: Link,
    held: Held,
    /// The delay according to logind's last response; None if there is no response.
    delay: Option<Duration>,
    work: Work,
    /// The problems of the last round.
    left: Problems,
    failing_since: Option<Boot>,
    reported: Option<Result<String, String>>,
    pub store: Store,
}

impl Lock {
    pub fn new(groups: Groups) -> Lock {
        Lock {
            groups,
            link: Link::Down { why: None },
            held: Held::No,
            delay: None,
            work: Work::Idle { at: None },
            left: Problems::default(),
            failing_since: None,
            reported: None,
            store: Store::default(),
        }
    }

    /// Returns true if logind waits for this lock, as far as Wherry knows.
    pub fn is_held(&self) -> bool {
        self.held != Held::No
    }

    /// Returns true if logind has confirmed the lock and sends PrepareForShutdown.
    pub fn is_armed(&self) -> bool {
        self.held == Held::Yes && matches!(self.link, Link::Up { subscribed: true })
    }

    pub fn delay(&self) -> Option<Duration> {
        self.delay
    }

    /// Returns the granted part of each group's period (S2); None while logind's delay is unknown.
    pub fn granted(&self) -> Option<Vec<Duration>> {
        self.delay.map(|delay| self.groups.within(delay))
    }

    /// Returns why the lock is not armed, or how it falls short of the configuration.
    pub fn problem(&self) -> Option<String> {
        if self.groups.is_off() {
            return None;
        }
        if let Link::Down { why: Some(why) } = &self.link {
            return Some(why.clone());
        }
        let unanswered = || (!self.is_armed()).then(|| "logind has not responded yet".to_owned());
        self.left.text(self.groups.sum(), self.delay).or_else(unanswered)
    }

    pub fn owns(&self, op: OpId) -> bool {
        matches!(self.work, Work::Calling { op: Some(o), .. } if o == op)
    }

    pub fn began(&mut self, began: OpId) {
        if let Work::Calling { op, .. } = &mut self.work {
            *op = Some(began);
        }
    }

    /// Returns the time of the next call to logind, or of the next attempt to store the lock.
    pub fn next_deadline(&self) -> Option<Boot> {
        let work = match &self.work {
            Work::Idle { at } => *at,
            Work::Pausing { until, .. } => Some(*until),
            Work::Calling { .. } => None,
        };
        work.into_iter().chain(self.store.next()).min()
    }

    /// Applies a reloaded configuration. Without periods, releases the lock (S3).
    pub fn configure(&mut self, groups: Groups) -> Vec<LockRequest> {
        let changed = groups != self.groups;
        if changed {
            self.groups = groups;
            self.left = Problems::default();
            self.failing_since = None;
            self.reported = None;
        }
        if self.groups.is_off() {
            self.work = Work::Idle { at: None };
            return if changed { self.release() } else { Vec::new() };
        }
        if !changed && self.whole_round_is_under_way() {
            return Vec::new();
        }
        self.begin(Kind::Whole)
    }

    fn whole_round_is_under_way(&self) -> bool {
        match &self.work {
            Work::Idle { .. } | Work::Calling { step: Step::ReadDelay(Read::Periodic | Read::Shutdown), .. } => false,
            Work::Calling { round, .. } | Work::Pausing { round, .. } => round.kind == Kind::Whole,
        }
    }

    /// Takes over the lock of a previous process from systemd's descriptor store.
    pub fn inherited(&mut self) -> Vec<LockRequest> {
        self.held = Held::Unconfirmed;
        if self.groups.is_off() { self.release() } else { vec![LockRequest::Store] }
    }

    /// Handles a late response that gives Wherry another lock. It belongs to a call of an abandoned round.
    pub fn taken_late(&mut self) -> Vec<LockRequest> {
        if self.held == Held::No { self.release() } else { vec![LockRequest::Store] }
    }

    pub fn release(&mut self) -> Vec<LockRequest> {
        self.held = Held::No;
        vec![LockRequest::Release, LockRequest::Store]
    }

    /// Begins a whole round, because logind has appeared on the bus or has restarted.
    pub fn up(&mut self) -> Vec<LockRequest> {
        self.link = Link::Up { subscribed: false };
        if self.held == Held::Yes {
            self.held = Held::Unconfirmed;
        }
        self.delay = None;
        self.left = Problems::default();
        self.begin(Kind::Whole)
    }

    pub fn down(&mut self, why: String) -> Vec<LockRequest> {
        self.link = Link::Down { why: Some(why) };
        self.work = Work::Idle { at: None };
        self.report()
    }

    /// Reads the delay once more at the start of a shutdown, because another file may have changed it. Returns None
    /// during a round or without a connection.
    pub fn read_for_shutdown(&mut self) -> Option<LockRequest> {
        let idle = matches!(self.work, Work::Idle { .. }) && matches!(self.link, Link::Up { .. });
        idle.then(|| self.call(Step::ReadDelay(Read::Shutdown), Round::default()))
    }

    /// S6: takes a new lock after a cancelled shutdown, before the old one is closed.
    pub fn take_anew(&mut self, groups: Groups) -> Vec<LockRequest> {
        let changed = groups != self.groups;
        if changed {
            return self.configure(groups);
        }
        if !matches!(self.link, Link::Up { .. }) || self.groups.is_off() {
            return Vec::new();
        }
        let then_whole = self.left.any() || self.delay.is_none_or(|d| d < self.groups.sum());
        vec![self.call(Step::Inhibit, Round::of(Kind::Relock { then_whole }))]
    }

    /// Begins a whole round after a shutdown that was in doubt, because the round at its start did not change the
    /// drop-in.
    pub fn begin_anew(&mut self, groups: Groups) -> Vec<LockRequest> {
        if groups == self.groups { self.begin(Kind::Whole) } else { self.configure(groups) }
    }

    /// Begins the calls that are due.
    pub fn call_due(&mut self, now: Boot) -> Vec<LockRequest> {
        let mut requests: Vec<LockRequest> = self.store.is_due(now).then_some(LockRequest::Store).into_iter().collect();
        match &mut self.work {
            Work::Pausing { until, change, reads, round } if *until <= now => {
                let (read, round) = (Read::After(*change, *reads), std::mem::take(round));
                requests.push(self.call(Step::ReadDelay(read), round));
            }
            Work::Idle { at: Some(at) } if *at <= now && self.left.any() => requests.extend(self.begin(Kind::Retry)),
            Work::Idle { at: Some(at) } if *at <= now => {
                requests.push(self.call(Step::ReadDelay(Read::Periodic), Round::default()));
            }
            _ => {}
        }
        requests
    }

    fn begin(&mut self, kind: Kind) -> Vec<LockRequest> {
        if !matches!(self.link, Link::Up { .. }) || self.groups.is_off() {
            return Vec::new();
        }
        vec![self.call(Step::ReadDelay(Read::First), Round::of(kind))]
    }

    fn call(&mut self, step: Step, round: Round) -> LockRequest {
        // A late response to an earlier call must not be taken for the response to this one.
        self.work = Work::Calling { step, op: None, round };
        LockRequest::Call(step.call(self.groups.sum()))
    }

    /// Handles the response to a call. `down`: a shutdown is in progress, or in doubt.
    pub fn answered(&mut self, result: Result<Answer, OpError>, down: bool, now: Boot) -> Vec<LockRequest> {
        let Work::Calling { step, mut round, .. } = std::mem::replace(&mut self.work, Work::Idle { at: None }) else {
            return Vec::new();
        };
        match (step, result) {
            (Step::ReadDelay(read), Ok(Answer::Delay(delay))) => self.delay_is(delay, read, round, down, now),
            (Step::ReadDelay(read), other) => self.delay_is_unknown(&failure(other), read, round, now),
            // The connection is lost; `down` or `up` follows.
            (_, Err(OpError::NotSent(why))) => {
                round.problems.lock = Some(why);
                self.finish(round, now)
            }
            (Step::WriteDropIn, Ok(_)) => vec![self.call(Step::Reload(Change::Raise), round)],
            (Step::WriteDropIn, Err(e)) => {
                round.problems.delay = Some(Delay::NotWritten(e.message().to_owned()));
                vec![self.lock(round)]
            }
            (Step::Reload(change), Ok(_)) => vec![self.call(Step::ReadDelay(Read::After(change, 1)), round)],
            (Step::Reload(Change::Raise), Err(e)) => {
                round.problems.delay = Some(Delay::NotReloaded(e.message().to_owned()));
                vec![self.lock(round)]
            }
            (Step::List, answer) => self.listed(answer, round),
            (Step::Inhibit, answer) => self.inhibited(answer, round, down),
            (Step::Subscribe, result) => {
                match result {
                    Ok(_) => self.link = Link::Up { subscribed: true },
                    Err(e) => round.problems.failed("failed to subscribe to the signal PrepareForShutdown", &e),
                }
                vec![self.call(Step::ReadPreparing, round)]
            }
            (Step::ReadPreparing, Ok(Answer::Preparing(preparing))) => self.preparing_is(preparing, round, down, now),
            (Step::ReadPreparing, other) => {
                round.problems.failed("failed to read PreparingForShutdown from logind", &failure(other));
                let mut requests = self.release_unless_heard(down);
                requests.extend(self.finish(round, now));
                requests
            }
            (Step::LowerDropIn, Ok(Answer::Written(written))) if written || self.left.lower.is_some() => {
                vec![self.call(Step::Reload(Change::Lower), round)]
            }
            (Step::LowerDropIn, Ok(_)) => self.finish(round, now),
            (Step::LowerDropIn | Step::Reload(Change::Lower), Err(e)) => {
                round.problems.lower = Some(e.message().to_owned());
                self.finish(round, now)
            }
        }
    }

    fn listed(&mut self, answer: Result<Answer, OpError>, round: Round) -> Vec<LockRequest> {
        match answer {
            Ok(Answer::Inhibited(true)) => {
                self.held = Held::Yes;
                vec![LockRequest::Store, self.call(Step::Subscribe, round)]
            }
            Ok(Answer::Inhibited(false)) => {
                self.held = Held::No;
                vec![self.call(Step::Inhibit, round)]
            }
            _ => vec![self.call(Step::Inhibit, round)],
        }
    }

    fn inhibited(&mut self, answer: Result<Answer, OpError>, mut round: Round, down: bool) -> Vec<LockRequest> {
        let Err(e) = answer else {
            self.held = Held::Yes;
            return vec![LockRequest::Store, self.call(Step::Subscribe, round)];
        };
        round.problems.failed("failed to take an inhibitor lock", &e);
        let unlocked = (down && self.held == Held::No).then_some(LockRequest::Unlocked);
        let subscribe = self.call(Step::Subscribe, round);
        unlocked.into_iter().chain([subscribe]).collect()
    }

    fn delay_is(&mut self, delay: Duration, read: Read, mut round: Round, down: bool, now: Boot) -> Vec<LockRequest> {
        self.delay = Some(delay.min(NO_LIMIT));
        // During a shutdown the drop-in is not changed.
        let settled = delay >= self.groups.sum() || down;
        match read {
            Read::Shutdown => {
                self.rest(now);
                vec![LockRequest::DelayRead(self.delay)]
            }
            Read::Periodic if settled => {
                self.rest(now);
                // At the end of a shutdown, the lock is released. This is not a change to report.
                if down { Vec::new() } else { self.report() }
            }
            Read::Periodic => self.delay_is(delay, Read::First, Round::default(), down, now),
            Read::First | Read::After(Change::Raise, _) if settled => vec![self.lock(round)],
            // Another file takes precedence. Wherry cannot change that, and the delay is still the same.
            Read::First if round.kind == Kind::Retry && self.left.delay == Some(Delay::Overruled(delay)) => {
                round.problems.delay = Some(Delay::Overruled(delay));
                vec![self.lock(round)]
            }
            Read::First => vec![self.call(Step::WriteDropIn, round)],
            Read::After(Change::Lower, _) if delay == self.groups.sum() => self.finish(round, now),
            Read::After(change, n) if n < READS => {
                self.work = Work::Pausing { until: now + APART, change, reads: n + 1, round };
                Vec::new()
            }
            Read::After(Change::Raise, _) => {
                round.problems.delay = Some(Delay::Overruled(delay));
                vec![self.lock(round)]
            }
            Read::After(Change::Lower, _) => {
                round.problems.delay = (!settled).then_some(Delay::Overruled(delay));
                self.finish(round, now)
            }
        }
    }

    fn delay_is_unknown(&mut self, e: &OpError, read: Read, mut round: Round, now: Boot) -> Vec<LockRequest> {
        if read == Read::Shutdown {
            self.rest(now);
            return vec![LockRequest::DelayRead(None)];
        }
        self.delay = None;
        round.problems.delay = Some(Delay::NotRead(e.message().to_owned()));
        match read {
            Read::First | Read::After(Change::Raise, _) => vec![self.lock(round)],
            _ => self.finish(round, now),
        }
    }

    fn lock(&mut self, round: Round) -> LockRequest {
        self.call(if self.held == Held::No { Step::Inhibit } else { Step::List }, round)
    }

    fn preparing_is(&mut self, preparing: bool, round: Round, down: bool, now: Boot) -> Vec<LockRequest> {
        let mut requests = if preparing { Vec::new() } else { self.release_unless_heard(down) };
        let whole = matches!(round.kind, Kind::Whole | Kind::Retry);
        let long = self.delay.is_some_and(|d| d > self.groups.sum());
        if whole && long && !round.problems.any() && !preparing && !down {
            requests.push(self.call(Step::LowerDropIn, round));
        } else {
            requests.extend(self.finish(round, now));
        }
        requests.push(LockRequest::Preparing(preparing));
        requests
    }

    /// S3: releases the lock if Wherry gets no signals, because the machine must not wait for it in vain. Keeps the
    /// lock during a shutdown, which Wherry knows about already.
    fn release_unless_heard(&mut self, down: bool) -> Vec<LockRequest> {
        let heard = matches!(self.link, Link::Up { subscribed: true });
        if heard || down { Vec::new() } else { self.release() }
    }

    fn finish(&mut self, round: Round, now: Boot) -> Vec<LockRequest> {
        self.left = round.problems;
        self.rest(now);
        let mut requests = self.report();
        if round.kind == (Kind::Relock { then_whole: true }) {
            requests.extend(self.begin(Kind::Whole));
        }
        requests
    }

    fn rest(&mut self, now: Boot) {
        let wait = if self.left.any() {
            retry::wait(now.since(*self.failing_since.get_or_insert(now)))
        } else {
            self.failing_since = None;
            READ_AGAIN
        };
        self.work = Work::Idle { at: Some(now + wait) };
    }

    /// Reports the state if it has changed.
    fn report(&mut self) -> Vec<LockRequest> {
        let is = match self.problem() {
            Some(problem) => Err(problem),
            None => {
                let (needs, has) = (self.groups.sum().as_secs(), self.delay.unwrap_or_default());
                let has =
                    if has < NO_LIMIT { format!("up to {:.0}s", has.as_secs_f64()) } else { "without a limit".into() };
                Ok(format!("graceful shutdown is armed: pods get up to {needs}s, logind waits {has}"))
            }
        };
        if self.groups.is_off() || self.reported.as_ref() == Some(&is) {
            return Vec::new();
        }
        self.reported = Some(is.clone());
        vec![LockRequest::Report(is)]
    }
}

fn failure(result: Result<Answer, OpError>) -> OpError {
    result.err().unwrap_or_else(|| OpError::Unknown("unexpected response from logind".into()))
}
