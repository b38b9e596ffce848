//! The classic text format (0.0.4), which is what a kubelet serves, out of a library that writes OpenMetrics.
//!
//! The two differ in three places: OpenMetrics puts `_total` behind every counter (the kubelet has counters without),
//! ends with `# EOF` (left out by encoding the registry alone), and the library writes a whole bucket's bound as `1.0`,
//! where Go writes `1`; dashboards select on that.

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::{MetricType, TypedMetric};
use std::sync::atomic::Ordering;

/// A counter that is called what it is called, without a suffix.
#[derive(Clone, Debug, Default)]
pub struct PlainCounter(Counter);

impl PlainCounter {
    pub fn inc(&self) {
        self.0.inc();
    }

    /// For what is counted elsewhere.
    pub fn set(&self, total: u64) {
        self.0.inner().store(total, Ordering::Relaxed);
    }
}

impl TypedMetric for PlainCounter {
    const TYPE: MetricType = MetricType::Counter;
}

impl EncodeMetric for PlainCounter {
    fn encode(&self, mut encoder: MetricEncoder) -> Result<(), std::fmt::Error> {
        encoder.encode_gauge(&self.0.get())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Counter
    }
}

/// Writes the bounds of buckets as Go does.
pub fn go_bounds(text: &str) -> Vec<u8> {
    const KEY: &str = "le=\"";
    let mut out = Vec::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        // The library writes it first, so no value of a label can be taken for it.
        let bound = line.find('{').filter(|i| line[i + 1..].starts_with(KEY)).map(|i| i + 1 + KEY.len());
        let end = bound.and_then(|start| line[start..].find('"').map(|length| start + length));
        match end {
            Some(end) if !line.starts_with('#') && line[..end].ends_with(".0") => {
                out.extend_from_slice(&line.as_bytes()[..end - 2]);
                out.extend_from_slice(&line.as_bytes()[end..]);
            }
            _ => out.extend_from_slice(line.as_bytes()),
        }
    }
    out
}

/// The families whose names are `wanted`, of a text in the classic format.
pub fn only(text: &[u8], wanted: impl Fn(&str) -> bool) -> Vec<u8> {
    let mut taken = false;
    let mut out = Vec::new();
    for line in text.split_inclusive(|b| *b == b'\n') {
        // A family begins with its help.
        if let Some(rest) = line.strip_prefix(b"# HELP ") {
            let name = rest.split(|b| *b == b' ').next().unwrap_or_default();
            taken = std::str::from_utf8(name).is_ok_and(&wanted);
        }
        if taken {
            out.extend_from_slice(line);
        }
    }
    out
}
