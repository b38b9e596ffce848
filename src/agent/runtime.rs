//! The agent's view of the container runtime: its client, its event stream, and what was logged about it.

use super::event_recorder::EventRecorder;
use super::jobs::Jobs;
use super::logging::LogDeduplicator;
use super::tokens::EVENTS;
use super::{start, system_check};
use crate::adapters::cri::client::{ClientEvent, CriClient};
use crate::adapters::cri::events::{ContainerEvents, StreamEvent};
use crate::adapters::cri::requests::{HostDns, dns_notices};
use crate::api::facts::RuntimeFact;
use crate::api::names::Uid;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::time::{Boot, Now};
use crate::config::Config;
use crate::engine::effect::{Notice, RuntimeCall, Severity, StreamCall, StreamTarget, Subject};
use crate::engine::event::{Event, Kind, PlegEvent};
use crate::engine::op::OpId;
use crate::event_loop::EventLoop;
use crate::metrics::{Metrics, families};
use mio::Registry;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

pub(super) struct Runtime {
    pub(super) client: CriClient,
    pub(super) container_events: ContainerEvents,
    /// A reused buffer for the client's events.
    buffer: Vec<ClientEvent>,
    /// The state that was logged last.
    reported: Option<RuntimeFact>,
    /// Whether `check` has logged its findings.
    checked: bool,
}

/// A RunPodSandbox call that has not been sent yet.
pub(super) struct SandboxCall {
    pub(super) op: OpId,
    pod: Rc<Pod>,
    call: RuntimeCall,
    deadline: Boot,
}

impl Runtime {
    pub(super) fn new(client: CriClient, container_events: ContainerEvents) -> Runtime {
        Runtime { client, container_events, buffer: Vec::new(), reported: None, checked: false }
    }

    /// Reads the runtime's responses. Returns the events of the client, and whether there is more to read.
    pub(super) fn drive(&mut self, now: Boot) -> (Vec<ClientEvent>, bool) {
        let mut out = std::mem::take(&mut self.buffer);
        let again = self.client.drive(now, &mut out);
        (out, again)
    }

    /// Sends new calls, and handles calls whose deadline has passed. Returns the same as `drive`.
    pub(super) fn flush(&mut self, now: Boot) -> (Vec<ClientEvent>, bool) {
        let mut out = std::mem::take(&mut self.buffer);
        let again = self.client.flush(now, &mut out);
        (out, again)
    }

    /// Takes back the buffer that `drive` or `flush` has returned.
    pub(super) fn reuse(&mut self, buffer: Vec<ClientEvent>) {
        self.buffer = buffer;
    }

    /// Starts a call. A call that creates a sandbox is returned instead, because it needs the DNS settings of the
    /// host.
    pub(super) fn call(&mut self, op: OpId, call: RuntimeCall, timeout: Duration, now: Now) -> Option<SandboxCall> {
        log_call(&call);
        match &call {
            RuntimeCall::RunSandbox { pod, .. } => {
                Some(SandboxCall { op, pod: pod.clone(), deadline: now.boot + timeout, call })
            }
            _ => {
                self.client.start(op, call, timeout, now.boot);
                None
            }
        }
    }

    /// Starts a call that creates a sandbox. `host` has the host's DNS settings; if the read gave no result in time
    /// (None), the last known settings are used. Returns notices about the settings that the pod does not get.
    pub(super) fn run_sandbox(&mut self, sandbox: SandboxCall, host: Option<HostDns>, now: Now) -> Vec<Notice> {
        let SandboxCall { op, pod, call, deadline } = sandbox;
        let cfg = self.client.config_mut();
        if let Some(host) = host {
            cfg.host_dns = host;
        }
        let severity = Severity::Warning;
        let notice = |(reason, message)| Notice {
            subject: Subject::Pod(pod.clone()),
            container: None,
            severity,
            reason,
            message,
        };
        let notices = dns_notices(&pod, cfg).into_iter().map(notice).collect();
        self.client.start(op, call, deadline.since(now.boot), now.boot);
        notices
    }

    /// Checks the first report of the runtime or the first failure to connect, and logs the findings. Does this once;
    /// other code logs later changes.
    pub(super) fn check(&mut self, answers: Result<&RuntimeFact, &str>, config: &Config, jobs: &mut Jobs, now: Now) {
        if !std::mem::replace(&mut self.checked, true) {
            system_check::check_runtime(answers, config, jobs, now);
        }
    }

    /// Logs the runtime's state and records an event of the node, if the state has changed. Returns true if it has.
    pub(super) fn report(&mut self, fact: &RuntimeFact, recorder: &mut EventRecorder, now: Now) -> bool {
        if self.reported.as_ref() == Some(fact) {
            return false;
        }
        let not_ready = fact.runtime_not_ready.as_ref().map(|why| ("runtime", Reason::RuntimeNotReady, why));
        match not_ready.or(fact.network_not_ready.as_ref().map(|why| ("network", Reason::NetworkNotReady, why))) {
            Some((what, reason, why)) => {
                log::warn!("{what}=not-ready name={} version={} error={why:?}", fact.name, fact.version);
                recorder.node_event(Severity::Warning, reason, why, now);
            }
            None => {
                log::info!("runtime=ready name={} version={}", fact.name, fact.version);
                let message = format!("{} {} is ready", fact.name, fact.version);
                recorder.node_event(Severity::Normal, Reason::RuntimeReady, &message, now);
            }
        }
        self.reported = Some(fact.clone());
        true
    }

    /// P8: requests the runtime's event stream if it is not open. Called when the runtime's CRI service responds.
    pub(super) fn open_container_events(&mut self, socket: &Path, registry: &Registry) {
        if self.container_events.is_closed() {
            match start::transport(socket, registry, EVENTS) {
                Ok(transport) => self.container_events.open(transport),
                Err(e) => log::warn!("failed to open the runtime's event stream error={e:?}"),
            }
        }
    }

    /// Reads the event stream. Returns the events for the engine: only the last event of each container in this turn,
    /// because events are just hints.
    pub(super) fn drive_container_events(
        &mut self,
        event_loop: &mut EventLoop,
        metrics: &Metrics,
        log: &mut LogDeduplicator,
        now: Now,
    ) -> impl Iterator<Item = Event> + use<> {
        let mut out = Vec::new();
        if self.container_events.drive(now.boot, &mut out) {
            event_loop.again(EVENTS);
        }
        let mut runtime_events: BTreeMap<(Option<Uid>, String), Kind> = BTreeMap::new();
        for event in out {
            match event {
                StreamEvent::Requested => {
                    log::debug!("listening to the runtime's container events");
                    metrics.inc(families::EVENT_STREAMS, []);
                }
                StreamEvent::Happened { uid, event: PlegEvent { id, kind }, at } => {
                    log::trace!("event={kind:?} id={id} uid={}", uid.as_ref().map_or("unknown", Uid::as_str));
                    metrics.observe(families::EVENT_LATENCY, [], now.wall.since(at).as_secs_f64());
                    runtime_events.insert((uid, id), kind);
                }
                StreamEvent::InvalidAnswer { why } => log_stream_failure(log, &why, now.boot),
                StreamEvent::Lost { why } => {
                    metrics.inc(families::EVENT_STREAM_ERRORS, []);
                    log_stream_failure(log, &why, now.boot);
                }
                StreamEvent::Unimplemented => {
                    log::info!("the runtime has no container event stream; Wherry relies on relists and pidfds");
                    metrics.inc(families::EVENT_STREAM_ERRORS, []);
                }
                StreamEvent::Off => {
                    log::info!(
                        "the runtime immediately ended its container event stream: its container events are disabled \
                         (CRI-O: enable_pod_events); Wherry relies on relists and pidfds"
                    );
                    metrics.inc(families::EVENT_STREAM_ERRORS, []);
                }
            }
        }
        runtime_events.into_iter().map(|((uid, id), kind)| Event::RuntimeEvent { uid, event: PlegEvent { id, kind } })
    }
}

fn log_stream_failure(log: &mut LogDeduplicator, why: &str, now: Boot) {
    if let Some(repeated) = log.repetitions(&format!("container events: {why}"), now) {
        log::info!("the runtime's container event stream failed error={why:?} repeated={repeated}");
    }
}

/// Logs commands and streams, because anyone with access to the control socket can start them. The arguments of a
/// command are not logged, because they may contain secrets.
fn log_call(call: &RuntimeCall) {
    match call {
        RuntimeCall::Exec(exec) => {
            let (pod, container, timeout) = (&exec.pod.name, &exec.container, exec.timeout.as_secs());
            log::info!("pod={pod} container={container} reason=Exec timeout={timeout}s");
        }
        RuntimeCall::Stream(stream) => log_stream(stream),
        _ => {}
    }
}

fn log_stream(stream: &StreamCall) {
    let pod = &stream.pod.name;
    match &stream.target {
        StreamTarget::Exec { container, channels, .. } => {
            log::info!("pod={pod} container={container} reason=Exec stdin={} tty={}", channels.stdin, channels.tty);
        }
        StreamTarget::Attach { container, channels, .. } => {
            log::info!("pod={pod} container={container} reason=Attach stdin={} tty={}", channels.stdin, channels.tty);
        }
        StreamTarget::PortForward { .. } => log::info!("pod={pod} reason=PortForward"),
    }
}
