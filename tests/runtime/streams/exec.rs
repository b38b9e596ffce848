//! `wherry exec -i`, `-t` and `wherry attach`.

use super::pty::Pty;
use super::{POD, piped, printed, run, wherry};
use crate::support::agent::Agent;
use crate::support::lab::signal;
use sha2::{Digest as _, Sha256};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdout, Stdio};
use std::thread;

fn with_pod(name: &str) -> Agent {
    let agent = Agent::start(name);
    agent.apply("web", POD);
    agent.wait_running("web");
    agent
}

/// Runs a command with this input.
fn exec(agent: &Agent, arguments: &[&str], input: &[u8]) -> super::Printed {
    let mut child = piped(wherry(agent, "exec", arguments));
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input).expect("the command reads");
    drop(stdin);
    printed(&child.wait_with_output().expect("wherry"))
}

#[test]
fn input_ends_output_arrives_in_two_streams_and_the_exit_code_is_that_of_the_command() {
    let agent = with_pod("stdin");
    let s = exec(&agent, &["-i", "web", "--", "wc", "-c"], b"abc\n");
    assert_eq!((s.code, s.out.trim(), s.err.as_str()), (Some(0), "4", ""));
    let s = exec(&agent, &["-i", "web", "--", "sh", "-c", "cat; echo err >&2; exit 3"], b"\0\xffx");
    assert_eq!((s.code, s.out.as_bytes(), s.err.as_str()), (Some(3), "\0\u{fffd}x".as_bytes(), "err\n"));
    // Without input, and with more output than ExecSync permits.
    let s = exec(&agent, &["-i", "web", "--", "sh", "-c", "head -c 20000000 /dev/zero | tr '\\0' x; exit 200"], b"");
    assert_eq!((s.code, s.out.len()), (Some(200), 20_000_000), "{}", s.err);
    // The command ends before its input.
    let s = exec(&agent, &["-i", "web", "--", "head", "-c", "3"], b"abcdef");
    assert_eq!((s.code, s.out.as_str()), (Some(0), "abc"));
    for (words, code, why) in [
        (&["nope"][..], 127, "nope"),
        (&["/etc/passwd"], 126, "permission denied"),
        (&["sh", "-c", "kill -9 $$"], 137, ""),
    ] {
        let s = exec(&agent, &[&["-i", "web", "--"], words].concat(), b"");
        assert!(s.code == Some(code) && s.err.contains(why), "{words:?}: {:?} {}", s.code, s.err);
    }
    let s = exec(&agent, &["-i", "web", "-c", "nobody", "--", "ls"], b"");
    assert!(s.code == Some(125) && s.err.contains("has no container nobody; it has main, reader, term"), "{}", s.err);
    let s = exec(&agent, &["-i", "nobody", "--", "ls"], b"");
    assert!(s.code == Some(125) && s.err.contains("pod nobody was not found"), "{}", s.err);
    // stdin is no terminal.
    let s = exec(&agent, &["-it", "web", "--", "sh", "-c", "[ -t 0 ] || cat"], b"plain\n");
    assert!(s.code == Some(0) && s.out == "plain\n" && s.err.contains("stdin is not a terminal"), "{}", s.err);
    // The log has a line for each command, without its words.
    let log = agent.log();
    assert!(log.contains("container=main reason=Exec stdin=true tty=false") && !log.contains("20000000"), "{log}");
    assert!(agent.get("/metrics").expect("/metrics").body.contains("operation_type=\"exec\"} 8"));
}

#[test]
fn a_hundred_megabytes_pass_unchanged_in_both_directions_at_once() {
    let agent = with_pod("bulk");
    let mut child = piped(wherry(&agent, "exec", &["-i", "web", "--", "cat"]));
    let (mut stdin, mut stdout) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
    let writer = thread::spawn(move || {
        let (mut hash, mut state) = (Sha256::new(), 1u64);
        for _ in 0..1600 {
            let block: Vec<u8> = (0..8192)
                .flat_map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    state.to_be_bytes()
                })
                .collect();
            hash.update(&block);
            stdin.write_all(&block).expect("the command reads");
        }
        hash.finalize()
    });
    let (mut hash, mut length, mut buffer) = (Sha256::new(), 0, vec![0; 65536]);
    while let Ok(n @ 1..) = stdout.read(&mut buffer) {
        hash.update(&buffer[..n]);
        length += n;
    }
    assert_eq!(length, 1600 * 65536);
    assert!(writer.join().expect("the writer") == hash.finalize(), "the bytes have changed");
    assert_eq!(child.wait().expect("wherry").code(), Some(0));
}

#[test]
fn a_terminal_has_the_size_of_the_users_and_is_restored_at_the_end() {
    let agent = with_pod("tty");
    let shell = wherry(&agent, "exec", &["-it", "web", "--", "sh"]);
    let mut pty = Pty::start(&shell, 91, 33);
    pty.expect("# ");
    assert!(!pty.is_cooked(), "the keys go to the container");
    pty.type_in("stty size; tty\r");
    pty.expect("33 91");
    pty.expect("/dev/pts/");
    pty.resize(120, 40);
    // The shell asks again until the size has arrived.
    pty.type_in("until stty size | grep '40 120'; do sleep 0.1; done\r");
    pty.expect("\r\n40 120");
    // Ctrl-C ends the command in the container, not the session. The process that reports is the one that gets the
    // signal: the terminal's shell would keep a signal that comes before its child is in the foreground.
    pty.type_in("sh -c 'echo sleeping; exec sleep 1000'\r");
    pty.expect("\r\nsleeping");
    pty.type_in("\x03");
    pty.type_in("echo \"still $((40 + 2))\"\r");
    pty.expect("still 42");
    pty.type_in("exit 7\r");
    assert_eq!(pty.end(), Some(7), "{:?}", pty.shown());
    assert!(pty.is_cooked(), "the terminal is restored");

    // A signal, or an error, restores it too.
    let mut pty = Pty::start(&shell, 80, 24);
    pty.expect("# ");
    signal(&pty.child.id().to_string(), "TERM");
    assert_eq!(pty.end(), Some(143));
    assert!(pty.is_cooked());
    let mut pty = Pty::start(&wherry(&agent, "exec", &["-it", "web", "--", "nope"]), 80, 24);
    assert_eq!(pty.end(), Some(127), "{:?}", pty.shown());
    assert!(pty.is_cooked());
}

/// Reads lines until one contains `text`.
fn until(lines: &mut BufReader<ChildStdout>, text: &str) {
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        assert!(lines.read_line(&mut line).expect("a pipe") > 0, "the output ends before {text:?}");
    }
}

#[test]
fn attach_sees_the_output_of_the_process_and_sends_it_input() {
    let agent = with_pod("attach");
    let mut watcher = piped(wherry(&agent, "attach", &["web", "-c", "reader"]));
    let mut seen = BufReader::new(watcher.stdout.take().expect("a pipe"));
    // The input of a process that has just been attached to is not lost; the output before is.
    let mut writer = piped(wherry(&agent, "attach", &["-i", "web", "-c", "reader"]));
    let mut input = writer.stdin.take().expect("a pipe");
    let mut echoed = BufReader::new(writer.stdout.take().expect("a pipe"));
    writeln!(input, "one").expect("a pipe");
    until(&mut echoed, "got one");
    // The first client sees the same, once it is connected.
    let mut n = 0;
    let waits = thread::spawn(move || until(&mut seen, "got more"));
    while !waits.is_finished() {
        n += 1;
        writeln!(input, "more {n}").expect("a pipe");
        thread::sleep(std::time::Duration::from_millis(100));
    }
    waits.join().expect("the output");
    signal(&watcher.id().to_string(), "TERM");
    watcher.wait().expect("wherry");
    let mut stderr = String::new();
    watcher.stderr.take().expect("a pipe").read_to_string(&mut stderr).expect("text");
    assert!(stderr.starts_with("err "), "{stderr}");
    // The container runs on without its clients, and ends with its process.
    drop(input);
    signal(&writer.id().to_string(), "TERM");
    writer.wait().expect("wherry");
    assert!(agent.running("web", "reader").is_some());

    // A detached container continues with its terminal.
    let attach = wherry(&agent, "attach", &["-it", "web", "-c", "term"]);
    let mut pty = Pty::start(&attach, 80, 24);
    pty.expect("ctrl-p,ctrl-q detaches");
    pty.type_in("kept=$((40 + 2)); echo is $kept\r");
    pty.expect("is 42");
    pty.type_in("\x10\x11");
    assert_eq!(pty.end(), Some(0), "{:?}", pty.shown());
    assert!(pty.is_cooked());
    pty.expect("detached; the container continues");
    let mut pty = Pty::start(&attach, 77, 22);
    pty.expect("press Enter");
    pty.type_in("echo still $kept\r");
    pty.expect("still 42");
    pty.type_in("until stty size | grep '22 77'; do sleep 0.1; done\r");
    pty.expect("\r\n22 77");
    pty.type_in("exit 3\r");
    assert_eq!(pty.end(), Some(0), "{:?}", pty.shown());
    assert!(pty.is_cooked());

    for (arguments, why) in [
        (&["-i", "web", "-c", "main"][..], "has no standard input; set `stdin: true` in its manifest"),
        (&["-t", "web", "-c", "reader"], "has no terminal; set `tty: true` in its manifest"),
        (&["nobody"], "pod nobody was not found"),
    ] {
        let s = run(&agent, "attach", arguments);
        assert!(s.code == Some(1) && s.err.contains(why), "{arguments:?}: {:?} {}", s.code, s.err);
    }
}

#[test]
fn a_session_continues_when_the_agent_is_killed() {
    let mut agent = with_pod("killed");
    let mut child = piped(wherry(&agent, "exec", &["-i", "web", "--", "sh", "-c", "echo begun; cat; exit 5"]));
    let mut stdin = child.stdin.take().expect("a pipe");
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    until(&mut stdout, "begun");
    agent.kill();
    writeln!(stdin, "without an agent").expect("a pipe");
    until(&mut stdout, "without an agent");
    let s = run(&agent, "exec", &["-i", "web", "--", "true"]);
    assert!(s.code == Some(125) && s.err.contains("wherry is not running"), "{:?} {}", s.code, s.err);
    agent.run();
    writeln!(stdin, "with another one").expect("a pipe");
    until(&mut stdout, "with another one");
    drop(stdin);
    assert_eq!(child.wait().expect("wherry").code(), Some(5));
}

#[test]
fn a_command_whose_client_ends_sees_the_end_of_its_input() {
    let agent = with_pod("gone");
    let mut child = piped(wherry(&agent, "exec", &["-i", "web", "--", "sh", "-c", "cat; touch /tmp/input-has-ended"]));
    let mut stdin = child.stdin.take().expect("a pipe");
    writeln!(stdin, "x").expect("a pipe");
    until(&mut BufReader::new(child.stdout.take().expect("a pipe")), "x");
    // Not SIGINT: a command that a shell starts in the background ignores it.
    signal(&child.id().to_string(), "TERM");
    child.wait().expect("wherry");
    let main = agent.running("web", "main").expect("runs");
    agent.wait("its command ends", |a| a.cri().exec(&main, &["test", "-e", "/tmp/input-has-ended"]).0 == 0);

    // The reader of the output ends first: no message, as for all commands. (containerd's shim keeps the pipe of `yes` open,
    // so it stays until the container ends.)
    let mut child = wherry(&agent, "exec", &["-i", "web", "--", "yes"]);
    let mut child = child.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("wherry");
    until(&mut BufReader::new(child.stdout.take().expect("a pipe")), "y");
    let s = printed(&child.wait_with_output().expect("wherry"));
    assert_eq!((s.code, s.err.as_str()), (Some(0), ""));
}
