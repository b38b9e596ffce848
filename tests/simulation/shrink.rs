//! Shrinks a failing life: plays it again with fewer and fewer parts while it fails in the same way.

use crate::plan::{Action, Plan};
use std::collections::BTreeSet;
use std::rc::Rc;

/// The outcome of a life: the rule that it broke, if any, and the mishaps that happened.
pub struct Outcome {
    pub broke: Option<&'static str>,
    pub mishaps: Vec<u64>,
}

/// The maximum number of lives played.
const PATIENCE: u32 = 4000;

/// Finds a small life that breaks the same rule. It removes actions, then mishaps, then shortens waits, and repeats that until
/// nothing more can be removed.
pub fn shrink(plan: &Plan, play: impl Fn(&Plan) -> Outcome) -> Plan {
    let mut best = plan.clone();
    let first = play(&best);
    let mut left = PATIENCE;
    // From here on only the recorded mishaps happen, and no new ones replace them.
    best.only = Some(Rc::new(first.mishaps.iter().copied().collect()));
    let fails = |p: &Plan| play(p).broke == first.broke;
    if first.broke.is_none() || !fails(&best) {
        return plan.clone();
    }
    loop {
        let size = weight(&best);
        best.turns =
            without(best.turns.clone(), &mut left, |turns| fails(&Plan { turns: turns.to_vec(), ..best.clone() }));
        // Mishaps that no longer happen need no attempt.
        let came: BTreeSet<u64> = play(&best).mishaps.into_iter().collect();
        let mishaps: Vec<u64> = came.into_iter().collect();
        let of = |ids: &[u64]| Some(Rc::new(ids.iter().copied().collect::<BTreeSet<u64>>()));
        best.only = of(&without(mishaps, &mut left, |ids| fails(&Plan { only: of(ids), ..best.clone() })));
        for i in 0..best.turns.len() {
            for simpler in simpler(&best.turns[i].action) {
                let mut p = best.clone();
                p.turns[i].action = simpler;
                left = left.saturating_sub(1);
                if left > 0 && fails(&p) {
                    best = p;
                }
            }
            if best.turns[i].user.is_some() {
                let mut p = best.clone();
                p.turns[i].user = None;
                left = left.saturating_sub(1);
                if left > 0 && fails(&p) {
                    best = p;
                }
            }
            while best.turns[i].wait > 0 && left > 0 {
                let mut p = best.clone();
                p.turns[i].wait = if p.turns[i].wait < 3 { 0 } else { p.turns[i].wait / 2 };
                left = left.saturating_sub(1);
                if !fails(&p) {
                    break;
                }
                best = p;
            }
        }
        if weight(&best) >= size || left == 0 {
            return best;
        }
    }
}

fn weight(plan: &Plan) -> (usize, usize, u64) {
    let waits = plan.turns.iter().map(|t| t.wait + length(&t.action)).sum();
    (plan.turns.len(), plan.only.as_ref().map_or(0, |o| o.len()), waits)
}

/// The sum of times and numbers in an action.
fn length(action: &Action) -> u64 {
    match action {
        Action::Kill { away } | Action::KillAfter { away, .. } => *away,
        Action::RuntimeAway { ms } | Action::Sleep { ms } | Action::DiskFull { ms } | Action::FailLists { ms } => *ms,
        Action::HoldProcess { ms, .. } => *ms,
        Action::PowerCut { away } => *away,
        Action::LoseState { pick } => (*pick).min(100),
        Action::Files(changes) => changes.len() as u64,
        Action::Exit { pick, .. } | Action::SandboxDies { pick } => (*pick).min(100),
        Action::RemoveDead { pick } | Action::RemovePod { pick } => (*pick).min(100),
        _ => 0,
    }
}

/// Simpler variants of an action.
fn simpler(action: &Action) -> Vec<Action> {
    match action {
        Action::Files(changes) if changes.len() > 1 => {
            let without = |i: usize| {
                let mut less = changes.clone();
                less.remove(i);
                Action::Files(less)
            };
            (0..changes.len()).map(without).collect()
        }
        Action::Exit { pick, code } => {
            (0..2).filter(|p| p < pick).map(|pick| Action::Exit { pick, code: *code }).collect()
        }
        Action::SandboxDies { pick } => (0..2).filter(|p| p < pick).map(|pick| Action::SandboxDies { pick }).collect(),
        Action::RemoveDead { pick } => (0..2).filter(|p| p < pick).map(|pick| Action::RemoveDead { pick }).collect(),
        Action::RemovePod { pick } => (0..2).filter(|p| p < pick).map(|pick| Action::RemovePod { pick }).collect(),
        Action::Kill { away } if *away > 0 => vec![Action::Kill { away: 0 }, Action::Kill { away: away / 2 }],
        Action::KillAfter { effects, away } if *away > 0 => vec![Action::KillAfter { effects: *effects, away: 0 }],
        Action::RuntimeAway { ms } if *ms > 0 => {
            vec![Action::RuntimeAway { ms: 0 }, Action::RuntimeAway { ms: ms / 2 }]
        }
        Action::Sleep { ms } if *ms > 1 => vec![Action::Sleep { ms: ms / 2 }],
        Action::DiskFull { ms } if *ms > 1 => vec![Action::DiskFull { ms: ms / 2 }],
        Action::FailLists { ms } if *ms > 1 => vec![Action::FailLists { ms: ms / 2 }],
        Action::PowerCut { away } if *away > 0 => vec![Action::PowerCut { away: 0 }],
        Action::LoseState { pick } => (0..2).filter(|p| p < pick).map(|pick| Action::LoseState { pick }).collect(),
        Action::HoldProcess { pick, ms } => {
            let sooner = (*ms > 1).then_some(Action::HoldProcess { pick: *pick, ms: ms / 2 });
            let first = (0..2).filter(|p| p < pick).map(|pick| Action::HoldProcess { pick, ms: *ms });
            sooner.into_iter().chain(first).collect()
        }
        _ => Vec::new(),
    }
}

/// Delta debugging: removes chunks, halved down to single elements, while the life still fails.
fn without<T: Clone>(mut all: Vec<T>, left: &mut u32, fails: impl Fn(&[T]) -> bool) -> Vec<T> {
    let mut chunk = all.len();
    while chunk > 0 {
        let mut at = 0;
        while at < all.len() && *left > 0 {
            *left -= 1;
            let end = (at + chunk).min(all.len());
            let less: Vec<T> = all[..at].iter().chain(&all[end..]).cloned().collect();
            if fails(&less) {
                all = less;
            } else {
                at = end;
            }
        }
        chunk /= 2;
    }
    all
}

#[test]
fn a_life_that_breaks_a_rule_is_shrunk_to_a_few_decisions() {
    let pool = crate::random::Pool::new();
    let plant = |checks: &mut crate::check::Checks| checks.planted = true;
    let breaks = |p: &Plan| crate::random::play(&pool, p, false, plant).result.is_err_and(|v| v.rule == "planted");
    // Use long lives, so that there is something to shrink.
    let long = (0..200).map(|seed| Plan::of(seed, &pool)).filter(|p| p.turns.len() > 30);
    let broken: Vec<Plan> = long.filter(breaks).take(2).collect();
    assert_eq!(broken.len(), 2);
    for plan in broken {
        let small = crate::random::smallest(&pool, &plan, plant);
        // What remains is one file and two ends of its container.
        let mishaps = small.only.as_ref().map_or(usize::MAX, |o| o.len());
        assert!(breaks(&small), "{small}");
        assert!(small.turns.len() + mishaps <= 12, "{mishaps} mishaps in {small}");
        assert!(small.turns.iter().any(|t| matches!(t.action, Action::Files(_))), "{small}");
        let text = crate::random::shortest(&pool, &plan, plant);
        assert!(text.contains("CreateContainer") && text.contains("violated: planted"), "{text}");
        assert!(text.lines().count() < 1000, "{} lines\n{text}", text.lines().count());
    }
}

#[test]
fn the_parts_that_matter_are_found_wherever_they_are() {
    let all: Vec<u32> = (0..100).collect();
    for needed in [vec![0], vec![99], vec![3, 50, 51], vec![7, 8, 9, 10, 90], vec![]] {
        let left = without(all.clone(), &mut PATIENCE.clone(), |less| needed.iter().all(|n| less.contains(n)));
        assert_eq!(left, needed);
    }
}
