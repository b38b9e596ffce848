//! Optional features of the runtime: its handlers (RuntimeClass), recursive read-only mounts, the policy of supplemental groups.
//! containerd reports its features from 2.0 on.

use crate::support::agent::{Agent, container};
use crate::support::cri::RuntimeHandler;
use crate::support::lab::signal;

fn runtime_class(handler: &str) -> String {
    format!(
        "{{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {{name: isolated}}, handler: {handler}, \
         overhead: {{podFixed: {{cpu: 150m}}}}}}\n"
    )
}

const CLASSED: &str = "
    runtimeClassName: isolated
    terminationGracePeriodSeconds: 1
    containers: [{name: main, image: localhost/trap:1}]
";

/// The runtime handler of the pod's sandbox.
fn handler(agent: &Agent) -> String {
    let sandboxes = agent.sandboxes("web");
    assert_eq!(sandboxes.len(), 1);
    agent.cri().sandbox_status(&sandboxes[0].id).expect("PodSandboxStatus").status.runtime_handler.clone()
}

#[test]
fn a5_a_pod_runs_with_the_handler_of_its_runtime_class() {
    let mut agent = Agent::start("runtime-class");
    agent.apply("web", CLASSED);
    let reported =
        |a: &Agent| a.get("/status").expect("/status").body.contains("no RuntimeClass with name isolated was found");
    agent.wait("the missing class is reported", reported);
    assert!(agent.pod("web").is_none());
    // The runtime does not know this handler.
    agent.write("class.yaml", &runtime_class("missing"));
    agent.wait("the error is reported", |a| {
        let log = a.log();
        log.lines().any(|line| {
            line.split_once("Failed to create pod sandbox: ").is_some_and(|(_, why)| why.contains("missing"))
        })
    });
    // The next attempt uses the new handler, also after a restart.
    agent.kill();
    agent.write("class.yaml", &runtime_class("other"));
    agent.run();
    let pod = agent.wait_running("web");
    assert_eq!((handler(&agent).as_str(), &pod["spec"]["overhead"]["cpu"]), ("other", &"150m".into()));
    // Without its class the pod runs on.
    let id = agent.running("web", "main");
    agent.delete("class");
    agent.wait("the removal is reported", reported);
    assert_eq!(agent.running("web", "main"), id);
}

#[test]
fn a_mount_is_recursively_read_only_where_the_runtime_can_do_it() {
    let agent = Agent::start("recursive");
    let spec = |mode: &str| {
        format!(
            "
            terminationGracePeriodSeconds: 1
            containers:
            - name: main
              image: localhost/trap:1
              volumeMounts: [{{name: scratch, mountPath: /scratch, readOnly: true, recursiveReadOnly: {mode}}}]
            volumes: [{{name: scratch, emptyDir: {{}}}}]
            "
        )
    };
    let possible = features(&agent).0;
    agent.apply("maybe", &spec("IfPossible"));
    agent.apply("surely", &spec("Enabled"));
    let shown =
        |pod: &serde_json::Value| pod["status"]["containerStatuses"][0]["volumeMounts"][0]["recursiveReadOnly"].clone();
    assert_eq!(shown(&agent.wait_running("maybe")), if possible { "Enabled" } else { "Disabled" });
    if possible {
        assert_eq!(shown(&agent.wait_running("surely")), "Enabled");
    } else {
        let status = agent.wait_waiting("surely", "CreateContainerConfigError");
        let message = status["state"]["waiting"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("recursive"), "{message}");
    }
}

#[test]
fn strict_supplemental_groups_need_a_runtime_that_has_them() {
    let agent = Agent::start("strict-groups");
    agent.apply(
        "web",
        "
        terminationGracePeriodSeconds: 1
        securityContext: {supplementalGroupsPolicy: Strict, supplementalGroups: [4000]}
        containers: [{name: main, image: localhost/trap:1}]
        ",
    );
    if features(&agent).1 {
        agent.wait_running("web");
    } else {
        let text = "SupplementalGroupsPolicy=Strict is not supported in this node";
        agent.wait("the reason is reported", |a| a.log().contains(text));
        assert!(agent.running("web", "main").is_none());
    }
}

#[test]
fn the_status_shows_the_user_of_a_container_where_the_runtime_reports_it() {
    let agent = Agent::start("status-user");
    agent.apply(
        "web",
        "
        terminationGracePeriodSeconds: 1
        securityContext: {runAsUser: 1000, runAsGroup: 2000, supplementalGroups: [3000]}
        containers: [{name: main, image: localhost/trap:1}]
        ",
    );
    let pod = agent.wait_running("web");
    let user = &container(&pod, "main")["user"];
    if features(&agent).1 {
        // The image gives its user the group 1500.
        let groups = [1500, 2000, 3000];
        let expected = serde_json::json!({ "linux": { "uid": 1000, "gid": 2000, "supplementalGroups": groups } });
        assert_eq!(*user, expected);
    } else {
        assert!(user.is_null(), "{user}");
    }
}

#[test]
fn w28_a_pod_without_host_users_has_ids_of_its_own() {
    let mut agent = Agent::start("userns");
    let spec = |name: &str| {
        format!(
            "
            hostUsers: false
            terminationGracePeriodSeconds: 1
            securityContext: {{fsGroup: 3000}}
            containers:
            - name: main
              image: localhost/busybox:1.35
              securityContext: {{procMount: Unmasked}}
              command: [sh, -c, 'echo {name} >> /scratch/file; echo $(cat /login/user) $(id -u) $(cat /scratch/file) $(cat /proc/self/uid_map); exec sleep 1000']
              volumeMounts: [{{name: scratch, mountPath: /scratch}}, {{name: login, mountPath: /login}}]
            volumes:
            - {{name: scratch, emptyDir: {{}}}}
            - {{name: login, secret: {{secretName: login, defaultMode: 0400}}}}
            "
        )
    };
    let secret =
        "{apiVersion: v1, kind: Secret, metadata: {name: login, namespace: NAMESPACE}, stringData: {user: anna}}\n";
    agent.write("login.yaml", &secret.replace("NAMESPACE", &agent.namespace));
    agent.apply("one", &spec("one"));
    if !default_handler(&agent).is_some_and(|handler| handler.features.user_namespaces) {
        agent.wait("the reason is reported", |a| a.log().contains("hostUsers=false is not supported in this node"));
        assert!(agent.running("one", "main").is_none());
        return;
    }
    // In the pod the user is root, and on the host one of a range that no other pod has. The volumes are accessible.
    let first_id = |agent: &Agent, pod: &serde_json::Value, name: &str, attempt: u32| -> u32 {
        let log = agent.log_path(pod, "main", attempt);
        let line = agent.wait_for("the ids", |_| {
            let text = std::fs::read_to_string(&log).ok()?;
            text.lines().find_map(|line| Some(line.split_once(" F ")?.1.to_owned()))
        });
        let written = vec![name; attempt as usize + 1].join(" ");
        let map = line.strip_prefix(&format!("anna 0 {written} 0 ")).and_then(|rest| rest.strip_suffix(" 65536"));
        map.and_then(|first| first.parse().ok()).unwrap_or_else(|| panic!("{line}"))
    };
    let one = first_id(&agent, &agent.wait_running("one"), "one", 0);
    assert!(one >= 65_536 && one.is_multiple_of(65_536));
    agent.kill();
    agent.run();
    agent.apply("two", &spec("two"));
    assert_ne!(first_id(&agent, &agent.wait_running("two"), "two", 0), one);
    // A container that starts again has the ids of its sandbox, and its old files.
    let id = agent.running("one", "main").expect("it runs");
    signal(&agent.cri().container_pid(&id).to_string(), "KILL");
    let pod = agent.wait_for("it runs again", |a| {
        a.pod("one").filter(|pod| {
            let status = container(pod, "main");
            status["restartCount"] == 1 && status["state"]["running"].is_object()
        })
    });
    assert_eq!(first_id(&agent, &pod, "one", 1), one);
}

/// The runtime has recursive read-only mounts, and strict supplemental groups.
fn features(agent: &Agent) -> (bool, bool) {
    let status = agent.cri().status().expect("Status");
    let default = default_handler(agent);
    let recursive = default.is_some_and(|handler| handler.features.recursive_read_only_mounts);
    (recursive, status.features.supplemental_groups_policy)
}

fn default_handler(agent: &Agent) -> Option<RuntimeHandler> {
    let status = agent.cri().status().expect("Status");
    status.runtime_handlers.into_iter().find(|handler| handler.name.is_empty())
}

#[test]
fn a3_security_modules_of_the_kernel() {
    let agent = Agent::start("modules");
    agent.apply(
        "web",
        "
        terminationGracePeriodSeconds: 1
        securityContext: {seLinuxOptions: {level: 's0:c1,c2'}}
        containers:
        - {name: main, image: localhost/trap:1, securityContext: {appArmorProfile: {type: Unconfined}}}
        ",
    );
    agent.wait_running("web");
    let id = &agent.containers("web")[0].id;
    let info = agent.cri().container_status(id).expect("ContainerStatus").info["info"].clone();
    let info: serde_json::Value = serde_json::from_str(&info).expect("JSON");
    let context = &info["config"]["linux"]["security_context"];
    // containerd uses these options only where SELinux is on.
    assert_eq!(context["selinux_options"]["level"], "s0:c1,c2");
    assert_eq!(context["apparmor"]["profile_type"], 1);

    agent.apply(
        "confined",
        "
        terminationGracePeriodSeconds: 1
        securityContext: {appArmorProfile: {type: RuntimeDefault}}
        containers: [{name: main, image: localhost/trap:1}]
        ",
    );
    let enabled =
        std::fs::read_to_string("/sys/module/apparmor/parameters/enabled").is_ok_and(|text| text.trim() == "Y");
    if !enabled {
        let refused = |a: &Agent| a.pod("confined").is_some_and(|pod| pod["status"]["reason"] == "AppArmor");
        agent.wait("the pod is rejected", refused);
        let message = agent.pod("confined").expect("listed")["status"]["message"].clone();
        assert!(message.as_str().is_some_and(|m| m.contains("AppArmor is not enabled on the host")), "{message}");
    }
}
