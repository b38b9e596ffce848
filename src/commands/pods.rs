//! `wherry pods`: lists the pods of the node, from the control socket.

use crate::api::kube::pod_row::{Row, text};
use crate::api::ordered::OrderSlice;
use crate::commands::client;
use crate::commands::output::{Failure, document, print_message, shown};
use crate::commands::screen::{Colour, Screen};
use crate::commands::select::PodTarget;
use crate::commands::table::Table;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    Wide,
    Json,
    Yaml,
    Name,
}

/// The selection of the pods and the output format.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct PodQuery {
    /// Show only these pods: NAME, NAMESPACE/NAME, or a UID
    pub names: Vec<String>,
    /// Show only pods in this namespace
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// Show the pods of all namespaces (the default; accepted for compatibility with kubectl)
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Output format instead of the table
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
    /// After the list, print a line for each change
    #[arg(short, long)]
    pub watch: bool,
}

impl PodQuery {
    fn wants(&self, pod: &Value) -> bool {
        let namespace = text(pod, "/metadata/namespace");
        (self.names.is_empty() || self.names.iter().any(|given| is_named(given, pod)))
            && self.namespace.as_deref().is_none_or(|n| n == namespace)
    }
}

/// Reports whether `given` names this pod. An invalid name matches no pod.
fn is_named(given: &str, pod: &Value) -> bool {
    let of = |field: &str| text(pod, &format!("/metadata/{field}"));
    PodTarget::parse(given, None).is_ok_and(|target| target.is(of("namespace"), of("name"), of("uid")))
}

pub fn run(out: &mut dyn Write, socket: &Path, query: &PodQuery) -> Result<u8, Failure> {
    if query.watch {
        return watch(out, client::get(socket, "/pods?watch=1", true)?, query);
    }
    // The table shows the progress of pulls, which is not part of a pod. JSON and YAML output contains only the pods.
    let path = if matches!(query.output, None | Some(Format::Wide)) { "/pods?verbose=1" } else { "/pods" };
    let list = client::get_json(socket, path)?;
    show(out, list, query, Timestamp::now())
}

fn show(out: &mut dyn Write, mut list: Value, query: &PodQuery, now: Timestamp) -> Result<u8, Failure> {
    let mut pods = client::take_items(&mut list);
    pods.retain(|pod| query.wants(pod));
    // Items of a list may lack `apiVersion` and `kind`. Saved documents need them to be applied again.
    pods.iter_mut().for_each(name_kind);
    pods.order_by(|a, b| {
        let key = |p| (text(p, "/metadata/namespace"), text(p, "/metadata/name"));
        key(a).cmp(&key(b))
    });
    let missing: Vec<&String> = query.names.iter().filter(|n| !pods.iter().any(|p| is_named(n, p))).collect();
    match query.output {
        Some(Format::Json | Format::Yaml) => {
            let value = if pods.len() == 1 && query.names.len() == 1 {
                pods.remove(0)
            } else {
                list["items"] = Value::Array(pods);
                list
            };
            document(out, &value, query.output == Some(Format::Yaml))?;
        }
        Some(Format::Name) => {
            for pod in &pods {
                writeln!(out, "pod/{}", shown(text(pod, "/metadata/name")))?;
            }
        }
        None | Some(Format::Wide) => {
            let rows: Vec<Row> = pods.iter().map(|p| Row::new(p, now)).collect();
            if !rows.is_empty() {
                print(out, &mut table(query.output), true, &rows)?;
            } else if missing.is_empty() {
                print_message(&match &query.namespace {
                    Some(namespace) => format!("there are no pods in namespace {namespace}"),
                    None => "there are no pods".to_owned(),
                });
            }
        }
    }
    out.flush()?;
    for name in &missing {
        print_message(&format!("pod {name:?} was not found"));
    }
    Ok(u8::from(!missing.is_empty()))
}

/// Prints the current pods, then a row (or document) for each change, until the agent stops.
fn watch(out: &mut dyn Write, mut stream: impl BufRead, query: &PodQuery) -> Result<u8, Failure> {
    let mut first: Option<Vec<Row>> = Some(Vec::new());
    let mut table = table(query.output);
    // Widen the columns for later rows, so that most of them fit under the header.
    table.widen(&["", "", "", "ContainerCreating", "0 (100s ago)", "100s", "100.100.100.100", "", ""]);
    // The rows that were printed last. A change that would print the same row again is not printed.
    let mut rows_shown: BTreeMap<String, Row> = BTreeMap::new();
    loop {
        let mut event = client::next_change(&mut stream, "wherry stopped, or this client was too slow")?;
        let mut pod = event["object"].take();
        name_kind(&mut pod);
        let pod = &pod;
        match (text(&event, "/type"), query.output) {
            ("BOOKMARK", None | Some(Format::Wide)) => {
                // The initial list is complete, so the column widths are known.
                if let Some(rows) = first.take() {
                    print(out, &mut table, true, &rows)?;
                }
            }
            ("BOOKMARK", _) => {}
            _ if !query.wants(pod) => continue,
            (_, Some(Format::Json)) => document(out, pod, false)?,
            (_, Some(Format::Yaml)) => {
                writeln!(out, "---")?;
                document(out, pod, true)?;
            }
            (_, Some(Format::Name)) => writeln!(out, "pod/{}", shown(text(pod, "/metadata/name")))?,
            (kind, None | Some(Format::Wide)) => {
                let uid = text(pod, "/metadata/uid");
                let row = if kind == "DELETED" { Row::gone(pod) } else { Row::new(pod, Timestamp::now()) };
                let same = rows_shown.get(uid).is_some_and(|before| before.shows_the_same(&row));
                if kind == "DELETED" {
                    rows_shown.remove(uid);
                } else {
                    rows_shown.insert(uid.to_owned(), row.clone());
                }
                match &mut first {
                    Some(rows) => rows.push(row),
                    None if same => {}
                    None => print(out, &mut table, false, &[row])?,
                }
            }
        }
        out.flush()?;
    }
}

fn name_kind(pod: &mut Value) {
    if let Value::Object(pod) = pod {
        pod.insert("apiVersion".into(), "v1".into());
        pod.insert("kind".into(), "Pod".into());
    }
}

const HEADER: [&str; 9] = ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "UID"];

fn table(format: Option<Format>) -> Table {
    let columns = if format == Some(Format::Wide) { HEADER.len() } else { 6 };
    Table::new(&HEADER[..columns]).on(Screen::stdout(), &["NAMESPACE", "NAME"], paint)
}

/// Failures are red, transient states are yellow.
fn paint(header: &str, cell: &str) -> Option<Colour> {
    if header != "STATUS" {
        return None;
    }
    match cell {
        "Running" | "Completed" | "Succeeded" | "Deleted" => None,
        "Pending" | "ContainerCreating" | "PodInitializing" | "Terminating" | "Drained" | "Unschedulable"
        | "WaitingForRoom" | "NotReady" => Some(Colour::Yellow),
        pull if pull.starts_with("Pulling (") || pull.starts_with("PullQueued (") => Some(Colour::Yellow),
        init if init.starts_with("Init:") && !init.contains("Err") && !init.contains("BackOff") => Some(Colour::Yellow),
        _ => Some(Colour::Red),
    }
}

fn print(out: &mut dyn Write, table: &mut Table, header: bool, rows: &[Row]) -> std::io::Result<()> {
    let cells: Vec<[&str; 9]> = rows.iter().map(cells).collect();
    let rows: Vec<&[&str]> = cells.iter().map(<[&str; 9]>::as_slice).collect();
    table.print(out, header, &rows)
}

fn cells(row: &Row) -> [&str; 9] {
    [&row.namespace, &row.name, &row.ready, &row.status, &row.restarts, &row.age, &row.ip, &row.node, &row.uid]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn now() -> Timestamp {
        "2026-11-20T15:00:00Z".parse().unwrap()
    }

    fn pod(namespace: &str, name: &str) -> Value {
        json!({
            "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-{name}"),
                         "creationTimestamp": "2026-11-20T14:58:30Z"},
            "spec": {"nodeName": "lab", "containers": [{"name": "main"}]},
            "status": {"phase": "Running", "containerStatuses": [
                {"name": "main", "ready": true, "restartCount": 0, "state": {"running": {}}}]},
        })
    }

    fn list() -> Value {
        let items = [pod("web", "front"), pod("default", "zebra"), pod("default", "a-long-name")];
        json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})
    }

    fn shown(query: &PodQuery) -> (String, u8) {
        let mut out = Vec::new();
        let code = show(&mut out, list(), query, now()).unwrap();
        (String::from_utf8(out).unwrap(), code)
    }

    #[test]
    fn the_table_is_sorted_and_aligned() {
        let (text, code) = shown(&PodQuery::default());
        assert_eq!(
            text,
            "NAMESPACE   NAME          READY   STATUS    RESTARTS   AGE\n\
             default     a-long-name   1/1     Running   0          90s\n\
             default     zebra         1/1     Running   0          90s\n\
             web         front         1/1     Running   0          90s\n"
        );
        assert_eq!(code, 0);
        let (text, _) =
            shown(&PodQuery { output: Some(Format::Wide), names: vec!["front".into()], ..PodQuery::default() });
        assert_eq!(
            text,
            "NAMESPACE   NAME    READY   STATUS    RESTARTS   AGE   IP       NODE   UID\n\
             web         front   1/1     Running   0          90s   <none>   lab    uid-front\n"
        );
    }

    #[test]
    fn names_and_namespaces_select() {
        let (text, _) =
            shown(&PodQuery { namespace: Some("default".into()), output: Some(Format::Name), ..PodQuery::default() });
        assert_eq!(text, "pod/a-long-name\npod/zebra\n");
        let (text, code) = shown(&PodQuery {
            names: vec!["nope".into(), "zebra".into()],
            output: Some(Format::Name),
            ..PodQuery::default()
        });
        assert_eq!((text.as_str(), code), ("pod/zebra\n", 1), "one that is not there is an error");
    }

    #[test]
    fn what_users_of_kubectl_write_is_understood() {
        let names = |names: &[&str]| {
            let names = names.iter().map(|&name| name.to_owned()).collect();
            shown(&PodQuery { names, output: Some(Format::Name), all_namespaces: true, ..PodQuery::default() })
        };
        assert_eq!(names(&[]), ("pod/a-long-name\npod/zebra\npod/front\n".to_owned(), 0));
        assert_eq!(names(&["pod/zebra", "web/front"]), ("pod/zebra\npod/front\n".to_owned(), 0));
        assert_eq!(names(&["default/front", "/"]), (String::new(), 1));
    }

    #[test]
    fn documents_are_whole() {
        let (text, _) = shown(&PodQuery { output: Some(Format::Json), ..PodQuery::default() });
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&value["kind"], value["items"].as_array().unwrap().len()), (&json!("PodList"), 3));
        let one = PodQuery { output: Some(Format::Yaml), names: vec!["zebra".into()], ..PodQuery::default() };
        let (text, _) = shown(&one);
        assert!(text.starts_with("apiVersion: v1\nkind: Pod\nmetadata:\n"), "{text}");
        assert!(text.contains("name: zebra\n") && !text.contains("items"), "{text}");
    }

    #[test]
    fn a_watch_prints_the_table_and_then_the_changes() {
        let line = |kind: &str, pod: Value| format!("{}\n", json!({"type": kind, "object": pod}));
        let mut gone = pod("default", "zebra");
        gone["metadata"]["deletionTimestamp"] = json!("2026-11-20T15:00:00Z");
        let stream = [
            line("ADDED", pod("default", "zebra")),
            line("ADDED", pod("web", "front")),
            line("BOOKMARK", json!({})),
            line("MODIFIED", gone.clone()),
            line("MODIFIED", gone),
            line("DELETED", json!({"metadata": {"name": "zebra", "namespace": "default", "uid": "uid-zebra"}})),
        ]
        .concat();
        let mut out = Vec::new();
        let end =
            watch(&mut out, stream.as_bytes(), &PodQuery { namespace: Some("default".into()), ..PodQuery::default() });
        assert!(matches!(end, Err(Failure::Message(_, 1))));
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().take(4).collect()).collect();
        assert_eq!(
            lines,
            [
                ["NAMESPACE", "NAME", "READY", "STATUS"],
                ["default", "zebra", "1/1", "Running"],
                ["default", "zebra", "1/1", "Terminating"],
                ["default", "zebra", "-", "Deleted"],
            ]
        );
    }
}
