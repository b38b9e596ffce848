//! Answers the paths of a kubelet: metrics, the summary of the usage, the pods, and the configuration in force.

use super::answer::Answered;
use super::cadvisor;
use super::metrics::Wanted;
use super::node::Machine;
use super::reading::Reading;
use super::resource_metrics;
use super::summary::Scope;
use super::waiting::{Waiting, WaitingRequests};
use crate::adapters::server::health;
use crate::adapters::server::routes::Route;
use crate::agent::bodies::PodList;
use crate::agent::content::{Response, View, streamed};
use crate::api::control::Usage;
use crate::api::kube::kubelet::KubeletPath;
use crate::api::kube::query::Query;
use crate::engine::control::{Reply, Request, RequestError};
use crate::net::server::exchange::Ticket;

/// A page that needs the usage of the containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UsagePage {
    Resource,
    Cadvisor,
}

impl WaitingRequests {
    pub(super) fn kubelet(
        &mut self,
        view: &View<'_>,
        ticket: Ticket,
        path: KubeletPath,
        query: &Query,
        orders: &mut Vec<Answered>,
    ) -> Response {
        let mut later = |waiting| {
            self.add(ticket, waiting);
            orders.push(Answered::Engine(ticket, Request::Usage));
            Response::later()
        };
        match path {
            KubeletPath::Metrics => view.metrics_page(),
            KubeletPath::ProbeMetrics => view.probe_metrics_page(),
            KubeletPath::ResourceMetrics => later(Waiting::Read(UsagePage::Resource)),
            KubeletPath::Summary => {
                let only = query.flag("only_cpu_and_memory");
                later(Waiting::Measure(Wanted::Summary(if only { Scope::CpuAndMemory } else { Scope::All })))
            }
            KubeletPath::Pods => streamed(PodList::new(false)),
            KubeletPath::Healthz => {
                health::response(Route::Healthz, &view.health_checks(Route::Healthz), query.flag("verbose"))
            }
            KubeletPath::CadvisorMetrics => later(Waiting::Read(UsagePage::Cadvisor)),
            KubeletPath::Configz => {
                let body = serde_json::json!({ "kubeletconfig": view.config.effective() });
                Response::json(serde_json::to_vec(&body).unwrap_or_default())
            }
        }
    }
}

/// The page from the engine's answer. As in a kubelet, a failure is a value in the page, so that a scrape still has the
/// rest.
pub(super) fn usage_page(
    view: &View<'_>,
    machine: &Machine,
    page: UsagePage,
    answer: Result<Reply, RequestError>,
) -> Response {
    let (usage, failed) = match answer {
        Ok(Reply::Usage(usage)) => (usage, false),
        Ok(_) => (Usage::default(), true),
        Err(error) => {
            log::debug!("kubectl page={page:?} error={:?}", error.to_string());
            (Usage::default(), true)
        }
    };
    let reading = Reading::new(view, &usage);
    Response::metrics(match page {
        UsagePage::Resource => resource_metrics::page(&reading, failed),
        UsagePage::Cadvisor => cadvisor::page(&reading, machine, failed),
    })
}
