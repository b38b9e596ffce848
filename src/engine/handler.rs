//! Exec handlers of probes and hooks: their calls to the runtime, and the meaning of the results, as in a kubelet.
//!
//! The other handlers (http, tcp, grpc, sleep) do not need the runtime. They are the effects `Probe` and `Hook`, and
//! `Target` is what they need.

use crate::api::expand;
use crate::api::facts::ExecOutput;
use crate::api::k8s::IntOrString;
use crate::api::k8s::{Container, HTTPGetAction};
use crate::api::names::ContainerId;
use crate::engine::control::exec_sync;
use crate::engine::effect::{HookCall, ProbeCall};
use crate::engine::event::{Answer, ProbeResult};
use crate::engine::op::{Code, OpError};
use std::net::IpAddr;
use std::time::Duration;

/// A kubelet reads at most this much of a probe's output, in bytes.
const MAX_PROBE_OUTPUT: usize = 10 << 10;

const NO_ADDRESS: &str =
    "the container runtime reports no address of the pod; if this lasts, delete the pod, so that it gets a new sandbox";

/// The exec handler of a probe or a hook.
#[derive(Clone, Debug, PartialEq)]
pub enum Handler {
    Probe(ProbeCall),
    Hook(Box<HookCall>),
}

/// ExecSync of a handler.
#[derive(Clone, Debug, PartialEq)]
pub struct HandlerCall {
    pub handler: Handler,
    /// The runtime kills a command that runs for longer. CRI has whole seconds.
    pub timeout: Duration,
}

impl Handler {
    /// The destination of a handler that does not need the runtime.
    ///
    /// # Errors
    /// The destination does not exist, or it needs another effect.
    pub fn target(&self) -> Result<Target, String> {
        match self {
            Handler::Probe(call) => call.target(),
            Handler::Hook(call) => call.target(),
        }
    }

    pub fn id(&self) -> &ContainerId {
        match self {
            Handler::Probe(call) => &call.id,
            Handler::Hook(call) => &call.id,
        }
    }

    /// The program and its arguments. A probe's command may refer to variables that have a plain value.
    pub fn command(&self) -> Vec<String> {
        match self {
            Handler::Probe(call) => call.command().unwrap_or_default(),
            Handler::Hook(call) => call.command().unwrap_or_default().to_vec(),
        }
    }
}

/// The handlers that do not need the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Http(HttpTarget),
    /// A TCP connection can be opened.
    Tcp(Destination),
    Grpc(GrpcTarget),
    Sleep(Duration),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpTarget {
    /// `scheme: HTTPS`.
    pub tls: bool,
    pub to: Destination,
    /// The path with the query. Starts with `/`.
    pub path: String,
    pub headers: Vec<(String, String)>,
}

/// The health check of a gRPC server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcTarget {
    pub to: Destination,
    /// Empty for the server as a whole.
    pub service: String,
}

/// The address of a pod, for a handler that names no host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodAddress {
    Own(String),
    /// The pod has the node's network.
    Node,
    /// The runtime reports none. The node's address would be that of another service.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// An IP address or a name. None: the node itself, because the pod has the node's network.
    pub host: Option<String>,
    pub port: u16,
    /// The address of a name, or the reason why there is none.
    pub looked_up: Option<Result<IpAddr, String>>,
}

impl Target {
    /// The name that has to be looked up before the handler starts. (A gRPC probe has no host.)
    pub fn name(&self) -> Option<&str> {
        let to = match self {
            Target::Http(http) => &http.to,
            Target::Tcp(to) => to,
            Target::Grpc(_) | Target::Sleep(_) => return None,
        };
        to.host.as_deref().filter(|host| *host != "localhost" && host.parse::<IpAddr>().is_err())
    }

    /// The name has this address. The error is the reason why there is none.
    pub fn set_address(&mut self, address: Result<IpAddr, String>) {
        match self {
            Target::Http(http) => http.to.looked_up = Some(address),
            Target::Tcp(to) => to.looked_up = Some(address),
            Target::Grpc(_) | Target::Sleep(_) => {}
        }
    }
}

impl Destination {
    /// # Errors
    /// The container has no port of this name, the number is not a port, or the pod's address is unknown.
    fn new(
        host: Option<&String>,
        port: &IntOrString,
        container: &Container,
        pod: &PodAddress,
    ) -> Result<Destination, String> {
        let number = match port {
            IntOrString::Int(number) => Some(*number),
            IntOrString::String(text) => text.parse().ok().or_else(|| {
                let mut ports = container.ports.iter().flatten();
                ports.find(|port| port.name.as_deref() == Some(text)).map(|port| port.container_port)
            }),
        };
        let number = number.and_then(|n| u16::try_from(n).ok()).filter(|n| *n > 0);
        let Some(port) = number else { return Err(format!("couldn't find port: {port:?}")) };
        let host = match (host.filter(|host| !host.is_empty()), pod) {
            (Some(host), _) | (None, PodAddress::Own(host)) => Some(host.clone()),
            (None, PodAddress::Node) => None,
            (None, PodAddress::Unknown) => return Err(NO_ADDRESS.to_owned()),
        };
        Ok(Destination { host, port, looked_up: None })
    }
}

impl HttpTarget {
    fn new(get: &HTTPGetAction, container: &Container, pod: &PodAddress) -> Result<HttpTarget, String> {
        let to = Destination::new(get.host.as_ref(), &get.port, container, pod)?;
        let path = get.path.as_deref().unwrap_or_default();
        let slash = if path.starts_with('/') { "" } else { "/" };
        let headers = get.http_headers.iter().flatten().map(|h| (h.name.clone(), h.value.clone())).collect();
        let tls = get.scheme.as_deref() == Some("HTTPS");
        Ok(HttpTarget { tls, to, path: format!("{slash}{path}"), headers })
    }
}

impl ProbeCall {
    /// # Errors
    /// The destination does not exist, or it needs another effect.
    pub fn target(&self) -> Result<Target, String> {
        let none = || "the probe has no handler".to_owned();
        let container = self.pod.container(&self.container).ok_or_else(none)?;
        let probe = self.kind.spec(container).ok_or_else(none)?;
        if let Some(get) = &probe.http_get {
            return HttpTarget::new(get, container, &self.address).map(Target::Http);
        }
        if let Some(grpc) = &probe.grpc {
            let to = Destination::new(None, &IntOrString::Int(grpc.port), container, &self.address)?;
            return Ok(Target::Grpc(GrpcTarget { to, service: grpc.service.clone().unwrap_or_default() }));
        }
        let tcp = probe.tcp_socket.as_ref().ok_or_else(none)?;
        Destination::new(tcp.host.as_ref(), &tcp.port, container, &self.address).map(Target::Tcp)
    }
}

impl HookCall {
    /// # Errors
    /// As for `ProbeCall::target`.
    pub fn target(&self) -> Result<Target, String> {
        if let Some(sleep) = &self.handler.sleep {
            return Ok(Target::Sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0))));
        }
        // An orphan has no spec, so a named port is unknown (W21).
        let unknown = Container::default();
        let container = self.pod.as_ref().and_then(|pod| pod.container(&self.container)).unwrap_or(&unknown);
        if let Some(get) = &self.handler.http_get {
            return HttpTarget::new(get, container, &self.address).map(Target::Http);
        }
        let tcp = self.handler.tcp_socket.as_ref().ok_or_else(|| "the hook has no handler".to_owned())?;
        Destination::new(tcp.host.as_ref(), &tcp.port, container, &self.address).map(Target::Tcp)
    }
}

impl ProbeCall {
    /// The expanded command of an exec handler; None for another handler.
    pub fn command(&self) -> Option<Vec<String>> {
        let container = self.pod.container(&self.container)?;
        let exec = self.kind.spec(container)?.exec.as_ref()?;
        Some(expand::static_command(exec.command.as_deref().unwrap_or_default(), container))
    }
}

impl HookCall {
    /// The command of an exec handler; None for another handler.
    pub fn command(&self) -> Option<&[String]> {
        self.handler.exec.as_ref().map(|exec| exec.command.as_deref().unwrap_or_default())
    }
}

/// The result of a probe. `command`: of an exec handler. An error is not a result of the probe.
pub fn probed(command: Option<&[String]>, result: Result<Answer, OpError>) -> Result<ProbeResult, OpError> {
    match (exec_sync::judged(result), command) {
        (Ok(Answer::Probe(result)), _) => Ok(result),
        (Ok(Answer::Executed(output)), _) if output.exit_code == 0 => Ok(ProbeResult::Passed),
        (Ok(Answer::Executed(output)), _) => Ok(ProbeResult::Failed(text(&output, MAX_PROBE_OUTPUT))),
        (Err(e), Some(command)) if e.is_timeout() => {
            Ok(ProbeResult::Failed(format!("command {:?} timed out", command.join(" "))))
        }
        (Err(e), _) => Err(e),
        (Ok(_), _) => Err(OpError::Unknown("the answer is of another call".to_owned())),
    }
}

/// The result of a hook. `command`: of an exec handler.
///
/// # Errors
/// The hook failed. The message is the kubelet's.
pub fn hooked(command: Option<&[String]>, result: Result<Answer, OpError>) -> Result<(), OpError> {
    let Some(command) = command else { return result.map(drop) };
    let failed = |why: String, output: &str| OpError::Answered {
        code: Code::Other(2),
        message: format!("{why}, message: {output:?}"),
    };
    match exec_sync::judged(result) {
        Ok(Answer::Executed(output)) if output.exit_code != 0 => {
            let stderr = String::from_utf8_lossy(&output.stderr);
            let why = format!("command '{}' exited with {}: {stderr}", command.join(" "), output.exit_code);
            Err(failed(why, &text(&output, usize::MAX)))
        }
        Ok(_) => Ok(()),
        Err(OpError::Answered { message, .. }) => Err(failed(message, "")),
        Err(e) => Err(e),
    }
}

/// stdout, then stderr.
fn text(output: &ExecOutput, longest: usize) -> String {
    let bytes: Vec<u8> = output.stdout.iter().chain(&output.stderr).take(longest).copied().collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_has_the_pods_address_and_a_port_by_number_or_name() {
        let container: Container = serde_json::from_value(serde_json::json!({
            "name": "main", "ports": [{"name": "web", "containerPort": 8080}]
        }))
        .unwrap();
        let own = PodAddress::Own("10.0.0.5".to_owned());
        let to = |host: Option<&str>, port: IntOrString, pod: &PodAddress| {
            Destination::new(host.map(str::to_owned).as_ref(), &port, &container, pod)
        };
        let at = |host: Option<&str>, port| Ok(Destination { host: host.map(str::to_owned), port, looked_up: None });
        let named = |name: &str| IntOrString::String(name.to_owned());
        assert_eq!(to(None, IntOrString::Int(80), &own), at(Some("10.0.0.5"), 80));
        assert_eq!(to(Some("127.0.0.1"), named("web"), &own), at(Some("127.0.0.1"), 8080));
        assert_eq!(to(Some(""), named("81"), &PodAddress::Node), at(None, 81));
        assert_eq!(to(Some("db"), named("81"), &PodAddress::Unknown), at(Some("db"), 81));
        assert!(to(Some(""), named("81"), &PodAddress::Unknown).is_err_and(|why| why.contains("no address")));
        for port in [named("nosuch"), IntOrString::Int(0), IntOrString::Int(65_536)] {
            assert!(to(None, port, &own).is_err());
        }
    }

    fn executed(exit_code: i32, stdout: &str, stderr: &str) -> Result<Answer, OpError> {
        Ok(Answer::Executed(ExecOutput { exit_code, stdout: stdout.into(), stderr: stderr.into() }))
    }

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_probe_passes_with_exit_code_0_and_fails_with_its_output() {
        let command = words("cat /tmp/ok");
        let judge = |result| probed(Some(&command), result);
        assert_eq!(judge(executed(0, "fine", "")), Ok(ProbeResult::Passed));
        assert_eq!(judge(executed(1, "out", "err")), Ok(ProbeResult::Failed("outerr".into())));
        let long = "x".repeat(MAX_PROBE_OUTPUT + 1);
        assert_eq!(judge(executed(1, &long, "err")), Ok(ProbeResult::Failed(long[1..].into())));
    }

    #[test]
    fn a_command_that_exceeds_its_time_fails_and_an_error_is_no_result() {
        let command = words("sleep 9");
        let late = OpError::Answered { code: Code::Other(4), message: "timeout 1s exceeded".into() };
        let timed_out = ProbeResult::Failed("command \"sleep 9\" timed out".into());
        assert_eq!(probed(Some(&command), Err(late.clone())), Ok(timed_out.clone()));
        // CRI-O.
        assert_eq!(probed(Some(&command), executed(-1, "", "command timed out")), Ok(timed_out));
        assert_eq!(probed(None, Err(late.clone())), Err(late));
        let lost = OpError::Unknown("connection reset".into());
        assert_eq!(probed(Some(&command), Err(lost.clone())), Err(lost));
    }

    #[test]
    fn a_hooks_error_has_the_command_its_exit_code_and_its_output() {
        let command = words("sh -c x");
        let failed = hooked(Some(&command), executed(9, "bad\n", ""));
        let message = failed.map_err(|e| e.message().to_owned());
        assert_eq!(message, Err("command 'sh -c x' exited with 9: , message: \"bad\\n\"".to_owned()));
        assert_eq!(hooked(Some(&command), executed(0, "x", "y")), Ok(()));
        assert_eq!(hooked(None, Ok(Answer::Ok)), Ok(()));
    }
}
