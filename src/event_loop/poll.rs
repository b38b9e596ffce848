//! One turn of the loop: arm the timer, wait, return the ready sources.
//!
//! mio is edge-triggered: it reports a source once, and the source must then be read until it would block. A reader
//! that stops earlier, because its budget for the turn is used up, calls [`EventLoop::again`]. The source is then ready
//! in the next turn, which does not wait. Thus a flooded source costs one budget per turn, and the other sources are
//! served in each turn too.
//!
//! One timerfd on CLOCK_BOOTTIME serves all deadlines, so time in suspend counts. It is armed with an absolute time,
//! and set again only if the earliest deadline changes. It is never read: setting it clears it, and with edge
//! triggering it wakes the loop only once.

use super::clock;
use crate::api::time::Boot;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Tokens below this number are constants of the callers. `EventLoop::token` allocates the others.
pub const FIRST_DYNAMIC: usize = 1 << 16;

/// The token of the timer. It is never in the ready list.
pub(super) const TIMER: Token = Token(usize::MAX - 1);

/// Maximum number of events per system call. The kernel rotates its list and reports the rest in the next turn.
const EVENTS: usize = 64;

pub struct EventLoop {
    poll: Poll,
    events: Events,
    timer: OwnedFd,
    /// The time for which the timer is armed; None if it is off or has fired.
    armed: Option<Boot>,
    again: Vec<Token>,
    next_token: usize,
    seen: BTreeMap<usize, u64>,
    turns: u64,
}

impl EventLoop {
    /// Creates the loop.
    ///
    /// # Errors
    /// The kernel refused a descriptor, most likely because of a limit.
    pub fn new() -> io::Result<EventLoop> {
        let poll = Poll::new().map_err(|e| named("failed to create an epoll instance", e))?;
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)
            .map_err(|e| named("failed to create a timerfd", e.into()))?;
        poll.registry()
            .register(&mut SourceFd(&timer.as_raw_fd()), TIMER, Interest::READABLE)
            .map_err(|e| named("failed to add the timerfd to epoll", e))?;
        Ok(EventLoop {
            poll,
            events: Events::with_capacity(EVENTS),
            timer,
            armed: None,
            again: Vec::new(),
            next_token: FIRST_DYNAMIC,
            seen: BTreeMap::new(),
            turns: 0,
        })
    }

    pub fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    /// Allocates a token. Tokens are never reused, so a late event of a closed source cannot reach a new one.
    pub fn token(&mut self) -> Token {
        let (_, mut token) = self.accepting();
        token()
    }

    /// Returns the registry and a function that allocates tokens, for a source that accepts connections.
    pub fn accepting(&mut self) -> (&Registry, impl FnMut() -> Token) {
        let EventLoop { poll, next_token, .. } = self;
        let token = || {
            let token = Token(*next_token);
            *next_token += 1;
            token
        };
        (poll.registry(), token)
    }

    /// Notes that a source stopped because its budget was used up. It is ready in the next turn, which does not wait.
    pub fn again(&mut self, token: Token) {
        if !self.again.contains(&token) {
            self.again.push(token);
        }
    }

    /// Waits for a ready source, the `deadline` or a signal, and fills `ready` with each ready source once. If `ready`
    /// is empty, the deadline has passed or the wake-up was spurious; the caller checks its deadlines in both cases.
    pub fn turn(&mut self, deadline: Option<Boot>, ready: &mut Vec<Token>) -> io::Result<()> {
        ready.clear();
        let wait = if !self.again.is_empty() || deadline.is_some_and(|at| at <= clock::boot()) {
            Some(Duration::ZERO)
        } else {
            self.arm(deadline)?;
            None
        };
        match self.poll.poll(&mut self.events, wait) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => self.events.clear(),
            Err(e) => return Err(named("failed to wait in epoll", e)),
        }
        self.turns += 1;
        ready.append(&mut self.again);
        for event in &self.events {
            let token = event.token();
            *self.seen.entry(counted_as(token)).or_default() += 1;
            if token == TIMER {
                self.armed = None;
            } else if !ready.contains(&token) {
                ready.push(token);
            }
        }
        Ok(())
    }

    /// Returns the number of turns of the loop so far.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// Returns the number of events for a token since the start. All tokens allocated by `token` share one counter.
    pub fn seen(&self, token: Token) -> u64 {
        self.seen.get(&counted_as(token)).copied().unwrap_or(0)
    }

    /// Returns the number of events for all tokens allocated by `token`.
    pub fn seen_of_given_out(&self) -> u64 {
        self.seen(Token(FIRST_DYNAMIC))
    }

    /// Returns the descriptors of the epoll instance and of the timerfd, and the time at which the timer fires next.
    pub fn own(&self) -> (RawFd, RawFd, Option<Boot>) {
        (self.poll.as_raw_fd(), self.timer.as_raw_fd(), self.armed)
    }

    fn arm(&mut self, deadline: Option<Boot>) -> io::Result<()> {
        if self.armed == deadline {
            return Ok(());
        }
        // Zero disarms a timerfd.
        let at = deadline.map_or(0, |at| at.0.max(1));
        let value = Timespec {
            tv_sec: i64::try_from(at / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(at % 1_000_000_000).unwrap_or(0),
        };
        let setting = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &setting)
            .map_err(|e| named("failed to set the timerfd", e.into()))?;
        self.armed = deadline;
        Ok(())
    }
}

/// Returns the key of a token's counter. Allocated tokens share one counter; otherwise the table would grow without
/// limit.
fn counted_as(token: Token) -> usize {
    if token == TIMER { TIMER.0 } else { token.0.min(FIRST_DYNAMIC) }
}

fn named(what: &str, e: io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("{what}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::net::UnixStream;
    use std::io::{Read, Write};

    const FLOOD: Token = Token(1);
    const QUIET: Token = Token(2);

    fn pair(event_loop: &EventLoop, token: Token) -> (UnixStream, UnixStream) {
        let (ours, mut watched) = UnixStream::pair().unwrap();
        event_loop.registry().register(&mut watched, token, Interest::READABLE).unwrap();
        (ours, watched)
    }

    #[test]
    fn an_idle_turn_sleeps_until_the_deadline() {
        let mut event_loop = EventLoop::new().unwrap();
        let mut ready = vec![Token(9)];
        for ms in [30, 5, 60] {
            let deadline = clock::boot() + Duration::from_millis(ms);
            event_loop.turn(Some(deadline), &mut ready).unwrap();
            assert!(ready.is_empty());
            let late = clock::boot().since(deadline);
            assert!(clock::boot() >= deadline, "woke before the deadline");
            assert!(late < Duration::from_secs(10), "{late:?} late");
        }
    }

    #[test]
    fn a_deadline_of_the_past_does_not_wait_and_one_that_moved_back_is_forgotten() {
        let mut event_loop = EventLoop::new().unwrap();
        let mut ready = Vec::new();
        let begin = clock::boot();
        event_loop.turn(Some(Boot(0)), &mut ready).unwrap();
        assert!(clock::boot().since(begin) < Duration::from_secs(10));

        // The timer is armed for a near deadline, another source wakes the loop, then it is armed for a later one.
        let (mut ours, mut watched) = pair(&event_loop, QUIET);
        let soon = clock::boot() + Duration::from_millis(20);
        ours.write_all(b"x").unwrap();
        event_loop.turn(Some(soon), &mut ready).unwrap();
        assert_eq!(ready, [QUIET]);
        watched.read_exact(&mut [0]).unwrap();
        let later = soon + Duration::from_millis(60);
        event_loop.turn(Some(later), &mut ready).unwrap();
        assert!(clock::boot() >= later, "the old deadline woke it");
    }

    #[test]
    fn a_flooding_source_does_not_starve_another() {
        let mut event_loop = EventLoop::new().unwrap();
        let (mut flood, mut flooded) = pair(&event_loop, FLOOD);
        let (mut quiet, mut quieted) = pair(&event_loop, QUIET);
        let mut ready = Vec::new();
        let mut seen = 0;
        for turn in 0..200 {
            let _ = flood.write(&[0; 4096]);
            if turn % 10 == 0 {
                quiet.write_all(b"x").unwrap();
            }
            event_loop.turn(None, &mut ready).unwrap();
            assert!(ready.contains(&FLOOD), "turn {turn}");
            if turn % 10 == 0 {
                assert!(ready.contains(&QUIET), "starved in turn {turn}");
            }
            for token in ready.clone() {
                match token {
                    FLOOD => {
                        // The budget is one small read, so data remains.
                        flooded.read_exact(&mut [0; 64]).unwrap();
                        event_loop.again(FLOOD);
                    }
                    _ => {
                        quieted.read_exact(&mut [0]).unwrap();
                        seen += 1;
                    }
                }
            }
        }
        assert_eq!(seen, 20);
    }

    #[test]
    fn a_source_is_reported_once_and_the_ready_list_is_cleared() {
        let mut event_loop = EventLoop::new().unwrap();
        let (mut ours, _watched) = pair(&event_loop, QUIET);
        ours.write_all(b"x").unwrap();
        event_loop.again(QUIET);
        event_loop.again(QUIET);
        let mut ready = Vec::new();
        event_loop.turn(None, &mut ready).unwrap();
        assert_eq!(ready, [QUIET]);
        event_loop.turn(Some(clock::boot() + Duration::from_millis(5)), &mut ready).unwrap();
        assert!(ready.is_empty());
        assert_eq!((event_loop.turns(), event_loop.seen(QUIET), event_loop.seen(FLOOD)), (2, 1, 0));
        assert_eq!(event_loop.seen(TIMER), 1);
        assert_ne!(event_loop.token(), event_loop.token());
    }
}
