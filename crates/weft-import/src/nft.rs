//! `nft list ruleset`: tables, sets, and the rules of base chains of type filter.

use super::rule::{self, Family, Flags, Net, Rule, Verdict, once};
use super::tokens::{Kind, Token, tokens};
use super::{FAULTS_MAX, Fault, Hook, List};
use std::collections::BTreeMap;

/// Reads a list.
pub(crate) fn read(text: &str, hook: &Hook) -> List {
    let tokens = tokens(text, true);
    // A rule may name a set that comes later, and a chain may go on behind another.
    let mut names = Reader::new(&tokens, hook, Known::default(), true);
    names.file();
    let mut reader = Reader::new(&tokens, hook, names.known, false);
    reader.file();
    reader.policy();
    reader.list
}

/// A table by what makes it another: `inet` and `ip6` may both have a `filter`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Table<'a> {
    family: &'a str,
    name: &'a str,
}

/// A chain or a set of a table.
type Name<'a> = (Table<'a>, &'a str);

/// What holds in all of a list, wherever it stands.
#[derive(Default)]
struct Known<'a> {
    /// The elements of sets; None where they are not understood.
    sets: BTreeMap<Name<'a>, Option<Vec<Token<'a>>>>,
    /// The hooks of base chains.
    hooks: BTreeMap<Name<'a>, &'a str>,
    /// The chain that is meant, and its line.
    taken: Option<(Name<'a>, u32)>,
}

struct Reader<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
    hook: &'a Hook,
    known: Known<'a>,
    /// It only looks for what is known.
    is_first: bool,
    list: List,
    policy: Verdict,
    has_table: bool,
    /// It has been told that the list ends too early.
    is_cut: bool,
}

/// What stands on the right of a test.
struct Values<'a> {
    values: Vec<Token<'a>>,
    negated: bool,
}

type Read<T> = Result<T, Fault>;

impl<'a> Table<'a> {
    /// Which addresses its packets have, if its rules are read.
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
    fn new(tokens: &'a [Token<'a>], hook: &'a Hook, known: Known<'a>, is_first: bool) -> Self {
        Self {
            tokens,
            at: 0,
            hook,
            known,
            is_first,
            list: List::default(),
            policy: Verdict::Accept,
            has_table: false,
            is_cut: false,
        }
    }

    fn token(&self) -> Token<'a> {
        self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.token();
        self.at += 1;
        token
    }

    fn eat(&mut self, text: &str) -> bool {
        let is = self.token().is(text);
        self.at += usize::from(is);
        is
    }

    fn skip_lines(&mut self) {
        while self.token().kind == Kind::Line || self.token().is(";") {
            self.at += 1;
        }
    }

    fn is_at_end(&self) -> bool {
        self.token().kind == Kind::End || self.list.faults.len() >= FAULTS_MAX
    }

    fn note(&mut self, fault: Fault) {
        if self.list.faults.len() < FAULTS_MAX {
            self.list.faults.push(fault);
        }
    }

    /// Tells what is wrong in a statement, and goes on behind all of it.
    fn refuse(&mut self, fault: Fault, begun: usize) {
        self.note(fault);
        self.skip_from(begun);
    }

    /// That the list ends within something, which has begun at this place.
    fn cut(&mut self, what: &str, begun: Token<'a>) -> Fault {
        self.is_cut = true;
        let end = self.tokens[self.tokens.len() - 1];
        let line = begun.line;
        end.fault(format!(
            "the list ends here without the `}}` of {what} of line {line}: give all that `nft list ruleset` prints"
        ))
    }

    /// Tells it if the list ends here, unless it was told of what is inside.
    fn note_cut(&mut self, what: &str, begun: Token<'a>) {
        if self.token().kind == Kind::End && !self.is_cut {
            let fault = self.cut(what, begun);
            self.note(fault);
        }
    }

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
                    let reason = "`flush` is read as the first of a list, of all or a table: give what \
                                  `nft list ruleset` prints";
                    self.refuse(token.fault(reason), begun);
                }
                other => self.refuse(token.fault(format!("`{other}` is not read here: only `table`")), begun),
            }
            self.skip_lines();
        }
    }

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
                return self.note_cut(what, begun);
            }
            statement(self);
        }
    }

    /// Something in a table.
    fn object(&mut self, table: Table<'a>) {
        let begun = self.at;
        let (token, named) = (self.next(), self.next());
        let name = (table, named.text);
        match (token.text, self.eat("{")) {
            ("chain", true) => self.chain(token, name),
            ("set", true) if table.addresses().is_some() => self.set(token, name),
            ("comment", false) => self.skip_from(begun),
            _ if table.addresses().is_none() => self.skip_from(begun),
            (other, _) => {
                let reason = format!("`{other}` is not read in a table: only `chain` and `set`");
                self.refuse(token.fault(reason), begun);
            }
        }
    }

    fn set(&mut self, begun: Token<'a>, name: Name<'a>) {
        let mut elements = Some(Vec::new());
        self.block("the set", begun, |reader| reader.of_set(&mut elements));
        if !self.is_first {
            return;
        }
        let known = self.known.sets.entry(name).or_insert_with(|| Some(Vec::new()));
        *known = known.take().zip(elements).map(|(mut all, more)| {
            all.extend(more);
            all
        });
    }

    /// A statement in a set.
    fn of_set(&mut self, elements: &mut Option<Vec<Token<'a>>>) {
        const KNOWN: [&str; 7] = ["type", "flags", "auto-merge", "size", "comment", "typeof", "counter"];
        let (begun, token) = (self.at, self.token());
        if self.eat("elements") {
            self.eat("=");
            let open = self.token();
            let read = if self.eat("{") { self.elements(open) } else { Err(open.fault("`{` is to follow")) };
            match read {
                Ok(found) => elements.iter_mut().for_each(|all| all.extend(&found)),
                Err(fault) => {
                    *elements = None;
                    self.refuse(fault, begun);
                }
            }
        } else if KNOWN.contains(&token.text) {
            self.skip_statement();
        } else {
            *elements = None;
            self.refuse(token.fault(format!("`{}` is not read in a set", token.text)), begun);
        }
    }

    /// Up to the `}`.
    fn elements(&mut self, open: Token<'a>) -> Read<Vec<Token<'a>>> {
        self.in_braces(open, |list| {
            let element = list.value()?;
            list.of_element()?;
            Ok(element)
        })
    }

    /// What is in `{ }`, with commas between, behind the `{`.
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
                return Err(token.fault(format!("`{}` is not read of an element", token.text)));
            }
        }
    }

    /// To what is next in a set.
    fn skip_newlines(&mut self, open: Token<'a>) -> Read<()> {
        while self.token().kind == Kind::Line {
            self.at += 1;
        }
        if self.token().kind == Kind::End { Err(self.cut("the set", open)) } else { Ok(()) }
    }

    /// What may stand behind an element and does not change what it is.
    fn of_element(&mut self) -> Read<()> {
        loop {
            let token = self.token();
            if self.eat("comment") {
                self.value()?;
            } else if self.eat("counter") {
                self.counter()?;
            } else if token.is(":") {
                return Err(token.fault("maps are not read"));
            } else {
                return self.no_pair();
            }
        }
    }

    /// That no `.` follows, which makes a pair with what comes behind it.
    fn no_pair(&self) -> Read<()> {
        let token = self.token();
        let reason = "pairs as `a . b` are not read: write a rule for each";
        if token.is(".") { Err(token.fault(reason)) } else { Ok(()) }
    }

    fn counter(&mut self) -> Read<()> {
        if self.eat("packets") {
            self.value()?;
            if self.eat("bytes") {
                self.value()?;
            }
        }
        Ok(())
    }

    fn chain(&mut self, begun: Token<'a>, name: Name<'a>) {
        if self.is_first {
            self.block("the chain", begun, |reader| reader.head(name));
        } else if self.known.taken.is_some_and(|(taken, _)| taken == name) {
            self.block("the chain", begun, |reader| reader.statement(name.0));
        } else {
            self.other_chain(begun, name);
        }
    }

    /// Keeps what `type filter hook forward priority 0` says.
    fn head(&mut self, name: Name<'a>) {
        let line = self.token().line;
        if self.eat("type") {
            let is_filter = self.eat("filter");
            let hook = self.hook_of_type();
            self.known.hooks.insert(name, hook);
            let is_meant = is_filter && hook == self.hook.name && name.0.addresses().is_some();
            if is_meant && self.known.taken.is_none() {
                self.known.taken = Some((name, line));
            }
        }
        self.skip_statement();
    }

    /// The hook in the rest of a `type`, which it leaves behind.
    fn hook_of_type(&mut self) -> &'a str {
        let mut hook = "";
        while !self.is_end_of_rule() {
            if self.eat("hook") {
                hook = self.token().text;
            }
            self.at += 1;
        }
        hook
    }

    /// A statement of the chain that is meant.
    fn statement(&mut self, table: Table<'a>) {
        let (begun, token) = (self.at, self.token());
        if token.is("type") {
            self.skip_statement();
        } else if self.eat("policy") {
            match verdict(self.next().text) {
                Some(verdict) => self.policy = verdict,
                None => {
                    self.policy = Verdict::Drop;
                    self.refuse(token.fault("a policy is `accept` or `drop`"), begun);
                }
            }
        } else {
            self.rule(table);
        }
    }

    /// A chain whose rules are not read: it is told if packets come through it, too, and may end there.
    fn other_chain(&mut self, begun: Token<'a>, (table, name): Name<'a>) {
        let inside = self.at;
        self.skip_block("the chain", begun);
        let tokens = &self.tokens[inside..self.at.min(self.tokens.len())];
        let hook = self.known.hooks.get(&(table, name)).copied();
        let Some(hook) = hook.filter(|hook| self.come_through(table, hook)) else { return };
        let is_second = |pair: &&[Token<'a>]| pair[0].is("type") && pair[1].is("filter");
        let second = tokens.windows(2).find(is_second).map(|pair| pair[0]);
        if hook == self.hook.name
            && table.addresses().is_some()
            && let Some((at, (_, line))) = second.zip(self.known.taken)
        {
            let reason =
                format!("a second chain of hook {hook}, after that of line {line}: only one is read");
            return self.note(at.fault(reason));
        }
        let decides = |token: &&Token<'a>| token.kind == Kind::Word && DECIDES.contains(&token.text);
        if let Some(at) = tokens.iter().find(decides) {
            let (what, ours) = (at.text, &self.hook.name);
            let reason = format!("and its `{what}`: packets of hook {ours} come through it");
            let reason = format!("the chain `{name}` of hook {hook} is left out, {reason}");
            self.list.warnings.push(at.fault(reason));
        }
    }

    /// Whether packets of the hook that is meant pass another hook, too.
    fn come_through(&self, table: Table<'a>, hook: &str) -> bool {
        let others: &[&str] = match self.hook.name.as_str() {
            "input" => &["ingress", "prerouting"],
            "output" => &["postrouting"],
            _ => &["ingress", "prerouting", "postrouting"],
        };
        table.addresses().is_none() || hook == self.hook.name || others.contains(&hook)
    }

    /// The row of the policy, which comes behind those of all rules; or that there is no chain.
    fn policy(&mut self) {
        let Some(((table, _), line)) = self.known.taken else {
            if self.list.faults.is_empty() {
                let reason = format!("there is no chain with `type filter hook {}`", self.hook.name);
                self.list.faults.push(Fault { line: 1, column: 1, reason });
            }
            return;
        };
        let family = table.addresses().unwrap_or_default();
        if self.policy == Verdict::Accept
            && let Err(fault) = rule::policy(self.policy, family, line, &mut self.list.rows)
        {
            self.note(fault);
        }
    }

    fn rule(&mut self, table: Table<'a>) {
        let (begun, line) = (self.at, self.token().line);
        let read = self.rule_of(table).and_then(|rule| {
            let rows = &mut self.list.rows;
            rule.into_rows(line, rows).map_err(|reason| Fault { line, column: 1, reason })
        });
        if let Err(fault) = read {
            self.refuse(fault, begun);
        }
    }

    fn rule_of(&mut self, table: Table<'a>) -> Read<Rule> {
        let mut rule = Rule::default();
        if let Some(family) = table.addresses().filter(|family| *family != Family::Any) {
            rule.only(family);
        }
        let mut bare_ports = None;
        while !self.is_end_of_rule() {
            let at = self.token();
            if at.is("th") {
                bare_ports = Some(at);
            }
            self.test(&mut rule, table)?;
            if rule.verdict.is_some() && !self.token().is("comment") && !self.is_end_of_rule() {
                return Err(self.token().fault(format!("nothing is read behind `{}`", at.text)));
            }
        }
        if let Some(at) = bare_ports
            && !rule.has_protocol_of_ports(&at)?
        {
            rule.protocols(&rule::WITH_PORTS, false);
            self.list.warnings.push(at.fault("`th` is read of TCP, UDP and SCTP, and of no other protocol"));
        }
        Ok(rule)
    }

    fn is_end_of_rule(&self) -> bool {
        matches!(self.token().kind, Kind::Line | Kind::End) || self.token().is(";") || self.token().is("}")
    }

    /// One test or statement of a rule.
    fn test(&mut self, rule: &mut Rule, table: Table<'a>) -> Read<()> {
        let token = self.next().closed()?;
        if token.kind != Kind::Word {
            return Err(token.fault(format!("`{}` is not read in a rule", token.text)));
        }
        match token.text {
            "ip" => self.header(rule, table, false),
            "ip6" => self.header(rule, table, true),
            "tcp" => self.ports(rule, table, &[6]),
            "udp" => self.ports(rule, table, &[17]),
            "sctp" => self.ports(rule, table, &[132]),
            "th" => self.ports(rule, table, &[]),
            "icmp" => self.icmp(rule, table, false),
            "icmpv6" => self.icmp(rule, table, true),
            "meta" => self.meta(rule, table),
            "iif" | "iifname" => self.arrives(rule, table),
            "oif" | "oifname" => self.leaves(rule, table, token),
            "ct" => self.state(rule, table),
            "counter" => self.counter(),
            "log" => {
                while ["prefix", "level", "group", "flags", "snaplen"].contains(&self.token().text) {
                    self.at += 1;
                    self.value()?;
                }
                Ok(())
            }
            "comment" => {
                rule.comment = Some(self.value()?.text.to_owned());
                Ok(())
            }
            "reject" => {
                rule.verdict = Some(Verdict::Reject.into());
                if self.eat("with") { self.answer(rule) } else { Ok(()) }
            }
            other => match verdict(other) {
                Some(verdict) => {
                    rule.verdict = Some(verdict.into());
                    Ok(())
                }
                None => Err(token.fault(format!("`{other}` is not read in a rule"))),
            },
        }
    }

    /// How it is refused says what is: nft prints `meta nfproto ipv6 reject` as `reject with icmpv6 port-unreachable`.
    fn answer(&mut self, rule: &mut Rule) -> Read<()> {
        let kind = self.value()?;
        match kind.text {
            "icmp" => rule.only(Family::V4),
            "icmpv6" => rule.only(Family::V6),
            "icmpx" => {}
            "tcp" => rule.protocols(&[rule::TCP], false),
            other => return Err(kind.fault(format!("`{other}` is no way to refuse"))),
        }
        self.eat("type");
        self.value().map(drop)
    }

    /// What must follow.
    fn value(&mut self) -> Read<Token<'a>> {
        self.no_pair()?;
        let token = self.token().closed()?;
        if !token.is_value() {
            return Err(token.fault("a value is to follow"));
        }
        self.at += 1;
        Ok(token)
    }

    fn header(&mut self, rule: &mut Rule, table: Table<'a>, is_v6: bool) -> Read<()> {
        rule.only(if is_v6 { Family::V6 } else { Family::V4 });
        let field = self.next();
        match field.text {
            "saddr" => {
                let Some(nets) = self.nets(rule, table, is_v6)? else { return Ok(()) };
                once(&mut rule.src, nets, &field)
            }
            "daddr" => {
                let Some(nets) = self.nets(rule, table, is_v6)? else { return Ok(()) };
                once(&mut rule.dst, nets, &field)
            }
            "protocol" if !is_v6 => self.protocols(rule, table),
            "nexthdr" if is_v6 => Err(field.fault(
                "`ip6 nexthdr` is what follows the first header, and rows are for what a packet carries behind all: \
                 write `meta nfproto ipv6 meta l4proto` with the number",
            )),
            other => {
                Err(field.fault(format!("the field `{other}` is not read: only saddr, daddr and protocol")))
            }
        }
    }

    fn nets(&mut self, rule: &mut Rule, table: Table<'a>, is_v6: bool) -> Read<Option<Vec<Net>>> {
        let Some(Values { values, negated }) = self.values(rule, table)? else { return Ok(None) };
        let mut nets = Vec::new();
        for token in &values {
            let read = match token.text.split_once('-') {
                Some((from, to)) => Net::of_range(from, to),
                None => Net::read(token.text).map(|net| vec![net]),
            };
            let read = read.filter(|nets| nets.iter().all(|net| net.is_v6 == is_v6));
            let what = if is_v6 { "IPv6" } else { "IPv4" };
            nets.extend(read.ok_or_else(|| {
                token.fault(format!("`{}` is no {what} address, network or range", token.text))
            })?);
        }
        rule::networks(nets, negated, &values[0]).map(Some)
    }

    fn protocols(&mut self, rule: &mut Rule, table: Table<'a>) -> Read<()> {
        let Some(Values { values, negated }) = self.values(rule, table)? else { return Ok(()) };
        let numbers = values.iter().map(rule::protocol).collect::<Read<Vec<u8>>>()?;
        rule.protocols(&numbers, negated);
        Ok(())
    }

    fn ports(&mut self, rule: &mut Rule, table: Table<'a>, protocols: &[u8]) -> Read<()> {
        let field = self.next();
        let is_src = match field.text {
            "sport" => true,
            "dport" => false,
            "flags" if protocols == [rule::TCP] => return self.flags(rule, field),
            other => {
                return Err(field.fault(format!("the field `{other}` is not read: only sport and dport")));
            }
        };
        if !protocols.is_empty() {
            rule.protocols(protocols, false);
        }
        let Some(Values { values, negated }) = self.values(rule, table)? else { return Ok(()) };
        let read = |token: &Token<'a>| rule::ports(token, token.text, '-');
        let ports = values.iter().map(read).collect::<Read<Vec<_>>>()?;
        let ports = if negated { rule::other_ports(ports) } else { ports };
        once(if is_src { &mut rule.src_ports } else { &mut rule.dst_ports }, ports, &field)
    }

    /// `tcp flags syn`, `syn / fin,syn,rst`, `& (fin | syn) == syn`, each perhaps with `!=`, and `! syn`.
    fn flags(&mut self, rule: &mut Rule, at: Token<'a>) -> Read<()> {
        if self.eat("&") {
            let mask = self.flag_names()?;
            let negated = self.eat("!=");
            let is_told = negated || self.eat("=");
            self.eat("=");
            if !is_told {
                return Err(at.fault("`==` or `!=` is to follow"));
            }
            let bits = self.flag_names()?;
            return rule.flags(&at, Flags { bits, mask }, negated);
        }
        let (differs, is_exact, is_none) = (self.eat("!="), self.eat("="), self.eat("!"));
        self.eat("=");
        let names = self.flag_names()?;
        if self.eat("/") {
            let mask = self.flag_names()?;
            return rule.flags(&at, Flags { bits: names, mask }, differs);
        }
        match (differs || is_exact, is_none) {
            (true, _) => rule.flags(&at, Flags { bits: names, mask: u8::MAX }, differs),
            (_, is_none) => rule.flags(&at, Flags { bits: 0, mask: names }, !is_none),
        }
    }

    /// Names of flags with `|` or `,` between, perhaps in parentheses.
    fn flag_names(&mut self) -> Read<u8> {
        let (mut bits, mut depth) = (0, 0_i32);
        loop {
            let token = self.next();
            if !matches!(token.kind, Kind::Word) {
                return Err(token.fault("a flag of TCP is to follow"));
            }
            for name in token.text.split(['(', ')', '|']).filter(|name| !name.is_empty()) {
                let flag = rule::tcp_flag(name);
                bits |= flag.ok_or_else(|| token.fault(format!("`{name}` is no flag of TCP")))?;
            }
            let count = |of: char| token.text.matches(of).count() as i32;
            depth += count('(') - count(')');
            let goes_on = self.eat(",") || self.token().text.starts_with('|') || token.text.ends_with('|');
            if depth <= 0 && !goes_on {
                return Ok(bits);
            }
        }
    }

    fn icmp(&mut self, rule: &mut Rule, table: Table<'a>, is_v6: bool) -> Read<()> {
        let field = self.next();
        if !field.is("type") {
            return Err(field.fault(format!("the field `{}` is not read: only type", field.text)));
        }
        rule.only(if is_v6 { Family::V6 } else { Family::V4 });
        rule.protocols(&[if is_v6 { 58 } else { 1 }], false);
        let Some(Values { values, negated }) = self.values(rule, table)? else { return Ok(()) };
        if negated {
            return Err(field.fault("`!=` is not read of a type"));
        }
        let read = |token: &Token<'a>| rule::icmp_type(token, is_v6);
        once(&mut rule.icmp, values.iter().map(read).collect::<Read<Vec<_>>>()?, &field)
    }

    fn meta(&mut self, rule: &mut Rule, table: Table<'a>) -> Read<()> {
        let key = self.next();
        match key.text {
            "l4proto" => self.protocols(rule, table),
            "iif" | "iifname" => self.arrives(rule, table),
            "oif" | "oifname" => self.leaves(rule, table, key),
            "nfproto" => {
                let family = self.next();
                match family.text {
                    "ipv4" => rule.only(Family::V4),
                    "ipv6" => rule.only(Family::V6),
                    _ => return Err(family.fault("ipv4 or ipv6 is to follow")),
                }
                Ok(())
            }
            other => Err(key.fault(format!("`meta {other}` is not read"))),
        }
    }

    fn arrives(&mut self, rule: &mut Rule, table: Table<'a>) -> Read<()> {
        let at = self.token();
        let Some(Values { values, negated }) = self.values(rule, table)? else { return Ok(()) };
        interfaces(&values)?;
        rule.arrives(&at, &values, negated, self.hook)
    }

    fn leaves(&mut self, rule: &mut Rule, table: Table<'a>, at: Token<'a>) -> Read<()> {
        let Some(Values { values, negated }) = self.values(rule, table)? else { return Ok(()) };
        interfaces(&values)?;
        rule.leaves(&at, &values, negated, self.hook)
    }

    fn state(&mut self, rule: &mut Rule, table: Table<'a>) -> Read<()> {
        let key = self.next();
        if !key.is("state") {
            return Err(key.fault(format!("`ct {}` is not read: only `ct state`", key.text)));
        }
        if self.eat("vmap") {
            return self.by_state(rule, key);
        }
        let Some(Values { values, negated }) = self.values(rule, table)? else { return Ok(()) };
        let named: Vec<_> = values.iter().map(|token| (token.text, *token)).collect();
        rule.states(&key, &named, negated)
    }

    /// `ct state vmap { established : accept, invalid : drop }`.
    fn by_state(&mut self, rule: &mut Rule, key: Token<'a>) -> Read<()> {
        let open = self.token();
        if !self.eat("{") {
            return Err(open.fault("maps with a name are not read: write it out behind `vmap`, in `{ }`"));
        }
        let all = self.in_braces(open, Self::state_with_verdict)?;
        rule.decide_by_state(&key, &all)
    }

    /// An element of such a map: None is done with packets that go on.
    fn state_with_verdict(&mut self) -> Read<(Token<'a>, Option<Verdict>)> {
        let state = self.value()?;
        while self.eat("counter") {
            self.counter()?;
        }
        let between = self.token();
        if !self.eat(":") {
            return Err(between.fault("`:` is to follow, and what becomes of such packets"));
        }
        let does = self.value()?;
        match (does.text, verdict(does.text)) {
            ("continue", _) => Ok((state, None)),
            (_, Some(verdict)) => Ok((state, Some(verdict))),
            (other, None) => {
                Err(does.fault(format!("`{other}` is not read in a map: only accept, drop and continue")))
            }
        }
    }

    /// What is behind a test: `[!=] x`, `{ x, y }`, `@set`, or `x,y`. None of a set that is empty: nothing is in it, so
    /// that the rule is for no packet, or, with `!=`, the test for any.
    fn values(&mut self, rule: &mut Rule, table: Table<'a>) -> Read<Option<Values<'a>>> {
        let negated = self.eat("!=");
        let is_exact = negated || self.eat("=");
        self.eat("=");
        let first = self.token();
        let values = if self.eat("{") {
            self.elements(first)?
        } else if let Some(name) = first.text.strip_prefix('@') {
            self.at += 1;
            match self.known.sets.get(&(table, name)) {
                Some(Some(elements)) if elements.is_empty() => {
                    rule.is_never |= !negated;
                    return Ok(None);
                }
                Some(Some(elements)) => elements.clone(),
                Some(None) => return Err(first.fault(format!("the set `{name}` is not read"))),
                None => {
                    return Err(first.fault(format!("there is no set `{name}` in table `{}`", table.name)));
                }
            }
        } else if first.is("vmap") || first.is("map") {
            return Err(first.fault("maps are not read"));
        } else {
            let mut values = vec![self.value()?];
            while self.eat(",") {
                values.push(self.value()?);
            }
            if is_exact && values.len() > 1 {
                // Of `ct state != new,established` both would have to be there at once.
                return Err(first.fault("several values behind `!=` or `==` are read in `{ }`"));
            }
            values
        };
        self.no_pair()?;
        if values.is_empty() {
            return Err(first.fault("the set is empty"));
        }
        if let Some(variable) = values.iter().find(|token| token.text.starts_with('$')) {
            return Err(variable.fault("variables are not read: give what `nft list ruleset` prints"));
        }
        Ok(Some(Values { values, negated }))
    }

    /// Behind the statement that begins there, wherever in it the reader is.
    fn skip_from(&mut self, begun: usize) {
        self.at = begun;
        self.at += usize::from(self.token().is("}"));
        self.skip_statement();
    }

    /// To the end of the line, over blocks in it.
    fn skip_statement(&mut self) {
        while !self.is_end_of_rule() {
            let token = self.next();
            if token.is("{") {
                self.skip_block("the block", token);
            }
        }
    }

    /// Behind the `}` of a block that has begun.
    fn skip_block(&mut self, what: &str, begun: Token<'a>) {
        let mut depth = 1;
        while depth > 0 {
            if self.token().kind == Kind::End {
                return self.note_cut(what, begun);
            }
            let token = self.next();
            depth += i32::from(token.is("{")) - i32::from(token.is("}"));
        }
    }
}

/// What decides about packets, or makes others of them.
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

/// That these are names of interfaces, and neither patterns, indexes nor operators.
fn interfaces(names: &[Token<'_>]) -> Read<()> {
    rule::no_pattern(names)?;
    let is_name = |token: &Token<'_>| match token.kind {
        Kind::Text => !token.text.contains('\\'),
        _ => {
            let is_inner = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
            token.text.starts_with(|c: char| c.is_ascii_alphabetic()) && token.text.chars().all(is_inner)
        }
    };
    match names.iter().find(|token| !is_name(token)) {
        Some(token) => Err(token.fault(format!("`{}` is no name of an interface", token.text))),
        None => Ok(()),
    }
}

fn verdict(text: &str) -> Option<Verdict> {
    match text {
        "accept" => Some(Verdict::Accept),
        "drop" => Some(Verdict::Drop),
        _ => None,
    }
}
