//! Counts the runs of the server, so that the resource versions of a run are higher than those of all earlier runs.

use super::Authority;

const FILE: &str = "run";

impl Authority {
    /// Returns the number of a new run, starting at 1. If the file is missing or damaged, the count starts again, and
    /// clients with an older resource version must list again.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn next_run(&self) -> Result<u64, String> {
        let last = self.directory.read(FILE)?.and_then(|text| std::str::from_utf8(&text).ok()?.trim().parse().ok());
        let run = last.unwrap_or(0_u64).saturating_add(1);
        self.directory.write(FILE, format!("{run}\n").as_bytes())?;
        Ok(run)
    }
}
