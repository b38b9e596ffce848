//! Runs the whole engine against a model of the world with a virtual clock: stories, which name the rule that they test, and
//! random lives. It has no external dependencies.
//!
//! `WHERRY_SEED=n cargo test --test simulation -- --exact seeds` replays one life with its history, `--exact member_seeds` one of a
//! member of a cluster. `WHERRY_SEEDS=n` plays more lives, and `WHERRY_SEEDS=m..n` plays a range. A failing life is shrunk.

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
mod world;

#[test]
fn seeds() {
    lives(random::Lives::Alone, 5000);
}

#[test]
fn member_seeds() {
    lives(random::Lives::Member, 150);
}

// The user sets the seeds in the environment.
#[allow(clippy::disallowed_methods)]
fn lives(of: random::Lives, number_of_seeds: u64) {
    let number = |text: &str| text.parse::<u64>().unwrap_or_else(|e| panic!("{text:?} is no number: {e}"));
    if let Ok(seed) = std::env::var("WHERRY_SEED") {
        return random::replay(of, number(&seed), true);
    }
    let seeds = std::env::var("WHERRY_SEEDS").unwrap_or_else(|_| number_of_seeds.to_string());
    let (from, to) = seeds.split_once("..").unwrap_or(("0", &seeds));
    random::play_all(of, number(from)..number(to));
}
