//! Hot updates: state is carried, no call sees a mix of versions, none is lost.

use crate::support::*;
use weft_engine::plan::ChainError;
use weft_engine::stats::Stats;

/// A chain that stamps requests and responses with its number, and counts requests and ends.
fn stamped(number: u32, element_name: &str) -> String {
    let stamp = |input: usize| format!("v0: bytes = bytes \"{number}\"\nset_input in{input}, v0\nforward");
    let declarations = "request\ninput \"v\" TEXT nullable header \"x-version\" written\n\
        input \"u\" TEXT body \"user\" written\n\
        response\ninput \"v\" TEXT nullable header \"x-version\" written\ninput \"u\" TEXT body \"user\" written\n";
    let stamp_both = |name| {
        (
            name,
            "v0: bytes = bytes \"N\"\nset_input in0, v0\nset_input in1, v0\nforward"
                .replace('N', &number.to_string()),
        )
    };
    let (request, response) = (stamp_both("request"), stamp_both("response"));
    let open = stamp(0);
    let stamps =
        element(element_name, &[("open", &open), (request.0, &request.1), (response.0, &response.1)]);
    let counts = element("counts", &[("open", &bump(0)), ("close", &bump(1))]);
    chain(&format!("{declarations}{}", vars("counts", 2)), &[&stamps, &counts])
}

fn user_of(message: &Message) -> String {
    // Field 1 is behind the untouched fields.
    let text = String::from_utf8_lossy(&message.payload).into_owned();
    text.chars().last().map(String::from).unwrap_or_default()
}

/// A call would be lost, or see two versions, when a chain changes under load; counters would begin anew.
#[test]
fn unary_call_sees_one_version() {
    for seed in 0..5 {
        let mut net = Net::new();
        let mut world = World::new(seed, net.plan(Some(&stamped(1, "s")), &[CART]))
            .network(Network { latency_us: 10..=2000, chunk_bytes: 1..=3000, ..Network::default() })
            .server(CART, |r| {
                let version = r.header("x-version").unwrap_or_default().to_owned();
                Behaviour::default().after(ms(7)).header("x-request-version", &version)
            });
        for (nth, at) in (2..=9).zip((20..).step_by(20)) {
            let plan = net.plan(Some(&stamped(nth, "s")), &[CART]);
            world.at(ms(at), move |w| w.apply(plan));
        }
        let mut calls = Vec::new();
        for _ in 0..4 {
            let client = world.client("front");
            for nth in 0..100 {
                calls.push(world.call(client, Call::unary(ADD, item("a", 1, b"x")).at(ms(nth * 2))));
            }
        }
        world.run();
        let mut seen = std::collections::BTreeSet::new();
        for received in world.received() {
            assert_eq!(
                received.header("x-version"),
                Some(&user_of(&received.messages[0])[..]),
                "seed {seed}"
            );
        }
        for call in calls {
            let answer = world.answer(call);
            assert_eq!(answer.code(), Some(0));
            let version = field(&answer.headers, "x-version").expect("it is stamped").to_owned();
            assert_eq!(version, user_of(&answer.messages[0]), "seed {seed}");
            assert_eq!(field(&answer.headers, "x-request-version"), Some(&version[..]), "seed {seed}");
            seen.insert(version);
        }
        assert!(seen.len() >= 8, "seed {seed}: {seen:?}");
        assert_eq!(var_values(&mut world, 2), [400, 400], "seed {seed}: counters were not carried");
        let stats = world.engine().stats();
        assert_eq!(stats.chains.len(), 1, "old versions are let go: {:?}", stats.chains);
    }
}

/// The request and the response of one call would pass different programs.
#[test]
fn long_call_keeps_its_version() {
    let mut net = Net::new();
    let mut world = World::new(1, net.plan(Some(&stamped(1, "s")), &[CART]))
        .server(CART, |_| Behaviour::default().after(ms(5_000)));
    let client = world.client("front");
    let call = world.call(client, Call::unary(ADD, item("a", 1, b"")));
    let second = net.plan(Some(&stamped(2, "s")), &[CART]);
    world.at(ms(1_000), move |w| w.apply(second));
    world.run_until(ms(2_000));
    let versions = |stats: &Stats| stats.chains.iter().map(|c| (c.version, c.calls_open)).collect::<Vec<_>>();
    assert_eq!(versions(&world.engine().stats()), [(1, 1), (2, 0)]);
    world.run();
    assert_eq!(field(&world.answer(call).headers, "x-version"), Some("1"));
    assert_eq!(versions(&world.engine().stats()), [(2, 0)]);
}

/// The versions that the messages of a stream passed under, when the chain changes in the middle.
fn versions_of_stream(text: &str, pin: Option<weft_core::Interval>) -> (Vec<String>, Vec<u64>) {
    let mut net = Net::new();
    let mut first = net.plan(Some(&stamped(1, "s")), &[CART]);
    let mut chain = std::sync::Arc::into_inner(first.chains.remove(0)).expect("not shared yet");
    chain.pin_stream = pin;
    first.chains.push(std::sync::Arc::new(chain));
    let mut world = World::new(1, first).server(CART, |_| Behaviour::default());
    let client = world.client("front");
    let messages = vec![Message::new(item("a", 1, b"x")); 10];
    let call = world.call(client, Call::stream(BOTH, messages).gap(ms(10)));
    let second = net.plan(Some(text), &[CART]);
    world.at(ms(45), move |w| w.apply(second));
    world.run();
    assert_eq!(world.answer(call).code(), Some(0));
    let versions = world.received()[0].messages.iter().map(user_of).collect();
    (versions, var_values(&mut world, 2))
}

/// If it failed, a stream would stay on old code forever, or lose its counts when it moves.
#[test]
fn stream_moves_between_messages() {
    let (versions, counts) = versions_of_stream(&stamped(2, "s"), None);
    assert_eq!(versions.concat(), "1111122222");
    assert_eq!(counts, [1, 1], "one OPEN and one CLOSE");
}

/// PIN STREAM would not hold, or for ever.
#[test]
fn pinned_stream_stays_until_drain() {
    assert_eq!(versions_of_stream(&stamped(2, "s"), Some(ms(60_000))).0.concat(), "1111111111");
    assert_eq!(versions_of_stream(&stamped(2, "s"), Some(ms(22))).0.concat(), "1111111222");
}

/// A stream would move to a chain whose elements never saw it open.
#[test]
fn stream_stays_if_elements_differ() {
    let (versions, counts) = versions_of_stream(&stamped(2, "other"), None);
    assert_eq!(versions.concat(), "1111111111");
    assert_eq!(counts, [1, 1]);
}

/// A chain with a table of requests by user: how many, and more columns.
fn counting_table(key: &str, more: &str, set: &str) -> String {
    let declarations = format!(
        "request\ninput \"user\" TEXT body \"user\"\nresponse\nanswer \"x-n\"\nanswer \"x-extra\"\n\
         table \"t\" \"seen\" as locked max 100 evict reject\nkey \"user\" {key} = null\ncolumn \"n\" I64 = 0\n{more}"
    );
    let body = format!(
        "block0:\nlock t0\nv0: bytes = input in0\nv1: row = find t0, v0\nv2: bool = is_row v1\n\
            branch v2, block2(v1), block1\n\
         block1:\nv3: row = insert t0, v0\njump block2(v3)\n\
         block2(v4: row):\nv5: int = column t0, v4, c1\nv6: int = int 1\nv7: int = add v5, v6\n\
         v8: bool = set_column t0, v4, c1, v7\n\
         v9: bytes = int_to_text.signed v7\nset_answer n0, v9\n{set}abort ABORTED"
    );
    chain(&declarations, &[&element("t", &[("request", &body)])])
}

/// Rows would be lost by an update, or read as something else.
#[test]
fn tables_carry_over_by_column() {
    let key = "TEXT(16)";
    let extra = "column \"extra\" I64 = 40\n";
    let set = "v10: int = column t0, v4, c2\nv11: int = add v10, v6\n\
        v12: bool = set_column t0, v4, c2, v11\nv13: bytes = int_to_text.signed v11\nset_answer n1, v13\n";
    let mut net = Net::new();
    let mut world = World::new(1, net.plan(Some(&counting_table(key, "", "")), &[CART]));
    let second = net.plan(Some(&counting_table(key, extra, set)), &[CART]);
    let third = net.plan(Some(&counting_table(key, "", "")), &[CART]);
    let fourth = net.plan(Some(&counting_table(key, extra, set)), &[CART]);
    for (at, plan) in [(10, second), (30, third), (50, fourth)] {
        world.at(ms(at), move |w| w.apply(plan));
    }
    let client = world.client("front");
    let ask =
        |world: &mut World, at: i64| world.call(client, Call::unary(ADD, item("ann", 1, b"")).at(ms(at)));
    let calls = [0, 20, 40, 60].map(|at| ask(&mut world, at));
    world.run();
    let told = calls.map(|call| {
        let get = |name| field(world.answer(call).trailers(), name).unwrap_or_default().to_owned();
        (get("x-n"), get("x-extra"))
    });
    let wanted = [("1", ""), ("2", "41"), ("3", ""), ("4", "42")].map(|(n, e)| (n.to_owned(), e.to_owned()));
    assert_eq!(told, wanted);
}

/// Rows would be found under keys of another type.
#[test]
fn changed_key_is_refused() {
    let mut net = Net::new();
    let mut world = World::new(1, net.plan(Some(&counting_table("TEXT(16)", "", "")), &[CART]));
    let refused = net.try_plan(Some(&counting_table("TEXT(99)", "", "")), &[CART]);
    let Err(ChainError::State(unfit)) = refused else { panic!("{refused:?}") };
    assert_eq!(unfit.reason, "its key is (user TEXT(16)), and would be (user TEXT(99))");
    assert!(unfit.help.contains("another name"), "{}", unfit.help);
    let client = world.client("front");
    let call = world.call(client, Call::unary(ADD, item("ann", 1, b"")));
    world.run();
    assert_eq!(field(world.answer(call).trailers(), "x-n"), Some("1"));
}

/// Connections to servers that a new version no longer names would stay for ever.
#[test]
fn dropped_server_connections_close() {
    let mut net = Net::new();
    let mut world = World::new(1, net.plan(None, &[CART]))
        .server(CART, |_| Behaviour::default().after(ms(100)))
        .server(CART_2, |_| Behaviour::default());
    let client = world.client("front");
    let before = world.call(client, Call::unary(ADD, item("a", 1, b"")));
    let second = net.plan(None, &[CART_2]);
    world.at(ms(50), move |w| w.apply(second));
    let after = world.call(client, Call::unary(ADD, item("a", 1, b"")).at(ms(60)));
    world.run();
    assert_eq!((world.answer(before).code(), world.answer(after).code()), (Some(0), Some(0)));
    let servers: Vec<_> = world.received().iter().map(|r| r.server.clone()).collect();
    assert_eq!(servers, [CART, CART_2]);
    assert_eq!(world.engine().connections_open(), 2, "the client's, and one to the new server");
}

/// Adding a server to a cluster would cost the connections to all others.
#[test]
fn member_change_keeps_connections() {
    let mut net = Net::new();
    let mut world = World::new(1, net.plan(None, &[CART, CART_2]))
        .server(CART, |_| Behaviour::default())
        .server(CART_2, |_| Behaviour::default())
        .server(CART_3, |_| Behaviour::default());
    let client = world.client("front");
    let mut calls: Vec<_> =
        (0..40).map(|nth| world.call(client, Call::unary(ADD, item("a", 1, b"")).at(ms(nth)))).collect();
    let second = net.plan(None, &[CART_2, CART_3]);
    world.at(ms(50), move |w| w.apply(second));
    calls.extend((60..100).map(|nth| world.call(client, Call::unary(ADD, item("a", 1, b"")).at(ms(nth)))));
    world.run();
    assert!(calls.iter().all(|call| world.answer(*call).code() == Some(0)));
    let after: Vec<_> = world.received().iter().skip(40).map(|r| r.server.clone()).collect();
    assert!(!after.contains(&CART.to_owned()) && after.contains(&CART_3.to_owned()), "{after:?}");
    let stats = world.engine().stats();
    assert_eq!((stats.upstream.total, stats.upstream.open), (3, 2));
}

/// If it failed, a waiting call would be lost when its server is removed from the program.
#[test]
fn waiting_call_keeps_its_cluster() {
    let mut net = Net::new();
    let mut world =
        World::new(1, net.plan(None, &[CART])).server(CART, |_| Behaviour::default().after(ms(200)));
    let client = world.client("front");
    world.limit_streams(CART, 1);
    let calls: Vec<_> =
        (0..12).map(|nth| world.call(client, Call::unary(ADD, item("a", 1, b"")).at(ms(nth)))).collect();
    let second = net.plan(None, &[CART_2]);
    world.at(ms(50), move |w| w.apply(second));
    world.run();
    assert!(calls.iter().all(|call| world.answer(*call).code() == Some(0)));
    assert_eq!(world.received().len(), 12);
    assert_eq!(world.engine().connections_open(), 1, "the client's");
}

/// Clients of a listener that has another name would find no route.
#[test]
fn listener_rename_keeps_clients() {
    let mut net = Net::new();
    let mut world = World::new(1, net.plan(None, &[CART])).server(CART, |_| Behaviour::default());
    let client = world.client("front");
    let call =
        |world: &mut World, at: i64| world.call(client, Call::unary(ADD, item("a", 1, b"")).at(ms(at)));
    let (first, second) = (call(&mut world, 0), call(&mut world, 50));
    let mut renamed = net.plan(None, &[CART]);
    renamed.listeners[0].name = "door".to_owned();
    world.at(ms(20), move |w| {
        w.engine().rename_listeners(&[("front".to_owned(), "door".to_owned())]);
        w.apply(renamed);
    });
    let dropped = net.plan(None, &[CART]);
    world.at(ms(100), move |w| w.apply(dropped));
    world.run();
    assert_eq!([first, second].map(|call| world.answer(call).code()), [Some(0), Some(0)]);
    assert_eq!(world.engine().clients_open(), 0, "the client of the dropped listener was told to go");
}

/// Two listeners that take each other's names would end up with one name.
#[test]
fn listeners_swap_names() {
    let mut net = Net::new();
    // Only `front` has a route.
    let with_back = |net: &mut Net| {
        let mut plan = net.plan(None, &[CART]);
        plan.listeners
            .push(weft_engine::plan::Listener { name: "back".to_owned(), ..plan.listeners[0].clone() });
        plan
    };
    let (first, second) = (with_back(&mut net), with_back(&mut net));
    let mut world = World::new(1, first).server(CART, |_| Behaviour::default());
    let clients = [world.client("front"), world.client("back")];
    let calls =
        [0, 50].map(|at| clients.map(|c| world.call(c, Call::unary(ADD, item("a", 1, b"")).at(ms(at)))));
    world.at(ms(20), move |w| {
        let swapped = [("front", "back"), ("back", "front")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        w.engine().rename_listeners(&swapped);
        w.apply(second);
    });
    world.run();
    let codes = calls.map(|pair| pair.map(|call| world.answer(call).code()));
    assert_eq!(codes, [[Some(0), Some(12)], [Some(12), Some(0)]]);
}
