//! Handles the answers of calls: collects their facts for the answer of the operation, and starts the calls that
//! follow.

use super::method::Method;
use super::wire::{op_error, parse, parse_each};
use super::{CallRole, ClientEvent, CriClient, OperationAnswer, OperationData};
use crate::adapters::cri::{answers, proto};
use crate::api::cgroups::CgroupDriver;
use crate::api::facts::{ContainerFact, ContainerState, ImageList, SandboxFact};
use crate::api::names::ContainerId;
use crate::api::ordered::{CollectOrdered, OrderSlice};
use crate::api::time::Boot;
use crate::engine::event::Answer;
use crate::engine::op::{Code, OpError, OpId};
use crate::net::grpc::CallError;
use bytes::Bytes;
use protobuf::Message;
use std::collections::BTreeSet;

impl CriClient {
    /// Handles the failure of a call.
    pub(super) fn failed(
        &mut self,
        op: OpId,
        step: &CallRole,
        error: CallError,
        now: Boot,
    ) -> Result<OperationAnswer, OpError> {
        let error = op_error(error);
        match step {
            CallRole::ReadSandbox | CallRole::ReadContainer { .. } if error.is_not_found() => self.read_so_far(op),
            // containerd before 2.0 has no RuntimeConfig.
            CallRole::RuntimeConfig if is_unimplemented(&error) => {
                self.driver_told(None);
                self.status_so_far(op, None, None)
            }
            // The task's process has usually ended already.
            CallRole::KillTask(id) if matches!(error, OpError::Answered { .. }) => self.delete_task(op, id, now),
            _ => Err(error),
        }
    }

    /// Handles the answer of a call.
    pub(super) fn answered(
        &mut self,
        op: OpId,
        step: CallRole,
        method: Method,
        body: &Bytes,
        now: Boot,
    ) -> Result<OperationAnswer, OpError> {
        match step {
            CallRole::Version => self.status_so_far(op, Some(parse(method, body)?), None),
            CallRole::Status => self.status_so_far(op, None, Some(parse(method, body)?)),
            CallRole::RuntimeConfig => {
                let answer: proto::RuntimeConfigResponse = parse(method, body)?;
                self.driver_told(answers::cgroup_driver(&answer));
                self.status_so_far(op, None, None)
            }
            CallRole::ListSandboxes => self.listed_sandboxes(op, method, body),
            CallRole::ListContainers => self.listed_containers(op, method, body),
            CallRole::FindSandboxes => self.read_sandboxes(op, parse(method, body)?, now),
            CallRole::FindContainers => self.read_containers(op, parse(method, body)?, now),
            CallRole::ReadSandbox => self.read_sandbox(op, &parse(method, body)?),
            CallRole::ReadContainer { sandbox } => self.read_container(op, &parse(method, body)?, &sandbox),
            CallRole::Run { .. } => {
                let answer: proto::RunPodSandboxResponse = self.parse_change(op, method, body)?;
                self.sandbox_status(op, CallRole::RanSandbox, answer.pod_sandbox_id, true, now).map(|()| None)
            }
            CallRole::RanSandbox => match answers::sandbox(&parse(method, body)?) {
                Some(fact) => Ok(Some(Answer::Sandbox(self.with_sandbox_pid(fact)))),
                None => Err(OpError::Unknown("the runtime's response has no status of a pod's sandbox".into())),
            },
            CallRole::Image => Ok(Some(Answer::Image(answers::image(&parse(method, body)?)))),
            CallRole::Pull => {
                let _: proto::PullImageResponse = self.parse_change(op, method, body)?;
                self.pulled(op, now)
            }
            CallRole::Create => created(method, parse(method, body)?),
            CallRole::Start(id) => {
                let _: proto::StartContainerResponse = self.parse_change(op, method, body)?;
                self.container_status(op, CallRole::Started, id.to_string(), true, now).map(|()| None)
            }
            CallRole::Started => match answers::container(&parse(method, body)?, None) {
                Some(fact) => Ok(Some(Answer::Container(self.with_pid(fact)))),
                None => Err(OpError::Unknown("the runtime's response has no status of a pod's container".into())),
            },
            CallRole::Exec => Ok(Some(Answer::Executed(answers::executed(parse(method, body)?)))),
            CallRole::ExecUrl => stream_url(method, parse::<proto::ExecResponse>(method, body)?.url),
            CallRole::AttachUrl => stream_url(method, parse::<proto::AttachResponse>(method, body)?.url),
            CallRole::PortForwardUrl => stream_url(method, parse::<proto::PortForwardResponse>(method, body)?.url),
            CallRole::Usage => usage(method, body),
            CallRole::ListImages => self.listed_images(op, method, body),
            CallRole::ListImageUsers => self.listed_image_users(op, method, body),
            CallRole::SandboxImage => {
                let status: proto::StatusResponse = parse(method, body)?;
                self.images_so_far(op, |list| list.sandbox_image = answers::sandbox_image(&status))
            }
            CallRole::ImageFs => Ok(Some(Answer::ImageFs(answers::image_file_systems(parse(method, body)?)))),
            CallRole::KillTask(id) => self.delete_task(op, &id, now),
            CallRole::Change => Ok(Some(Answer::Ok)),
        }
    }

    fn listed_sandboxes(&mut self, op: OpId, method: Method, body: &Bytes) -> Result<OperationAnswer, OpError> {
        let sandboxes = self.list(method, body, answers::odd_sandbox, answers::listed_sandbox)?;
        if let Some(OperationData::List(listed)) = self.work(op) {
            listed.sandboxes = sandboxes;
        }
        self.list_so_far(op)
    }

    fn listed_containers(&mut self, op: OpId, method: Method, body: &Bytes) -> Result<OperationAnswer, OpError> {
        let containers = self.list(method, body, answers::odd_container, answers::listed_container)?;
        if let Some(OperationData::List(listed)) = self.work(op) {
            listed.containers = containers;
        }
        self.list_so_far(op)
    }

    fn listed_images(&mut self, op: OpId, method: Method, body: &Bytes) -> Result<OperationAnswer, OpError> {
        let mut images = Vec::new();
        parse_each(method, body, |image: proto::Image| images.push(answers::listed_image(image)))?;
        self.images_so_far(op, |list| list.images = images)
    }

    fn listed_image_users(&mut self, op: OpId, method: Method, body: &Bytes) -> Result<OperationAnswer, OpError> {
        let mut users = Vec::new();
        parse_each(method, body, |c: proto::Container| users.push(answers::image_user(c)))?;
        self.images_so_far(op, |list| list.users = users)
    }

    fn read_sandbox(&mut self, op: OpId, status: &proto::PodSandboxStatusResponse) -> Result<OperationAnswer, OpError> {
        let fact = answers::sandbox(status).map(|f| self.with_sandbox_pid(f));
        if let Some(OperationData::Read(facts)) = self.work(op) {
            facts.sandboxes.extend(fact);
        }
        self.read_so_far(op)
    }

    fn read_container(
        &mut self,
        op: OpId,
        status: &proto::ContainerStatusResponse,
        sandbox: &str,
    ) -> Result<OperationAnswer, OpError> {
        let fact = answers::container(status, Some(sandbox)).map(|f| self.with_pid(f));
        if let Some(OperationData::Read(facts)) = self.work(op) {
            facts.containers.extend(fact);
        }
        self.read_so_far(op)
    }

    /// Requests the status of a pulled image.
    fn pulled(&mut self, op: OpId, now: Boot) -> Result<OperationAnswer, OpError> {
        let image = match self.work(op) {
            Some(OperationData::Pull(image)) => std::mem::take(image),
            _ => String::new(),
        };
        self.image_status(op, image, now).map(|()| None)
    }

    /// Requests the statuses of the sandboxes in a pod's list.
    fn read_sandboxes(
        &mut self,
        op: OpId,
        list: proto::ListPodSandboxResponse,
        now: Boot,
    ) -> Result<OperationAnswer, OpError> {
        self.unless_cancelled(op)?;
        for sandbox in list.items {
            let ready = sandbox.state == proto::PodSandboxState::SANDBOX_READY.into();
            let verbose = ready && !self.pids.contains_key(&sandbox.id);
            self.sandbox_status(op, CallRole::ReadSandbox, sandbox.id, verbose, now)?;
        }
        self.read_so_far(op)
    }

    /// Requests the statuses of the containers in a pod's list.
    fn read_containers(
        &mut self,
        op: OpId,
        list: proto::ListContainersResponse,
        now: Boot,
    ) -> Result<OperationAnswer, OpError> {
        self.unless_cancelled(op)?;
        for c in list.containers {
            let running = c.state == proto::ContainerState::CONTAINER_RUNNING.into();
            let verbose = running && !self.pids.contains_key(&c.id);
            let step = CallRole::ReadContainer { sandbox: c.pod_sandbox_id };
            self.container_status(op, step, c.id, verbose, now)?;
        }
        self.read_so_far(op)
    }

    /// Decodes the answer of the call that changes the runtime's state. Afterwards, an error or a cancellation of the
    /// operation results in `Unknown`.
    fn parse_change<M: Message>(&mut self, op: OpId, method: Method, body: &Bytes) -> Result<M, OpError> {
        if let Some(operation) = self.operations.get_mut(&op) {
            operation.changed = true;
        }
        self.unless_cancelled(op)?;
        parse(method, body)
    }

    fn unless_cancelled(&self, op: OpId) -> Result<(), OpError> {
        match self.operations.get(&op) {
            Some(operation) if operation.cancelled => Err(OpError::Unknown("cancelled".into())),
            _ => Ok(()),
        }
    }

    /// Returns the data of the operation if all its calls have ended.
    fn complete(&mut self, op: OpId) -> Option<&mut OperationData> {
        self.operations.get_mut(&op).filter(|o| o.waiting == 0).map(|o| &mut o.work)
    }

    fn status_so_far(
        &mut self,
        op: OpId,
        new_version: Option<proto::VersionResponse>,
        new_status: Option<proto::StatusResponse>,
    ) -> Result<OperationAnswer, OpError> {
        if let Some(OperationData::Status(both)) = self.work(op) {
            let (version, status) = &mut **both;
            if let Some(new) = new_version {
                *version = new;
            }
            if let Some(new) = new_status {
                *status = new;
            }
        }
        Ok(match self.complete(op) {
            Some(OperationData::Status(both)) => {
                let fact = answers::runtime(&both.0, &both.1);
                self.containerd = fact.name == "containerd";
                Some(Answer::Runtime(fact))
            }
            _ => None,
        })
    }

    /// Stores the cgroup driver for later requests.
    fn driver_told(&mut self, driver: Option<CgroupDriver>) {
        self.driver_known = true;
        self.config.cgroups.driver = driver.unwrap_or(self.configured_driver);
        self.ended.push(ClientEvent::Driver(driver));
    }

    fn list_so_far(&mut self, op: OpId) -> Result<OperationAnswer, OpError> {
        let Some(OperationData::List(listed)) = self.complete(op) else { return Ok(None) };
        let mut listed = std::mem::take(listed);
        let containers = listed.containers.iter().map(|c| c.id.as_str());
        let there: BTreeSet<&str> = containers.chain(listed.sandboxes.iter().map(|s| s.id.as_str())).collect_set();
        if !self.pids.is_empty() {
            self.pids.retain(|id, _| there.contains(id.as_str()));
        }
        if there.len() < listed.containers.len() + listed.sandboxes.len() {
            let mut seen = BTreeSet::new();
            listed.containers.retain(|c| seen.insert(c.id.to_string()));
            listed.sandboxes.retain(|s| seen.insert(s.id.to_string()));
            self.ended.push(ClientEvent::InvalidAnswer { why: "a list contains an id twice".to_owned() });
        }
        Ok(Some(Answer::Listed(listed)))
    }

    fn images_so_far(&mut self, op: OpId, note: impl FnOnce(&mut ImageList)) -> Result<OperationAnswer, OpError> {
        if let Some(OperationData::Images(list)) = self.work(op) {
            note(list);
        }
        Ok(match self.complete(op) {
            Some(OperationData::Images(list)) => Some(Answer::Images(std::mem::take(list))),
            _ => None,
        })
    }

    fn read_so_far(&mut self, op: OpId) -> Result<OperationAnswer, OpError> {
        let Some(OperationData::Read(facts)) = self.complete(op) else { return Ok(None) };
        let mut facts = std::mem::take(facts);
        facts.sandboxes.order_by_key(|s| std::cmp::Reverse((s.created_at, s.attempt)));
        facts.containers.order_by_key(|c| std::cmp::Reverse((c.created_at, c.attempt)));
        Ok(Some(Answer::Pod(facts)))
    }

    /// Converts the items of a list to facts. All invalid items are reported in one line.
    fn list<M: Message, T>(
        &mut self,
        method: Method,
        body: &Bytes,
        odd: fn(&M) -> Option<String>,
        fact: fn(&M) -> Option<T>,
    ) -> Result<Vec<T>, OpError> {
        let (mut facts, mut first, mut more) = (Vec::new(), None, 0);
        parse_each(method, body, |item: M| {
            match (odd(&item), &first) {
                (Some(_), Some(_)) => more += 1,
                (Some(why), None) => first = Some(why),
                (None, _) => {}
            }
            facts.extend(fact(&item));
        })?;
        if let Some(first) = first {
            let more = if more > 0 { format!(", and {more} more") } else { String::new() };
            self.ended.push(ClientEvent::InvalidAnswer { why: format!("{first}{more}") });
        }
        Ok(facts)
    }

    /// Stores the PID of a running container, or fills it in if the status was not verbose.
    fn with_pid(&mut self, mut fact: ContainerFact) -> ContainerFact {
        fact.pid = self.pid_of(fact.id.as_str(), fact.state == ContainerState::Running, fact.pid);
        fact
    }

    fn with_sandbox_pid(&mut self, mut fact: SandboxFact) -> SandboxFact {
        fact.pid = self.pid_of(fact.id.as_str(), fact.ready, fact.pid);
        fact
    }

    /// Returns the reported PID, or else the stored one. Returns None if the object is not running.
    fn pid_of(&mut self, id: &str, runs: bool, told: Option<u32>) -> Option<u32> {
        match (runs, told) {
            (false, _) => {
                self.pids.remove(id);
                None
            }
            (true, Some(pid)) => {
                self.pids.insert(id.to_owned(), pid);
                told
            }
            (true, None) => self.pids.get(id).copied(),
        }
    }
}

fn usage(method: Method, body: &Bytes) -> Result<OperationAnswer, OpError> {
    let mut usage = Vec::new();
    parse_each(method, body, |stats: proto::ContainerStats| usage.extend(answers::usage(stats)))?;
    Ok(Some(Answer::Usage(usage)))
}

fn created(method: Method, answer: proto::CreateContainerResponse) -> Result<OperationAnswer, OpError> {
    if answer.container_id.is_empty() {
        return Err(OpError::Unknown(format!("{}: the runtime's response has no id", method.path)));
    }
    Ok(Some(Answer::Created(ContainerId::from(answer.container_id))))
}

fn stream_url(method: Method, url: String) -> Result<OperationAnswer, OpError> {
    if url.is_empty() {
        return Err(OpError::Unknown(format!("{}: the runtime's response has no URL", method.path)));
    }
    Ok(Some(Answer::StreamUrl(url)))
}

fn is_unimplemented(error: &OpError) -> bool {
    matches!(error, OpError::Answered { code: Code::Unimplemented, .. })
}
