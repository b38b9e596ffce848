//! The readiness of the node, and the reason if it is not ready, for the API, the API server and the commands.

use super::Engine;
use super::shown::SHUTTING_DOWN;
use crate::api::time::Boot;

impl Engine {
    /// Returns the reason and the message if the node is not ready; None if it is ready.
    pub fn not_ready(&self, now: Boot) -> Option<(&'static str, String)> {
        let failing: Vec<String> = self.checks(now).into_iter().filter_map(|check| check.result.err()).collect();
        not_ready(self.shutdown.is_on(), &failing)
    }
}

/// Returns the reason and the message. `failing` contains the messages of the failed health checks.
fn not_ready(shutting_down: bool, failing: &[String]) -> Option<(&'static str, String)> {
    match (shutting_down, failing) {
        // S4: a shutdown takes precedence over all other reasons.
        (true, _) => Some(("NodeShuttingDown", SHUTTING_DOWN.to_owned())),
        (false, []) => None,
        (false, failing) => Some(("KubeletNotReady", failing.join("; "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s4_a_node_that_shuts_down_is_not_ready_whatever_else_it_is() {
        let down = "no connection to the container runtime: gone".to_owned();
        assert_eq!(not_ready(false, &[]), None);
        assert_eq!(
            not_ready(false, &[down.clone(), "not read yet".into()]).unwrap(),
            ("KubeletNotReady", "no connection to the container runtime: gone; not read yet".into())
        );
        for failing in [&[][..], &[down]] {
            assert_eq!(not_ready(true, failing), Some(("NodeShuttingDown", "node is shutting down".into())));
        }
    }
}
