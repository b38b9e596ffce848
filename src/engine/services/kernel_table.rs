//! Keeps the kernel's table of services as it should be: one call at a time, repeated until it succeeds.

use crate::api::reason::Reason;
use crate::api::service_table::{ServiceTable, UdpFlows};
use crate::api::time::Boot;
use crate::engine::effect::{Effect, ServiceTableCall, Severity};
use crate::engine::event::Answer;
use crate::engine::op::OpError;
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use serde::Serialize;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

/// The least time between two changes. Many pods can become ready at once, and each change replaces all rules.
const PAUSE: Duration = Duration::from_millis(100);
/// How often the table is compared with that of the kernel: a restart of the machine's firewall removes it.
const CHECK_PERIOD: Duration = Duration::from_secs(60);
/// A program that takes longer hangs.
const TIMEOUT: Duration = Duration::from_secs(30);
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);

#[derive(Debug, Serialize)]
pub struct KernelTable {
    wanted: Rc<ServiceTable>,
    found: Found,
    stage: TableStage,
    /// The endpoints and ports for UDP that the kernel's rules have, or had before a failure. None: unknown, because an
    /// earlier run made the rules.
    udp: Option<UdpFlows>,
    /// Why the kernel could not forget conversations.
    not_forgotten: Option<String>,
}

/// What the kernel has, as far as it is known.
#[derive(Debug, Serialize)]
enum Found {
    Nothing,
    Unknown,
    Table(Rc<ServiceTable>),
}

#[derive(Debug, Serialize)]
enum TableStage {
    /// Nothing is in flight. The next call may begin at this time.
    Idle {
        from: Boot,
        check_at: Boot,
    },
    Applying {
        table: Rc<ServiceTable>,
        failed: Option<TableFailure>,
    },
    Checking {
        table: Rc<ServiceTable>,
    },
    /// After a change, the kernel forgets conversations that go where the rules would not send them.
    Forgetting,
    Failed {
        failed: TableFailure,
        again: Boot,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct TableFailure {
    count: u32,
    why: String,
}

impl Default for KernelTable {
    fn default() -> KernelTable {
        KernelTable {
            wanted: Rc::default(),
            found: Found::Nothing,
            stage: TableStage::Idle { from: Boot::default(), check_at: Boot::default() },
            udp: Some(UdpFlows::default()),
            not_forgotten: None,
        }
    }
}

impl KernelTable {
    /// Notes that an earlier run may have left a table.
    pub fn may_exist(&mut self) {
        self.found = Found::Unknown;
        self.udp = None;
    }

    pub fn want(&mut self, table: ServiceTable) {
        if *self.wanted != table {
            self.wanted = Rc::new(table);
        }
    }

    /// Begins the next call, if one is due.
    pub fn drive(&mut self, now: Boot, outbox: &mut Outbox) {
        let begins = self.next_deadline().is_some_and(|at| at <= now);
        if !begins {
            return;
        }
        let table = self.wanted.clone();
        let call = match self.is_right() {
            true => {
                self.stage = TableStage::Checking { table: table.clone() };
                ServiceTableCall::Check { table }
            }
            false => {
                let failed = match &self.stage {
                    TableStage::Failed { failed, .. } => Some(failed.clone()),
                    _ => None,
                };
                self.stage = TableStage::Applying { table: table.clone(), failed };
                ServiceTableCall::Apply { table }
            }
        };
        begin(call, outbox);
    }

    /// Handles the end of a call.
    pub fn answered(&mut self, result: Result<Answer, OpError>, now: Boot, outbox: &mut Outbox) {
        let idle = TableStage::Idle { from: now + PAUSE, check_at: now + CHECK_PERIOD };
        match (std::mem::replace(&mut self.stage, idle), result) {
            (TableStage::Applying { table, failed }, Ok(_)) => {
                if failed.is_some() {
                    let message = "the rules of the services are in the kernel again".to_owned();
                    outbox.emit_node_event(Severity::Normal, Reason::ServiceRulesApplied, message);
                }
                let flows = self.changed_to(&table);
                if !flows.is_empty() {
                    self.stage = TableStage::Forgetting;
                    begin(ServiceTableCall::Forget { flows: Rc::new(flows) }, outbox);
                }
                self.found = if table.is_empty() { Found::Nothing } else { Found::Table(table) };
            }
            (TableStage::Applying { failed, .. }, Err(e)) => {
                self.found = Found::Unknown;
                self.stage = failure(failed, &e, now, outbox);
            }
            (TableStage::Forgetting, result) => self.forgot(result, outbox),
            (TableStage::Checking { .. }, Ok(Answer::TableInForce(false))) => {
                self.found = Found::Unknown;
                let message = "another program has removed the rules of services; writing them again. A restart of \
                               nftables.service removes the tables of all programs"
                    .to_owned();
                outbox.emit_node_event(Severity::Warning, Reason::ServiceRulesLost, message);
            }
            // A check that fails says nothing about the rules. The next one follows after the usual time.
            _ => {}
        }
    }

    /// Returns the conversations that go where the rules of the kernel's new table would not send them: to endpoints
    /// that are gone, and to ports of the machine that had no endpoint.
    fn changed_to(&mut self, table: &ServiceTable) -> UdpFlows {
        let now = table.udp();
        let stale = self.udp.as_ref().map(|before| {
            let endpoints = before.endpoints.difference(&now.endpoints).copied().collect();
            let ports = now.ports.difference(&before.ports).copied().collect();
            UdpFlows { endpoints, ports }
        });
        self.udp = Some(now);
        stale.unwrap_or_default()
    }

    /// Handles the end of a call that forgets conversations. It is not repeated: without the program, each would fail.
    fn forgot(&mut self, result: Result<Answer, OpError>, outbox: &mut Outbox) {
        let why = result.err().map(|e| e.to_string());
        if let Some(why) = why.as_ref().filter(|why| self.not_forgotten.as_ref() != Some(why)) {
            let message = format!("clients of services over UDP may stay with pods that are gone: {why}");
            outbox.emit_node_event(Severity::Warning, Reason::FailedServiceRules, message);
        }
        self.not_forgotten = why;
    }

    /// Returns true if the kernel has the wanted table.
    pub fn is_right(&self) -> bool {
        match &self.found {
            Found::Nothing => self.wanted.is_empty(),
            Found::Unknown => false,
            Found::Table(table) => *table == self.wanted,
        }
    }

    /// Returns true if the kernel's table leads to one of these addresses, as far as it is known.
    pub fn leads_to(&self, addresses: &[IpAddr]) -> bool {
        matches!(&self.found, Found::Table(table) if addresses.iter().any(|one| table.leads_to(*one)))
    }

    /// Returns true if the kernel's table leads to one of these addresses, and the wanted one to none.
    pub fn is_leaving(&self, addresses: &[IpAddr]) -> bool {
        self.leads_to(addresses) && !addresses.iter().any(|one| self.wanted.leads_to(*one))
    }

    /// Returns true if the kernel certainly has no table, and nothing is left to do.
    pub fn is_nothing(&self) -> bool {
        let is_idle = !matches!(self.stage, TableStage::Applying { .. } | TableStage::Forgetting);
        matches!(self.found, Found::Nothing) && is_idle
    }

    /// Returns why the kernel does not have the wanted table.
    pub fn trouble(&self) -> Option<&str> {
        match &self.stage {
            TableStage::Failed { failed, .. } | TableStage::Applying { failed: Some(failed), .. } => Some(&failed.why),
            _ => None,
        }
    }

    pub fn next_deadline(&self) -> Option<Boot> {
        match &self.stage {
            TableStage::Idle { from, .. } if !self.is_right() => Some(*from),
            TableStage::Idle { check_at, .. } => (!self.wanted.is_empty()).then_some(*check_at),
            TableStage::Failed { again, .. } => Some(*again),
            TableStage::Applying { .. } | TableStage::Checking { .. } | TableStage::Forgetting => None,
        }
    }
}

fn begin(call: ServiceTableCall, outbox: &mut Outbox) {
    outbox.begin(Owner::ServiceTable, |op| Effect::ServiceTable { op, call, timeout: TIMEOUT });
}

/// Reports a failure, unless the last attempt failed in the same way.
fn failure(before: Option<TableFailure>, error: &OpError, now: Boot, outbox: &mut Outbox) -> TableStage {
    let why = error.to_string();
    if before.as_ref().is_none_or(|before| before.why != why) {
        let message = format!("services do not work, or not as they should: {why}");
        outbox.emit_node_event(Severity::Warning, Reason::FailedServiceRules, message);
    }
    let count = before.map_or(0, |before| before.count);
    let delay = LAST_RETRY.min(FIRST_RETRY * 2u32.saturating_pow(count.min(10)));
    TableStage::Failed { failed: TableFailure { count: count + 1, why }, again: now + delay }
}
