//! The world around the engine. Each file here is one model with its own state: the clock, the queue of future events, the
//! connection to the runtime and its faults, the processes of containers, the disk, cgroups, network results, volumes, hooks and
//! probes, manifests, power, the API server of a cluster. `World` composes them. `driver` carries the engine's effects to the models and their answers to the engine.

mod api_faults;
pub mod api_server;
mod cgroups;
mod claims;
mod clock;
mod connection;
pub mod devices;
mod disk;
mod driver;
mod engine_process;
mod faults;
pub mod handlers;
pub mod host;
mod identity;
mod images;
mod kubectl;
mod logs;
mod manifests;
mod networks;
mod observed;
pub mod pair;
mod pidfds;
mod power;
mod processes;
mod queue;
mod registry;
mod services;
mod time_zones;
mod volumes;

use crate::chance::Chaos;
use crate::check::Checks;
use crate::control::Users;
use crate::logind::Logind;
use crate::runtime::Runtime;
use crate::story::Manifest;
use crate::stream::Stream;
use api_server::ApiServer;
use cgroups::Cgroups;
use clock::Clock;
use connection::Connection;
use devices::DevicePlugins;
use disk::Disk;
use engine_process::EngineProcess;
pub use faults::Fault;
use faults::Faults;
use handlers::Handlers;
use host::Host;
use identity::Identity;
use kubectl::Clients;
use logs::Logs;
pub use manifests::Damage;
use manifests::Manifests;
use networks::Networks;
use observed::Observed;
use pidfds::Pidfds;
use processes::Processes;
use queue::{Item, Queue};
pub use registry::{Registry, docker_config, user};
use services::ServiceRules;
use std::collections::BTreeMap;
use volumes::Volumes;
use wherry::api::names::Uid;
use wherry::api::node_facts::NodeFacts;
use wherry::api::time::{Now, Wall};
use wherry::engine::config::{EngineConfig, FixedConfig};
use wherry::engine::event::Event;
use wherry::engine::node::Engine;
use wherry::engine::op::OpId;

pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000 * MS;

/// An operation of one run of the engine.
type Key = (u32, OpId);

pub struct World {
    pub clock: Clock,
    queue: Queue,
    /// The time of the engine's next step without an event (ns).
    planned: Option<u64>,
    pub engine: Engine,
    pub config: EngineConfig,
    pub process: EngineProcess,
    pub runtime: Runtime,
    pub connection: Connection,
    pub faults: Faults,
    pub processes: Processes,
    pub pidfds: Pidfds,
    /// The runtime's event stream, if it has one.
    pub stream: Option<Stream>,
    pub disk: Disk,
    pub cgroups: Cgroups,
    pub networks: Networks,
    pub volumes: Volumes,
    pub rules: ServiceRules,
    pub handlers: Handlers,
    pub devices: DevicePlugins,
    pub host: Host,
    pub logs: Logs,
    pub registry: Registry,
    pub logind: Logind,
    /// Used only by a member of a cluster.
    pub api: ApiServer,
    /// The files of the node's certificate.
    pub identity: Identity,
    /// The pods by manifest file, as their documents define them.
    pub files: BTreeMap<String, Manifest>,
    pub manifests: Manifests,
    /// The number of pods that fit at one time (A2).
    pub scarce: Option<usize>,
    pub chaos: Option<Chaos>,
    pub observed: Observed,
    pub checks: Checks,
    pub users: Users,
    /// The clients of the API for kubectl.
    clients: Clients,
    pub history: Option<Vec<String>>,
}

/// The default configuration of a story's node. W10's maximum and P1's period have their default values.
pub fn config() -> EngineConfig {
    let defaults = EngineConfig::default();
    let node = NodeFacts { name: "lab".into(), ..defaults.node };
    let fixed = FixedConfig {
        owner: "root-1".into(),
        manifests: manifests::DIRECTORY.into(),
        boot_id: "boot".into(),
        seed: 7,
        ..defaults.fixed
    };
    EngineConfig { fixed, root: host::ROOT.into(), node, storage_classes: claims::classes(), ..defaults }
}

impl World {
    /// A node with a healthy runtime and an engine that has not started.
    pub fn new(config: EngineConfig) -> World {
        let mut runtime = Runtime::new(&config.fixed.owner);
        runtime.becomes(crate::story::runtime_of_the_stories());
        World {
            clock: Clock::default(),
            queue: Queue::default(),
            planned: None,
            engine: Engine::new(config.clone()),
            runtime,
            config,
            process: EngineProcess::default(),
            connection: Connection::default(),
            faults: Faults::default(),
            processes: Processes::default(),
            pidfds: Pidfds::default(),
            stream: None,
            disk: Disk::default(),
            cgroups: Cgroups::default(),
            networks: Networks::default(),
            volumes: Volumes::default(),
            rules: ServiceRules::default(),
            handlers: Handlers::default(),
            devices: DevicePlugins::default(),
            host: Host::default(),
            logs: Logs::default(),
            registry: Registry::default(),
            logind: Logind::default(),
            api: ApiServer::new(),
            identity: Identity::default(),
            files: BTreeMap::new(),
            manifests: Manifests::default(),
            scarce: None,
            chaos: None,
            observed: Observed::default(),
            checks: Checks::default(),
            users: Users::default(),
            clients: Clients::default(),
            history: None,
        }
    }

    pub fn wall_now(&self) -> Wall {
        self.clock.wall_now()
    }

    pub fn time(&self) -> Now {
        self.clock.time()
    }

    /// Adds an event of the world, after this time (ns).
    fn at(&mut self, after: u64, item: Item) {
        self.queue.push(self.clock.now + after, item);
    }

    /// The engine receives this event after this time (ns), unless it is killed before.
    pub fn event_in(&mut self, after: u64, event: Event) {
        let life = self.process.life;
        self.at(after, Item::Event { life, event });
    }

    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(history) = &mut self.history {
            let t = self.clock.since_start();
            history.push(format!("{:>6}.{:03} {}", t / S, t % S / MS, line()));
        }
    }

    /// Adds a line to the calls.
    pub(super) fn log(&mut self, text: String) {
        if self.chaos.is_none() || self.history.is_some() {
            self.observed.calls.push((self.clock.now, text));
        }
    }

    /// Whether something fails, at a `part`th of the fault rate of calls.
    pub(super) fn goes_wrong(&mut self, what: &str, of: &str, part: u64) -> bool {
        self.chaos.as_mut().is_some_and(|c| c.mishap(what, of, c.faults / part).is_some())
    }

    /// No more faults from here on.
    pub fn all_is_well(&mut self) {
        if let Some(c) = &mut self.chaos {
            c.calm = true;
        }
        self.runtime.network_ready = true;
        self.runtime.unknown_images.clear();
        self.process.never_killed();
        self.disk.full = false;
        self.faults.lists_fail_until = 0;
        self.faults.unlucky = None;
        let held: Vec<String> = self.runtime.containers.values().filter(|c| c.held).map(|c| c.id.clone()).collect();
        held.iter().for_each(|id| self.free_process(id));
        self.runtime.twins_end();
        self.look_at_pidfds();
        if !self.process.alive {
            self.start();
        }
        self.api_is_well();
        self.bus(true);
        self.logind.well();
        self.call_off();
        self.runtime_up();
    }

    /// Removes everything of a pod from the runtime without the engine.
    pub fn remove_behind(&mut self, uid: &Uid) {
        self.note(|| format!("    all of {uid} is removed"));
        let owner = self.runtime.owner.clone();
        self.runtime.sandboxes.retain(|_, s| s.uid != *uid || s.owner.as_ref() != Some(&owner));
        self.runtime.containers.retain(|_, c| c.uid != *uid || c.owner.as_ref() != Some(&owner));
        self.checks.tampered = true;
        self.look_at_pidfds();
    }
}

impl Drop for World {
    /// A story fails if any rule was violated, also without an assertion of its own.
    fn drop(&mut self) {
        if self.chaos.is_none() && !std::thread::panicking() {
            assert_eq!(self.checks.violation, None);
        }
    }
}
