//! The address of the service `kubernetes`, at which pods expect the API server (`KUBERNETES_SERVICE_HOST`). The lab
//! has no kube-proxy, so iptables rules forward connections to it.

use super::NODE_ADDRESS;
use std::process::Command;

/// Dropping this value removes the address.
pub struct Service {
    address: String,
    /// Rules of the table `nat`, without the command at the beginning.
    rules: Vec<String>,
}

impl Service {
    /// Forwards connections to port 443 of `address` to `port` of the API server, from pods and from this network
    /// namespace.
    pub fn publish(address: &str, port: u16) -> Service {
        let rule = |chain: &str| {
            format!("{chain} -d {address}/32 -p tcp --dport 443 -j DNAT --to-destination {NODE_ADDRESS}:{port}")
        };
        let service = Service { address: address.to_owned(), rules: vec![rule("PREROUTING"), rule("OUTPUT")] };
        // The namespace has no default route. Without the address, a connection from the namespace would fail before
        // the rule applies.
        run("ip", &format!("addr add {address}/32 dev lo")).expect("an address");
        for rule in &service.rules {
            run("iptables", &format!("-w -t nat -A {rule}")).expect("a rule");
        }
        service
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let rules = self.rules.iter().map(|rule| run("iptables", &format!("-w -t nat -D {rule}")));
        for result in rules.chain([run("ip", &format!("addr del {}/32 dev lo", self.address))]) {
            // A panic would hide the message of a failed test.
            result.unwrap_or_else(|e| eprintln!("{e}"));
        }
    }
}

fn run(program: &str, words: &str) -> Result<(), String> {
    let output = Command::new(program).args(words.split(' ')).output().expect(program);
    let error = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{program} {words}: {error}")) }
}
