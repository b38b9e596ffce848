//! ConfigMaps and Secrets from manifests (D6).

use crate::support::agent::{Agent, container};
use std::fs;
use std::path::Path;

const PASSWORD: &str = "hunter2-is-secret";

fn secret(namespace: &str, name: &str, key: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Secret, metadata: {{namespace: {namespace}, name: {name}}}, stringData: {{{key}: {PASSWORD}}}}}\n"
    )
}

fn config_map(namespace: &str, name: &str, data: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{namespace: {namespace}, name: {name}}}, data: {{{data}}}}}\n"
    )
}

const SPEC: &str = "
    terminationGracePeriodSeconds: 1
    containers:
    - name: main
      image: localhost/busybox:1.35
      command: [sh, -c, 'echo $MODE $PREFIX_LEVEL ${#PASSWORD} $ALL; trap \"exit 0\" TERM; while :; do sleep 0.1; done']
      envFrom:
      - configMapRef: {name: settings}
      - {prefix: PREFIX_, configMapRef: {name: settings}}
      env:
      - {name: PASSWORD, valueFrom: {secretKeyRef: {name: login, key: password}}}
      - {name: ALL, value: 'in $(MODE)'}
    - name: other
      image: localhost/trap:1
";

/// All readable text that Wherry has written below a directory, except the files for root only.
fn world_readable(directory: &Path, found: &mut Vec<(std::path::PathBuf, String)>) {
    use std::os::unix::fs::PermissionsExt;
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.permissions().mode() & 0o007 == 0 {
            continue;
        }
        match metadata.is_dir() {
            true => world_readable(&entry.path(), found),
            false if metadata.is_file() => {
                found.push((entry.path(), String::from_utf8_lossy(&fs::read(entry.path()).unwrap_or_default()).into()));
            }
            false => {}
        }
    }
}

#[test]
fn d6_a_pod_gets_its_values_and_waits_for_those_that_are_missing() {
    let mut agent = Agent::start("objects");
    let namespace = agent.namespace.clone();
    agent.apply("web", SPEC);
    let missing = |a: &Agent, message: &str| {
        let status = a.wait_waiting("web", "CreateContainerConfigError");
        status["state"]["waiting"]["message"] == message
    };
    agent.wait("the ConfigMap is missing", |a| missing(a, "configmap \"settings\" not found"));
    agent.wait_for("the other container runs", |a| a.running("web", "other"));
    agent.write("settings.yaml", &config_map(&namespace, "settings", "MODE: fast, LEVEL: '7'"));
    agent.wait("the Secret is missing", |a| missing(a, "secret \"login\" not found"));
    // It waits through a kill -9 too.
    agent.kill();
    agent.run();
    agent.write("login.yaml", &secret(&namespace, "login", "password"));
    let pod = agent.wait_running("web");
    let line = format!("fast 7 {} in fast\n", PASSWORD.len());
    agent.wait("the output", |a| a.output(&pod, "main", 0) == line);

    // A changed object applies when the container starts again.
    agent.write("settings.yaml", &config_map(&namespace, "settings", "MODE: slow, LEVEL: '8'"));
    // A file that is written later is read later.
    agent.apply("later", crate::support::yaml::TRAP);
    agent.wait_running("later");
    let id = agent.running("web", "main").expect("it runs");
    agent.cri().exec(&id, &["kill", "1"]);
    agent.wait("it starts again", |a| {
        a.pod("web").is_some_and(|p| container(&p, "main")["restartCount"] == 1) && a.running("web", "main").is_some()
    });
    agent.wait("the new output", |a| a.output(&pod, "main", 1).starts_with("slow 8"));

    // The value is nowhere but in the environment, the manifest and files for root.
    for arguments in [&["describe", "web"][..], &["events"], &["debug", "dump"], &["pods", "-o", "json"], &["status"]] {
        let output = agent.wherry(arguments);
        assert!(output.status.success(), "{arguments:?}");
        assert!(!String::from_utf8_lossy(&output.stdout).contains(PASSWORD), "{arguments:?}");
    }
    assert!(!agent.log().contains(PASSWORD));
    let mut files = Vec::new();
    world_readable(&agent.root(), &mut files);
    world_readable(&agent.dir.join("log"), &mut files);
    for (path, text) in files {
        assert!(!text.contains(PASSWORD), "{}", path.display());
    }
}

#[test]
fn d6_the_errors_of_objects_name_file_field_and_remedy() {
    let agent = Agent::start("badobjects");
    let namespace = agent.namespace.clone();
    agent.write("a.yaml", &secret(&namespace, "login", "password"));
    agent.write("b.yaml", &secret(&namespace, "login", "password"));
    agent.write("c.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: bad}\ndata: {password: not-base64!}\n");
    let frozen = |data: &str| config_map(&namespace, "frozen", data).replace(" data:", " immutable: true, data:");
    agent.write("d.yaml", &frozen("KEY: first"));
    let shown = |a: &Agent, file: &str, text: &str| {
        let status = String::from_utf8_lossy(&a.wherry(&["status"]).stdout).into_owned();
        status.lines().any(|l| l.contains(&format!("/{file}")) && l.contains(text))
    };
    agent.wait("a duplicate", |a| shown(a, "b.yaml", "metadata.name: Duplicate value: \"login\": "));
    agent.wait("bad base64", |a| {
        shown(a, "c.yaml", ":4: data[password]: Invalid value: must be a map from keys to base64")
    });
    agent.apply(
        "web",
        "
        containers:
        - name: main
          image: localhost/busybox:1.35
          command: [sh, -c, 'echo $KEY; exec sleep 1000000']
          envFrom: [{configMapRef: {name: frozen}}]
        ",
    );
    let pod = agent.wait_running("web");
    agent.write("d.yaml", &frozen("KEY: second"));
    agent.wait("an immutable object", |a| shown(a, "d.yaml", "data: Forbidden: field is immutable"));
    agent.wait("the output", |a| !a.output(&pod, "main", 0).is_empty());
    assert_eq!(agent.output(&pod, "main", 0), "first\n");
    // `wherry check` finds the errors that concern the files alone.
    let checked = agent.command_of("check").output().expect("wherry check");
    let text = String::from_utf8_lossy(&checked.stdout).into_owned() + &String::from_utf8_lossy(&checked.stderr);
    assert!(
        text.contains("b.yaml: metadata.name: Duplicate value") && text.contains("c.yaml:4: data[password]"),
        "{text}"
    );
    assert!(!text.contains(PASSWORD) && !agent.log().contains(PASSWORD));
}

const WITH_SECRET: &str = "
    terminationGracePeriodSeconds: 1
    containers:
    - name: main
      image: localhost/trap:1
      env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: login, key: password}}}]
";

#[test]
fn d6_a_secret_in_a_file_that_every_user_can_read_is_a_warning_or_an_error() {
    use std::os::unix::fs::PermissionsExt;
    let mut agent = Agent::prepare("open", &crate::support::lab::Runtime::shared());
    let namespace = agent.namespace.clone();
    let chmod = |a: &Agent, mode| {
        let file = a.dir.join("manifests/login.yaml");
        fs::set_permissions(file, fs::Permissions::from_mode(mode)).expect("chmod");
    };
    agent.write("login.yaml", &secret(&namespace, "login", "password"));
    agent.apply("web", WITH_SECRET);
    let warning = "contains a Secret, and every user of this machine can read the file";
    let checked = |a: &Agent| {
        let checked = a.command_of("check").output().expect("wherry check");
        (checked.status.code(), String::from_utf8_lossy(&checked.stdout).into_owned())
    };
    agent.run();
    agent.wait("a warning", |a| a.log().contains(warning));
    agent.wait_running("web");
    let (code, text) = checked(&agent);
    assert!(code == Some(0) && text.starts_with("warning: ") && text.contains(warning), "{text}");

    // As an error, the last good version stays in force.
    agent.configure("---\napiVersion: wherry.io/v1alpha1\nkind: WherryConfiguration\nopenSecrets: Refuse\n");
    agent.kill();
    agent.run();
    let refused = |a: &Agent| {
        let status = String::from_utf8_lossy(&a.wherry(&["status"]).stdout).into_owned();
        status.lines().any(|l| l.contains("/login.yaml") && l.contains(warning))
    };
    agent.write("login.yaml", &secret(&namespace, "login", "password").replace(PASSWORD, "another-secret"));
    agent.wait("an error", refused);
    assert!(agent.running("web", "main").is_some());
    assert_eq!(checked(&agent).0, Some(1));
    chmod(&agent, 0o600);
    agent.wait("no error", |a| !refused(a));
    assert_eq!(checked(&agent).0, Some(0));
    assert!(!agent.log().contains(PASSWORD) && !agent.log().contains("another-secret"));
}

#[test]
fn d6_a_secret_gets_its_values_from_the_credentials_of_the_service() {
    let mut agent = Agent::prepare("credentials", &crate::support::lab::Runtime::shared());
    let credentials = agent.dir.join("credentials");
    fs::create_dir_all(&credentials).expect("a directory");
    fs::write(credentials.join("db"), PASSWORD).expect("a credential");
    agent.environment.push(("CREDENTIALS_DIRECTORY".into(), credentials.to_string_lossy().into_owned()));
    let secret = |list: &str| {
        let annotations = format!("annotations: {{wherry.io/credentials: '{list}'}}");
        let (namespace, name) = (&agent.namespace, "name: login");
        format!("{{apiVersion: v1, kind: Secret, metadata: {{namespace: {namespace}, {name}, {annotations}}}}}\n")
    };
    let (missing, good) = (secret("password=dbb"), secret("password=db"));
    agent.write("login.yaml", &missing);
    agent.apply(
        "web",
        "
        terminationGracePeriodSeconds: 1
        containers:
        - name: main
          image: localhost/busybox:1.35
          command: [sh, -c, 'echo ${#PASSWORD} ${#FILE}; trap \"exit 0\" TERM; while :; do sleep 0.1; done']
          env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: login, key: password}}}]
          volumeMounts: [{name: login, mountPath: /login}]
        volumes: [{name: login, secret: {secretName: login}}]
        ",
    );
    agent.run();
    let status = |a: &Agent| String::from_utf8_lossy(&a.wherry(&["status"]).stdout).into_owned();
    agent.wait("the missing credential is an error", |a| {
        status(a).contains("Not found: \"dbb\": the service has no credential of this name; add LoadCredential=dbb:")
    });
    agent.write("login.yaml", &good);
    let pod = agent.wait_running("web");
    agent.wait("it has the value", |a| a.output(&pod, "main", 0).starts_with(&format!("{} ", PASSWORD.len())));
    let content = |a: &Agent| a.cri().exec(&a.running("web", "main").expect("runs"), &["cat", "/login/password"]).1;
    assert_eq!(content(&agent).trim(), PASSWORD);
    // Nothing that Wherry keeps on the disk contains the value.
    agent.kill();
    let records = std::process::Command::new("grep").args(["-rl", PASSWORD]).arg(agent.root()).output().expect("grep");
    let found = String::from_utf8_lossy(&records.stdout).into_owned();
    let on_disk = found.lines().filter(|path| !path.contains("/volumes/")).count();
    assert_eq!(on_disk, 0, "{found}");
    assert!(!agent.log().contains(PASSWORD));
    // A new value, which systemd gives the service at its next start.
    fs::write(credentials.join("db"), "changed").expect("a credential");
    agent.run();
    agent.wait("the volume has the new value", |a| content(a).trim() == "changed");
    assert!(agent.running("web", "main").is_some());
    // `wherry check` does not know the credentials, and checks the rest.
    let checked = agent.command_of("check").output().expect("wherry check");
    assert_eq!(checked.status.code(), Some(0), "{}", String::from_utf8_lossy(&checked.stdout));
}
