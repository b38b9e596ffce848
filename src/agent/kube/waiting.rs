//! Requests that wait for the engine, of the API for kubectl and of the node's server: sessions, and pages with the
//! usage of containers.

use super::body::{now, single, whole_list};
use super::kubelet::{self, UsagePage};
use super::metrics::{self, Measurement, PAUSE, Sample, Wanted};
use super::node::Machine;
use super::reading::Reading;
use super::sessions::Session;
use super::summary;
use crate::agent::content::{Response, View};
use crate::api::control::Usage;
use crate::api::kube::resources::Kind;
use crate::api::kube::status::Failure;
use crate::api::time::Boot;
use crate::engine::control::{Reply, RequestError};
use crate::net::server::exchange::{Body, TEXT, Ticket};
use bytes::Bytes;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct WaitingRequests {
    requests: BTreeMap<Ticket, Waiting>,
    /// The last measurement.
    sample: Option<Sample>,
}

#[derive(Debug)]
pub(super) enum Waiting {
    Session(Session),
    /// A command whose output is the response.
    Run,
    /// One measurement is requested.
    Read(UsagePage),
    /// The first measurement is requested.
    Measure(Wanted),
    /// The second measurement is due at this time.
    MeasureAgain(Wanted, Sample, Boot),
    /// The second measurement is requested.
    MeasuredAgain(Wanted, Sample),
}

impl WaitingRequests {
    pub(super) fn add(&mut self, ticket: Ticket, waiting: Waiting) {
        self.requests.insert(ticket, waiting);
    }

    pub(super) fn gone(&mut self, ticket: Ticket) {
        self.requests.remove(&ticket);
    }

    pub(super) fn next_deadline(&self) -> Option<Boot> {
        let deadlines = self.requests.values().filter_map(|waiting| match waiting {
            Waiting::MeasureAgain(_, _, at) => Some(*at),
            _ => None,
        });
        deadlines.min()
    }

    /// The requests that need their second measurement now.
    pub(super) fn due(&mut self, now: Boot) -> Vec<Ticket> {
        let is_due = |waiting: &Waiting| matches!(waiting, Waiting::MeasureAgain(_, _, at) if *at <= now);
        let due: Vec<Ticket> = self.requests.iter().filter(|(_, p)| is_due(p)).map(|(ticket, _)| *ticket).collect();
        for ticket in &due {
            if let Some(Waiting::MeasureAgain(wanted, first, _)) = self.requests.remove(ticket) {
                self.requests.insert(*ticket, Waiting::MeasuredAgain(wanted, first));
            }
        }
        due
    }

    /// The engine has answered. Returns the response, unless the request goes on (None). The answer comes back if no
    /// request of this ticket waits.
    pub(super) fn answered(
        &mut self,
        view: &View<'_>,
        machine: &Machine,
        ticket: Ticket,
        answer: Result<Reply, RequestError>,
    ) -> Result<Option<Result<Response, Failure>>, Result<Reply, RequestError>> {
        let Some(waiting) = self.requests.remove(&ticket) else { return Err(answer) };
        Ok(match (waiting, answer) {
            (Waiting::Read(page), answer) => Some(Ok(kubelet::usage_page(view, machine, page, answer))),
            (_, Err(error)) => Some(Err(Failure::http(error.status(), &error.to_string()))),
            (Waiting::Session(session), Ok(Reply::StreamUrl(url))) => {
                Some(session.upstream(&url).map(|upstream| Response::new(200, TEXT, Body::Upgrade(upstream))))
            }
            (Waiting::Run, Ok(Reply::Executed(mut output, _))) => {
                output.stdout.append(&mut output.stderr);
                Some(Ok(Response::new(200, TEXT, Body::Full(Bytes::from(output.stdout)))))
            }
            (Waiting::Measure(wanted), Ok(Reply::Usage(usage))) => {
                let sample = Sample::new(&usage, view.now.boot);
                match &self.sample {
                    Some(before) if before.is_useful(&sample) => Some(measured(view, &wanted, &usage, before, &sample)),
                    _ => {
                        let again = view.now.boot + PAUSE;
                        self.add(ticket, Waiting::MeasureAgain(wanted, sample, again));
                        None
                    }
                }
            }
            (Waiting::MeasuredAgain(wanted, first), Ok(Reply::Usage(usage))) => {
                let sample = Sample::new(&usage, view.now.boot);
                let response = measured(view, &wanted, &usage, &first, &sample);
                self.sample = Some(sample);
                Some(response)
            }
            // The kind of an answer always matches its request.
            (_, Ok(_)) => Some(Err(Failure::internal("unexpected answer"))),
        })
    }
}

fn measured(
    view: &View<'_>,
    wanted: &Wanted,
    usage: &Usage,
    before: &Sample,
    sample: &Sample,
) -> Result<Response, Failure> {
    let Measurement { selection, single: is_single, format, include } = match wanted {
        Wanted::Objects(measurement) => measurement,
        Wanted::Summary(scope) => {
            let summary = summary::summary(&Reading::new(view, usage), *scope, before, sample);
            return Ok(Response::json(serde_json::to_vec(&summary).unwrap_or_default()));
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
        return Ok(Response::json(serde_json::to_vec(&body).unwrap_or_default()));
    }
    Ok(Response::json(whole_list(objects, resource, *format, *include, now(view))))
}
