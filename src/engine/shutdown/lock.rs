//! The inhibitor lock (S2, S3, S6, S7, S9): what logind is asked for, in which order, and what is done when it says no.
//!
//! A round is: how long does logind wait; if that is too short the drop-in, a reload, and looks until it took effect; then the
//! lock (none if logind still knows ours), the signal, and at last whether a shutdown has begun already. A step that fails
//! does not keep the later ones from being done; what is missing then is tried again.

use crate::api::shutdown::{Groups, retry};
use crate::api::time::Boot;
use crate::engine::effect::LogindCall;
use crate::engine::event::Answer;
use crate::engine::op::{OpError, OpId};
use serde::Serialize;
use std::time::Duration;

/// How long one answer may take.
pub const TIMEOUT: Duration = Duration::from_secs(5);
/// S2: so often logind is looked at after its reload, and so long apart.
const LOOKS: u32 = 5;
const APART: Duration = Duration::from_millis(200);
/// Of a logind that waits for as long as it takes ("infinity"): a thousand years, so that it can be shown in numbers too.
const NO_LIMIT: Duration = Duration::from_secs(1000 * 365 * 86_400);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Step {
    /// `looks`: None before the reload.
    ReadDelay {
        looks: Option<u32>,
    },
    WriteDropIn,
    Reload,
    List,
    Inhibit,
    Subscribe,
    ReadPreparing,
}

/// What the node is to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Ask {
    Call(LogindCall),
    /// Look again then; None: no more.
    Timer(Option<Boot>),
    Release,
    /// logind says whether a shutdown is in progress.
    Preparing(bool),
    /// Something to tell people, once: Ok if the lock is held and all is as it should be.
    Told(Result<String, String>),
}

#[derive(Debug, Default, Serialize)]
pub struct Lock {
    groups: Groups,
    up: bool,
    /// Why there is no bus or no logind.
    down: Option<String>,
    held: bool,
    subscribed: bool,
    delay: Option<Duration>,
    /// Why logind does not wait as long as it should.
    short: Option<String>,
    /// What else failed in this round.
    failed: Option<String>,
    step: Option<Step>,
    op: Option<OpId>,
    /// The drop-in is left alone: the node is going down.
    hurried: bool,
    retry_at: Option<Boot>,
    failing_since: Option<Boot>,
    told: Option<Result<String, String>>,
}

impl Lock {
    pub fn new(groups: Groups) -> Lock {
        Lock { groups, ..Lock::default() }
    }

    pub fn is_held(&self) -> bool {
        self.held
    }

    /// Held, with the signal on its way here.
    pub fn is_armed(&self) -> bool {
        self.held && self.subscribed && self.up
    }

    pub fn delay(&self) -> Option<Duration> {
        self.delay
    }

    /// What each group gets of its period (S2).
    pub fn granted(&self) -> Vec<Duration> {
        self.groups.within(self.delay.unwrap_or(Duration::MAX))
    }

    /// Why it is not armed, or less than it should be.
    pub fn problem(&self) -> Option<String> {
        if self.groups.is_off() {
            return None;
        }
        let down = self.down.as_ref().filter(|_| !self.up);
        let asking = (!self.is_armed()).then(|| "logind has not answered yet".to_owned());
        down.or(self.failed.as_ref()).or(self.short.as_ref()).cloned().or(asking)
    }

    pub fn owns(&self, op: OpId) -> bool {
        self.op == Some(op)
    }

    pub fn began(&mut self, op: OpId) {
        self.op = Some(op);
    }

    /// Other periods, or none (S3: then the lock is let go).
    pub fn configure(&mut self, groups: Groups) -> Vec<Ask> {
        if groups == self.groups {
            return Vec::new();
        }
        let held = std::mem::take(&mut self.held);
        let Lock { up, down, .. } = std::mem::take(self);
        *self = Lock { groups, up, down, held, ..Lock::default() };
        if self.groups.is_off() {
            self.held = false;
            return vec![Ask::Timer(None), Ask::Release];
        }
        self.begin()
    }

    /// systemd kept the lock of an earlier wherry.
    pub fn inherited(&mut self) -> Vec<Ask> {
        self.held = true;
        if self.groups.is_off() { self.release() } else { Vec::new() }
    }

    pub fn release(&mut self) -> Vec<Ask> {
        self.held = false;
        vec![Ask::Release]
    }

    /// logind is there, or there anew. `hurried`: a shutdown may be in progress.
    pub fn up(&mut self, hurried: bool) -> Vec<Ask> {
        self.up = true;
        self.down = None;
        self.subscribed = false;
        self.hurried = hurried;
        self.begin()
    }

    pub fn down(&mut self, why: String) -> Vec<Ask> {
        self.up = false;
        self.subscribed = false;
        self.down = Some(why);
        self.step = None;
        self.op = None;
        let mut asks = vec![Ask::Timer(None)];
        self.tell(&mut asks);
        asks
    }

    /// S6: the shutdown was called off. A new lock, before the old one is let go.
    pub fn take_anew(&mut self) -> Vec<Ask> {
        self.hurried = false;
        if !self.up || self.groups.is_off() {
            return Vec::new();
        }
        self.failed = None;
        vec![self.call(Step::Inhibit)]
    }

    /// The shutdown that was in doubt is none: a whole round, with the drop-in that was left alone.
    pub fn begin_anew(&mut self) -> Vec<Ask> {
        self.hurried = false;
        self.begin()
    }

    pub fn timer(&mut self, now: Boot) -> Vec<Ask> {
        match (self.step, self.op) {
            (Some(step @ Step::ReadDelay { .. }), None) if self.up => vec![self.call(step)],
            (None, None) if self.retry_at.is_some_and(|at| at <= now) => self.begin(),
            _ => Vec::new(),
        }
    }

    fn begin(&mut self) -> Vec<Ask> {
        if !self.up || self.groups.is_off() {
            return Vec::new();
        }
        self.retry_at = None;
        self.failed = None;
        self.short = None;
        vec![Ask::Timer(None), self.call(Step::ReadDelay { looks: None })]
    }

    fn call(&mut self, step: Step) -> Ask {
        self.step = Some(step);
        // An answer to an earlier call is none to this one.
        self.op = None;
        Ask::Call(match step {
            Step::ReadDelay { .. } => LogindCall::ReadDelay,
            Step::WriteDropIn => LogindCall::WriteDropIn { delay: self.groups.sum() },
            Step::Reload => LogindCall::Reload,
            Step::List => LogindCall::ListInhibitors,
            Step::Inhibit => LogindCall::Inhibit,
            Step::Subscribe => LogindCall::Subscribe,
            Step::ReadPreparing => LogindCall::ReadPreparing,
        })
    }

    pub fn answered(&mut self, result: Result<Answer, OpError>, now: Boot) -> Vec<Ask> {
        self.op = None;
        let Some(step) = self.step.take() else { return Vec::new() };
        // The connection is gone: `down` follows, or `up`.
        if let Err(OpError::NotSent(why)) = &result {
            self.failed = Some(why.clone());
            return self.round_over(now);
        }
        // Remedies: the round after a `failed` one comes by itself, after a `short` one with the next logind or wherry.
        let failed = |what: &str, e: &OpError| {
            let remedy = "it is asked again, and systemctl status systemd-logind may say why";
            Some(format!("{what}: {}; {remedy}", e.message()))
        };
        match (step, result) {
            (Step::ReadDelay { looks }, Ok(Answer::Delay(delay))) => self.delay_is(delay, looks, now),
            (Step::ReadDelay { .. }, other) => {
                let e = other.err().unwrap_or(OpError::Unknown("an answer that makes no sense".into()));
                let remedy = "look at systemctl status systemd-logind, then systemctl restart wherry asks again";
                self.short = Some(format!("logind does not say how long it waits: {}; {remedy}", e.message()));
                vec![self.lock()]
            }
            (Step::WriteDropIn, Ok(_)) => vec![self.call(Step::Reload)],
            (Step::WriteDropIn, Err(e)) => {
                let remedy = "make that writable, or name another directory with logindConfDir (WherryConfiguration), \
                              then systemctl restart wherry";
                self.short = Some(self.too_short(&format!("{}; {remedy}", e.message())));
                vec![self.lock()]
            }
            (Step::Reload, Ok(_)) => vec![self.call(Step::ReadDelay { looks: Some(1) })],
            (Step::Reload, Err(e)) => {
                let remedy = "systemctl restart systemd-logind has it read the drop-in";
                self.short = Some(self.too_short(&format!("logind could not be reloaded: {}; {remedy}", e.message())));
                vec![self.lock()]
            }
            (Step::List, Ok(Answer::Inhibited(true))) => vec![self.call(Step::Subscribe)],
            (Step::List, _) => vec![self.call(Step::Inhibit)],
            (Step::Inhibit, Ok(_)) => {
                self.held = true;
                vec![self.call(Step::Subscribe)]
            }
            (Step::Inhibit, Err(e)) => {
                self.failed = failed("logind gives no lock", &e);
                vec![self.call(Step::Subscribe)]
            }
            (Step::Subscribe, Ok(_)) => {
                self.subscribed = true;
                vec![self.call(Step::ReadPreparing)]
            }
            (Step::Subscribe, Err(e)) => {
                self.failed = failed("the signal PrepareForShutdown cannot be had", &e);
                let mut asks = self.release();
                asks.extend(self.round_over(now));
                asks
            }
            (Step::ReadPreparing, Ok(Answer::Preparing(preparing))) => {
                let mut asks = self.round_over(now);
                asks.push(Ask::Preparing(preparing));
                asks
            }
            (Step::ReadPreparing, other) => {
                let e = other.err().unwrap_or(OpError::Unknown("an answer that makes no sense".into()));
                self.failed = failed("logind does not say whether the node is going down", &e);
                self.round_over(now)
            }
        }
    }

    fn delay_is(&mut self, delay: Duration, looks: Option<u32>, now: Boot) -> Vec<Ask> {
        self.delay = Some(delay.min(NO_LIMIT));
        if delay >= self.groups.sum() || self.hurried {
            return vec![self.lock()];
        }
        match looks {
            None => vec![self.call(Step::WriteDropIn)],
            Some(n) if n < LOOKS => {
                self.step = Some(Step::ReadDelay { looks: Some(n + 1) });
                vec![Ask::Timer(Some(now + APART))]
            }
            Some(_) => {
                let why = "our drop-in is there and logind was reloaded, but another one of a later name says less, or logind \
                           does not read it; systemd-analyze cat-config systemd/logind.conf shows which file wins: mend \
                           that one, then systemctl restart systemd-logind";
                self.short = Some(self.too_short(why));
                vec![self.lock()]
            }
        }
    }

    fn too_short(&self, why: &str) -> String {
        let has = self.delay.unwrap_or_default().as_secs_f64();
        let needs = self.groups.sum().as_secs();
        format!("logind waits {has:.0}s at most, and {needs}s are asked for: {why}")
    }

    fn lock(&mut self) -> Ask {
        self.call(if self.held { Step::List } else { Step::Inhibit })
    }

    fn round_over(&mut self, now: Boot) -> Vec<Ask> {
        let mut asks = Vec::new();
        if self.failed.is_none() {
            self.failing_since = None;
        } else if self.up {
            let since = *self.failing_since.get_or_insert(now);
            let at = now + retry::wait(now.since(since));
            self.retry_at = Some(at);
            asks.push(Ask::Timer(Some(at)));
        }
        self.tell(&mut asks);
        asks
    }

    /// People are told what is new.
    fn tell(&mut self, asks: &mut Vec<Ask>) {
        let is = match self.problem() {
            Some(problem) => Err(problem),
            None => {
                let (needs, has) = (self.groups.sum().as_secs(), self.delay.unwrap_or_default());
                let has =
                    if has < NO_LIMIT { format!("up to {:.0}s", has.as_secs_f64()) } else { "without a limit".into() };
                Ok(format!("graceful shutdown is armed: pods get up to {needs}s, logind waits {has}"))
            }
        };
        if !self.groups.is_off() && self.told.as_ref() != Some(&is) {
            self.told = Some(is.clone());
            asks.push(Ask::Told(is));
        }
    }
}
