//! Call links on clusters: tenants' calls queue in the library's queues, with real HTTP/2 and a virtual clock.

use crate::queues::library_queue;
use std::collections::BTreeSet;
use std::sync::Arc;
use weft_core::Interval;
use weft_core::hash::HashKey;
use weft_core::options::ClusterOptions;
use weft_core::rng::Rng;
use weft_engine::call_queue::{CallFlow, CallQueue, CallQueueStats, QueueScope, SharedSlots};
use weft_engine::plan::{Balance, Cluster, Listener, MethodSet, Plan, Route};
use weft_engine::queue::{ProgramText, Queue};
use weft_engine::recording::{EndReason, Limits, QueueEvent, Recorder, ask, read, read_snapshot};
use weft_ir::queue::QueueProgram;
use weft_ir::queue::run::Interpreted;
use weft_sim::{Behaviour, Call, CallId, ClientId, START, World};

const CART: &str = "10.0.0.1:50051";
const OK: Option<u32> = Some(0);
const RESOURCE_EXHAUSTED: Option<u32> = Some(8);
/// The server's time per call.
const SERVICE_MS: i64 = 10;

const fn ms(n: i64) -> Interval {
    Interval::from_millis(n)
}

/// A link with a queue of the library, four concurrent calls, and a flow per tenant.
fn link(queue: &str, args: &str) -> CallQueue {
    let program = library_queue(queue, args);
    CallQueue {
        name: "line".to_owned(),
        of: QueueScope::Cluster(0),
        concurrency: Some(4),
        step_ns: None,
        key: CallFlow::Header("tenant".to_owned()),
        class: Some("class".to_owned()),
        shared: Arc::new(SharedSlots::default()),
        code: Arc::new(Interpreted::new(Arc::clone(&program))),
        program,
        written: ProgramText::default(),
    }
}

fn plan(version: u64, link: Option<CallQueue>) -> Plan {
    let cluster = Cluster {
        name: "cart".to_owned(),
        endpoints: vec![CART.parse().expect("an address")],
        names: Vec::new(),
        balance: Balance::RoundRobin,
        weights: Vec::new(),
        options: ClusterOptions { connections: Some(1), ..ClusterOptions::default() },
    };
    let route = Route {
        name: "all".to_owned(),
        listener: 0,
        methods: MethodSet::all(),
        condition: None,
        cluster: 0,
        chains: Vec::new(),
    };
    let address = "10.0.0.9:80".parse().expect("an address");
    Plan {
        version,
        listeners: vec![Listener { name: "front".to_owned(), address, options: Arc::default() }],
        clusters: vec![Arc::new(cluster)],
        routes: vec![route],
        chains: Vec::new(),
        call_queues: link.into_iter().map(Arc::new).collect(),
    }
}

fn world(seed: u64, link: CallQueue) -> World {
    World::new(seed, plan(1, Some(link))).server(CART, |_| Behaviour::default().after(ms(SERVICE_MS)))
}

fn of_tenant(tenant: &str, at: i64) -> Call {
    Call::unary("/shop.Cart/Add", b"hello").header("tenant", tenant).at(ms(at))
}

/// Calls of a client, each built from its number.
fn calls(world: &mut World, client: ClientId, n: i64, call: impl Fn(i64) -> Call) -> Vec<CallId> {
    (0..n).map(|nth| world.call(client, call(nth))).collect()
}

fn stats(world: &mut World) -> CallQueueStats {
    let stats = world.engine().stats().call_queues.pop().expect("there is a link");
    assert!(stats.counts.is_conserved(), "{:?}", stats.counts);
    stats
}

/// The longest duration of a call.
fn slowest(world: &World, calls: &[CallId]) -> Interval {
    let took = calls.iter().map(|call| world.answer(*call).took());
    took.max().expect("there are calls")
}

/// The maximum latency of a modest tenant's calls beside a tenant that floods the cluster.
fn beside_a_flood(queue: &str) -> Interval {
    let mut world = world(1, link(queue, ""));
    let (greedy, modest) = (world.client("front"), world.client("front"));
    let flood = calls(&mut world, greedy, 600, |_| of_tenant("greedy", 1));
    let few = calls(&mut world, modest, 20, |nth| of_tenant("modest", 30 + nth * 30));
    world.run();
    assert!(few.iter().all(|call| world.answer(*call).code() == OK));
    // CoDel drops calls of the flood, which wait long enough.
    let n_dropped =
        flood.iter().filter(|call| world.answer(**call).code() == RESOURCE_EXHAUSTED).count() as u64;
    let stats = stats(&mut world);
    assert_eq!((stats.counts.sent, stats.counts.queued, stats.in_flight), (620 - n_dropped, 0, 0));
    assert_eq!(n_dropped > 0, queue == "fq_codel");
    slowest(&world, &few)
}

/// If this fails, one tenant delays all others without a bound.
#[test]
fn tenant_flood_spares_others() {
    // A slot is free after one service time at the latest, and the next turn is the other tenant's.
    let fair = beside_a_flood("drr");
    assert!(fair < ms(2 * SERVICE_MS + 10), "{fair}");
    let nested = beside_a_flood("fq_codel");
    assert!(nested < ms(2 * SERVICE_MS + 10), "{nested}");
    let in_line = beside_a_flood("fifo");
    assert!(in_line > ms(500), "a line has the flood first: {in_line}");
}

/// If this fails, the busiest client takes all of a shared listener, or a call holds a slot forever.
#[test]
fn connections_share_a_listener() {
    let of_listener =
        |queue: &str| CallQueue { of: QueueScope::Listener(0), key: CallFlow::Session, ..link(queue, "") };
    let slowest_of_few = |queue: &str| {
        let mut world = world(7, of_listener(queue));
        // Both clients have one host and name no tenant.
        let (greedy, modest) = (world.client("front"), world.client("front"));
        let flood = calls(&mut world, greedy, 600, |_| Call::unary("/shop.Cart/Add", b"hello").at(ms(1)));
        let few = calls(&mut world, modest, 20, |nth| {
            Call::unary("/shop.Cart/Add", b"hello").at(ms(30 + nth * 30))
        });
        world.run();
        assert!(flood.iter().chain(&few).all(|call| world.answer(*call).code() == OK));
        let stats = stats(&mut world);
        assert_eq!((stats.of.as_str(), stats.counts.sent, stats.in_flight), ("front", 620, 0));
        slowest(&world, &few)
    };
    assert!(slowest_of_few("drr") < ms(2 * SERVICE_MS + 10));
    assert!(slowest_of_few("fifo") > ms(500));
}

/// If this fails, a call that passed one link does not wait in the other, or does not release both slots.
#[test]
fn call_passes_both_links() {
    let narrow = CallQueue { of: QueueScope::Listener(0), concurrency: Some(2), ..link("fifo", "") };
    let narrow = CallQueue { name: "front_line".to_owned(), ..narrow };
    let wide = CallQueue { concurrency: Some(1), ..link("drr", "") };
    let mut both = plan(1, Some(wide));
    both.call_queues.push(Arc::new(narrow));
    let mut world = World::new(8, both).server(CART, |_| Behaviour::default().after(ms(SERVICE_MS)));
    let client = world.client("front");
    let all = calls(&mut world, client, 50, |nth| of_tenant(if nth % 2 == 0 { "a" } else { "b" }, 1));
    world.run();
    assert!(all.iter().all(|call| world.answer(*call).code() == OK));
    for stats in world.engine().stats().call_queues {
        assert!(stats.counts.is_conserved() && stats.counts.sent == 50 && stats.in_flight == 0, "{stats:?}");
    }
    // One call at a time: the cluster has one slot.
    assert!(slowest(&world, &all) >= ms(50 * SERVICE_MS));
}

/// If this fails, tenants with too much demand get unequal shares.
#[test]
fn greedy_tenants_share_equally() {
    let mut world = world(2, link("drr", ""));
    for (tenant, n) in [("a", 400), ("b", 200), ("c", 100)] {
        let client = world.client("front");
        calls(&mut world, client, n, |_| of_tenant(tenant, 1));
    }
    world.run();
    // Calls that started before all tenants had sent are not part of the rounds.
    let tenants: Vec<&str> = world.received().iter().filter_map(|call| call.header("tenant")).collect();
    for n in [60, 150, 280] {
        let shares = ["a", "b", "c"].map(|tenant| tenants[..n].iter().filter(|of| **of == tenant).count());
        let (least, most) = (shares.iter().min(), shares.iter().max());
        assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 5), "{shares:?} of {n}");
    }
    assert_eq!(tenants.len(), 700);
}

/// If this fails, calls of a lower class wait behind those of a higher one.
#[test]
fn header_gives_call_class() {
    let mut world = world(3, CallQueue { concurrency: Some(1), ..link("priority", "") });
    let client = world.client("front");
    for class in [9, 7, 1, 0, 3] {
        calls(&mut world, client, 10, |_| of_tenant("a", 1).header("class", &class.to_string()));
    }
    world.run();
    let classes: Vec<u32> =
        world.received().iter().filter_map(|call| call.header("class")?.parse().ok()).collect();
    // The first call started before the others arrived. Classes beyond the last count as the last.
    let behind = classes[1..].iter().map(|class| (*class).min(7));
    assert!(behind.is_sorted(), "{classes:?}");
    assert_eq!(classes.len(), 50);
}

/// If this fails, a long request goes before a short one in a shortest-first queue, or a message's length does not
/// count until all of it has arrived: a stream's window is 65,535 bytes.
#[test]
fn short_request_goes_first() {
    for (seed, queue) in (0..20).flat_map(|seed| ["srpt", "pfabric"].map(|queue| (seed, queue))) {
        let mut world = world(seed, CallQueue { concurrency: Some(1), ..link(queue, "") });
        let client = world.client("front");
        for (nth, bytes) in [200_000, 1_000, 300_000, 100, 100_000, 10].into_iter().enumerate() {
            let call = Call::unary("/shop.Cart/Add", vec![7; bytes]).header("tenant", &nth.to_string());
            world.call(client, call.at(ms(1 + nth as i64)));
        }
        world.run();
        let bytes: Vec<usize> = world.received().iter().map(|call| call.messages[0].payload.len()).collect();
        // The first call found an empty link; the others arrived while it was in flight.
        assert_eq!(bytes, [200_000, 10, 100, 1_000, 100_000, 300_000], "{queue}, seed {seed}");
        assert!(world.check().is_empty());
        assert_eq!(stats(&mut world).counts.sent, 6);
    }
}

/// If this fails, a client that waits for the server before it sends anything waits forever, or `content-length` does
/// not count for a request without data so far.
#[test]
fn missing_message_does_not_block() {
    let mut world = world(9, CallQueue { concurrency: Some(1), ..link("srpt", "") });
    let client = world.client("front");
    let silent = |tenant: &str, until| Call {
        ends: false,
        ..Call::stream("/shop.Cart/Watch", Vec::new()).header("tenant", tenant).at(ms(2)).timeout(ms(until))
    };
    world.call(client, of_tenant("first", 1));
    world.call(client, silent("long", 300).header("content-length", "5000"));
    world.call(client, silent("short", 200).header("content-length", "50"));
    world.call(client, silent("unknown", 100));
    world.run();
    let order: Vec<&str> = world.received().iter().filter_map(|call| call.header("tenant")).collect();
    assert_eq!(order, ["first", "unknown", "short", "long"]);
    assert!(world.check().is_empty());
}

/// If this fails, some way for a call to end loses the call, or never frees its slot.
#[test]
fn each_call_proceeds_or_is_refused() {
    for seed in 0..20 {
        let queue = ["drr", "fq_codel", "fifo", "edf", "srpt"][seed as usize % 5];
        let args = if queue == "drr" { "(packets = 20)" } else { "" };
        let mut world = world(seed, link(queue, args));
        let mut rng = Rng::from_seed(seed);
        let mut calls = Vec::new();
        for nth in 0..6 {
            let client = world.client("front");
            for _ in 0..60 {
                let call = of_tenant(&format!("t{nth}"), (rng.bits() % 200) as i64);
                let call = match rng.bits() % 4 {
                    0 => call.timeout(ms(1 + (rng.bits() % 300) as i64)),
                    1 => call.leaves_after(ms(1 + (rng.bits() % 300) as i64)),
                    _ => call,
                };
                calls.push(world.call(client, call));
            }
        }
        world.run();
        let problems = world.check();
        assert!(problems.is_empty(), "{seed}: {problems:?}");
        let stats = stats(&mut world);
        assert_eq!((stats.counts.arrived, stats.counts.queued, stats.in_flight), (360, 0, 0), "{seed}");
        assert!(stats.counts.taken > 0, "{seed}: nobody has left");
        if args.is_empty() {
            continue;
        }
        assert!(stats.counts.dropped() > 0, "{seed}: nothing was dropped");
        let dropped = calls.iter().filter(|call| world.answer(**call).code() == RESOURCE_EXHAUSTED);
        let texts: Vec<&str> = dropped.map(|call| world.answer(*call).text()).collect();
        assert_eq!(texts.len() as u64, stats.counts.dropped());
        assert!(texts.iter().all(|text| text.starts_with("link `line`: line ")), "{texts:?}");
    }
}

/// If this fails, the cluster gets more concurrent calls than its limit.
#[test]
fn concurrency_limit_holds() {
    let mut world = world(5, link("drr", ""));
    let client = world.client("front");
    calls(&mut world, client, 100, |nth| of_tenant("a", nth % 7));
    world.run();
    let at: Vec<i64> = world.received().iter().map(|call| call.arrived[0].0).collect();
    let service = ms(SERVICE_MS).0;
    let most =
        at.iter().map(|now| at.iter().filter(|began| (*now - service + 1..=*now).contains(*began)).count());
    assert_eq!(most.max(), Some(4));
}

/// If this fails, calls proceed faster or slower than the configured rate.
#[test]
fn link_keeps_call_rate() {
    let mut world = world(6, CallQueue { concurrency: None, step_ns: Some(5_000_000), ..link("drr", "") });
    let client = world.client("front");
    calls(&mut world, client, 200, |_| of_tenant("a", 100));
    world.run();
    let received = world.received();
    let took = received[199].arrived[0] - received[0].arrived[0];
    // 199 intervals, minus the burst after the idle time, plus the granularity of the timers.
    assert!((ms(980)..ms(1002)).contains(&took), "{took}");
}

/// If this fails, a change of the queue loses waiting calls, or forgets calls in flight.
#[test]
fn update_keeps_waiting_calls() {
    let first = link("drr", "");
    let shared = Arc::clone(&first.shared);
    let mut world = world(7, first);
    let client = world.client("front");
    let calls = calls(&mut world, client, 200, |_| of_tenant("a", 1));
    let with = |queue, shared: &Arc<SharedSlots>| CallQueue { shared: Arc::clone(shared), ..link(queue, "") };
    let changed = plan(2, Some(with("fq_codel", &shared)));
    world.at(ms(100), move |world| world.apply(changed));
    let narrower = plan(3, Some(CallQueue { concurrency: Some(2), ..with("fifo", &shared) }));
    world.at(ms(150), move |world| world.apply(narrower));
    world.at(ms(200), move |world| {
        let stats = stats(world);
        assert_eq!((stats.queue.as_str(), stats.in_flight, stats.swap_overflow), ("it", 2, 0));
        assert!(stats.counts.queued > 100, "{:?}", stats.counts);
        // Two changes, each of which kept all waiting calls.
        assert!(stats.swap_kept > 2 * stats.counts.queued, "{}", stats.swap_kept);
        world.apply(plan(4, None));
    });
    world.run();
    assert!(calls.iter().all(|call| world.answer(*call).code() == OK));
    // Without a link all waiting calls proceed at once.
    assert!(slowest(&world, &calls) < ms(240), "{}", slowest(&world, &calls));
}

/// A recording's totals for the calls of a link.
#[derive(Debug, Default)]
struct ReplayTotals {
    /// The flows of the calls that proceeded, in order.
    went_on: Vec<u32>,
    n_dropped: u64,
    n_left: u64,
    n_refills: u64,
    /// Calls that waited when the recording began.
    n_waited: usize,
}

/// Replays the recorded operations on a queue of the program.
fn replay(program: &Arc<QueueProgram>, recorder: &Recorder) -> ReplayTotals {
    let (snapshot, _, rest) = read_snapshot(recorder.text()).expect("it was written");
    let snapshot = snapshot.expect("it began in the middle");
    let restored =
        |code| Queue::restore(Arc::clone(program), code, &snapshot).expect("it is of this program");
    let mut queue = restored(Interpreted::new(Arc::clone(program)));
    let waited = restored(Interpreted::new(Arc::clone(program))).take_all();
    let mut flows: Vec<u32> = vec![0; waited.len()];
    waited.iter().for_each(|(packet, _)| flows[packet.handle as usize] = packet.flow);
    let (mut totals, mut left) =
        (ReplayTotals { n_waited: waited.len(), ..ReplayTotals::default() }, BTreeSet::new());
    for asked in read(rest, recorder.begun().0) {
        let (now, mut asked) = asked.expect("it was written");
        match &mut asked {
            QueueEvent::Enqueue(packet) => {
                packet.handle = flows.len() as u64;
                flows.push(packet.flow);
            }
            QueueEvent::Left(number) => assert!(left.insert(*number), "{number} left twice"),
            QueueEvent::Refilled(numbers) => {
                assert!(numbers.iter().all(|number| !left.contains(number)));
                totals.n_refills += u64::from(!numbers.is_empty());
            }
            _ => {}
        }
        let sent = ask(&mut queue, now, &asked).expect("it names what waits");
        let went_on = sent.filter(|sent| !left.contains(&sent.handle));
        totals.went_on.extend(went_on.map(|sent| flows[sent.handle as usize]));
        while let Some(dropped) = queue.poll_dropped() {
            totals.n_dropped += u64::from(!left.contains(&dropped.handle));
        }
    }
    totals.n_left = left.len() as u64;
    totals
}

/// If this fails, an explanation of a call link differs from what happened: other calls proceed or drop, or in another
/// order.
#[test]
fn recorded_link_replays_exactly() {
    let (mut n_refills, mut n_dropped, mut n_gone) = (0, 0, 0);
    for (seed, queue) in (0..).zip(["drr", "fq_codel", "fifo", "edf", "sfq", "priority"]) {
        let args = if queue == "drr" { "(packets = 60)" } else { "" };
        let mut world = world(seed, link(queue, args));
        let mut rng = Rng::from_seed(seed);
        for nth in 0..6 {
            let client = world.client("front");
            for _ in 0..400 {
                let call = of_tenant(&format!("t{nth}"), (rng.bits() % 1_000) as i64);
                let call = match rng.bits() % 4 {
                    0 => call.timeout(ms(1 + (rng.bits() % 300) as i64)),
                    1 | 2 => call.leaves_after(ms(1 + (rng.bits() % 150) as i64)),
                    _ => call,
                };
                world.call(client, call);
            }
        }
        // At that time many calls wait, and some have left.
        let begin = ms(300);
        world.run_until(begin);
        let before = stats(&mut world).counts;
        let begun = world.engine().record_call_queue(START + begin, "line", Limits::NONE, &Arc::default());
        assert_eq!(begun, Some(true));
        let taken = Arc::default();
        assert_eq!(
            world.engine().record_call_queue(START + begin, "line", Limits::NONE, &taken),
            Some(false)
        );
        assert_eq!(world.engine().record_call_queue(START + begin, "other", Limits::NONE, &taken), None);
        world.run();
        let after = stats(&mut world).counts;
        let end = START + world.elapsed();
        assert_eq!(world.engine().call_queue_recordings(end)[0].1.ended, None);
        let recorder = world.engine().take_call_queue_recording("line").expect("it was begun");
        let totals = replay(&library_queue(queue, args), &recorder);
        let n_waited = totals.n_waited as u64;
        assert!(before.queued > 10, "{queue}: too few wait");
        let dropped = after.dropped() - before.dropped();
        let found = (totals.went_on.len() as u64, totals.n_dropped);
        assert_eq!(found, (after.sent - before.sent, dropped), "{queue}");
        // Calls that had already left count too, as long as they are in the queue.
        assert_eq!(totals.n_left - (n_waited - before.queued), after.taken - before.taken);
        let came = world.received().iter().filter_map(|call| call.header("tenant"));
        let came: Vec<u32> = came.map(|tenant| flow(seed, tenant)).collect();
        let came = &came[came.len() - totals.went_on.len()..];
        // A queue that does not use flows does not record the flows of waiting calls.
        let is_same = |(totals, came): (&u32, &u32)| totals == came || *totals == 0;
        assert!(totals.went_on.iter().zip(came).all(is_same), "{queue}: {:?} and {came:?}", totals.went_on);
        n_gone += n_waited - before.queued;
        (n_refills, n_dropped) = (n_refills + totals.n_refills, n_dropped + totals.n_dropped);
    }
    let tried = [n_refills, n_dropped, n_gone];
    assert!(tried.iter().all(|n| *n > 5), "refills, drops and those that had left before: {tried:?}");
}

/// The flow number of a tenant, in a world with this seed.
fn flow(seed: u64, tenant: &str) -> u32 {
    (HashKey::from_seed(seed).hash_bytes(tenant.as_bytes()) >> 32) as u32
}

/// If this fails, a recording continues over a change of the queue, with a program that never saw these calls.
#[test]
fn queue_change_ends_recording() {
    let first = link("drr", "");
    let shared = Arc::clone(&first.shared);
    let mut world = world(9, first);
    let client = world.client("front");
    calls(&mut world, client, 100, |_| of_tenant("a", 1));
    world.run_until(ms(20));
    let limits = Limits { packets: 1, ..Limits::NONE };
    world.engine().record_call_queue(START + ms(20), "line", limits, &Arc::default());
    let same = CallQueue { concurrency: Some(2), shared: Arc::clone(&shared), ..link("drr", "") };
    world.apply(plan(2, Some(same)));
    let progress = |world: &mut World| world.engine().call_queue_recordings(START + ms(20))[0].1;
    assert_eq!(progress(&mut world).ended, None, "the queue is the same");
    world.apply(plan(3, Some(CallQueue { shared, ..link("fifo", "") })));
    assert_eq!(progress(&mut world).ended, Some(EndReason::Replaced));
    world.run();
}
