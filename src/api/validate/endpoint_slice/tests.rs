use crate::api::k8s;
use crate::api::network_defaults;
use serde_json::{Value, json};

const NONE: [&str; 0] = [];

/// Returns the faults of a valid EndpointSlice with these additional fields, as `field: message`.
fn with(more: Value) -> Vec<String> {
    let mut object = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "db-1", "labels": {"kubernetes.io/service-name": "db"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.1"]}], "ports": [{"port": 5432}],
    });
    object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let mut slice: k8s::EndpointSlice = k8s::strict(&object).unwrap();
    network_defaults::endpoint_slice(&mut slice);
    super::endpoint_slice(&slice).iter().map(ToString::to_string).collect()
}

/// Returns the faults of one endpoint with this address.
fn of_address(type_: &str, address: &str) -> Vec<String> {
    with(json!({"addressType": type_, "endpoints": [{"addresses": [address]}]}))
}

#[test]
fn good_slices_have_no_fault() {
    for more in [
        json!({}),
        json!({"endpoints": [], "ports": null}),
        json!({"metadata": {"name": "1.a", "labels": {"kubernetes.io/service-name": "db"}}}),
        json!({"addressType": "IPv6", "endpoints": [{"addresses": ["2001:db8::1"]}]}),
        json!({"endpoints": [{"addresses": ["192.0.2.1", "192.0.2.2"], "zone": "a", "nodeName": "lab",
            "hostname": "db-0", "conditions": {"ready": false, "serving": true, "terminating": true},
            "hints": {"forZones": [{"name": "a"}], "forNodes": [{"name": "lab"}]},
            "targetRef": {"kind": "Pod", "name": "db-0"}, "deprecatedTopology": {"a": "b"}}]}),
        json!({"ports": [{"port": 53}, {"port": 53, "name": "udp", "protocol": "UDP", "appProtocol": "example.com/x"},
            {"port": 53, "name": "sctp", "protocol": "SCTP"}]}),
    ] {
        assert_eq!(with(more.clone()), NONE, "{more}");
    }
}

#[test]
fn a_slice_belongs_to_a_service() {
    let needed = "metadata.labels[kubernetes.io/service-name]: Required value: the name of the Service that gets the \
                  endpoints";
    for labels in [json!(null), json!({}), json!({"kubernetes.io/service-name": ""})] {
        assert_eq!(with(json!({"metadata": {"name": "a", "labels": labels}})), [needed]);
    }
    let labels = json!({"kubernetes.io/service-name": "db"});
    assert_eq!(
        with(json!({"metadata": {"labels": labels}})),
        ["metadata.name: Required value: name is needed for the endpointslice"]
    );
    let found = with(json!({"metadata": {"name": "A", "namespace": "a.b", "labels": labels}}));
    assert!(found.len() == 2 && found[0].starts_with("metadata.namespace: Invalid value: \"a.b\": a lowercase RFC"));
    assert!(found[1].starts_with("metadata.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain"), "{found:#?}");
}

#[test]
fn the_type_of_the_addresses_is_known() {
    assert_eq!(with(json!({"addressType": ""})), ["addressType: Required value"]);
    assert_eq!(with(json!({"addressType": null})), ["addressType: Required value"]);
    assert_eq!(
        with(json!({"addressType": "IP"})),
        ["addressType: Unsupported value: \"IP\": supported values: \"IPv4\", \"IPv6\""]
    );
    assert_eq!(
        of_address("FQDN", "db.example.com"),
        ["addressType: Forbidden: names are not resolved; use IPv4 or IPv6, and write the addresses"]
    );
}

#[test]
fn addresses_have_the_type_and_are_not_special() {
    for (type_, address, detail) in [
        ("IPv4", "db", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        ("IPv4", "10.0.0.01", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        ("IPv4", "2001:db8::1", "must be an IPv4 address"),
        ("IPv6", "192.0.2.1", "must be an IPv6 address"),
        ("IPv6", "::ffff:1.2.3.4", "must not be an IPv4-mapped IPv6 address"),
        ("IPv6", "2001:DB8::1", "must be in canonical form (\"2001:db8::1\")"),
        ("IPv4", "0.0.0.0", "may not be unspecified (0.0.0.0)"),
        ("IPv6", "::1", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        ("IPv4", "169.254.0.1", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        ("IPv6", "ff02::1", "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
    ] {
        assert_eq!(
            of_address(type_, address),
            [format!("endpoints[0].addresses[0]: Invalid value: {address:?}: {detail}")]
        );
    }
}

#[test]
fn endpoints_and_addresses_have_limits() {
    let addresses = |count: u8| (1..=count).map(|n| format!("192.0.2.{n}")).collect::<Vec<String>>();
    let endpoint = |count: u8| with(json!({"endpoints": [{"addresses": addresses(count)}]}));
    assert_eq!(endpoint(0), ["endpoints[0].addresses: Required value: must contain at least 1 address"]);
    assert_eq!(endpoint(100), NONE);
    assert_eq!(endpoint(101), ["endpoints[0].addresses: Too many: 101: must have at most 100 items"]);
    let endpoints = |count: usize| with(json!({"endpoints": vec![json!({"addresses": ["192.0.2.1"]}); count]}));
    assert_eq!(endpoints(1000), NONE);
    assert_eq!(endpoints(1001), ["endpoints: Too many: 1001: must have at most 1000 items"]);
}

#[test]
fn the_names_of_an_endpoint_are_valid() {
    let found = with(json!({"endpoints": [{"addresses": ["192.0.2.1"], "nodeName": "A", "hostname": "a.b"}]}));
    let start = ["endpoints[0].nodeName: Invalid value: \"A\": a", "endpoints[0].hostname: Invalid value: \"a.b\": a"];
    assert!(found.len() == 2 && found.iter().zip(start).all(|(fault, start)| fault.starts_with(start)), "{found:#?}");
}

#[test]
fn ports_have_numbers_and_unique_names() {
    let of = |ports: Value| with(json!({"ports": ports}));
    assert_eq!(of(json!([{"port": 1}, {"port": 2}])), ["ports[1].name: Duplicate value: \"\""]);
    assert_eq!(
        of(json!([{"port": 1, "name": "a"}, {"port": 2, "name": "a"}])),
        ["ports[1].name: Duplicate value: \"a\""]
    );
    assert_eq!(
        of(json!([{"name": "a"}])),
        ["ports[0].port: Required value: a port without a number is all ports; write the number"]
    );
    for port in [0, -1, 65_536] {
        assert_eq!(
            of(json!([{"port": port}])),
            [format!("ports[0].port: Invalid value: {port}: must be between 1 and 65535, inclusive")]
        );
    }
    assert_eq!(
        of(json!([{"port": 1, "protocol": "ICMP"}])),
        ["ports[0].protocol: Unsupported value: \"ICMP\": supported values: \"SCTP\", \"TCP\", \"UDP\""]
    );
    let found = of(json!([{"port": 1, "name": "A", "appProtocol": "a b"}]));
    let start = ["ports[0].name: Invalid value: \"A\": a", "ports[0].appProtocol: Invalid value: \"a b\": name part"];
    assert!(found.len() == 2 && found.iter().zip(start).all(|(fault, start)| fault.starts_with(start)), "{found:#?}");
}

#[test]
fn a_slice_has_at_most_250_ports() {
    let ports = |count: u16| (1..=count).map(|n| json!({"port": n, "name": format!("p{n}")})).collect::<Vec<Value>>();
    assert_eq!(with(json!({"ports": ports(250)})), NONE);
    assert_eq!(
        with(json!({"ports": ports(251)})),
        ["ports: Too many: 251: must have at most 250 items; divide the ports among several EndpointSlices"]
    );
}
