//! `iptables-save` and `ip6tables-save`: the rules of one built-in chain of the table `filter`.

use super::rule::{self, Family, Flags, Net, Rule, Verdict, once};
use super::tokens::{Kind, Token, tokens};
use super::{FAULTS_MAX, Fault, Hook, List};

/// Reads a list.
pub(crate) fn read(text: &str, hook: &Hook, is_v6: bool) -> List {
    let tokens = tokens(text, false);
    let mut list = List::default();
    let chain = hook.name.to_ascii_uppercase();
    let family = if is_v6 { Family::V6 } else { Family::V4 };
    let (mut is_filter, mut policy) = (false, None);
    // The table that has begun and not ended.
    let mut open: Option<Token<'_>> = None;
    for line in tokens.split(|token| matches!(token.kind, Kind::Line | Kind::End)) {
        let Some(first) = line.first() else { continue };
        if list.faults.len() >= FAULTS_MAX {
            break;
        }
        if let Some(table) = first.text.strip_prefix('*') {
            is_filter = table == "filter";
            list.faults.extend(open.replace(*first).map(|open| cut(first, &open)));
        } else if first.is("COMMIT") {
            (is_filter, open) = (false, None);
        } else if !is_filter {
            continue;
        } else if let Some(name) = first.text.strip_prefix(':') {
            if name != chain {
                continue;
            }
            match line.get(1).and_then(|token| verdict(token.text)) {
                Some(verdict) => policy = Some((verdict, first.line)),
                None => list.faults.push(first.fault("a policy is ACCEPT or DROP")),
            }
        } else if let Err(fault) = rule_of(line, &chain, hook, family, &mut list) {
            list.faults.push(fault);
        }
    }
    if let (Some(open), Some(end)) = (open, tokens.last())
        && list.faults.len() < FAULTS_MAX
    {
        list.faults.push(cut(end, &open));
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

/// That a table has no end up to here.
fn cut(here: &Token<'_>, open: &Token<'_>) -> Fault {
    let Token { text, line, .. } = open;
    here.fault(format!(
        "the COMMIT of `{text}` of line {line} does not come before this: give all that iptables-save prints"
    ))
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
        self.next().ok_or_else(|| option.fault(format!("`{}` needs a value", option.text)))
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
        return Err(first.fault(format!("`{}` is not read: only `-A`", first.text)));
    }
    if words.value(&first)?.text != chain {
        return Ok(());
    }
    for word in line {
        word.closed()?;
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
    let no = |what: &str| Err(option.fault(format!("`!` is not read of {what}")));
    match option.text {
        "-s" | "--source" | "--src" => once(&mut rule.src, nets(words, &option, negated, family)?, &option)?,
        "-d" | "--destination" | "--dst" => {
            once(&mut rule.dst, nets(words, &option, negated, family)?, &option)?;
        }
        "--src-range" => once(&mut rule.src, range(words, &option, negated, family)?, &option)?,
        "--dst-range" => once(&mut rule.dst, range(words, &option, negated, family)?, &option)?,
        "-p" | "--protocol" => {
            let value = words.value(&option)?;
            if value.text == "all" {
                return Ok(());
            }
            let number = rule::protocol(value.text)
                .ok_or_else(|| value.fault(format!("`{}` is no protocol", value.text)))?;
            rule.protocols(&[number], negated);
        }
        "-m" | "--match" => {
            const KNOWN: &str = "tcp udp sctp icmp icmp6 multiport comment conntrack state iprange";
            let value = words.value(&option)?;
            if !KNOWN.split(' ').any(|known| known == value.text) {
                return Err(value.fault(format!("the match `{}` is not read", value.text)));
            }
        }
        "--sport" | "--source-port" | "--sports" | "--source-ports" => {
            once(&mut rule.src_ports, ports(words, &option, negated)?, &option)?;
        }
        "--dport" | "--destination-port" | "--dports" | "--destination-ports" => {
            once(&mut rule.dst_ports, ports(words, &option, negated)?, &option)?;
        }
        "--icmp-type" | "--icmpv6-type" => {
            let value = words.value(&option)?;
            let name = value.text.split_once('/').map_or(value.text, |(name, _)| name);
            if value.text.contains('/') {
                return Err(value.fault("codes of messages are not read: only types"));
            }
            if negated {
                return no("a type");
            }
            let number = rule::icmp_type(name, family == Family::V6)
                .ok_or_else(|| value.fault(format!("`{name}` is no type of message")))?;
            once(&mut rule.icmp, vec![number], &option)?;
        }
        "--tcp-flags" => {
            let [mask, bits] = [flags(words, &option)?, flags(words, &option)?];
            rule.flags(&option, Flags { bits, mask }, negated)?;
        }
        "--syn" => rule.flags(&option, FIRST_OF_CONNECTION, negated)?,
        "--ctstate" | "--state" => {
            let value = words.value(&option)?;
            rule.states(&option, value.text.split(',').map(|name| (name, value)), negated)?;
        }
        "-i" | "--in-interface" => {
            let value = words.value(&option)?;
            if negated {
                return Err(value.fault("`!` is not read of an interface"));
            }
            rule::no_pattern(&[value])?;
            once(&mut rule.at, vec![value.text.to_owned()], &option)?;
        }
        "-o" | "--out-interface" => {
            let value = words.value(&option)?;
            rule.leaves(&option, &[value], negated, hook)?;
        }
        "--comment" => rule.comment = Some(unescaped(&words.value(&option)?)),
        "--reject-with" => _ = words.value(&option)?,
        option_of_log if LOG_WITH_VALUE.contains(&option_of_log) => _ = words.value(&option)?,
        option_of_log if LOG_WITHOUT_VALUE.contains(&option_of_log) => {}
        "-c" | "--set-counters" => {
            words.value(&option)?;
            words.value(&option)?;
        }
        "-j" | "--jump" => {
            let value = words.value(&option)?;
            rule.verdict = match value.text {
                "REJECT" => Some(Verdict::Reject),
                // It decides nothing: what comes behind it is asked too.
                "LOG" | "NFLOG" => None,
                target => match verdict(target) {
                    Some(verdict) => Some(verdict),
                    None => {
                        let reason =
                            format!("the target `{target}` is not read: only ACCEPT, DROP, REJECT and LOG");
                        return Err(value.fault(reason));
                    }
                },
            };
        }
        other => return Err(option.fault(format!("`{other}` is not read"))),
    }
    Ok(())
}

/// What stands in quotes, without the `\` before some of its characters.
fn unescaped(token: &Token<'_>) -> String {
    if token.kind != Kind::Text {
        return token.text.to_owned();
    }
    let (mut text, mut is_escaped) = (String::new(), false);
    for c in token.text.chars() {
        is_escaped = c == '\\' && !is_escaped;
        if !is_escaped {
            text.push(c);
        }
    }
    text
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
        net.ok_or_else(|| value.fault(format!("`{text}` is no address or network of this list's family")))
    };
    let nets = value.text.split(',').map(read).collect::<Result<Vec<Net>, Fault>>()?;
    rule::networks(nets, negated, &value)
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
        _ => Err(value.fault(format!("`{}` is no range of addresses, or `!` is before it", value.text))),
    }
}

fn ports(words: &mut Words<'_, '_>, option: &Token<'_>, negated: bool) -> Result<Vec<(u16, u16)>, Fault> {
    let value = words.value(option)?;
    let read = |text: &str| {
        rule::ports(text, ':').ok_or_else(|| value.fault(format!("`{text}` is no port or range of ports")))
    };
    let ports = value.text.split(',').map(read).collect::<Result<Vec<_>, Fault>>()?;
    Ok(if negated { rule::other_ports(ports) } else { ports })
}

fn flags(words: &mut Words<'_, '_>, option: &Token<'_>) -> Result<u8, Fault> {
    let value = words.value(option)?;
    let read =
        |text: &str| rule::tcp_flag(text).ok_or_else(|| value.fault(format!("`{text}` is no flag of TCP")));
    value.text.split(',').try_fold(0, |all, text| Ok(all | read(text)?))
}

/// What `--syn` stands for: `--tcp-flags FIN,SYN,RST,ACK SYN`.
const FIRST_OF_CONNECTION: Flags = Flags { bits: 0x02, mask: 0x17 };

/// Options of the targets LOG and NFLOG, which decide nothing.
const LOG_WITH_VALUE: [&str; 7] = [
    "--log-prefix",
    "--log-level",
    "--nflog-prefix",
    "--nflog-group",
    "--nflog-range",
    "--nflog-size",
    "--nflog-threshold",
];
const LOG_WITHOUT_VALUE: [&str; 5] =
    ["--log-tcp-sequence", "--log-tcp-options", "--log-ip-options", "--log-uid", "--log-macdecode"];

fn verdict(text: &str) -> Option<Verdict> {
    match text {
        "ACCEPT" => Some(Verdict::Accept),
        "DROP" => Some(Verdict::Drop),
        _ => None,
    }
}
