//! The health check of a gRPC server. The texts are those of a kubelet.

use super::outcome::{ExchangeOutcome, words};
use crate::net::grpc::once::{CallFailure, CallProgress, Once};
use crate::net::grpc::{Call, CallError, health};
use bytes::Bytes;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// gRPC's status codes.
const DEADLINE_EXCEEDED: u32 = 4;
const UNIMPLEMENTED: u32 = 12;
/// The maximum size of an answer, in bytes. An answer has only one field.
const MAX_ANSWER: usize = 16 << 10;

pub(super) struct HealthCheck {
    address: SocketAddr,
    once: Once,
}

impl HealthCheck {
    /// Starts to connect.
    ///
    /// # Errors
    /// The connection failed at once.
    pub(super) fn start(
        address: SocketAddr,
        service: &str,
        user_agent: &'static str,
        registry: &Registry,
        token: Token,
    ) -> Result<HealthCheck, String> {
        let body = health::request(service).map_err(|e| format!("error: health rpc probe failed: {e}"))?;
        let header = Some(("user-agent", user_agent));
        let call = Call { path: health::CHECK, body, deadline: None, server_stream: false, header, most: MAX_ANSWER };
        let stream = connect(address, registry, token).map_err(|e| not_connected(address, &words(&e)))?;
        Ok(HealthCheck { address, once: Once::new(stream, call) })
    }

    pub(super) fn advance(&mut self, registry: &Registry, token: Token) -> ExchangeOutcome {
        match self.once.advance(registry, token) {
            CallProgress::Pending { again } => ExchangeOutcome::Pending { again },
            CallProgress::Done(Ok(answer)) => judge(&answer),
            CallProgress::Done(Err(CallFailure::Connect(e))) => ExchangeOutcome::Failed(not_connected(
                self.address,
                &format!("dial tcp {}: connect: {}", self.address, words(&e)),
            )),
            CallProgress::Done(Err(CallFailure::Call(e))) => ExchangeOutcome::Failed(failed(&e)),
        }
    }

    pub(super) fn timed_out(&self, timeout: Duration) -> String {
        match self.once.is_connected() {
            true => format!("timeout: health rpc did not complete within {timeout:?}"),
            false => {
                let address = self.address;
                format!(
                    "timeout: failed to connect service \"{address}\" within {timeout:?}: context deadline exceeded"
                )
            }
        }
    }
}

fn connect(address: SocketAddr, registry: &Registry, token: Token) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
    Ok(stream)
}

fn not_connected(address: SocketAddr, why: &str) -> String {
    format!("error: failed to connect service at \"{address}\": {why}")
}

fn judge(answer: &Bytes) -> ExchangeOutcome {
    match health::serves(answer) {
        Ok(()) => ExchangeOutcome::Connected,
        Err(Some(status)) => ExchangeOutcome::Failed(format!("service unhealthy (responded with \"{status}\")")),
        Err(None) => ExchangeOutcome::Failed(
            "error: health rpc probe failed: the response is not a HealthCheckResponse".to_owned(),
        ),
    }
}

fn failed(e: &CallError) -> String {
    match e {
        CallError::Status { code: UNIMPLEMENTED, message } => {
            format!("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {message}")
        }
        CallError::Status { code: DEADLINE_EXCEEDED, message } => {
            format!("timeout: health rpc did not complete in time: {message}")
        }
        CallError::Status { code, message } => {
            format!("error: health rpc probe failed: rpc error: code = {} desc = {message}", code_name(*code))
        }
        CallError::NotSent(why) | CallError::Refused(why) | CallError::Unknown(why) => {
            format!("error: health rpc probe failed: {why}")
        }
    }
}

/// Returns Go's name of a gRPC status code.
fn code_name(code: u32) -> &'static str {
    const NAMES: [&str; 17] = [
        "OK",
        "Canceled",
        "Unknown",
        "InvalidArgument",
        "DeadlineExceeded",
        "NotFound",
        "AlreadyExists",
        "PermissionDenied",
        "ResourceExhausted",
        "FailedPrecondition",
        "Aborted",
        "OutOfRange",
        "Unimplemented",
        "Internal",
        "Unavailable",
        "DataLoss",
        "Unauthenticated",
    ];
    usize::try_from(code).ok().and_then(|code| NAMES.get(code)).copied().unwrap_or("Unknown")
}
