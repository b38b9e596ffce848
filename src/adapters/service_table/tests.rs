//! The text of the script, and the same scripts with the real `nft` in a network namespace.

use super::*;
use crate::api::service_table::{Balance, Entrance, Forward, Protocol, UdpFlows};
use crate::api::uid::digest_of_bytes;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const NAME: &str = "wherry";
const LONG: Duration = Duration::from_secs(60);

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn sockets(texts: &[&str]) -> Vec<SocketAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn at(text: &str) -> Entrance {
    Entrance::Address(text.parse().unwrap())
}

fn random(protocol: Protocol, from: Vec<Entrance>, to: &[&str]) -> Forward {
    Forward { protocol, from, to: Balance::Random(sockets(to)) }
}

fn by_client(protocol: Protocol, from: Vec<Entrance>, to: &[&str]) -> Forward {
    Forward { protocol, from, to: Balance::ByClient(sockets(to)) }
}

/// A table with each kind of rule.
fn example() -> ServiceTable {
    let six = ["[fd01::2]:80", "[fd01::1]:80"];
    ServiceTable {
        addresses: ips(&["10.96.0.1", "10.96.0.10", "fd00::1"]),
        pods: ips(&["10.1.0.2", "10.1.0.1", "fd01::1"]),
        outside: ips(&["fd01::2"]),
        forwards: vec![
            random(
                Protocol::Tcp,
                vec![at("10.96.0.1:80"), at("192.0.2.7:80"), Entrance::NodePort(30080)],
                &["10.1.0.1:8080", "10.1.0.2:8080"],
            ),
            by_client(Protocol::Udp, vec![at("10.96.0.10:53")], &["10.1.0.1:53", "10.1.0.2:53", "10.1.0.1:53"]),
            random(Protocol::Sctp, vec![at("[fd00::1]:80")], &six[..1]),
            by_client(Protocol::Tcp, vec![at("[fd00::1]:80"), Entrance::NodePort(30080)], &six),
        ],
    }
}

/// The first forward gets each entrance that is in several of them.
fn duplicates() -> ServiceTable {
    let entrances = vec![at("10.96.0.1:80"), at("10.96.0.1:80"), Entrance::NodePort(30080), Entrance::NodePort(30080)];
    let scoped = SocketAddr::V6(std::net::SocketAddrV6::new("fd00::1".parse().unwrap(), 80, 1, 2));
    ServiceTable {
        addresses: ips(&["10.96.0.1", "10.96.0.1"]),
        pods: ips(&["10.1.0.1", "10.1.0.1"]),
        outside: ips(&["fd01::1", "fd01::1"]),
        forwards: vec![
            random(Protocol::Tcp, entrances.clone(), &["10.1.0.1:1", "10.1.0.1:1"]),
            random(Protocol::Tcp, entrances, &["10.1.0.1:2"]),
            random(Protocol::Tcp, vec![at("10.96.0.1:80"), at("10.96.0.1:81")], &["10.1.0.1:3"]),
            random(Protocol::Udp, vec![at("10.96.0.1:80"), Entrance::NodePort(30080)], &["10.1.0.1:4"]),
            random(Protocol::Tcp, vec![at("[fd00::1]:80"), Entrance::Address(scoped)], &["[fd01::1]:5"]),
        ],
    }
}

/// No forward of this table can be used.
fn unusable() -> ServiceTable {
    let four = || vec![at("10.96.0.1:80")];
    ServiceTable {
        forwards: vec![
            random(Protocol::Tcp, four(), &[]),
            random(Protocol::Tcp, four(), &["[fd01::1]:80"]),
            random(Protocol::Tcp, four(), &["10.1.0.1:80", "[fd01::1]:80"]),
            random(Protocol::Tcp, vec![], &["10.1.0.1:80"]),
            by_client(Protocol::Tcp, vec![at("[fd00::1]:80"), at("10.96.0.1:80")], &["10.1.0.1:80"]),
        ],
        ..ServiceTable::default()
    }
}

fn large(services: u32, pods: u32) -> ServiceTable {
    let address = |net: u32, index: u32| IpAddr::V4(std::net::Ipv4Addr::from_bits(net + index));
    let (pod, service) = (0x0a01_0001, 0x0a60_0001);
    let to: Vec<SocketAddr> = (0..pods).map(|index| SocketAddr::new(address(pod, index), 80)).collect();
    let forward = |index| Forward {
        protocol: Protocol::Tcp,
        from: vec![Entrance::Address(SocketAddr::new(address(service, index), 80))],
        to: Balance::Random(to.clone()),
    };
    ServiceTable {
        addresses: (0..services).map(|index| address(service, index)).collect(),
        pods: to.iter().map(SocketAddr::ip).collect(),
        outside: Vec::new(),
        forwards: (0..services).map(forward).collect(),
    }
}

const EXAMPLE: &str = "\
table inet wherry
delete table inet wherry
table inet wherry {
  set addresses4 { type ipv4_addr; elements = { 10.96.0.1, 10.96.0.10 } }
  set pods4 { type ipv4_addr; elements = { 10.1.0.1, 10.1.0.2 } }
  set outside4 { type ipv4_addr; }
  map entrances4 { type ipv4_addr . inet_proto . inet_service : verdict; }
  map ports4 { type inet_proto . inet_service : verdict; }
  set addresses6 { type ipv6_addr; elements = { fd00::1 } }
  set pods6 { type ipv6_addr; elements = { fd01::1 } }
  set outside6 { type ipv6_addr; elements = { fd01::2 } }
  map entrances6 { type ipv6_addr . inet_proto . inet_service : verdict; }
  map ports6 { type inet_proto . inet_service : verdict; }
  chain forward-0 { meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.1.0.1 . 8080, 1 : 10.1.0.2 . 8080 }; }
  chain forward-1 { meta l4proto udp dnat ip to jhash ip saddr mod 3 seed 0x1 map { 0 : 10.1.0.1 . 53, \
1 : 10.1.0.2 . 53, 2 : 10.1.0.1 . 53 }; }
  chain forward-2 { meta l4proto sctp dnat ip6 to numgen random mod 1 map { 0 : fd01::2 . 80 }; }
  chain forward-3 { meta l4proto tcp dnat ip6 to jhash ip6 saddr mod 2 seed 0x1 map { 0 : fd01::2 . 80, \
1 : fd01::1 . 80 }; }
  chain services {
    ip daddr . meta l4proto . th dport vmap @entrances4
    ip6 daddr . meta l4proto . th dport vmap @entrances6
    meta nfproto ipv4 ip daddr != 127.0.0.0/8 fib daddr type local meta l4proto . th dport vmap @ports4
    meta nfproto ipv6 ip6 daddr != ::1 fib daddr type local meta l4proto . th dport vmap @ports6
  }
  chain prerouting { type nat hook prerouting priority dstnat; jump services; }
  chain output { type nat hook output priority -100; jump services; }
  chain postrouting {
    type nat hook postrouting priority srcnat - 1;
    ct status dnat ip saddr @pods4 ip daddr @pods4 masquerade
    ct status dnat ip6 saddr @pods6 ip6 daddr @pods6 masquerade
    ct status dnat ip daddr @outside4 masquerade
    ct status dnat ip6 daddr @outside6 masquerade
  }
  chain unmatched {
    meta l4proto tcp reject with tcp reset
    reject
  }
  chain reject-prerouting {
    type filter hook prerouting priority dstnat + 1;
    ip daddr @addresses4 goto unmatched
    ip6 daddr @addresses6 goto unmatched
  }
  chain reject-output {
    type filter hook output priority filter;
    ip daddr @addresses4 goto unmatched
    ip6 daddr @addresses6 goto unmatched
  }
}
add element inet wherry entrances4 {
  10.96.0.1 . tcp . 80 : goto forward-0,
  192.0.2.7 . tcp . 80 : goto forward-0,
  10.96.0.10 . udp . 53 : goto forward-1
}
add element inet wherry entrances6 {
  fd00::1 . sctp . 80 : goto forward-2,
  fd00::1 . tcp . 80 : goto forward-3
}
add element inet wherry ports4 {
  tcp . 30080 : goto forward-0
}
add element inet wherry ports6 {
  tcp . 30080 : goto forward-3
}
";

#[test]
fn the_script_replaces_the_table_and_names_its_version() {
    let digest = digest_of_bytes(EXAMPLE.as_bytes());
    let name = format!("version-{}", &digest[..16]);
    assert_eq!(script(&example(), NAME), format!("{EXAMPLE}add chain inet wherry {name}\n"));
    assert_eq!(version(&example(), NAME), name);
    assert_ne!(version(&duplicates(), NAME), name);
}

#[test]
fn the_script_of_an_empty_table_only_removes_it() {
    let pods = ServiceTable { pods: ips(&["10.1.0.1"]), ..ServiceTable::default() };
    assert_eq!(script(&pods, NAME), "table inet wherry\ndelete table inet wherry\n");
    let addresses = ServiceTable { addresses: ips(&["10.96.0.1"]), ..ServiceTable::default() };
    let text = script(&addresses, NAME);
    assert!(text.contains("elements = { 10.96.0.1 }") && text.contains("goto unmatched"), "{text}");
    assert!(!text.contains("add element"), "{text}");
}

#[test]
fn the_first_of_several_forwards_gets_the_entrance() {
    let text = script(&duplicates(), NAME);
    let chains: Vec<&str> = text.lines().filter(|line| line.starts_with("  chain forward-")).collect();
    assert_eq!(chains.len(), 4, "none for the second forward, which has no entrance of its own: {text}");
    assert!(text.contains("set addresses4 { type ipv4_addr; elements = { 10.96.0.1 } }"), "{text}");
    assert!(text.contains("set pods4 { type ipv4_addr; elements = { 10.1.0.1 } }"), "{text}");
    let elements: Vec<&str> = text.lines().filter(|line| line.contains(" : goto ")).map(str::trim).collect();
    let expected = [
        "10.96.0.1 . tcp . 80 : goto forward-0,",
        "10.96.0.1 . tcp . 81 : goto forward-2,",
        "10.96.0.1 . udp . 80 : goto forward-3",
        "fd00::1 . tcp . 80 : goto forward-4",
        "tcp . 30080 : goto forward-0,",
        "udp . 30080 : goto forward-3",
    ];
    assert_eq!(elements, expected);
}

#[test]
fn forwards_without_places_or_of_two_families_are_ignored() {
    let text = script(&unusable(), NAME);
    assert!(!text.contains("forward-0") && !text.contains("goto forward"), "{text}");
}

#[test]
fn the_length_of_the_script_is_linear() {
    let [some, all] = [script(&large(100, 110), NAME).len(), script(&large(1000, 110), NAME).len()];
    assert!(all < 11 * some, "{some}, {all}");
}

/// Runs a shell script in place of `nft`.
fn shell(script: &str, timeout: Duration) -> Nft {
    Nft { command: ["sh", "-c", script].map(OsString::from).to_vec(), timeout }
}

fn place() -> (tempfile::TempDir, KernelPlace) {
    let directory = tempfile::tempdir().unwrap();
    let marker = directory.path().join("marker");
    (directory, KernelPlace { name: NAME.to_owned(), marker })
}

#[test]
fn the_marker_exists_before_a_table_and_goes_after_it() {
    let (_directory, place) = place();
    let marker = &place.marker;
    let exists = || place.may_have_table();
    let none = ServiceTable::default();
    let must_not_run = shell("exit 9", LONG);
    must_not_run.apply(&none, &place).unwrap();
    assert_eq!((must_not_run.remove(&place), exists()), (Ok(false), false));
    let seen = format!("cat >/dev/null; test -e {}", marker.display());
    shell(&seen, LONG).apply(&example(), &place).unwrap();
    assert!(exists());
    assert_eq!(fs::metadata(marker).unwrap().permissions().mode() & 0o7777, 0o600);
    assert!(must_not_run.apply(&none, &place).is_err() && must_not_run.remove(&place).is_err());
    assert!(exists(), "the kernel may still have the table");
    let removes = "read a; read b; test \"$a:$b\" = 'table inet wherry:delete table inet wherry'";
    assert_eq!((shell(removes, LONG).remove(&place), exists()), (Ok(true), false));
    let nowhere = KernelPlace { marker: "/nonexistent/marker".into(), ..place.clone() };
    let missing = must_not_run.apply(&example(), &nowhere).unwrap_err();
    assert!(missing.starts_with("failed to create /nonexistent/marker: No such file"), "{missing}");
}

#[test]
fn a_failure_shows_the_status_the_first_lines_and_the_remedy() {
    let (_directory, place) = place();
    let fails = |script: &str| shell(script, LONG).apply(&large(1000, 1), &place).unwrap_err();
    let why = fails("exec <&-; printf 'Error: syntax\\033\\nthis line\\n ^^^ ~~\\nthree\\nfour\\n' >&2; exit 3");
    let expected = "nft failed with exit status: 3: Error: syntax\\x1b | this line | three; check that the kernel";
    assert!(why.starts_with(expected), "{why}");
    let why = fails("echo 'Operation not permitted (you must be root)' >&2; exit 1");
    assert!(why.ends_with("(you must be root); run Wherry as root, with CAP_NET_ADMIN"), "{why}");
    let why = fails("head -c 3000000 /dev/zero | tr '\\0' x >&2; exit 1");
    assert!(why.len() < 500, "{}", why.len());
    let why = shell("kill -9 $$", LONG).is_in_force(&example(), &place).unwrap_err();
    assert!(why.starts_with("nft failed with signal: 9"), "{why}");
}

#[test]
fn the_error_output_is_limited() {
    let command = ["sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x >&2"].map(OsString::from);
    let end = program::run(&command, "", clock::boot() + LONG).unwrap();
    assert_eq!((end.status.success(), end.errors.len()), (true, 4096));
}

#[test]
fn a_program_that_hangs_is_killed() {
    let (_directory, place) = place();
    let short = Duration::from_millis(300);
    // The program does not read; it closes its error output; its child keeps that open.
    for script in ["sleep 1000; exit", "exec 2>&-; sleep 1000; exit", "sleep 1000 & exit 0"] {
        let why = shell(script, short).apply(&large(1000, 1), &place).unwrap_err();
        assert_eq!(why, "sh did not end in time; killed", "{script}");
        assert!(place.may_have_table());
    }
}

#[test]
fn the_program_gets_a_plain_environment() {
    let (_directory, place) = place();
    let script = "case $PATH in */usr/sbin:*:/sbin:*) ;; *) exit 4 ;; esac; \
                  test \"$LC_ALL\" = C && test -z \"$HOME\" && test \"$0:$1\" = list:chain || exit 5";
    assert_eq!(shell(script, LONG).is_in_force(&example(), &place), Ok(true));
}

#[test]
fn a_missing_program_has_a_remedy() {
    let (_directory, place) = place();
    let why = Nft { command: vec!["wherry-none".into()], timeout: LONG }.is_in_force(&example(), &place).unwrap_err();
    assert_eq!(why, "wherry-none is not installed");
}

/// A process that keeps a network namespace. Dropping it ends the process.
struct NamespaceHolder {
    child: Child,
    enter: Vec<OsString>,
}

impl Drop for NamespaceHolder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl NamespaceHolder {
    /// Returns why the machine cannot have one.
    fn start() -> Result<NamespaceHolder, String> {
        let is_root = rustix::process::geteuid().is_root();
        let option = if is_root { "-n" } else { "-rn" };
        let mut command = Command::new("unshare");
        command.args([option, "sleep", "1000"]).stdin(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|e| format!("unshare: {e}"))?;
        let target = child.id().to_string();
        let mut enter = vec!["nsenter", "-t", &target, "-n"];
        if !is_root {
            enter.extend(["-U", "--preserve-credentials"]);
        }
        let enter = enter.into_iter().map(OsString::from).collect();
        let mut holder = NamespaceHolder { child, enter };
        let end = Instant::now() + LONG;
        let name = |process: &str| fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        while name(&target) != "sleep\n" {
            if holder.child.try_wait().is_ok_and(|status| status.is_some()) || Instant::now() > end {
                return Err("unshare: a network namespace is not permitted".to_owned());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        holder.nft(&["list", "ruleset"])?;
        Ok(holder)
    }

    fn nft(&self, arguments: &[&str]) -> Result<String, String> {
        self.run("nft", arguments)
    }

    /// Runs a program in the namespace, and returns its output.
    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(&self.enter[0]);
        command.args(&self.enter[1..]).arg(program).args(arguments).env("LC_ALL", "C");
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let output = command.output().map_err(|e| format!("nsenter: {e}"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// The adapter in this namespace.
    fn adapter(&self) -> Nft {
        let command = self.enter.iter().cloned().chain(["nft".into()]).collect();
        Nft { command, timeout: LONG }
    }
}

/// Runs a test in a network namespace, if the machine permits one and has `nft`.
fn in_namespace(test: impl FnOnce(&NamespaceHolder)) {
    match NamespaceHolder::start() {
        Ok(holder) => test(&holder),
        Err(why) => eprintln!("skipped: needs nft and a network namespace: {}", why.trim()),
    }
}

#[test]
fn nft_accepts_each_script_and_reads_back_what_is_in_force() {
    in_namespace(|holder| {
        let (_directory, place) = place();
        let (nft, none) = (holder.adapter(), ServiceTable::default());
        assert_eq!((nft.is_in_force(&example(), &place), nft.is_in_force(&none, &place)), (Ok(false), Ok(true)));
        let addresses = ServiceTable { addresses: ips(&["10.96.0.1", "fd00::1"]), ..ServiceTable::default() };
        for table in [example(), duplicates(), unusable(), addresses] {
            nft.apply(&table, &place).unwrap();
            let first = holder.nft(&["list", "ruleset"]).unwrap();
            nft.apply(&table, &place).unwrap();
            assert_eq!(holder.nft(&["list", "ruleset"]).unwrap(), first);
            assert_eq!((nft.is_in_force(&table, &place), nft.is_in_force(&large(1, 1), &place)), (Ok(true), Ok(false)));
            assert_eq!(nft.is_in_force(&none, &place), Ok(false));
        }
        holder.nft(&["flush", "ruleset"]).unwrap();
        assert_eq!(nft.is_in_force(&example(), &place), Ok(false));
        // The table of another program stays.
        holder.nft(&["add", "table", "inet", "other"]).unwrap();
        nft.apply(&example(), &place).unwrap();
        nft.apply(&none, &place).unwrap();
        assert_eq!(holder.nft(&["list", "ruleset"]).unwrap(), "table inet other {\n}\n");
        assert!(!place.may_have_table() && nft.is_in_force(&none, &place) == Ok(true));
        nft.apply(&example(), &place).unwrap();
        holder.nft(&["flush", "ruleset"]).unwrap();
        assert_eq!((nft.remove(&place), nft.remove(&place)), (Ok(true), Ok(false)), "the marker without a table");
    });
}

#[test]
fn a_script_that_nft_refuses_leaves_the_earlier_table() {
    in_namespace(|holder| {
        let (_directory, place) = place();
        let nft = holder.adapter();
        nft.apply(&example(), &place).unwrap();
        let text = script(&duplicates(), NAME) + "add chain inet wherry wrong { type nat hook forward priority 0; }\n";
        let end = nft.run(&["-f", "-"], &text).unwrap();
        assert!(!end.status.success() && failure(&end).contains("Error: "), "{}", failure(&end));
        assert_eq!(nft.is_in_force(&example(), &place), Ok(true));
    });
}

#[test]
fn nft_loads_a_large_table() {
    in_namespace(|holder| {
        let (_directory, place) = place();
        let (nft, table) = (holder.adapter(), large(1000, 110));
        let started = Instant::now();
        nft.apply(&table, &place).unwrap();
        let applied = started.elapsed();
        assert_eq!(nft.is_in_force(&table, &place), Ok(true));
        eprintln!("applied after {applied:?}, checked after {:?}", started.elapsed());
    });
}

#[test]
fn a_failure_of_conntrack_has_a_remedy() {
    let flows = UdpFlows { ports: [30053].into(), ..UdpFlows::default() };
    let run = |script: &str| udp_flows::run_all(&["sh", "-c", script].map(OsString::from), &flows, LONG);
    let why = run("echo 'Operation failed: no such module' >&2; exit 1").unwrap_err();
    let expected =
        "conntrack failed with exit status: 1: Operation failed: no such module; check that the kernel supports";
    assert!(why.starts_with(expected), "{why}");
    let why = run("echo 'Operation failed: Operation not permitted' >&2; exit 1").unwrap_err();
    assert!(why.ends_with("; run Wherry as root, with CAP_NET_ADMIN"), "{why}");
    assert_eq!(run("echo 'conntrack v1: 0 flow entries have been deleted.' >&2; exit 1"), Ok(()));
    assert_eq!(
        program::run(&["wherry-none".into()], "", clock::boot() + LONG).err().as_deref(),
        Some("wherry-none is not installed")
    );
}

#[test]
fn the_kernel_forgets_the_conversations_with_these_endpoints_and_ports_and_no_others() {
    in_namespace(|holder| {
        let begin = |number: u16, to: &str, port: u16, endpoint: &[&str]| {
            let (from, port) = (number.to_string(), port.to_string());
            let flow =
                ["-I", "-p", "udp", "-t", "1000", "-s", "192.0.2.1", "-d", to, "--sport", &from, "--dport", &port];
            holder.run("conntrack", &[&flow[..], endpoint].concat())
        };
        if let Err(why) = begin(1, "10.96.0.1", 53, &["--dst-nat", "10.1.0.1"]) {
            return eprintln!("skipped: needs conntrack: {}", why.trim());
        }
        begin(2, "10.96.0.1", 53, &["--dst-nat", "10.1.0.2"]).unwrap();
        begin(3, "192.0.2.9", 30053, &[]).unwrap();
        begin(4, "192.0.2.9", 99, &[]).unwrap();
        let left = || {
            let text = holder.run("conntrack", &["-L", "-p", "udp"]).unwrap();
            let has = |number: &u16| text.contains(&format!(" sport={number} "));
            (1..=4).filter(has).collect::<Vec<u16>>()
        };
        let program: Vec<OsString> = holder.enter.iter().cloned().chain(["conntrack".into()]).collect();
        let forget = |endpoints: &[IpAddr], ports: &[u16]| {
            let flows =
                UdpFlows { endpoints: endpoints.iter().copied().collect(), ports: ports.iter().copied().collect() };
            udp_flows::run_all(&program, &flows, LONG).unwrap();
        };
        assert_eq!(left(), [1, 2, 3, 4]);
        forget(&ips(&["10.1.0.1", "10.1.0.77", "fd01::1"]), &[]);
        assert_eq!(left(), [2, 3, 4]);
        forget(&[], &[30053, 30054]);
        assert_eq!(left(), [2, 4]);
        // With many endpoints, all conversations with services.
        let many: Vec<IpAddr> =
            (0..65).map(|index| IpAddr::V4(std::net::Ipv4Addr::from_bits(0x0a02_0000 + index))).collect();
        forget(&many, &[]);
        assert_eq!(left(), [4]);
    });
}
