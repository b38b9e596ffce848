//! `wherry top`: the resource usage of pods and containers, from two samples of the runtime's statistics.

use crate::api::control::{ContainerUsage, Usage};
use crate::api::ordered::{CollectOrdered, OrderSlice};
use crate::api::resources::MEMORY;
use crate::api::selector::Selector;
use crate::commands::client;
use crate::commands::output::{Failure, document, json_line, print_message};
use crate::commands::screen::{NEW_PICTURE, Screen};
use crate::commands::select::PodTarget;
use crate::commands::status::amount_of;
use crate::commands::table::Table;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// Time between the two samples. A shorter time would not give a meaningful CPU usage.
const SAMPLE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SortBy {
    Cpu,
    Memory,
    Restarts,
    Name,
}

#[derive(Clone, Debug)]
pub struct TopQuery {
    /// The pod to show. None selects all pods.
    pub target: Option<PodTarget>,
    pub namespace: Option<String>,
    pub selector: Option<Selector>,
    /// Whether to print a line for each container too.
    pub containers: bool,
    pub sort: SortBy,
    pub json: bool,
    /// Repeat with this interval.
    pub watch: Option<Duration>,
}

/// The usage of a container or of a whole pod. A value is None if it is not known yet, or if the runtime does not
/// report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Used {
    /// CPU usage, in billionths of a CPU.
    cpu: Option<u64>,
    /// Memory usage, in bytes.
    memory: Option<u64>,
    restarts: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    namespace: String,
    name: String,
    uid: String,
    used: Used,
    containers: Vec<(String, Used)>,
}

pub fn run(out: &mut dyn Write, socket: &Path, query: &TopQuery) -> Result<u8, Failure> {
    let sample = || -> Result<Usage, Failure> {
        let value = client::get_json(socket, "/usage")?;
        serde_json::from_value(value).map_err(|e| Failure::message(format!("/usage: invalid response: {e}")))
    };
    let screen = Screen::stdout();
    let mut before = sample()?;
    let mut pause = SAMPLE;
    loop {
        std::thread::sleep(pause);
        let now = sample()?;
        let rows = rows(&before, &now, query);
        let found = !rows.is_empty();
        if query.watch.is_some() && screen.is_terminal() && !query.json {
            out.write_all(NEW_PICTURE.as_bytes())?;
        }
        show(out, &rows, query, screen)?;
        out.flush()?;
        let Some(every) = query.watch else {
            if !found {
                print_message(match query.target {
                    Some(_) => "no container of a matching pod is running",
                    None => "no container is running",
                });
            }
            return Ok(u8::from(!found && query.target.is_some()));
        };
        before = now;
        pause = every;
    }
}

/// Returns the rows of the requested pods, sorted.
fn rows(before: &Usage, now: &Usage, query: &TopQuery) -> Vec<Row> {
    let all = before.pods.iter().flat_map(|p| &p.containers);
    let earlier: BTreeMap<&str, &ContainerUsage> = all.map(|c| (c.id.as_str(), c)).collect_map();
    let wanted = now.pods.iter().filter(|p| {
        query.target.as_ref().is_none_or(|t| t.is(&p.namespace, &p.name, &p.uid))
            && query.namespace.as_deref().is_none_or(|n| n == p.namespace)
            && query.selector.as_ref().is_none_or(|s| s.matches(|key| p.labels.get(key).map(String::as_str)))
    });
    let mut rows: Vec<Row> = wanted
        .map(|p| {
            let of = |c: &ContainerUsage| (c.name.clone(), used(earlier.get(c.id.as_str()).copied(), c));
            let mut containers: Vec<(String, Used)> = p.containers.iter().map(of).collect();
            containers.order_by(|(a, of_a), (b, of_b)| order(query.sort, of_a, of_b).then(a.cmp(b)));
            Row {
                namespace: p.namespace.clone(),
                name: p.name.clone(),
                uid: p.uid.clone(),
                used: sum(containers.iter().map(|(_, used)| *used)),
                containers,
            }
        })
        .collect();
    rows.order_by(|a, b| {
        let names = (&a.namespace, &a.name, &a.uid).cmp(&(&b.namespace, &b.name, &b.uid));
        order(query.sort, &a.used, &b.used).then(names)
    });
    rows
}

/// Compares two usages: the highest values come first, unknown values last.
fn order(by: SortBy, a: &Used, b: &Used) -> std::cmp::Ordering {
    match by {
        SortBy::Cpu => Reverse(a.cpu).cmp(&Reverse(b.cpu)),
        SortBy::Memory => Reverse(a.memory).cmp(&Reverse(b.memory)),
        SortBy::Restarts => Reverse(a.restarts).cmp(&Reverse(b.restarts)),
        SortBy::Name => std::cmp::Ordering::Equal,
    }
}

fn used(before: Option<&ContainerUsage>, now: &ContainerUsage) -> Used {
    let between = |b: &ContainerUsage| {
        let took = u64::try_from(now.cpu_at.checked_sub(b.cpu_at)?).ok().filter(|t| *t > 0)?;
        let spent = now.cpu_nanos?.checked_sub(b.cpu_nanos?)?;
        u64::try_from(u128::from(spent) * 1_000_000_000 / u128::from(took)).ok()
    };
    // A runtime that takes samples rarely may return the same values twice. It may report the CPU usage itself.
    let cpu = before.and_then(between).or(now.cpu_nano_cores);
    Used { cpu, memory: now.memory_bytes, restarts: u64::from(now.restarts) }
}

fn sum(all: impl Iterator<Item = Used>) -> Used {
    let add = |a: Option<u64>, b: Option<u64>| match (a, b) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (a, b) => a.or(b),
    };
    all.fold(Used::default(), |a, b| Used {
        cpu: add(a.cpu, b.cpu),
        memory: add(a.memory, b.memory),
        restarts: a.restarts + b.restarts,
    })
}

fn show(out: &mut dyn Write, rows: &[Row], query: &TopQuery, screen: Screen) -> Result<(), Failure> {
    if query.json {
        let value = as_json(rows);
        // With --watch, each document is one line.
        return match query.watch {
            Some(_) => json_line(out, &value).map_err(Failure::from),
            None => document(out, &value, false),
        };
    }
    const HEADER: [&str; 6] = ["NAMESPACE", "POD", "CONTAINER", "CPU", "MEMORY", "RESTARTS"];
    let mut cells: Vec<[String; 6]> = Vec::new();
    for row in rows {
        let line = |namespace: &str, pod: &str, container: &str, used: &Used| {
            let [cpu, memory] = [used.cpu.map(cores), used.memory.map(|m| amount_of(MEMORY, m))]
                .map(|known| known.unwrap_or_else(|| "-".into()));
            [namespace.into(), pod.into(), container.into(), cpu, memory, used.restarts.to_string()]
        };
        cells.push(line(&row.namespace, &row.name, "", &row.used));
        if query.containers {
            cells.extend(row.containers.iter().map(|(name, used)| line("", "", name, used)));
        }
    }
    let left_out = leave_out(&mut cells, query, screen);
    let kept = |cells: &[String; 6]| -> Vec<String> {
        let wanted = |(i, _): &(usize, &String)| query.containers || *i != 2;
        cells.iter().enumerate().filter(wanted).map(|(_, cell)| cell.clone()).collect()
    };
    let header: Vec<&'static str> = HEADER.into_iter().filter(|h| query.containers || *h != "CONTAINER").collect();
    let rows: Vec<Vec<String>> = cells.iter().map(kept).collect();
    let rows: Vec<&[String]> = rows.iter().map(Vec::as_slice).collect();
    if !rows.is_empty() {
        let mut table = Table::new(&header).on(screen, &["NAMESPACE", "POD", "CONTAINER"], |_, _| None);
        table.print(out, true, &rows)?;
    }
    if left_out > 0 {
        writeln!(out, "... and {left_out} more lines")?;
    }
    if query.watch.is_some() && !screen.is_terminal() {
        writeln!(out)?;
    }
    Ok(())
}

/// In watch mode on a terminal, drops the rows that do not fit on the screen, and returns how many were dropped.
fn leave_out(cells: &mut Vec<[String; 6]>, query: &TopQuery, screen: Screen) -> usize {
    let Some(height) = screen.height.filter(|_| query.watch.is_some()) else { return 0 };
    // Reserve lines for the header, the note about omitted lines, and the cursor.
    let room = height.saturating_sub(3).max(1);
    let left_out = cells.len().saturating_sub(room);
    cells.truncate(room);
    left_out
}

/// Formats CPUs in kubectl's notation, such as `250m`, rounded up to a thousandth.
fn cores(nanos: u64) -> String {
    format!("{}m", nanos.div_ceil(1_000_000))
}

fn as_json(rows: &[Row]) -> Value {
    let used = |u: &Used| json!({"cpuNanoCores": u.cpu, "memoryBytes": u.memory, "restarts": u.restarts});
    let with = |mut value: Value, more: Value| {
        if let (Value::Object(value), Value::Object(more)) = (&mut value, more) {
            value.extend(more);
        }
        value
    };
    let pod = |row: &Row| {
        let containers: Vec<Value> =
            row.containers.iter().map(|(name, u)| with(json!({"name": name}), used(u))).collect();
        let names = json!({"namespace": row.namespace, "name": row.name, "uid": row.uid, "containers": containers});
        with(names, used(&row.used))
    };
    json!({"time": Timestamp::now().to_string(), "pods": rows.iter().map(pod).collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::control::PodUsage;

    const SECOND: i64 = 1_000_000_000;

    fn container(name: &str, at: i64, cpu: u64, memory: u64, restarts: u32) -> ContainerUsage {
        ContainerUsage {
            name: name.into(),
            id: format!("id-{name}"),
            restarts,
            cpu_at: at,
            cpu_nanos: Some(cpu),
            cpu_nano_cores: None,
            memory_bytes: Some(memory),
            ..ContainerUsage::default()
        }
    }

    fn pod(name: &str, containers: Vec<ContainerUsage>) -> PodUsage {
        let labels = [("app".to_owned(), name.to_owned())].into();
        PodUsage { namespace: "default".into(), name: name.into(), uid: format!("uid-{name}"), labels, containers }
    }

    /// Two samples, two seconds apart: `web` has used half a CPU second in two containers, `idle` a little, and `new`
    /// has just started.
    fn samples() -> (Usage, Usage) {
        let half = 500_000_000;
        let before = vec![
            pod("idle", vec![container("idle", SECOND, 7, 3 << 20, 0)]),
            pod("web", vec![container("a", SECOND, 100, 1 << 20, 1), container("b", SECOND, 0, 1 << 19, 2)]),
        ];
        let now = vec![
            pod("idle", vec![container("idle", 3 * SECOND, 1007, 3 << 20, 0)]),
            pod("new", vec![container("new", 3 * SECOND, half, 1 << 10, 0)]),
            pod("web", vec![container("a", 3 * SECOND, 100, 1 << 20, 1), container("b", 3 * SECOND, half, 1 << 19, 2)]),
        ];
        (Usage { pods: before }, Usage { pods: now })
    }

    fn query(containers: bool, sort: SortBy) -> TopQuery {
        TopQuery { target: None, namespace: None, selector: None, containers, sort, json: false, watch: None }
    }

    fn shown(query: &TopQuery, screen: Screen) -> String {
        let (before, now) = samples();
        let mut out = Vec::new();
        show(&mut out, &rows(&before, &now, query), query, screen).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn pods_are_sorted_by_usage_with_unknown_usage_last() {
        let text = shown(&query(false, SortBy::Cpu), Screen::default());
        let expected = "NAMESPACE   POD    CPU    MEMORY   RESTARTS\n\
                        default     web    250m   1.5Mi    3\n\
                        default     idle   1m     3Mi      0\n\
                        default     new    -      1Ki      0\n";
        assert_eq!(text, expected);
        let text = shown(&query(true, SortBy::Cpu), Screen::default());
        let expected = "NAMESPACE   POD    CONTAINER   CPU    MEMORY   RESTARTS\n\
                        default     web                250m   1.5Mi    3\n\
                        \u{20}                  b           250m   512Ki    2\n\
                        \u{20}                  a           0m     1Mi      1\n";
        assert!(text.starts_with(expected), "{text}");
    }

    #[test]
    fn each_order_is_that_of_its_column() {
        let names = |sort| {
            let (before, now) = samples();
            rows(&before, &now, &query(false, sort)).into_iter().map(|r| r.name).collect::<Vec<_>>()
        };
        assert_eq!(names(SortBy::Cpu), ["web", "idle", "new"]);
        assert_eq!(names(SortBy::Memory), ["idle", "web", "new"]);
        assert_eq!(names(SortBy::Restarts), ["web", "idle", "new"]);
        assert_eq!(names(SortBy::Name), ["idle", "new", "web"]);
    }

    #[test]
    fn pods_are_chosen_by_name_namespace_and_label() {
        let (before, now) = samples();
        let names = |q: TopQuery| rows(&before, &now, &q).into_iter().map(|r| r.name).collect::<Vec<_>>();
        let all = || query(false, SortBy::Name);
        assert_eq!(names(TopQuery { target: Some(PodTarget::parse("default/web", None).unwrap()), ..all() }), ["web"]);
        assert_eq!(names(TopQuery { namespace: Some("shop".into()), ..all() }), [""; 0]);
        assert_eq!(names(TopQuery { selector: Some(Selector::parse("app!=web").unwrap()), ..all() }), ["idle", "new"]);
    }

    #[test]
    fn figures_that_make_no_sense_are_none() {
        let now = container("a", 3 * SECOND, 100, 1, 0);
        let of = |before: ContainerUsage| used(Some(&before), &now).cpu;
        assert_eq!(of(container("a", SECOND, 0, 1, 0)), Some(50));
        // A counter or a clock that went backwards, and twice the same sample.
        assert_eq!(of(container("a", SECOND, 101, 1, 0)), None);
        assert_eq!(of(container("a", 4 * SECOND, 0, 1, 0)), None);
        assert_eq!(of(container("a", i64::MIN, 0, 1, 0)), None);
        assert_eq!(of(now.clone()), None);
        let said = ContainerUsage { cpu_nano_cores: Some(9), ..now.clone() };
        assert_eq!(used(Some(&now), &said).cpu, Some(9));
        assert_eq!(used(None, &now), Used { cpu: None, memory: Some(1), restarts: 0 });
    }

    #[test]
    fn a_watched_table_fits_on_the_screen() {
        let watched = TopQuery { watch: Some(SAMPLE), ..query(false, SortBy::Cpu) };
        let low = Screen { width: Some(80), height: Some(5), colours: false };
        let text = shown(&watched, low);
        assert!(text.ends_with("idle   1m     3Mi      0\n... and 1 more lines\n"), "{text}");
        assert_eq!(text.lines().count(), 4, "the cursor's line is left");
        let narrow = Screen { width: Some(43), height: None, colours: false };
        assert!(shown(&watched, narrow).lines().all(|l| l.chars().count() <= 43));
    }

    #[test]
    fn json_has_every_figure_as_it_is() {
        let (before, now) = samples();
        let mut out = Vec::new();
        let q = TopQuery { json: true, ..query(false, SortBy::Cpu) };
        show(&mut out, &rows(&before, &now, &q), &q, Screen::default()).unwrap();
        let value: Value = serde_json::from_slice(&out).unwrap();
        let web = &value["pods"][0];
        assert_eq!((&web["name"], &web["cpuNanoCores"]), (&json!("web"), &json!(250_000_000)));
        assert_eq!(
            web["containers"][0],
            json!({"name": "b", "cpuNanoCores": 250_000_000, "memoryBytes": 524_288, "restarts": 2})
        );
        assert_eq!(value["pods"][2]["cpuNanoCores"], Value::Null);
    }
}
