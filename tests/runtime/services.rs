//! Services with kubectl on real containers: addresses, names and node ports, endpoints that come and go, bad input,
//! kills, a machine whose firewall is restarted.

use crate::support::agent::Agent;
use crate::support::kubectl::Kubectl;
use crate::support::lab::Runtime;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::{Child, Command};
use std::time::Duration;

const IMAGE: &str = "localhost/busybox:1.35";

/// A Deployment of web servers that answer with a version and the names of their pods. On a signal, a server accepts no
/// more connections, and ends the requests that it has.
fn servers(name: &str, replicas: u32, version: &str) -> String {
    let run = format!(
        "mkdir /w; echo {version} $(hostname) > /w/name; httpd -f -p 8080 -h /w & trap 'kill $!; sleep 1; exit' TERM; wait"
    );
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}}}\nspec:\n  replicas: {replicas}\n  selector: \
         {{matchLabels: {{app: {name}}}}}\n  template:\n    metadata: {{labels: {{app: {name}}}}}\n    spec:\n      \
         terminationGracePeriodSeconds: 5\n      containers:\n      - name: main\n        image: {IMAGE}\n        \
         command: [sh, -c, \"{run}\"]\n        ports: [{{name: http, containerPort: 8080}}]\n        readinessProbe: \
         {{httpGet: {{path: /name, port: http}}, periodSeconds: 1}}\n"
    )
}

fn service(name: &str, spec: &str) -> String {
    format!("apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n")
}

/// A pod that waits for commands.
fn client(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  \
         - {{name: main, image: '{IMAGE}', command: [sleep, '1000']}}\n"
    )
}

fn apply(k: &Kubectl, name: &str, text: &str) {
    k.ok(&["apply", "-f", &k.file(&format!("{name}.yaml"), text)]);
}

fn cells(k: &Kubectl, args: &[&str]) -> Vec<String> {
    let all: Vec<&str> = args.iter().copied().chain(["--no-headers"]).collect();
    k.ok(&all).split_whitespace().map(str::to_owned).collect()
}

/// An agent whose services have addresses of their own, because all agents of the tests share a network.
pub fn agent(name: &str, range: &str) -> (Agent, Kubectl) {
    let mut agent = Agent::prepare(name, &Runtime::shared());
    agent.serve_kubectl();
    let text = format!("apiVersion: wherry.io/v1alpha1\nkind: WherryConfiguration\nserviceClusterIPRange: {range}\n");
    fs::write(agent.dir.join("config.d/40-services.yaml"), text).expect("a drop-in");
    agent.run_with_kubectl();
    let k = Kubectl::newest(&agent, name);
    (agent, k)
}

/// Two servers behind the service `web`, and the pod `client`. Returns the address of the service.
fn serving(k: &Kubectl, spec: &str) -> String {
    apply(k, "web", &servers("web", 2, "v1"));
    apply(k, "svc", &service("web", spec));
    apply(k, "client", &client("client"));
    k.ok(&["rollout", "status", "deploy/web", "--timeout=60s"]);
    k.ok(&["wait", "--for=condition=Ready", "pod/client", "--timeout=60s"]);
    k.ok(&["get", "svc", "web", "-o", "jsonpath={.spec.clusterIP}"])
}

const WEB: &str = "selector: {app: web}, ports: [{port: 80, targetPort: http}]";

/// What the server at this address says to a pod. None: it says nothing within 3 s.
fn said(k: &Kubectl, pod: &str, to: &str, port: u16) -> Option<String> {
    let run = format!("printf 'GET /name HTTP/1.0\\r\\n\\r\\n' | timeout 3 nc {to} {port} | tail -n 1");
    let printed = k.run_words(&["exec", pod, "--", "sh", "-c", &run], b"");
    Some(printed.out.trim().to_owned()).filter(|text| !text.is_empty())
}

/// What the server says to this machine.
fn said_here(to: &str, port: u16) -> Option<String> {
    let mut stream = TcpStream::connect((to, port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    stream.write_all(b"GET /name HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text.lines().last().unwrap_or_default().to_owned()).filter(|text| text.starts_with('v'))
}

/// The addresses that the hosts file of a pod has for a name.
fn resolved(k: &Kubectl, pod: &str, name: &str) -> BTreeSet<String> {
    let text = k.ok(&["exec", pod, "--", "cat", "/etc/hosts"]);
    let lines = text.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let found = lines.filter(|words| words.iter().skip(1).any(|word| *word == name));
    found.filter_map(|words| words.first().map(|ip| (*ip).to_owned())).collect()
}

/// The tables of all agents in the kernel.
pub fn rules() -> String {
    let output = Command::new("nft").args(["list", "ruleset"]).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").output();
    String::from_utf8(output.expect("nft").stdout).expect("UTF-8")
}

#[test]
fn y24_a_service_is_reached_by_its_name_its_address_and_its_node_port() {
    let (mut agent, k) = agent("services", "10.97.1.0/24");
    let to = serving(&k, &format!("type: NodePort, {WEB}"));
    let port: u16 = k.ok(&["get", "svc", "web", "-o", "jsonpath={.spec.ports[0].nodePort}"]).parse().expect("a port");
    assert_eq!(cells(&k, &["get", "svc", "web"])[..5], ["web", "NodePort", &to, "<none>", &format!("80:{port}/TCP")]);
    agent.wait("the service answers", |_| said(&k, "client", &to, 80).is_some());
    for name in ["web", "web.services-0", "web.services-0.svc", "web.services-0.svc.cluster.local"] {
        let name = name.replace("services-0", &agent.namespace);
        assert_eq!(resolved(&k, "client", &name), BTreeSet::from([to.clone()]), "{name}");
    }
    let pods: Vec<String> = cells(&k, &["get", "pods", "-l", "app=web", "-o", "name"]);
    let all: BTreeSet<String> = pods.iter().map(|pod| format!("v1 {}", pod.trim_start_matches("pod/"))).collect();
    let answers = |pod: &str| (0..40).filter_map(|_| said(&k, pod, &to, 80)).collect::<BTreeSet<_>>();
    assert_eq!(answers("client"), all);
    // A pod reaches itself and the other one through the service, and this machine reaches them too.
    let server = pods[0].trim_start_matches("pod/");
    assert_eq!(answers(server), all);
    let here = k.ok(&["get", "node", "-o", "jsonpath={.items[0].status.addresses[0].address}"]);
    assert!(said_here(&here, port).is_some_and(|text| all.contains(&text)), "the node port {here}:{port}");
    assert!(said(&k, "client", &here, port).is_some_and(|text| all.contains(&text)), "the node port, from a pod");
    let described = k.ok(&["describe", "svc", "web"]);
    for part in ["app=web", &to, "NodePort", "Endpoints:", ":8080"] {
        assert!(described.contains(part), "{part}: {described}");
    }
    assert_eq!(
        k.ok(&["get", "endpointslices", "-o", "jsonpath={.items[0].endpoints[*].conditions.ready}"]),
        "true true"
    );
    assert!(k.ok(&["get", "all"]).contains("service/web"));

    // Without Wherry, everything goes on; and then too.
    agent.kill();
    assert!(said_here(&here, port).is_some());
    agent.run_with_kubectl();
    agent.wait("kubectl works", |_| k.run("get svc web").code == 0);
    assert_eq!(k.ok(&["get", "svc", "web", "-o", "jsonpath={.spec.clusterIP}"]), to);
    assert!(said(&k, "client", &to, 80).is_some());

    k.ok(&["delete", "svc", "web"]);
    agent.wait("the rules and the names are gone", |_| {
        !rules().contains(&to) && resolved(&k, "client", "web").is_empty()
    });
}

#[test]
fn y26_a_rollout_loses_no_request() {
    let (agent, k) = agent("rollout", "10.97.2.0/24");
    let to = serving(&k, WEB);
    agent.wait("the service answers", |_| said(&k, "client", &to, 80).is_some());
    // A client without a pause, until the roll-out is over.
    let run = format!(
        "while [ ! -e /stop ]; do printf 'GET /name HTTP/1.0\\r\\n\\r\\n' | timeout 5 nc {to} 80 | tail -n 1 | grep ^v || \
         echo lost; done"
    );
    k.ok(&["exec", "client", "--", "sh", "-c", &format!("cat > /requests <<'END'\n{run}\nEND")]);
    let requests = k.start("exec client -- sh /requests");
    requests.wait(&["v1"]);
    apply(&k, "web", &servers("web", 2, "v2"));
    k.ok(&["rollout", "status", "deploy/web", "--timeout=60s"]);
    agent.wait("the old pods are gone", |_| cells(&k, &["get", "pods", "-l", "app=web", "-o", "name"]).len() == 2);
    k.ok(&["exec", "client", "--", "touch", "/stop"]);
    requests.wait(&["v2"]);
    let lines = requests.lines();
    let lost = lines.iter().filter(|line| line.contains("lost")).count();
    assert!(lost == 0 && lines.len() > 20, "{lost} of {} requests are lost: {lines:?}", lines.len());
}

#[test]
fn y26_rules_that_a_firewall_removes_and_pods_that_are_not_ready() {
    let (agent, k) = agent("flushed", "10.97.3.0/24");
    let to = serving(&k, WEB);
    agent.wait("the service answers", |_| said(&k, "client", &to, 80).is_some());
    k.ok(&["scale", "deploy/web", "--replicas=0"]);
    agent.wait("no server answers", |_| said(&k, "client", &to, 80).is_none());
    // Refused at once, and not after a timeout.
    let run = format!("time nc {to} 80");
    let refused = k.run_words(&["exec", "client", "--", "sh", "-c", &run], b"");
    assert!(refused.err.contains("refused") || refused.err.contains("real\t0m 0"), "{}", refused.err);
    k.ok(&["scale", "deploy/web", "--replicas=1"]);
    agent.wait("a server answers again", |_| said(&k, "client", &to, 80).is_some());
    let all = rules();
    let of_agent = all.split("table ").find(|part| part.contains(&to)).expect("a table");
    let name = of_agent.split_whitespace().nth(1).expect("a name");
    let removed = Command::new("/usr/sbin/nft").args(["delete", "table", "inet", name]).status().expect("nft");
    assert!(removed.success());
    assert!(said(&k, "client", &to, 80).is_none());
    agent.wait("the table is back", |_| rules().contains(&to));
    assert!(said(&k, "client", &to, 80).is_some());
    assert!(k.ok(&["get", "events", "-A"]).contains("ServiceRulesLost"));
}

/// A process that ends when this is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Another machine: a network namespace with a cable to this one. Dropping it removes both.
struct Machine {
    keeper: Process,
}

impl Machine {
    /// This machine has the address `NETWORK.1` on the cable, and the other one `NETWORK.2`.
    fn connect(name: &str, network: &str) -> Machine {
        let process = Command::new("unshare").args(["-n", "sleep", "1000"]).spawn().expect("unshare");
        let mut machine = Machine { keeper: Process(process) };
        let pid = machine.keeper.0.id().to_string();
        let name_of_process = || fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        while name_of_process() != "sleep\n" {
            assert!(machine.keeper.0.try_wait().is_ok_and(|end| end.is_none()), "unshare has ended");
            std::thread::sleep(Duration::from_millis(10));
        }
        let here = format!(
            "ip link add {name} type veth peer name eth0 netns {pid} && ip addr add {network}.1/24 dev {name} && ip link set \
             {name} up"
        );
        let output = Command::new("sh").args(["-c", &here]).output().expect("sh");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        machine.run(&format!("ip addr add {network}.2/24 dev eth0 && ip link set eth0 up && ip link set lo up"));
        machine
    }

    fn command(&self, script: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.keeper.0.id().to_string(), "-n", "sh", "-c", script]);
        command
    }

    fn serve(&self, script: &str) -> Process {
        Process(self.command(script).spawn().expect("nsenter"))
    }

    fn run(&self, script: &str) -> String {
        let output = self.command(script).output().expect("nsenter");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

#[test]
fn y28_a_client_outside_reaches_a_server_outside() {
    let (agent, k) = agent("outside", "10.97.6.0/24");
    let (client, server) = (Machine::connect("wy-client", "10.98.1"), Machine::connect("wy-server", "10.98.2"));
    // The server has no route to the client.
    client.run("ip route add default via 10.98.1.1");
    let _serves = server.serve("exec busybox nc -ll -p 8080 -e echo outside");
    apply(&k, "printer", &service("printer", "type: NodePort, ports: [{port: 80}]"));
    apply(&k, "slice", &slice("printer", "port: 8080", "10.98.2.2"));
    let port = k.ok(&["get", "svc", "printer", "-o", "jsonpath={.spec.ports[0].nodePort}"]);
    let ask = format!("timeout 2 busybox nc 10.98.1.1 {port} </dev/null");
    agent.wait("the server answers the client", |_| client.run(&ask).trim() == "outside");
}

#[test]
fn y26_a_conversation_over_udp_goes_on_with_the_next_endpoint() {
    const ECHO: &str = "exec perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(LocalPort => 5000, Proto => \"udp\") or \
                        die; while ($s->recv($d, 100)) { $s->send($ARGV[0]) }' ";
    let (agent, k) = agent("udp", "10.97.7.0/24");
    let (first, second) = (Machine::connect("wy-first", "10.98.3"), Machine::connect("wy-second", "10.98.4"));
    let _serve = (first.serve(&format!("{ECHO} first")), second.serve(&format!("{ECHO} second")));
    apply(&k, "log", &service("log", "type: NodePort, ports: [{port: 514, protocol: UDP}]"));
    let port: u16 = k.ok(&["get", "svc", "log", "-o", "jsonpath={.spec.ports[0].nodePort}"]).parse().expect("a port");
    let client = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    client.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    // The client never pauses. It begins before there is an endpoint.
    let ask = || {
        let mut answer = [0; 100];
        client.send_to(b"?", ("10.98.3.1", port)).ok()?;
        let length = client.recv(&mut answer).ok()?;
        Some(String::from_utf8_lossy(&answer[..length]).into_owned())
    };
    assert!((0..5).all(|_| ask().is_none()));
    apply(&k, "slice", &slice("log", "port: 5000, protocol: UDP", "10.98.3.2"));
    agent.wait("the first server answers", |_| ask().as_deref() == Some("first"));
    apply(&k, "slice", &slice("log", "port: 5000, protocol: UDP", "10.98.4.2"));
    agent.wait("the second server answers", |_| ask().as_deref() == Some("second"));
}

/// An EndpointSlice with one address.
fn slice(service: &str, port: &str, address: &str) -> String {
    format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {service}-1, labels: \
         {{kubernetes.io/service-name: {service}}}}}\naddressType: IPv4\nports: [{{{port}}}]\nendpoints: [{{addresses: \
         [{address}]}}]\n"
    )
}

#[test]
fn y27_y28_headless_services_and_services_of_slices() {
    let (agent, k) = agent("headless", "10.97.4.0/24");
    let to = serving(&k, "clusterIP: None, selector: {app: web}, ports: [{port: 8080}]");
    assert_eq!(to, "None");
    let ready = || {
        let text = k.ok(&["get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].status.podIP}"]);
        text.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>()
    };
    agent.wait("the client knows both pods", |_| resolved(&k, "client", "web") == ready() && ready().len() == 2);
    k.ok(&["scale", "deploy/web", "--replicas=1"]);
    agent.wait("the client knows one pod", |_| resolved(&k, "client", "web").len() == 1);
    agent.wait("one pod is left", |_| ready().len() == 1);
    let pod = ready().pop_first().expect("an address");
    apply(&k, "db", &service("db", "ports: [{port: 80}]"));
    apply(&k, "slice", &slice("db", "port: 8080", &pod));
    let to = k.ok(&["get", "svc", "db", "-o", "jsonpath={.spec.clusterIP}"]);
    agent.wait("the service of the slice answers", |_| said(&k, "client", &to, 80).is_some());
    for (text, part) in [
        (service("bad", "type: ExternalName, externalName: example.com"), "externalName"),
        (service("bad", "type: LoadBalancer, loadBalancerSourceRanges: [10.0.0.0/8], ports: [{port: 80}]"), "firewall"),
        (service("Bad", "ports: [{port: 80}]"), "metadata.name"),
        (service("bad", "ports: [{port: 0}]"), "spec.ports[0].port"),
        (service("bad", "ports: [{port: 80}], nonsense: 1"), "nonsense"),
    ] {
        let why = k.fails(&["apply", "-f", &k.file("bad.yaml", &text)]);
        assert!(why.contains(part), "{part}: {why}");
    }
}

#[test]
fn kubectl_exposes_forwards_and_edits_services() {
    let (agent, k) = agent("exposed", "10.97.5.0/24");
    apply(&k, "web", &servers("web", 1, "v1"));
    k.ok(&["expose", "deploy", "web", "--port=80", "--target-port=8080"]);
    k.ok(&["rollout", "status", "deploy/web", "--timeout=60s"]);
    agent.wait("the service has an endpoint", |_| cells(&k, &["get", "endpoints", "web"])[1].ends_with(":8080"));
    k.ok(&["patch", "svc", "web", "-p", "{\"spec\": {\"type\": \"NodePort\"}}"]);
    let port = k.ok(&["get", "svc", "web", "-o", "jsonpath={.spec.ports[0].nodePort}"]);
    assert!(port.parse::<u16>().is_ok_and(|port| (30000..=32767).contains(&port)), "{port}");
    assert!(k.ok(&["logs", "deploy/web"]).is_empty());
    let forward = k.start("port-forward svc/web :80 --address 127.0.0.1");
    let line = forward.wait(&["Forwarding from 127.0.0.1:"]);
    let port = line.split("127.0.0.1:").nth(1).and_then(|rest| rest.split_whitespace().next());
    let port: u16 = port.and_then(|port| port.parse().ok()).expect("a port");
    agent.wait("the forwarded port answers", |_| said_here("127.0.0.1", port).is_some());
    // A port is identified by its number.
    for ports in ["{name: a, port: 80}", "{name: b, port: 81, targetPort: 8080}, {name: a, port: 80}"] {
        apply(&k, "two", &service("two", &format!("selector: {{app: web}}, ports: [{ports}]")));
    }
    let ports =
        k.ok(&["get", "svc", "two", "-o", "jsonpath={range .spec.ports[*]}{.name}={.port}/{.targetPort} {end}"]);
    assert_eq!(ports, "b=81/8080 a=80/80 ");
    k.ok(&["delete", "svc", "web", "two"]);
    assert!(k.fails(&["get", "endpoints", "web"]).contains("not found"));
}
