//! The tests of rules: one or more keys, and the values that they must have.

use super::{Decision, Draft, Element, Family, Key, Kind, Read, Reader, Rule, Side, Table, Token, Values};
use crate::names;
use crate::net::Net;
use crate::rule::{self, Flags};
use std::collections::BTreeSet;

impl<'a> Reader<'a> {
    /// Reads a test: `key value`, `key . key { value . value }`, or `key vmap { value : verdict }`.
    pub(super) fn keyed(&mut self, draft: &mut Draft<'a>, table: Table<'a>, first: Token<'a>) -> Read<()> {
        let (mut keys, mut next) = (Vec::new(), first);
        loop {
            if next.is("th") {
                draft.bare_ports = Some(next);
            }
            keys.push(self.key(&mut draft.rule, next)?);
            if !self.eat(".") {
                break;
            }
            next = self.next();
        }
        let is_map = self.eat("vmap");
        if let ([(Key::Port(side), _)], false) = (&keys[..], is_map)
            && let Some(ports) = self.beyond()?
        {
            draft.rule.ports(*side, vec![ports], false);
            return Ok(());
        }
        let at = self.token();
        let Some(Values { elements, negated }) = self.values(&mut draft.rule, table, is_map)? else {
            return Ok(());
        };
        if let Some(other) = elements.iter().find(|element| element.values.len() != keys.len()) {
            let reason = match keys.len() {
                1 => "a concatenation `a . b` needs a concatenation of keys",
                _ => "an element needs a value for each key, separated by `.`",
            };
            return Err(other.values[0].fault(reason));
        }
        let found = elements.iter().find_map(|element| element.verdict.as_ref().filter(|_| !is_map));
        if let Some((at, _)) = found {
            return Err(at.fault("an element has a verdict only after `vmap`"));
        }
        if let ([(key, key_at)], false) = (&keys[..], is_map) {
            let values: Vec<Token<'a>> = elements.iter().map(|element| element.values[0]).collect();
            return self.narrow(&mut draft.rule, *key, key_at, &values, negated);
        }
        if negated {
            return Err(at.fault("`!=` is not supported for concatenations"));
        }
        if draft.alternatives.is_some() {
            return Err(first.fault("a rule may have one concatenation or map"));
        }
        draft.has_map |= is_map;
        draft.alternatives = Some(self.alternatives(&keys, &elements, (at, is_map))?);
        Ok(())
    }

    /// Returns one rule for each element of a set or map, with the element's verdict. Fails if an element occurs
    /// twice, or has no verdict in a map.
    fn alternatives(
        &self,
        keys: &[(Key, Token<'a>)],
        elements: &[Element<'a>],
        (at, is_map): (Token<'a>, bool),
    ) -> Read<Vec<(Rule, Option<Decision>)>> {
        let (mut alternatives, mut known) = (Vec::new(), BTreeSet::new());
        for Element { values, verdict } in elements {
            if !known.insert(values.iter().map(|value| value.text).collect::<Vec<_>>()) {
                return Err(values[0].fault(format!("`{}` is given twice", values[0].text)));
            }
            let mut rule = Rule::default();
            for ((key, key_at), value) in keys.iter().zip(values) {
                self.narrow(&mut rule, *key, key_at, &[*value], false)?;
            }
            match (verdict, is_map) {
                (None, true) => {
                    let reason = format!("`{}` has no verdict", values[0].text);
                    return Err(at.fault(reason));
                }
                // `continue`: the packet proceeds to the next statement, as if no element matched.
                (Some((_, None)), _) => {}
                (Some((_, decision)), _) => alternatives.push((rule, decision.clone())),
                (None, false) => alternatives.push((rule, None)),
            }
        }
        Ok(alternatives)
    }

    /// Reads a range of ports that is open at one end: `>= 1024`.
    fn beyond(&mut self) -> Read<Option<(u16, u16)>> {
        let at = self.token();
        let is_below = match at.text {
            "<" => true,
            ">" => false,
            _ => return Ok(None),
        };
        self.at += 1;
        let is_included = self.eat("=");
        let value = self.value()?;
        let (port, other) = names::ports(&value, value.text, '-')?;
        if port != other {
            return Err(value.fault("expected a single port"));
        }
        let range = match (is_below, is_included) {
            (true, true) => Some((0, port)),
            (true, false) => port.checked_sub(1).map(|last| (0, last)),
            (false, true) => Some((port, u16::MAX)),
            (false, false) => port.checked_add(1).map(|first| (first, u16::MAX)),
        };
        range.map(Some).ok_or_else(|| value.fault("there is no such port"))
    }

    /// The key that begins with this word, and its position.
    fn key(&mut self, rule: &mut Rule, first: Token<'a>) -> Read<(Key, Token<'a>)> {
        let key = match first.text {
            "ip" => self.header(rule, false)?,
            "ip6" => self.header(rule, true)?,
            "tcp" => self.port(rule, &[rule::TCP])?,
            "udp" => self.port(rule, &[17])?,
            "sctp" => self.port(rule, &[132])?,
            "th" => self.port(rule, &[])?,
            "icmp" => self.icmp(rule, false)?,
            "icmpv6" | "icmp6" => self.icmp(rule, true)?,
            "meta" => self.meta()?,
            "iif" | "iifname" => Key::In,
            "oif" | "oifname" => Key::Out,
            "ct" => self.state()?,
            other => return Err(first.fault(format!("`{other}` is not supported in a rule"))),
        };
        Ok((key, self.tokens[self.at - 1]))
    }

    /// Reads a field of the IP header, and restricts the rule to its IP version.
    fn header(&mut self, rule: &mut Rule, is_v6: bool) -> Read<Key> {
        rule.only(if is_v6 { Family::V6 } else { Family::V4 });
        let field = self.next();
        match field.text {
            "saddr" => Ok(Key::Address(Side::Source, is_v6)),
            "daddr" => Ok(Key::Address(Side::Destination, is_v6)),
            "protocol" if !is_v6 => Ok(Key::Protocol),
            "nexthdr" if is_v6 => Ok(Key::NextHeader),
            other => Err(field.fault(format!(
                "the field `{other}` is not supported: only saddr, daddr, protocol and nexthdr"
            ))),
        }
    }

    /// Reads `sport` or `dport`, and restricts the rule to `protocols` if there are any.
    fn port(&mut self, rule: &mut Rule, protocols: &[u8]) -> Read<Key> {
        let field = self.next();
        let side = match field.text {
            "sport" => Side::Source,
            "dport" => Side::Destination,
            other => {
                return Err(
                    field.fault(format!("the field `{other}` is not supported: only sport and dport"))
                );
            }
        };
        if !protocols.is_empty() {
            rule.protocols(protocols, false);
        }
        Ok(Key::Port(side))
    }

    /// Reads `type` or `code` of ICMP or ICMPv6, and restricts the rule to that protocol.
    fn icmp(&mut self, rule: &mut Rule, is_v6: bool) -> Read<Key> {
        let field = self.next();
        let key = match field.text {
            "type" => Key::Icmp(is_v6),
            "code" => Key::IcmpCode(is_v6),
            other => {
                return Err(field.fault(format!("the field `{other}` is not supported: only type and code")));
            }
        };
        rule.only(if is_v6 { Family::V6 } else { Family::V4 });
        rule.protocols(&[if is_v6 { 58 } else { 1 }], false);
        Ok(key)
    }

    /// Reads the key after `meta`.
    fn meta(&mut self) -> Read<Key> {
        let key = self.next();
        match key.text {
            "l4proto" => Ok(Key::Protocol),
            "iif" | "iifname" => Ok(Key::In),
            "oif" | "oifname" => Ok(Key::Out),
            other => Err(key.fault(format!("`meta {other}` is not supported"))),
        }
    }

    /// Reads `state` after `ct`.
    fn state(&mut self) -> Read<Key> {
        let key = self.next();
        match key.is("state") {
            true => Ok(Key::State),
            false => Err(key.fault(format!("`ct {}` is not supported: only `ct state`", key.text))),
        }
    }

    /// Reads `ipv4` or `ipv6`, and restricts the rule to that family.
    pub(super) fn family(&mut self, rule: &mut Rule) -> Read<()> {
        let family = self.next();
        match family.text {
            "ipv4" => rule.only(Family::V4),
            "ipv6" => rule.only(Family::V6),
            _ => return Err(family.fault("expected ipv4 or ipv6")),
        }
        Ok(())
    }

    /// Restricts the rule to packets whose key has one of these values, or none of them.
    fn narrow(
        &self,
        rule: &mut Rule,
        key: Key,
        at: &Token<'a>,
        values: &[Token<'a>],
        negated: bool,
    ) -> Read<()> {
        match key {
            Key::Address(side, is_v6) => rule.networks(side, nets(values, is_v6)?, negated),
            Key::Protocol => {
                let numbers = values.iter().map(names::protocol).collect::<Read<Vec<u8>>>()?;
                rule.protocols(&numbers, negated);
            }
            Key::Port(side) => {
                let read = |token: &Token<'a>| names::ports(token, token.text, '-');
                rule.ports(side, values.iter().map(read).collect::<Read<Vec<_>>>()?, negated);
            }
            Key::Icmp(is_v6) => {
                let read = |token: &Token<'a>| names::icmp_type(token, is_v6);
                rule.icmp(&values.iter().map(read).collect::<Read<Vec<_>>>()?, negated);
            }
            Key::IcmpCode(is_v6) => {
                let read = |token: &Token<'a>| names::icmp_code(token, is_v6);
                rule.icmp_codes(&values.iter().map(read).collect::<Read<Vec<_>>>()?, negated);
            }
            Key::NextHeader => {
                let numbers = values.iter().map(names::next_header).collect::<Read<Vec<u8>>>()?;
                rule.next_headers(&numbers, negated);
            }
            Key::In => {
                interfaces(values)?;
                rule.arrives(at, values, negated, (self.hook, '*'))?;
            }
            Key::Out => {
                interfaces(values)?;
                rule.leaves(at, values, negated, (self.hook, '*'))?;
            }
            Key::State => {
                let named: Vec<_> = values.iter().map(|token| (token.text, *token)).collect();
                rule.states(&named, negated)?;
            }
        }
        Ok(())
    }

    /// Reads `tcp flags syn`, `syn / fin,syn,rst`, `& (fin | syn) == syn`, each with an optional `!=`; also `! syn`
    /// and `{ syn, syn | ack }`.
    pub(super) fn flags(&mut self, rule: &mut Rule, at: Token<'a>) -> Read<()> {
        if self.eat("&") {
            let mask = self.flag_names(true)?;
            let negated = self.eat("!=");
            let is_told = negated || self.eat("=");
            self.eat("=");
            if !is_told && !self.token().is("{") {
                return Err(at.fault("expected `==` or `!=`"));
            }
            return self.flag_sets(rule, mask, negated);
        }
        let (differs, is_exact, is_none) = (self.eat("!="), self.eat("="), self.eat("!"));
        self.eat("=");
        if self.token().is("{") {
            return self.flag_sets(rule, u8::MAX, differs);
        }
        let names = self.flag_names(true)?;
        if self.eat("/") {
            let mask = self.flag_names(true)?;
            rule.flags(&[Flags { bits: names, mask }], differs);
        } else if differs || is_exact {
            rule.flags(&[Flags { bits: names, mask: u8::MAX }], differs);
        } else {
            rule.flags(&[Flags { bits: 0, mask: names }], !is_none);
        }
        Ok(())
    }

    /// The value of these flags: one value, or one of the values in `{ }`.
    fn flag_sets(&mut self, rule: &mut Rule, mask: u8, negated: bool) -> Read<()> {
        let open = self.token();
        let all = match self.eat("{") {
            true => self.in_braces(open, |list| list.flag_names(false))?,
            false => vec![self.flag_names(true)?],
        };
        let all: Vec<Flags> = all.into_iter().map(|bits| Flags { bits, mask }).collect();
        rule.flags(&all, negated);
        Ok(())
    }

    /// Names of flags, separated by `|`, or by `,` outside of a list, with optional parentheses.
    fn flag_names(&mut self, by_comma: bool) -> Read<u8> {
        let (mut bits, mut depth) = (0, 0_i32);
        loop {
            let token = self.next();
            if !matches!(token.kind, Kind::Word) {
                return Err(token.fault("expected a TCP flag"));
            }
            for name in token.text.split(['(', ')', '|']).filter(|name| !name.is_empty()) {
                let flag = names::tcp_flag(name);
                bits |= flag.ok_or_else(|| token.fault(format!("`{name}` is not a TCP flag")))?;
            }
            let count = |of: char| token.text.matches(of).count() as i32;
            depth += count('(') - count(')');
            let goes_on = (by_comma && self.eat(","))
                || self.token().text.starts_with('|')
                || token.text.ends_with('|');
            if depth <= 0 && !goes_on {
                return Ok(bits);
            }
        }
    }

    /// Reads the values of a test: `[!=] x`, `{ x, y }`, `@set`, or `x,y`. `None` for an empty set, which contains no
    /// value: the rule matches no packet, or with `!=`, any packet.
    fn values(&mut self, rule: &mut Rule, table: Table<'a>, is_map: bool) -> Read<Option<Values<'a>>> {
        let negated = !is_map && self.eat("!=");
        let is_exact = negated || (!is_map && self.eat("="));
        self.eat("=");
        let first = self.token();
        let elements = if self.eat("{") {
            self.elements(first)?
        } else if let Some(name) = first.text.strip_prefix('@') {
            self.at += 1;
            match self.index.sets.get(&(table, name)) {
                Some(Some(elements)) if elements.is_empty() => {
                    rule.is_never |= !negated;
                    return Ok(None);
                }
                Some(Some(elements)) => elements.clone(),
                Some(None) => return Err(first.fault(format!("the set `{name}` is not supported"))),
                None => {
                    return Err(first.fault(format!("there is no set `{name}` in table `{}`", table.name)));
                }
            }
        } else if first.is("map") || is_map {
            return Err(first.fault("a map follows `vmap`, in `{ }` or by name"));
        } else {
            let one = |reader: &mut Self| {
                let mut values = vec![reader.value()?];
                while reader.eat(".") {
                    values.push(reader.value()?);
                }
                Ok(Element { values, verdict: None })
            };
            let mut elements = vec![one(self)?];
            while self.eat(",") {
                elements.push(one(self)?);
            }
            if is_exact && elements.len() > 1 {
                // With `ct state != new,established` both would have to be set at once.
                return Err(first.fault("write several values after `!=` or `==` in `{ }`"));
            }
            elements
        };
        if elements.is_empty() {
            return Err(first.fault("the set is empty"));
        }
        let mut values = elements.iter().flat_map(|element| &element.values);
        if let Some(variable) = values.find(|token| token.text.starts_with('$')) {
            return Err(variable.fault("variables are not supported: pass the output of `nft list ruleset`"));
        }
        Ok(Some(Values { elements, negated }))
    }
}

/// Addresses, networks and address ranges.
fn nets(values: &[Token<'_>], is_v6: bool) -> Read<Vec<Net>> {
    let mut nets = Vec::new();
    for token in values {
        let read = match token.text.split_once('-') {
            Some((from, to)) => Net::of_range(from, to),
            None => Net::read(token.text).map(|net| vec![net]),
        };
        let read = read.filter(|nets| nets.iter().all(|net| net.is_v6 == is_v6));
        let what = if is_v6 { "IPv6" } else { "IPv4" };
        nets.extend(read.ok_or_else(|| {
            token.fault(format!("`{}` is not an {what} address, network or range", token.text))
        })?);
    }
    Ok(nets)
}

/// Checks that these are interface names, and neither indexes nor operators.
fn interfaces(names: &[Token<'_>]) -> Read<()> {
    let is_name = |token: &Token<'_>| match token.kind {
        Kind::Text => !token.text.contains('\\'),
        _ => {
            let is_inner = |c: char| c.is_ascii_alphanumeric() || "/-_.*".contains(c);
            token.text.starts_with(|c: char| c.is_ascii_alphabetic()) && token.text.chars().all(is_inner)
        }
    };
    match names.iter().find(|token| !is_name(token)) {
        Some(token) => Err(token.fault(format!("`{}` is not an interface name", token.text))),
        None => Ok(()),
    }
}
