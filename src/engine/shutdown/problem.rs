//! What a round of calls to logind leaves undone, and how people read of it: the cause, and what they can do. Wherry repeats
//! the round by itself in every case (`lock`).

use crate::engine::op::OpError;
use serde::Serialize;
use std::time::Duration;

/// Why logind does not wait as long as it should, or why that is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Delay {
    NotRead(String),
    NotWritten(String),
    NotReloaded(String),
    /// The drop-in is written and logind was reloaded, and still logind waits for no longer than this.
    Overruled(Duration),
}

#[derive(Debug, Default, Serialize)]
pub struct Problems {
    pub delay: Option<Delay>,
    /// Why there is no lock, or no signal.
    pub lock: Option<String>,
    /// Why the drop-in could not be lowered.
    pub lower: Option<String>,
}

impl Problems {
    pub fn any(&self) -> bool {
        self.delay.is_some() || self.lock.is_some() || self.lower.is_some()
    }

    /// The first failure counts: it is usually the cause of the others.
    pub fn failed(&mut self, what: &str, e: &OpError) {
        let remedy = "Wherry tries again; systemctl status systemd-logind may say why";
        self.lock.get_or_insert_with(|| format!("{what}: {}; {remedy}", e.message()));
    }

    /// The most important one. `needs`: the sum of the periods; `has`: logind's delay.
    pub fn text(&self, needs: Duration, has: Option<Duration>) -> Option<String> {
        let lower = || {
            let why = self.lower.as_ref()?;
            let needs = needs.as_secs();
            Some(format!(
                "the drop-in for logind still says more than the {needs}s that pods need: {why}; Wherry tries again"
            ))
        };
        let delay = || self.delay.as_ref().map(|d| d.text(needs, has.unwrap_or_default()));
        self.lock.clone().or_else(delay).or_else(lower)
    }
}

impl Delay {
    fn text(&self, needs: Duration, has: Duration) -> String {
        let (has, needs) = (has.as_secs_f64(), needs.as_secs());
        let short = format!("logind waits {has:.0}s at most, and {needs}s are asked for");
        match self {
            Delay::NotRead(why) => format!(
                "logind does not say how long it waits: {why}; Wherry asks again; \
                 systemctl status systemd-logind may say why"
            ),
            Delay::NotWritten(why) => format!(
                "{short}: {why}; Wherry tries again; make that writable, or name another directory with logindConfDir \
                 (WherryConfiguration) and run systemctl reload wherry"
            ),
            Delay::NotReloaded(why) => format!(
                "{short}: logind could not be reloaded: {why}; Wherry tries again; \
                 systemctl restart systemd-logind makes logind read the drop-in, too"
            ),
            Delay::Overruled(_) => format!(
                "{short}: the drop-in is written and logind was reloaded, but a file of a later name says less, or logind \
                 does not read the drop-in; systemd-analyze cat-config systemd/logind.conf shows which file wins: \
                 correct that one, then run systemctl reload wherry, which reloads logind"
            ),
        }
    }
}
