//! The stream of container events (`adapters::cri::events`) over each transport, with a scripted server.

use crate::rig::Factory;
use crate::server::{Events, Options, Server};
use mio::Token;
use std::time::Duration;
use tempfile::TempDir;
use wherry::adapters::cri::events::{ContainerEvents, StreamEvent};
use wherry::event_loop::{EventLoop, clock};

over_each_transport!(
    a_runtime_without_an_event_stream_gets_one_request,
    a_burst_arrives_completely_and_its_invalid_events_are_skipped,
    an_ended_stream_is_requested_again_after_a_back_off,
    a_stream_that_ends_at_once_is_off_and_is_requested_again_rarely,
    the_event_stream_is_requested_again_after_a_restart_of_the_runtime,
);

const TOKEN: Token = Token(1);

struct Listener {
    event_loop: EventLoop,
    events: ContainerEvents,
    seen: Vec<StreamEvent>,
    drives: usize,
}

impl Listener {
    fn new(factory: Factory, server: &Server) -> Listener {
        let event_loop = EventLoop::new().unwrap();
        let mut events = ContainerEvents::new("me");
        assert!(events.is_closed());
        events.open(factory(&server.path, event_loop.registry(), TOKEN));
        Listener { event_loop, events, seen: Vec::new(), drives: 0 }
    }

    fn run_until(&mut self, time: Duration, done: impl Fn(&[StreamEvent]) -> bool) -> bool {
        let latest = clock::boot() + time;
        let mut ready = Vec::new();
        while clock::boot() < latest {
            if self.events.drive(clock::boot(), &mut self.seen) {
                self.event_loop.again(TOKEN);
            }
            self.drives += 1;
            if done(&self.seen) {
                return true;
            }
            let deadline = self.events.next_deadline().map_or(latest, |at| at.min(latest));
            self.event_loop.turn(Some(deadline), &mut ready).unwrap();
        }
        false
    }

    fn until(&mut self, done: impl Fn(&[StreamEvent]) -> bool) {
        assert!(
            self.run_until(Duration::from_secs(240), done),
            "{:?}",
            self.seen.iter().rev().take(5).collect::<Vec<_>>()
        );
    }

    fn run_for(&mut self, time: Duration) {
        self.run_until(time, |_| false);
    }

    fn asked(&self) -> usize {
        self.seen.iter().filter(|e| **e == StreamEvent::Requested).count()
    }
}

fn start(factory: Factory, events: Events) -> (TempDir, Server, Listener) {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("s"), Options { events, ..Options::default() });
    let listener = Listener::new(factory, &server);
    (dir, server, listener)
}

fn a_runtime_without_an_event_stream_gets_one_request(factory: Factory) {
    let (_dir, server, mut listener) = start(factory, Events::Unimplemented);
    listener.until(|seen| seen.contains(&StreamEvent::Unimplemented));
    listener.run_for(Duration::from_millis(1500));
    assert_eq!(listener.seen, [StreamEvent::Requested, StreamEvent::Unimplemented]);
    assert_eq!(server.seen.lock().unwrap().headers.len(), 1);
    assert!(!server.seen.lock().unwrap().headers[0].contains_key("grpc-timeout"), "the stream has no deadline");
    assert_eq!(listener.events.next_deadline(), None);
    // Only `close`, after a lost connection to the runtime, permits another request.
    assert!(!listener.events.is_closed());
    listener.events.close();
    assert!(listener.events.is_closed());
}

fn a_burst_arrives_completely_and_its_invalid_events_are_skipped(factory: Factory) {
    let (_dir, _server, mut listener) = start(factory, Events::Burst(10_000));
    let ids = |seen: &[StreamEvent]| -> Vec<String> {
        let id = |e: &StreamEvent| match e {
            StreamEvent::Happened { event, .. } => Some(event.id.clone()),
            _ => None,
        };
        seen.iter().filter_map(id).collect()
    };
    // `Asked`, the events, and one `InvalidAnswer`.
    listener.until(|seen| seen.len() >= 10_002);
    assert_eq!(ids(&listener.seen), (0..10_000).map(|n| format!("c{n}")).collect::<Vec<_>>());
    let invalid = listener.seen.iter().filter(|e| matches!(e, StreamEvent::InvalidAnswer { .. })).count();
    assert_eq!((invalid, listener.asked()), (1, 1));
}

fn an_ended_stream_is_requested_again_after_a_back_off(factory: Factory) {
    let (_dir, server, mut listener) = start(factory, Events::Once);
    listener.run_for(Duration::from_millis(2500));
    // The requests are sent at once, after 1 s, and after 2 s more.
    assert!((2..=3).contains(&listener.asked()), "{:?}", listener.seen);
    let lost = listener.seen.iter().filter(|e| matches!(e, StreamEvent::Lost { .. })).count();
    assert_eq!(lost, listener.asked());
    assert_eq!(server.seen.lock().unwrap().connections, 1);
}

fn a_stream_that_ends_at_once_is_off_and_is_requested_again_rarely(factory: Factory) {
    let (_dir, server, mut listener) = start(factory, Events::Off);
    listener.until(|seen| seen.contains(&StreamEvent::Off));
    let next = listener.events.next_deadline().expect("it is requested again");
    assert!(next.since(clock::boot()) > Duration::from_secs(500));
    assert_eq!(listener.seen.iter().filter(|e| **e == StreamEvent::Off).count(), 1);
    assert_eq!(server.seen.lock().unwrap().connections, 1);
}

fn the_event_stream_is_requested_again_after_a_restart_of_the_runtime(factory: Factory) {
    let (_dir, mut server, mut listener) = start(factory, Events::Burst(3));
    listener.until(|seen| seen.len() >= 5);
    server.kill();
    listener.until(|seen| seen.iter().any(|e| matches!(e, StreamEvent::Lost { .. })));
    let _server = Server::start(&server.path, Options { events: Events::Burst(3), ..Options::default() });
    listener.seen.clear();
    listener.until(|seen| seen.iter().filter(|e| matches!(e, StreamEvent::Happened { .. })).count() == 3);
    assert_eq!(listener.asked(), 1);
}

/// Guarantees of the h2 transport only.
mod h2_alone {
    use super::*;

    #[test]
    fn an_idle_stream_does_nothing_and_has_no_deadline() {
        let (_dir, _server, mut listener) = start(crate::rig::h2, Events::Burst(0));
        listener.until(|seen| seen.len() == 2);
        listener.run_for(Duration::from_millis(100));
        assert_eq!(listener.events.next_deadline(), None);
        listener.drives = 0;
        listener.run_for(Duration::from_millis(300));
        assert_eq!(listener.drives, 1, "unexpected wake-ups");
    }
}
