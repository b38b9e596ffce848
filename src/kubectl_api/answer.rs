//! Finds the first step of a request that `head` has admitted.

use super::asked::Asked;
use super::evictions::evicted;
use super::form::single;
use super::head::{self, Admitted, AdmittedTarget};
use super::keys::key_of;
use super::list::List;
use super::log_request;
use super::request::{ApiRequest, Result};
use super::response::ApiResponse;
use super::snapshot::Snapshot;
use super::state::KubectlApi;
use super::step::{AfterAnswer, FirstStep, Measurement, NextStep};
use super::watch::Watch;
use crate::api::kube::accept::{self, Discovery};
use crate::api::kube::bookmarks::Bookmarks;
use crate::api::kube::path::Target;
use crate::api::kube::query::Query;
use crate::api::kube::request_body::object;
use crate::api::kube::resources::{Kind, Resource};
use crate::api::kube::selection::Selection;
use crate::api::kube::status::Failure;
use crate::api::kube::table::Include;
use crate::api::kube::versions::{Key, Position};
use crate::api::kube::{discovery, openapi, reviews};
use crate::engine::control::stream::{StreamKind, StreamRequest, Terminal};
use crate::engine::control::{Command, Reply, RequestError};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

impl KubectlApi {
    /// Returns the first step of a request.
    pub fn request(&self, snapshot: &Snapshot<'_>, request: &ApiRequest<'_>, body: &[u8]) -> FirstStep {
        let Admitted { client, target, query } = match head::admit(snapshot, request) {
            Ok(admitted) => admitted,
            Err(failure) => return FirstStep { verb: None, next: Err(failure) },
        };
        let (verb, next) = match target {
            AdmittedTarget::Document(target) => {
                let (architecture, is_verbose) = (self.machine.architecture, query.flag("verbose"));
                ("discover", document(&target, architecture, &request.accept, is_verbose))
            }
            AdmittedTarget::Kubelet(path) => ("proxy", Ok(NextStep::Kubelet(path, query))),
            AdmittedTarget::Object(verb, path) => {
                let asked = Asked { snapshot, request, client: &client, path: &path, query: &query };
                (verb, self.object_answer(&asked, verb, body))
            }
        };
        FirstStep { verb: Some(verb), next }
    }

    fn object_answer(&self, asked: &Asked<'_>, verb: &'static str, body: &[u8]) -> Result<NextStep> {
        match (verb, asked.path.subresource) {
            ("get", None | Some("status" | "ephemeralcontainers")) => self.get(asked),
            ("get" | "create", Some(sub @ ("exec" | "attach" | "portforward"))) => session(asked, sub),
            ("create", Some("eviction")) => self.evict(asked, body),
            ("get", Some("log")) => log(asked),
            ("get", Some("scale")) => self.scale(asked),
            ("update" | "patch", Some("scale")) => self.change_scale(asked, verb, body),
            ("update" | "patch", Some("ephemeralcontainers")) => self.add_ephemeral(asked, verb, body),
            ("list", None) => self.list(asked),
            ("watch", None) => self.watch(asked),
            ("create", None) if asked.path.resource.verbs == ["create"] => review(asked, body),
            ("create" | "update" | "patch" | "delete", None) => self.change(asked, verb, body),
            _ => Err(Failure::method_not_allowed()),
        }
    }

    fn get(&self, asked: &Asked<'_>) -> Result<NextStep> {
        let (format, include) = (accept::format(&asked.request.accept)?, include(asked.query)?);
        let resource = asked.path.resource;
        if matches!(resource.kind, Kind::PodMetrics | Kind::NodeMetrics) {
            return measure(asked);
        }
        let name = asked.path.name.as_deref().unwrap_or_default();
        let object = key_of(asked.path).and_then(|key| self.object(asked.snapshot, &key));
        let object = object.ok_or_else(|| Failure::not_found(resource, name))?;
        let object = single(object, resource, format, include, asked.snapshot.timestamp());
        Ok(NextStep::Respond(ApiResponse::json(&object)))
    }

    fn list(&self, asked: &Asked<'_>) -> Result<NextStep> {
        let (format, include) = (accept::format(&asked.request.accept)?, include(asked.query)?);
        let selection = Selection::new(asked.path, asked.query)?;
        if matches!(selection.resource.kind, Kind::PodMetrics | Kind::NodeMetrics) {
            return measure(asked);
        }
        let version = self.objects.versions.current();
        let number = |field| asked.query.number(field).map_err(Failure::bad_request);
        // Only check the limit: the whole list is always sent.
        number("limit")?;
        number("timeoutSeconds")?;
        let requested = number("resourceVersion")?.unwrap_or(0);
        if requested > version {
            return Err(Failure::version_too_large(requested, version));
        }
        if asked.query.get("resourceVersionMatch") == Some("Exact") && requested != version {
            return Err(Failure::expired(requested));
        }
        Ok(NextStep::Respond(ApiResponse::list(List::new(selection, format, include, version))))
    }

    fn watch(&self, asked: &Asked<'_>) -> Result<NextStep> {
        let (format, include) = (accept::format(&asked.request.accept)?, include(asked.query)?);
        let selection = Selection::new(asked.path, asked.query)?;
        if !selection.resource.verbs.contains(&"watch") {
            return Err(Failure::method_not_allowed());
        }
        let query = asked.query;
        let initial = query.flag("sendInitialEvents");
        let version = query.number("resourceVersion").map_err(Failure::bad_request)?.unwrap_or(0);
        let bookmarks = query.flag("allowWatchBookmarks");
        if initial && (!bookmarks || query.get("resourceVersionMatch") != Some("NotOlderThan")) {
            let why = "sendInitialEvents requires allowWatchBookmarks=true and resourceVersionMatch=NotOlderThan";
            return Err(Failure::invalid_options(why));
        }
        if initial && version > self.objects.versions.current() {
            return Err(Failure::version_too_large(version, self.objects.versions.current()));
        }
        // Without a version, and for a streaming list, the watch begins with every object.
        let version = if initial { 0 } else { version };
        if version > 0 {
            let kind = selection.resource.kind;
            self.objects.versions.check(kind, version).map_err(|outdated| self.outdated(outdated, version))?;
        }
        let seconds = query.number("timeoutSeconds").map_err(Failure::bad_request)?;
        let until = seconds.map(|s| asked.snapshot.now.boot + Duration::from_secs(s.clamp(1, 24 * 3600)));
        let bookmarks = bookmarks.then(|| Bookmarks::new(asked.snapshot.now.boot));
        let mut watch = Watch::new(selection, format, include, Position::after(version));
        (watch.initial, watch.bookmarks, watch.until) = (initial, bookmarks, until);
        if watch.selection.is_mutable() {
            let has_nothing = version == 0;
            watch.selected =
                Some(if has_nothing { BTreeSet::new() } else { self.may_be_selected(asked.snapshot, &watch) });
        }
        Ok(NextStep::Respond(ApiResponse::watch(watch)))
    }

    /// Returns the response that follows the engine's answer.
    ///
    /// # Errors
    /// The failure for the client.
    pub fn answered(
        &mut self,
        snapshot: &Snapshot<'_>,
        after: AfterAnswer,
        answer: std::result::Result<Reply, RequestError>,
    ) -> Result<ApiResponse> {
        match after {
            AfterAnswer::Evicted(name) => evicted(&name, answer),
            AfterAnswer::Cordoned => self.cordoned(snapshot, answer),
            AfterAnswer::DeletedAgain { key, live } => self.deleted_again(snapshot, &key, live, answer),
            AfterAnswer::Debugged(of) => self.ephemeral_added(snapshot, of, answer),
        }
    }

    /// Returns the response after the engine has deleted an object without a manifest, or shortened the grace period of
    /// a pod.
    fn deleted_again(
        &self,
        snapshot: &Snapshot<'_>,
        key: &Key,
        live: Value,
        answer: std::result::Result<Reply, RequestError>,
    ) -> Result<ApiResponse> {
        answer.map_err(|why| match why {
            // It has gone since the request.
            RequestError::UnknownPod(_)
            | RequestError::UnknownJob(_)
            | RequestError::UnknownClaim(_)
            | RequestError::UnknownVolume(_) => Failure::not_found(Resource::of(key.kind), &key.name),
            why => Failure::internal(why),
        })?;
        // The current object has the new grace period. A pod that has ended meanwhile is shown as it was before.
        let now = self.object(snapshot, key).filter(|now| now["metadata"]["uid"] == live["metadata"]["uid"]);
        Ok(ApiResponse::json(&now.unwrap_or(live)))
    }
}

fn log(asked: &Asked<'_>) -> Result<NextStep> {
    let (pod, query) = (asked.pod()?, asked.query);
    let container = log_request::container_of(pod, query.get("container"))?;
    Ok(NextStep::OpenLog(log_request::request(asked.snapshot, pod, container, query)?))
}

fn measure(asked: &Asked<'_>) -> Result<NextStep> {
    let selection = Selection::new(asked.path, asked.query)?;
    let (format, include) = (accept::format(&asked.request.accept)?, include(asked.query)?);
    let single = asked.path.name.is_some();
    Ok(NextStep::Measure(Measurement { selection, single, format, include }))
}

fn session(asked: &Asked<'_>, subresource: &str) -> Result<NextStep> {
    let request = StreamRequest { uid: asked.pod()?.uid.clone(), kind: stream_kind(subresource, asked.query) };
    let log = format!("session={subresource} pod={}", asked.full_name());
    Ok(NextStep::Session { request, log })
}

/// Returns what the client wants from the pod.
fn stream_kind(subresource: &str, query: &Query) -> StreamKind {
    let container = query.get("container").map(str::to_owned);
    let [stdin, stdout, stderr, tty] = ["stdin", "stdout", "stderr", "tty"].map(|name| query.flag(name));
    let command = || Command(query.all("command").map(str::to_owned).collect());
    match subresource {
        "exec" => StreamKind::Exec { container, command: command(), stdin, stdout, stderr, tty },
        "attach" => StreamKind::Attach { container, stdin, stdout, stderr, tty, terminal: Terminal::OfContainer },
        _ => StreamKind::PortForward { ports: Vec::new() },
    }
}

fn include(query: &Query) -> Result<Include> {
    match query.get("includeObject") {
        None | Some("Metadata") => Ok(Include::Metadata),
        Some("None") => Ok(Include::None),
        Some("Object") => Ok(Include::Object),
        Some(other) => Err(Failure::bad_request(format!("includeObject: invalid value {other:?}"))),
    }
}

/// Returns a document that is not an object, such as discovery information.
fn document(target: &Target, architecture: &str, accept: &str, is_verbose: bool) -> Result<NextStep> {
    let of = |core: bool, legacy: fn() -> Value| -> Result<ApiResponse> {
        Ok(match accept::discovery(accept)? {
            Discovery::Legacy => ApiResponse::json(&legacy()),
            Discovery::Aggregated(form) => {
                let content_type = match form {
                    "v2" => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
                    _ => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
                };
                ApiResponse { content_type, ..ApiResponse::json(&discovery::aggregated(form, core)) }
            }
        })
    };
    Ok(NextStep::Respond(match target {
        Target::Core => of(true, discovery::core_versions)?,
        Target::Groups => of(false, discovery::group_list)?,
        Target::Group(group) => ApiResponse::json(&discovery::group(group)),
        Target::Resources(group, version) => ApiResponse::json(&discovery::resource_list(group, version)),
        Target::OpenApi => ApiResponse::json(&openapi::index()),
        Target::OpenApiOf(group, version) => ApiResponse::json(&openapi::document(group, version)),
        Target::Version => ApiResponse::json(&discovery::version(env!("CARGO_PKG_VERSION"), architecture)),
        Target::Health(page) => return Ok(NextStep::Health { page, is_verbose }),
        Target::Object(_) | Target::Kubelet(..) => return Err(Failure::no_such_path()),
    }))
}

/// Answers a review, which is the only object that is not stored when a client creates it.
fn review(asked: &Asked<'_>, body: &[u8]) -> Result<NextStep> {
    let kind = asked.path.resource.kind;
    let object = object(body, asked.request.media_type)?;
    let answer = reviews::answer(kind, object, &asked.client.name, asked.client.role);
    Ok(NextStep::Respond(ApiResponse::created(&answer)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_has_the_command_and_the_streams_of_its_query() {
        let query =
            Query::parse("command=sh&command=-c&command=exit%203&container=main&stdin=true&stdout=true&tty=true");
        let StreamKind::Exec { container, command, stdin, stdout, stderr, tty } = stream_kind("exec", &query) else {
            panic!()
        };
        assert_eq!((container.as_deref(), stdin, stdout, stderr, tty), (Some("main"), true, true, false, true));
        assert_eq!(command.0, ["sh", "-c", "exit 3"]);
    }
}
