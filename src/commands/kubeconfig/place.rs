//! Decides where a kubeconfig is written and who owns the file. Only the owner can read the file, because it contains
//! a key.
//!
//! Under sudo, the user is the one who called sudo: `--merge` selects the kubeconfig of that user, and a new file
//! below that user's home directory belongs to that user. An existing file keeps its owner.

use super::document;
use crate::config::yaml::{self, MapEntry};
use crate::foreign::{self, Links};
use rustix::fs::{Mode, OFlags};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

/// The mode of the file.
const MODE: u32 = 0o600;
/// The mode of `~/.kube`, if it has to be created.
const DIRECTORY_MODE: u32 = 0o700;

/// The user for whom the command runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    pub name: String,
    /// The user and group that must own a new file. Set only under sudo.
    owner: Option<(u32, u32)>,
    home: Option<PathBuf>,
    /// The first file of $KUBECONFIG.
    kubeconfig: Option<PathBuf>,
}

impl Caller {
    /// Determines the user from the environment and /etc/passwd.
    pub(super) fn current() -> Caller {
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        Caller::from(&|name| std::env::var_os(name), rustix::process::geteuid().as_raw(), &passwd)
    }

    /// Like `current`, with the given variables and passwd file. `uid` is the effective user.
    fn from(variable: &dyn Fn(&str) -> Option<OsString>, uid: u32, passwd: &str) -> Caller {
        let set = |name: &str| variable(name).filter(|v| !v.is_empty());
        let number = |name: &str| set(name)?.to_str()?.parse::<u32>().ok();
        let kubeconfig =
            set("KUBECONFIG").and_then(|list| std::env::split_paths(&list).find(|p| !p.as_os_str().is_empty()));
        // sudo counts only if it switched to root. Otherwise the variables are left over from an earlier sudo and
        // have no effect.
        let sudo = number("SUDO_UID").zip(number("SUDO_GID")).filter(|_| uid == 0);
        let user = sudo.map_or(uid, |(uid, _)| uid);
        let account = Account::find(passwd, user);
        let home = match sudo {
            Some(_) => set("SUDO_HOME").map(PathBuf::from).or_else(|| account.as_ref().map(|a| a.home.clone())),
            None => set("HOME").map(PathBuf::from).or_else(|| account.as_ref().map(|a| a.home.clone())),
        };
        let named = sudo.and_then(|_| set("SUDO_USER")).and_then(|n| n.into_string().ok());
        Caller {
            name: named.or_else(|| account.map(|a| a.name)).unwrap_or_else(|| format!("uid {user}")),
            owner: sudo,
            home: home.filter(|h| h.is_absolute()),
            kubeconfig,
        }
    }

    /// Returns the file that `--merge` changes.
    pub(super) fn kubeconfig(&self) -> Result<PathBuf, String> {
        let of_home = || self.home.as_ref().map(|home| home.join(".kube/config"));
        self.kubeconfig
            .clone()
            .or_else(of_home)
            .ok_or_else(|| format!("cannot determine the home directory of {}; name the file: --merge FILE", self.name))
    }

    /// Returns the owner of a new file in `directory`, if that is not the effective user.
    fn owner_in(&self, directory: &Path) -> Option<(u32, u32)> {
        let home = fs::canonicalize(self.home.as_ref()?).ok()?;
        self.owner.filter(|_| fs::canonicalize(directory).is_ok_and(|d| d.starts_with(home)))
    }
}

/// The destination of a kubeconfig.
#[derive(Debug)]
pub(super) enum KubeconfigTarget {
    Stdout,
    Replace(PathBuf),
    Merge(PathBuf),
}

impl KubeconfigTarget {
    /// Returns the entries of the existing file, to which the new ones are added.
    ///
    /// # Errors
    /// The file cannot be read, or is not a kubeconfig; in that case the message names the line.
    pub(super) fn existing(&self) -> Result<Vec<MapEntry>, String> {
        let KubeconfigTarget::Merge(path) = self else { return Ok(Vec::new()) };
        let bytes = match foreign::read(path, Links::Follow, yaml::MAX_BYTES) {
            Ok(bytes) => bytes,
            Err(e) if e.is_missing() => return Ok(Vec::new()),
            Err(e) => return Err(format!("cannot read {}: {e}", path.display())),
        };
        let text = String::from_utf8(bytes).map_err(|_| self.named("not UTF-8 text"))?;
        document::parse(&text).map_err(|e| self.named(&e))
    }

    /// Formats an error in the content of the file.
    pub(super) fn named(&self, error: &str) -> String {
        match self {
            KubeconfigTarget::Stdout => error.to_owned(),
            KubeconfigTarget::Replace(path) => format!("{}: {error}", path.display()),
            KubeconfigTarget::Merge(path) => {
                format!(
                    "{}: {error}; the file is unchanged: correct it, or use --output with another file",
                    path.display()
                )
            }
        }
    }

    /// Writes the file durably and atomically. Returns its path, or None for stdout, which the caller writes to.
    ///
    /// # Errors
    /// The file cannot be written. It keeps its old content.
    pub(super) fn write(&self, text: &str, caller: &Caller) -> Result<Option<&Path>, String> {
        let path = match self {
            KubeconfigTarget::Stdout => return Ok(None),
            KubeconfigTarget::Replace(path) | KubeconfigTarget::Merge(path) => path,
        };
        let failed = |e: &dyn std::fmt::Display| format!("failed to write {}: {e}", path.display());
        // Write to the target of a link, so that the link stays.
        let (real, existing) = match fs::metadata(path) {
            Ok(metadata) if metadata.is_file() => {
                let real = fs::canonicalize(path).map_err(|e| failed(&e))?;
                (real, Some((metadata.uid(), metadata.gid())))
            }
            Ok(_) => {
                return Err(failed(&"it is not a regular file; without --output the kubeconfig goes to stdout"));
            }
            Err(e) if e.kind() == ErrorKind::NotFound => (path.clone(), None),
            Err(e) => return Err(failed(&e)),
        };
        let directory = match real.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        make_kube_directory(directory, caller).map_err(|e| failed(&e))?;
        let owner = existing.or_else(|| caller.owner_in(directory));
        replace(&real, directory, text, owner).map_err(|e| match e.kind() {
            ErrorKind::NotFound => failed(&format!("the directory {} does not exist; create it", directory.display())),
            _ => failed(&e),
        })?;
        Ok(Some(path))
    }
}

/// Creates the directory if it is a missing `.kube`. Other directories are not created, because the path may be
/// misspelt.
fn make_kube_directory(directory: &Path, caller: &Caller) -> io::Result<()> {
    let Some(parent) = directory.parent().filter(|_| directory.ends_with(".kube") && !directory.exists()) else {
        return Ok(());
    };
    DirBuilder::new().mode(DIRECTORY_MODE).create(directory)?;
    if let Some((uid, gid)) = caller.owner_in(parent) {
        // Change the owner of the opened directory, not of its path: the user may have replaced the directory with a
        // link meanwhile.
        let opened =
            rustix::fs::open(directory, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        fchown(&opened, Some(uid), Some(gid))?;
    }
    Ok(())
}

/// Writes a temporary file and renames it. The temporary file must not exist before, so that a link planted in
/// another user's directory has no effect.
fn replace(path: &Path, directory: &Path, text: &str, owner: Option<(u32, u32)>) -> io::Result<()> {
    let name = path.file_name().ok_or(ErrorKind::InvalidInput)?.to_string_lossy();
    let aside = directory.join(format!(".{name}.{}.new", std::process::id()));
    // Left by an earlier process with the same id, which was killed.
    let _ = fs::remove_file(&aside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&aside)?;
    let written = give(&file, owner)
        .and_then(|()| file.write_all(text.as_bytes()))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&aside, path));
    if written.is_err() {
        let _ = fs::remove_file(&aside);
    }
    written?;
    File::open(directory)?.sync_all()
}

/// Gives a file to an owner. Does nothing unless run by root; other users own the file anyway.
fn give(file: &File, owner: Option<(u32, u32)>) -> io::Result<()> {
    let Some((uid, gid)) = owner else { return Ok(()) };
    let metadata = file.metadata()?;
    if (metadata.uid(), metadata.gid()) == (uid, gid) || !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    fchown(file, Some(uid), Some(gid))
}

/// An entry of /etc/passwd.
struct Account {
    name: String,
    home: PathBuf,
}

impl Account {
    fn find(passwd: &str, uid: u32) -> Option<Account> {
        passwd.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            match fields.as_slice() {
                [name, _, id, _, _, home, ..] if id.parse() == Ok(uid) => {
                    Some(Account { name: (*name).to_owned(), home: PathBuf::from(home) })
                }
                _ => None,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nbroken\nann:x:1000:1001:Ann,,,:/home/ann:/bin/sh\n";

    fn caller(variables: &[(&str, &str)], uid: u32) -> Caller {
        let variable = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v));
        Caller::from(&variable, uid, PASSWD)
    }

    #[test]
    fn the_caller_is_the_user_of_sudo() {
        let sudo = [("SUDO_UID", "1000"), ("SUDO_GID", "1001"), ("SUDO_USER", "ann"), ("HOME", "/root")];
        let ann = caller(&sudo, 0);
        assert_eq!((ann.name.as_str(), ann.owner), ("ann", Some((1000, 1001))));
        assert_eq!(ann.kubeconfig().unwrap(), Path::new("/home/ann/.kube/config"));
        let root = caller(&[("HOME", "/root")], 0);
        assert_eq!((root.name.as_str(), root.owner), ("root", None));
        assert_eq!(root.kubeconfig().unwrap(), Path::new("/root/.kube/config"));
        // For a user who is not root, the variables are left over from an earlier sudo.
        assert_eq!(caller(&sudo, 1000), Caller { owner: None, home: Some("/root".into()), ..ann });
        // A user from a directory service, who is not in /etc/passwd.
        let remote = [("SUDO_UID", "5000"), ("SUDO_GID", "5000"), ("SUDO_USER", "bob")];
        let error = caller(&remote, 0).kubeconfig().unwrap_err();
        assert!(error.contains("home directory of bob") && error.contains("--merge FILE"), "{error}");
        assert_eq!(caller(&[remote[0], remote[1]], 0).name, "uid 5000");
        let listed = caller(&[remote[0], remote[1], ("KUBECONFIG", ":/a/b:/c")], 0);
        assert_eq!(listed.kubeconfig().unwrap(), Path::new("/a/b"));
        assert_eq!(caller(&[("HOME", "relative")], 7).home, None);
    }

    fn at(home: &Path, owner: Option<(u32, u32)>) -> Caller {
        let home = Some(home.to_owned());
        Caller { name: "ann".into(), owner, home, kubeconfig: None }
    }

    /// Returns the mode, owner and group of a file.
    fn state(path: &Path) -> (u32, u32, u32) {
        let metadata = fs::symlink_metadata(path).unwrap();
        (metadata.permissions().mode() & 0o7777, metadata.uid(), metadata.gid())
    }

    #[test]
    fn a_file_is_private_and_a_link_to_it_stays() {
        let dir = tempfile::tempdir().unwrap();
        let own = state(dir.path());
        let [file, link] = ["file", "link"].map(|n| dir.path().join(n));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        symlink("file", &link).unwrap();
        let caller = at(dir.path(), None);
        assert_eq!(KubeconfigTarget::Replace(link.clone()).write("new", &caller), Ok(Some(link.as_path())));
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(state(&file), (0o600, own.1, own.2));
        assert!(link.is_symlink());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "no temporary file");
        let error = KubeconfigTarget::Replace("/dev/null".into()).write("new", &caller).unwrap_err();
        assert!(error.contains("is not a regular file") && error.contains("stdout"), "{error}");
        assert!(KubeconfigTarget::Replace(dir.path().to_owned()).write("new", &caller).is_err());
        let error = KubeconfigTarget::Merge(dir.path().join("a/b")).write("new", &caller).unwrap_err();
        assert!(error.contains("a does not exist; create it"), "{error}");
        assert_eq!(KubeconfigTarget::Stdout.write("new", &caller), Ok(None));
    }

    #[test]
    fn under_sudo_new_files_below_the_home_belong_to_the_user_and_others_keep_their_owner() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("ann");
        fs::create_dir(&home).unwrap();
        let caller = at(&home, Some((1000, 1001)));
        let config = caller.kubeconfig().unwrap();
        KubeconfigTarget::Merge(config.clone()).write("x", &caller).unwrap();
        assert_eq!(state(&config), (0o600, 1000, 1001));
        assert_eq!(state(&home.join(".kube")), (0o700, 1000, 1001));
        let outside = dir.path().join("outside");
        KubeconfigTarget::Replace(outside.clone()).write("x", &caller).unwrap();
        assert_eq!(state(&outside), (0o600, 0, 0));
        fs::rename(&outside, home.join("of-root")).unwrap();
        KubeconfigTarget::Replace(home.join("of-root")).write("y", &caller).unwrap();
        assert_eq!(state(&home.join("of-root")), (0o600, 0, 0));
        // A file of the user stays the user's, even without sudo.
        KubeconfigTarget::Merge(config.clone()).write("y", &at(&home, None)).unwrap();
        assert_eq!(state(&config), (0o600, 1000, 1001));
        // A link in the home directory that leads out of it.
        symlink(dir.path(), home.join("link")).unwrap();
        KubeconfigTarget::Replace(home.join("link/new")).write("x", &caller).unwrap();
        assert_eq!(state(&dir.path().join("new")), (0o600, 0, 0));
    }
}
