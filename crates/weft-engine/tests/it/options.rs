//! The options of listeners and clusters: their effects, and changes under open connections.

use crate::support::*;
use std::sync::Arc;
use weft_core::Time;
use weft_core::options::{ClusterOptions, ListenerOptions};
use weft_engine::CloseReason;
use weft_engine::plan::{Cluster, Plan};

fn set(
    mut plan: Plan,
    listener: impl FnOnce(&mut ListenerOptions),
    cluster: impl FnOnce(&mut ClusterOptions),
) -> Plan {
    let mut options = ListenerOptions::default();
    listener(&mut options);
    plan.listeners[0].options = Arc::new(options);
    let mut changed: Cluster = (*plan.clusters[0]).clone();
    cluster(&mut changed.options);
    plan.clusters[0] = Arc::new(changed);
    plan
}

fn echo() -> Behaviour {
    Behaviour::default()
}

fn add(world: &mut World, client: ClientId, bytes: usize, at: i64) -> CallId {
    world.call(client, Call::unary(ADD, item("ann", 1, &vec![7; bytes])).at(ms(at)))
}

/// If it failed, an unused connection would be kept forever, or one with a long call be closed under it.
#[test]
fn idle_timeout_spares_busy_connection() {
    let limit = |options: &mut ListenerOptions| options.idle_timeout = Some(ms(500));
    let of_cluster = |options: &mut ClusterOptions| options.idle_timeout = Some(ms(300));
    let plan = set(Net::new().plan(None, &[CART]), limit, of_cluster);
    let mut world = World::new(1, plan).server(CART, |_| Behaviour::default().after(ms(2_000)));
    let client = world.client("front");
    let call = add(&mut world, client, 1, 100);
    world.run_until(ms(1_900));
    assert_eq!(world.engine().connections_open(), 2, "a call is on both");
    world.run_until(ms(2_450));
    assert_eq!(world.engine().connections_open(), 1, "no call needs the server's");
    world.run();
    assert_eq!(world.answer(call).code(), Some(0));
    assert_eq!(world.engine().connections_open(), 0);
}

/// If it failed, clients would stay with one node whatever is added beside it.
#[test]
fn aged_connection_drains() {
    let limit = |options: &mut ListenerOptions| options.connection_age_max = Some(ms(1_000));
    let plan = set(Net::new().plan(None, &[CART]), limit, |_| {});
    let mut world = World::new(1, plan).server(CART, |_| Behaviour::default().after(ms(3_000)));
    let client = world.client("front");
    let call = add(&mut world, client, 1, 100);
    world.run_until(ms(2_000));
    assert_eq!(world.engine().clients_open(), 1, "its call may take its time");
    world.run_until(ms(3_500));
    assert_eq!((world.answer(call).code(), world.engine().clients_open()), (Some(0), 0));
}

/// Without a grace, a call that never ends would keep an old connection for ever.
#[test]
fn age_grace_ends_calls() {
    let limit = |options: &mut ListenerOptions| {
        options.connection_age_max = Some(ms(1_000));
        options.connection_age_grace = Some(ms(500));
    };
    let plan = set(Net::new().plan(None, &[CART]), limit, |_| {});
    let mut world = World::new(1, plan).server(CART, |_| Behaviour::default().after(ms(30_000)));
    let client = world.client("front");
    let call = add(&mut world, client, 1, 100);
    world.run_until(ms(2_000));
    assert_eq!(world.answer(call).code(), Some(14));
    assert!(world.answer(call).text().contains("greatest age"), "{}", world.answer(call).text());
    assert_eq!(world.engine().clients_open(), 0);
}

/// If it failed, new servers behind one address would get no connections.
#[test]
fn aged_upstream_is_replaced() {
    let limit = |options: &mut ClusterOptions| options.connection_age_max = Some(ms(1_000));
    let plan = set(Net::new().plan(None, &[CART]), |_| {}, limit);
    let mut world = World::new(1, plan).server(CART, |_| echo());
    let client = world.client("front");
    let calls: Vec<_> = (0..30).map(|nth| add(&mut world, client, 1, 100 * nth)).collect();
    world.run();
    assert!(calls.iter().all(|call| world.answer(*call).code() == Some(0)), "no call may be lost");
    let made = world.engine().stats().upstream.total;
    assert!((3..=4).contains(&made), "three seconds, one each: {made}");
}

/// If it failed, a message above the limit would fill memory, or one within it be refused.
#[test]
fn message_limit_is_per_side() {
    let plan = |request: u32, response: u32| {
        let of_listener = move |options: &mut ListenerOptions| options.message_size_max = request;
        let of_cluster = move |options: &mut ClusterOptions| options.message_size_max = response;
        set(Net::new().plan(Some(&reading_chain()), &[CART]), of_listener, of_cluster)
    };
    let codes = |plan: Plan, bytes: usize| {
        let mut world = World::new(1, plan).server(CART, |_| echo());
        let client = world.client("front");
        let call = add(&mut world, client, bytes, 1);
        world.run();
        world.answer(call).code()
    };
    assert_eq!(codes(plan(4 << 20, 4 << 20), 5 << 20), Some(8));
    assert_eq!(codes(plan(8 << 20, 4 << 20), 5 << 20), Some(8), "the answer is as large");
    assert_eq!(codes(plan(8 << 20, 8 << 20), 5 << 20), Some(0));
    assert_eq!(codes(plan(2_000, 4 << 20), 3_000), Some(8));
    // More than the connection's window, and than the data that one connection may have received and not released.
    assert_eq!(codes(plan(32 << 20, 32 << 20), 24 << 20), Some(0));
}

/// If it failed, one listener's clients would use the connections of another's, or all memory.
#[test]
fn full_listener_refuses_clients() {
    let limit = |options: &mut ListenerOptions| options.connections_max = 2;
    let plan = set(Net::new().plan(None, &[CART]), limit, |_| {});
    let mut world = World::new(1, plan).server(CART, |_| echo());
    let engine = world.engine();
    let first = engine.handle_accept(Time(0), "front", "a").expect("one");
    assert!(engine.handle_accept(Time(0), "front", "b").is_some());
    assert!(engine.handle_accept(Time(0), "front", "c").is_none());
    engine.handle_closed(Time(0), first, CloseReason::Eof);
    assert!(engine.handle_accept(Time(0), "front", "d").is_some());
}

/// If it failed, a change of a limit would close connections, or apply only to new ones.
#[test]
fn options_apply_to_open_connections() {
    let mut net = Net::new();
    let mut world = World::new(1, net.plan(Some(&reading_chain()), &[CART])).server(CART, |_| echo());
    let client = world.client("front");
    let before = add(&mut world, client, 100_000, 10);
    let limit = |options: &mut ListenerOptions| options.message_size_max = 50_000;
    let second =
        set(net.plan(Some(&reading_chain()), &[CART]), limit, |options| options.idle_timeout = Some(ms(200)));
    world.at(ms(100), move |w| w.apply(second));
    let after = add(&mut world, client, 100_000, 200);
    let small = add(&mut world, client, 10_000, 210);
    world.run_until(ms(220));
    assert_eq!(world.engine().connections_open(), 2, "the same as before");
    world.run_until(ms(1_000));
    let codes = [before, after, small].map(|call| world.answer(call).code());
    assert_eq!(codes, [Some(0), Some(8), Some(0)]);
    assert_eq!(world.engine().stats().downstream.total, 1);
    assert_eq!(world.engine().connections_open(), 1, "the server's had no call for long");
}

/// If it failed, a recovered server would be tried too late, or a dead one too often.
#[test]
fn backoff_follows_cluster_options() {
    let attempts = |base: i64, max: i64| {
        let limit = move |options: &mut ClusterOptions| {
            (options.backoff_base, options.backoff_max) = (ms(base), ms(max));
        };
        let plan = set(Net::new().plan(None, &[CART]), |_| {}, limit);
        let mut world = World::new(1, plan);
        let client = world.client("front");
        (0..100).for_each(|nth| {
            add(&mut world, client, 1, 10 * nth);
        });
        world.run_until(ms(1_000));
        world.engine().stats().endpoints[0].connect_failures
    };
    let (often, seldom) = (attempts(20, 40), attempts(400, 400));
    assert!(often > 15 && seldom <= 3, "{often} and {seldom} in a second");
}
