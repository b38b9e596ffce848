//! The test of the simulation: the engine is broken on purpose, in one place at a time, and each break has to be caught.
//!
//! `list` tells the breaks. All of them are built into one copy of the sources (`package`), and an environment variable
//! chooses one, so there is one build. The stories are run against each, and lives until one fails. Needs nothing but cargo.
//!
//! `make test-mutations`; ARGS=name for the breaks whose name contains it.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod list;
mod package;

use list::Mutation;
use std::path::Path;
use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Lives that are played against each break, if no story caught it, or one did.
const SEEDS: u32 = 2000;
const SEEDS_BESIDE: u32 = 60;
/// A broken engine may never come to an end. Of the processor's time, as it may have to share it, and by the clock.
const PATIENCE: Duration = Duration::from_secs(30);
const PATIENCE_BY_CLOCK: Duration = Duration::from_secs(600);

/// What noticed a break.
struct Verdict {
    stories: Vec<String>,
    /// The first seed that failed, and the rule that it broke.
    seed: Option<String>,
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("mutations: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool, String> {
    let begin = Instant::now();
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let filter = std::env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_default();
    let mutations = list::read(&project.join("tests/mutations/list"))?;
    let simulation = package::build(project, &mutations)?;
    println!("{} mutations, built in {:.0} s", mutations.len(), begin.elapsed().as_secs_f64());
    // Unbroken, it has to pass: else nothing is shown by a failure.
    let unbroken = judge(&simulation, 0)?;
    if !unbroken.stories.is_empty() || unbroken.seed.is_some() {
        return Err(format!("the unbroken engine fails: {}", words(&unbroken)));
    }
    let chosen: Vec<(usize, &Mutation)> =
        mutations.iter().enumerate().filter(|(_, m)| m.name.contains(&filter)).collect();
    let survivors = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((i, m)) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // (0 is the engine as it is.)
                    let verdict = judge(&simulation, i + 1);
                    let caught = verdict.as_ref().is_ok_and(|v| !v.stories.is_empty() || v.seed.is_some());
                    println!("{:<58} {}", m.name, verdict.as_ref().map_or_else(String::clone, words));
                    if !caught && let Ok(mut s) = survivors.lock() {
                        s.push(m.name.clone());
                    }
                }
            });
        }
    });
    let survivors = survivors.into_inner().unwrap_or_default();
    let caught = chosen.len() - survivors.len();
    println!("{caught} of {} mutations caught in {:.0} s", chosen.len(), begin.elapsed().as_secs_f64());
    for name in &survivors {
        println!("NOT CAUGHT: {name}");
    }
    Ok(survivors.is_empty() && !chosen.is_empty())
}

/// Runs the stories, and lives, against one mutation.
fn judge(simulation: &Path, number: usize) -> Result<Verdict, String> {
    let run = |args: &[&str], seeds: u32| -> Result<Option<Output>, String> {
        let mut command = Command::new(simulation);
        command.args(args).env("WHERRY_MUTATION", number.to_string()).env("WHERRY_SEEDS", seeds.to_string());
        command.env("WHERRY_SHRINK", "0").env("RUST_BACKTRACE", "0").env_remove("WHERRY_SEED");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(|e| e.to_string())?;
        // The output is small (a story's history at most): what does not fit into a pipe is read meanwhile.
        let (out, err) = (child.stdout.take(), child.stderr.take());
        std::thread::scope(|scope| {
            let out = scope.spawn(|| read_all(out));
            let err = scope.spawn(|| read_all(err));
            let begin = Instant::now();
            let status = loop {
                match child.try_wait().map_err(|e| e.to_string())? {
                    Some(status) => break Some(status),
                    None if busy(child.id()) > PATIENCE || begin.elapsed() > PATIENCE_BY_CLOCK => {
                        child.kill().map_err(|e| e.to_string())?;
                        child.wait().map_err(|e| e.to_string())?;
                        break None;
                    }
                    None => std::thread::sleep(Duration::from_millis(5)),
                }
            };
            let (stdout, stderr) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
            Ok(status.map(|status| Output { status, stdout, stderr }))
        })
    };
    let stories = match run(&["--skip", "seeds", "--skip", "shrink", "--test-threads", "1"], 0)? {
        None => vec!["(never ends)".into()],
        Some(output) if output.status.success() => Vec::new(),
        Some(output) => failed(&String::from_utf8_lossy(&output.stdout)),
    };
    let seeds = if stories.is_empty() && number > 0 { SEEDS } else { SEEDS_BESIDE };
    let seed = match run(&["seeds", "--exact", "--test-threads", "1"], seeds)? {
        None => Some("seeds that never end".into()),
        Some(output) if output.status.success() => None,
        Some(output) => {
            let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
            let line = text.lines().find(|l| l.starts_with("seed "));
            Some(line.map_or("the seeds ended badly".into(), |l| l.split(" (").next().unwrap_or(l).to_string()))
        }
    };
    Ok(Verdict { stories, seed })
}

/// How long the processor was at a process (proc(5): ticks of 10 ms on all that Rust knows).
fn busy(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, after)| after).split_whitespace();
    Duration::from_millis(10 * fields.skip(11).take(2).filter_map(|f| f.parse::<u64>().ok()).sum::<u64>())
}

fn read_all(from: Option<impl std::io::Read>) -> Vec<u8> {
    let mut all = Vec::new();
    if let Some(mut from) = from {
        // What could not be read is missing in the verdict, and only there.
        let _ = from.read_to_end(&mut all);
    }
    all
}

/// The names of the tests that failed, from what the test program says.
fn failed(text: &str) -> Vec<String> {
    let of = |l: &str| l.strip_prefix("test ")?.strip_suffix(" ... FAILED").map(str::to_string);
    let names: Vec<String> = text.lines().filter_map(of).collect();
    if names.is_empty() { vec!["the stories ended badly".into()] } else { names }
}

fn words(verdict: &Verdict) -> String {
    let short = |name: &String| name.trim_start_matches("stories::").to_string();
    let stories = match verdict.stories.as_slice() {
        [] => "no story".to_string(),
        [one] => short(one),
        [one, more @ ..] => format!("{} and {} more", short(one), more.len()),
    };
    format!("{stories}; {}", verdict.seed.as_deref().unwrap_or("no seed"))
}
