//! Manages the cgroups of pods as transient slices of systemd (`cgroupDriver: systemd`). Calls to systemd's manager
//! start, change and stop them. A call ends when systemd's job has ended, or with an error.
//!
//! The first call opens the connection, which then stays open. Without a connection, calls fail with the reason. The
//! adapter does not reconnect in the background; the caller retries.
//!
//! The properties are those that runc sets on a slice (libcontainer/cgroups/systemd), so that the two do not overwrite
//! each other's settings.

use crate::adapters::bus::connection::{BusConnection, Incident};
use crate::adapters::bus::reply::{Made, SYSTEMD, SYSTEMD_MANAGER, SYSTEMD_PATH, fine, named, only, to_bus};
use crate::api::cgroups::{parent_unit, unit_of};
use crate::api::limits::{CpuQuota, Limits, weight};
use crate::api::time::Boot;
use dbus::arg::{RefArg, Variant};
use dbus::{Message, Path};
use mio::{Registry, Token};
use std::collections::BTreeMap;
use std::time::Duration;

/// Timeout of a call including its job; the same as in runc.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// One percent of a CPU in microseconds per second: the resolution of systemd's CPU quota.
const PERCENT: u64 = 10_000;
/// systemd's default quota period in microseconds.
const USUAL_PERIOD: u64 = 100_000;
const INFINITY: u64 = u64::MAX;

/// Identifies a call until it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// The result of a call. Each call has exactly one.
#[derive(Debug, PartialEq, Eq)]
pub struct UnitResult {
    pub ticket: Ticket,
    /// True if systemd created a unit.
    pub result: Result<bool, String>,
}

pub struct Slices {
    address: String,
    connection: BusConnection<What>,
    last: u64,
    calls: BTreeMap<Ticket, Call>,
    /// The jobs that calls wait for, by job path and systemd's unique name: only that sender may report their end.
    jobs: BTreeMap<(String, String), Ticket>,
    ended: Vec<UnitResult>,
}

#[derive(Clone, Copy)]
enum What {
    /// The request to receive signals about ended jobs.
    Match,
    Call(Ticket),
}

struct Call {
    request: UnitRequest,
    deadline: Boot,
    sent: bool,
}

enum UnitRequest {
    /// Create a unit in its parent slice.
    Start {
        unit: String,
        parent: Option<String>,
        limits: Limits,
        v2: bool,
    },
    /// Set the properties of a unit that already exists.
    Change {
        unit: String,
        limits: Limits,
        v2: bool,
    },
    Stop {
        unit: String,
    },
}

impl UnitRequest {
    fn unit(&self) -> &str {
        match self {
            UnitRequest::Start { unit, .. } | UnitRequest::Change { unit, .. } | UnitRequest::Stop { unit } => unit,
        }
    }

    fn message(&self) -> Made {
        let manager = |member: &'static str| Message::new_method_call(SYSTEMD, SYSTEMD_PATH, SYSTEMD_MANAGER, member);
        match self {
            UnitRequest::Start { unit, parent, limits, v2 } => {
                let mut all = start_properties(unit, parent.as_deref(), *v2);
                all.extend(limit_properties(limits, *v2, true));
                let beside: Vec<(String, Properties)> = Vec::new();
                let mut message = manager("StartTransientUnit")?;
                message.append_all((unit.as_str(), "replace", all, beside));
                Ok(message)
            }
            UnitRequest::Change { unit, limits, v2 } => {
                Ok(manager("SetUnitProperties")?.append3(unit.as_str(), true, limit_properties(limits, *v2, false)))
            }
            UnitRequest::Stop { unit } => Ok(manager("StopUnit")?.append2(unit.as_str(), "replace")),
        }
    }
}

type Property = (String, Variant<Box<dyn RefArg>>);
type Properties = Vec<Property>;

fn property(name: &str, value: impl RefArg + 'static) -> Property {
    (name.to_owned(), Variant(Box::new(value)))
}

/// Returns the properties of a new slice, without its limits.
fn start_properties(unit: &str, parent: Option<&str>, v2: bool) -> Properties {
    let mut all = vec![property("Description", format!("Kubernetes pods ({unit})"))];
    all.extend(parent.map(|parent| property("Wants", vec![parent.to_owned()])));
    all.push(property("DefaultDependencies", false));
    let io = if v2 { "IOAccounting" } else { "BlockIOAccounting" };
    all.extend(["CPUAccounting", "MemoryAccounting", "TasksAccounting", io].map(|name| property(name, true)));
    all
}

/// Returns the properties for limits. In a new slice (`new`), an absent limit needs no property.
fn limit_properties(limits: &Limits, v2: bool, new: bool) -> Properties {
    let mut all = Vec::new();
    if let Some(shares) = limits.cpu_shares {
        all.push(if v2 { property("CPUWeight", weight(shares)) } else { property("CPUShares", shares) });
    }
    // systemd before 242 does not know this property, so it is set only for a period that is not the default.
    if let Some(cpu) = limits.cpu.filter(|cpu| cpu.period != USUAL_PERIOD) {
        all.push(property("CPUQuotaPeriodUSec", cpu.period));
    }
    let mut add = |name: &str, limit: Option<u64>| {
        if let Some(limit) = limit.or((!new).then_some(INFINITY)) {
            all.push(property(name, limit));
        }
    };
    add("CPUQuotaPerSecUSec", limits.cpu.map(per_second));
    add(if v2 { "MemoryMax" } else { "MemoryLimit" }, limits.memory);
    add("TasksMax", limits.pids);
    all
}

/// Returns the CPU time in microseconds per second, rounded up to systemd's resolution. Rounding down would starve the
/// containers in the slice.
fn per_second(cpu: CpuQuota) -> u64 {
    let exact = u128::from(cpu.quota) * 1_000_000 / u128::from(cpu.period.max(1));
    u64::try_from(exact).unwrap_or(INFINITY).div_ceil(PERCENT).saturating_mul(PERCENT)
}

impl Slices {
    /// Returns an instance without a connection. `address` is in D-Bus's format. `token` becomes ready when `drive`
    /// must be called.
    pub fn new(address: &str, token: Token) -> Slices {
        Slices {
            address: address.to_owned(),
            connection: BusConnection::on_demand(address, token),
            last: 0,
            calls: BTreeMap::new(),
            jobs: BTreeMap::new(),
            ended: Vec::new(),
        }
    }

    /// Creates or changes the slice at this cgroup path. Call `drive` afterwards.
    pub fn set(&mut self, slice: &str, limits: &Limits, v2: bool, now: Boot) -> Ticket {
        let unit = unit_of(slice).unwrap_or_default().to_owned();
        let parent = parent_unit(slice).map(str::to_owned);
        self.begin(UnitRequest::Start { unit, parent, limits: limits.clone(), v2 }, now)
    }

    /// Stops the slice. A slice that does not exist is not an error. Call `drive` afterwards.
    pub fn stop(&mut self, slice: &str, now: Boot) -> Ticket {
        self.begin(UnitRequest::Stop { unit: unit_of(slice).unwrap_or_default().to_owned() }, now)
    }

    fn begin(&mut self, request: UnitRequest, now: Boot) -> Ticket {
        self.last += 1;
        let ticket = Ticket(self.last);
        self.calls.insert(ticket, Call { request, deadline: now + TIMEOUT, sent: false });
        ticket
    }

    /// Reads and writes without blocking, connects if a call is waiting, and appends the results of calls to `out`.
    pub fn drive(&mut self, registry: &Registry, now: Boot, out: &mut Vec<UnitResult>) {
        if !self.calls.is_empty() {
            self.connection.open();
        }
        self.send_new();
        while let Some(incident) = self.connection.next(registry, now) {
            self.handle(incident, now);
        }
        let late: Vec<Ticket> = self.calls.iter().filter(|(_, c)| c.deadline <= now).map(|(t, _)| *t).collect();
        for ticket in late {
            self.end(ticket, Err(format!("systemd did not respond within {} s", TIMEOUT.as_secs())));
        }
        out.append(&mut self.ended);
    }

    /// Returns the deadline for the next call of `drive`.
    pub fn next_deadline(&self) -> Option<Boot> {
        if !self.ended.is_empty() {
            return Some(Boot(0));
        }
        self.calls.values().map(|c| c.deadline).chain(self.connection.next_deadline()).min()
    }

    fn handle(&mut self, incident: Incident<What>, now: Boot) {
        match incident {
            Incident::Opened => {
                if let Err(why) = self.connection.send(match_jobs(), What::Match, now + TIMEOUT) {
                    self.connection.fail(why);
                }
                self.send_new();
            }
            Incident::Reply { what: What::Match, message } => {
                if let Err(e) = fine(&message) {
                    self.connection.fail(format!("the bus refused to report when jobs end: {}", e.message()));
                }
            }
            Incident::Reply { what: What::Call(ticket), message } => self.answered(ticket, &message),
            Incident::Signal(message) => {
                if let Some((path, result)) = removed_job(&message)
                    && let Some(ticket) = self.jobs.remove(&(path, sender(&message)))
                {
                    let made = matches!(self.calls.get(&ticket), Some(Call { request: UnitRequest::Start { .. }, .. }));
                    let failed = || format!("systemd's job ended with the result {result:?}");
                    self.end(ticket, if result == "done" { Ok(made) } else { Err(failed()) });
                }
            }
            Incident::Late(What::Match) => self.connection.fail("the bus does not respond".to_owned()),
            // `drive` ends late calls, including those that wait for their job.
            Incident::Late(What::Call(_)) | Incident::Silent { .. } => {}
            Incident::Closed { why, .. } => {
                let all: Vec<Ticket> = self.calls.keys().copied().collect();
                for ticket in all {
                    let unreachable = format!("systemd cannot be reached on the system bus at {}: {why}", self.address);
                    self.end(ticket, Err(unreachable));
                }
            }
        }
    }

    fn end(&mut self, ticket: Ticket, result: Result<bool, String>) {
        if let Some(call) = self.calls.remove(&ticket) {
            let result = result.map_err(|e| {
                format!("cgroupDriver systemd: {} the slice {}: {e}", call.request.verb(), call.request.unit())
            });
            self.jobs.retain(|_, waiting| *waiting != ticket);
            self.ended.push(UnitResult { ticket, result });
        }
    }

    fn send_new(&mut self) {
        if !self.connection.is_open() {
            return;
        }
        for (ticket, call) in self.calls.iter_mut().filter(|(_, call)| !call.sent) {
            call.sent = true;
            if let Err(why) = self.connection.send(call.request.message(), What::Call(*ticket), call.deadline) {
                self.connection.fail(why);
            }
        }
    }

    fn answered(&mut self, ticket: Ticket, reply: &Message) {
        let Some(call) = self.calls.get_mut(&ticket) else { return };
        if let Err(e) = fine(reply) {
            let (name, _) = named(reply);
            match (&call.request, name.as_str()) {
                // The unit exists: another process created it, or systemd did for a slice below it. Set its properties.
                (UnitRequest::Start { unit, limits, v2, .. }, "org.freedesktop.systemd1.UnitExists") => {
                    call.request = UnitRequest::Change { unit: unit.clone(), limits: limits.clone(), v2: *v2 };
                    call.sent = false;
                    self.send_new();
                }
                (UnitRequest::Stop { .. }, "org.freedesktop.systemd1.NoSuchUnit") => self.end(ticket, Ok(false)),
                _ => self.end(ticket, Err(e.message().to_owned())),
            }
            return;
        }
        match &call.request {
            UnitRequest::Change { .. } => self.end(ticket, Ok(false)),
            UnitRequest::Start { .. } | UnitRequest::Stop { .. } => match only::<Path<'_>>(reply) {
                Ok(job) => {
                    self.jobs.insert((job.to_string(), sender(reply)), ticket);
                }
                Err(e) => self.end(ticket, Err(format!("invalid response: {e}"))),
            },
        }
    }
}

impl UnitRequest {
    fn verb(&self) -> &'static str {
        match self {
            UnitRequest::Start { .. } => "create",
            UnitRequest::Change { .. } => "change",
            UnitRequest::Stop { .. } => "stop",
        }
    }
}

fn sender(message: &Message) -> String {
    message.sender().map(|s| s.to_string()).unwrap_or_default()
}

/// Returns the path and the result of the job in a JobRemoved signal.
fn removed_job(message: &Message) -> Option<(String, String)> {
    if message.interface().as_deref() != Some(SYSTEMD_MANAGER) || message.member().as_deref() != Some("JobRemoved") {
        return None;
    }
    let (_, job, _, result) = message.read4::<u32, Path<'_>, &str, &str>().ok()?;
    Some((job.to_string(), result.to_owned()))
}

fn match_jobs() -> Made {
    let rule = format!(
        "type='signal',sender='{SYSTEMD}',path='{SYSTEMD_PATH}',interface='{SYSTEMD_MANAGER}',member='JobRemoved'"
    );
    Ok(to_bus("AddMatch")?.append1(rule))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(all: &Properties) -> Vec<String> {
        let number = |value: &dyn RefArg| value.as_u64().map_or_else(|| format!("{value:?}"), |n| n.to_string());
        all.iter().map(|(name, value)| format!("{name}={}", number(&*value.0))).collect()
    }

    fn limits() -> Limits {
        Limits {
            cpu_shares: Some(1024),
            cpu: Some(CpuQuota { quota: 25_500, period: 100_000 }),
            memory: Some(4096),
            pids: Some(9),
            huge_pages: [(2 << 20, 0)].into(),
        }
    }

    #[test]
    fn limits_are_systemds_properties_by_the_version_of_cgroups() {
        assert_eq!(
            shown(&limit_properties(&limits(), true, true)),
            ["CPUWeight=39", "CPUQuotaPerSecUSec=260000", "MemoryMax=4096", "TasksMax=9"]
        );
        assert_eq!(
            shown(&limit_properties(&limits(), false, true)),
            ["CPUShares=1024", "CPUQuotaPerSecUSec=260000", "MemoryLimit=4096", "TasksMax=9"]
        );
        let other = Limits { cpu: Some(CpuQuota { quota: 5000, period: 10_000 }), ..Limits::default() };
        assert_eq!(
            shown(&limit_properties(&other, true, true)),
            ["CPUQuotaPeriodUSec=10000", "CPUQuotaPerSecUSec=500000"]
        );
        assert!(limit_properties(&Limits::default(), true, true).is_empty());
        let none = u64::MAX;
        assert_eq!(
            shown(&limit_properties(&Limits::default(), true, false)),
            ["CPUQuotaPerSecUSec", "MemoryMax", "TasksMax"].map(|n| format!("{n}={none}"))
        );
    }

    #[test]
    fn a_quota_is_rounded_up_to_a_percent() {
        let of = |quota, period| per_second(CpuQuota { quota, period });
        assert_eq!(of(100_000, 100_000), 1_000_000);
        assert_eq!(of(1000, 100_000), 10_000);
        assert_eq!(of(1001, 100_000), 20_000);
        assert_eq!(of(u64::MAX, 1), u64::MAX);
    }

    #[test]
    fn every_call_can_be_made() {
        let unit = || "a-b.slice".to_owned();
        for request in [
            UnitRequest::Start { unit: unit(), parent: Some("a.slice".into()), limits: limits(), v2: true },
            UnitRequest::Start { unit: unit(), parent: None, limits: Limits::default(), v2: false },
            UnitRequest::Change { unit: unit(), limits: limits(), v2: true },
            UnitRequest::Stop { unit: unit() },
        ] {
            assert!(request.message().is_ok(), "{}", request.verb());
        }
        assert!(match_jobs().is_ok());
        let properties = start_properties("a-b.slice", Some("a.slice"), true);
        let names: Vec<&str> = properties.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "Description",
                "Wants",
                "DefaultDependencies",
                "CPUAccounting",
                "MemoryAccounting",
                "TasksAccounting",
                "IOAccounting"
            ]
        );
    }

    #[test]
    fn without_a_bus_each_call_ends_with_the_reason() {
        let poll = mio::Poll::new().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let address = format!("unix:path={}", dir.path().join("bus").display());
        for (address, why) in [(address.as_str(), "No such file"), ("tcp:host=x", "only unix:")] {
            let mut slices = Slices::new(address, Token(1));
            assert_eq!(slices.next_deadline(), None);
            let first = slices.set("/kubepods.slice/kubepods-podu.slice", &limits(), true, Boot(0));
            let second = slices.stop("/kubepods.slice", Boot(0));
            let mut out = Vec::new();
            slices.drive(poll.registry(), Boot(0), &mut out);
            assert_eq!(out.iter().map(|e| e.ticket).collect::<Vec<_>>(), [first, second]);
            let error = out[0].result.clone().unwrap_err();
            assert!(
                error.starts_with(
                    "cgroupDriver systemd: create the slice kubepods-podu.slice: systemd cannot be reached"
                )
            );
            assert!(error.contains(address) && error.contains(why), "{error}");
            assert_eq!(slices.next_deadline(), None);
        }
    }

    #[test]
    fn a_bus_that_does_not_answer_costs_a_call_its_time_and_no_more() {
        let poll = mio::Poll::new().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bus");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let mut slices = Slices::new(&format!("unix:path={}", path.display()), Token(1));
        let ticket = slices.stop("/kubepods.slice", Boot(0));
        let mut out = Vec::new();
        slices.drive(poll.registry(), Boot(0), &mut out);
        assert!(out.is_empty());
        let due = slices.next_deadline().unwrap();
        assert_eq!(due, Boot(0) + TIMEOUT);
        slices.drive(poll.registry(), due, &mut out);
        let [UnitResult { ticket: ended, result: Err(why) }] = out.as_slice() else { panic!("{out:?}") };
        assert_eq!(*ended, ticket);
        assert!(why.contains("did not respond within 30 s"), "{why}");
        drop(listener);
    }
}
