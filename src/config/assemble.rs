//! Combines the texts of all files and the flags into one configuration, and checks it.

use super::files::Text;
use super::flags::Flags;
use super::names::{check_node_name, check_socket, unix_endpoint};
use super::problem::{Place, Problems};
use super::settings::Config;
use super::table::Reader;
use super::yaml::{self, Node, Value};
use super::{eviction, kubelet, node_server, node_size, shutdown, wherry};
use crate::api::duration;
use crate::engine::image_gc_policy::ImageGcPolicy;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Checks the text of one configuration file on top of the defaults.
pub fn check_text(path: &Path, text: &[u8]) -> Problems {
    let mut problems = Problems::default();
    // Text that `is_configuration` has accepted is valid UTF-8.
    let texts = [Text { path: path.to_owned(), text: String::from_utf8_lossy(text).into_owned() }];
    let flags = Flags { config: Some(path.to_owned()), config_dir: Some(PathBuf::new()), ..Flags::default() };
    assemble(&texts, &flags, &host_name(), &mut problems);
    problems
}

pub(super) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns the configuration, and where each setting was made. Files that the configuration names are not read.
pub(super) fn assemble(
    texts: &[Text],
    flags: &Flags,
    host: &str,
    problems: &mut Problems,
) -> (Config, BTreeMap<String, Place>) {
    let mut config = Config { flags: flags.clone(), ..Config::default() };
    let mut places = BTreeMap::new();
    let mut reader = Reader { config: &mut config, problems: &mut *problems, places: &mut places };
    for file in texts {
        let place = Place::file(&file.path);
        match yaml::read(&file.text) {
            Ok(documents) => read_documents(&mut reader, &documents, &place),
            Err(e) => reader.problems.error(&place.line(e.line), "", e.message),
        }
    }
    apply_flags(&mut config, flags, problems, &mut places);
    if config.node_name.is_empty() {
        config.node_name = host.trim().to_lowercase();
        if let Err(why) = check_node_name(&config.node_name) {
            let why = format!("the machine's host name is invalid: {why}; set nodeName or --hostname");
            problems.error(&Place::flag(), "nodeName", why);
        }
    }
    check_together(&config, &places, problems);
    node_server::check(&config.node_server, &places, problems);
    check_port_of_node_server(&config, &places, problems);
    eviction::check(&config.eviction, &places, problems);
    node_size::decide(&mut config.node, &places, problems);
    config.shutdown = shutdown::decide(&config.shutdown_configured, &places, problems);
    (config, places)
}

fn read_documents(reader: &mut Reader, documents: &[Node], place: &Place) {
    if documents.is_empty() {
        reader.problems.warning(place, "", "the file contains no document");
    }
    let mut seen: Vec<&str> = Vec::new();
    for document in documents {
        let here = place.line(document.line);
        let Value::Map(entries) = &document.value else {
            let found = document.value.describe();
            reader.problems.error(&here, "", format!("expected a document with apiVersion and kind, found {found}"));
            continue;
        };
        let text = |key: &str| document.value.get(key).and_then(|n| n.value.text()).unwrap_or_default();
        let (fields, version) = match text("kind") {
            kubelet::KIND => (kubelet::FIELDS, kubelet::API_VERSION),
            wherry::KIND => (wherry::FIELDS, wherry::API_VERSION),
            other => {
                let message = format!("is {other:?}; it must be {} or {}", kubelet::KIND, wherry::KIND);
                let line = entries.iter().find(|e| e.key == "kind").map_or(document.line, |e| e.line);
                reader.problems.error(&place.line(line), "kind", message);
                continue;
            }
        };
        if text("apiVersion") != version {
            let message = format!("is {:?}; for a {} it must be {version}", text("apiVersion"), text("kind"));
            let line = entries.iter().find(|e| e.key == "apiVersion").map_or(document.line, |e| e.line);
            reader.problems.error(&place.line(line), "apiVersion", message);
        }
        if seen.contains(&text("kind")) {
            reader.problems.error(&here, "kind", format!("more than one {} in one file", text("kind")));
        }
        seen.push(text("kind"));
        reader.object(fields, entries, place, "", &["apiVersion", "kind"]);
    }
}

fn apply_flags(config: &mut Config, flags: &Flags, problems: &mut Problems, places: &mut BTreeMap<String, Place>) {
    let flag = Place::flag();
    let mut path = |name: &str, value: &Option<PathBuf>, target: &mut PathBuf| {
        let Some(value) = value else { return };
        // A path on the command line may be relative to the current directory.
        match std::path::absolute(value) {
            Ok(absolute) => *target = absolute,
            Err(e) => problems.error(&flag, name, format!("{}: {e}", value.display())),
        }
    };
    path("--manifests", &flags.manifests, &mut config.manifests);
    path("--root-dir", &flags.root_dir, &mut config.root_dir);
    path("--log-dir", &flags.log_dir, &mut config.pod_logs_dir);
    path("--container-log-dir", &flags.container_log_dir, &mut config.container_logs_dir);
    path("--socket", &flags.socket, &mut config.socket);
    if let Err(why) = check_socket(&config.socket.to_string_lossy()) {
        problems.error(&flag, "--socket", why);
    }
    if let Some(endpoint) = &flags.runtime_endpoint {
        match unix_endpoint(endpoint) {
            Ok(socket) => config.runtime_socket = socket,
            Err(why) => problems.error(&flag, "--runtime-endpoint", why),
        }
    }
    if let Some(name) = &flags.hostname {
        match check_node_name(name) {
            Ok(()) => config.node_name = name.clone(),
            Err(why) => problems.error(&flag, "--hostname", why),
        }
    }
    if let Some(port) = flags.healthz_port {
        config.healthz_port = port;
        places.insert("healthzPort".into(), flag.clone());
    }
    if let Some(address) = flags.healthz_address {
        config.healthz_address = address;
    }
    if let Some(port) = flags.read_only_port {
        config.read_only_port = port;
        places.insert("readOnlyPort".into(), flag.clone());
    }
    if let Some(verbosity) = flags.verbosity {
        config.verbosity = verbosity;
    }
}

/// Checks that involve several fields.
fn check_together(config: &Config, places: &BTreeMap<String, Place>, problems: &mut Problems) {
    let place = |field: &str| places.get(field).cloned().unwrap_or_else(Place::flag);
    if config.serialize_image_pulls == Some(true) && config.max_parallel_image_pulls.is_some_and(|n| n > 1) {
        let message = "cannot be more than 1 while serializeImagePulls is true";
        problems.error(&place("maxParallelImagePulls"), "maxParallelImagePulls", message);
    }
    let ImageGcPolicy { high_percent, low_percent, min_age, max_age, .. } = config.image_gc;
    if low_percent >= high_percent {
        let (low, high) = ("imageGCLowThresholdPercent", "imageGCHighThresholdPercent");
        // Report the field that was set, because the low threshold may have its default value.
        let (field, message) = match places.contains_key(low) {
            true => (low, format!("must be less than {high} ({high_percent}); it is {low_percent}")),
            false => (high, format!("must be more than {low} ({low_percent}); it is {high_percent}")),
        };
        problems.error(&place(field), field, message);
    }
    if max_age.is_some_and(|max_age| max_age <= min_age) {
        let min = duration::format(min_age);
        let message = format!("must be more than imageMinimumGCAge ({min}), or 0s to turn it off");
        problems.error(&place("imageMaximumGCAge"), "imageMaximumGCAge", message);
    }
    if config.read_only_port != 0 && config.read_only_port == config.healthz_port {
        problems.error(&place("readOnlyPort"), "readOnlyPort", "must not be the same as healthzPort");
    }
    let others = [("healthzPort", config.healthz_port), ("readOnlyPort", config.read_only_port)];
    for (other, _) in others.iter().filter(|(_, port)| config.kubectl_port != 0 && *port == config.kubectl_port) {
        problems.error(&place("kubectlPort"), "kubectlPort", format!("must not be the same as {other}"));
    }
    if config.image_socket.as_ref().is_some_and(|socket| *socket != config.runtime_socket) {
        let message =
            "differs from containerRuntimeEndpoint and has no effect: images come from containerRuntimeEndpoint";
        problems.warning(&place("imageServiceEndpoint"), "imageServiceEndpoint", message);
    }
}

fn check_port_of_node_server(config: &Config, places: &BTreeMap<String, Place>, problems: &mut Problems) {
    if config.node_server().is_none() {
        return;
    }
    let place = places.get("port").cloned().unwrap_or_else(Place::flag);
    let others = [
        ("healthzPort", config.healthz_port),
        ("readOnlyPort", config.read_only_port),
        ("kubectlPort", config.kubectl_port),
    ];
    for (other, _) in others.iter().filter(|(_, port)| *port == config.node_server.port) {
        problems.error(&place, "port", format!("must not be the same as {other}"));
    }
}
