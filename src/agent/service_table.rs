//! Has a helper change or check the rules of services in the kernel, or the conversations that it remembers.

use crate::adapters::service_table::{KernelPlace, udp_flows};
use crate::api::printable;
use crate::api::service_table::{ServiceTable, UdpFlows};
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

/// Returns where the kernel has the rules. Each root directory has a table of its own, and a marker: the sockets of
/// several agents can be in the same directory.
pub(super) fn place(config: &Config) -> KernelPlace {
    let suffix = match config.root_dir == Config::default().root_dir {
        true => String::new(),
        false => {
            let digest = uid::digest_of_bytes(config.root_dir.as_os_str().as_encoded_bytes());
            format!("-{}", printable::cut(&digest, 8))
        }
    };
    let marker = config.socket.with_file_name(format!("{MARKER}{suffix}"));
    KernelPlace { name: format!("{TABLE}{suffix}"), marker }
}

/// What a helper does. A table in an effect is shared with the engine, which is not possible between threads.
enum TableJob {
    Apply(ServiceTable),
    Check(ServiceTable),
    Forget(UdpFlows),
}

/// Returns the job of a helper that carries out a call. It ends at the timeout. The result of a check is whether the
/// kernel has the table.
pub(super) fn job(
    call: &ServiceTableCall,
    timeout: Duration,
    place: &KernelPlace,
) -> impl FnOnce() -> Result<Option<bool>, OpError> + Send + 'static {
    let job = match call {
        ServiceTableCall::Apply { table } => TableJob::Apply(ServiceTable::clone(table)),
        ServiceTableCall::Check { table } => TableJob::Check(ServiceTable::clone(table)),
        ServiceTableCall::Forget { flows } => TableJob::Forget(UdpFlows::clone(flows)),
    };
    let place = place.clone();
    move || {
        let result = match job {
            TableJob::Apply(table) => place.apply(&table, timeout).map(|()| None),
            TableJob::Check(table) => place.is_in_force(&table, timeout).map(Some),
            TableJob::Forget(flows) => udp_flows::forget(&flows, timeout).map(|()| None),
        };
        result.map_err(OpError::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_with_sockets_in_one_directory_have_tables_and_markers_of_their_own() {
        let of = |root: &str| {
            let config = Config { root_dir: root.into(), socket: "/run/a.sock".into(), ..Config::default() };
            let place = place(&config);
            (place.name, place.marker)
        };
        let (one, other) = (of("/var/lib/one"), of("/var/lib/other"));
        assert!(one.0 != other.0 && one.1 != other.1, "{one:?} {other:?}");
        assert_eq!(of("/var/lib/wherry"), ("wherry".to_owned(), "/run/service-rules".into()));
    }
}
