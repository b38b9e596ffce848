//! Credentials for image pulls from outside the manifests. Helper threads read the node's docker configuration and run
//! the credential providers.

use super::Agent;
use super::effects::{Job, Work};
use crate::adapters::credentials::{docker_config, provider};
use crate::api::credential_provider::{Provided, Provider};
use crate::api::time::Now;
use crate::engine::event::{Answer, Event};
use crate::engine::op::{OpError, OpId};
use crate::event_loop::Class;
use std::path::PathBuf;
use std::time::Duration;

/// The time that a helper has to kill a provider after its deadline.
const TO_KILL: Duration = Duration::from_secs(5);

impl Agent {
    pub(super) fn read_docker_config(&mut self, op: OpId, timeout: Duration, now: Now) {
        let paths = match &self.config.docker_config {
            Some(path) => vec![path.clone()],
            None => docker_config::default_paths(&self.config.root_dir),
        };
        // If a path hangs, all searches fail until it returns.
        let first = paths.first().cloned().unwrap_or_default();
        let name = "read the docker configuration";
        let id = self.sources.helpers.submit_for(Class::Credentials, name, &first, now.boot + timeout, move || {
            Work::DockerConfig(docker_config::read(&paths))
        });
        self.sources.jobs.insert(id, Job::DockerConfig(op));
    }

    pub(super) fn docker_config_read(&mut self, op: OpId, found: docker_config::Found, now: Now) {
        for warning in &found.warnings {
            if let Some(repeated) = self.standing.repetitions(warning, now.boot) {
                log::warn!("{warning} repeated={repeated}");
            }
        }
        self.events.push_back(Event::Done { op, result: Ok(Answer::DockerConfig(found.keyring)) });
    }

    pub(super) fn ask_provider(
        &mut self,
        op: OpId,
        provider: Provider,
        repository: String,
        timeout: Duration,
        now: Now,
    ) {
        let directory: PathBuf = self.config.image_credential_provider_bin_dir.clone().unwrap_or_default();
        let name = provider.name.clone();
        let deadline = now.boot + timeout;
        let id = self.sources.helpers.submit(
            Class::Credentials,
            "run a credential provider",
            deadline + TO_KILL,
            move || Work::Provided(provider::ask(&directory, &provider, &repository, deadline)),
        );
        self.sources.jobs.insert(id, Job::Provider(op, name));
    }

    pub(super) fn provider_asked(&mut self, op: OpId, name: &str, result: Result<Provided, String>, now: Now) {
        if let Err(why) = &result {
            let line = format!("the credential provider {name} failed; pulls continue without it error={why:?}");
            if let Some(repeated) = self.standing.repetitions(&line, now.boot) {
                log::warn!("{line} repeated={repeated}");
            }
        }
        let result = result.map(Answer::Provided).map_err(OpError::Unknown);
        self.events.push_back(Event::Done { op, result });
    }
}
