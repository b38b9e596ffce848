//! The addresses of the API server, in the eyes of a pod on the lab's runtime.

use crate::support::agent::Agent;
use crate::support::control_plane::ControlPlane;
use crate::support::yaml;

#[test]
fn a_pod_reaches_the_api_server_at_both_addresses() {
    let plane = ControlPlane::shared();
    let agent = Agent::start("network");
    let direct = plane.server.replace("https://", "").replace(':', " ");
    let service = format!("{} 443", plane.service_address);
    for (name, server, host_network) in
        [("direct", &direct, false), ("service", &service, false), ("host", &service, true)]
    {
        // The server answers without TLS, too, which busybox does not have.
        let script = yaml::script("Never", &format!("printf 'GET / HTTP/1.0\r\n\r\n' | nc {server}"));
        agent.apply(name, &format!("{script}hostNetwork: {host_network}\n"));
        let pod = agent.wait_phase(name, "Succeeded");
        let output = agent.output(&pod, "main", 0);
        assert!(output.contains("HTTP/1.0 400 Bad Request"), "{name}: {output}");
    }
}
