//! Which files are the configuration, and their text.

use crate::config::problem::{Place, Problems};
use crate::config::{DEFAULT_DIR, DEFAULT_FILE, Flags, Text, yaml};
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file and then the drop-ins, sorted by name. The defaults may be missing, what a flag names may not.
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
                problems.warning(&Place::file(&path), "", "is not read: its name ends in neither .yaml nor .conf")
            }
            _ => {}
        }
    }
    paths.sort();
    paths
}

/// A regular file of at most `yaml::MAX_BYTES`. Does not wait for a FIFO's writer.
pub fn read_file(path: &Path) -> io::Result<String> {
    let flags = (OFlags::NONBLOCK | OFlags::CLOEXEC).bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    file.take(yaml::MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > yaml::MAX_BYTES {
        return Err(io::Error::other("it is larger than 1 MiB"));
    }
    Ok(text)
}
