//! The kinds of Kubernetes that a manifest cannot define, and what to do instead.

/// Returns the message for a document of a kind that is not supported.
pub fn refusal(kind: &str) -> String {
    let (reason, remedy) = match kind {
        "Ingress" | "IngressClass" | "Gateway" | "GatewayClass" | "HTTPRoute" | "GRPCRoute" | "TCPRoute"
        | "TLSRoute" | "UDPRoute" | "ReferenceGrant" => (
            "nothing on one machine serves it",
            "leave the document out, and use a Service of type NodePort, or run a reverse proxy as a pod with a \
             configuration of its own",
        ),
        "CustomResourceDefinition" => ("one machine has no custom resources, and no controllers for them", LEAVE_OUT),
        "APIService"
        | "MutatingAdmissionPolicy"
        | "MutatingAdmissionPolicyBinding"
        | "MutatingWebhookConfiguration"
        | "ValidatingAdmissionPolicy"
        | "ValidatingAdmissionPolicyBinding"
        | "ValidatingWebhookConfiguration" => ("it extends an API server, and one machine has none", LEAVE_OUT),
        "LimitRange" | "ResourceQuota" => {
            ("nothing applies it to pods", "leave the document out, and write the requests and limits in the pods")
        }
        "PersistentVolume" => (
            "a claim gets a directory of the machine",
            "leave the document out, and write a PersistentVolumeClaim, or a hostPath volume for an existing directory",
        ),
        "StorageClass" => (
            "the configuration has the storage classes",
            "leave the document out, and set storageClasses in the WherryConfiguration",
        ),
        "CSIDriver"
        | "CSINode"
        | "VolumeAttachment"
        | "VolumeAttributesClass"
        | "VolumeSnapshot"
        | "VolumeSnapshotClass"
        | "VolumeSnapshotContent" => ("there are no storage drivers", LEAVE_OUT),
        "DeviceClass" | "ResourceClaim" | "ResourceClaimTemplate" | "ResourceSlice" => (
            "devices are not allocated by claims",
            "leave the document out, and request the resource of a device plugin in the container",
        ),
        "Endpoints" => ("it is obsolete", "write an EndpointSlice with the label kubernetes.io/service-name"),
        "ReplicationController" => {
            ("it is obsolete", "write a Deployment with the same spec.replicas and spec.template")
        }
        "ControllerRevision" | "Event" | "Lease" | "Node" => ("Wherry creates these objects itself", LEAVE_OUT),
        _ => return format!("{kind} is not supported; {LEAVE_OUT}"),
    };
    format!("{kind} is not supported: {reason}; {remedy}")
}

const LEAVE_OUT: &str = "leave the document out";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_kind_and_the_remedy() {
        assert_eq!(refusal("ServiceMonitor"), "ServiceMonitor is not supported; leave the document out");
        assert_eq!(
            refusal("CustomResourceDefinition"),
            "CustomResourceDefinition is not supported: one machine has no custom resources, and no controllers for \
             them; leave the document out"
        );
        for kind in ["Ingress", "Gateway"] {
            assert!(refusal(kind).contains("a Service of type NodePort, or run a reverse proxy"), "{kind}");
        }
    }
}
