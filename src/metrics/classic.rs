//! Converts the OpenMetrics output of the library to the classic text format (0.0.4), which a kubelet serves.
//!
//! The formats differ in four places. OpenMetrics appends `_total` to every counter; the kubelet has counters without
//! it. OpenMetrics ends with `# EOF`; encoding only the registry omits it. The library writes the bound of a bucket as
//! `1.0`, and Go as `1`; dashboards select on that value. An infinite value
//! is `+Inf` in Go, not `inf`.

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::{MetricType, TypedMetric};
use std::sync::atomic::Ordering;

/// A counter that is encoded under its own name, without a suffix.
#[derive(Clone, Debug, Default)]
pub struct PlainCounter(Counter);

impl PlainCounter {
    pub fn inc(&self) {
        self.0.inc();
    }

    /// Sets the total of a counter that is maintained elsewhere.
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

/// Rewrites the bounds of buckets, and infinite values, as Go formats them.
pub fn as_go(text: &str) -> Vec<u8> {
    const KEY: &str = "le=\"";
    let mut out = Vec::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        // The library writes `le` first, so the value of another label cannot be mistaken for it.
        let bound = line.find('{').filter(|i| line[i + 1..].starts_with(KEY)).map(|i| i + 1 + KEY.len());
        let end = bound.and_then(|start| line[start..].find('"').map(|length| start + length));
        match end {
            Some(end) if !line.starts_with('#') && line[..end].ends_with(".0") => {
                out.extend_from_slice(&line.as_bytes()[..end - 2]);
                out.extend_from_slice(&line.as_bytes()[end..]);
            }
            _ => match line.strip_suffix(" inf\n") {
                Some(name) if !line.starts_with('#') => {
                    out.extend_from_slice(name.as_bytes());
                    out.extend_from_slice(b" +Inf\n");
                }
                _ => out.extend_from_slice(line.as_bytes()),
            },
        }
    }
    out
}

/// The families of a text in the classic format for whose names `wanted` returns true.
pub fn only(text: &[u8], wanted: impl Fn(&str) -> bool) -> Vec<u8> {
    let mut taken = false;
    let mut out = Vec::new();
    for line in text.split_inclusive(|b| *b == b'\n') {
        // A family starts with its HELP line.
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
