//! The devices of device plugins (G): which plugin provides which resource, which devices are healthy, and which pod
//! has which device.
//!
//! A plugin registers itself, and its list of devices follows. If its connection is lost, its devices are considered
//! gone until it registers again; containers keep the devices that they already have.

use crate::api::cluster::node::DeviceAmount;
use crate::api::devices::{API_VERSION, Device, PodDevices, Registration, is_device_resource};
use crate::api::names::Uid;
use crate::api::node_facts::NodeFacts;
use crate::api::ordered::CollectOrdered;
use crate::api::resources::Resources;
use serde::Serialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of plugins.
const MAX_PLUGINS: usize = 64;

#[derive(Debug, Default, Serialize)]
pub struct Devices {
    /// The plugins, by resource.
    plugins: BTreeMap<String, Plugin>,
    /// By resource: the devices that pods have.
    used: BTreeMap<String, BTreeMap<String, Uid>>,
}

#[derive(Debug, Serialize)]
struct Plugin {
    registration: Registration,
    state: State,
}

#[derive(Debug, Serialize)]
enum State {
    /// The plugin's list has not arrived yet.
    Registered,
    /// By id: whether the device is healthy.
    Listed(BTreeMap<String, bool>),
    /// The connection was lost.
    Lost,
}

impl Plugin {
    fn devices(&self) -> impl Iterator<Item = (&String, &bool)> {
        let devices = match &self.state {
            State::Listed(devices) => Some(devices),
            State::Registered | State::Lost => None,
        };
        devices.into_iter().flatten()
    }

    fn all(&self) -> impl Iterator<Item = &String> {
        self.devices().map(|(id, _)| id)
    }

    fn healthy(&self) -> impl Iterator<Item = &String> {
        self.devices().filter(|(_, healthy)| **healthy).map(|(id, _)| id)
    }
}

impl Devices {
    /// G1: registers a plugin. A later registration of the same resource replaces the earlier one.
    ///
    /// # Errors
    /// The registration is not valid. The text is the reply to the plugin.
    pub fn register(&mut self, registration: Registration) -> Result<(), String> {
        let Registration { version, endpoint, resource, .. } = &registration;
        if version != API_VERSION {
            return Err(format!("version: {version:?} is not supported; use {API_VERSION:?}"));
        }
        if !is_device_resource(resource) {
            return Err(format!(
                "resource_name: {resource:?} is not the name of an extended resource; use a name like \
                 vendor.example/device"
            ));
        }
        if endpoint.is_empty() || endpoint.contains('/') || endpoint == "." || endpoint == ".." {
            return Err(format!(
                "endpoint: {endpoint:?} is not a file name; use the name of the plugin's socket in the same directory"
            ));
        }
        if self.plugins.len() >= MAX_PLUGINS && !self.plugins.contains_key(resource) {
            return Err(format!("there are {MAX_PLUGINS} device plugins already; stop one of them"));
        }
        self.plugins.insert(resource.clone(), Plugin { registration, state: State::Registered });
        Ok(())
    }

    /// Stores the list that the plugin has sent. Returns true if it differs from the previous one.
    pub fn listed(&mut self, resource: &str, devices: Vec<Device>) -> bool {
        let Some(plugin) = self.plugins.get_mut(resource) else { return false };
        let devices: BTreeMap<String, bool> = devices.into_iter().map(|d| (d.id, d.healthy)).collect_map();
        let same = matches!(&plugin.state, State::Listed(current) if *current == devices);
        plugin.state = State::Listed(devices);
        !same
    }

    /// Marks the plugin as lost: its connection has ended.
    pub fn lost(&mut self, resource: &str) {
        if let Some(plugin) = self.plugins.get_mut(resource) {
            plugin.state = State::Lost;
        }
    }

    /// Returns true if the plugin has to be called before each start of a container.
    pub fn needs_pre_start(&self, resource: &str) -> bool {
        self.plugins.get(resource).is_some_and(|plugin| plugin.registration.pre_start)
    }

    /// G2: finds the first resource that the pod requests and of which no plugin provides enough now. Returns a
    /// message for people. `configured`: the resources that the configuration of the node provides.
    pub fn missing(&self, requested: &Resources, configured: &Resources) -> Option<String> {
        let mut all = requested.iter().filter(|(name, _)| is_device_resource(name) && configured.get(name) == 0);
        all.find_map(|(name, amount)| match self.plugins.get(name) {
            None => Some(format!(
                "waiting for a device plugin that provides {name}: none has registered; start it, or correct \
                 resources.limits"
            )),
            Some(plugin) => {
                let healthy = plugin.healthy().count() as u64;
                let short = healthy < amount;
                short.then(|| format!("waiting for healthy devices: {name}, requested: {amount}, healthy: {healthy}"))
            }
        })
    }

    /// Returns the resources that plugins have provided since the start.
    pub fn resources(&self) -> impl Iterator<Item = &str> {
        self.plugins.keys().map(String::as_str)
    }

    /// Returns how many devices the plugins provide, by resource, for the API server. A lost plugin has no devices
    /// *(ours: a kubelet shows them as unhealthy for five minutes)*.
    pub fn amounts(&self) -> BTreeMap<String, DeviceAmount> {
        let amount = |plugin: &Plugin| DeviceAmount {
            capacity: plugin.all().count() as u64,
            allocatable: plugin.healthy().count() as u64,
        };
        self.plugins.iter().map(|(resource, plugin)| (resource.clone(), amount(plugin))).collect_map()
    }

    /// Returns the node's facts with the healthy devices as resources. A device that a pod uses is included even if
    /// it is no longer healthy.
    pub fn with_devices<'n>(&self, node: &'n NodeFacts) -> Cow<'n, NodeFacts> {
        if self.plugins.is_empty() {
            return Cow::Borrowed(node);
        }
        let mut node = node.clone();
        for (resource, plugin) in &self.plugins {
            let used = || self.used.get(resource).into_iter().flatten().map(|(id, _)| id);
            let count = |ids: BTreeSet<&String>| ids.len() as u64;
            // The configuration of the node takes precedence over plugins.
            if node.capacity.get(resource) == 0 {
                node.capacity.set(resource, count(plugin.all().chain(used()).collect_set()));
                node.allocatable.set(resource, count(plugin.healthy().chain(used()).collect_set()));
            }
        }
        Cow::Owned(node)
    }

    /// G3: takes this many devices for the pod: first those in `reuse`, which the pod has already, then free healthy
    /// ones.
    ///
    /// # Errors
    /// Too few devices are available. The text is for people.
    pub fn take(&mut self, resource: &str, amount: u64, uid: &Uid, reuse: &[String]) -> Result<Vec<String>, String> {
        let plugin = self.plugins.get(resource).ok_or_else(|| format!("no device plugin provides {resource}"))?;
        let used = self.used.entry(resource.to_owned()).or_default();
        let healthy = |id: &&String| plugin.healthy().any(|other| other == *id);
        let free = plugin.healthy().filter(|id| !used.contains_key(*id));
        let free = reuse.iter().filter(healthy).chain(free);
        let wanted = usize::try_from(amount).unwrap_or(usize::MAX);
        let ids: Vec<String> = free.take(wanted).cloned().collect();
        if ids.len() < wanted {
            let found = ids.len();
            return Err(format!("{resource}: {amount} healthy devices are needed, and {found} are free"));
        }
        used.extend(ids.iter().map(|id| (id.clone(), uid.clone())));
        Ok(ids)
    }

    /// Gives back devices that the plugin did not allocate. A device that another pod has taken meanwhile stays with
    /// that pod.
    pub fn give_back(&mut self, resource: &str, ids: &[String], uid: &Uid) {
        if let Some(used) = self.used.get_mut(resource) {
            used.retain(|id, of| of != uid || !ids.contains(id));
        }
    }

    /// Marks as used the devices that a pod of a previous run has.
    pub fn restore(&mut self, uid: &Uid, devices: &PodDevices) {
        for (resource, granted) in devices.values().flatten() {
            let used = self.used.entry(resource.clone()).or_default();
            used.extend(granted.ids.iter().map(|id| (id.clone(), uid.clone())));
        }
    }

    /// Releases the devices of a pod that has ended. Returns true if it had any.
    pub fn release(&mut self, uid: &Uid) -> bool {
        let mut any = false;
        for used in self.used.values_mut() {
            let before = used.len();
            used.retain(|_, of| of != uid);
            any |= used.len() < before;
        }
        self.used.retain(|_, used| !used.is_empty());
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registration(resource: &str) -> Registration {
        Registration {
            version: API_VERSION.into(),
            endpoint: "a.sock".into(),
            resource: resource.into(),
            pre_start: false,
        }
    }

    fn device(id: &str, healthy: bool) -> Device {
        Device { id: id.into(), healthy }
    }

    fn with_devices() -> Devices {
        let mut devices = Devices::default();
        devices.register(registration("v.io/cam")).unwrap();
        assert!(devices.listed("v.io/cam", vec![device("a", true), device("b", true), device("c", false)]));
        devices
    }

    #[test]
    fn g1_a_registration_is_checked() {
        let mut devices = Devices::default();
        for (change, why) in [
            (
                Registration { version: "v1alpha".into(), ..registration("v.io/cam") },
                "version: \"v1alpha\" is not supported; use \"v1beta1\"",
            ),
            (registration("cpu"), "resource_name: \"cpu\" is not the name"),
            (
                Registration { endpoint: "../a".into(), ..registration("v.io/cam") },
                "endpoint: \"../a\" is not a file name",
            ),
        ] {
            let error = devices.register(change).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        assert_eq!(devices.register(registration("v.io/cam")), Ok(()));
    }

    #[test]
    fn g3_a_device_belongs_to_one_pod_until_that_has_ended() {
        let mut devices = with_devices();
        let (one, two) = (Uid::from("1"), Uid::from("2"));
        assert_eq!(devices.take("v.io/cam", 1, &one, &[]), Ok(vec!["a".into()]));
        assert_eq!(
            devices.take("v.io/cam", 2, &two, &[]),
            Err("v.io/cam: 2 healthy devices are needed, and 1 are free".into())
        );
        assert_eq!(devices.take("v.io/cam", 1, &two, &[]), Ok(vec!["b".into()]));
        assert!(devices.release(&one) && !devices.release(&one));
        assert_eq!(devices.take("v.io/cam", 1, &two, &[]), Ok(vec!["a".into()]));
    }

    #[test]
    fn g3_a_device_that_another_pod_has_taken_is_not_given_back() {
        let mut devices = with_devices();
        let (one, two) = (Uid::from("1"), Uid::from("2"));
        let ids = devices.take("v.io/cam", 2, &one, &[]).unwrap();
        devices.release(&one);
        assert_eq!(devices.take("v.io/cam", 1, &two, &[]), Ok(vec!["a".into()]));
        devices.give_back("v.io/cam", &ids, &one);
        assert_eq!(devices.take("v.io/cam", 1, &one, &[]), Ok(vec!["b".into()]));
        devices.give_back("v.io/cam", &ids, &one);
        assert_eq!(devices.take("v.io/cam", 1, &one, &[]), Ok(vec!["b".into()]));
    }

    #[test]
    fn g2_only_healthy_devices_and_those_in_use_count() {
        let mut devices = with_devices();
        let node = NodeFacts::default();
        let found = devices.with_devices(&node).into_owned();
        assert_eq!((found.capacity.get("v.io/cam"), found.allocatable.get("v.io/cam")), (3, 2));
        devices.take("v.io/cam", 1, &"1".into(), &[]).unwrap();
        devices.lost("v.io/cam");
        assert_eq!(devices.with_devices(&node).allocatable.get("v.io/cam"), 1);
        let requested = |n| Resources::from([("v.io/cam", n), ("cpu", 1)]);
        let wanted = "waiting for healthy devices: v.io/cam, requested: 1, healthy: 0";
        assert_eq!(devices.missing(&requested(1), &node.allocatable), Some(wanted.into()));
        assert_eq!(devices.missing(&requested(0), &node.allocatable), None);
        let other = Resources::from([("v.io/tpu", 1)]);
        let message = devices.missing(&other, &node.allocatable).unwrap();
        assert!(message.starts_with("waiting for a device plugin that provides v.io/tpu: "), "{message}");
    }
}
