//! Finds the answer of a request that `head` has admitted, from the engine's state.

use super::Kube;
use super::body::{List, Watch, key_of, now, single};
use super::head::{Admitted, AdmittedTarget};
use super::logs;
use super::metrics::{Measurement, Wanted};
use super::writes::{Change, in_force};
use super::{kubelet, sessions};
use crate::adapters::manifests::edit::Edit;
use crate::adapters::server::api::{self, ApiRequest, VerifiedClient};
use crate::adapters::server::health;
use crate::adapters::server::routes::Page;
use crate::agent::act::{Act, Then};
use crate::agent::content::{Response, View, json, streamed};
use crate::api::kube::accept::{self, Discovery};
use crate::api::kube::bookmarks::Bookmarks;
use crate::api::kube::edit::ManifestEdit;
use crate::api::kube::path::{ObjectPath, Target};
use crate::api::kube::query::Query;
use crate::api::kube::request_body::{change_of, object};
use crate::api::kube::resources::Kind;
use crate::api::kube::selection::Selection;
use crate::api::kube::status::Failure;
use crate::api::kube::table::Include;
use crate::api::kube::versions::{Key, Position};
use crate::api::kube::{discovery, openapi, reviews, write};
use crate::api::names::FullName;
use crate::api::pod::Pod;
use crate::api::time::Boot;
use crate::engine::control::{Reply, RequestError, StreamRequest};
use crate::engine::event::control::Request as EngineRequest;
use crate::metrics::families;
use crate::net::server::exchange::{Request, Ticket};
use serde_json::Value;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

/// An answer, or the failure to send.
pub(super) type Result<T> = std::result::Result<T, Failure>;

impl Kube {
    /// The first step of a request, and the end of the client's certificate, with which its watch, log or session ends.
    pub(in crate::agent) fn answer(&mut self, view: &View<'_>, request: &Request<'_>) -> (Act, Option<Boot>) {
        let api = self.identify(view, request);
        let result = self.find_answer(view, request, &api);
        self.report(view, &api, result.as_ref().err());
        let act = result.unwrap_or_else(|failure| Act::Respond(api::failure(&failure)));
        (act, api.client.ok().map(|client| client.expires))
    }

    fn find_answer(&mut self, view: &View<'_>, request: &Request<'_>, api: &ApiRequest<'_>) -> Result<Act> {
        let Admitted { client, target, query } = self.admit(view, api)?;
        let head = api.head;
        let accept = head.values("accept").collect::<Vec<_>>().join(",");
        match target {
            AdmittedTarget::Document(target) => {
                view.metrics.inc(families::KUBECTL_REQUESTS, ["discover"]);
                document(view, &target, &accept, query.flag("verbose")).map(Act::Respond)
            }
            AdmittedTarget::Kubelet(path) => {
                view.metrics.inc(families::KUBECTL_REQUESTS, ["proxy"]);
                Ok(kubelet::answer(view, path, &query))
            }
            AdmittedTarget::Object(verb, path) => {
                view.metrics.inc(families::KUBECTL_REQUESTS, [verb]);
                let (client, ticket) = (&*client, request.ticket);
                let asked = Asked { view, api, client, path: &path, query: &query, accept: &accept, ticket };
                self.object_answer(&asked, verb, request.body)
            }
        }
    }

    fn object_answer(&mut self, asked: &Asked<'_>, verb: &'static str, body: &[u8]) -> Result<Act> {
        match (verb, asked.path.subresource) {
            ("get", None | Some("status" | "ephemeralcontainers")) => self.get(asked),
            ("get" | "create", Some(sub @ ("exec" | "attach" | "portforward"))) => session(asked, sub),
            ("create", Some("eviction")) => self.evict(asked, body),
            ("get", Some("log")) => log(asked),
            ("update" | "patch", Some("ephemeralcontainers")) => self.add_ephemeral(asked, verb, body),
            ("list", None) => self.list(asked),
            ("watch", None) => self.watch(asked).map(Act::Respond),
            ("create", None) if asked.path.resource.verbs == ["create"] => review(asked, body).map(Act::Respond),
            ("create" | "update" | "patch" | "delete", None) => self.change(asked, verb, body),
            _ => Err(Failure::method_not_allowed()),
        }
    }

    fn get(&self, asked: &Asked<'_>) -> Result<Act> {
        let (format, include) = (accept::format(asked.accept)?, include(asked.query)?);
        let resource = asked.path.resource;
        if matches!(resource.kind, Kind::PodMetrics | Kind::NodeMetrics) {
            return measure(asked);
        }
        let name = asked.path.name.as_deref().unwrap_or_default();
        let object = key_of(asked.path).and_then(|key| self.object(asked.view, &key));
        let object = object.ok_or_else(|| Failure::not_found(resource, name))?;
        Ok(Act::Respond(json(&single(object, resource, format, include, now(asked.view)))))
    }

    fn list(&self, asked: &Asked<'_>) -> Result<Act> {
        let (format, include) = (accept::format(asked.accept)?, include(asked.query)?);
        let selection = Selection::new(asked.path, asked.query)?;
        if matches!(selection.resource.kind, Kind::PodMetrics | Kind::NodeMetrics) {
            return measure(asked);
        }
        let version = self.objects.versions.current();
        let number = |field| asked.query.number(field).map_err(Failure::bad_request);
        // The whole list is sent, whatever the limit.
        number("limit")?;
        number("timeoutSeconds")?;
        let requested = number("resourceVersion")?.unwrap_or(0);
        if requested > version {
            return Err(Failure::version_too_large(requested, version));
        }
        if asked.query.get("resourceVersionMatch") == Some("Exact") && requested != version {
            return Err(Failure::expired(requested));
        }
        Ok(Act::Respond(streamed(List::new(selection, format, include, version))))
    }

    fn watch(&self, asked: &Asked<'_>) -> Result<Response> {
        let (format, include) = (accept::format(asked.accept)?, include(asked.query)?);
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
        // Without a version, and for a list as a stream, the watch begins with every object.
        let version = if initial { 0 } else { version };
        if version > 0 {
            let kind = selection.resource.kind;
            self.objects.versions.check(kind, version).map_err(|outdated| self.outdated(outdated, version))?;
        }
        let seconds = query.number("timeoutSeconds").map_err(Failure::bad_request)?;
        let until = seconds.map(|s| asked.view.now.boot + Duration::from_secs(s.clamp(1, 24 * 3600)));
        let is_mutable = selection.is_mutable();
        let position = Position::after(version);
        let columns = false;
        let bookmarks = bookmarks.then(|| Bookmarks::new(asked.view.now.boot));
        let mut watch =
            Watch { selection, format, include, position, columns, initial, bookmarks, selected: None, until };
        if is_mutable {
            watch.selected =
                Some(if version == 0 { Default::default() } else { self.may_be_selected(asked.view, &watch) });
        }
        Ok(streamed(watch))
    }

    /// The engine has shortened the grace period of a pod.
    ///
    /// # Errors
    /// The engine has refused the request.
    pub(in crate::agent) fn deleted_again(
        &self,
        view: &View<'_>,
        key: &Key,
        live: Value,
        answer: std::result::Result<Reply, RequestError>,
    ) -> Result<Response> {
        answer.map_err(Failure::internal)?;
        // It has the new grace period. A pod that ended meanwhile is shown as it was.
        let now = self.object(view, key).filter(|now| now["metadata"]["uid"] == live["metadata"]["uid"]);
        Ok(json(&now.unwrap_or(live)))
    }

    /// A request that changes an object. The answer follows when the change is in force.
    fn change(&self, asked: &Asked<'_>, verb: &str, body: &[u8]) -> Result<Act> {
        let resource = asked.path.resource;
        if !resource.verbs.contains(&verb) {
            return Err(Failure::method_not_allowed());
        }
        let mut path = asked.path.clone();
        let (mut change, options) = requested(asked, verb, body, &mut path.name)?;
        if let (Kind::Node, Some(change)) = (resource.kind, &change) {
            return self.change_node(asked, change);
        }
        if resource.namespaced && path.namespace.is_none() {
            return Err(Failure::bad_request("an object of this resource needs a namespace in the path"));
        }
        let name = path.name.clone().unwrap_or_default();
        let Some(key) = key_of(&path) else { return Err(Failure::method_not_allowed()) };
        let source = in_force(asked.view, &key).map(|(source, _)| source);
        let live = self.object(asked.view, &key);
        if let (Some(change), Some(live)) = (&mut change, &live) {
            write::without_ephemeral(change, live);
        }
        let is_deleted_again = live.is_some() && source.is_none();
        write::check(resource, &name, change.as_ref(), &options, source.is_some(), live.as_ref())?;
        let seconds = options.get("gracePeriodSeconds").and_then(Value::as_u64);
        let seconds = seconds.or(asked.query.number("gracePeriodSeconds").map_err(Failure::bad_request)?);
        let dry_run = asked.is_dry_run()
            || options.get("dryRun").and_then(Value::as_array).is_some_and(|all| all.iter().any(|v| v == "All"));
        if is_deleted_again {
            let grace = seconds.filter(|_| !dry_run).map(Duration::from_secs);
            return Ok(delete_again(asked, key, live.unwrap_or_default(), grace));
        }
        if !asked.view.engine.manifests_are_writable() {
            let why = "the manifest directory is not readable, or not the one of the running pods; see wherry status";
            return Err(Failure::service_unavailable(why));
        }
        let (document, file) = source.map(|source| (source.document, PathBuf::from(source.path))).unzip();
        let (node_name, seen) = (asked.view.config.node_name.clone(), now(asked.view).to_string());
        let manifest = ManifestEdit { object: path, document, change, node_name, seen };
        let edit = Edit { directory: asked.view.manifests.directory().to_owned(), file, manifest, dry_run };
        log::info!(
            "kubectl client={:?} verb={verb} {}={}/{}",
            asked.client.name,
            resource.singular,
            key.namespace,
            key.name
        );
        let change = Change { key, edit, grace: seconds.map(Duration::from_secs) };
        Ok(Act::Change(Box::new(change)))
    }
}

fn log(asked: &Asked<'_>) -> Result<Act> {
    let (pod, query) = (pod_of(asked)?, asked.query);
    let container = logs::container_of(pod, query.get("container"))?;
    Ok(Act::OpenLog(logs::request(asked.view, pod, container, query)?))
}

fn measure(asked: &Asked<'_>) -> Result<Act> {
    let selection = Selection::new(asked.path, asked.query)?;
    let (format, include) = (accept::format(asked.accept)?, include(asked.query)?);
    let measurement = Measurement { selection, single: asked.path.name.is_some(), format, include };
    Ok(Act::Ask(EngineRequest::Usage, Then::Measured(Wanted::Objects(measurement))))
}

fn session(asked: &Asked<'_>, subresource: &str) -> Result<Act> {
    let uid = pod_of(asked)?.uid.clone();
    let (session, kind) = (sessions::session(asked.api.head)?, sessions::kind(subresource, asked.query));
    log::info!(
        "kubectl client={:?} session={subresource} pod={}/{}",
        asked.client.name,
        asked.path.namespace.as_deref().unwrap_or_default(),
        asked.path.name.as_deref().unwrap_or_default()
    );
    Ok(Act::Ask(EngineRequest::Stream(StreamRequest { uid, kind }), Then::Session(session)))
}

/// W4: the pod terminates already. A grace period can only shorten the one that has started.
fn delete_again(asked: &Asked<'_>, key: Key, live: Value, grace: Option<Duration>) -> Act {
    let Some(grace) = grace else { return Act::Respond(json(&live)) };
    let pod = FullName::new(&key.namespace, &key.name);
    log::info!("kubectl client={:?} verb=delete pod={pod} again=true grace={grace:?}", asked.client.name);
    Act::Ask(EngineRequest::Shorten { pod, grace }, Then::DeletedAgain { key, live })
}

/// A request for objects.
pub(super) struct Asked<'a> {
    pub view: &'a View<'a>,
    pub api: &'a ApiRequest<'a>,
    pub client: &'a VerifiedClient,
    pub path: &'a ObjectPath,
    pub query: &'a Query,
    pub accept: &'a str,
    pub ticket: Ticket,
}

impl Asked<'_> {
    /// The media type of the body, without parameters.
    pub fn media_type(&self) -> &str {
        let field = self.api.head.values("content-type").next().unwrap_or_default();
        field.split(';').next().unwrap_or_default().trim()
    }

    pub fn is_dry_run(&self) -> bool {
        self.query.all("dryRun").any(|v| v == "All")
    }
}

/// The change that a request asks for, and the options of a deletion. A new object gets its name in `name`.
fn requested(
    asked: &Asked<'_>,
    verb: &str,
    body: &[u8],
    name: &mut Option<String>,
) -> Result<(Option<write::ObjectChange>, Value)> {
    match verb {
        "create" => {
            let mut object = object(body, asked.media_type())?;
            let suffix =
                crate::api::uid::digest_of_bytes(format!("{}{}", asked.ticket.0, asked.view.now.wall.0).as_bytes());
            let suffix = suffix.get(..5).unwrap_or_default();
            *name = Some(write::new_name(asked.path.resource, &mut object, suffix)?);
            Ok((Some(write::ObjectChange::Create(object)), Value::Null))
        }
        "update" | "patch" => Ok((Some(change_of(verb, asked.media_type(), body)?), Value::Null)),
        _ if body.is_empty() => Ok((None, Value::Null)),
        _ => Ok((None, object(body, asked.media_type())?)),
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

/// A document that is no object.
fn document(view: &View<'_>, target: &Target, accept: &str, verbose: bool) -> Result<Response> {
    let of = |core: bool, legacy: fn() -> Value| -> Result<Response> {
        Ok(match accept::discovery(accept)? {
            Discovery::Legacy => json(&legacy()),
            Discovery::Aggregated(form) => {
                let content_type = match form {
                    "v2" => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
                    _ => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
                };
                Response { content_type, ..json(&discovery::aggregated(form, core)) }
            }
        })
    };
    Ok(match target {
        Target::Core => of(true, discovery::core_versions)?,
        Target::Groups => of(false, discovery::group_list)?,
        Target::Group(group, version) => json(&discovery::group(group, version)),
        Target::Resources(group, version) => json(&discovery::resource_list(group, version)),
        Target::OpenApi => json(&openapi::index()),
        Target::OpenApiOf(group, version) => json(&openapi::document(group, version)),
        Target::Version => json(&discovery::version(env!("CARGO_PKG_VERSION"), std::env::consts::ARCH)),
        Target::Health(path) => {
            let page = match *path {
                "/livez" => Page::Livez,
                "/readyz" => Page::Readyz,
                _ => Page::Healthz,
            };
            health::response(page, &view.health_checks(page), verbose)
        }
        Target::Object(_) | Target::Kubelet(..) => return Err(Failure::no_such_path()),
    })
}

/// A review, the only object that is created without being stored.
fn review(asked: &Asked<'_>, body: &[u8]) -> Result<Response> {
    let kind = asked.path.resource.kind;
    let object = object(body, asked.media_type())?;
    let mut response = json(&reviews::answer(kind, object, &asked.client.name, asked.client.role));
    response.status = 201;
    Ok(response)
}

/// The pod that the path names.
pub(super) fn pod_of<'a>(asked: &Asked<'a>) -> Result<&'a Rc<Pod>> {
    let part = |text: &'a Option<String>| text.as_deref().unwrap_or_default();
    let (namespace, name) = (part(&asked.path.namespace), part(&asked.path.name));
    let pod = asked.view.engine.pod_named(&FullName::new(namespace, name));
    pod.map(|view| view.pod).ok_or_else(|| Failure::not_found(asked.path.resource, name))
}
