//! Has the kernel forget conversations over UDP, with the program `conntrack`.
//!
//! The rules decide only about the first packet of a conversation. The kernel remembers the decision as long as packets
//! come. For TCP, the end of the pod ends the connection.

use super::program::{self, EndOfProgram};
use super::text_of_failure;
use crate::api::address_range::Family;
use crate::api::service_table::UdpFlows;
use crate::event_loop::clock;
use std::ffi::OsString;
use std::net::IpAddr;
use std::time::Duration;

/// With more endpoints or ports than this, all conversations with services are forgotten at once. Each runs a program.
const MAX_RUNS: usize = 64;

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
            return Err(format!("conntrack failed with {}: {}", end.status, text_of_failure(&end)));
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
    let run = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<OsString>>();
    if flows.endpoints.len() + flows.ports.len() > MAX_RUNS {
        return vec![run(&["-f", "ipv4", "--dst-nat"]), run(&["-f", "ipv6", "--dst-nat"])];
    }
    let family = |address: IpAddr| match Family::of(address) {
        Family::V4 => "ipv4",
        Family::V6 => "ipv6",
    };
    let endpoints = flows.endpoints.iter().map(|one| run(&["-f", family(*one), "--dst-nat", &one.to_string()]));
    let of_port = |port: &u16| {
        let port = port.to_string();
        ["ipv4", "ipv6"].map(|family| run(&["-f", family, "--orig-port-dst", &port]))
    };
    endpoints.chain(flows.ports.iter().flat_map(of_port)).collect()
}
