//! `wherry retry`: retries the admission of a rejected pod (A3).

use crate::api::kube::pod_row::text;
use crate::commands::client;
use crate::commands::output::{Failure, print_message, shown};
use crate::commands::select::PodTarget;
use std::io::Write;
use std::path::Path;

/// Returns 0 if a pod was retried, regardless of the outcome, otherwise 1.
pub fn run(out: &mut dyn Write, socket: &Path, target: &PodTarget) -> Result<u8, Failure> {
    let mut pods = client::get_json(socket, "/pods")?;
    let found = target.find(&mut pods).map_err(Failure::message)?;
    let mut refused = Vec::new();
    let mut tried = false;
    // If a pod is being replaced, try both pods: the old pod is not rejected, so only the new pod can be retried.
    for pod in &found {
        match client::post_plain(socket, &format!("/retry?uid={}", text(pod, "/metadata/uid")))? {
            (200, words) => {
                tried = true;
                writeln!(out, "{}", shown(&words))?;
            }
            // An agent without this route responds with 405.
            (405, _) => return Err(Failure::message(client::UNSUPPORTED)),
            (_, words) => refused.push(words),
        }
    }
    out.flush()?;
    if !tried {
        refused.iter().for_each(|words| print_message(words));
    }
    Ok(u8::from(!tried))
}
