//! Errors as the API reports them: a `Status` object (meta/v1), with the reasons, codes and messages of an API server.

use super::resources::Resource;
use crate::api::disruption_budget::BudgetRefusal;
use serde_json::{Value, json};

/// A request that was not carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The HTTP status.
    pub code: u16,
    /// The reason that clients branch on: `NotFound`, `Conflict`.
    pub reason: &'static str,
    pub message: String,
    /// The object that the failure concerns, or a part of it; null if there is none.
    pub details: Value,
}

impl Failure {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Failure {
        Failure { code, reason, message: message.into(), details: Value::Null }
    }

    fn about(mut self, resource: &Resource, name: &str) -> Failure {
        let mut details = json!({ "kind": resource.plural });
        if !name.is_empty() {
            details["name"] = name.into();
        }
        if !resource.group.is_empty() {
            details["group"] = resource.group.into();
        }
        self.details = details;
        self
    }

    /// Returns the failure for a path that names no resource.
    pub fn no_such_path() -> Failure {
        Failure {
            details: json!({}),
            ..Failure::new(404, "NotFound", "the server could not find the requested resource")
        }
    }

    pub fn not_found(resource: &Resource, name: &str) -> Failure {
        Failure::new(404, "NotFound", format!("{} {name:?} not found", resource.qualified())).about(resource, name)
    }

    /// Returns the failure for a request that the client's role does not permit. `why`: what the role lacks.
    pub fn forbidden(resource: &Resource, name: &str, why: impl std::fmt::Display) -> Failure {
        let object = if name.is_empty() { resource.qualified() } else { format!("{} {name:?}", resource.qualified()) };
        Failure::new(403, "Forbidden", format!("{object} is forbidden: {why}")).about(resource, name)
    }

    /// Returns the failure for a request that no role permits and that names no resource.
    pub fn forbidden_request(why: impl Into<String>) -> Failure {
        Failure::new(403, "Forbidden", why)
    }

    pub fn unauthorized(why: impl Into<String>) -> Failure {
        Failure::new(401, "Unauthorized", why)
    }

    pub fn bad_request(why: impl Into<String>) -> Failure {
        Failure::new(400, "BadRequest", why)
    }

    pub fn already_exists(resource: &Resource, name: &str) -> Failure {
        let message = format!("{} {name:?} already exists", resource.qualified());
        Failure::new(409, "AlreadyExists", message).about(resource, name)
    }

    pub fn conflict(resource: &Resource, name: &str, why: impl std::fmt::Display) -> Failure {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", resource.qualified());
        Failure::new(409, "Conflict", message).about(resource, name)
    }

    /// Returns the failure for an object that is not valid. `causes`: fields and messages.
    pub fn invalid(resource: &Resource, name: &str, why: &str, causes: Vec<(String, String)>) -> Failure {
        let message = format!("{} {name:?} is invalid: {why}", resource.kind_name);
        let mut failure = Failure::new(422, "Invalid", message).about(resource, name);
        let reason = "FieldValueInvalid";
        let cause =
            |(field, message): (String, String)| json!({ "reason": reason, "field": field, "message": message });
        failure.details["kind"] = resource.kind_name.into();
        failure.details["causes"] = causes.into_iter().map(cause).collect();
        failure
    }

    /// Returns the failure for a patch that cannot be applied to the object.
    pub fn invalid_patch(resource: &Resource, name: &str, why: impl std::fmt::Display) -> Failure {
        let why = format!("it cannot be applied: {why}");
        Failure::invalid(resource, name, &format!("patch: {why}"), vec![("patch".to_owned(), why)])
    }

    pub fn timeout(why: impl Into<String>) -> Failure {
        Failure::new(504, "Timeout", why)
    }

    /// Returns the failure for options of a list or watch that contradict each other.
    pub fn invalid_options(why: impl Into<String>) -> Failure {
        Failure::new(422, "Invalid", why)
    }

    pub fn method_not_allowed() -> Failure {
        Failure::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    }

    /// Returns the failure for the subresource `resize`, which is not served. A change of the pod itself is a resize
    /// (R1).
    pub fn no_resize(pod: &str) -> Failure {
        let why = format!(
            "pods/resize is not served: change the resources in the pod itself, for example with kubectl edit pod \
             {pod}; it is resized in place"
        );
        Failure::new(405, "MethodNotAllowed", why)
    }

    pub fn not_acceptable(accepted: &str) -> Failure {
        let message = format!("only the following media types are accepted: {accepted}");
        Failure::new(406, "NotAcceptable", message)
    }

    pub fn unsupported_media_type(accepted: &str) -> Failure {
        let message =
            format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
        Failure::new(415, "UnsupportedMediaType", message)
    }

    /// Returns the failure for a resource version that is older than the changes that the server still knows.
    pub fn expired(version: u64) -> Failure {
        Failure::new(410, "Expired", format!("The resourceVersion {version} is too old; list again"))
    }

    /// Returns the failure for a resource version that lies in the future, or belongs to another node.
    pub fn version_too_large(version: u64, current: u64) -> Failure {
        let message = format!("Too large resource version: {version}, current: {current}");
        Failure {
            details: json!({
                "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
                "retryAfterSeconds": 1,
            }),
            ..Failure::new(504, "Timeout", message)
        }
    }

    /// Returns the failure for a body whose value exceeds a limit.
    pub fn large_value(why: impl std::fmt::Display) -> Failure {
        Failure::new(413, "RequestEntityTooLarge", format!("the body is too large: {why}"))
    }

    pub fn too_large(limit: usize) -> Failure {
        let message = format!("the request is too large: limit is {limit} bytes");
        Failure::new(413, "RequestEntityTooLarge", message)
    }

    pub fn too_many_requests(why: impl Into<String>) -> Failure {
        Failure { details: json!({ "retryAfterSeconds": 1 }), ..Failure::new(429, "TooManyRequests", why) }
    }

    /// Returns the failure for the eviction of a pod that a disruption budget protects (Y32).
    pub fn budget(refusal: &BudgetRefusal) -> Failure {
        match refusal {
            BudgetRefusal::Several => Failure::new(500, "InternalError", refusal.to_string()),
            BudgetRefusal::Violated { budget, status } => {
                let cause = format!(
                    "The disruption budget {} needs {} healthy pods and has {} currently",
                    budget.name, status.desired_healthy, status.current_healthy
                );
                let details = json!({ "causes": [{ "reason": "DisruptionBudget", "message": cause }] });
                Failure { details, ..Failure::new(429, "TooManyRequests", refusal.to_string()) }
            }
        }
    }

    pub fn service_unavailable(why: impl Into<String>) -> Failure {
        Failure::new(503, "ServiceUnavailable", why)
    }

    pub fn internal(why: impl std::fmt::Display) -> Failure {
        Failure::new(500, "InternalError", format!("Internal error occurred: {why}"))
    }

    /// Returns the failure for a request that the HTTP layer refuses. The reason is empty if the API has none for the
    /// code.
    pub fn http(code: u16, why: &str) -> Failure {
        let reason = match code {
            400 => "BadRequest",
            405 => "MethodNotAllowed",
            413 => "RequestEntityTooLarge",
            503 => "ServiceUnavailable",
            _ => "",
        };
        Failure::new(code, reason, why)
    }

    pub fn to_value(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use super::super::resources::Kind;
    use super::*;

    #[test]
    fn messages_are_those_of_an_api_server() {
        let pods = Resource::of(Kind::Pod);
        let status = Failure::not_found(pods, "web").to_value();
        assert_eq!(status["message"], "pods \"web\" not found");
        assert_eq!((&status["code"], &status["reason"]), (&404.into(), &"NotFound".into()));
        assert_eq!(status["details"], json!({ "name": "web", "kind": "pods" }));
        let lease = Failure::not_found(Resource::of(Kind::Lease), "n");
        assert_eq!(lease.message, "leases.coordination.k8s.io \"n\" not found");
        assert_eq!(lease.details["group"], "coordination.k8s.io");
    }
}
