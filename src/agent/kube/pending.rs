//! The requests of the API that the engine answers, and the responses from its answers.

use super::Kube;
use super::body::{now, single, whole_list};
use super::ephemeral::Debugging;
use super::kubelet::{self, UsagePage};
use super::metrics::{self, Measurement, PAUSE, Sample, Wanted};
use super::reading::Reading;
use super::sessions::Session;
use super::summary;
use crate::adapters::server::api::failure;
use crate::adapters::server::http::{Body, Response, TEXT, Ticket};
use crate::agent::content::View;
use crate::api::control::Usage;
use crate::api::kube::resources::Kind;
use crate::api::kube::status::Failure;
use crate::api::time::Boot;
use crate::engine::control::{Reply, RequestError};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct PendingRequests {
    requests: BTreeMap<Ticket, Pending>,
    /// The last measurement.
    sample: Option<Sample>,
}

#[derive(Debug)]
pub(super) enum Pending {
    Session(Session),
    /// The eviction of this pod.
    Evict {
        name: String,
    },
    /// A change of the node.
    Cordon,
    Ephemeral(Debugging),
    /// One measurement is requested.
    Read(UsagePage),
    /// The first measurement is requested.
    Measure(Wanted),
    /// The second measurement is due at this time.
    MeasureAgain(Wanted, Sample, Boot),
    /// The second measurement is requested.
    MeasuredAgain(Wanted, Sample),
}

impl PendingRequests {
    pub(super) fn add(&mut self, ticket: Ticket, pending: Pending) {
        self.requests.insert(ticket, pending);
    }

    pub(super) fn gone(&mut self, ticket: Ticket) {
        self.requests.remove(&ticket);
    }

    pub(super) fn next_deadline(&self) -> Option<Boot> {
        let deadlines = self.requests.values().filter_map(|pending| match pending {
            Pending::MeasureAgain(_, _, at) => Some(*at),
            _ => None,
        });
        deadlines.min()
    }

    /// The requests that need their second measurement now.
    pub(super) fn due(&mut self, now: Boot) -> Vec<Ticket> {
        let is_due = |pending: &Pending| matches!(pending, Pending::MeasureAgain(_, _, at) if *at <= now);
        let due: Vec<Ticket> = self.requests.iter().filter(|(_, p)| is_due(p)).map(|(ticket, _)| *ticket).collect();
        for ticket in &due {
            if let Some(Pending::MeasureAgain(wanted, first, _)) = self.requests.remove(ticket) {
                self.requests.insert(*ticket, Pending::MeasuredAgain(wanted, first));
            }
        }
        due
    }
}

impl Kube {
    /// The engine has answered. Returns the response, unless the request goes on. The answer comes back if the request is not one of
    /// the API.
    pub(in crate::agent) fn answered(
        &mut self,
        view: &View<'_>,
        ticket: Ticket,
        answer: Result<Reply, RequestError>,
    ) -> Result<Option<Response>, Result<Reply, RequestError>> {
        let Some(pending) = self.pending.requests.remove(&ticket) else { return Err(answer) };
        let response = match (pending, answer) {
            (Pending::Read(page), answer) => Ok(Some(kubelet::usage_page(view, &self.machine, page, answer))),
            (Pending::Evict { name }, answer) => self.node_answered(view, Some(name), answer).map(Some),
            (Pending::Cordon, answer) => self.node_answered(view, None, answer).map(Some),
            (Pending::Ephemeral(of), answer) => self.ephemeral_added(view, of, answer).map(Some),
            (_, Err(error)) => Err(Failure::http(error.status(), &error.to_string())),
            (Pending::Session(session), Ok(Reply::StreamUrl(url))) => {
                session.upstream(&url).map(|upstream| Some(Response::new(200, TEXT, Body::Upgrade(upstream))))
            }
            (Pending::Measure(wanted), Ok(Reply::Usage(usage))) => {
                let sample = Sample::new(&usage, view.now.boot);
                match &self.pending.sample {
                    Some(before) if before.is_useful(&sample) => measured(view, &wanted, &usage, before, &sample),
                    _ => {
                        let again = view.now.boot + PAUSE;
                        self.pending.add(ticket, Pending::MeasureAgain(wanted, sample, again));
                        return Ok(None);
                    }
                }
            }
            (Pending::MeasuredAgain(wanted, first), Ok(Reply::Usage(usage))) => {
                let sample = Sample::new(&usage, view.now.boot);
                let response = measured(view, &wanted, &usage, &first, &sample);
                self.pending.sample = Some(sample);
                response
            }
            // The kind of an answer always matches its request.
            (_, Ok(_)) => Err(Failure::internal("unexpected answer")),
        };
        Ok(response.unwrap_or_else(|e| Some(failure(&e))))
    }
}

fn measured(
    view: &View<'_>,
    wanted: &Wanted,
    usage: &Usage,
    before: &Sample,
    sample: &Sample,
) -> Result<Option<Response>, Failure> {
    let Measurement { selection, single: is_single, format, include } = match wanted {
        Wanted::Objects(measurement) => measurement,
        Wanted::Summary(scope) => {
            let summary = summary::summary(&Reading::new(view, usage), *scope, before, sample);
            return Ok(Some(Response::json(serde_json::to_vec(&summary).unwrap_or_default())));
        }
    };
    let resource = selection.resource;
    let mut objects = metrics::objects(view, resource.kind == Kind::NodeMetrics, usage, before, sample);
    objects.retain(|object| selection.contains(object));
    if *is_single {
        let object = objects.pop();
        let name = selection.name.as_deref().unwrap_or_default();
        let object = object.ok_or_else(|| Failure::not_found(resource, name))?;
        let body = single(object, resource, *format, *include, now(view));
        return Ok(Some(Response::json(serde_json::to_vec(&body).unwrap_or_default())));
    }
    Ok(Some(Response::json(whole_list(objects, resource, *format, *include, now(view)))))
}
