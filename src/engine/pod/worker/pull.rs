//! The pull of one image: the credentials are collected, then tried in order until one succeeds. Without any, the
//! pull is anonymous. Only the attempts need a slot, so a provider that hangs does not delay other pulls.
//!
//! The order is a kubelet's: the pod's Secrets, the node's docker configuration, the credential providers.

use crate::api::credential_provider::Provider;
use crate::api::registry_credentials::{Credential, Keyring, candidates};
use crate::api::time::Boot;
use serde::Serialize;
use std::collections::VecDeque;

#[derive(Debug, Serialize)]
pub struct Pull {
    /// The image reference, as written in the spec.
    pub image: String,
    /// The repository for which credentials are selected: with the domain, and without tag and digest.
    pub repository: String,
    /// When the image was found missing.
    pub wanted: Boot,
    stage: Stage,
}

#[derive(Debug, Serialize)]
enum Stage {
    /// The node's docker configuration must be read.
    NodeConfig,
    /// These providers must be asked.
    Providers {
        left: VecDeque<Provider>,
        #[serde(skip)]
        keyrings: Vec<Keyring>,
    },
    /// In `left`, None stands for an anonymous pull. `began` is the time when the pull got its slot.
    Attempts {
        began: Boot,
        #[serde(skip)]
        left: VecDeque<Option<Credential>>,
        errors: Vec<String>,
    },
}

/// The next step of a pull.
#[derive(Debug, PartialEq)]
pub enum PullStep {
    ReadNodeConfig,
    Ask(Provider),
    /// All sources were read: `begin` follows as soon as the pull gets a slot.
    Begin,
    Try(Option<Credential>),
    /// All attempts failed.
    Fail,
}

impl Pull {
    pub fn new(image: String, repository: String, wanted: Boot) -> Pull {
        Pull { image, repository, wanted, stage: Stage::NodeConfig }
    }

    /// Returns the time when the pull got its slot; None before that.
    pub fn began(&self) -> Option<Boot> {
        match self.stage {
            Stage::Attempts { began, .. } => Some(began),
            Stage::NodeConfig | Stage::Providers { .. } => None,
        }
    }

    pub fn next(&self) -> PullStep {
        match &self.stage {
            Stage::NodeConfig => PullStep::ReadNodeConfig,
            Stage::Providers { left, .. } => left.front().cloned().map_or(PullStep::Begin, PullStep::Ask),
            Stage::Attempts { left, .. } => left.front().cloned().map_or(PullStep::Fail, PullStep::Try),
        }
    }

    /// Takes the credentials of the node's docker configuration. `providers` are all configured providers.
    pub fn node_config_read(&mut self, keyring: Option<Keyring>, providers: &[Provider]) {
        let left = providers.iter().filter(|provider| provider.is_for(&self.repository)).cloned().collect();
        self.stage = Stage::Providers { left, keyrings: keyring.into_iter().collect() };
    }

    /// Takes the answer of the first provider that is left; None if the provider failed.
    pub fn provided(&mut self, keyring: Option<Keyring>) {
        if let Stage::Providers { left, keyrings } = &mut self.stage {
            left.pop_front();
            keyrings.extend(keyring);
        }
    }

    /// Selects the credentials of a pull that has its slot. `secrets` are the credentials of the pod's Secrets.
    pub fn begin(&mut self, secrets: &Keyring, now: Boot) {
        if let Stage::Providers { keyrings, .. } = &self.stage {
            let found = candidates(std::iter::once(secrets).chain(keyrings), &self.repository);
            let mut left: VecDeque<Option<Credential>> = found.into_iter().map(Some).collect();
            if left.is_empty() {
                left.push_back(None);
            }
            self.stage = Stage::Attempts { began: now, left, errors: Vec::new() };
        }
    }

    /// Notes that the attempt failed. `is_last` says that further credentials cannot help.
    pub fn attempt_failed(&mut self, error: String, is_last: bool) {
        if let Stage::Attempts { left, errors, .. } = &mut self.stage {
            left.pop_front();
            if is_last {
                left.clear();
            }
            if !errors.contains(&error) {
                errors.push(error);
            }
        }
    }

    /// Returns the errors of all attempts, in the format of a kubelet.
    pub fn error(&self) -> String {
        match &self.stage {
            Stage::Attempts { errors, .. } => match errors.as_slice() {
                [one] => one.clone(),
                several => format!("[{}]", several.join(", ")),
            },
            Stage::NodeConfig | Stage::Providers { .. } => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn keyring(host: &str, user: &str) -> Keyring {
        let text = format!(r#"{{"auths": {{"{host}": {{"username": "{user}"}}}}}}"#);
        Keyring::from_docker_config(text.as_bytes()).unwrap()
    }

    fn provider(name: &str, image: &str) -> Provider {
        Provider {
            name: name.into(),
            api_version: String::new(),
            match_images: vec![image.into()],
            default_cache: Duration::ZERO,
            args: Vec::new(),
            env: Vec::new(),
        }
    }

    fn pull() -> Pull {
        Pull::new("r.io/a:1".into(), "r.io/a".into(), Boot(0))
    }

    fn user(step: &PullStep) -> &str {
        match step {
            PullStep::Try(Some(credential)) => &credential.username,
            _ => "",
        }
    }

    #[test]
    fn the_sources_are_read_and_the_credentials_tried_in_the_kubelets_order() {
        let mut pull = pull();
        assert_eq!(pull.next(), PullStep::ReadNodeConfig);
        let providers = [provider("one", "r.io"), provider("other", "s.io"), provider("two", "r.io")];
        pull.node_config_read(Some(keyring("r.io", "node")), &providers);
        assert_eq!(pull.next(), PullStep::Ask(providers[0].clone()));
        pull.provided(Some(keyring("r.io", "one")));
        assert_eq!(pull.next(), PullStep::Ask(providers[2].clone()));
        pull.provided(None);
        assert_eq!((pull.next(), pull.began()), (PullStep::Begin, None));
        pull.begin(&keyring("r.io", "secret"), Boot(7));
        assert_eq!(pull.began(), Some(Boot(7)));
        for expected in ["secret", "node", "one"] {
            assert_eq!(user(&pull.next()), expected);
            pull.attempt_failed(format!("401 for {expected}"), false);
        }
        assert_eq!(pull.next(), PullStep::Fail);
        assert_eq!(pull.error(), "[401 for secret, 401 for node, 401 for one]");
    }

    #[test]
    fn without_a_credential_the_pull_is_anonymous() {
        let mut pull = pull();
        pull.node_config_read(None, &[]);
        pull.begin(&keyring("s.io", "other"), Boot(0));
        assert_eq!(pull.next(), PullStep::Try(None));
        pull.attempt_failed("not found".into(), false);
        assert_eq!((pull.next(), pull.error()), (PullStep::Fail, "not found".to_owned()));
    }

    #[test]
    fn equal_errors_are_shown_once_and_a_lost_connection_ends_the_attempts() {
        let mut pull = pull();
        pull.node_config_read(Some(keyring("r.io", "a")), &[]);
        pull.begin(&keyring("r.io", "b"), Boot(0));
        pull.attempt_failed("401".into(), false);
        pull.attempt_failed("401".into(), false);
        assert_eq!(pull.error(), "401");
        let mut pull = self::pull();
        pull.node_config_read(Some(keyring("r.io", "a")), &[]);
        pull.begin(&keyring("r.io", "b"), Boot(0));
        pull.attempt_failed("connection lost".into(), true);
        assert_eq!(pull.next(), PullStep::Fail);
    }
}
