//! Carries effects to adapters and their answers back as events.

pub mod logging;

/// Runs the node agent until it is told to stop.
pub fn run(config: crate::config::Config) -> std::process::ExitCode {
    let _ = config;
    std::process::ExitCode::SUCCESS
}
