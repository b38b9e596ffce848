//! The certificates of a node: the names that their requests must have, and the answers to them.

use super::node::Address;
use super::request::ApiResponse;
use super::requests::Signer;
use crate::api::k8s::ByteString;
use crate::api::time::Wall;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The organization (group) of every node. The Node authorizer applies to its members.
pub const ORGANIZATION: &str = "system:nodes";

/// Returns the common name of a node's certificate.
pub fn common_name(node: &str) -> String {
    format!("system:node:{node}")
}

/// The certificate that a request is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Purpose {
    /// The credential of the node for the API server.
    Client,
    /// The certificate of the node's server, for these names.
    Serving(ServingNames),
}

impl Purpose {
    pub fn signer(&self) -> Signer {
        match self {
            Purpose::Client => Signer::Client,
            Purpose::Serving(_) => Signer::Serving,
        }
    }
}

/// The names under which clients reach the node's server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServingNames {
    pub dns: BTreeSet<String>,
    pub addresses: BTreeSet<IpAddr>,
}

impl ServingNames {
    /// Returns the names and addresses that the node reports.
    pub fn of(addresses: &[Address]) -> ServingNames {
        let mut names = ServingNames::default();
        for Address { address, .. } in addresses {
            match address.parse() {
                Ok(address) => names.addresses.insert(address),
                Err(_) => names.dns.insert(address.clone()),
            };
        }
        names
    }
}

/// Returns the name of the request with this hash. The name is the same when the request is repeated, so the
/// repetition finds the first request.
pub fn request_name(hash: &[u8; 32]) -> String {
    let digits: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("node-csr-{digits}")
}

/// The signing request for a key of this node that has no certificate yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SigningRequest {
    /// The name of the object (`request_name`).
    pub name: String,
    /// The PKCS #10 request as base64 of its PEM text. It contains the public key only.
    #[serde(skip)]
    pub request: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Validity {
    pub not_before: Wall,
    /// The last second at which the certificate is valid.
    pub not_after: Wall,
}

/// A certificate that the node has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum InUse {
    /// `is_managed`: `wherry join` has written the files, so Wherry may replace them.
    Client { validity: Validity, is_managed: bool },
    /// The certificate of the node's server, for these names.
    Serving { validity: Validity, names: ServingNames },
}

impl InUse {
    pub fn validity(&self) -> Validity {
        match self {
            InUse::Client { validity, .. } | InUse::Serving { validity, .. } => *validity,
        }
    }

    /// Reports whether Wherry may replace the certificate.
    pub fn is_managed(&self) -> bool {
        match self {
            InUse::Client { is_managed, .. } => *is_managed,
            InUse::Serving { .. } => true,
        }
    }

    /// Returns true if the certificate covers the purpose and all its names. As in a kubelet, it may have more names.
    pub fn covers(&self, wanted: &Purpose) -> bool {
        match (self, wanted) {
            (InUse::Client { .. }, Purpose::Client) => true,
            (InUse::Serving { names, .. }, Purpose::Serving(wanted)) => {
                names.dns.is_superset(&wanted.dns) && names.addresses.is_superset(&wanted.addresses)
            }
            _ => false,
        }
    }
}

/// The state of a certificate signing request.
#[derive(Clone, PartialEq, Eq)]
pub enum SigningProgress {
    /// Not approved yet, or approved but not signed yet.
    Pending,
    /// The certificate chain in PEM.
    Issued(String),
    /// Denied by an approver, or refused by the signer, with the reason. This is final for the request.
    Refused(String),
}

impl std::fmt::Debug for SigningProgress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SigningProgress::Pending => f.write_str("Pending"),
            SigningProgress::Issued(pem) => write!(f, "Issued({} bytes)", pem.len()),
            SigningProgress::Refused(why) => write!(f, "Refused({why})"),
        }
    }
}

/// Reads a CertificateSigningRequest from a successful answer.
///
/// # Errors
/// The answer is not a valid CertificateSigningRequest.
pub fn progress(response: &ApiResponse) -> Result<SigningProgress, String> {
    let object: Value = serde_json::from_slice(&response.body).map_err(|e| e.to_string())?;
    if object["kind"] != "CertificateSigningRequest" {
        return Err("it is not a CertificateSigningRequest".to_owned());
    }
    let status = &object["status"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for condition in status["conditions"].as_array().into_iter().flatten() {
        if let kind @ ("Denied" | "Failed") = condition["type"].as_str().unwrap_or_default() {
            let (reason, message) = (text(&condition["reason"]), text(&condition["message"]));
            let why: Vec<&str> = [reason.as_str(), message.as_str()].into_iter().filter(|t| !t.is_empty()).collect();
            let why = if why.is_empty() { "no reason given".to_owned() } else { why.join(": ") };
            return Ok(SigningProgress::Refused(format!("{}: {why}", kind.to_lowercase())));
        }
    }
    match &status["certificate"] {
        Value::Null => Ok(SigningProgress::Pending),
        certificate => {
            let bytes: ByteString =
                serde_json::from_value(certificate.clone()).map_err(|_| "status.certificate is not base64")?;
            let pem = String::from_utf8(bytes.0).map_err(|_| "status.certificate is not PEM")?;
            Ok(if pem.is_empty() { SigningProgress::Pending } else { SigningProgress::Issued(pem) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(status: &Value) -> Result<SigningProgress, String> {
        let body = json!({ "kind": "CertificateSigningRequest", "status": status }).to_string().into_bytes();
        progress(&ApiResponse { status: 200, retry_after: None, body })
    }

    #[test]
    fn a_request_is_pending_issued_or_refused() {
        let approved = json!([{ "type": "Approved", "reason": "AutoApproved" }]);
        for status in [json!({}), json!(null), json!({ "conditions": approved }), json!({ "certificate": "" })] {
            assert_eq!(of(&status), Ok(SigningProgress::Pending), "{status}");
        }
        let issued = json!({ "conditions": approved, "certificate": "LS0tCg==" });
        assert_eq!(of(&issued), Ok(SigningProgress::Issued("---\n".into())));
        let denied = json!({ "conditions": [{ "type": "Denied", "reason": "Mine", "message": "not this one" }] });
        assert_eq!(of(&denied), Ok(SigningProgress::Refused("denied: Mine: not this one".into())));
        let failed = json!({ "conditions": [approved[0], { "type": "Failed" }], "certificate": "LS0tCg==" });
        assert_eq!(of(&failed), Ok(SigningProgress::Refused("failed: no reason given".into())));
    }

    #[test]
    fn another_answer_is_an_error() {
        for status in [json!({ "certificate": "%" }), json!({ "certificate": "/w==" }), json!({ "certificate": 7 })] {
            assert!(of(&status).is_err(), "{status}");
        }
        for body in ["", "[]", "{}", r#"{"kind": "Pod"}"#] {
            let response = ApiResponse { status: 200, retry_after: None, body: body.as_bytes().to_vec() };
            assert!(progress(&response).is_err(), "{body}");
        }
    }

    #[test]
    fn a_serving_certificate_has_the_addresses_of_the_node() {
        let address = |kind: &str, address: &str| Address { kind: kind.into(), address: address.into() };
        let of = |addresses: &[Address]| Purpose::Serving(ServingNames::of(addresses));
        let reported = [address("InternalIP", "10.0.0.7"), address("InternalIP", "fd00::7"), address("Hostname", "n1")];
        let Purpose::Serving(names) = of(&reported) else { panic!("another purpose") };
        assert_eq!(names.dns, ["n1".to_owned()].into());
        assert_eq!(names.addresses, ["10.0.0.7".parse().unwrap(), "fd00::7".parse().unwrap()].into());
        let validity = Validity { not_before: Wall(1), not_after: Wall(2) };
        let serving = InUse::Serving { validity, names };
        assert!(serving.covers(&of(&reported)) && serving.covers(&of(&reported[1..])));
        assert!(!serving.covers(&of(&[address("InternalIP", "10.0.0.8")])));
        assert!(!serving.covers(&of(&[address("Hostname", "n2")])));
        assert!(!serving.covers(&Purpose::Client));
    }

    #[test]
    fn a_name_depends_on_the_request() {
        assert_eq!(request_name(&[0xab; 32]), format!("node-csr-{}", "ab".repeat(16)));
        assert_eq!(common_name("n1"), "system:node:n1");
    }
}
