//! PriorityClasses, which any file may define (A5).

use super::*;

fn class(name: &str, value: i32) -> String {
    let kind = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\n";
    format!("{kind}metadata: {{name: {name}}}\nvalue: {value}\n")
}

fn default_class(name: &str, value: i32) -> String {
    class(name, value) + "globalDefault: true\n"
}

fn pod_of(name: &str, class: &str) -> String {
    pod(name).replace("spec: {", &format!("spec: {{priorityClassName: {class}, "))
}

/// Returns the name, priority and PriorityClass of each desired pod.
fn priorities(lab: &Lab) -> Vec<(String, Option<i32>, Option<String>)> {
    let of = |pod: &Rc<Pod>| {
        let spec = pod.spec();
        (pod.name.name.to_string(), spec.priority, spec.priority_class_name.clone())
    };
    lab.pods().iter().map(of).collect()
}

fn with(name: &str, priority: i32, class: &str) -> (String, Option<i32>, Option<String>) {
    (name.into(), Some(priority), Some(class.into()))
}

#[test]
fn a5_the_order_of_files_does_not_matter() {
    for names in [["1", "2", "3", "4"], ["4", "3", "2", "1"], ["2", "4", "1", "3"]] {
        let lab = Lab::new();
        lab.write(names[0], &pod_of("a", "gold"));
        lab.write(names[1], &format!("{}---\n{}", class("gold", 5), pod_of("core", "system-node-critical")));
        lab.write(names[2], &pod("plain"));
        lab.write(names[3], &default_class("usual", -3));
        let (lab, _) = lab.start();
        let mut found = priorities(&lab);
        found.sort();
        let critical = with("core", 2_000_001_000, "system-node-critical");
        assert_eq!(found, [with("a", 5, "gold"), critical, with("plain", -3, "usual")], "{names:?}");
        assert_eq!(lab.problems(), NONE);
    }
}

#[test]
fn a5_a_pod_waits_until_its_class_is_defined() {
    let (mut lab, _) = Lab::started();
    lab.place("a.yaml", &pod_of("a", "gold"));
    lab.place("b.yaml", &pod("b"));
    assert_eq!(lab.events(), some(&["b"]), "the other files are not affected");
    assert_eq!(
        lab.problems(),
        ["M/a.yaml: spec.priorityClassName: no PriorityClass with name gold was found; add a manifest of kind \
             PriorityClass with this name"]
    );
    assert_eq!(lab.desired(), ["b"]);
    lab.place("z.yaml", &class("gold", 5));
    assert_eq!(lab.events(), some(&["a", "b"]));
    assert_eq!(priorities(&lab), [with("a", 5, "gold"), ("b".into(), None, None)]);
    assert_eq!(lab.problems(), NONE);
    // Neither a later default class nor another value changes the priority of a running pod.
    lab.place("z.yaml", &default_class("gold", 6));
    assert_eq!(lab.events(), None);
    assert_eq!(priorities(&lab), [with("a", 5, "gold"), ("b".into(), None, None)]);
    // A new version of the pod gets the new value.
    lab.place("a.yaml", &pod_of("a", "gold").replace("i:1", "i:2"));
    lab.place("c.yaml", &pod("c"));
    assert_eq!(lab.events(), some(&["a", "b", "c"]));
    assert_eq!(priorities(&lab), [with("a", 6, "gold"), ("b".into(), None, None), with("c", 6, "gold")]);
}

#[test]
fn a5_a_class_changes_neither_uid_nor_digest() {
    let (mut lab, _) = Lab::started();
    lab.place("a.yaml", &pod("a"));
    let plain = lab.raw_events().unwrap()[0].clone();
    fs::remove_file(lab.path("a.yaml")).unwrap();
    lab.pass(MOMENT);
    lab.place("d.yaml", &default_class("usual", 3));
    lab.events();
    lab.place("a.yaml", &pod("a"));
    let with_class = lab.raw_events().unwrap()[0].clone();
    assert_eq!((&with_class.uid, &with_class.digest), (&plain.uid, &plain.digest));
    assert_eq!((plain.spec().priority, with_class.spec().priority), (None, Some(3)));
}

#[test]
fn d2_the_removal_of_a_class_keeps_its_pods_also_after_a_restart() {
    let (mut lab, _) = Lab::started();
    lab.place("a.yaml", &format!("{}---\n{}", pod_of("a", "gold"), pod("b")));
    lab.place("z.yaml", &class("gold", 5));
    assert_eq!(lab.events(), some(&["a", "b"]));
    lab.flush();
    fs::remove_file(lab.path("z.yaml")).unwrap();
    assert_eq!(lab.pass(MOMENT), None);
    let kept = ["M/a.yaml: spec.priorityClassName: no PriorityClass with name gold was found; add a manifest of kind \
         PriorityClass with this name; until then the pod keeps the priority 5 that the class gave it"];
    assert_eq!(lab.problems(), kept);
    let (lab, first) = lab.again();
    assert_eq!(first, ["a", "b"]);
    assert_eq!(priorities(&lab)[0], with("a", 5, "gold"));
    assert_eq!(lab.problems(), kept);
    // The directory disappears too, and only the records remain.
    let aside = lab.root.path().join("elsewhere");
    fs::rename(lab.root.path().join("m"), &aside).unwrap();
    let (lab, first) = lab.again();
    assert_eq!(first, ["a", "b"]);
    assert_eq!(priorities(&lab)[0], with("a", 5, "gold"));
    fs::rename(aside, lab.root.path().join("m")).unwrap();
    let (mut lab, _) = lab.again();
    lab.place("z.yaml", &class("gold", 7));
    assert_eq!(lab.events(), None);
    assert_eq!(lab.problems(), NONE);
    assert_eq!(priorities(&lab)[0], with("a", 5, "gold"));
}

#[test]
fn a5_a_version_keeps_its_priority_after_a_restart() {
    let (mut lab, _) = Lab::started();
    lab.place("a.yaml", &pod_of("a", "gold"));
    lab.place("b.yaml", &pod("b"));
    lab.place("y.yaml", &default_class("usual", -3));
    lab.place("z.yaml", &class("gold", 5));
    lab.events();
    let expected = [with("a", 5, "gold"), with("b", -3, "usual")];
    assert_eq!(priorities(&lab), expected);
    lab.flush();
    // The classes change while Wherry is not running.
    fs::remove_file(lab.path("y.yaml")).unwrap();
    lab.place("z.yaml", &class("gold", 6));
    let (mut lab, _) = lab.again_without_flush();
    assert_eq!(priorities(&lab), expected);
    assert_eq!(lab.problems(), NONE);
    lab.place("b.yaml", &pod_with("b", "i:2"));
    lab.events();
    assert_eq!(priorities(&lab), [with("a", 5, "gold"), ("b".into(), None, None)]);
}

#[test]
fn d2_an_edited_pod_without_its_class_keeps_its_last_good_version_after_a_restart() {
    let (mut lab, _) = Lab::started();
    lab.place("a.yaml", &pod("a"));
    let uid = lab.raw_events().unwrap()[0].uid.clone();
    lab.flush();
    let edited = pod_of("a", "gold");
    lab.place("a.yaml", &edited);
    assert_eq!(lab.events(), None);
    assert_eq!(lab.problems().len(), 1);
    let (mut lab, first) = lab.again();
    assert_eq!(first, ["a"]);
    assert_eq!(lab.pods()[0].uid, uid);
    assert_eq!(lab.problems().len(), 1);
    // The file is edited again, restored, and then gets the first edit again: the good version stays in force.
    for text in [edited.replace("i:1", "i:3"), pod("a"), edited.clone()] {
        lab.place("a.yaml", &text);
        assert_eq!(lab.events(), None, "{text}");
        assert_eq!(lab.pods()[0].uid, uid);
    }
    lab.place("z.yaml", &class("gold", 5));
    assert_eq!(lab.events(), some(&["a"]));
    assert_eq!(priorities(&lab), [with("a", 5, "gold")]);
    assert_ne!(lab.pods()[0].uid, uid);
    assert_eq!(lab.problems(), NONE);
    // The record now contains the new version.
    lab.flush();
    lab.write("a.yaml", "");
    let (lab, _) = lab.again();
    assert_eq!(priorities(&lab), [with("a", 5, "gold")]);
}

#[test]
fn d2_a_broken_class_keeps_its_last_value_after_a_restart() {
    let (mut lab, _) = Lab::started();
    lab.place("z.yaml", &class("gold", 5));
    assert_eq!(lab.events(), None);
    lab.flush();
    lab.place("z.yaml", &class("gold", 5).replace("value: 5", "value: five"));
    assert_eq!(lab.events(), None);
    assert_eq!(lab.problems(), ["M/z.yaml:4: value: must be an integer, not the text \"five\""]);
    let (mut lab, first) = lab.again();
    assert_eq!(first, NONE);
    lab.place("a.yaml", &pod_of("a", "gold"));
    assert_eq!(lab.events(), some(&["a"]));
    assert_eq!(priorities(&lab), [with("a", 5, "gold")]);
}

#[test]
fn a5_the_later_of_two_conflicting_classes_is_an_error() {
    let (mut lab, _) = Lab::started();
    lab.place("b.yaml", &default_class("gold", 5));
    lab.place("c.yaml", &format!("{}---\n{}", class("gold", 7), default_class("usual", 1)));
    lab.place("d.yaml", &pod_of("d", "gold"));
    assert_eq!(lab.events(), some(&["d"]));
    assert_eq!(priorities(&lab), [with("d", 5, "gold")]);
    let problems = lab.problems();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].starts_with("M/c.yaml: metadata.name: Duplicate value: \"gold\": "), "{problems:?}");
    assert!(problems[0].contains("/b.yaml (document 1) also defines"), "{problems:?}");
    assert!(problems[1].starts_with("M/c.yaml: document 2: globalDefault: Invalid value: true: "), "{problems:?}");
    // The classes of a renamed file are not considered duplicates.
    fs::remove_file(lab.path("c.yaml")).unwrap();
    lab.pass(MOMENT);
    assert_eq!(lab.problems(), NONE);
    fs::rename(lab.path("b.yaml"), lab.path("e.yaml")).unwrap();
    lab.events();
    assert_eq!(lab.problems(), NONE);
    lab.pass(MOMENT);
    assert_eq!((lab.problems(), lab.desired()), (vec![], vec!["d".to_owned()]));
    // The pod sets a priority that differs from that of its class.
    lab.place("d.yaml", &pod_of("x", "gold, priority: 9"));
    assert_eq!(lab.events(), some(&[]), "d was removed from a complete file");
    let expected = "M/d.yaml: spec.priorityClassName: Invalid value: \"gold\": its priority is 5, which differs from \
                    spec.priority";
    assert_eq!(lab.problems(), [expected]);
}
