//! The digest of a document, and the UID derived from it (D3).
//!
//! Both depend only on the parsed content: not on comments, on the order of keys, or on the format (YAML or JSON).

use crate::api::names::Uid;
use crate::api::ordered::OrderSlice;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Returns the digest of a document's parsed content: 64 hexadecimal digits.
pub fn digest(content: &Value) -> String {
    let mut hasher = Sha256::new();
    feed(&mut hasher, content);
    hex(&hasher.finalize())
}

/// Returns the UID for a pod that does not specify one: 32 hexadecimal digits without dashes, as in a kubelet.
pub fn of(path: &str, digest: &str) -> Uid {
    let mut hasher = Sha256::new();
    feed_bytes(&mut hasher, b'p', path.as_bytes());
    feed_bytes(&mut hasher, b'd', digest.as_bytes());
    Uid::from(&hex(&hasher.finalize())[..32])
}

/// Returns the UID of an object that has none of its own, in the form of a UUID. It depends only on the kind and the
/// name, so it stays the same after a change and after a restart.
pub fn of_name(kind: &str, namespace: &str, name: &str) -> String {
    let digest = digest_of_bytes(format!("{kind}/{namespace}/{name}").as_bytes());
    let part = |range: std::ops::Range<usize>| digest.get(range).unwrap_or_default().to_owned();
    [part(0..8), part(8..12), part(12..16), part(16..20), part(20..32)].join("-")
}

/// Returns the digest of plain bytes: 64 hexadecimal digits.
pub fn digest_of_bytes(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Feeds each value with its kind and length, so that different contents never feed the same bytes.
fn feed(hasher: &mut Sha256, value: &Value) {
    match value {
        Value::Null => hasher.update(b"n"),
        Value::Bool(b) => hasher.update(if *b { b"t" } else { b"f" }),
        Value::Number(n) => feed_bytes(hasher, b'#', n.to_string().as_bytes()),
        Value::String(s) => feed_bytes(hasher, b's', s.as_bytes()),
        Value::Array(items) => {
            hasher.update(b"[");
            hasher.update((items.len() as u64).to_le_bytes());
            items.iter().for_each(|item| feed(hasher, item));
        }
        Value::Object(map) => {
            hasher.update(b"{");
            hasher.update((map.len() as u64).to_le_bytes());
            let mut entries: Vec<_> = map.iter().collect();
            entries.order_by_key(|(key, _)| key.as_str());
            for (key, item) in entries {
                feed_bytes(hasher, b'k', key.as_bytes());
                feed(hasher, item);
            }
        }
    }
}

fn feed_bytes(hasher: &mut Sha256, kind: u8, bytes: &[u8]) {
    hasher.update([kind]);
    hasher.update((bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

/// Formats bytes in hexadecimal, with two digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|b| [DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]]).map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn d3_the_digest_depends_on_content_alone() {
        let a = json!({"a": 1, "b": ["x", null, true]});
        assert_eq!(digest(&a), digest(&json!({"b": ["x", null, true], "a": 1})));
        for other in [
            json!({"a": "1", "b": ["x", null, true]}),
            json!({"a": 1, "b": ["x", null, false]}),
            json!({"a": 1, "b": ["x", null], "c": true}),
            json!({"a": 1}),
        ] {
            assert_ne!(digest(&a), digest(&other), "{other}");
        }
        assert_ne!(digest(&json!(["a", "b"])), digest(&json!(["ab"])));
        assert_eq!(digest(&a).len(), 64);
    }

    #[test]
    fn d3_a_uid_depends_on_path_and_content() {
        let uid = of("/m/a.yaml", "00");
        assert_eq!(uid.as_str().len(), 32);
        assert_ne!(uid, of("/m/b.yaml", "00"));
        assert_ne!(uid, of("/m/a.yaml", "01"));
    }
}
