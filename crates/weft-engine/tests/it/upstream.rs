//! Servers that are dead, slow, many, or about to leave.

use crate::support::*;
use std::sync::Arc;
use weft_core::Interval;
use weft_core::options::ListenerOptions;
use weft_engine::plan::Balance;

fn echo() -> Behaviour {
    Behaviour::default()
}

fn add(world: &mut World, client: ClientId, at: i64) -> CallId {
    world.call(client, Call::unary(ADD, item("ann", 1, b"")).at(ms(at)))
}

/// A call to a server that is not there would hang, or be told the wrong reason.
#[test]
fn missing_server_is_unavailable() {
    for text in [None, Some(reading_chain())] {
        let mut world = World::new(1, Net::new().plan(text.as_deref(), &[CART])).server(CART, |_| echo());
        world.kill(CART);
        let client = world.client("front");
        let first = add(&mut world, client, 0);
        let soon = add(&mut world, client, 20);
        world.at(ms(3_000), |w| w.revive(CART));
        let later = add(&mut world, client, 9_000);
        world.run();
        assert_eq!(world.answer(first).code(), Some(14));
        assert_eq!(world.answer(soon).code(), Some(14));
        assert_eq!(world.answer(later).code(), Some(0));
        let text = format!("cannot connect to {CART}; next try in 0.1 s");
        assert_eq!(world.answer(first).text(), text);
        assert_eq!(
            world.answer(soon).text(),
            format!("cluster `cart`: {text}"),
            "it is not tried again at once"
        );
    }
}

/// A server behind a network that swallows everything would hold calls beyond their deadline.
#[test]
fn deadline_applies_while_waiting() {
    let mut world = World::new(1, Net::new().plan(Some(&reading_chain()), &[CART]))
        .server(CART, |_| Behaviour::new(Reply::Silence));
    world.make_unreachable(CART);
    let client = world.client("front");
    let call = |path: &str| Call::unary(path, item("ann", 1, b"")).timeout(ms(200));
    let connecting: Vec<_> = ALL.iter().map(|path| world.call(client, call(path))).collect();
    let patient = world.call(client, Call::unary(ADD, item("ann", 1, b"")));
    world.at(ms(1_500), |w| w.revive(CART));
    let waiting: Vec<_> = ALL.iter().map(|path| world.call(client, call(path).at(ms(4_000)))).collect();
    world.run();
    for id in connecting.into_iter().chain(waiting) {
        assert_eq!(world.answer(id).code(), Some(4));
        assert!((ms(200)..ms(205)).contains(&world.answer(id).took()), "{}", world.answer(id).took());
    }
    assert_eq!(world.answer(patient).code(), Some(14), "the connect timeout ends a call without a deadline");
    assert!(world.received().iter().all(|r| r.is_cancelled), "the server learns that its caller has left");
}

/// A server that dies would take its calls with it without a word.
#[test]
fn lost_connection_is_unavailable() {
    let mut world = World::new(1, Net::new().plan(Some(&reading_chain()), &[CART]))
        .server(CART, |_| echo().after(ms(500)));
    let client = world.client("front");
    let calls: Vec<_> = (0..20).map(|nth| add(&mut world, client, nth)).collect();
    world.at(ms(100), |w| w.kill(CART));
    world.run();
    for call in calls {
        assert_eq!(world.answer(call).code(), Some(14));
        assert!(world.answer(call).text().contains("was lost"), "{}", world.answer(call).text());
    }
}

/// A client that leaves would keep its server busy.
#[test]
fn client_close_cancels_streams() {
    for text in [None, Some(reading_chain())] {
        let mut world = World::new(1, Net::new().plan(text.as_deref(), &[CART]))
            .server(CART, |_| Behaviour::new(Reply::Silence));
        let (leaver, lost) = (world.client("front"), world.client("front"));
        for path in ALL {
            world.call(leaver, Call::unary(path, item("ann", 1, b"")).leaves_after(ms(50)));
            world.call(lost, Call::unary(path, item("ann", 1, b"")));
        }
        world.at(ms(60), move |w| w.cut(lost));
        world.run();
        assert_eq!(world.received().len(), 8);
        assert!(world.received().iter().all(|r| r.is_cancelled));
    }
}

/// One dead server of three would fail a third of the calls.
#[test]
fn calls_avoid_connecting_endpoint() {
    for balance in [Balance::RoundRobin, Balance::LeastRequest, Balance::Random] {
        let mut net = Net::new();
        net.balance = balance;
        let mut world = World::new(1, net.plan(None, &[CART, CART_2, CART_3]))
            .server(CART, |_| echo())
            .server(CART_2, |_| echo())
            .server(CART_3, |_| echo());
        world.kill(CART_2);
        let client = world.client("front");
        let calls: Vec<_> = (0..60).map(|nth| add(&mut world, client, nth * 7)).collect();
        world.run();
        assert!(calls.into_iter().all(|call| world.answer(call).code() == Some(0)), "{balance:?}");
    }
}

/// If it failed, calls would wait again and again for a server that accepts connections and stays silent, though
/// another is up.
#[test]
fn hung_endpoint_is_probed() {
    for balance in [Balance::RoundRobin, Balance::LeastRequest, Balance::Random] {
        let mut net = Net::new();
        net.balance = balance;
        let mut world = World::new(1, net.plan(None, &[CART, CART_2]))
            .server(CART, |_| echo())
            .server(CART_2, |_| echo());
        world.make_unreachable(CART_2);
        let client = world.client("front");
        let early: Vec<_> = (0..20).map(|nth| add(&mut world, client, nth * 20)).collect();
        let late: Vec<_> = (0..600).map(|nth| add(&mut world, client, 1_500 + nth * 20)).collect();
        world.at(ms(14_000), |w| w.revive(CART_2));
        let back: Vec<_> = (0..100).map(|nth| add(&mut world, client, 22_000 + nth * 20)).collect();
        world.run();
        assert!(world.answers().all(|(_, answer)| answer.code() == Some(0)), "{balance:?}");
        let waited =
            |calls: &[CallId]| calls.iter().filter(|call| world.answer(**call).took() > ms(10)).count();
        // By turns it is every second; by chance it may be more.
        let most = if balance == Balance::Random { 15 } else { 10 };
        assert!(waited(&early) <= most, "{balance:?}: {} calls waited", waited(&early));
        assert_eq!(waited(&late), 0, "{balance:?}");
        assert_eq!(waited(&back), 0, "{balance:?}: its connection is made before it gets calls");
        let n_back = world.received().iter().filter(|r| r.server == CART_2).count();
        assert!((35..=65).contains(&n_back), "{balance:?}: {n_back} calls after it was back");
    }
}

/// If it failed, all workers or nodes with one stream each would use one server; and each update would align them
/// again.
#[test]
fn workers_start_at_other_endpoints() {
    let servers = [CART, CART_2, CART_3];
    for balance in [Balance::RoundRobin, Balance::LeastRequest] {
        let mut counts = [0; 3];
        for worker in 0..6 {
            let mut net = Net::new();
            net.balance = balance;
            let (first, second) = (net.plan(None, &servers), net.plan(None, &servers));
            let config = weft_engine::Config { worker, workers: 6, ..weft_engine::Config::default() };
            let mut world = World::with_config(9, config, first);
            for server in servers {
                world = world.server(server, |_| echo());
            }
            let client = world.client("front");
            add(&mut world, client, 0);
            world.at(ms(100), move |w| w.apply(second));
            add(&mut world, client, 200);
            world.run();
            let at = |nth: usize| servers.iter().position(|server| *server == world.received()[nth].server);
            let [one, other] = [at(0), at(1)].map(|at| at.expect("a server has it"));
            assert_eq!(other, (one + 1) % 3, "{balance:?}: an update does not begin anew");
            counts[one] += 1;
        }
        assert_eq!(counts, [2, 2, 2], "{balance:?}");
    }
}

/// Load would pile up on one server.
#[test]
fn balancer_spreads_calls() {
    let run = |balance| {
        let mut net = Net::new();
        net.balance = balance;
        // The second server is ten times as slow.
        let mut world = World::new(1, net.plan(None, &[CART, CART_2]))
            .server(CART, |_| echo().after(ms(10)))
            .server(CART_2, |_| echo().after(ms(100)));
        let client = world.client("front");
        for nth in 0..200 {
            add(&mut world, client, nth * 5);
        }
        world.run();
        world.received().iter().filter(|r| r.server == CART).count()
    };
    assert_eq!(run(Balance::RoundRobin), 100);
    assert!(run(Balance::LeastRequest) > 150);
}

/// Calls beyond a server's streams would be refused, or wait for ever.
#[test]
fn calls_wait_for_a_stream() {
    let mut net = Net::new();
    (net.connections, net.connections_max) = (1, 1);
    let mut world =
        World::new(1, net.plan(Some(&reading_chain()), &[CART])).server(CART, |r| match r.header("x-way") {
            Some("reset") => Behaviour::new(Reply::Reset(1, weft_proto::session::http2::ErrorCode::Cancel)),
            _ => echo().after(ms(5)),
        });
    world.limit_streams(CART, 3);
    let client = world.client("front");
    let calls: Vec<_> = (0..40)
        .map(|nth| {
            let call = Call::unary(ADD, item("ann", nth, b"")).at(ms(300));
            let is_reset = nth % 4 == 0;
            (is_reset, world.call(client, if is_reset { call.header("x-way", "reset") } else { call }))
        })
        .collect();
    add(&mut world, client, 0);
    world.run();
    for (is_reset, call) in calls {
        assert_eq!(world.answer(call).code(), Some(if is_reset { 1 } else { 0 }));
    }
}

/// If it failed, a graceful restart of a server would lose calls, or delay those behind a long stream.
#[test]
fn goaway_moves_new_calls() {
    let mut net = Net::new();
    (net.connections, net.connections_max) = (1, 1);
    let mut world =
        World::new(1, net.plan(Some(&reading_chain()), &[CART])).server(CART, |_| echo().after(ms(20)));
    world.limit_streams(CART, 2);
    let client = world.client("front");
    let messages = vec![Message::new(item("ann", 1, b"")); 30];
    let long = world.call(client, Call::stream(BOTH, messages.clone()).gap(ms(100)));
    let calls: Vec<_> = (0..30).map(|nth| add(&mut world, client, 5 + nth * 10)).collect();
    world.at(ms(100), |w| w.go_away(CART));
    world.run();
    assert_eq!(world.answer(long).code(), Some(0));
    assert!(world.answer(long).messages == messages);
    for call in calls {
        assert_eq!(world.answer(call).code(), Some(0), "{:?}", world.answer(call).end);
        assert!(world.answer(call).took() < ms(1_000), "it waited for the long stream");
    }
}

/// If it failed, calls that a stopping server has not processed would fail or hang, though they can be resent. A
/// request too long to be kept is reported to its client as refused, so that the client may retry.
#[test]
fn goaway_resends_unprocessed_calls() {
    for text in [None, Some(reading_chain())] {
        for blob in [100, 20_000] {
            let mut world = World::new(1, Net::new().plan(text.as_deref(), &[CART]))
                .network(Network { latency_us: 20_000..=20_000, ..Network::default() })
                .server(CART, |_| echo().after(ms(100)));
            let client = world.client("front");
            let call = |nth: i64| Call::unary(ADD, item("ann", 1, &vec![7; blob])).at(ms(nth * 5));
            let calls: Vec<_> = (0..30).map(|nth| world.call(client, call(nth))).collect();
            world.at(ms(120), |w| w.go_away_at_once(CART));
            world.run();
            let ends = calls.iter().map(|call| world.answer(*call).end.clone().map(|(_, end)| end));
            let n_refused = ends.clone().filter(|end| *end == Some(End::Reset)).count();
            let n_good = calls.iter().filter(|call| world.answer(**call).code() == Some(0)).count();
            assert_eq!(n_good + n_refused, 30, "{:?}", ends.collect::<Vec<_>>());
            assert_eq!(world.answer(calls[29]).code(), Some(0), "later calls take a new connection");
            let resent = world.engine().stats().calls_resent;
            match blob {
                100 => assert!(n_refused == 0 && resent > 0, "{n_refused} refused, {resent} sent again"),
                _ => assert!(n_refused > 0 && resent == 0, "{n_refused} refused, {resent} sent again"),
            }
        }
    }
}

/// If it failed, an unprocessed call would fail, be sent forever, or use up the retry budget.
#[test]
fn refused_call_is_resent_elsewhere() {
    use weft_core::filter::{Backoff, Budget, Policies, Reliability, Retry, StatusSet};
    use weft_engine::plan::FilterAt;
    let refused = || Behaviour::new(Reply::Reset(0, weft_proto::session::http2::ErrorCode::RefusedStream));
    let at_most_once = Policies { once: Some(Reliability::AtMostOnce), ..Policies::default() };
    let retry = Retry {
        retries_max: 3,
        when: StatusSet::server_errors(),
        backoff: Backoff { first: ms(1), max: ms(1), jitter_percent: 0.0 },
        budget: Some(Budget { percent: 0.0, per_second_min: 0.0 }),
    };
    let retry = Policies { retry: Some(retry), ..Policies::default() };
    // Those that refuse, the filter, how often the call reaches a server, and whether it ends well.
    let cases: [(usize, Option<&Policies>, usize, bool); 6] = [
        (1, None, 2, true),
        (2, None, 2, false),
        (1, Some(&retry), 2, true),
        (2, Some(&retry), 2, false),
        (1, Some(&at_most_once), 1, false),
        (0, None, 1, true),
    ];
    for (n_refusing, policies, n_sent, is_good) in cases {
        for path in [ADD, DOWN, BOTH] {
            let mut net = Net::new();
            let filters = policies.iter().map(|policies| (*policies).clone());
            net.filters =
                filters.map(|policies| FilterAt { at: 1, name: "f".to_owned(), policies }).collect();
            let text = reading_chain();
            let mut world = World::new(1, net.plan(Some(&text), &[CART, CART_2]))
                .server(CART, move |_| if n_refusing > 0 { refused() } else { echo() })
                .server(CART_2, move |_| if n_refusing > 1 { refused() } else { echo() });
            let client = world.client("front");
            let message = item("ann", 1, b"rest");
            for at in [0, 100] {
                world.call(client, Call::unary(path, message.clone()).at(ms(at)));
            }
            world.run();
            let ends: Vec<bool> = world.answers().map(|(_, answer)| answer.code() == Some(0)).collect();
            let n_received = world.received().len();
            let what = format!("{path}, {n_refusing} refuse, {policies:?}");
            match (n_refusing, is_good) {
                // One call comes to the one that refuses, the other does not.
                (1, true) => {
                    assert!(ends == [true, true] && n_received == n_sent + 1, "{what}: {n_received}")
                }
                (1, false) => {
                    assert!(ends.iter().filter(|end| **end).count() == 1 && n_received == 2, "{what}")
                }
                (_, true) => assert!(ends == [true, true] && n_received == 2 * n_sent, "{what}"),
                (_, false) => {
                    assert!(ends == [false, false] && n_received == 2 * n_sent, "{what}: {n_received}")
                }
            }
            let well = world.received().iter().filter(|r| !r.messages.is_empty());
            assert!(well.clone().all(|r| r.messages[0].payload == message), "{what}");
            let resent = world.engine().stats().calls_resent as usize;
            assert_eq!(resent, n_received - 2, "{what}");
        }
    }
}

/// If it failed, a call of which nothing had left when its connection was lost would fail, though no server has seen
/// it.
#[test]
fn unsent_call_is_resent() {
    let mut net = Net::new();
    (net.connections, net.connections_max) = (1, 1);
    // Data that the network does not accept waits in the node.
    let mut world = World::new(1, net.plan(None, &[CART, CART_2]))
        .network(Network { capacity_bytes: 2_000, latency_us: 50_000..=50_000, ..Network::default() })
        .server(CART, |_| echo())
        .server(CART_2, |_| echo());
    for _ in 0..20 {
        let client = world.client("front");
        world.call(client, Call::unary(ADD, item("ann", 1, &[7; 30_000])));
    }
    let client = world.client("front");
    let behind = [300, 301].map(|at| world.call(client, Call::unary(ADD, item("bob", 1, b"")).at(ms(at))));
    world.at(ms(400), |w| w.kill(CART));
    world.run();
    let n_lost = world.answers().filter(|(_, answer)| answer.code() == Some(14)).count();
    assert!((1..10).contains(&n_lost), "{n_lost}: those that the server has begun to read");
    for call in behind {
        assert_eq!(world.answer(call).code(), Some(0), "{}", world.answer(call).text());
    }
    assert_eq!(world.engine().stats().calls_resent, 11 - n_lost as u64, "all others of its 11");
    assert!(world.received().len() <= 22, "none is seen by two servers");
}

/// A delayed answer would be lost with the server that gave it.
#[test]
fn delayed_answer_outlives_server() {
    let delay = format!("v0: int = int {}\ndelay v0\nforward", ms(100).0);
    let text = chain("request\nresponse", &[&element("e", &[("response", &delay)])]);
    let mut world = World::new(1, Net::new().plan(Some(&text), &[CART])).server(CART, |_| echo());
    let client = world.client("front");
    let call = add(&mut world, client, 0);
    world.at(ms(50), |w| w.kill(CART));
    world.run();
    assert_eq!(world.answer(call).code(), Some(0));
    assert_eq!(world.answer(call).messages.len(), 1);
}

/// A call whose headers no connection takes would wait for ever.
#[test]
fn oversize_headers_end_call() {
    let mut plan = Net::new().plan(None, &[CART]);
    let options = ListenerOptions { header_size_max: 64 << 10, ..ListenerOptions::default() };
    plan.listeners[0].options = Arc::new(options);
    let mut world = World::new(1, plan).server(CART, |_| echo());
    let client = world.client("front");
    add(&mut world, client, 0);
    let call = Call::unary(ADD, item("ann", 1, b"")).header("x-large", &"v".repeat(40_000)).at(ms(100));
    let call = world.call(client, call);
    world.run();
    assert_eq!(world.answer(call).code(), Some(8));
}

/// If it failed, a server would be blamed for a reset that it has not sent, and its fault would not be named.
#[test]
fn server_fault_is_named() {
    for text in [None, Some(reading_chain())] {
        let mut world = World::new(1, Net::new().plan(text.as_deref(), &[CART]))
            .server(CART, |_| echo().header("content-length", "3"));
        let client = world.client("front");
        let call = add(&mut world, client, 0);
        world.run();
        let why = "the server broke a rule of HTTP/2: The body is not as long as `content-length` says.";
        assert_eq!(world.answer(call).code(), Some(13));
        assert_eq!(world.answer(call).text(), format!("the stream to {CART} was ended here: {why}"));
        assert_eq!(refusals(&mut world, "content_length"), 1);
    }
}

/// Ten thousand calls that wait would leave something behind.
#[test]
fn timed_out_waiters_are_freed() {
    let mut world = World::new(1, Net::new().plan(None, &[CART])).server(CART, |_| echo());
    world.make_unreachable(CART);
    let client = world.client("front");
    for nth in 0..500 {
        let call = Call::unary(ADD, item("ann", 1, b"")).at(ms(10)).timeout(ms(1 + nth % 50));
        world.call(client, call);
    }
    world.run();
    assert!(world.answers().all(|(_, answer)| answer.code() == Some(4)));
    assert_eq!(world.engine().connections_open(), 1, "only the client's is left");
    assert!(world.elapsed() < Interval::from_secs(60));
}

/// If it failed, a stopping node would lose calls in flight, or never close its connections.
#[test]
fn graceful_stop_finishes_calls() {
    for seed in 0..10 {
        let network = Network { latency_us: 100..=9_000, chunk_bytes: 10..=500, ..Network::default() };
        let mut world = World::new(seed, Net::new().plan(Some(&reading_chain()), &[CART]))
            .network(network)
            .server(CART, |_| echo().after(ms(20)));
        let client = world.client("front");
        let calls: Vec<_> = (0..60).map(|nth| add(&mut world, client, nth * 2)).collect();
        world.at(ms(70), |w| {
            let now = START + w.elapsed();
            w.engine().close_gracefully(now);
        });
        world.run();
        let ends: Vec<_> = calls.iter().map(|call| world.answer(*call)).collect();
        let n_good = ends.iter().filter(|a| a.code() == Some(0)).count();
        let n_unsent = ends.iter().filter(|a| matches!(a.end, Some((_, End::Lost)))).count();
        assert_eq!((n_good + n_unsent, n_good), (60, world.received().len()), "seed {seed}");
        assert!(n_good >= 35, "seed {seed}: {n_good}");
        assert_eq!(world.engine().stats().downstream.open, 0, "seed {seed}");
    }
}

/// If it failed, further connections of a cluster would stay unused while calls wait for a stream of the first.
#[test]
fn waiting_calls_add_connections() {
    let mut world = World::new(1, Net::new().plan(None, &[CART])).server(CART, |_| echo().after(ms(100)));
    world.limit_streams(CART, 5);
    let client = world.client("front");
    let calls: Vec<_> = (0..20).map(|_| add(&mut world, client, 10)).collect();
    world.run();
    for call in calls {
        assert_eq!(world.answer(call).code(), Some(0));
        assert!(
            world.answer(call).took() < ms(150),
            "it waited for another call: {}",
            world.answer(call).took()
        );
    }
    assert_eq!(world.engine().stats().upstream.total, 4);
}

/// A page of a proxy that stands before the server would reach the client as a gRPC response.
#[test]
fn http_status_maps_to_grpc_status() {
    for text in [None, Some(reading_chain())] {
        for (http, status) in [(404, 12), (503, 14), (403, 7), (500, 2), (200, 2)] {
            for body in [&b""[..], b"<h1>no</h1>"] {
                let page = Reply::Page(http, body.to_vec());
                let mut world = World::new(1, Net::new().plan(text.as_deref(), &[CART]))
                    .server(CART, move |_| Behaviour::new(page.clone()));
                let client = world.client("front");
                let call = add(&mut world, client, 0);
                world.run();
                assert_eq!(world.answer(call).code(), Some(status), "{http}");
                assert!(world.answer(call).messages.is_empty());
            }
        }
    }
}

/// If it failed, a call with an unreadable deadline would have none.
#[test]
fn malformed_timeout_is_refused() {
    let mut world = World::new(1, Net::new().plan(None, &[CART])).server(CART, |_| echo());
    let client = world.client("front");
    let call = Call::unary(ADD, item("ann", 1, b"")).header("grpc-timeout", "soon");
    let call = world.call(client, call);
    world.run();
    assert_eq!(world.answer(call).code(), Some(13));
    assert_eq!(refusals(&mut world, "grpc_timeout"), 1);
}

/// A client that does not answer would hold up a node that stops.
#[test]
fn stop_survives_silent_client() {
    let mut world = World::new(1, Net::new().plan(None, &[CART])).server(CART, |_| echo());
    let silent = world.raw("front");
    let hello = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat();
    world.send_raw(silent, ms(0), hello);
    world.at(Interval::from_secs(30), |w| {
        let now = START + w.elapsed();
        w.engine().close_gracefully(now);
    });
    world.run_until(Interval::from_secs(33));
    assert_eq!(world.engine().clients_open(), 0);
}

/// If it failed, an unfinished call would end silently when a node stops, and without its CLOSE.
#[test]
fn cut_ends_unfinished_calls() {
    let counts = element("counts", &[("open", &bump(0)), ("close", &bump(1))]);
    let text = chain(&format!("request\nresponse\n{}", vars("counts", 2)), &[&counts]);
    let mut world =
        World::new(1, Net::new().plan(Some(&text), &[CART])).server(CART, |_| Behaviour::new(Reply::Silence));
    let client = world.client("front");
    let calls = ALL.map(|path| world.call(client, Call::unary(path, item("ann", 1, b""))));
    world.at(ms(100), |w| {
        let now = START + w.elapsed();
        w.engine().close_gracefully(now);
    });
    world.at(ms(300), |w| {
        let now = START + w.elapsed();
        assert_eq!(w.engine().cut(now), 4);
    });
    world.run();
    for call in calls {
        assert_eq!(world.answer(call).code(), Some(14));
    }
    assert_eq!(world.engine().connections_open(), 0);
    assert_eq!(var_values(&mut world, 2), [4, 4]);
}

/// A network with one endpoint of so many streams on each connection. Calls with `x-hold` are not answered, all others
/// in a tenth of a second.
fn narrow(connections: u32, connections_max: u32, streams: u32) -> World {
    let mut net = Net::new();
    (net.connections, net.connections_max) = (connections, connections_max);
    let mut world =
        World::new(1, net.plan(Some(&reading_chain()), &[CART])).server(CART, |r| match r.header("x-hold") {
            Some(_) => Behaviour::new(Reply::Silence),
            None => echo().after(ms(100)),
        });
    world.limit_streams(CART, streams);
    world
}

/// A call that is held until its client leaves, a minute later.
fn hold(world: &mut World, client: ClientId, at: i64) -> CallId {
    let call = Call::unary(ADD, item("ann", 1, b"")).header("x-hold", "1").at(ms(at));
    world.call(client, call.leaves_after(Interval::from_secs(60)))
}

fn endpoint(world: &mut World) -> weft_engine::stats::EndpointStats {
    world.engine().stats().endpoints[0].clone()
}

/// If it failed, a call would wait for as long as others hold all streams, without a reason in its answer.
#[test]
fn queue_overflow_names_the_limit() {
    let mut world = narrow(1, 1, 3);
    let (holder, other) = (world.client("front"), world.client("front"));
    for nth in 0..3 {
        hold(&mut world, holder, nth * 10);
    }
    let calls = [1_000, 2_500].map(|at| add(&mut world, other, at));
    world.run_until(ms(3_000));
    let seen = endpoint(&mut world);
    assert_eq!((seen.active, seen.places, seen.connections, seen.waiting), (3, 3, 1, 2));
    world.run();
    for call in calls {
        let answer = world.answer(call);
        assert_eq!(answer.code(), Some(14));
        let text = format!(
            "cluster `cart` is full: 3 of 3 streams to {CART} are taken, on 1 connections; none came free in 10 s"
        );
        assert_eq!(answer.text(), text);
        assert!((ms(10_000)..ms(11_100)).contains(&answer.took()), "{}", answer.took());
    }
    assert_eq!(refusals(&mut world, "waiting_time_max"), 2);
    assert_eq!(endpoint(&mut world).waiting, 0);
}

/// If it failed, a client with many calls would make all others wait until those are done.
#[test]
fn client_flood_starves_no_other() {
    let mut world = narrow(1, 6, 2);
    let (flood, other) = (world.client("front"), world.client("front"));
    for _ in 0..150 {
        add(&mut world, flood, 10);
    }
    let calls: Vec<_> = (0..10).map(|nth| add(&mut world, other, 500 + nth * 500)).collect();
    world.run();
    assert!(world.answers().all(|(_, answer)| answer.code() == Some(0)));
    for call in calls {
        // One turn of the other client, and its own.
        assert!(world.answer(call).took() < ms(320), "{}", world.answer(call).took());
    }
    assert_eq!(world.engine().stats().upstream.total, 1, "streams that are given back make no connections");
}

/// If it failed, long streams would block all other calls, though the server is idle.
#[test]
fn long_streams_add_connections() {
    let mut world = narrow(2, 6, 2);
    let (holder, other) = (world.client("front"), world.client("front"));
    for nth in 0..7 {
        hold(&mut world, holder, nth * 10);
    }
    let calls = [0, 10, 20].map(|after| add(&mut world, other, 200 + after));
    world.run_until(ms(5_000));
    let seen = endpoint(&mut world);
    assert_eq!((seen.active, seen.connections, seen.places, seen.waiting), (7, 4, 8, 0));
    world.run();
    for call in calls {
        assert_eq!(world.answer(call).code(), Some(0));
        assert!(world.answer(call).took() < ms(3_500), "{}", world.answer(call).took());
    }
    // Connections beyond those that the cluster always allows close with the streams that they were made for.
    assert_eq!(endpoint(&mut world).connections, 2);
    assert_eq!(world.engine().stats().upstream, weft_engine::stats::Connections { open: 2, total: 5 });
}

/// If it failed, a cluster would get more connections than its program allows.
#[test]
fn connections_max_is_respected() {
    let mut world = narrow(2, 3, 1);
    let holder = world.client("front");
    for nth in 0..6 {
        hold(&mut world, holder, nth * 10);
    }
    world.run();
    assert_eq!(world.engine().stats().upstream.total, 3);
    assert_eq!(refusals(&mut world, "waiting_time_max"), 3);
}

/// If it failed, calls would wait at a server without free streams, though another has some.
#[test]
fn full_endpoint_is_skipped() {
    for balance in [Balance::RoundRobin, Balance::LeastRequest, Balance::Random] {
        let mut net = Net::new();
        (net.balance, net.connections, net.connections_max) = (balance, 1, 1);
        let silent = |r: &Received| match r.header("x-hold") {
            Some(_) => Behaviour::new(Reply::Silence),
            None => echo().after(ms(10)),
        };
        let mut world = World::new(1, net.plan(Some(&reading_chain()), &[CART, CART_2]))
            .server(CART, silent)
            .server(CART_2, silent);
        world.limit_streams(CART, 1);
        let (holder, other) = (world.client("front"), world.client("front"));
        for nth in 0..12 {
            hold(&mut world, holder, nth * 10);
        }
        let calls: Vec<_> = (0..20).map(|nth| add(&mut world, other, 1_000 + nth * 20)).collect();
        world.run();
        for call in calls {
            assert_eq!(world.answer(call).code(), Some(0), "{balance:?}: {}", world.answer(call).text());
            assert!(world.answer(call).took() < ms(50), "{balance:?}: {}", world.answer(call).took());
        }
    }
}
