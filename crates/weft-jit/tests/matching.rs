//! Inline matches find the first row, for all kinds of rules.

use std::sync::Arc;
use weft_core::abi::{Counters, Cx, Outcome, Parts, REGIONS, Slot, State};
use weft_core::hash::HashKey;
use weft_core::hash::draw;
use weft_core::matching::Matcher;
use weft_core::matching::jit_layout::LookupMethod;
use weft_core::prefetch::PrefetchSlots;
use weft_core::table::{Insert, Table};
use weft_core::{Time, Value};
use weft_ir::backend::{Backend as _, Program};
use weft_ir::program::{ChainProgram, Event};
use weft_ir::text::parse_program;
use weft_jit::Jit;

/// A rule: from, to; ranks are unique.
type Rule = (u64, u64);

fn chain(bits: u8) -> Arc<ChainProgram> {
    let text = format!(
        "chain \"rules\"
request
  input \"x\" U{bits} nullable frame 0 p0 f0
  input \"found\" U64 frame 0 p0 f1 written
response
table \"t\" \"e\" as replicated max 100000 evict reject
  key \"rank\" U64 = null
  column \"low\" U{bits} = 0
  column \"high\" U{bits} = 0
match t0 by c0
  part U{bits} nullable low c1 high c2
frames
store in1 bits 8 0 64 big
parser function \"parse\" {{
block0:
    forward
}}
element \"e\" \"e\"
handler request function \"e.request\" {{
block0:
    v0: int = input in0
    v1: bool = input_present in0
    v2: bool = not v1
    v3: row = match t0, m0, v0 null v2
    v4: bool = is_row v3
    branch v4, block1, block2
block1:
    v5: int = column t0, v3, c0
    set_input in1, v5
    forward
block2:
    forward
}}
"
    );
    Arc::new(parse_program(&text).unwrap_or_else(|error| panic!("{error}\n{text}")))
}

/// A chain whose rules have two fields, of 32 and of 16 bits.
fn chain_of_two() -> Arc<ChainProgram> {
    let text = "chain \"rules\"
request
  input \"x\" U32 nullable frame 0 p0 f0
  input \"y\" U16 frame 0 p0 f1
  input \"found\" U64 frame 0 p0 f2 written
response
table \"t\" \"e\" as replicated max 100000 evict reject
  key \"rank\" U64 = null
  column \"low\" U32 = 0
  column \"high\" U32 = 0
  column \"from\" U16 = 0
  column \"to\" U16 = 0
match t0 by c0
  part U32 nullable low c1 high c2
  part U16 low c3 high c4
frames
store in2 bits 8 0 64 big
parser function \"parse\" {
block0:
    forward
}
element \"e\" \"e\"
handler request function \"e.request\" {
block0:
    v0: int = input in0
    v1: bool = input_present in0
    v2: bool = not v1
    v3: int = input in1
    v4: row = match t0, m0, v0 null v2, v3
    v5: bool = is_row v4
    branch v5, block1, block2
block1:
    v6: int = column t0, v4, c0
    set_input in2, v6
    forward
block2:
    forward
}
";
    Arc::new(parse_program(text).unwrap_or_else(|error| panic!("{error}\n{text}")))
}

/// A state with these rules; the first has the least rank.
fn state(chain: &ChainProgram, rules: &[Rule]) -> State {
    let table = Arc::new(Table::new(chain.tables[0].spec.clone(), HashKey::from_seed(1)));
    for (rank, (low, high)) in (0..).zip(rules) {
        let values = [Value::Int(rank), Value::Int(*low as i64), Value::Int(*high as i64)];
        assert!(matches!(table.insert_row(&values, Time(1)), Insert::New(_)));
    }
    let matcher = Matcher::new(&chain.matches[0].spec, &table).expect("the matcher supports this many rules");
    State::from(Parts { tables: vec![table], matchers: vec![Arc::new(matcher)], ..Parts::default() })
}

fn compiled(chain: &Arc<ChainProgram>, state: &State) -> Box<dyn Program> {
    let jit = Jit::new().expect("this machine is one that code is generated for").prefetching_always();
    jit.compile(chain, Event::Request, state).expect("the chain compiles")
}

/// The rank that compiled code finds for each key.
fn found(chain: &Arc<ChainProgram>, state: &State, keys: &[Option<u64>]) -> Vec<Option<u64>> {
    found_by(&*compiled(chain, state), state, keys)
}

fn found_by(code: &dyn Program, state: &State, keys: &[Option<u64>]) -> Vec<Option<u64>> {
    found_with(code, state, keys, (&PrefetchSlots::default(), 0))
}

/// As [`found_by`], but each key's pass gets the prefetch slots of another, this many keys later.
fn found_with(
    code: &dyn Program,
    state: &State,
    keys: &[Option<u64>],
    (notes, later): (&PrefetchSlots, usize),
) -> Vec<Option<u64>> {
    let (mut out, mut counters) = (Outcome::default(), vec![Counters::default(); 2]);
    let find = |(nth, key): (usize, &Option<u64>)| {
        let slots = slots(*key);
        let mut cx = Cx {
            slots: &slots,
            present: (u8::from(key.is_none())..2).collect(),
            regions: [&[0; 8]; REGIONS],
            prefetched: notes.tuple(nth + later),
            ..Cx::new(Time(1), state, &mut [], &mut out, &mut counters)
        };
        // The field is at the start of the frame, and no rank is so high.
        let mut frame = [0xff; 8];
        code.run_on(&mut cx, &mut frame);
        assert!(out.edits.is_empty());
        out.clear();
        let rank = u64::from_be_bytes(frame);
        (rank != u64::MAX).then_some(rank)
    };
    keys.iter().enumerate().map(find).collect()
}

/// The prefetch slots of these keys after the lookups.
fn noted(code: &dyn Program, state: &State, keys: &[Option<u64>]) -> PrefetchSlots {
    let (mut out, mut counters) = (Outcome::default(), vec![Counters::default(); 2]);
    let mut notes = PrefetchSlots::default();
    code.start_prefetch(state, keys.len(), &mut notes);
    for (nth, key) in keys.iter().enumerate() {
        let slots = slots(*key);
        let mut cx = Cx {
            slots: &slots,
            present: (u8::from(key.is_none())..2).collect(),
            regions: [&[0; 8]; REGIONS],
            ..Cx::new(Time(1), state, &mut [], &mut out, &mut counters)
        };
        code.prefetch_keys(&mut cx, nth, &mut notes);
    }
    code.prefetch_rows(state, &mut notes);
    notes
}

fn slots(key: Option<u64>) -> [Slot; 2] {
    [Slot { a: key.unwrap_or(0), b: 0 }, Slot::default()]
}

fn by_hand(rules: &[Rule], key: Option<u64>) -> Option<u64> {
    let holds = |(low, high): &Rule| key.is_some_and(|key| *low <= key && key <= *high);
    rules.iter().position(holds).map(|rank| rank as u64)
}

/// Rules of all widths, many of them close together; `dense` of them are adjacent.
fn rules(bits: u8, n: u64, dense: u64) -> Vec<Rule> {
    let most = u64::MAX >> (64 - bits);
    let near = |n: u64| draw(7, n) & most & !0xff;
    let close = (0..dense).map(|at| (near(0) + at * 3, near(0) + at * 3 + 1));
    let wide = (0..n).map(|at| {
        let low = if draw(1, at).is_multiple_of(3) {
            near(draw(2, at) % 16) | draw(3, at) & 0xff
        } else {
            draw(4, at) & most
        };
        (low, low.saturating_add(draw(5, at) >> (draw(6, at) % 64)).min(most))
    });
    close.chain(wide).collect()
}

#[test]
fn inlined_trie_finds_first_row() {
    // Packets would take the route of another network.
    for (bits, n, dense) in
        [(8, 3, 0), (64, 40, 25), (32, 5, 0), (32, 5, 25), (32, 300, 12), (32, 3000, 31), (32, 3000, 400)]
    {
        let (chain, rules) = (chain(bits), rules(bits, n, dense));
        let state = state(&chain, &rules);
        let most = u64::MAX >> (64 - bits);
        let ends =
            rules.iter().flat_map(|(low, high)| [low.wrapping_sub(1), *low, *high, high.wrapping_add(1)]);
        let others = (0..500).map(|at| draw(9, at));
        let keys: Vec<Option<u64>> =
            ends.take(3000).chain(others).map(|key| Some(key & most)).chain([None]).collect();
        let hand: Vec<_> = keys.iter().map(|key| by_hand(&rules, *key)).collect();
        let way = state.matchers[0].lookup_method();
        assert!(bits != 32 || matches!(way, Some(LookupMethod::Trie(_))), "{bits} bits, {n} rules: {way:?}");
        assert_eq!(found(&chain, &state, &keys), hand, "{bits} bits, {n} and {dense} rules");
        let code = compiled(&chain, &state);
        let notes = noted(&*code, &state, &keys);
        assert_eq!(found_with(&*code, &state, &keys, (&notes, 0)), hand, "{bits} bits, {n} rules, ahead");
        assert!(hand.iter().any(Option::is_some));
    }
}

#[test]
fn prefetched_row_needs_key_and_state() {
    // A packet would take the route of another one of its batch, or one that was removed with the previous batch.
    let (chain, rules) = (chain(32), rules(32, 3000, 12));
    let mut changes = state(&chain, &rules);
    let code = compiled(&chain, &changes);
    let keys: Vec<Option<u64>> = rules.iter().map(|(low, _)| Some(*low)).collect();
    let by = |rules: &[Rule]| keys.iter().map(|key| by_hand(rules, *key)).collect::<Vec<_>>();
    let notes = noted(&*code, &changes, &keys);
    for later in [0, 1, 17] {
        assert_eq!(found_with(&*code, &changes, &keys, (&notes, later)), by(&rules));
    }
    let others: Vec<Rule> = rules.iter().rev().copied().collect();
    let parts = state(&chain, &others);
    (changes.tables, changes.matchers) = (parts.tables.clone(), parts.matchers.clone());
    assert_ne!(by(&rules), by(&others));
    assert_eq!(found_with(&*code, &changes, &keys, (&notes, 0)), by(&others));
}

#[test]
fn cloned_matcher_is_looked_up_itself() {
    // Code would read its rows from those of another matcher, or from nowhere.
    let (chain, rules) = (chain(32), rules(32, 300, 12));
    let state = state(&chain, &rules);
    let clone = Matcher::clone(&state.matchers[0]);
    assert!(state.matchers[0].lookup_method().is_some() && clone.lookup_method().is_none());
    let parts = Parts { tables: state.tables.clone(), matchers: vec![Arc::new(clone)], ..Parts::default() };
    let keys: Vec<Option<u64>> = rules.iter().map(|(low, _)| Some(*low)).collect();
    assert_eq!(found(&chain, &parts.into(), &keys), found(&chain, &state, &keys));
}

#[test]
fn trie_floor_finds_short_prefixes() {
    // Packets would take the route of a longer prefix, or none, where only a short one matches.
    let prefix = |seed: u64, at: usize| {
        let free = u64::from(u32::MAX).checked_shr(32 - (at * 33 / 1000) as u32).unwrap_or(0);
        let value = draw(seed, at as u64) >> 32;
        (value & !free, value | free)
    };
    // The longest come first.
    let (chain, mut rules) = (chain(32), (0..1000).map(|at| prefix(21, at)).collect::<Vec<_>>());
    let first = state(&chain, &rules);
    let code = compiled(&chain, &first);
    let short_prefix_bits = |way: Option<LookupMethod>| match way {
        Some(LookupMethod::Trie(whole)) => whole.short_prefix_bits,
        other => panic!("{other:?}"),
    };
    assert!(short_prefix_bits(first.matchers[0].lookup_method()) > 0, "{}", first.matchers[0].describe());
    let keys = |rules: &[(u64, u64)]| -> Vec<Option<u64>> {
        let drawn = (0..500).map(|at| draw(22, at) >> 32);
        rules.iter().flat_map(|(low, high)| [*low, *high]).chain(drawn).map(Some).collect()
    };
    let by = |rules: &[(u64, u64)]| keys(rules).iter().map(|key| by_hand(rules, *key)).collect::<Vec<_>>();
    assert_eq!(found_by(&*code, &first, &keys(&rules)), by(&rules));
    let table = Arc::clone(&first.tables[0]);
    let mut matcher =
        Matcher::changeable(&chain.matches[0].spec, &table).expect("the matcher supports this many rules");
    for at in (0..rules.len()).rev().step_by(3) {
        let rank = Value::Int(at as i64);
        let row = table.find_values(std::slice::from_ref(&rank), Time(1));
        matcher.remove(&[row]);
        table.remove(row);
        rules[at] = prefix(23, at);
        let values = [rank, Value::Int(rules[at].0 as i64), Value::Int(rules[at].1 as i64)];
        let Insert::New(row) = table.insert_row(&values, Time(1)) else { panic!("the table has room") };
        matcher.insert(&[row]).expect("the value fits in the key");
    }
    matcher.publish();
    assert_eq!(matcher.changed(), 0, "{}", matcher.describe());
    assert!(short_prefix_bits(matcher.lookup_method()) > 0);
    let state =
        State::from(Parts { tables: vec![table], matchers: vec![Arc::new(matcher)], ..Parts::default() });
    assert_eq!(found_by(&*code, &state, &keys(&rules)), by(&rules));
}

#[test]
fn compiled_code_finds_later_rows() {
    // Packets would take removed routes, or be as slow as without inline matching.
    let (chain, mut rules) = (chain(32), rules(32, 3000, 12));
    rules.retain(|(low, high)| high - low < 1 << 20);
    let first = state(&chain, &rules);
    let code = compiled(&chain, &first);
    let table = Arc::clone(&first.tables[0]);
    let mut matcher =
        Matcher::changeable(&chain.matches[0].spec, &table).expect("the matcher supports this many rules");
    for at in (0..rules.len()).filter(|at| at % 3 > 0) {
        let rank = Value::Int(at as i64);
        let new = (draw(11, at as u64) >> 32, draw(11, at as u64) >> 32 | 0xff);
        let row = table.find_values(std::slice::from_ref(&rank), Time(1));
        matcher.remove(&[row]);
        table.remove(row);
        rules[at] = (1, 0);
        if at % 3 == 1 {
            let values = [rank, Value::Int(new.0 as i64), Value::Int(new.1 as i64)];
            let Insert::New(row) = table.insert_row(&values, Time(1)) else { panic!("the table has room") };
            matcher.insert(&[row]).expect("the value fits in the key");
            rules[at] = new;
        }
    }
    assert!(matcher.lookup_method().is_none(), "until the changes are complete");
    matcher.publish();
    assert!(
        matches!(matcher.lookup_method(), Some(LookupMethod::Trie(_))) && matcher.changed() == 0,
        "{}",
        matcher.describe()
    );
    let state =
        State::from(Parts { tables: vec![table], matchers: vec![Arc::new(matcher)], ..Parts::default() });
    let keys: Vec<Option<u64>> = rules.iter().flat_map(|(low, high)| [Some(*low), Some(*high)]).collect();
    let hand: Vec<_> = keys.iter().map(|key| by_hand(&rules, *key)).collect();
    assert_eq!(found_by(&*code, &state, &keys), hand);
}

#[test]
fn few_rows_are_compared_in_order() {
    // A packet would pass by a rule that does not match it, or by a worse one.
    type Both = (Rule, Rule);
    let chain = chain_of_two();
    let block = |bits: u8, seed: u64| {
        let (value, free) = (draw(31, seed) & 0xffff, (1 << (draw(32, seed) % (u64::from(bits) + 1))) - 1);
        (value & !free, value & !free | free)
    };
    let state = |rules: &[Both]| {
        let table = Arc::new(Table::new(chain.tables[0].spec.clone(), HashKey::from_seed(1)));
        for (rank, ((low, high), (from, to))) in (0..).zip(rules) {
            let values = [rank, *low as i64, *high as i64, *from as i64, *to as i64].map(Value::Int);
            assert!(matches!(table.insert_row(&values, Time(1)), Insert::New(_)));
        }
        let matcher =
            Matcher::new(&chain.matches[0].spec, &table).expect("the matcher supports this many rules");
        State::from(Parts { tables: vec![table], matchers: vec![Arc::new(matcher)], ..Parts::default() })
    };
    let by_hand = |rules: &[Both], (x, y): (Option<u64>, u64)| {
        let holds = |(a, b): &Both| x.is_some_and(|x| (a.0..=a.1).contains(&x)) && (b.0..=b.1).contains(&y);
        rules.iter().position(holds).map(|rank| rank as u64)
    };
    let find = |code: &dyn Program, state: &State, (x, y): (Option<u64>, u64)| {
        let (mut out, mut counters) = (Outcome::default(), vec![Counters::default(); 2]);
        let slots = [Slot { a: x.unwrap_or(0), b: 0 }, Slot { a: y, b: 0 }, Slot::default()];
        let mut cx = Cx {
            slots: &slots,
            present: (u8::from(x.is_none())..3).collect(),
            ..Cx::new(Time(1), state, &mut [], &mut out, &mut counters)
        };
        let mut frame = [0xff; 8];
        code.run_on(&mut cx, &mut frame);
        let rank = u64::from_be_bytes(frame);
        (rank != u64::MAX).then_some(rank)
    };
    let mut layouts = Vec::new();
    for seed in 0..60 {
        let n = seed as usize % 6;
        let rule = |nth| (block(32, 10 * seed + nth), block(16, 1000 * seed + nth));
        let mut rules: Vec<Both> = (0..n as u64).map(rule).collect();
        if seed % 4 == 3 && n > 0 {
            // Not a prefix: it begins at an odd place.
            rules[n - 1].1 = (3, 77);
        }
        let state = state(&rules);
        let way = state.matchers[0].lookup_method();
        if let Some(LookupMethod::Linear(few)) = way {
            assert!(few.rows >= n && n <= 4);
            layouts.push((n, few.rows, state.matchers[0].lookup_hash()));
        }
        let code = compiled(&chain, &state);
        let ends = rules.iter().flat_map(|(a, b)| [(a.0, b.0), (a.1, b.1), (a.1 + 1, b.0), (a.0, b.1 + 1)]);
        let drawn = (0..100).map(|at| (draw(33, at) & 0xffff, draw(34, at) & 0xffff));
        let keys = ends.chain(drawn).map(|(x, y)| (Some(x & 0xffff_ffff), y & 0xffff));
        for key in keys.chain([(None, 0), (None, 77)]) {
            assert_eq!(find(&*code, &state, key), by_hand(&rules, key), "{rules:?}: {key:?}, {way:?}");
        }
    }
    // The code stays valid when the fourth rule is added.
    let of = |n: usize| layouts.iter().filter(move |layout| layout.0 == n);
    assert!(of(2).all(|layout| layout.1 == 2) && of(2).next().is_some(), "{layouts:?}");
    assert!(of(3).any(|three| of(4).any(|four| three.1 == four.1 && three.2 == four.2)), "{layouts:?}");
}
