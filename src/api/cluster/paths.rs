//! Paths of the API, and the encoding of their parts.

use std::fmt::Write as _;

pub(super) const NODES: &str = "/api/v1/nodes";
pub(super) const PODS: &str = "/api/v1/pods";
pub(super) const RUNTIME_CLASSES: &str = "/apis/node.k8s.io/v1/runtimeclasses";
pub(super) const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
pub(super) const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
pub(super) const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
pub(super) const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// Percent-encodes everything but the unreserved characters of RFC 3986, so that the text can be a part of a path or a
/// value of a query.
pub(super) fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            // Writing to a String does not fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Returns the path with a query. `query`: names, which must need no encoding, and plain values.
pub(super) fn with_query(path: &str, query: &[(&str, &str)]) -> String {
    let mut out = path.to_owned();
    for (i, (name, value)) in query.iter().enumerate() {
        out.push(if i == 0 { '?' } else { '&' });
        out.push_str(name);
        out.push('=');
        out.push_str(&encode(value));
    }
    out
}

/// Returns the path of an object in the collection.
pub(super) fn object(collection: &str, name: &str) -> String {
    format!("{collection}/{}", encode(name))
}

/// Returns the path of a core/v1 collection in a namespace.
pub(super) fn namespaced(namespace: &str, collection: &str) -> String {
    format!("/api/v1/namespaces/{}/{collection}", encode(namespace))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_path_cannot_change_its_structure() {
        assert_eq!(encode("kube-root-ca.crt_~"), "kube-root-ca.crt_~");
        assert_eq!(object(NODES, "a/../b?c#d%"), "/api/v1/nodes/a%2F..%2Fb%3Fc%23d%25");
        assert_eq!(encode("\u{e4} "), "%C3%A4%20");
        assert_eq!(with_query("/p", &[("a", "x=y&z"), ("b", "1")]), "/p?a=x%3Dy%26z&b=1");
    }
}
