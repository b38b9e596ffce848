//! Credentials for image pulls from outside the manifests. Helper threads read the node's docker configuration and run
//! the credential providers.

use super::Agent;
use super::jobs::JobSpec;
use crate::adapters::credentials::{docker_config, provider};
use crate::api::credential_provider::Provider;
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
        let spec = JobSpec::new(Class::Credentials, "read the docker configuration", now.boot + timeout).on(&first);
        let id = self.jobs.run(
            spec,
            move || docker_config::read(&paths),
            move |agent, found, now| {
                let result = agent.reporting.standing.job_result(found, now.boot).map(|found| {
                    for warning in &found.warnings {
                        if let Some(repeated) = agent.reporting.standing.repetitions(warning, now.boot) {
                            log::warn!("{warning} repeated={repeated}");
                        }
                    }
                    Answer::DockerConfig(found.keyring)
                });
                agent.events.push_back(Event::Done { op, result });
            },
        );
        self.jobs.make_cancellable(id, op);
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
        let spec = JobSpec::new(Class::Credentials, "run a credential provider", deadline + TO_KILL);
        let work = move || provider::ask(&directory, &provider, &repository, deadline);
        let id = self.jobs.run(spec, work, move |agent, provided, now| {
            let result = agent.reporting.standing.job_result(provided, now.boot).and_then(|provided| {
                provided.map(Answer::Provided).map_err(|why| {
                    agent.provider_failed(&name, &why, now);
                    OpError::Unknown(why)
                })
            });
            agent.events.push_back(Event::Done { op, result });
        });
        self.jobs.make_cancellable(id, op);
    }

    fn provider_failed(&mut self, name: &str, why: &str, now: Now) {
        let line = format!("the credential provider {name} failed; pulls continue without it error={why:?}");
        if let Some(repeated) = self.reporting.standing.repetitions(&line, now.boot) {
            log::warn!("{line} repeated={repeated}");
        }
    }
}
