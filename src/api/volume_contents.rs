//! Resolves the volumes of a pod: the files of ConfigMaps, Secrets and the downward API, as a kubelet builds them.

use crate::api::claim::{self, ClaimDirectory, ClaimError, ClaimKey, FindClaim};
use crate::api::cluster::token::TokenKey;
use crate::api::data_object::{DataKey, DataKind, DataObject};
use crate::api::environment::{self, Facts, Missing};
use crate::api::go_quote;
use crate::api::k8s;
use crate::api::limits::memory_of_pod;
use crate::api::names::FullName;
use crate::api::pod::Pod;
use crate::api::quantity::Quantity;
use crate::api::resources::MEMORY;
use crate::api::service_token;
use crate::api::volume::{FilesPlugin, FsGroup, HostPathType, Medium, Volume, VolumeFile, VolumeKind, huge_page_size};
use std::collections::BTreeMap;

/// The default mode of files.
const MODE: i32 = 0o644;

/// A volume whose contents do not exist. The message is the kubelet's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unresolved {
    pub volume: String,
    pub why: String,
    /// Nothing is wrong: the directory of a claim is being created.
    pub is_expected: bool,
}

impl std::fmt::Display for Unresolved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MountVolume.SetUp failed for volume {:?} : {}", self.volume, self.why)
    }
}

/// Resolves each volume of the pod separately, in the order of the spec. A volume is unresolved if an object or a key
/// that is not optional does not exist.
pub fn resolve<'f>(facts: Facts<'f>, find: FindClaim<'f>) -> impl Iterator<Item = Result<Volume, Unresolved>> + 'f {
    let volumes = facts.pod.spec().volumes.iter().flatten();
    volumes.map(move |volume| {
        let found = match claim::of_volume(facts.pod, volume) {
            Some(key) => of_claim(volume, facts.pod, &key, find),
            None => kind(volume, facts).map_err(ClaimError::NotUsable),
        };
        let kind = found.map_err(|why| Unresolved {
            volume: volume.name.clone(),
            why: why.to_string(),
            is_expected: why == ClaimError::Soon,
        })?;
        Ok(Volume { name: volume.name.clone(), kind, fs_group: fs_group(facts.pod) })
    })
}

/// Returns the volumes without the contents of files. This is enough to mount them in a container. `images` has the
/// image ids of image volumes, by volume name.
///
/// # Errors
/// The pod has to wait for a claim.
pub fn without_contents(
    pod: &Pod,
    images: &BTreeMap<String, String>,
    find: FindClaim<'_>,
) -> Result<Vec<Volume>, String> {
    let kind = |volume: &k8s::Volume| match (plugin(volume), plain(volume, Medium::Disk)) {
        (Some(plugin), _) => VolumeKind::Files { plugin, files: Vec::new() },
        (None, VolumeKind::Image { reference, .. }) => {
            VolumeKind::Image { reference, id: images.get(&volume.name).cloned().unwrap_or_default() }
        }
        (None, kind) => kind,
    };
    let volumes = pod.spec().volumes.iter().flatten();
    let of = |volume: &k8s::Volume| {
        let kind = match claim::of_volume(pod, volume) {
            Some(key) => of_claim(volume, pod, &key, find).map_err(|why| why.to_string())?,
            None => kind(volume),
        };
        Ok(Volume { name: volume.name.clone(), kind, fs_group: fs_group(pod) })
    };
    volumes.map(of).collect()
}

fn of_claim(volume: &k8s::Volume, pod: &Pod, key: &ClaimKey, find: FindClaim<'_>) -> Result<VolumeKind, ClaimError> {
    let ClaimDirectory { path } = find(pod, key)?;
    let read_only = volume.persistent_volume_claim.as_ref().is_some_and(|source| source.read_only == Some(true));
    Ok(VolumeKind::Claim { path, read_only })
}

/// Returns the ConfigMaps and Secrets to which the volumes of a pod refer.
pub fn references(pod: &Pod) -> impl Iterator<Item = DataKey> {
    let keys = pod.spec().volumes.iter().flatten().flat_map(|volume| {
        let config_map = volume.config_map.as_ref().map(|of| (DataKind::ConfigMap, of.name.clone()));
        let secret = volume.secret.as_ref().map(|of| (DataKind::Secret, of.secret_name.clone().unwrap_or_default()));
        let sources = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
        let projected = sources.flat_map(|source| {
            let config_map = source.config_map.as_ref().map(|of| (DataKind::ConfigMap, of.name.clone()));
            let secret = source.secret.as_ref().map(|of| (DataKind::Secret, of.name.clone()));
            config_map.into_iter().chain(secret)
        });
        config_map.into_iter().chain(secret).chain(projected).collect::<Vec<_>>()
    });
    keys.map(|(kind, name)| key(pod, kind, &name))
}

fn key(pod: &Pod, kind: DataKind, name: &str) -> DataKey {
    DataKey { kind, name: FullName { namespace: pod.name.namespace.clone(), name: name.into() } }
}

fn fs_group(pod: &Pod) -> Option<FsGroup> {
    let context = pod.spec().security_context.as_ref()?;
    let gid = u32::try_from(context.fs_group?).ok()?;
    Some(FsGroup { gid, only_on_root_mismatch: context.fs_group_change_policy.as_deref() == Some("OnRootMismatch") })
}

/// Returns the plugin of a volume whose files Wherry writes. None for other volumes.
fn plugin(volume: &k8s::Volume) -> Option<FilesPlugin> {
    [
        (volume.config_map.is_some(), FilesPlugin::ConfigMap),
        (volume.secret.is_some(), FilesPlugin::Secret),
        (volume.projected.is_some(), FilesPlugin::Projected),
        (volume.downward_api.is_some(), FilesPlugin::DownwardApi),
    ]
    .into_iter()
    .find_map(|(used, plugin)| used.then_some(plugin))
}

fn kind(volume: &k8s::Volume, facts: Facts<'_>) -> Result<VolumeKind, String> {
    let files = if let Some(of) = &volume.config_map {
        let modes = Modes { default: of.default_mode, items: of.items.as_deref() };
        of_object(DataKind::ConfigMap, &of.name, of.optional, modes, facts)?
    } else if let Some(of) = &volume.secret {
        let modes = Modes { default: of.default_mode, items: of.items.as_deref() };
        of_object(DataKind::Secret, of.secret_name.as_deref().unwrap_or_default(), of.optional, modes, facts)?
    } else if let Some(of) = &volume.downward_api {
        downward(of.items.as_deref(), of.default_mode, facts)?
    } else if let Some(of) = &volume.projected {
        projected(of, facts)?
    } else {
        return Ok(plain(volume, medium(volume, facts)));
    };
    let plugin = plugin(volume).unwrap_or(FilesPlugin::Projected);
    Ok(VolumeKind::Files { plugin, files })
}

/// Returns an emptyDir, a hostPath or an image. Validation rejects all other sources.
fn plain(volume: &k8s::Volume, medium: Medium) -> VolumeKind {
    if let Some(of) = &volume.image {
        return VolumeKind::Image { reference: of.reference.clone().unwrap_or_default(), id: String::new() };
    }
    match &volume.host_path {
        Some(of) => {
            let check = HostPathType::named(of.type_.as_deref().unwrap_or_default()).unwrap_or(HostPathType::Unset);
            VolumeKind::HostPath { path: of.path.clone(), check }
        }
        None => VolumeKind::EmptyDir(medium),
    }
}

fn medium(volume: &k8s::Volume, facts: Facts<'_>) -> Medium {
    let Some(of) = &volume.empty_dir else { return Medium::Disk };
    let limit = of.size_limit.as_ref().and_then(|q| Quantity::parse(&q.0).ok()).filter(|q| !q.is_zero());
    let limit = limit.and_then(|q| u64::try_from(q.value()).ok());
    match of.medium.as_deref().unwrap_or_default() {
        "Memory" => {
            // As in a kubelet: the smallest of the node's memory, the memory limit of the pod's cgroup and
            // `sizeLimit`.
            let all = [Some(facts.allocatable.get(MEMORY)).filter(|n| *n > 0), memory_of_pod(facts.pod), limit];
            Medium::Memory { size: all.into_iter().flatten().min() }
        }
        medium => match huge_page_size(medium) {
            Some(size) => match size.or_else(|| requested_page_size(facts.pod)) {
                Some(page_size) => Medium::HugePages { page_size, size: limit },
                None => Medium::Disk,
            },
            None => Medium::Disk,
        },
    }
}

/// Returns the huge page size that the containers request, in bytes. Validation ensures that there is only one size.
fn requested_page_size(pod: &Pod) -> Option<u64> {
    let names = pod.all_containers().filter_map(|c| c.resources.as_ref()?.requests.as_ref()).flat_map(BTreeMap::keys);
    let sizes = names.filter_map(|name| Quantity::parse(name.strip_prefix("hugepages-")?).ok());
    sizes.filter_map(|size| u64::try_from(size.value()).ok()).next()
}

/// The keys of a source and their modes.
#[derive(Clone, Copy)]
struct Modes<'s> {
    default: Option<i32>,
    items: Option<&'s [k8s::KeyToPath]>,
}

impl Modes<'_> {
    fn of(&self, own: Option<i32>) -> u32 {
        u32::try_from(own.or(self.default).unwrap_or(MODE)).unwrap_or(MODE as u32) & 0o777
    }
}

fn of_object(
    kind: DataKind,
    name: &str,
    optional: Option<bool>,
    modes: Modes<'_>,
    facts: Facts<'_>,
) -> Result<Vec<VolumeFile>, String> {
    let optional = optional == Some(true);
    let key = key(facts.pod, kind, name);
    match facts.objects.get(&key) {
        Some(object) => files(object, optional, modes),
        None if facts.objects.is_locked(&key) => Err(Missing::Locked(key).to_string()),
        None if optional => Ok(Vec::new()),
        None => Err(format!("{} {name:?} not found", kind.resource())),
    }
}

/// Returns the files for all keys of an object, or only for those in `items`.
fn files(object: &DataObject, optional: bool, modes: Modes<'_>) -> Result<Vec<VolumeFile>, String> {
    let Some(items) = modes.items.filter(|items| !items.is_empty()) else {
        let all = object.values.iter().map(|(key, value)| VolumeFile {
            path: key.to_string(),
            mode: modes.of(None),
            owner: None,
            bytes: value.bytes().to_vec(),
        });
        return Ok(all.collect());
    };
    let mut files = Vec::new();
    for item in items {
        match object.values.get(item.key.as_str()) {
            Some(value) => {
                let mode = modes.of(item.mode);
                files.push(VolumeFile { path: item.path.clone(), mode, owner: None, bytes: value.bytes().to_vec() });
            }
            None if optional => {}
            None => {
                return Err(match object.key.kind {
                    DataKind::ConfigMap => format!("configmap references non-existent config key: {}", item.key),
                    DataKind::Secret => format!("references non-existent secret key: {}", item.key),
                });
            }
        }
    }
    Ok(files)
}

fn projected(of: &k8s::ProjectedVolumeSource, facts: Facts<'_>) -> Result<Vec<VolumeFile>, String> {
    let mut files = Vec::new();
    for source in of.sources.iter().flatten() {
        if let Some(map) = &source.config_map {
            let modes = Modes { default: of.default_mode, items: map.items.as_deref() };
            files.extend(of_object(DataKind::ConfigMap, &map.name, map.optional, modes, facts)?);
        }
        if let Some(secret) = &source.secret {
            let modes = Modes { default: of.default_mode, items: secret.items.as_deref() };
            files.extend(of_object(DataKind::Secret, &secret.name, secret.optional, modes, facts)?);
        }
        if let Some(source) = &source.service_account_token {
            files.push(token(source, of.default_mode, facts)?);
        }
        if let Some(api) = &source.downward_api {
            files.extend(downward(api.items.as_deref(), of.default_mode, facts)?);
        }
    }
    Ok(files)
}

/// Returns the file of a service account token. As in a kubelet, the mode is 0600 if the file belongs to a user or a
/// group other than root.
fn token(
    source: &k8s::ServiceAccountTokenProjection,
    default: Option<i32>,
    facts: Facts<'_>,
) -> Result<VolumeFile, String> {
    let key = TokenKey::of(facts.pod, source);
    let token = match facts.cluster {
        Some(cluster) => cluster.tokens.get(&key),
        None => Err("only an API server issues tokens".to_owned()),
    };
    let token = token.map_err(|why| format!("failed to fetch token: {why}"))?;
    let owner = service_token::owner(facts.pod);
    let private = owner.is_some() || fs_group(facts.pod).is_some();
    let mode = if private { 0o600 } else { Modes { default, items: None }.of(None) };
    Ok(VolumeFile { path: source.path.clone(), mode, owner, bytes: token.as_bytes().to_vec() })
}

fn downward(
    items: Option<&[k8s::DownwardAPIVolumeFile]>,
    default: Option<i32>,
    facts: Facts<'_>,
) -> Result<Vec<VolumeFile>, String> {
    let modes = Modes { default, items: None };
    let one = |item: &k8s::DownwardAPIVolumeFile| {
        let metadata = &facts.pod.object.metadata;
        let text = if let Some(field) = &item.field_ref {
            match field.field_path.as_str() {
                "metadata.labels" => lines(metadata.labels.as_ref()),
                "metadata.annotations" => lines(metadata.annotations.as_ref()),
                path => environment::field_value(path, facts).map_err(|missing| missing.to_string())?,
            }
        } else if let (Some(of), Some(first)) = (&item.resource_field_ref, facts.pod.all_containers().next()) {
            environment::resource_value(of, first, facts).map_err(|missing| missing.to_string())?
        } else {
            String::new()
        };
        Ok(VolumeFile { path: item.path.clone(), mode: modes.of(item.mode), owner: None, bytes: text.into_bytes() })
    };
    items.unwrap_or_default().iter().map(one).collect()
}

/// Formats the map as lines `key="value"` with escaped values, sorted by key, without a line break at the end.
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    map.into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", go_quote::quoted(value)))
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::data_object::DataObjects;
    use crate::api::document::context::Context;
    use crate::api::document::{self, Object};
    use crate::api::resources::Resources;
    use std::rc::Rc;

    const OBJECTS: &str = "
{apiVersion: v1, kind: ConfigMap, metadata: {name: page}, data: {index.html: hello, style.css: x}}
---
{apiVersion: v1, kind: Secret, metadata: {name: login}, stringData: {password: hunter2}}
";

    const NO_CLAIMS: FindClaim<'_> = &|_, _| Err(ClaimError::Soon);

    fn pod(volumes: &str) -> Pod {
        let text = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: web, labels: {{b: '2', a: x}}, \
             annotations: {{note: 'x\"y'}}}}, spec: {{\
             securityContext: {{fsGroup: 7, fsGroupChangePolicy: OnRootMismatch}}, volumes: {volumes}, \
             containers: [{{name: main, image: 'i:1', resources: {{limits: {{memory: 64Mi}}}}}}]}}}}"
        );
        let document = document::parse(text.as_bytes(), "/m/a.yaml").unwrap().remove(0);
        document.pod_with_unsupported("/m/a.yaml", Context::new("lab", "")).unwrap()
    }

    fn resolved(volumes: &str) -> Result<Vec<Volume>, String> {
        let context = Context::new("", "");
        let (all, problems) = document::read_objects(OBJECTS.as_bytes(), "/m/o.yaml", context);
        assert_eq!(problems, []);
        let data = |object| if let Object::Data(data) = object { Some(Rc::new(data)) } else { None };
        let objects = DataObjects::collect(all.into_iter().filter_map(data)).0;
        let (pod, allocatable) = (pod(volumes), Resources::from([(MEMORY, 1 << 30)]));
        let facts = Facts {
            pod: &pod,
            ips: &[],
            host_ips: &[],
            allocatable: &allocatable,
            objects: &objects,
            services: None,
            cluster: None,
        };
        resolve(facts, NO_CLAIMS).collect::<Result<_, _>>().map_err(|e| e.to_string())
    }

    /// Returns the files as `path mode content`.
    fn files(volume: &str) -> Result<Vec<String>, String> {
        let volumes = resolved(&format!("[{{name: v, {volume}}}]"))?;
        let VolumeKind::Files { files, .. } = &volumes[0].kind else { panic!("{volumes:?}") };
        let text = |f: &VolumeFile| format!("{} {:o} {}", f.path, f.mode, String::from_utf8_lossy(&f.bytes));
        Ok(files.iter().map(text).collect())
    }

    #[test]
    fn the_files_of_an_object_are_its_values_or_its_items() {
        assert_eq!(files("configMap: {name: page}").unwrap(), ["index.html 644 hello", "style.css 644 x"]);
        let items = "configMap: {name: page, defaultMode: 0400, items: [{key: index.html, path: a/i.html, mode: 0755}, \
                     {key: style.css, path: s}]}";
        assert_eq!(files(items).unwrap(), ["a/i.html 755 hello", "s 400 x"]);
        assert_eq!(files("secret: {secretName: login}").unwrap(), ["password 644 hunter2"]);
    }

    #[test]
    fn d6_a_missing_object_or_key_is_an_error_unless_it_is_optional() {
        let begin = "MountVolume.SetUp failed for volume \"v\" : ";
        for (volume, why) in [
            ("configMap: {name: nosuch}", "configmap \"nosuch\" not found"),
            ("secret: {secretName: nosuch}", "secret \"nosuch\" not found"),
            ("configMap: {name: page, items: [{key: k, path: p}]}", "configmap references non-existent config key: k"),
            ("secret: {secretName: login, items: [{key: k, path: p}]}", "references non-existent secret key: k"),
        ] {
            assert_eq!(files(volume), Err(format!("{begin}{why}")));
        }
        assert_eq!(files("configMap: {name: nosuch, optional: true}").unwrap(), [""; 0]);
        assert_eq!(files("configMap: {name: page, optional: true, items: [{key: k, path: p}]}").unwrap(), [""; 0]);
    }

    #[test]
    fn y22_a_volume_of_a_claim_is_its_directory() {
        let find = |_: &Pod, key: &ClaimKey| match &*key.0.name {
            "data" | "web-e" => Ok(ClaimDirectory { path: format!("/claims/{}", key.0) }),
            "soon" => Err(ClaimError::Soon),
            other => Err(ClaimError::NotUsable(format!("no {other}"))),
        };
        let volumes = |name: &str, more: &str| {
            let volumes = format!("[{{name: {name}, {more}}}]");
            without_contents(&pod(&volumes), &BTreeMap::new(), &find).map(|mut all| all.remove(0))
        };
        let own = volumes("v", "persistentVolumeClaim: {claimName: data, readOnly: true}").unwrap();
        assert_eq!(own.kind, VolumeKind::Claim { path: "/claims/default/data".into(), read_only: true });
        assert!(own.is_read_only() && own.plugin().is_none() && own.fs_group.is_some());
        let template = "{spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}";
        let ephemeral = volumes("e", &format!("ephemeral: {{volumeClaimTemplate: {template}}}")).unwrap();
        assert_eq!(ephemeral.outside_path(), Some("/claims/default/web-e"));
        assert!(!ephemeral.is_read_only());
        let missing = volumes("v", "persistentVolumeClaim: {claimName: x}").unwrap_err();
        assert_eq!(missing, "no x");
        let soon = volumes("v", "persistentVolumeClaim: {claimName: soon}").unwrap_err();
        assert_eq!(soon, "the directory of the claim is being created");
    }

    #[test]
    fn a_projected_volume_has_the_files_of_all_its_sources() {
        let volume = "projected: {sources: [{configMap: {name: page, items: [{key: index.html, path: i}]}}, \
                      {secret: {name: login}}, {downwardAPI: {items: [{path: name, \
                      fieldRef: {fieldPath: metadata.name}}]}}]}";
        assert_eq!(files(volume).unwrap(), ["i 644 hello", "password 644 hunter2", "name 644 web"]);
    }

    #[test]
    fn the_downward_api_has_fields_maps_and_resources() {
        let volume = "downwardAPI: {items: [{path: l, fieldRef: {fieldPath: metadata.labels}}, \
                      {path: b, fieldRef: {fieldPath: \"metadata.labels['b']\"}}, \
                      {path: m, mode: 0400, resourceFieldRef: {containerName: main, resource: limits.memory, \
                      divisor: 1Mi}}]}";
        assert_eq!(files(volume).unwrap(), ["l 644 a=\"x\"\nb=\"2\"", "b 644 2", "m 400 64"]);
        let annotations = "downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.annotations}}]}";
        assert!(files(annotations).unwrap()[0].contains("note=\"x\\\"y\""));
    }

    #[test]
    fn an_empty_dir_in_memory_has_the_least_of_all_limits() {
        let size = |volume: &str| match &resolved(&format!("[{{name: v, emptyDir: {volume}}}]")).unwrap()[0].kind {
            VolumeKind::EmptyDir(Medium::Memory { size }) => *size,
            other => panic!("{other:?}"),
        };
        assert_eq!(size("{medium: Memory}"), Some(64 << 20));
        assert_eq!(size("{medium: Memory, sizeLimit: 8Mi}"), Some(8 << 20));
        let sidecar = "{name: side, image: 'i:1', restartPolicy: Always, resources: {limits: {memory: 8Mi}}}";
        let volumes = format!("[{{name: v, emptyDir: {{medium: Memory}}}}], initContainers: [{sidecar}]");
        let kind = &resolved(&volumes).unwrap()[0].kind;
        assert_eq!(*kind, VolumeKind::EmptyDir(Medium::Memory { size: Some(72 << 20) }));
    }

    #[test]
    fn the_group_and_the_references_come_from_the_pod() {
        let volumes = "[{name: a, secret: {secretName: login}}, {name: b, \
                       projected: {sources: [{configMap: {name: page}}]}}, \
                       {name: c, emptyDir: {}}, {name: d, hostPath: {path: /x, type: File}}, \
                       {name: e, image: {reference: 'i:1'}}]";
        let pod = pod(volumes);
        let found: Vec<String> = references(&pod).map(|key| key.to_string()).collect();
        assert_eq!(found, ["Secret default/login", "ConfigMap default/page"]);
        let group = Some(FsGroup { gid: 7, only_on_root_mismatch: true });
        let images = BTreeMap::from([("e".into(), "sha256:1".into())]);
        let bare = without_contents(&pod, &images, NO_CLAIMS).unwrap();
        assert!(bare.iter().all(|v| v.fs_group == group) && bare.len() == 5);
        let host_path = VolumeKind::HostPath { path: "/x".into(), check: HostPathType::File };
        assert_eq!((&bare[2].kind, &bare[3].kind), (&VolumeKind::EmptyDir(Medium::Disk), &host_path));
        assert_eq!(bare[4].kind, VolumeKind::Image { reference: "i:1".into(), id: "sha256:1".into() });
    }
}
