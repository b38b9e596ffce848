//! `wherry cordon` and `wherry uncordon` (A10).

use crate::commands::client;
use crate::commands::output::{Failure, shown};
use std::io::Write;
use std::path::Path;

/// Cordons the node (`on`), or ends the cordon. Returns 0.
pub fn run(out: &mut dyn Write, socket: &Path, on: bool) -> Result<u8, Failure> {
    let route = if on { "/cordon" } else { "/uncordon" };
    match client::post_plain(socket, route)? {
        (200, words) => writeln!(out, "{}", shown(words.trim_end()))?,
        (404 | 405, _) => return Err(Failure::message(client::UNSUPPORTED)),
        (_, words) => return Err(Failure::message(words.trim_end().to_owned())),
    }
    out.flush()?;
    Ok(0)
}
