//! A strict parser for the classic Prometheus text format (0.0.4). Input that a scraper would have to guess or
//! discard is an error. The parser also requires that a help text be a sentence and that bucket bounds be written as
//! Go writes them.

use std::collections::{BTreeMap, BTreeSet};

/// The labels of a sample, by name.
pub type Labels = BTreeMap<String, String>;

#[derive(Debug, Default)]
pub struct Family {
    pub kind: String,
    pub help: String,
    /// In the order of the text.
    pub samples: Vec<Sample>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// `_bucket`, `_sum` or `_count` in a histogram, otherwise empty.
    pub suffix: String,
    pub labels: Labels,
    pub le: Option<String>,
    pub value: f64,
}

#[derive(Debug, Default)]
pub struct Exposition(pub BTreeMap<String, Family>);

impl Family {
    /// Returns the label names of the family, sorted.
    pub fn label_names(&self) -> BTreeSet<&str> {
        self.samples.iter().flat_map(|s| s.labels.keys()).map(String::as_str).collect()
    }

    /// Returns the bucket bounds of the family, as written in the text.
    pub fn bounds(&self) -> Vec<&str> {
        let mut bounds: Vec<&str> = Vec::new();
        for le in self.samples.iter().filter_map(|s| s.le.as_deref()) {
            if !bounds.contains(&le) {
                bounds.push(le);
            }
        }
        bounds
    }

    /// Returns the number of different label sets.
    pub fn series(&self) -> usize {
        self.samples.iter().map(|s| &s.labels).collect::<BTreeSet<_>>().len()
    }
}

impl Exposition {
    pub fn read(text: &str) -> Result<Exposition, String> {
        let mut read = Exposition::default();
        if !text.is_empty() && !text.ends_with('\n') {
            return Err("the last line has no newline".into());
        }
        let mut current: Option<String> = None;
        let mut helped: Option<(String, String)> = None;
        for line in text.lines() {
            let at = |why: &str| format!("{why}: {line}");
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').ok_or_else(|| at("HELP line without text"))?;
                if help.is_empty() || !help.ends_with('.') || help.ends_with("..") {
                    return Err(at("the help text is not a sentence"));
                }
                helped = Some((name.to_owned(), unescape(help, false).ok_or_else(|| at("a bad escape"))?));
                current = None;
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').ok_or_else(|| at("TYPE line without a name"))?;
                let help = helped.take().filter(|(n, _)| n == name).ok_or_else(|| at("TYPE line without HELP"))?.1;
                if !is_name(name, true) || !["counter", "gauge", "histogram"].contains(&kind) {
                    return Err(at("invalid type or name"));
                }
                let family = Family { kind: kind.to_owned(), help, samples: Vec::new() };
                if read.0.insert(name.to_owned(), family).is_some() {
                    return Err(at("duplicate family"));
                }
                current = Some(name.to_owned());
            } else {
                let name = current.as_ref().ok_or_else(|| at("sample outside a family"))?;
                let family = read.0.get_mut(name).ok_or_else(|| at("unknown family"))?;
                let sample = sample(line, name, &family.kind).map_err(|why| at(&why))?;
                family.samples.push(sample);
            }
        }
        for (name, family) in &read.0 {
            check(family).map_err(|why| format!("{name}: {why}"))?;
        }
        Ok(read)
    }

    pub fn family(&self, name: &str) -> &Family {
        self.0.get(name).unwrap_or_else(|| panic!("no metric {name}"))
    }

    /// Returns the sum over all series of a counter or gauge whose labels have these values. 0 if there is no such
    /// series.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.of(name, "", labels).sum()
    }

    /// Returns the number of observations of a histogram.
    pub fn count(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.of(name, "_count", labels).sum()
    }

    pub fn total_seconds(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.of(name, "_sum", labels).sum()
    }

    /// Returns the number of observations of a histogram up to the bound `le`.
    pub fn up_to(&self, name: &str, le: &str) -> f64 {
        let samples = self.0.get(name).into_iter().flat_map(|f| &f.samples);
        samples.filter(|s| s.le.as_deref() == Some(le)).map(|s| s.value).sum()
    }

    fn of<'a>(&'a self, name: &str, suffix: &'a str, labels: &'a [(&str, &str)]) -> impl Iterator<Item = f64> + 'a {
        let samples = self.0.get(name).into_iter().flat_map(|f| &f.samples);
        let fits = |s: &Sample| labels.iter().all(|(k, v)| s.labels.get(*k).is_some_and(|value| value == v));
        samples.filter(move |s| s.suffix == suffix && fits(s)).map(|s| s.value)
    }
}

fn is_name(name: &str, colons: bool) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || colons && c == ':';
    name.chars().all(fits) && name.chars().next().is_some_and(|c| !c.is_ascii_digit())
}

fn unescape(text: &str, quotes: bool) -> Option<String> {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(match (c, quotes) {
            ('\\', _) => match chars.next()? {
                '\\' => '\\',
                'n' => '\n',
                '"' if quotes => '"',
                _ => return None,
            },
            ('"', true) => return None,
            (c, _) => c,
        });
    }
    Some(out)
}

fn sample(line: &str, family: &str, kind: &str) -> Result<Sample, String> {
    let split = line.find(['{', ' ']).ok_or("no value")?;
    let suffix = line[..split].strip_prefix(family).ok_or("sample of another family")?;
    let suffixes: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
    if !suffixes.contains(&suffix) {
        return Err(format!("not a sample of a {kind}"));
    }
    let (mut labels, mut rest) = (Labels::new(), &line[split..]);
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (name, tail) = rest.split_once("=\"").ok_or("label without a value")?;
            let end = end_of_value(tail).ok_or("unterminated label value")?;
            let value = unescape(&tail[..end], true).ok_or("a bad escape")?;
            if !is_name(name, false) || labels.insert(name.to_owned(), value).is_some() {
                return Err(format!("invalid or duplicate label: {name:?}"));
            }
            rest = &tail[end + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').ok_or("unterminated labels")?;
    }
    let text = rest.strip_prefix(' ').ok_or("no value")?;
    // A timestamp or an exemplar is an error.
    let value: f64 = text.parse().map_err(|_| format!("not a number: {text:?}"))?;
    // A gauge can be infinite, in Go's notation: the remaining time of something that does not end.
    let is_infinite = kind == "gauge" && text == "+Inf";
    if text.contains(char::is_whitespace) || !value.is_finite() && !is_infinite {
        return Err("not a plain number".into());
    }
    let le = labels.remove("le");
    if le.is_some() != (suffix == "_bucket") {
        return Err("`le` belongs to buckets".into());
    }
    Ok(Sample { suffix: suffix.to_owned(), labels, le, value })
}

fn end_of_value(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut i = 0;
    while *bytes.get(i)? != b'"' {
        i += if bytes[i] == b'\\' { 2 } else { 1 };
    }
    Some(i)
}

fn check(family: &Family) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for s in &family.samples {
        if !seen.insert((&s.suffix, &s.labels, &s.le)) {
            return Err(format!("duplicate sample: {s:?}"));
        }
        if family.kind != "gauge" && s.suffix != "_sum" && s.value < 0.0 {
            return Err(format!("negative count: {s:?}"));
        }
    }
    let names: Vec<Vec<&String>> = family.samples.iter().map(|s| s.labels.keys().collect()).collect();
    if names.windows(2).any(|w| w[0] != w[1]) {
        return Err("the series have different labels".into());
    }
    if family.samples.is_empty() {
        return Err("no samples".into());
    }
    if family.kind == "histogram" {
        let label_sets: BTreeSet<&Labels> = family.samples.iter().map(|s| &s.labels).collect();
        for labels in label_sets {
            check_histogram(family.samples.iter().filter(|s| s.labels == *labels))?;
        }
    }
    Ok(())
}

fn check_histogram<'a>(samples: impl Iterator<Item = &'a Sample>) -> Result<(), String> {
    let (mut last, mut sum, mut count): (Option<(f64, f64)>, _, _) = (None, None, None);
    for s in samples {
        match (&s.le, s.suffix.as_str()) {
            (Some(text), _) => {
                let le =
                    if text == "+Inf" { f64::INFINITY } else { text.parse().map_err(|_| format!("le={text:?}"))? };
                // Go writes the shortest form of a number.
                if le.is_finite() && le.to_string() != *text {
                    return Err(format!("not the form in which Go writes this bound: {text}"));
                }
                if last.is_some_and(|(bound, n)| bound >= le || n > s.value) {
                    return Err(format!("buckets do not increase at {text}"));
                }
                last = Some((le, s.value));
            }
            (None, "_sum") => sum = Some(s.value),
            (None, _) => count = Some(s.value),
        }
    }
    match (last, sum, count) {
        (Some((le, all)), Some(_), Some(n)) if le.is_infinite() && all == n => Ok(()),
        _ => Err("a histogram needs a +Inf bucket, a sum, and a count that equals the +Inf bucket".into()),
    }
}
