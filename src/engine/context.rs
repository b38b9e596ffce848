//! The context of one step of a worker: the time, the configuration, the node's limits, and the outbox.

use crate::api::credential_provider::Provider;
use crate::api::data_object::DataObjects;
use crate::api::environment::ClusterValues;
use crate::api::names::Uid;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::runtime_class::RuntimeClasses;
use crate::api::runtime_features::{HandlerFeatures, RuntimeFeatures};
use crate::api::services;
use crate::api::time::Now;
use crate::engine::claims::Claims;
use crate::engine::config::EngineConfig;
use crate::engine::control::exec;
use crate::engine::devices::Devices;
use crate::engine::effect::{
    CgroupCall, DeviceCall, Effect, FilesCall, HookCall, ProbeCall, RecordChange, RuntimeCall, Severity, VolumesCall,
};
use crate::engine::handler::{Handler, HandlerCall};
use crate::engine::op::{OpError, OpId};
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use crate::engine::pleg::cache::Generation;
use crate::engine::provider_cache::ProviderCache;
use crate::engine::rng::Rng;
use crate::engine::services::Services;
use crate::engine::slots::StartSlots;
use crate::engine::user_namespaces::UserNamespaces;
use std::rc::Rc;
use std::time::Duration;

/// The time that a kubelet waits for a pod's volumes before it reports an error and retries.
const VOLUMES_TIMEOUT: Duration = Duration::from_secs(123);
/// A file system that does not answer for this long is treated as hung.
const FILE_TIMEOUT: Duration = Duration::from_secs(5);
/// A kubelet's limit for PreStartContainer.
const DEVICE_TIMEOUT: Duration = Duration::from_secs(30);
/// A kubelet's limit for a credential provider.
const PROVIDER_TIMEOUT: Duration = Duration::from_secs(60);

/// The objects that the pods of a source can refer to.
#[derive(Clone, Copy)]
pub struct ObjectsOfPod<'a> {
    /// The ConfigMaps and Secrets in force.
    pub data: &'a DataObjects,
    pub claims: &'a Claims,
    pub services: &'a Services,
    /// The services for the environment of containers.
    pub variables: &'a services::Services,
}

pub struct Context<'a> {
    pub now: Now,
    pub generation: Generation,
    pub config: &'a EngineConfig,
    pub objects: ObjectsOfPod<'a>,
    /// Only set for a pod of the API server.
    pub cluster: Option<ClusterValues<'a>>,
    pub rng: &'a mut Rng,
    pub slots: &'a mut StartSlots,
    pub provider_cache: &'a mut ProviderCache,
    pub devices: &'a mut Devices,
    pub user_namespaces: &'a mut UserNamespaces,
    pub outbox: &'a mut Outbox,
    /// The runtime is connected.
    pub up: bool,
    /// The runtime is ready and PLEG is healthy (P6): pods and containers may be started.
    pub may_start: bool,
    /// The machine is shutting down and waits for the containers. Work that the power-off makes unnecessary, such as
    /// stopping sandboxes, is postponed (S4).
    pub hurried: bool,
    /// No pod may start (S4).
    pub shutting_down: bool,
    /// E3: the node has disk pressure, so dead containers are not kept for their logs.
    pub short_of_disk: bool,
    /// The runtime reports that its network is ready.
    pub network_ready: bool,
    pub runtime_name: &'a str,
    pub runtime_classes: &'a RuntimeClasses,
    /// The optional features that the runtime reports.
    pub runtime_features: &'a RuntimeFeatures,
}

impl Context<'_> {
    pub fn runtime(&mut self, uid: &Uid, call: RuntimeCall) -> OpId {
        let base = self.config.request_timeout;
        let timeout = match &call {
            // As in a kubelet: twice the timeout, because network plugins run in this call.
            RuntimeCall::RunSandbox { .. } => base * 2,
            RuntimeCall::StopContainer { grace, .. } => base + *grace,
            RuntimeCall::PullImage { .. } => self.config.pull_timeout,
            _ => base,
        };
        self.begin(uid, |op| Effect::Runtime { op, call, timeout })
    }

    pub fn files(&mut self, uid: &Uid, call: FilesCall) -> OpId {
        self.begin(uid, |op| Effect::Files { op, call })
    }

    pub fn cgroup(&mut self, uid: &Uid, call: CgroupCall) -> OpId {
        self.begin(uid, |op| Effect::Cgroup { op, call })
    }

    pub fn volumes(&mut self, uid: &Uid, call: VolumesCall) -> OpId {
        self.begin(uid, |op| Effect::Volumes { op, call, timeout: VOLUMES_TIMEOUT })
    }

    pub fn read_docker_config(&mut self, uid: &Uid) -> OpId {
        self.begin(uid, |op| Effect::ReadDockerConfig { op, timeout: FILE_TIMEOUT })
    }

    pub fn ask_provider(&mut self, uid: &Uid, provider: Provider, repository: String) -> OpId {
        let provider = Box::new(provider);
        self.begin(uid, |op| Effect::AskProvider { op, provider, repository, timeout: PROVIDER_TIMEOUT })
    }

    pub fn hook(&mut self, uid: &Uid, call: HookCall, timeout: Duration) -> OpId {
        match call.command() {
            Some(_) => self.handler(uid, Handler::Hook(Box::new(call)), timeout),
            None => self.begin(uid, |op| Effect::Hook { op, call: Box::new(call), timeout }),
        }
    }

    pub fn probe(&mut self, uid: &Uid, call: ProbeCall, timeout: Duration) -> OpId {
        match call.command() {
            Some(_) => self.handler(uid, Handler::Probe(call), timeout),
            None => self.begin(uid, |op| Effect::Probe { op, call, timeout }),
        }
    }

    /// Sets a longer deadline for the call than for the command, because the runtime first has to kill the command.
    fn handler(&mut self, uid: &Uid, handler: Handler, timeout: Duration) -> OpId {
        let call = RuntimeCall::Handler(Box::new(HandlerCall { handler, timeout }));
        self.begin(uid, |op| Effect::Runtime { op, call, timeout: timeout.saturating_add(exec::AFTER_TIMEOUT) })
    }

    pub fn device(&mut self, uid: &Uid, call: DeviceCall) -> OpId {
        self.begin(uid, |op| Effect::Device { op, call, timeout: DEVICE_TIMEOUT })
    }

    pub fn record(&mut self, uid: &Uid, change: RecordChange) -> OpId {
        self.outbox.record(Owner::Worker(uid.clone()), change)
    }

    fn begin(&mut self, uid: &Uid, effect: impl FnOnce(OpId) -> Effect) -> OpId {
        self.outbox.begin(Owner::Worker(uid.clone()), effect)
    }

    /// Returns the features of the pod's runtime handler.
    pub fn handler_features(&self, pod: &Pod) -> HandlerFeatures {
        let handler = self.runtime_classes.handler(pod.spec());
        handler.map(|handler| self.runtime_features.of_handler(handler)).unwrap_or_default()
    }

    pub fn emit_normal(&mut self, pod: Option<&Rc<Pod>>, container: Option<&str>, reason: Reason, message: String) {
        self.outbox.emit_event(pod, container, Severity::Normal, reason, message);
    }

    pub fn emit_warning(&mut self, pod: Option<&Rc<Pod>>, container: Option<&str>, reason: Reason, message: String) {
        self.outbox.emit_event(pod, container, Severity::Warning, reason, message);
    }

    /// W9: returns the delay after an error, with jitter.
    pub fn after_error(&mut self) -> Duration {
        self.rng.jitter(Duration::from_secs(10))
    }
}

/// Returns true if the call was not sent because the connection was lost. The node reports the lost connection, and
/// steps every worker when the connection is back. Any other error gets an event and a back-off, even if nothing was
/// sent.
pub fn runtime_is_gone(e: &OpError, ctx: &Context<'_>) -> bool {
    matches!(e, OpError::NotSent(_)) && !ctx.up
}
