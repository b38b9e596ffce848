//! The environment variables of a container.

use super::definition::kubernetes_types;
use super::scalars::Quantity;

kubernetes_types! {
    EnvVar {
        name: String = "name",
        value: Option<String> = "value",
        value_from: Option<Box<EnvVarSource>> = "valueFrom",
    }

    EnvVarSource {
        config_map_key_ref: Option<Box<ConfigMapKeySelector>> = "configMapKeyRef",
        field_ref: Option<Box<ObjectFieldSelector>> = "fieldRef",
        file_key_ref: Option<Box<FileKeySelector>> = "fileKeyRef",
        resource_field_ref: Option<Box<ResourceFieldSelector>> = "resourceFieldRef",
        secret_key_ref: Option<Box<SecretKeySelector>> = "secretKeyRef",
    }

    EnvFromSource {
        config_map_ref: Option<Box<ConfigMapEnvSource>> = "configMapRef",
        prefix: Option<String> = "prefix",
        secret_ref: Option<Box<SecretEnvSource>> = "secretRef",
    }

    ConfigMapEnvSource {
        name: String = "name",
        optional: Option<bool> = "optional",
    }

    SecretEnvSource {
        name: String = "name",
        optional: Option<bool> = "optional",
    }

    ConfigMapKeySelector {
        key: String = "key",
        name: String = "name",
        optional: Option<bool> = "optional",
    }

    SecretKeySelector {
        key: String = "key",
        name: String = "name",
        optional: Option<bool> = "optional",
    }

    ObjectFieldSelector {
        api_version: Option<String> = "apiVersion",
        field_path: String = "fieldPath",
    }

    ResourceFieldSelector {
        container_name: Option<String> = "containerName",
        divisor: Option<Quantity> = "divisor",
        resource: String = "resource",
    }

    FileKeySelector {
        key: String = "key",
        optional: Option<bool> = "optional",
        path: String = "path",
        volume_name: String = "volumeName",
    }
}
