//! The whole engine against a model of the world, with a virtual clock: stories that name the rule they show, and lives by
//! chance. Needs nothing but itself.
//!
//! `WHERRY_SEED=n cargo test --test simulation seeds` replays one life with its history, `WHERRY_SEEDS=n` plays more, or
//! `WHERRY_SEEDS=m..n` others. A life that fails is shrunk to a short one.

// The bans of clippy.toml are the engine's.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod bounds;
mod chance;
mod check;
mod lies;
mod logind;
mod plan;
mod pods;
mod random;
mod room;
mod runtime;
mod settled;
mod shrink;
mod stories;
mod story;
mod stream;
mod tell;
mod trouble;
mod world;

// The seed to replay comes from whoever runs it.
#[allow(clippy::disallowed_methods)]
#[test]
fn seeds() {
    let number = |text: &str| text.parse::<u64>().unwrap_or_else(|e| panic!("{text:?} is no number: {e}"));
    if let Ok(seed) = std::env::var("WHERRY_SEED") {
        return random::tell(number(&seed), true);
    }
    let seeds = std::env::var("WHERRY_SEEDS").unwrap_or_else(|_| "5000".into());
    let (from, to) = seeds.split_once("..").unwrap_or(("0", &seeds));
    random::play_all(number(from)..number(to));
}
