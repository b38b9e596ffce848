//! The problems that remain after a round of calls to logind, and their text: the cause and the remedy. Wherry retries
//! the round in each case (`lock`).

use crate::engine::op::OpError;
use serde::Serialize;
use std::time::Duration;

/// Why logind's delay is too short or unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Delay {
    NotRead(String),
    NotWritten(String),
    NotReloaded(String),
    /// The drop-in is written and logind was reloaded, but the delay is still only this long.
    Overruled(Duration),
}

#[derive(Debug, Default, Serialize)]
pub struct Problems {
    pub delay: Option<Delay>,
    /// Why there is no lock, or why Wherry gets no signal from logind.
    pub lock: Option<String>,
    /// Why the delay in the drop-in could not be lowered, or why logind could not be reloaded after that.
    pub lower: Option<String>,
}

impl Problems {
    pub fn any(&self) -> bool {
        self.delay.is_some() || self.lock.is_some() || self.lower.is_some()
    }

    /// Notes a failure. Only the first one is kept, because it is usually the cause of the others.
    pub fn failed(&mut self, what: &str, e: &OpError) {
        let remedy = "Wherry retries; check systemctl status systemd-logind";
        self.lock.get_or_insert_with(|| format!("{what}: {}; {remedy}", e.message()));
    }

    /// Returns the most important problem. `needs`: the sum of the periods; `has`: logind's delay.
    pub fn text(&self, needs: Duration, has: Option<Duration>) -> Option<String> {
        let lower = || {
            let why = self.lower.as_ref()?;
            let needs = needs.as_secs();
            Some(format!("failed to lower logind's delay to the {needs}s that pods need: {why}; Wherry retries"))
        };
        let delay = || self.delay.as_ref().map(|d| d.text(needs, has.unwrap_or_default()));
        self.lock.clone().or_else(delay).or_else(lower)
    }
}

impl Delay {
    fn text(&self, needs: Duration, has: Duration) -> String {
        let (has, needs) = (has.as_secs_f64(), needs.as_secs());
        let short = format!("logind waits at most {has:.0}s, but {needs}s are configured");
        match self {
            Delay::NotRead(why) => {
                format!("failed to read logind's delay: {why}; Wherry retries; check systemctl status systemd-logind")
            }
            Delay::NotWritten(why) => format!(
                "{short}: {why}; Wherry retries; make that path writable, or set logindConfDir (WherryConfiguration) \
                 to another directory and run systemctl reload wherry"
            ),
            Delay::NotReloaded(why) => format!(
                "{short}: failed to reload logind: {why}; Wherry retries; systemctl restart systemd-logind also makes \
                 logind read the drop-in"
            ),
            Delay::Overruled(_) => format!(
                "{short}: the drop-in is written and logind was reloaded, but a drop-in with a later name sets less, \
                 or logind does not read the drop-in; find the file with systemd-analyze cat-config \
                 systemd/logind.conf, correct it, and run systemctl reload wherry, which reloads logind"
            ),
        }
    }
}
