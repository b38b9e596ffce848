//! Requests the client certificate of the node with a bootstrap token, and waits until it is approved and signed.

use super::discovery::NEW_TOKEN;
use crate::adapters::api_server::Blocking;
use crate::adapters::identity::IdentityDirectory;
use crate::api::cluster::certificate::{Purpose, SigningProgress, SigningRequest, progress};
use crate::api::cluster::request::{ApiError, ApiResponse};
use crate::api::cluster::requests::{self, Signer};
use crate::api::cluster::status::{Failure as Cause, Refusal};
use crate::commands::output::{Failure, print_message};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(20);
/// The interval at which the request is polled.
const PAUSE: Duration = Duration::from_millis(500);
/// The time after which the user is told that the request is waiting. An automatic approval takes less time.
const QUIET: Duration = Duration::from_secs(2);

/// Why there is no certificate.
#[derive(Debug)]
pub(super) enum Failed {
    /// The request waits for approval. The key is kept for the next join.
    Pending(String),
    Other(String),
}

impl From<String> for Failed {
    fn from(why: String) -> Failed {
        Failed::Other(why)
    }
}

impl Failed {
    pub(super) fn into_failure(self) -> Failure {
        let (Failed::Pending(why) | Failed::Other(why)) = self;
        Failure::message(why)
    }
}

enum ServerAnswer {
    Done(ApiResponse),
    Refused(Refusal),
    /// There was no response, or the server cannot handle the request now.
    Later(String),
}

fn call(api: &mut Blocking, request: crate::api::cluster::request::ApiRequest) -> ServerAnswer {
    match api.call(request, TIMEOUT) {
        Ok(answered) => match Refusal::of(&answered.response) {
            None => ServerAnswer::Done(answered.response),
            Some(refusal) => match refusal.failure {
                Cause::Unavailable { .. } | Cause::TooManyRequests { .. } => ServerAnswer::Later(refusal.to_string()),
                _ => ServerAnswer::Refused(refusal),
            },
        },
        Err(ApiError::NotSent(why) | ApiError::Unknown(why) | ApiError::TooLarge(why)) => ServerAnswer::Later(why),
    }
}

/// Requests the certificate and waits for it. Returns the certificate chain in PEM.
///
/// # Errors
/// The request was refused, denied, or not approved in time.
pub(super) fn get(
    api: &mut Blocking,
    directory: &IdentityDirectory,
    node: &str,
    timeout: Duration,
) -> Result<String, Failed> {
    let request = directory.request(node, &Purpose::Client).map_err(Failed::Other)?;
    let name = request.name.clone();
    let (begin, mut printed, mut made) = (Instant::now(), false, false);
    let mut trouble = None;
    loop {
        let answer = if made {
            call(api, requests::read_csr(&name))
        } else {
            call(api, requests::create_csr(&name, &request.request, Signer::Client))
        };
        match answer {
            ServerAnswer::Done(response) => {
                trouble = None;
                made = true;
                match progress(&response).map_err(|why| Failed::Other(format!("{}: {why}", api.url())))? {
                    SigningProgress::Issued(chain) => return Ok(chain),
                    SigningProgress::Refused(why) => return Err(refused(directory, &request, &why)),
                    SigningProgress::Pending => {}
                }
            }
            // An earlier attempt has created the request.
            ServerAnswer::Refused(refusal) if !made && refusal.failure == Cause::AlreadyExists => {
                made = true;
                continue;
            }
            // The request was removed, so it is created again.
            ServerAnswer::Refused(refusal) if made && refusal.failure == Cause::NotFound => made = false,
            ServerAnswer::Refused(refusal) => return Err(Failed::Other(forbidden(&refusal))),
            ServerAnswer::Later(why) => {
                if trouble.is_none() {
                    print_message(&format!("the API server does not respond: {why}; trying again"));
                }
                trouble = Some(why);
            }
        }
        let waited = begin.elapsed();
        if waited >= timeout {
            return Err(too_late(trouble, &name, timeout));
        }
        if made && !printed && waited >= QUIET {
            printed = true;
            print_message(&format!(
                "waiting up to {} s for the approval of the certificate request; to approve it: kubectl certificate \
                 approve {name}",
                timeout.as_secs()
            ));
        }
        std::thread::sleep(PAUSE.min(timeout.saturating_sub(waited)));
    }
}

/// Returns the error for a timeout. `trouble`: why the last request to the API server has failed.
fn too_late(trouble: Option<String>, name: &str, timeout: Duration) -> Failed {
    let seconds = timeout.as_secs();
    Failed::Pending(match trouble {
        Some(why) => format!("no certificate within {seconds} s: {why}; run wherry join again"),
        None => format!(
            "the certificate request was not approved within {seconds} s; approve it (kubectl certificate approve \
             {name}), then run wherry join again: it continues with the same request"
        ),
    })
}

/// Removes the key, so that the next join creates another request. Returns the error.
fn refused(directory: &IdentityDirectory, request: &SigningRequest, why: &str) -> Failed {
    let forgotten = directory.forget_key(Signer::Client).err().map(|e| format!("; {e}")).unwrap_or_default();
    Failed::Other(format!(
        "the certificate request {} was {why}; run wherry join again for a new request{forgotten}",
        request.name
    ))
}

fn forbidden(refusal: &Refusal) -> String {
    match refusal.failure {
        Cause::Unauthorized => {
            format!("the API server does not accept the token ({refusal}): it has expired or was removed; {NEW_TOKEN}")
        }
        Cause::Forbidden => format!(
            "the token may not request a certificate ({refusal}); bind the ClusterRole system:node-bootstrapper to its \
             group"
        ),
        _ => format!("the API server refuses the certificate request: {refusal}"),
    }
}
