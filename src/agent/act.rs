//! The next step of a request. Each server turns a request into one explicit action, and the engine's answer to it
//! into the next action, until the action is a response.

use super::content::{Response, Served, View};
use super::kube::{Sample, node_server_failure, usage_page};
use super::kube::{Session, UsagePage, Wanted};
use crate::adapters::server::{api, control};
use crate::api::kube::status::Failure;
use crate::api::time::Boot;
use crate::engine::control::{Reply, Request, RequestError};
use crate::kubectl_api::RequestedChange;
use crate::kubectl_api::log_request::LogRequest;
use crate::kubectl_api::step::AfterAnswer;
use crate::net::http1::Head;
use crate::net::server::exchange::{Body, TEXT};
use bytes::Bytes;

/// The next step of a request.
pub(super) enum Act {
    Respond(Response),
    /// Passes a request to the engine. `Then` defines how its answer is handled.
    Ask(Request, Then),
    /// Like `Ask`, but not before this time.
    AskAt(Boot, Request, Then),
    /// Opens a log on a helper thread, because counting the lines of compressed files may take long.
    OpenLog(LogRequest),
    /// Writes or removes a manifest.
    Change(Box<RequestedChange>),
    /// Closes the connections of revoked certificates.
    CloseRevoked,
}

/// The server that has received a request. It determines how a failure is formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Local,
    Kubectl,
    Node,
}

impl Origin {
    pub(super) fn failure(self, failure: &Failure) -> Response {
        match self {
            Origin::Local | Origin::Node => node_server_failure(failure),
            Origin::Kubectl => api::failure(failure),
        }
    }
}

/// What follows the engine's answer. It does not implement `Debug`, because request heads contain credentials.
pub(super) enum Then {
    /// The answer becomes the response on the control socket.
    Show,
    /// The answer becomes a response of the API for kubectl.
    Api(AfterAnswer),
    Session(Session),
    /// A command whose output is the response.
    Ran,
    /// A page with the resource usage of the containers.
    Read(UsagePage),
    /// Handles the first measurement.
    Measured(Wanted),
    /// Handles the second measurement.
    MeasuredAgain(Wanted, Sample),
    /// The engine has decided whether the client of the node's server may make this request.
    Permitted(Head),
}

impl Then {
    /// Returns the action that follows the engine's answer.
    ///
    /// # Errors
    /// The failure for the client.
    pub(super) fn go_on(
        self,
        view: &View<'_>,
        served: Served<'_>,
        origin: Origin,
        answer: Result<Reply, RequestError>,
    ) -> Result<Act, Failure> {
        let Served { kube, node_server, sample, .. } = served;
        let kube = kube.ok_or_else(|| Failure::service_unavailable("the API is not ready"));
        let response = match (self, answer) {
            (Then::Show, answer) => control::response(answer),
            (Then::Api(after), answer) => super::kube::response(kube?.api.answered(&view.snapshot(), after, answer)?),
            (Then::Read(page), answer) => {
                let machine = match (origin, node_server) {
                    (Origin::Node, Some(server)) => server.machine(),
                    _ => kube?.api.machine(),
                };
                usage_page(view, machine, page, answer)
            }
            (Then::Permitted(head), answer) => return super::kube::permitted(view, &head, answer),
            (_, Err(error)) => return Err(Failure::http(error.status(), &error.to_string())),
            (Then::Session(session), Ok(Reply::StreamUrl(url))) => {
                Response::new(200, TEXT, Body::Upgrade(session.upstream(&url)?))
            }
            (Then::Ran, Ok(Reply::Executed(mut output, _))) => {
                output.stdout.append(&mut output.stderr);
                Response::new(200, TEXT, Body::Full(Bytes::from(output.stdout)))
            }
            (Then::Measured(wanted), Ok(Reply::Usage(usage))) => return wanted.measured(view, &usage, sample.as_ref()),
            (Then::MeasuredAgain(wanted, first), Ok(Reply::Usage(usage))) => {
                let now = Sample::new(&usage, view.now.boot);
                let response = wanted.response(view, &usage, &first, &now)?;
                *sample = Some(now);
                response
            }
            // Unreachable, because the kind of an answer always matches its request.
            (_, Ok(_)) => return Err(Failure::internal("unexpected response")),
        };
        Ok(Act::Respond(response))
    }
}
