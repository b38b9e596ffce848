//! One request at a time, for commands, which wait for each answer.

use super::arrived::AnswerLimits;
use super::credentials::Credentials;
use super::server::ApiServer;
use crate::api::cluster::request::{ApiError, ApiRequest, ApiResponse};
use crate::event_loop::clock;
use crate::foreign;
use crate::net::https::{CallError, Event};
use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use mio::{Events, Poll, Token};
use std::io::ErrorKind;
use std::net::ToSocketAddrs as _;
use std::time::Duration;

const TOKENS: [Token; 2] = [Token(1), Token(2)];
/// Time limit for looking up the server's name.
const LOOKUP: Duration = Duration::from_secs(10);

pub struct Blocking {
    server: ApiServer,
    poll: Poll,
}

/// A complete answer.
#[derive(Debug)]
pub struct Answered {
    pub response: ApiResponse,
    /// The time of the server's clock, from the header `Date`.
    pub date: Option<Timestamp>,
}

impl Blocking {
    /// Creates a client. The first request connects.
    ///
    /// # Errors
    /// The kernel refuses a descriptor.
    pub fn new(credentials: Credentials) -> Result<Blocking, String> {
        let poll = Poll::new().map_err(|e| format!("failed to create an epoll instance: {e}"))?;
        Ok(Blocking { server: ApiServer::new(credentials, AnswerLimits::default(), TOKENS), poll })
    }

    /// Returns the URL of the server.
    pub fn url(&self) -> String {
        self.server.credentials.server()
    }

    /// Sends a request and waits for the whole answer, with any status.
    ///
    /// # Errors
    /// There is no complete answer within `timeout`.
    pub fn call(&mut self, request: ApiRequest, timeout: Duration) -> Result<Answered, ApiError> {
        let limit = self.server.limits.whole;
        let request = self.server.request(request, Some(clock::boot() + timeout));
        let id = self.server.client.call(request);
        let mut ready = Events::with_capacity(16);
        let mut head: Option<(StatusCode, HeaderMap)> = None;
        let mut body = Vec::new();
        loop {
            let mut events = Vec::new();
            let again = self.server.client.drive(self.poll.registry(), clock::boot(), &mut events);
            let is_quiet = events.is_empty() && !again;
            for event in events {
                match event {
                    Event::Resolve { host, port } => self.look_up(host, port),
                    Event::Head { id: of, status, headers } if of == id => head = Some((status, headers)),
                    Event::Body { id: of, bytes } if of == id => {
                        if body.len() + bytes.len() > limit {
                            self.server.client.cancel(id);
                            return Err(ApiError::TooLarge(format!("the response is larger than {limit} bytes")));
                        }
                        body.extend_from_slice(&bytes);
                    }
                    Event::Done { id: of, result } if of == id => {
                        return match (result, head) {
                            (Ok(()), Some((status, headers))) => Ok(answered(status, &headers, body)),
                            (Ok(()), None) => Err(ApiError::Unknown("the API server sent no response".to_owned())),
                            (Err(CallError::NotSent(why)), _) => Err(ApiError::NotSent(why)),
                            (Err(CallError::Unknown(why)), _) => Err(ApiError::Unknown(why)),
                        };
                    }
                    _ => {}
                }
            }
            if is_quiet {
                let wait = self.server.client.next_deadline().map(|at| at.since(clock::boot()));
                match self.poll.poll(&mut ready, wait) {
                    Err(e) if e.kind() != ErrorKind::Interrupted => return Err(ApiError::Unknown(e.to_string())),
                    _ => ready.iter().for_each(|event| self.server.client.ready(event.token())),
                }
            }
        }
    }

    fn look_up(&mut self, host: String, port: u16) {
        let name = host.clone();
        let found = foreign::within(LOOKUP, move || (name.as_str(), port).to_socket_addrs().map(Iterator::collect));
        match found {
            Ok(Ok(addresses)) => self.server.client.set_addresses(&host, addresses),
            Ok(Err(e)) => self.server.client.not_resolved(&host, &e.to_string()),
            Err(why) => self.server.client.not_resolved(&host, &why.to_string()),
        }
    }
}

fn answered(status: StatusCode, headers: &HeaderMap, body: Vec<u8>) -> Answered {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let retry_after = text(RETRY_AFTER).and_then(|t| t.trim().parse().ok()).map(Duration::from_secs);
    let date = text(DATE).and_then(|t| jiff::fmt::rfc2822::parse(t).ok()).map(|zoned| zoned.timestamp());
    Answered { response: ApiResponse { status: status.as_u16(), retry_after, body }, date }
}

#[cfg(test)]
mod tests;
