//! Starts the same pods by direct CRI calls, to measure the time of the runtime itself.
//!
//! The calls are identical: the same pure functions build them from the same spec, and the same files are mounted. The only
//! difference is that nothing is watched, decided or recorded between the calls.

use crate::process::now;
use crate::support::cri::{Cri, PodSandboxConfig};
use crate::support::lab::Runtime;
use crate::support::yaml::{self, TRAP};
use std::rc::Rc;
use std::sync::Arc;
use wherry::adapters::cri::requests::{HostDns, RequestConfig, Swap, container_config, sandbox_config};
use wherry::adapters::pod_files::PodFiles;
use wherry::api::cgroups::{CgroupDriver, CgroupNames};
use wherry::api::document;
use wherry::api::document::context::Context;
use wherry::api::expand;
use wherry::api::facts::ImageFact;
use wherry::api::layout::Layout;
use wherry::api::mount::Mount;
use wherry::api::pod::Pod;
use wherry::engine::effect::{CreateContainer, FilesCall};
use wherry::engine::event::{Answer, Prepared};

pub struct Direct {
    pub sandbox: String,
    pub config: PodSandboxConfig,
    pub container: String,
    /// The time before the first call, in nanoseconds since the epoch.
    pub begun: i64,
    /// The start time of the container according to the runtime, in nanoseconds since the epoch.
    pub started: i64,
    pod: Rc<Pod>,
    node: RequestConfig,
    /// Of the container, in addition to the usual ones.
    volumes: Vec<Mount>,
}

fn node(runtime: &Runtime) -> RequestConfig {
    let path = |name: &str| runtime.dir.join("direct").join(name).to_string_lossy().into_owned();
    RequestConfig {
        layout: Layout { root: path("root"), logs: path("log"), log_links: None },
        cgroups: CgroupNames {
            root: format!("{}/direct", runtime.cgroup),
            driver: CgroupDriver::Cgroupfs,
            per_qos: true,
        },
        owner: "direct".into(),
        cluster_dns: Vec::new(),
        cluster_domain: String::new(),
        host_dns: HostDns::parse(&std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default()),
        seccomp_default: false,
        cpu_cfs_quota: true,
        cpu_cfs_period: 100_000,
        memory_capacity: 1 << 30,
        huge_page_sizes: wherry::adapters::host::machine::huge_page_sizes(),
        oom_group: false,
        swap: Swap::WithMemory,
        masked_paths: Vec::new(),
        selinux: false,
    }
}

fn files(node: &RequestConfig) -> PodFiles {
    std::fs::create_dir_all(&node.layout.root).expect("root");
    std::fs::create_dir_all(&node.layout.logs).expect("logs");
    PodFiles {
        layout: node.layout.clone(),
        cluster_domain: String::new(),
        host_hosts: "/etc/hosts".into(),
        remove_cgroup: Arc::new(|_, _| Ok(())),
    }
}

/// Creates and starts the sandbox and the container of a pod.
pub fn start(runtime: &Runtime, cri: &mut Cri, name: &str) -> Direct {
    start_with(runtime, cri, name, Vec::new())
}

/// The same, with directories that exist as volumes.
pub fn start_with(runtime: &Runtime, cri: &mut Cri, name: &str, volumes: Vec<Mount>) -> Direct {
    let node = node(runtime);
    let text = yaml::pod("direct", name, TRAP);
    let context = Context::new("node", "2026-01-01T00:00:00Z");
    let (mut pods, problems) = document::read(text.as_bytes(), &format!("/{name}.yaml"), context);
    assert!(problems.is_empty(), "{problems:?}");
    let pod = Rc::new(pods.remove(0));
    let files = files(&node);
    let begun = now();
    files.execute(&FilesCall::PreparePod { pod: pod.clone() }).expect("directories");
    let config = sandbox_config(&pod, 0, None, &node).expect("a config");
    let sandbox = cri.run_sandbox(&config);
    let mut direct = Direct { sandbox, config, container: String::new(), begun, started: 0, pod, node, volumes };
    direct.container = container(cri, &direct, 0);
    direct.started = started(cri, &direct.container);
    direct
}

/// Creates and starts another container in the sandbox of a pod.
pub fn container(cri: &mut Cri, direct: &Direct, attempt: u32) -> String {
    let (pod, name) = (direct.pod.clone(), "main".to_string());
    let prepare = FilesCall::PrepareContainer {
        pod: pod.clone(),
        container: name.clone(),
        ips: Vec::new(),
        names: "".into(),
        attempt,
        host_ips: false,
    };
    let Ok(Answer::Prepared(Prepared { mut mounts, .. })) = files(&direct.node).execute(&prepare) else {
        panic!("failed to prepare the files of the container");
    };
    mounts.extend(direct.volumes.iter().cloned());
    let process = expand::container(pod.at(0)).expect("the environment");
    let call = CreateContainer {
        pod,
        container: name,
        sandbox: direct.sandbox.as_str().into(),
        sandbox_attempt: 0,
        user_namespace: None,
        attempt,
        backoff_level: 0,
        boot: None,
        image: ImageFact { id: "localhost/trap:1".into(), uid: None, username: String::new(), size: 0 },
        ips: Vec::new(),
        process,
        mounts,
        devices: Default::default(),
        target: None,
    };
    let container = container_config(&call, &direct.node).expect("a config");
    let id = cri.create_container(&direct.sandbox, &container, &direct.config);
    cri.start_container(&id);
    id
}

/// The start time of a container, in nanoseconds since the epoch.
pub fn started(cri: &mut Cri, id: &str) -> i64 {
    cri.container_status(id).expect("ContainerStatus").status.started_at
}
