//! Credentials for image pulls that do not come from manifests. Helper threads read the node's docker configuration
//! and run the credential providers.

use super::jobs::{JobSpec, Jobs};
use super::logging::LogDeduplicator;
use crate::adapters::credentials::{docker_config, provider};
use crate::api::credential_provider::Provider;
use crate::api::time::Boot;
use crate::config::Config;
use crate::engine::event::{Answer, Event};
use crate::engine::op::{OpError, OpId};
use crate::event_loop::Class;
use std::path::Path;
use std::time::Duration;

/// The time that a helper has for killing a provider after the provider's deadline.
const TO_KILL: Duration = Duration::from_secs(5);

pub(super) fn read_docker_config(op: OpId, config: &Config, deadline: Boot, jobs: &mut Jobs) {
    let paths = match &config.docker_config {
        Some(path) => vec![path.clone()],
        None => docker_config::default_paths(&config.root_dir),
    };
    // All searches have the same path, so if one hangs, the others fail until it returns.
    let first = paths.first().cloned().unwrap_or_default();
    let spec = JobSpec::new(Class::Credentials, "read the docker configuration", deadline).on(&first);
    let id = jobs.run(
        spec,
        move || docker_config::read(&paths),
        move |agent, found, now| {
            let log = &mut agent.reporting.standing;
            let result = log.job_result(found, now.boot).map(|found| {
                for warning in &found.warnings {
                    if let Some(repeated) = log.repetitions(warning, now.boot) {
                        log::warn!("{warning} repeated={repeated}");
                    }
                }
                Answer::DockerConfig(found.keyring)
            });
            agent.events.push_back(Event::Done { op, result });
        },
    );
    jobs.make_cancellable(id, op);
}

/// Runs a credential provider. `directory` contains the programs of the providers.
pub(super) fn ask_provider(
    op: OpId,
    provider: Provider,
    repository: String,
    directory: Option<&Path>,
    deadline: Boot,
    jobs: &mut Jobs,
) {
    let directory = directory.unwrap_or(Path::new("")).to_owned();
    let name = provider.name.clone();
    let spec = JobSpec::new(Class::Credentials, "run a credential provider", deadline + TO_KILL);
    let work = move || provider::ask(&directory, &provider, &repository, deadline);
    let id = jobs.run(spec, work, move |agent, provided, now| {
        let log = &mut agent.reporting.standing;
        let result = log.job_result(provided, now.boot).and_then(|provided| {
            provided.map(Answer::Provided).map_err(|why| {
                log_failure(log, &name, &why, now.boot);
                OpError::Unknown(why)
            })
        });
        agent.events.push_back(Event::Done { op, result });
    });
    jobs.make_cancellable(id, op);
}

fn log_failure(log: &mut LogDeduplicator, name: &str, why: &str, now: Boot) {
    let line = format!("the credential provider {name} failed; pulls continue without it error={why:?}");
    if let Some(repeated) = log.repetitions(&line, now) {
        log::warn!("{line} repeated={repeated}");
    }
}
