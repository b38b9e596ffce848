//! Serves the paths of a kubelet: metrics, the usage summary, the pods, and the effective configuration.

use super::cadvisor;
use super::metrics::Wanted;
use super::reading::Reading;
use super::resource_metrics;
use super::summary::Scope;
use crate::adapters::server::health;
use crate::adapters::server::routes::Page;
use crate::agent::act::{Act, Then};
use crate::agent::bodies::PodList;
use crate::agent::content::{Response, View, json, streamed};
use crate::api::cluster::machine::MachineIdentity;
use crate::api::control::Usage;
use crate::api::kube::kubelet::KubeletPath;
use crate::api::kube::query::Query;
use crate::engine::control::{Reply, Request, RequestError};

/// A page that needs the resource usage of the containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::agent) enum UsagePage {
    Resource,
    Cadvisor,
}

/// Returns the first step of a request for a path of a kubelet.
pub(super) fn answer(view: &View<'_>, path: KubeletPath, query: &Query) -> Act {
    Act::Respond(match path {
        KubeletPath::Metrics => view.metrics_page(),
        KubeletPath::ProbeMetrics => view.probe_metrics_page(),
        KubeletPath::ResourceMetrics => return Act::Ask(Request::Usage, Then::Read(UsagePage::Resource)),
        KubeletPath::CadvisorMetrics => return Act::Ask(Request::Usage, Then::Read(UsagePage::Cadvisor)),
        KubeletPath::Summary => {
            let scope = if query.flag("only_cpu_and_memory") { Scope::CpuAndMemory } else { Scope::All };
            return Act::Ask(Request::Usage, Then::Measured(Wanted::Summary(scope)));
        }
        KubeletPath::Pods => streamed(PodList::new(false)),
        KubeletPath::Healthz => {
            health::response(Page::Healthz, &view.health_checks(Page::Healthz), query.flag("verbose"))
        }
        KubeletPath::Configz => {
            let body = serde_json::json!({ "kubeletconfig": view.config.effective() });
            json(&body)
        }
    })
}

/// Returns the page that results from the engine's answer. As in a kubelet, a failure is reported as a value on the
/// page, so that a scrape still gets the other values.
pub(in crate::agent) fn usage_page(
    view: &View<'_>,
    machine: &MachineIdentity,
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
