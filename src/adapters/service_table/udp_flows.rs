//! Has the kernel forget conversations over UDP, with the program `conntrack`.
//!
//! The rules decide only about the first packet of a conversation. The kernel remembers the decision as long as packets
//! come. For TCP, the end of the pod ends the connection.

use super::failure_of;
use super::program::{self, EndOfProgram};
use crate::api::address_range::Family;
use crate::api::service_table::UdpFlows;
use crate::event_loop::clock;
use std::ffi::OsString;
use std::net::IpAddr;
use std::time::Duration;

/// With more endpoints than this, the kernel forgets all conversations with services. Each of fewer runs a program.
const MAX_ENDPOINTS: usize = 64;

/// Has the kernel forget these conversations. Blocks until `timeout` at most.
///
/// # Errors
/// `conntrack` is missing, fails, or does not end in time.
pub fn forget(flows: &UdpFlows, timeout: Duration) -> Result<(), String> {
    run_all(&["conntrack".into()], flows, timeout)
}

/// Runs the program, which tests run in a network namespace, for each endpoint and port.
pub(super) fn run_all(program: &[OsString], flows: &UdpFlows, timeout: Duration) -> Result<(), String> {
    let deadline = clock::boot() + timeout;
    for arguments in deletions(flows) {
        let all = ["-D", "-p", "udp"].into_iter().map(OsString::from).chain(arguments);
        let command: Vec<OsString> = program.iter().cloned().chain(all).collect();
        let end = program::run(&command, "", deadline)?;
        if !end.status.success() && !found_nothing(&end) {
            let remedy = "check that the kernel supports conntrack over netlink (nf_conntrack_netlink)";
            return Err(failure_of("conntrack", &end, remedy));
        }
    }
    Ok(())
}

/// The exit status is 1 if no conversation matches.
fn found_nothing(end: &EndOfProgram) -> bool {
    end.status.code() == Some(1) && end.errors.contains("0 flow entries have been deleted")
}

/// Returns the arguments for each run.
fn deletions(flows: &UdpFlows) -> Vec<Vec<OsString>> {
    let run = |family, words: &[&str]| {
        let family = match family {
            Family::V4 => "ipv4",
            Family::V6 => "ipv6",
        };
        ["-f", family].iter().chain(words).map(OsString::from).collect::<Vec<OsString>>()
    };
    let mut all: Vec<Vec<OsString>> = match flows.endpoints.len() > MAX_ENDPOINTS {
        true => Family::ALL.map(|family| run(family, &["--dst-nat"])).to_vec(),
        false => {
            let of_endpoint = |one: &IpAddr| run(Family::of(*one), &["--dst-nat", &one.to_string()]);
            flows.endpoints.iter().map(of_endpoint).collect()
        }
    };
    for port in &flows.ports {
        all.extend(Family::ALL.map(|family| run(family, &["--orig-port-dst", &port.to_string()])));
    }
    all
}
