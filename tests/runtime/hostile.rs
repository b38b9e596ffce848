//! Attempts by unprivileged users and by unreviewed manifests.

use crate::support::agent::Agent;
use crate::support::http;
use crate::support::yaml::{self, TRAP};
use std::cell::RefCell;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

#[test]
fn a_manifest_that_multiplies_its_environment_is_an_error_and_ends_nothing() {
    let mut agent = Agent::start("doubling");
    agent.apply("good", TRAP);
    agent.wait_running("good");
    let mut spec = String::from("containers:\n- name: main\n  image: localhost/trap:1\n  env:\n");
    spec.push_str("  - {name: c0, value: aaaaaaaaaa}\n");
    for i in 1..32 {
        spec.push_str(&format!("  - {{name: c{i}, value: \"$(c{0})$(c{0})\"}}\n", i - 1));
    }
    let text = yaml::pod(&agent.namespace, "bomb", &spec);
    assert!(text.len() < 2000, "{}", text.len());
    agent.write("bomb.yaml", &text);
    let reported = |a: &Agent| {
        let status = String::from_utf8_lossy(&a.wherry(&["status"]).stdout).into_owned();
        status.contains("env[17].value: Too long: ") && status.contains("2097152 bytes")
    };
    agent.wait("it is reported", reported);
    let check = agent.command_of("check").arg(agent.manifests().join("bomb.yaml")).output().expect("check");
    let told = String::from_utf8_lossy(&check.stdout);
    assert!(told.contains("spec.containers[0].env[17].value: Too long: "), "{told}");
    assert_eq!(check.status.code(), Some(1));
    // Nor does it prevent the agent's start.
    agent.kill();
    agent.run();
    agent.wait("it is reported again", reported);
    agent.wait_running("good");
    assert_eq!(agent.pods().len(), 1);
    assert_eq!(agent.pod("good").expect("good")["status"]["containerStatuses"][0]["restartCount"], 0);
}

/// A client that sends requests until the agent cannot write any more, and reads nothing.
fn stuck(address: &str) -> TcpStream {
    let mut client = TcpStream::connect(address).expect("connect");
    rustix::net::sockopt::set_socket_recv_buffer_size(&client, 2048).expect("a small buffer");
    client.set_write_timeout(Some(Duration::from_millis(300))).expect("time-out");
    let requests = b"GET /livez?verbose HTTP/1.1\r\nHost: x\r\n\r\n".repeat(1000);
    loop {
        match client.write(&requests) {
            Ok(_) => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return client,
            // The agent closed this connection in favour of another one.
            Err(_) => return client,
        }
    }
}

#[test]
fn clients_that_never_read_do_not_hold_the_health_port() {
    let agent = Agent::start("stuck");
    let address = format!("127.0.0.1:{}", agent.healthz_port);
    agent.wait("it answers", |_| http::get_tcp(&address, "/livez").is_ok_and(|r| r.status == 200));
    // Four times the maximum number of connections, while a probe sends requests.
    let crowd: Vec<_> = (0..128)
        .map(|_| {
            let address = address.clone();
            std::thread::spawn(move || stuck(&address))
        })
        .collect();
    for _ in 0..20 {
        assert_eq!(http::get_tcp(&address, "/livez").expect("an answer").status, 200);
    }
    let crowd: Vec<TcpStream> = crowd.into_iter().map(|client| client.join().expect("a client")).collect();
    for _ in 0..5 {
        assert_eq!(http::get_tcp(&address, "/livez").expect("an answer").status, 200);
    }
    drop(crowd);
}

/// `wherry events --watch` of another user in root's group, which may open the control socket.
fn watch_as(agent: &Agent, user: u32) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wherry"));
    command.args(["events", "--watch", "-o", "json", "--socket"]).arg(&agent.socket).uid(user).gid(0);
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("wherry events")
}

#[test]
fn users_of_the_control_socket_have_a_share_and_never_shut_out_root() {
    let agent = Agent::start("shares");
    agent.apply("good", TRAP);
    agent.wait_running("good");
    let mut own = Command::new(env!("CARGO_BIN_EXE_wherry"))
        .args(["events", "--watch", "-o", "json", "--socket"])
        .arg(&agent.socket)
        .stdout(Stdio::piped())
        .spawn()
        .expect("wherry events");
    let mut first = String::new();
    BufReader::new(own.stdout.as_mut().expect("stdout")).read_line(&mut first).expect("an event");
    assert!(first.starts_with('{'), "{first}");
    let watches: RefCell<Vec<Child>> = RefCell::new((0..10).map(|_| watch_as(&agent, 1000)).collect());
    let ended = || watches.borrow_mut().iter_mut().filter_map(|w| w.try_wait().expect("wait")).count();
    // Of ten watches of one user eight stay.
    agent.wait("two have ended", |_| ended() == 2);
    assert!(own.try_wait().expect("wait").is_none(), "root's own watch goes on");
    assert!(agent.wherry(&["pods"]).status.success());
    let others: Vec<Child> = (1001..1004).flat_map(|user| [user; 8]).map(|user| watch_as(&agent, user)).collect();
    for _ in 0..5 {
        assert!(agent.wherry(&["pods"]).status.success(), "root is served whatever users do");
    }
    assert!(own.try_wait().expect("wait").is_none(), "root's own watch goes on");
    for mut child in watches.take().into_iter().chain(others).chain([own]) {
        let _ = child.kill();
        let _ = child.wait();
    }
}

#[test]
fn the_last_words_of_a_container_are_text_wherever_they_are_shown() {
    let agent = Agent::start("escapes");
    agent.apply(
        "rude",
        r#"
        restartPolicy: Never
        containers:
        - name: main
          image: localhost/busybox:1.35
          command: [sh, -c]
          args: ['printf "\033[2J\033]52;c;aGk=\007\nFAKE line\r" > /dev/termination-log; exit 3']
    "#,
    );
    agent.wait_phase("rude", "Failed");
    let said = |arguments: &[&str]| {
        let output = agent.wherry(arguments);
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8(text).expect("UTF-8")
    };
    for arguments in [
        &["describe", "rude"][..],
        &["describe", "rude", "-o", "json"],
        &["describe", "rude", "-o", "yaml"],
        &["events", "rude"],
        &["pods"],
        &["status"],
    ] {
        let text = said(arguments);
        let control = text.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(control, None, "{arguments:?}: {text:?}");
        assert!(!text.lines().any(|line| line.starts_with("FAKE")), "{arguments:?}: {text}");
    }
    assert!(said(&["describe", "rude"]).contains(r"\x1b[2J\x1b]52;c;aGk=\x07"), "{}", said(&["describe", "rude"]));
    assert!(!agent.log().chars().any(|c| c.is_control() && c != '\n'), "{:?}", agent.log());
}
