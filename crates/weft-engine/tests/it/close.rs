//! An element that let a call go on sees exactly one end of it, whatever happens.

use crate::support::*;
use weft_core::Interval;
use weft_core::Status;
use weft_core::filter::{Backoff, Policies, Retry, StatusSet};
use weft_core::rng::Rng;
use weft_engine::plan::FilterAt;
use weft_engine::sinks::CellValue;
use weft_proto::session::http2::ErrorCode;

/// An element that ends some calls, and delays some, in each handler.
fn moody(name: &str, per_handler: f64) -> String {
    let body = |sites: [u64; 2], end: &str| {
        format!(
            "block0:\nv0: float = rand {}\nv1: float = float {per_handler:?}\nv2: bool = fcmp.lt v0, v1\n\
                branch v2, block1, block2\n\
             block1:\n{end}\n\
             block2:\nv3: float = rand {}\nv4: float = float 0.2\nv5: bool = fcmp.lt v3, v4\n\
             branch v5, block3, block4\n\
             block3:\nv6: int = int 7000000\ndelay v6\nforward\nblock4:\nforward",
            sites[0], sites[1]
        )
    };
    element(
        name,
        &[
            ("open", &body([1, 2], "abort ABORTED")),
            ("request", &body([3, 4], "drop")),
            ("response", &body([5, 6], "v7: int = int 1\nfail v7")),
        ],
    )
}

/// An element that counts its OPENs, CLOSEs, and the difference, and lets every call go on.
fn counter(name: &str, first: usize) -> String {
    let bump = |by: i64, other: usize| {
        format!(
            "lock_vars\nv0: int = var_get var{first}\nv1: int = int {by}\nv2: int = add v0, v1\n\
                var_set var{first}, v2\n\
             v3: int = var_get var{other}\nv4: int = int 1\nv5: int = add v3, v4\nvar_set var{other}, v5\nforward"
        )
    };
    element(name, &[("open", &bump(1, first + 1)), ("close", &bump(-1, first + 2))])
}

fn three_counters() -> String {
    let declarations: String =
        (0..9).map(|at| format!("var \"c{}\" \"v{}\" I64 word {at} start 0\n", at / 3, at % 3)).collect();
    let (a, b, c) = (counter("c0", 0), counter("c1", 3), counter("c2", 6));
    let (m, n) = (moody("m", 0.1), moody("n", 0.1));
    chain(&format!("request\nresponse\n{declarations}"), &[&a, &m, &b, &n, &c])
}

/// Counters of calls in flight would leak: by aborts, drops and failures, resets of either side, deadlines, lost
/// connections, or any two of these at once.
#[test]
fn close_runs_once() {
    let mut opened = 0;
    for seed in 0..60 {
        let mut rng = Rng::of_stream(seed, "close", 0);
        let network = Network {
            reset_per_mille: rng.pick(&[0, 0, 1, 5]),
            refuse_per_mille: rng.pick(&[0, 100]),
            chunk_bytes: 20..=2000,
            latency_us: 10..=3000,
            ..Network::default()
        };
        let mut net = Net::new();
        (net.connections, net.connections_max) = (2, 2);
        let serve = move |rng: &mut Rng| {
            let reply = match rng.within(&(0..=9)) {
                0 => Reply::Reset(rng.within(&(0..=2)) as usize, ErrorCode::RefusedStream),
                1 => Reply::Die(rng.within(&(0..=2)) as usize),
                2 => Reply::Silence,
                3 => Reply::AtOnce(vec![Message::new(item("ann", 1, b"x"))]),
                4 => Reply::NoTrailers(Message::new(item("ann", 1, b"x"))),
                5 => Reply::Raw(b"what is this".to_vec()),
                _ => Reply::Echo,
            };
            Behaviour::new(reply).after(ms(rng.within(&(0..=20)) as i64)).status(rng.within(&(0..=2)) as u32)
        };
        let mut dice_1 = Rng::of_stream(seed, "close", 1);
        let mut dice_2 = Rng::of_stream(seed, "close", 2);
        let mut world = World::new(seed, net.plan(Some(&three_counters()), &[CART, CART_2]))
            .network(network)
            .server(CART, move |_| serve(&mut dice_1))
            .server(CART_2, move |_| serve(&mut dice_2));
        for _ in 0..4 {
            let client = world.client("front");
            for _ in 0..15 {
                let path = rng.pick(&ALL);
                let n = if path == ADD { 1 } else { rng.within(&(0..=4)) };
                let messages = (0..n).map(|n| Message::new(item("ann", n, b"some more"))).collect();
                let mut call = Call::stream(path, messages).timeout(ms(400));
                call = call.at(ms(rng.within(&(0..=100)) as i64)).gap(ms(rng.within(&(0..=10)) as i64));
                if rng.chance(150) {
                    call = call.leaves_after(ms(rng.within(&(0..=30)) as i64));
                }
                if rng.chance(100) {
                    call = call.timeout(ms(rng.within(&(0..=20)) as i64));
                }
                world.call(client, call);
            }
            if rng.chance(200) {
                world.at(ms(rng.within(&(0..=120)) as i64), move |w| w.cut(client));
            }
        }
        if rng.chance(300) {
            world.at(ms(rng.within(&(0..=100)) as i64), |w| w.kill(CART));
        }
        if rng.chance(300) {
            world.at(ms(rng.within(&(0..=100)) as i64), |w| w.go_away_at_once(CART_2));
        }
        world.run();
        let counts = var_values(&mut world, 9);
        for counter in counts.chunks(3) {
            assert_eq!(counter[0], 0, "seed {seed}: {counts:?}");
            assert_eq!(counter[1], counter[2], "seed {seed}: {counts:?}");
        }
        assert!(counts[1] >= counts[4] && counts[4] >= counts[7], "seed {seed}: {counts:?}");
        opened += counts[7];
    }
    assert!(opened > 500, "the worlds are too hostile to show anything: {opened} calls passed all elements");
}

/// An element whose own REQUEST ends a call would count its OPEN and not its CLOSE.
#[test]
fn ending_element_sees_close() {
    let bump = |var: usize| bump(var);
    let text = chain(
        &format!("request\nresponse\n{}", vars("e", 2)),
        &[&element("e", &[("open", &bump(0)), ("request", "abort ABORTED"), ("close", &bump(1))])],
    );
    let mut world =
        World::new(1, Net::new().plan(Some(&text), &[CART])).server(CART, |_| Behaviour::default());
    let client = world.client("front");
    for path in ALL {
        world.call(client, Call::unary(path, item("ann", 1, b"")));
    }
    world.run();
    assert_eq!(var_values(&mut world, 2), [4, 4]);
}

/// An element whose OPEN ends a call would see the end of a call that it did not open.
#[test]
fn refusing_element_sees_no_close() {
    let text = chain(
        &format!("request\nresponse\n{}", vars("e", 2)),
        &[&element("e", &[("open", "abort ABORTED"), ("request", "forward"), ("close", &bump(1))])],
    );
    let mut world =
        World::new(1, Net::new().plan(Some(&text), &[CART])).server(CART, |_| Behaviour::default());
    let client = world.client("front");
    for path in ALL {
        world.call(client, Call::unary(path, item("ann", 1, b"")));
    }
    world.run();
    assert_eq!(var_values(&mut world, 2), [0, 0]);
}

/// If it failed, an element whose REQUEST ends the call as its OPEN could have would not see its end.
#[test]
fn ended_by_is_exact() {
    let open = "block0:\nlock_vars\nv0: int = var_get var0\nv1: int = int 1\nv2: int = add v0, v1\n\
            var_set var0, v2\nv3: bool = bool false\nbranch v3, block1, block2\n\
        block1:\nabort ABORTED\nblock2:\nforward";
    let both = element("both", &[("open", open), ("request", "abort ABORTED"), ("close", &bump(1))]);
    let text = chain(&format!("request\nresponse\n{}", vars("both", 2)), &[&both]);
    let mut world =
        World::new(1, Net::new().plan(Some(&text), &[CART])).server(CART, |_| Behaviour::default());
    let client = world.client("front");
    let calls = ALL.map(|path| world.call(client, Call::unary(path, item("ann", 1, b""))));
    world.run();
    for call in calls {
        assert_eq!(world.answer(call).code(), Some(10));
    }
    assert_eq!(var_values(&mut world, 2), [4, 4], "as many ends as begins");
}

/// A CLOSE that fails would keep the end of the call from the elements before it.
#[test]
fn failed_close_stops_no_other() {
    let counts = element("counts", &[("open", &bump(0)), ("close", &bump(1))]);
    let fails = element("fails", &[("close", "v0: int = int 1\nfail v0")]);
    let text = chain(&format!("request\nresponse\n{}", vars("counts", 2)), &[&counts, &fails]);
    let mut world =
        World::new(1, Net::new().plan(Some(&text), &[CART])).server(CART, |_| Behaviour::default());
    let client = world.client("front");
    let calls = ALL.map(|path| world.call(client, Call::unary(path, item("ann", 1, b""))));
    world.run();
    assert!(calls.iter().all(|call| world.answer(*call).code() == Some(0)));
    assert_eq!(var_values(&mut world, 2), [4, 4]);
    assert_eq!(world.engine().stats().chains[0].elements[1].1.failed, 4);
}

/// If it failed, a count by client or server in OPEN would not be undone in CLOSE, if the call ended unexpectedly.
#[test]
fn close_sees_the_caller() {
    let inputs = "input \"peer\" TEXT meta peer\ninput \"method\" TEXT meta method\n";
    let of_end =
        "input \"upstream\" TEXT nullable meta upstream\ninput \"x\" TEXT nullable header \"x-up\"\n";
    let sink = |name: &str| format!("sink \"e\" \"{name}\" stdout\n");
    let fields =
        |names: &[&str]| names.iter().map(|name| format!("field \"{name}\" TEXT\n")).collect::<String>();
    let declarations = [
        format!("request\n{inputs}response\n{inputs}{of_end}"),
        sink("open") + &fields(&["peer", "method"]),
        sink("close") + &fields(&["peer", "method", "upstream", "x"]),
    ];
    let both = "v0: bytes = input in0\nv1: bytes = input in1\n";
    let open = format!("{both}emit s0, v0, v1\nforward");
    let not =
        |at: usize, to: usize| format!("v{to}: bool = input_present in{at}\nv{}: bool = not v{to}\n", to + 1);
    let close = format!(
        "{both}v2: bytes = input in2\n{}v5: bytes = input in3\n{}emit s1, v0, v1, v2 null v4, v5 null v7\nforward",
        not(2, 3),
        not(3, 6)
    );
    let text = chain(&declarations.concat(), &[&element("e", &[("open", &open), ("close", &close)])]);
    let retry = Policies {
        retry: Some(Retry {
            retries_max: 1,
            when: StatusSet::NONE,
            backoff: Backoff { first: ms(1), max: ms(1), jitter_percent: 0.0 },
            budget: None,
        }),
        ..Policies::default()
    };
    type Ends = fn(&mut World, ClientId, Call) -> Call;
    let ways: [(&str, bool, Ends); 7] = [
        ("answered", true, |_, _, call| call.at(ms(300))),
        ("cancelled", false, |_, _, call| call.leaves_after(ms(60))),
        ("deadline", false, |_, _, call| call.timeout(ms(60))),
        ("client lost", false, |world, client, call| {
            world.at(ms(60), move |w| w.cut(client));
            call
        }),
        ("server lost", false, |world, _, call| {
            world.at(ms(60), |w| w.kill(CART));
            call
        }),
        ("drained", false, |world, _, call| {
            world.at(ms(60), |w| {
                let now = START + w.elapsed();
                w.engine().close_gracefully(now);
            });
            world.at(ms(80), |w| {
                let now = START + w.elapsed();
                w.engine().cut(now);
            });
            call
        }),
        ("server's headers, then cancelled", true, |_, _, call| {
            call.header("x-way", "held").leaves_after(ms(60))
        }),
    ];
    for filters in [vec![], vec![FilterAt { at: 1, name: "retry".to_owned(), policies: retry }]] {
        for (way, has_headers, ends) in ways {
            let mut net = Net::new();
            net.filters.clone_from(&filters);
            let held = vec![Message::new(item("ann", 1, b""))];
            let mut world = World::new(1, net.plan(Some(&text), &[CART])).server(CART, move |r| {
                match (r.header("x-way"), r.header("x-late")) {
                    (Some(_), _) => Behaviour::new(Reply::ThenReset(
                        held.clone(),
                        Interval::from_secs(5),
                        ErrorCode::Cancel,
                    )),
                    (None, Some(_)) => Behaviour::new(Reply::Silence),
                    (None, None) => Behaviour::default(),
                }
                .header("x-up", "1")
            });
            let client = world.client("front");
            let is_answered = way == "answered";
            let call = Call::unary(DOWN, item("ann", 1, b""));
            let call = if is_answered || has_headers { call } else { call.header("x-late", "1") };
            let call = ends(&mut world, client, call);
            world.call(client, call);
            world.run();
            let mut seen = Vec::new();
            for row in world.engine().rows().rows() {
                let values = row.values().map(|value| match value {
                    CellValue::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                    other => format!("{other:?}"),
                });
                seen.push((row.sink.name.clone(), values.collect::<Vec<_>>()));
            }
            let (peer, method) = ("10.0.1.1:40000".to_owned(), DOWN.to_owned());
            let header = if has_headers { "1" } else { "Null" }.to_owned();
            let opened = ("open".to_owned(), vec![peer.clone(), method.clone()]);
            let closed = ("close".to_owned(), vec![peer, method, CART.to_owned(), header]);
            assert_eq!(seen, [opened, closed], "{way}, {} filters", filters.len());
        }
    }
}

/// If it failed, an element that reads the status of an answer would get none, or a stream would wait for its end.
#[test]
fn unary_response_sees_its_status() {
    let inputs = "input \"status\" STATUS nullable meta status\n\
        input \"x\" TEXT nullable header \"x-status\" written\n";
    let handler = "v0: bool = input_present in0\nv1: int = input in0\nv2: bytes = int_to_text.signed v1\n\
        v3: bytes = bytes \"none\"\nv4: bytes = select v0, v2, v3\nset_input in1, v4\nforward";
    let text = chain(&format!("request\nresponse\n{inputs}"), &[&element("e", &[("response", handler)])]);
    for (path, of_server, seen) in
        [(ADD, Status::Ok, "0"), (ADD, Status::NotFound, "5"), (DOWN, Status::NotFound, "none")]
    {
        let mut world = World::new(1, Net::new().plan(Some(&text), &[CART]))
            .server(CART, move |_| Behaviour::default().status(u32::from(of_server.code())));
        let client = world.client("front");
        let call = world.call(client, Call::unary(path, item("ann", 1, b"")));
        world.run();
        let answer = world.answer(call);
        assert_eq!(answer.code(), Some(u32::from(of_server.code())), "{path}");
        assert_eq!(field(&answer.headers, "x-status"), Some(seen), "{path} {of_server:?}");
        assert_eq!(answer.messages.len(), 1, "{path}");
    }
}
