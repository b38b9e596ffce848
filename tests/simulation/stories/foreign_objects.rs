//! W21: pods of other owners that share a UID with a pod of ours.

use crate::runtime::Life;
use crate::story::*;
use crate::world::{Fault, World};
use std::collections::BTreeSet;
use wherry::api::expand::Expanded;
use wherry::api::facts::{ContainerState, ImageFact};
use wherry::api::names::Uid;
use wherry::engine::effect::{CreateContainer, RuntimeCall};

/// Creates another owner's pod with one running container `main`. Returns the ids of its sandbox and container.
pub(super) fn foreign(w: &mut World, name: &str, uid: &str, attempt: u32, owner: Option<&str>) -> (String, String) {
    let all = |w: &World| -> BTreeSet<String> {
        w.runtime.sandboxes.keys().chain(w.runtime.containers.keys()).cloned().collect()
    };
    let now = w.wall_now();
    let call = |w: &mut World, call: RuntimeCall| {
        let before = all(w);
        w.runtime.call(&call, now, |_| Life::FOREVER);
        all(w).difference(&before).next().cloned()
    };
    let pod = pod(&format!("/kubelet/{name}.yaml"), name, uid, ONE).pod;
    let sandbox =
        call(w, RuntimeCall::RunSandbox { pod: pod.clone(), attempt, handler: Box::default(), user_namespace: None })
            .unwrap();
    let create = CreateContainer {
        pod,
        container: "main".into(),
        sandbox: sandbox.as_str().into(),
        sandbox_attempt: attempt,

        user_namespace: None,
        attempt,
        backoff_level: 0,
        boot: None,
        image: ImageFact { id: "i".into(), uid: None, username: String::new(), size: 0 },
        ips: Vec::new(),
        process: Expanded::default(),
        mounts: Vec::new(),
        devices: Default::default(),
        target: None,
    };
    let container = call(w, RuntimeCall::CreateContainer(Box::new(create))).unwrap();
    call(w, RuntimeCall::StartContainer { id: container.as_str().into() });
    w.runtime.sandboxes.get_mut(&sandbox).unwrap().owner = owner.map(str::to_owned);
    w.runtime.containers.get_mut(&container).unwrap().owner = owner.map(str::to_owned);
    (sandbox, container)
}

/// Wherry continues with an empty root directory, which has another id.
fn new_root(w: &mut World) {
    w.config.fixed.owner = "root-3".into();
    w.runtime.owner = "root-3".into();
    w.kill_engine();
    w.disk.records.clear();
    w.disk.directories.clear();
    w.take_calls();
}

fn their_pod_ends(w: &mut World, uid: &Uid) {
    let ours = w.runtime.owner.clone();
    w.runtime.sandboxes.retain(|_, s| s.uid != *uid || s.owner.as_ref() == Some(&ours));
    w.runtime.containers.retain(|_, c| c.uid != *uid || c.owner.as_ref() == Some(&ours));
    w.runtime.cgroups.remove(uid);
    w.look_at_pidfds();
}

#[test]
fn w21_with_a_new_root_directory_the_pods_of_the_old_one_keep_running_and_are_not_duplicated() {
    let mut w = node();
    w.file("web", ONE);
    w.run(5);
    let (uid, id, sandbox) = (w.files["/m/web.yaml"].uid.clone(), w.running("web/main"), w.sandbox("web"));
    new_root(&mut w);
    w.start();
    w.run(300);
    assert_eq!(w.take_calls(), Vec::<String>::new());
    assert_eq!((w.running("web/main"), w.sandbox("web")), (id, sandbox.clone()));
    assert_eq!(w.shown("web"), "Pending (UIDInUse) main#0:waiting ContainerCreating");
    let why = format!(
        "the UID {uid} is in use by sandbox {sandbox} of another Wherry (root directory with the id root-1); this pod \
         waits until that object no longer runs. Stop or remove it where it was started, or remove /m/web.yaml"
    );
    assert_eq!(w.notices("UIDInUse"), std::slice::from_ref(&why));
    assert_eq!(w.status("web").message.as_ref(), Some(&why));
    assert_eq!(w.engine.worker_status(&uid, w.time().boot).unwrap().waits_for, [why]);
    // Its owner ends it.
    their_pod_ends(&mut w, &uid);
    let took = w.until("it runs", 40, |w| w.shown("web") == "Running main#0:running");
    assert!(took <= 31_000, "{took} ms");
    assert_eq!(w.status("web").reason, None);
    w.remove("web");
    w.run(5);
    w.assert_clean();
}

#[test]
fn w21_removing_a_pod_that_waits_for_its_uid_removes_nothing_of_the_other_owner() {
    let mut w = node();
    let (sandbox, container) = foreign(&mut w, "web", "one", 0, None);
    w.file_with_uid("web", "one", ONE);
    w.run(10);
    let why = w.notices("UIDInUse").concat();
    assert!(why.contains(&format!("sandbox {sandbox}, which wherry did not create;")), "{why}");
    assert!(why.ends_with("or remove metadata.uid from /m/web.yaml"), "{why}");
    w.remove("web");
    w.run(60);
    assert_eq!((w.take_calls(), w.shown("web")), (Vec::<String>::new(), String::new()));
    assert!(w.runtime.containers[&container].runs());
    assert!(w.runtime.cgroups.contains(&Uid::from("one")));
    assert!(w.disk.records.is_empty());
}

/// As after a boot: nothing of the other owners runs, but their dead objects still occupy their names.
#[test]
fn w21_with_dead_objects_of_other_owners_a_pod_uses_higher_attempts() {
    let mut w = node();
    let uid = Uid::from("one");
    let theirs = foreign(&mut w, "web", "one", 0, Some("root-2"));
    w.kill_sandbox(&theirs.0);
    w.exit(&theirs.1, 0);
    w.file_with_uid("web", "one", ONE);
    w.run(10);
    assert_eq!(w.take_calls(), ["RunSandbox web#1", "CreateContainer web/main#1", "StartContainer web/main#1"]);
    assert_eq!(w.shown("web"), "Running main#1:running");
    // Our pod ends. The cgroup and log directory of the UID stay as long as the other owner's objects exist.
    w.remove("web");
    w.run(120);
    assert_eq!(w.take_calls()[..2], ["StopContainer web/main#1 30000ms", "StopSandbox web#1"]);
    assert_eq!(w.runtime.sandboxes.keys().collect::<Vec<_>>(), [&theirs.0]);
    assert_eq!(w.runtime.containers.keys().collect::<Vec<_>>(), [&theirs.1]);
    assert!(w.runtime.cgroups.contains(&uid) && w.disk.directories.contains_key(&uid));
    assert!(w.disk.records.is_empty());
    their_pod_ends(&mut w, &uid);
    w.run(90);
    w.assert_clean();
}

#[test]
fn w21_a_foreign_pod_that_appears_under_the_uid_of_a_running_pod_affects_neither() {
    let mut w = node();
    w.file_with_uid("web", "one", ONE);
    w.run(15);
    let (uid, own) = (Uid::from("one"), w.running("web/main"));
    // A kubelet names its pods differently.
    let theirs = foreign(&mut w, "web-lab", "one", 7, None);
    w.take_calls();
    w.run(60);
    assert_eq!((w.take_calls(), w.running("web/main")), (Vec::<String>::new(), own.clone()));
    assert_eq!(w.shown("web"), "Running main#0:running");
    // A container restarts in our sandbox, with an attempt number that is free.
    w.exit(&own, 1);
    w.run(5);
    assert_eq!(w.take_calls(), ["CreateContainer web/main#8", "StartContainer web/main#8"]);
    // A new sandbox would be a second pod.
    let sandbox = w.sandbox("web");
    w.kill_sandbox(&sandbox);
    w.run(60);
    assert_eq!(w.take_calls(), ["StopContainer web/main#8 30000ms", "StopSandbox web#0"]);
    assert!(w.shown("web").contains("(UIDInUse)"), "{}", w.shown("web"));
    w.restart_engine();
    w.remove("web");
    w.run(120);
    assert_eq!(w.runtime.containers.keys().collect::<Vec<_>>(), [&theirs.1]);
    assert!(w.runtime.containers[&theirs.1].runs() && w.runtime.cgroups.contains(&uid));
    their_pod_ends(&mut w, &uid);
    w.run(90);
    w.assert_clean();
}

#[test]
fn w21_a_foreign_container_in_our_sandbox_does_not_belong_to_the_pod() {
    let mut w = node();
    w.file("web", ONE);
    w.run(15);
    let own = w.running("web/main");
    let mut debug = w.runtime.containers[&own].clone();
    (debug.id, debug.name, debug.owner) = ("c-debug".into(), "debug".into(), None);
    w.runtime.containers.insert("c-debug".into(), debug);
    w.take_calls();
    w.run(60);
    assert_eq!(w.take_calls(), Vec::<String>::new());
    assert_eq!(w.shown("web"), "Running main#0:running");
    // The container ends with its sandbox and does not block the removal.
    w.remove("web");
    w.run(5);
    w.assert_clean();
}

#[test]
fn w21_a_leftover_directory_stays_while_others_have_its_uid() {
    let mut w = node();
    let theirs = foreign(&mut w, "web", "one", 0, Some("root-2"));
    let uid = Uid::from("one");
    w.kill_engine();
    let name = w.runtime.sandboxes[&theirs.0].name.clone();
    w.disk.directories.insert(uid.clone(), name);
    w.start();
    w.run(120);
    assert!(w.disk.directories.contains_key(&uid) && w.runtime.cgroups.contains(&uid));
    their_pod_ends(&mut w, &uid);
    w.run(60);
    w.assert_clean();
}

#[test]
fn w21_a_name_reserved_in_the_runtime_without_an_object_is_skipped() {
    let mut w = node();
    let uid = pod("/m/web.yaml", "web", "", ONE).uid.clone();
    w.runtime.reserved.insert((uid, 0));
    for _ in 0..1000 {
        w.fault("CreateContainer web/main#0", Fault::Error("name \"main_web_0\" is reserved for \"abc\"".into()));
    }
    w.file("web", ONE);
    w.run(60);
    let said = w.take_calls();
    let expected = ["RunSandbox web#0", "RunSandbox web#1", "CreateContainer web/main#0", "CreateContainer web/main#1"];
    assert_eq!(said[..4], expected);
    assert_eq!(w.shown("web"), "Running main#1:running");
}

#[test]
fn w21_numbers_of_others_do_not_hide_that_a_container_of_ours_runs() {
    let mut w = node();
    w.file_with_uid("web", "one", ONE);
    w.run(15);
    let own = w.running("web/main");
    let theirs = foreign(&mut w, "web-lab", "one", 9, Some("root-2"));
    for state in [ContainerState::Unknown, ContainerState::Exited, ContainerState::Created] {
        w.runtime.containers.get_mut(&theirs.1).unwrap().state = state;
        w.step(World::unknown_event(Some("one".into())));
        w.run(30);
        assert_eq!(w.shown("web"), "Running main#0:running", "{state:?}");
    }
    assert_eq!(w.running("web/main"), own);
}

/// The last list is too old to show the other pod.
#[test]
fn w21_objects_that_appeared_since_the_last_list_are_detected_before_a_removal() {
    let mut w = node();
    w.pidfds.available = true;
    w.life("web/main", &[Life::exits(0, std::time::Duration::from_secs(2))]);
    w.file_with_uid("web", "one", NEVER);
    w.run(100);
    assert_eq!(w.status("web").phase.as_deref(), Some("Succeeded"));
    let lists = w.observed.lists;
    w.until("a list", 40, |w| w.observed.lists > lists);
    w.run(5);
    let (sandbox, container) = foreign(&mut w, "web-lab", "one", 7, None);
    w.remove("web");
    w.run(15);
    assert_eq!(w.runtime.sandboxes.keys().collect::<Vec<_>>(), [&sandbox]);
    assert!(w.runtime.containers[&container].runs());
}
