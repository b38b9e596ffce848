//! `wherry exec` and `wherry top` on a real runtime.

use crate::support::agent::Agent;
use crate::support::lab::signal;
use crate::support::yaml::{TRAP, script};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

struct Printed {
    code: Option<i32>,
    out: String,
    err: String,
}

fn printed(output: &Output) -> Printed {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Printed { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

fn command(agent: &Agent, arguments: &[&str], words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wherry"));
    command.arg("exec").args(arguments).arg("--socket").arg(&agent.socket).arg("--").args(words);
    command
}

fn exec(agent: &Agent, arguments: &[&str], words: &[&str]) -> Printed {
    printed(&command(agent, arguments, words).output().expect("wherry"))
}

const TWO: &str = "
    terminationGracePeriodSeconds: 2
    containers:
    - name: main
      image: localhost/trap:1
    - name: side
      image: localhost/busybox:1.35
      command: [sh, -c, 'while :; do sleep 1; done']
      env: [{name: ROLE, value: side}]
";

#[test]
fn a_command_s_output_and_exit_code_are_its_own() {
    let agent = Agent::start("exec");
    agent.apply("web", TWO);
    agent.wait_running("web");
    let name = format!("{}/web", agent.namespace);
    let s = exec(&agent, &[&name], &["sh", "-c", "echo out; echo err >&2; exit 3"]);
    assert_eq!((s.code, s.out.as_str(), s.err.as_str()), (Some(3), "out\n", "err\n"));
    let s = exec(&agent, &["web", "-c", "side"], &["sh", "-c", "echo $ROLE"]);
    assert_eq!((s.code, s.out.as_str()), (Some(0), "side\n"));
    // Arguments and binary output pass unchanged.
    let s = exec(&agent, &["web", "-c", "side"], &["printf", "%s|", "a b", "", "ü'\"$x"]);
    assert_eq!((s.code, s.out.as_str()), (Some(0), "a b||ü'\"$x|"));
    let bytes = command(&agent, &["web", "-c", "side"], &["printf", r"\000\377\n"]).output().expect("wherry");
    assert_eq!(bytes.stdout, b"\0\xff\n");
    // Three megabytes arrive complete and in time.
    let s = exec(&agent, &["web", "-c", "side"], &["sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x"]);
    assert_eq!((s.code, s.out.len()), (Some(0), 3_000_000), "{}", s.err);
    let s = exec(&agent, &["web", "-c", "side"], &["sh", "-c", "head -c 20000000 /dev/zero"]);
    assert_eq!(s.out.len(), 0);
    assert!(s.code == Some(125) && s.err.contains("16 MiB"), "{:?} {}", s.code, s.err);
    // A script of 100 kB.
    let long = format!("echo {} | wc -c", "y".repeat(100_000));
    let s = exec(&agent, &["web", "-c", "side"], &["sh", "-c", &long]);
    assert_eq!((s.code, s.out.trim()), (Some(0), "100001"), "{}", s.err);
    assert!(agent.get("/metrics").expect("/metrics").body.contains("operation_type=\"exec_sync\"} 7"));
}

#[test]
fn a_command_that_cannot_run_reports_the_reason_and_an_exit_code() {
    let agent = Agent::start("noexec");
    agent.apply("web", TWO);
    agent.apply("job", &script("Never", "exit 0"));
    agent.wait_running("web");
    agent.wait_phase("job", "Succeeded");
    for (arguments, words, code, why) in [
        (&["nobody"][..], &["ls"][..], 125, "pod nobody was not found"),
        (&["web", "-c", "x"], &["ls"], 125, "has no container x; it has main, side"),
        (&["job"], &["ls"], 125, "container main of pod"),
        (&["web", "-c", "side"], &["nope"], 127, "nope"),
        (&["web", "-c", "side"], &["/nope"], 127, "/nope"),
        (&["web", "-c", "side"], &["/etc/passwd"], 126, "permission denied"),
        (
            &["web", "-c", "side", "--timeout", "1s"],
            &["sleep", "60"],
            124,
            "exceeded its timeout of 1 s and was \
                                                                            killed",
        ),
    ] {
        let s = exec(&agent, arguments, words);
        assert!(s.code == Some(code) && s.err.contains(why), "{arguments:?} {words:?}: {:?} {}", s.code, s.err);
        assert_eq!(s.out, "");
    }
    agent.wait("the command is killed after its timeout", |a| {
        let s = exec(a, &["web", "-c", "side"], &["ps"]);
        s.code == Some(0) && !s.out.contains("sleep 60")
    });
}

#[test]
fn a_command_delays_no_other_work_and_ends_with_its_client() {
    let mut agent = Agent::start("execs");
    agent.apply("web", TWO);
    agent.wait_running("web");
    let mut sleeping =
        command(&agent, &["web", "-c", "side"], &["sleep", "777"]).stderr(Stdio::piped()).spawn().expect("wherry");
    let side = agent.running("web", "side").expect("runs");
    let sleeps = |a: &Agent| a.cri().exec(&side, &["ps"]).1.contains("sleep 777");
    agent.wait("it sleeps", sleeps);
    // Meanwhile pods start and other commands work.
    agent.apply("other", TRAP);
    agent.wait_running("other");
    assert_eq!(exec(&agent, &["web"], &["true"]).code, Some(0));
    assert!(sleeps(&agent), "the other command continues");
    // Not SIGINT: a command that a shell starts in the background ignores it.
    signal(&sleeping.id().to_string(), "TERM");
    sleeping.wait().expect("wherry");
    agent.wait("its command is gone", |a| !sleeps(a));

    // The agent ends during the command: the command fails with an error.
    let waiting =
        command(&agent, &["web", "-c", "side"], &["sleep", "778"]).stderr(Stdio::piped()).spawn().expect("wherry");
    agent.wait("it sleeps", |a| a.cri().exec(&side, &["ps"]).1.contains("sleep 778"));
    agent.kill();
    let s = printed(&waiting.wait_with_output().expect("wherry"));
    assert_eq!(s.code, Some(125), "{}", s.err);
    agent.run();
    agent.wait_running("web");
    assert_eq!(agent.running("web", "side").as_deref(), Some(side.as_str()), "the container still runs");
    let s = exec(&agent, &["web"], &["true"]);
    assert_eq!(s.code, Some(0), "{}", s.err);
}

#[test]
fn top_shows_a_busy_pod_above_an_idle_one() {
    let agent = Agent::start("top");
    let burns = "x=$(head -c 8000000 /dev/zero | tr '\\0' x); while :; do :; done";
    agent.apply("burner", &script("Always", burns));
    agent.apply("idle", &script("Always", "while :; do sleep 5; done"));
    agent.apply("job", &script("Never", "exit 0"));
    for name in ["burner", "idle"] {
        agent.wait_running(name);
    }
    agent.wait_phase("job", "Succeeded");
    let figures = |a: &Agent| -> Value {
        let s = printed(&a.wherry(&["top", "-o", "json"]));
        assert_eq!(s.code, Some(0), "{}", s.err);
        serde_json::from_str(&s.out).expect("JSON")
    };
    // The memory is in use once the shell has read all its input.
    let value = agent.wait_for("the burner has its memory", |a| {
        Some(figures(a)).filter(|v| v["pods"][0]["memoryBytes"].as_u64().is_some_and(|m| m > 8_000_000))
    });
    let pods = value["pods"].as_array().expect("pods");
    let names: Vec<&str> = pods.iter().filter_map(|p| p["name"].as_str()).collect();
    assert_eq!(names, ["burner", "idle"], "pods that do not run are not listed");
    let of = |i: usize, what: &str| pods[i][what].as_u64().expect("a figure");
    // At most two processors, shared with all other tests. The other pod sleeps.
    assert!(of(0, "cpuNanoCores") > 20_000_000 && of(0, "cpuNanoCores") < 1_500_000_000, "{value:#}");
    assert!(of(1, "cpuNanoCores") < 20_000_000, "{value:#}");
    assert!(of(1, "memoryBytes") > 0 && of(1, "memoryBytes") < 8_000_000, "{value:#}");
    assert_eq!(pods[0]["containers"][0]["cpuNanoCores"], pods[0]["cpuNanoCores"]);

    let s = printed(&agent.wherry(&["top", "--containers"]));
    let lines: Vec<Vec<&str>> = s.out.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NAMESPACE", "POD", "CONTAINER", "CPU", "MEMORY", "RESTARTS"]);
    assert_eq!((lines[1][1], lines[2][0], lines[3][1]), ("burner", "main", "idle"), "{}", s.out);
    assert!(!s.out.contains('\x1b'), "no colours in a pipe");

    // A restart is counted.
    let id = agent.running("idle", "main").expect("runs");
    signal(&agent.cri().container_pid(&id).to_string(), "KILL");
    agent.wait("it is started again", |a| a.running("idle", "main").is_some_and(|now| now != id));
    let s = printed(&agent.wherry(&["top", "idle"]));
    assert!(s.code == Some(0) && s.out.lines().nth(1).is_some_and(|l| l.ends_with(" 1")), "{}", s.out);
    let s = printed(&agent.wherry(&["top", "job"]));
    assert!(s.code == Some(1) && s.err.contains("no container of a matching pod is running"), "{}", s.err);

    // --watch prints one document a line.
    let mut watch = Command::new(env!("CARGO_BIN_EXE_wherry"));
    watch.args(["top", "--watch", "--interval", "1s", "-o", "json"]).arg("--socket").arg(&agent.socket);
    let mut watch = watch.stdout(Stdio::piped()).spawn().expect("wherry");
    let lines = BufReader::new(watch.stdout.take().expect("a pipe")).lines();
    for line in lines.take(2) {
        let line = line.expect("a line");
        assert!(serde_json::from_str::<Value>(&line).is_ok_and(|v| v["pods"].is_array()), "{line}");
    }
    signal(&watch.id().to_string(), "TERM");
    watch.wait().expect("wherry");
}
