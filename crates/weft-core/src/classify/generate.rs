//! Rule sets and traffic from a seed, the same on every machine: for tests, benchmarks and the sets in the repository.
//!
//! [`rules`] makes sets for the five fields of [`five_tuple`], in the three families that ClassBench (D. Taylor and J.
//! Turner, INFOCOM 2005) distinguishes by seed: access lists, firewalls and IP chains. The families differ in the
//! lengths of prefixes, the share of wildcard addresses and ports, and the ports that they name. Addresses come from a
//! few sites, so prefixes nest and overlap. [`prefixes`] makes a routing table, [`exact`] a table of flows. [`flows`]
//! draws keys that the rules match.

use super::{FieldSpec, Layout, Pattern, Rule};
use crate::rng::Rng;

/// A family of rule sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Access lists: long prefixes on both sides, exact destination ports.
    Acl,
    /// Firewalls: many wildcard addresses, port ranges on both sides.
    Fw,
    /// IP chains: a mix of both.
    Ipc,
}

impl Family {
    /// All families.
    pub const ALL: [Self; 3] = [Self::Acl, Self::Fw, Self::Ipc];

    /// Its name in figures, after the similar ClassBench seed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Acl => "acl1",
            Self::Fw => "fw1",
            Self::Ipc => "ipc1",
        }
    }
}

/// The fields: source and destination address, source and destination port, protocol.
pub fn five_tuple() -> [FieldSpec; 5] {
    let fields = [("src", 32), ("dst", 32), ("sport", 16), ("dport", 16), ("proto", 8)];
    fields.map(|(name, bits)| FieldSpec::new(name, bits))
}

/// `n` different rules over [`five_tuple`]; the first has the greatest priority, and the last one matches everything.
pub fn rules(family: Family, n: usize, seed: u64) -> Vec<Rule> {
    let mut rng = Rng::from_seed(seed);
    let shape = Shape::of(family);
    let sites: Vec<u32> = (0..(n / 40).clamp(4, 4096)).map(|_| rng.bits() as u32).collect();
    let mut seen = std::collections::BTreeSet::new();
    let mut rules: Vec<Rule> = Vec::with_capacity(n);
    let mut tries = 0;
    while rules.len() + 1 < n {
        let patterns = shape.draw(&sites, &mut rng);
        tries += 1;
        // A family may run out of different rules; duplicates then end the search.
        if seen.insert(format!("{patterns:?}")) || tries > 8 * n {
            rules.push(Rule { patterns, priority: (n - rules.len()) as u32, id: rules.len() as u32 });
        }
    }
    if n > 0 {
        rules.push(Rule { patterns: vec![Pattern::Any; 5], priority: 0, id: rules.len() as u32 });
    }
    rules
}

/// A routing table: `n` different prefixes of one field of 32 or 128 bits; longer ones have greater priorities. Lengths
/// follow the distribution of Internet core tables: three of five are /24 (or /48), few are longer.
pub fn prefixes(n: usize, bits: u8, seed: u64) -> Vec<Rule> {
    let mut rng = Rng::from_seed(seed);
    let lengths: &[(usize, u8, u8)] = if bits == 32 {
        &[(60, 24, 24), (12, 22, 22), (8, 23, 23), (6, 20, 21), (8, 16, 19), (1, 8, 15), (5, 25, 32)]
    } else {
        &[(50, 48, 48), (16, 32, 32), (12, 44, 44), (12, 36, 40), (6, 29, 31), (4, 49, 64)]
    };
    // Allocated blocks that contain the prefixes.
    let blocks: Vec<u128> = (0..(n / 24).max(1)).map(|_| block(bits, &mut rng)).collect();
    let mut seen = std::collections::BTreeSet::new();
    let mut rules = Vec::with_capacity(n);
    while rules.len() < n {
        let len = weighted(lengths, |&(weight, ..)| weight, &mut rng);
        let len = len.1 + rng.below(usize::from(len.2 - len.1) + 1) as u8;
        let fixed = u32::from(if bits == 32 { 14u8 } else { 28 }.min(len));
        let below = (u128::from(rng.bits()) << 64 | u128::from(rng.bits())) >> (128 - u32::from(bits));
        let mask = |len: u32| (u128::MAX << (128 - len)) >> (128 - u32::from(bits));
        let value = (rng.pick(&blocks) & mask(fixed) | below & !mask(fixed)) & mask(u32::from(len));
        if seen.insert((value, len)) {
            let patterns = vec![Pattern::Prefix { value, len }];
            rules.push(Rule { patterns, priority: u32::from(len), id: rules.len() as u32 });
        }
    }
    rules
}

/// The fields of a dual-stack network, as tables have them: an address left-aligned in 128 bits, and the family.
pub fn network() -> [FieldSpec; 2] {
    [FieldSpec::new("net", 128), FieldSpec::new("net length", 2)]
}

/// A dual-stack routing table over [`network`]: for each family, the default route and half as many [`prefixes`].
pub fn networks(n: usize, seed: u64) -> Vec<Rule> {
    let of = |bits: u8, family: u128, n: usize| {
        let up = 128 - u32::from(bits);
        let all = Rule { patterns: vec![Pattern::Prefix { value: 0, len: 0 }], priority: 0, id: 0 };
        let rules = core::iter::once(all).chain(prefixes(n.max(1) - 1, bits, seed));
        rules.map(move |rule| {
            let net = match rule.patterns[..] {
                [Pattern::Prefix { value, len }] => Pattern::Prefix { value: value << up, len },
                _ => unreachable!("all patterns are prefixes"),
            };
            Rule { patterns: vec![net, Pattern::Exact(family)], ..rule }
        })
    };
    let both = of(32, 1, n / 2).chain(of(128, 2, n - n / 2));
    both.enumerate().map(|(id, rule)| Rule { id: id as u32, ..rule }).collect()
}

/// `n` different flows over [`five_tuple`], all with the same priority.
pub fn exact(n: usize, seed: u64) -> Vec<Rule> {
    let mut rng = Rng::from_seed(seed);
    // The index is part of the addresses, so no two are equal.
    let rule = |id: u32| {
        let drawn = rng.bits();
        let src = 0x0a00_0000 | id & 0x00ff_ffff;
        let values = [src.into(), (drawn >> 32) as u32 as u128, (drawn & 0xffff).into(), 443, 6];
        Rule { patterns: values.map(Pattern::Exact).to_vec(), priority: 0, id }
    };
    (0..n as u32).map(rule).collect()
}

/// `n` packed keys, each drawn from a uniformly chosen rule; one of twenty is any key.
pub fn flows(layout: &Layout, rules: &[Rule], n: usize, seed: u64) -> Vec<u64> {
    let mut rng = Rng::from_seed(seed);
    let (words, fields) = (layout.words(), layout.fields().len());
    let mut keys = vec![0; n * words];
    let mut values = vec![0; fields];
    for key in keys.chunks_exact_mut(words) {
        let rule =
            if rules.is_empty() || rng.below(20) == 0 { None } else { Some(&rules[rng.below(rules.len())]) };
        for (field, value) in values.iter_mut().enumerate() {
            let bits = layout.fields()[field].bits;
            let pattern = rule.map_or(Pattern::Any, |rule| rule.patterns[field]);
            *value = within(pattern, bits, &mut rng);
        }
        layout.pack(&values, key);
    }
    keys
}

/// A value that a pattern matches, for a field of this width.
pub fn within(pattern: Pattern, bits: u8, rng: &mut Rng) -> u128 {
    let all = u128::MAX >> (128 - bits);
    let any = (u128::from(rng.bits()) << 64 | u128::from(rng.bits())) & all;
    match pattern {
        Pattern::Any => any,
        Pattern::Exact(value) => value,
        Pattern::Prefix { value, len } => {
            let free = all.checked_shr(len.into()).unwrap_or(0);
            value & !free | any & free
        }
        Pattern::Mask { value, mask } => value & mask | any & !mask,
        Pattern::Range { lo, hi } => (hi - lo).checked_add(1).map_or(any, |span| lo + any % span),
    }
}

/// Draws an item with a probability in proportion to its weight.
fn weighted<'a, T>(from: &'a [T], weight: impl Fn(&T) -> usize, rng: &mut Rng) -> &'a T {
    let mut at = rng.below(from.iter().map(&weight).sum());
    let is_it = |item: &&T| {
        let hit = at < weight(item);
        at = at.saturating_sub(weight(item));
        hit
    };
    from.iter().find(is_it).expect("the number is below the sum of the weights")
}

/// The start of an allocated block. For IPv6, all are in 2000::/3, and most in a few /12 of it.
fn block(bits: u8, rng: &mut Rng) -> u128 {
    let drawn = u128::from(rng.bits());
    if bits == 32 {
        return (0x0100_0000 + drawn % 0xde00_0000) & 0xffff_ffff;
    }
    let registry = rng.pick(&[0x200u128, 0x240, 0x260, 0x280, 0x2a0, 0x2c0]);
    registry << 116 | (drawn & 0xf_ffff_ffff) << 80
}

/// The distributions of a family: weights, and prefix lengths from the shortest to the longest.
struct Shape {
    src: &'static [(usize, u8, u8)],
    dst: &'static [(usize, u8, u8)],
    sport: &'static [(usize, Ports)],
    dport: &'static [(usize, Ports)],
    /// TCP, UDP, ICMP, any.
    proto: [usize; 4],
}

#[derive(Clone, Copy)]
enum Ports {
    Any,
    /// Above the well-known ports.
    High,
    /// A port that many rules name.
    Known,
    /// Any single port.
    One,
    /// A range of ports.
    Range,
}

impl Shape {
    /// The profile of a family of rule sets: weights of prefix lengths, port kinds and protocols.
    fn of(family: Family) -> Self {
        use Ports::{Any, High, Known, One, Range};
        match family {
            Family::Acl => Self {
                src: &[(8, 0, 0), (6, 8, 16), (26, 17, 24), (20, 25, 31), (40, 32, 32)],
                dst: &[(2, 0, 0), (4, 8, 16), (24, 17, 24), (25, 25, 31), (45, 32, 32)],
                sport: &[(98, Any), (2, High)],
                dport: &[(28, Any), (6, High), (46, Known), (10, One), (10, Range)],
                proto: [72, 14, 4, 10],
            },
            Family::Fw => Self {
                src: &[(42, 0, 0), (6, 8, 16), (16, 17, 24), (6, 25, 31), (30, 32, 32)],
                dst: &[(26, 0, 0), (6, 8, 16), (22, 17, 24), (8, 25, 31), (38, 32, 32)],
                sport: &[(70, Any), (14, High), (12, Known), (4, Range)],
                dport: &[(24, Any), (14, High), (44, Known), (8, One), (10, Range)],
                proto: [60, 24, 6, 10],
            },
            Family::Ipc => Self {
                src: &[(14, 0, 0), (8, 8, 16), (28, 17, 24), (15, 25, 31), (35, 32, 32)],
                dst: &[(12, 0, 0), (6, 8, 16), (30, 17, 24), (12, 25, 31), (40, 32, 32)],
                sport: &[(80, Any), (6, High), (10, Known), (2, One), (2, Range)],
                dport: &[(42, Any), (8, High), (36, Known), (6, One), (8, Range)],
                proto: [52, 22, 10, 16],
            },
        }
    }

    /// Draws the patterns of a rule; addresses are near those of `sites`.
    fn draw(&self, sites: &[u32], rng: &mut Rng) -> Vec<Pattern> {
        let address = |lengths: &[(usize, u8, u8)], rng: &mut Rng| {
            let &(_, from, to) = weighted(lengths, |&(weight, ..)| weight, rng);
            let len = from + rng.below(usize::from(to - from) + 1) as u8;
            let site = rng.pick(sites);
            let below = rng.bits() as u32;
            // Half of the addresses share a /24 with others of their site.
            let shared = if below & 1 == 0 { 24 } else { 16 };
            let value = site & !(u32::MAX >> shared) | below >> shared >> 1;
            if len == 0 { Pattern::Any } else { Pattern::Prefix { value: value.into(), len } }
        };
        let (src, dst) = (address(self.src, rng), address(self.dst, rng));
        let proto = match weighted(&[0, 1, 2, 3], |&at: &usize| self.proto[at], rng) {
            0 => Pattern::Exact(6),
            1 => Pattern::Exact(17),
            2 => Pattern::Exact(1),
            _ => Pattern::Any,
        };
        let has_ports = matches!(proto, Pattern::Exact(6 | 17));
        let ports = |kinds: &[(usize, Ports)], rng: &mut Rng| {
            let &(_, kind) = weighted(kinds, |&(weight, _)| weight, rng);
            if has_ports { port(kind, rng) } else { Pattern::Any }
        };
        let (sport, dport) = (ports(self.sport, rng), ports(self.dport, rng));
        vec![src, dst, sport, dport, proto]
    }
}

/// The ports that most rules name.
const KNOWN: [u16; 16] = [80, 443, 53, 22, 25, 21, 110, 143, 123, 161, 389, 1521, 3306, 3389, 5060, 8080];

/// Draws a port pattern of this kind.
fn port(kind: Ports, rng: &mut Rng) -> Pattern {
    match kind {
        Ports::Any => Pattern::Any,
        Ports::High => Pattern::Range { lo: 1024, hi: 65_535 },
        Ports::Known => Pattern::Exact(rng.pick(&KNOWN).into()),
        Ports::One => Pattern::Exact(rng.below(1 << 16) as u128),
        Ports::Range => {
            let lo = rng.below(60_000) as u128;
            let most = rng.pick(&[16, 5000]);
            Pattern::Range { lo, hi: lo + 1 + rng.below(most) as u128 }
        }
    }
}
