//! The systemd credentials of the service: files that systemd writes before it starts the service, in memory that is
//! not swapped.

use crate::api::data_object::MAX_SIZE;
use crate::foreign::{self, Links};
use std::io::Read;
use std::path::PathBuf;

/// The directory of the credentials; None if the service has no credentials.
#[derive(Clone, Debug, Default)]
pub struct ServiceCredentials(Option<PathBuf>);

impl ServiceCredentials {
    /// Returns the credentials in the directory that systemd names in an environment variable, if it is set.
    pub fn of_environment() -> ServiceCredentials {
        let directory = std::env::var_os("CREDENTIALS_DIRECTORY").filter(|directory| !directory.is_empty());
        ServiceCredentials(directory.map(PathBuf::from))
    }

    /// Returns the credentials in this directory.
    pub fn of_directory(directory: PathBuf) -> ServiceCredentials {
        ServiceCredentials(Some(directory))
    }

    /// Returns the value of a credential. A value that is too large for a Secret is cut after one byte more than the
    /// limit.
    ///
    /// # Errors
    /// The reason why there is no value. It does not name the path, because the user has to change the unit instead.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, String> {
        match self.find(name)? {
            Some(value) => Ok(value),
            None if self.0.is_none() => Err("the service has no credentials".to_owned()),
            None => Err("the service has no credential of this name".to_owned()),
        }
    }

    /// Like `read`, but returns None if the service has no such credential.
    ///
    /// # Errors
    /// The reason why the credential cannot be read.
    pub fn find(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        let Some(directory) = &self.0 else { return Ok(None) };
        let failed = |e: std::io::Error| format!("cannot be read: {e}");
        let file = match foreign::open(&directory.join(name), Links::Refuse) {
            Err(refused) if refused.is_missing() => return Ok(None),
            Err(foreign::Refused::Failed(e)) => return Err(failed(e)),
            Err(refused) => return Err(refused.to_string()),
            Ok(file) => file,
        };
        let mut value = Vec::new();
        // One byte more than the limit of a Secret shows that the value is too large.
        file.take(MAX_SIZE as u64 + 1).read_to_end(&mut value).map_err(failed)?;
        Ok(Some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_a_regular_file_in_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("db"), "value\n").unwrap();
        std::fs::write(dir.path().join("large"), vec![b'x'; MAX_SIZE + 10]).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", dir.path().join("link")).unwrap();
        let credentials = ServiceCredentials(Some(dir.path().to_owned()));
        assert_eq!(credentials.read("db"), Ok(b"value\n".to_vec()));
        assert_eq!(credentials.read("large").unwrap().len(), MAX_SIZE + 1);
        assert_eq!(credentials.read("other"), Err("the service has no credential of this name".to_owned()));
        assert!(credentials.read("link").is_err());
        assert_eq!(ServiceCredentials::default().read("db"), Err("the service has no credentials".to_owned()));
    }
}
