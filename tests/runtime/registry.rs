//! Credentials for image pulls, with a real registry that has a user and TLS; and registries that are broken.

use crate::support::agent::{Agent, container};
use crate::support::docker_registry::{DockerRegistry, PASSWORD, USER};
use crate::support::registry::{Registry, Trouble};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const WRONG: &str = "wrong-battery-8";

fn spec(image: &str, secrets: &[&str]) -> String {
    let names: Vec<String> = secrets.iter().map(|name| format!("{{name: {name}}}")).collect();
    let names = names.join(", ");
    format!(
        "
        imagePullSecrets: [{names}]
        containers:
        - name: main
          image: {image}
          imagePullPolicy: Always
        "
    )
}

/// The text of a docker configuration with these passwords of the user, by host.
fn docker_config(passwords: &[(&str, &str)]) -> String {
    let entries = passwords.iter().map(|(host, password)| {
        let entry = serde_json::json!({"username": USER, "password": password});
        ((*host).to_owned(), entry)
    });
    serde_json::json!({"auths": entries.collect::<serde_json::Map<_, _>>()}).to_string()
}

fn apply_secret(agent: &Agent, name: &str, config: &str) {
    let quoted = serde_json::to_string(config).expect("a string");
    let text = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: {}}}\ntype: kubernetes.io/dockerconfigjson\n\
         stringData:\n  .dockerconfigjson: {quoted}\n",
        agent.namespace
    );
    agent.write(&format!("secret-{name}.yaml"), &text);
}

/// The waiting message once the pull has failed.
fn failure(agent: &Agent, pod: &str) -> String {
    let status = agent.wait_waiting(pod, "ImagePullBackOff");
    status["state"]["waiting"]["message"].as_str().unwrap_or_default().to_owned()
}

fn events(agent: &Agent, reason: &str) -> Vec<String> {
    let output = agent.wherry(&["events", "-o", "json"]);
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).expect("events are JSON");
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let of_reason = items.iter().filter(|event| event["reason"] == reason);
    of_reason.map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect()
}

fn write_script(path: &Path, text: &str) {
    // (A rename: a child of another test may still have the file open for writing.)
    let aside = path.with_extension("aside");
    fs::write(&aside, text).expect("write");
    fs::set_permissions(&aside, fs::Permissions::from_mode(0o755)).expect("chmod");
    fs::rename(aside, path).expect("rename");
}

/// The files below a directory that contain a text. Manifests are the only place for it.
fn files_with(dir: &Path, text: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files_with(&path, text, found),
            Ok(kind) if kind.is_file() => {
                let bytes = fs::read(&path).unwrap_or_default();
                if bytes.windows(text.len()).any(|part| part == text.as_bytes()) {
                    let mode = fs::metadata(&path).map_or(0, |m| m.permissions().mode() & 0o777);
                    found.push(format!("{} {mode:o}", path.display()));
                }
            }
            _ => {}
        }
    }
}

/// The passwords are in no output of the agent, and in no file that others can read.
fn assert_hidden(agent: &Agent) {
    for password in [PASSWORD, WRONG] {
        assert!(!agent.log().contains(password), "the log shows a password");
        for path in ["/debug/dump", "/pods?verbose=1", "/metrics", "/events"] {
            let body = agent.get(path).map(|response| response.body).unwrap_or_default();
            assert!(!body.contains(password), "{path} shows a password");
        }
        let mut found = Vec::new();
        files_with(&agent.root(), password, &mut found);
        // The last good version of a manifest is stored (D2); only root can read it.
        assert!(found.iter().all(|file| file.contains("/root/manifests/") && file.ends_with(" 600")), "{found:?}");
    }
}

#[test]
fn w12_a_wrong_secret_is_a_back_off_and_the_right_one_ends_it_at_once() {
    let registry = DockerRegistry::start("secret");
    let image = registry.push("secret", "localhost/trap:1");
    let mut agent = Agent::prepare("pullsecret", &crate::support::lab::Runtime::shared());
    agent.set("RUST_BACKTRACE", "0");
    agent.configure("logging: {verbosity: 6}\n");
    agent.run();
    agent.apply("web", &spec(&image, &["regcred"]));
    let message = failure(&agent, "web");
    assert!(message.starts_with(&format!("Back-off pulling image \"{image}\": ErrImagePull: failed to ")), "{message}");
    let missing = "Unable to retrieve some image pull secrets (regcred); attempting to pull the image may not succeed.";
    assert_eq!(events(&agent, "FailedToRetrieveImagePullSecret")[0], missing);
    apply_secret(&agent, "regcred", &docker_config(&[(&registry.host(), WRONG)]));
    agent.wait("the wrong password was tried", |a| a.metric("kubelet_started_containers_errors_total") >= 2.0);
    let message = failure(&agent, "web");
    assert!(message.contains("401 Unauthorized"), "{message}");
    assert_hidden(&agent);
    apply_secret(&agent, "regcred", &docker_config(&[(&registry.host(), PASSWORD)]));
    agent.wait_running("web");
    let pulled = events(&agent, "Pulled").pop().unwrap_or_default();
    assert!(
        pulled.starts_with(&format!("Successfully pulled image \"{image}\" in ")) && pulled.ends_with(" bytes."),
        "{pulled}"
    );
    assert_hidden(&agent);
}

#[test]
fn w12_two_credentials_match_and_the_second_one_works() {
    let registry = DockerRegistry::start("two");
    let image = registry.push("team/two", "localhost/trap:1");
    let agent = Agent::start("twosecrets");
    let wrong = docker_config(&[(&format!("{}/team", registry.host()), WRONG), ("*.example.com", WRONG)]);
    apply_secret(&agent, "first", &wrong);
    apply_secret(&agent, "second", &docker_config(&[(&registry.host(), PASSWORD)]));
    agent.apply("web", &spec(&image, &["first", "second"]));
    agent.wait_running("web");
    assert_eq!(agent.containers("web").len(), 1);
    assert!(events(&agent, "Failed").is_empty(), "{:?}", events(&agent, "Failed"));
    assert_eq!(events(&agent, "Pulling").len(), 1);
    assert_hidden(&agent);
}

#[test]
fn w12_the_nodes_docker_configuration_counts_for_all_pods_without_a_restart() {
    let registry = DockerRegistry::start("node");
    let image = registry.push("node", "localhost/trap:1");
    let agent = Agent::start("nodeconfig");
    agent.apply("web", &spec(&image, &[]));
    failure(&agent, "web");
    let file = agent.root().join("config.json");
    fs::write(&file, docker_config(&[(&registry.host(), PASSWORD)])).expect("config.json");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("chmod");
    agent.wait_running("web");
    let warning = format!("every user can read the credentials in {}", file.display());
    assert!(agent.log().contains(&warning), "{}", agent.log());
    // A broken file is reported, and its content is not shown.
    fs::write(&file, format!("{{\"auths\": {{\"r.io\": {{\"auth\": \"{WRONG}\"}}}}}}")).expect("config.json");
    agent.apply("late", &spec(&image, &[]));
    failure(&agent, "late");
    assert!(agent.log().contains("has no effect: auths[r.io].auth: must be the base64 form"), "{}", agent.log());
    assert!(!agent.log().contains(WRONG) && !agent.log().contains(PASSWORD));
}

#[test]
fn w12_a_credential_provider_is_asked_once_and_a_broken_one_does_not_matter() {
    let registry = DockerRegistry::start("provider");
    let image = registry.push("provider", "localhost/trap:1");
    let mut agent = Agent::prepare("provider", &crate::support::lab::Runtime::shared());
    let bin = agent.dir.join("bin");
    fs::create_dir_all(&bin).expect("bin");
    let answer = serde_json::json!({
        "kind": "CredentialProviderResponse",
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "cacheKeyType": "Registry",
        "cacheDuration": "1h",
        "auth": {registry.host(): {"username": USER, "password": "@PASSWORD@"}},
    });
    let asked = agent.dir.join("asked");
    let script = format!(
        "#!/bin/sh\ncat >>{0}\necho >>{0}\necho '{answer}' | sed \"s/@PASSWORD@/$PASSWORD-$1/\"\n",
        asked.display()
    );
    write_script(&bin.join("cloud"), &script);
    write_script(&bin.join("broken"), &format!("#!/bin/sh\necho {WRONG}\necho 'no metadata service' >&2\nexit 4\n"));
    let (start, end) = PASSWORD.rsplit_once('-').expect("two parts");
    let config = agent.dir.join("providers.yaml");
    let provider = |name: &str, more: &str| {
        format!(
            "- name: {name}\n  apiVersion: credentialprovider.kubelet.k8s.io/v1\n  matchImages: ['127.0.0.*:{}']\n  \
             defaultCacheDuration: 0s\n{more}",
            registry.host().rsplit(':').next().expect("a port")
        )
    };
    let cloud = provider("cloud", &format!("  args: ['{end}']\n  env: [{{name: PASSWORD, value: {start}}}]\n"));
    let head = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n";
    fs::write(&config, format!("{head}{}{cloud}", provider("broken", ""))).expect("providers.yaml");
    agent.configure(&format!(
        "---\napiVersion: wherry.io/v1alpha1\nkind: WherryConfiguration\nimageCredentialProviderConfig: {}\n\
         imageCredentialProviderBinDir: {}\n",
        config.display(),
        bin.display()
    ));
    agent.run();
    agent.apply("web", &spec(&image, &[]));
    agent.wait_running("web");
    agent.apply("second", &spec(&image, &[]));
    agent.wait_running("second");
    let requests = fs::read_to_string(&asked).expect("the provider ran");
    let request: serde_json::Value = serde_json::from_str(requests.trim()).expect("one request");
    let repository = image.strip_suffix(":1").expect("a tag");
    assert_eq!((&request["kind"], &request["image"]), (&"CredentialProviderRequest".into(), &repository.into()));
    let why = "the credential provider broken failed; pulls continue without it error=\"exit status: 4: no metadata service\"";
    assert!(agent.log().contains(why), "{}", agent.log());
    assert_hidden(&agent);
}

#[test]
fn w12_a_pull_survives_a_kill_of_the_agent() {
    let registry = Registry::start();
    registry.publish("slow", "localhost/trap:1");
    registry.trouble(Some(Trouble::Hang));
    let mut agent = Agent::start("pullkill");
    let image = registry.image("slow");
    agent.apply("web", &spec(&image, &[]));
    agent.wait("the pull runs", |a| events(a, "Pulling").len() == 1);
    // Pulls are serial by default: the second pod waits. Pods without a pull do not.
    agent.apply("next", &spec(&image, &[]));
    agent.apply("other", crate::support::yaml::TRAP);
    agent.wait_running("other");
    let table = |a: &Agent| String::from_utf8_lossy(&a.wherry(&["pods"]).stdout).into_owned();
    agent.wait("the table shows both", |a| table(a).contains("Pulling (") && table(a).contains("PullQueued (0 ahead)"));
    let described = String::from_utf8_lossy(&agent.wherry(&["describe", "web"]).stdout).into_owned();
    assert!(described.contains(&format!("pulling {image} for ")), "{described}");
    let described = String::from_utf8_lossy(&agent.wherry(&["describe", "next"]).stdout).into_owned();
    assert!(described.contains("its turn to pull an image: "), "{described}");
    agent.kill();
    registry.trouble(None);
    agent.run();
    agent.wait_running("web");
    agent.wait_running("next");
}

#[test]
fn w12_a_registry_that_hangs_holds_up_no_removal() {
    let registry = Registry::start();
    registry.trouble(Some(Trouble::Hang));
    let agent = Agent::start("pullhang");
    agent.apply("web", &spec(&registry.image("hung"), &[]));
    agent.wait("the pull runs", |a| events(a, "Pulling").len() == 1);
    agent.delete("web");
    agent.wait_gone("web");
}

#[test]
fn w12_errors_of_registries_have_kubernetes_reasons_and_back_off() {
    let registry = Registry::start();
    let agent = Agent::start("pullerrors");
    for (name, trouble, expected) in [
        ("busy", Trouble::Status("429 Too Many Requests"), "429 Too Many Requests"),
        ("ill", Trouble::Status("500 Internal Server Error"), "500 Internal Server Error"),
        ("broken", Trouble::BrokenLayer, "sha256:0123456789abcdef"),
    ] {
        registry.trouble(Some(trouble));
        let image = registry.image(name);
        agent.apply(name, &spec(&image, &[]));
        let status = agent.wait_for("the failure", |a| {
            Some(container(&a.pod(name)?, "main")["state"]["waiting"].clone())
                .filter(|w| w["reason"] == "ErrImagePull" || w["reason"] == "ImagePullBackOff")
        });
        let message = status["message"].as_str().unwrap_or_default();
        assert!(message.contains(expected) && !message.contains("code = Unknown"), "{name}: {message}");
        assert!(failure(&agent, name).starts_with(&format!("Back-off pulling image \"{image}\": ErrImagePull: ")));
        let failed = events(&agent, "Failed");
        for text in ["Error: ErrImagePull", "Error: ImagePullBackOff"] {
            assert!(failed.iter().any(|message| message == text), "{failed:?}");
        }
        registry.trouble(None);
        registry.publish(name, "localhost/trap:1");
        agent.wait_running(name);
    }
}
