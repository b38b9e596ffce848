//! Passes the requests of the secure listener to `kubectl_api`, and carries out their first steps.

use super::Kube;
use super::metrics::Wanted;
use super::{kubelet, sessions};
use crate::adapters::server::api;
use crate::adapters::server::health;
use crate::adapters::server::routes::Page;
use crate::agent::act::{Act, Then};
use crate::agent::bodies::PieceWriter;
use crate::agent::content::{Drive, Response, View};
use crate::api::kube::resources::Kind;
use crate::api::kube::status::Failure;
use crate::api::time::Boot;
use crate::engine::control::{Request as EngineRequest, RequestId};
use crate::kubectl_api::form::BodyProgress;
use crate::kubectl_api::list::List;
use crate::kubectl_api::request::{ApiRequest, VerifiedClient};
use crate::kubectl_api::response::{ApiBody, ApiResponse};
use crate::kubectl_api::step::{FirstStep, NextStep};
use crate::kubectl_api::watch::Watch;
use crate::metrics::families;
use crate::net::addresses::addresses;
use crate::net::http1::Head;
use crate::net::server::exchange::{Body, Part, Request};
use bytes::Bytes;

impl Kube {
    /// Returns the first step of a request, and the expiry time of the client's certificate, at which a watch, log or
    /// session ends.
    pub(in crate::agent) fn answer(&mut self, view: &View<'_>, request: &Request<'_>) -> (Act, Option<Boot>) {
        let api = self.identify(view, request);
        let FirstStep { verb, next } = self.api.request(&view.snapshot(), &api, request.body);
        if let Some(verb) = verb {
            view.metrics.inc(families::KUBECTL_REQUESTS, [verb]);
        }
        let act = match (next, &api.client) {
            (Ok(next), Ok(client)) => carry_out(view, request.head, client, next),
            (Err(failure), _) => Err(failure),
            (_, Err(failure)) => Err(failure.clone()),
        };
        report(view, &api, act.as_ref().err());
        let act = act.unwrap_or_else(|failure| Act::Respond(api::failure(&failure)));
        (act, api.client.ok().map(|client| client.expires))
    }

    /// Returns the response to a request that is refused regardless of its body.
    pub(in crate::agent) fn refusal(&mut self, view: &View<'_>, request: &Request<'_>) -> Option<Response> {
        let api = self.identify(view, request);
        let refused = self.api.refusal(&view.snapshot(), &api)?;
        report(view, &api, Some(&refused));
        Some(api::failure(&refused))
    }

    /// Assigns versions to all changes. `has_clients` tells whether a client is connected. Returns a function that
    /// reports whether objects of a kind have changed, or None if nothing has changed.
    pub(in crate::agent) fn follow<'a>(
        &'a mut self,
        view: &View<'_>,
        has_clients: bool,
    ) -> Option<impl Fn(Kind) -> bool + use<'a>> {
        if self.api.needs_addresses(has_clients) {
            self.api.set_addresses(addresses());
        }
        self.api.follow(&view.snapshot(), has_clients)
    }

    /// Finds the client of a request.
    fn identify<'a>(&mut self, view: &View<'_>, request: &Request<'a>) -> ApiRequest<'a> {
        let client = match request.certificate {
            Some(certificate) => self.access.client(certificate, view.now),
            None => Err(Failure::unauthorized("a client certificate is required")),
        };
        let head = request.head;
        let first = |name: &'static str| head.values(name).next();
        let media_type = first("content-type").unwrap_or_default();
        ApiRequest {
            id: RequestId(request.ticket.0),
            method: head.method,
            path: &head.path,
            query: &head.query,
            accept: head.values("accept").collect::<Vec<_>>().join(","),
            media_type: media_type.split(';').next().unwrap_or_default().trim(),
            host: first("host").unwrap_or_default(),
            is_from_browser: first("origin").or(first("sec-fetch-site")).is_some(),
            client,
        }
    }
}

/// Converts a step to an action.
///
/// # Errors
/// A session requests a protocol that the server does not support.
fn carry_out(view: &View<'_>, head: &Head, client: &VerifiedClient, next: NextStep) -> Result<Act, Failure> {
    let log = |fields: &str| log::info!("kubectl client={:?} {fields}", client.name);
    Ok(match next {
        NextStep::Respond(of_api) => Act::Respond(response(of_api)),
        NextStep::Ask { request, after, log: fields } => {
            log(&fields);
            Act::Ask(request, Then::Api(after))
        }
        NextStep::Change { change, log: fields } => {
            log(&fields);
            Act::Change(change)
        }
        NextStep::Session { request, log: fields } => {
            let session = sessions::session(head)?;
            log(&fields);
            Act::Ask(EngineRequest::Stream(request), Then::Session(session))
        }
        NextStep::OpenLog(request) => Act::OpenLog(request),
        NextStep::Measure(measurement) => Act::Ask(EngineRequest::Usage, Then::Measured(Wanted::Objects(measurement))),
        NextStep::Kubelet(path, query) => kubelet::answer(view, path, &query),
        NextStep::Health { page, is_verbose } => {
            let page = match page {
                "/livez" => Page::Livez,
                "/readyz" => Page::Readyz,
                _ => Page::Healthz,
            };
            Act::Respond(health::response(page, &view.health_checks(page), is_verbose))
        }
    })
}

/// Logs a request and its failure, and counts the refusals.
fn report(view: &View<'_>, request: &ApiRequest<'_>, failure: Option<&Failure>) {
    let client = request.client.as_ref().map_or("-", |client| client.name.as_str());
    let ApiRequest { method, path, .. } = request;
    match failure {
        // The client's certificate does not permit the request, or is not valid.
        Some(Failure { code: code @ (401 | 403), message, .. }) => {
            view.metrics.inc(families::KUBECTL_REFUSALS, []);
            log::warn!("kubectl client={client:?} method={method} path={path} status={code} error={message:?}");
        }
        Some(Failure { code, message, .. }) => {
            log::debug!("kubectl client={client:?} method={method} path={path} status={code} error={message:?}");
        }
        None => log::debug!("kubectl client={client:?} method={method} path={path}"),
    }
}

pub(in crate::agent) fn response(of_api: ApiResponse) -> Response {
    let ApiResponse { status, content_type, headers, body } = of_api;
    let body = match body {
        ApiBody::Full(bytes) => Body::Full(Bytes::from(bytes)),
        ApiBody::List(list) => Body::Stream(Box::new(ListBody(list)) as Box<dyn PieceWriter>),
        ApiBody::Watch(watch) => Body::Stream(Box::new(WatchBody(watch)) as Box<dyn PieceWriter>),
    };
    Response { status, content_type, headers, body, until: None }
}

struct ListBody(Box<List>);

impl PieceWriter for ListBody {
    fn next(&mut self, drive: &mut Drive<'_>, out: &mut Vec<u8>) -> Part {
        let Some(kube) = drive.served.kube.as_ref() else { return Part::End };
        part(kube.api.part_of_list(&drive.view.snapshot(), &mut self.0, out))
    }
}

struct WatchBody(Box<Watch>);

impl PieceWriter for WatchBody {
    fn next(&mut self, drive: &mut Drive<'_>, out: &mut Vec<u8>) -> Part {
        let Some(kube) = drive.served.kube.as_mut() else { return Part::End };
        part(kube.api.part_of_watch(&drive.view.snapshot(), &mut self.0, out))
    }

    fn waits_for(&self) -> Option<Kind> {
        Some(self.0.kind())
    }

    fn next_deadline(&self) -> Option<Boot> {
        self.0.next_deadline()
    }
}

fn part(written: BodyProgress) -> Part {
    match written {
        BodyProgress::Piece => Part::More,
        BodyProgress::Everything => Part::Wait,
        BodyProgress::Whole => Part::End,
    }
}
