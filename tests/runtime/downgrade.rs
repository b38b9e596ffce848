//! An older version of Wherry on the files of a newer one: it works, or refuses before it changes anything.

use super::trouble::identity;
use crate::support::agent::Agent;
use crate::support::yaml::TRAP;
use std::fs;
use std::path::Path;

/// Returns every file below a directory, with its content, and every directory.
fn tree(root: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).expect("a directory").flatten() {
            let is_directory = entry.path().is_dir();
            let content = if is_directory { Vec::new() } else { fs::read(entry.path()).expect("a file") };
            all.push((entry.path().display().to_string(), content));
            left.extend(is_directory.then(|| entry.path()));
        }
    }
    all.sort();
    all
}

#[test]
fn w25_a_downgrade_works_or_refuses_before_it_changes_anything() {
    let mut agent = Agent::start("downgrade");
    agent.apply("web", TRAP);
    agent.wait_running("web");
    let before = identity(&agent, "web");
    let format = agent.root().join("format");
    let ours = format!("{{\"format\":1,\"version\":\"{}\"}}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(fs::read_to_string(&format).expect("the format"), ours);

    // A newer version has written the files in its own format, among them records that this one cannot read.
    agent.kill();
    let record = fs::read_dir(agent.root().join("records/pods")).expect("records").flatten().next().expect("a record");
    let old_record = fs::read_to_string(record.path()).expect("a record");
    fs::write(record.path(), old_record.replacen("\"version\":1", "\"version\":2", 1)).expect("a record");
    fs::write(&format, "{\"format\":2,\"version\":\"9.1.0\",\"note\":\"more\"}\n").expect("the format");
    let files = tree(&agent.root());
    agent.launch();
    assert_eq!(agent.ended(), Some(1));
    let said = agent.log();
    let said = said.lines().filter(|line| line.contains("cannot start: ")).collect::<Vec<_>>();
    let [refusal] = said[..] else { panic!("{said:?}") };
    for part in ["/format: ", "Wherry 9.1.0", "format 2", "nothing was changed", "Install Wherry 9.1.0"] {
        assert!(refusal.contains(part), "{part:?} is not in {refusal}");
    }
    let check = agent.command_of("check").output().expect("wherry check");
    let shown = String::from_utf8_lossy(&check.stdout);
    assert!(check.status.code() == Some(1) && shown.contains("Install Wherry 9.1.0"), "{shown}");
    assert_eq!(tree(&agent.root()), files, "the refusal changes nothing");
    assert!(agent.running("web", "main").is_some(), "the pod keeps running");

    // A newer version that has kept the format.
    fs::write(record.path(), old_record).expect("a record");
    fs::write(&format, "{\"format\":1,\"version\":\"9.1.0\"}\n").expect("the format");
    agent.run();
    agent.wait_running("web");
    assert_eq!(identity(&agent, "web"), before);
    assert_eq!(fs::read_to_string(&format).expect("the format"), ours);
    assert!(agent.log().contains("the files were last written by another version version=9.1.0"));
}
