//! Tests against the scripted server, for what a real runtime does not do on demand.

use crate::rig::{Factory, Rig};
use crate::server::{Options, Server};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;
use wherry::event_loop::clock;
use wherry::net::grpc::{CallError, CallId, Completion};

fn socket() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    (dir, path)
}

fn start(factory: Factory, options: Options) -> (TempDir, Server, Rig) {
    let (dir, path) = socket();
    let server = Server::start(&path, options);
    let rig = Rig::up(factory, &path);
    (dir, server, rig)
}

/// Bytes that depend on their position, so that misplaced bytes are found.
fn pattern(length: usize) -> Bytes {
    (0..length).map(|n| (n ^ (n >> 8) ^ (n >> 16)) as u8).collect()
}

fn many(count: u32, size: u32) -> Vec<u8> {
    [count.to_be_bytes(), size.to_be_bytes()].concat()
}

fn is_unknown(result: &Result<Bytes, CallError>) -> bool {
    matches!(result, Err(CallError::Unknown(_)))
}

fn is_refused(result: &Result<Bytes, CallError>) -> bool {
    matches!(result, Err(CallError::Refused(_)))
}

fn is_not_sent(result: &Result<Bytes, CallError>) -> bool {
    matches!(result, Err(CallError::NotSent(_)))
}

over_each_transport!(
    a_call_is_answered_with_its_message,
    a_status_has_its_code_and_its_message_decoded,
    messages_of_up_to_16_mib_are_transferred_in_both_directions,
    a_message_over_16_mib_is_an_error_with_the_limit,
    three_hundred_calls_at_once_are_each_answered_once,
    calls_above_the_peers_stream_limit_are_queued,
    a_hung_call_ends_at_its_deadline_and_its_stream_is_reset,
    a_cancelled_call_ends_once_and_its_stream_is_reset,
    an_endless_stream_delivers_messages_until_it_is_cancelled,
    a_stream_of_many_messages_is_complete_and_in_order,
    a_refused_call_was_not_sent_and_a_reset_one_is_unknown,
    broken_answers_are_errors_and_do_not_affect_other_calls,
    after_goaway_calls_go_on_over_a_new_connection,
    without_a_server_calls_are_not_sent_and_down_is_reported_once_with_the_socket,
    a_server_restart_is_reported_as_down_and_up,
    a_server_that_reads_slowly_gets_everything,
);

fn a_call_is_answered_with_its_message(factory: Factory) {
    let (_dir, server, mut rig) = start(factory, Options::default());
    for body in ["", "hello"] {
        let id = rig.call("/t/Echo", body);
        assert_eq!(rig.end(id), Ok(Bytes::from(body)));
    }
    let seen = server.seen.lock().unwrap();
    for headers in &seen.headers {
        assert_eq!(headers["te"], "trailers");
        assert!(headers["content-type"].to_str().unwrap().starts_with("application/grpc"));
        assert!(headers.contains_key("user-agent") && headers.contains_key("grpc-timeout"));
    }
    assert_eq!(seen.connections, 1);
}

fn a_status_has_its_code_and_its_message_decoded(factory: Factory) {
    let (_dir, _server, mut rig) = start(factory, Options::default());
    let not_found = rig.call("/t/NotFound", "");
    let message = "no such pod: \"café\" 100%".to_string();
    assert_eq!(rig.end(not_found), Err(CallError::Status { code: 5, message }));
    let internal = rig.call("/t/Internal", "");
    let message = "broken\nin two".to_string();
    assert_eq!(rig.end(internal), Err(CallError::Status { code: 13, message }));
}

fn messages_of_up_to_16_mib_are_transferred_in_both_directions(factory: Factory) {
    let (_dir, _server, mut rig) = start(factory, Options::default());
    // Sizes around a frame, the windows and the limit.
    for size in [1, 16_379, 16_384, 65_535, 65_536, 262_144, 1_048_577, (16 << 20) - 1, 16 << 20] {
        let body = pattern(size);
        let id = rig.call("/t/Echo", body.clone());
        let answer = rig.end(id).unwrap();
        assert!(answer == body, "sent {size} bytes, got {} different ones", answer.len());
        rig.seen.clear();
    }
}

fn a_message_over_16_mib_is_an_error_with_the_limit(factory: Factory) {
    let (_dir, _server, mut rig) = start(factory, Options::default());
    let out = rig.call("/t/Echo", vec![0; (16 << 20) + 1]);
    let result = rig.end(out);
    assert!(is_refused(&result) && text(&result).contains("message of 16777217 bytes is over the limit of 16 MiB"));
    let back = rig.call("/t/TooLarge", "");
    let result = rig.end(back);
    assert!(text(&result).contains("16777217"), "{result:?}");
    let fine = rig.call("/t/Echo", "fine");
    assert_eq!(rig.end(fine), Ok(Bytes::from("fine")));
}

fn three_hundred_calls_at_once_are_each_answered_once(factory: Factory) {
    let (_dir, server, mut rig) = start(factory, Options::default());
    all_answered(&mut rig, 300);
    assert!(server.seen.lock().unwrap().most_at_once > 200);
    assert_eq!(server.seen.lock().unwrap().connections, 1);
}

fn calls_above_the_peers_stream_limit_are_queued(factory: Factory) {
    let (_dir, server, mut rig) = start(factory, Options { max_streams: 20, ..Options::default() });
    all_answered(&mut rig, 100);
    let seen = server.seen.lock().unwrap();
    assert!(seen.most_at_once <= 20, "{} at once", seen.most_at_once);
}

fn all_answered(rig: &mut Rig, count: usize) {
    let bodies: Vec<String> = (0..count).map(|n| format!("call {n}")).collect();
    let ids: Vec<CallId> = bodies.iter().map(|body| rig.call("/t/SlowEcho", body.clone())).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), count);
    rig.until("ends", |seen| seen.len() >= count);
    assert_eq!(rig.seen.len(), count);
    for (id, body) in ids.into_iter().zip(bodies) {
        assert_eq!(rig.end(id), Ok(Bytes::from(body)));
    }
}

fn a_hung_call_ends_at_its_deadline_and_its_stream_is_reset(factory: Factory) {
    let (_dir, server, mut rig) = start(factory, Options::default());
    let begin = clock::boot();
    let hung = rig.call_within("/t/Hang", "", Duration::from_millis(150));
    let later = rig.call_within("/t/SlowEcho", "fine", Duration::from_secs(240));
    let result = rig.end(hung);
    assert!(is_unknown(&result) && text(&result).to_lowercase().contains("deadline exceeded"), "{result:?}");
    let took = clock::boot().since(begin);
    assert!(took >= Duration::from_millis(145) && took < Duration::from_secs(60), "{took:?}");
    assert_eq!(rig.end(later), Ok(Bytes::from("fine")));
    until_reset(&mut rig, &server);
}

fn a_cancelled_call_ends_once_and_its_stream_is_reset(factory: Factory) {
    let (_dir, server, mut rig) = start(factory, Options::default());
    let id = rig.call("/t/Hang", "");
    rig.run_for(Duration::from_millis(50));
    rig.transport.cancel(id);
    rig.transport.cancel(id);
    assert_eq!(rig.end(id), Err(CallError::Unknown("cancelled".to_string())));
    until_reset(&mut rig, &server);
    // To cancel a finished or unknown call has no effect.
    let done = rig.call("/t/Echo", "x");
    assert_eq!(rig.end(done), Ok(Bytes::from("x")));
    rig.transport.cancel(done);
    rig.transport.cancel(CallId(1 << 40));
    rig.run_for(Duration::from_millis(20));
    assert_eq!(rig.seen.len(), 2);
}

fn until_reset(rig: &mut Rig, server: &Server) {
    for _ in 0..10_000 {
        if !server.seen.lock().unwrap().resets.is_empty() {
            assert_eq!(server.seen.lock().unwrap().resets, [::h2::Reason::CANCEL]);
            return;
        }
        rig.run_for(Duration::from_millis(10));
    }
    panic!("the peer got no RST_STREAM");
}

fn an_endless_stream_delivers_messages_until_it_is_cancelled(factory: Factory) {
    let (_dir, server, mut rig) = start(factory, Options::default());
    let id = rig.stream("/t/Endless", "");
    rig.until("message", |seen| !seen.is_empty());
    assert_eq!(rig.messages(id), ["first"]);
    rig.run_for(Duration::from_millis(50));
    assert_eq!(rig.seen.len(), 1);
    rig.transport.cancel(id);
    assert!(is_unknown(&rig.end(id)));
    until_reset(&mut rig, &server);
}

fn a_stream_of_many_messages_is_complete_and_in_order(factory: Factory) {
    let (_dir, _server, mut rig) = start(factory, Options::default());
    for (count, size) in [(0, 0), (3, 2_000_000), (20_000, 10)] {
        let id = rig.stream("/t/Many", many(count, size));
        // The server answers another call during the stream.
        let other = rig.call("/t/Echo", "other");
        assert_eq!(rig.end(other), Ok(Bytes::from("other")));
        assert_eq!(rig.end(id), Ok(Bytes::new()));
        let messages = rig.messages(id);
        assert_eq!(messages.len(), count as usize);
        for (n, message) in messages.iter().enumerate() {
            assert!(message.len() == size as usize && message.iter().all(|b| *b == n as u8), "message {n}");
        }
        rig.seen.clear();
    }
}

fn a_refused_call_was_not_sent_and_a_reset_one_is_unknown(factory: Factory) {
    let (_dir, _server, mut rig) = start(factory, Options::default());
    let reset = rig.call("/t/Reset", "");
    let result = rig.end(reset);
    assert!(is_unknown(&result), "{result:?}");
    let refused = rig.call_within("/t/Refuse", "", Duration::from_secs(60));
    let result = rig.end(refused);
    assert!(is_refused(&result), "{result:?}");
}

fn broken_answers_are_errors_and_do_not_affect_other_calls(factory: Factory) {
    let (_dir, server, mut rig) = start(factory, Options::default());
    let other = rig.call("/t/SlowEcho", "other");
    for path in ["/t/NoStatus", "/t/NoMessage", "/t/Half", "/t/Two"] {
        let id = rig.call(path, "");
        let result = rig.end(id);
        assert!(result.is_err(), "{path}: {result:?}");
    }
    let http = rig.call("/t/Http503", "");
    let result = rig.end(http);
    assert!(matches!(&result, Err(CallError::Status { code: 14, .. })), "{result:?}");
    assert!(text(&result).contains("503"), "{result:?}");
    assert_eq!(rig.end(other), Ok(Bytes::from("other")));
    assert_eq!(server.seen.lock().unwrap().connections, 1);
}

fn after_goaway_calls_go_on_over_a_new_connection(factory: Factory) {
    let (_dir, server, mut rig) = start(factory, Options::default());
    for round in 0..3 {
        // This call is in flight when the server sends GOAWAY, and it finishes.
        let slow = rig.call("/t/SlowEcho", "slow");
        let last = rig.call("/t/GoAway", "last");
        assert_eq!(rig.end(last), Ok(Bytes::from("last")));
        assert_eq!(rig.end(slow), Ok(Bytes::from("slow")));
        rig.run_for(Duration::from_millis(50));
        let next = rig.call("/t/Echo", "next");
        assert_eq!(rig.end(next), Ok(Bytes::from("next")), "round {round}");
    }
    assert!(server.seen.lock().unwrap().connections >= 4);
}

fn without_a_server_calls_are_not_sent_and_down_is_reported_once_with_the_socket(factory: Factory) {
    let (_dir, path) = socket();
    let mut rig = Rig::new(factory, &path);
    assert!(!rig.transport.is_up());
    rig.until("Down", |seen| seen.iter().any(|c| matches!(c, Completion::Down { .. })));
    let id = rig.call("/t/Echo", "");
    let result = rig.end(id);
    assert!(is_not_sent(&result), "{result:?}");
    rig.run_for(Duration::from_millis(1500));
    let downs = rig.downs();
    assert_eq!(downs.len(), 1, "{downs:?}");
    assert!(downs[0].contains(path.to_str().unwrap()), "{downs:?}");
    assert!(!rig.transport.is_up());
    // The transport is up as soon as a server listens.
    let _server = Server::start(&path, Options::default());
    rig.until("Up", |seen| seen.contains(&Completion::Up));
    let id = rig.call("/t/Echo", "now");
    assert_eq!(rig.end(id), Ok(Bytes::from("now")));
}

fn a_server_restart_is_reported_as_down_and_up(factory: Factory) {
    let (_dir, mut server, mut rig) = start(factory, Options::default());
    for _ in 0..2 {
        let hung: Vec<CallId> = (0..5).map(|_| rig.call("/t/Hang", "")).collect();
        rig.run_for(Duration::from_millis(50));
        server.kill();
        for id in hung {
            let result = rig.end(id);
            assert!(is_unknown(&result), "{result:?}");
        }
        rig.until("Down", |seen| seen.iter().any(|c| matches!(c, Completion::Down { .. })));
        let id = rig.call_within("/t/Echo", "", Duration::from_secs(60));
        let result = rig.end(id);
        assert!(is_not_sent(&result), "{result:?}");
        assert_eq!(rig.downs().len(), 1);
        rig.seen.clear();
        server = Server::start(&server.path, Options::default());
        rig.until("Up", |seen| seen.contains(&Completion::Up));
        let id = rig.call("/t/Echo", "back");
        assert_eq!(rig.end(id), Ok(Bytes::from("back")));
        rig.seen.clear();
    }
    // The transport reconnects after the server drops the connection.
    let id = rig.call("/t/Drop", "");
    assert!(is_unknown(&rig.end(id)));
    rig.until("Up", |seen| seen.contains(&Completion::Up));
    let id = rig.call("/t/Echo", "again");
    assert_eq!(rig.end(id), Ok(Bytes::from("again")));
}

fn a_server_that_reads_slowly_gets_everything(factory: Factory) {
    let (_dir, _server, mut rig) = start(factory, Options { read_at_once: 20_000, ..Options::default() });
    let body = pattern(2 << 20);
    let ids: Vec<CallId> = (0..3).map(|_| rig.call("/t/Echo", body.clone())).collect();
    for id in ids {
        assert!(rig.end(id).is_ok_and(|answer| answer == body));
    }
}

fn text(result: &Result<Bytes, CallError>) -> &str {
    match result {
        Ok(_) => "",
        Err(CallError::NotSent(why) | CallError::Refused(why) | CallError::Unknown(why)) => why,
        Err(CallError::Status { message, .. }) => message,
    }
}

/// Guarantees of the h2 transport only.
mod h2_alone {
    use super::*;
    use crate::rig;

    #[test]
    fn an_idle_connection_does_nothing_and_has_no_deadline() {
        let (_dir, _server, mut rig) = start(rig::h2, Options::default());
        let id = rig.call("/t/Echo", "x");
        assert_eq!(rig.end(id), Ok(Bytes::from("x")));
        rig.run_for(Duration::from_millis(50));
        assert_eq!(rig.transport.next_deadline(), None);
        rig.drives = 0;
        rig.run_for(Duration::from_millis(300));
        assert_eq!(rig.drives, 1, "unexpected wake-ups");
    }

    /// The gRPC C-core ignores a compressed flag without an encoding.
    #[test]
    fn a_compressed_message_is_an_error() {
        let (_dir, _server, mut rig) = start(rig::h2, Options::default());
        let id = rig.call("/t/Compressed", "");
        let result = rig.end(id);
        assert!(is_unknown(&result) && text(&result).contains("compressed"), "{result:?}");
    }

    #[test]
    fn goaway_is_no_down_if_a_new_connection_is_there_at_once() {
        let (_dir, server, mut rig) = start(rig::h2, Options::default());
        for _ in 0..3 {
            let id = rig.call("/t/GoAway", "x");
            assert_eq!(rig.end(id), Ok(Bytes::from("x")));
            // Calls at any time during the change of connections are not lost.
            for n in 0..50 {
                let id = rig.call("/t/Echo", format!("{n}"));
                if n % 5 == 0 {
                    let result = rig.end(id);
                    assert!(result.is_ok() || is_not_sent(&result), "{result:?}");
                }
            }
            rig.run_for(Duration::from_millis(300));
        }
        assert!(rig.downs().is_empty());
        assert_eq!(server.seen.lock().unwrap().connections, 4);
        assert!(rig.transport.is_up());
    }

    #[test]
    fn a_peer_that_accepts_and_sends_nothing_is_not_up() {
        let (_dir, path) = socket();
        let _server = Server::start(&path, Options { mute: true, ..Options::default() });
        let mut rig = Rig::new(rig::h2, &path);
        rig.run_for(Duration::from_millis(100));
        assert_eq!(rig.seen, []);
        let id = rig.call("/t/Echo", "x");
        assert!(is_not_sent(&rig.end(id)));
        rig.until("Down", |seen| seen.iter().any(|c| matches!(c, Completion::Down { .. })));
        assert!(rig.downs()[0].contains("no response (HTTP/2 SETTINGS) within 10 s"), "{:?}", rig.downs());
    }

    #[test]
    fn an_absent_server_is_looked_for_at_most_once_a_second() {
        let (_dir, path) = socket();
        let mut rig = Rig::new(rig::h2, &path);
        rig.run_for(Duration::from_millis(2500));
        rig.drives = 0;
        rig.run_for(Duration::from_millis(3000));
        assert!((2..=5).contains(&rig.drives), "{} drives in 3 s", rig.drives);
    }

    #[test]
    fn a_flood_stops_at_its_budget_and_does_not_starve_other_sources() {
        let (_dir, _server, mut rig) = start(rig::h2, Options::default());
        let id = rig.stream("/t/Many", many(200, 100_000));
        let mut most = 0;
        let latest = clock::boot() + Duration::from_secs(240);
        let mut before = 0;
        while !rig.seen.iter().any(|c| matches!(c, Completion::Done { .. })) {
            rig.turn(latest);
            let bytes: usize = rig.messages(id).iter().map(Bytes::len).sum();
            most = most.max(bytes - before);
            before = bytes;
        }
        assert_eq!(before, 200 * 100_000);
        assert!(most <= 400_000, "{most} bytes in one turn");
    }
}
