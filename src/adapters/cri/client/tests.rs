//! Tests of the client over a scripted transport. A test answers calls by method, in any order.

use super::*;
use crate::adapters::cri::requests::tests::{config, pod};
use crate::api::facts::ContainerState;
use crate::api::names::{SandboxId, Uid, label};
use crate::api::registry_credentials::Credential;
use crate::engine::effect::{Channels, Command, ExecCall, StreamCall, StreamTarget};
use crate::engine::op::Code;
use protobuf::MessageField;
use std::cell::RefCell;
use std::rc::Rc;

/// The calls that the client has sent, and the answers that the next drive delivers.
#[derive(Default)]
struct Wire {
    next: u64,
    sent: Vec<(CallId, Call)>,
    cancelled: Vec<CallId>,
    answers: Vec<Completion>,
}

struct Scripted(Rc<RefCell<Wire>>);

impl Transport for Scripted {
    fn call(&mut self, call: Call, _: Boot) -> CallId {
        let mut wire = self.0.borrow_mut();
        wire.next += 1;
        let id = CallId(wire.next);
        wire.sent.push((id, call));
        id
    }
    fn cancel(&mut self, id: CallId) {
        let mut wire = self.0.borrow_mut();
        wire.cancelled.push(id);
        let result = Err(CallError::Unknown("cancelled".into()));
        wire.answers.push(Completion::Done { id, result });
    }
    fn drive(&mut self, _: Boot, out: &mut Vec<Completion>) -> bool {
        out.append(&mut self.0.borrow_mut().answers);
        false
    }
    fn next_deadline(&self) -> Option<Boot> {
        None
    }
    fn is_up(&self) -> bool {
        true
    }
}

const OP: OpId = OpId(7);
const NOW: Boot = Boot(1_000_000_000);
const TIMEOUT: Duration = Duration::from_secs(10);

struct Bench {
    wire: Rc<RefCell<Wire>>,
    client: CriClient,
    called: Vec<(&'static str, bool)>,
    handlers: Vec<Box<str>>,
    invalid: Vec<String>,
    drivers: Vec<Option<CgroupDriver>>,
}

impl Bench {
    fn new(call: RuntimeCall) -> Bench {
        let wire = Rc::new(RefCell::new(Wire::default()));
        let client = CriClient::new(Box::new(Scripted(wire.clone())), config());
        let mut bench =
            Bench { wire, client, called: Vec::new(), handlers: Vec::new(), invalid: Vec::new(), drivers: Vec::new() };
        bench.client.start(OP, call, TIMEOUT, NOW);
        bench
    }

    /// Returns the methods of the calls that have not been answered.
    fn open(&self) -> Vec<&'static str> {
        self.wire.borrow().sent.iter().map(|(_, c)| c.path.rsplit('/').next().unwrap()).collect()
    }

    fn take(&mut self, method: &str) -> (CallId, Call) {
        let mut wire = self.wire.borrow_mut();
        let at = wire.sent.iter().position(|(_, c)| c.path.ends_with(&format!("/{method}"))).unwrap();
        wire.sent.remove(at)
    }

    fn reply(&mut self, method: &str, result: Result<Bytes, CallError>) {
        let (id, _) = self.take(method);
        self.wire.borrow_mut().answers.push(Completion::Done { id, result });
    }

    fn ok(&mut self, method: &str, answer: &impl Message) {
        self.reply(method, Ok(answer.write_to_bytes().unwrap().into()));
    }

    fn error(&mut self, method: &str, code: u32) {
        self.reply(method, Err(CallError::Status { code, message: format!("code {code}") }));
    }

    /// Drives once, and returns the result of the operation if it has ended.
    fn drive(&mut self) -> Option<Result<Answer, OpError>> {
        let mut out = Vec::new();
        assert!(!self.client.drive(NOW + Duration::from_secs(1), &mut out));
        let mut end = None;
        for event in out {
            match event {
                ClientEvent::Done { op, result } => {
                    assert_eq!(op, OP);
                    assert!(end.replace(result).is_none(), "the operation ended twice");
                }
                ClientEvent::Called { operation_type, handler, duration, error } => {
                    assert_eq!(duration, Duration::from_secs(u64::from(!self.late(operation_type))));
                    self.called.push((operation_type, error));
                    self.handlers.extend(handler);
                }
                ClientEvent::InvalidAnswer { why } => self.invalid.push(why),
                // The driver comes before the `Done` that depends on it.
                ClientEvent::Driver(driver) if end.is_none() => self.drivers.push(driver),
                other => panic!("{other:?}"),
            }
        }
        end
    }

    /// Reports whether a call is started within a drive. Its start time is that of the drive, so its duration is zero
    /// here.
    fn late(&self, operation_type: &str) -> bool {
        matches!(operation_type, "podsandbox_status" | "container_status" | "delete_task")
            || (operation_type == "image_status" && self.called.iter().any(|(t, _)| *t == "pull_image"))
    }
}

fn labels() -> BTreeMap<String, String> {
    [(label::POD_NAME, "p"), (label::POD_NAMESPACE, "ns"), (label::POD_UID, "u"), (label::CONTAINER_NAME, "main")]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into()
}

fn sandbox_status(id: &str) -> proto::PodSandboxStatusResponse {
    let status = proto::PodSandboxStatus { id: id.into(), labels: labels(), ..Default::default() };
    proto::PodSandboxStatusResponse { status: MessageField::some(status), ..Default::default() }
}

fn container_status(id: &str, created_at: i64, pid: Option<u32>) -> proto::ContainerStatusResponse {
    let status = proto::ContainerStatus {
        id: id.into(),
        labels: labels(),
        created_at,
        state: proto::ContainerState::CONTAINER_RUNNING.into(),
        ..Default::default()
    };
    let info = pid.map(|pid| ("info".to_owned(), format!("{{\"pid\":{pid},\"sandboxID\":\"s1\"}}")));
    proto::ContainerStatusResponse {
        status: MessageField::some(status),
        info: info.into_iter().collect(),
        ..Default::default()
    }
}

fn run() -> RuntimeCall {
    RuntimeCall::RunSandbox {
        pod: Rc::new(pod(r#"{"hostname":"h"}"#)),
        attempt: 3,
        handler: "runsc".into(),
        user_namespace: None,
    }
}

fn is_unknown(end: Option<Result<Answer, OpError>>) -> bool {
    matches!(end, Some(Err(OpError::Unknown(_))))
}

#[test]
fn status_is_calls_side_by_side_answered_as_one() {
    let mut b = Bench::new(RuntimeCall::Status);
    assert_eq!(b.open(), ["Version", "Status", "RuntimeConfig"]);
    b.ok("Status", &proto::StatusResponse::new());
    assert_eq!(b.drive(), None);
    b.error("RuntimeConfig", 12);
    assert_eq!(b.drive(), None);
    b.ok("Version", &proto::VersionResponse { runtime_name: "containerd".into(), ..Default::default() });
    let Some(Ok(Answer::Runtime(fact))) = b.drive() else { panic!() };
    assert_eq!(fact.name, "containerd");
    assert_eq!(b.called, [("status", false), ("runtime_config", true), ("version", false)]);
    assert_eq!(b.drivers, [None]);
    assert_eq!(b.client.config.cgroups.driver, CgroupDriver::Cgroupfs, "the configured driver");
}

#[test]
fn the_cgroup_driver_is_requested_once_per_connection_and_used_immediately() {
    let tells = |driver: proto::CgroupDriver| {
        let linux = proto::LinuxRuntimeConfiguration { cgroup_driver: driver.into(), ..Default::default() };
        proto::RuntimeConfigResponse { linux: MessageField::some(linux), ..Default::default() }
    };
    let mut b = Bench::new(RuntimeCall::Status);
    let status = |b: &mut Bench| {
        b.ok("Status", &proto::StatusResponse::new());
        b.ok("Version", &proto::VersionResponse::new());
    };
    status(&mut b);
    b.ok("RuntimeConfig", &tells(proto::CgroupDriver::SYSTEMD));
    assert!(matches!(b.drive(), Some(Ok(Answer::Runtime(_)))));
    assert_eq!(b.drivers, [Some(CgroupDriver::Systemd)]);
    assert_eq!(b.client.config.cgroups.driver, CgroupDriver::Systemd);
    b.client.start(OP, RuntimeCall::Status, TIMEOUT, NOW);
    assert_eq!(b.open(), ["Version", "Status"]);
    status(&mut b);
    assert!(matches!(b.drive(), Some(Ok(Answer::Runtime(_)))));
    // A new connection may lead to another runtime. Its driver is unknown until it has answered.
    let up = |b: &mut Bench| {
        b.wire.borrow_mut().answers.push(Completion::Up);
        let mut out = Vec::new();
        b.client.drive(NOW, &mut out);
        assert_eq!(out, [ClientEvent::Up]);
        b.client.start(OP, RuntimeCall::Status, TIMEOUT, NOW);
        status(b);
    };
    up(&mut b);
    b.error("RuntimeConfig", 2);
    let end = b.drive();
    assert!(matches!(end, Some(Err(OpError::Answered { code: Code::Other(2), .. }))), "{end:?}");
    b.client.start(OP, RuntimeCall::Status, TIMEOUT, NOW);
    assert_eq!(b.open(), ["Version", "Status", "RuntimeConfig"]);
    status(&mut b);
    b.error("RuntimeConfig", 12);
    assert!(matches!(b.drive(), Some(Ok(Answer::Runtime(_)))));
    assert_eq!(b.drivers, [Some(CgroupDriver::Systemd), None]);
    assert_eq!(b.client.config.cgroups.driver, CgroupDriver::Cgroupfs, "the configured driver again");
    up(&mut b);
    b.ok("RuntimeConfig", &tells(proto::CgroupDriver::CGROUPFS));
    assert!(matches!(b.drive(), Some(Ok(Answer::Runtime(_)))));
    assert_eq!(b.drivers.last(), Some(&Some(CgroupDriver::Cgroupfs)));
    // An empty answer contains no driver.
    up(&mut b);
    b.ok("RuntimeConfig", &proto::RuntimeConfigResponse::new());
    assert!(matches!(b.drive(), Some(Ok(Answer::Runtime(_)))));
    assert_eq!(b.drivers.last(), Some(&None));
}

#[test]
fn a_list_omits_foreign_objects_and_ends_once_if_one_call_fails() {
    let mut b = Bench::new(RuntimeCall::List);
    let item = |id: &str, labels| proto::PodSandbox { id: id.into(), labels, ..Default::default() };
    let items = vec![item("s1", labels()), item("s2", BTreeMap::new())];
    b.ok("ListPodSandbox", &proto::ListPodSandboxResponse { items, ..Default::default() });
    b.ok("ListContainers", &proto::ListContainersResponse::new());
    let Some(Ok(Answer::Listed(listed))) = b.drive() else { panic!() };
    assert_eq!(listed.sandboxes.len(), 1);

    let mut b = Bench::new(RuntimeCall::List);
    b.error("ListContainers", 2);
    assert_eq!(b.drive(), Some(Err(OpError::Answered { code: Code::Other(2), message: "code 2".into() })));
    assert_eq!(b.wire.borrow().cancelled.len(), 1);
    assert_eq!(b.drive(), None);
    assert_eq!(b.called, [("list_containers", true), ("list_podsandbox", true)]);
}

#[test]
fn a_sandbox_is_run_and_then_read_with_one_deadline() {
    let mut b = Bench::new(run());
    let (id, call) = b.take("RunPodSandbox");
    assert_eq!(call.deadline, Some(NOW + TIMEOUT));
    let request = proto::RunPodSandboxRequest::parse_from_bytes(&call.body).unwrap();
    assert_eq!((request.config.hostname.as_str(), request.config.metadata.attempt), ("h", 3));
    let answer = proto::RunPodSandboxResponse { pod_sandbox_id: "s1".into(), ..Default::default() };
    let result = Ok(answer.write_to_bytes().unwrap().into());
    b.wire.borrow_mut().answers.push(Completion::Done { id, result });
    assert_eq!(b.drive(), None);
    assert_eq!(b.wire.borrow().sent[0].1.deadline, Some(NOW + TIMEOUT));
    b.ok("PodSandboxStatus", &sandbox_status("s1"));
    let Some(Ok(Answer::Sandbox(fact))) = b.drive() else { panic!() };
    assert_eq!(fact.id, SandboxId::from("s1"));
    assert_eq!(b.called, [("run_podsandbox", false), ("podsandbox_status", false)]);
    assert_eq!(b.handlers, ["runsc".into()], "of the first call only");
}

#[test]
fn an_error_after_the_changing_call_is_unknown() {
    let mut b = Bench::new(run());
    b.ok("RunPodSandbox", &proto::RunPodSandboxResponse::new());
    assert_eq!(b.drive(), None);
    b.error("PodSandboxStatus", 5);
    assert!(is_unknown(b.drive()));

    let mut b = Bench::new(run());
    b.reply("RunPodSandbox", Ok(Bytes::from_static(b"\xff\xff")));
    assert!(is_unknown(b.drive()));
}

#[test]
fn errors_distinguish_unsent_calls_from_sent_calls() {
    let answered = |code, message: &str| OpError::Answered { code, message: message.into() };
    for (error, want) in [
        (CallError::NotSent("x".into()), OpError::NotSent("x".into())),
        (CallError::Refused("x".into()), OpError::Refused("x".into())),
        (CallError::Unknown("x".into()), OpError::Unknown("x".into())),
        (CallError::Status { code: 3, message: "m".into() }, answered(Code::InvalidArgument, "m")),
        (CallError::Status { code: 5, message: "m".into() }, answered(Code::NotFound, "m")),
        (CallError::Status { code: 6, message: "m".into() }, answered(Code::AlreadyExists, "m")),
        (CallError::Status { code: 9, message: "m".into() }, answered(Code::FailedPrecondition, "m")),
        (CallError::Status { code: 12, message: "m".into() }, answered(Code::Unimplemented, "m")),
        (CallError::Status { code: 2, message: "m".into() }, answered(Code::Other(2), "m")),
        (CallError::Status { code: 4, message: "m".into() }, OpError::Unknown("m".into())),
        (CallError::Status { code: 14, message: "m".into() }, OpError::Unknown("m".into())),
    ] {
        let mut b = Bench::new(run());
        b.reply("RunPodSandbox", Err(error));
        assert_eq!(b.drive(), Some(Err(want)));
        // Like a kubelet, count a call that was not sent as a failed call.
        assert_eq!(b.called, [("run_podsandbox", true)]);
    }
}

/// The real transport without a server: the size is checked before the connection.
#[test]
fn a_request_that_is_too_large_is_refused_and_one_without_a_connection_is_not_sent() {
    use crate::net::grpc::h2::H2Transport;
    let poll = mio::Poll::new().unwrap();
    let end = |bytes: usize| {
        let path = std::path::Path::new("/nonexistent/runtime.sock");
        let transport = H2Transport::connect(path, poll.registry(), mio::Token(0)).unwrap();
        let mut client = CriClient::new(Box::new(transport), config());
        let mut large = pod("{}");
        large.object.metadata.annotations = Some([("a".to_owned(), "x".repeat(bytes))].into());
        client.start(
            OP,
            RuntimeCall::RunSandbox { pod: Rc::new(large), attempt: 0, handler: Box::default(), user_namespace: None },
            TIMEOUT,
            NOW,
        );
        let mut out = Vec::new();
        client.drive(NOW, &mut out);
        let result = out.into_iter().find_map(|event| match event {
            ClientEvent::Done { result, .. } => Some(result),
            _ => None,
        });
        result.expect("an end").unwrap_err()
    };
    let error = end(17 << 20);
    assert!(
        matches!(&error, OpError::Refused(why) if why.contains("container runtimes accept at most 16777216")),
        "{error:?}"
    );
    assert!(!error.may_have_acted());
    let error = end(1 << 10);
    assert!(matches!(&error, OpError::NotSent(why) if why.contains("/nonexistent/runtime.sock")), "{error:?}");
}

#[test]
fn a_task_is_killed_and_deleted_only_on_containerd() {
    let delete = || RuntimeCall::DeleteTask { id: ContainerId::from("c") };
    let mut b = Bench::new(delete());
    assert!(matches!(b.drive(), Some(Err(OpError::Answered { code: Code::Unimplemented, .. }))));
    assert!(b.wire.borrow().sent.is_empty());

    for killed in [Ok(Bytes::new()), Err(CallError::Status { code: 5, message: "process already finished".into() })] {
        let mut b = Bench::new(RuntimeCall::Status);
        b.ok("Version", &proto::VersionResponse { runtime_name: "containerd".into(), ..Default::default() });
        b.ok("Status", &proto::StatusResponse::new());
        b.error("RuntimeConfig", 12);
        b.drive();
        b.client.start(OP, delete(), TIMEOUT, NOW);
        let call = b.wire.borrow().sent[0].1.clone();
        assert_eq!(call.path, "/containerd.services.tasks.v1.Tasks/Kill");
        assert_eq!(call.header, Some(("containerd-namespace", "k8s.io")));
        let kill = proto::containerd::KillRequest::parse_from_bytes(&call.body).unwrap();
        assert_eq!((kill.container_id.as_str(), kill.signal, kill.all), ("c", 9, true));
        b.reply("Kill", killed);
        assert_eq!(b.drive(), None);
        let call = b.wire.borrow().sent[0].1.clone();
        assert_eq!(call.header, Some(("containerd-namespace", "k8s.io")));
        assert_eq!(proto::containerd::DeleteTaskRequest::parse_from_bytes(&call.body).unwrap().container_id, "c");
        b.reply("Delete", Ok(Bytes::new()));
        assert_eq!(b.drive(), Some(Ok(Answer::Ok)));
    }
}

#[test]
fn a_cancelled_operation_ends_once_as_unknown() {
    let mut b = Bench::new(run());
    b.client.cancel(OP);
    assert_eq!(b.wire.borrow().cancelled, [CallId(1)]);
    assert!(is_unknown(b.drive()));
    b.client.cancel(OP);
    assert_eq!(b.drive(), None);

    // The answer of the call that changes the runtime's state arrived before the cancellation, so no call follows and
    // the outcome is unknown.
    let mut b = Bench::new(run());
    b.ok("RunPodSandbox", &proto::RunPodSandboxResponse::new());
    b.client.cancel(OP);
    b.wire.borrow_mut().answers.truncate(1);
    assert!(is_unknown(b.drive()));
    assert!(b.open().is_empty());
}

#[test]
fn a_pod_is_read_in_two_rounds_and_objects_removed_in_between_are_absent() {
    let mut b = Bench::new(RuntimeCall::ReadPod { uid: Uid::from("u") });
    let (id, call) = b.take("ListPodSandbox");
    let request = proto::ListPodSandboxRequest::parse_from_bytes(&call.body).unwrap();
    assert_eq!(request.filter.label_selector[label::POD_UID], "u");
    let list = proto::ListPodSandboxResponse {
        items: vec![proto::PodSandbox { id: "s1".into(), ..Default::default() }],
        ..Default::default()
    };
    let result = Ok(list.write_to_bytes().unwrap().into());
    b.wire.borrow_mut().answers.push(Completion::Done { id, result });
    assert_eq!(b.drive(), None);
    assert_eq!(b.open(), ["ListContainers", "PodSandboxStatus"]);

    let container = |id: &str, state: proto::ContainerState| proto::Container {
        id: id.into(),
        pod_sandbox_id: "s1".into(),
        state: state.into(),
        ..Default::default()
    };
    let (running, exited) = (proto::ContainerState::CONTAINER_RUNNING, proto::ContainerState::CONTAINER_EXITED);
    let containers = vec![container("c1", exited), container("c2", running), container("c3", exited)];
    let list = proto::ListContainersResponse { containers, ..Default::default() };
    b.ok("ListContainers", &list);
    assert_eq!(b.drive(), None);
    assert_eq!(b.open(), ["PodSandboxStatus", "ContainerStatus", "ContainerStatus", "ContainerStatus"]);
    let verbose = |b: &mut Bench| {
        let (id, call) = b.take("ContainerStatus");
        (id, proto::ContainerStatusRequest::parse_from_bytes(&call.body).unwrap().verbose)
    };
    let (c1, v1) = verbose(&mut b);
    let (c2, v2) = verbose(&mut b);
    let (c3, v3) = verbose(&mut b);
    assert_eq!((v1, v2, v3), (false, true, false));
    b.ok("PodSandboxStatus", &sandbox_status("s1"));
    let done = |id, result| b.wire.borrow_mut().answers.push(Completion::Done { id, result });
    done(c1, Ok(container_status("c1", 1, None).write_to_bytes().unwrap().into()));
    done(c2, Ok(container_status("c2", 2, Some(42)).write_to_bytes().unwrap().into()));
    done(c3, Err(CallError::Status { code: 5, message: "gone".into() }));
    let Some(Ok(Answer::Pod(facts))) = b.drive() else { panic!() };
    assert_eq!(facts.sandboxes.len(), 1);
    let seen: Vec<_> = facts.containers.iter().map(|c| (c.id.as_str(), c.sandbox.as_str(), c.pid)).collect();
    assert_eq!(seen, [("c2", "s1", Some(42)), ("c1", "s1", None)]);

    // The PID is known now: the next read is not verbose and returns the stored PID.
    b.client.start(OP, RuntimeCall::ReadPod { uid: Uid::from("u") }, TIMEOUT, NOW);
    b.ok("ListPodSandbox", &proto::ListPodSandboxResponse::new());
    let containers = vec![container("c2", running)];
    b.ok("ListContainers", &proto::ListContainersResponse { containers, ..Default::default() });
    assert_eq!(b.drive(), None);
    let (c2, again) = verbose(&mut b);
    assert!(!again);
    let result = Ok(container_status("c2", 2, None).write_to_bytes().unwrap().into());
    b.wire.borrow_mut().answers.push(Completion::Done { id: c2, result });
    let Some(Ok(Answer::Pod(facts))) = b.drive() else { panic!() };
    assert_eq!(facts.containers[0].pid, Some(42));
}

#[test]
fn a_pod_without_objects_is_read_as_empty() {
    let mut b = Bench::new(RuntimeCall::ReadPod { uid: Uid::from("u") });
    b.ok("ListPodSandbox", &proto::ListPodSandboxResponse::new());
    b.ok("ListContainers", &proto::ListContainersResponse::new());
    assert_eq!(b.drive(), Some(Ok(Answer::Pod(PodFacts::default()))));
}

#[test]
fn a_container_is_started_and_then_read_with_its_pid_and_sandbox() {
    let mut b = Bench::new(RuntimeCall::StartContainer { id: ContainerId::from("c1") });
    b.ok("StartContainer", &proto::StartContainerResponse::new());
    assert_eq!(b.drive(), None);
    b.ok("ContainerStatus", &container_status("c1", 1, Some(99)));
    let Some(Ok(Answer::Container(fact))) = b.drive() else { panic!() };
    assert_eq!((fact.pid, fact.sandbox.as_str()), (Some(99), "s1"));
    assert_eq!(b.called, [("start_container", false), ("container_status", false)]);
}

#[test]
fn a_pull_is_followed_by_an_image_status_call() {
    let credential = Credential { username: "me".into(), password: "hunter2".into(), ..Credential::default() };
    let call = RuntimeCall::PullImage { pod: Rc::new(pod("{}")), image: "x:1".into(), credential: Some(credential) };
    let mut b = Bench::new(call);
    let (id, call) = b.take("PullImage");
    let request = proto::PullImageRequest::parse_from_bytes(&call.body).unwrap();
    let auth = proto::AuthConfig { username: "me".into(), password: "hunter2".into(), ..Default::default() };
    assert_eq!((request.auth.as_ref(), request.image.image.as_str()), (Some(&auth), "x:1"));
    let pulled = proto::PullImageResponse::new().write_to_bytes().unwrap().into();
    b.wire.borrow_mut().answers.push(Completion::Done { id, result: Ok(pulled) });
    assert_eq!(b.drive(), None);
    let (id, call) = b.take("ImageStatus");
    assert_eq!(proto::ImageStatusRequest::parse_from_bytes(&call.body).unwrap().image.image, "x:1");
    let image = proto::Image { id: "sha256:1".into(), username: "www".into(), size: 70, ..Default::default() };
    let answer = proto::ImageStatusResponse { image: MessageField::some(image), ..Default::default() };
    let result = Ok(answer.write_to_bytes().unwrap().into());
    b.wire.borrow_mut().answers.push(Completion::Done { id, result });
    let Some(Ok(Answer::Image(Some(image)))) = b.drive() else { panic!() };
    assert_eq!((image.id.as_str(), image.username.as_str(), image.size), ("sha256:1", "www", 70));
}

#[test]
fn a_grace_period_is_sent_in_whole_seconds_rounded_up() {
    let id = ContainerId::from("c1");
    let mut b = Bench::new(RuntimeCall::StopContainer { id, grace: Duration::from_millis(2100) });
    let (_, call) = b.take("StopContainer");
    assert_eq!(proto::StopContainerRequest::parse_from_bytes(&call.body).unwrap().timeout, 3);
}

#[test]
fn a_pod_that_cannot_be_expressed_ends_without_a_call() {
    let spec = format!(r#"{{"setHostnameAsFQDN":true,"subdomain":"{}"}}"#, "s".repeat(63));
    let mut b = Bench::new(RuntimeCall::RunSandbox {
        pod: Rc::new(pod(&spec)),
        attempt: 0,
        handler: Box::default(),
        user_namespace: None,
    });
    assert_eq!(b.client.next_deadline(), Some(Boot(0)));
    let Some(Err(OpError::Answered { code, message })) = b.drive() else { panic!() };
    assert_eq!(code, Code::InvalidArgument);
    assert!(message.contains("setHostnameAsFQDN"));
    assert!(b.open().is_empty());
    assert_eq!(b.called, [], "an operation without a call is not counted");
}

#[test]
fn the_connections_state_is_passed_on() {
    let mut b = Bench::new(RuntimeCall::List);
    b.wire.borrow_mut().answers.push(Completion::Up);
    b.wire.borrow_mut().answers.push(Completion::Down { why: "gone".into() });
    let mut out = Vec::new();
    b.client.drive(NOW, &mut out);
    assert_eq!(out, [ClientEvent::Up, ClientEvent::Down { why: "gone".into() }]);
}

fn listed(sandboxes: Vec<proto::PodSandbox>, containers: Vec<proto::Container>) -> (Listed, Vec<String>) {
    let mut b = Bench::new(RuntimeCall::List);
    b.ok("ListPodSandbox", &proto::ListPodSandboxResponse { items: sandboxes, ..Default::default() });
    b.ok("ListContainers", &proto::ListContainersResponse { containers, ..Default::default() });
    let Some(Ok(Answer::Listed(listed))) = b.drive() else { panic!() };
    assert_eq!(b.drive(), None);
    (listed, b.invalid)
}

fn of_pod(id: &str, state: i32) -> proto::Container {
    let state = protobuf::EnumOrUnknown::from_i32(state);
    proto::Container { id: id.into(), labels: labels(), state, ..Default::default() }
}

#[test]
fn a_list_of_a_hundred_thousand_containers_is_complete() {
    let containers: Vec<proto::Container> = (0..100_000).map(|n| of_pod(&format!("c{n}"), 1)).collect();
    let (listed, invalid) = listed(Vec::new(), containers);
    assert_eq!(listed.containers.len(), 100_000);
    for (n, container) in listed.containers.iter().enumerate() {
        assert_eq!((container.id.as_str(), container.state), (format!("c{n}").as_str(), ContainerState::Running));
    }
    assert_eq!(invalid, Vec::<String>::new());
}

#[test]
fn invalid_entries_of_a_list_are_reported_in_one_line_and_the_rest_is_used() {
    let odd = vec![of_pod("c1", 1), of_pod("c2", 77), of_pod("", 1), of_pod("c3", -1), of_pod("c4", 2)];
    let (result, invalid) = listed(Vec::new(), odd);
    let found: Vec<_> = result.containers.iter().map(|c| (c.id.as_str(), c.state)).collect();
    use ContainerState::{Exited, Running, Unknown};
    assert_eq!(found, [("c1", Running), ("c2", Unknown), ("c3", Unknown), ("c4", Exited)]);
    assert_eq!(invalid, ["container c2 has the unknown state 77, and 2 more"]);

    let sandbox = |id: &str| proto::PodSandbox { id: id.into(), labels: labels(), ..Default::default() };
    let (result, invalid) = listed(vec![sandbox("s1"), sandbox("s1"), sandbox("s2")], vec![of_pod("c1", 1)]);
    assert_eq!((result.sandboxes.len(), result.containers.len()), (2, 1));
    assert_eq!(invalid, ["a list contains an id twice"]);
}

#[test]
fn an_undecodable_answer_is_unknown_and_reported() {
    for (call, method) in [
        (RuntimeCall::List, "ListContainers"),
        (RuntimeCall::Status, "Version"),
        (RuntimeCall::ReadPod { uid: "u".into() }, "ListPodSandbox"),
        (RuntimeCall::StartContainer { id: "c".into() }, "StartContainer"),
    ] {
        // A length beyond the end, a field with the number 0, and an unknown wire type.
        for bytes in [&b"\x0a\xff\x01x"[..], b"\x00\x00", b"\x0f"] {
            let mut b = Bench::new(call.clone());
            b.reply(method, Ok(Bytes::copy_from_slice(bytes)));
            assert!(is_unknown(b.drive()), "{method} {bytes:?}");
            assert_eq!(b.invalid.len(), 1, "{:?}", b.invalid);
            assert!(b.invalid[0].contains(method) && b.invalid[0].contains("failed to decode"), "{:?}", b.invalid);
        }
    }
    // Unknown fields of a later version are skipped.
    let mut b = Bench::new(RuntimeCall::List);
    b.reply("ListContainers", Ok(Bytes::from_static(b"\x7a\x03new\x78\x05")));
    b.ok("ListPodSandbox", &proto::ListPodSandboxResponse::new());
    assert_eq!(b.drive(), Some(Ok(Answer::Listed(Listed::default()))));
    assert!(b.invalid.is_empty());
}

#[test]
fn a_command_and_a_read_of_the_usage_are_one_call_each() {
    let wire = Rc::new(RefCell::new(Wire::default()));
    let mut client = CriClient::new(Box::new(Scripted(wire.clone())), config());
    let words = vec!["ls".to_owned(), "-l".to_owned()];
    let exec = |id: &str| {
        let (command, timeout) = (Command(words.clone()), Duration::from_millis(1500));
        RuntimeCall::Exec(Box::new(ExecCall {
            pod: Rc::new(pod("{}")),
            container: "main".into(),
            id: id.into(),
            command,
            timeout,
        }))
    };
    client.start(OpId(1), exec("c1"), TIMEOUT, NOW);
    client.start(OpId(2), RuntimeCall::Usage, TIMEOUT, NOW);
    client.start(OpId(3), exec("c3"), TIMEOUT, NOW);
    client.cancel(OpId(3));
    let sent = wire.borrow().sent.clone();
    let paths: Vec<&str> = sent.iter().map(|(_, call)| call.path.rsplit('/').next().unwrap()).collect();
    assert_eq!(paths, ["ExecSync", "ListContainerStats", "ExecSync"]);
    let request = proto::ExecSyncRequest::parse_from_bytes(&sent[0].1.body).unwrap();
    assert_eq!((request.container_id.as_str(), &request.cmd, request.timeout), ("c1", &words, 2));
    assert_eq!(sent[0].1.deadline, Some(NOW + TIMEOUT));
    assert_eq!(wire.borrow().cancelled, [sent[2].0]);

    let executed =
        proto::ExecSyncResponse { stdout: b"o".to_vec(), stderr: b"e".to_vec(), exit_code: 7, ..Default::default() };
    let value = |value| MessageField::some(proto::UInt64Value { value, ..Default::default() });
    let mut stats = proto::ContainerStats::new();
    stats.attributes.mut_or_insert_default().id = "c1".into();
    let cpu = stats.cpu.mut_or_insert_default();
    (cpu.timestamp, cpu.usage_core_nano_seconds) = (5, value(11));
    let memory = stats.memory.mut_or_insert_default();
    (memory.timestamp, memory.working_set_bytes, memory.rss_bytes) = (6, value(0), value(13));
    (memory.usage_bytes, memory.major_page_faults) = (value(14), value(15));
    stats.swap.mut_or_insert_default().swap_usage_bytes = value(16);
    let layer = stats.writable_layer.mut_or_insert_default();
    (layer.used_bytes, layer.inodes_used) = (value(12), value(3));
    // Stats without an id are skipped.
    let usage = proto::ListContainerStatsResponse { stats: vec![stats, Default::default()], ..Default::default() };
    for (id, body) in [(sent[0].0, executed.write_to_bytes()), (sent[1].0, usage.write_to_bytes())] {
        wire.borrow_mut().answers.push(Completion::Done { id, result: Ok(Bytes::from(body.unwrap())) });
    }
    let mut out = Vec::new();
    client.drive(NOW, &mut out);
    client.drive(NOW, &mut out);
    let done = out.into_iter().filter_map(|e| match e {
        ClientEvent::Done { op, result } => Some((op.0, result)),
        _ => None,
    });
    let fact = crate::api::facts::UsageFact {
        id: "c1".into(),
        cpu_at: 5,
        cpu_nanos: Some(11),
        cpu_nano_cores: None,
        memory_at: 6,
        memory_bytes: Some(0),
        memory: crate::api::facts::MemoryFact {
            rss_bytes: Some(13),
            usage_bytes: Some(14),
            major_page_faults: Some(15),
            ..Default::default()
        },
        swap_bytes: Some(16),
        disk_bytes: Some(12),
        disk_inodes: Some(3),
    };
    let output = crate::api::facts::ExecOutput { exit_code: 7, stdout: b"o".to_vec(), stderr: b"e".to_vec() };
    let expected = [
        (3, Err(OpError::Unknown("cancelled".into()))),
        (1, Ok(Answer::Executed(output))),
        (2, Ok(Answer::Usage(vec![fact]))),
    ];
    assert_eq!(done.collect::<Vec<_>>(), expected);
}

#[test]
fn a_list_of_images_contains_their_users_and_the_image_of_the_sandboxes() {
    let wire = Rc::new(RefCell::new(Wire::default()));
    let mut client = CriClient::new(Box::new(Scripted(wire.clone())), config());
    client.start(OpId(1), RuntimeCall::ListImages, TIMEOUT, NOW);
    client.start(OpId(2), RuntimeCall::ImageFs, TIMEOUT, NOW);
    client.start(OpId(3), RuntimeCall::RemoveImage { id: "sha256:1".into() }, TIMEOUT, NOW);
    let sent = wire.borrow().sent.clone();
    let paths: Vec<&str> = sent.iter().map(|(_, call)| call.path.rsplit('/').next().unwrap()).collect();
    assert_eq!(paths, ["ListImages", "ListContainers", "Status", "ImageFsInfo", "RemoveImage"]);
    assert!(proto::StatusRequest::parse_from_bytes(&sent[2].1.body).unwrap().verbose);
    let request = proto::RemoveImageRequest::parse_from_bytes(&sent[4].1.body).unwrap();
    assert_eq!(request.image.image, "sha256:1");

    let image = proto::Image {
        id: "sha256:1".into(),
        repo_tags: vec!["a:1".into()],
        repo_digests: vec!["a@sha256:2".into()],
        size: 7,
        pinned: true,
        ..Default::default()
    };
    let images = proto::ListImagesResponse { images: vec![image], ..Default::default() };
    // A container without the labels of a pod counts too.
    let mut container = proto::Container { image_ref: "sha256:1".into(), ..Default::default() };
    container.image.mut_or_insert_default().image = "a:1".into();
    let containers = proto::ListContainersResponse { containers: vec![container], ..Default::default() };
    let mut status = proto::StatusResponse::new();
    status.info.insert("config".into(), r#"{"sandboxImage": "pause:3", "other": {}}"#.into());
    let mut file_system = proto::FilesystemUsage::new();
    file_system.fs_id.mut_or_insert_default().mountpoint = "/var/lib/containerd".into();
    file_system.used_bytes.mut_or_insert_default().value = 9;
    // A file system without a mount point is skipped.
    let image_filesystems = vec![Default::default(), file_system];
    let file_systems = proto::ImageFsInfoResponse { image_filesystems, ..Default::default() };
    let bodies = [
        images.write_to_bytes(),
        containers.write_to_bytes(),
        status.write_to_bytes(),
        file_systems.write_to_bytes(),
        Ok(Vec::new()),
    ];
    for ((id, _), body) in sent.iter().zip(bodies) {
        wire.borrow_mut().answers.push(Completion::Done { id: *id, result: Ok(Bytes::from(body.unwrap())) });
    }
    let mut out = Vec::new();
    client.drive(NOW, &mut out);
    let done = out.into_iter().filter_map(|e| match e {
        ClientEvent::Done { op, result } => Some((op.0, result)),
        _ => None,
    });
    use crate::api::facts::{ImageFsFact, ImageList, ImageUser, ListedImage};
    let list = ImageList {
        images: vec![ListedImage {
            id: "sha256:1".into(),
            tags: vec!["a:1".into()],
            digests: vec!["a@sha256:2".into()],
            size: 7,
            pinned: true,
        }],
        users: vec![ImageUser { image: "a:1".into(), image_ref: "sha256:1".into(), pod: None }],
        sandbox_image: Some("pause:3".into()),
    };
    let file_system = ImageFsFact { mountpoint: "/var/lib/containerd".into(), used_bytes: 9 };
    let expected = [(1, Ok(Answer::Images(list))), (2, Ok(Answer::ImageFs(vec![file_system]))), (3, Ok(Answer::Ok))];
    assert_eq!(done.collect::<Vec<_>>(), expected);
}

#[test]
fn each_stream_is_one_call_that_returns_a_url() {
    let wire = Rc::new(RefCell::new(Wire::default()));
    let mut client = CriClient::new(Box::new(Scripted(wire.clone())), config());
    let channels = Channels { stdin: true, stdout: true, stderr: false, tty: true };
    let words = vec!["sh".to_owned(), "-i".to_owned()];
    let container = || "main".to_owned();
    let targets = [
        StreamTarget::Exec { container: container(), id: "c1".into(), command: Command(words.clone()), channels },
        StreamTarget::Attach { container: container(), id: "c1".into(), channels },
        StreamTarget::PortForward { sandbox: "s1".into(), ports: vec![80, 443] },
        StreamTarget::PortForward { sandbox: "s1".into(), ports: Vec::new() },
    ];
    for (n, target) in targets.into_iter().enumerate() {
        let call = RuntimeCall::Stream(Box::new(StreamCall { pod: Rc::new(pod("{}")), target }));
        client.start(OpId(n as u64), call, TIMEOUT, NOW);
    }
    let sent = wire.borrow().sent.clone();
    let paths: Vec<&str> = sent.iter().map(|(_, call)| call.path).collect();
    let service = "/runtime.v1.RuntimeService";
    let names = ["Exec", "Attach", "PortForward", "PortForward"];
    assert_eq!(paths, names.map(|name| format!("{service}/{name}")));
    let exec = proto::ExecRequest::parse_from_bytes(&sent[0].1.body).unwrap();
    assert_eq!((exec.container_id.as_str(), exec.cmd), ("c1", words));
    assert_eq!((exec.stdin, exec.stdout, exec.stderr, exec.tty), (true, true, false, true));
    let attach = proto::AttachRequest::parse_from_bytes(&sent[1].1.body).unwrap();
    assert_eq!((attach.stdin, attach.stdout, attach.stderr, attach.tty), (true, true, false, true));
    let forward = proto::PortForwardRequest::parse_from_bytes(&sent[2].1.body).unwrap();
    assert_eq!((forward.pod_sandbox_id.as_str(), forward.port), ("s1", vec![80, 443]));

    // The three answers have the same form. The last one has no URL.
    let url = |url: &str| proto::ExecResponse { url: url.to_owned(), ..Default::default() }.write_to_bytes().unwrap();
    for ((id, _), text) in sent.iter().zip(["http://a", "http://b", "http://c", ""]) {
        wire.borrow_mut().answers.push(Completion::Done { id: *id, result: Ok(Bytes::from(url(text))) });
    }
    let mut out = Vec::new();
    client.drive(NOW, &mut out);
    let done = out.into_iter().filter_map(|e| match e {
        ClientEvent::Done { result, .. } => Some(result),
        _ => None,
    });
    let url = |url: &str| Ok(Answer::StreamUrl(url.to_owned()));
    let none = "/runtime.v1.RuntimeService/PortForward: the runtime's response has no URL".to_owned();
    assert_eq!(
        done.collect::<Vec<_>>(),
        [url("http://a"), url("http://b"), url("http://c"), Err(OpError::Unknown(none))]
    );
}
