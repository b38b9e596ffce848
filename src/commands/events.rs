//! `wherry events`: shows the events of pods and of the node, from the control socket.

use crate::api::kube::pod_row::{self as row, since, text};
use crate::commands::client;
use crate::commands::output::{Failure, document, json_line, print_message};
use crate::commands::screen::{Colour, Screen};
use crate::commands::select::PodTarget;
use crate::commands::table::{Paint, Table};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::Path;

const HEADER: [&str; 6] = ["NAMESPACE", "LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"];

/// The selection of the events and the output format.
#[derive(Clone, Debug, Default)]
pub struct EventQuery {
    /// The pod whose events are shown. None selects all pods.
    pub pod: Option<PodTarget>,
    /// The namespace whose events are shown. None selects all namespaces.
    pub namespace: Option<String>,
    /// `Normal` or `Warning`, case-insensitive. An empty list selects all types.
    pub types: Vec<String>,
    pub json: bool,
    pub watch: bool,
}

impl EventQuery {
    fn wants(&self, event: &Value) -> bool {
        let of = |name: &str| text(event, &format!("/involvedObject/{name}"));
        let is_pod = of("kind") == "Pod";
        self.pod.as_ref().is_none_or(|p| is_pod && p.is(of("namespace"), of("name"), of("uid")))
            && self.namespace.as_deref().is_none_or(|n| is_pod && n == of("namespace"))
            && (self.types.is_empty() || self.types.iter().any(|t| t.eq_ignore_ascii_case(text(event, "/type"))))
    }
}

pub fn run(out: &mut dyn Write, socket: &Path, query: &EventQuery) -> Result<u8, Failure> {
    if query.watch {
        return watch(out, client::get(socket, "/events?watch=1", true)?, query);
    }
    let list = client::get_json(socket, "/events")?;
    show(out, list, query, Timestamp::now())
}

/// Returns the events of one pod, the oldest first.
pub fn of_pod(list: &Value, uid: &str) -> Vec<Value> {
    row::list(list, "/items").iter().filter(|e| text(e, "/involvedObject/uid") == uid).cloned().collect()
}

fn show(out: &mut dyn Write, mut list: Value, query: &EventQuery, now: Timestamp) -> Result<u8, Failure> {
    let mut events = client::take_items(&mut list);
    events.retain(|e| query.wants(e));
    if query.json {
        list["items"] = Value::Array(events);
        document(out, &list, false)?;
        return Ok(0);
    }
    if events.is_empty() {
        print_message("there are no events");
        return Ok(0);
    }
    print(out, &mut table(), true, &events, now)?;
    Ok(0)
}

/// Prints the current events, then a row (or a JSON line) for each new event, until the agent stops.
fn watch(out: &mut dyn Write, mut stream: impl BufRead, query: &EventQuery) -> Result<u8, Failure> {
    // The index of each event by its name: an event may arrive twice while the list is being sent.
    let mut first: Option<BTreeMap<String, usize>> = Some(BTreeMap::new());
    let mut gathered: Vec<Value> = Vec::new();
    let mut table = table();
    // Widen the columns for later rows, so that most of them fit under the header.
    table.widen(&["", "100s (x100 over 100m)", "Warning", "ErrImageNeverPull", "", ""]);
    loop {
        let mut change = client::next_change(&mut stream, "wherry stopped")?;
        let event = change["object"].take();
        match text(&change, "/type") {
            "LOST" => {
                let count = change["count"].as_u64().unwrap_or(0);
                print_message(&format!("{count} events were dropped, because this client was too slow"));
                continue;
            }
            "BOOKMARK" => {
                first = None;
                let mut events = std::mem::take(&mut gathered);
                events.retain(|e| !e.is_null());
                if query.json {
                    events.iter().try_for_each(|e| json_line(out, e))?;
                } else {
                    print(out, &mut table, true, &events, Timestamp::now())?;
                }
            }
            _ if !query.wants(&event) => continue,
            _ => match &mut first {
                Some(seen) => {
                    let key = [text(&event, "/involvedObject/uid"), text(&event, "/metadata/name")].concat();
                    match seen.insert(key, gathered.len()) {
                        // The later occurrence determines the event's position.
                        Some(before) => {
                            gathered[before] = Value::Null;
                            gathered.push(event);
                        }
                        None => gathered.push(event),
                    }
                }
                None if query.json => json_line(out, &event)?,
                None => print(out, &mut table, false, &[event], Timestamp::now())?,
            },
        }
        out.flush()?;
    }
}

/// Returns the table. Messages are never shortened.
fn table() -> Table {
    let paint: Paint = |header, cell| (header == "TYPE" && cell == "Warning").then_some(Colour::Yellow);
    Table::new(&HEADER).on(Screen::stdout(), &[], paint)
}

fn print(
    out: &mut dyn Write,
    table: &mut Table,
    header: bool,
    events: &[Value],
    now: Timestamp,
) -> std::io::Result<()> {
    let rows: Vec<[String; 6]> = events.iter().map(|e| row(e, now)).collect();
    let rows: Vec<&[String]> = rows.iter().map(<[String; 6]>::as_slice).collect();
    table.print(out, header, &rows)
}

fn row(event: &Value, now: Timestamp) -> [String; 6] {
    let of = |path: &str| text(event, path).to_owned();
    let kind = text(event, "/involvedObject/kind").to_lowercase();
    let namespace = if kind == "pod" { of("/involvedObject/namespace") } else { "-".into() };
    let object = format!("{kind}/{}", text(event, "/involvedObject/name"));
    // Join the lines of the message, because a row has only one line.
    let message = text(event, "/message").split_whitespace().collect::<Vec<_>>().join(" ");
    [namespace, age(event, now), of("/type"), of("/reason"), object, message]
}

/// Formats the age of an event: `3s` or, with repetitions, `3s (x5 over 2m)`. These are the time since the last
/// occurrence, the count, and the time since the first occurrence.
pub fn age(event: &Value, now: Timestamp) -> String {
    let time = |name: &str| text(event, name).parse::<Timestamp>().ok();
    let ago = |at: Option<Timestamp>| at.map_or("<unknown>".to_owned(), |at| since(at, now));
    let last = ago(time("/lastTimestamp"));
    match event.get("count").and_then(Value::as_u64) {
        Some(count) if count > 1 => format!("{last} (x{count} over {})", ago(time("/firstTimestamp"))),
        _ => last,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn now() -> Timestamp {
        "2026-11-20T15:00:00Z".parse().unwrap()
    }

    fn event(name: &str, reason: &str, kind: &str, count: u64) -> Value {
        json!({
            "metadata": {"name": format!("{name}.{reason}"), "namespace": "default"},
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": name, "uid": format!("u-{name}")},
            "reason": reason, "message": format!("{reason} of\n{name}"), "type": kind, "count": count,
            "firstTimestamp": "2026-11-20T14:58:00.000Z", "lastTimestamp": "2026-11-20T14:59:57.500Z",
        })
    }

    fn list() -> Value {
        let mut node = event("lab", "Starting", "Normal", 1);
        node["involvedObject"] = json!({"kind": "Node", "name": "lab"});
        let items = [node, event("web", "Started", "Normal", 1), event("db", "BackOff", "Warning", 5)];
        json!({"kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": items})
    }

    fn shown(query: &EventQuery) -> String {
        let mut out = Vec::new();
        assert_eq!(show(&mut out, list(), query, now()).unwrap(), 0);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_table_counts_repetitions_as_kubectl_does() {
        assert_eq!(
            shown(&EventQuery::default()),
            "NAMESPACE   LAST SEEN         TYPE      REASON     OBJECT     MESSAGE\n\
             -           3s                Normal    Starting   node/lab   Starting of lab\n\
             default     3s                Normal    Started    pod/web    Started of web\n\
             default     3s (x5 over 2m)   Warning   BackOff    pod/db     BackOff of db\n"
        );
    }

    #[test]
    fn pods_namespaces_and_types_select() {
        let of = |query: &EventQuery| -> Vec<String> {
            let rows = shown(query);
            rows.lines().skip(1).map(|l| l.split_whitespace().find(|w| w.contains('/')).unwrap().to_owned()).collect()
        };
        let pod = PodTarget::parse("default/web", None).unwrap();
        assert_eq!(of(&EventQuery { pod: Some(pod), ..EventQuery::default() }), ["pod/web"]);
        assert_eq!(
            of(&EventQuery { namespace: Some("default".into()), ..EventQuery::default() }),
            ["pod/web", "pod/db"]
        );
        assert_eq!(of(&EventQuery { types: vec!["warning".into()], ..EventQuery::default() }), ["pod/db"]);
        let text = shown(&EventQuery { json: true, types: vec!["Normal".into()], ..EventQuery::default() });
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&value["kind"], value["items"].as_array().unwrap().len()), (&json!("EventList"), 2));
    }

    #[test]
    fn a_watch_shows_the_list_once_and_then_new_events() {
        let line = |kind: &str, event: Value| format!("{}\n", json!({"type": kind, "object": event}));
        let stream = [
            line("ADDED", event("web", "Started", "Normal", 1)),
            line("ADDED", event("db", "BackOff", "Warning", 5)),
            line("MODIFIED", event("web", "Started", "Normal", 2)),
            line("BOOKMARK", json!({})),
            line("ADDED", event("web", "Killing", "Normal", 1)),
            "{\"type\":\"LOST\",\"count\":7}\n".to_string(),
            line("ADDED", event("db", "Pulled", "Normal", 1)),
        ]
        .concat();
        let run = |query: &EventQuery| {
            let mut out = Vec::new();
            let end = watch(&mut out, stream.as_bytes(), query);
            assert!(matches!(end, Err(Failure::Message(_, 1))));
            String::from_utf8(out).unwrap()
        };
        let text = run(&EventQuery::default());
        let reasons: Vec<&str> = text.lines().map(|l| l.rsplit(" of ").nth(1).unwrap_or(l)).collect();
        let reasons: Vec<&str> = reasons.iter().map(|l| l.split_whitespace().last().unwrap()).collect();
        assert_eq!(reasons, ["MESSAGE", "BackOff", "Started", "Killing", "Pulled"], "{text}");
        let text = run(&EventQuery { json: true, ..EventQuery::default() });
        let events: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(events.len(), 4);
        assert_eq!(events[1]["count"], 2);
    }
}
