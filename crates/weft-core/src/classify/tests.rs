use super::generate::{Family, exact, five_tuple, flows, network, networks, prefixes, rules, within};
use super::*;
use crate::hash::HashKey;
use crate::rng::Rng;

/// The best rule by the words of the documentation: without boxes and ranks.
fn oracle(fields: &[FieldSpec], rules: &[Rule], values: &[u128]) -> Option<u32> {
    let admits = |pattern: &Pattern, bits: u8, value: u128| {
        let all = u128::MAX >> (128 - bits);
        match *pattern {
            Pattern::Any => true,
            Pattern::Exact(exact) => exact == value,
            Pattern::Prefix { value: prefix, len } => (0..len).all(|bit| {
                let at = bits - 1 - bit;
                prefix >> at & 1 == value >> at & 1
            }),
            Pattern::Mask { value: wanted, mask } => value & mask & all == wanted & mask,
            Pattern::Range { lo, hi } => (lo..=hi).contains(&value),
        }
    };
    let matches = |rule: &&Rule| {
        rule.patterns
            .iter()
            .zip(fields)
            .zip(values)
            .all(|((pattern, field), &value)| admits(pattern, field.bits, value))
    };
    let better = |a: &&Rule, b: &&Rule| a.priority.cmp(&b.priority).then(b.id.cmp(&a.id));
    rules.iter().filter(matches).max_by(better).map(|rule| rule.id)
}

fn table(fields: &[FieldSpec], rules: &[Rule]) -> Classifier {
    let mut table = Classifier::new(fields, HashKey::from_seed(1)).unwrap();
    for rule in rules {
        table.insert(rule).unwrap();
    }
    table
}

fn rebuilt(fields: &[FieldSpec], rules: &[Rule]) -> Classifier {
    let mut table = table(fields, rules);
    table.adopt(table.rebuild()).unwrap();
    table
}

fn kind(fields: &[FieldSpec], rules: &[Rule]) -> Kind {
    rebuilt(fields, rules).describe().kind
}

/// The kinds of patterns in a random set.
#[derive(Clone, Copy, Debug)]
struct Mix {
    any: usize,
    exact: usize,
    prefix: usize,
    mask: usize,
    range: usize,
}

const MIXES: [Mix; 6] = [
    Mix { any: 2, exact: 2, prefix: 2, mask: 1, range: 2 },
    Mix { any: 3, exact: 5, prefix: 0, mask: 0, range: 0 },
    Mix { any: 1, exact: 0, prefix: 9, mask: 0, range: 0 },
    Mix { any: 1, exact: 1, prefix: 0, mask: 8, range: 0 },
    Mix { any: 1, exact: 1, prefix: 0, mask: 0, range: 8 },
    Mix { any: 0, exact: 1, prefix: 0, mask: 0, range: 0 },
];

fn random_fields(rng: &mut Rng) -> Vec<FieldSpec> {
    let shapes: [&[u8]; 9] = [
        &[32, 32, 16, 16, 8],
        &[32],
        &[128],
        &[64],
        &[3, 4],
        &[128, 128, 16, 16, 8],
        &[48, 12],
        &[64, 63, 1],
        &[16, 8, 100],
    ];
    let widths = rng.pick(&shapes);
    widths.iter().enumerate().map(|(at, &bits)| FieldSpec::new(format!("f{at}"), bits)).collect()
}

/// A value near few centres, so that patterns overlap and keys hit them.
fn clustered_value(bits: u8, rng: &mut Rng) -> u128 {
    let all = u128::MAX >> (128 - bits);
    let scaled = (rng.below(6) as u128) << (bits - bits.min(3));
    let more = [0, 1, 2, 7, all, 1 << (bits / 2), rng.bits().into()][rng.below(7)];
    scaled.wrapping_add(more) & all
}

fn random_pattern(mix: Mix, bits: u8, rng: &mut Rng) -> Pattern {
    let kinds = [mix.any, mix.exact, mix.prefix, mix.mask, mix.range];
    let mut at = rng.below(kinds.iter().sum());
    let kind = kinds.iter().position(|&weight| {
        let hit = at < weight;
        at = at.saturating_sub(weight);
        hit
    });
    let value = clustered_value(bits, rng);
    match kind.unwrap() {
        0 => Pattern::Any,
        1 => Pattern::Exact(value),
        2 => Pattern::Prefix { value, len: rng.below(usize::from(bits) + 1) as u8 },
        3 => Pattern::Mask { value, mask: clustered_value(bits, rng) | clustered_value(bits, rng) },
        _ => {
            let other = clustered_value(bits, rng);
            Pattern::Range { lo: value.min(other), hi: value.max(other) }
        }
    }
}

fn random_rule(fields: &[FieldSpec], mix: Mix, id: u32, rng: &mut Rng) -> Rule {
    let patterns = fields.iter().map(|field| random_pattern(mix, field.bits, rng)).collect();
    Rule { patterns, priority: rng.below(6) as u32, id }
}

/// Compares look-ups of keys near the rules, single and in batches, with the oracle.
fn agree(table: &Classifier, rules: &[Rule], n: usize, rng: &mut Rng) {
    let fields = table.layout().fields();
    let words = table.layout().words();
    let mut keys = vec![0; n * words];
    let mut expected = Vec::new();
    for key in keys.chunks_exact_mut(words) {
        let from = if rules.is_empty() { None } else { Some(rng.pick(rules)) };
        let values: Vec<u128> = fields
            .iter()
            .enumerate()
            .map(|(field, spec)| match &from {
                Some(rule) if rng.below(4) > 0 => within(rule.patterns[field], spec.bits, rng),
                _ => clustered_value(spec.bits, rng),
            })
            .collect();
        table.layout().pack(&values, key);
        expected.push(oracle(fields, rules, &values));
        let found = table.lookup(key);
        assert_eq!(found, *expected.last().unwrap(), "{values:x?} in {:?}", table.describe());
        assert_eq!(table.lookup_linear(key), found);
    }
    let mut found = vec![0; n];
    table.lookup_batch(&keys, &mut found);
    let found: Vec<Option<u32>> = found.into_iter().map(|id| (id != NOTHING).then_some(id)).collect();
    assert_eq!(found, expected, "a batch in {:?}", table.describe());
}

/// Some structure would return a rule that is not the best, at some time between changes and rebuilds.
#[test]
fn lookup_equals_linear_search() {
    let mut kinds = std::collections::BTreeSet::new();
    for seed in 0..60 {
        let mut rng = Rng::from_seed(seed);
        let fields = random_fields(&mut rng);
        let mix = rng.pick(&MIXES);
        let n = [0, 1, 3, 10, 40, 120][rng.below(6)];
        let mut rules: Vec<Rule> = (0..n).map(|id| random_rule(&fields, mix, id * 3, &mut rng)).collect();
        let mut table = table(&fields, &rules);
        agree(&table, &rules, 40, &mut rng);
        table.adopt(table.rebuild()).unwrap();
        kinds.insert(table.describe().kind.to_string());
        agree(&table, &rules, 100, &mut rng);
        let mut waiting = None;
        for _ in 0..4 {
            for _ in 0..rng.below(40) {
                change(&mut table, &mut rules, mix, &mut rng);
            }
            agree(&table, &rules, 30, &mut rng);
            match (waiting.take(), rng.below(3)) {
                (Some(built), _) => table.adopt(built).unwrap(),
                (None, 0) => waiting = Some(table.snapshot().rebuild()),
                (None, 1) => table.adopt(table.rebuild()).unwrap(),
                _ => (),
            }
            agree(&table, &rules, 30, &mut rng);
        }
    }
    assert_eq!(kinds.len(), 6, "some structures did not occur: {kinds:?}");
}

fn change(table: &mut Classifier, rules: &mut Vec<Rule>, mix: Mix, rng: &mut Rng) {
    let fields = table.layout().fields().to_vec();
    let at = if rules.is_empty() { None } else { Some(rng.below(rules.len())) };
    match (rng.below(4), at) {
        (0, Some(at)) => {
            assert!(table.remove(rules.swap_remove(at).id));
        }
        (1, Some(at)) => {
            rules[at] = random_rule(&fields, mix, rules[at].id, rng);
            table.replace(&rules[at]).unwrap();
        }
        (2, Some(at)) => {
            // Remove a rule and insert it again.
            assert!(table.remove(rules[at].id));
            table.insert(&rules[at]).unwrap();
        }
        _ => {
            let rule = random_rule(&fields, mix, rng.below(2000) as u32, rng);
            let is_taken = rules.iter().any(|other| other.id == rule.id);
            assert_eq!(table.insert(&rule), if is_taken { Err(Error::DuplicateId) } else { Ok(()) });
            if !is_taken {
                rules.push(rule);
            }
        }
    }
}

/// Realistic firewall rule sets would get wrong rows, in one tree or in several.
#[test]
fn every_rule_family_matches_linear() {
    for family in Family::ALL {
        for n in [1, 20, 200, 600] {
            let rules = rules(family, n, 7);
            let table = rebuilt(&five_tuple(), &rules);
            let mut found = vec![0; 500];
            let keys = flows(table.layout(), &rules, 500, 9);
            table.lookup_batch(&keys, &mut found);
            for (key, found) in keys.chunks_exact(table.layout().words()).zip(found) {
                let expected = table.lookup_linear(key);
                assert_eq!(table.lookup(key), expected, "{} {n}", family.name());
                assert_eq!((found != NOTHING).then_some(found), expected, "{} {n}", family.name());
            }
        }
    }
}

/// A routing table would choose another prefix than the longest.
#[test]
fn longest_prefix_wins() {
    for bits in [32, 128] {
        let rules = prefixes(20_000, bits, 3);
        let table = rebuilt(&[FieldSpec::new("dst", bits)], &rules);
        assert_eq!(table.describe().kind, Kind::Trie);
        let keys = flows(table.layout(), &rules, 2000, 5);
        for key in keys.chunks_exact(table.layout().words()) {
            assert_eq!(table.lookup(key), table.lookup_linear(key));
        }
    }
}

/// Dual-stack networks would be mixed up, cost more than single-stack ones, or get lost in changes, even for a family
/// that was empty before.
#[test]
fn dual_stack_has_two_tries() {
    let fields = network();
    let mut rng = Rng::from_seed(4);
    let mut all = networks(6000, 1);
    let spare = networks(6000, 2);
    let mut table = rebuilt(&fields, &all);
    let Description { kind, parts, .. } = table.describe();
    assert_eq!((kind, parts), (Kind::Trie, 2));
    compare_with_linear(&table, &all, 1000, 3);
    for (round, new) in spare.chunks(500).enumerate() {
        for rule in new {
            let at = rng.below(all.len());
            let rule = Rule { id: all[at].id, ..rule.clone() };
            assert!(table.remove(rule.id));
            table.insert(&rule).unwrap();
            all[at] = rule;
        }
        assert!(table.changes() < 20, "{round}: {:?}", table.describe());
        compare_with_linear(&table, &all, 200, round as u64);
    }
    // Remove all networks of one family, and add them again.
    let is_short = |rule: &Rule| rule.patterns[1] == Pattern::Exact(1);
    let (short, long): (Vec<Rule>, Vec<Rule>) = all.into_iter().partition(is_short);
    for rule in &short {
        assert!(table.remove(rule.id));
    }
    compare_with_linear(&table, &short, 200, 5);
    let built = table.rebuild();
    table.adopt(built).unwrap();
    assert_eq!(table.describe().parts, 1);
    for rule in &short {
        table.insert(rule).unwrap();
    }
    compare_with_linear(&table, &short, 200, 6);
    compare_with_linear(&table, &long, 200, 7);
}

/// Changed routes would lead elsewhere, or cost more to find than in a fresh trie.
#[test]
fn trie_updates_match_linear() {
    for (bits, seed) in [(32, 1), (128, 2)] {
        let mut rng = Rng::from_seed(seed);
        let field = [FieldSpec::new("dst", bits)];
        let mut routes = prefixes(6000, bits, seed);
        let spare = routes.split_off(3000);
        let mut table = rebuilt(&field, &routes);
        for (round, new) in spare.chunks(300).enumerate() {
            for rule in new {
                // Reuse an id, and change the order of overlapping routes.
                let at = rng.below(routes.len());
                let rule = Rule { id: routes[at].id, priority: rng.below(40) as u32, ..rule.clone() };
                assert!(table.remove(rule.id));
                table.insert(&rule).unwrap();
                routes[at] = rule;
            }
            assert_eq!((table.changes(), table.wants_rebuild()), (0, false), "round {round}");
            assert!(table.trie().is_some());
            compare_with_linear(&table, &routes, 200, seed);
        }
        // A rule that covers very much stays pending, and must still be found when routes below it change.
        let all = Rule { patterns: vec![Pattern::Any], priority: 20, id: 20_000 };
        table.insert(&all).unwrap();
        routes.push(all);
        assert!((table.changes(), table.wants_rebuild()) == (1, true));
        for at in 0..300 {
            assert!(table.remove(routes[at * 7].id));
            compare_with_linear(&table, &routes, 2, at as u64);
        }
        table.adopt(table.rebuild()).unwrap();
        assert!(table.remove(20_000));
        compare_with_linear(&table, &routes, 500, seed);
        // A quarter of the rules needs another root.
        for rule in &routes[..2400] {
            table.remove(rule.id);
        }
        assert!(table.wants_rebuild());
        compare_with_linear(&table, &routes, 500, seed);
    }
}

/// A changed short prefix would be visible too late or too long, or hide longer ones forever; or it would stay pending,
/// so that compiled code leaves all look-ups to a helper until the next rebuild.
#[test]
fn trie_updates_short_prefixes() {
    for (bits, seed) in [(32, 1), (33, 2), (64, 3), (128, 4)] {
        let field = [FieldSpec::new("dst", bits)];
        let mut rng = Rng::from_seed(seed);
        let draw = |id: u32, rng: &mut Rng| {
            let len = if rng.below(2) == 0 { rng.below(10) } else { rng.below(usize::from(bits.min(64)) + 1) }
                as u8;
            let value = u128::from(rng.bits()) << 64 | u128::from(rng.bits());
            let patterns = vec![Pattern::Prefix { value: value >> (128 - bits), len }];
            // Labels are arbitrary, as long as longer prefixes have better ones.
            Rule { patterns, priority: u32::from(len) << 16 | rng.below(1 << 16) as u32, id }
        };
        let mut all: Vec<Rule> = (0..700).map(|id| draw(id, &mut rng)).collect();
        let mut table = rebuilt(&field, &all);
        assert_eq!(table.describe().kind, Kind::Trie, "{bits} bits");
        for round in 0..10 {
            for _ in 0..40 {
                let at = rng.below(all.len());
                all[at] = draw(all[at].id, &mut rng);
                assert!(table.remove(all[at].id));
                table.insert(&all[at]).unwrap();
            }
            assert_eq!((table.changes(), table.wants_rebuild()), (0, false), "{bits} bits, round {round}");
            assert!(table.trie().is_some_and(|trie| trie.short_prefixes().0 > 0));
            compare_with_linear(&table, &all, 100, round);
        }
        let (first, rest) = all.split_at(350);
        assert!(first.iter().all(|rule| table.remove(rule.id)) && table.changes() == 0);
        compare_with_linear(&table, rest, 300, 1);
    }
}

/// Networks in one cell of a wide root make it narrow. A wrong size of the read memory would enable prefetching in a
/// tiny table, or underflow.
#[test]
fn clustered_trie_has_narrow_root() {
    for bits in [32, 128] {
        let field = [FieldSpec::new("dst", bits)];
        let network =
            |id: u32| Pattern::Prefix { value: (0x0a00_0000 | u128::from(id) << 8) << (bits - 32), len: 24 };
        let rule = |id: u32| match id {
            0 => Rule { patterns: vec![Pattern::Any], priority: 0, id },
            _ => Rule { patterns: vec![network(id)], priority: 24, id },
        };
        let all: Vec<Rule> = (0..=200).map(rule).collect();
        let table = rebuilt(&field, &all);
        assert!(table.trie().is_some() || bits == 128, "{:?}", table.describe());
        let bytes = table.read_bytes();
        assert!((1..16 << 10).contains(&bytes), "{bytes}");
        compare_with_linear(&table, &all, 300, 1);
    }
}

/// Short prefixes may be better than rules in the trie. A change of either would return wrong rules, or lose some.
#[test]
fn trie_short_prefixes_hide_lower_ranks() {
    for (bits, seed) in [(32, 1), (24, 2), (48, 3), (32, 4), (128, 5), (32, 6)] {
        let field = [FieldSpec::new("dst", bits)];
        let n = [500, 1500][seed as usize % 2];
        let mut rng = Rng::from_seed(seed);
        let draw = |id: u32, rng: &mut Rng| {
            let value = (u128::from(rng.bits()) << 64 | u128::from(rng.bits())) >> (128 - bits);
            let width = 1 << rng.below(usize::from(bits.min(64)));
            let len =
                if rng.below(8) == 0 { rng.below(9) } else { 8 + rng.below(usize::from(bits) - 7) } as u8;
            let hi = value.saturating_add(u128::from(rng.bits()) % width).min(u128::MAX >> (128 - bits));
            let pattern = match rng.below(6) {
                // Its ends are inside cells, and it covers many cells between them.
                0 if bits <= 64 => Pattern::Range { lo: value, hi },
                _ => Pattern::Prefix { value, len },
            };
            Rule { patterns: vec![pattern], priority: 10 * u32::from(len) + rng.below(99) as u32, id }
        };
        let mut all: Vec<Rule> = (0..n).map(|id| draw(id, &mut rng)).collect();
        let mut table = rebuilt(&field, &all);
        let mut waiting = None;
        for round in 0..16 {
            for _ in 0..20 {
                let at = rng.below(all.len());
                all[at] = draw(all[at].id, &mut rng);
                assert!(table.remove(all[at].id));
                table.insert(&all[at]).unwrap();
            }
            if round % 5 == 3 {
                for rule in &mut all {
                    rule.priority = 2 * rule.priority + 1;
                    assert!(table.relabel(rule.id, rule.priority));
                }
            }
            compare_with_linear(&table, &all, 50, round);
            match (round % 4, waiting.take()) {
                (1, _) => waiting = Some(table.snapshot().rebuild()),
                (_, Some(built)) => table.adopt(built).unwrap(),
                _ => {}
            }
            compare_with_linear(&table, &all, 50, round + 100);
        }
    }
}

/// Rules that cross crowded cells, or cover them whole, would be found in some cells only.
#[test]
fn crowded_trie_takes_all_widths() {
    for (bits, seed) in (10..22_u64).map(|seed| ([32u8, 128, 48, 24][seed as usize % 4], seed)) {
        let field = [FieldSpec::new("dst", bits)];
        let mut rng = Rng::from_seed(seed);
        let draw = |id: u32, rng: &mut Rng| {
            // Nearly all in one sixteenth of all values, and clustered there.
            let value = 0x0a << (bits - 8) | u128::from(rng.bits()) >> 8 & ((1 << (bits - 8)) - 1);
            let value = if rng.below(3) > 0 { value & !(0xff << (bits - 17)) } else { value };
            let width = 1 << rng.below(usize::from(bits) - 2);
            let pattern = match rng.below(4) {
                0 if bits <= 64 => Pattern::Range { lo: value, hi: value + u128::from(rng.bits()) % width },
                _ => Pattern::Prefix { value, len: 10 + rng.below(usize::from(bits) - 9) as u8 },
            };
            Rule { patterns: vec![pattern], priority: rng.below(9) as u32, id }
        };
        let mut all: Vec<Rule> = (0..1500).map(|id| draw(id, &mut rng)).collect();
        all.push(Rule { patterns: vec![Pattern::Any], priority: 0, id: 5000 });
        let mut table = rebuilt(&field, &all);
        assert_eq!(table.describe().kind, Kind::Trie);
        let mut waiting = None;
        for round in 0..12 {
            for _ in 0..40 {
                let at = rng.below(all.len());
                let rule = draw(all[at].id, &mut rng);
                assert!(table.remove(rule.id));
                table.insert(&rule).unwrap();
                all[at] = rule;
            }
            compare_with_linear(&table, &all, 60, round);
            match (round % 4, waiting.take()) {
                (1, _) => waiting = Some(table.snapshot().rebuild()),
                (_, Some(built)) => table.adopt(built).unwrap(),
                _ => {}
            }
            compare_with_linear(&table, &all, 60, round + 100);
        }
    }
}

/// A trie would not reuse its freed memory, and grow with every change.
#[test]
fn trie_churn_does_not_grow_memory() {
    let field = [FieldSpec::new("dst", 32)];
    let mut routes = prefixes(2000, 32, 5);
    let spare = routes.split_off(1000);
    let mut table = rebuilt(&field, &routes);
    let bytes = |table: &Classifier| table.trie().expect("the table is a trie").bytes();
    let before = bytes(&table);
    for round in 0..100 {
        for (old, new) in routes.iter().zip(&spare) {
            let (gone, came) = if round % 2 == 0 { (old, new) } else { (new, old) };
            assert!(table.remove(gone.id));
            table.insert(came).unwrap();
        }
        assert_eq!(table.changes(), 0, "round {round}");
    }
    assert!(bytes(&table) < 2 * before, "{} of {before}", bytes(&table));
    compare_with_linear(&table, &routes, 500, 1);
    // Few rules have no root that takes changes; rules of one length would be a hash table.
    let mut lengths = std::collections::BTreeSet::new();
    let few: Vec<Rule> =
        routes.iter().filter(|rule| lengths.insert(rule.priority)).take(3).cloned().collect();
    let mut few = rebuilt(&field, &few);
    assert!(few.describe().kind == Kind::Trie && few.remove(0) && few.changes() == 1);
    few.insert(&spare[0]).unwrap();
    compare_with_linear(&few, &spare[..1], 20, 1);
}

/// Compares look-ups with a linear search; some of the rules may be removed.
fn compare_with_linear(table: &Classifier, rules: &[Rule], n: usize, seed: u64) {
    let keys = flows(table.layout(), rules, n, seed);
    let words = table.layout().words();
    let mut found = vec![0; keys.len() / words];
    table.lookup_batch(&keys, &mut found);
    for (key, found) in keys.chunks_exact(words).zip(found) {
        let expected = table.lookup_linear(key);
        assert_eq!(table.lookup(key), expected, "{:?}", table.describe());
        assert_eq!((found != NOTHING).then_some(found), expected, "{:?}", table.describe());
    }
}

/// Changed rules would be visible too late or too long, or rules that they hid would be lost.
#[test]
fn tree_updates_match_linear() {
    for (family, seed) in Family::ALL.into_iter().zip(1..) {
        let mut rng = Rng::from_seed(seed);
        let mut all = rules(family, 1600, seed);
        let spare = all.split_off(800);
        let mut table = rebuilt(&five_tuple(), &all);
        assert_eq!(table.describe().kind, Kind::Trees);
        for new in spare.chunks(100) {
            for rule in new {
                let at = rng.below(all.len());
                let rule = Rule { id: all[at].id, priority: rng.pick(&all).priority, ..rule.clone() };
                assert!(table.remove(rule.id));
                if rng.below(3) > 0 {
                    table.insert(&rule).unwrap();
                    all[at] = rule;
                } else {
                    all.swap_remove(at);
                }
            }
            compare_with_linear(&table, &all, 60, seed);
            agree(&table, &all, 5, &mut rng);
        }
        assert!(table.changes() < spare.len() / 2, "{}: {}", family.name(), table.describe());
        table.adopt(table.rebuild()).unwrap();
        compare_with_linear(&table, &all, 150, seed);
        assert_eq!((table.changes(), table.wants_rebuild()), (0, false));
    }
}

/// A removed rule would leave a hole: the rules that it hid are not in the lists.
#[test]
fn removal_uncovers_hidden_rules() {
    let mut all = rules(Family::Acl, 700, 3);
    // Better than all others, and covering many of them.
    let half = Pattern::Prefix { value: 0, len: 1 };
    let hider = Rule {
        patterns: vec![half, Pattern::Any, Pattern::Any, Pattern::Any, Pattern::Any],
        priority: 1 << 30,
        id: 9000,
    };
    all.push(hider);
    let mut table = rebuilt(&five_tuple(), &all);
    assert_eq!(table.describe().kind, Kind::Trees);
    compare_with_linear(&table, &all, 300, 1);
    assert!(table.remove(9000));
    assert!(table.wants_rebuild());
    compare_with_linear(&table, &all, 300, 1);
    table.insert(&all[700]).unwrap();
    compare_with_linear(&table, &all, 300, 1);
}

/// Relabelled rules would change their order.
#[test]
fn relabelled_rules_keep_order() {
    for (seed, n) in [(1, 300), (2, 1200)] {
        let mut rng = Rng::from_seed(seed);
        let routes = prefixes(n, 32, seed);
        for (fields, mut rules) in [
            (vec![FieldSpec::new("dst", 32)], routes),
            (five_tuple().to_vec(), rules(Family::Acl, n.min(600), seed)),
        ] {
            let mut table = table(&fields, &rules);
            for round in 0..4 {
                let times = 2 + rng.below(3) as u32;
                for rule in &mut rules {
                    rule.priority = rule.priority.min(u32::MAX / 8) * times + 1;
                    assert!(table.relabel(rule.id, rule.priority));
                }
                for rule in rules.iter().step_by(7) {
                    assert!(table.remove(rule.id));
                    table.insert(rule).unwrap();
                }
                compare_with_linear(&table, &rules, 200, seed);
                agree(&table, &rules, 20, &mut rng);
                if round == 1 {
                    table.adopt(table.rebuild()).unwrap();
                }
            }
            assert!(!table.relabel(1 << 20, 1));
        }
    }
}

/// A table would get a structure that costs more than another.
#[test]
fn table_gets_fitting_structure() {
    let tuple = five_tuple();
    let one = [FieldSpec::new("dst", 32)];
    let small = [FieldSpec::new("vlan", 12)];
    let exact_small: Vec<Rule> =
        (0..100).map(|id| Rule { patterns: vec![Pattern::Exact(id.into())], priority: 0, id }).collect();
    assert_eq!(kind(&tuple, &[]), Kind::Hash);
    assert_eq!(kind(&small, &exact_small), Kind::Direct);
    assert_eq!(kind(&one, &exact_small), Kind::Hash);
    assert_eq!(kind(&tuple, &exact(1000, 1)), Kind::Hash);
    assert_eq!(kind(&one, &prefixes(1000, 32, 1)), Kind::Trie);
    assert_eq!(kind(&[FieldSpec::new("dst", 128)], &prefixes(1000, 128, 1)), Kind::Trie);
    for family in Family::ALL {
        assert_eq!(kind(&tuple, &rules(family, 200, 1)), Kind::Vectors, "{}", family.name());
        assert_eq!(kind(&tuple, &rules(family, 600, 1)), Kind::Trees, "{}", family.name());
    }
    assert_eq!(kind(&tuple, &[0, 1].map(|id| masks(id, 0))), Kind::Trees);
    let many: Vec<Rule> = (0..2000)
        .map(|id| masks(id % 2, id))
        .enumerate()
        .map(|(id, rule)| Rule { id: id as u32, ..rule })
        .collect();
    assert_eq!(kind(&tuple, &many), Kind::TupleSpace);
}

/// A rule with one of two masks that no window of bits separates.
fn masks(which: u32, value: u32) -> Rule {
    let mask = if which == 0 { 0x5555_5555 } else { 0xaaaa_aaaa };
    let pattern = Pattern::Mask { value: u128::from(hash_of(value)), mask };
    Rule {
        patterns: vec![pattern, Pattern::Any, Pattern::Any, Pattern::Any, Pattern::Any],
        priority: value,
        id: which,
    }
}

fn hash_of(value: u32) -> u32 {
    crate::hash::hash_word(value.into()) as u32
}

/// A tuple would lose rules while it grows or shrinks, over many changes.
#[test]
fn exact_table_resizes_gradually() {
    let rules = exact(5000, 2);
    let mut table = Classifier::new(&five_tuple(), HashKey::from_seed(1)).unwrap();
    let key = |table: &Classifier, rule: &Rule| {
        let mut key = [0; 2];
        let values: Vec<u128> =
            rule.patterns.iter().map(|&pattern| within(pattern, 32, &mut Rng::from_seed(0))).collect();
        table.layout().pack(&values, &mut key);
        key
    };
    for (at, rule) in rules.iter().enumerate() {
        table.insert(rule).unwrap();
        for near in [0, at / 2, at] {
            assert_eq!(table.lookup(&key(&table, &rules[near])), Some(near as u32));
        }
    }
    assert_eq!(table.describe().kind, Kind::Hash);
    for (at, rule) in rules.iter().enumerate() {
        assert!(table.remove(rule.id) && !table.remove(rule.id));
        assert_eq!(table.lookup(&key(&table, rule)), None);
        if let Some(next) = rules.get(at + 1 + (rules.len() - at) / 2) {
            assert_eq!(table.lookup(&key(&table, next)), Some(next.id));
        }
    }
    assert!(table.is_empty());
}

/// A hostile rule set would take unbounded memory or time, or get wrong rows.
#[test]
fn hostile_rules_stay_in_limits() {
    let tuple = five_tuple();
    let any = Pattern::Any;
    let n = 1200;
    let across = |id: u32, patterns: Vec<Pattern>| Rule { patterns, priority: id % 7, id };
    // Each rule overlaps each other one, in another pair of fields.
    let crosses = (0..n).map(|id| {
        let range = |from: u32| Pattern::Range { lo: from.into(), hi: (from + 0x7000).into() };
        let (low, high) = (range(id * 7), range(0x7fff - id * 5));
        across(id, if id % 2 == 0 { vec![any, any, low, high, any] } else { vec![any, any, high, low, any] })
    });
    // No two rules have the same mask.
    let masks = (0..n).map(|id| {
        let bits = crate::hash::hash_word(id.into());
        let mask = |by: u32| Pattern::Mask { value: 0, mask: u128::from((bits >> by) as u32 & 0x1111_1111) };
        across(id, vec![mask(0), mask(16), any, any, any])
    });
    // All rules are equal.
    let doubles =
        (0..n).map(|id| across(id, vec![Pattern::Prefix { value: 1 << 31, len: 1 }, any, any, any, any]));
    for (name, rules) in [
        ("crosses", crosses.collect::<Vec<Rule>>()),
        ("masks", masks.collect()),
        ("doubles", doubles.collect()),
    ] {
        let mut table = table(&tuple, &rules);
        let mut rng = Rng::from_seed(3);
        agree(&table, &rules, 10, &mut rng);
        let built = table.rebuild();
        table.adopt(built).unwrap();
        agree(&table, &rules, 10, &mut rng);
        let shown = table.describe();
        assert!(shown.bytes < 4 << 20, "{name}: {shown}");
        assert!(table.space.tuples() <= TUPLES_MAX, "{name}: {shown}");
        for rule in &rules {
            assert!(table.remove(rule.id), "{name}");
        }
        assert!(table.lookup(&[0; 2]).is_none() && table.is_empty() && table.space.is_empty());
    }
}

/// A trie over nested or scattered long prefixes would take a node for each bit.
#[test]
fn hostile_prefix_trie_is_bounded() {
    let field = [FieldSpec::new("dst", 128)];
    let nested = (0..128u8).map(|len| Pattern::Prefix { value: 0x5555 << 100, len });
    let scattered = (0..2000u64).map(|at| {
        let value = u128::from(crate::hash::hash_word(at)) << 64 | u128::from(crate::hash::hash_word(at ^ 1));
        Pattern::Prefix { value, len: 128 }
    });
    let clustered = (0..2000u128).map(|at| Pattern::Exact((at / 40) << 90 | (at % 40)));
    let patterns: [Vec<Pattern>; 3] = [nested.collect(), scattered.collect(), clustered.collect()];
    for patterns in patterns {
        let rules: Vec<Rule> = (0..)
            .zip(patterns)
            .map(|(id, pattern)| Rule { patterns: vec![pattern], priority: id % 3, id })
            .collect();
        let table = rebuilt(&field, &rules);
        agree(&table, &rules, 100, &mut Rng::from_seed(1));
        assert!(table.describe().bytes < 600 * rules.len() + (64 << 10), "{}", table.describe());
    }
}

/// A structure built from old rules would be adopted as if nothing had changed.
#[test]
fn outdated_build_is_refused() {
    let rules = rules(Family::Fw, 50, 1);
    let mut table = rebuilt(&five_tuple(), &rules);
    let built = table.rebuild();
    let again = table.rebuild();
    for _ in 0..DELTA_MAX / 2 + 1 {
        table.remove(0);
        table.insert(&rules[0]).unwrap();
    }
    assert_eq!(table.describe().kind, Kind::TupleSpace, "the tuple space takes over");
    assert_eq!(table.adopt(built), Err(Outdated));
    agree(&table, &rules, 20, &mut Rng::from_seed(2));
    table.adopt(table.rebuild()).unwrap();
    assert!(!table.wants_rebuild());
    assert_eq!(table.adopt(again), Err(Outdated));
    agree(&table, &rules, 20, &mut Rng::from_seed(2));
}

/// A rule that does not fit its table would be misinterpreted.
#[test]
fn unfit_rules_are_refused() {
    let fields = [FieldSpec::new("a", 8), FieldSpec::new("b", 100)];
    let mut table = Classifier::new(&fields, HashKey::from_seed(1)).unwrap();
    let mut insert = |a, b, id| table.insert(&Rule { patterns: vec![a, b], priority: 0, id });
    let any = Pattern::Any;
    assert_eq!(insert(Pattern::Exact(256), any, 0), Err(Error::Pattern { field: 0 }));
    assert_eq!(insert(any, Pattern::Prefix { value: 0, len: 101 }, 0), Err(Error::Pattern { field: 1 }));
    assert_eq!(insert(any, Pattern::Range { lo: 2, hi: 1 }, 0), Err(Error::Pattern { field: 1 }));
    assert_eq!(insert(any, Pattern::Mask { value: 0, mask: 1 << 100 }, 0), Err(Error::Pattern { field: 1 }));
    assert_eq!(insert(any, any, RULES_MAX), Err(Error::Id));
    assert_eq!(insert(any, any, 7), Ok(()));
    assert_eq!(insert(any, any, 7), Err(Error::DuplicateId));
    let short = Rule { patterns: vec![any], priority: 0, id: 0 };
    assert_eq!(table.insert(&short), Err(Error::Patterns { expected: 2, given: 1 }));
    assert_eq!(table.replace(&Rule { id: 7, ..short }), Err(Error::Patterns { expected: 2, given: 1 }));
    assert_eq!(table.len(), 1);
    assert_eq!(Classifier::new(&[], HashKey::from_seed(1)).err(), Some(Error::Fields));
    assert_eq!(
        Classifier::new(&[FieldSpec::new("wide", 129)], HashKey::from_seed(1)).err(),
        Some(Error::Fields)
    );
    assert_eq!(
        Classifier::new(&vec![FieldSpec::new("long", 64); 9], HashKey::from_seed(1)).err(),
        Some(Error::Fields)
    );
}

/// A structure built for another table would return ids that do not exist.
#[test]
fn foreign_build_is_refused() {
    let fields = five_tuple();
    let all = rules(Family::Acl, 600, 1);
    let (mut one, mut other) = (table(&fields, &all), table(&fields, &all[..599]));
    other.insert(&Rule { priority: 0, ..all[599].clone() }).unwrap();
    let built = one.snapshot().rebuild();
    assert_eq!(other.adopt(built.clone()), Err(Outdated), "the tables differ by an equal number of changes");
    one.clone().adopt(built.clone()).unwrap();
    one.adopt(built).unwrap();
    assert_eq!(other.adopt(one.rebuild()), Err(Outdated));
}

/// The best rule would be mistaken for a wall.
#[test]
fn rank_is_never_wall_or_none() {
    for id in [0, 1, 255, RULES_MAX - 1] {
        for (priority, has_extra) in [(0, false), (0, true), (u32::MAX, false), (u32::MAX, true)] {
            let rank = rule_store::rank(priority, id, has_extra);
            assert!(rank > 0 && rank < WALL);
            assert_eq!((id_of(rank), rule_store::has_extra(rank)), (id, has_extra));
        }
    }
    assert_eq!(id_of(0), NOTHING);
}
