//! The steps before the RunPodSandbox call.

use serde::Serialize;

/// The completed steps before the RunPodSandbox call, and the attempt for which they were done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Preparation {
    #[default]
    Nothing,
    Directories {
        attempt: u32,
    },
    Cgroup {
        attempt: u32,
    },
}

/// The next step towards a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreparationStep {
    Directories,
    Cgroup,
    Sandbox,
}

impl Preparation {
    /// Returns the next step towards the sandbox of this attempt.
    pub fn next(self, attempt: u32) -> PreparationStep {
        match self {
            Preparation::Directories { attempt: done } if done == attempt => PreparationStep::Cgroup,
            Preparation::Cgroup { attempt: done } if done == attempt => PreparationStep::Sandbox,
            _ => PreparationStep::Directories,
        }
    }

    pub fn has_begun(self) -> bool {
        self != Preparation::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w13_a_preparation_counts_only_for_its_own_attempt() {
        let steps = |attempt| {
            [Preparation::Nothing, Preparation::Directories { attempt: 2 }, Preparation::Cgroup { attempt: 2 }]
                .map(|p| p.next(attempt))
        };
        assert_eq!(steps(2), [PreparationStep::Directories, PreparationStep::Cgroup, PreparationStep::Sandbox]);
        assert_eq!(steps(3), [PreparationStep::Directories; 3]);
    }
}
