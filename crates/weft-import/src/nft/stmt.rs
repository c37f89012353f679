//! The statements of rules: verdicts, statements without an effect, and statements that are left out with a warning.

use super::{Decision, Draft, Family, Kind, Read, Reader, Rule, Table, Token};
use crate::chains::Decision::{Goto, Jump, Of, Return};
use crate::names::answer;
use crate::rule::{self, Answer, Verdict};

/// Address translations, which belong into chains of type nat.
const TRANSLATES: [&str; 5] = ["dnat", "snat", "masquerade", "redirect", "tproxy"];
/// Options of `log` with a value.
const OF_LOG: [&str; 6] = ["prefix", "level", "group", "flags", "snaplen", "queue-threshold"];

impl<'a> Reader<'a> {
    /// Reads one test or statement of a rule into the draft.
    pub(super) fn test(&mut self, draft: &mut Draft<'a>, table: Table<'a>) -> Read<()> {
        let token = self.next().closed()?;
        if token.kind != Kind::Word {
            return Err(token.fault(format!("`{}` is not supported in a rule", token.text)));
        }
        match token.text {
            "counter" if self.eat("name") => self.value().map(drop),
            "counter" => self.counter(),
            "log" => self.log(),
            "limit" => self.limit(draft, token),
            "comment" => {
                draft.rule.comment = Some(self.value()?.text.to_owned());
                Ok(())
            }
            "continue" => Ok(()),
            "reject" => self.reject(draft),
            // Packets that a flow table forwards are accepted.
            "flow" if self.eat("add") || self.eat("offload") => self.value().map(drop),
            "tcp" if self.token().is("flags") => {
                let at = self.next();
                self.flags(&mut draft.rule, at)
            }
            "tcp" if self.token().is("option") => self.option(token),
            "meta" if self.eat("nfproto") => self.family(&mut draft.rule),
            "meta" | "ct" | "ip" | "ip6" if self.is_set_behind() => self.sets(token),
            "meta" | "ct" if self.eat("mark") => self.mark(&mut draft.rule, token),
            "ct" if self.eat("status") => self.status(&mut draft.rule),
            "fib" => self.fib(draft, token),
            other if TRANSLATES.contains(&other) => Err(token.fault(format!(
                "`{other}` translates addresses, and belongs in a chain of type nat: a filter cannot translate"
            ))),
            other => match self.decision(other)? {
                Some(decision) => {
                    draft.decision = Some(decision);
                    Ok(())
                }
                None => self.keyed(draft, table, token),
            },
        }
    }

    /// The meaning of a verdict; `None` if the text is none. Reads the chain's name too.
    pub(super) fn decision(&mut self, text: &str) -> Read<Option<Decision>> {
        Ok(Some(match text {
            "accept" => Of(Verdict::Accept, Answer::default()),
            "drop" => Of(Verdict::Drop, Answer::default()),
            "return" => Return,
            "jump" => Jump(self.chain_name()?),
            "goto" => Goto(self.chain_name()?),
            _ => return Ok(None),
        }))
    }

    /// Reads the name of an existing chain.
    fn chain_name(&mut self) -> Read<String> {
        let at = self.value()?;
        let Some(table) = self.table else { return Ok(at.text.to_owned()) };
        // Only the second pass knows all chains.
        if !self.is_first && !self.index.calls.get(&table).is_some_and(|chains| chains.contains_key(at.text))
        {
            return Err(at.fault(format!("there is no chain `{}` in table `{}`", at.text, table.name)));
        }
        Ok(super::id((table, at.text)))
    }

    /// Skips the options of a `log` statement.
    fn log(&mut self) -> Read<()> {
        while OF_LOG.contains(&self.token().text) {
            let option = self.next();
            let value = self.value()?;
            // `flags tcp sequence,options`
            if option.is("flags") && ["tcp", "ip"].contains(&value.text) {
                self.value()?;
                while self.eat(",") {
                    self.value()?;
                }
            }
        }
        Ok(())
    }

    /// Reads a rate limit, or with `over` its opposite. Rows have no rates: the rule holds always, or never.
    fn limit(&mut self, draft: &mut Draft<'a>, at: Token<'a>) -> Read<()> {
        if self.eat("name") {
            self.value()?;
        } else {
            if !self.eat("rate") {
                return Err(self.token().fault("expected `rate` or `name`"));
            }
            draft.is_over = self.eat("over");
            // `5/second`, `10 mbytes/second`
            self.value()?;
            if self.token().text.contains("bytes/") {
                self.at += 1;
            }
            if self.eat("burst") {
                self.value()?;
                self.value()?;
            }
        }
        draft.limit = Some(at);
        Ok(())
    }

    /// Resolves a rule with a rate limit, once all of the rule is read.
    pub(super) fn without_limit(&mut self, draft: &mut Draft<'a>) {
        let Some(at) = draft.limit else { return };
        if draft.decision.is_none() && !draft.has_map {
            return;
        }
        draft.rule.is_never |= draft.is_over;
        self.list.warnings.push(at.fault(match draft.is_over {
            true => "rates are not supported: the rule, which applies above the rate, is left out",
            false => "rates are not supported: the rule also applies above the rate",
        }));
    }

    /// Reads `reject with icmpx admin-prohibited`. The kind of the reply implies the protocol: nft prints `meta
    /// nfproto ipv6 reject` as `reject with icmpv6 port-unreachable`.
    fn reject(&mut self, draft: &mut Draft<'a>) -> Read<()> {
        let (mut verdict, mut with) = (Verdict::Reject, Answer::default());
        if self.eat("with") {
            let kind = self.value()?;
            self.eat("type");
            let named = self.value()?;
            match kind.text {
                "icmp" => draft.rule.only(Family::V4),
                "icmpv6" => draft.rule.only(Family::V6),
                "icmpx" => {}
                "tcp" if named.is("reset") || named.is("rst") => {
                    draft.rule.protocols(&[rule::TCP], false);
                    verdict = Verdict::Reset;
                }
                other => return Err(kind.fault(format!("`{other} {}` is not a way to reject", named.text))),
            }
            if verdict == Verdict::Reject {
                with = answer(kind.text, &named)?;
            }
        }
        draft.decision = Some(Of(verdict, with));
        Ok(())
    }

    /// Whether the rule sets this field or mark: `meta mark set 0x1`.
    fn is_set_behind(&self) -> bool {
        self.tokens.get(self.at + 1).is_some_and(|token| token.is("set"))
    }

    /// Skips an assignment to a packet, which decides nothing.
    fn sets(&mut self, of: Token<'a>) -> Read<()> {
        let field = self.next();
        self.at += 1;
        self.value()?;
        let behind = self.token();
        if ["&", "|", "^", "and", "or", "xor", "<<", ">>"].contains(&behind.text) {
            return Err(behind.fault("computed values are not supported: only a single value"));
        }
        if !field.is("nftrace") {
            let what = format!("`{} {} set` is left out: packets keep their value", of.text, field.text);
            self.list.warnings.push(of.fault(what));
        }
        Ok(())
    }

    /// One value, or the values in `{ }`.
    fn one_or_braced(&mut self) -> Read<Vec<Token<'a>>> {
        let open = self.token();
        if self.eat("{") { self.in_braces(open, Self::value) } else { Ok(vec![self.value()?]) }
    }

    /// Reads a test of a mark: `meta mark 0x1`, `!= 0x1`, `& 0xff == 0x1`, `{ 0x1, 0x2 }`. All packets have mark 0
    /// here.
    fn mark(&mut self, rule: &mut Rule, at: Token<'a>) -> Read<()> {
        if self.eat("&") || self.eat("and") {
            self.value()?;
        }
        let negated = self.eat("!=");
        if !negated && self.eat("=") {
            self.eat("=");
        }
        let values = self.one_or_braced()?;
        let mut has_zero = false;
        for value in values {
            let digits = value.text.strip_prefix("0x").unwrap_or(value.text);
            let number = u32::from_str_radix(digits, 16);
            has_zero |= number.map_err(|_| value.fault(format!("`{}` is not a mark", value.text)))? == 0;
        }
        rule.is_never |= has_zero == negated;
        self.list.warnings.push(at.fault(rule::UNMARKED));
        Ok(())
    }

    /// Reads a `tcp option` statement: `tcp option maxseg size set rt mtu`.
    fn option(&mut self, at: Token<'a>) -> Read<()> {
        let words: Vec<&str> = (1..4).filter_map(|nth| Some(self.tokens.get(self.at + nth)?.text)).collect();
        if words != ["maxseg", "size", "set"] {
            return Err(at.fault("TCP options are not supported: only `maxseg size set`"));
        }
        self.at += 4;
        if self.eat("rt") {
            self.eat("mtu");
        } else {
            self.value()?;
        }
        self.list.warnings.push(at.fault("the MSS is not changed"));
        Ok(())
    }

    /// Reads `ct status dnat`. This program has no address translation, so no packet has this status.
    fn status(&mut self, rule: &mut Rule) -> Read<()> {
        let negated = self.eat("!=");
        let is_braced = self.token().is("{");
        let mut names = self.one_or_braced()?;
        while !is_braced && self.eat(",") {
            names.push(self.value()?);
        }
        match names.iter().find(|name| !["dnat", "snat"].contains(&name.text)) {
            Some(other) => {
                Err(other.fault(format!("the status `{}` is not supported: only dnat and snat", other.text)))
            }
            None => {
                rule.is_never |= !negated;
                Ok(())
            }
        }
    }

    /// Reads a `fib` test: `fib daddr type { local, broadcast }`.
    fn fib(&mut self, draft: &mut Draft<'a>, at: Token<'a>) -> Read<()> {
        if !(self.eat("daddr") && self.eat("type")) {
            return Err(at.fault("of `fib` only `fib daddr type` is supported"));
        }
        let negated = self.eat("!=");
        let names = self.one_or_braced()?;
        let sorts = rule::AddressSorts::of(&names, negated, &self.hook.name)?;
        self.list.warnings.extend(sorts.is_guessed().then(|| at.fault(rule::GUESSED)));
        match draft.rule.family {
            Family::Any if draft.alternatives.is_some() => Err(
                at.fault("write `meta nfproto` in front of it: concatenations and maps need one IP version")
            ),
            Family::Any => {
                let of = |family: Family| {
                    let mut rule = Rule { family, ..Rule::default() };
                    sorts.narrow(&mut rule, family);
                    (rule, None)
                };
                draft.alternatives = Some([Family::V4, Family::V6].map(of).into());
                Ok(())
            }
            family => {
                sorts.narrow(&mut draft.rule, family);
                Ok(())
            }
        }
    }
}
