//! Who may have a name (D4).

use crate::story::*;

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
    // The first goes: the second's turn.
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
    w.said();
    w.document("/m/a.yaml", pod("/m/a.yaml", "web", "", ONE));
    w.run(3);
    w.restart_engine();
    w.run(3);
    assert_eq!(w.shown("web"), "Running one#0:running two#0:running");
    assert_eq!(w.said(), Vec::<String>::new());
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
    // The one that runs is edited: it is still the one.
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
    w.said();
    let published = w.published;
    for _ in 0..10 {
        w.read_manifests();
        w.run(1);
    }
    assert_eq!(w.said(), Vec::<String>::new());
    assert_eq!(w.published, published);
}
