//! Reads `nft list ruleset`: tables, sets, verdict maps, and the rules of a hook's filter base chains, with the chains
//! that they jump to.

mod keyed;
mod stmt;

use super::chains::{self, Base, Chains, Decision, Statement};
use super::names;
use super::rule::{self, Family, Rule, Side, Verdict};
use super::tokens::{Kind, Token, tokens};
use super::{FAULTS_MAX, Fault, Hook, List, ROWS_MAX};
use std::collections::{BTreeMap, BTreeSet};

/// Reads the output of `nft list ruleset`.
pub(crate) fn read(text: &str, hook: &Hook) -> List {
    let tokens = tokens(text, true);
    // Two passes: a rule may name a set that comes later, and a chain may be continued later.
    let mut names = Reader::new(&tokens, hook, ListIndex::default(), true);
    names.file();
    names.index.reach();
    let mut reader = Reader::new(&tokens, hook, names.index, false);
    reader.file();
    reader.rows();
    reader.list
}

/// A table's identity: `inet` and `ip6` may both have a table `filter`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Table<'a> {
    family: &'a str,
    name: &'a str,
}

/// A chain or a set of a table.
type Name<'a> = (Table<'a>, &'a str);

/// An index of the whole list, from the first pass.
#[derive(Default)]
struct ListIndex<'a> {
    /// The elements of sets and maps; `None` if they are not supported.
    sets: BTreeMap<Name<'a>, Option<Vec<Element<'a>>>>,
    /// The hooks of base chains.
    hooks: BTreeMap<Name<'a>, &'a str>,
    /// For each chain, the chains that its rules name.
    calls: BTreeMap<Table<'a>, BTreeMap<&'a str, Vec<&'a str>>>,
    /// For each map, the chains that it names. In `calls`, a map's name begins with `@`.
    maps: BTreeMap<Name<'a>, Vec<&'a str>>,
    /// The sets and maps that each chain names.
    uses: BTreeMap<Name<'a>, Vec<&'a str>>,
    /// The selected base chains, in the order in which packets pass them.
    bases: Vec<BaseHead<'a>>,
    /// The selected base chains and the chains that they jump to.
    reached: BTreeSet<Name<'a>>,
    /// The sets and maps that the reached chains name.
    used: BTreeSet<Name<'a>>,
}

/// The head of a base chain.
struct BaseHead<'a> {
    name: Name<'a>,
    priority: i32,
    line: u32,
}

/// An element of a set or a map.
#[derive(Clone)]
struct Element<'a> {
    /// The parts of a concatenation `a . b`; otherwise one value.
    values: Vec<Token<'a>>,
    /// The verdict for packets with this element, in a verdict map.
    verdict: Option<MapVerdict<'a>>,
}

/// The verdict of a map element and its position; `None` if packets go on.
type MapVerdict<'a> = (Token<'a>, Option<Decision>);

/// The field that a test compares.
#[derive(Clone, Copy)]
enum Key {
    Address(Side, bool),
    Protocol,
    Port(Side),
    Icmp(bool),
    IcmpCode(bool),
    NextHeader,
    In,
    Out,
    State,
}

impl<'a> ListIndex<'a> {
    /// Finds the chains that are read.
    fn reach(&mut self) {
        self.bases.sort_by_key(|base| base.priority);
        for BaseHead { name: (table, name), .. } in &self.bases {
            let mut calls = self.calls.get(table).cloned().unwrap_or_default();
            let named = calls.values().flatten();
            let maps: Vec<_> = named
                .filter_map(|named| Some((*named, self.maps.get(&(*table, named.strip_prefix('@')?))?)))
                .collect();
            calls.extend(maps.into_iter().map(|(named, calls)| (named, calls.clone())));
            self.reached.extend(chains::reached(name, &calls).into_iter().map(|name| (*table, name)));
        }
        let uses = self.reached.iter().filter_map(|name| Some((name.0, self.uses.get(name)?)));
        self.used = uses.flat_map(|(table, sets)| sets.iter().map(move |set| (table, *set))).collect();
    }

    /// Whether the rules of a chain are read.
    fn is_read(&self, name: Name<'a>) -> bool {
        self.reached.contains(&name)
    }
}

/// A name that is unique among the chains of all tables.
fn id((table, name): Name<'_>) -> String {
    format!("{} {} {name}", table.family, table.name)
}

struct Reader<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
    hook: &'a Hook,
    index: ListIndex<'a>,
    /// The first pass, which only fills the index.
    is_first: bool,
    list: List,
    chains: Chains,
    /// The policies of base chains; the default is accept.
    policies: BTreeMap<Name<'a>, Verdict>,
    /// The current table.
    table: Option<Table<'a>>,
    /// Number of stored rule values.
    kept: usize,
    has_table: bool,
    /// The early end of the list is already reported.
    is_cut: bool,
}

/// The right-hand side of a test.
struct Values<'a> {
    elements: Vec<Element<'a>>,
    negated: bool,
}

/// A rule while its tests are read.
#[derive(Default)]
struct Draft<'a> {
    rule: Rule,
    decision: Option<Decision>,
    /// Alternatives, one of which must hold as well, with its own verdict from a map.
    alternatives: Option<Vec<(Rule, Option<Decision>)>>,
    /// A map gives the verdict.
    has_map: bool,
    /// The position of a rate limit, and whether the rule is for packets over it.
    limit: Option<Token<'a>>,
    is_over: bool,
    /// The position of a test for ports of any protocol.
    bare_ports: Option<Token<'a>>,
}

type Read<T> = Result<T, Fault>;

impl<'a> Table<'a> {
    /// The address family of the table's packets, if its rules are read.
    fn addresses(self) -> Option<Family> {
        match self.family {
            "ip" => Some(Family::V4),
            "ip6" => Some(Family::V6),
            "inet" => Some(Family::Any),
            _ => None,
        }
    }
}

impl<'a> Reader<'a> {
    /// Starts a reader of a list for one hook. `known` is the index that the first pass has built.
    fn new(tokens: &'a [Token<'a>], hook: &'a Hook, known: ListIndex<'a>, is_first: bool) -> Self {
        Self {
            tokens,
            at: 0,
            hook,
            index: known,
            is_first,
            list: List::default(),
            chains: Chains::new(),
            policies: BTreeMap::new(),
            table: None,
            kept: 0,
            has_table: false,
            is_cut: false,
        }
    }

    fn token(&self) -> Token<'a> {
        self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    /// Consumes the current token, and returns it.
    fn next(&mut self) -> Token<'a> {
        let token = self.token();
        self.at += 1;
        token
    }

    /// Consumes the current token if it has this text. Returns whether it had.
    fn eat(&mut self, text: &str) -> bool {
        let is = self.token().is(text);
        self.at += usize::from(is);
        is
    }

    /// Skips line ends and `;`.
    fn skip_lines(&mut self) {
        while self.token().kind == Kind::Line || self.token().is(";") {
            self.at += 1;
        }
    }

    fn is_at_end(&self) -> bool {
        self.token().kind == Kind::End || self.list.faults.len() >= FAULTS_MAX
    }

    /// Adds a fault, up to [`FAULTS_MAX`].
    fn report(&mut self, fault: Fault) {
        if self.list.faults.len() < FAULTS_MAX {
            self.list.faults.push(fault);
        }
    }

    /// Reports a fault in a statement, and skips the statement.
    fn refuse(&mut self, fault: Fault, begun: usize) {
        self.report(fault);
        self.skip_from(begun);
    }

    /// The fault for a list that ends within a block, with the position where the block begins.
    fn cut(&mut self, what: &str, begun: Token<'a>) -> Fault {
        self.is_cut = true;
        let end = self.tokens[self.tokens.len() - 1];
        let line = begun.line;
        end.fault(format!(
            "the list ends without the `}}` of {what} of line {line}: pass the complete output of `nft list ruleset`"
        ))
    }

    /// Reports that the list ends here, unless an inner block has reported it.
    fn report_cut(&mut self, what: &str, begun: Token<'a>) {
        if self.token().kind == Kind::End && !self.is_cut {
            let fault = self.cut(what, begun);
            self.report(fault);
        }
    }

    /// Reads all tables of the list.
    fn file(&mut self) {
        self.skip_lines();
        while !self.is_at_end() {
            let begun = self.at;
            let token = self.next();
            let is_of_part = ["set", "map", "chain"].contains(&self.token().text);
            match token.text {
                "table" => self.table(begun),
                "flush" if !is_of_part && !self.has_table => self.skip_from(begun),
                "flush" => {
                    let reason = "`flush` of all or of a table is only supported in front of a list: pass \
                                  the output of `nft list ruleset`";
                    self.refuse(token.fault(reason), begun);
                }
                other => {
                    self.refuse(token.fault(format!("`{other}` is not supported here: only `table`")), begun)
                }
            }
            self.skip_lines();
        }
    }

    /// Reads a table. `at` is the position of the word `table`; tables of the family `arp` are skipped.
    fn table(&mut self, at: usize) {
        const FAMILIES: [&str; 6] = ["ip", "ip6", "inet", "arp", "bridge", "netdev"];
        self.has_table = true;
        let (begun, first) = (self.tokens[at], self.next());
        let table = match FAMILIES.contains(&first.text) && !self.token().is("{") {
            true => Table { family: first.text, name: self.next().text },
            false => Table { family: "ip", name: first.text },
        };
        if !self.eat("{") {
            let token = self.token();
            return self.refuse(token.fault("a table begins with `{`"), at);
        }
        self.table = Some(table);
        match table.family {
            "arp" => self.skip_block("the table", begun),
            _ => self.block("the table", begun, |reader| reader.object(table)),
        }
    }

    /// The statements of a block, up to its `}`.
    fn block(&mut self, what: &str, begun: Token<'a>, mut statement: impl FnMut(&mut Self)) {
        loop {
            self.skip_lines();
            if self.eat("}") {
                return;
            }
            if self.is_at_end() {
                return self.report_cut(what, begun);
            }
            statement(self);
        }
    }

    /// Reads a chain, set or map of a table. Skips objects that decide nothing.
    fn object(&mut self, table: Table<'a>) {
        let begun = self.at;
        let (token, named) = (self.next(), self.next());
        let name = (table, named.text);
        match (token.text, self.eat("{")) {
            ("chain", true) => self.chain(token, name),
            ("set" | "map", true) if self.is_first || self.index.used.contains(&name) => {
                self.set(token, name)
            }
            ("set" | "map", true) => self.skip_block("the set", token),
            ("comment", false) => self.skip_from(begun),
            // Only the rules that name these objects matter.
            ("counter" | "quota" | "limit" | "ct" | "flowtable" | "secmark" | "synproxy", _) => {
                self.skip_from(begun);
            }
            _ if table.addresses().is_none() || self.is_left_out(table) => self.skip_from(begun),
            (other, _) => {
                let reason = format!("`{other}` is not supported in a table: only `chain`, `set` and `map`");
                self.refuse(token.fault(reason), begun);
            }
        }
    }

    /// Whether no rule of a table is read.
    fn is_left_out(&self, table: Table<'a>) -> bool {
        !self.is_first && self.index.bases.iter().all(|base| base.name.0 != table)
    }

    /// Reads a set or verdict map. The first pass stores its elements in the index.
    fn set(&mut self, begun: Token<'a>, name: Name<'a>) {
        let (mut elements, inside) = (Some(Vec::new()), self.at);
        self.block("the set", begun, |reader| reader.of_set(&mut elements));
        if !self.is_first {
            return;
        }
        let calls = self.calls_since(inside);
        self.index.maps.entry(name).or_default().extend(calls);
        let known = self.index.sets.entry(name).or_insert_with(|| Some(Vec::new()));
        *known = known.take().zip(elements).map(|(mut all, more)| {
            all.extend(more);
            all
        });
    }

    /// Reads a statement in a set. `elements` becomes None if an element is not supported.
    fn of_set(&mut self, elements: &mut Option<Vec<Element<'a>>>) {
        const KNOWN: [&str; 7] = ["type", "flags", "auto-merge", "size", "comment", "typeof", "counter"];
        let (begun, token) = (self.at, self.token());
        if self.eat("elements") {
            self.eat("=");
            let open = self.token();
            let read = if self.eat("{") { self.elements(open) } else { Err(open.fault("`{` is to follow")) };
            match read {
                Ok(found) => elements.iter_mut().for_each(|all| all.extend(found.iter().cloned())),
                Err(fault) => {
                    *elements = None;
                    self.refuse(fault, begun);
                }
            }
        } else if KNOWN.contains(&token.text) {
            self.skip_statement();
        } else {
            *elements = None;
            self.refuse(token.fault(format!("`{}` is not supported in a set", token.text)), begun);
        }
    }

    /// Elements up to the `}`.
    fn elements(&mut self, open: Token<'a>) -> Read<Vec<Element<'a>>> {
        self.in_braces(open, |list| {
            let mut values = vec![list.value()?];
            while list.eat(".") {
                values.push(list.value()?);
            }
            list.of_element()?;
            let verdict = if list.eat(":") { Some(list.decision_of_element()?) } else { None };
            Ok(Element { values, verdict })
        })
    }

    /// Reads the verdict of a map element.
    fn decision_of_element(&mut self) -> Read<MapVerdict<'a>> {
        let at = self.value()?;
        let decision = match at.text {
            "continue" => None,
            other => {
                let read = self.decision(other)?;
                let reason = format!("`{other}` is not supported in a map: only packet verdicts");
                Some(read.ok_or_else(|| at.fault(reason))?)
            }
        };
        self.of_element()?;
        Ok((at, decision))
    }

    /// Reads a comma-separated list, after the `{` and up to the `}`.
    fn in_braces<T>(
        &mut self,
        open: Token<'a>,
        mut element: impl FnMut(&mut Self) -> Read<T>,
    ) -> Read<Vec<T>> {
        let mut all = Vec::new();
        loop {
            self.skip_newlines(open)?;
            if self.eat("}") {
                return Ok(all);
            }
            all.push(element(self)?);
            self.skip_newlines(open)?;
            let token = self.token();
            if !self.eat(",") && !token.is("}") {
                return Err(token.fault(format!("`{}` is not supported for an element", token.text)));
            }
        }
    }

    /// Skips newlines in a set.
    fn skip_newlines(&mut self, open: Token<'a>) -> Read<()> {
        while self.token().kind == Kind::Line {
            self.at += 1;
        }
        if self.token().kind == Kind::End { Err(self.cut("the set", open)) } else { Ok(()) }
    }

    /// Skips options that may follow an element and do not change its meaning.
    fn of_element(&mut self) -> Read<()> {
        loop {
            if self.eat("comment") {
                self.value()?;
            } else if self.eat("counter") {
                self.counter()?;
            } else {
                return Ok(());
            }
        }
    }

    /// Skips the `packets` and `bytes` of a counter.
    fn counter(&mut self) -> Read<()> {
        if self.eat("packets") {
            self.value()?;
            if self.eat("bytes") {
                self.value()?;
            }
        }
        Ok(())
    }

    /// Reads a chain: the first pass indexes the chains and sets that it names, the second reads its rules if it is
    /// reached.
    fn chain(&mut self, begun: Token<'a>, name: Name<'a>) {
        if self.is_first {
            let inside = self.at;
            self.block("the chain", begun, |reader| reader.head(name));
            let calls = self.calls_since(inside);
            self.index.calls.entry(name.0).or_default().entry(name.1).or_default().extend(calls);
            let tokens = &self.tokens[inside..self.at.min(self.tokens.len())];
            let sets = tokens.iter().filter(|token| token.kind == Kind::Word);
            let sets = sets.filter_map(|token| token.text.strip_prefix('@'));
            self.index.uses.entry(name).or_default().extend(sets);
        } else if self.index.is_read(name) {
            self.chains.entry(id(name)).or_default();
            self.block("the chain", begun, |reader| reader.statement(name));
        } else {
            self.other_chain(begun, name);
        }
    }

    /// The chains and maps that are named from a position on.
    fn calls_since(&self, begun: usize) -> Vec<&'a str> {
        let tokens = &self.tokens[begun..self.at.min(self.tokens.len())];
        let is_call = |pair: &&[Token<'a>]| ["jump", "goto", "vmap"].iter().any(|word| pair[0].is(word));
        tokens.windows(2).filter(is_call).map(|pair| pair[1].text).collect()
    }

    /// Stores the contents of `type filter hook forward priority 0`.
    fn head(&mut self, name: Name<'a>) {
        let line = self.token().line;
        if self.eat("type") {
            let is_filter = self.eat("filter");
            let (hook, priority) = self.rest_of_type();
            self.index.hooks.insert(name, hook);
            if is_filter && hook == self.hook.name && name.0.addresses().is_some() {
                self.index.bases.push(BaseHead { name, priority, line });
            }
        }
        self.skip_statement();
    }

    /// Reads the hook and the priority from the rest of a `type` statement.
    fn rest_of_type(&mut self) -> (&'a str, i32) {
        let (mut hook, mut priority) = ("", 0_i32);
        while !self.is_end_of_rule() {
            if self.eat("hook") {
                hook = self.token().text;
            } else if self.eat("priority") {
                let (mut sign, mut is_sign) = (1, false);
                while !self.is_end_of_rule() && !self.token().is("device") {
                    let text = self.token().text;
                    match text {
                        "+" | "-" => (sign, is_sign) = (if text == "-" { -1 } else { 1 }, true),
                        text => {
                            let named = names::named(&PRIORITIES, text);
                            let value = named.unwrap_or_else(|| text.parse().unwrap_or(0));
                            priority = if is_sign { priority.saturating_add(sign * value) } else { value };
                        }
                    }
                    self.at += 1;
                }
                return (hook, priority);
            }
            self.at += 1;
        }
        (hook, priority)
    }

    /// Reads a statement of a chain that is reached.
    fn statement(&mut self, name: Name<'a>) {
        let (begun, token) = (self.at, self.token());
        if token.is("type") {
            self.skip_statement();
        } else if self.eat("policy") {
            match verdict(self.next().text) {
                Some(verdict) => _ = self.policies.insert(name, verdict),
                None => {
                    self.policies.insert(name, Verdict::Drop);
                    self.refuse(token.fault("a policy is `accept` or `drop`"), begun);
                }
            }
        } else {
            self.rule(name);
        }
    }

    /// Skips a chain whose rules are not read. Warns if packets of the hook pass it, and may end there.
    fn other_chain(&mut self, begun: Token<'a>, (table, name): Name<'a>) {
        let inside = self.at;
        self.skip_block("the chain", begun);
        let tokens = &self.tokens[inside..self.at.min(self.tokens.len())];
        let hook = self.index.hooks.get(&(table, name)).copied();
        let Some(hook) = hook.filter(|hook| self.come_through(table, hook)) else { return };
        let decides = |token: &&Token<'a>| token.kind == Kind::Word && DECIDES.contains(&token.text);
        if let Some(at) = tokens.iter().find(decides) {
            let (what, ours) = (at.text, &self.hook.name);
            let reason = format!("and its `{what}`: packets of hook {ours} pass it");
            let reason = format!("the chain `{name}` of hook {hook} is left out, {reason}");
            self.list.warnings.push(at.fault(reason));
        }
    }

    /// Whether packets of the selected hook pass another hook too.
    fn come_through(&self, table: Table<'a>, hook: &str) -> bool {
        let others: &[&str] = match self.hook.name.as_str() {
            "input" => &["ingress", "prerouting"],
            "output" => &["postrouting"],
            _ => &["ingress", "prerouting", "postrouting"],
        };
        table.addresses().is_none() || hook == self.hook.name || others.contains(&hook)
    }

    /// Appends the rows of the selected chains. Reports a fault if there are none.
    fn rows(&mut self) {
        let Some(BaseHead { line, name: (first, _), .. }) = self.index.bases.first() else {
            if self.list.faults.is_empty() {
                let reason = format!("there is no chain with `type filter hook {}`", self.hook.name);
                self.list.faults.push(Fault { line: 1, column: 1, reason });
            }
            return;
        };
        let family = first.addresses().unwrap_or_default();
        let of_table = |base: &BaseHead<'_>| base.name.0.addresses().unwrap_or_default();
        if family != Family::Any && self.index.bases.iter().all(|base| of_table(base) == family) {
            let (of, other) = if family == Family::V4 { ("ip", "IPv6") } else { ("ip6", "IPv4") };
            let reason =
                format!("packets of {other} match no row of a list of `table {of}`, and are dropped");
            self.list.warnings.push(Fault { line: *line, column: 1, reason });
        }
        let policy = |name: &Name<'a>| self.policies.get(name).copied().unwrap_or(Verdict::Accept);
        let bases: Vec<Base> = self
            .index
            .bases
            .iter()
            .map(|base| Base {
                name: id(base.name),
                policy: policy(&base.name),
                family: of_table(base),
                line: base.line,
            })
            .collect();
        chains::flatten(&self.chains, &bases, &mut self.list);
    }

    /// Reads a rule, and appends its statements to its chain: one for each alternative.
    fn rule(&mut self, (table, chain): Name<'a>) {
        let (begun, line) = (self.at, self.token().line);
        let draft = match self.draft(table) {
            Ok(draft) => draft,
            Err(fault) => return self.refuse(fault, begun),
        };
        let Draft { rule, decision, alternatives, .. } = draft;
        let others = alternatives.iter().flatten().map(|(alternative, _)| alternative.weight());
        let copies = alternatives.as_ref().map_or(1, Vec::len);
        self.kept += rule.weight().saturating_mul(copies).saturating_add(others.sum::<usize>());
        if rule.is_too_long || self.kept > VALUES_MAX {
            let all = "the rules have too many values in total";
            let reason = if rule.is_too_long { rule::TOO_LONG } else { all };
            return self.refuse(Fault { line, column: 1, reason: reason.to_owned() }, begun);
        }
        let statements = self.chains.entry(id((table, chain))).or_default();
        let mut add = |rule: Rule, decision: Option<Decision>| {
            // A rule without a verdict counts or logs; packets go on.
            statements.extend(decision.map(|decision| Statement { rule, decision, line }));
        };
        match alternatives {
            None => add(rule, decision),
            Some(alternatives) => {
                for (alternative, by_map) in alternatives {
                    add(rule.and(&alternative), by_map.or_else(|| decision.clone()));
                }
            }
        }
    }

    /// Reads the tests and statements of a rule, up to its end. Fails if text follows the verdict.
    fn draft(&mut self, table: Table<'a>) -> Read<Draft<'a>> {
        let mut draft = Draft::default();
        if let Some(family) = table.addresses().filter(|family| *family != Family::Any) {
            draft.rule.only(family);
        }
        while !self.is_end_of_rule() {
            let at = self.token();
            self.test(&mut draft, table)?;
            let is_done = draft.decision.is_some() || draft.has_map || at.is("continue");
            if is_done && !self.token().is("comment") && !self.is_end_of_rule() {
                let last = if draft.has_map { "vmap" } else { at.text };
                return Err(self.token().fault(format!("unexpected text after `{last}`")));
            }
        }
        self.of_protocols_with_ports(&mut draft)?;
        self.without_limit(&mut draft);
        Ok(draft)
    }

    /// Restricts a rule that tests ports of any protocol to protocols whose ports a row can test.
    fn of_protocols_with_ports(&mut self, draft: &mut Draft<'a>) -> Read<()> {
        let Some(at) = draft.bare_ports else { return Ok(()) };
        let mut is_told = true;
        match &mut draft.alternatives {
            None => {
                is_told = draft.rule.has_protocol_of_ports(&at)?;
                if !is_told {
                    draft.rule.protocols(&rule::WITH_PORTS, false);
                }
            }
            Some(alternatives) => {
                for (alternative, _) in alternatives {
                    if !draft.rule.and(alternative).has_protocol_of_ports(&at)? {
                        is_told = false;
                        alternative.protocols(&rule::WITH_PORTS, false);
                    }
                }
            }
        }
        if !is_told {
            self.list.warnings.push(at.fault("`th` is supported for TCP, UDP and SCTP only"));
        }
        Ok(())
    }

    fn is_end_of_rule(&self) -> bool {
        matches!(self.token().kind, Kind::Line | Kind::End) || self.token().is(";") || self.token().is("}")
    }

    /// The next token, which must be a value.
    fn value(&mut self) -> Read<Token<'a>> {
        let token = self.token().closed()?;
        if !token.is_value() {
            return Err(token.fault("expected a value"));
        }
        self.at += 1;
        Ok(token)
    }

    /// Skips to the end of the statement that begins at `begun`, from any position in it.
    fn skip_from(&mut self, begun: usize) {
        self.at = begun;
        self.at += usize::from(self.token().is("}"));
        self.skip_statement();
    }

    /// Skips to the end of the line, including blocks.
    fn skip_statement(&mut self) {
        while !self.is_end_of_rule() {
            let token = self.next();
            if token.is("{") {
                self.skip_block("the block", token);
            }
        }
    }

    /// Skips to the end of an open block.
    fn skip_block(&mut self, what: &str, begun: Token<'a>) {
        let mut depth = 1;
        while depth > 0 {
            if self.token().kind == Kind::End {
                return self.report_cut(what, begun);
            }
            let token = self.next();
            depth += i32::from(token.is("{")) - i32::from(token.is("}"));
        }
    }
}

/// Maximum number of rule values that are stored until the end of the list.
const VALUES_MAX: usize = 16 * ROWS_MAX;

/// Named priorities of chains.
const PRIORITIES: [(&str, i32); 6] =
    [("raw", -300), ("mangle", -150), ("dstnat", -100), ("filter", 0), ("security", 50), ("srcnat", 100)];

/// Statements that decide about packets or translate them.
const DECIDES: [&str; 15] = [
    "drop",
    "reject",
    "notrack",
    "queue",
    "jump",
    "goto",
    "vmap",
    "dnat",
    "snat",
    "masquerade",
    "redirect",
    "tproxy",
    "synproxy",
    "fwd",
    "set",
];

/// Parses the policy of a base chain.
fn verdict(text: &str) -> Option<Verdict> {
    match text {
        "accept" => Some(Verdict::Accept),
        "drop" => Some(Verdict::Drop),
        _ => None,
    }
}
