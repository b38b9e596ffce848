//! Device plugins: their lists, and the calls that they get.

use super::{Item, MS, World};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wherry::api::devices::{API_VERSION, Allocated, Device, Registration};
use wherry::engine::effect::{CreateContainer, DeviceCall};
use wherry::engine::event::{Answer, DeviceEvent, Event};
use wherry::engine::op::{Code, OpError, OpId};

/// The variable in which a plugin of the model names the devices.
const VARIABLE: &str = "DEVICES";

#[derive(Default)]
pub struct DevicePlugins {
    /// By resource: the devices of plugins that run.
    pub lists: BTreeMap<String, Vec<Device>>,
    /// Plugins that want a call before each start.
    pub pre_start: BTreeSet<String>,
    /// The answers to registrations.
    pub answers: Vec<Result<(), String>>,
    /// The calls: `Allocate v.io/cam a,b`.
    pub calls: Vec<String>,
    /// The next calls fail with these messages.
    pub failures: Vec<String>,
    /// Calls are not answered.
    pub hang: bool,
}

pub fn device(id: &str, healthy: bool) -> Device {
    Device { id: id.into(), healthy }
}

impl DevicePlugins {
    pub fn works_again(&mut self) {
        self.hang = false;
        self.failures.clear();
    }
}

impl World {
    /// A plugin starts and registers.
    pub fn plugin(&mut self, resource: &str, ids: &[&str]) {
        self.devices.lists.insert(resource.into(), ids.iter().map(|id| device(id, true)).collect());
        self.register_plugin(resource);
    }

    fn register_plugin(&mut self, resource: &str) {
        let registration = Registration {
            version: API_VERSION.into(),
            endpoint: "plugin.sock".into(),
            resource: resource.into(),
            pre_start: self.devices.pre_start.contains(resource),
        };
        self.step(Event::Device(DeviceEvent::Register { id: 1, registration }));
    }

    /// The plugin sends its list again.
    pub fn devices_are(&mut self, resource: &str, devices: Vec<Device>) {
        self.devices.lists.insert(resource.into(), devices.clone());
        self.step(Event::Device(DeviceEvent::Listed { resource: resource.into(), devices }));
    }

    pub fn plugin_ends(&mut self, resource: &str) {
        self.devices.lists.remove(resource);
        let why = "connection closed".into();
        self.step(Event::Device(DeviceEvent::Lost { resource: resource.into(), why }));
    }

    /// The plugins see the new socket of a Wherry that has started, and register again.
    pub fn plugins_register_again(&mut self) {
        let resources: Vec<String> = self.devices.lists.keys().cloned().collect();
        resources.iter().for_each(|resource| self.register_plugin(resource));
    }

    pub(super) fn watch_devices(&mut self, resource: String) {
        if let Some(devices) = self.devices.lists.get(&resource).cloned() {
            self.event_in(MS, Event::Device(DeviceEvent::Listed { resource, devices }));
        }
    }

    pub(super) fn device_call(&mut self, op: OpId, call: DeviceCall, timeout: Duration) {
        self.begin(op);
        let (text, answer) = match call {
            DeviceCall::Allocate { resource, ids } => {
                let env = [(VARIABLE.to_owned(), ids.join(","))].into();
                let allocated = Allocated { env, cdi: vec![format!("{resource}={}", ids[0])], ..Allocated::default() };
                (format!("Allocate {resource} {}", ids.join(",")), Answer::Allocated(Box::new(allocated)))
            }
            DeviceCall::PreStart { resource, ids } => (format!("PreStart {resource} {}", ids.join(",")), Answer::Ok),
        };
        self.note(|| format!("  < {op} {text}"));
        self.devices.calls.push(text);
        let key = (self.process.life, op);
        if self.devices.hang {
            let result = Err(OpError::Unknown("deadline exceeded".into()));
            return self.at(timeout.as_nanos() as u64, Item::Answer { key, result });
        }
        let result = match self.devices.failures.pop() {
            Some(message) => Err(OpError::Answered { code: Code::Other(2), message }),
            None => Ok(answer),
        };
        self.at(MS, Item::Answer { key, result });
    }

    /// G3: no two containers that run have the same device.
    pub(super) fn check_devices(&mut self, create: &CreateContainer) {
        let Some((_, ids)) = create.process.env.iter().find(|(name, _)| name == VARIABLE) else { return };
        let wanted: BTreeSet<&str> = ids.split(',').collect();
        let others = self.runtime.containers.values().filter(|c| c.runs() && c.uid != create.pod.uid);
        let twice = others
            .filter_map(|c| Some((&c.id, c.devices.as_deref()?)))
            .find(|(_, ids)| ids.split(',').any(|id| wanted.contains(id)));
        if let Some((id, _)) = twice {
            let what = format!("{}/{} gets a device that {id} has", create.pod.name, create.container);
            self.checks.fail("G3", what);
        }
    }
}
