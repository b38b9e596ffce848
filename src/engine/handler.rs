//! The handlers of probes and hooks, and the calls to the runtime that carry out exec handlers.
//!
//! The other handlers (http, tcp, grpc, sleep) do not need the runtime. The agent carries them out as the effects
//! `Probe` and `Hook`, and `Target` describes their destination.

use crate::api::expand;
use crate::api::k8s::IntOrString;
use crate::api::k8s::{Container, LifecycleHandler};
use crate::api::names::ContainerId;
use crate::api::pod::Pod;
use crate::engine::probe::Kind;
use crate::engine::target::{Destination, GrpcTarget, HttpTarget, PodAddress, Target};
use std::rc::Rc;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookKind {
    PostStart,
    PreStop,
}

#[derive(Clone, Debug, PartialEq)]
pub struct HookCall {
    pub kind: HookKind,
    /// None for an orphan: the handler comes from the container's annotation (W21).
    pub pod: Option<Rc<Pod>>,
    pub container: String,
    pub id: ContainerId,
    pub handler: LifecycleHandler,
    pub address: PodAddress,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ProbeCall {
    pub kind: Kind,
    pub pod: Rc<Pod>,
    /// The container's name. Its spec contains the handler.
    pub container: String,
    pub id: ContainerId,
    pub address: PodAddress,
}

/// The exec handler of a probe or a hook.
#[derive(Clone, Debug, PartialEq)]
pub enum Handler {
    Probe(ProbeCall),
    Hook(Box<HookCall>),
}

/// The ExecSync call that runs the command of a handler.
#[derive(Clone, Debug, PartialEq)]
pub struct HandlerCall {
    pub handler: Handler,
    /// The runtime kills a command that runs longer than this. CRI timeouts are in whole seconds.
    pub timeout: Duration,
}

impl Handler {
    /// Returns the destination of a handler that does not need the runtime.
    ///
    /// # Errors
    /// The port or the pod's address is unknown, or the handler is an exec handler, which has no destination.
    pub fn target(&self) -> Result<Target, String> {
        match self {
            Handler::Probe(call) => call.target(),
            Handler::Hook(call) => call.target(),
        }
    }

    pub fn id(&self) -> &ContainerId {
        match self {
            Handler::Probe(call) => &call.id,
            Handler::Hook(call) => &call.id,
        }
    }

    /// Returns the program and its arguments. A probe's command may refer to environment variables that have a plain
    /// value.
    pub fn command(&self) -> Vec<String> {
        match self {
            Handler::Probe(call) => call.command().unwrap_or_default(),
            Handler::Hook(call) => call.command().unwrap_or_default().to_vec(),
        }
    }
}

impl ProbeCall {
    /// # Errors
    /// The port or the pod's address is unknown, or the handler is an exec handler, which has no destination.
    pub fn target(&self) -> Result<Target, String> {
        let none = || "the probe has no handler".to_owned();
        let container = self.pod.container(&self.container).ok_or_else(none)?;
        let probe = self.kind.spec(container).ok_or_else(none)?;
        if let Some(get) = &probe.http_get {
            return HttpTarget::new(get, container, &self.address).map(Target::Http);
        }
        if let Some(grpc) = &probe.grpc {
            let to = Destination::new(None, &IntOrString::Int(grpc.port), container, &self.address)?;
            return Ok(Target::Grpc(GrpcTarget { to, service: grpc.service.clone().unwrap_or_default() }));
        }
        let tcp = probe.tcp_socket.as_ref().ok_or_else(none)?;
        Destination::new(tcp.host.as_ref(), &tcp.port, container, &self.address).map(Target::Tcp)
    }
}

impl HookCall {
    /// # Errors
    /// The same as for `ProbeCall::target`.
    pub fn target(&self) -> Result<Target, String> {
        if let Some(sleep) = &self.handler.sleep {
            return Ok(Target::Sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0))));
        }
        // An orphan has no spec, so a named port is unknown (W21).
        let unknown = Container::default();
        let container = self.pod.as_ref().and_then(|pod| pod.container(&self.container)).unwrap_or(&unknown);
        if let Some(get) = &self.handler.http_get {
            return HttpTarget::new(get, container, &self.address).map(Target::Http);
        }
        let tcp = self.handler.tcp_socket.as_ref().ok_or_else(|| "the hook has no handler".to_owned())?;
        Destination::new(tcp.host.as_ref(), &tcp.port, container, &self.address).map(Target::Tcp)
    }
}

impl ProbeCall {
    /// Returns the expanded command of an exec handler; None for any other handler.
    pub fn command(&self) -> Option<Vec<String>> {
        let container = self.pod.container(&self.container)?;
        let exec = self.kind.spec(container)?.exec.as_ref()?;
        Some(expand::static_command(exec.command.as_deref().unwrap_or_default(), container))
    }
}

impl HookCall {
    /// Returns the command of an exec handler; None for any other handler.
    pub fn command(&self) -> Option<&[String]> {
        self.handler.exec.as_ref().map(|exec| exec.command.as_deref().unwrap_or_default())
    }
}
