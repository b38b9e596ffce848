//! The volumes of a pod.

use super::definition::kubernetes_types;
use super::environment::{ObjectFieldSelector, ResourceFieldSelector};
use super::metadata::{
    LabelSelector, LocalObjectReference, ObjectMeta, TypedLocalObjectReference, TypedObjectReference,
};
use super::scalars::Quantity;
use serde_json::Value;
use std::collections::BTreeMap;

kubernetes_types! {
    Volume {
        aws_elastic_block_store: Option<Box<Value>> = "awsElasticBlockStore",
        azure_disk: Option<Box<Value>> = "azureDisk",
        azure_file: Option<Box<Value>> = "azureFile",
        cephfs: Option<Box<Value>> = "cephfs",
        cinder: Option<Box<Value>> = "cinder",
        config_map: Option<Box<ConfigMapVolumeSource>> = "configMap",
        csi: Option<Box<CSIVolumeSource>> = "csi",
        downward_api: Option<Box<DownwardAPIVolumeSource>> = "downwardAPI",
        empty_dir: Option<Box<EmptyDirVolumeSource>> = "emptyDir",
        ephemeral: Option<Box<EphemeralVolumeSource>> = "ephemeral",
        fc: Option<Box<FCVolumeSource>> = "fc",
        flex_volume: Option<Box<Value>> = "flexVolume",
        flocker: Option<Box<Value>> = "flocker",
        gce_persistent_disk: Option<Box<Value>> = "gcePersistentDisk",
        git_repo: Option<Box<Value>> = "gitRepo",
        glusterfs: Option<Box<Value>> = "glusterfs",
        host_path: Option<Box<HostPathVolumeSource>> = "hostPath",
        image: Option<Box<ImageVolumeSource>> = "image",
        iscsi: Option<Box<ISCSIVolumeSource>> = "iscsi",
        name: String = "name",
        nfs: Option<Box<NFSVolumeSource>> = "nfs",
        persistent_volume_claim: Option<Box<PersistentVolumeClaimVolumeSource>> = "persistentVolumeClaim",
        photon_persistent_disk: Option<Box<Value>> = "photonPersistentDisk",
        portworx_volume: Option<Box<Value>> = "portworxVolume",
        projected: Option<Box<ProjectedVolumeSource>> = "projected",
        quobyte: Option<Box<Value>> = "quobyte",
        rbd: Option<Box<Value>> = "rbd",
        scale_io: Option<Box<Value>> = "scaleIO",
        secret: Option<Box<SecretVolumeSource>> = "secret",
        storageos: Option<Box<Value>> = "storageos",
        vsphere_volume: Option<Box<Value>> = "vsphereVolume",
    }

    ConfigMapVolumeSource {
        default_mode: Option<i32> = "defaultMode",
        items: Option<Vec<KeyToPath>> = "items",
        name: String = "name",
        optional: Option<bool> = "optional",
    }

    SecretVolumeSource {
        default_mode: Option<i32> = "defaultMode",
        items: Option<Vec<KeyToPath>> = "items",
        optional: Option<bool> = "optional",
        secret_name: Option<String> = "secretName",
    }

    KeyToPath {
        key: String = "key",
        mode: Option<i32> = "mode",
        path: String = "path",
    }

    DownwardAPIVolumeSource {
        default_mode: Option<i32> = "defaultMode",
        items: Option<Vec<DownwardAPIVolumeFile>> = "items",
    }

    DownwardAPIVolumeFile {
        field_ref: Option<ObjectFieldSelector> = "fieldRef",
        mode: Option<i32> = "mode",
        path: String = "path",
        resource_field_ref: Option<ResourceFieldSelector> = "resourceFieldRef",
    }

    EmptyDirVolumeSource {
        medium: Option<String> = "medium",
        size_limit: Option<Quantity> = "sizeLimit",
    }

    HostPathVolumeSource {
        path: String = "path",
        type_: Option<String> = "type",
    }

    ImageVolumeSource {
        pull_policy: Option<String> = "pullPolicy",
        reference: Option<String> = "reference",
    }

    ProjectedVolumeSource {
        default_mode: Option<i32> = "defaultMode",
        sources: Option<Vec<VolumeProjection>> = "sources",
    }

    VolumeProjection {
        cluster_trust_bundle: Option<Box<ClusterTrustBundleProjection>> = "clusterTrustBundle",
        config_map: Option<Box<ConfigMapProjection>> = "configMap",
        downward_api: Option<Box<DownwardAPIProjection>> = "downwardAPI",
        pod_certificate: Option<Box<PodCertificateProjection>> = "podCertificate",
        secret: Option<Box<SecretProjection>> = "secret",
        service_account_token: Option<Box<ServiceAccountTokenProjection>> = "serviceAccountToken",
    }

    ConfigMapProjection {
        items: Option<Vec<KeyToPath>> = "items",
        name: String = "name",
        optional: Option<bool> = "optional",
    }

    SecretProjection {
        items: Option<Vec<KeyToPath>> = "items",
        name: String = "name",
        optional: Option<bool> = "optional",
    }

    DownwardAPIProjection {
        items: Option<Vec<DownwardAPIVolumeFile>> = "items",
    }

    ServiceAccountTokenProjection {
        audience: Option<String> = "audience",
        expiration_seconds: Option<i64> = "expirationSeconds",
        path: String = "path",
    }

    ClusterTrustBundleProjection {
        label_selector: Option<LabelSelector> = "labelSelector",
        name: Option<String> = "name",
        optional: Option<bool> = "optional",
        path: String = "path",
        signer_name: Option<String> = "signerName",
    }

    PodCertificateProjection {
        certificate_chain_path: Option<String> = "certificateChainPath",
        credential_bundle_path: Option<String> = "credentialBundlePath",
        key_path: Option<String> = "keyPath",
        key_type: String = "keyType",
        max_expiration_seconds: Option<i32> = "maxExpirationSeconds",
        signer_name: String = "signerName",
    }

    CSIVolumeSource {
        driver: String = "driver",
        fs_type: Option<String> = "fsType",
        node_publish_secret_ref: Option<LocalObjectReference> = "nodePublishSecretRef",
        read_only: Option<bool> = "readOnly",
        volume_attributes: Option<BTreeMap<String, String>> = "volumeAttributes",
    }

    EphemeralVolumeSource {
        volume_claim_template: Option<PersistentVolumeClaimTemplate> = "volumeClaimTemplate",
    }

    FCVolumeSource {
        fs_type: Option<String> = "fsType",
        lun: Option<i32> = "lun",
        read_only: Option<bool> = "readOnly",
        target_wwns: Option<Vec<String>> = "targetWWNs",
        wwids: Option<Vec<String>> = "wwids",
    }

    ISCSIVolumeSource {
        chap_auth_discovery: Option<bool> = "chapAuthDiscovery",
        chap_auth_session: Option<bool> = "chapAuthSession",
        fs_type: Option<String> = "fsType",
        initiator_name: Option<String> = "initiatorName",
        iqn: String = "iqn",
        iscsi_interface: Option<String> = "iscsiInterface",
        lun: i32 = "lun",
        portals: Option<Vec<String>> = "portals",
        read_only: Option<bool> = "readOnly",
        secret_ref: Option<LocalObjectReference> = "secretRef",
        target_portal: String = "targetPortal",
    }

    NFSVolumeSource {
        path: String = "path",
        read_only: Option<bool> = "readOnly",
        server: String = "server",
    }

    PersistentVolumeClaimVolumeSource {
        claim_name: String = "claimName",
        read_only: Option<bool> = "readOnly",
    }

    PersistentVolumeClaimTemplate {
        metadata: Option<ObjectMeta> = "metadata",
        spec: PersistentVolumeClaimSpec = "spec",
    }

    PersistentVolumeClaimSpec {
        access_modes: Option<Vec<String>> = "accessModes",
        data_source: Option<TypedLocalObjectReference> = "dataSource",
        data_source_ref: Option<TypedObjectReference> = "dataSourceRef",
        resources: Option<VolumeResourceRequirements> = "resources",
        selector: Option<LabelSelector> = "selector",
        storage_class_name: Option<String> = "storageClassName",
        volume_attributes_class_name: Option<String> = "volumeAttributesClassName",
        volume_mode: Option<String> = "volumeMode",
        volume_name: Option<String> = "volumeName",
    }

    VolumeResourceRequirements {
        limits: Option<BTreeMap<String, Quantity>> = "limits",
        requests: Option<BTreeMap<String, Quantity>> = "requests",
    }
}
