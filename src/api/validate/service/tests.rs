use crate::api::k8s;
use crate::api::network_defaults;
use serde_json::{Value, json};

const NONE: [&str; 0] = [];

/// Returns the faults of a completed Service, as `field: message`.
fn faults(metadata: Value, spec: Value) -> Vec<String> {
    let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
    let mut service: k8s::Service = k8s::strict(&object).unwrap();
    network_defaults::service(&mut service);
    super::service(&service).iter().map(ToString::to_string).collect()
}

/// Returns the faults of a valid Service with these additional fields in its spec, without the prefix `spec.`.
fn with(more: Value) -> Vec<String> {
    let mut spec = json!({"ports": [{"port": 80}]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let faults = faults(json!({"name": "web"}), spec);
    faults.into_iter().map(|fault| fault.strip_prefix("spec.").unwrap_or(&fault).to_owned()).collect()
}

/// Asserts that a Service with these additional fields has one fault that begins like this.
#[track_caller]
fn one_fault(more: Value, start: &str) {
    let found = with(more);
    assert!(found.len() == 1 && found[0].starts_with(start), "{found:#?}");
}

/// Returns the faults of the ports of a Service of this type.
fn of_ports(type_: &str, ports: Value) -> Vec<String> {
    with(json!({"type": type_, "ports": ports}))
}

#[test]
fn good_services_have_no_fault() {
    for spec in [
        json!({}),
        json!({"type": "ClusterIP", "clusterIP": "10.96.0.10", "selector": {"app": "web", "a.b/c": ""}}),
        json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}], "externalTrafficPolicy": "Local"}),
        json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "allocateLoadBalancerNodePorts": false,
            "healthCheckNodePort": 0, "loadBalancerIP": "", "loadBalancerClass": "", "loadBalancerSourceRanges": []}),
        json!({"clusterIP": "None", "ports": []}),
        json!({"clusterIP": "None", "ports": [{"port": 80, "targetPort": 8080}], "publishNotReadyAddresses": true}),
        json!({"type": "ExternalName", "externalName": "192.0.2.1", "ports": []}),
        json!({"type": "ExternalName", "externalName": "2001:db8::1"}),
        json!({"sessionAffinity": "ClientIP"}),
        json!({"externalIPs": ["192.0.2.1", "2001:db8::1"], "externalTrafficPolicy": "Local"}),
        json!({"internalTrafficPolicy": "Local", "trafficDistribution": "PreferSameNode"}),
        json!({"ipFamilies": ["IPv6"], "ipFamilyPolicy": "SingleStack"}),
        json!({"ipFamilies": ["IPv6", "IPv4"], "ipFamilyPolicy": "RequireDualStack",
            "clusterIPs": ["fd00::1", "10.0.0.1"]}),
        json!({"ports": [{"name": "a", "port": 53, "protocol": "UDP", "targetPort": "dns"},
            {"name": "b", "port": 53, "protocol": "TCP"}, {"name": "c", "port": 53, "protocol": "SCTP"}]}),
        json!({"ports": [{"port": 443, "appProtocol": "kubernetes.io/h2c"}]}),
    ] {
        assert_eq!(with(spec.clone()), NONE, "{spec}");
    }
}

#[test]
fn the_name_of_a_service_is_a_dns_1035_label() {
    let spec = json!({"ports": [{"port": 80}]});
    let form = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
                character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
                validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
    for name in ["1web", "a.b", "Web"] {
        let fault = format!("metadata.name: Invalid value: {name:?}: {form}");
        assert_eq!(faults(json!({"name": name}), spec.clone()), [fault]);
    }
    let long = "a".repeat(64);
    assert_eq!(
        faults(json!({"name": long}), spec.clone()),
        [format!("metadata.name: Invalid value: {long:?}: must be no more than 63 characters")]
    );
    assert_eq!(faults(json!({}), spec.clone()), ["metadata.name: Required value: name is needed for the service"]);
    let found = faults(json!({"name": "a", "namespace": "a.b", "labels": {"a": "x y"}}), spec);
    assert!(found.len() == 2 && found[0].starts_with("metadata.namespace: Invalid value: \"a.b\": a lowercase RFC"));
    assert!(found[1].starts_with("metadata.labels[a]: Invalid value: \"x y\": a valid label must be"), "{found:#?}");
}

#[test]
fn the_type_is_known() {
    assert_eq!(
        with(json!({"type": "Internal"})),
        ["type: Unsupported value: \"Internal\": supported values: \"ClusterIP\", \"ExternalName\", \
          \"LoadBalancer\", \"NodePort\""]
    );
    for type_ in ["LoadBalancer", "NodePort"] {
        assert_eq!(
            with(json!({"type": type_, "clusterIP": "None"})),
            [format!("clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for {type_} services")]
        );
    }
}

#[test]
fn an_external_name_is_an_address() {
    let of = |name: Value| with(json!({"type": "ExternalName", "externalName": name}));
    assert_eq!(of(json!(null)), ["externalName: Required value"]);
    assert_eq!(of(json!("")), ["externalName: Required value"]);
    for name in ["db.example.com", "10.0.0.1."] {
        assert_eq!(
            of(json!(name)),
            ["externalName: Forbidden: the name of a Service here stands for addresses, and not for another name; \
              write the IP address, or use a Service without a selector and an EndpointSlice with the addresses"]
        );
    }
    assert_eq!(
        of(json!("::ffff:10.0.0.1")),
        ["externalName: Invalid value: \"::ffff:10.0.0.1\": must not be an IPv4-mapped IPv6 address"]
    );
    assert_eq!(
        with(json!({"type": "ExternalName", "externalName": "10.0.0.1", "clusterIP": "None", "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack"})),
        [
            "clusterIPs: Forbidden: may not be set for ExternalName services",
            "ipFamilies: Forbidden: may not be set for ExternalName services",
            "ipFamilyPolicy: Forbidden: may not be set for ExternalName services",
        ]
    );
}

#[test]
fn ports_are_needed_and_have_unique_names() {
    assert_eq!(of_ports("ClusterIP", json!([])), ["ports: Required value"]);
    assert_eq!(of_ports("NodePort", json!(null)), ["ports: Required value"]);
    assert_eq!(
        of_ports("ClusterIP", json!([{"port": 1}, {"port": 2, "name": ""}])),
        ["ports[0].name: Required value", "ports[1].name: Required value"]
    );
    assert_eq!(
        of_ports("ClusterIP", json!([{"port": 1, "name": "a"}, {"port": 2, "name": "a"}])),
        ["ports[1].name: Duplicate value: \"a\""]
    );
    one_fault(
        json!({"ports": [{"port": 1, "name": "a.b"}]}),
        "ports[0].name: Invalid value: \"a.b\": a lowercase RFC 1123 label must",
    );
    assert_eq!(
        of_ports("ClusterIP", json!([{"port": 1, "name": "a"}, {"port": 1, "name": "b", "targetPort": 2}])),
        ["ports[1]: Duplicate value: \"TCP/1\""]
    );
}

#[test]
fn ports_have_valid_numbers_and_protocols() {
    for port in [0, -1, 65_536] {
        assert_eq!(
            of_ports("ClusterIP", json!([{"port": port, "targetPort": 1}])),
            [format!("ports[0].port: Invalid value: {port}: must be between 1 and 65535, inclusive")]
        );
    }
    assert_eq!(
        of_ports("ClusterIP", json!([{"port": 1, "targetPort": 70_000}])),
        ["ports[0].targetPort: Invalid value: 70000: must be between 1 and 65535, inclusive"]
    );
    assert_eq!(
        of_ports("ClusterIP", json!([{"port": 1, "targetPort": "80"}])),
        ["ports[0].targetPort: Invalid value: \"80\": must contain at least one letter (a-z)"]
    );
    assert_eq!(
        of_ports("ClusterIP", json!([{"port": 1, "protocol": "tcp"}])),
        ["ports[0].protocol: Unsupported value: \"tcp\": supported values: \"SCTP\", \"TCP\", \"UDP\""]
    );
    one_fault(
        json!({"ports": [{"port": 1, "appProtocol": "a b"}]}),
        "ports[0].appProtocol: Invalid value: \"a b\": name part must consist of",
    );
}

#[test]
fn a_service_has_at_most_250_ports() {
    let ports = |count: u16| (1..=count).map(|n| json!({"port": n, "name": format!("p{n}")})).collect::<Vec<Value>>();
    assert_eq!(of_ports("ClusterIP", json!(ports(250))), NONE);
    assert_eq!(
        of_ports("ClusterIP", json!(ports(251))),
        ["ports: Too many: 251: must have at most 250 items; divide the ports among several Services"]
    );
}

#[test]
fn node_ports_are_valid_and_unique() {
    assert_eq!(
        of_ports("ClusterIP", json!([{"port": 1, "nodePort": 30_000}])),
        ["ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"]
    );
    assert_eq!(
        with(json!({"type": "ExternalName", "externalName": "10.0.0.1", "ports": [{"port": 1, "nodePort": 1}]})),
        ["ports[0].nodePort: Forbidden: may not be used when `type` is 'ExternalName'"]
    );
    for type_ in ["NodePort", "LoadBalancer"] {
        assert_eq!(of_ports(type_, json!([{"port": 1, "nodePort": 0}])), NONE);
        for port in [-1, 65_536] {
            assert_eq!(
                of_ports(type_, json!([{"port": 1, "nodePort": port}])),
                [format!("ports[0].nodePort: Invalid value: {port}: must be between 1 and 65535, inclusive")]
            );
        }
        assert_eq!(
            of_ports(
                type_,
                json!([{"port": 1, "name": "a", "nodePort": 5}, {"port": 2, "name": "b", "nodePort": 5},
                    {"port": 3, "name": "c", "nodePort": 5, "protocol": "UDP"}])
            ),
            ["ports[1].nodePort: Duplicate value: 5"]
        );
    }
}

#[test]
fn the_selector_has_valid_labels() {
    one_fault(json!({"selector": {"a b": "x"}}), "selector[a b]: Invalid value: \"a b\": name part must consist of");
    one_fault(json!({"selector": {"a": "x y"}}), "selector[a]: Invalid value: \"x y\": a valid label must be");
}

#[test]
fn the_affinity_is_valid() {
    assert_eq!(
        with(json!({"sessionAffinity": "Cookie"})),
        ["sessionAffinity: Unsupported value: \"Cookie\": supported values: \"ClientIP\", \"None\""]
    );
    let timeout = |timeout: i32| {
        let config = json!({"clientIP": {"timeoutSeconds": timeout}});
        with(json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": config}))
    };
    assert_eq!((timeout(1).len(), timeout(86_400).len()), (0, 0));
    for wrong in [0, -1, 86_401] {
        assert_eq!(
            timeout(wrong),
            [format!(
                "sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: {wrong}: must be greater than 0 and \
                 less than 86400"
            )]
        );
    }
}

#[test]
fn cluster_ips_are_addresses_of_different_families() {
    let of = |addresses: Value| with(json!({"ipFamilyPolicy": "PreferDualStack", "clusterIPs": addresses}));
    assert_eq!(of(json!(["10.0.0.1", "fd00::1"])), NONE);
    let form = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
    for wrong in ["", "none", "10.0.0.01", "10.0.0.0/24"] {
        assert_eq!(of(json!([wrong])), [format!("clusterIPs[0]: Invalid value: {wrong:?}: {form}")]);
    }
    assert_eq!(of(json!(["10.0.0.1", "None"])), [format!("clusterIPs[1]: Invalid value: \"None\": {form}")]);
    assert_eq!(
        of(json!(["::ffff:10.0.0.1"])),
        ["clusterIPs[0]: Invalid value: \"::ffff:10.0.0.1\": must not be an IPv4-mapped IPv6 address"]
    );
    assert_eq!(
        of(json!(["None", "fd00::1"])),
        ["clusterIPs: Invalid value: [\"None\", \"fd00::1\"]: 'None' must be the first and only value"]
    );
    assert_eq!(
        of(json!(["10.0.0.1", "10.0.0.2"])),
        ["clusterIPs: Invalid value: [\"10.0.0.1\", \"10.0.0.2\"]: may specify no more than one IP for each IP family"]
    );
    assert_eq!(
        of(json!(["10.0.0.1", "fd00::1", "fd00::2"])),
        ["clusterIPs: Invalid value: [\"10.0.0.1\", \"fd00::1\", \"fd00::2\"]: may only hold up to 2 values"]
    );
    assert_eq!(
        with(json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.2"]})),
        ["clusterIPs: Invalid value: [\"10.0.0.2\"]: first value must match `clusterIP`"]
    );
}

#[test]
fn families_are_those_of_the_addresses() {
    assert_eq!(
        with(json!({"ipFamilies": ["IPv5"], "ipFamilyPolicy": "Dual"})),
        [
            "ipFamilies[0]: Unsupported value: \"IPv5\": supported values: \"IPv4\", \"IPv6\"",
            "ipFamilyPolicy: Unsupported value: \"Dual\": supported values: \"PreferDualStack\", \
             \"RequireDualStack\", \"SingleStack\"",
        ]
    );
    assert_eq!(
        with(json!({"ipFamilies": ["IPv4", "IPv4"], "ipFamilyPolicy": "PreferDualStack"})),
        ["ipFamilies[1]: Duplicate value: \"IPv4\""]
    );
    assert_eq!(
        with(json!({"ipFamilies": ["IPv6"], "clusterIP": "10.0.0.1"})),
        ["clusterIPs[0]: Invalid value: \"10.0.0.1\": expected an IPv6 value as indicated by `ipFamilies[0]`"]
    );
    assert_eq!(
        with(json!({"ipFamilies": ["IPv4"], "clusterIP": "fd00::1"})),
        ["clusterIPs[0]: Invalid value: \"fd00::1\": expected an IPv4 value as indicated by `ipFamilies[0]`"]
    );
}

#[test]
fn two_families_need_a_policy() {
    let must = "ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when";
    for policy in [json!(null), json!("SingleStack")] {
        assert_eq!(
            with(json!({"ipFamilyPolicy": policy, "clusterIPs": ["10.0.0.1", "fd00::1"]})),
            [format!("{must} multiple cluster IPs are specified")]
        );
        assert_eq!(
            with(json!({"ipFamilyPolicy": policy, "ipFamilies": ["IPv4", "IPv6"]})),
            [format!("{must} multiple IP families are specified")]
        );
    }
    let headless = |more: Value| {
        let mut spec = json!({"clusterIP": "None", "ipFamilies": ["IPv4", "IPv6"]});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        with(spec).len()
    };
    assert_eq!((headless(json!({})), headless(json!({"selector": {"a": "b"}}))), (0, 1));
}

#[test]
fn external_ips_are_not_special() {
    for (address, detail) in [
        ("web", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        ("::ffff:1.2.3.4", "must not be an IPv4-mapped IPv6 address"),
        ("0.0.0.0", "may not be unspecified (0.0.0.0)"),
        ("::", "may not be unspecified (::)"),
        ("127.0.0.1", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        ("::1", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        ("169.254.1.1", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        ("febf::1", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        ("224.0.0.1", "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
        ("ff02::1", "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
    ] {
        assert_eq!(
            with(json!({"externalIPs": ["192.0.2.1", address]})),
            [format!("externalIPs[1]: Invalid value: {address:?}: {detail}")]
        );
    }
}

#[test]
fn traffic_policies_are_known() {
    assert_eq!(
        with(json!({"externalTrafficPolicy": "Cluster"})),
        ["externalTrafficPolicy: Invalid value: \"Cluster\": may only be set for externally-accessible services"]
    );
    assert_eq!(
        with(json!({"type": "NodePort", "externalTrafficPolicy": "Near", "internalTrafficPolicy": "Near"})),
        [
            "externalTrafficPolicy: Unsupported value: \"Near\": supported values: \"Cluster\", \"Local\"",
            "internalTrafficPolicy: Unsupported value: \"Near\": supported values: \"Cluster\", \"Local\"",
        ]
    );
    assert_eq!(
        with(json!({"trafficDistribution": "Near"})),
        ["trafficDistribution: Unsupported value: \"Near\": supported values: \"PreferClose\", \"PreferSameZone\", \
          \"PreferSameNode\""]
    );
}

#[test]
fn fields_of_a_load_balancer_are_refused_with_a_remedy() {
    assert_eq!(
        with(json!({"type": "NodePort", "allocateLoadBalancerNodePorts": true})),
        ["allocateLoadBalancerNodePorts: Forbidden: may only be used when `type` is 'LoadBalancer'"]
    );
    let ranges = "Forbidden: the addresses of clients are not restricted here, so the port would be open to all; \
                  restrict them with the firewall of the machine, and remove this";
    assert_eq!(
        with(json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30_000,
            "loadBalancerIP": "192.0.2.1", "loadBalancerClass": "example.com/lb",
            "loadBalancerSourceRanges": ["10.0.0.0/8"]})),
        [
            "healthCheckNodePort: Forbidden: no load balancer checks the health of this machine; remove the field"
                .to_owned(),
            "loadBalancerIP: Forbidden: no load balancer provides the address; remove the field, and use externalIPs \
             for an address of this machine"
                .to_owned(),
            "loadBalancerClass: Forbidden: the controller of the class does not run here; remove the field".to_owned(),
            format!("loadBalancerSourceRanges: {ranges}"),
        ]
    );
    let annotated = |ranges: &str| {
        let annotation = "service.beta.kubernetes.io/load-balancer-source-ranges";
        let spec = json!({"type": "LoadBalancer", "ports": [{"port": 80}]});
        faults(json!({"name": "web", "annotations": {annotation: ranges}}), spec)
    };
    assert_eq!(annotated(" "), NONE);
    assert_eq!(
        annotated("10.0.0.0/8"),
        [format!("metadata.annotations[service.beta.kubernetes.io/load-balancer-source-ranges]: {ranges}")]
    );
}

#[test]
fn a_service_without_a_spec_is_reported() {
    let service = k8s::Service::default();
    let found: Vec<String> = super::service(&service).iter().map(ToString::to_string).collect();
    assert!(found.contains(&"spec.ports: Required value".to_owned()), "{found:#?}");
}
