//! The rules for each request to the API server, for each change of a status there, and for the ends of the server's pods.

use crate::check::Checks;
use crate::runtime::Runtime;
use crate::world::api_server::{ApiServer, PODS, is_terminal};
use crate::world::{S, World};
use serde_json::Value;
use std::time::Duration;
use wherry::api::cluster::request::{ApiRequest, Method};
use wherry::api::names::Uid;
use wherry::engine::node::Engine;

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn uid(pod: &Value) -> Uid {
    Uid::from(text(&pod["metadata"]["uid"]))
}

impl World {
    /// C2: a change of a pod names its UID, and a deletion is confirmed when nothing of the pod is left.
    pub fn check_request(&mut self, request: &ApiRequest) {
        if !request.path.starts_with(PODS) || !matches!(request.method, Method::Patch | Method::Delete) {
            return;
        }
        let body: Value =
            request.body.as_ref().and_then(|(_, body)| serde_json::from_str(body).ok()).unwrap_or_default();
        let field = if request.method == Method::Patch { "/metadata/uid" } else { "/preconditions/uid" };
        let Some(uid) = body.pointer(field).and_then(Value::as_str) else {
            return self.checks.fail("C2: a change names the UID", format!("{request:?}"));
        };
        if request.method == Method::Patch || !self.checks.of_server.contains(uid) {
            return;
        }
        self.checks.confirmed.insert(uid.into());
        let deleted = self.api.bound().find(|pod| pod["metadata"]["uid"] == uid);
        if deleted.is_some_and(|pod| pod["metadata"]["deletionTimestamp"].is_null()) {
            self.checks.fail("C2: only a deletion is confirmed", uid.into());
        }
        let uid = Uid::from(uid);
        let runs = self.runtime.of(&uid).find(|c| c.runs()).map(|c| c.id.clone());
        // A cancelled call that takes effect late can create a sandbox afterwards.
        let mut sandboxes = self.runtime.ours().filter(|_| self.checks.strict);
        let sandbox = sandboxes.find(|s| s.uid == uid && s.ready).map(|s| s.id.clone());
        if let Some(id) = runs.or(sandbox) {
            self.checks.fail("C2: a deletion is confirmed when nothing runs", format!("{id} of {uid} runs"));
        }
        // (An empty directory can stay for a while as a marker.)
        if self.volumes.mounted.contains(&uid) {
            self.checks
                .fail("C2: a deletion is confirmed when the volumes are gone", format!("those of {uid} are there"));
        }
    }

    /// C12: the number of requests in a minute is bounded. `MOST` has room for pods that come and go all the time; a request that is
    /// repeated without a delay exceeds it.
    pub fn check_rate(&mut self) {
        const MOST: usize = 400;
        let minute = self.clock.now.saturating_sub(60 * S);
        let requests = &self.api.requests;
        let now = requests.len() - requests.partition_point(|(at, _)| *at <= minute);
        if now > MOST {
            let last: Vec<&String> = requests.iter().rev().take(20).map(|(_, text)| text).collect();
            self.checks.fail("C12: requests are bounded", format!("{now} in a minute, the last ones {last:?}"));
        }
    }

    /// C2: a status of the same pod never goes backwards.
    pub fn check_status(&mut self, before: &Value, now: &Value) {
        if !self.checks.of_server.contains(text(&now["metadata"]["uid"])) {
            return;
        }
        let (old, new) = (&before["status"], &now["status"]);
        if is_terminal(&old["phase"]) && old["phase"] != new["phase"] {
            let what = format!("{} was {} and is {}", uid(now), old["phase"], new["phase"]);
            self.checks.fail("C2: a pod that has ended stays so", what);
        }
        // Containers that another program removed do not count any more, and a pod without its record has only the containers
        // that are left.
        let is_unrecorded = self.checks.lost_records.contains(&uid(now)) || self.disk.was_full;
        if self.checks.tampered || is_unrecorded {
            return;
        }
        for field in ["containerStatuses", "initContainerStatuses"] {
            for container in new[field].as_array().into_iter().flatten() {
                let mut all = old[field].as_array().into_iter().flatten();
                let old = all.find(|old| old["name"] == container["name"]);
                let (old, new) = (old.and_then(|old| old["restartCount"].as_i64()), container["restartCount"].as_i64());
                if old > new {
                    let what = format!("{} of {} had {old:?} and has {new:?}", container["name"], uid(now));
                    self.checks.fail("C2: restarts are not forgotten", what);
                }
            }
        }
        // A real API server refuses such a status (422).
        let lists = ["containerStatuses", "initContainerStatuses"].into_iter();
        for container in lists.clone().filter_map(|list| new[list].as_array()).flatten() {
            let mut all = lists.clone().filter_map(|list| old[list].as_array()).flatten();
            let Some(before) = all.find(|old| old["name"] == container["name"]) else { continue };
            let end = &before["state"]["terminated"];
            if end.is_object() && container["state"]["terminated"].is_null() && !may_restart(now, before) {
                let what = format!("{} of {} had ended: {end}", container["name"], uid(now));
                self.checks.fail("C2: a container that does not restart has ended", what);
            }
        }
    }
}

/// Whether a container with this status, which has ended, may run again.
pub fn may_restart(pod: &Value, ended: &Value) -> bool {
    let init = pod["spec"]["initContainers"].as_array();
    let is_sidecar = |c: &&Value| c["name"] == ended["name"] && c["restartPolicy"] == "Always";
    match text(&pod["spec"]["restartPolicy"]) {
        _ if init.into_iter().flatten().any(|c| is_sidecar(&c)) => true,
        "Never" => false,
        "OnFailure" => ended["state"]["terminated"]["exitCode"] != 0,
        _ => true,
    }
}

impl Checks {
    /// Called after a step: notes the deleted pods that the engine ends by now.
    pub fn leaving(&mut self, engine: &Engine, api: &ApiServer, now: u64, runtime: &Runtime) {
        for view in engine.pods() {
            let uid = &view.pod.uid;
            if view.desired || !self.of_server.contains(uid.as_str()) {
                continue;
            }
            let object = api.bound().find(|pod| pod["metadata"]["uid"] == uid.as_str());
            // An object that is gone was perhaps deleted with a grace period before.
            let grace = object.map_or(Some(0), |pod| pod["metadata"]["deletionGracePeriodSeconds"].as_u64());
            let Some(grace) = grace else { continue };
            let has = runtime.ours().filter(|s| s.uid == *uid).map(|s| s.id.clone());
            self.note_end(uid, has.collect());
            self.bounds.end_requested(uid, Some(Duration::from_secs(grace)), now, runtime);
        }
    }
}
