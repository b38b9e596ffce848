//! `wherry debug dump`: everything that the running agent knows, as JSON, for people who look for a mistake in it.

use crate::commands::client;
use crate::commands::output::{Failure, document};
use std::io::Write;
use std::path::Path;

pub fn dump(out: &mut dyn Write, socket: &Path) -> Result<u8, Failure> {
    let value = client::get_json(socket, "/debug/dump")?;
    document(out, &value, false)?;
    Ok(0)
}
