//! Flattens chains that call each other into the rows of one list: each rule of a called chain also gets the conditions
//! of the calling rule.
//!
//! Rows have no RETURN. If packets RETURN in the middle of a chain, the statements behind the call come once more for
//! them, in front of the rest of the chain. Their final verdict follows. From there on, rules for these packets alone
//! are left out.
//!
//! A hook may have several base chains, in order of priority. A packet that one accepts goes on to the next; a packet
//! that one drops is gone. The output port is known to the rows of every base chain.

use super::rule::{Answer, Family, Rule, Verdict};
use super::{FAULTS_MAX, Fault, List, ROWS_MAX};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum call depth of chains, the same as in nftables.
const DEPTH_MAX: usize = 16;
/// Maximum number of nested returns from the middle of a chain.
const RETURNS_MAX: usize = 50;
/// Maximum number of remembered rules whose packets are already decided.
const DECIDED_MAX: usize = 64;
/// Maximum number of values that are compared to combine rules with the rules that call their chain: some for each
/// possible row.
const STEPS_MAX: usize = 32 * ROWS_MAX;

/// What happens to the packets of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Of(Verdict, Answer),
    /// They run the chain with this name, and then the next statement.
    Jump(String),
    /// They run the chain with this name, and then go on at the caller of their own chain.
    Goto(String),
    /// They go on at the caller of their chain.
    Return,
}

/// A rule with an effect.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    pub(crate) rule: Rule,
    pub(crate) decision: Decision,
    pub(crate) line: u32,
}

/// The chains that are read, by name.
pub(crate) type Chains = BTreeMap<String, Vec<Statement>>;

/// Returns the names of all chains that calls from the chain `from` lead to, `from` included.
pub(crate) fn reached<'a>(from: &'a str, calls: &BTreeMap<&'a str, Vec<&'a str>>) -> BTreeSet<&'a str> {
    let (mut reached, mut left) = (BTreeSet::new(), vec![from]);
    while let Some(name) = left.pop() {
        if reached.insert(name) {
            left.extend(calls.get(name).into_iter().flatten());
        }
    }
    reached
}

/// A base chain and its policy.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    pub(crate) name: String,
    pub(crate) policy: Verdict,
    /// The address family of its packets.
    pub(crate) family: Family,
    pub(crate) line: u32,
}

/// Appends the rows of a hook's base chains, which are in the order in which packets pass them. If a limit is
/// exceeded, reports a fault and leaves no rows.
pub(crate) fn flatten(chains: &Chains, bases: &[Base], list: &mut List) {
    // A base chain that accepts everything decides nothing.
    let decides = |base: &&Base| base.policy != Verdict::Accept || may_end(chains, &base.name);
    let families = bases.iter().map(|base| base.family);
    let family =
        families.reduce(|one, other| if one == other { one } else { Family::Any }).unwrap_or_default();
    let line = bases.last().map_or(0, |base| base.line);
    let bases: Vec<&Base> = bases.iter().filter(decides).collect();
    let decided = Vec::new();
    let mut flat = Flattener {
        chains,
        bases: &bases,
        at: 0,
        family,
        list,
        steps: 0,
        decided,
        returns: 0,
        is_cut: false,
    };
    let all = Rule { comment: Some(BY_POLICY.to_owned()), ..Rule::default() };
    flat.flatten_base_chain(0, &all, line);
    // An incomplete list is not safe to use: discard all rows.
    if flat.is_cut {
        flat.list.rows.clear();
    }
}

/// Whether a chain, or a chain that it leads to, can end a packet.
fn may_end(chains: &Chains, name: &str) -> bool {
    let (mut seen, mut left) = (BTreeSet::new(), vec![name]);
    while let Some(name) = left.pop() {
        if !seen.insert(name) {
            continue;
        }
        for statement in chains.get(name).into_iter().flatten() {
            match &statement.decision {
                Decision::Of(Verdict::Accept, _) | Decision::Return => {}
                Decision::Of(..) => return true,
                Decision::Jump(name) | Decision::Goto(name) => left.push(name),
            }
        }
    }
    false
}

/// The note of rows that come from a policy.
const BY_POLICY: &str = "policy";

struct Flattener<'c, 'l> {
    chains: &'c Chains,
    bases: &'l [&'c Base],
    /// The current base chain.
    at: usize,
    /// The address family of packets that pass any of them.
    family: Family,
    list: &'l mut List,
    steps: usize,
    /// Rules whose packets are already decided: later rules for these packets alone are left out.
    decided: Vec<Rule>,
    /// The number of nested returns for the packets at the current statements.
    returns: usize,
    /// A limit was reached, so the rows are incomplete.
    is_cut: bool,
}

/// The continuation of packets after a called chain: the statements that follow the call.
struct ReturnPath<'c, 'b> {
    rest: &'c [Statement],
    depth: usize,
    /// The continuation after `rest`. `None`: the policy.
    back: Option<&'b Self>,
}

impl<'c> Flattener<'c, '_> {
    /// Emits the rows of the base chain `at`, and of the later ones, for the packets that match the rule. After the
    /// last base chain, the packets are accepted.
    fn flatten_base_chain(&mut self, at: usize, rule: &Rule, line: u32) {
        let Some(base) = self.bases.get(at).copied() else {
            let comment = rule.comment.clone();
            let of_family = Rule { family: self.family, comment, ..Rule::default() };
            return self.emit_rows(&of_family.and(rule), Verdict::Accept, Answer::default(), line);
        };
        let outer = core::mem::replace(&mut self.at, at);
        self.flatten_statements(self.chain(&base.name), rule, None, 0);
        self.apply_policy(rule);
        self.at = outer;
    }

    /// Emits the rows of `statements` for the packets that match the rule `under`. `back` is the continuation of
    /// packets that run off the end, `depth` the call depth.
    fn flatten_statements(
        &mut self,
        statements: &'c [Statement],
        under: &Rule,
        back: Option<&ReturnPath<'c, '_>>,
        depth: usize,
    ) {
        for (nth, statement) in statements.iter().enumerate() {
            let Some(rule) = self.combine_conditions(statement, under, depth) else { return };
            if rule.is_never {
                continue;
            }
            let rest = &statements[nth + 1..];
            // If so, no packet of `under` reaches the rest of the chain.
            let is_for_all = under.is_within(&statement.rule);
            match &statement.decision {
                Decision::Of(Verdict::Accept, _) => {
                    self.flatten_base_chain(self.at + 1, &rule, statement.line)
                }
                Decision::Of(verdict, answer) => self.emit_rows(&rule, *verdict, *answer, statement.line),
                Decision::Jump(name) => {
                    self.flatten_statements(
                        self.chain(name),
                        &rule,
                        Some(&ReturnPath { rest, depth, back }),
                        depth + 1,
                    );
                }
                Decision::Goto(name) => {
                    self.flatten_statements(self.chain(name), &rule, back, depth + 1);
                    if is_for_all {
                        return;
                    }
                    self.return_early(rest, &rule, back, statement.line);
                }
                Decision::Return if is_for_all => return,
                Decision::Return => self.return_early(rest, &rule, back, statement.line),
            }
        }
    }

    /// Emits rows for packets that leave a chain before its end (RETURN, or GOTO in part of the chain): first the
    /// rest of the calling chains, then the policy. `skipped` are the statements that they leave out.
    fn return_early(
        &mut self,
        skipped: &[Statement],
        rule: &Rule,
        back: Option<&ReturnPath<'c, '_>>,
        line: u32,
    ) {
        // At the end of the chain, all packets return in order: nothing to repeat.
        if skipped.is_empty() {
            return;
        }
        if self.returns == RETURNS_MAX {
            let reason = format!("more than {RETURNS_MAX} chains return early for the same packets");
            return self.give_up(line, reason);
        }
        self.returns += 1;
        let mut back = back;
        while let Some(ReturnPath { rest, depth, back: behind }) = back {
            self.flatten_statements(rest, rule, *behind, *depth);
            back = *behind;
        }
        self.apply_policy(rule);
        self.returns -= 1;
        if self.decided.len() == DECIDED_MAX {
            self.decided.remove(0);
        }
        self.decided.push(rule.clone());
    }

    /// Emits the rows of the current base chain's policy for the packets that match the rule. Packets of the other IP
    /// version continue with the next base chain.
    fn apply_policy(&mut self, rule: &Rule) {
        let Base { policy, family, line, .. } = *self.bases[self.at];
        let by_policy = Rule { family, comment: Some(BY_POLICY.to_owned()), ..Rule::default() };
        if policy == Verdict::Accept {
            return self.flatten_base_chain(
                self.at + 1,
                &Rule { comment: by_policy.comment, ..rule.clone() },
                line,
            );
        }
        // Packets that match no row are dropped.
        let is_last = self.at + 1 == self.bases.len() || family == Family::Any;
        if !(is_last && rule.is_all()) {
            self.emit_rows(&by_policy.and(rule), policy, Answer::default(), line);
        }
        if family != self.family {
            self.flatten_base_chain(self.at + 1, rule, line);
        }
    }

    fn chain(&self, name: &str) -> &'c [Statement] {
        self.chains.get(name).map_or(&[], Vec::as_slice)
    }

    /// Returns the conditions of a statement and of `under` together. `None` if a limit was reached; then a fault is
    /// reported.
    fn combine_conditions(&mut self, statement: &Statement, under: &Rule, depth: usize) -> Option<Rule> {
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

    /// Appends the rows of a rule with this verdict. Leaves out IPv4-mapped networks, with a warning; reports a rule
    /// that no rows can express.
    fn emit_rows(&mut self, rule: &Rule, verdict: Verdict, answer: Answer, line: u32) {
        if rule.has_mapped() {
            let reason = "`::ffff:0:0/96` is left out: IPv4-mapped addresses are IPv4 here".to_owned();
            let warning = Fault { line, column: 1, reason };
            if !self.list.warnings.contains(&warning) {
                self.list.warnings.push(warning);
            }
            return self.emit_rows(&rule.clone().without_mapped(), verdict, answer, line);
        }
        if let Err(reason) = rule.rows((verdict, answer), line, &mut self.list.rows) {
            self.refuse(line, reason);
        }
    }

    /// Reports a fault and marks the rows as incomplete, so that [`flatten`] discards them.
    fn give_up(&mut self, line: u32, reason: String) {
        self.is_cut = true;
        self.refuse(line, reason);
    }

    /// Reports a fault once, up to [`FAULTS_MAX`].
    fn refuse(&mut self, line: u32, reason: String) {
        let fault = Fault { line, column: 1, reason };
        if self.list.faults.len() < FAULTS_MAX && !self.list.faults.contains(&fault) {
            self.list.faults.push(fault);
        }
    }
}
