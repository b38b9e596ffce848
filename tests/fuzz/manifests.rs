//! A manifest file of any content: it is read without a panic, errors contain no value of a Secret, and all computations on an
//! accepted pod end without a panic.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::rc::Rc;
use wherry::api::data_object::DataObjects;
use wherry::api::document::{self, Context, Object};
use wherry::api::environment::{self, Facts};
use wherry::api::limits::{self, PodRules};
use wherry::api::pod::Pod;
use wherry::api::qos::Qos;
use wherry::api::resources::{Resources, requested_by};
use wherry::api::volume_contents;

/// A value of this text never appears in an error.
const SECRET: &str = "hunter2hunter2";

fuzz_target!(|text: &[u8]| {
    let context = Context::new("node", "2026-01-02T03:04:05Z");
    let (objects, problems) = document::read_objects(text, "/m/fuzz.yaml", context);
    for problem in &problems {
        assert!(!problem.to_string().contains(SECRET), "{problem}");
    }
    let mut pods = Vec::new();
    let mut data = Vec::new();
    for object in objects {
        match object {
            Object::Pod(pod) => pods.push(*pod),
            Object::Data(object) => data.push(Rc::new(object)),
            Object::PriorityClass(_) | Object::RuntimeClass(_) => {}
        }
    }
    let (objects, _) = DataObjects::collect(data);
    pods.iter().for_each(|pod| compute(pod, &objects));
});

fn compute(pod: &Pod, objects: &DataObjects) {
    let allocatable = Resources::default();
    let facts = Facts { pod, ips: &[], host_ips: &[], allocatable: &allocatable, objects };
    let _ = volume_contents::resolve(facts);
    for container in pod.all_containers() {
        let _ = environment::variables(container, facts);
    }
    let rules =
        PodRules { cpu_cfs_quota: true, cpu_cfs_period: 100_000, pids_limit: None, huge_page_sizes: vec![2 << 20] };
    let _ = (limits::of_pod(pod, &rules), requested_by(pod), Qos::of(pod.spec()));
    // An accepted pod can be recorded and restored.
    let value = serde_json::to_value(&pod.object).expect("JSON");
    assert!(document::pod_from_value(&value).is_ok_and(|again| again == pod.object));
}
