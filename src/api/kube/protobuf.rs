//! Reads the few protobuf bodies that kubectl sends although the server offers only JSON.

use serde_json::{Value, json};

/// The bytes before a protobuf object of the API.
const MAGIC: &[u8] = b"k8s\0";

/// The fields of a message that contain bytes, in their order. Ends at the first invalid one.
fn fields(mut rest: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || {
        loop {
            let tag = varint(&mut rest)?;
            match tag & 7 {
                0 => drop(varint(&mut rest)?),
                1 => rest = rest.get(8..)?,
                2 => {
                    let length = usize::try_from(varint(&mut rest)?).ok()?;
                    let (bytes, after) = rest.split_at_checked(length)?;
                    rest = after;
                    return Some((tag >> 3, bytes));
                }
                5 => rest = rest.get(4..)?,
                _ => return None,
            }
        }
    })
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// The message in a field.
fn message(of: &[u8], number: u64) -> Option<&[u8]> {
    fields(of).find(|(n, _)| *n == number).map(|(_, bytes)| bytes)
}

fn text(of: &[u8], number: u64) -> String {
    message(of, number).map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
}

/// The kind and the message of a body (`runtime.Unknown`). None: it is not a protobuf object of the API.
fn unknown(body: &[u8]) -> Option<(String, &[u8])> {
    let body = body.strip_prefix(MAGIC)?;
    Some((text(message(body, 1)?, 2), message(body, 2).unwrap_or_default()))
}

/// The body as JSON, for the kinds that kubectl sends: only their fields that the server uses. None: not one of them.
pub fn to_json(body: &[u8]) -> Option<Value> {
    let (kind, of) = unknown(body)?;
    match kind.as_str() {
        "SelfSubjectAccessReview" => {
            let spec = message(of, 2).unwrap_or_default();
            let attributes = message(spec, 1).map(|a| {
                let names = ["namespace", "verb", "group", "version", "resource", "subresource", "name"];
                names.iter().zip(1..).map(|(name, number)| ((*name).to_owned(), text(a, number))).collect::<Vec<_>>()
            });
            let mut result = json!({ "kind": kind, "spec": {} });
            if let Some(attributes) = attributes {
                let attributes = attributes.into_iter().map(|(name, value)| (name, Value::from(value))).collect();
                result["spec"]["resourceAttributes"] = Value::Object(attributes);
            }
            if let Some(path) = message(spec, 2) {
                result["spec"]["nonResourceAttributes"] = json!({ "path": text(path, 1), "verb": text(path, 2) });
            }
            Some(result)
        }
        "SelfSubjectRulesReview" => {
            let spec = message(of, 2).unwrap_or_default();
            Some(json!({ "kind": kind, "spec": { "namespace": text(spec, 1) } }))
        }
        "SelfSubjectReview" => Some(json!({ "kind": kind })),
        _ => None,
    }
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
