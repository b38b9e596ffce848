//! The descriptors in the poll, as reported by the kernel: /proc/self/fdinfo of the epoll has one line per descriptor,
//! with its token. A list kept by this process could be wrong.

use super::EventLoop;
use crate::api::ordered::CollectOrdered;
use mio::Token;
use std::collections::BTreeMap;
use std::os::fd::RawFd;

impl EventLoop {
    /// Returns the descriptors in the poll and their tokens, including the loop's own timerfd. Empty if /proc cannot
    /// be read.
    pub fn registered(&self) -> BTreeMap<RawFd, Token> {
        let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", self.own().0)).unwrap_or_default();
        parse(&text)
    }

    /// Reports whether `token` belongs to the loop's timerfd.
    pub fn is_timer(token: Token) -> bool {
        token == super::poll::TIMER
    }
}

/// Parses `tfd:       19 events: 80002019 data:              400  pos:0 ino:40e sdev:10`. The data is hexadecimal.
fn parse(fdinfo: &str) -> BTreeMap<RawFd, Token> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        if words.next()? != "tfd:" {
            return None;
        }
        let fd = words.next()?.parse().ok()?;
        words.find(|w| *w == "data:")?;
        Some((fd, Token(usize::from_str_radix(words.next()?, 16).ok()?)))
    };
    fdinfo.lines().filter_map(line).collect_map()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::Interest;
    use mio::net::UnixStream;
    use std::os::fd::AsRawFd;

    #[test]
    fn the_kernels_lines_are_read() {
        // The kernel writes the token with 64 bits, also on a machine with 32.
        let timer = super::super::poll::TIMER;
        let text = format!(
            "pos:\t0\nflags:\t02000002\nmnt_id:\t16\nino:\t1038\n\
             tfd:       19 events: 80002019 data:              40f  pos:0 ino:40e sdev:10\n\
             tfd:        5 events: 80002019 data: {:16x}  pos:0 ino:40e sdev:10\ntfd: x\n",
            timer.0 as u64
        );
        let found = parse(&text);
        assert_eq!(found, [(19, Token(0x40f)), (5, timer)].into());
        assert!(EventLoop::is_timer(found[&5]));
    }

    #[test]
    fn what_is_registered_is_found_under_its_token_until_it_is_closed() {
        let event_loop = EventLoop::new().unwrap();
        let (_ours, mut watched) = UnixStream::pair().unwrap();
        event_loop.registry().register(&mut watched, Token(77), Interest::READABLE).unwrap();
        let fd = watched.as_raw_fd();
        let found = event_loop.registered();
        assert_eq!(found.get(&fd), Some(&Token(77)));
        assert_eq!(found.len(), 2, "the timerfd and this one: {found:?}");
        drop(watched);
        assert_eq!(event_loop.registered().len(), 1);
    }
}
