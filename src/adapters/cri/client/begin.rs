//! Builds the requests of an operation, and starts its first calls.

use super::method;
use super::wire::{invalid, lists_of};
use super::{CallRole, CriClient, OperationAnswer};
use crate::adapters::cri::{proto, requests};
use crate::api::names::{ContainerId, Uid};
use crate::api::pod::Pod;
use crate::api::registry_credentials::Credential;
use crate::api::time::Boot;
use crate::engine::effect::{Channels, Command, CreateContainer, ExecCall, RuntimeCall, StreamTarget};
use crate::engine::op::{Code, OpError, OpId};
use protobuf::MessageField;
use rustix::process::Signal;
use std::time::Duration;

/// The version of the kubelet API, sent with Version.
const KUBELET_API_VERSION: &str = "0.1.0";

impl CriClient {
    pub(super) fn begin(&mut self, op: OpId, call: RuntimeCall, now: Boot) -> Result<(), OpError> {
        match call {
            RuntimeCall::Status => self.status(op, now),
            RuntimeCall::List => self.list_all(op, now),
            RuntimeCall::ReadPod { uid } => self.find_pod(op, &uid, now),
            RuntimeCall::RunSandbox { pod, attempt, handler, user_namespace } => {
                let config = requests::sandbox_config(&pod, attempt, user_namespace, &self.config).map_err(invalid)?;
                self.run_sandbox(op, config, handler, now)
            }
            RuntimeCall::StopSandbox { id } => {
                let request = proto::StopPodSandboxRequest { pod_sandbox_id: id.to_string(), ..Default::default() };
                self.call(op, CallRole::Change, method::STOP_POD_SANDBOX, &request, now)
            }
            RuntimeCall::RemoveSandbox { id } => {
                let request = proto::RemovePodSandboxRequest { pod_sandbox_id: id.to_string(), ..Default::default() };
                self.call(op, CallRole::Change, method::REMOVE_POD_SANDBOX, &request, now)
            }
            RuntimeCall::CreateContainer(create) => self.create_container(op, &create, now),
            RuntimeCall::StartContainer { id } => {
                let request = proto::StartContainerRequest { container_id: id.to_string(), ..Default::default() };
                self.call(op, CallRole::Start(id), method::START_CONTAINER, &request, now)
            }
            RuntimeCall::StopContainer { id, grace } => self.stop_container(op, &id, grace, now),
            RuntimeCall::RemoveContainer { id } => {
                let request = proto::RemoveContainerRequest { container_id: id.to_string(), ..Default::default() };
                self.call(op, CallRole::Change, method::REMOVE_CONTAINER, &request, now)
            }
            RuntimeCall::UpdateContainer { pod, container, id } => {
                let resources = requests::container_resources(&pod, &container, &self.config).map_err(invalid)?;
                self.update_container(op, &id, resources, now)
            }
            RuntimeCall::ReopenContainerLog { id } => {
                let request = proto::ReopenContainerLogRequest { container_id: id.to_string(), ..Default::default() };
                self.call(op, CallRole::Change, method::REOPEN_CONTAINER_LOG, &request, now)
            }
            RuntimeCall::DeleteTask { id } => self.kill_task(op, id, now),
            RuntimeCall::Exec(exec) => {
                let ExecCall { id, command: Command(command), timeout, .. } = *exec;
                self.exec_sync(op, &id, command, timeout, now)
            }
            RuntimeCall::Handler(call) => {
                self.exec_sync(op, call.handler.id(), call.handler.command(), call.timeout, now)
            }
            RuntimeCall::Stream(stream) => self.stream(op, stream.target, now),
            RuntimeCall::Usage => {
                let request = proto::ListContainerStatsRequest::new();
                self.call(op, CallRole::Usage, method::LIST_CONTAINER_STATS, &request, now)
            }
            RuntimeCall::ImageStatus { image } => self.image_status(op, image, now),
            RuntimeCall::PullImage { pod, image, credential } => self.pull_image(op, &pod, image, credential, now),
            RuntimeCall::ListImages => self.list_images(op, now),
            RuntimeCall::ImageFs => {
                self.call(op, CallRole::ImageFs, method::IMAGE_FS_INFO, &proto::ImageFsInfoRequest::new(), now)
            }
            RuntimeCall::RemoveImage { id } => self.remove_image(op, id, now),
        }
    }

    fn list_all(&mut self, op: OpId, now: Boot) -> Result<(), OpError> {
        let (sandboxes, containers) = (proto::ListPodSandboxRequest::new(), proto::ListContainersRequest::new());
        self.call(op, CallRole::ListSandboxes, method::LIST_POD_SANDBOX, &sandboxes, now)?;
        self.call(op, CallRole::ListContainers, method::LIST_CONTAINERS, &containers, now)
    }

    fn find_pod(&mut self, op: OpId, uid: &Uid, now: Boot) -> Result<(), OpError> {
        let (sandboxes, containers) = lists_of(uid);
        self.call(op, CallRole::FindSandboxes, method::LIST_POD_SANDBOX, &sandboxes, now)?;
        self.call(op, CallRole::FindContainers, method::LIST_CONTAINERS, &containers, now)
    }

    fn run_sandbox(
        &mut self,
        op: OpId,
        config: proto::PodSandboxConfig,
        handler: Box<str>,
        now: Boot,
    ) -> Result<(), OpError> {
        let request = proto::RunPodSandboxRequest {
            config: MessageField::some(config),
            runtime_handler: handler.to_string(),
            ..Default::default()
        };
        self.call(op, CallRole::Run { handler }, method::RUN_POD_SANDBOX, &request, now)
    }

    fn stop_container(&mut self, op: OpId, id: &ContainerId, grace: Duration, now: Boot) -> Result<(), OpError> {
        let request = proto::StopContainerRequest {
            container_id: id.to_string(),
            timeout: whole_seconds(grace),
            ..Default::default()
        };
        self.call(op, CallRole::Change, method::STOP_CONTAINER, &request, now)
    }

    fn update_container(
        &mut self,
        op: OpId,
        id: &ContainerId,
        resources: proto::LinuxContainerResources,
        now: Boot,
    ) -> Result<(), OpError> {
        let request = proto::UpdateContainerResourcesRequest {
            container_id: id.to_string(),
            linux: MessageField::some(resources),
            ..Default::default()
        };
        self.call(op, CallRole::Change, method::UPDATE_CONTAINER_RESOURCES, &request, now)
    }

    /// Lists all images and what uses them: the containers and the sandbox image.
    fn list_images(&mut self, op: OpId, now: Boot) -> Result<(), OpError> {
        let (images, containers) = (proto::ListImagesRequest::new(), proto::ListContainersRequest::new());
        let status = proto::StatusRequest { verbose: true, ..Default::default() };
        self.call(op, CallRole::ListImages, method::LIST_IMAGES, &images, now)?;
        self.call(op, CallRole::ListImageUsers, method::LIST_CONTAINERS, &containers, now)?;
        self.call(op, CallRole::SandboxImage, method::STATUS, &status, now)
    }

    fn remove_image(&mut self, op: OpId, image: String, now: Boot) -> Result<(), OpError> {
        let image = MessageField::some(proto::ImageSpec { image, ..Default::default() });
        let request = proto::RemoveImageRequest { image, ..Default::default() };
        self.call(op, CallRole::Change, method::REMOVE_IMAGE, &request, now)
    }

    fn exec_sync(
        &mut self,
        op: OpId,
        id: &ContainerId,
        cmd: Vec<String>,
        timeout: Duration,
        now: Boot,
    ) -> Result<(), OpError> {
        let timeout = whole_seconds(timeout);
        let request = proto::ExecSyncRequest { container_id: id.to_string(), cmd, timeout, ..Default::default() };
        self.call(op, CallRole::Exec, method::EXEC_SYNC, &request, now)
    }

    /// Requests a stream. For each kind of stream, the runtime answers with a URL.
    fn stream(&mut self, op: OpId, target: StreamTarget, now: Boot) -> Result<(), OpError> {
        match target {
            StreamTarget::Exec { id, command: Command(cmd), channels, .. } => {
                let Channels { stdin, stdout, stderr, tty } = channels;
                let container_id = id.to_string();
                let more = Default::default();
                let request =
                    proto::ExecRequest { container_id, cmd, tty, stdin, stdout, stderr, special_fields: more };
                self.call(op, CallRole::ExecUrl, method::EXEC, &request, now)
            }
            StreamTarget::Attach { id, channels, .. } => {
                let Channels { stdin, stdout, stderr, tty } = channels;
                let container_id = id.to_string();
                let more = Default::default();
                let request = proto::AttachRequest { container_id, stdin, tty, stdout, stderr, special_fields: more };
                self.call(op, CallRole::AttachUrl, method::ATTACH, &request, now)
            }
            StreamTarget::PortForward { sandbox, ports } => {
                let port = ports.into_iter().map(i32::from).collect();
                let pod_sandbox_id = sandbox.to_string();
                let request = proto::PortForwardRequest { pod_sandbox_id, port, ..Default::default() };
                self.call(op, CallRole::PortForwardUrl, method::PORT_FORWARD, &request, now)
            }
        }
    }

    /// Calls Version and Status, and RuntimeConfig if the cgroup driver is still unknown.
    fn status(&mut self, op: OpId, now: Boot) -> Result<(), OpError> {
        let version = proto::VersionRequest { version: KUBELET_API_VERSION.into(), ..Default::default() };
        self.call(op, CallRole::Version, method::VERSION, &version, now)?;
        self.call(op, CallRole::Status, method::STATUS, &proto::StatusRequest::new(), now)?;
        if !self.driver_known {
            let request = proto::RuntimeConfigRequest::new();
            self.call(op, CallRole::RuntimeConfig, method::RUNTIME_CONFIG, &request, now)?;
        }
        Ok(())
    }

    fn pull_image(
        &mut self,
        op: OpId,
        pod: &Pod,
        image: String,
        credential: Option<Credential>,
        now: Boot,
    ) -> Result<(), OpError> {
        let config = requests::sandbox_config(pod, 0, None, &self.config).map_err(invalid)?;
        let annotations = pod.object.metadata.annotations.clone().unwrap_or_default();
        let request = proto::PullImageRequest {
            image: MessageField::some(proto::ImageSpec { image, annotations, ..Default::default() }),
            auth: credential.map(auth).into(),
            sandbox_config: MessageField::some(config),
            ..Default::default()
        };
        self.call(op, CallRole::Pull, method::PULL_IMAGE, &request, now)
    }

    fn create_container(&mut self, op: OpId, create: &CreateContainer, now: Boot) -> Result<(), OpError> {
        let config = requests::container_config(create, &self.config).map_err(invalid)?;
        let sandbox =
            requests::sandbox_config(&create.pod, create.sandbox_attempt, create.user_namespace, &self.config);
        let request = proto::CreateContainerRequest {
            pod_sandbox_id: create.sandbox.to_string(),
            config: MessageField::some(config),
            sandbox_config: MessageField::some(sandbox.map_err(invalid)?),
            ..Default::default()
        };
        self.call(op, CallRole::Create, method::CREATE_CONTAINER, &request, now)
    }

    /// Kills a task of containerd, which must happen before it is deleted. No other runtime has tasks.
    fn kill_task(&mut self, op: OpId, id: ContainerId, now: Boot) -> Result<(), OpError> {
        if !self.containerd {
            let message = "the runtime is not containerd and has no tasks".to_owned();
            return Err(OpError::Answered { code: Code::Unimplemented, message });
        }
        let request = proto::containerd::KillRequest {
            container_id: id.to_string(),
            signal: Signal::KILL.as_raw() as u32,
            all: true,
            ..Default::default()
        };
        self.call(op, CallRole::KillTask(id), method::KILL_TASK, &request, now)
    }

    pub(super) fn delete_task(&mut self, op: OpId, id: &ContainerId, now: Boot) -> Result<OperationAnswer, OpError> {
        let request = proto::containerd::DeleteTaskRequest { container_id: id.to_string(), ..Default::default() };
        self.call(op, CallRole::Change, method::DELETE_TASK, &request, now).map(|()| None)
    }

    pub(super) fn image_status(&mut self, op: OpId, image: String, now: Boot) -> Result<(), OpError> {
        let image = MessageField::some(proto::ImageSpec { image, ..Default::default() });
        let request = proto::ImageStatusRequest { image, ..Default::default() };
        self.call(op, CallRole::Image, method::IMAGE_STATUS, &request, now)
    }

    pub(super) fn sandbox_status(
        &mut self,
        op: OpId,
        step: CallRole,
        id: String,
        verbose: bool,
        now: Boot,
    ) -> Result<(), OpError> {
        let request = proto::PodSandboxStatusRequest { pod_sandbox_id: id, verbose, ..Default::default() };
        self.call(op, step, method::POD_SANDBOX_STATUS, &request, now)
    }

    pub(super) fn container_status(
        &mut self,
        op: OpId,
        step: CallRole,
        id: String,
        verbose: bool,
        now: Boot,
    ) -> Result<(), OpError> {
        let request = proto::ContainerStatusRequest { container_id: id, verbose, ..Default::default() };
        self.call(op, step, method::CONTAINER_STATUS, &request, now)
    }
}

fn auth(credential: Credential) -> proto::AuthConfig {
    let Credential { username, password, identity_token, registry_token } = credential;
    proto::AuthConfig { username, password, identity_token, registry_token, ..Default::default() }
}

/// Converts a time limit to seconds, the CRI's unit, and rounds up.
fn whole_seconds(limit: Duration) -> i64 {
    let seconds = limit.as_secs() + u64::from(limit.subsec_nanos() > 0);
    i64::try_from(seconds).unwrap_or(i64::MAX)
}
