//! Converts answers of the runtime to plain facts (`api::facts`). Pure functions, one for each message.
//!
//! Sandboxes and containers without the labels of a Kubernetes pod are skipped (None). Runtimes report an unset time as
//! 0 or as the zero time of their language, which is negative; both become `Wall(0)`.

use crate::adapters::cri::proto::{self, NamespaceMode};
use crate::api::cgroups::CgroupDriver;
use crate::api::facts::{
    ContainerFact, ContainerState, ContainerUser, ExecOutput, ImageFact, ImageFsFact, ImageUser, ListedContainer,
    ListedImage, ListedSandbox, MemoryFact, RuntimeFact, SandboxFact, UsageFact,
};
use crate::api::names::{ContainerId, FullName, SandboxId, Uid, annotation, label};
use crate::api::ordered::CollectOrdered;
use crate::api::runtime_features::{CdiDevices, HandlerFeatures, ImageVolumes, RuntimeFeatures, StopSignals};
use crate::api::stop_signal;
use crate::api::time::Wall;
use crate::api::user_namespace::IdRange;
use protobuf::EnumOrUnknown;
use std::collections::BTreeMap;

type Map = BTreeMap<String, String>;

pub fn runtime(version: &proto::VersionResponse, status: &proto::StatusResponse) -> RuntimeFact {
    RuntimeFact {
        name: version.runtime_name.clone(),
        version: version.runtime_version.clone(),
        runtime_not_ready: not_ready(status, "RuntimeReady"),
        network_not_ready: not_ready(status, "NetworkReady"),
        features: features(version, status),
    }
}

fn features(version: &proto::VersionResponse, status: &proto::StatusResponse) -> RuntimeFeatures {
    let handler = |handler: &proto::RuntimeHandler| {
        let features = HandlerFeatures {
            recursive_read_only_mounts: handler.features.recursive_read_only_mounts,
            user_namespaces: handler.features.user_namespaces,
        };
        (handler.name.clone(), features)
    };
    RuntimeFeatures {
        supplemental_groups_policy: status.features.supplemental_groups_policy,
        image_volumes: ImageVolumes::of(&version.runtime_name, &version.runtime_version),
        cdi_devices: CdiDevices::of(&version.runtime_name, &version.runtime_version),
        stop_signals: StopSignals::of(&version.runtime_name, &version.runtime_version),
        handlers: status.runtime_handlers.iter().map(handler).collect_map(),
    }
}

/// Returns None if the runtime does not report its driver, or reports an unknown one.
pub fn cgroup_driver(config: &proto::RuntimeConfigResponse) -> Option<CgroupDriver> {
    match config.linux.as_ref()?.cgroup_driver.enum_value() {
        Ok(proto::CgroupDriver::SYSTEMD) => Some(CgroupDriver::Systemd),
        Ok(proto::CgroupDriver::CGROUPFS) => Some(CgroupDriver::Cgroupfs),
        Err(_) => None,
    }
}

/// Formats a condition that is false as a kubelet does: `NetworkReady=false reason:R message:M`. A missing condition
/// counts as false.
fn not_ready(status: &proto::StatusResponse, kind: &str) -> Option<String> {
    match status.status.conditions.iter().find(|c| c.type_ == kind) {
        Some(c) if c.status => None,
        Some(c) => Some(format!("{kind}=false reason:{} message:{}", c.reason, c.message)),
        None => Some(format!("{kind}=false reason:Unknown message:the runtime does not report it")),
    }
}

/// Returns the full name and the UID of the pod, or None without the labels of a pod.
fn pod(labels: &Map) -> Option<(FullName, Uid)> {
    let name = FullName::new(labels.get(label::POD_NAMESPACE)?, labels.get(label::POD_NAME)?);
    Some((name, Uid::from(labels.get(label::POD_UID)?.as_str())))
}

fn seconds(annotations: &Map, key: &str) -> Option<u64> {
    annotations.get(key)?.parse().ok()
}

fn wall(nanos: i64) -> Wall {
    Wall(nanos.max(0))
}

fn container_state(state: EnumOrUnknown<proto::ContainerState>) -> ContainerState {
    match state.enum_value() {
        Ok(proto::ContainerState::CONTAINER_CREATED) => ContainerState::Created,
        Ok(proto::ContainerState::CONTAINER_RUNNING) => ContainerState::Running,
        Ok(proto::ContainerState::CONTAINER_EXITED) => ContainerState::Exited,
        Ok(proto::ContainerState::CONTAINER_UNKNOWN) | Err(_) => ContainerState::Unknown,
    }
}

fn is_ready(state: EnumOrUnknown<proto::PodSandboxState>) -> bool {
    state.enum_value() == Ok(proto::PodSandboxState::SANDBOX_READY)
}

/// Describes an invalid sandbox for the log. Returns None if the sandbox is valid.
pub fn odd_sandbox(s: &proto::PodSandbox) -> Option<String> {
    odd("sandbox", &s.id, s.state.enum_value().err())
}

/// Describes an invalid container for the log. Returns None if the container is valid.
pub fn odd_container(c: &proto::Container) -> Option<String> {
    odd("container", &c.id, c.state.enum_value().err())
}

fn odd(what: &str, id: &str, unknown_state: Option<i32>) -> Option<String> {
    match unknown_state {
        _ if id.is_empty() => Some(format!("a {what} without an id")),
        Some(state) => Some(format!("{what} {id} has the unknown state {state}")),
        None => None,
    }
}

/// Returns None for a sandbox that belongs to no pod, and for a sandbox without an id, which no call could address.
pub fn listed_sandbox(s: &proto::PodSandbox) -> Option<ListedSandbox> {
    let (name, uid) = pod(&s.labels).filter(|_| !s.id.is_empty())?;
    Some(ListedSandbox {
        id: SandboxId::from(s.id.as_str()),
        uid,
        name,
        attempt: s.metadata.attempt,
        ready: is_ready(s.state),
        owner: s.annotations.get(annotation::OWNER).cloned(),
        grace_seconds: seconds(&s.annotations, annotation::SANDBOX_GRACE),
        user_namespace: user_namespace(&s.annotations),
        created_at: wall(s.created_at),
    })
}

/// Like `listed_sandbox`, for a container.
pub fn listed_container(c: &proto::Container) -> Option<ListedContainer> {
    let (pod_name, uid) = pod(&c.labels).filter(|_| !c.id.is_empty())?;
    Some(ListedContainer {
        id: ContainerId::from(c.id.as_str()),
        sandbox: SandboxId::from(c.pod_sandbox_id.as_str()),
        uid,
        pod_name,
        name: c.labels.get(label::CONTAINER_NAME)?.clone(),
        attempt: c.metadata.attempt,
        state: container_state(c.state),
        owner: c.annotations.get(annotation::OWNER).cloned(),
        grace_seconds: seconds(&c.annotations, annotation::GRACE_PERIOD),
        created_at: wall(c.created_at),
    })
}

pub fn executed(answer: proto::ExecSyncResponse) -> ExecOutput {
    let proto::ExecSyncResponse { stdout, stderr, exit_code, .. } = answer;
    ExecOutput { exit_code, stdout, stderr }
}

/// Returns None for stats without a container id.
pub fn usage(mut stats: proto::ContainerStats) -> Option<UsageFact> {
    let id = stats.attributes.take()?.id;
    let cpu = stats.cpu.take().unwrap_or_default();
    let memory = stats.memory.take().unwrap_or_default();
    let swap = stats.swap.take().unwrap_or_default();
    let layer = stats.writable_layer.take().unwrap_or_default();
    let value = |v: protobuf::MessageField<proto::UInt64Value>| v.into_option().map(|v| v.value);
    (!id.is_empty()).then(|| UsageFact {
        id: ContainerId::from(id),
        cpu_at: cpu.timestamp,
        cpu_nanos: value(cpu.usage_core_nano_seconds),
        cpu_nano_cores: value(cpu.usage_nano_cores),
        memory_at: memory.timestamp,
        memory_bytes: value(memory.working_set_bytes),
        memory: MemoryFact {
            available_bytes: value(memory.available_bytes),
            usage_bytes: value(memory.usage_bytes),
            rss_bytes: value(memory.rss_bytes),
            page_faults: value(memory.page_faults),
            major_page_faults: value(memory.major_page_faults),
        },
        swap_bytes: value(swap.swap_usage_bytes),
        disk_bytes: value(layer.used_bytes),
        disk_inodes: value(layer.inodes_used),
    })
}

fn user_namespace(annotations: &BTreeMap<String, String>) -> Option<IdRange> {
    annotations.get(annotation::USER_NAMESPACE).and_then(|text| IdRange::from_text(text))
}

/// Returns None if the answer has no status, or if the sandbox does not belong to a pod.
pub fn sandbox(answer: &proto::PodSandboxStatusResponse) -> Option<SandboxFact> {
    let s = answer.status.as_ref()?;
    pod(&s.labels)?;
    let ready = is_ready(s.state);
    let host_network = s.linux.namespaces.options.network == NamespaceMode::NODE.into();
    let ips = if ready && !host_network {
        let others = s.network.additional_ips.iter().map(|i| i.ip.clone());
        std::iter::once(s.network.ip.clone()).chain(others).filter(|ip| !ip.is_empty()).collect()
    } else {
        Vec::new()
    };
    Some(SandboxFact {
        id: SandboxId::from(s.id.as_str()),
        attempt: s.metadata.attempt,
        ready,
        created_at: wall(s.created_at),
        ips,
        host_network,
        owner: s.annotations.get(annotation::OWNER).cloned(),
        user_namespace: user_namespace(&s.annotations),
        pid: info(&answer.info).map(|i| i.pid).filter(|pid| *pid != 0 && ready),
    })
}

/// Returns None if the answer has no status, or if the container does not belong to a pod. `sandbox` is the sandbox id
/// from the list; if it is None, the verbose info may contain it.
pub fn container(answer: &proto::ContainerStatusResponse, sandbox: Option<&str>) -> Option<ContainerFact> {
    let c = answer.status.as_ref()?;
    pod(&c.labels)?;
    let a = &c.annotations;
    let state = container_state(c.state);
    let termination_path = a.get(annotation::TERMINATION_PATH);
    let restarts = a.get(annotation::RESTART_COUNT).and_then(|n| n.parse().ok());
    let info = info(&answer.info).unwrap_or_default();
    let pid = Some(info.pid).filter(|pid| *pid != 0 && state == ContainerState::Running);
    Some(ContainerFact {
        id: ContainerId::from(c.id.as_str()),
        sandbox: SandboxId::from(sandbox.unwrap_or(&info.sandbox)),
        name: c.labels.get(label::CONTAINER_NAME)?.clone(),
        attempt: restarts.unwrap_or(c.metadata.attempt),
        state,
        created_at: wall(c.created_at),
        started_at: wall(c.started_at),
        finished_at: wall(c.finished_at),
        exit_code: c.exit_code,
        reason: c.reason.clone(),
        message: c.message.clone(),
        image: c.image.image.clone(),
        image_ref: c.image_ref.clone(),
        spec_hash: a.get(annotation::CONTAINER_HASH).and_then(|hash| u32::from_str_radix(hash, 16).ok()),
        backoff_level: a.get(annotation::BACKOFF_LEVEL).and_then(|n| n.parse().ok()).unwrap_or(0),
        boot: a.get(annotation::BOOT).and_then(|boot| u32::from_str_radix(boot, 16).ok()),
        grace_seconds: seconds(a, annotation::GRACE_PERIOD),
        pre_stop: a.get(annotation::PRE_STOP).cloned(),
        stop_signal: stop_signal::name(c.stop_signal),
        user: c.user.as_ref().and_then(user),
        termination_file: termination_path
            .and_then(|path| c.mounts.iter().find(|m| m.container_path == *path))
            .map(|m| m.host_path.clone()),
        fallback_to_logs: a.get(annotation::TERMINATION_POLICY).is_some_and(|p| p == "FallbackToLogsOnError"),
        log_path: c.log_path.clone(),
        owner: a.get(annotation::OWNER).cloned(),
        pid,
    })
}

fn user(user: &proto::ContainerUser) -> Option<Box<ContainerUser>> {
    let ids = user.linux.as_ref()?;
    let supplemental_groups = ids.supplemental_groups.clone();
    Some(Box::new(ContainerUser { uid: ids.uid, gid: ids.gid, supplemental_groups }))
}

/// The two values that Wherry uses from the verbose `info`, which is about 20 kB of JSON.
#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Info {
    /// The PID of the init process.
    pid: u32,
    #[serde(rename = "sandboxID")]
    sandbox: String,
}

fn info(info: &Map) -> Option<Info> {
    serde_json::from_str(info.get("info")?).ok()
}

/// Returns None if the runtime does not have the image.
pub fn image(answer: &proto::ImageStatusResponse) -> Option<ImageFact> {
    let i = answer.image.as_ref()?;
    let uid = i.uid.as_ref().map(|u| u.value);
    Some(ImageFact { id: i.id.clone(), uid, username: i.username.clone(), size: i.size })
}

pub fn listed_image(i: proto::Image) -> ListedImage {
    ListedImage { id: i.id, tags: i.repo_tags, digests: i.repo_digests, size: i.size, pinned: i.pinned }
}

/// Converts any container, even one that does not belong to a pod.
pub fn image_user(c: proto::Container) -> ImageUser {
    let image = c.image.into_option().map(|i| i.image).unwrap_or_default();
    ImageUser { image, image_ref: c.image_ref, pod: pod(&c.labels).map(|(name, _)| name) }
}

/// Returns the sandbox image from the verbose status, where containerd reports it. CRI-O pins the image instead.
pub fn sandbox_image(answer: &proto::StatusResponse) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Config {
        #[serde(rename = "sandboxImage")]
        image: String,
    }
    let config: Config = serde_json::from_str(answer.info.get("config")?).ok()?;
    Some(config.image).filter(|image| !image.is_empty())
}

pub fn image_file_systems(answer: proto::ImageFsInfoResponse) -> Vec<ImageFsFact> {
    let fact = |f: proto::FilesystemUsage| ImageFsFact {
        mountpoint: f.fs_id.into_option().map(|id| id.mountpoint).unwrap_or_default(),
        used_bytes: f.used_bytes.into_option().map_or(0, |v| v.value),
    };
    answer.image_filesystems.into_iter().map(fact).filter(|f| !f.mountpoint.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use protobuf::MessageField;

    fn labels(container: bool) -> Map {
        let mut l: Map = [(label::POD_NAME, "p"), (label::POD_NAMESPACE, "ns"), (label::POD_UID, "u")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into();
        if container {
            l.insert(label::CONTAINER_NAME.into(), "main".into());
        }
        l
    }

    #[test]
    fn objects_without_pod_labels_are_omitted() {
        assert_eq!(listed_sandbox(&proto::PodSandbox::default()), None);
        assert_eq!(listed_container(&proto::Container { labels: labels(false), ..Default::default() }), None);
        let nameless = proto::PodSandbox { labels: labels(false), ..Default::default() };
        assert_eq!(listed_sandbox(&nameless), None);
        let s = proto::PodSandbox { id: "s1".into(), labels: labels(false), created_at: -6, ..Default::default() };
        let s = listed_sandbox(&s).unwrap();
        assert_eq!((s.name.to_string(), s.ready, s.created_at, s.owner), ("ns/p".to_owned(), true, Wall(0), None));
    }

    #[test]
    fn a_containers_status_becomes_a_fact() {
        let mut status = proto::ContainerStatus {
            id: "c1".into(),
            labels: labels(true),
            state: proto::ContainerState::CONTAINER_RUNNING.into(),
            // The zero time of Go in nanoseconds, as a signed 64-bit number.
            finished_at: -6_795_364_578_871_345_152,
            started_at: 5,
            mounts: vec![
                proto::Mount { container_path: "/etc/hosts".into(), host_path: "/h".into(), ..Default::default() },
                proto::Mount { container_path: "/t".into(), host_path: "/x/t".into(), ..Default::default() },
            ],
            ..Default::default()
        };
        for (k, v) in [
            (annotation::RESTART_COUNT, "3"),
            (annotation::TERMINATION_PATH, "/t"),
            (annotation::TERMINATION_POLICY, "FallbackToLogsOnError"),
            (annotation::BACKOFF_LEVEL, "2"),
            (annotation::BOOT, "ff"),
            (annotation::GRACE_PERIOD, "7"),
        ] {
            status.annotations.insert(k.into(), v.into());
        }
        let info = r#"{"sandboxID":"s","pid":4711,"config":{"a":[1,{"pid":1}]},"runtimeSpec":{}}"#;
        let mut answer = proto::ContainerStatusResponse {
            status: MessageField::some(status),
            info: [("info".to_owned(), info.to_owned())].into(),
            ..Default::default()
        };
        let f = container(&answer, Some("s1")).unwrap();
        assert_eq!((f.attempt, f.backoff_level, f.grace_seconds, f.pid), (3, 2, Some(7), Some(4711)));
        assert_eq!(f.boot, Some(255));
        assert_eq!((f.sandbox.as_str(), container(&answer, None).unwrap().sandbox.as_str()), ("s1", "s"));
        assert_eq!((f.started_at, f.finished_at), (Wall(5), Wall(0)));
        assert_eq!((f.termination_file.as_deref(), f.fallback_to_logs), (Some("/x/t"), true));

        answer.info.insert("info".into(), "no json".into());
        assert_eq!(container(&answer, Some("s1")).unwrap().pid, None);
        answer.status.as_mut().unwrap().state = proto::ContainerState::CONTAINER_EXITED.into();
        answer.info.insert("info".into(), info.into());
        assert_eq!(container(&answer, Some("s1")).unwrap().pid, None);
    }

    #[test]
    fn addresses_are_those_of_a_ready_sandbox_with_a_network_of_its_own() {
        let network = proto::PodSandboxNetworkStatus {
            ip: "10.0.0.2".into(),
            additional_ips: vec![proto::PodIP { ip: "fd00::2".into(), ..Default::default() }],
            ..Default::default()
        };
        let status = proto::PodSandboxStatus {
            labels: labels(false),
            network: MessageField::some(network),
            ..Default::default()
        };
        let mut answer = proto::PodSandboxStatusResponse { status: MessageField::some(status), ..Default::default() };
        assert_eq!(sandbox(&answer).unwrap().ips, ["10.0.0.2", "fd00::2"]);
        answer.status.as_mut().unwrap().state = proto::PodSandboxState::SANDBOX_NOTREADY.into();
        assert!(sandbox(&answer).unwrap().ips.is_empty());
    }

    #[test]
    fn a_false_or_missing_condition_is_reported() {
        let condition = |type_: &str, status| proto::RuntimeCondition {
            type_: type_.into(),
            status,
            reason: "R".into(),
            message: "m".into(),
            ..Default::default()
        };
        let mut status = proto::StatusResponse::default();
        status.status.mut_or_insert_default().conditions = vec![condition("NetworkReady", false)];
        let f = runtime(&proto::VersionResponse::default(), &status);
        assert_eq!(f.network_not_ready.as_deref(), Some("NetworkReady=false reason:R message:m"));
        assert!(f.runtime_not_ready.is_some());
        status.status.mut_or_insert_default().conditions =
            vec![condition("NetworkReady", true), condition("RuntimeReady", true)];
        let f = runtime(&proto::VersionResponse::default(), &status);
        assert_eq!((f.network_not_ready, f.runtime_not_ready), (None, None));
    }
}
