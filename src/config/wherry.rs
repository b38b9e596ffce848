//! `kind: WherryConfiguration` (wherry.io/v1alpha1): settings without a field in KubeletConfiguration. A kubelet has
//! command line flags for these settings, or does not have them at all.

use crate::api::document::context::NetworkPolicies;
use crate::api::sealing::Policy;
use crate::config::field_value::FieldValue;
use crate::config::problem::absolute;
use crate::config::table::{Field, FieldType, INT32, INT64, none, parts, set};
use crate::config::{kubelet, names, node_size, services, storage};
use std::time::Duration;

pub const API_VERSION: &str = "wherry.io/v1alpha1";
pub const KIND: &str = "WherryConfiguration";

/// All fields, in alphabetical order.
pub static FIELDS: &[Field] = &[
    set("clusterDefaults", FieldType::Text, |c, v| absolute(v.text()).map(|p| c.cluster_defaults = Some(p))),
    set("containerLogsDir", FieldType::Text, |c, v| absolute(v.text()).map(|p| c.container_logs_dir = p)),
    set("devicePluginSocket", FieldType::Text, |c, v| {
        if v.text().is_empty() {
            c.device_plugin_socket = None;
            return Ok(());
        }
        names::check_socket(v.text())?;
        absolute(v.text()).map(|p| c.device_plugin_socket = Some(p))
    }),
    set("dockerConfig", FieldType::Text, |c, v| absolute(v.text()).map(|p| c.docker_config = Some(p))),
    parts("extendedResources", FieldType::MapOf(&INT64), |c, map, wrong| node_size::extended(&mut c.node, map, wrong)),
    set("imageCredentialProviderBinDir", FieldType::Text, |c, v| {
        absolute(v.text()).map(|p| c.image_credential_provider_bin_dir = Some(p))
    }),
    set("imageCredentialProviderConfig", FieldType::Text, |c, v| {
        absolute(v.text()).map(|p| c.image_credential_provider_config = Some(p))
    }),
    set("imageGCPeriod", FieldType::Duration, |c, v| match v.duration() {
        d if d < Duration::from_secs(1) => Err("must be at least 1s".to_owned()),
        d => {
            c.image_gc.period = d;
            Ok(())
        }
    }),
    set("kubeconfig", FieldType::Text, |c, v| absolute(v.text()).map(|p| c.kubeconfig = Some(p))),
    set("kubectlAddress", FieldType::Text, |c, v| kubelet::ip(v.text()).map(|a| c.kubectl_address = a)),
    set("kubectlPort", INT32, |c, v| kubelet::port(v).map(|p| c.kubectl_port = p)),
    set("logindConfDir", FieldType::Text, |c, v| absolute(v.text()).map(|p| c.logind_conf_dir = p)),
    set("maxParallelContainerStarts", INT32, |c, v| at_least_one(v).map(|n| c.max_parallel_container_starts = n)),
    set("maxParallelSandboxStarts", INT32, |c, v| at_least_one(v).map(|n| c.max_parallel_sandbox_starts = n)),
    set("meteredConnection", FieldType::Bool, |c, v| {
        c.metered_connection = v.bool();
        Ok(())
    }),
    set("networkPolicies", FieldType::OneOf(NetworkPolicies::NAMES), |c, v| {
        c.manifest_rules.network_policies = NetworkPolicies::of_name(v.text());
        Ok(())
    }),
    parts("nodeLabels", FieldType::MapOf(&FieldType::Text), |c, map, wrong| node_size::labels(&mut c.node, map, wrong)),
    set("nodeName", FieldType::Text, |c, v| {
        names::check_node_name(v.text())?;
        c.node_name = v.text().to_owned();
        Ok(())
    }),
    set("openSecrets", FieldType::OneOf(&["Warn", "Refuse"]), |c, v| {
        c.manifest_rules.refuse_open_secrets = v.text() == "Refuse";
        Ok(())
    }),
    set("rootDir", FieldType::Text, |c, v| absolute(v.text()).map(|p| c.root_dir = p)),
    set("sealSecrets", FieldType::OneOf(Policy::NAMES), |c, v| {
        c.seal_secrets = Policy::of_name(v.text());
        Ok(())
    }),
    set("serviceClusterIPRange", FieldType::Text, |c, v| services::ranges(v.text()).map(|all| c.service_ranges = all)),
    set("socket", FieldType::Text, |c, v| {
        names::check_socket(v.text())?;
        absolute(v.text()).map(|p| c.socket = p)
    }),
    parts(
        "storageClasses",
        FieldType::List(&FieldType::Object(&[
            none("directory", FieldType::Text),
            none("name", FieldType::Text),
            none("reclaimPolicy", FieldType::OneOf(&["Retain", "Delete"])),
        ])),
        |c, list, wrong| storage::classes(&mut c.storage_configured, list, wrong),
    ),
];

fn at_least_one(v: &FieldValue) -> Result<u32, String> {
    u32::try_from(v.int()).ok().filter(|n| *n > 0).ok_or_else(|| "must be 1 or more".to_owned())
}
