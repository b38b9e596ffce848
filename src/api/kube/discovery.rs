//! The discovery documents: the groups and resources of the server, in the two forms that kubectl requests.

use super::KUBERNETES_MINOR;
use super::resources::{RESOURCES, Resource, groups};
use serde_json::{Value, json};

/// Returns `/api` in the legacy form.
pub fn core_versions() -> Value {
    json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [] })
}

/// Returns `/apis` in the legacy form.
pub fn group_list() -> Value {
    let all: Vec<Value> = names().into_iter().map(group_entry).collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": all })
}

/// Returns `/apis/GROUP`.
pub fn group(group: &str) -> Value {
    let mut entry = group_entry(group);
    entry["kind"] = "APIGroup".into();
    entry["apiVersion"] = "v1".into();
    entry
}

fn group_entry(group: &str) -> Value {
    let entry = |version: &str| json!({ "groupVersion": format!("{group}/{version}"), "version": version });
    let versions: Vec<Value> = versions(group).map(entry).collect();
    json!({ "name": group, "preferredVersion": versions.first(), "versions": versions })
}

/// Returns the names of the groups, except for the core group.
fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = groups().into_iter().map(|(group, _)| group).collect();
    names.dedup();
    names
}

/// Returns the versions of a group, the preferred one first.
fn versions(group: &str) -> impl Iterator<Item = &'static str> {
    let of_core = Some("v1").filter(|_| group.is_empty());
    of_core.into_iter().chain(groups().into_iter().filter(move |(name, _)| *name == group).map(|(_, version)| version))
}

/// Returns `/api/v1` or `/apis/GROUP/VERSION`.
pub fn resource_list(group: &str, version: &str) -> Value {
    let mut all = Vec::new();
    for resource in of(group, version) {
        let mut entry = json!({
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind_name,
            "verbs": resource.verbs,
        });
        if !resource.short_names.is_empty() {
            entry["shortNames"] = json!(resource.short_names);
        }
        if !resource.categories.is_empty() {
            entry["categories"] = json!(resource.categories);
        }
        all.push(entry);
        for sub in resource.subresources {
            let mut entry = json!({
                "name": format!("{}/{}", resource.plural, sub.name),
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": sub.kind_name,
                "verbs": sub.verbs,
            });
            if let Some((group, version)) = sub.own_group() {
                entry["group"] = group.into();
                entry["version"] = version.into();
            }
            all.push(entry);
        }
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": all })
}

/// Returns `/api` (`core`) or `/apis` in the aggregated form. `form`: the version of `apidiscovery.k8s.io`.
pub fn aggregated(form: &str, core: bool) -> Value {
    let groups = if core { vec![""] } else { names() };
    let items: Vec<Value> = groups
        .iter()
        .map(|group| {
            let versions: Vec<Value> = versions(group)
                .map(|version| {
                    let resources: Vec<Value> =
                        of(group, version).map(|r| aggregated_resource(r, group, version)).collect();
                    json!({ "version": version, "resources": resources, "freshness": "Current" })
                })
                .collect();
            json!({ "metadata": { "name": group, "creationTimestamp": null }, "versions": versions })
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{form}"),
        "metadata": {},
        "items": items,
    })
}

fn aggregated_resource(resource: &Resource, group: &str, version: &str) -> Value {
    let kind = |name: &str| json!({ "group": group, "version": version, "kind": name });
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind": kind(resource.kind_name),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    let subs: Vec<Value> = resource
        .subresources
        .iter()
        .map(|s| {
            let (group, version) = s.own_group().unwrap_or((group, version));
            let kind = json!({ "group": group, "version": version, "kind": s.kind_name });
            json!({ "subresource": s.name, "responseKind": kind, "verbs": s.verbs })
        })
        .collect();
    if !subs.is_empty() {
        entry["subresources"] = subs.into();
    }
    entry
}

fn of(group: &str, version: &str) -> impl Iterator<Item = &'static Resource> {
    RESOURCES.iter().filter(move |r| r.group == group && r.version == version)
}

/// Returns `/version`. The version of Wherry is only build metadata, because clients compare the Kubernetes version
/// with their own.
pub fn version(wherry: &str, architecture: &str) -> Value {
    let platform = match architecture {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    json!({
        "major": "1",
        "minor": KUBERNETES_MINOR.to_string(),
        "gitVersion": kubernetes_version(wherry),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("linux/{platform}"),
    })
}

/// Returns a version such as `v1.34.0+wherry-0.1.0`.
pub fn kubernetes_version(wherry: &str) -> String {
    format!("v1.{KUBERNETES_MINOR}.0+wherry-{wherry}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &Value) -> Vec<&str> {
        list.as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect()
    }

    #[test]
    fn both_forms_contain_the_same_resources() {
        let core = resource_list("", "v1");
        assert_eq!(core["groupVersion"], "v1");
        assert!(names(&core["resources"]).contains(&"pods/exec") && names(&core["resources"]).contains(&"nodes"));
        let mut legacy = names(&core["resources"]).len();
        for (group, version) in groups() {
            legacy += resource_list(group, version)["resources"].as_array().unwrap().len();
        }
        let mut new = 0;
        for core in [true, false] {
            let document = aggregated("v2", core);
            assert_eq!(document["apiVersion"], "apidiscovery.k8s.io/v2");
            for resource in document["items"].as_array().unwrap().iter().flat_map(|g| g["versions"].as_array().unwrap())
            {
                for resource in resource["resources"].as_array().unwrap() {
                    new += 1 + resource["subresources"].as_array().map_or(0, Vec::len);
                }
            }
        }
        assert_eq!(new, legacy);
        assert_eq!(names(&group_list()["groups"]), super::names());
        assert_eq!(group("metrics.k8s.io")["preferredVersion"]["groupVersion"], "metrics.k8s.io/v1beta1");
        let autoscaling = group("autoscaling");
        assert_eq!(autoscaling["preferredVersion"]["version"], "v2");
        assert_eq!(autoscaling["versions"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn a11_kubectl_finds_that_evictions_are_supported() {
        assert!(names(&group_list()["groups"]).contains(&"policy"));
        assert_eq!(group("policy")["preferredVersion"]["groupVersion"], "policy/v1");
        let legacy = resource_list("", "v1");
        let eviction = legacy["resources"].as_array().unwrap().iter().find(|r| r["name"] == "pods/eviction").unwrap();
        assert_eq!(
            (&eviction["kind"], &eviction["group"], &eviction["version"]),
            (&"Eviction".into(), &"policy".into(), &"v1".into())
        );
        let new = aggregated("v2", true);
        let pods = new["items"][0]["versions"][0]["resources"].as_array().unwrap();
        let pods = pods.iter().find(|r| r["resource"] == "pods").unwrap();
        let eviction =
            pods["subresources"].as_array().unwrap().iter().find(|s| s["subresource"] == "eviction").unwrap();
        assert_eq!(eviction["responseKind"], json!({ "group": "policy", "version": "v1", "kind": "Eviction" }));
    }

    #[test]
    fn the_version_is_one_that_clients_understand() {
        let version = version("0.1.0", "x86_64");
        assert_eq!(
            (&version["gitVersion"], &version["platform"]),
            (&"v1.34.0+wherry-0.1.0".into(), &"linux/amd64".into())
        );
    }
}
