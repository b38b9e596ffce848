//! Errors and warnings in a configuration, with their location.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The origin of a setting: a file and a line (0 for the whole file), or the command line (no file).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub file: Option<Arc<Path>>,
    pub line: u64,
}

impl Place {
    pub fn file(path: &Path) -> Place {
        Place { file: Some(Arc::from(path)), line: 0 }
    }

    pub fn flag() -> Place {
        Place { file: None, line: 0 }
    }

    pub fn line(&self, line: u64) -> Place {
        Place { file: self.file.clone(), line }
    }
}

/// Writes `file:line`.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line) {
            (None, _) => f.write_str("the command line"),
            (Some(file), 0) => write!(f, "{}", file.display()),
            (Some(file), line) => write!(f, "{}:{line}", file.display()),
        }
    }
}

/// One error or warning. Shown as `file:line: field: message`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub place: Place,
    /// The path of the field (`logging.verbosity`), or the flag. Empty for the whole document.
    pub field: String,
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.file.is_some() {
            write!(f, "{}: ", self.place)?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}

/// All problems found so far. Reading continues after an error, so that all problems are reported at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Problems {
    pub errors: Vec<Problem>,
    pub warnings: Vec<Problem>,
}

impl Problems {
    pub fn error(&mut self, place: &Place, field: impl Into<String>, message: impl Into<String>) {
        self.errors.push(Problem { place: place.clone(), field: field.into(), message: message.into() });
    }

    pub fn warning(&mut self, place: &Place, field: impl Into<String>, message: impl Into<String>) {
        self.warnings.push(Problem { place: place.clone(), field: field.into(), message: message.into() });
    }
}

/// Parses an absolute path. A relative path is an error, because it would depend on the working directory of the
/// service.
pub fn absolute(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { Err(format!("{text:?} is not an absolute path")) }
}
