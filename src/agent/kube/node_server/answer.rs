//! Serves the requests to the node's server, after the engine has decided that the client may make them.

use super::super::{kubelet, sessions};
use crate::agent::act::{Act, Then};
use crate::agent::content::{Response, View};
use crate::api::cluster::reviews::Credential;
use crate::api::facts::ContainerState;
use crate::api::kube::kubelet_request::{PodPath, SessionKind, Target, attributes};
use crate::api::kube::query::Query;
use crate::api::kube::status::Failure;
use crate::api::names::FullName;
use crate::api::pod::Pod;
use crate::api::time::Now;
use crate::engine::cluster::access::AccessRequest;
use crate::engine::control::{Command, ExecRequest, Reply, Request as EngineRequest, RequestError, StreamRequest};
use crate::kubectl_api::log_request;
use crate::net::http1::Head;
use crate::net::server::exchange::Request;
use crate::net::x509;
use serde_json::{Value, json};
use std::rc::Rc;
use std::time::Duration;

/// A result, or the failure to send to the client.
type Result<T> = std::result::Result<T, Failure>;

/// The time limit of a command whose output is the response. A kubelet has no time limit for `/run`.
const RUN_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the response for a failure. Errors are plain text, as in a kubelet.
pub(in crate::agent) fn failure(failure: &Failure) -> Response {
    let mut response = Response::text(failure.code, failure.message.clone());
    if failure.code == 429 {
        response.headers.push(("Retry-After", "1".to_owned()));
    }
    response
}

/// Asks the engine whether the client may make this request.
pub(in crate::agent) fn ask_permission(view: &View<'_>, request: &Request<'_>) -> Act {
    let credential = credential(request, view.now);
    let attributes = attributes(request.head.method, &request.head.path);
    let access = AccessRequest { credential, attributes };
    Act::Ask(EngineRequest::Access(access), Then::Permitted(request.head.clone()))
}

/// Continues after the engine's decision.
///
/// # Errors
/// The failure for the client.
pub(in crate::agent) fn permitted(
    view: &View<'_>,
    head: &Head,
    answer: std::result::Result<Reply, RequestError>,
) -> Result<Act> {
    match answer {
        Ok(Reply::Permitted { user }) => carry_out(view, head, &user),
        Ok(_) => Err(Failure::internal("unexpected response")),
        Err(error) => {
            log::debug!("node-server method={} path={} error={:?}", head.method, head.path, error.to_string());
            Err(Failure::http(error.status(), &error.to_string()))
        }
    }
}

fn carry_out(view: &View<'_>, head: &Head, user: &str) -> Result<Act> {
    let (target, query) = (Target::find(&head.path), Query::parse(&head.query));
    if target.is_for_debugging() && !view.config.node_server.debugging_handlers {
        return Err(Failure::http(405, "Debug endpoints are disabled."));
    }
    let is_post = head.method == "POST";
    match target {
        Target::Unknown => Err(Failure::http(404, "404 page not found")),
        Target::Page(_) | Target::RunningPods | Target::Log(_) if is_post => {
            Err(Failure::http(405, "405: Method Not Allowed"))
        }
        Target::Run(_) if !is_post => Err(Failure::http(405, "405: Method Not Allowed")),
        Target::Page(page) => Ok(kubelet::answer(view, page, &query)),
        Target::RunningPods => Ok(Act::Respond(Response::json(running_pods(view).to_string().into_bytes()))),
        Target::Log(path) => {
            let (pod, container) = container(view, &path)?;
            Ok(Act::OpenLog(log_request::request(
                &view.snapshot(),
                pod,
                container,
                &log_request::kubelet_query(query),
            )?))
        }
        Target::Session(kind, path) => {
            let pod = match kind {
                SessionKind::PortForward => pod(view, &path)?,
                SessionKind::Exec | SessionKind::Attach => container(view, &path)?.0,
            };
            let session = sessions::session_of_kubelet(head)?;
            log::info!("node-server user={user:?} session={kind:?} pod={}", pod.name);
            let kind = sessions::kind_of_kubelet(kind, path.container, &query, &session)?;
            let request = StreamRequest { uid: pod.uid.clone(), kind };
            Ok(Act::Ask(EngineRequest::Stream(request), Then::Session(session)))
        }
        Target::Run(path) => {
            let (pod, container) = container(view, &path)?;
            log::info!("node-server user={user:?} run pod={}", pod.name);
            let words = query.get("cmd").unwrap_or_default().split(' ').map(str::to_owned);
            let (uid, container, command) = (pod.uid.clone(), Some(container.to_owned()), Command(words.collect()));
            let request = ExecRequest { uid, container, command, timeout: RUN_TIMEOUT };
            Ok(Act::Ask(EngineRequest::Exec(request), Then::Ran))
        }
    }
}

/// Returns the credential of a request. TLS verified the certificate when the connection began, but it may have
/// expired since.
fn credential(request: &Request<'_>, now: Now) -> Credential {
    let is_valid = |read: &x509::Certificate| now.wall.timestamp().is_some_and(|now| now <= read.not_after);
    let certificate = request.certificate.and_then(|der| x509::read(der).ok()).filter(is_valid);
    let certificate = certificate.map(|read| (read.common_name.unwrap_or_default(), read.organizations));
    Credential::new(certificate, request.head.values("authorization").next())
}

/// Finds a pod by its name on the API server. For a pod of a manifest, this is the name of its mirror pod, POD-NODE,
/// whose UID differs.
fn pod<'a>(view: &View<'a>, path: &PodPath) -> Result<&'a Rc<Pod>> {
    let named = |name: &str| view.engine.pod_named(&FullName::new(&path.namespace, name)).map(|found| found.pod);
    let is_meant = |pod: &&Rc<Pod>| path.uid.as_deref().is_none_or(|uid| pod.uid.as_str() == uid);
    let suffix = format!("-{}", view.config.node_name);
    let mirrored = || path.name.strip_suffix(&suffix).and_then(named).filter(|pod| !pod.is_from_api_server());
    let found = named(&path.name).filter(is_meant).or_else(mirrored);
    found.ok_or_else(|| Failure::http(404, &format!("pod {:?} does not exist", path.name)))
}

fn container<'a, 'b>(view: &View<'a>, path: &'b PodPath) -> Result<(&'a Rc<Pod>, &'b str)> {
    let pod = pod(view, path)?;
    let name = path.container.as_deref().unwrap_or_default();
    match pod.every_container().any(|container| container.name == name) {
        true => Ok((pod, name)),
        false => Err(Failure::http(404, &format!("container {name:?} not found in pod {:?}", path.name))),
    }
}

/// Returns the pods that have a running container, with the same fields as in a kubelet.
fn running_pods(view: &View<'_>) -> Value {
    let item = |pod: &Pod| {
        let facts = view.engine.containers(&pod.uid).iter().filter(|c| c.state == ContainerState::Running);
        let running: Vec<&str> = facts.map(|c| &*c.name).collect();
        let containers = pod.every_container().filter(|c| running.contains(&c.name.as_str()));
        let containers: Vec<Value> = containers
            .map(|c| json!({ "name": c.name, "image": c.image.as_deref().unwrap_or_default(), "resources": {} }))
            .collect();
        let metadata = json!({ "name": &*pod.name.name, "namespace": &*pod.name.namespace, "uid": pod.uid.as_str() });
        (!containers.is_empty())
            .then(|| json!({ "metadata": metadata, "spec": { "containers": containers }, "status": {} }))
    };
    let items: Vec<Value> = view.engine.pods().into_iter().filter_map(|found| item(found.pod)).collect();
    json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items })
}
