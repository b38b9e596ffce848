//! Sessions over WebSockets at the node's server, with the protocols that an API server passes on.

use crate::support::agent::Agent;
use crate::support::control_plane::certificates::Authority;
use crate::support::lab::Runtime;
use crate::support::node_client::NodeClient;
use std::fs;

const POD: &str = "
    terminationGracePeriodSeconds: 1
    containers:
    - name: main
      image: localhost/busybox:1.35
      command: [sh, -c, 'mkdir /w; echo page > /w/index.html; exec httpd -f -p 8080 -h /w']
    - name: reader
      image: localhost/busybox:1.35
      command: [sh, -c, 'while read line; do echo \"got $line\"; done']
      stdin: true
";

/// An agent with a node's server. Its API server is never there, and every client with a certificate may do everything.
fn node(name: &str) -> (Agent, Authority) {
    let mut agent = Agent::prepare(name, &Runtime::shared());
    let authority = Authority::create(&agent.dir.join("authority"));
    authority.issue_to_client("admin", "admin", Some("system:masters"));
    let kubeconfig = agent.dir.join("kubeconfig");
    fs::write(&kubeconfig, authority.kubeconfig("admin", "https://127.0.0.1:9")).expect("a kubeconfig");
    agent.set_cluster(name, &kubeconfig);
    agent.configure("authorization: {mode: AlwaysAllow}\n");
    agent.run();
    (agent, authority)
}

#[test]
fn commands_and_ports_work_over_a_websocket_with_the_older_protocols() {
    let (agent, authority) = node("websocket");
    agent.apply("web", POD);
    agent.wait_running("web");
    agent.wait("the server has a certificate", |a| a.root().join("server/ca.crt").exists());
    let client = NodeClient::new(&agent, Some((&authority.path("admin.crt"), &authority.path("admin.key"))));
    let of = |kind: &str, container: &str, query: &str| format!("/{kind}/{}/web{container}?{query}", agent.namespace);
    let exec = |query: &str| of("exec", "/main", query);
    for protocol in ["channel.k8s.io", "v4.channel.k8s.io"] {
        let mut socket = client.websocket(&exec("command=echo&command=hello&output=1&error=1"), protocol).expect("101");
        socket.until(|_| false);
        assert_eq!(
            (socket.protocol.as_str(), socket.text(1).as_str(), socket.text(2).as_str()),
            (protocol, "hello\n", "")
        );
        // Only v4 reports the result in a form for programs.
        assert_eq!(socket.text(3).contains("\"status\":\"Success\""), protocol.starts_with("v4"), "{}", socket.text(3));
    }
    let v4 = "v4.channel.k8s.io";
    let mut failed = client.websocket(&exec("command=sh&command=-c&command=exit+3&output=1"), v4).expect("101");
    failed.until(|_| false);
    assert!(failed.text(3).contains("\"NonZeroExitCode\"") && failed.text(3).contains("\"3\""), "{}", failed.text(3));
    let mut input = client.websocket(&exec("command=head&command=-n1&input=1&output=1"), v4).expect("101");
    input.send(0, b"one line\nmore");
    input.until(|_| false);
    assert_eq!(input.text(1), "one line\n");
    let mut attached = client.websocket(&of("attach", "/reader", "input=1&output=1&error=1"), v4).expect("101");
    attached.send(0, b"x\n");
    attached.until(|received| received.get(&1).is_some_and(|bytes| bytes.ends_with(b"got x\n")));
    assert!(attached.text(1).ends_with("got x\n"), "{}", attached.text(1));
    // Each port has a channel for data and one for errors, which begin with the number of the port.
    let mut forwarded = client.websocket(&of("portForward", "", "port=8080"), v4).expect("101");
    forwarded.send(0, b"GET / HTTP/1.0\r\n\r\n");
    forwarded.until(|received| received.get(&0).is_some_and(|bytes| bytes.ends_with(b"page\n")));
    let port = 8080_u16.to_le_bytes();
    assert!(forwarded.received[&0].starts_with(&[&port[..], b"HTTP/1."].concat()), "{}", forwarded.text(0));
    assert_eq!(forwarded.received[&1], port);
    for (path, why) in [
        (of("portForward", "", ""), "port is missing"),
        (of("portForward", "", "port=0"), "is not a number from 1 to 65535"),
    ] {
        let Err(refused) = client.websocket(&path, v4) else { panic!("{path}") };
        assert!(refused.to_string().contains("400"), "{path}: {refused} instead of {why}");
    }
}
