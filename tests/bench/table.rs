//! The table of results of the bench.

use std::fmt::Write;

#[derive(Default)]
pub struct Table {
    rows: Vec<Row>,
}

struct Row {
    what: String,
    wherry: f64,
    direct: Option<f64>,
    limit: f64,
    kubelet: &'static str,
}

impl Table {
    /// Adds a row. `direct`: the result of direct CRI calls in the same run. `limit`: the maximum. `kubelet`: the result of a
    /// kubelet on a similar machine.
    pub fn row(&mut self, what: &str, wherry: f64, direct: Option<f64>, limit: f64, kubelet: &'static str) {
        let direct_text = direct.map_or(String::new(), |d| format!(", direct calls {}", number(d)));
        eprintln!("{what}: {}{direct_text} (at most {})", number(wherry), number(limit));
        self.rows.push(Row { what: what.to_string(), wherry, direct, limit, kubelet });
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn missed(&self) -> usize {
        self.rows.iter().filter(|r| r.wherry > r.limit).count()
    }

    pub fn markdown(&self) -> String {
        let mut text =
            String::from("| | wherry | direct calls | at most | kubelet 1.32 | |\n|---|---|---|---|---|---|\n");
        for r in &self.rows {
            let direct = r.direct.map_or(String::new(), number);
            let verdict = if r.wherry > r.limit { "**missed**" } else { "" };
            let (wherry, limit) = (number(r.wherry), number(r.limit));
            let _ = writeln!(text, "| {} | {wherry} | {direct} | {limit} | {} | {verdict} |", r.what, r.kubelet);
        }
        text
    }
}

/// Formats a number with three significant digits.
fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 || v == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// The value that 99 % of the values do not exceed.
pub fn percentile_99(mut values: Vec<f64>) -> f64 {
    assert!(!values.is_empty(), "nothing was measured");
    values.sort_by(f64::total_cmp);
    values[(values.len() * 99).div_ceil(100) - 1]
}

pub fn median(mut values: Vec<f64>) -> f64 {
    assert!(!values.is_empty(), "nothing was measured");
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}
