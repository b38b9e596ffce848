//! `wherry retry`: a rejected pod is tried again (A3).

use crate::commands::client;
use crate::commands::output::{Failure, shown, tell};
use crate::commands::row::text;
use crate::commands::select::Target;
use std::io::Write;
use std::path::Path;

/// 0 if a pod was tried again, whatever came of it, else 1.
pub fn run(out: &mut dyn Write, socket: &Path, target: &Target) -> Result<u8, Failure> {
    let mut pods = client::get_json(socket, "/pods")?;
    let found = target.find(&mut pods).map_err(Failure::message)?;
    let mut refused = Vec::new();
    let mut tried = false;
    // Where one pod replaces another each is asked for: it is not the one that ends that was rejected.
    for pod in &found {
        match client::post_plain(socket, &format!("/retry?uid={}", text(pod, "/metadata/uid")))? {
            (200, words) => {
                tried = true;
                writeln!(out, "{}", shown(&words))?;
            }
            // The agent's own words; those of an older one say nothing.
            (405, _) => return Err(Failure::message("the running wherry is too old for this")),
            (_, words) => refused.push(words),
        }
    }
    out.flush()?;
    if !tried {
        refused.iter().for_each(|words| tell(words));
    }
    Ok(u8::from(!tried))
}
