//! The cost of volumes: how much later a pod starts with three of them, and how fast a changed ConfigMap is visible. The direct
//! calls mount three directories that exist: the additional time of the runtime alone.

use crate::direct;
use crate::latency::ms;
use crate::process::now;
use crate::support::agent::{Agent, uid};
use crate::support::lab::Runtime;
use crate::table::{Table, median};
use std::fs;
use std::time::{Duration, Instant};
use wherry::api::mount::{Access, Mount, MountSource, Propagation};

const ROUNDS: usize = 15;
/// The start of a pod varies by 10 ms and more, so a difference of a few needs many pairs.
const PAIRS: usize = 40;

const CONTAINER: &str = "
    terminationGracePeriodSeconds: 1
    containers:
    - name: main
      image: localhost/trap:1
";

const VOLUMES: &str = "      volumeMounts:
      - {name: scratch, mountPath: /scratch}
      - {name: page, mountPath: /page}
      - {name: login, mountPath: /login}
    volumes:
    - {name: scratch, emptyDir: {}}
    - {name: page, configMap: {name: page}}
    - {name: login, secret: {secretName: login}}
";

pub fn volumes(table: &mut Table) {
    let agent = Agent::start("volumes");
    let namespace = &agent.namespace;
    let page = |text: &str| {
        format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{namespace: {namespace}, name: page}}, data: {{page: '{text}'}}}}\n"
        )
    };
    agent.write("page.yaml", &page("first"));
    agent.write(
        "login.yaml",
        &format!("{{apiVersion: v1, kind: Secret, metadata: {{namespace: {namespace}, name: login}}, stringData: {{a: b}}}}\n"),
    );
    let with = format!("{CONTAINER}{VOLUMES}");
    let (mut plain, mut mounted) = (Vec::new(), Vec::new());
    let (mut direct_plain, mut direct_mounted) = (Vec::new(), Vec::new());
    for round in 0..PAIRS {
        direct_plain.push(directly(&format!("plain-{round}"), Vec::new()));
        direct_mounted.push(directly(&format!("mounted-{round}"), directories()));
        plain.push(start(&agent, &format!("plain-{round}"), CONTAINER));
        mounted.push(start(&agent, &format!("mounted-{round}"), &with));
    }
    let more = |plain: &[f64], mounted: &[f64]| median(mounted.iter().zip(plain).map(|(m, p)| m - p).collect());
    let (additional, direct) = (more(&plain, &mounted), more(&direct_plain, &direct_mounted));
    table.row("start of a pod, ms", median(plain), Some(median(direct_plain)), 1000.0, "");
    table.row("start of a pod with three volumes, additional ms", additional, Some(direct), 5.0, "");

    agent.apply("web", &with);
    let uid = uid(&agent.wait_running("web"));
    let file = agent.root().join(format!("pods/{uid}/volumes/kubernetes.io~configmap/page/page"));
    let mut taken = Vec::new();
    for round in 0..ROUNDS {
        let text = format!("version {round}");
        let begun = Instant::now();
        agent.write("page.yaml", &page(&text));
        while fs::read_to_string(&file).ok().as_deref() != Some(&text) {
            assert!(begun.elapsed() < Duration::from_secs(60), "the change did not arrive");
            std::thread::sleep(Duration::from_micros(200));
        }
        taken.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    table.row("a changed ConfigMap in a container, ms", median(taken), None, 1000.0, "800 to 74000");
}

fn directories() -> Vec<Mount> {
    let mount = |name: &str| {
        let path = Runtime::shared().dir.join("direct").join(name);
        fs::create_dir_all(&path).expect("a directory");
        Mount {
            container_path: format!("/{name}"),
            source: MountSource::Host(path.to_string_lossy().into_owned()),
            access: Access::ReadWrite,
            propagation: Propagation::default(),
            owned: false,
        }
    };
    ["scratch", "page", "login"].map(mount).to_vec()
}

/// The time of the direct calls.
fn directly(name: &str, volumes: Vec<Mount>) -> f64 {
    let runtime = Runtime::shared();
    let mut cri = runtime.connect();
    let pod = direct::start_with(&runtime, &mut cri, name, volumes);
    let taken = ms(pod.begun, pod.started);
    cri.remove_sandbox(&pod.sandbox);
    taken
}

/// The time from the manifest to the start of the container.
fn start(agent: &Agent, pod: &str, spec: &str) -> f64 {
    let begun = now();
    agent.apply(pod, spec);
    let id = agent.wait_for("the container runs", |a| a.running(pod, "main"));
    let status = agent.cri().container_status(&id).expect("a status");
    let taken = ms(begun, status.status.started_at);
    agent.delete(pod);
    agent.wait_gone(pod);
    taken
}
