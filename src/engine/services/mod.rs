//! Services (Y24 to Y29): addresses that stand for the pods behind them, and their names.
//!
//! `wanted` says what a service asks for, `allocation` gives it addresses and node ports, which `record` keeps, and
//! `endpoints` finds what is behind it; `entry` is one service with all of that. `forwarding` makes the rules for the
//! kernel, and `kernel_table` keeps them there. `service_names` makes the lines for the hosts files of pods, and
//! `hosts_files` keeps them there. `shown` makes the objects that the API shows. Everything follows from the manifests
//! and the pods: a step computes it again, and compares.

pub mod allocation;
pub mod endpoints;
pub mod entry;
pub mod forwarding;
pub mod hosts_files;
pub mod kernel_table;
pub mod record;
pub mod service_names;
pub mod shown;
pub mod wanted;

use crate::api::event_object::InvolvedKind;
use crate::api::k8s;
use crate::api::names::FullName;
use crate::api::network_object::NetworkObject;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::service_settings::ServiceSettings;
use crate::api::services::{self, ServicePort};
use crate::api::time::Boot;
use crate::engine::effect::{RecordChange, Severity, Subject};
use crate::engine::event::Answer;
use crate::engine::machine_addresses::MachineAddresses;
use crate::engine::op::OpError;
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use crate::engine::rewriting::Rewriting;
use allocation::Allocation;
use endpoints::ServicePod;
use entry::ServiceEntry;
use hosts_files::{HostsFiles, NamedPod};
use kernel_table::KernelTable;
use serde::{Serialize, Serializer};
use service_names::ServiceNames;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

/// *(ours)* The maximum number of services. Each needs rules in the kernel, and lines in the files of all pods.
const MAX_SERVICES: usize = 1000;

/// After a restart, the rules and the names of the earlier run stay for at most this time until all pods are known.
const PATIENCE: Duration = Duration::from_secs(20);

/// *(ours)* The least time between two reads of the machine's addresses. The check of the kernel's table wakes Wherry
/// every minute.
const ADDRESSES_PERIOD: Duration = Duration::from_secs(50);

/// What the manifests and the pods say.
pub struct ServiceDemand<'a> {
    /// The Services and EndpointSlices, in the order of their files.
    pub objects: &'a [Rc<NetworkObject>],
    /// The pods of the manifests that can be endpoints. Those in the network of the machine have no addresses yet.
    pub pods: Vec<ServicePod<'a>>,
    pub settings: &'a ServiceSettings,
    /// It is known of all pods whether they are ready, and where. After a start of Wherry, that takes a while.
    pub is_complete: bool,
}

#[derive(Debug, Default)]
pub struct Services {
    all: BTreeMap<FullName, ServiceEntry>,
    /// The addresses and ports that the record contains, or will contain.
    allocations: BTreeMap<FullName, Allocation>,
    writing: Rewriting,
    table: KernelTable,
    names: ServiceNames,
    /// For the environment of containers.
    variables: services::Services,
    hosts: HostsFiles,
    /// The addresses of pods in the network of the machine. None: there are no services, or no such pods.
    machine: Option<MachineAddresses>,
    limits: Limits,
    /// Until this time, the rules and the names of an earlier run stay.
    keeps_until: Option<Boot>,
    /// A manifest or a pod has changed since the last step.
    is_touched: bool,
    /// Counts the changes that the API shows.
    version: u64,
    published: u64,
}

/// The limits that are exceeded. Each is reported once.
#[derive(Debug, Default, PartialEq, Eq)]
struct Limits {
    services: bool,
    table: bool,
    names: bool,
}

impl Services {
    /// Takes the record that was found at the start. An unusable one is moved aside.
    pub fn records_found<'r>(
        &mut self,
        records: impl Iterator<Item = (&'r str, &'r str)>,
        now: Boot,
        outbox: &mut Outbox,
    ) {
        for (key, value) in records.filter(|(key, _)| *key == record::KEY) {
            // An earlier run had services.
            self.table.may_exist();
            self.hosts.may_be_stale();
            self.keeps_until = Some(now + PATIENCE);
            self.is_touched = true;
            match record::read(value) {
                Ok(all) => self.allocations = all,
                Err(why) => {
                    let message = format!(
                        "record {key} is unusable: {why}; moving it aside. Services may get other addresses and node \
                         ports"
                    );
                    outbox.emit_node_event(Severity::Warning, Reason::BadRecord, message);
                    outbox.record(Owner::ServiceRecord, RecordChange::SetAside { key: key.to_owned() });
                }
            }
        }
    }

    /// Takes the addresses of the machine, which are those of the pods in its network.
    pub fn addresses_found(&mut self, found: &[String]) {
        self.is_touched |= self.machine.as_mut().is_some_and(|machine| machine.found(found.to_vec()));
    }

    /// Notes that a manifest or a pod has changed.
    pub fn touch(&mut self) {
        self.is_touched = true;
    }

    pub fn is_touched(&self, now: Boot) -> bool {
        self.is_touched || self.keeps_until.is_some_and(|at| at <= now)
    }

    /// Returns true if nothing is left to do for services.
    pub fn is_unused(&self) -> bool {
        let nothing_to_write = self.allocations.is_empty() && self.writing.is_done();
        self.all.is_empty() && nothing_to_write && self.table.is_nothing() && self.hosts.are_unused()
    }

    /// Computes everything again.
    pub fn step(&mut self, mut demand: ServiceDemand<'_>, now: Boot, outbox: &mut Outbox) {
        self.is_touched = false;
        self.find_machine_addresses(&mut demand);
        let demand = &demand;
        let objects = self.take_objects(demand, outbox);
        self.allocate(&objects, demand.settings, outbox);
        self.find_endpoints(demand);
        let own_addresses = demand.pods.iter().filter(|one| !one.pod.host_network());
        let pods: Vec<IpAddr> = own_addresses.flat_map(|one| one.addresses.iter().copied()).collect();
        let (table, is_cut) = forwarding::table(self.all.values(), pods);
        self.keeps_until = self.keeps_until.filter(|at| *at > now && !demand.is_complete);
        self.table.want(table);
        self.names = ServiceNames::of(self.all.iter(), &demand.settings.domain);
        self.variables = variables(&self.all);
        self.hosts.changed();
        if !self.names.is_empty() {
            self.hosts.may_be_stale();
        }
        let limits = Limits { services: self.limits.services, table: is_cut, names: self.names.is_cut };
        report(&self.limits, &limits, outbox);
        self.limits = limits;
    }

    /// Gives the pods in the network of the machine its addresses, which are read if there are such pods and services.
    fn find_machine_addresses(&mut self, demand: &mut ServiceDemand<'_>) {
        let has_host_pods = demand.pods.iter().any(|one| one.pod.host_network());
        let is_needed = has_host_pods && !demand.objects.is_empty();
        self.machine = is_needed.then(|| self.machine.take().unwrap_or_default());
        let known = self.machine.iter().flat_map(MachineAddresses::known);
        let known: Vec<IpAddr> = known.filter_map(|address| address.parse().ok()).collect();
        for one in demand.pods.iter_mut().filter(|one| one.pod.host_network()) {
            one.addresses.clone_from(&known);
        }
        demand.pods.retain(|one| !one.addresses.is_empty());
        demand.is_complete &= !is_needed || !known.is_empty();
    }

    /// Takes the services that are in force. Returns them in the order of their files.
    fn take_objects(&mut self, demand: &ServiceDemand<'_>, outbox: &mut Outbox) -> Vec<Rc<NetworkObject>> {
        let mut before = std::mem::take(&mut self.all);
        let mut order = Vec::new();
        let mut is_over = false;
        for object in demand.objects.iter().filter(|object| object.service().is_some()) {
            if self.all.contains_key(&object.name) {
                continue;
            }
            if self.all.len() == MAX_SERVICES {
                is_over = true;
                break;
            }
            let entry = match before.remove(&object.name) {
                Some(mut entry) => {
                    if entry.object.digest != object.digest {
                        entry.version += 1;
                    }
                    entry.object = object.clone();
                    entry
                }
                None => ServiceEntry::new(object.clone()),
            };
            self.all.insert(object.name.clone(), entry);
            order.push(object.clone());
        }
        // What is gone counts too, so that the sum of all versions never repeats.
        self.version += before.values().map(|entry| entry.version + 1).sum::<u64>();
        if is_over && !self.limits.services {
            let message = format!("there are more than {MAX_SERVICES} services; the others have no effect");
            outbox.emit_node_event(Severity::Warning, Reason::FailedServiceRules, message);
        }
        self.limits.services = is_over;
        order
    }

    fn allocate(&mut self, objects: &[Rc<NetworkObject>], settings: &ServiceSettings, outbox: &mut Outbox) {
        let wanted: Vec<_> = objects
            .iter()
            .filter_map(|object| Some((object.name.clone(), wanted::of(object.service()?, settings))))
            .collect();
        let mut next = BTreeMap::new();
        for (name, (allocation, errors)) in allocation::allocate(&wanted, &self.allocations, settings) {
            let Some(entry) = self.all.get_mut(&name) else { continue };
            for error in errors.iter().filter(|error| !entry.errors.contains(error)) {
                let kind = InvolvedKind::Service;
                let subject = Subject::Workload { kind, name: name.clone(), uid: shown::uid(kind.in_api().0, &name) };
                outbox.emit(subject, Severity::Warning, wanted::reason(error), wanted::message(error));
            }
            if entry.allocation != allocation {
                entry.version += 1;
            }
            next.insert(name, allocation.clone());
            (entry.allocation, entry.errors) = (allocation, errors);
        }
        if next != self.allocations {
            self.allocations = next;
            self.writing.changed();
        }
    }

    fn find_endpoints(&mut self, demand: &ServiceDemand<'_>) {
        let mut pods: BTreeMap<&str, Vec<ServicePod<'_>>> = BTreeMap::new();
        for one in &demand.pods {
            pods.entry(&one.pod.name.namespace).or_default().push(one.clone());
        }
        let mut slices: BTreeMap<&str, Vec<&NetworkObject>> = BTreeMap::new();
        for object in demand.objects.iter().filter(|object| object.slice().is_some()) {
            slices.entry(&object.name.namespace).or_default().push(object);
        }
        for (name, entry) in &mut self.all {
            let namespace: &str = &name.namespace;
            let found = match entry.has_selector() {
                true => endpoints::of_pods(entry.service(), pods.get(namespace).map(Vec::as_slice).unwrap_or_default()),
                false => {
                    let slices = slices.get(namespace).map(Vec::as_slice).unwrap_or_default();
                    endpoints::of_slices(name, entry.service(), slices)
                }
            };
            if entry.endpoints != found {
                entry.endpoints = found;
                entry.version += 1;
            }
        }
    }

    /// Returns true if the rules in the kernel lead to one of these addresses.
    pub fn lead_to(&self, addresses: &[IpAddr]) -> bool {
        self.table.leads_to(addresses)
    }

    /// Returns true if the rules in the kernel lead to one of these addresses, and the next ones to none.
    pub fn are_leaving(&self, addresses: &[IpAddr]) -> bool {
        self.table.is_leaving(addresses)
    }

    /// Begins the calls and the writes that are due, except for hosts files.
    pub fn drive(&mut self, now: Boot, outbox: &mut Outbox) {
        if let Some(machine) = &mut self.machine {
            machine.read_again(ADDRESSES_PERIOD, now, outbox);
        }
        if self.keeps_until.is_some() {
            return;
        }
        self.table.drive(now, outbox);
        if self.may_write() && self.writing.begins(now) {
            let key = record::KEY.to_owned();
            let change = match self.allocations.is_empty() {
                true => RecordChange::Delete { key },
                false => RecordChange::Put { key, value: record::write(&self.allocations) },
            };
            outbox.record(Owner::ServiceRecord, change);
        }
    }

    /// Returns true if the record can have its present content. It says after a restart that the kernel may have a
    /// table, and that hosts files may have names.
    fn may_write(&self) -> bool {
        !self.allocations.is_empty() || self.table.is_nothing() && self.hosts.are_written()
    }

    /// Returns true if hosts files may have to be written.
    pub fn hosts_are_behind(&self, now: Boot) -> bool {
        self.keeps_until.is_none() && self.hosts_are_due(now)
    }

    fn hosts_are_due(&self, now: Boot) -> bool {
        self.hosts.is_behind() || self.hosts.next_deadline().is_some_and(|at| at <= now)
    }

    pub fn drive_hosts(&mut self, pods: &[NamedPod<'_>], now: Boot, outbox: &mut Outbox) {
        self.hosts.drive(pods, now, outbox);
    }

    pub fn hosts(&mut self) -> &mut HostsFiles {
        &mut self.hosts
    }

    pub fn recorded(&mut self, well: bool, now: Boot) {
        self.writing.ended(well, now);
    }

    /// Handles the end of a call about the kernel's table.
    pub fn table_answered(&mut self, result: Result<Answer, OpError>, now: Boot, outbox: &mut Outbox) {
        self.table.answered(result, now, outbox);
    }

    /// Returns the lines for the hosts file of a pod.
    pub fn names_for(&self, pod: &Pod) -> Rc<str> {
        if knows_names(pod) { self.names(&pod.name.namespace).clone() } else { Rc::from("") }
    }

    /// Returns the lines for the hosts files of pods in this namespace.
    pub fn names(&self, namespace: &str) -> &Rc<str> {
        self.names.lines(namespace)
    }

    /// Returns the services for the environment of containers.
    pub fn variables(&self) -> &services::Services {
        &self.variables
    }

    pub fn get(&self, name: &FullName) -> Option<&ServiceEntry> {
        self.all.get(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&FullName, &ServiceEntry)> {
        self.all.iter()
    }

    /// Returns true if the API has to show something else than after the last call.
    pub fn take_changed(&mut self) -> bool {
        let version = self.all.values().map(|entry| entry.version).sum::<u64>() + self.version;
        std::mem::replace(&mut self.published, version) != version
    }

    pub fn next_deadline(&self) -> Option<Boot> {
        if self.keeps_until.is_some() {
            return self.keeps_until;
        }
        let record = self.writing.next_deadline().filter(|_| self.may_write());
        let parts = [self.table.next_deadline(), record, self.hosts.next_deadline()];
        parts.into_iter().flatten().min()
    }
}

/// Returns true if the pod resolves the names of the cluster, as its DNS policy says.
pub fn knows_names(pod: &Pod) -> bool {
    let is_right = match pod.spec().dns_policy.as_deref() {
        None | Some("ClusterFirst") => !pod.host_network(),
        Some("ClusterFirstWithHostNet") => true,
        _ => false,
    };
    is_right && !pod.is_from_api_server()
}

fn variables(all: &BTreeMap<FullName, ServiceEntry>) -> services::Services {
    let mut of_namespaces: BTreeMap<&str, BTreeMap<Box<str>, services::Service>> = BTreeMap::new();
    for (name, entry) in all {
        let Some(address) = entry.allocation.addresses.first() else { continue };
        let ports = entry.service().spec.iter().flat_map(|spec| spec.ports.iter().flatten());
        let port = |port: &k8s::ServicePort| {
            let (protocol, number) = wanted::protocol_and_port(port)?;
            let name = port.name.clone().unwrap_or_default();
            Some(ServicePort { name, protocol: protocol.name().to_owned(), port: number })
        };
        let service = services::Service { address: address.to_string(), ports: ports.filter_map(port).collect() };
        of_namespaces.entry(&name.namespace).or_default().insert((*name.name).into(), service);
    }
    let mut services = services::Services::default();
    for (namespace, of_namespace) in of_namespaces {
        services.set(namespace, of_namespace);
    }
    services
}

fn report(before: &Limits, now: &Limits, outbox: &mut Outbox) {
    let mut warn = |reason, message: &str| outbox.emit_node_event(Severity::Warning, reason, message.to_owned());
    if now.table && !before.table {
        warn(Reason::FailedServiceRules, "some services get no connections: all services have more endpoints than fit");
    }
    if now.names && !before.names {
        warn(Reason::FailedServiceNames, "some services have no name in the hosts files of pods: the lines do not fit");
    }
}

/// Writes the services by their names, for a dump.
impl Serialize for Services {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shown<'a> {
            services: BTreeMap<String, (&'a Allocation, usize)>,
            table: &'a KernelTable,
            record: &'a Rewriting,
            hosts: &'a HostsFiles,
        }
        let mut services = BTreeMap::new();
        for (name, entry) in &self.all {
            services.insert(name.to_string(), (&entry.allocation, entry.endpoints.len()));
        }
        Shown { services, table: &self.table, record: &self.writing, hosts: &self.hosts }.serialize(to)
    }
}
