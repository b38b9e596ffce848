//! `kind: CredentialProviderConfig` (kubelet.config.k8s.io): the credential providers for image pulls, in a separate
//! file.

use super::files::read_file;
use super::settings::Config;
use crate::api::credential_provider::{API_VERSIONS, Provider};
use crate::api::duration;
use crate::config::problem::{Place, Problems};
use crate::config::yaml::{self, Node, Value};
use std::path::Path;
use std::time::Duration;

pub const KIND: &str = "CredentialProviderConfig";
const VERSIONS: [&str; 3] =
    ["kubelet.config.k8s.io/v1", "kubelet.config.k8s.io/v1beta1", "kubelet.config.k8s.io/v1alpha1"];
const CONFIG: &str = "imageCredentialProviderConfig";
const BIN_DIR: &str = "imageCredentialProviderBinDir";

/// Reads the file of credential providers that the configuration names.
pub(super) fn read(config: &mut Config, place: impl Fn(&str) -> Place, problems: &mut Problems) {
    let (file, directory) = match (&config.image_credential_provider_config, &config.image_credential_provider_bin_dir)
    {
        (None, None) => return,
        (Some(file), Some(directory)) => (file.clone(), directory.clone()),
        (Some(_), None) => return problems.error(&place(CONFIG), CONFIG, format!("needs {BIN_DIR} too")),
        (None, Some(_)) => return problems.error(&place(BIN_DIR), BIN_DIR, format!("needs {CONFIG} too")),
    };
    let text = match read_file(&file) {
        Ok(text) => text,
        Err(e) => return problems.error(&place(CONFIG), CONFIG, format!("{}: cannot be read: {e}", file.display())),
    };
    let errors = problems.errors.len();
    let providers = parse(&text, &Place::file(&file), problems);
    if problems.errors.len() > errors {
        return;
    }
    for provider in &providers {
        check_program(&directory, provider, &place(BIN_DIR), problems);
    }
    config.credential_providers = providers;
}

/// Warns if the program of a provider is missing. This is not an error, because only images of this provider are
/// affected.
fn check_program(directory: &Path, provider: &Provider, place: &Place, problems: &mut Problems) {
    let path = directory.join(&provider.name);
    if !path.is_file() {
        let message = format!("{} is not a program; the provider {} will fail", path.display(), provider.name);
        problems.warning(place, BIN_DIR, message);
    }
}

/// Parses the file. No error message contains an argument or the value of an environment variable, because these may
/// be secrets.
fn parse(text: &str, place: &Place, problems: &mut Problems) -> Vec<Provider> {
    let documents = match yaml::read(text) {
        Ok(documents) => documents,
        Err(e) => {
            problems.error(&place.line(e.line), "", e.message);
            return Vec::new();
        }
    };
    let [document] = documents.as_slice() else {
        problems.error(place, "", format!("must contain one document of kind {KIND}"));
        return Vec::new();
    };
    let mut reader = ProviderReader { place, problems };
    let fields = reader.map(document, "", &["apiVersion", "kind", "providers"]);
    if reader.text(fields, "kind", "") != KIND {
        reader.error(document, "kind", format!("must be {KIND}"));
    }
    if !VERSIONS.contains(&reader.text(fields, "apiVersion", "").as_str()) {
        reader.error(document, "apiVersion", format!("must be {}", VERSIONS[0]));
    }
    let Some(list) = fields.get("providers") else {
        reader.error(document, "providers", "at least one provider is required");
        return Vec::new();
    };
    let Value::List(items) = &list.value else {
        reader.error(list, "providers", "must be a list");
        return Vec::new();
    };
    if items.is_empty() {
        reader.error(list, "providers", "at least one provider is required");
    }
    let mut providers: Vec<Provider> = Vec::new();
    for (i, item) in items.iter().enumerate() {
        let at = format!("providers[{i}]");
        let provider = reader.provider(item, &at);
        if providers.iter().any(|other| other.name == provider.name) {
            reader.error(item, &format!("{at}.name"), format!("{:?} is used twice", provider.name));
        }
        providers.push(provider);
    }
    providers
}

struct ProviderReader<'p> {
    place: &'p Place,
    problems: &'p mut Problems,
}

impl ProviderReader<'_> {
    fn error(&mut self, node: &Node, at: &str, message: impl Into<String>) {
        self.problems.error(&self.place.line(node.line), at, message);
    }

    /// Checks that the node is a map that contains only these keys.
    fn map<'n>(&mut self, node: &'n Node, at: &str, known: &[&str]) -> &'n Value {
        match &node.value {
            Value::Map(entries) => {
                for entry in entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
                    let field = if at.is_empty() { entry.key.clone() } else { format!("{at}.{}", entry.key) };
                    let message = match entry.key.as_str() {
                        "tokenAttributes" => "not supported: Wherry has no service accounts",
                        _ => "unknown field",
                    };
                    self.problems.error(&self.place.line(entry.line), field, message);
                }
            }
            _ => self.error(node, at, "must be a map"),
        }
        &node.value
    }

    /// Returns the text of a field, or an empty text if it is missing.
    fn text(&mut self, map: &Value, name: &str, at: &str) -> String {
        match map.get(name) {
            None => String::new(),
            Some(Node { value: Value::Null, .. }) => String::new(),
            Some(Node { value: Value::Text(text), .. }) => text.clone(),
            Some(node) => {
                self.error(node, &join(at, name), "must be a string");
                String::new()
            }
        }
    }

    /// Returns the items of a list of strings, or an empty list if it is missing.
    fn texts(&mut self, map: &Value, name: &str, at: &str) -> Vec<String> {
        let Some(node) = map.get(name).filter(|node| node.value != Value::Null) else { return Vec::new() };
        let Value::List(items) = &node.value else {
            self.error(node, &join(at, name), "must be a list of strings");
            return Vec::new();
        };
        let mut texts = Vec::new();
        for (i, item) in items.iter().enumerate() {
            match item.value.text() {
                Some(text) => texts.push(text.to_owned()),
                None => self.error(item, &format!("{}[{i}]", join(at, name)), "must be a string"),
            }
        }
        texts
    }

    fn provider(&mut self, node: &Node, at: &str) -> Provider {
        let known = ["name", "matchImages", "defaultCacheDuration", "apiVersion", "args", "env"];
        let map = self.map(node, at, &known);
        let name = self.text(map, "name", at);
        if name.is_empty() || matches!(name.as_str(), "." | "..") || name.contains(['/', ' ']) {
            let message = format!("{name:?} is not the name of a program; it may not contain '/' or spaces");
            self.error(node, &join(at, "name"), message);
        }
        let api_version = self.text(map, "apiVersion", at);
        if !API_VERSIONS.contains(&api_version.as_str()) {
            self.error(node, &join(at, "apiVersion"), format!("must be one of {}", API_VERSIONS.join(", ")));
        }
        let match_images = self.texts(map, "matchImages", at);
        if match_images.is_empty() {
            self.error(node, &join(at, "matchImages"), "at least one pattern is required");
        }
        for pattern in &match_images {
            if pattern.is_empty() || pattern.contains("://") || pattern.contains(char::is_whitespace) {
                let message = format!("{pattern:?} is not a pattern like \"*.registry.example.com/team\"");
                self.error(node, &join(at, "matchImages"), message);
            }
        }
        let (args, env) = (self.texts(map, "args", at), self.environment(map, at));
        Provider { name, api_version, match_images, default_cache: self.default_cache(node, map, at), args, env }
    }

    fn default_cache(&mut self, node: &Node, map: &Value, at: &str) -> Duration {
        let text = self.text(map, "defaultCacheDuration", at);
        if text.is_empty() {
            self.error(node, &join(at, "defaultCacheDuration"), "is required, for example \"12h\"");
            return Duration::ZERO;
        }
        duration::parse(&text).unwrap_or_else(|why| {
            self.error(node, &join(at, "defaultCacheDuration"), why);
            Duration::ZERO
        })
    }

    fn environment(&mut self, map: &Value, at: &str) -> Vec<(String, String)> {
        let Some(node) = map.get("env").filter(|node| node.value != Value::Null) else { return Vec::new() };
        let Value::List(items) = &node.value else {
            self.error(node, &join(at, "env"), "must be a list of entries with name and value");
            return Vec::new();
        };
        let mut variables = Vec::new();
        for (i, item) in items.iter().enumerate() {
            let at = format!("{}[{i}]", join(at, "env"));
            let map = self.map(item, &at, &["name", "value"]);
            let (name, value) = (self.text(map, "name", &at), self.text(map, "value", &at));
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                self.error(item, &join(&at, "name"), "must be the name of an environment variable");
            }
            variables.push((name, value));
        }
        variables
    }
}

fn join(at: &str, name: &str) -> String {
    if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: cloud
  matchImages: ['*.example.com']
  defaultCacheDuration: 12h
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  args: [get-credentials]
  env:
  - {name: REGION, value: eu}
";

    fn errors(text: &str) -> Vec<String> {
        let mut problems = Problems::default();
        parse(text, &Place::file(Path::new("/p.yaml")), &mut problems);
        problems.errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn providers_are_read() {
        let mut problems = Problems::default();
        let providers = parse(GOOD, &Place::file(Path::new("/p.yaml")), &mut problems);
        assert_eq!(problems, Problems::default());
        let expected = Provider {
            name: "cloud".into(),
            api_version: API_VERSIONS[0].into(),
            match_images: vec!["*.example.com".into()],
            default_cache: Duration::from_secs(12 * 3600),
            args: vec!["get-credentials".into()],
            env: vec![("REGION".into(), "eu".into())],
        };
        assert_eq!(providers, [expected]);
    }

    #[test]
    fn each_error_names_the_line_and_the_field() {
        for (from, to, expected) in [
            (
                "name: cloud",
                "name: a/b",
                "/p.yaml:4: providers[0].name: \"a/b\" is not the name of a program; it may not contain '/' or spaces",
            ),
            ("'*.example.com'", "", "/p.yaml:4: providers[0].matchImages: at least one pattern is required"),
            (
                "'*.example.com'",
                "'https://a'",
                "/p.yaml:4: providers[0].matchImages: \"https://a\" is not a pattern like \
                 \"*.registry.example.com/team\"",
            ),
            (
                "  defaultCacheDuration: 12h\n",
                "",
                "/p.yaml:4: providers[0].defaultCacheDuration: is required, for example \"12h\"",
            ),
            (
                "12h",
                "soon",
                "/p.yaml:4: providers[0].defaultCacheDuration: \"soon\" is not a duration; write one like \"90s\", \
                 \"1m30s\" or \"500ms\"",
            ),
            (
                "  args:",
                "  tokenAttributes: {}\n  args:",
                "/p.yaml:8: providers[0].tokenAttributes: not supported: Wherry has no service accounts",
            ),
            ("  args:", "  argz:", "/p.yaml:8: providers[0].argz: unknown field"),
            ("[get-credentials]", "hunter2", "/p.yaml:8: providers[0].args: must be a list of strings"),
            ("kind: CredentialProviderConfig", "kind: Pod", "/p.yaml:1: kind: must be CredentialProviderConfig"),
            ("value: eu", "value: 7", "/p.yaml:10: providers[0].env[0].value: must be a string"),
        ] {
            assert!(GOOD.contains(from), "{from}");
            assert_eq!(errors(&GOOD.replacen(from, to, 1)), [expected], "{to}");
        }
        let twice = format!("{GOOD}{}", GOOD.split_once("providers:\n").unwrap().1);
        assert_eq!(errors(&twice), ["/p.yaml:11: providers[1].name: \"cloud\" is used twice"]);
        assert!(errors("a: [")[0].starts_with("/p.yaml:1: "));
        let none = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders: []\n";
        assert_eq!(errors(none), ["/p.yaml:3: providers: at least one provider is required"]);
    }
}
