//! The end of the life of a member: the API server and the node show the same, also after another absence, and nothing is left of
//! deleted pods.

use crate::cluster::check::may_restart;
use crate::runtime::Container;
use crate::settled::{Judged, unless};
use crate::text::brief;
use crate::world::World;
use crate::world::api_server::{MIRROR, is_terminal};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use wherry::api::names::Uid;
use wherry::api::names::annotation::CORDONED;
use wherry::api::pod::RestartPolicy;
use wherry::engine::node::PodView;

/// A request that failed is repeated after 45 s at most. A server that is back is found within 2 s.
const FOUND: u64 = 2;
/// The most requests in 20 s of rest: two or three renewals of the lease, the node's status, and watches that have ended.
const AT_REST: usize = 12;

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// All faults have ended long ago.
pub fn agrees(w: &World) -> Judged {
    if w.config.cluster.is_none() {
        return Ok(());
    }
    for pod in w.api.bound() {
        let uid = Uid::from(text(&pod["metadata"]["uid"]));
        let deleted = !pod["metadata"]["deletionTimestamp"].is_null();
        unless(!deleted, "C2: a deleted pod is gone", || format!("{uid} is there: {}", pod["status"]))?;
        match w.engine.pod(&uid) {
            Some(view) => {
                shows(&view, pod)?;
                runs_images(w, &uid, pod)?;
            }
            None => {
                let ended = is_terminal(&pod["status"]["phase"]);
                let conflicts =
                    w.engine.pods().iter().any(|view| &*view.pod.name.name == text(&pod["metadata"]["name"]));
                unless(ended || conflicts, "C2: a bound pod is known", || {
                    format!("{uid} is {}, and the node does not know it", pod["status"])
                })?;
            }
        }
    }
    let of_server = |view: &&PodView<'_>| view.pod.is_from_api_server();
    for view in w.engine.pods().iter().filter(of_server) {
        let uid = &view.pod.uid;
        let bound = w.api.bound().any(|pod| pod["metadata"]["uid"] == uid.as_str());
        unless(bound, "C2: a pod that is gone ends", || format!("{uid} is here"))?;
    }
    mirrors_agree(w)?;
    let node = w.api.node().cloned().unwrap_or_default();
    unless(!node.is_null(), "C1: the node exists", String::new)?;
    let cordoned = node["spec"]["unschedulable"] == true || node["metadata"]["annotations"][CORDONED] == "true";
    unless(cordoned == w.engine.is_cordoned(), "C16: the server shows the cordon", || node.to_string())?;
    // Without a route, the node keeps its last addresses.
    let addresses = &w.config.cluster.as_ref().map(|cluster| cluster.addresses.clone()).unwrap_or_default();
    let at_server = node["status"]["addresses"].as_array().into_iter().flatten();
    let at_server: Vec<&str> = at_server.map(|one| text(&one["address"])).filter(|address| *address != "lab").collect();
    unless(addresses.is_empty() || at_server == *addresses, "C1: the node has its addresses", || {
        format!("{at_server:?} at the server, and {addresses:?} here")
    })
}

/// C2: what runs has the images of the server. An ordinary init container keeps the one with which it began.
fn runs_images(w: &World, uid: &Uid, pod: &Value) -> Judged {
    let spec = &pod["spec"];
    let sidecars = spec["initContainers"].as_array().into_iter().flatten().filter(|c| c["restartPolicy"] == "Always");
    for wanted in spec["containers"].as_array().into_iter().flatten().chain(sidecars) {
        let ours = |c: &&Container| c.runs() && c.owner.as_ref() == Some(&w.runtime.owner) && c.name == wanted["name"];
        let running = w.runtime.of(uid).find(ours);
        unless(running.is_none_or(|c| wanted["image"] == c.spec_image()), "C2: the images of the server run", || {
            format!("{:?} of {uid} runs, and {wanted} is wanted", running.map(|c| &c.id))
        })?;
    }
    Ok(())
}

/// C8: each pod of a manifest has a mirror, and nothing else has one.
fn mirrors_agree(w: &World) -> Judged {
    let of = |mirror: &Value| Uid::from(text(&mirror["metadata"]["annotations"][MIRROR]));
    let mut mirrors: BTreeMap<Uid, &Value> = BTreeMap::new();
    for mirror in w.api.mirrors() {
        let twice = mirrors.insert(of(mirror), mirror);
        unless(twice.is_none(), "C8: one mirror", || format!("{} has two", of(mirror)))?;
    }
    for view in w.engine.pods().iter().filter(|view| !view.pod.is_from_api_server()) {
        let uid = &view.pod.uid;
        match mirrors.remove(uid) {
            Some(mirror) => shows(view, mirror)?,
            None => unless(false, "C8: each pod of a manifest has a mirror", || format!("{uid} has none"))?,
        }
    }
    unless(mirrors.is_empty(), "C8: nothing else has a mirror", || format!("{:?}", mirrors.keys()))
}

/// The server has the status that the node shows.
fn shows(view: &PodView<'_>, pod: &Value) -> Judged {
    let ours = serde_json::to_value(view.status).unwrap_or_default();
    let theirs = &pod["status"];
    // C2: a terminal phase stays at the server with its reason, also if the pod ended in another way here.
    let both_ended = is_terminal(&ours["phase"]) && is_terminal(&theirs["phase"]);
    if both_ended && (ours["phase"] != theirs["phase"] || ours["reason"].is_null()) {
        return Ok(());
    }
    for field in ["phase", "reason", "message", "podIP", "containerStatuses", "initContainerStatuses"] {
        // A pod without containers of its own keeps those of the server: it is perhaps not complete yet.
        let well = as_at_server(&ours[field], pod, field) == theirs[field]
            || field == "podIP" && view.pod.host_network()
            || field.ends_with("Statuses") && ours[field].is_null();
        unless(well, "C2: the server has the status", || {
            format!("{}: {field} is {} here and {} there", view.pod.uid, ours[field], theirs[field])
        })?;
    }
    let conditions = |status: &Value| {
        let all = status["conditions"].as_array().into_iter().flatten();
        all.map(|c| (text(&c["type"]).to_owned(), text(&c["status"]).to_owned())).collect::<BTreeMap<_, _>>()
    };
    // Others have conditions of their own there.
    let at_server = conditions(theirs);
    let well = conditions(&ours).iter().all(|(kind, status)| at_server.get(kind) == Some(status));
    unless(well, "C2: the server has the status", || {
        format!("{}: {} here and {} there", view.pod.uid, ours["conditions"], theirs["conditions"])
    })
}

/// C2: a container that does not restart has ended at the server, although it runs again, and no restart count
/// decreases. Of a pod that has ended, the server has the ends of the containers although the disk has lost them.
fn as_at_server(ours: &Value, pod: &Value, field: &str) -> Value {
    let mut ours = ours.clone();
    if !field.ends_with("Statuses") {
        return ours;
    }
    let has_ended = |container: &Value| container["state"]["terminated"].is_object();
    for container in ours.as_array_mut().into_iter().flatten() {
        let mut theirs = pod["status"][field].as_array().into_iter().flatten();
        let theirs = theirs.find(|theirs| theirs["name"] == container["name"]);
        if let Some(theirs) =
            theirs.filter(|theirs| theirs["restartCount"].as_i64() > container["restartCount"].as_i64())
        {
            container["restartCount"] = theirs["restartCount"].clone();
        }
    }
    for container in ours.as_array_mut().into_iter().flatten().filter(|container| !has_ended(container)) {
        let mut theirs = pod["status"][field].as_array().into_iter().flatten();
        let theirs = theirs.find(|theirs| theirs["name"] == container["name"] && has_ended(theirs));
        let is_over = is_terminal(&pod["status"]["phase"]);
        if let Some(theirs) = theirs.filter(|theirs| is_over || !may_restart(pod, theirs)) {
            container.clone_from(theirs);
        }
    }
    ours
}

/// A pod of the server that does not run: it has ended for a reason, or another pod has its name.
pub fn has_a_reason(w: &World, view: &PodView<'_>) -> Judged {
    const RULE: &str = "C5: a pod ends for a reason";
    let (uid, status) = (&view.pod.uid, view.status);
    match status.phase.as_deref().unwrap_or_default() {
        "Succeeded" | "Failed" => {
            let running: Vec<&Container> = w.runtime.of(uid).filter(|c| c.runs()).collect();
            unless(running.is_empty(), RULE, || format!("{uid} has ended and {running:?} run"))?;
            let may_end = view.pod.restart_policy() != RestartPolicy::Always || view.pod.active_deadline().is_some();
            // If the record of the end was lost, only the server has the reason.
            let at_server = w.api.bound().find(|pod| pod["metadata"]["uid"] == uid.as_str());
            let reason = status.reason.is_some() || at_server.is_some_and(|pod| pod["status"]["reason"].is_string());
            unless(may_end || reason, RULE, || format!("{uid}: {}", brief(status)))
        }
        phase => {
            let waits = w.engine.pods().iter().any(|other| other.pod.name == view.pod.name && other.pod.uid != *uid);
            unless(waits, RULE, || format!("{uid} is {phase}: {}", brief(status)))
        }
    }
}

/// The requests at rest: nothing is reported again.
pub fn rests(w: &World, before: usize) -> Judged {
    let requests = &w.api.requests[before..];
    let changes = |text: &str| {
        let lease = text.contains("/leases/") || text.contains("/nodes/");
        // A token is replaced when it is old enough.
        !text.starts_with("GET") && !lease && !text.ends_with("/token")
    };
    let well = requests.len() <= AT_REST && !requests.iter().any(|(_, text)| changes(text));
    unless(well, "C: few requests at rest", || format!("{requests:?}"))
}

/// The server is away once more: nothing stops, and afterwards it learns the changes of the absence.
pub fn survives_an_absence(w: &mut World) -> Judged {
    if w.config.cluster.is_none() {
        return Ok(());
    }
    w.note(|| "--- another absence".into());
    let runs = |w: &World| {
        let ours = |c: &&Container| c.runs() && c.owner.as_ref() == Some(&w.runtime.owner);
        w.runtime.containers.values().filter(ours).map(|c| c.id.clone()).collect::<Vec<_>>()
    };
    let before = runs(w);
    w.api_away(true);
    w.run(60);
    let ended: Vec<&String> = before.iter().filter(|id| !w.runtime.lives(id)).collect();
    unless(ended.is_empty(), "C3: without the server pods run on", || format!("{ended:?} have ended"))?;
    if let Some(id) = before.first() {
        w.exit(id, 1);
    }
    let names: Vec<String> = w.api.bound().map(|pod| text(&pod["metadata"]["name"]).to_owned()).collect();
    if let Some(name) = names.first() {
        w.api_delete_pod(name, 1);
    }
    w.run(60);
    w.api_away(false);
    w.run(FOUND + 8);
    w.checks.so_far()?;
    agrees(w)
}

/// All manifests and all pods of the server are deleted.
pub fn is_empty(w: &World) -> Judged {
    if w.config.cluster.is_none() {
        return Ok(());
    }
    let left: Vec<&Value> = w.api.bound().chain(w.api.mirrors()).map(|pod| &pod["metadata"]["name"]).collect();
    unless(left.is_empty(), "C2: deleted pods are gone", || json!(left).to_string())?;
    // A record whose removal failed stays until the next start.
    let failed = |key: &str| {
        let all = w.chaos.iter().flat_map(|chaos| &chaos.happened);
        all.into_iter().any(|mishap| mishap.what == format!("no space for {key}"))
    };
    let of_pods = |key: &&String| ["objects/", "tokens/", "lists/"].iter().any(|kind| key.starts_with(kind));
    let left: Vec<&String> = w.disk.records.keys().filter(of_pods).filter(|key| !failed(key)).collect();
    unless(left.is_empty(), "leak: records of the cluster", || format!("{left:?} are left"))
}
