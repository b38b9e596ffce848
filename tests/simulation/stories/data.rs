//! ConfigMaps and Secrets (D6).

use crate::runtime::Life;
use crate::story::*;
use crate::world::World;
use std::time::Duration;

const SPEC: &str = "containers: [{name: main, image: 'busybox:1.35', \
                    env: [{name: A, valueFrom: {secretKeyRef: {name: login, key: password}}}]}, \
                    {name: side, image: 'busybox:1.35'}]";

#[test]
fn d6_a_container_waits_for_its_secret_and_starts_when_it_appears() {
    let mut w = node();
    w.file("web", SPEC);
    w.run(3);
    let waiting = ("CreateContainerConfigError".to_owned(), "secret \"login\" not found".to_owned());
    assert_eq!(w.waiting("web", "main"), waiting);
    assert_eq!(w.shown("web"), "Pending main#0:waiting CreateContainerConfigError side#0:running");
    w.define_secret("login", "user", "root");
    w.run_ms(100);
    assert_eq!(w.waiting("web", "main").1, "couldn't find key password in Secret default/login");
    w.define_secret("login", "password", "first");
    w.run(1);
    assert_eq!(w.shown("web"), "Running main#0:running side#0:running");
    w.assert_well();
}

#[test]
fn d6_a_changed_secret_applies_to_the_next_start() {
    let mut w = node();
    w.define_secret("login", "password", "first");
    w.file("web", SPEC);
    w.run(3);
    w.take_calls();
    w.define_secret("login", "password", "second");
    w.run(30);
    assert_eq!(w.take_calls(), [""; 0], "the container keeps its environment");
    w.exit_of("web/main", 1);
    // `check_environment` compares the value.
    w.until("it runs again", 5, |w| w.shown("web") == "Running main#1:running side#0:running");
    w.remove_secret("login");
    w.restart_engine();
    w.run(30);
    assert_eq!(w.shown("web"), "Running main#1:running side#0:running");
    w.assert_well();
}

const VOLUME: &str = "containers: [{name: main, image: 'busybox:1.35', volumeMounts: [{name: v, mountPath: /v}]}], \
                      volumes: [{name: v, secret: {secretName: login}}]";

fn mounts(w: &mut World) -> usize {
    w.take_calls().iter().filter(|call| call.starts_with("Mount")).count()
}

#[test]
fn d6_a_pod_whose_volume_lacks_its_secret_waits_without_a_sandbox() {
    let mut w = node();
    w.file("web", VOLUME);
    w.run(3);
    assert_eq!(w.sandbox("web"), "");
    assert_eq!(w.notices("FailedMount"), ["MountVolume.SetUp failed for volume \"v\" : secret \"login\" not found"]);
    w.define_secret("login", "password", "first");
    w.run(2);
    assert_eq!(w.shown("web"), "Running main#0:running");
    w.assert_well();
}

#[test]
fn d6_a_changed_secret_reaches_a_mounted_volume_also_after_a_restart() {
    let mut w = node();
    w.define_secret("login", "password", "first");
    w.file("web", VOLUME);
    w.file("other", ONE);
    w.run(3);
    assert_eq!(mounts(&mut w), 1);
    w.define_secret("login", "password", "second");
    w.run_ms(100);
    assert_eq!(mounts(&mut w), 1, "an update");
    w.run(30);
    assert_eq!(mounts(&mut w), 0);
    w.remove_secret("login");
    w.run(30);
    assert_eq!(mounts(&mut w), 0, "the files stay");
    w.define_secret("login", "password", "third");
    w.restart_engine();
    w.run(3);
    assert!(mounts(&mut w) >= 1);
    assert_eq!(w.shown("web"), "Running main#0:running");
    w.assert_well();
}

#[test]
fn d6_a_volume_whose_object_disappears_keeps_its_files_and_the_others_follow_theirs() {
    const TWO_VOLUMES: &str = "containers: [{name: main, image: 'busybox:1.35'}], volumes: [\
                               {name: v, secret: {secretName: login}}, {name: w, secret: {secretName: other}}]";
    let mut w = node();
    w.define_secret("login", "a", "1");
    w.define_secret("other", "b", "1");
    w.file("web", TWO_VOLUMES);
    w.run(3);
    let files = |w: &World| {
        let mut files = w.volumes.files.values().next().cloned().unwrap_or_default();
        files.sort();
        files
    };
    w.remove_secret("login");
    w.define_secret("other", "b", "2");
    w.run(1);
    assert_eq!(files(&w), ["v/a 644 1", "w/b 644 2"], "{}", w.trace());
    w.define_secret("other", "b", "3");
    w.run(60);
    assert_eq!(files(&w), ["v/a 644 1", "w/b 644 3"]);
    let why = "MountVolume.SetUp failed for volume \"v\" : secret \"login\" not found; the volume keeps its files";
    assert_eq!(w.notices("FailedMount"), [why], "once");
    w.define_secret("login", "a", "4");
    w.run(1);
    assert_eq!(files(&w), ["v/a 644 4", "w/b 644 3"]);
    // It disappears again.
    w.remove_secret("login");
    w.run(1);
    assert_eq!(w.notices("FailedMount"), [why, why]);
    w.define_secret("login", "a", "5");
    w.run(1);
    w.assert_well();
}

#[test]
fn d6_a_container_is_given_no_volume_while_its_files_change() {
    const SUB_PATH: &str = "containers: [{name: main, image: 'busybox:1.35', \
                            volumeMounts: [{name: v, mountPath: /v, subPath: a}]}], \
                            volumes: [{name: v, secret: {secretName: login}}]";
    let mut w = node();
    w.define_secret("login", "a", "0");
    w.life("web/main", &[Life::exits(1, Duration::from_millis(30)); 40]);
    w.file("web", SUB_PATH);
    // `D6` of the model: each update takes 3 ms.
    for n in 1..400 {
        w.define_secret("login", "a", &n.to_string());
        w.run_ms(n % 7);
        w.define_secret("login", "a", "0");
        w.run_ms(n % 5);
    }
    w.run(300);
    assert!(w.times("StartContainer", 0).len() > 3);
    w.assert_well();
}

#[test]
fn d6_a_failed_update_waits_for_a_slow_start_without_a_loop() {
    let mut w = node();
    w.define_secret("login", "password", "0");
    w.file("web", &VOLUME.replacen("containers: [", "containers: [{name: side, image: 'busybox:1.35'}, ", 1));
    w.run(3);
    assert!(w.runs("web/main") && w.runs("web/side"), "{}", w.trace());
    w.volumes.mount_error = Some("input/output error".into());
    w.define_secret("login", "password", "1");
    w.run(1);
    assert_eq!(w.notices("FailedMount").len(), 1);
    w.hang("StartContainer web/side");
    w.exit_of("web/side", 1);
    w.until("the start", 30, |w| w.times("StartContainer web/side", 0).len() == 2);
    let steps = w.observed.steps;
    w.run(60);
    assert!(w.observed.steps - steps < 300, "{} steps in a minute", w.observed.steps - steps);
    w.assert_well();
}

/// The copy sorts before the original, and has the values from before the edit.
#[test]
fn d6_a_copy_of_a_secret_never_takes_over() {
    let mut w = node();
    w.define_secret("login", "password", "first");
    w.file("web", SPEC);
    w.run(3);
    w.copy_secret("login");
    w.run(3);
    let problems = w.manifest_problems();
    assert!(problems.len() == 1 && problems[0].starts_with("/m/a-copy-of-secret-login.yaml"), "{problems:?}");
    // `check_environment` compares the value of each start with that of the original.
    for (value, restart) in [("first", true), ("second", false), ("third", true), ("fourth", true)] {
        w.define_secret("login", "password", value);
        if restart {
            w.kill_engine();
            w.run(1);
            w.start();
        }
        w.run(3);
        w.restarts_within(200, "web/main");
    }
    assert_eq!(w.notices("ConflictEnded").len(), 0);
    // The original is removed: the copy is in force, and an event says so.
    w.remove_secret("login");
    w.run(1);
    let events = w.notices("ConflictEnded");
    assert_eq!(
        events,
        ["Secret default/login is now taken from /m/a-copy-of-secret-login.yaml (document 1), because \
          /m/secret-login.yaml no longer defines it"]
    );
    // It stays in force when the original returns.
    w.define_secret("login", "password", "fifth");
    w.run(3);
    assert!(w.manifest_problems()[0].starts_with("/m/secret-login.yaml"), "{:?}", w.manifest_problems());
    w.assert_well();
}

/// D6: the record that keeps the paths is written once the disk has room again.
#[test]
fn d6_a_copy_of_a_secret_does_not_take_over_after_a_full_disk() {
    let mut w = node();
    w.disk.full = true;
    w.define_secret("login", "password", "first");
    w.run(3);
    assert!(!w.disk.records.contains_key("documents/in-force"));
    w.disk.full = false;
    w.run(62);
    assert!(w.disk.records.contains_key("documents/in-force"));
    w.kill_engine();
    w.copy_secret("login");
    w.start();
    w.define_secret("login", "password", "second");
    w.file("web", SPEC);
    w.run(3);
    assert_eq!(w.shown("web"), "Running main#0:running side#0:running");
    w.remove_secret("login");
    w.assert_well();
}
