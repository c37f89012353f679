//! Filters: calls that wait, are sent again, are refused, or end before their time.

use crate::support::*;
use weft_core::filter::{
    Backoff, Budget, Circuit, Congestion, CongestionLaw, Hedge, KeyId, Order, Outlier, Policies, Rate,
    Reliability, Retry, StatusSet, Timeouts, Transport,
};
use weft_core::rng::Rng;
use weft_core::{Interval, Status};
use weft_engine::plan::{FilterAt, Plan};
use weft_engine::{FilterCounts, FilterStats};
use weft_proto::session::grpc::header::parse_timeout;

fn set(statuses: &[Status]) -> StatusSet {
    statuses.iter().copied().collect()
}

fn filter(at: usize, name: &str, policies: Policies) -> FilterAt {
    FilterAt { at, name: name.to_owned(), policies }
}

fn retry(retries_max: u32) -> Policies {
    let backoff = Backoff { first: ms(10), max: ms(40), jitter_percent: 0.0 };
    let when = set(&[Status::Unavailable, Status::DeadlineExceeded]);
    Policies { retry: Some(Retry { retries_max, when, backoff, budget: None }), ..Policies::default() }
}

fn timeouts(total: Option<Interval>, per_try: Option<Interval>) -> Timeouts {
    Timeouts { total, per_try, propagate: None }
}

/// A plan of one chain and these filters.
fn plan(text: &str, filters: &[FilterAt], endpoints: &[&str]) -> Plan {
    let mut net = Net::new();
    net.filters = filters.to_vec();
    net.plan(Some(text), endpoints)
}

/// A chain whose element gives the message's `user` as the key of the filter behind it.
fn keyed_chain() -> String {
    let inputs = "input \"user\" TEXT body \"user\"\ninput \"key\" BYTES key 0 written\n";
    let body = "v0: bytes = input in0\nset_input in1, v0\nforward";
    chain(&format!("request\n{inputs}response\n"), &[&element("key", &[("request", body)])])
}

fn add(world: &mut World, client: ClientId, user: &str, at: i64) -> CallId {
    world.call(client, Call::unary(ADD, item(user, 1, b"")).at(ms(at)))
}

fn stats(world: &mut World, name: &str) -> FilterStats {
    let stats = world.engine().stats();
    stats.filters.into_iter().find(|filter| filter.name == name).expect("there is such a filter")
}

/// A server that fails the first `n` requests with a status, and echoes the others.
fn failing(n: usize, status: u32) -> impl FnMut(&Received) -> Behaviour + 'static {
    let mut n_left = n;
    move |_| {
        let fails = n_left > 0;
        n_left = n_left.saturating_sub(1);
        if fails { Behaviour::new(Reply::Messages(Vec::new())).status(status) } else { Behaviour::default() }
    }
}

/// A call that failed in passing would fail for its client, too.
#[test]
fn retry_until_success() {
    let mut world = World::new(1, plan(&reading_chain(), &[filter(1, "retry", retry(3))], &[CART]))
        .server(CART, failing(2, 14));
    let client = world.client("front");
    let call = add(&mut world, client, "ann", 0);
    world.run();
    let answer = world.answer(call);
    assert_eq!((answer.code(), answer.messages.len()), (Some(0), 1));
    assert_eq!(answer.messages[0].payload, item("ann", 1, b""));
    assert!((ms(30)..ms(36)).contains(&answer.took()), "10 ms and 20 ms of backoff: {}", answer.took());
    let tries: Vec<_> = world.received().iter().map(|r| r.header("grpc-previous-rpc-attempts")).collect();
    assert_eq!(tries, [None, Some("1"), Some("2")]);
    let counts = stats(&mut world, "retry").counts;
    assert_eq!((counts.calls, counts.tries, counts.retries), (1, 3, 2));
}

/// Retries without end would hide an outage and make it worse; other statuses are answers.
#[test]
fn retries_stay_in_limits() {
    for (status, n_tries) in [(14, 3), (3, 1)] {
        let mut world = World::new(1, plan(&reading_chain(), &[filter(0, "retry", retry(2))], &[CART]))
            .server(CART, failing(99, status));
        let client = world.client("front");
        let call = add(&mut world, client, "ann", 0);
        world.run();
        assert_eq!(world.answer(call).code(), Some(status));
        assert_eq!(world.received().len(), n_tries);
        assert_eq!(world.engine().calls_open(), 0);
    }
}

/// A health check that no schema knows would be refused where a retry stands in front of everything.
#[test]
fn unknown_method_is_streamed_once() {
    let text = chain("request\nresponse\n", &[&element("none", &[("open", "forward")])]);
    let id = KeyId(0);
    let once = Reliability::AtLeastOnce { id, window: ms(5000), calls_max: 100, answer_bytes_max: 512 };
    let once = Policies { once: Some(once), ..Policies::default() };
    for (policies, code) in [(retry(3), 14), (once, 12)] {
        let mut world =
            World::new(1, plan(&text, &[filter(1, "f", policies)], &[CART])).server(CART, failing(1, 14));
        let client = world.client("front");
        let call = world.call(client, Call::unary("/grpc.health.v1.Health/Check", vec![]));
        let later = world.call(client, Call::unary("/grpc.health.v1.Health/Check", vec![]).at(ms(100)));
        world.run();
        assert_eq!(world.answer(call).code(), Some(code));
        assert_eq!(world.answer(later).code(), Some(if code == 14 { 0 } else { code }));
    }
}

/// If elements behind a filter did not run per try, a retried call would bypass them; elements in front must see one
/// call.
#[test]
fn inner_elements_run_per_try() {
    let count = |name: &str, var| {
        let (opens, closes) = (bump(var), bump(var + 1));
        element(name, &[("open", &opens), ("close", &closes)])
    };
    let vars = "var \"left\" \"a\" I64 word 0 start 0\nvar \"left\" \"b\" I64 word 1 start 0\n\
                var \"right\" \"c\" I64 word 2 start 0\nvar \"right\" \"d\" I64 word 3 start 0\n";
    let text = chain(&format!("request\nresponse\n{vars}"), &[&count("left", 0), &count("right", 2)]);
    let mut world =
        World::new(1, plan(&text, &[filter(1, "retry", retry(3))], &[CART])).server(CART, failing(2, 14));
    let client = world.client("front");
    add(&mut world, client, "ann", 0);
    world.run();
    assert_eq!(var_values(&mut world, 4), [1, 1, 3, 3]);
}

/// A server that never answers would hold its callers for ever.
#[test]
fn try_and_total_timeouts_apply() {
    let mut policies = retry(3);
    policies.timeouts = timeouts(Some(ms(200)), Some(ms(50)));
    for (policies, took, text, n_tries) in [
        (Policies { timeouts: timeouts(Some(ms(80)), None), ..Policies::default() }, 80, "the call has", 1),
        (Policies { timeouts: timeouts(None, Some(ms(60))), ..Policies::default() }, 60, "a try has", 1),
        (policies, 200, "the call has", 3),
    ] {
        let mut world = World::new(1, plan(&reading_chain(), &[filter(0, "limit", policies)], &[CART]))
            .server(CART, |_| Behaviour::new(Reply::Silence));
        let client = world.client("front");
        let call = add(&mut world, client, "ann", 0);
        world.run();
        let answer = world.answer(call);
        assert_eq!(answer.code(), Some(4));
        assert_eq!(answer.text(), format!("filter `limit`: {text} taken too long"));
        assert!((ms(took)..ms(took + 5)).contains(&answer.took()), "{}", answer.took());
        assert_eq!(world.received().len(), n_tries);
        assert!(
            world.received().iter().all(|r| r.is_cancelled),
            "the server learns that its caller has left"
        );
        assert!(stats(&mut world, "limit").counts.timeouts > 0);
    }
}

/// If it failed, a server would work on calls whose caller has given up.
#[test]
fn grpc_timeout_is_forwarded() {
    let mut policies = retry(1);
    policies.timeouts = Timeouts { total: Some(ms(400)), per_try: Some(ms(100)), propagate: Some(ms(10)) };
    let mut world = World::new(1, plan(&reading_chain(), &[filter(0, "limit", policies)], &[CART]))
        .server(CART, |_| Behaviour::new(Reply::Silence));
    let client = world.client("front");
    world.call(client, Call::unary(ADD, item("ann", 1, b"")).timeout(ms(150)));
    world.run();
    let told: Vec<_> = world.received().iter().map(|r| r.header("grpc-timeout").unwrap_or("")).collect();
    assert_eq!(told.len(), 2);
    let told: Vec<_> = told.iter().map(|text| parse_timeout(text.as_bytes()).unwrap()).collect();
    assert!((ms(88)..=ms(90)).contains(&told[0]), "{told:?}");
    assert!((ms(20)..=ms(40)).contains(&told[1]), "{told:?}");
}

/// One slow server would make every second call slow.
#[test]
fn first_hedge_answer_wins() {
    let hedge = Hedge { after: ms(20), extra_max: 2, not_final: set(&[Status::Unavailable]), budget: None };
    let policies = Policies { hedge: Some(hedge), ..Policies::default() };
    let mut world =
        World::new(1, plan(&reading_chain(), &[filter(0, "hedge", policies)], &[CART, CART_2, CART_3]))
            .server(CART, |_| Behaviour::default().after(ms(500)))
            .server(CART_2, |_| Behaviour::default().after(ms(500)))
            .server(CART_3, |_| Behaviour::default().after(ms(1)));
    let client = world.client("front");
    let calls: Vec<_> = (0..9).map(|nth| add(&mut world, client, "ann", nth * 1000)).collect();
    world.run();
    for call in calls {
        assert_eq!(world.answer(call).code(), Some(0));
        assert!(world.answer(call).took() < ms(60), "{}", world.answer(call).took());
        assert!(!world.answer(call).is_answered_twice);
    }
    let n_slow = world.received().iter().filter(|r| r.server != CART_3).count();
    assert!(world.received().iter().filter(|r| r.server != CART_3).all(|r| r.is_cancelled));
    assert!(n_slow >= 9 && stats(&mut world, "hedge").counts.hedges as usize == n_slow);
}

/// A failed try must start the next at once, and its failure must not win over an answer that is on its way.
#[test]
fn failed_hedge_keeps_call_open() {
    let hedge = Hedge { after: ms(100), extra_max: 1, not_final: set(&[Status::Unavailable]), budget: None };
    let policies = Policies { hedge: Some(hedge), ..Policies::default() };
    let mut world = World::new(1, plan(&reading_chain(), &[filter(0, "hedge", policies)], &[CART]))
        .server(CART, failing(1, 14));
    let client = world.client("front");
    let (first, second) = (add(&mut world, client, "ann", 0), add(&mut world, client, "bob", 500));
    world.run();
    assert_eq!((world.answer(first).code(), world.answer(second).code()), (Some(0), Some(0)));
    assert!(world.answer(first).took() < ms(50));
    let mut world = World::new(1, plan(&reading_chain(), &[filter(0, "hedge", policies_of(hedge))], &[CART]))
        .server(CART, failing(9, 14));
    let client = world.client("front");
    let call = add(&mut world, client, "ann", 0);
    world.run();
    assert_eq!((world.answer(call).code(), world.received().len()), (Some(14), 2));
}

fn policies_of(hedge: Hedge) -> Policies {
    Policies { hedge: Some(hedge), ..Policies::default() }
}

/// A shaper that let calls through early would not shape.
#[test]
fn rate_paces_calls() {
    let rate = Rate {
        per_second: 100.0,
        burst: 1.0,
        key: None,
        keys_max: 1,
        waiting_max: 8,
        wait_max: Interval::from_secs(10),
    };
    let policies = Policies { rate: Some(rate), ..Policies::default() };
    let mut world = World::new(1, plan(&reading_chain(), &[filter(1, "pace", policies)], &[CART]))
        .server(CART, |_| Behaviour::default());
    let client = world.client("front");
    let calls: Vec<_> = (0..12).map(|_| add(&mut world, client, "ann", 100)).collect();
    world.run();
    let codes: Vec<_> = calls.iter().map(|call| world.answer(*call).code()).collect();
    assert_eq!(codes.iter().filter(|code| **code == Some(0)).count(), 9);
    assert_eq!(codes.iter().filter(|code| **code == Some(8)).count(), 3);
    let mut took: Vec<_> = calls.iter().filter(|call| world.answer(**call).code() == Some(0)).collect();
    took.sort_by_key(|call| world.answer(**call).took());
    for (nth, call) in took.iter().enumerate() {
        let wait = nth as i64 * 10;
        assert!((ms(wait)..ms(wait + 6)).contains(&world.answer(**call).took()));
    }
    let filter = stats(&mut world, "pace");
    assert_eq!((filter.counts.waited, filter.counts.refused, filter.waiting), (8, 3, 0));
}

/// A tenant that floods would take the share of the others.
#[test]
fn rate_is_per_key() {
    let rate = Rate {
        per_second: 10.0,
        burst: 2.0,
        key: Some(KeyId(0)),
        keys_max: 100,
        waiting_max: 0,
        wait_max: Interval::ZERO,
    };
    let policies = Policies { rate: Some(rate), ..Policies::default() };
    let mut world = World::new(1, plan(&keyed_chain(), &[filter(1, "rate", policies)], &[CART]))
        .server(CART, |_| Behaviour::default());
    let client = world.client("front");
    let flood: Vec<_> = (0..10).map(|_| add(&mut world, client, "ann", 100)).collect();
    let others: Vec<_> = (0..2).map(|_| add(&mut world, client, "bob", 101)).collect();
    world.run();
    let n_good = |world: &World, calls: &[CallId]| {
        calls.iter().filter(|call| world.answer(**call).code() == Some(0)).count()
    };
    assert_eq!((n_good(&world, &flood), n_good(&world, &others)), (2, 2));
}

/// Calls of one key that overtook each other would apply in another order than they were made.
#[test]
fn order_serializes_calls_per_key() {
    let order = Order { key: KeyId(0), keys_max: 100, waiting_max: 100 };
    let policies = Policies { order: Some(order), ..Policies::default() };
    let mut world = World::new(1, plan(&keyed_chain(), &[filter(1, "order", policies)], &[CART]))
        .server(CART, |_| Behaviour::default().after(ms(50)));
    let client = world.client("front");
    let call = |user: &str, nth: u64| Call::unary(ADD, item(user, nth, b"")).at(ms(10 + nth as i64));
    let mut calls: Vec<_> = (0..5).map(|nth| world.call(client, call("ann", nth))).collect();
    // One of them leaves while it waits: those behind it must not wait for it.
    let leaver = world.call(client, call("ann", 5).leaves_after(ms(20)));
    calls.extend((6..9).map(|nth| world.call(client, call("ann", nth))));
    let other = world.call(client, call("bob", 3));
    world.run();
    assert!(calls.iter().all(|call| world.answer(*call).code() == Some(0)));
    assert!(world.answer(other).took() < ms(60), "{}", world.answer(other).took());
    assert!(world.answer(leaver).code().is_none());
    let anns = world.received().iter().filter(|r| r.messages[0].payload != item("bob", 3, b""));
    let arrived: Vec<_> = anns.map(|r| r.messages[0].payload.clone()).collect();
    let expected: Vec<_> = [0, 1, 2, 3, 4, 6, 7, 8].map(|nth| item("ann", nth, b"")).into();
    assert_eq!(arrived, expected);
    assert!((ms(390)..ms(450)).contains(&world.answer(calls[7]).took()), "{}", world.answer(calls[7]).took());
    assert_eq!(stats(&mut world, "order").waiting, 0);
}

/// The key of a stream is in its first message; without it the stream would join the wrong order queue.
#[test]
fn stream_waits_for_key_message() {
    let order = Order { key: KeyId(0), keys_max: 100, waiting_max: 100 };
    let policies = Policies { order: Some(order), ..Policies::default() };
    let mut world = World::new(1, plan(&keyed_chain(), &[filter(1, "order", policies)], &[CART]))
        .server(CART, |_| Behaviour::default());
    let client = world.client("front");
    let stream = |path: &str, user: &str, at| {
        let messages = (0..3).map(|nth| Message::new(item(user, nth, b""))).collect();
        Call::stream(path, messages).gap(ms(20)).at(ms(at))
    };
    let first = world.call(client, stream(BOTH, "ann", 0));
    let second = world.call(client, stream(UP, "ann", 1));
    let other = world.call(client, stream(UP, "bob", 2));
    let empty = world.call(client, Call::stream(UP, Vec::new()).at(ms(3)));
    world.run();
    for call in [first, second, other, empty] {
        assert_eq!(world.answer(call).code(), Some(0));
    }
    assert!(world.answer(other).took() < ms(70) && world.answer(empty).took() < ms(10));
    assert!(world.answer(second).end.as_ref().unwrap().0 > world.answer(first).end.as_ref().unwrap().0);
    let began = |nth: usize| world.received()[nth].arrived[0];
    assert_eq!(world.received().len(), 4);
    let end_of_first = world.answer(first).end.as_ref().unwrap().0;
    assert!(
        (0..4).filter(|nth| world.received()[*nth].messages.len() == 3).any(|nth| began(nth) >= end_of_first)
    );
}

/// Without a limit, an order queue would hold as many calls as a client sends.
#[test]
fn order_queue_is_bounded() {
    let order = Order { key: KeyId(0), keys_max: 100, waiting_max: 3 };
    let policies = Policies { order: Some(order), ..Policies::default() };
    let mut world = World::new(1, plan(&keyed_chain(), &[filter(1, "order", policies)], &[CART]))
        .server(CART, |_| Behaviour::default().after(ms(50)));
    let client = world.client("front");
    let calls: Vec<_> = (0..20).map(|_| add(&mut world, client, "ann", 10)).collect();
    let later = add(&mut world, client, "ann", 1000);
    world.run();
    let n_of = |code| calls.iter().filter(|call| world.answer(**call).code() == Some(code)).count();
    assert_eq!((n_of(0), n_of(8)), (4, 16));
    assert_eq!(world.answer(later).code(), Some(0));
    assert_eq!(stats(&mut world, "order").waiting, 0);
}

/// A breaker that stays closed sends calls to servers that cannot take them.
#[test]
fn circuit_opens_and_closes() {
    let circuit = Circuit {
        errors_max: Some(3),
        ratio: None,
        in_flight_max: None,
        errors: StatusSet::server_errors(),
        open_for: ms(1000),
        probes: 1,
    };
    let policies = Policies { circuit: Some(circuit), ..Policies::default() };
    let mut world = World::new(1, plan(&reading_chain(), &[filter(1, "circuit", policies)], &[CART]))
        .server(CART, failing(4, 13));
    let client = world.client("front");
    let at = [0, 100, 200, 300, 1100, 1250, 1300, 2300, 2400];
    let calls: Vec<_> = at.iter().map(|at| add(&mut world, client, "ann", *at)).collect();
    world.run();
    let codes: Vec<_> = calls.iter().map(|call| world.answer(*call).code().unwrap()).collect();
    // The probe at 1250 fails, the one at 2300 succeeds.
    assert_eq!(codes, [13, 13, 13, 14, 14, 13, 14, 0, 0]);
    assert_eq!(world.answer(calls[3]).text(), "filter `circuit`: the circuit is open");
    let filter = stats(&mut world, "circuit");
    assert_eq!((filter.counts.opened, filter.counts.refused, filter.in_flight), (2, 3, 0));
}

/// A server that fails its calls would go on getting its share of them.
#[test]
fn outlier_ejects_failing_endpoint() {
    let outlier = Outlier {
        errors_max: 3,
        errors: StatusSet::server_errors(),
        eject_for: ms(10_000),
        ejected_max_percent: 50.0,
    };
    let policies = Policies { outlier: Some(outlier), ..Policies::default() };
    let mut world =
        World::new(1, plan(&reading_chain(), &[filter(1, "outlier", policies)], &[CART, CART_2, CART_3]))
            .server(CART, failing(999, 14))
            .server(CART_2, |_| Behaviour::default())
            .server(CART_3, |_| Behaviour::default());
    let client = world.client("front");
    let calls: Vec<_> = (0..90).map(|nth| add(&mut world, client, "ann", nth * 100)).collect();
    let later: Vec<_> = (0..9).map(|nth| add(&mut world, client, "ann", 20_000 + nth * 100)).collect();
    world.run();
    let n_bad = |calls: &[CallId]| calls.iter().filter(|call| world.answer(**call).code() != Some(0)).count();
    assert_eq!((n_bad(&calls), n_bad(&later)), (3, 3));
    assert_eq!(stats(&mut world, "outlier").counts.ejected, 2);
}

/// A call that were made twice would charge a card twice.
#[test]
fn same_id_is_one_call() {
    let id = KeyId(0);
    let once = Reliability::AtLeastOnce { id, window: ms(5000), calls_max: 100, answer_bytes_max: 512 };
    let policies = Policies { once: Some(once), ..Policies::default() };
    let mut world = World::new(1, plan(&keyed_chain(), &[filter(1, "once", policies)], &[CART])).server(
        CART,
        |received| {
            let status = if received.header("x-way") == Some("bad") { 14 } else { 0 };
            Behaviour::default().after(ms(50)).trailer("x-sum", "7").header("x-kept", "yes").status(status)
        },
    );
    let client = world.client("front");
    let calls: Vec<_> = [0, 10, 20, 500].iter().map(|at| add(&mut world, client, "ann", *at)).collect();
    let bad = |at| Call::unary(ADD, item("bad", 1, b"")).header("x-way", "bad").at(ms(at));
    let bad = [world.call(client, bad(0)), world.call(client, bad(500))];
    let late = add(&mut world, client, "ann", 6000);
    world.run();
    for call in calls.iter().chain([&late]) {
        let answer = world.answer(*call);
        assert_eq!((answer.code(), field(answer.trailers(), "x-sum")), (Some(0), Some("7")));
        assert_eq!(field(&answer.headers, "x-kept"), Some("yes"));
        assert_eq!(answer.messages[0].payload, item("ann", 1, b""));
    }
    assert!(bad.iter().all(|call| world.answer(*call).code() == Some(14)));
    let n_of =
        |user: &str| world.received().iter().filter(|r| r.messages[0].payload == item(user, 1, b"")).count();
    assert_eq!((n_of("ann"), n_of("bad")), (2, 2), "an answer is kept for the window, a failure is not");
    let filter = stats(&mut world, "once");
    assert_eq!((filter.counts.repeated, filter.waiting), (3, 0));
}

fn once() -> Policies {
    let id = KeyId(0);
    let once = Reliability::AtLeastOnce { id, window: ms(5000), calls_max: 100, answer_bytes_max: 512 };
    Policies { once: Some(once), ..Policies::default() }
}

/// A caller that gives up and sends again would have the call made twice, though the server was at work on the first.
#[test]
fn detached_call_takes_effect_once() {
    type CallerLoss = fn(&mut World, ClientId) -> Call;
    let call = || Call::unary(ADD, item("ann", 1, b""));
    let ways: [(&str, CallerLoss); 4] = [
        ("deadline", |_, _| Call::unary(ADD, item("ann", 1, b"")).timeout(ms(30))),
        ("cancel", |_, _| Call::unary(ADD, item("ann", 1, b"")).leaves_after(ms(30))),
        ("lost connection", |world, client| {
            world.at(ms(30), move |w| w.cut(client));
            Call::unary(ADD, item("ann", 1, b""))
        }),
        ("update", |_, _| Call::unary(ADD, item("ann", 1, b"")).leaves_after(ms(30))),
    ];
    for (way, gone) in ways {
        for total in [None, Some(ms(20))] {
            let policies = Policies { timeouts: timeouts(total, None), ..once() };
            let mut net = Net::new();
            net.filters = vec![filter(1, "once", policies)];
            let first = net.plan(Some(&keyed_chain()), &[CART]);
            let second = net.plan(Some(&keyed_chain()), &[CART]);
            let mut world = World::new(1, first).server(CART, |_| Behaviour::default().after(ms(100)));
            let (leaver, other) = (world.client("front"), world.client("front"));
            let first = gone(&mut world, leaver);
            world.call(leaver, first);
            if way == "update" {
                world.at(ms(50), move |w| w.apply(second));
            }
            let again: Vec<_> = [60, 300].map(|at| world.call(other, call().at(ms(at)))).into();
            world.run();
            assert_eq!(world.received().len(), 1, "{way}");
            assert_eq!(world.received()[0].header("grpc-timeout"), None, "{way}: the server need not know");
            assert!(!world.received()[0].is_cancelled, "{way}");
            let waiting = world.answer(again[0]);
            assert_eq!(waiting.code(), Some(if total.is_some() { 4 } else { 0 }), "{way}");
            assert_eq!(world.answer(again[1]).code(), Some(0), "{way}");
            assert_eq!(stats(&mut world, "once").counts.detached, 1, "{way}");
        }
    }
}

/// If it failed, a detached call would wait forever for a silent server, and no other call with its id would ever be
/// made.
#[test]
fn detached_call_has_an_end() {
    let mut n_seen = 0;
    let mut world =
        World::new(1, plan(&keyed_chain(), &[filter(1, "once", once())], &[CART])).server(CART, move |_| {
            n_seen += 1;
            if n_seen == 1 { Behaviour::new(Reply::Silence) } else { Behaviour::default() }
        });
    let client = world.client("front");
    world.call(client, Call::unary(ADD, item("ann", 1, b"")).leaves_after(ms(30)));
    let waits = add(&mut world, client, "ann", 100);
    world.run();
    assert_eq!(world.answer(waits).code(), Some(0));
    assert!((ms(4_900)..ms(5_000)).contains(&world.answer(waits).took()), "{}", world.answer(waits).took());
    assert!(world.received().len() == 2 && world.received()[0].is_cancelled);
}

/// If it failed, a stopping node would wait for a detached call, or leave it behind.
#[test]
fn detached_call_ends_with_node() {
    let mut world = World::new(1, plan(&keyed_chain(), &[filter(1, "once", once())], &[CART]))
        .server(CART, |_| Behaviour::new(Reply::Silence));
    let (leaver, other) = (world.client("front"), world.client("front"));
    world.call(leaver, Call::unary(ADD, item("ann", 1, b"")).leaves_after(ms(30)));
    add(&mut world, other, "bob", 0);
    world.at(ms(100), |w| {
        let now = START + w.elapsed();
        w.engine().close_gracefully(now);
        assert_eq!((w.engine().calls_open(), w.engine().cut(now), w.engine().calls_open()), (2, 1, 0));
    });
    world.run();
    assert_eq!(world.engine().connections_open(), 0);
}

/// A call under way would be forgotten for others that come, and be made twice.
#[test]
fn ids_under_way_are_not_evicted() {
    let id = KeyId(0);
    let once = Reliability::AtLeastOnce { id, window: ms(5000), calls_max: 2, answer_bytes_max: 512 };
    let policies = Policies { once: Some(once), ..Policies::default() };
    let mut world = World::new(1, plan(&keyed_chain(), &[filter(1, "once", policies)], &[CART]))
        .server(CART, |_| Behaviour::default().after(ms(100)));
    let client = world.client("front");
    let first = ["ann", "bob", "eve"].map(|user| add(&mut world, client, user, 0));
    let again = ["ann", "bob"].map(|user| add(&mut world, client, user, 50));
    let later = ["eve", "zoe"].map(|user| add(&mut world, client, user, 300));
    world.run();
    let codes = |calls: &[CallId]| calls.iter().map(|call| world.answer(*call).code()).collect::<Vec<_>>();
    assert_eq!(codes(&first), [Some(0), Some(0), Some(8)]);
    assert_eq!(codes(&again), [Some(0); 2]);
    assert_eq!(codes(&later), [Some(0); 2], "the oldest answers make room");
    assert_eq!(world.received().len(), 4);
}

/// If it failed, a second call with an id would wait forever for a first one that had no effect.
#[test]
fn waiter_takes_over_abandoned_id() {
    let rate =
        Rate { per_second: 10.0, burst: 1.0, key: None, keys_max: 1, waiting_max: 10, wait_max: ms(1_000) };
    let policies = Policies { rate: Some(rate), ..once() };
    let mut world = World::new(1, plan(&keyed_chain(), &[filter(1, "once", policies)], &[CART]))
        .server(CART, |_| Behaviour::default());
    let client = world.client("front");
    add(&mut world, client, "bob", 0);
    // It has not been sent: it waits for its turn.
    world.call(client, Call::unary(ADD, item("ann", 1, b"")).leaves_after(ms(30)));
    let second = add(&mut world, client, "ann", 10);
    world.run();
    assert_eq!(world.answer(second).code(), Some(0));
    assert_eq!(world.received().len(), 2);
    assert_eq!(stats(&mut world, "once").counts.detached, 0);
}

/// More calls under way than a server can take make all of them slow.
#[test]
fn congestion_bounds_calls_in_flight() {
    let law = CongestionLaw::Aimd { latency_max: Some(ms(100)), backoff: 0.5 };
    let congestion = Congestion { law, start: 4, min: 2, max: 64, errors: StatusSet::server_errors() };
    let policies = Policies { congestion: Some(congestion), ..Policies::default() };
    let mut world = World::new(1, plan(&reading_chain(), &[filter(0, "limit", policies)], &[CART]))
        .server(CART, |_| Behaviour::default().after(ms(20)));
    let client = world.client("front");
    let calls: Vec<_> = (0..20).map(|_| add(&mut world, client, "ann", 100)).collect();
    let later: Vec<_> = (0..200).map(|nth| add(&mut world, client, "ann", 1000 + nth * 2)).collect();
    world.run();
    let n_good =
        |calls: &[CallId]| calls.iter().filter(|call| world.answer(**call).code() == Some(0)).count();
    assert_eq!(n_good(&calls), 4);
    assert!(n_good(&later) > 60, "{}", n_good(&later));
    let filter = stats(&mut world, "limit");
    assert!(filter.limit > 5.0 && filter.in_flight == 0, "{filter:?}");
}

/// If it failed, a filter could only be used with simple methods.
#[test]
fn filter_leaves_streams_unchanged() {
    for seed in 0..30 {
        let mut rng = Rng::from_seed(seed);
        let limit =
            Policies { timeouts: timeouts(Some(Interval::from_secs(60)), None), ..Policies::default() };
        let filters = [filter(0, "outer", limit.clone()), filter(1, "inner", limit)];
        let mut world = World::new(seed, plan(&reading_chain(), &filters, &[CART]))
            .network(Network::choppy(seed))
            .server(CART, |_| Behaviour::default().trailer("x-sum", "1").header("x-kept", "2"));
        let client = world.client("front");
        let mut calls = Vec::new();
        for path in ALL {
            let n = if path == ADD || path == DOWN { 1 } else { rng.within(&(0..=6)) };
            let sent: Vec<_> = (0..n)
                .map(|nth| {
                    let size = rng.within(&(0..=60_000)) as usize;
                    Message::new(item("ann", nth, &rng.bytes(size)))
                })
                .collect();
            let call = Call::stream(path, sent).gap(ms(rng.within(&(0..=10)) as i64));
            calls.push((world.call(client, call.clone()), call));
        }
        world.run();
        for (id, call) in calls {
            let answer = world.answer(id);
            assert_eq!(answer.code(), Some(0), "seed {seed} {}: {:?}", call.path, answer.end);
            assert!(answer.messages == call.messages, "seed {seed}: {} came back otherwise", call.path);
            assert_eq!(field(answer.trailers(), "x-sum"), Some("1"), "seed {seed}");
        }
        assert_eq!(world.check(), [""; 0], "seed {seed}");
    }
}

/// A filter must gather a request that it may send again, through any network, and lose nothing of it.
#[test]
fn retried_call_arrives_whole() {
    for seed in 0..30 {
        let mut rng = Rng::from_seed(seed);
        let mut policies = retry(6);
        policies.timeouts.per_try = Some(Interval::from_secs(20));
        let filters = [filter(0, "outer", retry(2)), filter(1, "inner", policies)];
        let mut n_seen = 0;
        let mut world = World::new(seed, plan(&reading_chain(), &filters, &[CART, CART_2]))
            .network(Network::choppy(seed))
            .server(CART, move |_| {
                n_seen += 1;
                match n_seen % 3 {
                    0 => Behaviour::default(),
                    1 => Behaviour::new(Reply::Messages(Vec::new())).status(14),
                    _ => Behaviour::new(Reply::Die(1)),
                }
            })
            .server(CART_2, |_| Behaviour::default().header("x-kept", "2"));
        let client = world.client("front");
        let calls: Vec<_> = (0..12)
            .map(|nth| {
                let size = rng.within(&(0..=80_000)) as usize;
                let path = if nth % 3 == 0 { DOWN } else { ADD };
                let call = Call::unary(path, item("ann", nth, &rng.bytes(size))).at(ms(nth as i64 * 20));
                (world.call(client, call.clone()), call)
            })
            .collect();
        world.run();
        for (id, call) in calls {
            let answer = world.answer(id);
            assert_eq!(answer.code(), Some(0), "seed {seed}: {:?}", answer.end);
            assert!(answer.messages == call.messages && !answer.is_answered_twice, "seed {seed}");
        }
        assert_eq!(world.check(), [""; 0], "seed {seed}");
        assert_eq!(world.engine().calls_open(), 0);
    }
}

/// A slow reader behind a filter would let the node gather without end.
#[test]
fn filter_applies_back_pressure() {
    let limit = Policies { timeouts: timeouts(Some(Interval::from_secs(600)), None), ..Policies::default() };
    let filters = [filter(1, "limit", limit)];
    let big = || Message::new(item("ann", 1, &[7; 60_000]));
    let many = || (0..60).map(|_| big()).collect::<Vec<_>>();
    let mut world = World::new(1, plan(&reading_chain(), &filters, &[CART]))
        .server(CART, move |_| Behaviour::new(Reply::AtOnce((0..60).map(|_| big()).collect())));
    let client = world.client("front");
    let call = world.call(client, Call::stream(BOTH, many()).reads_after(ms(2000)));
    world.run();
    assert_eq!(world.answer(call).messages.len(), 60);
    assert!(world.bytes_held_max() < 1 << 20, "{}", world.bytes_held_max());
}

/// A client that leaves would keep its tries running, and slots of its filters taken.
#[test]
fn client_reset_cancels_tries() {
    let circuit = Circuit {
        errors_max: Some(1),
        ratio: None,
        in_flight_max: Some(10),
        errors: StatusSet::server_errors(),
        open_for: ms(1000),
        probes: 1,
    };
    let hedge = Hedge { after: ms(10), extra_max: 2, not_final: StatusSet::NONE, budget: None };
    let filters = [
        filter(0, "circuit", Policies { circuit: Some(circuit), ..Policies::default() }),
        filter(1, "hedge", policies_of(hedge)),
    ];
    let mut world = World::new(1, plan(&reading_chain(), &filters, &[CART, CART_2]))
        .server(CART, |_| Behaviour::new(Reply::Silence))
        .server(CART_2, |_| Behaviour::new(Reply::Silence));
    let (leaver, lost) = (world.client("front"), world.client("front"));
    world.call(leaver, Call::unary(ADD, item("ann", 1, b"")).leaves_after(ms(100)));
    world.call(lost, Call::unary(ADD, item("ann", 1, b"")));
    world.at(ms(120), move |w| w.cut(lost));
    world.run();
    assert_eq!(world.received().len(), 6);
    assert!(world.received().iter().all(|r| r.is_cancelled));
    let filter = stats(&mut world, "circuit");
    assert_eq!((filter.in_flight, filter.is_open, filter.counts.opened), (0, false, 0));
    assert_eq!(world.engine().calls_open(), 0);
}

/// A call under way would lose its tries, its place or its answer when its chain is replaced.
#[test]
fn filtered_call_keeps_its_version() {
    let mut net = Net::new();
    net.filters = vec![filter(1, "retry", retry(4))];
    let first = net.plan(Some(&reading_chain()), &[CART]);
    net.filters = vec![filter(0, "other", retry(1)), filter(0, "retry", retry(0))];
    let second = net.plan(Some(&reading_chain()), &[CART]);
    net.filters = Vec::new();
    let third = net.plan(Some(&reading_chain()), &[CART]);
    let mut world = World::new(1, first).server(CART, failing(3, 14));
    let client = world.client("front");
    let call = add(&mut world, client, "ann", 0);
    let later = add(&mut world, client, "bob", 1000);
    let last = add(&mut world, client, "eve", 3000);
    world.at(ms(15), move |w| w.apply(second));
    world.at(ms(2000), move |w| w.apply(third));
    world.run();
    for call in [call, later, last] {
        assert_eq!(world.answer(call).code(), Some(0));
    }
    assert_eq!(world.received().len(), 6);
}

/// An update would close a breaker that is open, and forget which calls were made.
#[test]
fn filter_state_survives_update() {
    let circuit = Circuit {
        errors_max: Some(1),
        ratio: None,
        in_flight_max: None,
        errors: StatusSet::server_errors(),
        open_for: ms(10_000),
        probes: 1,
    };
    let once =
        Reliability::AtLeastOnce { id: KeyId(0), window: ms(60_000), calls_max: 9, answer_bytes_max: 99 };
    let mut net = Net::new();
    net.filters = vec![
        filter(1, "once", Policies { once: Some(once), ..Policies::default() }),
        filter(1, "circuit", Policies { circuit: Some(circuit), ..Policies::default() }),
    ];
    let first = net.plan(Some(&keyed_chain()), &[CART]);
    net.filters[1].policies.timeouts.total = Some(ms(500));
    let second = net.plan(Some(&keyed_chain()), &[CART]);
    let mut n_seen = 0;
    let mut world = World::new(1, first).server(CART, move |_| {
        n_seen += 1;
        if n_seen == 1 { Behaviour::default() } else { Behaviour::new(Reply::Die(0)) }
    });
    let client = world.client("front");
    add(&mut world, client, "ann", 0);
    add(&mut world, client, "bob", 100);
    world.at(ms(200), move |w| w.apply(second));
    let (again, refused) = (add(&mut world, client, "ann", 300), add(&mut world, client, "eve", 400));
    world.run();
    assert_eq!(world.answer(again).code(), Some(0), "{}", world.answer(again).text());
    assert_eq!(world.answer(refused).text(), "filter `circuit`: the circuit is open");
    assert_eq!(world.received().len(), 2);
}

/// `OVER unix` would go over TCP.
#[test]
fn filter_transport_is_required() {
    let policies = Policies { over: Some(Transport::Unix), ..Policies::default() };
    let mut world =
        World::new(1, plan(&reading_chain(), &[filter(0, "local", policies)], &[CART, "unix:/run/cart"]))
            .server(CART, |_| Behaviour::default())
            .server("unix:/run/cart", |_| Behaviour::default());
    let client = world.client("front");
    let calls: Vec<_> = (0..10).map(|nth| add(&mut world, client, "ann", nth * 10)).collect();
    world.run();
    assert!(calls.into_iter().all(|call| world.answer(call).code() == Some(0)));
    assert!(world.received().iter().all(|r| r.server == "unix:/run/cart"));
}

/// Servers that ask for another time, or for none, would be asked again and again.
#[test]
fn server_pushback_delays_retry() {
    for (pushback, n_tries, took) in [("70", 2, 70), ("-1", 1, 0)] {
        let mut n_seen = 0;
        let mut world = World::new(1, plan(&reading_chain(), &[filter(0, "retry", retry(3))], &[CART]))
            .server(CART, move |_| {
                n_seen += 1;
                let answer = Behaviour::default();
                if n_seen > 1 {
                    return answer;
                }
                Behaviour::new(Reply::Messages(Vec::new()))
                    .status(14)
                    .trailer("grpc-retry-pushback-ms", pushback)
            });
        let client = world.client("front");
        let call = add(&mut world, client, "ann", 0);
        world.run();
        assert_eq!(world.received().len(), n_tries);
        assert!(
            (ms(took)..ms(took + 5)).contains(&world.answer(call).took()),
            "{}",
            world.answer(call).took()
        );
    }
}

/// Policies of all kinds, in any mixture.
fn any_policies(rng: &mut Rng) -> Policies {
    let mut policies = Policies::default();
    let errors = StatusSet::server_errors();
    let short = |rng: &mut Rng, max: u64| ms(1 + rng.within(&(0..=max)) as i64);
    if rng.chance(400) {
        let total = rng.chance(500).then(|| short(rng, 400));
        let per_try = rng.chance(500).then(|| short(rng, 100));
        policies.timeouts = Timeouts { total, per_try, propagate: rng.chance(300).then(|| ms(1)) };
    }
    if rng.chance(400) {
        let backoff = Backoff { first: ms(rng.within(&(0..=5)) as i64), max: ms(20), jitter_percent: 50.0 };
        let budget = rng.chance(300).then_some(Budget { percent: 20.0, per_second_min: 1.0 });
        let retries_max = 1 + rng.within(&(0..=3)) as u32;
        policies.retry = Some(Retry { retries_max, when: errors, backoff, budget });
    }
    if rng.chance(300) {
        let not_final = if rng.chance(500) { errors } else { StatusSet::NONE };
        let extra_max = 1 + rng.within(&(0..=2)) as u32;
        policies.hedge = Some(Hedge { after: short(rng, 30), extra_max, not_final, budget: None });
    }
    if rng.chance(250) {
        let key = rng.chance(500).then_some(KeyId(0));
        let (burst, waiting_max) = (1.0 + rng.within(&(0..=4)) as f64, rng.within(&(0..=20)) as u32);
        let rate = Rate { per_second: 200.0, burst, key, keys_max: 3, waiting_max, wait_max: ms(300) };
        policies.rate = Some(rate);
    }
    if rng.chance(250) {
        policies.order =
            Some(Order { key: KeyId(0), keys_max: 1 + rng.within(&(0..=3)) as u32, waiting_max: 9 });
    }
    if rng.chance(250) {
        let in_flight_max = rng.chance(500).then_some(4);
        let open_for = short(rng, 100);
        policies.circuit =
            Some(Circuit { errors_max: Some(3), ratio: None, in_flight_max, errors, open_for, probes: 2 });
    }
    if rng.chance(250) {
        let law = match rng.chance(500) {
            true => CongestionLaw::Aimd { latency_max: Some(ms(50)), backoff: 0.7 },
            false => CongestionLaw::Gradient { tolerance: 1.5 },
        };
        policies.congestion = Some(Congestion { law, start: 5, min: 1, max: 20, errors });
    }
    if rng.chance(250) {
        let once =
            Reliability::AtLeastOnce { id: KeyId(0), window: ms(50), calls_max: 4, answer_bytes_max: 200 };
        policies.once = Some(if rng.chance(800) { once } else { Reliability::AtMostOnce });
    }
    if rng.chance(250) {
        let eject_for = short(rng, 200);
        policies.outlier = Some(Outlier { errors_max: 2, errors, eject_for, ejected_max_percent: 50.0 });
    }
    policies
}

/// Whatever filters stand in a chain and whatever happens to its calls, each call ends once and leaves nothing behind:
/// a slot that leaked would be missing for good.
#[test]
fn filter_leaves_no_state_behind() {
    let mut total = FilterCounts::default();
    for seed in 0..150 {
        let mut rng = Rng::from_seed(seed);
        let mut net = Net::new();
        let mut next_plan = |rng: &mut Rng| {
            let n_filters = 1 + rng.within(&(0..=2));
            net.filters =
                (0..n_filters).map(|nth| filter(1, &format!("f{nth}"), any_policies(rng))).collect();
            net.plan(Some(&keyed_chain()), &[CART, CART_2])
        };
        let (first, second) = (next_plan(&mut rng), next_plan(&mut rng));
        let mut n_seen = seed;
        let mut world = World::new(seed, first)
            .network(Network::choppy(seed))
            .server(CART, move |_| {
                n_seen =
                    n_seen.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                match n_seen >> 60 {
                    0..4 => Behaviour::default(),
                    4 => Behaviour::default().after(ms(60)),
                    5 => Behaviour::new(Reply::Silence),
                    6 => {
                        Behaviour::new(Reply::Reset(1, weft_proto::session::http2::ErrorCode::RefusedStream))
                    }
                    7 => Behaviour::new(Reply::Die(1)),
                    8 => Behaviour::new(Reply::Messages(Vec::new())).status(14),
                    9 => Behaviour::new(Reply::Messages(Vec::new())).status(5),
                    10 => Behaviour::new(Reply::Page(503, Vec::new())),
                    _ => Behaviour::default().after(ms(5)).trailer("x-sum", "1"),
                }
            })
            .server(CART_2, |_| Behaviour::default().after(ms(2)));
        let clients = [world.client("front"), world.client("front")];
        let mut calls = Vec::new();
        for nth in 0..60 {
            let user = ["ann", "bob", "eve"][rng.within(&(0..=2)) as usize];
            let path = if rng.chance(200) { DOWN } else { ADD };
            let mut call = Call::unary(path, item(user, nth, b"")).at(ms(rng.within(&(0..=400)) as i64));
            if rng.chance(150) {
                call = call.leaves_after(ms(rng.within(&(0..=80)) as i64));
            } else {
                call = call.timeout(ms(2_000));
            }
            calls.push(world.call(rng.pick(&clients), call));
        }
        world.at(ms(200), move |w| w.apply(second));
        let lost = clients[1];
        world.at(ms(300), move |w| w.cut(lost));
        world.run();
        assert_eq!(world.check(), [""; 0], "seed {seed}");
        for call in calls {
            assert!(!world.answer(call).is_answered_twice, "seed {seed}");
        }
        assert_eq!(world.engine().calls_open(), 0, "seed {seed}");
        for filter in world.engine().stats().filters {
            assert_eq!((filter.waiting, filter.in_flight), (0, 0), "seed {seed}: {filter:?}");
            total.add(&filter.counts);
        }
    }
    // A policy that never did anything was not tested.
    assert!(total.named().iter().all(|(_, n)| *n > 0), "{total:?}");
}
