//! Nonsensical answers. Most report too little or too much and change nothing. A grave one reports something running as ended
//! or missing and misleads the engine; afterwards only the rules in `HOLDS_ANYWAY` are checked.

use crate::chance::below;
use wherry::api::facts::{ContainerState, Listed, PodFacts};
use wherry::api::names::{SandboxId, Uid};
use wherry::api::time::Wall;
use wherry::engine::event::Answer;
use wherry::engine::rng::Rng;

/// An implausible time.
fn no_time(dice: &mut Rng) -> Wall {
    Wall([0, -1, 1, i64::MAX, i64::MIN, 4_000_000_000_000_000_000][below(dice, 6) as usize])
}

/// Falsifies an answer. Returns true if the lie is grave.
pub fn lie(answer: &mut Answer, dice: &mut Rng) -> bool {
    match answer {
        Answer::Listed(listed) => lie_in_list(listed, dice),
        Answer::Pod(facts) => lie_of_pod(facts, dice),
        Answer::Container(c) => {
            c.started_at = no_time(dice);
            c.created_at = no_time(dice);
            false
        }
        Answer::Sandbox(s) => {
            s.created_at = no_time(dice);
            s.pid = Some(below(dice, 3) as u32);
            false
        }
        _ => false,
    }
}

fn lie_in_list(listed: &mut Listed, dice: &mut Rng) -> bool {
    let n = listed.containers.len().max(1) as u64;
    let i = below(dice, n) as usize;
    match below(dice, 6) {
        0 => {
            let all = (listed.sandboxes.clone(), listed.containers.clone());
            listed.sandboxes.extend(all.0);
            listed.containers.extend(all.1);
        }
        1 => listed.containers.iter_mut().for_each(|c| c.state = ContainerState::Unknown),
        2 => listed.containers.iter_mut().for_each(|c| c.created_at = no_time(dice)),
        // A pod of ours that does not exist.
        3 => {
            let ours = listed.containers.iter().find(|c| c.owner.is_some()).cloned();
            listed.containers.extend(ours.map(|mut c| {
                c.uid = Uid::from("nobody");
                c.id = "phantom".into();
                c
            }));
        }
        4 if i < listed.containers.len() => {
            listed.containers.remove(i);
            return true;
        }
        _ => {
            *listed = Listed::default();
            return true;
        }
    }
    false
}

fn lie_of_pod(facts: &mut PodFacts, dice: &mut Rng) -> bool {
    let kind = below(dice, 8);
    let Some(c) = facts.containers.first_mut() else { return false };
    match kind {
        0 => c.state = ContainerState::Unknown,
        1 => {
            let twice = facts.containers.clone();
            facts.containers.extend(twice);
        }
        2 => facts.containers.iter_mut().for_each(|c| {
            (c.created_at, c.started_at, c.finished_at) = (no_time(dice), no_time(dice), no_time(dice));
        }),
        // Two sandboxes with the same attempt, one of which does not exist.
        3 => {
            let other = facts.sandboxes.first().cloned();
            facts.sandboxes.extend(other.map(|mut s| {
                s.id = SandboxId::from("phantom");
                s
            }));
        }
        // A container that does not exist, with a higher attempt.
        4 => {
            let mut phantom = c.clone();
            (phantom.id, phantom.attempt, phantom.state) =
                ("phantom".into(), c.attempt.saturating_add(7), ContainerState::Exited);
            facts.containers.push(phantom);
            return true;
        }
        5 => {
            c.state = ContainerState::Exited;
            return true;
        }
        6 => {
            facts.containers.remove(0);
            return true;
        }
        _ => {
            *facts = PodFacts::default();
            return true;
        }
    }
    // An engine that reads a container as ended or unknown may stop it.
    kind == 0
}
