//! `wherry logs`: prints the logs of containers from the files that the runtime writes. The agent identifies the pod
//! and its containers. Without an agent, the files are found by their names.

use crate::adapters::logs::files::{self, PodLogs};
use crate::adapters::logs::print::{Printer, Stop};
use crate::adapters::logs::reader::{LogReader, ReadProgress};
use crate::adapters::logs::watch::LogWatch;
use crate::api::document;
use crate::api::k8s::PodStatus;
use crate::api::kube::log_choice;
use crate::api::kube::pod_row::{is_object, list, text};
use crate::api::ordered::OrderSlice;
use crate::commands::output::{Failure, print_message};
use crate::commands::select::PodTarget;
use crate::commands::{client, containers};
use jiff::Timestamp;
use serde_json::Value;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The selection of the logs and their format.
#[derive(Clone, Debug)]
pub struct LogQuery {
    pub target: PodTarget,
    /// The container. None selects the first container, or all containers if `all` is set.
    pub container: Option<String>,
    pub all: bool,
    pub follow: bool,
    pub previous: bool,
    pub tail: Option<u64>,
    pub since: Option<Timestamp>,
    pub timestamps: bool,
    pub limit: Option<u64>,
}

/// The location of one container's logs.
#[derive(Debug, PartialEq, Eq)]
struct Log {
    container: String,
    directory: PathBuf,
    instance: u32,
}

/// The logs, and the pod's UID if an agent reported it.
struct FoundLogs {
    logs: Vec<Log>,
    uid: Option<String>,
}

pub fn run(out: &mut dyn Write, socket: &Path, log_dir: &Path, query: &LogQuery) -> Result<u8, Failure> {
    // The watch starts before the list is read, so that no change is missed in between.
    let watch = query.follow.then(|| client::get(socket, "/pods?watch=1", true)).and_then(Result::ok);
    let found = match client::get_json(socket, "/pods?verbose=1") {
        Ok(mut list) => {
            let pods = query.target.find(&mut list).map_err(Failure::message)?;
            of_pod(&choose(pods)?, query)?
        }
        Err(Failure::Message(why, _)) => {
            let found = without_agent(log_dir, query).map_err(|e| Failure::message(format!("{why}\n{e}")))?;
            print_message(&format!("{why}; reading the files in {}", log_dir.display()));
            found
        }
        Err(other) => return Err(other),
    };
    let mut printer = Printer { out, since: query.since, timestamps: query.timestamps, left: query.limit };
    let end = show(&found, query, watch, &mut printer);
    match end {
        Ok(()) | Err(Stop::Full) => Ok(0),
        Err(Stop::Output(e)) => Err(Failure::Output(e)),
        Err(Stop::Log(why)) => Err(Failure::message(why)),
    }
}

fn show(
    found: &FoundLogs,
    query: &LogQuery,
    watch: Option<BufReader<UnixStream>>,
    printer: &mut Printer<'_>,
) -> Result<(), Stop> {
    let files = LogWatch::new().map_err(|e| Stop::Log(format!("failed to watch the logs: {e}")));
    let mut files = if query.follow { Some(files?) } else { None };
    let mut open = Vec::new();
    for log in &found.logs {
        if let Some(files) = &mut files {
            let wrong = |e| Stop::Log(format!("failed to watch {}: {e}", log.directory.display()));
            files.add(&log.directory).map_err(wrong)?;
        }
        let reader = LogReader::open(&log.directory, log.instance, query.tail, query.since).map_err(Stop::Log)?;
        open.push((log.container.as_str(), reader));
    }
    if let Some(why) = files.as_ref().and_then(LogWatch::without_inotify) {
        print_message(why);
    }
    let Some(files) = &mut files else {
        return open.iter_mut().try_for_each(|(_, reader)| reader.print(printer).map(drop));
    };
    let mut pod = match (watch, &found.uid) {
        (Some(stream), Some(uid)) => PodWatch::new(stream, uid),
        _ => None,
    };
    let mut told = pod.is_none();
    loop {
        let ended = pod.as_mut().map(PodWatch::take).unwrap_or_default();
        if pod.as_ref().is_some_and(|p| p.broken) {
            pod = None;
        }
        if pod.is_none() && !std::mem::replace(&mut told, true) {
            print_message("wherry stopped; continuing with the files");
        }
        let mut still = Vec::new();
        for (container, mut reader) in open {
            if ended.covers(container) {
                reader.finish(printer)?;
            } else if reader.follow(printer)? == ReadProgress::End {
                still.push((container, reader));
            } else {
                reader.finish(printer)?;
            }
        }
        open = still;
        printer.out.flush().map_err(Stop::Output)?;
        if open.is_empty() {
            return Ok(());
        }
        let stream: Vec<_> = pod.iter().map(PodWatch::as_fd).collect();
        let gone = files
            .wait(&stream, std::io::stdout().as_fd())
            .map_err(|e| Stop::Log(format!("failed to wait for new lines: {e}")))?;
        if gone {
            return Ok(());
        }
    }
}

/// The containers of the pod that will write no more logs.
#[derive(Debug, Default)]
struct EndedContainers {
    all: bool,
    containers: Vec<String>,
}

impl EndedContainers {
    fn covers(&self, container: &str) -> bool {
        self.all || self.containers.iter().any(|c| c == container)
    }
}

/// Follows the agent's status of the pod.
struct PodWatch {
    stream: BufReader<UnixStream>,
    uid: String,
    line: Vec<u8>,
    broken: bool,
}

impl PodWatch {
    fn new(stream: BufReader<UnixStream>, uid: &str) -> Option<PodWatch> {
        stream.get_ref().set_nonblocking(true).ok()?;
        Some(PodWatch { stream, uid: uid.to_owned(), line: Vec::new(), broken: false })
    }

    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.stream.get_ref().as_fd()
    }

    /// Reads the available changes without blocking.
    fn take(&mut self) -> EndedContainers {
        let mut ended = EndedContainers::default();
        loop {
            match self.stream.read_until(b'\n', &mut self.line) {
                Ok(n) if n > 0 && self.line.ends_with(b"\n") => {
                    if let Ok(change) = serde_json::from_slice(&self.line) {
                        self.note_change(&change, &mut ended);
                    }
                    self.line.clear();
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return ended,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                _ => {
                    self.broken = true;
                    return ended;
                }
            }
        }
    }

    fn note_change(&self, change: &Value, ended: &mut EndedContainers) {
        if text(change, "/object/metadata/uid") != self.uid {
            return;
        }
        if text(change, "/type") == "DELETED" {
            ended.all = true;
        } else {
            let pod = &change["object"];
            ended.all |= matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
            ended.containers = over(pod);
        }
    }
}

/// Returns the containers that have ended and will not be restarted.
fn over(pod: &Value) -> Vec<String> {
    let policy = text(pod, "/spec/restartPolicy");
    let over = |status: &&Value| {
        let code = status.pointer("/state/terminated/exitCode").and_then(Value::as_i64);
        code.is_some_and(|code| policy == "Never" || policy == "OnFailure" && code == 0)
    };
    // An ephemeral container never starts again, and an init container only after a failure.
    let ended = |status: &&Value| is_object(status, "/state/terminated");
    let ephemeral = list(pod, "/status/ephemeralContainerStatuses").iter().filter(ended);
    let always = |name: &str| {
        let mut specs = list(pod, "/spec/initContainers").iter();
        specs.any(|spec| text(spec, "/name") == name && text(spec, "/restartPolicy") == "Always")
    };
    let completed = |status: &&Value| status.pointer("/state/terminated/exitCode").and_then(Value::as_i64) == Some(0);
    let init = list(pod, "/status/initContainerStatuses").iter().filter(|status| !always(text(status, "/name")));
    let init = init.filter(|status| completed(status) || over(status));
    let all = list(pod, "/status/containerStatuses").iter().filter(over).chain(ephemeral).chain(init);
    all.map(|c| text(c, "/name").to_owned()).collect()
}

/// Chooses the pod that has logs. If a pod is being replaced, this is the old pod until a container of the new pod
/// has been created.
fn choose(mut pods: Vec<Value>) -> Result<Value, Failure> {
    let full = |p: &Value| format!("{}/{}", text(p, "/metadata/namespace"), text(p, "/metadata/name"));
    let first = pods.first().map(full).unwrap_or_default();
    if pods.iter().any(|p| full(p) != first) {
        let names: Vec<String> = pods.iter().map(full).collect();
        return Err(Failure::message(format!("several pods match; name one of them: {}", names.join(", "))));
    }
    let begun = |p: &Value| list(p, "/status/containerStatuses").iter().any(|c| !text(c, "/containerID").is_empty());
    pods.order_by_key(|p| (begun(p), p["wherry"]["desired"] == true));
    pods.pop().ok_or_else(|| Failure::message("there is no such pod"))
}

fn of_pod(pod: &Value, query: &LogQuery) -> Result<FoundLogs, Failure> {
    let mut names = containers::names(pod, "/spec/containers");
    // Init containers and ephemeral containers are included only if named, or with `all`. With `all`, the containers
    // are in the order in which they start.
    if query.all || query.container.is_some() {
        names.splice(0..0, containers::names(pod, "/spec/initContainers"));
        names.extend(containers::names(pod, "/spec/ephemeralContainers"));
    }
    let annotated = text(pod, "/metadata/annotations/kubectl.kubernetes.io~1default-container");
    let wanted = wanted(&names, Some(annotated).filter(|a| names.contains(a)), query, text(pod, "/metadata/name"))?;
    let status = document::from_value::<PodStatus>(&pod["status"]).unwrap_or_default();
    let mut logs = Vec::new();
    for name in wanted {
        let directory = Path::new(text(pod, "/wherry/logDirectory")).join(&name);
        match log_choice::run(&status, &name, query.previous, |_| None) {
            Ok(newest) => {
                // A container that was just created may have no file yet.
                let there = files::instances(&directory).into_iter().filter(|i| *i <= newest).max();
                let instance = if query.previous { newest } else { there.unwrap_or(newest) };
                logs.push(Log { container: name, directory, instance });
            }
            // With `all`, skip containers that have no log.
            Err(why) if query.all => print_message(&format!("container {name:?}: {}", why.explain())),
            Err(why) => {
                let pod = text(pod, "/metadata/name");
                return Err(Failure::message(format!("container {name:?} in pod {pod:?}: {}", why.explain())));
            }
        }
    }
    if logs.is_empty() {
        return Err(Failure::message("no container of the pod has a log yet"));
    }
    Ok(FoundLogs { logs, uid: Some(text(pod, "/metadata/uid").to_owned()) })
}

/// The names of the requested containers.
fn wanted(names: &[&str], default: Option<&str>, query: &LogQuery, pod: &str) -> Result<Vec<String>, Failure> {
    if query.all {
        return Ok(names.iter().map(|n| (*n).to_owned()).collect());
    }
    if let Some(name) = &query.container {
        return if names.contains(&name.as_str()) {
            Ok(vec![name.clone()])
        } else {
            Err(Failure::message(format!("container {name:?} is not in pod {pod:?}; it has {}", names.join(", "))))
        };
    }
    let Some(first) = default.or(names.first().copied()) else {
        return Err(Failure::message(format!("pod {pod:?} has no containers")));
    };
    if names.len() > 1 {
        print_message(&format!("defaulted container {first:?} out of: {}", names.join(", ")));
    }
    Ok(vec![first.to_owned()])
}

/// Finds logs by the names of directories and files alone.
fn without_agent(log_dir: &Path, query: &LogQuery) -> Result<FoundLogs, String> {
    let pods = files::pods(log_dir).map_err(|e| format!("failed to read {}: {e}", log_dir.display()))?;
    let mut pods: Vec<PodLogs> = pods.into_iter().filter(|p| query.target.is(&p.namespace, &p.name, &p.uid)).collect();
    let Some(newest) = pods.first() else {
        return Err(format!("there are no logs of {} in {}", query.target, log_dir.display()));
    };
    if pods.iter().any(|p| p.namespace != newest.namespace) {
        let names: Vec<String> = pods.iter().map(|p| format!("{}/{}", p.namespace, p.name)).collect();
        return Err(format!("several pods match; name one of them: {}", names.join(", ")));
    }
    let pod = pods.swap_remove(0);
    let names = files::containers(&pod.path);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let message = |e: Failure| match e {
        Failure::Message(text, _) => text,
        Failure::Output(e) => e.to_string(),
    };
    let mut logs = Vec::new();
    for container in wanted(&names, None, query, &pod.name).map_err(message)? {
        let directory = pod.path.join(&container);
        let mut instances = files::instances(&directory);
        let newest = instances.pop();
        let instance = if query.previous { instances.pop() } else { newest };
        let instance = instance.ok_or_else(|| format!("no log of the requested run in {}", directory.display()))?;
        logs.push(Log { container, directory, instance });
    }
    Ok(FoundLogs { logs, uid: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn query(name: &str) -> LogQuery {
        LogQuery {
            target: PodTarget::parse(name, None).unwrap(),
            container: None,
            all: false,
            follow: false,
            previous: false,
            tail: None,
            since: None,
            timestamps: false,
            limit: None,
        }
    }

    fn status(name: &str, state: Value, last: Value, restarts: u32) -> Value {
        let id = if restarts > 0 || state.get("waiting").is_none() { "containerd://c" } else { "" };
        json!({"name": name, "restartCount": restarts, "containerID": id, "state": state, "lastState": last})
    }

    fn pod() -> Value {
        json!({
            "metadata": {"namespace": "shop", "name": "web", "uid": "u1"},
            "spec": {"restartPolicy": "Always", "containers": [{"name": "main"}, {"name": "side"}, {"name": "new"}]},
            "status": {"phase": "Running", "containerStatuses": [
                status("main", json!({"running": {}}), json!({"terminated": {"exitCode": 1}}), 2),
                status("side", json!({"waiting": {"reason": "CrashLoopBackOff"}}),
                    json!({"terminated": {"exitCode": 1}}), 4),
                status("new", json!({"waiting": {"reason": "ErrImagePull", "message": "no route"}}), json!({}), 0),
            ]},
            "wherry": {"logDirectory": "/logs/shop_web_u1", "desired": true},
        })
    }

    fn found(query: &LogQuery) -> Result<Vec<(String, u32)>, String> {
        match of_pod(&pod(), query) {
            Ok(found) => Ok(found.logs.into_iter().map(|l| (l.directory.display().to_string(), l.instance)).collect()),
            Err(Failure::Message(text, 1)) => Err(text),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_first_container_is_the_default_and_others_are_named() {
        let one = |name: &str, previous| found(&LogQuery { container: Some(name.into()), previous, ..query("web") });
        assert_eq!(found(&query("web")).unwrap(), [("/logs/shop_web_u1/main".into(), 2)]);
        assert_eq!(one("main", true).unwrap(), [("/logs/shop_web_u1/main".into(), 1)]);
        // The container waits for a restart, so its previous run is also its newest one, as in kubectl.
        assert_eq!(one("side", false).unwrap(), one("side", true).unwrap());
        assert_eq!(one("nope", false).unwrap_err(), "container \"nope\" is not in pod \"web\"; it has main, side, new");
        let why = one("new", false).unwrap_err();
        assert_eq!(why, "container \"new\" in pod \"web\": it is waiting to start: ErrImagePull: no route");
        assert!(one("new", true).unwrap_err().ends_with("there is no previous terminated container"));
        let all = found(&LogQuery { all: true, ..query("web") }).unwrap();
        assert_eq!(all, [("/logs/shop_web_u1/main".into(), 2), ("/logs/shop_web_u1/side".into(), 4)]);
    }

    #[test]
    fn init_and_ephemeral_containers_are_found() {
        let mut pod = pod();
        pod["spec"]["initContainers"] = json!([{"name": "load"}, {"name": "proxy", "restartPolicy": "Always"}]);
        pod["spec"]["ephemeralContainers"] = json!([{"name": "debugger"}]);
        let ended = |code: i32| json!({"terminated": {"exitCode": code}});
        pod["status"]["initContainerStatuses"] =
            json!([status("load", ended(0), json!({}), 0), status("proxy", ended(0), json!({}), 1)]);
        pod["status"]["ephemeralContainerStatuses"] = json!([status("debugger", json!({"running": {}}), json!({}), 0)]);
        let names = |query: &LogQuery| -> Vec<String> {
            of_pod(&pod, query).unwrap_or_else(|e| panic!("{e:?}")).logs.into_iter().map(|log| log.container).collect()
        };
        assert_eq!(names(&LogQuery { all: true, ..query("web") }), ["load", "proxy", "main", "side", "debugger"]);
        for name in ["load", "proxy", "debugger"] {
            assert_eq!(names(&LogQuery { container: Some(name.into()), ..query("web") }), [name]);
        }
        // They are not the default, even if the pod has a single ordinary container.
        pod["spec"]["containers"] = json!([{"name": "main"}]);
        assert_eq!(of_pod(&pod, &query("web")).map(|found| found.logs.len()).ok(), Some(1));
        // Only the sidecar starts again.
        assert_eq!(over(&pod), ["load"]);
        pod["status"]["initContainerStatuses"][0]["state"] = ended(1);
        assert_eq!(over(&pod), [""; 0]);
        pod["spec"]["restartPolicy"] = json!("Never");
        assert_eq!(over(&pod), ["load"]);
    }

    #[test]
    fn of_two_pods_of_one_name_the_one_with_logs_is_meant() {
        let mut new = pod();
        new["metadata"]["uid"] = json!("u2");
        new["status"] = json!({"phase": "Pending"});
        assert_eq!(choose(vec![pod(), new.clone()]).unwrap()["metadata"]["uid"], "u1");
        new["status"] = pod()["status"].clone();
        let mut old = pod();
        old["wherry"]["desired"] = json!(false);
        assert_eq!(choose(vec![new.clone(), old]).unwrap()["metadata"]["uid"], "u2");
        new["metadata"]["namespace"] = json!("other");
        assert!(matches!(choose(vec![pod(), new]), Err(Failure::Message(m, 1)) if m.contains("shop/web, other/web")));
    }

    #[test]
    fn a_container_is_over_when_nothing_starts_it_again() {
        let mut pod = pod();
        let terminated = |code: i32| json!({"terminated": {"exitCode": code}});
        pod["status"]["containerStatuses"] =
            json!([status("main", terminated(0), json!({}), 0), status("side", terminated(1), json!({}), 0)]);
        let mut over = |policy: &str| {
            pod["spec"]["restartPolicy"] = json!(policy);
            super::over(&pod)
        };
        assert!(over("Always").is_empty());
        assert_eq!(over("OnFailure"), ["main"]);
        assert_eq!(over("Never"), ["main", "side"]);
    }

    fn directory() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in [("main/0.log", "old"), ("main/1.log", "new"), ("side/0.log", "side")] {
            let path = dir.path().join("shop_web_u1").join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("2026-11-20T14:46:39Z stdout F {text}\n")).unwrap();
        }
        dir
    }

    fn shown(query: &LogQuery) -> String {
        let dir = directory();
        let mut out = Vec::new();
        assert_eq!(run(&mut out, &dir.path().join("no.sock"), dir.path(), query).unwrap(), 0);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn without_an_agent_the_files_are_found_by_name() {
        assert_eq!(shown(&query("shop/web")), "new\n");
        assert_eq!(shown(&LogQuery { previous: true, ..query("u1") }), "old\n");
        assert_eq!(
            shown(&LogQuery { all: true, timestamps: true, limit: Some(30), ..query("web") }),
            "2026-11-20T14:46:39.000000000Z"
        );
        let dir = directory();
        let end = run(&mut Vec::new(), &dir.path().join("no.sock"), dir.path(), &query("shop/nope"));
        let Err(Failure::Message(text, 1)) = end else { panic!("{end:?}") };
        assert!(text.contains("there is no socket") && text.contains("there are no logs of shop/nope in"), "{text}");
    }

    #[test]
    fn following_ends_with_the_pod_and_goes_on_when_the_agent_stops() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let line = |kind: &str, uid: &str| format!("{}\n", json!({"type": kind, "object": {"metadata": {"uid": uid}}}));
        let mut watch = PodWatch::new(BufReader::new(ours), "u1").unwrap();
        let ended = watch.take();
        assert!(!ended.covers("main") && !watch.broken);
        (&theirs).write_all([line("DELETED", "u2"), line("MODIFIED", "u1")].concat().as_bytes()).unwrap();
        assert!(!watch.take().covers("main"));
        let gone = line("DELETED", "u1");
        (&theirs).write_all(&gone.as_bytes()[..20]).unwrap();
        assert!(!watch.take().covers("main") && !watch.broken);
        (&theirs).write_all(&gone.as_bytes()[20..]).unwrap();
        assert!(watch.take().covers("main"));
        drop(theirs);
        watch.take();
        assert!(watch.broken);
    }
}
