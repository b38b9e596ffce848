//! Short texts for events, calls and statuses, for a readable history.

use crate::runtime::Runtime;
use wherry::api::manifest_report::FileReport;
use wherry::engine::effect::{FilesCall, RuntimeCall, StreamTarget};
use wherry::engine::event::{Answer, ApiEvent, Event};
use wherry_engine::api::k8s::{ContainerState, PodStatus};

pub fn short(event: &Event) -> String {
    match event {
        Event::Records(r) => format!("Records {r:?}"),
        Event::Directories(d) => format!("Directories {:?}", d.iter().map(|d| &d.uid).collect::<Vec<_>>()),
        Event::Manifests(report) => {
            let text = |file: &FileReport| {
                let recorded = file.recorded.as_ref().map(|all| format!(", {} recorded", all.len()));
                format!("{:?} {:?}{}", file.name, file.content, recorded.unwrap_or_default())
            };
            format!("Manifests {:?} {:?}", report.files.iter().map(text).collect::<Vec<_>>(), report.directory)
        }
        Event::Done { op, result: Ok(answer) } => match answer {
            Answer::Listed(l) => {
                format!("Done {op} {} sandboxes, {} containers", l.sandboxes.len(), l.containers.len())
            }
            Answer::Pod(p) => {
                let s: Vec<String> = p.sandboxes.iter().map(|s| format!("{} {}", s.id, s.ready)).collect();
                let c: Vec<String> =
                    p.containers.iter().map(|c| format!("{} {}#{} {:?}", c.id, c.name, c.attempt, c.state)).collect();
                format!("Done {op} {s:?} {c:?}")
            }
            Answer::Sandbox(s) => format!("Done {op} sandbox {}", s.id),
            Answer::Container(c) => format!("Done {op} container {} {:?}", c.id, c.state),
            other => format!("Done {op} {other:?}"),
        },
        Event::Api(ApiEvent::Item { op, json }) => format!("Item of {op} {}", String::from_utf8_lossy(json)),
        Event::Api(ApiEvent::Line { op, json }) => format!("Line of {op} {}", String::from_utf8_lossy(json)),
        other => format!("{other:?}"),
    }
}

pub fn files_text(call: &FilesCall) -> String {
    match call {
        FilesCall::PreparePod { pod } => format!("PreparePod {}", pod.name),
        FilesCall::PrepareContainer { container, attempt, .. } => format!("PrepareContainer {container}#{attempt}"),
        FilesCall::LinkLog { container, attempt, .. } => format!("LinkLog {container}#{attempt}"),
        FilesCall::WriteHosts { pod, .. } => format!("WriteHosts {}", pod.name),
        other => format!("{other:?}"),
    }
}

pub fn brief(status: &PodStatus) -> String {
    let mut text = status.phase.clone().unwrap_or_default();
    if let Some(reason) = &status.reason {
        text += &format!(" ({reason})");
    }
    let init = status.init_container_statuses.iter().flatten();
    for c in init.chain(status.container_statuses.iter().flatten()) {
        text += &format!(" {}#{}:{}", c.name, c.restart_count, state_text(c.state.as_ref()));
    }
    text
}

impl Runtime {
    /// A short name of the container, such as `web/main#1`.
    pub fn title(&self, id: &str) -> String {
        match self.containers.get(id) {
            Some(c) => format!("{}/{}#{}", c.pod_name.name, c.name, c.attempt),
            None => id.to_string(),
        }
    }

    fn sandbox_title(&self, id: &str) -> String {
        match self.sandboxes.get(id) {
            Some(s) => format!("{}#{}", s.name.name, s.attempt),
            None => id.to_string(),
        }
    }

    pub fn text_of(&self, call: &RuntimeCall) -> String {
        match call {
            RuntimeCall::Status => "Status".into(),
            RuntimeCall::List => "List".into(),
            RuntimeCall::ReadPod { uid } => format!("ReadPod {uid}"),
            RuntimeCall::RunSandbox { pod, attempt, handler, .. } => {
                let handler = if handler.is_empty() { String::new() } else { format!(" with {handler}") };
                format!("RunSandbox {}#{attempt}{handler}", pod.name.name)
            }
            RuntimeCall::StopSandbox { id } => format!("StopSandbox {}", self.sandbox_title(id.as_str())),
            RuntimeCall::RemoveSandbox { id } => format!("RemoveSandbox {}", self.sandbox_title(id.as_str())),
            RuntimeCall::ImageStatus { image } => format!("ImageStatus {image}"),
            RuntimeCall::PullImage { image, credential: None, .. } => format!("PullImage {image}"),
            RuntimeCall::PullImage { image, credential: Some(credential), .. } => {
                format!("PullImage {image} as {}", credential.username)
            }
            RuntimeCall::CreateContainer(c) => {
                let target = c.target.as_ref().map(|id| format!(" for {}", self.title(id.as_str())));
                format!(
                    "CreateContainer {}/{}#{}{}",
                    c.pod.name.name,
                    c.container,
                    c.attempt,
                    target.unwrap_or_default()
                )
            }
            RuntimeCall::StartContainer { id } => format!("StartContainer {}", self.title(id.as_str())),
            RuntimeCall::StopContainer { id, grace } => {
                format!("StopContainer {} {}ms", self.title(id.as_str()), grace.as_millis())
            }
            RuntimeCall::RemoveContainer { id } => format!("RemoveContainer {}", self.title(id.as_str())),
            RuntimeCall::UpdateContainer { id, .. } => format!("UpdateContainer {}", self.title(id.as_str())),
            RuntimeCall::ReopenContainerLog { id } => format!("ReopenContainerLog {}", self.title(id.as_str())),
            RuntimeCall::Exec(exec) => format!("Exec {}", self.title(exec.id.as_str())),
            RuntimeCall::Stream(stream) => match &stream.target {
                StreamTarget::Exec { id, .. } => format!("ExecUrl {}", self.title(id.as_str())),
                StreamTarget::Attach { id, .. } => format!("AttachUrl {}", self.title(id.as_str())),
                StreamTarget::PortForward { sandbox, ports } => {
                    format!("PortForwardUrl {} {ports:?}", self.sandbox_title(sandbox.as_str()))
                }
            },
            RuntimeCall::Handler(call) => format!("Handler {}", self.title(call.handler.id().as_str())),
            RuntimeCall::Usage => "Usage".into(),
            RuntimeCall::ListImages => "ListImages".into(),
            RuntimeCall::ImageFs => "ImageFs".into(),
            RuntimeCall::RemoveImage { id } => format!("RemoveImage {id}"),
            RuntimeCall::DeleteTask { id } => format!("DeleteTask {}", self.title(id.as_str())),
        }
    }
}

/// `running`, `waiting CrashLoopBackOff` or `terminated Error 3`.
pub fn state_text(state: Option<&ContainerState>) -> String {
    let Some(state) = state else { return "none".into() };
    if state.running.is_some() {
        return "running".into();
    }
    if let Some(w) = &state.waiting {
        return format!("waiting {}", w.reason.as_deref().unwrap_or_default());
    }
    match &state.terminated {
        Some(t) => format!("terminated {} {}", t.reason.as_deref().unwrap_or_default(), t.exit_code),
        None => "none".into(),
    }
}
