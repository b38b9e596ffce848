//! `wherry shutdown-plan`: shows when each pod would be stopped, and with which grace period, if the node were shut
//! down now.
//!
//! Prints a bar for each group over the available time, then a row for each pod. The output is plain ASCII, for
//! serial consoles.

use crate::api::ordered::OrderSlice;
use crate::api::shutdown::view::{PlanGroup, PlanPod, PlanView};
use crate::commands::client;
use crate::commands::output::Failure;
use crate::commands::screen::Screen;
use crate::commands::table::{GAP, Table};
use crate::config::duration;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// The width if stdout is not a terminal, in columns.
const WIDTH: usize = 80;
/// Minimum and maximum width of the bars, in columns.
const BARS: std::ops::RangeInclusive<usize> = 10..=100;

pub fn run(out: &mut dyn Write, socket: &Path, json: bool) -> Result<u8, Failure> {
    client::print(out, socket, "/shutdown-plan", json, |out, plan: &PlanView| show(out, plan, width()))
}

/// Returns the width of the terminal in columns. Programs that run wherry and show its output in a terminal (such as
/// watch) set COLUMNS.
fn width() -> usize {
    let said = || std::env::var("COLUMNS").ok()?.parse().ok();
    Screen::stdout().width.or_else(said).unwrap_or(WIDTH)
}

fn show(out: &mut dyn Write, plan: &PlanView, width: usize) -> std::io::Result<()> {
    if !plan.enabled {
        writeln!(
            out,
            "Graceful shutdown is off: when the machine goes down, pods are killed in arbitrary order without a grace \
             period."
        )?;
        return writeln!(
            out,
            "To turn it on, set shutdownGracePeriod (30s, say) in /etc/wherry/config.yaml and run systemctl reload \
             wherry."
        );
    }
    let needed = span(plan.needed_seconds as f64);
    match (plan.armed, plan.delay_seconds) {
        (true, None) => writeln!(
            out,
            "Armed, but it is unknown how long logind waits: the times are from the configuration, {needed} in total."
        )?,
        (true, Some(delay)) if delay < plan.needed_seconds as f64 => {
            let delay = span(delay);
            writeln!(
                out,
                "Armed, but logind waits only {delay} of the {needed} that are needed: the lowest groups get less."
            )?;
        }
        (true, Some(delay)) => writeln!(out, "Armed: {needed} for the pods; logind waits up to {}.", span(delay))?,
        (false, _) => {
            writeln!(
                out,
                "Not armed: a shutdown would not wait for the pods (wherry status shows why). If it were armed:"
            )?;
        }
    }
    writeln!(out)?;
    if plan.groups.iter().all(|g| g.pods.is_empty()) {
        return writeln!(out, "There are no pods.");
    }
    timeline(out, &plan.groups, width)?;
    if plan.groups.iter().any(is_cut) {
        writeln!(out, "x: cut off here, because logind does not wait longer")?;
    }
    writeln!(out)?;
    pods(out, &plan.groups)
}

fn is_cut(group: &PlanGroup) -> bool {
    group.granted_seconds.is_some_and(|granted| granted < group.period_seconds)
}

fn timeline(out: &mut dyn Write, groups: &[PlanGroup], width: usize) -> std::io::Result<()> {
    let cells: Vec<[String; 3]> =
        groups.iter().map(|g| [g.priority.to_string(), period(g), g.pods.len().to_string()]).collect();
    let widest = |i: usize, header: &str| cells.iter().map(|c| c[i].len()).chain([header.len()]).max().unwrap_or(0);
    let others = widest(0, "PRIORITY") + widest(1, "PERIOD") + widest(2, "PODS") + 3 * GAP.len();
    let scale = Scale {
        columns: width.saturating_sub(others).clamp(*BARS.start(), *BARS.end()),
        seconds: groups.iter().map(|g| g.until_seconds).max().unwrap_or(0),
    };
    let axis = scale.axis(groups);
    let bars: Vec<String> = groups.iter().map(|g| scale.bar(g)).collect();
    let rows: Vec<[&str; 4]> =
        cells.iter().zip(&bars).map(|([priority, period, pods], bar)| [&**priority, bar, period, pods]).collect();
    let header = ["PRIORITY", &axis, "PERIOD", "PODS"];
    let rows: Vec<&[&str]> = std::iter::once(&header[..]).chain(rows.iter().map(|r| &r[..])).collect();
    Table::new(&["", "", "", ""]).print(out, false, &rows)
}

fn period(group: &PlanGroup) -> String {
    share(group.granted_seconds, group.period_seconds)
}

/// Maps the time of the shutdown to columns.
struct Scale {
    columns: usize,
    seconds: u64,
}

impl Scale {
    /// Returns the column at which a second starts, at most `columns`.
    fn column(&self, second: u64) -> usize {
        if self.seconds == 0 {
            return 0;
        }
        let (all, columns) = (u128::from(self.seconds), self.columns as u128);
        // The result is at most `columns`, so the cast is safe.
        ((u128::from(second.min(self.seconds)) * columns + all / 2) / all) as usize
    }

    /// Returns a line as wide as the bars, with the times at which groups start and end, as far as they fit.
    fn axis(&self, groups: &[PlanGroup]) -> String {
        if self.seconds == 0 {
            return format!("{:<columns$}", "0s", columns = self.columns);
        }
        let mut at: Vec<u64> = groups.iter().flat_map(|g| [g.from_seconds, g.until_seconds]).collect();
        at.order();
        at.dedup();
        // The end is the most important time, so space is reserved for it.
        let end = span(self.seconds as f64);
        let end_column = self.columns.saturating_sub(end.len());
        let mut line = String::new();
        for second in at.into_iter().filter(|s| *s < self.seconds) {
            let (label, column) = (span(second as f64), self.column(second));
            let after_a_blank = line.is_empty() || column > line.len();
            if after_a_blank && column + label.len() < end_column {
                line.push_str(&format!("{:column$}{label}", "", column = column - line.len()));
            }
        }
        format!("{line:<end_column$}{end}")
    }

    /// Returns the bar of a group: `====`, ending in `x` if logind's delay cuts the group off, or `|` for a group
    /// with pods that gets no time.
    fn bar(&self, group: &PlanGroup) -> String {
        if group.pods.is_empty() {
            return String::new();
        }
        let from = self.column(group.from_seconds).min(self.columns - 1);
        let length = self.column(group.until_seconds).saturating_sub(from).max(1);
        let end = match (is_cut(group), group.until_seconds > group.from_seconds) {
            (true, _) => 'x',
            (false, true) => '=',
            (false, false) => '|',
        };
        format!("{:from$}{}{end}", "", "=".repeat(length - 1))
    }
}

fn pods(out: &mut dyn Write, groups: &[PlanGroup]) -> std::io::Result<()> {
    let pods = groups.iter().flat_map(|g| g.pods.iter().map(move |p| (g, p)));
    let rows: Vec<[String; 7]> = pods.map(|(group, pod)| row(group, pod)).collect();
    let rows: Vec<&[String]> = rows.iter().map(|r| &r[..]).collect();
    Table::new(&["POD", "PRIORITY", "FROM", "UNTIL", "GRACE", "OWN GRACE", ""]).print(out, true, &rows)?;
    writeln!(out, "\nThese are the latest times: a group begins as soon as the pods of the previous group have ended.")
}

fn row(group: &PlanGroup, pod: &PlanPod) -> [String; 7] {
    let seconds = |s: u64| span(s as f64);
    let cut_off = if pod.own_grace_seconds > pod.grace_seconds { "cut off" } else { "" };
    [
        format!("{}/{}", pod.namespace, pod.name),
        pod.priority.to_string(),
        seconds(group.from_seconds),
        seconds(group.from_seconds.saturating_add(pod.grace_seconds)),
        seconds(pod.grace_seconds),
        seconds(pod.own_grace_seconds),
        cut_off.to_owned(),
    ]
}

/// Formats the granted part of a period: `20s`, `5s of 20s`, or `unknown of 20s`.
pub fn share(granted: Option<u64>, period: u64) -> String {
    let of = span(period as f64);
    match granted {
        None => format!("unknown of {of}"),
        Some(granted) if granted < period => format!("{} of {of}", span(granted as f64)),
        Some(_) => of,
    }
}

/// Formats seconds as in the configuration (`1m30s`, `1h`), rounded to a tenth.
pub fn span(seconds: f64) -> String {
    let tenths = (seconds * 10.0).round() / 10.0;
    let Ok(d) = Duration::try_from_secs_f64(tenths) else { return "?".into() };
    // logind reports "infinity" as a very large number.
    if d > Duration::from_secs(100 * 365 * 86_400) {
        return "forever".into();
    }
    let text = duration::format(d);
    let text = text.strip_suffix("m0s").map_or(text.clone(), |rest| format!("{rest}m"));
    text.strip_suffix("h0m").map_or(text.clone(), |rest| format!("{rest}h"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize as _;

    fn pod(name: &str, priority: i32, grace: u64, own: u64) -> PlanPod {
        PlanPod {
            namespace: "default".into(),
            name: name.into(),
            uid: format!("uid-{name}"),
            priority,
            grace_seconds: grace,
            own_grace_seconds: own,
        }
    }

    /// Returns a group. The array contains its start, its end and its period, in seconds.
    fn group(priority: i32, [from, until, period]: [u64; 3], pods: Vec<PlanPod>) -> PlanGroup {
        let (from_seconds, until_seconds) = (from, until);
        let granted_seconds = Some(if pods.is_empty() { period } else { until - from });
        PlanGroup { priority, from_seconds, until_seconds, period_seconds: period, granted_seconds, pods }
    }

    fn plan(delay: f64, groups: Vec<PlanGroup>) -> PlanView {
        let needed_seconds = groups.iter().map(|g| g.period_seconds).sum();
        PlanView { enabled: true, armed: true, delay_seconds: Some(delay), needed_seconds, groups }
    }

    fn shown(plan: &PlanView, width: usize) -> String {
        // Convert to JSON and back, as the command does.
        let wire = PlanView::deserialize(serde_json::to_value(plan).unwrap()).unwrap();
        assert_eq!(wire, *plan);
        let mut out = Vec::new();
        show(&mut out, &wire, width).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn three() -> PlanView {
        plan(
            60.0,
            vec![
                group(0, [0, 20, 20], vec![pod("web", 0, 20, 30), pod("job", -5, 10, 10)]),
                group(1000, [20, 20, 15], vec![]),
                group(2_000_000_000, [20, 30, 10], vec![pod("proxy", 2_000_001_000, 10, 10)]),
            ],
        )
    }

    #[test]
    fn while_the_delay_is_unknown_no_time_is_shown_as_granted() {
        let mut plan = three();
        plan.delay_seconds = None;
        plan.groups.iter_mut().for_each(|g| g.granted_seconds = None);
        let text = shown(&plan, 80);
        assert!(text.starts_with("Armed, but it is unknown how long logind waits"), "{text}");
        assert_eq!(text.matches("unknown of ").count(), 3, "{text}");
        assert!(!text.contains("cut off here"), "{text}");
    }

    #[test]
    fn a_plan_is_a_timeline_and_a_table() {
        let rest = "\n\
             POD             PRIORITY     FROM   UNTIL   GRACE   OWN GRACE\n\
             default/web     0            0s     20s     20s     30s         cut off\n\
             default/job     -5           0s     10s     10s     10s\n\
             default/proxy   2000001000   20s    30s     10s     10s\n\
             \n\
             These are the latest times: a group begins as soon as the pods of the previous group have ended.\n";
        let head = "Armed: 45s for the pods; logind waits up to 1m.\n\n";
        assert_eq!(
            shown(&three(), 80),
            format!(
                "{head}\
                 PRIORITY     0s                                20s           30s   PERIOD   PODS\n\
                 0            ==================================                    20s      2\n\
                 1000                                                               15s      0\n\
                 2000000000                                     =================   10s      1\n\
                 {rest}"
            )
        );
        // On a terminal that is too narrow, a bar still has ten columns.
        assert_eq!(
            shown(&three(), 20),
            format!(
                "{head}\
                 PRIORITY     0s     30s   PERIOD   PODS\n\
                 0            =======      20s      2\n\
                 1000                      15s      0\n\
                 2000000000          ===   10s      1\n\
                 {rest}"
            )
        );
        let wide = shown(&three(), 500);
        let longest = wide.lines().skip(2).take(4).map(|l| l.matches('=').count()).sum::<usize>();
        assert_eq!(longest, 100, "{wide}");
    }

    #[test]
    fn every_width_is_kept_and_every_bar_seen() {
        for width in 50..=150 {
            let text = shown(&cut(), width);
            let lines: Vec<&str> = text.lines().skip(2).take(5).collect();
            assert!(lines.iter().all(|l| l.len() <= width), "{width}:\n{text}");
            let bars = lines[1..].iter().filter(|l| l.contains(['=', 'x', '|'])).count();
            assert_eq!(bars, 4, "{width}:\n{text}");
        }
    }

    #[test]
    fn s2_time_beyond_logind_delay_is_marked() {
        assert_eq!(
            shown(&cut(), 60),
            "Armed, but logind waits only 25s of the 55s that are needed: the lowest groups get less.\n\
             \n\
             PRIORITY     0s    5s                 25s   PERIOD      PODS\n\
             0            x                              0s of 20s   2\n\
             500          |                              0s          1\n\
             1000         =====x                         5s of 15s   1\n\
             2000000000         ======================   20s         1\n\
             x: cut off here, because logind does not wait longer\n\
             \n\
             POD             PRIORITY     FROM   UNTIL   GRACE   OWN GRACE\n\
             default/web     0            0s     1s      1s      30s         cut off\n\
             default/job     -5           0s     1s      1s      10s         cut off\n\
             default/fast    500          0s     1s      1s      10s         cut off\n\
             default/db      1000         0s     5s      5s      5m          cut off\n\
             default/proxy   2000001000   5s     15s     10s     10s\n\
             \n\
             These are the latest times: a group begins as soon as the pods of the previous group have ended.\n"
        );
    }

    #[test]
    fn a_plan_that_is_off_not_armed_or_empty_is_reported_as_such() {
        let text = shown(&PlanView::default(), 80);
        assert!(text.starts_with("Graceful shutdown is off") && text.contains("set shutdownGracePeriod"), "{text}");
        let not_armed = PlanView { armed: false, ..three() };
        let text = shown(&not_armed, 80);
        assert!(
            text.starts_with("Not armed: a shutdown would not wait for the pods") && text.contains("====="),
            "{text}"
        );
        let text = shown(&plan(30.0, vec![group(0, [0, 0, 20], vec![])]), 80);
        assert_eq!(text, "Armed: 20s for the pods; logind waits up to 30s.\n\nThere are no pods.\n");
        // All pods are killed at once: there is no time to draw.
        let text = shown(&plan(5.0, vec![group(0, [0, 0, 0], vec![pod("web", 0, 1, 30)])]), 50);
        assert!(text.contains("\nPRIORITY   0s"), "{text}");
        assert!(text.contains("\n0          |  "), "{text}");
    }

    #[test]
    fn a_plan_of_a_later_version_is_read_as_far_as_it_goes() {
        let value =
            serde_json::json!({"enabled": true, "later": 1, "groups": [{"priority": 7, "pods": [{"name": "a"}]}]});
        let plan = PlanView::deserialize(value).unwrap();
        assert_eq!((plan.groups[0].priority, plan.groups[0].pods[0].name.as_str()), (7, "a"));
        let hostile = serde_json::json!({"enabled": true, "armed": true, "delaySeconds": -1e300, "groups": [
            {"fromSeconds": u64::MAX - 9, "untilSeconds": u64::MAX, "pods": [{"graceSeconds": u64::MAX}]}]});
        shown(&PlanView::deserialize(hostile).unwrap(), 80);
    }

    #[test]
    fn times_are_written_as_in_a_configuration() {
        for (seconds, text) in [
            (0.0, "0s"),
            (4.96, "5s"),
            (12.34, "12.3s"),
            (60.0, "1m"),
            (90.0, "1m30s"),
            (600.0, "10m"),
            (3600.0, "1h"),
            (36_000.0, "10h"),
            (4800.0, "1h20m"),
            (1.8e13, "forever"),
            (f64::NAN, "?"),
        ] {
            assert_eq!(span(seconds), text);
        }
    }

    fn cut() -> PlanView {
        plan(
            25.0,
            vec![
                group(0, [0, 0, 20], vec![pod("web", 0, 1, 30), pod("job", -5, 1, 10)]),
                group(500, [0, 0, 0], vec![pod("fast", 500, 1, 10)]),
                group(1000, [0, 5, 15], vec![pod("db", 1000, 5, 300)]),
                group(2_000_000_000, [5, 25, 20], vec![pod("proxy", 2_000_001_000, 10, 10)]),
            ],
        )
    }
}
