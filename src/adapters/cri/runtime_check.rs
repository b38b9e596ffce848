//! Queries a container runtime once, for a check outside the agent: Version, a verbose Status and RuntimeConfig in
//! parallel.
//!
//! The verbose status is JSON in a format that the runtime defines. In containerd (1.x and 2.x) it contains the CRI
//! configuration, including values that no call returns before 2.0: the cgroup driver and the paths of the CNI
//! configuration. Unknown parts are ignored.

use super::client::method::{self, Method};
use super::{answers, proto};
use crate::api::cgroups::CgroupDriver;
use crate::api::facts::RuntimeFact;
use crate::api::time::Boot;
use crate::net::grpc::{Call, CallError, CallId, Completion, MAX_MESSAGE, Transport};
use bytes::Bytes;
use protobuf::Message;
use serde_json::Value;
use std::path::PathBuf;

/// The gRPC status code UNIMPLEMENTED.
const UNIMPLEMENTED: u32 = 12;

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeReport {
    pub fact: RuntimeFact,
    /// The cgroup driver of the runtime; None if it is unknown.
    pub driver: Option<CgroupDriver>,
    /// Whether RuntimeConfig returned the driver. If so, the agent uses it regardless of `cgroupDriver`.
    pub driver_counts: bool,
    pub network: Option<Network>,
}

/// The directories in which the runtime searches for the CNI configuration and for CNI plugins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    pub configurations: PathBuf,
    pub programs: Vec<PathBuf>,
}

/// A check in progress. Call `drive` as for a transport. `answer` returns the result once.
pub struct RuntimeCheck {
    transport: Box<dyn Transport>,
    until: Boot,
    calls: Vec<(CallId, Question)>,
    report: RuntimeReport,
    status: Option<proto::StatusResponse>,
    version: Option<proto::VersionResponse>,
    answer: Option<Result<RuntimeReport, String>>,
}

#[derive(Clone, Copy)]
enum Question {
    Version,
    Status,
    Config,
}

impl RuntimeCheck {
    /// Creates a check. `until` is the deadline of all calls.
    pub fn new(transport: Box<dyn Transport>, until: Boot) -> RuntimeCheck {
        RuntimeCheck {
            transport,
            until,
            calls: Vec::new(),
            report: RuntimeReport::default(),
            status: None,
            version: None,
            answer: None,
        }
    }

    /// Reads and writes without blocking. Returns true if the budget was used up.
    pub fn drive(&mut self, now: Boot) -> bool {
        loop {
            let mut completions = Vec::new();
            let again = self.transport.drive(now, &mut completions);
            let mut begun = false;
            for completion in completions {
                match completion {
                    Completion::Up => {
                        self.query(now);
                        begun = true;
                    }
                    Completion::Down { why } => self.end(Err(why)),
                    Completion::Done { id, result } => self.done(id, result),
                    Completion::Message { .. } => {}
                }
            }
            if again || !begun {
                return again;
            }
        }
    }

    pub fn next_deadline(&self) -> Option<Boot> {
        self.transport.next_deadline()
    }

    /// Returns the result if the check has ended. The error is the reason why the runtime did not answer.
    pub fn answer(&mut self) -> Option<Result<RuntimeReport, String>> {
        self.answer.take()
    }

    fn query(&mut self, now: Boot) {
        let verbose = proto::StatusRequest { verbose: true, ..Default::default() };
        self.call(Question::Version, method::VERSION, &proto::VersionRequest::new(), now);
        self.call(Question::Status, method::STATUS, &verbose, now);
        self.call(Question::Config, method::RUNTIME_CONFIG, &proto::RuntimeConfigRequest::new(), now);
    }

    fn call(&mut self, question: Question, method: Method, request: &impl Message, now: Boot) {
        // Encoding a message without required fields cannot fail.
        let body = Bytes::from(request.write_to_bytes().unwrap_or_default());
        let deadline = Some(self.until);
        let call =
            Call { path: method.path, body, deadline, server_stream: false, header: method.header, most: MAX_MESSAGE };
        let id = self.transport.call(call, now);
        self.calls.push((id, question));
    }

    fn done(&mut self, id: CallId, result: Result<Bytes, CallError>) {
        let Some(at) = self.calls.iter().position(|(call, _)| *call == id) else { return };
        let (_, question) = self.calls.swap_remove(at);
        let unreadable = |e: protobuf::Error| format!("failed to decode a response: {e}");
        let taken = match (question, result) {
            (Question::Version, Ok(body)) => {
                proto::VersionResponse::parse_from_bytes(&body).map(|v| self.version = Some(v)).map_err(unreadable)
            }
            (Question::Status, Ok(body)) => {
                proto::StatusResponse::parse_from_bytes(&body).map(|s| self.status = Some(s)).map_err(unreadable)
            }
            (Question::Config, Ok(body)) => proto::RuntimeConfigResponse::parse_from_bytes(&body)
                .map(|config| {
                    self.report.driver = answers::cgroup_driver(&config);
                    self.report.driver_counts = self.report.driver.is_some();
                })
                .map_err(unreadable),
            // Most runtimes do not have this method.
            (Question::Config, Err(CallError::Status { .. })) => Ok(()),
            (_, Err(CallError::Status { code: UNIMPLEMENTED, message })) => {
                Err(format!("it responds, but has no CRI v1 service: {message}"))
            }
            (_, Err(CallError::Status { code, message })) => Err(format!("code {code}: {message}")),
            (_, Err(CallError::NotSent(why) | CallError::Refused(why) | CallError::Unknown(why))) => Err(why),
        };
        if let Err(why) = taken {
            self.end(Err(why));
        } else if self.calls.is_empty()
            && let (Some(version), Some(status)) = (&self.version, &self.status)
        {
            let mut report = std::mem::take(&mut self.report);
            report.fact = answers::runtime(version, status);
            if let Some(info) = status.info.get("config") {
                take_info(info, &mut report);
            }
            self.end(Ok(report));
        }
    }

    /// Stores the result. Only the first result is kept.
    fn end(&mut self, answer: Result<RuntimeReport, String>) {
        self.answer.get_or_insert(answer);
    }
}

/// Takes the cgroup driver and the CNI paths from containerd's CRI configuration.
fn take_info(info: &str, report: &mut RuntimeReport) {
    let Ok(config) = serde_json::from_str::<Value>(info) else { return };
    if report.driver.is_none() {
        let containerd = &config["containerd"];
        let default = containerd["defaultRuntimeName"].as_str().unwrap_or("runc");
        report.driver =
            containerd["runtimes"][default]["options"]["SystemdCgroup"].as_bool().map(|systemd| match systemd {
                true => CgroupDriver::Systemd,
                false => CgroupDriver::Cgroupfs,
            });
    }
    let cni = &config["cni"];
    let one = cni["binDir"].as_str().filter(|d| !d.is_empty());
    let several = cni["binDirs"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let programs: Vec<PathBuf> = several.chain(one).map(PathBuf::from).collect();
    if let Some(configurations) = cni["confDir"].as_str().filter(|d| !d.is_empty() && !programs.is_empty()) {
        report.network = Some(Network { configurations: configurations.into(), programs });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protobuf::MessageField;
    use std::cell::RefCell;
    use std::rc::Rc;

    /// A transport that returns the completions that the test prepares, and records the calls.
    #[derive(Default)]
    struct Desk {
        asked: Vec<&'static str>,
        next: Vec<Completion>,
    }

    struct Scripted(Rc<RefCell<Desk>>);

    impl Transport for Scripted {
        fn call(&mut self, call: Call, _: Boot) -> CallId {
            let mut desk = self.0.borrow_mut();
            assert_eq!(call.deadline, Some(Boot(9)));
            desk.asked.push(call.path);
            CallId(desk.asked.len() as u64 - 1)
        }
        fn cancel(&mut self, _: CallId) {}
        fn drive(&mut self, _: Boot, out: &mut Vec<Completion>) -> bool {
            out.append(&mut self.0.borrow_mut().next);
            false
        }
        fn next_deadline(&self) -> Option<Boot> {
            None
        }
        fn is_up(&self) -> bool {
            true
        }
    }

    fn asked() -> (RuntimeCheck, Rc<RefCell<Desk>>) {
        let desk = Rc::new(RefCell::new(Desk { asked: Vec::new(), next: vec![Completion::Up] }));
        let mut questions = RuntimeCheck::new(Box::new(Scripted(desk.clone())), Boot(9));
        questions.drive(Boot(1));
        assert!(questions.answer().is_none());
        let last: Vec<&str> = desk.borrow().asked.iter().filter_map(|p| p.rsplit('/').next()).collect();
        assert_eq!(last, ["Version", "Status", "RuntimeConfig"]);
        (questions, desk)
    }

    fn status(info: &str) -> proto::StatusResponse {
        let condition =
            |kind: &str, status| proto::RuntimeCondition { type_: kind.into(), status, ..Default::default() };
        let conditions = vec![condition("RuntimeReady", true), condition("NetworkReady", false)];
        proto::StatusResponse {
            status: MessageField::some(proto::RuntimeStatus { conditions, ..Default::default() }),
            info: [("config".to_owned(), info.to_owned())].into_iter().collect(),
            ..Default::default()
        }
    }

    fn answer_with(results: Vec<Result<Bytes, CallError>>) -> Result<RuntimeReport, String> {
        let (mut questions, desk) = asked();
        let done = |(id, result)| Completion::Done { id: CallId(id), result };
        desk.borrow_mut().next = (0..).zip(results).map(done).collect();
        questions.drive(Boot(2));
        questions.answer().expect("an answer")
    }

    fn bytes(message: &impl Message) -> Result<Bytes, CallError> {
        Ok(message.write_to_bytes().unwrap().into())
    }

    fn refused(code: u32) -> Result<Bytes, CallError> {
        Err(CallError::Status { code, message: "unknown service".into() })
    }

    fn version() -> proto::VersionResponse {
        proto::VersionResponse {
            runtime_name: "containerd".into(),
            runtime_version: "1.6".into(),
            ..Default::default()
        }
    }

    #[test]
    fn the_driver_and_the_networks_place_are_taken_from_containerds_words() {
        let info = r#"{"containerd": {"defaultRuntimeName": "crun", "runtimes": {"runc": {"options": {}},
            "crun": {"options": {"SystemdCgroup": true}}}}, "cni": {"binDir": "/b", "confDir": "/c"}}"#;
        let report = answer_with(vec![bytes(&version()), bytes(&status(info)), refused(12)]).unwrap();
        assert_eq!((report.driver, report.driver_counts), (Some(CgroupDriver::Systemd), false));
        assert_eq!(report.network, Some(Network { configurations: "/c".into(), programs: vec!["/b".into()] }));
        assert_eq!((report.fact.name.as_str(), report.fact.runtime_not_ready), ("containerd", None));
        assert!(report.fact.network_not_ready.is_some());

        // RuntimeConfig takes precedence.
        let mut config = proto::RuntimeConfigResponse::new();
        config.linux.mut_or_insert_default().cgroup_driver = proto::CgroupDriver::CGROUPFS.into();
        let report = answer_with(vec![bytes(&version()), bytes(&status(info)), bytes(&config)]).unwrap();
        assert_eq!((report.driver, report.driver_counts), (Some(CgroupDriver::Cgroupfs), true));
    }

    #[test]
    fn unknown_values_in_the_runtime_info_are_ignored() {
        for info in ["", "[]", "{\"cni\": 7, \"containerd\": {\"runtimes\": []}}", "nonsense"] {
            let report = answer_with(vec![bytes(&version()), bytes(&status(info)), refused(12)]).unwrap();
            assert_eq!((report.driver, report.network), (None, None), "{info}");
        }
    }

    #[test]
    fn a_runtime_without_cri_and_one_that_is_lost_are_errors() {
        let why = answer_with(vec![refused(12), refused(12), refused(12)]).unwrap_err();
        assert!(why.contains("has no CRI v1 service"), "{why}");
        let unreadable = Ok(Bytes::from_static(b"\xff\xff"));
        let why = answer_with(vec![bytes(&version()), unreadable, refused(12)]).unwrap_err();
        assert!(why.contains("failed to decode"), "{why}");
        let (mut questions, desk) = asked();
        desk.borrow_mut().next = vec![Completion::Down { why: "gone".into() }];
        questions.drive(Boot(2));
        assert_eq!(questions.answer(), Some(Err("gone".into())));
    }
}
