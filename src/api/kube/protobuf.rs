//! Reads the few protobuf bodies that kubectl sends although the server offers only JSON.

use super::pod_message::{self, MessageError};
use super::wire::{WireValue, varint};
use crate::api::k8s::ByteString;
use crate::api::ordered::CollectOrdered;
use crate::api::plain_object::PlainKind;
use serde_json::{Map, Value, json};

/// The bytes before a protobuf object of the API.
const MAGIC: &[u8] = b"k8s\0";

/// The kinds that a `kubectl create` sends completely.
const CREATED: [&str; 4] = ["Pod", "Deployment", "Job", "CronJob"];
/// The older version of an autoscaler, and its message.
const AUTOSCALER_V1: (&str, &str) = ("autoscaling/v1", "AutoscalerOfV1");

/// Returns the fields of a message in their order, up to the first invalid one.
fn fields(mut rest: &[u8]) -> impl Iterator<Item = (u64, WireValue<'_>)> {
    std::iter::from_fn(move || {
        loop {
            let tag = varint(&mut rest)?;
            match tag & 7 {
                0 => return Some((tag >> 3, WireValue::Number(varint(&mut rest)?))),
                1 => rest = rest.get(8..)?,
                2 => {
                    let length = usize::try_from(varint(&mut rest)?).ok()?;
                    let (bytes, after) = rest.split_at_checked(length)?;
                    rest = after;
                    return Some((tag >> 3, WireValue::Bytes(bytes)));
                }
                5 => rest = rest.get(4..)?,
                _ => return None,
            }
        }
    })
}

/// Returns the messages in a repeated field.
fn messages(of: &[u8], number: u64) -> impl Iterator<Item = &[u8]> {
    fields(of).filter_map(move |(n, field)| match field {
        WireValue::Bytes(bytes) if n == number => Some(bytes),
        _ => None,
    })
}

fn number(of: &[u8], number: u64) -> Option<u64> {
    fields(of).find_map(|(n, field)| match field {
        WireValue::Number(value) if n == number => Some(value),
        _ => None,
    })
}

/// Returns a map from strings; `value` converts the values.
fn map(of: &[u8], number: u64, value: fn(&[u8]) -> Value) -> Map<String, Value> {
    messages(of, number).map(|entry| (text(entry, 1), value(message(entry, 2).unwrap_or_default()))).collect_object()
}

fn string(bytes: &[u8]) -> Value {
    String::from_utf8_lossy(bytes).into()
}

fn base64(bytes: &[u8]) -> Value {
    json!(ByteString(bytes.to_vec()))
}

/// Returns the fields of ObjectMeta that a client sets.
fn metadata(of: &[u8]) -> Value {
    let of = message(of, 1).unwrap_or_default();
    let mut metadata = Map::new();
    for (name, number) in [("name", 1), ("generateName", 2), ("namespace", 3)] {
        let value = text(of, number);
        if !value.is_empty() {
            metadata.insert(name.to_owned(), value.into());
        }
    }
    for (name, number) in [("labels", 11), ("annotations", 12)] {
        let value = map(of, number, string);
        if !value.is_empty() {
            metadata.insert(name.to_owned(), value.into());
        }
    }
    metadata.into()
}

/// Returns the message in a field.
fn message(of: &[u8], number: u64) -> Option<&[u8]> {
    messages(of, number).next()
}

fn text(of: &[u8], number: u64) -> String {
    message(of, number).map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
}

/// Returns the kind and the message of a body (`runtime.Unknown`). None if the body is not a protobuf object of the
/// API.
fn unknown(body: &[u8]) -> Option<(String, &[u8])> {
    let body = body.strip_prefix(MAGIC)?;
    Some((text(message(body, 1)?, 2), message(body, 2).unwrap_or_default()))
}

/// Returns the object in a body, with its kind: a Pod, a workload, or an object that is only kept and shown. None if
/// the object has another kind.
pub fn object(body: &[u8]) -> Option<Result<Value, (String, MessageError)>> {
    let (kind, of) = unknown(body)?;
    let plain = PlainKind::of(&kind);
    if !CREATED.contains(&kind.as_str()) && plain.is_none() {
        return None;
    }
    let version = api_version(body);
    let is_old = plain == Some(PlainKind::HorizontalPodAutoscaler) && version == AUTOSCALER_V1.0;
    let message = if is_old { AUTOSCALER_V1.1 } else { kind.as_str() };
    Some(match pod_message::object(message, of) {
        Ok(mut object) => {
            object["kind"] = kind.into();
            object["apiVersion"] = version.into();
            Ok(object)
        }
        Err(why) => Err((kind, why)),
    })
}

fn api_version(body: &[u8]) -> String {
    let kind = body.strip_prefix(MAGIC).and_then(|body| message(body, 1));
    kind.map(|kind| text(kind, 1)).unwrap_or_default()
}

/// Converts the body to JSON if kubectl sends its kind; the result has only the fields that the server uses. None if
/// the body has another kind.
pub fn to_json(body: &[u8]) -> Option<Value> {
    let (kind, of) = unknown(body)?;
    match kind.as_str() {
        "SelfSubjectAccessReview" => Some(access_review(&kind, of)),
        "SelfSubjectRulesReview" => {
            let spec = message(of, 2).unwrap_or_default();
            Some(json!({ "kind": kind, "spec": { "namespace": text(spec, 1) } }))
        }
        "SelfSubjectReview" => Some(json!({ "kind": kind })),
        "DeleteOptions" => Some(delete_options(of)),
        "Eviction" => {
            let mut eviction = json!({ "kind": kind, "apiVersion": api_version(body), "metadata": metadata(of) });
            if let Some(options) = message(of, 2) {
                eviction["deleteOptions"] = delete_options(options);
            }
            Some(eviction)
        }
        "ConfigMap" => {
            let fields = [("data", map(of, 2, string)), ("binaryData", map(of, 3, base64))];
            Some(with_data(&kind, of, fields, number(of, 4)))
        }
        "Secret" => {
            let fields = [("data", map(of, 2, base64)), ("stringData", map(of, 4, string))];
            let mut secret = with_data(&kind, of, fields, number(of, 5));
            let of_type = text(of, 3);
            if !of_type.is_empty() {
                secret["type"] = of_type.into();
            }
            Some(secret)
        }
        "PriorityClass" => Some(priority_class(&kind, of)),
        _ => None,
    }
}

fn access_review(kind: &str, of: &[u8]) -> Value {
    let spec = message(of, 2).unwrap_or_default();
    let mut result = json!({ "kind": kind, "spec": {} });
    if let Some(attributes) = message(spec, 1) {
        let names = ["namespace", "verb", "group", "version", "resource", "subresource", "name"];
        let attributes =
            names.iter().zip(1..).map(|(name, number)| ((*name).to_owned(), text(attributes, number).into()));
        result["spec"]["resourceAttributes"] = Value::Object(attributes.collect_object());
    }
    if let Some(path) = message(spec, 2) {
        result["spec"]["nonResourceAttributes"] = json!({ "path": text(path, 1), "verb": text(path, 2) });
    }
    result
}

fn priority_class(kind: &str, of: &[u8]) -> Value {
    // A negative number is encoded as the bits of a signed 64-bit number, in ten bytes.
    let value = number(of, 2).unwrap_or(0).cast_signed();
    let mut class = json!({ "kind": kind, "metadata": metadata(of), "value": value });
    if number(of, 3) == Some(1) {
        class["globalDefault"] = true.into();
    }
    for (name, number) in [("description", 4), ("preemptionPolicy", 5)] {
        let value = text(of, number);
        if !value.is_empty() {
            class[name] = value.into();
        }
    }
    class
}

fn delete_options(of: &[u8]) -> Value {
    let mut options = json!({});
    if let Some(seconds) = number(of, 1) {
        options["gracePeriodSeconds"] = seconds.cast_signed().into();
    }
    if let Some(preconditions) = message(of, 2) {
        options["preconditions"] = json!({ "uid": text(preconditions, 1), "resourceVersion": text(preconditions, 2) });
    }
    let dry_run: Vec<Value> = messages(of, 5).map(string).collect();
    if !dry_run.is_empty() {
        options["dryRun"] = dry_run.into();
    }
    options
}

/// Returns a ConfigMap or a Secret as JSON.
fn with_data(kind: &str, of: &[u8], fields: [(&str, Map<String, Value>); 2], immutable: Option<u64>) -> Value {
    let mut object = json!({ "kind": kind, "metadata": metadata(of) });
    for (name, map) in fields {
        if !map.is_empty() {
            object[name] = map.into();
        }
    }
    if immutable == Some(1) {
        object["immutable"] = true.into();
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
    }

    fn body(kind: &str, raw: &[u8]) -> Vec<u8> {
        let meta = [field(1, b"authorization.k8s.io/v1"), field(2, kind.as_bytes())].concat();
        [MAGIC, &field(1, &meta), &field(2, raw), &field(3, b""), &field(4, b"")].concat()
    }

    #[test]
    fn a_review_is_read() {
        let attributes = [field(1, b"default"), field(2, b"get"), field(5, b"pods"), field(6, b"log")].concat();
        let review = body("SelfSubjectAccessReview", &[field(1, b""), field(2, &field(1, &attributes))].concat());
        let json = to_json(&review).unwrap();
        let attributes = &json["spec"]["resourceAttributes"];
        assert_eq!((&attributes["verb"], &attributes["subresource"]), (&"get".into(), &"log".into()));
        assert_eq!(to_json(&body("Pod", b"")), None);
    }

    #[test]
    fn objects_that_kubectl_creates_are_read() {
        let entry = |key: &[u8], value: &[u8]| [field(1, key), field(2, value)].concat();
        let meta = field(1, &[field(1, b"made"), field(3, b"shop"), field(11, &entry(b"a", b"b"))].concat());
        let map = [&meta[..], &field(2, &entry(b"x", b"one")), &field(3, &entry(b"y", b"\xff")), &[4 << 3, 1]].concat();
        let metadata = json!({ "name": "made", "namespace": "shop", "labels": { "a": "b" } });
        assert_eq!(
            to_json(&body("ConfigMap", &map)).unwrap(),
            json!({ "kind": "ConfigMap", "metadata": metadata, "data": { "x": "one" }, "binaryData": { "y": "/w==" },
                "immutable": true })
        );
        let secret = [&meta[..], &field(2, &entry(b"x", b"one")), &field(3, b"Opaque")].concat();
        assert_eq!(
            to_json(&body("Secret", &secret)).unwrap(),
            json!({ "kind": "Secret", "metadata": metadata, "data": { "x": "b25l" }, "type": "Opaque" })
        );
        let class = [&meta[..], &[2 << 3, 0x9c, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]].concat();
        assert_eq!(to_json(&body("PriorityClass", &class)).unwrap()["value"], -100);
    }

    #[test]
    fn a11_an_eviction_is_read() {
        let meta = field(1, &[field(1, b"web"), field(3, b"shop")].concat());
        let options = [vec![1 << 3, 5], field(2, &field(1, b"u")), field(5, b"All")].concat();
        assert_eq!(
            to_json(&body("Eviction", &[meta, field(2, &options)].concat())).unwrap(),
            json!({
                "kind": "Eviction", "apiVersion": "authorization.k8s.io/v1",
                "metadata": { "name": "web", "namespace": "shop" },
                "deleteOptions": {
                    "gracePeriodSeconds": 5, "preconditions": { "uid": "u", "resourceVersion": "" }, "dryRun": ["All"],
                },
            })
        );
        assert_eq!(to_json(&body("DeleteOptions", &[1 << 3, 7])).unwrap(), json!({ "gracePeriodSeconds": 7 }));
    }

    #[test]
    fn no_input_causes_a_panic() {
        let attributes = [field(1, b"default"), field(2, b"get")].concat();
        let review = body("SelfSubjectAccessReview", &field(2, &field(1, &attributes)));
        for end in 0..review.len() {
            to_json(&review[..end]);
            for change in 0..=255 {
                let mut changed = review.clone();
                changed[end] = change;
                to_json(&changed);
            }
        }
        assert_eq!(varint(&mut &[0xff_u8; 11][..]), None);
    }
}
