//! Has a helper change or check the rules of services in the kernel.

use super::jobs::{JobSpec, Jobs};
use crate::adapters::service_table::KernelPlace;
use crate::api::printable;
use crate::api::service_table::ServiceTable;
use crate::api::time::Now;
use crate::api::uid;
use crate::config::Config;
use crate::engine::effect::ServiceTableCall;
use crate::engine::event::Answer;
use crate::engine::op::{OpError, OpId};
use crate::event_loop::Class;
use std::time::Duration;

/// The helper ends after the program, which ends at its own deadline.
const AFTER_PROGRAM: Duration = Duration::from_secs(5);

/// The name of the table of an agent with the default root directory.
const TABLE: &str = "wherry";
/// The file that says that the kernel may have a table. It is next to the control socket, so a reboot removes both.
const MARKER: &str = "service-rules";

/// Returns where the kernel has the rules. Each root directory has a table of its own.
pub(super) fn place(config: &Config) -> KernelPlace {
    let name = match config.root_dir == Config::default().root_dir {
        true => TABLE.to_owned(),
        false => {
            let digest = uid::digest_of_bytes(config.root_dir.as_os_str().as_encoded_bytes());
            format!("{TABLE}-{}", printable::cut(&digest, 8))
        }
    };
    KernelPlace { name, marker: config.socket.with_file_name(MARKER) }
}

pub(super) fn carry_out(
    op: OpId,
    call: ServiceTableCall,
    timeout: Duration,
    place: &KernelPlace,
    jobs: &mut Jobs,
    now: Now,
) {
    let (place, deadline) = (place.clone(), now.boot + timeout + AFTER_PROGRAM);
    match call {
        ServiceTableCall::Apply { table } => {
            let table = ServiceTable::clone(&table);
            let spec = JobSpec::new(Class::Paths, "change the rules of services", deadline);
            let work = move || place.apply(&table, timeout).map_err(OpError::Unknown);
            jobs.run_op(op, spec, work, |()| Answer::Ok);
        }
        ServiceTableCall::Check { table } => {
            let table = ServiceTable::clone(&table);
            let spec = JobSpec::new(Class::Paths, "check the rules of services", deadline);
            let work = move || place.is_in_force(&table, timeout).map_err(OpError::Unknown);
            jobs.run_op(op, spec, work, Answer::TableInForce);
        }
    }
}
