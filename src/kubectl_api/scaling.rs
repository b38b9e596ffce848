//! The subresource `scale` of a workload, which `kubectl scale` reads and changes.

use super::asked::Asked;
use super::keys::key_of;
use super::request::Result;
use super::response::ApiResponse;
use super::state::KubectlApi;
use super::step::NextStep;
use crate::api::kube::request_body::change_of;
use crate::api::kube::scale;
use crate::api::kube::status::Failure;
use serde_json::Value;

impl KubectlApi {
    pub(super) fn scale(&self, asked: &Asked<'_>) -> Result<NextStep> {
        Ok(NextStep::Respond(ApiResponse::json(&self.present_scale(asked)?)))
    }

    /// Changes the replicas in the manifest.
    pub(super) fn change_scale(&self, asked: &Asked<'_>, verb: &str, body: &[u8]) -> Result<NextStep> {
        let change = change_of(verb, asked.request.media_type, body)?;
        let change = scale::change(asked.path, &self.present_scale(asked)?, &change)?;
        self.change_object(asked, verb, asked.path.clone(), Some(change), &Value::Null)
    }

    fn present_scale(&self, asked: &Asked<'_>) -> Result<Value> {
        let name = asked.path.name.as_deref().unwrap_or_default();
        let object = key_of(asked.path).and_then(|key| self.object(asked.snapshot, &key));
        object.map(|object| scale::of(&object)).ok_or_else(|| Failure::not_found(asked.path.resource, name))
    }
}
