//! Pods with the same name or UID (D4).

use crate::story::*;
use crate::world::World;

#[test]
fn d4_of_two_documents_with_one_name_the_first_by_path_wins() {
    let mut w = node();
    let mut files = w.files.clone();
    files.insert("/m/b.yaml".into(), pod("/m/b.yaml", "web", "", TWO));
    files.insert("/m/a.yaml".into(), pod("/m/a.yaml", "web", "", ONE));
    w.set_files(files);
    w.run(2);
    assert_eq!(w.shown("web"), "Running main#0:running");
    assert_eq!(w.engine.conflicts().len(), 1);
    assert_eq!(w.engine.conflicts()[0].source.path, "/m/b.yaml");
    assert_eq!(w.notices("Conflict").len(), 1);
    // The first pod is removed: the second one takes the name.
    let mut files = w.files.clone();
    files.remove("/m/a.yaml");
    w.set_files(files);
    w.run(3);
    assert_eq!(w.shown("web"), "Running one#0:running two#0:running");
    assert!(w.engine.conflicts().is_empty());
    w.assert_well();
}

#[test]
fn d4_the_one_that_runs_wins_over_a_restart_of_wherry_too() {
    let mut w = node();
    w.document("/m/b.yaml", pod("/m/b.yaml", "web", "", TWO));
    w.run(2);
    w.take_calls();
    w.document("/m/a.yaml", pod("/m/a.yaml", "web", "", ONE));
    w.run(3);
    w.restart_engine();
    w.run(3);
    assert_eq!(w.shown("web"), "Running one#0:running two#0:running");
    assert_eq!(w.take_calls(), Vec::<String>::new());
}

/// The copy sorts before the original, and has the spec from before the edit.
#[test]
fn d4_a_copy_of_a_manifest_never_takes_over() {
    for uid in ["", "of-its-own"] {
        for restart in [false, true] {
            let mut w = node();
            w.document("/m/web.yaml", pod("/m/web.yaml", "web", uid, ONE));
            w.run(2);
            w.document("/m/a-copy.yaml", pod("/m/a-copy.yaml", "web", uid, ONE));
            w.run(2);
            if restart {
                w.kill_engine();
            }
            // The edit takes the fixed UID away too.
            w.document("/m/web.yaml", pod("/m/web.yaml", "web", "", TWO));
            if restart {
                w.start();
            }
            w.run(5);
            assert_eq!(w.shown("web"), "Running one#0:running two#0:running", "uid {uid:?}, restart {restart}");
            assert_eq!(w.engine.conflicts()[0].source.path, "/m/a-copy.yaml");
            // A second edit, while the pod of the first one may still wait for its name.
            w.document("/m/web.yaml", pod("/m/web.yaml", "web", "", ONE));
            w.run_ms(100);
            w.kill_engine();
            w.document("/m/web.yaml", pod("/m/web.yaml", "web", "", TWO));
            w.start();
            w.run(35);
            assert_eq!(w.shown("web"), "Running one#0:running two#0:running", "uid {uid:?}, restart {restart}");
            assert_eq!(w.notices("ConflictEnded").len(), 0);
            // The original is removed: the copy runs, and an event says so.
            w.remove("web");
            w.run(35);
            assert_eq!(w.shown("web"), "Running main#0:running");
            assert_eq!(
                w.notices("ConflictEnded"),
                [
                    "pod default/web is now taken from /m/a-copy.yaml (document 1), because /m/web.yaml no longer defines it"
                ]
            );
            w.assert_well();
        }
    }
}

#[test]
fn d4_a_file_that_returns_while_its_pod_ends_does_not_take_over() {
    let mut w = node();
    w.document("/m/a.yaml", pod("/m/a.yaml", "web", "", ONE));
    w.run(2);
    w.document("/m/b.yaml", pod("/m/b.yaml", "web", "", TWO));
    w.remove("a");
    // The pod of the first file still runs.
    w.document("/m/a.yaml", pod("/m/a.yaml", "web", "", ONE));
    w.run(35);
    assert_eq!(w.shown("web"), "Running one#0:running two#0:running", "{}", w.trace());
    assert_eq!(w.engine.conflicts()[0].source.path, "/m/a.yaml");
    w.assert_well();
}

#[test]
fn d4_one_uid_in_two_documents_is_a_conflict() {
    let mut w = node();
    w.document("/m/b.yaml", pod("/m/b.yaml", "web", "u", ONE));
    w.run(2);
    w.document("/m/a.yaml", pod("/m/a.yaml", "other", "u", ONE));
    w.run(3);
    assert_eq!((w.shown("web").as_str(), w.shown("other").as_str()), ("Running main#0:running", ""));
    assert_eq!(w.engine.conflicts()[0].source.path, "/m/a.yaml");
    // The running pod is edited and keeps its UID.
    w.document("/m/b.yaml", pod("/m/b.yaml", "web", "u", TWO));
    w.run(3);
    assert_eq!(w.shown("web"), "Running one#0:running two#0:running");
    w.assert_well();
}

#[test]
fn w8_two_pods_that_swap_their_names_both_run_again() {
    for (u1, u2) in [("", ""), ("u1", "u2")] {
        let mut w = node();
        let mut files = w.files.clone();
        files.insert("/m/a.yaml".into(), pod("/m/a.yaml", "left", u1, ONE));
        files.insert("/m/b.yaml".into(), pod("/m/b.yaml", "right", u2, TWO));
        w.set_files(files.clone());
        w.run(2);
        files.insert("/m/a.yaml".into(), pod("/m/a.yaml", "right", u1, ONE));
        files.insert("/m/b.yaml".into(), pod("/m/b.yaml", "left", u2, TWO));
        w.set_files(files);
        w.run(5);
        assert_eq!(w.shown("right"), "Running main#0:running");
        assert_eq!(w.shown("left"), "Running one#0:running two#0:running");
        assert_eq!(w.runtime.containers.len(), 3);
        w.assert_well();
    }
}

#[test]
fn d1_the_same_files_again_change_nothing() {
    let mut w = node();
    w.file("web", ONE);
    w.run(3);
    w.take_calls();
    let published = w.observed.published;
    for _ in 0..10 {
        w.read_manifests();
        w.run(1);
    }
    assert_eq!(w.take_calls(), Vec::<String>::new());
    assert_eq!(w.observed.published, published);
}

/// The new version needs a record. While the root directory is not writable, the old version is not stopped.
#[test]
fn w8_an_edited_pod_runs_on_while_no_record_can_be_written() {
    for uid in ["", "of-its-own"] {
        let mut w = node();
        w.file_with_uid("web", uid, ONE);
        w.starts_within(3, "web");
        let (before, calls) = (w.running("web/main"), w.observed.calls.len());
        w.disk.full = true;
        w.file_with_uid("web", uid, TWO);
        w.run(130);
        assert_eq!((w.running("web/main"), w.observed.calls.len()), (before.clone(), calls), "uid {uid:?}");
        // The events are 5, 10, 20, 40 and 60 s apart, plus up to a half. The new version reports its own record as
        // well.
        let reported = w.notices("FailedRecord");
        let reported: Vec<&String> =
            reported.iter().filter(|m| m.starts_with("the manifest changed, but the old version continues")).collect();
        assert!((4..=6).contains(&reported.len()), "uid {uid:?}: {reported:?}");
        for part in ["no space left on device", "make the root directory writable", "retrying in "] {
            assert!(reported[0].contains(part), "{}", reported[0]);
        }
        let old = w.engine.pods().iter().find(|v| v.pod.all_containers().count() == 1).unwrap().pod.uid.clone();
        let worker_status = w.engine.worker_status(&old, w.time().boot).unwrap();
        let waits = "its record to be written; then the new version replaces it";
        assert!(worker_status.waits_for.iter().any(|w| w == waits), "{worker_status:?}");
        // Meanwhile its container restarts in the old version.
        w.restarts_within(3, "web/main");
        w.disk.full = false;
        w.until("its successor runs", 130, |w| w.runs("web/one") && w.runs("web/two") && !w.runs("web/main"));
        w.run(3);
        assert_eq!(w.engine.pods().len(), 1);
        w.remove("web");
        w.run(35);
        w.assert_clean();
    }
}

#[test]
fn w8_an_edit_that_is_taken_back_while_no_record_can_be_written_changes_nothing() {
    for uid in ["", "of-its-own"] {
        let mut w = node();
        w.file_with_uid("web", uid, ONE);
        w.starts_within(3, "web");
        let before = w.running("web/main");
        w.disk.full = true;
        w.file_with_uid("web", uid, TWO);
        w.run(10);
        w.file_with_uid("web", uid, ONE);
        w.run(1);
        assert_eq!(w.engine.pods().len(), 1);
        w.disk.full = false;
        w.run(130);
        assert_eq!((w.running("web/main"), w.engine.pods().len()), (before, 1), "uid {uid:?}");
    }
}

#[test]
fn w8_a_pod_whose_manifest_is_removed_is_stopped_though_no_record_can_be_written() {
    let mut w = node();
    w.file("web", ONE);
    w.starts_within(3, "web");
    w.disk.full = true;
    // The same if it was edited before.
    w.file("web", TWO);
    w.run(2);
    assert!(w.runs("web/main"));
    w.remove("web");
    w.run(3);
    assert_eq!(w.engine.pods().len(), 0);
    w.assert_clean();
}

#[test]
fn w8_an_edited_pod_runs_on_over_a_restart_of_wherry_while_no_record_can_be_written() {
    let mut w = node();
    w.file("web", ONE);
    w.starts_within(3, "web");
    let before = w.running("web/main");
    w.disk.full = true;
    w.file("web", TWO);
    w.run(10);
    w.restart_engine();
    w.run(60);
    assert_eq!(w.running("web/main"), before);
    w.disk.full = false;
    w.until("its successor runs", 130, |w| w.runs("web/one") && !w.runs("web/main"));
}

/// A4: on a node without room for both, the new version still has the place of the old one.
#[test]
fn w8_an_edited_pod_that_keeps_running_reserves_its_place_for_its_successor() {
    for uid in ["", "of-its-own"] {
        let big = |image: &str| {
            format!("containers: [{{name: main, image: '{image}', resources: {{requests: {{cpu: 3}}}}}}]")
        };
        let mut w = node();
        w.file_with_uid("web", uid, &big("busybox:1.35"));
        w.starts_within(3, "web");
        w.disk.full = true;
        w.file_with_uid("web", uid, &big("other:1"));
        w.file("late", &big("busybox:1.35"));
        w.run(20);
        assert!(!w.runs("late/main"));
        w.disk.full = false;
        let runs = |w: &World| {
            w.runtime.containers.values().any(|c| c.runs() && c.pod.containers()[0].image.as_deref() == Some("other:1"))
        };
        w.until("its successor runs", 130, runs);
        assert!(!w.runs("late/main"));
    }
}
