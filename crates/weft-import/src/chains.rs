//! Chains that call each other, as the rows of one list: what a rule asks for that jumps, all rules of its chain ask
//! for, too.
//!
//! Rows know no way back. Packets that RETURN in the middle of a chain go on behind where it was called, and so what is
//! behind there comes once more for them, in front of the rest of the chain, with what becomes of them at the end. What
//! is for such packets alone is left out from there on.
//!
//! A hook may have several base chains, in order of priority: what one accepts goes on to the next, and what one drops
//! is gone. A packet leaves by a port that only the last says: rows know it as well, and so are of all.

use super::rule::{Answer, Family, Rule, Verdict};
use super::{FAULTS_MAX, Fault, List, ROWS_MAX};
use std::collections::{BTreeMap, BTreeSet};

/// Chains that call each other, as deep as nftables has it.
const DEPTH_MAX: usize = 16;
/// Chains that are left in their middle, one behind the other, by ever fewer packets.
const RETURNS_MAX: usize = 50;
/// Packets whose end stands in front of what comes, that are remembered.
const DECIDED_MAX: usize = 64;
/// Values that are compared where rules are combined with what calls their chain, at most: some for each row that there
/// may be.
const STEPS_MAX: usize = 32 * ROWS_MAX;

/// What becomes of packets of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Of(Verdict, Answer),
    /// They go through the chain of this name, and on behind the rule.
    Jump(String),
    /// The same, and on where their chain ends.
    Goto(String),
    /// They go on where their chain ends.
    Return,
}

/// A rule that does something.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    pub(crate) rule: Rule,
    pub(crate) does: Decision,
    pub(crate) line: u32,
}

/// The chains that are read, by their names.
pub(crate) type Chains = BTreeMap<String, Vec<Statement>>;

/// The names that one of them leads to, itself included.
pub(crate) fn reached<'a>(from: &'a str, calls: &BTreeMap<&'a str, Vec<&'a str>>) -> BTreeSet<&'a str> {
    let (mut reached, mut left) = (BTreeSet::new(), vec![from]);
    while let Some(name) = left.pop() {
        if reached.insert(name) {
            left.extend(calls.get(name).into_iter().flatten());
        }
    }
    reached
}

/// A base chain, and what becomes of packets that no rule of it has decided about.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    pub(crate) name: String,
    pub(crate) policy: Verdict,
    /// Whose packets come through it.
    pub(crate) family: Family,
    pub(crate) line: u32,
}

/// Appends the rows of the base chains of a hook, which packets come through in this order.
pub(crate) fn flatten(chains: &Chains, bases: &[Base], list: &mut List) {
    // What lets all pass decides nothing.
    let decides = |base: &&Base| base.policy != Verdict::Accept || may_end(chains, &base.name);
    let families = bases.iter().map(|base| base.family);
    let family =
        families.reduce(|one, other| if one == other { one } else { Family::Any }).unwrap_or_default();
    let line = bases.last().map_or(0, |base| base.line);
    let bases: Vec<&Base> = bases.iter().filter(decides).collect();
    let decided = Vec::new();
    let mut flat =
        Flat { chains, bases: &bases, at: 0, family, list, steps: 0, decided, returns: 0, is_cut: false };
    let all = Rule { comment: Some(BY_POLICY.to_owned()), ..Rule::default() };
    flat.base(0, &all, line);
    // Nobody knows what else is missing.
    if flat.is_cut {
        flat.list.rows.clear();
    }
}

/// Whether a chain, or one that it leads to, has a packet go no further.
fn may_end(chains: &Chains, name: &str) -> bool {
    let (mut seen, mut left) = (BTreeSet::new(), vec![name]);
    while let Some(name) = left.pop() {
        if !seen.insert(name) {
            continue;
        }
        for statement in chains.get(name).into_iter().flatten() {
            match &statement.does {
                Decision::Of(Verdict::Accept, _) | Decision::Return => {}
                Decision::Of(..) => return true,
                Decision::Jump(name) | Decision::Goto(name) => left.push(name),
            }
        }
    }
    false
}

/// The note of rows that do what a policy says.
const BY_POLICY: &str = "policy";

struct Flat<'c, 'l> {
    chains: &'c Chains,
    bases: &'l [&'c Base],
    /// The base chain that packets go through now.
    at: usize,
    /// Whose packets come through any of them.
    family: Family,
    list: &'l mut List,
    steps: usize,
    /// Packets whose end stands in front of what comes: what is for them alone is left out.
    decided: Vec<Rule>,
    /// Chains that were left in their middle for the packets that go through statements now.
    returns: usize,
    /// It has given up somewhere.
    is_cut: bool,
}

/// Where packets go on behind a chain.
struct Back<'c, 'b> {
    rest: &'c [Statement],
    depth: usize,
    /// And behind that; at the end there is the policy.
    back: Option<&'b Self>,
}

impl<'c> Flat<'c, '_> {
    /// Packets of a rule go through a base chain and those behind it; behind the last they pass.
    fn base(&mut self, at: usize, rule: &Rule, line: u32) {
        let Some(base) = self.bases.get(at).copied() else {
            let comment = rule.comment.clone();
            let of_family = Rule { family: self.family, comment, ..Rule::default() };
            return self.rows(&of_family.and(rule), Verdict::Accept, Answer::default(), line);
        };
        let outer = core::mem::replace(&mut self.at, at);
        self.through(self.chain(&base.name), rule, None, 0);
        self.decide(rule);
        self.at = outer;
    }

    /// Packets of a rule go through statements.
    fn through(
        &mut self,
        statements: &'c [Statement],
        under: &Rule,
        back: Option<&Back<'c, '_>>,
        depth: usize,
    ) {
        for (nth, statement) in statements.iter().enumerate() {
            let Some(rule) = self.step(statement, under, depth) else { return };
            if rule.is_never {
                continue;
            }
            let rest = &statements[nth + 1..];
            // Then nobody is left for the rest of the chain.
            let is_for_all = under.is_within(&statement.rule);
            match &statement.does {
                Decision::Of(Verdict::Accept, _) => self.base(self.at + 1, &rule, statement.line),
                Decision::Of(verdict, answer) => self.rows(&rule, *verdict, *answer, statement.line),
                Decision::Jump(name) => {
                    self.through(self.chain(name), &rule, Some(&Back { rest, depth, back }), depth + 1);
                }
                Decision::Goto(name) => {
                    self.through(self.chain(name), &rule, back, depth + 1);
                    if is_for_all {
                        return;
                    }
                    self.end(rest, &rule, back, statement.line);
                }
                Decision::Return if is_for_all => return,
                Decision::Return => self.end(rest, &rule, back, statement.line),
            }
        }
    }

    /// Their chain ends for packets of a rule, with these statements left of it.
    fn end(&mut self, left: &[Statement], rule: &Rule, back: Option<&Back<'c, '_>>, line: u32) {
        // Nothing is in front of what comes for all.
        if left.is_empty() {
            return;
        }
        if self.returns == RETURNS_MAX {
            let reason =
                format!("more than {RETURNS_MAX} chains are left in their middle by the same packets");
            return self.give_up(line, reason);
        }
        self.returns += 1;
        let mut back = back;
        while let Some(Back { rest, depth, back: behind }) = back {
            self.through(rest, rule, *behind, *depth);
            back = *behind;
        }
        self.decide(rule);
        self.returns -= 1;
        if self.decided.len() == DECIDED_MAX {
            self.decided.remove(0);
        }
        self.decided.push(rule.clone());
    }

    /// What the policy says is done with packets of a rule; packets of the other IP go on.
    fn decide(&mut self, rule: &Rule) {
        let Base { policy, family, line, .. } = *self.bases[self.at];
        let by_policy = Rule { family, comment: Some(BY_POLICY.to_owned()), ..Rule::default() };
        if policy == Verdict::Accept {
            return self.base(self.at + 1, &Rule { comment: by_policy.comment, ..rule.clone() }, line);
        }
        // Packets that no row matches are dropped.
        let is_last = self.at + 1 == self.bases.len() || family == Family::Any;
        if !(is_last && rule.is_all()) {
            self.rows(&by_policy.and(rule), policy, Answer::default(), line);
        }
        if family != self.family {
            self.base(self.at + 1, rule, line);
        }
    }

    fn chain(&self, name: &str) -> &'c [Statement] {
        self.chains.get(name).map_or(&[], Vec::as_slice)
    }

    /// What a statement asks for of such packets; None where there is no end of it.
    fn step(&mut self, statement: &Statement, under: &Rule, depth: usize) -> Option<Rule> {
        self.steps = self.steps.saturating_add(statement.rule.pairs(under));
        let line = statement.line;
        if self.list.faults.len() >= FAULTS_MAX {
            return None;
        }
        if depth > DEPTH_MAX {
            self.give_up(line, format!("chains call each other more than {DEPTH_MAX} deep"));
            return None;
        }
        if self.steps > STEPS_MAX {
            self.give_up(line, "chains call each other too often, or with too long sets".to_owned());
            return None;
        }
        let mut rule = statement.rule.and(under);
        rule.is_never |= !rule.is_too_long && self.decided.iter().any(|decided| rule.is_within(decided));
        Some(rule)
    }

    fn rows(&mut self, rule: &Rule, verdict: Verdict, answer: Answer, line: u32) {
        if rule.has_mapped() {
            let reason = "`::ffff:0:0/96` is left out: such addresses are those of IPv4 here".to_owned();
            let warning = Fault { line, column: 1, reason };
            if !self.list.warnings.contains(&warning) {
                self.list.warnings.push(warning);
            }
            return self.rows(&rule.clone().without_mapped(), verdict, answer, line);
        }
        if let Err(reason) = rule.rows((verdict, answer), line, &mut self.list.rows) {
            self.refuse(line, reason);
        }
    }

    fn give_up(&mut self, line: u32, reason: String) {
        self.is_cut = true;
        self.refuse(line, reason);
    }

    fn refuse(&mut self, line: u32, reason: String) {
        let fault = Fault { line, column: 1, reason };
        if self.list.faults.len() < FAULTS_MAX && !self.list.faults.contains(&fault) {
            self.list.faults.push(fault);
        }
    }
}
