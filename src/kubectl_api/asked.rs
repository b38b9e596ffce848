//! A request for objects.

use super::request::{ApiRequest, Result, VerifiedClient};
use super::snapshot::Snapshot;
use crate::api::kube::path::ObjectPath;
use crate::api::kube::query::Query;
use crate::api::kube::status::Failure;
use crate::api::names::FullName;
use crate::api::pod::Pod;
use std::rc::Rc;

pub(super) struct Asked<'a> {
    pub snapshot: &'a Snapshot<'a>,
    pub request: &'a ApiRequest<'a>,
    pub client: &'a VerifiedClient,
    pub path: &'a ObjectPath,
    pub query: &'a Query,
}

impl Asked<'_> {
    pub fn is_dry_run(&self) -> bool {
        self.query.all("dryRun").any(|v| v == "All")
    }

    /// Returns the pod that the path names.
    ///
    /// # Errors
    /// The pod does not exist.
    pub fn pod(&self) -> Result<&Rc<Pod>> {
        let name = self.full_name();
        let pod = self.snapshot.engine.pod_named(&name);
        pod.map(|view| view.pod).ok_or_else(|| Failure::not_found(self.path.resource, &name.name))
    }

    /// Returns the namespace and the name in the path. A part that the path does not contain is empty.
    pub fn full_name(&self) -> FullName {
        let (namespace, name) = (self.path.namespace.as_deref(), self.path.name.as_deref());
        FullName::new(namespace.unwrap_or_default(), name.unwrap_or_default())
    }
}
