//! The files that a copy leaves out.

use crate::commands::output::print_message;
use crate::commands::screen::shorten;

/// Maximum number of warnings that are printed.
pub(super) const MAX_WARNINGS: usize = 20;
/// Maximum length of a warning, in characters. An archive can have names of a megabyte.
const MAX_WARNING: usize = 500;

/// Counts the files that were not copied, and prints the reasons.
#[derive(Debug, Default)]
pub struct Skipped {
    pub(super) count: usize,
}

impl Skipped {
    /// Counts a file, and prints why it was not copied.
    pub(super) fn warn(&mut self, what: &str) {
        self.count += 1;
        if self.count <= MAX_WARNINGS {
            print_message(&shorten(what, MAX_WARNING));
        }
    }
}
