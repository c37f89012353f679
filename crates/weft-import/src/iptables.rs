//! `iptables-save` and `ip6tables-save`: the rules of one built-in chain of the table `filter`.

use super::rule::{self, Family, Net, Rule, Verdict};
use super::tokens::{Kind, Token, tokens};
use super::{FAULTS_MAX, Fault, Hook, List};

/// Reads a list.
pub(crate) fn read(text: &str, hook: &Hook, is_v6: bool) -> List {
    let tokens = tokens(text, false);
    let mut list = List::default();
    let chain = hook.name.to_ascii_uppercase();
    let family = if is_v6 { Family::V6 } else { Family::V4 };
    let (mut is_filter, mut policy) = (false, None);
    for line in tokens.split(|token| matches!(token.kind, Kind::Line | Kind::End)) {
        let Some(first) = line.first() else { continue };
        if list.faults.len() >= FAULTS_MAX {
            break;
        }
        if let Some(table) = first.text.strip_prefix('*') {
            is_filter = table == "filter";
        } else if !is_filter || first.is("COMMIT") {
            continue;
        } else if let Some(name) = first.text.strip_prefix(':') {
            if name != chain {
                continue;
            }
            match line.get(1).and_then(|token| verdict(token.text)) {
                Some(verdict) => policy = Some((verdict, first.line)),
                None => list.faults.push(fault(first, "a policy is ACCEPT or DROP".to_owned())),
            }
        } else if let Err(fault) = rule_of(line, &chain, hook, family, &mut list) {
            list.faults.push(fault);
        }
    }
    match policy {
        Some((Verdict::Accept, line)) => {
            list.faults.extend(rule::policy(Verdict::Accept, family, line, &mut list.rows).err());
        }
        Some(_) => {}
        None if list.faults.is_empty() => {
            let reason = format!("there is no chain {chain} in a table filter");
            list.faults.push(Fault { line: 1, column: 1, reason });
        }
        None => {}
    }
    list
}

/// The words of a rule.
struct Words<'a, 'w> {
    words: &'w [Token<'a>],
    at: usize,
}

impl<'a> Words<'a, '_> {
    fn next(&mut self) -> Option<Token<'a>> {
        let token = self.words.get(self.at).copied();
        self.at += 1;
        token
    }

    /// What an option needs.
    fn value(&mut self, option: &Token<'_>) -> Result<Token<'a>, Fault> {
        self.next().ok_or_else(|| fault(option, format!("`{}` needs a value", option.text)))
    }
}

fn rule_of(
    line: &[Token<'_>],
    chain: &str,
    hook: &Hook,
    family: Family,
    list: &mut List,
) -> Result<(), Fault> {
    let mut words = Words { words: line, at: 0 };
    let Some(first) = words.next() else { return Ok(()) };
    // Counters, as `iptables-save -c` has them.
    let first = if first.text.starts_with('[') { words.next().unwrap_or(first) } else { first };
    if !first.is("-A") {
        return Err(fault(&first, format!("`{}` is not read: only `-A`", first.text)));
    }
    if words.value(&first)?.text != chain {
        return Ok(());
    }
    let mut rule = Rule::default();
    rule.only(family);
    while let Some(option) = words.next() {
        let (negated, option) = match option.text {
            "!" => (true, words.value(&option)?),
            _ => (false, option),
        };
        test(&mut words, &mut rule, option, negated, hook, family)?;
    }
    let number = first.line;
    rule.into_rows(number, &mut list.rows).map_err(|reason| Fault { line: number, column: 1, reason })
}

fn test(
    words: &mut Words<'_, '_>,
    rule: &mut Rule,
    option: Token<'_>,
    negated: bool,
    hook: &Hook,
    family: Family,
) -> Result<(), Fault> {
    let no = |what: &str| Err(fault(&option, format!("`!` is not read of {what}")));
    match option.text {
        "-s" | "--source" | "--src" => rule.src = Some(nets(words, &option, negated, family)?),
        "-d" | "--destination" | "--dst" => rule.dst = Some(nets(words, &option, negated, family)?),
        "--src-range" => rule.src = Some(range(words, &option, negated, family)?),
        "--dst-range" => rule.dst = Some(range(words, &option, negated, family)?),
        "-p" | "--protocol" => {
            let value = words.value(&option)?;
            if value.text == "all" {
                return Ok(());
            }
            let number = rule::protocol(value.text)
                .ok_or_else(|| fault(&value, format!("`{}` is no protocol", value.text)))?;
            rule.protocols(match negated {
                false => vec![number],
                true => (0..=u8::MAX).filter(|other| *other != number).collect(),
            });
        }
        "-m" | "--match" => {
            const KNOWN: &str = "tcp udp sctp icmp icmp6 multiport comment conntrack state iprange";
            let value = words.value(&option)?;
            if !KNOWN.split(' ').any(|known| known == value.text) {
                return Err(fault(&value, format!("the match `{}` is not read", value.text)));
            }
        }
        "--sport" | "--source-port" | "--sports" | "--source-ports" => {
            rule.src_ports = Some(ports(words, &option, negated)?);
        }
        "--dport" | "--destination-port" | "--dports" | "--destination-ports" => {
            rule.dst_ports = Some(ports(words, &option, negated)?);
        }
        "--icmp-type" | "--icmpv6-type" => {
            let value = words.value(&option)?;
            let name = value.text.split_once('/').map_or(value.text, |(name, _)| name);
            if value.text.contains('/') {
                return Err(fault(&value, "codes of messages are not read: only types".to_owned()));
            }
            if negated {
                return no("a type");
            }
            let number = rule::icmp_type(name, family == Family::V6)
                .ok_or_else(|| fault(&value, format!("`{name}` is no type of message")))?;
            rule.icmp = Some(vec![number]);
        }
        "--ctstate" | "--state" => {
            let value = words.value(&option)?;
            let mut states = Vec::new();
            for name in value.text.split(',') {
                states
                    .extend(rule::state(name).ok_or_else(|| fault(&value, format!("`{name}` is no state")))?);
            }
            if negated {
                states = [1, 2].into_iter().filter(|state| !states.contains(state)).collect();
            }
            states.sort_unstable();
            states.dedup();
            rule.is_never |= states.is_empty();
            rule.states = (states.len() < 2).then_some(states);
        }
        "-i" | "--in-interface" => {
            let value = words.value(&option)?;
            if negated || value.text.ends_with('+') {
                return Err(fault(&value, "`!` and `+` are not read of an interface".to_owned()));
            }
            rule.at = Some(vec![value.text.to_owned()]);
        }
        "-o" | "--out-interface" => {
            let value = words.value(&option)?;
            let Some(out_port) = &hook.out_port else {
                let reason = "by which port a packet leaves is not known: say it with --out-port";
                return Err(fault(&option, reason.to_owned()));
            };
            rule.is_never |= (value.text == out_port) == negated;
        }
        "--comment" => rule.comment = Some(words.value(&option)?.text.to_owned()),
        "--reject-with" => _ = words.value(&option)?,
        "-c" | "--set-counters" => {
            words.value(&option)?;
            words.value(&option)?;
        }
        "-j" | "--jump" => {
            let value = words.value(&option)?;
            rule.verdict = match value.text {
                "REJECT" => Some(Verdict::Reject),
                target => match verdict(target) {
                    Some(verdict) => Some(verdict),
                    None => {
                        let reason =
                            format!("the target `{target}` is not read: only ACCEPT, DROP and REJECT");
                        return Err(fault(&value, reason));
                    }
                },
            };
        }
        other => return Err(fault(&option, format!("`{other}` is not read"))),
    }
    Ok(())
}

fn nets(
    words: &mut Words<'_, '_>,
    option: &Token<'_>,
    negated: bool,
    family: Family,
) -> Result<Vec<Net>, Fault> {
    let value = words.value(option)?;
    let read = |text: &str| {
        let net = Net::read(text).filter(|net| net.is_v6 == (family == Family::V6));
        net.ok_or_else(|| fault(&value, format!("`{text}` is no address or network of this list's family")))
    };
    let nets = value.text.split(',').map(read).collect::<Result<Vec<Net>, Fault>>()?;
    match (negated, &nets[..]) {
        (false, _) => Ok(nets),
        (true, [net]) => Ok(net.others()),
        (true, _) => Err(fault(&value, "`!` is read of one network alone".to_owned())),
    }
}

fn range(
    words: &mut Words<'_, '_>,
    option: &Token<'_>,
    negated: bool,
    family: Family,
) -> Result<Vec<Net>, Fault> {
    let value = words.value(option)?;
    let (from, to) = value.text.split_once('-').unwrap_or((value.text, value.text));
    let nets =
        Net::of_range(from, to).filter(|nets| nets.iter().all(|net| net.is_v6 == (family == Family::V6)));
    match nets {
        Some(nets) if !negated => Ok(nets),
        _ => Err(fault(&value, format!("`{}` is no range of addresses, or `!` is before it", value.text))),
    }
}

fn ports(words: &mut Words<'_, '_>, option: &Token<'_>, negated: bool) -> Result<Vec<(u16, u16)>, Fault> {
    let value = words.value(option)?;
    let read = |text: &str| {
        rule::ports(text, ':').ok_or_else(|| fault(&value, format!("`{text}` is no port or range of ports")))
    };
    let ports = value.text.split(',').map(read).collect::<Result<Vec<_>, Fault>>()?;
    Ok(if negated { rule::other_ports(ports) } else { ports })
}

fn verdict(text: &str) -> Option<Verdict> {
    match text {
        "ACCEPT" => Some(Verdict::Accept),
        "DROP" => Some(Verdict::Drop),
        _ => None,
    }
}

fn fault(at: &Token<'_>, reason: String) -> Fault {
    Fault { line: at.line, column: at.column, reason }
}
