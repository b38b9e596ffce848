//! A peer that sends invalid input. Each case is an error only for the affected calls, and the next connection works.

use crate::raw::{DATA, GOAWAY, HEADERS, PING, Peer, Raw, SETTINGS, WINDOW_UPDATE, begin, end, frame};
use crate::rig::{Factory, Rig};
use bytes::Bytes;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;
use wherry::event_loop::clock;
use wherry::net::grpc::{CallError, Completion};

over_each_transport!(
    invalid_data_in_an_answer_is_an_error_and_the_next_connection_works,
    calls_above_the_last_id_of_a_goaway_were_not_sent_and_those_below_finish,
    a_server_that_closes_at_once_is_looked_for_ever_more_rarely,
    a_server_of_another_protocol_is_looked_for_ever_more_rarely,
    a_flood_of_pings_and_settings_delays_an_answer_and_nothing_else,
);

fn socket() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    (dir, path)
}

/// The name of each case, the bytes that the server sends after the request on stream 1, and whether it then closes the
/// connection.
fn invalid_data() -> Vec<(&'static str, Vec<u8>, bool)> {
    let data = |length: u8, bytes: &[u8]| frame(DATA, 0, 1, &[&[0, 0, 0, 0, length], bytes].concat());
    vec![
        ("another protocol", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), true),
        ("a frame of 16 MB", [&[0xff, 0xff, 0xff, DATA, 0, 0, 0, 0, 1][..], &[0; 100_000]].concat(), true),
        ("data on no stream", frame(DATA, 0, 0, b"x"), false),
        ("headers that cannot be decoded", frame(HEADERS, 4, 1, &[0xff; 20]), false),
        ("a window's update by nothing", frame(WINDOW_UPDATE, 0, 0, &[0; 4]), false),
        ("settings of five bytes", frame(SETTINGS, 0, 0, &[0; 5]), false),
        ("an answer cut in its message", [begin(1), data(100, b"half")].concat(), true),
        ("an answer cut before its status", [begin(1), data(4, b"half")].concat(), true),
        ("no answer", Vec::new(), true),
    ]
}

fn invalid_data_in_an_answer_is_an_error_and_the_next_connection_works(factory: Factory) {
    for (what, bytes, closes) in invalid_data() {
        let (_dir, path) = socket();
        let server = Raw::start(&path, move |number, mut peer: Peer| {
            peer.greet()?;
            if number > 0 {
                return peer.serve(b"fine");
            }
            peer.request()?;
            peer.write(&bytes)?;
            // The gRPC C-core ignores data on stream 0 and keeps the connection.
            if closes { Some(()) } else { peer.serve(b"fine") }
        });
        let mut rig = Rig::up(factory, &path);
        let id = rig.call_within("/t/x", "", Duration::from_secs(60));
        let result = rig.end(id);
        // Not `NotSent`: the call may have reached the peer.
        assert!(matches!(result, Err(CallError::Unknown(_) | CallError::Status { .. })), "{what}: {result:?}");
        until_answered(&mut rig, "fine", what);
        assert!((1..10).contains(&server.connections()), "{what}: {} connections", server.connections());
    }
}

/// Repeats the call until the server answers over a new connection.
fn until_answered(rig: &mut Rig, answer: &'static str, what: &str) {
    let latest = clock::boot() + Duration::from_secs(240);
    loop {
        let id = rig.call("/t/x", "");
        match rig.end(id) {
            Ok(bytes) => return assert_eq!(bytes, Bytes::from(answer), "{what}"),
            Err(e) => assert!(clock::boot() < latest, "{what}: {e:?}"),
        }
        rig.run_for(Duration::from_millis(20));
    }
}

fn calls_above_the_last_id_of_a_goaway_were_not_sent_and_those_below_finish(factory: Factory) {
    let (_dir, path) = socket();
    let _server = Raw::start(&path, |number, mut peer| {
        peer.greet()?;
        if number > 0 {
            return peer.serve(b"next");
        }
        let first = peer.request()?;
        peer.request()?;
        peer.write(&frame(GOAWAY, 0, 0, &[first.to_be_bytes(), [0; 4]].concat()))?;
        std::thread::sleep(Duration::from_millis(50));
        peer.answer(first, b"first")?;
        peer.drain()
    });
    let mut rig = Rig::up(factory, &path);
    let first = rig.call("/t/x", "");
    rig.run_for(Duration::from_millis(50));
    let second = rig.call("/t/x", "");
    assert_eq!(rig.end(first), Ok(Bytes::from("first")));
    // The gRPC C-core does not always report that the call was not sent.
    let result = rig.end(second);
    assert!(matches!(result, Err(CallError::NotSent(_) | CallError::Unknown(_))), "{result:?}");
    until_answered(&mut rig, "next", "after a GOAWAY");
}

fn a_server_that_closes_at_once_is_looked_for_ever_more_rarely(factory: Factory) {
    looked_for_ever_more_rarely(factory, |_| Some(()));
}

fn a_server_of_another_protocol_is_looked_for_ever_more_rarely(factory: Factory) {
    looked_for_ever_more_rarely(factory, |mut peer| {
        peer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")?;
        peer.drain()
    });
}

fn looked_for_ever_more_rarely(factory: Factory, script: fn(Peer) -> Option<()>) {
    let (_dir, path) = socket();
    let server = Raw::start(&path, move |_, peer| script(peer));
    let mut rig = Rig::new(factory, &path);
    rig.run_for(Duration::from_secs(3));
    // The back-off is 50, 100, 200, 400 and 800 ms, then 1 s.
    assert!((2..=12).contains(&server.connections()), "{} connections in 3 s", server.connections());
    let id = rig.call_within("/t/x", "", Duration::from_secs(60));
    assert!(rig.end(id).is_err());
    assert!(rig.downs().len() <= server.connections() + 1);
}

fn a_flood_of_pings_and_settings_delays_an_answer_and_nothing_else(factory: Factory) {
    let (_dir, path) = socket();
    let _server = Raw::start(&path, |_, mut peer| {
        peer.greet()?;
        let stream = peer.request()?;
        let reader = Peer(peer.0.try_clone().ok()?);
        std::thread::spawn(move || reader.drain());
        let some = [frame(PING, 0, 0, &[7; 8]).repeat(10), frame(SETTINGS, 0, 0, &[])].concat().repeat(10);
        for _ in 0..200 {
            peer.write(&some)?;
        }
        peer.answer(stream, b"at last")?;
        std::thread::sleep(Duration::from_secs(240));
        Some(())
    });
    let mut rig = Rig::up(factory, &path);
    let id = rig.call("/t/x", "");
    assert_eq!(rig.end(id), Ok(Bytes::from("at last")));
    assert!(rig.downs().is_empty());
}

/// Guarantees of the h2 transport only.
mod h2_alone {
    use super::*;
    use crate::rig;

    #[test]
    fn a_call_above_the_last_id_of_a_goaway_was_not_sent() {
        let (_dir, path) = socket();
        let _server = Raw::start(&path, |number, mut peer| {
            peer.greet()?;
            let first = peer.request()?;
            if number == 0 {
                peer.write(&frame(GOAWAY, 0, 0, &[0; 8]))?;
                return peer.drain();
            }
            peer.answer(first, b"next")?;
            peer.drain()
        });
        let mut rig = Rig::up(rig::h2, &path);
        let id = rig.call("/t/x", "");
        let result = rig.end(id);
        assert!(matches!(result, Err(CallError::NotSent(_))), "{result:?}");
        let id = rig.call("/t/x", "");
        assert_eq!(rig.end(id), Ok(Bytes::from("next")));
        assert!(rig.downs().is_empty());
    }

    #[test]
    fn an_answer_that_is_not_grpc_is_an_error_with_the_reason() {
        let (_dir, path) = socket();
        let _server = Raw::start(&path, |_, mut peer| {
            peer.greet()?;
            let stream = peer.request()?;
            let kind = b"text/html";
            peer.write(&frame(HEADERS, 4, stream, &[&[0x88, 0x0f, 0x10, kind.len() as u8], &kind[..]].concat()))?;
            peer.write(&frame(DATA, 0, stream, b"\0\0\0\0\x04html"))?;
            peer.write(&end(stream))?;
            peer.serve(b"fine")
        });
        let mut rig = Rig::up(rig::h2, &path);
        let id = rig.call("/t/x", "");
        let result = rig.end(id);
        assert!(matches!(&result, Err(CallError::Unknown(why)) if why.contains("text/html")), "{result:?}");
        let id = rig.call("/t/x", "");
        assert_eq!(rig.end(id), Ok(Bytes::from("fine")), "the connection still works");
    }

    #[test]
    fn an_endless_flood_from_a_peer_that_reads_nothing_delays_no_deadline() {
        let (_dir, path) = socket();
        let _server = Raw::start(&path, |_, mut peer| {
            peer.greet()?;
            peer.request()?;
            let pings = frame(PING, 0, 0, &[7; 8]).repeat(1000);
            loop {
                peer.write(&pings)?;
            }
        });
        let mut rig = Rig::up(rig::h2, &path);
        let id = rig.call_within("/t/x", "", Duration::from_millis(300));
        let begin = clock::boot();
        let result = rig.end(id);
        assert!(matches!(&result, Err(CallError::Unknown(why)) if why.contains("deadline exceeded")), "{result:?}");
        assert!(clock::boot().since(begin) < Duration::from_secs(60));
        assert!(!rig.seen.iter().any(|c| matches!(c, Completion::Down { .. })));
    }
}
