//! The whole engine against a model of the world, with a virtual clock: stories that name the rule they show, and lives by
//! chance. Needs nothing but itself.
//!
//! `WHERRY_SEED=n cargo test --test simulation seeds` replays one life with its history, `WHERRY_SEEDS=n` plays more. A life
//! that fails is shrunk to a short one.

// The bans of clippy.toml are the engine's.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod chance;
mod check;
mod lies;
mod logind;
mod plan;
mod pods;
mod random;
mod runtime;
mod settled;
mod shrink;
mod stories;
mod story;
mod stream;
mod tell;
mod world;

// The seed to replay comes from whoever runs it.
#[allow(clippy::disallowed_methods)]
#[test]
fn seeds() {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    match number("WHERRY_SEED") {
        Some(seed) => random::tell(seed, true),
        None => random::play_all(0..number("WHERRY_SEEDS").unwrap_or(5000)),
    }
}
