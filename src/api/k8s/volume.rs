//! The volumes of a pod.

use super::environment::{ObjectFieldSelector, ResourceFieldSelector};
use super::field::kubernetes_types;
use super::objects::{
    LabelSelector, LocalObjectReference, ObjectMeta, TypedLocalObjectReference, TypedObjectReference,
};
use super::scalars::Quantity;
use std::collections::BTreeMap;

kubernetes_types! {
    Volume {
        aws_elastic_block_store: Option<AWSElasticBlockStoreVolumeSource> = "awsElasticBlockStore",
        azure_disk: Option<AzureDiskVolumeSource> = "azureDisk",
        azure_file: Option<AzureFileVolumeSource> = "azureFile",
        cephfs: Option<CephFSVolumeSource> = "cephfs",
        cinder: Option<CinderVolumeSource> = "cinder",
        config_map: Option<ConfigMapVolumeSource> = "configMap",
        csi: Option<CSIVolumeSource> = "csi",
        downward_api: Option<DownwardAPIVolumeSource> = "downwardAPI",
        empty_dir: Option<EmptyDirVolumeSource> = "emptyDir",
        ephemeral: Option<EphemeralVolumeSource> = "ephemeral",
        fc: Option<FCVolumeSource> = "fc",
        flex_volume: Option<FlexVolumeSource> = "flexVolume",
        flocker: Option<FlockerVolumeSource> = "flocker",
        gce_persistent_disk: Option<GCEPersistentDiskVolumeSource> = "gcePersistentDisk",
        git_repo: Option<GitRepoVolumeSource> = "gitRepo",
        glusterfs: Option<GlusterfsVolumeSource> = "glusterfs",
        host_path: Option<HostPathVolumeSource> = "hostPath",
        image: Option<ImageVolumeSource> = "image",
        iscsi: Option<ISCSIVolumeSource> = "iscsi",
        name: String = "name",
        nfs: Option<NFSVolumeSource> = "nfs",
        persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource> = "persistentVolumeClaim",
        photon_persistent_disk: Option<PhotonPersistentDiskVolumeSource> = "photonPersistentDisk",
        portworx_volume: Option<PortworxVolumeSource> = "portworxVolume",
        projected: Option<ProjectedVolumeSource> = "projected",
        quobyte: Option<QuobyteVolumeSource> = "quobyte",
        rbd: Option<RBDVolumeSource> = "rbd",
        scale_io: Option<ScaleIOVolumeSource> = "scaleIO",
        secret: Option<SecretVolumeSource> = "secret",
        storageos: Option<StorageOSVolumeSource> = "storageos",
        vsphere_volume: Option<VsphereVirtualDiskVolumeSource> = "vsphereVolume",
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
        cluster_trust_bundle: Option<ClusterTrustBundleProjection> = "clusterTrustBundle",
        config_map: Option<ConfigMapProjection> = "configMap",
        downward_api: Option<DownwardAPIProjection> = "downwardAPI",
        pod_certificate: Option<PodCertificateProjection> = "podCertificate",
        secret: Option<SecretProjection> = "secret",
        service_account_token: Option<ServiceAccountTokenProjection> = "serviceAccountToken",
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

    AWSElasticBlockStoreVolumeSource {
        fs_type: Option<String> = "fsType",
        partition: Option<i32> = "partition",
        read_only: Option<bool> = "readOnly",
        volume_id: String = "volumeID",
    }

    AzureDiskVolumeSource {
        caching_mode: Option<String> = "cachingMode",
        disk_name: String = "diskName",
        disk_uri: String = "diskURI",
        fs_type: Option<String> = "fsType",
        kind: Option<String> = "kind",
        read_only: Option<bool> = "readOnly",
    }

    AzureFileVolumeSource {
        read_only: Option<bool> = "readOnly",
        secret_name: String = "secretName",
        share_name: String = "shareName",
    }

    CephFSVolumeSource {
        monitors: Vec<String> = "monitors",
        path: Option<String> = "path",
        read_only: Option<bool> = "readOnly",
        secret_file: Option<String> = "secretFile",
        secret_ref: Option<LocalObjectReference> = "secretRef",
        user: Option<String> = "user",
    }

    CinderVolumeSource {
        fs_type: Option<String> = "fsType",
        read_only: Option<bool> = "readOnly",
        secret_ref: Option<LocalObjectReference> = "secretRef",
        volume_id: String = "volumeID",
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

    FlexVolumeSource {
        driver: String = "driver",
        fs_type: Option<String> = "fsType",
        options: Option<BTreeMap<String, String>> = "options",
        read_only: Option<bool> = "readOnly",
        secret_ref: Option<LocalObjectReference> = "secretRef",
    }

    FlockerVolumeSource {
        dataset_name: Option<String> = "datasetName",
        dataset_uuid: Option<String> = "datasetUUID",
    }

    GCEPersistentDiskVolumeSource {
        fs_type: Option<String> = "fsType",
        partition: Option<i32> = "partition",
        pd_name: String = "pdName",
        read_only: Option<bool> = "readOnly",
    }

    GitRepoVolumeSource {
        directory: Option<String> = "directory",
        repository: String = "repository",
        revision: Option<String> = "revision",
    }

    GlusterfsVolumeSource {
        endpoints: String = "endpoints",
        path: String = "path",
        read_only: Option<bool> = "readOnly",
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

    PhotonPersistentDiskVolumeSource {
        fs_type: Option<String> = "fsType",
        pd_id: String = "pdID",
    }

    PortworxVolumeSource {
        fs_type: Option<String> = "fsType",
        read_only: Option<bool> = "readOnly",
        volume_id: String = "volumeID",
    }

    QuobyteVolumeSource {
        group: Option<String> = "group",
        read_only: Option<bool> = "readOnly",
        registry: String = "registry",
        tenant: Option<String> = "tenant",
        user: Option<String> = "user",
        volume: String = "volume",
    }

    RBDVolumeSource {
        fs_type: Option<String> = "fsType",
        image: String = "image",
        keyring: Option<String> = "keyring",
        monitors: Vec<String> = "monitors",
        pool: Option<String> = "pool",
        read_only: Option<bool> = "readOnly",
        secret_ref: Option<LocalObjectReference> = "secretRef",
        user: Option<String> = "user",
    }

    ScaleIOVolumeSource {
        fs_type: Option<String> = "fsType",
        gateway: String = "gateway",
        protection_domain: Option<String> = "protectionDomain",
        read_only: Option<bool> = "readOnly",
        secret_ref: LocalObjectReference = "secretRef",
        ssl_enabled: Option<bool> = "sslEnabled",
        storage_mode: Option<String> = "storageMode",
        storage_pool: Option<String> = "storagePool",
        system: String = "system",
        volume_name: Option<String> = "volumeName",
    }

    StorageOSVolumeSource {
        fs_type: Option<String> = "fsType",
        read_only: Option<bool> = "readOnly",
        secret_ref: Option<LocalObjectReference> = "secretRef",
        volume_name: Option<String> = "volumeName",
        volume_namespace: Option<String> = "volumeNamespace",
    }

    VsphereVirtualDiskVolumeSource {
        fs_type: Option<String> = "fsType",
        storage_policy_id: Option<String> = "storagePolicyID",
        storage_policy_name: Option<String> = "storagePolicyName",
        volume_path: String = "volumePath",
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
