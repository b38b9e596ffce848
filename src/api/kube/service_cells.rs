//! The cells of tables for services and their endpoints, as an API server makes them.

use super::pod_row::{list, text};
use serde_json::Value;
use std::collections::BTreeSet;

/// The maximum number of addresses or ports in a cell.
const MAX_SHOWN: usize = 3;

/// Returns the type, the cluster IP, the external addresses, the ports, the age and the selector of a service.
pub(super) fn service(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let or_none = |text: String| if text.is_empty() { "<none>".to_owned() } else { text };
    let cluster_ip = or_none(text(object, "/spec/clusterIP").to_owned());
    let selector = object.pointer("/spec/selector").and_then(Value::as_object);
    let selector = selector.into_iter().flatten().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or("")));
    let selector: Vec<String> = selector.collect();
    vec![
        name,
        text(object, "/spec/type").into(),
        cluster_ip.into(),
        or_none(external(object)).into(),
        or_none(ports(object)).into(),
        age,
        or_none(selector.join(",")).into(),
    ]
}

fn external(object: &Value) -> String {
    let addresses: Vec<&str> = list(object, "/spec/externalIPs").iter().filter_map(Value::as_str).collect();
    match text(object, "/spec/type") {
        "ExternalName" => text(object, "/spec/externalName").to_owned(),
        "LoadBalancer" if addresses.is_empty() => "<pending>".to_owned(),
        _ => addresses.join(","),
    }
}

fn ports(object: &Value) -> String {
    let one = |port: &Value| {
        let (number, protocol) = (&port["port"], text(port, "/protocol"));
        match port["nodePort"].as_u64() {
            Some(node_port) => format!("{number}:{node_port}/{protocol}"),
            None => format!("{number}/{protocol}"),
        }
    };
    list(object, "/spec/ports").iter().map(one).collect::<Vec<_>>().join(",")
}

/// Returns the addresses and ports of Endpoints.
pub(super) fn endpoints(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let mut all = Vec::new();
    for subset in list(object, "/subsets") {
        for address in list(subset, "/addresses") {
            let ip = text(address, "/ip");
            let host = if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
            match list(subset, "/ports") {
                [] => all.push(ip.to_owned()),
                ports => all.extend(ports.iter().map(|port| format!("{host}:{}", port["port"]))),
            }
        }
    }
    vec![name, shortened(&all, "<none>").into(), age]
}

/// Returns the family, the ports and the addresses of an EndpointSlice.
pub(super) fn slice(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let ports: BTreeSet<u64> = list(object, "/ports").iter().filter_map(|port| port["port"].as_u64()).collect();
    let ports: Vec<String> = ports.into_iter().map(|port| port.to_string()).collect();
    let addresses = list(object, "/endpoints").iter().flat_map(|one| list(one, "/addresses"));
    let addresses: Vec<String> = addresses.filter_map(Value::as_str).map(str::to_owned).collect();
    let family = text(object, "/addressType").into();
    vec![name, family, shortened(&ports, "<unset>").into(), shortened(&addresses, "<unset>").into(), age]
}

fn shortened(all: &[String], none: &str) -> String {
    match all.split_at_checked(MAX_SHOWN) {
        Some((first, rest)) if !rest.is_empty() => format!("{} + {} more...", first.join(","), rest.len()),
        _ if all.is_empty() => none.to_owned(),
        _ => all.join(","),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_cells_are_those_of_an_api_server() {
        let service_of = |spec: Value| {
            let cells = service(&json!({ "spec": spec }), "web".into(), "5s".into());
            cells.iter().map(|cell| cell.as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>().join(" ")
        };
        let port = json!({ "port": 80, "nodePort": 30080, "protocol": "TCP" });
        for (spec, expected) in [
            (
                json!({ "type": "NodePort", "clusterIP": "10.96.0.9", "ports": [port], "selector": { "a": "b" } }),
                "web NodePort 10.96.0.9 <none> 80:30080/TCP 5s a=b",
            ),
            (json!({ "type": "ClusterIP", "clusterIP": "None" }), "web ClusterIP None <none> <none> 5s <none>"),
            (json!({ "type": "LoadBalancer" }), "web LoadBalancer <none> <pending> <none> 5s <none>"),
            (
                json!({ "type": "ExternalName", "externalName": "192.0.2.1" }),
                "web ExternalName <none> 192.0.2.1 <none> 5s <none>",
            ),
        ] {
            assert_eq!(service_of(spec), expected);
        }
        let addresses: Vec<Value> = (1..=5).map(|i| json!({ "ip": format!("10.1.0.{i}") })).collect();
        let object = json!({ "subsets": [{ "addresses": addresses, "ports": [{ "port": 80 }] }] });
        assert_eq!(endpoints(&object, "web".into(), "5s".into())[1], "10.1.0.1:80,10.1.0.2:80,10.1.0.3:80 + 2 more...");
        let object =
            json!({ "addressType": "IPv4", "ports": [{ "port": 80 }], "endpoints": [{ "addresses": ["::1"] }] });
        let cells = slice(&object, "web-x".into(), "5s".into());
        assert_eq!(cells, ["web-x", "IPv4", "80", "::1", "5s"].map(Value::from));
    }
}
