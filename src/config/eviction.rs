//! The settings of node-pressure eviction (E1, E2): maps from the name of a signal to a threshold. They are merged
//! key by key.

use crate::api::duration;
use crate::api::eviction::{EvictionPolicy, Limit, Signal, Threshold, ThresholdKind};
use crate::api::ordered::{CollectOrdered, OrderSlice};
use crate::config::field_value::{FieldValue, Wrong, each};
use crate::config::problem::{Place, Problems};
use crate::config::yaml::{Node, Value};
use std::collections::BTreeMap;
use std::time::Duration;

pub const HARD: &str = "evictionHard";
const SOFT: &str = "evictionSoft";
const SOFT_GRACE: &str = "evictionSoftGracePeriod";
const RECLAIM: &str = "evictionMinimumReclaim";

/// The kubelet's default hard thresholds.
const DEFAULTS: [(Signal, &str); 5] = [
    (Signal::MemoryAvailable, "100Mi"),
    (Signal::NodefsAvailable, "10%"),
    (Signal::NodefsInodesFree, "5%"),
    (Signal::ImagefsAvailable, "15%"),
    (Signal::ImagefsInodesFree, "5%"),
];

/// Other signals of a kubelet. They have no effect in Wherry: cgroups limit the memory of all pods together, and a
/// separate file system for containers is not measured.
const OTHER_SIGNALS: [&str; 3] = ["allocatableMemory.available", "containerfs.available", "containerfs.inodesFree"];

/// Valid settings by the name of the signal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EvictionSettings {
    /// None selects the defaults.
    hard: Option<BTreeMap<String, String>>,
    /// Whether missing hard thresholds have their defaults.
    pub merge_defaults: bool,
    soft: BTreeMap<String, String>,
    soft_grace: BTreeMap<String, Duration>,
    reclaim: BTreeMap<String, String>,
    /// None selects the default.
    pub transition: Option<Duration>,
    pub max_grace: Duration,
}

impl EvictionSettings {
    /// Returns the hard threshold of a signal.
    pub fn hard(&self, signal: Signal) -> Option<Limit> {
        let default = || DEFAULTS.iter().find(|(of, _)| *of == signal).map(|(_, value)| *value);
        let value = match &self.hard {
            None => default(),
            Some(hard) => {
                hard.get(signal.name()).map(String::as_str).or_else(|| default().filter(|_| self.merge_defaults))
            }
        };
        value.and_then(parsed)
    }

    /// Returns the fields that are maps, with the effective values by the name of the signal.
    pub fn shown(&self) -> [(&'static str, BTreeMap<String, String>); 4] {
        let default = |signal: Signal| DEFAULTS.iter().find(|(of, _)| *of == signal).map(|(_, value)| *value);
        let mut hard = self.hard.clone().unwrap_or_default();
        if self.hard.is_none() || self.merge_defaults {
            for (signal, value) in Signal::ALL.into_iter().filter_map(|signal| Some((signal, default(signal)?))) {
                hard.entry(signal.name().to_owned()).or_insert_with(|| value.to_owned());
            }
        }
        let grace =
            self.soft_grace.iter().map(|(signal, time)| (signal.clone(), duration::format(*time))).collect_map();
        [(HARD, hard), (SOFT, self.soft.clone()), (SOFT_GRACE, grace), (RECLAIM, self.reclaim.clone())]
    }

    pub fn policy(&self) -> EvictionPolicy {
        let mut thresholds = Vec::new();
        for signal in Signal::ALL {
            let reclaim = self.reclaim.get(signal.name()).and_then(|text| parsed(text));
            let soft = self.soft.get(signal.name()).and_then(|text| parsed(text));
            let grace = self.soft_grace.get(signal.name()).copied();
            let hard = self.hard(signal).map(|limit| (ThresholdKind::Hard, limit));
            let soft = soft.zip(grace).map(|(limit, grace)| (ThresholdKind::Soft(grace), limit));
            let both = hard.into_iter().chain(soft);
            thresholds.extend(both.map(|(kind, limit)| Threshold { signal, kind, limit, reclaim }));
        }
        let default = EvictionPolicy::default();
        EvictionPolicy {
            thresholds,
            transition: self.transition.unwrap_or(default.transition),
            max_grace: self.max_grace,
        }
    }
}

fn parsed(text: &str) -> Option<Limit> {
    Limit::parse(text).ok().flatten()
}

/// Calls `take` with the name and the text of each signal.
fn signals(map: &Node, wrong: Wrong, mut take: impl FnMut(&str, &str) -> Result<(), String>) {
    each(map, wrong, |name, value: &Value| {
        let mut all: Vec<&str> = Signal::ALL.into_iter().map(Signal::name).chain(OTHER_SIGNALS).collect();
        if !all.contains(&name) {
            all.order();
            return Err(format!("unknown eviction signal; it must be one of {}", all.join(", ")));
        }
        let text = value.text().unwrap_or_default();
        take(name, text).map_err(|why| format!("{text:?}: {why}"))
    });
}

fn thresholds(into: &mut BTreeMap<String, String>, map: &Node, wrong: Wrong) {
    signals(map, wrong, |name, text| {
        Limit::parse(text)?;
        into.insert(name.to_owned(), text.to_owned());
        Ok(())
    });
}

pub fn hard(c: &mut EvictionSettings, map: &Node, wrong: Wrong) {
    thresholds(c.hard.get_or_insert_default(), map, wrong);
}

pub fn soft(c: &mut EvictionSettings, map: &Node, wrong: Wrong) {
    thresholds(&mut c.soft, map, wrong);
}

pub fn soft_grace(c: &mut EvictionSettings, map: &Node, wrong: Wrong) {
    signals(map, wrong, |name, text| {
        let grace = duration::parse(text)?;
        c.soft_grace.insert(name.to_owned(), grace);
        Ok(())
    });
}

pub fn minimum_reclaim(c: &mut EvictionSettings, map: &Node, wrong: Wrong) {
    signals(map, wrong, |name, text| {
        if text != "0" {
            Limit::parse(text)?;
        }
        c.reclaim.insert(name.to_owned(), text.to_owned());
        Ok(())
    });
}

/// Sets `evictionMaxPodGracePeriod`, in seconds.
pub fn max_grace(c: &mut EvictionSettings, v: &FieldValue) -> Result<(), String> {
    let seconds = u64::try_from(v.int()).map_err(|_| format!("{} is negative; it must be 0 or more", v.int()))?;
    c.max_grace = Duration::from_secs(seconds);
    Ok(())
}

/// Sets `evictionPressureTransitionPeriod`. 0 selects the default.
pub fn transition(c: &mut EvictionSettings, v: &FieldValue) -> Result<(), String> {
    c.transition = Some(v.duration()).filter(|period| !period.is_zero());
    Ok(())
}

/// Checks the settings after all files have been read.
pub fn check(settings: &EvictionSettings, places: &BTreeMap<String, Place>, problems: &mut Problems) {
    let place = |field: &str| places.get(field).cloned().unwrap_or_else(Place::flag);
    for signal in settings.soft.keys().filter(|signal| !settings.soft_grace.contains_key(*signal)) {
        let message =
            format!("grace period must be specified for the soft eviction threshold; set {SOFT_GRACE}.{signal}");
        problems.error(&place(SOFT), format!("{SOFT}.{signal}"), message);
    }
    let empty = BTreeMap::new();
    let fields =
        [(HARD, settings.hard.as_ref().unwrap_or(&empty)), (SOFT, &settings.soft), (RECLAIM, &settings.reclaim)];
    for (field, signals) in fields {
        for signal in signals.keys().filter(|signal| OTHER_SIGNALS.contains(&signal.as_str())) {
            let message = "known, but not honoured by wherry: it has no effect";
            problems.warning(&place(field), format!("{field}.{signal}"), message);
        }
    }
}
