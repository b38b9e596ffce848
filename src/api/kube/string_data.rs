//! The plain-text values in the manifest of a Secret. An API server stores only `data`, so that is what a client
//! changes.

use crate::api::k8s::ByteString;
use serde_json::{Map, Value};

/// Returns the Secret as an API server stores it: each value of `stringData` replaces the value with the same key in
/// `data`. An object of another kind, or with fields that are not maps of strings, stays as it is.
pub fn folded(object: &Value) -> Value {
    let is_text = |(_, value): (&String, &Value)| value.is_string();
    let all = object.get("stringData").and_then(Value::as_object).filter(|all| all.iter().all(is_text));
    let (Some(all), Some("Secret")) = (all, object.get("kind").and_then(Value::as_str)) else { return object.clone() };
    let mut data = match object.get("data") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(data)) => data.clone(),
        Some(_) => return object.clone(),
    };
    let base64 = |text: &Value| serde_json::to_value(ByteString(text.as_str().unwrap_or_default().into()));
    for (key, text) in all {
        data.insert(key.clone(), base64(text).unwrap_or_default());
    }
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("stringData");
        fields.insert("data".to_owned(), data.into());
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn plain_values_replace_those_of_data() {
        let of = |fields: Value| {
            let mut object = json!({ "kind": "Secret", "type": "Opaque" });
            object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            object
        };
        let both = of(json!({ "data": { "a": "AA==", "b": "Yg==" }, "stringData": { "a": "one", "c": "" } }));
        assert_eq!(folded(&both), of(json!({ "data": { "a": "b25l", "b": "Yg==", "c": "" } })));
        assert_eq!(folded(&of(json!({ "stringData": { "a": "one" } }))), of(json!({ "data": { "a": "b25l" } })));
        for same in [
            of(json!({ "data": { "a": "AA==" } })),
            of(json!({ "stringData": { "a": 1 } })),
            of(json!({ "data": 1, "stringData": { "a": "x" } })),
            json!({ "kind": "ConfigMap", "stringData": { "a": "x" } }),
        ] {
            assert_eq!(folded(&same), same);
        }
    }
}
