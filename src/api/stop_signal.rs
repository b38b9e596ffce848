//! The signals of `lifecycle.stopSignal`: the signal that ends a container instead of SIGTERM.

/// The names of the Kubernetes API on Linux. The position of a name plus one is its number in the CRI.
const NAMES: [&str; 65] = [
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGRTMIN",
    "SIGRTMIN+1",
    "SIGRTMIN+2",
    "SIGRTMIN+3",
    "SIGRTMIN+4",
    "SIGRTMIN+5",
    "SIGRTMIN+6",
    "SIGRTMIN+7",
    "SIGRTMIN+8",
    "SIGRTMIN+9",
    "SIGRTMIN+10",
    "SIGRTMIN+11",
    "SIGRTMIN+12",
    "SIGRTMIN+13",
    "SIGRTMIN+14",
    "SIGRTMIN+15",
    "SIGRTMAX-14",
    "SIGRTMAX-13",
    "SIGRTMAX-12",
    "SIGRTMAX-11",
    "SIGRTMAX-10",
    "SIGRTMAX-9",
    "SIGRTMAX-8",
    "SIGRTMAX-7",
    "SIGRTMAX-6",
    "SIGRTMAX-5",
    "SIGRTMAX-4",
    "SIGRTMAX-3",
    "SIGRTMAX-2",
    "SIGRTMAX-1",
    "SIGRTMAX",
];

/// Returns the number of the signal in the CRI, from 1. None if there is no signal with this name.
pub fn number(name: &str) -> Option<i32> {
    let position = NAMES.iter().position(|known| *known == name)?;
    i32::try_from(position).ok().map(|position| position + 1)
}

/// Returns the name of the signal with this number in the CRI. None for 0 (the runtime's default) and for unknown
/// numbers.
pub fn name(number: i32) -> Option<&'static str> {
    usize::try_from(number).ok().and_then(|number| NAMES.get(number.checked_sub(1)?)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_cri() {
        for (signal, expected) in
            [("SIGABRT", 1), ("SIGTERM", 23), ("SIGUSR1", 29), ("SIGRTMIN", 35), ("SIGRTMIN+15", 50), ("SIGRTMAX", 65)]
        {
            assert_eq!((number(signal), name(expected)), (Some(expected), Some(signal)));
        }
        assert_eq!(
            (name(0), name(66), name(-1), number("SIGRTMIN+16"), number("USR1")),
            (None, None, None, None, None)
        );
    }
}
