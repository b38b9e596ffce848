//! Parses the two paths of a copy.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

/// An argument of the command.
#[derive(Debug, PartialEq, Eq)]
pub enum Side<'a> {
    Local(&'a Path),
    Remote { pod: &'a str, path: &'a str },
}

impl Side<'_> {
    pub fn parse(text: &str) -> Side<'_> {
        // The name of a pod cannot start like this.
        let is_path = text.starts_with(['/', '.', '~']);
        match text.split_once(':') {
            Some((pod, path)) if !is_path => Side::Remote { pod, path },
            _ => Side::Local(Path::new(text)),
        }
    }
}

/// A path in a container, for `tar -C DIRECTORY ./NAME`.
#[derive(Debug, PartialEq, Eq)]
pub struct Remote {
    directory: String,
    /// The name in the directory. None for the directory itself.
    name: Option<String>,
}

impl Remote {
    /// Splits a path in a container into a directory and a name in it.
    ///
    /// # Errors
    /// The path is empty.
    pub fn parse(path: &str) -> Result<Remote, String> {
        if path.is_empty() {
            return Err("the path in the container is missing; write POD:PATH".to_owned());
        }
        let trimmed = path.trim_end_matches('/');
        let (directory, name) = match trimmed.rsplit_once('/') {
            Some(("", name)) => ("/", name),
            Some((directory, name)) => (directory, name),
            None if trimmed.is_empty() => ("/", ""),
            None => (".", trimmed),
        };
        if matches!(name, "" | "." | "..") {
            let directory = if trimmed.is_empty() { "/" } else { trimmed };
            return Ok(Remote { directory: directory.to_owned(), name: None });
        }
        Ok(Remote { directory: directory.to_owned(), name: Some(name.to_owned()) })
    }

    /// Returns the path of `name` in the directory `path`. An empty `path` is the working directory of the container.
    ///
    /// # Errors
    /// The name is not UTF-8.
    pub fn inside(path: &str, name: &OsStr) -> Result<Remote, String> {
        let name = name.to_str().ok_or_else(|| format!("the name {name:?} is not UTF-8"))?;
        let directory = if path.is_empty() { "." } else { path };
        Ok(Remote { directory: directory.to_owned(), name: Some(name.to_owned()) })
    }

    pub fn directory(&self) -> &str {
        &self.directory
    }

    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the argument for tar. It starts with `./`, so it cannot look like an option.
    pub fn entry(&self) -> String {
        format!("./{}", self.name.as_deref().unwrap_or("."))
    }
}

/// Returns the name of a local file or directory, even for a path such as `.`.
///
/// # Errors
/// The path does not exist, or has no name.
pub fn local_name(path: &Path) -> io::Result<std::ffi::OsString> {
    match path.file_name() {
        Some(name) => Ok(name.to_owned()),
        None => {
            let full = path.canonicalize()?;
            full.file_name().map(OsStr::to_owned).ok_or_else(|| io::Error::other("the root directory has no name"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_separates_a_pod_from_a_path() {
        let remote = |pod, path| Side::Remote { pod, path };
        assert_eq!(Side::parse("web:/tmp/a:b"), remote("web", "/tmp/a:b"));
        assert_eq!(Side::parse("shop/web:x"), remote("shop/web", "x"));
        assert_eq!(Side::parse("web:"), remote("web", ""));
        for local in ["x", "/a:b", "./web:x", "../web:x", "~/web:x", "dir/file"] {
            assert_eq!(Side::parse(local), Side::Local(Path::new(local)));
        }
    }

    #[test]
    fn a_path_in_a_container_is_a_directory_and_a_name() {
        for (path, directory, entry) in [
            ("/etc/passwd", "/etc", "./passwd"),
            ("/etc", "/", "./etc"),
            ("/etc/", "/", "./etc"),
            ("/", "/", "./."),
            ("log/app", "log", "./app"),
            ("-rf", ".", "./-rf"),
            ("/a/.", "/a/.", "./."),
            ("..", "..", "./."),
        ] {
            let remote = Remote::parse(path).unwrap();
            assert_eq!((remote.directory(), remote.entry().as_str()), (directory, entry), "{path}");
        }
        assert!(Remote::parse("").is_err());
        let inside = Remote::inside("/tmp/", OsStr::new("x")).unwrap();
        assert_eq!((inside.directory(), inside.name()), ("/tmp/", Some("x")));
    }
}
