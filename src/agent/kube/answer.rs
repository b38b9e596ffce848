//! Finds the answer of a request that `head` has admitted, from the engine's state.

use super::Kube;
use super::body::{key_of, now, single};
use super::head::{Admitted, AdmittedTarget};
use super::logs::{self, LogRequest};
use super::metrics::{Measurement, Wanted};
use super::pending::Pending;
use super::sessions;
use super::waiting::Waiting;
use super::writes::{Change, in_force};
use crate::adapters::manifests::edit::Edit;
use crate::adapters::server::api::{self, ApiCursor, ApiRequest, Client, List, Part, Watch};
use crate::adapters::server::health;
use crate::adapters::server::http::{Body, JSON, Request, Response, Route, Ticket};
use crate::agent::content::View;
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
use crate::engine::control::StreamRequest;
use crate::engine::event::control::Request as EngineRequest;
use crate::metrics::families;
use serde_json::Value;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

/// Work that an answer needs.
pub(in crate::agent) enum Answered {
    /// With the form of a failure.
    OpenLog(Ticket, LogRequest, fn(&Failure) -> Response),
    /// Closes the connections of revoked certificates.
    Reload(Ticket),
    Engine(Ticket, EngineRequest),
    Change(Ticket, Box<Change>),
}

/// An answer, or the failure to send.
pub(super) type Result<T> = std::result::Result<T, Failure>;

impl Kube {
    pub(in crate::agent) fn answer(
        &mut self,
        view: &View<'_>,
        request: &Request,
        orders: &mut Vec<Answered>,
    ) -> Response {
        let Some(api) = &request.api else { return api::failure(&Failure::unauthorized("not an API request")) };
        let result = self.find_answer(view, request, api, orders);
        self.answered_with(view, api, result)
    }

    fn find_answer(
        &mut self,
        view: &View<'_>,
        request: &Request,
        api: &ApiRequest,
        orders: &mut Vec<Answered>,
    ) -> Result<Response> {
        let Admitted { client, target, query } = self.admit(view, api)?;
        let head = &api.head;
        let accept = head.values("accept").collect::<Vec<_>>().join(",");
        match target {
            AdmittedTarget::Document(target) => {
                view.metrics.inc(families::KUBECTL_REQUESTS, ["discover"]);
                document(view, &target, &accept, query.flag("verbose"))
            }
            AdmittedTarget::Kubelet(path) => {
                view.metrics.inc(families::KUBECTL_REQUESTS, ["proxy"]);
                Ok(self.waiting.kubelet(view, request.ticket, path, &query, orders))
            }
            AdmittedTarget::Object(verb, path) => {
                view.metrics.inc(families::KUBECTL_REQUESTS, [verb]);
                let (client, ticket) = (&*client, request.ticket);
                let asked = Asked { view, api, client, path: &path, query: &query, accept: &accept, ticket };
                self.object_answer(&asked, verb, &request.body, orders)
            }
        }
    }

    fn object_answer(
        &mut self,
        asked: &Asked<'_>,
        verb: &'static str,
        body: &[u8],
        orders: &mut Vec<Answered>,
    ) -> Result<Response> {
        match (verb, asked.path.subresource) {
            ("get", None | Some("status" | "ephemeralcontainers")) => self.get(asked, orders),
            ("get" | "create", Some(sub @ ("exec" | "attach" | "portforward"))) => self.session(asked, sub, orders),
            ("create", Some("eviction")) => self.evict(asked, body, orders),
            ("get", Some("log")) => self.log(asked, orders),
            ("update" | "patch", Some("ephemeralcontainers")) => self.add_ephemeral(asked, verb, body, orders),
            ("list", None) => self.list(asked, orders),
            ("watch", None) => self.watch(asked),
            ("create", None) if asked.path.resource.verbs == ["create"] => review(asked, body),
            ("create" | "update" | "patch" | "delete", None) => self.change(asked, verb, body, orders),
            _ => Err(Failure::method_not_allowed()),
        }
    }

    fn get(&mut self, asked: &Asked<'_>, orders: &mut Vec<Answered>) -> Result<Response> {
        let (format, include) = (accept::format(asked.accept)?, include(asked.query)?);
        let resource = asked.path.resource;
        if matches!(resource.kind, Kind::PodMetrics | Kind::NodeMetrics) {
            return self.measure(asked, orders);
        }
        let name = asked.path.name.as_deref().unwrap_or_default();
        let object = key_of(asked.path).and_then(|key| self.object(asked.view, &key));
        let object = object.ok_or_else(|| Failure::not_found(resource, name))?;
        Ok(json(&single(object, resource, format, include, now(asked.view))))
    }

    fn list(&mut self, asked: &Asked<'_>, orders: &mut Vec<Answered>) -> Result<Response> {
        let (format, include) = (accept::format(asked.accept)?, include(asked.query)?);
        let selection = Selection::new(asked.path, asked.query)?;
        if matches!(selection.resource.kind, Kind::PodMetrics | Kind::NodeMetrics) {
            return self.measure(asked, orders);
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
        let list = List { selection, format, include, version, after: None, begun: false, any: false };
        Ok(Response::new(200, JSON, Body::Api(ApiCursor::List(Box::new(list)))))
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
        Ok(Response::new(200, JSON, Body::Api(ApiCursor::Watch(Box::new(watch)))))
    }

    fn log(&self, asked: &Asked<'_>, orders: &mut Vec<Answered>) -> Result<Response> {
        let (pod, query) = (pod_of(asked)?, asked.query);
        let container = logs::container_of(pod, query.get("container"))?;
        let request = logs::request(asked.view, pod, container, query)?;
        orders.push(Answered::OpenLog(asked.ticket, request, api::failure));
        Ok(Response::later())
    }

    fn measure(&mut self, asked: &Asked<'_>, orders: &mut Vec<Answered>) -> Result<Response> {
        let selection = Selection::new(asked.path, asked.query)?;
        let (format, include) = (accept::format(asked.accept)?, include(asked.query)?);
        let measurement = Measurement { selection, single: asked.path.name.is_some(), format, include };
        self.waiting.add(asked.ticket, Waiting::Measure(Wanted::Objects(measurement)));
        orders.push(Answered::Engine(asked.ticket, EngineRequest::Usage));
        Ok(Response::later())
    }

    fn session(&mut self, asked: &Asked<'_>, subresource: &str, orders: &mut Vec<Answered>) -> Result<Response> {
        let uid = pod_of(asked)?.uid.clone();
        let (session, kind) = (sessions::session(&asked.api.head)?, sessions::kind(subresource, asked.query));
        let request = StreamRequest { uid, kind };
        self.waiting.add(asked.ticket, Waiting::Session(session));
        orders.push(Answered::Engine(asked.ticket, EngineRequest::Stream(request)));
        log::info!(
            "kubectl client={:?} session={subresource} pod={}/{}",
            asked.client.name,
            asked.path.namespace.as_deref().unwrap_or_default(),
            asked.path.name.as_deref().unwrap_or_default()
        );
        Ok(Response::later())
    }

    /// A request that changes an object. The answer follows when the change is in force.
    fn change(&mut self, asked: &Asked<'_>, verb: &str, body: &[u8], orders: &mut Vec<Answered>) -> Result<Response> {
        let resource = asked.path.resource;
        if !resource.verbs.contains(&verb) {
            return Err(Failure::method_not_allowed());
        }
        let mut path = asked.path.clone();
        let (mut change, options) = requested(asked, verb, body, &mut path.name)?;
        if let (Kind::Node, Some(change)) = (resource.kind, &change) {
            return self.change_node(asked, change, orders);
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
            return Ok(self.delete_again(asked, key, live.unwrap_or_default(), grace, orders));
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
        orders.push(Answered::Change(asked.ticket, Box::new(change)));
        Ok(Response::later())
    }

    /// W4: the pod terminates already. A grace period can only shorten the one that has started.
    fn delete_again(
        &mut self,
        asked: &Asked<'_>,
        key: Key,
        live: Value,
        grace: Option<Duration>,
        orders: &mut Vec<Answered>,
    ) -> Response {
        let Some(grace) = grace else { return json(&live) };
        let pod = FullName::new(&key.namespace, &key.name);
        log::info!("kubectl client={:?} verb=delete pod={pod} again=true grace={grace:?}", asked.client.name);
        self.pending.insert(asked.ticket, Pending::DeleteAgain { key, live });
        orders.push(Answered::Engine(asked.ticket, EngineRequest::Shorten { pod, grace }));
        Response::later()
    }

    /// Appends the next piece of a body.
    pub(in crate::agent) fn part(&mut self, view: &View<'_>, cursor: &mut ApiCursor, out: &mut Vec<u8>) -> Part {
        match cursor {
            ApiCursor::List(list) => self.part_of_list(view, list, out),
            ApiCursor::Watch(watch) => self.part_of_watch(view, watch, out),
            ApiCursor::Log(log) => logs::part(view, log.as_mut(), out),
        }
    }
}

/// A request for objects.
pub(super) struct Asked<'a> {
    pub view: &'a View<'a>,
    pub api: &'a ApiRequest,
    pub client: &'a Client,
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
) -> Result<(Option<write::Change>, Value)> {
    match verb {
        "create" => {
            let mut object = object(body, asked.media_type())?;
            let suffix =
                crate::api::uid::digest_of_bytes(format!("{}{}", asked.ticket.0, asked.view.now.wall.0).as_bytes());
            let suffix = suffix.get(..5).unwrap_or_default();
            *name = Some(write::new_name(asked.path.resource, &mut object, suffix)?);
            Ok((Some(write::Change::Create(object)), Value::Null))
        }
        "update" | "patch" => Ok((Some(change_of(verb, asked.media_type(), body)?), Value::Null)),
        _ if body.is_empty() => Ok((None, Value::Null)),
        _ => Ok((None, object(body, asked.media_type())?)),
    }
}

fn json(value: &Value) -> Response {
    Response::json(serde_json::to_vec(value).unwrap_or_default())
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
            let route = match *path {
                "/livez" => Route::Livez,
                "/readyz" => Route::Readyz,
                _ => Route::Healthz,
            };
            health::response(route, &view.health_checks(route), verbose)
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
