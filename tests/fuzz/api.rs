//! What a client of the Kubernetes API sends: a request's head, path, query, Accept and body, or a certificate. It is read without a
//! panic, and what is read is within the limits. The first byte says which of them the input is.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wherry::api::kube::path::{self, Target};
use wherry::api::kube::query::Query;
use wherry::api::kube::resources::Kind;
use wherry::api::kube::selection::Selection;
use wherry::api::kube::{accept, access::Role, pod_message, protobuf, reviews};
use wherry::net::http1::{self, Accepts, Parsed};
use wherry::net::x509;

const MAX_BODY: usize = 1000;
const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];

fuzz_target!(|input: &[u8]| {
    let Some((mode, input)) = input.split_first() else { return };
    match mode {
        b'c' => {
            let _ = x509::read(input);
        }
        b'p' => body(input),
        _ => request(input),
    }
});

fn body(input: &[u8]) {
    let _ = protobuf::object(input);
    for kind in ["Pod", "Deployment", "Job", "CronJob"] {
        let _ = pod_message::object(kind, input);
    }
    let Some(object) = protobuf::to_json(input) else { return };
    for kind in [Kind::SelfSubjectAccessReview, Kind::SelfSubjectRulesReview, Kind::SelfSubjectReview] {
        let answer = reviews::answer(kind, object.clone(), "ann", Role::View);
        assert!(answer["status"].is_object());
    }
}

fn request(input: &[u8]) {
    let accepts = |_: &str| Accepts { methods: METHODS, body: MAX_BODY, fields: true };
    let Parsed::Head(head) = http1::parse(input, accepts) else { return };
    assert!(head.length <= http1::MAX_HEAD.min(input.len()) && head.body <= MAX_BODY);
    // The same head is read in the same way when more has arrived.
    let more = [input, b"GET / HTTP/1.1\r\n\r\n"].concat();
    assert_eq!(http1::parse(&more, accepts), Parsed::Head(head.clone()));
    let fields = head.values("accept").collect::<Vec<_>>().join(",");
    let _ = (accept::format(&fields), accept::discovery(&fields));
    let query = Query::parse(&head.query);
    let _ = (query.number("resourceVersion"), query.flag("watch"));
    let Ok(Target::Object(path)) = path::parse(&head.path) else { return };
    assert!(path.name.as_deref() != Some("") && path.namespace.as_deref() != Some(""));
    let Ok(selection) = Selection::new(&path, &query) else { return };
    let (namespace, name) = (path.namespace.as_deref().unwrap_or("n"), path.name.as_deref().unwrap_or("x"));
    let object =
        serde_json::json!({ "metadata": { "namespace": namespace, "name": name, "labels": { "app": "web" } } });
    // An object that cannot be selected by its name is never selected.
    assert!(!selection.contains(&object) || selection.may_contain(namespace, name));
}
