//! Derives the verdict on a mutation from the runs of the simulation. It does no I/O and is a test target of its own
//! (`cargo test --test verdict`).

use std::time::Duration;

/// The CPU time limit of a mutated engine, as a multiple of that of the unmutated one for the same stories or lives.
/// Both are measured in the same session, so the verdicts do not depend on the speed of the machine.
const PATIENCE: u32 = 5;

/// How a run of the test program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Passed,
    Failed,
    /// By a signal that did not come from this program.
    Signal(i32),
    /// Stopped at its limit.
    TimedOut,
}

/// One run of the test program: all stories, or a range of lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub end: End,
    pub output: String,
    /// The CPU time.
    pub spent: Duration,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    Nothing,
    Failures(Vec<String>),
    TimedOut,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A story or a life failed.
    Caught {
        stories: Vec<String>,
        seed: Option<String>,
    },
    /// Nothing failed, and a run reached its limit.
    TimedOut,
    Survived,
}

/// The CPU time limit of a mutated run, given the time of the unmutated one.
pub fn limit(unmutated: Duration) -> Duration {
    unmutated * PATIENCE
}

const SIGKILL: i32 = 9;

/// The result of a run of the stories.
///
/// # Errors
/// If another process killed the run, which shows nothing about the engine.
pub fn stories(run: &Run) -> Result<Shown, String> {
    let failed = run.output.lines().filter_map(failed_story);
    shown(run, failed.map(str::to_string).collect(), "the stories aborted")
}

/// The name of the story, if this line of the test program's output reports its failure.
pub fn failed_story(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

/// The result of a run of lives.
///
/// # Errors
/// As for `stories`.
pub fn lives(run: &Run) -> Result<Shown, String> {
    let mut failed = run.output.lines().filter(|l| l.starts_with("seed "));
    // Lives run in several threads; the last line is about the lowest failed seed.
    let last = failed.next_back().map(|l| l.split(" (").next().unwrap_or(l).to_string());
    shown(run, last.into_iter().collect(), "the lives aborted")
}

fn shown(run: &Run, failures: Vec<String>, aborted: &str) -> Result<Shown, String> {
    match run.end {
        // A test that failed before the limit counts.
        _ if !failures.is_empty() => Ok(Shown::Failures(failures)),
        End::Passed => Ok(Shown::Nothing),
        End::TimedOut => Ok(Shown::TimedOut),
        End::Signal(SIGKILL) => Err("another process killed the run; is memory short?".into()),
        End::Failed | End::Signal(_) => Ok(Shown::Failures(vec![aborted.into()])),
    }
}

/// The verdict, given the results of the stories and then of the lives.
pub fn verdict(stories: Shown, lives: Shown) -> Verdict {
    match (stories, lives) {
        (Shown::Failures(stories), Shown::Failures(seed)) => Verdict::Caught { stories, seed: seed.into_iter().next() },
        (Shown::Failures(stories), _) => Verdict::Caught { stories, seed: None },
        (_, Shown::Failures(seed)) => Verdict::Caught { stories: Vec::new(), seed: seed.into_iter().next() },
        (Shown::TimedOut, _) | (_, Shown::TimedOut) => Verdict::TimedOut,
        (Shown::Nothing, Shown::Nothing) => Verdict::Survived,
    }
}

impl Verdict {
    /// True if the mutation test passes. `hangs`: the list permits the engine to hang.
    pub fn passes(&self, hangs: bool) -> bool {
        match self {
            Verdict::Caught { .. } => true,
            Verdict::TimedOut => hangs,
            Verdict::Survived => false,
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Verdict::Caught { stories, seed } = self else {
            return f.write_str(if *self == Verdict::TimedOut { "timed out" } else { "SURVIVED" });
        };
        let short = |name: &str| name.trim_start_matches("stories::").to_string();
        match stories.as_slice() {
            [] => write!(f, "no story")?,
            [one] => write!(f, "{}", short(one))?,
            [one, more @ ..] => write!(f, "{} and {} more", short(one), more.len())?,
        }
        match seed {
            Some(seed) => write!(f, "; {seed}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(end: End, output: &str) -> Run {
        Run { end, output: output.into(), spent: Duration::from_secs(1) }
    }

    fn failures(names: &[&str]) -> Shown {
        Shown::Failures(names.iter().map(|n| n.to_string()).collect())
    }

    const ONE_FAILS: &str = "running 3 tests\ntest stories::w1::a ... ok\ntest stories::w1::b ... FAILED\n";

    #[test]
    fn stories_that_failed_are_named() {
        let more = format!("{ONE_FAILS}test stories::w2::c ... FAILED\n\nfailures:\n    stories::w1::b\n");
        let shown = stories(&run(End::Failed, &more));
        assert_eq!(shown, Ok(failures(&["stories::w1::b", "stories::w2::c"])));
        assert_eq!(stories(&run(End::Passed, "test stories::w1::a ... ok\n")), Ok(Shown::Nothing));
    }

    #[test]
    fn a_run_at_its_limit_shows_a_failure_only_if_a_test_had_failed() {
        assert_eq!(stories(&run(End::TimedOut, ONE_FAILS)), Ok(failures(&["stories::w1::b"])));
        assert_eq!(
            stories(&run(End::TimedOut, "test stories::w1::a ... ok\ntest stories::w1::b ... ")),
            Ok(Shown::TimedOut)
        );
        assert_eq!(lives(&run(End::TimedOut, "running 1 test\n")), Ok(Shown::TimedOut));
        assert_eq!(lives(&run(End::TimedOut, "seed 7: W3: shown\n")), Ok(failures(&["seed 7: W3: shown"])));
    }

    #[test]
    fn a_life_that_failed_is_named_by_its_last_line() {
        let text = "seed 31: W3: p is shown\n\nrunning 1 test\nseed 12: W2: u (40 actions, 2 lines; above)\n";
        assert_eq!(lives(&run(End::Failed, text)), Ok(failures(&["seed 12: W2: u"])));
    }

    #[test]
    fn an_aborted_program_fails_and_an_externally_killed_one_is_inconclusive() {
        assert_eq!(stories(&run(End::Signal(6), "test stories::w1::a ... ")), Ok(failures(&["the stories aborted"])));
        assert_eq!(lives(&run(End::Failed, "")), Ok(failures(&["the lives aborted"])));
        assert!(lives(&run(End::Signal(SIGKILL), "")).is_err());
        assert!(stories(&run(End::Signal(SIGKILL), "")).is_err());
    }

    #[test]
    fn a_time_out_is_no_catch() {
        let (seed, story) = (failures(&["seed 1: W3"]), failures(&["a"]));
        let caught = |s: &[&str], seed: Option<&str>| Verdict::Caught {
            stories: s.iter().map(|s| s.to_string()).collect(),
            seed: seed.map(str::to_string),
        };
        assert_eq!(verdict(Shown::TimedOut, Shown::Nothing), Verdict::TimedOut);
        assert_eq!(verdict(Shown::Nothing, Shown::TimedOut), Verdict::TimedOut);
        assert_eq!(verdict(Shown::Nothing, Shown::Nothing), Verdict::Survived);
        assert_eq!(verdict(Shown::TimedOut, seed.clone()), caught(&[], Some("seed 1: W3")));
        assert_eq!(verdict(story.clone(), Shown::TimedOut), caught(&["a"], None));
        assert_eq!(verdict(story, seed), caught(&["a"], Some("seed 1: W3")));
    }

    #[test]
    fn a_time_out_passes_only_where_the_list_expects_it() {
        assert!(!Verdict::TimedOut.passes(false) && Verdict::TimedOut.passes(true));
        assert!(!Verdict::Survived.passes(false) && !Verdict::Survived.passes(true));
        assert!(Verdict::Caught { stories: vec!["a".into()], seed: None }.passes(false));
    }

    #[test]
    fn the_limit_follows_the_speed_of_the_machine() {
        let here = Duration::from_millis(23_500);
        assert_eq!(limit(here * 10), limit(here) * 10);
        assert!(limit(here) > here * 4);
    }

    #[test]
    fn a_verdict_is_one_line() {
        let caught = Verdict::Caught { stories: vec!["stories::w1::b".into(), "c".into()], seed: None };
        assert_eq!(caught.to_string(), "w1::b and 1 more");
        assert_eq!(Verdict::TimedOut.to_string(), "timed out");
        assert_eq!(Verdict::Survived.to_string(), "SURVIVED");
    }
}
