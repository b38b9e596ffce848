//! One turn of the loop: arm the timer, wait, say which sources are ready.
//!
//! mio is edge-triggered: a source is told of once, and must then be read until it would block. One that stops before
//! that, because it used up its budget of the turn, is handed back with [`EventLoop::again`] and is on the ready list of
//! the next turn, which then does not wait. So a flood on one source costs each turn one budget, and every other source
//! is seen in each turn too.
//!
//! Time comes from one timerfd on CLOCK_BOOTTIME, so time asleep counts. It is armed with an absolute time, and set
//! again only when the earliest deadline changed. It is never read: setting it anew clears it, and edge-triggered it
//! wakes once.

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

/// Tokens below are the caller's constants; `EventLoop::token` gives out the others.
pub const FIRST_DYNAMIC: usize = 1 << 16;

/// The timer's own; never among the ready ones.
pub(super) const TIMER: Token = Token(usize::MAX - 1);

/// What one system call can report. More than these come at the next turn; the kernel rotates them.
const EVENTS: usize = 64;

pub struct EventLoop {
    poll: Poll,
    events: Events,
    timer: OwnedFd,
    /// What the timer will fire at; None when it is off or has fired.
    armed: Option<Boot>,
    again: Vec<Token>,
    next_token: usize,
    seen: BTreeMap<usize, u64>,
    turns: u64,
}

impl EventLoop {
    /// Errors name what the kernel refused (a limit of descriptors, most likely).
    pub fn new() -> io::Result<EventLoop> {
        let poll = Poll::new().map_err(|e| named("make an epoll", e))?;
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)
            .map_err(|e| named("make a timerfd", e.into()))?;
        poll.registry()
            .register(&mut SourceFd(&timer.as_raw_fd()), TIMER, Interest::READABLE)
            .map_err(|e| named("watch the timerfd", e))?;
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

    /// A token that was never given out before, so a late event of a closed source never meets a new one.
    pub fn token(&mut self) -> Token {
        let token = Token(self.next_token);
        self.next_token += 1;
        token
    }

    /// This source stopped for its budget: it is ready in the next turn, which does not wait.
    pub fn again(&mut self, token: Token) {
        if !self.again.contains(&token) {
            self.again.push(token);
        }
    }

    /// Waits until a source is ready, `deadline` has come, or a signal interrupts it, and leaves in `ready` each ready
    /// source once. With none it was the deadline (or for nothing, which is harmless): look what is due.
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
            Err(e) => return Err(named("wait in epoll", e)),
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

    /// How often the wait has ended.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// Events that came for a token since the start; of one given out by `token`, for all of those together.
    pub fn seen(&self, token: Token) -> u64 {
        self.seen.get(&counted_as(token)).copied().unwrap_or(0)
    }

    /// Events that came for the tokens given out by `token`, together.
    pub fn seen_of_given_out(&self) -> u64 {
        self.seen(Token(FIRST_DYNAMIC))
    }

    /// The epoll, the timerfd, and when that fires next.
    pub fn own(&self) -> (RawFd, RawFd, Option<Boot>) {
        (self.poll.as_raw_fd(), self.timer.as_raw_fd(), self.armed)
    }

    fn arm(&mut self, deadline: Option<Boot>) -> io::Result<()> {
        if self.armed == deadline {
            return Ok(());
        }
        // Zero would turn it off.
        let at = deadline.map_or(0, |at| at.0.max(1));
        let value = Timespec {
            tv_sec: i64::try_from(at / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(at % 1_000_000_000).unwrap_or(0),
        };
        let setting = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &setting)
            .map_err(|e| named("set the timerfd", e.into()))?;
        self.armed = deadline;
        Ok(())
    }
}

/// Tokens that are never used again would fill the table of counts.
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

        // Armed for soon, left for another source, then armed for later.
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
                        // A budget of one small read: there is more.
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
    fn a_source_is_told_of_once_and_the_ready_list_is_not_kept() {
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
