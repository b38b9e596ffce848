//! The cgroup driver of the runtime (RuntimeConfig), as the client reads it over each transport. A test server answers,
//! because an installed runtime may be too old for RuntimeConfig.

use crate::rig::Factory;
use crate::server::{Options, Server};
use mio::Token;
use std::time::Duration;
use wherry::adapters::cri::client::{ClientEvent, CriClient};
use wherry::adapters::cri::proto;
use wherry::adapters::cri::requests::{HostDns, RequestConfig, Swap};
use wherry::api::cgroups::{CgroupDriver, CgroupNames};
use wherry::api::layout::Layout;
use wherry::engine::effect::RuntimeCall;
use wherry::engine::event::Answer;
use wherry::engine::op::OpId;
use wherry::event_loop::{EventLoop, clock};

over_each_transport!(the_reported_cgroup_driver_is_used_and_a_missing_one_is_no_error,);

const TOKEN: Token = Token(1);
const PATIENCE: Duration = Duration::from_secs(240);

fn config(driver: CgroupDriver) -> RequestConfig {
    RequestConfig {
        layout: Layout { root: "/r".into(), logs: "/l".into(), log_links: None },
        cgroups: CgroupNames { root: "/".into(), driver, per_qos: true },
        owner: "me".into(),
        cluster_dns: Vec::new(),
        cluster_domain: String::new(),
        host_dns: HostDns::none(),
        seccomp_default: false,
        cpu_cfs_quota: true,
        cpu_cfs_period: 100_000,
        memory_capacity: 1 << 30,
        huge_page_sizes: Vec::new(),
        oom_group: false,
        swap: Swap::WithMemory,
        masked_paths: Vec::new(),
        selinux: false,
    }
}

/// The drivers that the client reports before it returns the status of the runtime, and the driver that it then uses.
fn asked(
    factory: Factory,
    tells: Option<proto::CgroupDriver>,
    configured: CgroupDriver,
) -> (Vec<Option<CgroupDriver>>, CgroupDriver) {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("s"), Options { driver: tells, ..Options::default() });
    let mut event_loop = EventLoop::new().unwrap();
    let mut client = CriClient::new(factory(&server.path, event_loop.registry(), TOKEN), config(configured));
    let (latest, mut ready, mut told, mut begun) = (clock::boot() + PATIENCE, Vec::new(), Vec::new(), false);
    loop {
        let mut out = Vec::new();
        if client.drive(clock::boot(), &mut out) {
            event_loop.again(TOKEN);
        }
        for event in out {
            match event {
                ClientEvent::Driver(driver) => told.push(driver),
                ClientEvent::Done { result, .. } => {
                    let Ok(Answer::Runtime(fact)) = result else { panic!("{result:?}") };
                    assert_eq!(fact.name, "small");
                    return (told, client.config_mut().cgroups.driver);
                }
                ClientEvent::InvalidAnswer { why } => panic!("{why}"),
                _ => {}
            }
        }
        if client.is_up() && !begun {
            begun = true;
            client.start(OpId(1), RuntimeCall::Status, PATIENCE, clock::boot());
            continue;
        }
        assert!(clock::boot() < latest, "no answer");
        let due = client.next_deadline().map_or(latest, |at| at.min(latest));
        event_loop.turn(Some(due), &mut ready).unwrap();
    }
}

fn the_reported_cgroup_driver_is_used_and_a_missing_one_is_no_error(factory: Factory) {
    use CgroupDriver::{Cgroupfs, Systemd};
    for (tells, configured, driver) in [
        (Some(proto::CgroupDriver::SYSTEMD), Cgroupfs, Systemd),
        (Some(proto::CgroupDriver::CGROUPFS), Systemd, Cgroupfs),
        (Some(proto::CgroupDriver::SYSTEMD), Systemd, Systemd),
    ] {
        assert_eq!(asked(factory, tells, configured), (vec![Some(driver)], driver));
    }
    for configured in [Cgroupfs, Systemd] {
        assert_eq!(asked(factory, None, configured), (vec![None], configured));
    }
}
