//! Credentials for image registries: the node's docker configuration and the credential providers. The runtime's model
//! decides which user may pull which image.

use super::{Item, MS, World};
use std::collections::BTreeMap;
use std::time::Duration;
use wherry::api::credential_provider::{API_VERSIONS, CacheKey, Provided, Provider};
use wherry::api::registry_credentials::Keyring;
use wherry::engine::event::{Answer, Event};
use wherry::engine::op::{OpError, OpId};

#[derive(Default)]
pub struct Registry {
    /// The node's docker configuration.
    pub node: Option<Keyring>,
    /// The answers of the providers, by name. A provider without an answer fails.
    pub provided: BTreeMap<String, Provided>,
    /// Providers that do not answer.
    pub hung: Vec<String>,
    /// The providers that ran, with the repository.
    pub asked: Vec<String>,
}

/// A keyring with one user (and a password of the same text) of the registry `r.io`.
pub fn user(name: &str) -> Keyring {
    let text = docker_config(&[("r.io", name)]);
    Keyring::from_docker_config(text.as_bytes()).expect("a docker configuration")
}

/// The text of a docker configuration with these users, by host.
pub fn docker_config(users: &[(&str, &str)]) -> String {
    let entry =
        |(host, name): &(&str, &str)| format!("\"{host}\": {{\"username\": \"{name}\", \"password\": \"{name}\"}}");
    format!("{{\"auths\": {{{}}}}}", users.iter().map(entry).collect::<Vec<_>>().join(", "))
}

impl World {
    /// Configures a provider for all images of `r.io`, with an answer for this user.
    pub fn add_provider(&mut self, name: &str, of: &str, key: CacheKey, seconds: u64) {
        let provided = Provided { keyring: user(of), key, cache_for: Duration::from_secs(seconds) };
        self.registry.provided.insert(name.into(), provided);
        self.config.credential_providers.push(Provider {
            name: name.into(),
            api_version: API_VERSIONS[0].into(),
            match_images: vec!["r.io".into()],
            default_cache: Duration::ZERO,
            args: Vec::new(),
            env: Vec::new(),
        });
        self.step(Event::Configure(Box::new(self.config.clone())));
    }

    /// The image exists, and only these users may pull it.
    pub fn private_image(&mut self, image: &str, users: &[&str]) {
        self.runtime.private_images.insert(image.into(), users.iter().map(|user| (*user).into()).collect());
    }

    pub(super) fn read_docker_config(&mut self, op: OpId, timeout: Duration) {
        self.note(|| format!("  < {op} read the docker configuration"));
        self.begin(op);
        self.checks.deadline(op, timeout);
        let unlucky = self.chaos.as_mut().is_some_and(|c| c.mishap("no docker configuration", "", c.faults).is_some());
        let result = match unlucky {
            true => Err(OpError::Unknown("the file system hangs".into())),
            false => Ok(Answer::DockerConfig(self.registry.node.clone())),
        };
        let key = (self.process.life, op);
        self.at(MS, Item::Answer { key, result });
    }

    pub(super) fn ask_provider(&mut self, op: OpId, provider: &Provider, repository: &str, timeout: Duration) {
        self.note(|| format!("  < {op} ask {} for {repository}", provider.name));
        self.begin(op);
        self.checks.deadline(op, timeout);
        if !provider.is_for(repository) {
            self.checks.fail("W12", format!("{} is asked for {repository}", provider.name));
        }
        self.registry.asked.push(format!("{} {repository}", provider.name));
        let answer = self.registry.provided.get(&provider.name).cloned();
        let failed = || OpError::Unknown("the provider failed".into());
        let key = (self.process.life, op);
        match self.registry.hung.contains(&provider.name) {
            true => self.at(timeout.as_nanos() as u64, Item::Answer { key, result: Err(failed()) }),
            false => {
                let result = answer.map(Answer::Provided).ok_or_else(failed);
                self.at(20 * MS, Item::Answer { key, result });
            }
        }
    }
}
