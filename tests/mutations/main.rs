//! Tests the simulation: mutations break the engine on purpose, in one place at a time, and the simulation has to catch
//! each of them.
//!
//! `list` contains the mutations. One copy of the sources contains all of them (`package`), and an environment variable
//! selects one, so that a single build is enough. What caught a mutation before runs first (`hints`). All stories and lives run
//! only for a mutation that survives this. The unmutated engine runs the same stories and lives before; its CPU time determines
//! the limits for the mutated ones (`verdict`). Only cargo is needed.
//!
//! Run with `make test-mutations`; ARGS=text selects the mutations whose name contains the text. WHERRY_MUTATIONS_LEARN=1 renews the hints.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

#[cfg_attr(test, allow(dead_code))]
mod hints;
mod list;
mod package;
// (The unit tests of `verdict` are a test target of their own.)
#[cfg_attr(test, allow(dead_code))]
mod verdict;

use hints::{Hint, Hints};
use list::Mutation;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};
use verdict::{End, Run, Shown, Verdict, limit};

/// The seeds of the lives, in portions: a mutation that hangs is stopped in the first portion. They run
/// only for a mutation that no story catches.
const LIVES: [Range<u32>; 4] = [0..60, 60..300, 300..1000, 1000..2000];

/// A sleeping run uses no CPU time. It is stopped after this multiple of the wall-clock time of the unmutated engine,
/// but not before ten minutes, because other programs may use the processors meanwhile.
const CLOCK_PATIENCE: u32 = 50;
const CLOCK_FLOOR: Duration = Duration::from_secs(600);

/// A mutated engine may allocate without end. A run whose address space reaches this size aborts, and counts as a failed one. (The
/// unmutated engine needs less than half of it.)
const MEMORY_KIB: u32 = 1 << 20;

/// The limits of one run.
#[derive(Clone, Copy)]
struct Limits {
    cpu: Duration,
    clock: Duration,
}

/// The program of the simulation, and the limits of its runs.
struct Judge {
    simulation: PathBuf,
    hints: Hints,
    /// Of the stories and lives of the hints.
    hinted: Limits,
    /// Of all stories and lives. Measured when a mutation needs it.
    whole: OnceLock<Result<Whole, String>>,
}

struct Whole {
    stories: Limits,
    lives: Vec<Limits>,
}

const NO_LIMIT: Limits = Limits { cpu: Duration::MAX, clock: Duration::MAX };

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
    let hints = project.join("tests/mutations/caught");
    let chosen: Vec<(usize, &Mutation)> =
        mutations.iter().enumerate().filter(|(_, m)| m.name.contains(&filter)).collect();
    let judge = Judge::new(simulation, hints::read(&hints), &chosen)?;
    let judged = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((i, m)) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // (0 is the unmutated engine.)
                    let begin = Instant::now();
                    let verdict = judge.judge(i + 1, m);
                    let text = verdict.as_ref().map_or_else(|why| format!("NOT JUDGED: {why}"), Verdict::to_string);
                    println!("{:<58} {text} ({:.1} s)", m.name, begin.elapsed().as_secs_f64());
                    if let Ok(mut judged) = judged.lock() {
                        judged.push((*m, verdict));
                    }
                }
            });
        }
    });
    let judged = judged.into_inner().unwrap_or_default();
    let caught = |v: &Result<Verdict, String>| matches!(v, Ok(Verdict::Caught { .. }));
    let caught = judged.iter().filter(|(_, v)| caught(v)).count();
    println!("{caught} of {} mutations caught in {:.0} s", chosen.len(), begin.elapsed().as_secs_f64());
    let mut well = judged.len() == chosen.len() && !chosen.is_empty();
    for (m, v) in &judged {
        let passes = v.as_ref().is_ok_and(|v| v.passes(m.hangs));
        well &= passes;
        match v {
            Ok(Verdict::Caught { .. }) => {}
            Ok(Verdict::TimedOut) if passes => println!("timed out, as the list expects: {}", m.name),
            Ok(Verdict::TimedOut) => println!("TIMED OUT: {}", m.name),
            Ok(Verdict::Survived) => println!("NOT CAUGHT: {}", m.name),
            Err(why) => println!("NOT JUDGED: {}: {why}", m.name),
        }
    }
    if std::env::var_os("WHERRY_MUTATIONS_LEARN").is_some() {
        let learned = judged.iter().filter_map(|(m, v)| Some((m.name.clone(), hint(v.as_ref().ok()?)?)));
        let known = judge.hints.into_iter().filter(|(name, _)| mutations.iter().any(|m| m.name == *name));
        hints::write(&hints, &known.chain(learned).collect())?;
    }
    Ok(well)
}

/// What to run first in the next run.
fn hint(verdict: &Verdict) -> Option<Hint> {
    let Verdict::Caught { stories, seed } = verdict else { return None };
    let story = stories.first().filter(|name| name.contains("::")).map(|name| Hint::Story(name.clone()));
    story.or_else(|| Hint::of_life(seed.as_deref()?))
}

impl Judge {
    /// Runs what the hints of these mutations name on the unmutated engine.
    fn new(simulation: PathBuf, hints: Hints, chosen: &[(usize, &Mutation)]) -> Result<Judge, String> {
        let mut judge = Judge { simulation, hints, hinted: NO_LIMIT, whole: OnceLock::new() };
        let (mut stories, mut seeds) = (BTreeSet::new(), BTreeSet::new());
        for hint in chosen.iter().filter_map(|(_, mutation)| judge.hints.get(&mutation.name)) {
            match hint {
                Hint::Story(name) => drop(stories.insert(name.as_str())),
                Hint::Seed(seed) => drop(seeds.insert(*seed)),
            }
        }
        let which: Vec<&str> = std::iter::once("--exact").chain(stories.iter().copied()).collect();
        let begin = Instant::now();
        let mut spent = Duration::ZERO;
        if !stories.is_empty() {
            let run = judge.run_stories(0, &which, NO_LIMIT)?;
            must_pass(&run, verdict::stories(&run)?)?;
            spent += run.spent;
        }
        for seed in &seeds {
            let run = judge.run_lives(0, *seed..seed.saturating_add(1), NO_LIMIT)?;
            must_pass(&run, verdict::lives(&run)?)?;
            spent += run.spent;
        }
        println!(
            "unmutated: the {} stories and {} lives of the hints take {:.1} s of CPU time",
            stories.len(),
            seeds.len(),
            spent.as_secs_f64()
        );
        judge.hinted = limits(spent, begin);
        Ok(judge)
    }

    /// Runs everything on the unmutated engine.
    fn measure(&self) -> Result<Whole, String> {
        let begin = Instant::now();
        let run = self.run_stories(0, &[], NO_LIMIT)?;
        must_pass(&run, verdict::stories(&run)?)?;
        let stories = limits(run.spent, begin);
        let (mut lives, mut spent) = (Vec::new(), Duration::ZERO);
        for piece in LIVES {
            let begin = Instant::now();
            let run = self.run_lives(0, piece, NO_LIMIT)?;
            must_pass(&run, verdict::lives(&run)?)?;
            lives.push(limits(run.spent, begin));
            spent += run.spent;
        }
        println!(
            "unmutated: the stories take {:.1} s of CPU time, {} lives {:.1} s",
            run.spent.as_secs_f64(),
            LIVES.last().map_or(0, |l| l.end),
            spent.as_secs_f64()
        );
        Ok(Whole { stories, lives })
    }

    fn judge(&self, number: usize, mutation: &Mutation) -> Result<Verdict, String> {
        let hinted = match self.hints.get(&mutation.name) {
            None => Verdict::Survived,
            Some(Hint::Story(name)) => {
                let run = self.run_stories(number, &["--exact", name], self.hinted)?;
                verdict::verdict(verdict::stories(&run)?, Shown::Nothing)
            }
            Some(Hint::Seed(seed)) => {
                let run = self.run_lives(number, *seed..seed.saturating_add(1), self.hinted)?;
                verdict::verdict(Shown::Nothing, verdict::lives(&run)?)
            }
        };
        match hinted {
            Verdict::Caught { .. } => Ok(hinted),
            Verdict::TimedOut | Verdict::Survived => self.judge_by_all(number, mutation),
        }
    }

    /// The stories of the mutation's own rule run first, because they catch most mutations and take a fraction of the time.
    fn judge_by_all(&self, number: usize, mutation: &Mutation) -> Result<Verdict, String> {
        let whole = self.whole.get_or_init(|| self.measure()).as_ref().map_err(Clone::clone)?;
        let rule = mutation.rule();
        let stories = match verdict::stories(&self.run_stories(number, &[rule], whole.stories)?)? {
            Shown::Nothing => verdict::stories(&self.run_stories(number, &["--skip", rule], whole.stories)?)?,
            shown => shown,
        };
        let pieces = if matches!(stories, Shown::Failures(_)) { 0 } else { LIVES.len() };
        let mut lives = Shown::Nothing;
        for (piece, limits) in LIVES.into_iter().zip(&whole.lives).take(pieces) {
            lives = verdict::lives(&self.run_lives(number, piece, *limits)?)?;
            if lives != Shown::Nothing {
                break;
            }
        }
        Ok(verdict::verdict(stories, lives))
    }

    fn run_stories(&self, number: usize, which: &[&str], limits: Limits) -> Result<Run, String> {
        // The lives have the other runtime, too.
        let skipped =
            ["--skip", "seeds", "--skip", "shrink", "--skip", "stories_with_another_runtime", "--test-threads", "1"];
        let args = [&skipped, which].concat();
        self.run(number, &args, 0..0, limits)
    }

    fn run_lives(&self, number: usize, seeds: Range<u32>, limits: Limits) -> Result<Run, String> {
        self.run(number, &["seeds", "--exact", "--test-threads", "1"], seeds, limits)
    }

    fn run(&self, number: usize, args: &[&str], seeds: Range<u32>, limits: Limits) -> Result<Run, String> {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -v \"$1\"; shift; exec \"$@\"", "sh"]).arg(MEMORY_KIB.to_string());
        command.arg(&self.simulation).args(args).env("WHERRY_MUTATION", number.to_string());
        command.env("WHERRY_SEEDS", format!("{}..{}", seeds.start, seeds.end));
        command
            .env("MALLOC_ARENA_MAX", "2")
            .env("WHERRY_SHRINK", "0")
            .env("RUST_BACKTRACE", "0")
            .env_remove("WHERRY_SEED");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(|e| e.to_string())?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        // (In a run of lives, the line with the seed comes before the failed test.)
        let stories = seeds.is_empty();
        let failed = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            // A full pipe would block the child.
            let out = scope.spawn(move || read_lines(out, failed));
            let err = scope.spawn(|| read_all(err));
            let begin = Instant::now();
            let mut spent = Duration::ZERO;
            let end = loop {
                // Read before the child is reaped, because its times disappear with it.
                spent = busy(child.id()).max(spent);
                match child.try_wait().map_err(|e| e.to_string())? {
                    Some(status) => break end_of(status),
                    // One failed story is enough.
                    None if stories && failed.load(Ordering::Relaxed) => {
                        child.kill().map_err(|e| e.to_string())?;
                        child.wait().map_err(|e| e.to_string())?;
                        break End::Failed;
                    }
                    None if spent > limits.cpu || begin.elapsed() > limits.clock => {
                        child.kill().map_err(|e| e.to_string())?;
                        child.wait().map_err(|e| e.to_string())?;
                        break End::TimedOut;
                    }
                    None => std::thread::sleep(Duration::from_millis(5)),
                }
            };
            let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
            let stderr = text(err.join().unwrap_or_default());
            let output = stderr + "\n" + &out.join().unwrap_or_default();
            Ok(Run { end, output, spent })
        })
    }
}

/// The limits of a mutated run, from the CPU time of the unmutated one, which began at `begin`.
fn limits(spent: Duration, begin: Instant) -> Limits {
    Limits { cpu: limit(spent), clock: (begin.elapsed() * CLOCK_PATIENCE).max(CLOCK_FLOOR) }
}

/// If the unmutated engine fails, the failures of mutated ones mean nothing.
fn must_pass(run: &Run, shown: Shown) -> Result<(), String> {
    match (run.end, shown) {
        (End::Passed, Shown::Nothing) => Ok(()),
        (end, shown) => Err(format!("the unmutated engine fails: {end:?}, {shown:?}")),
    }
}

fn end_of(status: ExitStatus) -> End {
    match status.signal() {
        Some(signal) => End::Signal(signal),
        None if status.success() => End::Passed,
        None => End::Failed,
    }
}

/// The CPU time of a process (proc(5): ticks of 10 ms on all platforms that Rust supports).
fn busy(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, after)| after).split_whitespace();
    Duration::from_millis(10 * fields.skip(11).take(2).filter_map(|f| f.parse::<u64>().ok()).sum::<u64>())
}

/// Reads to the end, and sets `failed` when a story has failed.
fn read_lines(from: Option<impl std::io::Read>, failed: &AtomicBool) -> String {
    let mut all = String::new();
    for line in from.into_iter().flat_map(|from| BufReader::new(from).lines()).map_while(Result::ok) {
        if verdict::failed_story(&line).is_some() {
            failed.store(true, Ordering::Relaxed);
        }
        all += &line;
        all.push('\n');
    }
    all
}

fn read_all(from: Option<impl std::io::Read>) -> Vec<u8> {
    let mut all = Vec::new();
    if let Some(mut from) = from {
        // After a read error only a part of the output counts.
        let _ = from.read_to_end(&mut all);
    }
    all
}
