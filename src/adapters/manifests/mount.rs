//! Which mount a directory is on: an empty directory may only look empty because its file system is not mounted
//! yet (D2).

use std::path::{Path, PathBuf};

/// The mount point, as /proc/self/mountinfo has it, of the file system on which `directory` (without symbolic
/// links) is. None if the text names none.
pub(super) fn point_of(mountinfo: &str, directory: &Path) -> Option<PathBuf> {
    let mut found: Option<PathBuf> = None;
    for line in mountinfo.lines() {
        let Some(field) = line.split(' ').nth(4) else { continue };
        let point = PathBuf::from(unescaped(field));
        // Of two mounts on one point the later one covers the other.
        let longer = |old: &PathBuf| point.components().count() >= old.components().count();
        if directory.starts_with(&point) && found.as_ref().is_none_or(longer) {
            found = Some(point);
        }
    }
    found
}

/// Space, tab, newline and backslash are written as octal numbers.
fn unescaped(field: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(field.to_owned(), |text, (code, plain)| text.replace(code, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d2_the_mount_of_a_directory_is_the_longest_that_holds_it() {
        let text = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 22 0:20 / /etc/wherry rw shared:1 - tmpfs tmpfs rw\n\
                    24 22 0:21 / /etc/wherry/man rw - tmpfs tmpfs rw\n25 22 0:22 / /a\\040b rw - tmpfs tmpfs rw\n";
        for (directory, point) in [
            ("/etc/wherry/manifests", "/etc/wherry"),
            ("/etc/wherry/man", "/etc/wherry/man"),
            ("/etc/other", "/"),
            ("/a b/c", "/a b"),
        ] {
            assert_eq!(point_of(text, Path::new(directory)), Some(PathBuf::from(point)));
        }
        assert_eq!(point_of("", Path::new("/")), None);
    }
}
