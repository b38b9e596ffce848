//! The objects that a node lists and watches. The Node authorizer permits this only for objects that the node needs
//! and, from Kubernetes 1.32 on, only with the selectors that are used here.

use super::paths::{self, with_query};
use super::request::{ApiRequest, BodyDelivery, Method};
use crate::api::data_object::{DataKey, DataKind};
use serde::Serialize;
use std::rc::Rc;
use std::time::Duration;

/// The maximum number of objects in an answer to a list, as in a kubelet.
const PAGE: &str = "500";

/// The objects of one list and watch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Watched {
    /// The node with this name.
    Node(Rc<str>),
    /// The pods that are bound to the node with this name.
    Pods(Rc<str>),
    /// One ConfigMap or Secret: a node may not list a whole namespace.
    Data(DataKey),
    /// The services of a namespace. A selector for services with an address (`spec.clusterIP!=None`) would return
    /// fewer objects, but API servers before 1.21 refuse it, so the reader has to skip services without an address.
    Services(Rc<str>),
    RuntimeClasses,
    /// The certificate signing request with this name.
    Csr(Rc<str>),
}

fn kind_of(kind: DataKind) -> &'static str {
    match kind {
        DataKind::ConfigMap => "ConfigMap",
        DataKind::Secret => "Secret",
    }
}

/// The state of the objects that a list returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListFrom<'a> {
    /// Any state: the server answers from its memory. Used for the first list.
    Cache,
    /// This version or a newer one: the server answers from its memory, or with 504 if its memory is older. Servers
    /// from 1.19 on support this.
    NotOlder(&'a str),
    /// The newest state. Used for a list after a version has expired.
    Latest,
    /// The next page of a list. The value is `next` of the previous page.
    Next(&'a str),
}

impl Watched {
    /// Returns `kind` of the objects.
    pub fn kind(&self) -> &'static str {
        match self {
            Watched::Node(_) => "Node",
            Watched::Pods(_) => "Pod",
            Watched::Data(key) => kind_of(key.kind),
            Watched::Services(_) => "Service",
            Watched::RuntimeClasses => "RuntimeClass",
            Watched::Csr(_) => "CertificateSigningRequest",
        }
    }

    /// Returns `apiVersion` of the objects and of their list.
    pub fn api_version(&self) -> &'static str {
        match self {
            Watched::RuntimeClasses => "node.k8s.io/v1",
            Watched::Csr(_) => "certificates.k8s.io/v1",
            _ => "v1",
        }
    }

    /// Returns the path of the collection, and the field selector if there is one.
    fn collection(&self) -> (String, Option<String>) {
        let by_name = |name: &str| Some(format!("metadata.name={name}"));
        match self {
            Watched::Node(name) => (paths::NODES.to_owned(), by_name(name)),
            Watched::Pods(node) => (paths::PODS.to_owned(), Some(format!("spec.nodeName={node}"))),
            Watched::Data(key) => {
                let collection = match key.kind {
                    DataKind::ConfigMap => "configmaps",
                    DataKind::Secret => "secrets",
                };
                (paths::namespaced(&key.name.namespace, collection), by_name(&key.name.name))
            }
            Watched::Services(namespace) => (paths::namespaced(namespace, "services"), None),
            Watched::RuntimeClasses => (paths::RUNTIME_CLASSES.to_owned(), None),
            Watched::Csr(name) => (paths::CSRS.to_owned(), by_name(name)),
        }
    }

    /// Requests the list. Read the answer's items with `list::item`, and its rest with `list::rest`.
    pub fn list(&self, from: ListFrom<'_>) -> ApiRequest {
        let (path, selector) = self.collection();
        let mut query: Vec<(&str, &str)> = Vec::new();
        query.extend(selector.as_deref().map(|selector| ("fieldSelector", selector)));
        match from {
            ListFrom::Cache => query.extend([("limit", PAGE), ("resourceVersion", "0")]),
            ListFrom::NotOlder(version) => {
                query.extend([("limit", PAGE), ("resourceVersion", version), ("resourceVersionMatch", "NotOlderThan")]);
            }
            ListFrom::Latest => query.push(("limit", PAGE)),
            ListFrom::Next(next) => query.extend([("limit", PAGE), ("continue", next)]),
        }
        let path = with_query(&path, &query);
        ApiRequest { method: Method::Get, path, body: None, reading: BodyDelivery::Items }
    }

    /// Returns the namespace of the objects; empty for objects in several namespaces or in none.
    pub fn namespace(&self) -> &str {
        match self {
            Watched::Services(namespace) => namespace,
            Watched::Data(key) => &key.name.namespace,
            Watched::Node(_) | Watched::Pods(_) | Watched::RuntimeClasses | Watched::Csr(_) => "",
        }
    }

    /// Returns true if this is one named object, and not a collection.
    pub fn is_one_object(&self) -> bool {
        match self {
            Watched::Node(_) | Watched::Data(_) | Watched::Csr(_) => true,
            Watched::Pods(_) | Watched::Services(_) | Watched::RuntimeClasses => false,
        }
    }

    /// Requests the watch. Read the lines of the answer with `watch::parse`. The server ends the watch after
    /// `timeout`, in whole seconds; a kubelet uses a random time of 5 to 10 minutes, or 30 to 60 minutes for
    /// ConfigMaps and Secrets.
    ///
    /// `bookmarks`: the server sends a line with the current version every minute.
    pub fn watch(&self, resource_version: &str, timeout: Duration, bookmarks: bool) -> ApiRequest {
        let (path, selector) = self.collection();
        let timeout = timeout.as_secs().to_string();
        let mut query = Vec::new();
        if bookmarks {
            query.push(("allowWatchBookmarks", "true"));
        }
        query.extend(selector.as_deref().map(|selector| ("fieldSelector", selector)));
        query.extend([("resourceVersion", resource_version), ("timeoutSeconds", &timeout), ("watch", "true")]);
        let path = with_query(&path, &query);
        ApiRequest { method: Method::Get, path, body: None, reading: BodyDelivery::Lines }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::names::FullName;

    fn data(kind: DataKind, name: &str) -> Watched {
        Watched::Data(DataKey { kind, name: FullName::new("default", name) })
    }

    #[test]
    fn lists_have_the_parameters_of_a_kubelet() {
        for (watched, from, expected) in [
            (
                Watched::Pods("n1".into()),
                ListFrom::Cache,
                "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1&limit=500&resourceVersion=0",
            ),
            (
                Watched::Node("n1".into()),
                ListFrom::Cache,
                "/api/v1/nodes?fieldSelector=metadata.name%3Dn1&limit=500&resourceVersion=0",
            ),
            (
                data(DataKind::ConfigMap, "kube-root-ca.crt"),
                ListFrom::Latest,
                "/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name%3Dkube-root-ca.crt&limit=500",
            ),
            (
                Watched::Pods("n1".into()),
                ListFrom::NotOlder("437"),
                "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1&limit=500&resourceVersion=437\
                 &resourceVersionMatch=NotOlderThan",
            ),
            (
                Watched::Services("shop".into()),
                ListFrom::Next("ab=="),
                "/api/v1/namespaces/shop/services?limit=500&continue=ab%3D%3D",
            ),
            (
                Watched::RuntimeClasses,
                ListFrom::Cache,
                "/apis/node.k8s.io/v1/runtimeclasses?limit=500&resourceVersion=0",
            ),
        ] {
            let request = watched.list(from);
            assert_eq!((request.path.as_str(), request.reading), (expected, BodyDelivery::Items));
        }
    }

    #[test]
    fn watches_ask_for_bookmarks_and_end_at_a_timeout() {
        let request = data(DataKind::Secret, "s").watch("437", Duration::from_millis(2_541_900), true);
        assert_eq!(
            request.path,
            "/api/v1/namespaces/default/secrets?allowWatchBookmarks=true&fieldSelector=metadata.name%3Ds&\
             resourceVersion=437&timeoutSeconds=2541&watch=true"
        );
        assert_eq!((request.method, request.reading), (Method::Get, BodyDelivery::Lines));
    }
}
