//! What a request needs next. Each server turns a request into one explicit action, and the engine's answer to it into
//! the next one, until the action is a response.

use super::content::{Response, Served, View};
use super::kube::{Change, Debugging, LogRequest, Session, UsagePage, Wanted};
use super::kube::{Sample, node_server_failure, usage_page};
use crate::adapters::server::{api, control};
use crate::api::kube::status::Failure;
use crate::api::kube::versions::Key;
use crate::api::time::Boot;
use crate::engine::control::{Reply, Request, RequestError};
use crate::net::http1::Head;
use crate::net::server::exchange::{Body, TEXT};
use bytes::Bytes;
use serde_json::Value;

/// The next step of a request.
pub(super) enum Act {
    Respond(Response),
    /// Passes a request to the engine, whose answer goes on with `Then`.
    Ask(Request, Then),
    /// The same, but not before this time.
    AskAt(Boot, Request, Then),
    /// Opens a log on a helper: it may count the lines of compressed files.
    OpenLog(LogRequest),
    /// Writes or removes a manifest.
    Change(Box<Change>),
    /// Closes the connections of revoked certificates.
    CloseRevoked,
}

/// The server that has received a request. It determines the form of a failure.
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

/// What follows the engine's answer. (Without `Debug`: heads of requests have credentials.)
pub(super) enum Then {
    /// The answer is the response of the control socket.
    Show,
    /// The eviction of this pod.
    Evicted {
        name: String,
    },
    /// A change of the node.
    Cordoned,
    /// The deletion of a pod that terminates already, with a grace period. `live`: the pod before it.
    DeletedAgain {
        key: Key,
        live: Value,
    },
    Debugged(Debugging),
    Session(Session),
    /// A command whose output is the response.
    Ran,
    /// A page with the usage of the containers.
    Read(UsagePage),
    /// The first measurement.
    Measured(Wanted),
    /// The second measurement.
    MeasuredAgain(Wanted, Sample),
    /// The engine decides whether the client of the node's server may make this request.
    Permitted(Head),
}

impl Then {
    /// The action that follows the engine's answer.
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
            (Then::Evicted { name }, answer) => kube?.node_answered(view, Some(name), answer)?,
            (Then::Cordoned, answer) => kube?.node_answered(view, None, answer)?,
            (Then::DeletedAgain { key, live }, answer) => kube?.deleted_again(view, &key, live, answer)?,
            (Then::Debugged(of), answer) => kube?.ephemeral_added(view, of, answer)?,
            (Then::Read(page), answer) => {
                let machine = match (origin, node_server) {
                    (Origin::Node, Some(server)) => server.machine(),
                    _ => kube?.machine(),
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
            // The kind of an answer always matches its request.
            (_, Ok(_)) => return Err(Failure::internal("unexpected answer")),
        };
        Ok(Act::Respond(response))
    }
}
