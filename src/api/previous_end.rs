//! How the previous process of the agent ended, from what it has left behind and from what systemd says. Only an end
//! that is a fault is a crash; a kill is not.

use crate::api::printable;
use std::fmt;

/// The maximum length of a panic's text in an event, in bytes.
const MAX_SHOWN: usize = 300;

/// The end of a process that did not stop by itself on request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PreviousEnd {
    /// With the thread, the place and the message.
    Panic(String),
    /// systemd's watchdog killed it, because the event loop did not turn for `WatchdogSec`.
    Watchdog,
    /// The kernel killed it, or systemd-oomd.
    OutOfMemory,
    /// It did not start within `TimeoutStartSec`, or did not stop within `TimeoutStopSec`.
    Timeout,
    /// A signal that reports a fault, by its name without `SIG`.
    Signal(String),
    /// It was killed, or nothing is known about the reason.
    Killed,
}

impl PreviousEnd {
    /// Decides how the process ended. `panic` is the report of its panic hook. `systemd` has the `$SERVICE_RESULT`,
    /// `$EXIT_CODE` and `$EXIT_STATUS` of the unit's ExecStopPost (systemd.exec(5)), separated by spaces. `has_state`
    /// tells whether the process left its last state, which it removes when it stops on request.
    ///
    /// Returns None if the process stopped on request, or if there was none since the machine booted.
    pub fn of(panic: Option<&str>, systemd: Option<&str>, has_state: bool) -> Option<PreviousEnd> {
        if let Some(text) = panic {
            return Some(PreviousEnd::Panic(text.trim().to_owned()));
        }
        let mut words = systemd.unwrap_or_default().split_whitespace();
        match (words.next().unwrap_or_default(), words.nth(1).unwrap_or_default()) {
            ("watchdog", _) => Some(PreviousEnd::Watchdog),
            ("oom-kill", _) => Some(PreviousEnd::OutOfMemory),
            ("timeout", _) => Some(PreviousEnd::Timeout),
            ("signal" | "core-dump", name) if !matches!(name, "" | "KILL" | "TERM" | "INT" | "HUP") => {
                Some(PreviousEnd::Signal(name.to_owned()))
            }
            _ => has_state.then_some(PreviousEnd::Killed),
        }
    }

    /// Reports whether the end is a fault of the agent or of the machine. Only a fault has a crash report.
    pub fn is_crash(&self) -> bool {
        *self != PreviousEnd::Killed
    }

    /// Returns a word for the kind of end, for file names and metric labels.
    pub fn kind(&self) -> &'static str {
        match self {
            PreviousEnd::Panic(_) => "panic",
            PreviousEnd::Watchdog => "watchdog",
            PreviousEnd::OutOfMemory => "memory",
            PreviousEnd::Timeout => "timeout",
            PreviousEnd::Signal(_) => "signal",
            PreviousEnd::Killed => "killed",
        }
    }
}

impl fmt::Display for PreviousEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PreviousEnd::Panic(text) => {
                // The report has the whole text.
                write!(f, "panicked: {}", printable::cut(text.lines().next().unwrap_or_default(), MAX_SHOWN))
            }
            PreviousEnd::Watchdog => {
                f.write_str("was killed by systemd's watchdog, because its event loop had stopped")
            }
            PreviousEnd::OutOfMemory => f.write_str("was killed, because the machine was out of memory"),
            PreviousEnd::Timeout => f.write_str("was killed by systemd, because it did not start or stop in time"),
            PreviousEnd::Signal(name) => write!(f, "ended by the signal SIG{name}"),
            PreviousEnd::Killed => f.write_str("did not stop on request, it was killed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_has_one_reason_and_a_kill_is_no_crash() {
        let signal = |name: &str| Some(PreviousEnd::Signal(name.to_owned()));
        let cases = [
            (None, None, false, None),
            (None, None, true, Some(PreviousEnd::Killed)),
            (None, Some("signal killed KILL"), true, Some(PreviousEnd::Killed)),
            (None, Some("signal killed KILL"), false, None),
            (None, Some("success exited 0"), false, None),
            (None, Some("exit-code exited 1"), true, Some(PreviousEnd::Killed)),
            (None, Some("watchdog dumped ABRT"), true, Some(PreviousEnd::Watchdog)),
            (None, Some("watchdog killed KILL"), false, Some(PreviousEnd::Watchdog)),
            (None, Some("oom-kill killed KILL"), true, Some(PreviousEnd::OutOfMemory)),
            (None, Some("timeout killed KILL"), true, Some(PreviousEnd::Timeout)),
            (None, Some("core-dump dumped SEGV"), true, signal("SEGV")),
            (None, Some("signal killed SYS"), true, signal("SYS")),
            (None, Some("signal"), true, Some(PreviousEnd::Killed)),
            (None, Some(""), false, None),
            (
                Some("main at a.rs:1: x\n"),
                Some("signal killed ABRT"),
                true,
                Some(PreviousEnd::Panic("main at a.rs:1: x".into())),
            ),
        ];
        for (panic, systemd, has_state, end) in cases {
            assert_eq!(PreviousEnd::of(panic, systemd, has_state), end, "{panic:?} {systemd:?} {has_state}");
        }
        assert!(!PreviousEnd::Killed.is_crash() && PreviousEnd::Watchdog.is_crash());
        let long = PreviousEnd::Panic(format!("main at a.rs:1: {}\n left: 1", "x".repeat(4000))).to_string();
        assert!(long.starts_with("panicked: main at a.rs:1: xx") && long.len() < 400, "{long}");
    }
}
