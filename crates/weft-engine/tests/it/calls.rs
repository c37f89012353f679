//! Calls pass: all kinds, all sizes, whatever the network does to their bytes.

use crate::support::*;
use weft_core::Status;
use weft_core::filter::{Backoff, Policies, Retry, StatusSet};
use weft_core::rng::Rng;
use weft_engine::plan::{FilterAt, Plan};

/// Messages of up to `max` bytes, some of them compressed as far as the flag says.
fn messages(rng: &mut Rng, n: usize, max: u64, may_be_compressed: bool) -> Vec<Message> {
    let message = |_| {
        let size = match rng.within(&(0..=3)) {
            0 => 0,
            1 => rng.within(&(0..=max.min(100))),
            2 => rng.within(&(0..=max.min(20_000))),
            _ => rng.within(&(0..=max)),
        };
        let blob = rng.bytes(size as usize);
        Message { payload: item("ann", 7, &blob), compressed: may_be_compressed && rng.chance(300) }
    };
    (0..n).map(message).collect()
}

/// Sends calls of all kinds with random messages through a choppy network; every byte must arrive.
fn all_kinds_pass(seed: u64, plan: Plan, may_be_compressed: bool) {
    let mut rng = Rng::from_seed(seed);
    let mut world = World::new(seed, plan)
        .network(Network::choppy(seed))
        .server(CART, |_| Behaviour::default().trailer("x-sum", "1").header("x-kept", "2"));
    let max = if seed.is_multiple_of(8) { 1 << 20 } else { 40_000 };
    let mut calls = Vec::new();
    for _ in 0..2 {
        let client = world.client("front");
        for path in ALL {
            let n = if path == ADD || path == DOWN { 1 } else { rng.within(&(0..=5)) as usize };
            let sent = messages(&mut rng, n, max, may_be_compressed);
            let gap = ms(rng.within(&(0..=20)) as i64);
            let call = Call::stream(path, sent).at(ms(rng.within(&(0..=50)) as i64)).gap(gap);
            calls.push((world.call(client, call.clone().header("x-tag", "a b")), call));
        }
    }
    world.run();
    for (id, call) in calls {
        let answer = world.answer(id);
        assert_eq!(answer.code(), Some(0), "seed {seed}: {:?}", answer.end);
        assert!(answer.messages == call.messages, "seed {seed}: {} came back otherwise", call.path);
        assert_eq!(field(answer.trailers(), "x-sum"), Some("1"), "seed {seed}");
        if !call.messages.is_empty() {
            assert_eq!(field(&answer.headers, "x-kept"), Some("2"), "seed {seed}");
        }
    }
    assert!(world.received().iter().all(|r| r.header("x-tag") == Some("a b")));
}

/// Without a chain the engine would lose, double or garble messages.
#[test]
fn call_without_chain_is_unchanged() {
    for seed in 0..40 {
        all_kinds_pass(seed, Net::new().plan(None, &[CART]), true);
    }
}

/// With a chain that reads every message the engine would lose, double or garble some.
#[test]
fn call_through_chain_is_unchanged() {
    let text = reading_chain();
    for seed in 0..40 {
        all_kinds_pass(seed, Net::new().plan(Some(&text), &[CART]), false);
    }
}

/// A compressed message would pass an element unread, or an uncompressed one arrive flagged as compressed.
#[test]
fn compressed_message_is_read_or_refused() {
    let gzip = stored_gzip(b"\x0a\x03ann\x10\x07");
    let mut world = World::new(1, Net::new().plan(Some(&reading_chain()), &[CART]))
        .server(CART, |_| Behaviour::new(Reply::Messages(vec![Message::new(item("bob", 1, b""))])));
    let client = world.client("front");
    let message = Message { payload: gzip.clone(), compressed: true };
    let good = world.call(client, Call::stream(ADD, vec![message]).header("grpc-encoding", "gzip"));
    let bad = Message { payload: b"this is not gzip".to_vec(), compressed: true };
    let bad = world.call(client, Call::stream(ADD, vec![bad]).header("grpc-encoding", "gzip"));
    let unnamed = Message { payload: gzip.clone(), compressed: true };
    let unnamed = world.call(client, Call::stream(ADD, vec![unnamed]));
    world.run();
    assert_eq!(world.answer(good).code(), Some(0), "{:?}", world.answer(good).end);
    assert_eq!(world.answer(bad).code(), Some(Status::Internal.code() as u32));
    assert_eq!(world.answer(unnamed).code(), Some(Status::Internal.code() as u32));
    let seen: Vec<_> = world.received().iter().flat_map(|r| r.messages.clone()).collect();
    assert_eq!(seen, [Message { payload: gzip, compressed: true }]);
}

/// A failure that a seed has shown could not be shown again.
#[test]
fn same_seed_gives_the_same_run() {
    let run = |seed| {
        let network = Network { reset_per_mille: 20, refuse_per_mille: 200, ..Network::choppy(seed) };
        let mut world = World::new(seed, Net::new().plan(Some(&reading_chain()), &[CART, CART_2]))
            .network(network)
            .server(CART, |_| Behaviour::default().after(ms(3)))
            .server(CART_2, |_| Behaviour::default());
        for client in 0..4 {
            let client_id = world.client("front");
            for nth in 0..10 {
                let call = Call::unary(ADD, item("ann", nth, b"x")).at(ms(client * 5 + nth as i64));
                world.call(client_id, call);
            }
        }
        world.run();
        world.log_hash()
    };
    for seed in 0..10 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
    assert_ne!(run(1), run(2));
}

/// A request that is not gRPC, or has no route, would be taken for a call or left without an answer.
#[test]
fn non_grpc_request_is_refused() {
    let mut world = World::new(1, Net::new().plan(Some(&reading_chain()), &[CART]))
        .server(CART, |_| Behaviour::default());
    let client = world.client("front");
    let unary = |path: &str| Call::unary(path, item("ann", 1, b""));
    let json = world.call(client, unary(ADD).header("content-type", "application/json"));
    let codec = world.call(client, unary(ADD).header("content-type", "application/grpc+json"));
    let unknown = world.call(client, unary("/shop.Cart/Other"));
    let flags = world.call(client, Call::stream(ADD, vec![Message::new(vec![0xff])]));
    world.run();
    assert_eq!(world.answer(json).end.as_ref().map(|(_, end)| end), Some(&End::NotGrpc));
    assert_eq!(world.answer(codec).code(), Some(12));
    assert_eq!(world.answer(unknown).code(), Some(12));
    assert_eq!(world.answer(flags).code(), Some(13), "a malformed message must not pass unread");
    assert!(world.received().iter().all(|r| r.messages.is_empty()));
    assert_eq!(refusals(&mut world, "not_grpc"), 1);
    assert_eq!(refusals(&mut world, "no_route"), 2);
}

/// A client that does not read would fill the memory of the node.
#[test]
fn slow_reader_bounds_held_bytes() {
    for text in [None, Some(reading_chain())] {
        for size in [9_000, 100_000, 900_000] {
            let messages: Vec<_> =
                (0..16_000_000 / size).map(|_| Message::new(item("ann", 1, &vec![7; size]))).collect();
            let answer = messages.clone();
            let mut world = World::new(3, Net::new().plan(text.as_deref(), &[CART]))
                .server(CART, move |_| Behaviour::new(Reply::AtOnce(answer.clone())));
            let client = world.client("front");
            let call = Call::unary(DOWN, item("ann", 1, b"")).reads_after(ms(5_000));
            let call = world.call(client, call);
            world.run();
            // A stream's window at the server, one message, and the output of the connection.
            let limit = (64 << 10) + (256 << 10) + 2 * (size + (64 << 10));
            assert!(world.bytes_held_max() <= limit, "{} bytes of {size}", world.bytes_held_max());
            assert!(world.answer(call).messages == messages);
        }
    }
}

/// If it failed, a server that does not read would fill the node's memory, or lose its window for good.
#[test]
fn streams_share_connection_window() {
    for seed in 0..6 {
        let mut world = World::new(seed, Net::new().plan(Some(&reading_chain()), &[CART]))
            .network(Network::choppy(seed))
            .server(CART, |r| match r.header("x-way") {
                Some("reset") => Behaviour::new(Reply::Reset(1, cancel())),
                _ => Behaviour::default().after(ms(30)),
            });
        let client = world.client("front");
        let mut calls = Vec::new();
        for nth in 0..60 {
            let blob = vec![nth as u8; 60_000];
            let call = Call::stream(BOTH, vec![Message::new(item("ann", 1, &blob)); 3]).at(ms(nth * 40));
            match nth % 3 {
                0 => {
                    world.call(client, call.leaves_after(ms(35)));
                }
                1 => {
                    world.call(client, call.header("x-way", "reset"));
                }
                _ => calls.push(world.call(client, call)),
            }
        }
        world.run();
        for call in calls {
            assert_eq!(world.answer(call).code(), Some(0), "seed {seed}: {:?}", world.answer(call).end);
        }
    }
}

/// If it failed, data that clients sent before they left would count against their connection forever.
#[test]
fn client_reset_returns_window() {
    let mut world = World::new(1, Net::new().plan(None, &[CART])).server(CART, |_| Behaviour::default());
    world.make_unreachable(CART);
    let client = world.client("front");
    let large = item("ann", 1, &[7; 60_000]);
    for nth in 0..40 {
        world.call(client, Call::unary(ADD, large.clone()).at(ms(10 + nth * 50)).leaves_after(ms(45)));
    }
    world.at(ms(3_000), |w| w.revive(CART));
    let call = world.call(client, Call::unary(ADD, large.clone()).at(ms(9_000)).timeout(ms(1_000)));
    world.run();
    assert_eq!(world.answer(call).messages, [Message::new(large)]);
}

/// If it failed, data that servers sent before a reset would count against their connection forever.
#[test]
fn server_reset_returns_window() {
    let mut net = Net::new();
    (net.connections, net.connections_max) = (1, 1);
    let large = vec![Message::new(item("ann", 1, &[7; 300_000]))];
    let mut world = World::new(1, net.plan(None, &[CART])).server(CART, move |r| match r.path() {
        DOWN => Behaviour::new(Reply::ThenReset(large.clone(), ms(500), cancel())),
        _ => Behaviour::default(),
    });
    let client = world.client("front");
    for _ in 0..90 {
        let call = Call::unary(DOWN, item("ann", 1, b"")).at(ms(10)).reads_after(ms(600));
        world.call(client, call);
    }
    let other = world.client("front");
    let call = Call::unary(ADD, item("ann", 1, &[7; 200_000])).at(ms(2_000)).timeout(ms(1_000));
    let call = world.call(other, call);
    world.run();
    assert_eq!(world.answer(call).code(), Some(0), "{:?}", world.answer(call).end);
}

fn cancel() -> weft_proto::session::http2::ErrorCode {
    weft_proto::session::http2::ErrorCode::Cancel
}

/// A PING would go unanswered where no call is under way, or cost a write of its own where one is.
#[test]
fn ping_is_acked_with_next_output() {
    let mut world = World::new(1, Net::new().plan(None, &[CART])).server(CART, |_| Behaviour::default());
    let raw = world.raw("front");
    let ping = [&[0, 0, 8, 6, 0, 0, 0, 0, 0][..], b"whoknows"].concat();
    let pong = [&[0, 0, 8, 6, 1, 0, 0, 0, 0][..], b"whoknows"].concat();
    world.send_raw(
        raw,
        ms(0),
        [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat(),
    );
    world.send_raw(raw, ms(100), ping);
    world.run_until(ms(105));
    let received = &world.seen_by(raw).received;
    assert!(received.ends_with(&pong), "{received:?}");
}

/// If it failed, a server would use an encoding that the client accepts but the chain cannot read, and a completed call
/// would fail.
#[test]
fn unreadable_encodings_are_not_offered() {
    let offer = "grpc-accept-encoding";
    let only_requests = chain("request\nresponse", &[&element("e", &[("request", "forward")])]);
    let only_responses = chain("request\nresponse", &[&element("e", &[("response", "forward")])]);
    // The chain, the offer to the server, and the client's encoding.
    let cases = [
        (None, "snappy,gzip", "zstd, gzip"),
        (Some(only_requests), "snappy,gzip", "gzip"),
        (Some(only_responses), "gzip", "zstd, gzip"),
        (Some(reading_chain()), "gzip", "gzip"),
    ];
    for (text, to_server, to_client) in cases {
        for filters in [vec![], vec![retrying()]] {
            // The filter stands in front of the element: the chain behind it reads messages, too.
            let mut net = Net::new();
            net.filters = if text.is_some() { filters } else { Vec::new() };
            let mut world = World::new(1, net.plan(text.as_deref(), &[CART]))
                .server(CART, |_| Behaviour::default().header("grpc-accept-encoding", "zstd, gzip"));
            let client = world.client("front");
            let call = |at| {
                Call::unary(ADD, item("ann", 1, b"")).header("grpc-accept-encoding", "snappy,gzip").at(ms(at))
            };
            let calls = [0, 50].map(|at| world.call(client, call(at)));
            let all = Call::unary(ADD, item("ann", 1, b"")).header("grpc-accept-encoding", "identity,gzip");
            world.call(client, all.at(ms(100)));
            world.run();
            for call in calls {
                assert_eq!(world.answer(call).code(), Some(0));
                assert_eq!(field(&world.answer(call).headers, offer), Some(to_client), "{text:?}");
            }
            let offered: Vec<_> = world.received().iter().map(|r| r.header(offer)).collect();
            assert_eq!(offered, [Some(to_server), Some(to_server), Some("identity,gzip")], "{text:?}");
        }
    }
}

/// If it failed, a client whose encoding the chain cannot read would not learn which ones it can.
#[test]
fn unknown_encoding_lists_known_ones() {
    let mut world = World::new(1, Net::new().plan(Some(&reading_chain()), &[CART]))
        .server(CART, |_| Behaviour::default());
    let client = world.client("front");
    let message = Message { payload: b"\x05\x10\x0a\x03ann".to_vec(), compressed: true };
    let call = Call::stream(ADD, vec![message]).header("grpc-encoding", "snappy");
    let call = world.call(client, call);
    world.run();
    let answer = world.answer(call);
    assert_eq!(answer.code(), Some(12), "{}", answer.text());
    assert_eq!(field(answer.trailers(), "grpc-accept-encoding"), Some("identity,deflate,gzip"));
}

/// A filter in front of the only element.
fn retrying() -> FilterAt {
    let backoff = Backoff { first: ms(1), max: ms(1), jitter_percent: 0.0 };
    let retry = Retry { retries_max: 1, when: StatusSet::NONE, backoff, budget: None };
    FilterAt {
        at: 0,
        name: "retry".to_owned(),
        policies: Policies { retry: Some(retry), ..Policies::default() },
    }
}
