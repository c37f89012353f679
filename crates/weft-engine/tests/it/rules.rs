//! Tables of rules whose rows change while chains run.

use crate::packets::{FRAMES, Rig, START, element, engine, jit, pool, run_watched, udp};
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_core::rng::Rng;
use weft_core::{Interval, Time, Value};
use weft_engine::packet::PacketEngine;
use weft_engine::rules::{Change, ChangeErrorKind, Counts, TableName};
use weft_engine::state::StateStore;
use weft_ir::backend::Backend;
use weft_ir::interp::Interp;
use weft_ir::program::ChainProgram;
use weft_ir::text::parse_program;
use weft_ir::verify::verify_program;

const RULES: &str = "table \"fw\" \"rules\" as replicated max 50 evict reject\n key \"rank\" U32 = null\n \
    column \"low\" U8 = null\n column \"high\" U8 = null\n column \"net\" CIDR nullable = null\n \
    column \"allow\" BOOL = null\nmatch t1 by c0\n part U8 low c1 high c2\n part IPADDR within c3 wild c3\n\
    sink \"seen\"";

/// Rows by rank: least and greatest TTL, network, whether it may pass.
type Rules = BTreeMap<u32, (u8, u8, Option<[u8; 5]>, bool)>;

fn program(rows: &Rules) -> ChainProgram {
    program_that_ages(rows, "", "")
}

/// As [`program`], with a TTL option for the table, and an operation on each row that the code reads.
fn program_that_ages(rows: &Rules, ttl: &str, read: &str) -> ChainProgram {
    let rules = RULES.replace("evict reject", &format!("evict reject{ttl}"));
    let frames = FRAMES.replace("sink \"seen\"", &rules);
    let body = "block0:\n v0: int = input in2\n v1: bytes = input in3\n v2: row = match t1, m0, v0, v1\n \
        v3: bool = is_row v2\n branch v3, block1, block2\nblock1:\n{read} v4: bool = column t1, v2, c4\n \
        branch v4, block3, block2\nblock2:\n drop ; line 7\nblock3:\n forward";
    let text = format!("{frames}{}", element("fw", &body.replace("{read}", read)));
    let mut program = parse_program(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    verify_program(&program).unwrap_or_else(|errors| panic!("{errors:?}\n{text}"));
    program.tables[1].rows = rows.keys().map(|rank| row(rows, *rank)).collect();
    program
}

fn row(rules: &Rules, rank: u32) -> Vec<Value> {
    let (low, high, net, allow) = rules[&rank];
    let net = net.map_or(Value::Null, |net| Value::Bytes(net.to_vec()));
    let int = |n: u32| Value::Int(n.into());
    vec![int(rank), int(low.into()), int(high.into()), net, Value::Bool(allow)]
}

fn name() -> TableName {
    TableName { chain: "edge".into(), instance: "fw".into(), table: "rules".into() }
}

/// Which packets of all that rules tell apart pass.
fn passing(engine: &mut PacketEngine) -> Vec<bool> {
    let packets: Vec<Vec<u8>> =
        keys().map(|(ttl, net)| udp(ttl, [10, net, 0, 1], [1; 4], (1, 2), &[])).collect();
    let left = run_watched(engine, &mut pool(), &packets, 16, None);
    packets.iter().map(|packet| left.iter().any(|(_, _, bytes)| bytes == packet)).collect()
}

fn keys() -> impl Iterator<Item = (u8, u8)> {
    (1..7).flat_map(|ttl| (0..3).map(move |net| (ttl, net)))
}

fn expected(rules: &Rules) -> Vec<bool> {
    let allows = |(ttl, net): (u8, u8)| {
        let matching = |(low, high, of, _): &&(u8, u8, Option<[u8; 5]>, bool)| {
            (*low..=*high).contains(&ttl) && of.is_none_or(|of| of[4] == 8 || of[1] == net)
        };
        rules.values().find(matching).is_some_and(|(.., allow)| *allow)
    };
    keys().map(allows).collect()
}

/// A change, done to the rows and to those of a node.
fn change(
    store: &mut StateStore,
    engine: &mut PacketEngine,
    changes: Vec<Change>,
) -> Result<Counts, ChangeErrorKind> {
    let pending = store.change(&name(), changes, START).map_err(|error| error.why)?;
    engine.apply_swap(&pending.swap);
    let counts = pending.counts;
    store.settle(pending);
    Ok(counts)
}

fn random_rule(rng: &mut Rng) -> (u8, u8, Option<[u8; 5]>, bool) {
    let net = [None, Some([10, rng.below(3) as u8, 0, 0, 16]), Some([10, 0, 0, 0, 8])];
    let net = net[rng.below(3)];
    (rng.below(6) as u8, 1 + rng.below(6) as u8, net, rng.below(2) == 0)
}

/// A new rule that does not apply, or a removed one that does, is a hole in a firewall.
#[test]
fn row_changes_apply_at_once() {
    for backend in [&Interp as &dyn Backend, &jit()] {
        let (mut rng, mut rig) = (Rng::from_seed(5), Rig::new(1));
        let mut rules: Rules = (0..4).map(|n| (n * 10, random_rule(&mut rng))).collect();
        let text = program(&rules);
        let mut engine = engine(&rig.plan(backend, vec![(text.clone(), None)]));
        assert_eq!(passing(&mut engine), expected(&rules));
        let mut n_made = 0;
        for round in 0..60 {
            if round % 10 == 7 && rig.store.is_outdated() {
                let frames = engine.stats().chains[0].frames;
                let plan = rig.code_anew(backend, vec![(text.clone(), None)]);
                engine.apply_code(&plan);
                assert!(Arc::ptr_eq(engine.plan(), &plan) && !rig.store.is_outdated());
                assert_eq!(engine.stats().chains[0].frames, frames, "what was counted stays");
                assert_eq!(passing(&mut engine), expected(&rules), "{rules:?}");
                n_made += 1;
            }
            let mut changes = Vec::new();
            for _ in 0..rng.below(5) {
                let rank = 2 + rng.below(38) as u32;
                if rng.below(3) == 0 {
                    rules.remove(&rank);
                    changes.push(Change::Remove(vec![Value::Int(rank.into())]));
                } else {
                    rules.insert(rank, random_rule(&mut rng));
                    changes.push(Change::Put(row(&rules, rank)));
                }
            }
            if round == 30 {
                // No packet is in it, but keys have to be longer from now on: code makes them otherwise.
                let mut long = row(&[(0, (0, 9, None, true))].into(), 0);
                (long[0], long[3]) = (Value::Int(1), Value::Bytes(vec![0; 17]));
                rules.remove(&1);
                changes.push(Change::Put(long));
            }
            change(&mut rig.store, &mut engine, changes).expect("there is room");
            assert_eq!(passing(&mut engine), expected(&rules), "{rules:?}");
            // A matcher that is rebuilt at once is used at once.
            if round % 4 == 1 && !rig.store.stale().is_empty() {
                let snapshot = rig.store.snapshot(&name(), 0).expect("it is there");
                let pending = rig.store.adopt(&name(), 0, snapshot.rebuild()).expect("nothing has changed");
                engine.apply_swap(&pending.swap);
                rig.store.settle(pending);
                assert_eq!(passing(&mut engine), expected(&rules), "{rules:?}");
            }
            // A matcher that is rebuilt elsewhere is used one change later.
            if round % 7 == 3 && !rig.store.stale().is_empty() {
                let snapshot = rig.store.snapshot(&name(), 0).expect("it is there");
                let (rank, new) = (100 + round, random_rule(&mut rng));
                rules.insert(rank, new);
                let added = vec![Change::Insert(row(&rules, rank))];
                change(&mut rig.store, &mut engine, added).expect("there is room");
                rules.remove(&rank);
                change(&mut rig.store, &mut engine, vec![Change::Remove(vec![Value::Int(rank.into())])])
                    .expect("it is there");
                let pending = rig.store.adopt(&name(), 0, snapshot.rebuild()).expect("little has changed");
                engine.apply_swap(&pending.swap);
                rig.store.settle(pending);
                assert_eq!(passing(&mut engine), expected(&rules), "{rules:?}");
            }
        }
        assert!(n_made > 0, "keys have become longer, and code was not made anew for them");
    }
}

/// Half of a list of rules can be worse than none of it.
#[test]
fn partial_failure_changes_nothing() {
    let mut rig = Rig::new(1);
    let rules: Rules = [(1, (0, 9, None, true))].into();
    let mut engine = engine(&rig.plan(&Interp, vec![(program(&rules), None)]));
    let wanted = |rank, rule| row(&[(rank, rule)].into(), rank);
    let denies = (0, 9, None, false);
    let mut refused = |changes| change(&mut rig.store, &mut engine, changes).expect_err("one does not go");
    assert_eq!(
        refused(vec![Change::Put(wanted(0, denies)), Change::Insert(wanted(1, denies))]),
        ChangeErrorKind::Exists
    );
    let many = (10..60).map(|rank| Change::Insert(wanted(rank, denies)));
    assert_eq!(refused(many.collect()), ChangeErrorKind::Full { max: 50 });
    let mut long = wanted(0, denies);
    long[3] = Value::Bytes(vec![0; 18]);
    assert_eq!(refused(vec![Change::Put(long)]), ChangeErrorKind::Value { column: "net".into() });
    let mut null = wanted(0, denies);
    null[4] = Value::Null;
    assert_eq!(refused(vec![Change::Put(null)]), ChangeErrorKind::Value { column: "allow".into() });
    assert_eq!(passing(&mut engine), expected(&rules));
    let changes = vec![Change::Remove(vec![Value::Int(1)]), Change::Remove(vec![Value::Int(2)])];
    let counts = change(&mut rig.store, &mut engine, changes).expect("rows that are not there do no harm");
    assert_eq!(counts, Counts { deleted: 1, ..Counts::default() });
    assert_eq!(passing(&mut engine), expected(&Rules::new()));
}

/// If it failed, a program that is applied again would forget learned rows, or a changed text would not apply.
#[test]
fn update_keeps_controller_rows() {
    let mut rig = Rig::new(1);
    let allows = (0, 9, None, true);
    let mut rules: Rules = [(10, allows), (20, allows), (30, allows)].into();
    let mut engine = engine(&rig.plan(&Interp, vec![(program(&rules), None)]));
    let (denies, narrow) = ((1, 2, None, false), (3, 3, None, false));
    let changes = vec![
        Change::Insert(row(&[(5, denies)].into(), 5)),
        Change::Put(row(&[(20, narrow)].into(), 20)),
        Change::Remove(vec![Value::Int(30)]),
    ];
    change(&mut rig.store, &mut engine, changes).expect("they go");
    let rows = |store: &StateStore| -> Vec<i64> {
        let table = Arc::clone(&store.table(&name()).expect("it is there").tables[0]);
        let (mut ranks, mut cursor) = (Vec::new(), 0);
        while let Some((row, next)) = table.scan(cursor, Time(0)) {
            let Value::Int(rank) = table.values(row)[0] else { panic!("a rank is a number") };
            ranks.push(rank);
            cursor = next;
        }
        ranks.sort_unstable();
        ranks
    };
    // The same text: nothing changes.
    let plan = rig.plan(&Interp, vec![(program(&rules), None)]);
    engine.apply(START, plan, &mut pool());
    assert_eq!(rows(&rig.store), [5, 10, 20]);
    let now: Rules = [(5, denies), (10, allows), (20, narrow)].into();
    assert_eq!(passing(&mut engine), expected(&now));
    // And it can be changed as before.
    change(&mut rig.store, &mut engine, vec![Change::Put(row(&[(6, denies)].into(), 6))])
        .expect("there is room");
    assert_eq!(rows(&rig.store), [5, 6, 10, 20]);
    // Another text: 10 is gone, 30 is as it was and stays deleted, 40 is new.
    rules.remove(&10);
    rules.insert(40, denies);
    let plan = rig.plan(&Interp, vec![(program(&rules), None)]);
    engine.apply(START, plan, &mut pool());
    assert_eq!(rows(&rig.store), [5, 6, 20, 40]);
    let now: Rules = [(5, denies), (6, denies), (20, narrow), (40, denies)].into();
    assert_eq!(passing(&mut engine), expected(&now));
}

#[test]
fn possible_changes_apply_rest_count() {
    // If it failed, one row that does not fit would keep out all others, or be inserted and matched as another.
    let rows: Rules = (0..48).map(|rank| (rank, (1, 6, None, rank == 0))).collect();
    let jit = jit();
    let mut rig = Rig::new(1);
    let plan = rig.plan(&jit, vec![(program(&rows), None)]);
    let mut engine = engine(&plan);
    let store = &mut rig.store;
    let put = |rank: u32| Change::Put(row(&BTreeMap::from([(rank, (1, 6, None, false))]), rank));
    let gone = |rank: i64| Change::Remove(vec![Value::Int(rank)]);
    let same = Change::Put(row(&rows, 7));
    // A change without effect is none, and nothing is refused.
    let (pending, refused) = store.change_where_possible(&name(), vec![same.clone(), same.clone()], START);
    assert!(pending.is_none() && refused == 0);
    let odd = Change::Put(vec![Value::Int(90), Value::Int(1), Value::Null, Value::Null, Value::Bool(true)]);
    let short = Change::Put(vec![Value::Int(91)]);
    let changes = vec![put(60), odd, same, put(61), put(62), short, gone(3), gone(99), put(63), put(61)];
    let (pending, refused) = store.change_where_possible(&name(), changes, START);
    let pending = pending.expect("some go");
    // Of 50 rows 48 were there: 62 found no room, 63 that of 3.
    assert_eq!(refused, 3);
    assert_eq!(pending.counts, Counts { inserted: 3, updated: 1, deleted: 1 });
    engine.apply_swap(&pending.swap);
    store.settle(pending);
    let table = store.table(&name()).expect("it is there").tables[0].clone();
    let there = |rank| table.find_values(&[Value::Int(rank)], Time(0)).is_some();
    assert_eq!([60, 61, 62, 63, 90, 91, 3].map(there), [true, true, false, true, false, false, false]);
    let nowhere = TableName { table: "rulez".into(), ..name() };
    let (pending, refused) = store.change_where_possible(&nowhere, vec![put(1), gone(2)], START);
    assert!(pending.is_none() && refused == 2);
}

/// A rule that outlives its time passes what it must not; one that is removed too early cuts off its users.
#[test]
fn aged_rows_are_removed() {
    let seconds = |n: i64| START + Interval(n * 1_000_000_000);
    let rules: Rules = [(5, (1, 3, None, true)), (10, (4, 6, None, true))].into();
    for (backend, is_idle) in
        [&Interp as &dyn Backend, &jit()].into_iter().flat_map(|b| [(b, false), (b, true)])
    {
        let (ttl, read) = match is_idle {
            false => (" ttl 10000000000", ""),
            true => (" ttl 10000000000 on_access", " touch_read t1, v2\n"),
        };
        let mut rig = Rig::new(1);
        let of_text: Rules =
            rules.iter().filter(|(rank, _)| **rank == 10).map(|(r, rule)| (*r, *rule)).collect();
        let plan = rig.plan(backend, vec![(program_that_ages(&of_text, ttl, read), None)]);
        let (mut engine, mut pool, store) = (engine(&plan), pool(), &mut rig.store);
        let mut pass = |engine: &mut PacketEngine, at: Time, ttl: u8| {
            let mut frames =
                vec![pool.take_filled(&udp(ttl, [10, 0, 0, 1], [1; 4], (1, 2), &[])).expect("room")];
            engine.handle_batch(at, 0, &mut frames, &mut pool, None);
            let passes = engine.poll_output(&mut frames).is_some();
            frames.drain(..).for_each(|frame| pool.give(frame));
            passes
        };
        let give = |store: &mut StateStore, engine: &mut PacketEngine, at: Time| {
            let (pending, refused) =
                store.change_where_possible(&name(), vec![Change::Put(row(&rules, 5))], at);
            assert_eq!(refused, 0);
            let is_new = pending.is_some();
            pending.into_iter().for_each(|pending| {
                engine.apply_swap(&pending.swap);
                store.settle(pending);
            });
            is_new
        };
        let gone = |store: &mut StateStore, engine: &mut PacketEngine, at: Time| -> Vec<i64> {
            engine.handle_timeout(at, &mut crate::packets::pool(), None);
            let mut ranks = Vec::new();
            for (name, changes) in store.expired(at) {
                ranks.extend(changes.iter().map(|change| match change {
                    Change::Remove(key) => key[0].word() as i64,
                    other => panic!("{other:?}"),
                }));
                let pending = store.change(&name, changes, at).expect("they are there");
                engine.apply_swap(&pending.swap);
                store.settle(pending);
            }
            ranks
        };
        // The age of a row of the text starts at the first check, whatever the clock shows.
        assert!(pass(&mut engine, seconds(-1), 5));
        assert_eq!(gone(store, &mut engine, seconds(0)), [0; 0]);
        assert!(give(store, &mut engine, seconds(4)));
        assert!(pass(&mut engine, seconds(5), 2) && pass(&mut engine, seconds(9), 5));
        assert_eq!(gone(store, &mut engine, seconds(9)), [0; 0]);
        assert_eq!(gone(store, &mut engine, seconds(10)), if is_idle { vec![] } else { vec![10] });
        assert_eq!(pass(&mut engine, seconds(10), 5), is_idle);
        // A row given again gets the age of a new one, without a swap.
        assert!(!give(store, &mut engine, seconds(13)));
        assert_eq!(gone(store, &mut engine, seconds(19)), [0; 0]);
        assert!(pass(&mut engine, seconds(19), 2));
        assert_eq!(gone(store, &mut engine, seconds(20)), if is_idle { vec![10] } else { vec![] });
        // The copy that workers get next knows the uses of the current one.
        let used = |store: &StateStore| {
            let now = &store.table(&name()).expect("it is there").tables[0];
            now.age(now.find_int(5, Time(0))).used
        };
        assert_eq!(used(store), seconds(if is_idle { 19 } else { 13 }));
        // The other copy continues as if it had been the only one.
        assert!(pass(&mut engine, seconds(21), 2) && !pass(&mut engine, seconds(21), 5));
        assert_eq!(gone(store, &mut engine, seconds(23)), if is_idle { vec![] } else { vec![5] });
        assert_eq!(gone(store, &mut engine, seconds(31)), if is_idle { vec![5] } else { vec![] });
        assert!(!pass(&mut engine, seconds(31), 2));
        let view = store.table(&name()).expect("it is there");
        assert_eq!((view.expired, view.tables[0].len()), (2, 0));
    }
}

/// An update of the program makes no row younger.
#[test]
fn row_age_survives_update() {
    let rules: Rules = [(5, (1, 3, None, true)), (10, (4, 6, None, true))].into();
    let mut rig = Rig::new(1);
    let ttl = " ttl 10000000000";
    let before: Rules = [(10, rules[&10])].into();
    let plan = rig.plan(&Interp, vec![(program_that_ages(&before, ttl, ""), None)]);
    let mut engine = engine(&plan);
    assert!(rig.store.expired(START).is_empty());
    let plan = rig.plan(&Interp, vec![(program_that_ages(&rules, ttl, ""), None)]);
    engine.apply(START, plan, &mut pool());
    let at = |seconds: i64| START + Interval(seconds * 1_000_000_000);
    assert!(rig.store.expired(at(9)).is_empty(), "and the age of the new one begins");
    assert_eq!(rig.store.expired(at(10)), [(name(), vec![Change::Remove(vec![Value::Int(10)])])]);
}

// If it failed, a rule in constant use would never expire, or one that is given again would start anew.
#[test]
fn hard_timeout_removes_used_rule() {
    let rules: Rules = [(5, (1, 9, None, true)), (10, (1, 9, None, true))].into();
    let of_text: Rules = [(10, (1, 9, None, true))].into();
    let mut rig = Rig::new(1);
    let at = |seconds: i64| START + Interval(seconds * 1_000_000_000);
    let plan = rig.plan(&Interp, vec![(program_that_ages(&of_text, " ttl_on_insert 20000000000", ""), None)]);
    let mut engine = engine(&plan);
    let mut give = |store: &mut StateStore, seconds: i64| {
        let (pending, _) =
            store.change_where_possible(&name(), vec![Change::Put(row(&rules, 5))], at(seconds));
        pending.into_iter().for_each(|pending| {
            engine.apply_swap(&pending.swap);
            store.settle(pending);
        });
    };
    let gone = |store: &mut StateStore, seconds: i64| -> Vec<Vec<Change>> {
        store.expired(at(seconds)).into_iter().map(|(_, changes)| changes).collect()
    };
    let remove = |rank: i64| Change::Remove(vec![Value::Int(rank)]);
    assert!(gone(&mut rig.store, 0).is_empty(), "the age of the row of the text begins");
    give(&mut rig.store, 4);
    give(&mut rig.store, 15);
    assert!(gone(&mut rig.store, 19).is_empty());
    assert_eq!(gone(&mut rig.store, 20), [vec![remove(10)]]);
    assert_eq!(gone(&mut rig.store, 24), [vec![remove(10), remove(5)]]);
}

// If it failed, an update that adds an idle timeout would remove rules in use, since their use was not tracked before.
#[test]
fn new_timeout_starts_at_update() {
    let rules: Rules = [(10, (1, 9, None, true))].into();
    let at = |seconds: i64| START + Interval(seconds * 1_000_000_000);
    let remove = vec![Change::Remove(vec![Value::Int(10)])];
    for before in ["", " ttl 3600000000000", " ttl_on_insert 3600000000000"] {
        let mut rig = Rig::new(1);
        rig.plan(&Interp, vec![(program_that_ages(&rules, before, ""), None)]);
        assert!(rig.store.expired(at(0)).is_empty());
        rig.plan(&Interp, vec![(program_that_ages(&rules, " ttl 3000000000 on_access", ""), None)]);
        assert!(rig.store.expired(at(50)).is_empty(), "its age begins{before}");
        assert!(rig.store.expired(at(52)).is_empty());
        assert_eq!(rig.store.expired(at(53)), [(name(), remove.clone())]);
    }
}

// If it failed, a rule in use would be removed by the next update, since only the other copy has its last use.
#[test]
fn update_merges_both_copies_ages() {
    let of_text: Rules = [(10, (1, 9, None, true))].into();
    let rules: Rules = [(5, (1, 1, None, true)), (10, (1, 9, None, true))].into();
    let at = |seconds: i64| START + Interval(seconds * 1_000_000_000);
    let (ttl, read) = (" ttl 10000000000 on_access", " touch_read t1, v2\n");
    let mut rig = Rig::new(1);
    let plan = rig.plan(&Interp, vec![(program_that_ages(&of_text, ttl, read), None)]);
    let (mut engine, mut pool) = (engine(&plan), pool());
    assert!(rig.store.expired(at(0)).is_empty());
    let change = |store: &mut StateStore, engine: &mut PacketEngine, change: Change, now: Time| {
        let pending = store.change(&name(), vec![change], now).expect("it goes");
        engine.apply_swap(&pending.swap);
        store.settle(pending);
    };
    change(&mut rig.store, &mut engine, Change::Put(row(&rules, 5)), at(1));
    let mut frames = vec![pool.take_filled(&udp(5, [10, 0, 0, 1], [1; 4], (1, 2), &[])).expect("room")];
    engine.handle_batch(at(8), 0, &mut frames, &mut pool, None);
    while engine.poll_output(&mut frames).is_some() {
        frames.drain(..).for_each(|frame| pool.give(frame));
    }
    change(&mut rig.store, &mut engine, Change::Remove(vec![Value::Int(5)]), at(9));
    let more: Rules = [(10, (1, 9, None, true)), (11, (1, 9, None, true))].into();
    let plan = rig.plan(&Interp, vec![(program_that_ages(&more, ttl, read), None)]);
    engine.apply(at(12), plan, &mut pool);
    assert!(rig.store.expired(at(12)).is_empty(), "it was read four seconds ago");
    let gone = rig.store.expired(at(18));
    assert!(gone[0].1.contains(&Change::Remove(vec![Value::Int(10)])), "{gone:?}");
}
