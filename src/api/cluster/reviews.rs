//! Reviews: the API server tells the node's server who presents a token (TokenReview), and what a user may do
//! (SubjectAccessReview).

use super::paths::{ACCESS_REVIEWS, TOKEN_REVIEWS};
use super::request::ApiRequest;
use super::requests::post;
use crate::api::ordered::CollectOrdered;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;

/// The group of every authenticated user.
const AUTHENTICATED: &str = "system:authenticated";
const BEARER: &str = "bearer";

/// A user as the authorizers of the API server see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct User {
    pub name: String,
    /// Empty: unknown.
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Returns the user of a request without a credential, if the configuration permits such requests.
    pub fn anonymous() -> User {
        let groups = vec!["system:unauthenticated".to_owned()];
        User { name: "system:anonymous".to_owned(), groups, ..User::default() }
    }

    /// Like a kubelet and an API server, adds the group of all authenticated users.
    fn authenticated(mut self) -> User {
        if !self.groups.iter().any(|group| group == AUTHENTICATED) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }
}

/// A bearer token. Its text never appears in logs or dumps.
#[derive(Clone, PartialEq, Eq)]
pub struct BearerToken(String);

impl BearerToken {
    /// Returns a digest that identifies the token without revealing it.
    pub fn digest(&self) -> String {
        crate::api::uid::digest_of_bytes(self.0.as_bytes())
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken")
    }
}

/// The credential that a client presents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    Nothing,
    /// TLS has verified the certificate.
    Certificate(User),
    Token(BearerToken),
}

impl Credential {
    /// Selects the credential of a client. `certificate`: the common name and the organizations of its certificate;
    /// `authorization`: the header `Authorization`. As in a kubelet, a certificate with a common name takes
    /// precedence.
    pub fn new(certificate: Option<(String, Vec<String>)>, authorization: Option<&str>) -> Credential {
        if let Some((name, groups)) = certificate.filter(|(name, _)| !name.is_empty()) {
            return Credential::Certificate(User { name, groups, ..User::default() }.authenticated());
        }
        let token = authorization.and_then(|value| value.trim().split_once(' '));
        match token.map(|(scheme, token)| (scheme, token.trim())) {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case(BEARER) && !token.is_empty() => {
                Credential::Token(BearerToken(token.to_owned()))
            }
            _ => Credential::Nothing,
        }
    }
}

/// What a client wants to do with the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    pub verb: &'static str,
    /// The client needs permission for at least one of these subresources of the node.
    pub subresources: &'static [&'static str],
}

/// Asks the API server who presents this token.
pub fn token_review(token: &BearerToken) -> ApiRequest {
    let body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": token.0 } });
    post(TOKEN_REVIEWS.to_owned(), body.to_string())
}

/// Returns the user of the token; None if the token is not valid.
///
/// # Errors
/// The answer is not a TokenReview.
pub fn read_token_review(body: &[u8]) -> Result<Option<User>, String> {
    let status = status_of(body, "TokenReview")?;
    if status["authenticated"] != true {
        return Ok(None);
    }
    let user = &status["user"];
    let text = |field: &str| user[field].as_str().unwrap_or_default().to_owned();
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let extra = user["extra"].as_object().into_iter().flatten().map(|(key, value)| (key.clone(), texts(value)));
    let user =
        User { name: text("username"), uid: text("uid"), groups: texts(&user["groups"]), extra: extra.collect_map() };
    if user.name.is_empty() {
        return Err("the user of a valid token has no name".to_owned());
    }
    Ok(Some(user.authenticated()))
}

/// Asks the API server whether the user has this permission on the node, in the form of a kubelet's request.
pub fn access_review(user: &User, verb: &str, subresource: &str, node: &str) -> ApiRequest {
    let mut spec = json!({
        "user": user.name,
        "groups": user.groups,
        "resourceAttributes": {
            "verb": verb, "version": "v1", "resource": "nodes", "subresource": subresource, "name": node,
        },
    });
    if !user.uid.is_empty() {
        spec["uid"] = json!(user.uid);
    }
    if !user.extra.is_empty() {
        spec["extra"] = json!(user.extra);
    }
    let body = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec });
    post(ACCESS_REVIEWS.to_owned(), body.to_string())
}

/// # Errors
/// The answer is not a SubjectAccessReview.
pub fn read_access_review(body: &[u8]) -> Result<bool, String> {
    let status = status_of(body, "SubjectAccessReview")?;
    Ok(status["allowed"] == true && status["denied"] != true)
}

fn status_of(body: &[u8], kind: &str) -> Result<Value, String> {
    let mut review: Value = serde_json::from_slice(body).map_err(|e| format!("not JSON: {e}"))?;
    match review["kind"] == kind && review["status"].is_object() {
        true => Ok(review["status"].take()),
        false => Err(format!("not a {kind} with a status")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(request: &ApiRequest) -> Value {
        serde_json::from_str(&request.body.as_ref().unwrap().1).unwrap()
    }

    #[test]
    fn a_certificate_precedes_a_token_and_needs_a_name() {
        let certificate = |name: &str| Some((name.to_owned(), vec!["ops".to_owned()]));
        let Credential::Certificate(user) = Credential::new(certificate("ann"), Some("Bearer t")) else { panic!() };
        assert_eq!((user.name.as_str(), user.groups), ("ann", vec!["ops".to_owned(), AUTHENTICATED.to_owned()]));
        for (header, token) in
            [("Bearer t", Some("t")), ("bearer  t ", Some("t")), ("Bearer ", None), ("Basic t", None)]
        {
            let expected = token.map_or(Credential::Nothing, |t| Credential::Token(BearerToken(t.to_owned())));
            assert_eq!(Credential::new(certificate(""), Some(header)), expected, "{header:?}");
        }
        assert_eq!(Credential::new(None, None), Credential::Nothing);
        let token = BearerToken("s3cret".to_owned());
        assert!(!format!("{token:?} {:?} {}", token_review(&token), token.digest()).contains("s3cret"));
        assert_eq!(body(&token_review(&token))["spec"], json!({ "token": "s3cret" }));
    }

    #[test]
    fn the_user_of_a_token_is_read() {
        let review = |status: Value| json!({ "kind": "TokenReview", "status": status }).to_string();
        let text = review(json!({ "authenticated": true, "user": {
            "username": "system:serviceaccount:a:b", "uid": "1", "groups": ["g"], "extra": { "k": ["v", "w"] } } }));
        let user = read_token_review(text.as_bytes()).unwrap().unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("system:serviceaccount:a:b", "1"));
        assert_eq!(user.groups, ["g", AUTHENTICATED]);
        assert_eq!(user.extra["k"], ["v", "w"]);
        let request = access_review(&user, "get", "proxy", "n1");
        assert_eq!(request.path, "/apis/authorization.k8s.io/v1/subjectaccessreviews");
        assert_eq!(
            body(&request)["spec"],
            json!({ "user": "system:serviceaccount:a:b", "uid": "1", "groups": ["g", AUTHENTICATED],
                "extra": { "k": ["v", "w"] }, "resourceAttributes": { "verb": "get", "version": "v1",
                "resource": "nodes", "subresource": "proxy", "name": "n1" } })
        );
        assert_eq!(read_token_review(review(json!({ "user": {} })).as_bytes()), Ok(None));
        for text in ["", "{}", &review(json!(null)), &review(json!({ "authenticated": true }))] {
            assert!(read_token_review(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn only_a_clear_yes_is_a_yes() {
        let read = |status: Value| {
            read_access_review(json!({ "kind": "SubjectAccessReview", "status": status }).to_string().as_bytes())
        };
        assert_eq!(read(json!({ "allowed": true })), Ok(true));
        for status in [json!({}), json!({ "allowed": false }), json!({ "allowed": "true" })] {
            assert_eq!(read(status), Ok(false));
        }
        assert_eq!(read(json!({ "allowed": true, "denied": true })), Ok(false));
        assert!(read_access_review(b"{\"kind\":\"Status\",\"status\":{\"allowed\":true}}").is_err());
        assert!(read(Value::Null).is_err());
    }
}
