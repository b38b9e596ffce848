//! The connection to an API server, and the requests in flight.

use super::answer::PartialAnswer;
use super::arrived::{AnswerLimits, Arrived};
use super::credentials::Credentials;
use crate::api::cluster::request::{ApiError, ApiRequest, ApiResponse, Method};
use crate::api::node_facts::go_architecture;
use crate::api::time::Boot;
use crate::engine::op::OpId;
use crate::net::https::{CallError, CallId, Client, Event, Request, Times};
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue};
use mio::{Registry, Token};
use std::collections::BTreeMap;
use std::net::SocketAddr;

pub struct ApiServer {
    pub(super) client: Client,
    pub(super) credentials: Credentials,
    user_agent: HeaderValue,
    pub(super) limits: AnswerLimits,
    requests: BTreeMap<CallId, RequestInFlight>,
    /// A buffer that is empty between drives, and is kept to reuse its allocation.
    events: Vec<Event>,
}

struct RequestInFlight {
    id: OpId,
    /// Method and path, for errors.
    name: String,
    answer: PartialAnswer,
}

impl ApiServer {
    /// Creates the adapter. The first request connects. The sockets are registered under the tokens, which must have
    /// no other user.
    pub fn new(credentials: Credentials, limits: AnswerLimits, tokens: [Token; 2]) -> ApiServer {
        let arch = go_architecture(std::env::consts::ARCH);
        let user_agent = format!("wherry/{} (linux/{arch})", env!("CARGO_PKG_VERSION"));
        ApiServer {
            client: Client::new(credentials.peer.clone(), tokens, Times::default()),
            credentials,
            user_agent: HeaderValue::try_from(user_agent).unwrap_or(HeaderValue::from_static("wherry")),
            limits,
            requests: BTreeMap::new(),
            events: Vec::new(),
        }
    }

    /// Starts a request. At the deadline it ends as `Unknown` (as `NotSent` if there is no connection yet). A watch has
    /// no deadline.
    pub fn call(&mut self, id: OpId, request: ApiRequest, deadline: Option<Boot>) {
        let answer = PartialAnswer::new(request.reading, self.limits);
        let request = self.request(request, deadline);
        let name = request.name();
        let call = self.client.call(request);
        self.requests.insert(call, RequestInFlight { id, name, answer });
    }

    /// Cancels a request. It ends as `Unknown` (or `NotSent`) at the next `drive`. Has no effect if the request has
    /// ended.
    pub fn cancel(&mut self, id: OpId) {
        if let Some((call, _)) = self.requests.iter().find(|(_, request)| request.id == id) {
            self.client.cancel(*call);
        }
    }

    /// Reports whether the request is in flight.
    pub fn has(&self, id: OpId) -> bool {
        self.requests.values().any(|request| request.id == id)
    }

    /// Replaces the credentials: new requests use them on a new connection. The old connection closes when its
    /// requests have ended.
    pub fn replace_credentials(&mut self, credentials: Credentials) {
        self.client.replace(credentials.peer.clone());
        self.credentials = credentials;
    }

    /// Returns the server and the credentials that new requests use.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Returns the numbers of bytes that were sent and received, including the overhead of TLS but not that of TCP.
    pub fn traffic(&self) -> (u64, u64) {
        let count = self.client.byte_count();
        (count.sent(), count.received())
    }

    /// Sets the addresses of the host that `Arrived::Resolve` named. If there are none, those of the last look-up stay.
    pub fn set_addresses(&mut self, host: &str, addresses: Vec<SocketAddr>) {
        self.client.set_addresses(host, addresses);
    }

    /// Handles a failed look-up of the host. Without addresses of an earlier look-up, the waiting requests end as
    /// `NotSent`.
    pub fn not_resolved(&mut self, host: &str, why: &str) {
        self.client.not_resolved(host, why);
    }

    pub fn owns(&self, token: Token) -> bool {
        self.client.owns(token)
    }

    /// Notes that the poll has reported a socket with this token.
    pub fn ready(&mut self, token: Token) {
        self.client.ready(token);
    }

    /// Reads and writes without blocking, within a budget, and appends what has arrived. Call it when a socket is
    /// ready, a deadline is due, or a request was started. Returns true if the budget was used up: call it again
    /// without waiting.
    pub fn drive(&mut self, registry: &Registry, now: Boot, out: &mut Vec<Arrived>) -> bool {
        let mut events = std::mem::take(&mut self.events);
        let again = self.client.drive(registry, now, &mut events);
        for event in events.drain(..) {
            self.handle(event, out);
        }
        // Release the memory after a burst.
        events.shrink_to(16);
        self.events = events;
        again
    }

    /// Returns when `drive` must be called next.
    pub fn next_deadline(&self) -> Option<Boot> {
        self.client.next_deadline()
    }

    pub(super) fn request(&self, request: ApiRequest, deadline: Option<Boot>) -> Request {
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, self.user_agent.clone());
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(token) = &self.credentials.token {
            headers.insert(AUTHORIZATION, token.clone());
        }
        let body = request.body.map(|(content, body)| {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content.media_type()));
            headers.insert(CONTENT_LENGTH, body.len().into());
            Bytes::from(body)
        });
        Request {
            method: method(request.method),
            target: format!("{}{}", self.credentials.prefix, request.path),
            headers,
            body: body.unwrap_or_default(),
            deadline,
        }
    }

    fn handle(&mut self, event: Event, out: &mut Vec<Arrived>) {
        match event {
            Event::Up { address } => out.push(Arrived::Connected { address: address.to_string() }),
            Event::Down { why } => out.push(Arrived::Disconnected { why }),
            Event::Resolve { host, port } => out.push(Arrived::Resolve { host, port }),
            Event::Head { id, status, headers } => {
                if let Some(request) = self.requests.get_mut(&id) {
                    request.answer.head(status, &headers);
                }
            }
            Event::Body { id, bytes } => {
                let Some(request) = self.requests.get_mut(&id) else { return };
                if let Err(e) = request.answer.body(request.id, &bytes, out) {
                    let error = named(&request.name, e);
                    self.client.cancel(id);
                    self.end(id, Err(error), out);
                }
            }
            Event::Done { id, result } => {
                let Some(request) = self.requests.get_mut(&id) else { return };
                let result = match result {
                    Ok(()) => request.answer.finish().map_err(|e| named(&request.name, e)),
                    Err(CallError::NotSent(why)) => Err(ApiError::NotSent(why)),
                    Err(CallError::Unknown(why)) => Err(ApiError::Unknown(why)),
                };
                self.end(id, result, out);
            }
        }
    }

    fn end(&mut self, id: CallId, result: Result<ApiResponse, ApiError>, out: &mut Vec<Arrived>) {
        if let Some(request) = self.requests.remove(&id) {
            out.push(Arrived::Done { id: request.id, result });
        }
    }
}

fn method(method: Method) -> http::Method {
    match method {
        Method::Get => http::Method::GET,
        Method::Post => http::Method::POST,
        Method::Put => http::Method::PUT,
        Method::Patch => http::Method::PATCH,
        Method::Delete => http::Method::DELETE,
    }
}

/// Adds the name of the request to an error.
fn named(name: &str, error: ApiError) -> ApiError {
    match error {
        ApiError::NotSent(why) => ApiError::NotSent(format!("{name}: {why}")),
        ApiError::Unknown(why) => ApiError::Unknown(format!("{name}: {why}")),
        ApiError::TooLarge(why) => ApiError::TooLarge(format!("{name}: {why}")),
    }
}
