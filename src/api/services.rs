//! The Services of the cluster, reduced to what the environment of containers needs.

use crate::api::ordered::CollectOrdered;
use crate::api::pod::Pod;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The namespace and the name of the API server's service, which the environment of each pod of a cluster contains.
pub const KUBERNETES: (&str, &str) = ("default", "kubernetes");

/// A service with a cluster IP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// `spec.clusterIP`
    pub address: String,
    pub ports: Vec<ServicePort>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicePort {
    /// Empty if the port has no name.
    pub name: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    pub port: u16,
}

/// The services of some namespaces, by namespace and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Services(BTreeMap<Box<str>, BTreeMap<Box<str>, Service>>);

impl Services {
    pub fn set(&mut self, namespace: &str, services: BTreeMap<Box<str>, Service>) {
        self.0.insert(namespace.into(), services);
    }

    pub fn remove(&mut self, namespace: &str) {
        self.0.remove(namespace);
    }

    /// Returns the variables of a pod's containers, as a kubelet sets them: for the services in the pod's namespace,
    /// unless `enableServiceLinks` is false, and for the API server.
    pub fn variables(&self, pod: &Pod) -> Vec<(String, String)> {
        let own = self.0.get(&*pod.name.namespace).filter(|_| has_links(pod));
        let own = own.into_iter().flatten();
        let api = self.0.get(KUBERNETES.0).and_then(|all| all.get_key_value(KUBERNETES.1));
        let mut all: BTreeMap<&str, &Service> = api.into_iter().map(|(name, service)| (&**name, service)).collect_map();
        // A service in the pod's namespace takes precedence over one with the same name elsewhere.
        all.extend(own.map(|(name, service)| (&**name, service)));
        all.into_iter().flat_map(|(name, service)| service.variables(name)).collect()
    }
}

/// Reports whether the environment contains the services of the pod's namespace.
pub fn has_links(pod: &Pod) -> bool {
    pod.spec().enable_service_links != Some(false)
}

impl Service {
    fn variables(&self, name: &str) -> Vec<(String, String)> {
        let name = variable_name(name);
        let Some(first) = self.ports.first() else { return Vec::new() };
        // As in a URL: an IPv6 address has brackets.
        let host = if self.address.contains(':') { format!("[{}]", self.address) } else { self.address.clone() };
        let url = |port: &ServicePort| format!("{}://{host}:{}", port.protocol.to_lowercase(), port.port);
        let mut all = vec![
            (format!("{name}_SERVICE_HOST"), self.address.clone()),
            (format!("{name}_SERVICE_PORT"), first.port.to_string()),
        ];
        let named = self.ports.iter().filter(|port| !port.name.is_empty());
        all.extend(named.map(|p| (format!("{name}_SERVICE_PORT_{}", variable_name(&p.name)), p.port.to_string())));
        // The variables of Docker's links.
        all.push((format!("{name}_PORT"), url(first)));
        for port in &self.ports {
            let prefix = format!("{name}_PORT_{}_{}", port.port, port.protocol.to_uppercase());
            all.push((prefix.clone(), url(port)));
            all.push((format!("{prefix}_PROTO"), port.protocol.to_lowercase()));
            all.push((format!("{prefix}_PORT"), port.port.to_string()));
            all.push((format!("{prefix}_ADDR"), self.address.clone()));
        }
        all
    }
}

fn variable_name(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::document;
    use crate::api::document::context::Context;

    fn pod(namespace: &str, links: bool) -> Pod {
        let text = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: web, namespace: {namespace}}}, \
             spec: {{enableServiceLinks: {links}, containers: [{{name: main, image: 'i:1'}}]}}}}"
        );
        document::read(text.as_bytes(), "/m/a.yaml", Context::new("lab", "")).0.remove(0)
    }

    fn service(address: &str, ports: &[(&str, u16)]) -> Service {
        let port = |(name, port): &(&str, u16)| ServicePort {
            name: (*name).to_owned(),
            protocol: "TCP".to_owned(),
            port: *port,
        };
        Service { address: address.to_owned(), ports: ports.iter().map(port).collect() }
    }

    fn names(services: &Services, pod: &Pod) -> Vec<String> {
        services.variables(pod).into_iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn the_variables_are_those_of_a_kubelet() {
        let mut services = Services::default();
        services.set("shop", [("my-db".into(), service("10.0.0.9", &[("", 5432)]))].into());
        services.set("default", [("kubernetes".into(), service("10.0.0.1", &[("https", 443)]))].into());
        let api = [
            "KUBERNETES_SERVICE_HOST=10.0.0.1",
            "KUBERNETES_SERVICE_PORT=443",
            "KUBERNETES_SERVICE_PORT_HTTPS=443",
            "KUBERNETES_PORT=tcp://10.0.0.1:443",
            "KUBERNETES_PORT_443_TCP=tcp://10.0.0.1:443",
            "KUBERNETES_PORT_443_TCP_PROTO=tcp",
            "KUBERNETES_PORT_443_TCP_PORT=443",
            "KUBERNETES_PORT_443_TCP_ADDR=10.0.0.1",
        ];
        assert_eq!(names(&services, &pod("shop", false)), api);
        let own = [
            "MY_DB_SERVICE_HOST=10.0.0.9",
            "MY_DB_SERVICE_PORT=5432",
            "MY_DB_PORT=tcp://10.0.0.9:5432",
            "MY_DB_PORT_5432_TCP=tcp://10.0.0.9:5432",
            "MY_DB_PORT_5432_TCP_PROTO=tcp",
            "MY_DB_PORT_5432_TCP_PORT=5432",
            "MY_DB_PORT_5432_TCP_ADDR=10.0.0.9",
        ];
        assert_eq!(names(&services, &pod("shop", true)), [&api[..], &own].concat());
    }

    #[test]
    fn a_service_of_the_namespace_precedes_the_api_server() {
        let mut services = Services::default();
        services.set("shop", [("kubernetes".into(), service("fd00::9", &[("", 80)]))].into());
        services.set("default", [("kubernetes".into(), service("10.0.0.1", &[("", 443)]))].into());
        let found = names(&services, &pod("shop", true));
        assert!(found.contains(&"KUBERNETES_SERVICE_HOST=fd00::9".to_owned()), "{found:?}");
        assert!(found.contains(&"KUBERNETES_PORT=tcp://[fd00::9]:80".to_owned()), "{found:?}");
        let found = names(&services, &pod("shop", false));
        assert!(found.contains(&"KUBERNETES_SERVICE_HOST=10.0.0.1".to_owned()), "{found:?}");
    }
}
