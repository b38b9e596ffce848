//! The node's docker configuration, `config.json`, with credentials for all pods.

use crate::api::registry_credentials::{Keyring, MAX_BYTES};
use crate::foreign::{self, Links};
use rustix::fs::Mode;
use std::path::{Path, PathBuf};

/// The result of a search.
#[derive(Debug, Default)]
pub struct FoundKeyring {
    /// The credentials. None if there is no valid file.
    pub keyring: Option<Keyring>,
    /// The problems of the files, with their paths. No message contains a credential.
    pub warnings: Vec<String>,
}

/// Returns the paths at which the file is searched for if none is configured. As in a kubelet, the first valid file is
/// used.
pub fn default_paths(root_dir: &Path) -> Vec<PathBuf> {
    vec![root_dir.join("config.json"), "/root/.docker/config.json".into(), "/.docker/config.json".into()]
}

/// Reads the first valid file. A missing file is not a problem.
pub fn read(paths: &[PathBuf]) -> FoundKeyring {
    let mut found = FoundKeyring::default();
    for path in paths {
        match read_one(path, &mut found.warnings) {
            Ok(Some(keyring)) => {
                found.keyring = Some(keyring);
                break;
            }
            Ok(None) => {}
            Err(why) => {
                found.warnings.push(format!("the docker configuration {} has no effect: {why}", path.display()))
            }
        }
    }
    found
}

fn read_one(path: &Path, warnings: &mut Vec<String>) -> Result<Option<Keyring>, String> {
    let text = match foreign::read(path, Links::Follow, MAX_BYTES as u64) {
        Ok(text) => text,
        Err(refused) if refused.is_missing() => return Ok(None),
        Err(refused) => return Err(refused.to_string()),
    };
    let keyring = Keyring::from_docker_config(&text)?;
    if let Ok(stat) = rustix::fs::stat(path)
        && Mode::from_raw_mode(stat.st_mode).contains(Mode::ROTH)
    {
        warnings.push(format!(
            "every user can read the credentials in {}; correct it with: chmod 600 {}",
            path.display(),
            path.display()
        ));
    }
    Ok(Some(keyring))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn write(path: &Path, text: &str, mode: u32) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    const GOOD: &str = r#"{"auths": {"r.io": {"username": "me", "password": "hunter2"}}}"#;

    #[test]
    fn the_first_valid_file_counts_and_a_broken_one_is_reported_without_its_content() {
        let dir = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = ["none", "broken", "good", "other"].map(|name| dir.path().join(name)).into();
        write(&paths[1], r#"{"auths": {"r.io": {"auth": "hunter2"}}}"#, 0o600);
        write(&paths[2], GOOD, 0o600);
        write(&paths[3], "hunter2", 0o600);
        let found = read(&paths);
        assert_eq!(found.keyring.unwrap().lookup("r.io/a").len(), 1);
        assert_eq!(found.warnings.len(), 1);
        let expected = "broken has no effect: auths[r.io].auth: must be the base64 form of user:password";
        assert!(found.warnings[0].ends_with(expected), "{:?}", found.warnings);
        let none = read(&paths[..1]);
        assert!(none.keyring.is_none() && none.warnings.is_empty());
    }

    #[test]
    fn a_file_that_every_user_can_read_counts_and_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.json");
        write(&path, GOOD, 0o644);
        let found = read(std::slice::from_ref(&path));
        assert!(found.keyring.is_some());
        assert!(found.warnings[0].contains("chmod 600"), "{:?}", found.warnings);
        write(&path, GOOD, 0o640);
        assert!(read(&[path]).warnings.is_empty());
    }

    #[test]
    fn a_path_that_is_no_file_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let found = read(&[dir.path().to_owned()]);
        assert!(found.warnings[0].ends_with("has no effect: a directory, not a regular file"), "{:?}", found.warnings);
    }
}
