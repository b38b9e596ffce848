//! The configured size of the node (A2): number of pods, reservations, labels and extended resources.
//!
//! Maps are merged key by key, like objects. `api::node_facts::facts` later checks the reservations against the
//! machine's capacity; this module remembers where the settings are, for the error messages.

use crate::api::node_facts;
use crate::api::quantity::Quantity;
use crate::api::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, Resources};
use crate::api::validate;
use crate::config::eviction;
use crate::config::field_value::{FieldValue, Wrong, each};
use crate::config::problem::{Place, Problem, Problems};
use crate::config::yaml::{Node, Value};
use std::collections::BTreeMap;

const SYSTEM: &str = "systemReserved";
const KUBE: &str = "kubeReserved";
const ENFORCE: &str = "enforceNodeAllocatable";
const PID: &str = "pid";

/// The configured values, and where they are set.
#[derive(Clone, Debug, PartialEq)]
pub struct Notification {
    pub max_pods: u64,
    /// Maximum number of pods for each CPU. 0 means no limit.
    pub pods_per_core: u64,
    /// Maximum number of processes and threads of a pod. None means no limit.
    pub pod_pids_limit: Option<u64>,
    pub system_reserved: BTreeMap<String, u64>,
    pub kube_reserved: BTreeMap<String, u64>,
    pub enforce: Vec<String>,
    pub labels: BTreeMap<String, String>,
    pub extended: BTreeMap<String, u64>,
    places: BTreeMap<&'static str, Place>,
}

impl Default for Notification {
    fn default() -> Notification {
        Notification {
            max_pods: 110,
            pods_per_core: 0,
            pod_pids_limit: None,
            system_reserved: BTreeMap::new(),
            kube_reserved: BTreeMap::new(),
            enforce: vec!["pods".to_owned()],
            labels: BTreeMap::new(),
            extended: BTreeMap::new(),
            places: BTreeMap::new(),
        }
    }
}

impl Notification {
    /// Reports whether all pods together are limited to the allocatable resources.
    pub fn enforces_pods(&self) -> bool {
        self.enforce.iter().any(|what| what == "pods")
    }

    /// Returns the total number of reserved process ids.
    pub fn reserved_pids(&self) -> u64 {
        let of = |list: &BTreeMap<String, u64>| list.get(PID).copied().unwrap_or(0);
        of(&self.system_reserved).saturating_add(of(&self.kube_reserved))
    }

    /// Converts the errors of `api::node_facts::facts` to problems with file and field.
    pub fn problems(&self, wrong: Vec<(&'static str, String)>) -> Vec<Problem> {
        let place = |field| self.places.get(field).cloned().unwrap_or_else(Place::flag);
        let problem =
            |(field, message): (&'static str, String)| Problem { place: place(field), field: field.into(), message };
        wrong.into_iter().map(problem).collect()
    }
}

/// Returns the reserved resources, without process ids.
pub(super) fn resources(reserved: &BTreeMap<String, u64>) -> Resources {
    let mut all = Resources::default();
    reserved.iter().filter(|(name, _)| *name != PID).for_each(|(name, amount)| all.set(name, *amount));
    all
}

/// Sets `maxPods`. 0 selects the default.
pub fn max_pods(c: &mut Notification, v: &FieldValue) -> Result<(), String> {
    c.max_pods = match not_negative(v)? {
        0 => Notification::default().max_pods,
        pods => pods,
    };
    Ok(())
}

pub fn pods_per_core(c: &mut Notification, v: &FieldValue) -> Result<(), String> {
    c.pods_per_core = not_negative(v)?;
    Ok(())
}

pub fn pod_pids_limit(c: &mut Notification, v: &FieldValue) -> Result<(), String> {
    c.pod_pids_limit = match v.int() {
        -1 | 0 => None,
        n => Some(u64::try_from(n).map_err(|_| format!("{n} is negative; it must be 1 or more, or -1 for no limit"))?),
    };
    Ok(())
}

pub fn enforce(c: &mut Notification, v: &FieldValue) -> Result<(), String> {
    const KNOWN: [&str; 4] = ["kube-reserved", "none", "pods", "system-reserved"];
    let list = v.texts();
    if let Some(other) = list.iter().find(|what| !KNOWN.contains(&what.as_str())) {
        return Err(format!("{other:?} is not one of {}", KNOWN.join(", ")));
    }
    if list.len() > 1 && list.iter().any(|what| what == "none") {
        return Err("may not contain additional enforcements when \"none\" is specified".to_owned());
    }
    c.enforce = list;
    Ok(())
}

fn not_negative(v: &FieldValue) -> Result<u64, String> {
    u64::try_from(v.int()).map_err(|_| format!("{} is negative; it must be 0 or more", v.int()))
}

pub fn system_reserved(c: &mut Notification, map: &Node, wrong: Wrong) {
    reserved(&mut c.system_reserved, map, wrong);
}

pub fn kube_reserved(c: &mut Notification, map: &Node, wrong: Wrong) {
    reserved(&mut c.kube_reserved, map, wrong);
}

fn reserved(into: &mut BTreeMap<String, u64>, map: &Node, wrong: Wrong) {
    each(map, wrong, |name, value| {
        if ![CPU, MEMORY, EPHEMERAL_STORAGE, PID].contains(&name) {
            return Err(format!("cannot reserve {name:?}; it must be cpu, memory, ephemeral-storage or pid"));
        }
        let text = value.text().unwrap_or_default();
        let amount = Quantity::parse(text).map_err(|why| format!("{text:?}: {why}"))?;
        let whole = if name == CPU { amount.milli_value() } else { amount.value() };
        let whole = u64::try_from(whole).map_err(|_| format!("{text:?} is negative; it must be 0 or more"))?;
        into.insert(name.to_owned(), whole);
        Ok(())
    });
}

pub fn labels(c: &mut Notification, map: &Node, wrong: Wrong) {
    let into = &mut c.labels;
    each(map, wrong, |key, value| {
        let value = value.text().unwrap_or_default();
        if node_facts::well_known_labels("", "").iter().any(|(known, _)| *known == key) {
            return Err("wherry sets this label itself; leave it out".to_owned());
        }
        if let Some(complaint) = validate::label(key, value).into_iter().next() {
            return Err(complaint);
        }
        into.insert(key.to_owned(), value.to_owned());
        Ok(())
    });
}

pub fn extended(c: &mut Notification, map: &Node, wrong: Wrong) {
    let into = &mut c.extended;
    each(map, wrong, |name, value| {
        if !validate::is_extended_resource(name) {
            return Err(format!(
                "{name:?} doesn't follow extended resource name standard; use a domain outside kubernetes.io, such as \
                 example.com/gpu"
            ));
        }
        let Value::Int(n) = *value else { return Ok(()) };
        let n = u64::try_from(n).map_err(|_| format!("{n} is negative; it must be 0 or more"))?;
        into.insert(name.to_owned(), n);
        Ok(())
    });
}

/// Warns about values that have no effect, and records where the settings are. Called after all files have been read.
pub fn decide(settings: &mut Notification, places: &BTreeMap<String, Place>, problems: &mut Problems) {
    for field in [SYSTEM, KUBE, eviction::HARD] {
        settings.places.extend(places.get(field).map(|place| (field, place.clone())));
    }
    let mut no_effect = |field: &'static str, part: &str| {
        let place = places.get(field).cloned().unwrap_or_else(Place::flag);
        problems.warning(&place, format!("{field}{part}"), "known, but not honoured by wherry: it has no effect");
    };
    for (i, _) in settings.enforce.iter().enumerate().filter(|(_, what)| what.ends_with("-reserved")) {
        no_effect(ENFORCE, &format!("[{i}]"));
    }
}
