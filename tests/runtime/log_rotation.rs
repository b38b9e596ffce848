//! The rotation of the logs of real containers (L1 to L3).

use crate::looking::Going;
use crate::support::agent::{Agent, patience, uid};
use flate2::read::MultiGzDecoder;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Rotates as often as a kubelet permits.
const SMALL: &str = "containerLogMaxSize: 20Ki\ncontainerLogMaxFiles: 4\ncontainerLogMonitorInterval: 3s\n";

/// Writes numbered lines all the time.
const NUMBERS: &str = "
    terminationGracePeriodSeconds: 1
    containers:
    - name: main
      image: localhost/busybox:1.35
      command: [sh, -c, 'trap \"exit 0\" TERM; i=0; while :; do i=$((i+1)); echo line $i; usleep 1000; done']
";

/// The files of the log, the oldest first.
fn files(log: &Path) -> Vec<PathBuf> {
    let directory = log.parent().expect("a directory");
    let mut all: Vec<PathBuf> = fs::read_dir(directory).expect("logs").map(|e| e.expect("entry").path()).collect();
    // The current file has the shortest name and comes first.
    all.sort();
    if all.first().is_some_and(|first| first == log) {
        all.rotate_left(1);
    }
    all
}

fn text(path: &Path) -> String {
    let mut text = String::new();
    let mut file = File::open(path).expect("open");
    match path.extension().is_some_and(|e| e == "gz") {
        true => MultiGzDecoder::new(file).read_to_string(&mut text).expect("gzip"),
        false => file.read_to_string(&mut text).expect("read"),
    };
    text
}

/// The numbers in all files, in order.
fn numbers(log: &Path) -> Vec<u64> {
    let all = files(log);
    // A kill during a compression leaves an incomplete copy, or the file of a complete one.
    let is_left = |path: &&PathBuf| {
        let copy = PathBuf::from(format!("{}.gz", path.display()));
        path.extension().is_some_and(|e| e == "tmp") || all.contains(&copy)
    };
    let text: String = all.iter().filter(|path| !is_left(path)).map(|path| text(path)).collect();
    let number = |line: &str| line.rsplit_once(" line ")?.1.parse().ok();
    text.lines().filter_map(number).collect()
}

/// No line is missing between the oldest and the newest one.
fn assert_contiguous(numbers: &[u64]) {
    let gap = numbers.windows(2).find(|pair| pair[1] != pair[0] + 1);
    assert_eq!(gap, None, "{} lines", numbers.len());
}

#[test]
fn l2_no_line_is_lost_in_rotations_and_a_kill() {
    let mut agent = Agent::prepare("rotation", &crate::support::lab::Runtime::shared());
    agent.configure(SMALL);
    agent.run();
    agent.apply("numbers", NUMBERS);
    let pod = agent.wait_running("numbers");
    let log = agent.log_path(&pod, "main", 0);
    // Between two rotations: the current file, one that is not compressed, and older ones that are.
    let is_compressed = |path: &PathBuf| path.extension().is_some_and(|e| e == "gz");
    let all = agent.wait_for("compressed files", |_| {
        let mut all = files(&log);
        all.reverse();
        let [current, newest, older @ ..] = all.as_slice() else { return None };
        let at_rest = *current == log && !is_compressed(newest) && older.iter().all(is_compressed);
        (at_rest && older.len() >= 2).then_some(all)
    });
    assert_eq!(all.len(), 4, "{all:?}");
    // A link of the log collectors leads to the current file.
    let link = fs::read_dir(agent.dir.join("log/containers")).expect("links").next().expect("a link").expect("a link");
    assert_eq!(fs::read_link(link.path()).expect("a link"), log);

    // L3: killed at any point of a rotation.
    for ms in [0, 1500, 3000, 3050] {
        std::thread::sleep(std::time::Duration::from_millis(ms));
        agent.kill();
        agent.run();
    }
    let sizes = || files(&log).len();
    agent.wait("the log exists", |_| log.exists());
    let before = fs::read_to_string(&log).map(|t| t.len()).unwrap_or(0);
    agent.wait("it is written", |_| fs::metadata(&log).is_ok_and(|m| m.len() != before as u64));
    assert!(sizes() <= 4, "{:?}", files(&log));
    // (A rotation must not happen while the files are read.)
    agent.kill();
    let found = numbers(&log);
    assert!(found.len() > 500, "{} lines", found.len());
    assert_contiguous(&found);
    agent.run();
    agent.delete("numbers");
    agent.wait_gone("numbers");
    agent.wait("the logs are removed", |_| !log.parent().is_some_and(Path::exists));
}

#[test]
fn l3_a_log_that_an_interrupted_rotation_left_without_its_name_is_opened_again() {
    let mut agent = Agent::prepare("reopen", &crate::support::lab::Runtime::shared());
    agent.configure(SMALL);
    agent.run();
    agent.apply("numbers", NUMBERS);
    let pod = agent.wait_running("numbers");
    let log = agent.log_path(&pod, "main", 0);
    agent.wait("some lines", |_| fs::metadata(&log).is_ok_and(|m| m.len() > 2000));
    agent.kill();
    let rotated = log.with_file_name("0.log.20260101-000000");
    fs::rename(&log, &rotated).expect("rename");
    agent.run();
    agent.wait("the log is there again", |_| fs::metadata(&log).is_ok_and(|m| m.len() > 2000));
    agent.kill();
    assert_contiguous(&numbers(&log));
}

#[test]
fn l1_a_container_that_writes_little_keeps_its_log_and_a_busy_one_delays_nothing() {
    let mut agent = Agent::prepare("quiet", &crate::support::lab::Runtime::shared());
    agent.configure(SMALL);
    agent.run();
    agent.apply("numbers", NUMBERS);
    agent.apply(
        "quiet",
        "
    terminationGracePeriodSeconds: 1
    containers:
    - name: main
      image: localhost/busybox:1.35
      command: [sh, -c, 'trap \"exit 0\" TERM; echo once; while :; do sleep 0.2; done']
",
    );
    let [pod, quiet] = ["numbers", "quiet"].map(|name| agent.wait_running(name));
    let busy = agent.log_path(&pod, "main", 0);
    let mut follower = Going::start(&agent, &["logs", "-f", &format!("{}/numbers", agent.namespace)]);
    agent.wait("rotations", |_| files(&busy).len() > 2);
    let last = numbers(&busy).last().copied().expect("a line");
    // The follower has printed each line once.
    follower.wait("a line after the rotations", |line| line == format!("line {}", last + 1));
    let printed: Vec<u64> = follower.seen.iter().filter_map(|line| line.strip_prefix("line ")?.parse().ok()).collect();
    assert_eq!(printed[0], 1);
    assert_contiguous(&printed);
    let began = Instant::now();
    assert!(agent.get("/readyz").is_ok() && began.elapsed() < patience(10));
    assert_eq!(files(&agent.log_path(&quiet, "main", 0)).len(), 1);
    assert_eq!(uid(&agent.pod("quiet").expect("the pod")), uid(&quiet));
    assert!(agent.metric("kubelet_runtime_operations_total{operation_type=\"reopen_container_log\"}") >= 1.0);
}
