//! Has a helper change or check the rules of services in the kernel.

use crate::adapters::service_table::KernelPlace;
use crate::api::printable;
use crate::api::service_table::ServiceTable;
use crate::api::uid;
use crate::config::Config;
use crate::engine::effect::ServiceTableCall;
use crate::engine::op::OpError;
use std::time::Duration;

/// The helper ends after the program, which ends at its own deadline.
pub(super) const AFTER_PROGRAM: Duration = Duration::from_secs(5);

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

/// Returns the job of a helper that carries out a call. It ends at the timeout. The result of a check is whether the
/// kernel has the table.
pub(super) fn job(
    call: &ServiceTableCall,
    timeout: Duration,
    place: &KernelPlace,
) -> impl FnOnce() -> Result<Option<bool>, OpError> + Send + 'static {
    // A table in an effect is shared with the engine, which is not possible between threads.
    let (table, changes) = match call {
        ServiceTableCall::Apply { table } => (ServiceTable::clone(table), true),
        ServiceTableCall::Check { table } => (ServiceTable::clone(table), false),
    };
    let place = place.clone();
    move || match changes {
        true => place.apply(&table, timeout).map(|()| None).map_err(OpError::Unknown),
        false => place.is_in_force(&table, timeout).map(Some).map_err(OpError::Unknown),
    }
}
