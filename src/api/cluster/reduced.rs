//! Services and RuntimeClasses of the API server, reduced to what a node needs, and their copies on the disk.

use crate::api::runtime_class::RuntimeClass;
use crate::api::services::{Service, ServicePort};
use crate::api::source::Source;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The kind of the records. A key is `lists/services.NAMESPACE` or `lists/runtimeclasses`.
pub const KIND: &str = "lists";
const VERSION: u64 = 1;

/// An object that a node reduces to a few fields.
pub trait Reduced: Clone + std::fmt::Debug + PartialEq + Serialize + DeserializeOwned {
    /// Reads the object. Returns None if the node does not need it.
    fn read(object: &Value) -> Option<Self>;
}

/// An object of a list or a watch.
#[derive(Clone, Debug, PartialEq)]
pub struct Named<T> {
    pub name: Box<str>,
    /// None: the node does not need it.
    pub content: Option<T>,
}

impl<T: Reduced> Named<T> {
    /// # Errors
    /// The object has no name.
    pub fn read(object: &Value) -> Result<Named<T>, String> {
        let name = object.pointer("/metadata/name").and_then(Value::as_str).ok_or("it has no name")?;
        Ok(Named { name: name.into(), content: T::read(object) })
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Reduced for Service {
    /// Returns None for a service without an address of its own or without ports, because pods get no variables for
    /// it.
    fn read(object: &Value) -> Option<Service> {
        let spec = object.get("spec")?;
        let address = spec.get("clusterIP").and_then(Value::as_str).filter(|ip| !matches!(*ip, "" | "None"))?;
        let port = |port: &Value| {
            let number = u16::try_from(port.get("port")?.as_u64()?).ok()?;
            let protocol = port.get("protocol").and_then(Value::as_str).unwrap_or("TCP").to_owned();
            Some(ServicePort { name: text(&port["name"]), protocol, port: number })
        };
        let ports: Vec<ServicePort> = spec.get("ports")?.as_array()?.iter().filter_map(port).collect();
        (!ports.is_empty()).then(|| Service { address: address.to_owned(), ports })
    }
}

/// The handler of a RuntimeClass. The API server has added the class's overhead and its node selector to each pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handler {
    pub handler: String,
}

impl Reduced for Handler {
    fn read(object: &Value) -> Option<Handler> {
        Some(Handler { handler: text(object.get("handler")?) })
    }
}

impl Handler {
    pub fn class(&self, name: &str) -> RuntimeClass {
        RuntimeClass {
            name: name.to_owned(),
            handler: self.handler.clone(),
            overhead: BTreeMap::new(),
            node_selector: BTreeMap::new(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            source: Source::api(),
            digest: String::new(),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct ItemsRecord<T> {
    version: u64,
    items: T,
}

pub fn write<T: Reduced>(items: &BTreeMap<Box<str>, T>) -> String {
    serde_json::to_string(&ItemsRecord { version: VERSION, items }).unwrap_or_default()
}

/// # Errors
/// The text is not a record of this version.
pub fn read<T: Reduced>(text: &str) -> Result<BTreeMap<Box<str>, T>, String> {
    let record: ItemsRecord<BTreeMap<Box<str>, T>> = serde_json::from_str(text).map_err(|e| e.to_string())?;
    if record.version == VERSION { Ok(record.items) } else { Err(format!("it is not of version {VERSION}")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn service(spec: &Value) -> Named<Service> {
        Named::read(&json!({ "metadata": { "name": "db" }, "spec": spec })).unwrap()
    }

    #[test]
    fn a_service_without_an_address_of_its_own_is_not_needed() {
        let ports = json!([{ "port": 80, "name": "web", "protocol": "UDP", "nodePort": 30080 }, { "port": 81 }]);
        let found = service(&json!({ "clusterIP": "10.0.0.9", "ports": ports })).content.unwrap();
        let port =
            |name: &str, protocol: &str, port| ServicePort { name: name.into(), protocol: protocol.into(), port };
        assert_eq!((found.address.as_str(), found.ports.len()), ("10.0.0.9", 2));
        assert_eq!(found.ports, [port("web", "UDP", 80), port("", "TCP", 81)]);
        for spec in [
            json!({ "clusterIP": "None", "ports": ports }),
            json!({ "type": "ExternalName", "externalName": "example.org" }),
            json!({ "clusterIP": "10.0.0.9" }),
            json!({ "clusterIP": "10.0.0.9", "ports": [{ "port": 70000 }] }),
        ] {
            assert_eq!(service(&spec).content, None, "{spec}");
        }
        assert!(Named::<Service>::read(&json!({})).is_err());
    }

    #[test]
    fn a_list_survives_on_the_disk() {
        let class = json!({ "metadata": { "name": "gvisor" }, "handler": "runsc" });
        let Named { name, content } = Named::<Handler>::read(&class).unwrap();
        let items = BTreeMap::from([(name, content.unwrap())]);
        assert_eq!(read::<Handler>(&write(&items)), Ok(items));
        assert!(read::<Handler>("{\"version\":2,\"items\":{}}").is_err() && read::<Handler>("").is_err());
    }
}
