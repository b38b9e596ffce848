use super::*;
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::Read;

struct Log(tempfile::TempDir);

impl Log {
    fn new(files: &[&str]) -> Log {
        let log = Log(tempfile::tempdir().unwrap());
        for name in files {
            log.write(name);
        }
        log
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file whose content is its name.
    fn write(&self, name: &str) {
        fs::write(self.path(name), name).unwrap();
    }

    fn names(&self) -> Vec<String> {
        let mut all: Vec<String> =
            fs::read_dir(self.0.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        all.sort();
        all
    }

    fn rotate(&self, max_files: usize, now: &str) -> Result<PathBuf, String> {
        rotate(&self.path("0.log"), max_files, now.parse().unwrap())
    }

    fn unpacked(&self, name: &str) -> String {
        let mut text = String::new();
        MultiGzDecoder::new(File::open(self.path(name)).unwrap()).read_to_string(&mut text).unwrap();
        text
    }
}

#[test]
fn older_files_are_compressed_and_the_newest_is_not() {
    let log = Log::new(&["0.log"]);
    fs::set_permissions(log.path("0.log"), fs::Permissions::from_mode(0o640)).unwrap();
    let first = log.rotate(5, "2026-11-20T15:00:00Z").unwrap();
    assert_eq!(first, log.path("0.log.20261120-150000"));
    assert_eq!(log.names(), ["0.log.20261120-150000"]);
    log.write("0.log");
    log.rotate(5, "2026-11-20T16:00:00Z").unwrap();
    assert_eq!(log.names(), ["0.log.20261120-150000.gz", "0.log.20261120-160000"]);
    assert_eq!(log.unpacked("0.log.20261120-150000.gz"), "0.log");
    let mode = fs::metadata(log.path("0.log.20261120-150000.gz")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o640);
}

#[test]
fn no_more_files_than_the_maximum_remain_with_the_new_log() {
    for max in 2..6 {
        let log = Log::new(&[]);
        for hour in 10..20 {
            log.write("0.log");
            log.rotate(max, &format!("2026-11-20T{hour}:00:00Z")).unwrap();
        }
        log.write("0.log");
        let names = log.names();
        assert_eq!(names.len(), max, "{names:?}");
        let oldest = format!("0.log.20261120-{}0000", 21 - max);
        assert!(names[1].starts_with(&oldest), "{names:?} {oldest}");
    }
}

#[test]
fn remains_of_a_killed_run_are_removed_and_no_other_file() {
    let log = Log::new(&["0.log", "0.log.20261120-100000", "0.log.20261120-110000", "0.log.20261120-110000.tmp"]);
    for name in ["10.log", "1.log.20261120-100000", "0.logs", "0.log.20261120-120000"] {
        log.write(name);
    }
    // The copy was complete, but its original was not yet removed.
    compress(&log.path("0.log.20261120-100000")).unwrap();
    log.write("0.log.20261120-100000");
    log.rotate(9, "2026-11-20T15:00:00Z").unwrap();
    let expected = [
        "0.log.20261120-100000.gz",
        "0.log.20261120-110000.gz",
        "0.log.20261120-120000.gz",
        "0.log.20261120-150000",
        "0.logs",
        "1.log.20261120-100000",
        "10.log",
    ];
    assert_eq!(log.names(), expected);
    assert_eq!(log.unpacked("0.log.20261120-110000.gz"), "0.log.20261120-110000");
}

#[test]
fn a_clock_that_was_set_back_keeps_the_order() {
    let log = Log::new(&["0.log", "0.log.20261120-235959"]);
    let path = log.rotate(5, "1970-01-01T00:00:10Z").unwrap();
    assert_eq!(path, log.path("0.log.20261121-000000"));
    log.write("0.log");
    assert_eq!(log.rotate(5, "2026-11-21T00:00:00Z").unwrap(), log.path("0.log.20261121-000001"));
}

#[test]
fn undo_never_replaces_a_log_that_the_runtime_has_reopened() {
    let log = Log::new(&["0.log"]);
    let current = log.path("0.log");
    let rotated = log.rotate(2, "2026-11-20T15:00:00Z").unwrap();
    assert_eq!(size(&current), Ok(None));
    undo(&current, &rotated).unwrap();
    assert_eq!((log.names(), size(&current)), (vec!["0.log".to_owned()], Ok(Some(5))));
    let rotated = log.rotate(2, "2026-11-20T15:00:00Z").unwrap();
    fs::write(&current, "new").unwrap();
    undo(&current, &rotated).unwrap();
    assert_eq!(log.names(), ["0.log", "0.log.20261120-150000"]);
    assert_eq!(fs::read_to_string(&current).unwrap(), "new");
    assert!(rename(&rotated, &current).unwrap_err().contains("File exists"));
}

#[test]
fn an_error_leaves_the_log_and_no_partial_copy() {
    let log = Log::new(&["0.log"]);
    // A directory is in the place of a rotated file.
    fs::create_dir(log.path("0.log.20261120-100000")).unwrap();
    let error = log.rotate(5, "2026-11-20T15:00:00Z").unwrap_err();
    assert!(error.contains("0.log.20261120-100000"), "{error}");
    assert_eq!(log.names(), ["0.log", "0.log.20261120-100000"]);
    // A link is not followed.
    fs::remove_dir(log.path("0.log.20261120-100000")).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", log.path("0.log.20261120-100000")).unwrap();
    assert!(log.rotate(5, "2026-11-20T15:00:00Z").is_err());
    assert_eq!(log.names(), ["0.log", "0.log.20261120-100000"]);
    assert!(rotate(&log.path("none/0.log"), 5, Timestamp::UNIX_EPOCH).unwrap_err().contains("none"));
}
