//! Chains that call each other, as the rows of one list: what a rule asks for that jumps, all rules of its chain ask
//! for, too.
//!
//! Rows know no way back. Packets that RETURN in the middle of a chain go on behind where it was called, and so what is
//! behind there comes once more for them, in front of the rest of the chain, with what becomes of them at the end. What
//! is for such packets alone is left out from there on.

use super::rule::{Family, Rule, Verdict};
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
    Of(Verdict),
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

/// What becomes of packets that no rule of a base chain has decided about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    pub(crate) verdict: Verdict,
    pub(crate) family: Family,
    pub(crate) line: u32,
}

/// Appends the rows of a base chain.
pub(crate) fn flatten(chains: &Chains, base: &str, policy: Policy, list: &mut List) {
    let decided = Vec::new();
    let mut flat = Flat { chains, policy, list, steps: 0, decided, returns: 0, is_cut: false };
    let all = Rule::default();
    flat.through(flat.chain(base), &all, None, 0);
    // Packets that no row matches are dropped.
    if policy.verdict == Verdict::Accept {
        flat.decide(&all);
    }
    // Nobody knows what else is missing.
    if flat.is_cut {
        flat.list.rows.clear();
    }
}

struct Flat<'c, 'l> {
    chains: &'c Chains,
    policy: Policy,
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
                Decision::Of(verdict) => self.rows(&rule, *verdict, statement.line),
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

    /// What the policy says is done with packets of a rule.
    fn decide(&mut self, rule: &Rule) {
        let Policy { verdict, family, line } = self.policy;
        let by_policy = Rule { family, comment: Some("policy".to_owned()), ..Rule::default() };
        self.rows(&by_policy.and(rule), verdict, line);
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

    fn rows(&mut self, rule: &Rule, verdict: Verdict, line: u32) {
        if let Err(reason) = rule.rows(verdict, line, &mut self.list.rows) {
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
