//! Metrics with the names, types, labels and buckets of the kubelet, so that existing dashboards and alerts work.
//!
//! `families` is the table of all families, `measures` sets the values that need more than one line of code, and
//! `exposition` writes a page. Gauges are set before a scrape; the values of `process_*` are read during a scrape. As
//! in a kubelet, a family without labels exists from the start, and a family with labels has series only for observed
//! values. A family without labels is 0 until it gets a value. docs/metrics.md documents each metric.

pub mod exposition;
pub(crate) mod families;
mod labels;
mod measures;
mod node_resources;
mod process;
#[cfg(test)]
mod tests;

use exposition::{Exposition, Kind, Number, push_label};
use families::{Counter, Gauge, Histogram, NODE_NAME, RESTARTED_PODS, Row, TABLE};
use process::Process;
use std::cell::RefCell;

/// The values of all families. One thread sets and reads them.
pub struct Metrics {
    /// In the order of the table. The series of a family are sorted by their labels.
    series: RefCell<Vec<Vec<Series>>>,
    process: Process,
}

#[derive(Debug)]
struct Series {
    /// The labels as the page shows them. Empty without labels.
    labels: Box<str>,
    value: Value,
}

#[derive(Debug)]
enum Value {
    Integer(i64),
    Number(f64),
    /// `counts`: see `exposition::Family::histogram`.
    Histogram {
        sum: f64,
        counts: Box<[u64]>,
    },
}

impl Metrics {
    /// Creates the families without labels, and the series that dashboards expect from the first scrape on.
    pub fn new(node_name: &str) -> Metrics {
        let series = TABLE.iter().map(|_| Vec::new()).collect();
        let metrics = Metrics { series: RefCell::new(series), process: Process::new() };
        for (at, _) in TABLE.iter().enumerate().filter(|(_, row)| row.labels.is_empty()) {
            metrics.change(at, &[], &mut |_| ());
        }
        metrics.set(NODE_NAME, [node_name], 1);
        metrics.set_desired_pods(0);
        metrics.set_active_pods(0);
        metrics.set_working_pods(|_, _| 0);
        for is_static in ["", "true"] {
            metrics.set_total(RESTARTED_PODS, [is_static], 0);
        }
        metrics
    }

    /// Increments a counter.
    pub(crate) fn inc<const N: usize>(&self, Counter(at): Counter<N>, labels: [&str; N]) {
        self.change(at, &labels, &mut |value| {
            if let Value::Integer(n) = value {
                *n = n.saturating_add(1);
            }
        });
    }

    /// Sets a counter whose total is maintained elsewhere.
    pub(crate) fn set_total<const N: usize>(&self, Counter(at): Counter<N>, labels: [&str; N], total: u64) {
        let total = i64::try_from(total).unwrap_or(i64::MAX);
        self.change(at, &labels, &mut |value| *value = Value::Integer(total));
    }

    /// Sets a gauge to an integer. A value that is too large becomes `i64::MAX`.
    pub(crate) fn set<const N: usize>(&self, Gauge(at): Gauge<N>, labels: [&str; N], n: impl TryInto<i64>) {
        let n = n.try_into().unwrap_or(i64::MAX);
        self.change(at, &labels, &mut |value| *value = Value::Integer(n));
    }

    /// Sets a gauge to a floating-point number.
    pub(crate) fn set_number<const N: usize>(&self, Gauge(at): Gauge<N>, labels: [&str; N], n: f64) {
        self.change(at, &labels, &mut |value| *value = Value::Number(n));
    }

    /// Adds an observation to a histogram.
    pub(crate) fn observe<const N: usize>(&self, Histogram(at): Histogram<N>, labels: [&str; N], observed: f64) {
        let bounds = TABLE[at].bounds;
        let bucket = bounds.iter().position(|bound| observed <= *bound).unwrap_or(bounds.len());
        self.change(at, &labels, &mut |value| {
            if let Value::Histogram { sum, counts } = value {
                *sum += observed;
                counts[bucket] += 1;
            }
        });
    }

    /// Removes a series.
    pub(crate) fn remove<const N: usize>(&self, Counter(at): Counter<N>, labels: [&str; N]) {
        let family = &mut self.series.borrow_mut()[at];
        if let Ok(place) = find(family, &label_text(at, &labels)) {
            family.remove(place);
        }
    }

    /// Removes all series of a family.
    pub(crate) fn clear<const N: usize>(&self, Gauge(at): Gauge<N>) {
        self.series.borrow_mut()[at].clear();
    }

    /// Changes the value of a series, which is created if it does not exist. `at` is the row in the table.
    fn change(&self, at: usize, labels: &[&str], change: &mut dyn FnMut(&mut Value)) {
        let text = label_text(at, labels);
        let family = &mut self.series.borrow_mut()[at];
        let place = find(family, &text).unwrap_or_else(|place| {
            family.insert(place, Series { labels: text.into(), value: Value::zero(&TABLE[at]) });
            place
        });
        change(&mut family[place].value);
    }

    /// Returns all metrics in the classic text format.
    pub fn render(&self) -> Vec<u8> {
        self.page(|_| true)
    }

    /// Returns the content of a kubelet's `/metrics/probes`: the results of probes, and the start time of the
    /// process.
    pub fn render_probes(&self) -> Vec<u8> {
        self.page(|family| family.starts_with("prober_") || family == "process_start_time_seconds")
    }

    fn page(&self, wanted: fn(&str) -> bool) -> Vec<u8> {
        let mut page = Exposition::default();
        for (row, series) in TABLE.iter().zip(&*self.series.borrow()).filter(|(row, _)| wanted(row.name)) {
            let mut family = page.family(row.name, row.kind, row.help);
            for Series { labels, value } in series {
                match value {
                    Value::Integer(n) => family.line("", labels, n),
                    Value::Number(n) => family.line("", labels, &Number(*n)),
                    Value::Histogram { sum, counts } => family.histogram(labels, *sum, row.bounds, counts),
                }
            }
        }
        for (name, kind, help, value) in self.process.read().into_iter().filter(|(name, ..)| wanted(name)) {
            if let Some(n) = value {
                page.family(name, kind, help).line("", "", &Number(n));
            }
        }
        page.into_bytes()
    }
}

impl Value {
    fn zero(row: &Row) -> Value {
        match row.kind {
            Kind::Counter | Kind::Gauge => Value::Integer(0),
            Kind::Histogram => Value::Histogram { sum: 0.0, counts: vec![0; row.bounds.len() + 1].into() },
        }
    }
}

/// Returns the index of a series, or as an error the index at which it belongs.
fn find(family: &[Series], labels: &str) -> Result<usize, usize> {
    family.binary_search_by(|series| (*series.labels).cmp(labels))
}

/// Formats the labels of a series. `at` is the row in the table.
fn label_text(at: usize, values: &[&str]) -> String {
    let mut text = String::new();
    for (name, value) in TABLE[at].labels.iter().zip(values) {
        push_label(&mut text, name, value);
    }
    text
}
