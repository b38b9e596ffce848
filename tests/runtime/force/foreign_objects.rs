//! W21: pods of other owners in the same runtime always stay unchanged. The owners are another root of Wherry, a client
//! that sets no labels or annotations, a kubelet, and a client with an unknown owner id.

use crate::support::agent::Agent;
use crate::support::cri::{ContainerConfig, ContainerState, PodSandboxConfig};
use crate::support::lab::Runtime;
use crate::support::yaml::TRAP;
use std::collections::BTreeMap;

pub struct ForeignObjects {
    /// Another Wherry, killed. Its pods have the same namespace and the name of a pod of ours.
    _kin: Agent,
    sandboxes: Vec<String>,
    /// Containers with their init processes.
    containers: BTreeMap<String, u32>,
}

const SAME_NAME: &str = "control-0";

impl ForeignObjects {
    pub fn start(agent: &Agent) -> ForeignObjects {
        let mut kin = Agent::prepare("kin", &Runtime::shared());
        kin.namespace.clone_from(&agent.namespace);
        kin.run();
        kin.apply(SAME_NAME, TRAP);
        kin.wait_running(SAME_NAME);
        kin.kill();
        let owner = kin.owner();
        let mut cri = agent.cri();
        let of_kin = cri.containers(&agent.namespace).into_iter();
        let mut ids: Vec<String> =
            of_kin.filter(|c| c.annotations.get("io.wherry.owner") == Some(&owner)).map(|c| c.id).collect();
        assert_eq!(ids.len(), 1);
        let mut sandboxes = Vec::new();
        for (name, labels, annotations) in [
            ("bare", vec![], vec![]),
            ("kubelet", identity(agent, "control-1"), vec![("kubernetes.io/config.source", "file")]),
            ("claimed", identity(agent, "pod-0"), vec![("io.wherry.owner", "0123456789abcdef0123456789abcdef")]),
        ] {
            let mut sandbox = PodSandboxConfig::new();
            let metadata = sandbox.metadata.mut_or_insert_default();
            metadata.name = name.into();
            metadata.namespace = format!("{}-foreign", agent.namespace);
            metadata.uid = format!("{name}-uid");
            sandbox.log_directory = agent.dir.join("foreign").join(name).to_string_lossy().into_owned();
            sandbox.linux.mut_or_insert_default().cgroup_parent = format!("{}/foreign/{name}", agent.cgroup);
            sandbox.labels = labels.iter().map(|(k, v)| (k.to_string(), v.clone())).collect();
            sandbox.annotations = annotations.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
            let id = cri.run_sandbox(&sandbox);
            let mut config = ContainerConfig::new();
            config.metadata.mut_or_insert_default().name = "main".into();
            config.image.mut_or_insert_default().image = "localhost/trap:1".into();
            config.log_path = "main.log".into();
            config.labels.clone_from(&sandbox.labels);
            config.annotations.clone_from(&sandbox.annotations);
            let container = cri.create_container(&id, &config, &sandbox);
            cri.start_container(&container);
            sandboxes.push(id);
            ids.push(container);
        }
        let containers = ids.into_iter().map(|id| (id.clone(), cri.container_pid(&id))).collect();
        ForeignObjects { _kin: kin, sandboxes, containers }
    }

    pub fn assert_untouched(&self, agent: &Agent) {
        let mut cri = agent.cri();
        for (id, pid) in &self.containers {
            let status = cri.container_status(id).expect("the container exists").status.unwrap();
            assert_eq!(status.state.enum_value(), Ok(ContainerState::CONTAINER_RUNNING), "{status:?}");
            assert_eq!(cri.container_pid(id), *pid);
        }
        for id in &self.sandboxes {
            assert!(cri.sandbox_pid(id) > 1);
        }
    }

    /// Removes the objects created here. The other Wherry removes its own.
    fn end(&self) {
        let runtime = Runtime::shared();
        let mut cri = runtime.connect();
        for id in &self.sandboxes {
            cri.remove_sandbox(id);
        }
    }
}

impl Drop for ForeignObjects {
    fn drop(&mut self) {
        self.end();
    }
}

/// The labels by which a kubelet identifies a pod.
fn identity(agent: &Agent, pod: &str) -> Vec<(&'static str, String)> {
    vec![
        ("io.kubernetes.pod.name", pod.to_string()),
        ("io.kubernetes.pod.namespace", agent.namespace.clone()),
        ("io.kubernetes.pod.uid", format!("{pod}-of-a-kubelet")),
        ("io.kubernetes.container.name", "main".to_string()),
    ]
}
