//! `nft list ruleset`: tables, sets, and the rules of base chains of type filter.

use super::rule::{self, Family, Flags, Net, Rule, Verdict, once};
use super::tokens::{Kind, Token, tokens};
use super::{FAULTS_MAX, Fault, Hook, List};
use std::collections::BTreeMap;

/// Reads a list.
pub(crate) fn read(text: &str, hook: &Hook) -> List {
    let tokens = tokens(text, true);
    let mut sets = BTreeMap::new();
    // A rule may name a set that comes later.
    Reader::new(&tokens, hook, &mut sets).file(true);
    let mut reader = Reader::new(&tokens, hook, &mut sets);
    reader.file(false);
    let Reader { mut list, taken, .. } = reader;
    if taken.is_none() && list.faults.is_empty() {
        let reason = format!("there is no chain with `type filter hook {}`", hook.name);
        list.faults.push(Fault { line: 1, column: 1, reason });
    }
    list
}

struct Reader<'a, 's> {
    tokens: &'a [Token<'a>],
    at: usize,
    hook: &'a Hook,
    /// The elements of sets by table and name.
    sets: &'s mut BTreeMap<(String, String), Vec<Token<'a>>>,
    list: List,
    /// Where the chain of the hook is.
    taken: Option<u32>,
    /// It has been told that the list ends too early.
    is_cut: bool,
}

/// What stands on the right of a test.
struct Values<'a> {
    values: Vec<Token<'a>>,
    negated: bool,
}

type Read<T> = Result<T, Fault>;

impl<'a, 's> Reader<'a, 's> {
    fn new(
        tokens: &'a [Token<'a>],
        hook: &'a Hook,
        sets: &'s mut BTreeMap<(String, String), Vec<Token<'a>>>,
    ) -> Self {
        Self { tokens, at: 0, hook, sets, list: List::default(), taken: None, is_cut: false }
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

    fn file(&mut self, sets_only: bool) {
        self.skip_lines();
        while !self.is_at_end() {
            let token = self.next();
            if token.is("table") {
                self.table(token, sets_only);
            } else if token.is("flush") {
                self.skip_statement();
            } else {
                self.note(token.fault(format!("`{}` is not read here: only `table`", token.text)));
                self.skip_statement();
            }
            self.skip_lines();
        }
    }

    fn table(&mut self, begun: Token<'a>, sets_only: bool) {
        let (first, second) = (self.next(), self.token());
        let (family, name) = match first.text {
            "ip" if !second.is("{") => (Family::V4, self.next().text),
            "ip6" if !second.is("{") => (Family::V6, self.next().text),
            "inet" if !second.is("{") => (Family::Any, self.next().text),
            "arp" | "bridge" | "netdev" if !second.is("{") => {
                self.next();
                if self.eat("{") {
                    self.skip_block("the table", begun);
                }
                return;
            }
            name => (Family::V4, name),
        };
        if !self.eat("{") {
            let token = self.token();
            self.note(token.fault("a table begins with `{`"));
            return self.skip_statement();
        }
        loop {
            self.skip_lines();
            if self.eat("}") {
                return;
            }
            if self.is_at_end() {
                return self.note_cut("the table", begun);
            }
            let token = self.next();
            let named = self.next();
            let has_body = self.eat("{");
            match token.text {
                "chain" if has_body => self.chain(token, family, name, sets_only),
                "set" if has_body => self.set(token, name, named.text, sets_only),
                other => {
                    if !sets_only && other != "comment" {
                        self.note(
                            token.fault(format!("`{other}` is not read in a table: only `chain` and `set`")),
                        );
                    }
                    if has_body { self.skip_block("the block", token) } else { self.skip_statement() }
                }
            }
        }
    }

    fn set(&mut self, begun: Token<'a>, table: &str, name: &str, sets_only: bool) {
        let mut elements = Vec::new();
        loop {
            self.skip_lines();
            if self.eat("}") {
                break;
            }
            if self.is_at_end() {
                return self.note_cut("the set", begun);
            }
            if self.eat("elements") {
                self.eat("=");
                let open = self.token();
                if self.eat("{") {
                    match self.elements(open) {
                        Ok(found) => elements = found,
                        Err(fault) => {
                            self.note(fault);
                            return self.skip_block("the set", begun);
                        }
                    }
                }
            } else if sets_only {
                self.skip_statement();
            } else {
                let token = self.token();
                if !["type", "flags", "auto-merge", "size", "comment", "typeof"].contains(&token.text) {
                    self.note(token.fault(format!("`{}` is not read in a set", token.text)));
                }
                self.skip_statement();
            }
        }
        self.sets.insert((table.to_owned(), name.to_owned()), elements);
    }

    /// Up to the `}`.
    fn elements(&mut self, open: Token<'a>) -> Read<Vec<Token<'a>>> {
        let mut all = Vec::new();
        loop {
            let token = self.next().closed()?;
            match token.kind {
                Kind::Mark if token.text == "}" => return Ok(all),
                Kind::End => return Err(self.cut("the set", open)),
                _ if token.is_value() => all.push(token),
                _ => {}
            }
        }
    }

    fn chain(&mut self, begun: Token<'a>, family: Family, table: &str, sets_only: bool) {
        if sets_only {
            return self.skip_block("the chain", begun);
        }
        let (mut is_taken, mut policy, mut line) = (false, Verdict::Accept, 0);
        loop {
            self.skip_lines();
            if self.is_at_end() {
                return self.note_cut("the chain", begun);
            }
            let token = self.token();
            if self.eat("}") {
                break;
            }
            if self.eat("type") {
                is_taken = self.base(token);
                line = token.line;
            } else if self.eat("policy") {
                match verdict(self.next().text) {
                    Some(verdict) => policy = verdict,
                    None => self.note(token.fault("a policy is `accept` or `drop`")),
                }
            } else if is_taken {
                self.rule(family, table);
            } else {
                self.skip_statement();
            }
        }
        if is_taken
            && policy == Verdict::Accept
            && let Err(fault) = rule::policy(policy, family, line, &mut self.list.rows)
        {
            self.note(fault);
        }
    }

    /// `type filter hook forward priority 0`: whether this is the chain that is meant.
    fn base(&mut self, at: Token<'a>) -> bool {
        let is_filter = self.eat("filter");
        let mut hook = "";
        while !matches!(self.token().kind, Kind::Line | Kind::End) && !self.token().is(";") {
            if self.eat("hook") {
                hook = self.token().text;
            }
            self.at += 1;
        }
        if !is_filter || hook != self.hook.name {
            return false;
        }
        if let Some(line) = self.taken {
            let reason =
                format!("a second chain of hook {hook}, after that of line {line}: only one is read");
            self.note(at.fault(reason));
            return false;
        }
        self.taken = Some(at.line);
        true
    }

    fn rule(&mut self, family: Family, table: &str) {
        let line = self.token().line;
        let mut rule = Rule::default();
        if family != Family::Any {
            rule.only(family);
        }
        while !self.is_end_of_rule() {
            let at = self.token();
            if let Err(fault) = self.test(&mut rule, table) {
                self.note(fault);
                return self.skip_statement();
            }
            if rule.verdict.is_some() && !self.token().is("comment") && !self.is_end_of_rule() {
                let token = self.token();
                self.note(token.fault(format!("nothing is read behind `{}`", at.text)));
                return self.skip_statement();
            }
        }
        if let Err(reason) = rule.into_rows(line, &mut self.list.rows) {
            self.note(Fault { line, column: 1, reason });
        }
    }

    fn is_end_of_rule(&self) -> bool {
        matches!(self.token().kind, Kind::Line | Kind::End) || self.token().is(";") || self.token().is("}")
    }

    /// One test or statement of a rule.
    fn test(&mut self, rule: &mut Rule, table: &str) -> Read<()> {
        let token = self.next();
        match token.text {
            "ip" => self.header(rule, table, false),
            "ip6" => self.header(rule, table, true),
            "tcp" => self.ports(rule, table, &[6]),
            "udp" => self.ports(rule, table, &[17]),
            "sctp" => self.ports(rule, table, &[132]),
            "th" => self.ports(rule, table, &[6, 17, 132]),
            "icmp" => self.icmp(rule, table, false),
            "icmpv6" => self.icmp(rule, table, true),
            "meta" => self.meta(rule, table),
            "iif" | "iifname" => self.arrives(rule, table),
            "oif" | "oifname" => self.leaves(rule, table, token),
            "ct" => self.state(rule, table),
            "counter" => {
                if self.eat("packets") {
                    self.at += 1;
                    if self.eat("bytes") {
                        self.at += 1;
                    }
                }
                Ok(())
            }
            "log" => {
                while ["prefix", "level", "group", "flags", "snaplen"].contains(&self.token().text) {
                    self.at += 2;
                }
                Ok(())
            }
            "comment" => {
                rule.comment = Some(self.value()?.text.to_owned());
                Ok(())
            }
            "reject" => {
                rule.verdict = Some(Verdict::Reject);
                if self.eat("with") {
                    while !self.is_end_of_rule() && !self.token().is("comment") {
                        self.at += 1;
                    }
                }
                Ok(())
            }
            other => match verdict(other) {
                Some(verdict) => {
                    rule.verdict = Some(verdict);
                    Ok(())
                }
                None => Err(token.fault(format!("`{other}` is not read in a rule"))),
            },
        }
    }

    /// What must follow.
    fn value(&mut self) -> Read<Token<'a>> {
        let token = self.token().closed()?;
        if !token.is_value() {
            return Err(token.fault("a value is to follow"));
        }
        self.at += 1;
        Ok(token)
    }

    fn header(&mut self, rule: &mut Rule, table: &str, is_v6: bool) -> Read<()> {
        rule.only(if is_v6 { Family::V6 } else { Family::V4 });
        let field = self.next();
        match field.text {
            "saddr" => {
                let nets = self.nets(table, is_v6)?;
                once(&mut rule.src, nets, &field)
            }
            "daddr" => {
                let nets = self.nets(table, is_v6)?;
                once(&mut rule.dst, nets, &field)
            }
            "protocol" | "nexthdr" => self.protocols(rule, table),
            other => {
                Err(field.fault(format!("the field `{other}` is not read: only saddr, daddr and protocol")))
            }
        }
    }

    fn nets(&mut self, table: &str, is_v6: bool) -> Read<Vec<Net>> {
        let Values { values, negated } = self.values(table)?;
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
        rule::networks(nets, negated, &values[0])
    }

    fn protocols(&mut self, rule: &mut Rule, table: &str) -> Read<()> {
        let Values { values, negated } = self.values(table)?;
        let number = |token: &Token<'a>| {
            rule::protocol(token.text).ok_or_else(|| token.fault(format!("`{}` is no protocol", token.text)))
        };
        let numbers = values.iter().map(number).collect::<Read<Vec<u8>>>()?;
        rule.protocols(&numbers, negated);
        Ok(())
    }

    fn ports(&mut self, rule: &mut Rule, table: &str, protocols: &[u8]) -> Read<()> {
        let field = self.next();
        let is_src = match field.text {
            "sport" => true,
            "dport" => false,
            "flags" if protocols == [rule::TCP] => return self.flags(rule, field),
            other => {
                return Err(field.fault(format!("the field `{other}` is not read: only sport and dport")));
            }
        };
        rule.protocols(protocols, false);
        let Values { values, negated } = self.values(table)?;
        let read = |token: &Token<'a>| {
            rule::ports(token.text, '-')
                .ok_or_else(|| token.fault(format!("`{}` is no port or range of ports", token.text)))
        };
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

    fn icmp(&mut self, rule: &mut Rule, table: &str, is_v6: bool) -> Read<()> {
        let field = self.next();
        if !field.is("type") {
            return Err(field.fault(format!("the field `{}` is not read: only type", field.text)));
        }
        rule.only(if is_v6 { Family::V6 } else { Family::V4 });
        rule.protocols(&[if is_v6 { 58 } else { 1 }], false);
        let Values { values, negated } = self.values(table)?;
        if negated {
            return Err(field.fault("`!=` is not read of a type"));
        }
        let read = |token: &Token<'a>| {
            rule::icmp_type(token.text, is_v6)
                .ok_or_else(|| token.fault(format!("`{}` is no type of message", token.text)))
        };
        once(&mut rule.icmp, values.iter().map(read).collect::<Read<Vec<_>>>()?, &field)
    }

    fn meta(&mut self, rule: &mut Rule, table: &str) -> Read<()> {
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

    fn arrives(&mut self, rule: &mut Rule, table: &str) -> Read<()> {
        let at = self.token();
        let Values { values, negated } = self.values(table)?;
        if negated {
            return Err(at.fault("`!=` is not read of an interface"));
        }
        rule::no_pattern(&values)?;
        once(&mut rule.at, values.iter().map(|token| token.text.to_owned()).collect(), &at)
    }

    fn leaves(&mut self, rule: &mut Rule, table: &str, at: Token<'a>) -> Read<()> {
        let Values { values, negated } = self.values(table)?;
        rule.leaves(&at, &values, negated, self.hook)
    }

    fn state(&mut self, rule: &mut Rule, table: &str) -> Read<()> {
        let key = self.next();
        if !key.is("state") {
            return Err(key.fault(format!("`ct {}` is not read: only `ct state`", key.text)));
        }
        let Values { values, negated } = self.values(table)?;
        rule.states(&key, values.iter().map(|token| (token.text, *token)), negated)
    }

    /// What is behind a test: `[!=] x`, `{ x, y }`, `@set`, or `x,y`.
    fn values(&mut self, table: &str) -> Read<Values<'a>> {
        let negated = self.eat("!=");
        if !negated && self.eat("=") {
            self.eat("=");
        }
        let first = self.token();
        let values = if self.eat("{") {
            self.elements(first)?
        } else if let Some(name) = first.text.strip_prefix('@') {
            self.at += 1;
            let known = self.sets.get(&(table.to_owned(), name.to_owned()));
            known
                .cloned()
                .ok_or_else(|| first.fault(format!("there is no set `{name}` in table `{table}`")))?
        } else {
            let mut values = vec![self.value()?];
            while self.eat(",") {
                values.push(self.value()?);
            }
            values
        };
        if values.is_empty() {
            return Err(first.fault("the set is empty"));
        }
        if let Some(variable) = values.iter().find(|token| token.text.starts_with('$')) {
            return Err(variable.fault("variables are not read: give what `nft list ruleset` prints"));
        }
        Ok(Values { values, negated })
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

fn verdict(text: &str) -> Option<Verdict> {
    match text {
        "accept" => Some(Verdict::Accept),
        "drop" => Some(Verdict::Drop),
        _ => None,
    }
}
