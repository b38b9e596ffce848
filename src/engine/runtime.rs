//! The connection to the container runtime, and the status that the runtime reports: when to read it, and whether
//! pods may start (P6).

use crate::api::facts::RuntimeFact;
use crate::api::runtime_features::{CdiDevices, ImageVolumes, RuntimeFeatures, StopSignals};
use crate::api::time::Boot;
use crate::engine::effect::RuntimeCall;
use crate::engine::event::Answer;
use crate::engine::op::OpError;
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use crate::engine::rng::Rng;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// The interval between two status calls while the runtime is not ready. Otherwise `STATUS_PERIOD` applies.
const STATUS_SOON: Duration = Duration::from_secs(1);
const STATUS_PERIOD: Duration = Duration::from_secs(60);

#[derive(Debug, PartialEq, Eq, Serialize)]
enum Connection {
    /// `why`: None before the first attempt to connect.
    Down { why: Option<String> },
    /// `answered`: the runtime has reported its status on this connection.
    Up { answered: bool },
}

#[derive(Debug, Serialize)]
pub struct Runtime {
    connection: Connection,
    /// A status call is in flight.
    reading_status: bool,
    /// The time of the next status call.
    next_status: Option<Boot>,
    /// The last status, perhaps from an earlier connection.
    pub fact: Option<RuntimeFact>,
}

impl Default for Runtime {
    fn default() -> Runtime {
        Runtime { connection: Connection::Down { why: None }, reading_status: false, next_status: None, fact: None }
    }
}

impl Runtime {
    pub fn connected(&mut self) {
        self.connection = Connection::Up { answered: false };
    }

    pub fn disconnected(&mut self, why: String) {
        self.connection = Connection::Down { why: Some(why) };
        self.next_status = None;
    }

    pub fn is_up(&self) -> bool {
        matches!(self.connection, Connection::Up { .. })
    }

    /// Returns true if the runtime has reported its status on the current connection.
    pub fn has_answered(&self) -> bool {
        self.connection == Connection::Up { answered: true }
    }

    /// Returns the reason why there is no connection.
    pub fn error(&self) -> Option<&str> {
        match &self.connection {
            Connection::Down { why } => why.as_deref(),
            Connection::Up { .. } => None,
        }
    }

    /// P6: returns true if the runtime has reported on this connection that it is ready.
    pub fn is_ready(&self) -> bool {
        self.has_answered() && self.fact.as_ref().is_some_and(|f| f.runtime_not_ready.is_none())
    }

    pub fn network_ready(&self) -> bool {
        self.fact.as_ref().is_some_and(|f| f.network_not_ready.is_none())
    }

    /// Returns the optional features of the runtime, perhaps from an earlier connection.
    pub fn features(&self) -> &RuntimeFeatures {
        static NONE: RuntimeFeatures = RuntimeFeatures {
            supplemental_groups_policy: false,
            image_volumes: ImageVolumes::None,
            cdi_devices: CdiDevices::Ignored,
            stop_signals: StopSignals::Reported,
            handlers: BTreeMap::new(),
        };
        self.fact.as_ref().map_or(&NONE, |f| &f.features)
    }

    /// Returns the runtime's name, or `unknown` before the first answer.
    pub fn name(&self) -> &str {
        self.fact.as_ref().map_or("unknown", |f| f.name.as_str())
    }

    /// Returns a string such as `containerd://1.7.0`, which is empty before the first answer.
    pub fn name_and_version(&self) -> String {
        self.fact.as_ref().map(|f| format!("{}://{}", f.name, f.version)).unwrap_or_default()
    }

    /// Returns the time of the next status call. None if a call is in flight, or if there is no connection: the next
    /// connection causes a call.
    pub fn next_status(&self) -> Option<Boot> {
        self.next_status
    }

    /// Requests the status, unless a request is in flight.
    pub fn read_status(&mut self, timeout: Duration, outbox: &mut Outbox) {
        if !self.reading_status && self.is_up() {
            self.reading_status = true;
            self.next_status = None;
            outbox.call_runtime(Owner::RuntimeStatus, RuntimeCall::Status, timeout);
        }
    }

    /// Handles the answer to a status call, and schedules the next call. Returns true if the pods have to be
    /// notified: this is the first answer, or the network has become ready.
    pub fn answered(&mut self, result: Result<Answer, OpError>, now: Boot, rng: &mut Rng) -> bool {
        self.reading_status = false;
        let mut news = false;
        if let Ok(Answer::Runtime(fact)) = result {
            news = self.fact.is_none() || !self.network_ready() && fact.network_not_ready.is_none();
            self.fact = Some(fact);
            if let Connection::Up { answered } = &mut self.connection {
                *answered = true;
            }
        }
        let period = if self.is_ready() && self.network_ready() { STATUS_PERIOD } else { STATUS_SOON };
        self.next_status = self.is_up().then(|| now + rng.jitter(period));
        news
    }

    /// Checks the runtime's health. Returns the runtime's name and version, or the reason why it cannot start pods.
    ///
    /// # Errors
    /// There is no connection, no status yet, or the runtime or its network is not ready.
    pub fn check(&self) -> Result<String, String> {
        match &self.connection {
            Connection::Down { why } => {
                let why = why.as_deref().unwrap_or("not connected yet");
                return Err(format!("no connection to the container runtime: {why}"));
            }
            Connection::Up { answered: false } => return Err("the container runtime has not responded yet".into()),
            Connection::Up { answered: true } => {}
        }
        let Some(fact) = &self.fact else { return Err("the container runtime has not responded yet".into()) };
        match (&fact.runtime_not_ready, &fact.network_not_ready) {
            (Some(why), _) => Err(format!("the container runtime is not ready: {why}")),
            (None, Some(why)) => Err(format!("the container runtime's network is not ready: {why}")),
            (None, None) => Ok(format!("{} {}", fact.name, fact.version)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::effect::Effect;

    fn fact(runtime: Option<&str>, network: Option<&str>) -> RuntimeFact {
        RuntimeFact {
            name: "containerd".into(),
            version: "1.6".into(),
            runtime_not_ready: runtime.map(str::to_owned),
            network_not_ready: network.map(str::to_owned),
            ..RuntimeFact::default()
        }
    }

    /// The number of status calls among the effects.
    fn calls(outbox: &mut Outbox) -> usize {
        outbox.take().iter().filter(|e| matches!(e, Effect::Runtime { call: RuntimeCall::Status, .. })).count()
    }

    fn answer(runtime: &mut Runtime, fact: RuntimeFact) -> (bool, Option<Duration>) {
        let came = runtime.answered(Ok(Answer::Runtime(fact)), Boot(0), &mut Rng::new(1));
        (came, runtime.next_status().map(|at| at.since(Boot(0))))
    }

    #[test]
    fn p6_the_runtime_is_ready_only_after_an_answer_on_this_connection() {
        let (mut runtime, mut outbox) = (Runtime::default(), Outbox::default());
        runtime.read_status(STATUS_SOON, &mut outbox);
        assert_eq!((calls(&mut outbox), runtime.is_ready()), (0, false), "there is no connection");
        runtime.connected();
        runtime.read_status(STATUS_SOON, &mut outbox);
        runtime.read_status(STATUS_SOON, &mut outbox);
        assert_eq!((calls(&mut outbox), runtime.is_ready()), (1, false), "one call at a time");
        answer(&mut runtime, fact(None, None));
        assert!(runtime.is_ready() && runtime.network_ready());
        assert_eq!(runtime.check(), Ok("containerd 1.6".into()));

        runtime.disconnected("EOF".into());
        assert!(!runtime.is_ready());
        assert_eq!(runtime.check(), Err("no connection to the container runtime: EOF".into()));
        runtime.connected();
        assert!(!runtime.is_ready() && runtime.network_ready(), "the last status stays known");
        assert_eq!(runtime.check(), Err("the container runtime has not responded yet".into()));
    }

    #[test]
    fn a_runtime_that_is_not_ready_is_called_again_soon() {
        let mut runtime = Runtime::default();
        runtime.connected();
        assert_eq!(runtime.name(), "unknown");
        let (first, at) = answer(&mut runtime, fact(None, Some("no CNI")));
        assert!(first && at.is_some_and(|at| at <= 2 * STATUS_SOON), "{at:?}");
        assert_eq!(runtime.name(), "containerd");
        assert!(!answer(&mut runtime, fact(None, Some("no CNI"))).0);
        assert_eq!(runtime.check(), Err("the container runtime's network is not ready: no CNI".into()));
        let (came, at) = answer(&mut runtime, fact(None, None));
        assert!(came && at.is_some_and(|at| at >= STATUS_PERIOD / 2), "{at:?}");
        runtime.disconnected("EOF".into());
        assert_eq!(answer(&mut runtime, fact(None, None)), (false, None));
    }
}
