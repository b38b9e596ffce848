//! What wakes the loop: the descriptors and the deadlines of the adapters and of the agent's own parts. An adapter
//! that is driven by the loop needs one entry here.

use super::Agent;
use super::tokens::{EVENTS, HELPERS, LOGIND, MANIFESTS, MOUNTS, RUNTIME, SIGNALS, SLICES};
use crate::api::time::{Boot, Now};
use crate::engine::event::Event;
use crate::event_loop::Finished;
use mio::Token;

/// Something that wakes the loop: descriptors, a deadline, or both.
struct Source {
    /// Reports whether the token belongs to one of the source's descriptors.
    owns: fn(&Agent, Token) -> bool,
    /// Called when the poll has reported a token that the source owns.
    ready: fn(&mut Agent, Token, Now),
    next_deadline: fn(&Agent) -> Option<Boot>,
    /// Called when the deadline has passed.
    due: fn(&mut Agent, Now),
}

impl Source {
    const NONE: Source = Source { owns: |_, _| false, ready: |_, _, _| {}, next_deadline: |_| None, due: |_, _| {} };
}

/// All sources, in the order in which they are checked and handled.
const SOURCES: [Source; 22] = [
    Source { owns: |_, token| token == SIGNALS, ready: |agent, _, now| agent.take_signals(now), ..Source::NONE },
    Source {
        owns: |_, token| token == RUNTIME,
        ready: |agent, _, now| agent.drive_runtime(now),
        next_deadline: |agent| agent.runtime.client.next_deadline(),
        due: Agent::flush_to_runtime,
    },
    Source {
        owns: |_, token| token == EVENTS,
        ready: |agent, _, now| agent.drive_container_events(now),
        next_deadline: |agent| agent.runtime.container_events.next_deadline(),
        due: Agent::drive_container_events,
    },
    Source {
        owns: |_, token| token == LOGIND,
        ready: |agent, _, now| agent.drive_logind(now),
        next_deadline: |agent| agent.logind.bus.next_deadline(),
        due: Agent::drive_logind,
    },
    Source {
        owns: |_, token| token == SLICES,
        ready: |agent, _, now| agent.drive_cgroups(now),
        next_deadline: |agent| agent.cgroups.next_deadline(),
        due: Agent::drive_cgroups,
    },
    Source {
        owns: |_, token| token == MANIFESTS,
        ready: |agent, _, now| agent.manifests_moved(now),
        next_deadline: |agent| Some(agent.manifests.next_deadline()),
        due: Agent::manifests_due,
    },
    Source { owns: |_, token| token == MOUNTS, ready: |agent, _, now| agent.manifests.mounted(now), ..Source::NONE },
    Source {
        owns: |_, token| token == HELPERS,
        ready: |agent, _, now| agent.drive_jobs(now),
        next_deadline: |agent| agent.jobs.next_deadline(),
        due: Agent::drive_jobs,
    },
    Source {
        owns: |agent, token| agent.devices.owns(token),
        ready: Agent::device_ready,
        next_deadline: |agent| agent.devices.next_deadline(),
        due: Agent::drive_devices,
    },
    Source {
        owns: |agent, token| agent.cluster.as_ref().is_some_and(|cluster| cluster.owns(token)),
        ready: Agent::cluster_ready,
        next_deadline: Agent::cluster_deadline,
        due: Agent::drive_cluster,
    },
    Source {
        next_deadline: |agent| agent.reporting.file.next_deadline(),
        due: |agent, now| agent.reporting.write_file(&mut agent.jobs, now),
        ..Source::NONE
    },
    Source {
        next_deadline: |agent| agent.reporting.last_state.next_deadline(),
        due: |agent, now| {
            let started = agent.process.started;
            agent.reporting.write_last_state(&agent.engine, started, &mut agent.jobs, now);
        },
        ..Source::NONE
    },
    // The server is driven at the end of each turn.
    Source {
        owns: |agent, token| agent.serving.server.owns(token),
        ready: |agent, token, _| agent.serving.server.ready(token),
        next_deadline: |agent| agent.serving.next_deadline(),
        due: Agent::ask_what_is_due,
    },
    Source {
        owns: |agent, token| agent.kernel.pidfds.owns(token),
        ready: |agent, token, _| agent.events.extend(agent.kernel.process_ended(token, agent.event_loop.registry())),
        ..Source::NONE
    },
    Source {
        owns: |agent, token| agent.kernel.log_writes.owns(token),
        ready: |agent, _, _| agent.events.extend(agent.kernel.logs_written()),
        ..Source::NONE
    },
    Source {
        owns: |agent, token| agent.kernel.memory_pressure.as_ref().is_some_and(|watch| watch.owns(token)),
        ready: |agent, _, _| agent.events.push_back(Event::MemoryIsShort),
        ..Source::NONE
    },
    Source {
        owns: |agent, token| agent.handlers.owns(token),
        ready: |agent, token, _| agent.events.extend(agent.handlers.ready(token, &mut agent.event_loop)),
        next_deadline: |agent| agent.handlers.next_deadline(),
        due: |agent, now| agent.events.extend(agent.handlers.expire(now.boot)),
    },
    Source { next_deadline: |agent| agent.serving.kube.next_deadline(), ..Source::NONE },
    Source { next_deadline: |agent| agent.serving.node_server.next_deadline(), ..Source::NONE },
    Source { next_deadline: |agent| agent.reporting.service.next_deadline(), ..Source::NONE },
    Source { next_deadline: |agent| agent.course.stops_at(), ..Source::NONE },
    Source {
        next_deadline: |agent| agent.engine.next_deadline(),
        due: |agent, _| agent.events.push_back(Event::Due),
        ..Source::NONE
    },
];

impl Agent {
    /// Handles a token that the poll has reported.
    pub(super) fn ready(&mut self, token: Token, now: Now) {
        match SOURCES.iter().find(|source| (source.owns)(self, token)) {
            Some(source) => (source.ready)(self, token, now),
            None => log::debug!("ignoring an event of a removed source token={}", token.0),
        }
    }

    /// Starts waiting jobs, and handles the results of jobs that have ended.
    pub(super) fn drive_jobs(&mut self, now: Now) {
        for Finished { id, result } in self.jobs.drive(now.boot) {
            if let Some(then) = self.jobs.ended(id) {
                then(self, result, now);
            }
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Boot> {
        SOURCES.iter().filter_map(|source| (source.next_deadline)(self)).min()
    }

    pub(super) fn do_what_is_due(&mut self, now: Now) {
        for source in &SOURCES {
            if (source.next_deadline)(self).is_some_and(|at| at <= now.boot) {
                (source.due)(self, now);
            }
        }
        // The certificates of these servers also depend on the wall clock, so they are checked in each turn.
        self.serving.kube.drive(&self.config, &mut self.jobs, now);
        self.serving.node_server.drive(&self.config, self.engine.addresses(), &mut self.jobs, now);
    }
}
