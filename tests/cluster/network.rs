//! The addresses of the API server, in the eyes of a pod on the lab's runtime.

use crate::support::agent::Agent;
use crate::support::control_plane::ControlPlane;

#[test]
fn a_pod_reaches_the_api_server_at_both_addresses() {
    let plane = ControlPlane::shared();
    let agent = Agent::start("network");
    let service = format!("https://{}", plane.service_address);
    for (name, server, host_network) in
        [("direct", &plane.server, false), ("service", &service, false), ("host", &service, true)]
    {
        // The pod has no certificate of the CA here, so it verifies nothing.
        let command = format!("wget -T 60 -q -O - --no-check-certificate {server}/readyz");
        agent.apply(
            name,
            &format!(
                "hostNetwork: {host_network}\n  restartPolicy: Never\n  \
                 containers: [{{name: main, image: 'localhost/busybox:1.35', command: [sh, -c, '{command}']}}]"
            ),
        );
        let pod = agent.wait_phase(name, "Succeeded");
        let output = agent.output(&pod, "main", 0);
        assert_eq!(output.trim(), "ok", "{name}");
    }
}
