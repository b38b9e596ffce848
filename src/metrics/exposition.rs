//! Writes pages in the classic text format of Prometheus (0.0.4), as a kubelet does.

use std::fmt::{self, Display, Write as _};

/// The type of a metric family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value that only increases.
    Counter,
    Gauge,
    Histogram,
}

/// A page under construction.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
}

/// The samples of one family.
#[derive(Debug)]
pub struct Family<'a> {
    text: &'a mut String,
    name: &'static str,
    kind: Kind,
    /// The help text: one line without a backslash.
    help: &'static str,
    /// Whether the lines HELP and TYPE have been written.
    begun: bool,
}

impl Exposition {
    /// Begins a family. It appears on the page with its first sample, as in a kubelet.
    pub fn family(&mut self, name: &'static str, kind: Kind, help: &'static str) -> Family<'_> {
        Family { text: &mut self.text, name, kind, help, begun: false }
    }

    /// Returns the finished page.
    pub fn into_bytes(self) -> Vec<u8> {
        self.text.into_bytes()
    }
}

impl Family<'_> {
    /// Writes a sample, unless the value is unknown. `at` is the time of the value in nanoseconds since the Unix
    /// epoch. Without it, the time of the scrape applies.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: Option<f64>, at: Option<i64>) {
        let Some(value) = value else { return };
        let mut text = String::new();
        for (label, value) in labels {
            push_label(&mut text, label, value);
        }
        match at {
            Some(at) => self.line("", &text, &format_args!("{value} {}", at / 1_000_000)),
            None => self.line("", &text, &value),
        }
    }

    /// Writes a histogram. `counts` are the numbers of observations in each bucket: one bucket for each of the
    /// `bounds`, and one for larger values.
    pub(super) fn histogram(&mut self, labels: &str, sum: f64, bounds: &[f64], counts: &[u64]) {
        self.line("_sum", labels, &Number(sum));
        self.line("_count", labels, &counts.iter().sum::<u64>());
        let mut total = 0;
        for (at, count) in counts.iter().enumerate() {
            total += count;
            let mut text = String::new();
            push_label(&mut text, "le", &bounds.get(at).map_or("+Inf".to_owned(), f64::to_string));
            if !labels.is_empty() {
                text.push(',');
                text.push_str(labels);
            }
            self.line("_bucket", &text, &total);
        }
    }

    /// Writes a sample. `labels` is text from `push_label`.
    pub(super) fn line(&mut self, suffix: &str, labels: &str, value: &dyn Display) {
        let Family { text, name, kind, help, begun } = self;
        // Writing to a string cannot fail, here and below.
        if !std::mem::replace(begun, true) {
            let kind = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        }
        let (open, close) = if labels.is_empty() { ("", "") } else { ("{", "}") };
        let _ = writeln!(text, "{name}{suffix}{open}{labels}{close} {value}");
    }
}

/// Appends a label to the text of the previous labels.
pub(super) fn push_label(text: &mut String, name: &str, value: &str) {
    let _ = write!(text, "{}{name}=\"", if text.is_empty() { "" } else { "," });
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        }
    }
    text.push('"');
}

/// A floating-point number, as `/metrics` has always shown it: `1.0` where Go writes `1`, and with an exponent only
/// below 1e-6 and from 1e21 on. Positive infinity has a sign, as in Go.
pub(super) struct Number(pub f64);

impl Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Number(n) = self;
        match n.abs() {
            _ if *n == f64::INFINITY => f.write_str("+Inf"),
            0.0 | 1e-6..1e21 => write!(f, "{n}{}", if n.fract() == 0.0 { ".0" } else { "" }),
            _ => write!(f, "{n:e}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_begins_with_its_first_known_value_and_values_of_labels_are_escaped() {
        let mut page = Exposition::default();
        let mut family = page.family("a_total", Kind::Counter, "A.");
        family.sample(&[], None, None);
        let mut family = page.family("b_bytes", Kind::Gauge, "B.");
        family.sample(&[], None, None);
        family.sample(&[("pod", "a\\b\"c\nd"), ("x", "")], Some(1e18), Some(1_700_000_000_123_999_999));
        family.sample(&[], Some(0.25), None);
        let expected = "# HELP b_bytes B.\n# TYPE b_bytes gauge\n\
                        b_bytes{pod=\"a\\\\b\\\"c\\nd\",x=\"\"} 1000000000000000000 1700000000123\nb_bytes 0.25\n";
        assert_eq!(String::from_utf8(page.into_bytes()).unwrap(), expected);
    }

    #[test]
    fn numbers_have_a_point_or_an_exponent_and_the_shortest_digits() {
        for (number, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (-1.0, "-1.0"),
            (0.1, "0.1"),
            (-0.25, "-0.25"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e-6, "0.000001"),
            (9.99e-7, "9.99e-7"),
            (-1.25e-7, "-1.25e-7"),
            (5e-324, "5e-324"),
            (1e16, "10000000000000000.0"),
            (u64::MAX as f64, "18446744073709552000.0"),
            (1e20, "100000000000000000000.0"),
            (1e21, "1e21"),
            (-1.5e21, "-1.5e21"),
            (f64::MAX, "1.7976931348623157e308"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(Number(number).to_string(), text);
        }
    }
}
