//! A manifest file of any content: it is read without a panic, errors contain no value of a Secret, and all computations on an
//! accepted pod end without a panic.

#![no_main]

use jiff::Timestamp;
use jiff::tz::TimeZone;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use std::rc::Rc;
use wherry::api::claim::{ClaimDirectory, ClaimKey};
use wherry::api::data_object::DataObjects;
use wherry::api::document::{self, Object};
use wherry::api::document::context::Context;
use wherry::api::environment::{self, Facts};
use wherry::api::limits::{self, PodRules};
use wherry::api::pod::Pod;
use wherry::api::qos::Qos;
use wherry::api::pod_resources::requested_by;
use wherry::api::resources::Resources;
use wherry::api::volume_contents;
use wherry::api::workload::Workload;

/// As the value of a Secret, and nowhere else, this text never appears in an error.
const SECRET: &str = "hunter2hunter2";

fn is_a_secret(text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else { return false };
    text.matches(SECRET).count() == 1
        && serde_saphyr::from_multiple::<Value>(text).is_ok_and(|documents| documents.iter().any(has_secret))
}

fn has_secret(document: &Value) -> bool {
    let kind = document["kind"].as_str().unwrap_or_default();
    let values = ["data", "stringData"].into_iter().filter_map(|field| document[field].as_object());
    let mut values = values.flat_map(serde_json::Map::values).filter_map(Value::as_str);
    kind == "Secret" && values.any(|value| value.contains(SECRET))
        || kind.ends_with("List") && document["items"].as_array().is_some_and(|items| items.iter().any(has_secret))
}

fuzz_target!(|text: &[u8]| {
    let context = Context::new("node", "2026-01-02T03:04:05Z");
    let (objects, problems) = document::read_objects(text, "/m/fuzz.yaml", context);
    let shows_it = problems.iter().find(|problem| problem.to_string().contains(SECRET));
    if let Some(problem) = shows_it {
        assert!(!is_a_secret(text), "{problem}");
    }
    let mut pods = Vec::new();
    let mut data = Vec::new();
    for object in objects {
        match object {
            Object::Pod(pod) => pods.push(*pod),
            Object::Data(object) => data.push(Rc::new(object)),
            Object::Workload(workload) => schedule(&workload),
            // A claim is its own next version.
            Object::Claim(claim) => assert_eq!(claim.immutable_difference(&claim), None),
            Object::PriorityClass(_) | Object::RuntimeClass(_) | Object::Network(_) => {}
            Object::Plain(object) => drop((object.content(), object.warning())),
        }
    }
    let (objects, _) = DataObjects::collect(data);
    pods.iter().for_each(|pod| compute(pod, &objects));
});

/// The times of a CronJob are computed in a bounded time, and in their order.
fn schedule(workload: &Workload) {
    let Workload::CronJob(of) = workload else { return };
    let Some(schedule) = &of.schedule else { return };
    let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a time zone");
    let [since, now] = [1_700_000_000, 1_800_000_000].map(|at| Timestamp::from_second(at).expect("a time"));
    let (next, last) = (schedule.next(since, &zone), schedule.last(since, now, &zone));
    assert!(next.is_none_or(|next| next > since));
    match last {
        Some(last) => {
            assert!(next.is_some_and(|next| next <= last) && last <= now);
            assert!(schedule.next(last, &zone).is_none_or(|next| next > now));
            let _ = of.job(last, &zone);
        }
        None => assert!(next.is_none_or(|next| next > now)),
    }
}

fn compute(pod: &Pod, objects: &DataObjects) {
    let allocatable = Resources::default();
    let facts = Facts { pod, ips: &[], host_ips: &[], allocatable: &allocatable, objects, services: None, cluster: None };
    let find = |_: &Pod, key: &ClaimKey| Ok(ClaimDirectory { path: format!("/claims/{}", key.0) });
    volume_contents::resolve(facts, &find).for_each(drop);
    for container in pod.all_containers() {
        let _ = environment::variables(container, facts);
    }
    let rules =
        PodRules { cpu_cfs_quota: true, cpu_cfs_period: 100_000, pids_limit: None, huge_page_sizes: vec![2 << 20] };
    let _ = (limits::of_pod(pod, &rules), requested_by(pod), Qos::of(pod.spec()));
    // An accepted pod can be recorded and restored.
    let value = serde_json::to_value(&pod.object).expect("JSON");
    assert!(document::from_value(&value) == Ok(pod.object.clone()));
}
