//! Runs the whole engine against a model of the world with a virtual clock: stories, which name the rule that they test, and
//! random lives. It has no external dependencies.
//!
//! `WHERRY_SEED=n cargo test --test simulation -- --exact seeds` replays one life with its history, `--exact member_seeds` one of a
//! member of a cluster, `--exact workload_seeds` one with workloads. `WHERRY_SEEDS=n` plays more lives, and `WHERRY_SEEDS=m..n` plays a range. A failing life is shrunk.

// The bans in clippy.toml are for the engine.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

// The bench and the cost test share modules with the simulation; they know the engine as a part of `wherry`.
extern crate wherry_engine as wherry;

mod bounds;
mod chance;
mod check;
mod cluster;
mod control;
mod fleet;
mod groups;
mod lies;
mod logind;
mod plan;
mod random;
mod room;
mod runtime;
mod settled;
mod shrink;
mod stories;
mod story;
mod stream;
mod text;
mod trouble;
mod workload_lives;
mod world;

#[test]
fn seeds() {
    lives(random::Lives::Alone, 1500);
}

#[test]
fn member_seeds() {
    lives(random::Lives::Member, 100);
}

#[test]
fn workload_seeds() {
    lives(random::Lives::Workloads, 300);
}

#[test]
fn two_days_with_two_hundred_power_cuts() {
    let pool = random::Pool::new();
    let plan = plan::Plan::of_days(0, &pool);
    let cuts = plan.turns.iter().filter(|turn| matches!(turn.action, plan::Action::PowerCut { .. }));
    let (cuts, waits) = (cuts.count(), plan.turns.iter().map(|turn| turn.wait).sum::<u64>());
    assert!(cuts >= 200 && waits >= 48 * 3_600_000, "{cuts} power cuts in {waits} ms");
    // These lives are long, so WHERRY_SEEDS does not apply to them.
    match seed_to_replay() {
        Some(seed) => random::replay(random::Lives::Days, seed, true),
        None => random::play_all(random::Lives::Days, 0..1),
    }
}

/// The stories hold on CRI-O, too, unless they are about what it does not do.
// The process of this test plays them again.
#[allow(clippy::disallowed_methods)]
#[test]
fn stories_with_another_runtime() {
    const OF_CONTAINERD: [&str; 5] = [
        // It shows the end of a container that it cannot start. CRI-O removes the container.
        "w29_a_failed_start_counts_as_the_start",
        "a_start_that_fails_is_a_run_container_error_and_then_a_crash_loop",
        "a_start_that_fails_under_never_fails_the_pod",
        // It kills a container at once whose state it does not know.
        "p1_a_container_whose_state_is_unknown_counts_as_running_until_it_is_stopped",
        // It ignores stop signals, or reports them.
        "w10_a_stop_signal_is_in_the_status_or_the_runtime_ignores_it",
    ];
    /// Other runtimes make no difference to these, and they take most of the time.
    const OF_NO_RUNTIME: [&str; 5] =
        ["stories::access::", "stories::duplicate_nodes::", "stories::fleet::", "certificates::", "y12_"];
    let program = std::env::current_exe().expect("the program of this test");
    let mut child = std::process::Command::new(program);
    child.args(["stories::", "--test-threads=2"]).env(story::ANOTHER_RUNTIME, "1");
    for story in OF_CONTAINERD.into_iter().chain(OF_NO_RUNTIME) {
        child.args(["--skip", story]);
    }
    let output = child.output().expect("the stories begin");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let played = text.lines().filter(|line| line.starts_with("test ") && line.ends_with(" ok")).count();
    assert!(played > 300, "only {played} stories ran\n{text}");
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|e| panic!("{text:?} is no number: {e}"))
}

// The user sets the seeds in the environment.
#[allow(clippy::disallowed_methods)]
fn seed_to_replay() -> Option<u64> {
    std::env::var("WHERRY_SEED").ok().map(|seed| number(&seed))
}

#[allow(clippy::disallowed_methods)]
fn lives(of: random::Lives, number_of_seeds: u64) {
    if let Some(seed) = seed_to_replay() {
        return random::replay(of, seed, true);
    }
    let seeds = std::env::var("WHERRY_SEEDS").unwrap_or_else(|_| number_of_seeds.to_string());
    let (from, to) = seeds.split_once("..").unwrap_or(("0", &seeds));
    random::play_all(of, number(from)..number(to));
}
