//! The files of the manifest directory (D1, D2).

use crate::story::*;
use crate::world::{Damage, World};
use wherry::api::manifest_report::{FileContent, FileReport, ManifestReport};
use wherry::api::names::FullName;
use wherry::api::priority;
use wherry::engine::event::Event;

const WEB: &str = "/m/web.yaml";

/// The containers of all pods, as the runtime shows them.
fn containers(w: &World) -> Vec<String> {
    w.runtime.containers.values().filter(|c| c.runs()).map(|c| c.id.clone()).collect()
}

fn digests(w: &World, path: &str) -> Option<Vec<String>> {
    let digests = w.manifests.recorded_digests(path)?;
    Some(digests.into_iter().map(str::to_owned).collect())
}

#[test]
fn d1_an_empty_directory_is_read_too() {
    let mut w = node();
    assert!(w.engine.checks(w.time().boot).iter().any(|c| c.name == "manifests" && c.result.is_ok()));
    w.run(5);
    w.assert_well();
}

#[test]
fn d1_nothing_starts_or_stops_before_all_files_are_reported() {
    let mut w = node();
    w.file("web", ONE);
    w.run(2);
    let text = w.files[WEB].text.clone();
    w.kill_engine();
    w.manifests_take(60_000_000_000);
    w.start();
    let part = |name: &str, text: &str| {
        let files = vec![FileReport::of_text(name, &format!("/m/{name}"), text)];
        Event::Manifests(ManifestReport { files, more: true, ..ManifestReport::default() })
    };
    w.step(part("other.yaml", &text.replace("web", "other")));
    w.run(3);
    assert!(w.runs("web/main") && !w.runs("other/main"));
    assert!(!w.engine.manifests_are_writable());
    assert!(w.engine.checks(w.time().boot).iter().any(|c| c.name == "manifests" && c.result.is_err()));
    w.step(part("web.yaml", &text));
    w.step(Event::Manifests(ManifestReport::default()));
    w.run(3);
    assert!(w.runs("web/main") && w.runs("other/main"));
}

#[test]
fn d2_a_broken_file_changes_nothing_also_over_a_restart_of_wherry() {
    for damage in Damage::ALL {
        let mut w = node();
        w.file("web", ONE);
        w.file("other", ONE);
        w.run(2);
        let before = containers(&w);
        w.break_file(WEB, damage);
        w.run(5);
        let problems = w.manifest_problems();
        assert!(problems.iter().all(|problem| problem.starts_with(WEB)) && !problems.is_empty(), "{problems:?}");
        w.restart_engine();
        w.run(5);
        assert_eq!(containers(&w), before, "{damage:?}");
        assert_eq!(w.manifest_problems(), problems);
        w.document(WEB, pod(WEB, "web", "", TWO));
        w.run(5);
        assert_eq!(w.shown("web"), "Running one#0:running two#0:running", "{damage:?}");
        assert_eq!(w.manifest_problems(), Vec::<String>::new());
        w.assert_well();
    }
}

#[test]
fn d2_a_new_file_that_is_broken_starts_nothing_until_it_is_corrected() {
    let mut w = node();
    w.kill_engine();
    w.file("web", ONE);
    w.break_file(WEB, Damage::Truncated);
    w.start();
    w.run(5);
    assert_eq!((containers(&w).len(), w.engine.manifest_files()), (0, 1));
    w.repair_file(WEB);
    w.run(2);
    assert!(w.runs("web/main"));
    w.assert_well();
}

/// A writer that is not finished looks like a broken file.
#[test]
fn d2_a_file_that_is_being_written_at_the_start_stops_no_pod() {
    let mut w = node();
    w.file("web", ONE);
    w.run(2);
    let before = containers(&w);
    w.kill_engine();
    w.manifests.written_at_start.insert(WEB.into());
    w.start();
    w.run_ms(500);
    assert_eq!(w.manifest_problems(), Vec::<String>::new(), "it is no error yet");
    w.run(5);
    assert_eq!(containers(&w), before);
    w.assert_well();
}

/// A scan that begins again finds the file a second time.
#[test]
fn d2_a_file_that_is_being_written_does_not_replace_its_record() {
    let mut w = node();
    w.file("web", ONE);
    w.run(2);
    let before = containers(&w);
    let record = w.manifests.recorded(WEB).cloned();
    assert!(record.is_some());
    w.kill_engine();
    w.manifests_take(60_000_000_000);
    w.start();
    let text = w.files[WEB].text.replace("main", "half");
    let unread = FileReport { recorded: record, content: FileContent::NotRead, ..FileReport::removed("web.yaml") };
    let mut half = FileReport::of_text("web.yaml", WEB, &text);
    if let FileContent::Text(text) = &mut half.content {
        text.settled = false;
    }
    for file in [unread, half] {
        let files = vec![file];
        w.step(Event::Manifests(ManifestReport { files, more: true, ..ManifestReport::default() }));
    }
    w.step(Event::Manifests(ManifestReport::default()));
    w.run(5);
    assert_eq!(containers(&w), before);
    assert!(!w.runs("web/half"));
}

#[test]
fn d2_the_pods_of_a_directory_that_cannot_be_read_run_on_over_a_restart() {
    let mut w = node();
    w.file("web", ONE);
    w.file("gone", ONE);
    w.run(2);
    let before = containers(&w);
    assert!(w.engine.manifests_are_writable());
    w.directory_is_away(true);
    assert!(!w.engine.manifests_are_writable());
    w.remove("gone");
    w.run(5);
    w.restart_engine();
    w.run(40);
    assert_eq!(containers(&w), before);
    assert_eq!(w.manifest_problems(), ["/m: cannot be read; the last known pods stay in force"]);
    w.directory_is_away(false);
    w.run(5);
    assert!(w.runs("web/main") && !w.runs("gone/main"));
    assert_eq!(w.manifest_problems(), Vec::<String>::new());
    w.assert_well();
}

#[test]
fn d2_a_renamed_file_is_no_conflict() {
    let mut w = node();
    w.file("web", ONE);
    w.run(2);
    w.rename_file(WEB, "/m/z.yaml");
    w.run(5);
    assert_eq!(w.notices("Conflict").len(), 0);
    assert_eq!(w.shown("web"), "Running main#0:running");
    assert_eq!(w.engine.manifest_files(), 1);
    w.assert_well();
}

#[test]
fn d2_what_is_removed_while_wherry_is_away_has_no_record_any_more() {
    let mut w = node();
    w.file("web", ONE);
    w.run(2);
    assert_eq!(w.manifests.records(), 1);
    w.kill_engine();
    w.remove("web");
    w.start();
    w.run(40);
    assert_eq!((w.manifests.records(), containers(&w).len()), (0, 0));
    w.assert_well();
}

/// The record that the reader found was being removed.
#[test]
fn d2_a_file_that_returns_while_its_record_is_removed_is_recorded_again() {
    let mut w = node();
    w.file("web", ONE);
    w.run(2);
    let recorded = digests(&w, WEB);
    let manifest = w.files[WEB].clone();
    w.disk.delay = 100_000_000;
    w.remove("web");
    w.run_ms(50);
    w.document(WEB, manifest);
    w.run(5);
    assert_eq!(digests(&w, WEB), recorded);
    w.break_file(WEB, Damage::Empty);
    w.restart_engine();
    w.run(40);
    assert!(w.runs("web/main"));
    w.assert_well();
}

#[test]
fn d2_a_version_that_comes_during_the_write_of_the_last_one_is_recorded_too() {
    let mut w = node();
    w.disk.delay = 100_000_000;
    w.file("web", ONE);
    w.run_ms(50);
    w.document(WEB, pod(WEB, "web", "", TWO));
    w.run(5);
    assert_eq!(digests(&w, WEB), Some(vec![w.files[WEB].digest.clone()]));
    w.assert_well();
}

/// The version on the disk is the same, but its class gave it another value.
#[test]
fn a5_a_version_that_returns_is_recorded_with_the_value_that_it_has_now() {
    let mut w = node();
    w.define_class("gold", 5);
    let spec = format!("priorityClassName: gold, {ONE}");
    w.file("web", &spec);
    w.run(2);
    // No other record of a manifest is written in these 20 s.
    w.disk.delay = 20_000_000_000;
    w.file("other", ONE);
    w.disk.delay = 0;
    w.define_class("gold", 6);
    w.file("web", &format!("priorityClassName: gold, {TWO}"));
    w.run(5);
    w.file("web", &spec);
    w.run(30);
    w.define_class("gold", 7);
    for _ in 0..2 {
        assert_eq!(w.priority_of("web"), Some(6));
        let manifest = w.engine.manifest_of(&FullName::new("default", "web")).map(|pod| priority::of(pod.spec()));
        assert_eq!(manifest, Some(6));
        w.restart_engine();
        w.run(5);
    }
    w.assert_well();
}

#[test]
fn d2_records_that_cannot_be_written_are_reported_and_written_after_a_minute() {
    let mut w = node();
    w.disk_full(20_000_000_000);
    let begun = w.clock.now;
    w.file("web", ONE);
    w.run(30);
    assert!(w.runs("web/main"), "no pod waits for the record");
    assert_eq!(w.manifests.records(), 0);
    let problem = "/m: failed to record the last good version: no space left on device";
    assert_eq!(w.manifest_problems(), [problem]);
    w.run(29);
    assert_eq!(w.manifests.records(), 0, "{}", w.clock.now - begun);
    w.run(2);
    assert_eq!((w.manifests.records(), w.manifest_problems()), (1, vec![]));
    w.assert_well();
}

#[test]
fn d2_a_record_is_written_only_when_it_differs() {
    let mut w = node();
    w.file("web", ONE);
    w.run(2);
    w.take_calls();
    let stored = w.manifests.stored;
    w.restart_engine();
    w.run(2);
    // A comment changes no document.
    let commented = Manifest { text: format!("# new\n{}", w.files[WEB].text).into(), ..w.files[WEB].clone() };
    w.document(WEB, commented);
    w.run(2);
    assert_eq!(w.manifests.stored, stored);
    w.document(WEB, pod(WEB, "web", "", TWO));
    w.run(2);
    assert_eq!(w.manifests.stored, stored + 1);
}

#[test]
fn d2_many_records_are_written_a_few_at_a_time() {
    let mut w = node();
    let mut files = w.files.clone();
    for i in 0..40 {
        let (path, name) = (format!("/m/p{i}.yaml"), format!("p{i}"));
        files.insert(path.clone(), pod(&path, &name, "", ONE));
    }
    w.set_files(files);
    w.run(5);
    assert_eq!((w.manifests.records(), w.manifests.stored), (40, 3), "16 records in each write");
}

#[test]
fn d6_a_secret_that_everyone_can_read_is_an_error_if_that_is_configured() {
    let spec = format!(
        "containers: [{{name: main, image: 'busybox:1.35', env: [{{name: A, valueFrom: {{secretKeyRef: {{name: {}, \
         key: k}}}}}}]}}]",
        "login"
    );
    for refuse in [false, true] {
        let mut config = crate::world::config();
        config.fixed.refuse_open_secrets = refuse;
        let mut w = node_with(config);
        w.manifests.open = true;
        w.file("web", &spec);
        w.define_secret("login", "k", "v");
        w.run(5);
        assert_eq!(w.runs("web/main"), !refuse);
        let problems = w.manifest_problems();
        assert_eq!(problems.len(), usize::from(refuse));
        assert!(problems.iter().all(|p| p.contains("every user of this machine can read the file")), "{problems:?}");
    }
}
