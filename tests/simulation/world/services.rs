//! The rules of services in the kernel, and the names of services in the hosts files of pods.

use super::{Item, MS, World};
use crate::check::Violation;
use crate::settled::{Judged, unless};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;
use wherry::api::names::Uid;
use wherry::api::service_table::{Balance, Entrance, ServiceTable, UdpFlows};
use wherry::engine::effect::ServiceTableCall;
use wherry::engine::event::Answer;
use wherry::engine::op::{OpError, OpId};

#[derive(Default)]
pub struct ServiceRules {
    pub table: Rc<ServiceTable>,
    /// The hosts files of pods: the lines of services.
    pub hosts: BTreeMap<Uid, Rc<str>>,
    /// Each change of the rules fails with this error.
    pub error: Option<String>,
    /// Each attempt to forget conversations fails with this error.
    pub forget_error: Option<String>,
    /// Added to the time of each call (ns).
    pub delay: u64,
    /// The times of the changes of the rules (ns).
    pub changes: Vec<u64>,
    pub checks: usize,
    /// The conversations over UDP that the kernel had to forget.
    pub forgotten: Vec<Rc<UdpFlows>>,
    /// The number of writes of hosts files, without those of new containers.
    pub writes: usize,
}

impl World {
    pub(super) fn service_table_call(&mut self, op: OpId, call: ServiceTableCall) {
        self.note(|| format!("  < {op} {call:?}"));
        self.begin(op);
        let unlucky =
            self.chaos.as_mut().is_some_and(|c| c.mishap("the rules of services fail", "", c.faults).is_some());
        let error = self.rules.error.clone().or_else(|| unlucky.then(|| "nft failed".to_owned()));
        let result = match (error, call) {
            (Some(why), _) => Err(OpError::Unknown(why)),
            (None, ServiceTableCall::Forget { .. }) if self.rules.forget_error.is_some() => {
                Err(OpError::Unknown(self.rules.forget_error.clone().unwrap_or_default()))
            }
            (None, ServiceTableCall::Apply { table }) => {
                self.rules.table = table;
                self.rules.changes.push(self.clock.now);
                Ok(Answer::Ok)
            }
            (None, ServiceTableCall::Check { table }) => {
                self.rules.checks += 1;
                Ok(Answer::TableInForce(table == self.rules.table))
            }
            (None, ServiceTableCall::Forget { flows }) => {
                self.rules.forgotten.push(flows);
                Ok(Answer::Ok)
            }
        };
        let key = (self.process.life, op);
        self.at(5 * MS + self.rules.delay, Item::Answer { key, result });
    }

    /// Another program removes all rules of the machine.
    pub fn flush_rules(&mut self) {
        self.rules.table = Rc::default();
    }

    /// Writes a Service in a file of its own.
    pub fn define_service(&mut self, name: &str, spec: &str) {
        let text = format!("{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, spec: {{{spec}}}}}");
        self.define_network(&format!("Service-{name}"), text);
    }

    /// Writes these Services in one file.
    pub fn define_services(&mut self, names: impl Iterator<Item = String>, spec: &str) {
        let service = |name| format!("{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, spec: {{{spec}}}}}");
        let items = names.map(service).collect::<Vec<_>>().join(", ");
        self.define_network("Services", format!("{{apiVersion: v1, kind: List, items: [{items}]}}"));
    }

    pub fn define_slice(&mut self, name: &str, service: &str, rest: &str) {
        let text = format!(
            "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: {name}, labels: \
             {{kubernetes.io/service-name: {service}}}}}, addressType: IPv4, {rest}}}"
        );
        self.define_network(&format!("EndpointSlice-{name}"), text);
    }

    /// Returns where the connections to an address of a service go, without repetitions.
    pub fn places(&self, to: &str) -> BTreeSet<String> {
        let found = self.rules.table.forwards.iter().filter(|one| {
            one.from.iter().any(|from| match from {
                Entrance::Address(address) => address.to_string() == to,
                Entrance::NodePort(port) => port.to_string() == to,
            })
        });
        found.flat_map(|one| one.to.places()).map(ToString::to_string).collect()
    }

    pub fn is_sticky(&self, to: &str) -> bool {
        let is_it = |from: &Entrance| matches!(from, Entrance::Address(address) if address.to_string() == to);
        let mut all = self.rules.table.forwards.iter();
        all.any(|one| one.from.iter().any(is_it) && matches!(one.to, Balance::ByClient(_)))
    }

    /// Returns the lines of services in the hosts file of a running pod.
    pub fn names_in(&self, pod: &str) -> Vec<String> {
        let of = self.engine.pods().into_iter().find(|view| *view.pod.name.name == *pod);
        let lines =
            of.and_then(|view| self.rules.hosts.get(&view.pod.uid)).map(|lines| lines.to_string()).unwrap_or_default();
        lines.lines().filter(|line| line.contains('\t')).map(|line| line.replace('\t', " ")).collect()
    }

    /// The rules and the names are those of the pods that run.
    pub fn services_agree(&self) -> Judged {
        self.rules_agree()?;
        for view in self.engine.pods() {
            // (A pod whose sandbox is dead has no address.)
            let has_address = view.status.pod_ip.is_some() && view.deletion.is_none();
            let runs = view.status.phase.as_deref() == Some("Running") && has_address;
            let expected = self.engine.services().names_for(view.pod);
            if runs && !view.pod.host_network() {
                let found = self.rules.hosts.get(&view.pod.uid).cloned().unwrap_or_default();
                unless(found == expected, "Y27", || {
                    format!("{} has the names {found:?}, not {expected:?}", view.pod.name)
                })?;
            }
        }
        Ok(())
    }

    fn rules_agree(&self) -> Result<(), Violation> {
        let mut seen = BTreeSet::new();
        for (name, entry) in self.engine.services().iter() {
            for address in &entry.allocation.addresses {
                unless(seen.insert(*address), "Y25", || format!("{address} of {name} belongs to another service"))?;
                unless(self.rules.table.addresses.contains(address), "Y26", || {
                    format!("{address} is not in the rules")
                })?;
            }
            let Some(selector) = entry.service().spec.as_ref().and_then(|spec| spec.selector.as_ref()) else {
                continue;
            };
            let is_behind = |labels: Option<&BTreeMap<String, String>>| {
                selector.iter().all(|(key, value)| labels.and_then(|all| all.get(key)) == Some(value))
            };
            let mut ready = BTreeSet::new();
            for view in self.engine.pods() {
                let metadata = &view.pod.object.metadata;
                let is_ready =
                    view.status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
                let is_here = metadata.namespace.as_deref() == Some(&name.namespace);
                if is_here && is_ready && view.deletion.is_none() && is_behind(metadata.labels.as_ref()) {
                    let own = view.status.pod_ip.as_slice();
                    let addresses = if view.pod.host_network() { &self.host.addresses_alone } else { own };
                    ready.extend(addresses.iter().filter_map(|ip| ip.parse::<IpAddr>().ok()));
                }
            }
            let of_service = self.rules.table.forwards.iter().filter(|one| {
                let is_own = |ip: IpAddr| entry.allocation.addresses.contains(&ip);
                one.from.iter().any(|from| matches!(from, Entrance::Address(address) if is_own(address.ip())))
            });
            let found: BTreeSet<IpAddr> = of_service.flat_map(|one| one.to.places()).map(|place| place.ip()).collect();
            if !entry.allocation.addresses.is_empty() {
                let what = || format!("{name}: connections go to {found:?}, and {ready:?} are ready");
                unless(found == ready, "Y26: connections go to the ready pods", what)?;
            }
        }
        Ok(())
    }
}
