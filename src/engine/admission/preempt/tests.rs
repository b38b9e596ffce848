//! The choice of victims, case by case. A pod is written as `name:CLASS` and its properties: `c` cpu, `m` memory, `s`
//! ephemeral storage, `g` an extended resource, `p` the priority, `t` the time when it was first seen. The need is
//! written in the same way; `n` is the number of pods.

use super::*;
use crate::api::resources::{EPHEMERAL_STORAGE, PODS};

const GPU: &str = "x.io/gpu";
/// The priority of `system-node-critical`, above that of `system-cluster-critical`.
const NODE_CRITICAL: i32 = CRITICAL + 1000;

struct Pod {
    uid: Uid,
    priority: i32,
    qos: Qos,
    requests: Resources,
    since: Wall,
}

fn resource(letter: &str) -> Option<&'static str> {
    Some(match letter {
        "c" => CPU,
        "m" => MEMORY,
        "s" => EPHEMERAL_STORAGE,
        "g" => GPU,
        "n" => PODS,
        _ => return None,
    })
}

fn needed(text: &str) -> Resources {
    let mut all = Resources::default();
    text.split_whitespace().for_each(|word| all.set(resource(&word[..1]).unwrap(), word[1..].parse().unwrap()));
    all
}

fn pods(text: &str) -> Vec<Pod> {
    let pod = |text: &str| {
        let mut words = text.split_whitespace();
        let (uid, class) = words.next().unwrap().split_once(':').unwrap();
        let qos = match class {
            "G" => Qos::Guaranteed,
            "B" => Qos::Burstable,
            _ => Qos::BestEffort,
        };
        let mut pod = Pod { uid: Uid::from(uid), priority: 0, qos, requests: needed("n1"), since: Wall(5) };
        for word in words {
            let number = || word[1..].parse::<u64>().unwrap();
            match &word[..1] {
                "p" => pod.priority = word[1..].parse().unwrap(),
                "t" => pod.since = Wall(word[1..].parse().unwrap()),
                letter => pod.requests.set(resource(letter).unwrap(), number()),
            }
        }
        pod
    };
    text.split(',').map(str::trim).filter(|text| !text.is_empty()).map(pod).collect()
}

/// Returns the names of the victims for a pod of this priority, or "none" if all candidates do not free enough.
fn chosen_by(by: i32, what: &str, among: &str) -> String {
    let pods = pods(among);
    let mut candidates: Vec<Candidate<'_>> = pods
        .iter()
        .filter(|pod| may_preempt(by, pod.priority))
        .map(|Pod { uid, priority, qos, requests, since }| Candidate {
            uid,
            priority: *priority,
            qos: *qos,
            requests,
            since: *since,
        })
        .collect();
    let needed = needed(what);
    let all = victims(&needed, &candidates);
    // Neither the order of the candidates nor a repetition changes the result.
    for _ in 0..candidates.len() {
        candidates.rotate_left(1);
        assert_eq!(victims(&needed, &candidates), all, "{what} of {among}");
    }
    candidates.reverse();
    assert_eq!(victims(&needed, &candidates), all, "{what} of {among}");
    all.map_or("none".to_owned(), |all| all.iter().map(Uid::as_str).collect::<Vec<_>>().join(" "))
}

/// Checks cases. Each case contains the need, the pods, and the expected victims.
fn check(cases: &[(&str, &str, &str)]) {
    for (what, among, wanted) in cases {
        assert_eq!(&chosen_by(CRITICAL, what, among), wanted, "{what} of {among}");
    }
}

#[test]
fn a6_critical_over_not_critical_and_higher_over_lower() {
    for (by, victim, may) in [
        (CRITICAL, 0, true),
        (CRITICAL, CRITICAL - 1, true),
        (CRITICAL, CRITICAL, false),
        (NODE_CRITICAL, CRITICAL, true),
        (CRITICAL, NODE_CRITICAL, false),
        (CRITICAL - 1, CRITICAL - 1, false),
        (CRITICAL, i32::MIN, true),
        (10, 9, true),
        (10, 10, false),
        (-5, -6, true),
        (0, i32::MAX, false),
    ] {
        assert_eq!(may_preempt(by, victim), may, "{by} {victim}");
    }
}

#[test]
fn a6_only_pods_that_may_go_are_chosen_whatever_their_class_or_size() {
    let critical = "sys:E n1 g1 p2000000000, node:B c900 g1 p2000001000, app:G c100 g1 p1999999999, low:G c100 p-3";
    for (by, what, wanted) in [
        (CRITICAL, "c1", "low"),
        (CRITICAL, "c150", "low app"),
        (CRITICAL, "g1", "app"),
        (CRITICAL, "g2", "none"),
        (CRITICAL, "c201", "none"),
        (NODE_CRITICAL, "g1", "sys"),
        (NODE_CRITICAL, "g2", "app sys"),
        (NODE_CRITICAL, "c201", "none"),
        (NODE_CRITICAL + 1, "c201", "node"),
        // Guaranteed pods come first, but only for the remaining need.
        (NODE_CRITICAL + 1, "c901", "low node"),
        (CRITICAL - 1, "c1", "low"),
        (CRITICAL - 1, "g1", "none"),
        (-2, "c100", "low"),
        (-3, "c1", "none"),
        (0, "c101", "none"),
    ] {
        assert_eq!(chosen_by(by, what, critical), wanted, "{what} for {by}");
    }
    for (by, what, among, wanted) in [
        // A pod of the same priority stays, even if it requests the whole amount.
        (5, "c4", "a:B c4 p5, b:B c2 p4, c:B c2 p3", "c b"),
        (5, "c4", "a:B c4 p5, b:B c2 p4, c:B c1 p3", "none"),
        (5, "c4", "a:E p5, b:G c4 p4", "b"),
        // The class and the distance take precedence over the priority.
        (5, "c4", "a:B c4 p4, b:G c4 p-1", "a"),
        (5, "c4", "a:B c4 p4, b:B c3 p-1", "a"),
        (5, "c4", "a:B c4 p4, b:B c4 p-1", "b"),
    ] {
        assert_eq!(chosen_by(by, what, among), wanted, "{what} of {among} for {by}");
    }
}

#[test]
fn a7_the_worst_class_goes_first_and_better_ones_only_for_the_rest() {
    let node =
        "be-1:E, be-2:E, bu-1:B c100 m100, bu-2:B c200 m50, bu-3:B c300 m300, gu-1:G c100 m100, gu-2:G c400 m400";
    for (what, wanted) in [
        ("", ""),
        ("n1", "be-1"),
        ("n2", "be-1 be-2"),
        ("n3", "bu-2 be-1 be-2"),
        ("n5", "bu-2 bu-1 bu-3 be-1 be-2"),
        ("n6", "gu-1 bu-2 bu-1 bu-3 be-1 be-2"),
        ("n7", "gu-1 gu-2 bu-2 bu-1 bu-3 be-1 be-2"),
        ("n8", "none"),
        ("c1", "bu-2"),
        ("c100", "bu-2"),
        ("c201", "bu-3"),
        ("c301", "bu-3 bu-2"),
        ("c401", "bu-3 bu-2"),
        ("c600", "bu-3 bu-2 bu-1"),
        // All burstable pods and one more: the smallest that is enough.
        ("c601", "gu-1 bu-3 bu-2 bu-1"),
        ("c700", "gu-1 bu-3 bu-2 bu-1"),
        // The surplus of a guaranteed pod spares a burstable pod.
        ("c701", "gu-2 bu-3 bu-2"),
        ("c1100", "gu-2 gu-1 bu-3 bu-2 bu-1"),
        ("c1101", "none"),
        ("m51", "bu-1"),
        ("m350", "bu-3 bu-2"),
        ("m951", "none"),
        ("c150 m90", "bu-3"),
        ("c300 m120", "bu-3"),
        ("c310 m10 n4", "bu-3 bu-2 be-1 be-2"),
        ("g1", "none"),
    ] {
        assert_eq!(chosen_by(CRITICAL, what, node), wanted, "{what}");
    }
    check(&[
        // A best-effort pod may request resources that do not determine the class.
        ("s5", "e:E s5, b:B s5, g:G s5", "e"),
        ("s6", "e:E s5, b:B s5, g:G s5", "b e"),
        ("s11", "e:E s5, b:B s5, g:G s5", "g b e"),
        ("s4", "e:E s3, b:B s4, g:G s9", "b"),
        // Only the guaranteed pod has memory.
        ("m5", "e:E, b:B c9, g:G m5 c5", "g"),
        // The burstable pods are not enough. One guaranteed pod is enough alone and spares them.
        ("c10", "b1:B c4, b2:B c4, g:G c10", "g"),
        ("c10", "b1:B c4, b2:B c4, b3:B c4, g:G c10", "b1 b2 b3"),
        // Victims of a better class also count for `pods`: one best-effort pod fewer is needed.
        ("c5 n2", "b:B c5, e1:E, e2:E", "b e1"),
        ("c5 n1", "b:B c5, e1:E, e2:E", "b"),
    ]);
}

#[test]
fn a7_if_all_candidates_are_not_enough_there_are_no_victims() {
    check(&[
        ("c1", "", "none"),
        ("c11", "a:B c5, b:B c5", "none"),
        ("c10", "a:B c5, b:B c5", "a b"),
        // One resource is plentiful, the other one short.
        ("c1 m11", "a:B c50 m5, b:G c50 m5", "none"),
        ("c1 g1", "a:B c50 m5, b:G c50 m5", "none"),
        ("n3", "a:E, b:E", "none"),
        ("c18446744073709551615", "a:B c9223372036854775807, b:B c9223372036854775807", "none"),
        ("c18446744073709551615", "a:B c9223372036854775807, b:B c9223372036854775807, c:B c1", "a b c"),
        ("c18446744073709551615", "a:B c18446744073709551615, b:B c18446744073709551615", "a"),
    ]);
}

#[test]
fn a7_pods_without_requests_are_victims_only_if_the_pod_count_is_short() {
    check(&[
        ("c1", "a:E, b:E, c:B c1", "c"),
        ("c1", "a:E, b:E", "none"),
        ("c1 m1", "a:E, b:B m1, c:B c1", "c b"),
        ("n1", "a:E, b:B c1", "a"),
        ("n2", "a:E, b:B c1, c:G c1 m1", "b a"),
        ("c1 n1", "a:E, b:B c1", "b"),
        ("c1 n2", "a:E, b:B c1", "b a"),
        ("g1", "a:B c900 m900, b:B g1", "b"),
        ("g2", "a:B c900 m900, b:B g1, c:E g1", "b c"),
    ]);
}

#[test]
fn a7_one_that_covers_the_need_is_nearer_than_several_smaller_ones() {
    check(&[
        ("c10", "p3:B c3, p4:B c4, p5:B c5, p10:B c10", "p10"),
        ("c10", "p3:B c3, p4:B c4, p5:B c5, p100:B c100", "p100"),
        ("c10", "p3:B c3, p4:B c4, p5:B c5", "p5 p4 p3"),
        ("c9", "p3:B c3, p4:B c4, p5:B c5", "p5 p4"),
        ("c10", "p4:B c4, p5:B c5, p6:B c6", "p6 p4"),
        // Three small pods that match exactly, and a big one that is just short.
        ("c9", "a:B c3, b:B c3, c:B c3, big:B c8", "big a"),
        ("c9", "a:B c3, b:B c3, c:B c3, big:B c9", "big"),
        ("c9", "a:B c3, b:B c3, c:B c3", "a b c"),
        // Among pods that cover the need, the one with the smallest requests.
        ("c5", "a:B c9 m9, b:B c5 m9, c:B c9 m8", "c"),
    ]);
}

#[test]
fn a7_several_resources_count_together() {
    check(&[
        // A pod that frees 6 of 10 of both resources is nearer than one that frees all of one: 2 * 0.4^2 against 1.
        // The following tie goes to the smaller memory request.
        ("c10 m10", "a:B c10, b:B m10, c:B c6 m6", "c a b"),
        ("c10 m10", "a:B c10 m9, b:B c9 m10, c:B c10 m10", "c"),
        ("c10 m10", "a:B c10 m9, b:B c9 m10", "a b"),
        ("c10 m10", "a:B c10 m1, b:B c1 m10, c:B c5 m5", "c a b"),
        // Each resource has its own scale: half of the need is half, in milli-CPU or in bytes.
        ("c1000 m1073741824", "a:B c500 m1073741824, b:B c1000 m536870913", "b a"),
        ("c1000 m1073741824", "a:B c500 m1073741824, b:B c1000 m536870911", "a b"),
        ("c4 n3", "a:B c4, b:B c1, c:B c1, d:B", "a d b"),
        ("s5 g1", "a:B s5, b:B g1, c:B s4 g1", "c a"),
        ("c2 m2 s2 g2", "a:B c2 m2, b:B s2 g2, c:B c1 m1 s1 g1, d:B c1 m1 s1 g1", "c d"),
        ("c3 m3 s3", "a:B c3, b:B m3, c:B s3", "c a b"),
        // A covered resource no longer counts: the second pod is chosen for memory alone.
        ("c5 m10", "a:B c5 m5, b:B c9 m4, c:B m5, d:B c1 m6", "a c"),
    ]);
}

#[test]
fn a7_equally_near_is_decided_by_request_priority_age_and_uid() {
    check(&[
        ("n1", "a:B c1 m100, b:B c100 m1", "b"),
        ("n1", "a:B c100 m100, b:B c99 m100", "b"),
        ("n1", "a:B c1 p3 t5, b:B c1 p2 t1", "b"),
        ("n1", "a:B c1 p2 t5, b:B c1 p2 t6", "b"),
        ("n1", "b:B c1, a:B c1", "a"),
        ("n1", "b:B c1, a:B c1 t4", "b"),
        // Mirrored requests are equally far: the smaller memory request wins.
        ("c3 m3", "a:B c1 m2, b:B c2 m1", "b a"),
        // The tie is decided by the memory request, although memory is not needed.
        ("c5", "a:B c5 m2, b:B c7 m1", "b"),
        ("c5", "a:B c5 m1 p1, b:B c6 m1", "a"),
        ("c5", "a:B c5 m1 p-1, b:B c5 m1 p-2, c:B c5 m1 p-2 t6", "c"),
        ("n3", "d:E, c:E, b:E t9, a:E p1", "b c d"),
    ]);
}
