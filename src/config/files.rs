//! Finds and reads the configuration files.

use crate::api::ordered::OrderSlice;
use crate::config::flags::{DEFAULT_DIR, DEFAULT_FILE, Flags};
use crate::config::problem::{Place, Problems};
use crate::config::yaml;
use crate::foreign::{self, Links, Refused};
use std::io;
use std::path::{Path, PathBuf};

/// The path and the text of a file.
pub(super) struct Text {
    pub path: PathBuf,
    pub text: String,
}

/// Reads the main file, then the drop-ins in the order of their names. Default paths are optional; paths in flags are
/// not.
pub(super) fn read_all(flags: &Flags, problems: &mut Problems) -> Vec<Text> {
    let file = flags.config.clone().unwrap_or_else(|| DEFAULT_FILE.into());
    let mut paths = Vec::new();
    if flags.config.is_some() || file.exists() {
        paths.push(file);
    }
    match &flags.config_dir {
        Some(dir) if dir.as_os_str().is_empty() => {}
        dir => paths.extend(drop_ins(dir.as_deref(), problems)),
    }
    let mut texts = Vec::new();
    for path in paths {
        match read_file(&path) {
            Ok(text) => texts.push(Text { path, text }),
            Err(e) => problems.error(&Place::file(&path), "", format!("cannot be read: {e}")),
        }
    }
    texts
}

fn drop_ins(given: Option<&Path>, problems: &mut Problems) -> Vec<PathBuf> {
    let dir = given.unwrap_or(Path::new(DEFAULT_DIR));
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound && given.is_none() => return Vec::new(),
        Err(e) => {
            problems.error(&Place::file(dir), "", format!("cannot be read: {e}"));
            return Vec::new();
        }
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = match entry {
            Ok(entry) => entry.path(),
            Err(e) => {
                problems.error(&Place::file(dir), "", format!("cannot be read: {e}"));
                break;
            }
        };
        let hidden = path.file_name().is_none_or(|n| n.as_encoded_bytes().starts_with(b"."));
        match path.extension().and_then(|e| e.to_str()) {
            _ if hidden => {}
            Some("yaml" | "conf") => paths.push(path),
            Some("yml" | "json") => {
                problems.warning(&Place::file(&path), "", "is not read; the name must end in .yaml or .conf")
            }
            _ => {}
        }
    }
    paths.order();
    paths
}

/// Reads a regular file of at most `yaml::MAX_BYTES`. Other types of files are not opened.
pub fn read_file(path: &Path) -> io::Result<String> {
    let bytes = foreign::read(path, Links::Follow, yaml::MAX_BYTES).map_err(|e| match e {
        Refused::Failed(e) => e,
        Refused::Kind(kind) => io::Error::other(format!("it is not a regular file, but {}", foreign::name_of(kind))),
        Refused::Size { .. } => io::Error::other("it is larger than 1 MiB"),
    })?;
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))
}
