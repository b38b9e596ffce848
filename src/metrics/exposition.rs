//! Writes families in the classic text format of Prometheus, for metrics whose series exist only during one scrape.
//! (The registry of this module has no timestamps.)

use std::fmt::Write as _;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
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
    /// One line, without a backslash.
    help: &'static str,
    /// The lines HELP and TYPE are written.
    begun: bool,
}

impl Exposition {
    /// A family that appears with its first sample, as in a kubelet.
    pub fn family(&mut self, name: &'static str, kind: Kind, help: &'static str) -> Family<'_> {
        Family { text: &mut self.text, name, kind, help, begun: false }
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.text.into_bytes()
    }
}

impl Family<'_> {
    /// `at`: the time of the value in nanoseconds since the Unix epoch. Without it, the time of the scrape counts. A
    /// value that is unknown has no sample.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: Option<f64>, at: Option<i64>) {
        let Some(value) = value else { return };
        let Family { text, name, kind, help, begun } = self;
        if !std::mem::replace(begun, true) {
            let kind = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
            };
            // Writing to a string cannot fail, here and below.
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        }
        text.push_str(name);
        for (at, (label, value)) in labels.iter().enumerate() {
            let _ = write!(text, "{}{label}=\"", if at == 0 { '{' } else { ',' });
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
        if !labels.is_empty() {
            text.push('}');
        }
        let _ = write!(text, " {value}");
        if let Some(at) = at {
            let _ = write!(text, " {}", at / 1_000_000);
        }
        text.push('\n');
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
}
