//! Checks wire formats: `CREATE PROTOCOL`.
//!
//! A valid definition gives every header an end and every frame one interpretation: lengths and repetitions are
//! bounded, fields fill whole bytes, an expression reads only available values, and the protocols after a header
//! exclude each other.

use std::collections::BTreeSet;

use weft_core::Type;
use weft_core::wire::{
    BinaryOp, Checksum, Expr, Field, FieldId, Next, PROTOCOLS_MAX, Protocol, ProtocolId, Rule, Union,
    UnionColumn, Width, bits_max,
};

use super::Cx;
use super::scope::{import_help, with_nearest};
use crate::ast::{self, Ident, Item, PayloadChoice, ProtocolClause};
use crate::diagnostic::{Diagnostic, code};
use crate::nearest::nearest;
use crate::source::Span;

mod computed;
mod exclude;
pub(super) mod expr;
mod header;

use exclude::Case;
use expr::{ExprContext, Purpose};
use header::Header;

/// Values and choices of one PAYLOAD.
const CHOICES_MAX: usize = 1024;
/// The maximum number of payload rules of all headers of a program.
const NEXTS_MAX: usize = 16 * 1024;
/// The maximum number of intervals for comparing the conditions after one header.
const INTERVALS_MAX: usize = 16 * 1024;
/// Reserved names of protocols.
const RESERVED_NAMES: [&str; 9] = ["bytes", "http", "inner", "input", "packet", "port", "req", "resp", "rpc"];

/// The first protocols of frames: on Ethernet devices and captures, and on `tun`.
pub(super) const FIRST_PROTOCOLS: [&str; 3] = ["ethernet", "ipv4", "ipv6"];

/// Checks the protocols and unions of a program; [`ProtocolId`] is an index into the first.
pub(super) fn protocols(cx: &mut Cx<'_>, items: &[&Item]) -> (Vec<Protocol>, Unions) {
    let mut headers = Vec::new();
    for item in items {
        let Item::Protocol(item) = item else { continue };
        if cx.is_at_limit() {
            break;
        }
        if headers.len() == PROTOCOLS_MAX {
            let message = format!("a program has at most {PROTOCOLS_MAX} protocols");
            let diagnostic = Diagnostic::error(code::OVER_LIMIT, message).at(item.name.span, "one too many");
            cx.report(diagnostic.with_help("remove the protocols that are not used"));
            cx.has_gaps = true;
            break;
        }
        check_name(cx, &item.name);
        headers.push(header::header(cx, item));
    }
    let linked = headers.iter().map(|_| ProtocolLinks::default()).collect();
    let links = Linker { cx, headers: &headers, linked, otherwise: Vec::new(), n_nexts: 0 }.all();
    check_cycles(cx, &headers, &links);
    for (header, linked) in headers.iter().zip(&links) {
        check_exclusive(cx, header, &headers, &linked.nexts);
    }
    warn_of_unreachable(cx, &headers, &links);
    let whole =
        headers.into_iter().zip(links).map(|(header, ProtocolLinks { nexts, encap, session_key, error })| {
            let next = nexts.into_iter().map(|link| link.next).collect();
            Protocol { next, encap, session_key, error, ..header.protocol }
        });
    let protocols: Vec<Protocol> = whole.collect();
    let unions = unions(cx, &protocols, items);
    (protocols, unions)
}

/// Reports a protocol with a reserved name.
fn check_name(cx: &mut Cx<'_>, name: &Ident) {
    if RESERVED_NAMES.contains(&name.name.to_ascii_lowercase().as_str()) {
        let message = format!("a protocol cannot be named `{}`", name.name);
        let help = format!("name it `{}_`", name.name);
        cx.fault(code::RESERVED_WORD, message, name.span, "reserved name", help);
    }
}

/// Warns of protocols that no frame contains.
fn warn_of_unreachable(cx: &mut Cx<'_>, headers: &[Header<'_>], links: &[ProtocolLinks]) {
    if cx.has_errors() {
        // A part omitted because of an error may have led there.
        return;
    }
    let carried: BTreeSet<usize> =
        links.iter().flat_map(|linked| &linked.nexts).map(|link| usize::from(link.next.to.0)).collect();
    for (at, header) in headers.iter().enumerate() {
        let name = &header.ast.name;
        let is_used = carried.contains(&at) || !links[at].nexts.is_empty();
        if is_used || FIRST_PROTOCOLS.contains(&name.name.as_str()) {
            continue;
        }
        let message = format!("no frame contains `{}`", name.name);
        let help = "bind it to a protocol: `BIND udp WHERE dst_port = 4789`";
        cx.warn(code::WIRE_UNREACHABLE, message, name.span, "not carried by any protocol", help);
    }
}

/// The protocol with a name; reports an unknown name.
fn find(cx: &mut Cx<'_>, headers: &[Header<'_>], name: &Ident) -> Option<usize> {
    let names = || headers.iter().map(|header| header.protocol.name.as_str());
    let found = names().position(|known| known == name.name);
    if found.is_none() {
        unknown_protocol(cx, name, names());
    }
    found
}

/// Reports an unknown protocol, with the nearest name or an import.
fn unknown_protocol<'n>(cx: &mut Cx<'_>, name: &Ident, names: impl Iterator<Item = &'n str>) {
    let message = format!("unknown protocol `{}`", name.name);
    let diagnostic = Diagnostic::error(code::UNKNOWN_PROTOCOL, message).at(name.span, "unknown");
    let diagnostic = match nearest(&name.name, names) {
        Some(near) => diagnostic.with_help(format!("did you mean `{near}`?")).with_fix(name.span, near),
        None => match import_help(cx, "protocols", &name.name) {
            Some(help) => diagnostic.with_help(help),
            None => diagnostic,
        },
    };
    cx.report_missing(diagnostic);
}

// ---- payload rules ---------------------------------------------------------------------------------------------

/// A rule for the header after a header, with its span.
struct NextHeader {
    next: Next,
    span: Span,
    /// The rule is an arm of the PAYLOAD, not a BIND.
    is_arm: bool,
    /// The rule's own condition, regardless of other rules.
    claims: Expr,
    /// The rule is an OTHERWISE: for payloads that no other rule matches.
    is_second: bool,
}

/// The protocol after a header, as an index into the program's protocols.
#[derive(Clone, Copy)]
struct NextTarget {
    to: usize,
    inner: bool,
    or_bytes: bool,
}

/// `OTHERWISE e` of a BIND.
struct OtherwiseClause {
    lower: usize,
    condition: Expr,
    to: NextTarget,
    span: Span,
}

/// The parts of a protocol that refer to other protocols.
#[derive(Default)]
struct ProtocolLinks {
    nexts: Vec<NextHeader>,
    encap: Vec<(ProtocolId, FieldId, Expr)>,
    session_key: Vec<(ProtocolId, FieldId)>,
    error: Option<Expr>,
}

struct Linker<'l, 'c, 'a> {
    cx: &'l mut Cx<'c>,
    headers: &'l [Header<'a>],
    linked: Vec<ProtocolLinks>,
    otherwise: Vec<OtherwiseClause>,
    n_nexts: usize,
}

impl Linker<'_, '_, '_> {
    /// Links all protocols: first the payloads of each, then its clauses.
    fn all(mut self) -> Vec<ProtocolLinks> {
        let headers = self.headers;
        for (at, header) in headers.iter().enumerate() {
            if let Some(payload) = &header.ast.payload {
                self.payload(at, payload);
            }
        }
        for (at, header) in headers.iter().enumerate() {
            for clause in &header.ast.clauses {
                self.clause(at, clause);
            }
        }
        self.otherwise();
        self.linked
    }

    /// Applies a BIND or ENCAP clause of the protocol at this index.
    fn clause(&mut self, at: usize, clause: &ProtocolClause) {
        match clause {
            ProtocolClause::Bind { lower, inner, condition, otherwise, span } => {
                let to = NextTarget { to: at, inner: inner.is_some(), or_bytes: false };
                self.bind(to, lower, (condition, otherwise.as_deref()), *span);
            }
            ProtocolClause::Encap { set, .. } => {
                for set in set {
                    let found = self.encap(at, set);
                    self.linked[at].encap.extend(found);
                }
            }
            ProtocolClause::SessionKey { fields, .. } => {
                for path in fields {
                    let found = self.path(Some(at), path);
                    self.linked[at].session_key.extend(found);
                }
            }
            ProtocolClause::Error { condition, span } => self.error(at, condition, *span),
            // The header's own LENGTH and WHEN are known before linking.
            ProtocolClause::MalformedIsPayload { .. } => {}
        }
    }

    /// Adds an edge to a protocol's payload rules. At most [`NEXTS_MAX`] edges are allowed.
    fn link(&mut self, lower: usize, condition: Expr, to: NextTarget, span: Span, is_arm: bool) {
        if self.n_nexts == NEXTS_MAX {
            let message = format!("more than {NEXTS_MAX} payload rules in all protocols together");
            let diagnostic = Diagnostic::error(code::OVER_LIMIT, message).at(span, "one too many");
            self.cx.report(diagnostic.with_help("remove the protocols that are not used"));
        }
        self.n_nexts += 1;
        if self.n_nexts > NEXTS_MAX {
            return;
        }
        let claims = condition.clone();
        let condition = and(self.headers[lower].gate.clone(), condition);
        let NextTarget { to, inner, or_bytes } = to;
        let next = Next { condition, to: ProtocolId(to as u16), inner, or_bytes, line: self.cx.line(span) };
        self.linked[lower].nexts.push(NextHeader { next, span, is_arm, claims, is_second: false });
    }

    /// Links the payload of a protocol.
    fn payload(&mut self, at: usize, payload: &ast::Payload) {
        let n_choices = n_choices(&payload.choice);
        if n_choices > CHOICES_MAX {
            let message =
                format!("this PAYLOAD has {n_choices} values and choices; at most {CHOICES_MAX} are allowed");
            let diagnostic = Diagnostic::error(code::OVER_LIMIT, message)
                .at(payload.span, "too many")
                .with_help("use BIND in the carried protocols: `BIND ... WHERE ...`");
            return self.cx.report(diagnostic);
        }
        self.choice(at, &payload.choice, None);
    }

    /// Links a choice of the payload. `condition` holds for the outer choices.
    fn choice(&mut self, at: usize, choice: &PayloadChoice, condition: Option<Expr>) {
        match choice {
            PayloadChoice::Bytes(_) => {}
            PayloadChoice::Protocol { inner, name, or_bytes } => {
                let Some(to) = find(self.cx, self.headers, name) else { return };
                let condition = condition.unwrap_or(Expr::Int(1));
                let to = NextTarget { to, inner: inner.is_some(), or_bytes: *or_bytes };
                self.link(at, condition, to, name.span, true);
            }
            PayloadChoice::Switch { on, arms, otherwise, .. } => {
                let place = ExprContext::whole(Purpose::Next);
                let Some(on) = expr::number(self.cx, &self.headers[at], place, on) else { return };
                for (value, span) in arms.iter().flat_map(|arm| &arm.labels) {
                    if *value > on.range.1 {
                        let message = format!("this is never {value}");
                        let diagnostic = Diagnostic::error(code::NEVER_TRUE, message)
                            .at(*span, format!("its maximum is {}", on.range.1))
                            .with_help("remove the value, or use a wider field");
                        self.cx.report(diagnostic);
                    }
                }
                for arm in arms {
                    let values: Vec<u64> = arm.labels.iter().map(|(value, _)| *value).collect();
                    let is_one = one_of(&on.expr, values);
                    self.choice(at, &arm.choice, Some(and(condition.clone(), is_one)));
                }
                let Some(otherwise) = otherwise else { return };
                let values = arms.iter().flat_map(|arm| &arm.labels).map(|(value, _)| *value).collect();
                let is_none = Expr::Not(Box::new(one_of(&on.expr, values)));
                self.choice(at, otherwise, Some(and(condition, is_none)));
            }
        }
    }

    /// Links a BIND: the lower protocol carries this one if the condition holds.
    fn bind(
        &mut self,
        to: NextTarget,
        lower: &Ident,
        (condition, otherwise): (&ast::Expr, Option<&ast::Expr>),
        span: Span,
    ) {
        let Some(lower) = find(self.cx, self.headers, lower) else { return };
        let place = ExprContext::whole(Purpose::Next);
        if let Some(condition) = expr::condition(self.cx, &self.headers[lower], place, condition) {
            self.link(lower, condition, to, span, false);
        }
        let otherwise = otherwise.and_then(|e| expr::condition(self.cx, &self.headers[lower], place, e));
        if let Some(condition) = otherwise {
            self.otherwise.push(OtherwiseClause { lower, condition, to, span });
        }
    }

    /// Applies `OTHERWISE e`: for payloads that no other protocol matches.
    fn otherwise(&mut self) {
        let n_first: Vec<usize> = self.linked.iter().map(|linked| linked.nexts.len()).collect();
        for OtherwiseClause { lower, condition, to, span } in core::mem::take(&mut self.otherwise) {
            let firsts = self.linked[lower].nexts[..n_first[lower]].iter();
            let is_other =
                |link: &&NextHeader| (usize::from(link.next.to.0), link.next.inner) != (to.to, to.inner);
            let others = firsts.filter(is_other);
            let claimed = any_of(others.map(|link| link.claims.clone()));
            let unclaimed = Expr::Not(Box::new(claimed));
            let n = self.linked[lower].nexts.len();
            self.link(lower, and(Some(condition.clone()), unclaimed), to, span, false);
            if let Some(link) = self.linked[lower].nexts.get_mut(n) {
                (link.claims, link.is_second) = (condition, true);
            }
        }
    }

    /// Checks `ERROR WHERE e`, which a protocol has at most once.
    fn error(&mut self, at: usize, condition: &ast::Expr, span: Span) {
        if self.linked[at].error.is_some() {
            let diagnostic = Diagnostic::error(code::DUPLICATE_NAME, "a protocol has one ERROR WHERE clause")
                .at(span, "again here")
                .with_help("write one `ERROR WHERE`, and join the conditions with OR");
            return self.cx.report(diagnostic);
        }
        let place = ExprContext::whole(Purpose::Check);
        self.linked[at].error = expr::condition(self.cx, &self.headers[at], place, condition);
    }

    /// Checks a value that a PUSH of this protocol sets in the header below it.
    fn encap(&mut self, at: usize, set: &ast::EncapSet) -> Option<(ProtocolId, FieldId, Expr)> {
        let found = self.path(None, &set.field);
        let value = expr::number(self.cx, &self.headers[at], ExprContext::whole(Purpose::Encap), &set.value);
        let (protocol, field) = found?;
        let lower = &self.headers[usize::from(protocol.0)];
        let known = &lower.protocol.fields[usize::from(field.0)];
        let why = match lower.infos[usize::from(field.0)].is_bytes {
            true => Some("bytes"),
            false => read_only_rule(&known.rule).filter(|_| !may_be_absent(&known.rule)),
        };
        if let Some(why) = why {
            return Diagnostic::error(
                code::FIELD_READ_ONLY,
                format!("`{}` cannot be set", set.field.to_dotted()),
            )
            .at(set.field.span, format!("is {why}"))
            .with_label(lower.infos[usize::from(field.0)].span, "declared here")
            .with_help("its value is filled in automatically: remove this")
            .refuse(self.cx);
        }
        let value = value?;
        self.check_spread(known, &value, set)?;
        Some((protocol, field, value.expr))
    }

    /// Rejects a value that uses the payload's flow for anything other than spreading over the field's range.
    fn check_spread(&mut self, field: &Field, value: &expr::Typed, set: &ast::EncapSet) -> Option<()> {
        let mut looks = false;
        value.expr.each(&mut |e| looks |= *e == Expr::Flow);
        if !looks {
            return Some(());
        }
        let Width::Bits { n: bits, .. } = field.width else { return Some(()) };
        let (most, name) = (bits_max(bits), set.field.to_dotted());
        let (message, what) = match value.expr.spread() {
            None => ("this does not spread flows".to_owned(), "not a remainder, or a sum with a remainder"),
            Some(_) if value.range.1 > most => {
                (format!("{} does not fit `{name}`", value.range.1), "this may be as large")
            }
            Some(_) => return Some(()),
        };
        let help = match most {
            65_535.. => "write the minimum and the count: `49152 + hash(inner.flow) % 16384`".to_owned(),
            _ => format!("limit the count: `hash(inner.flow) % {}`", most + 1),
        };
        Diagnostic::error(code::WIRE_RULE, message).at(set.value.span, what).with_help(help).refuse(self.cx)
    }

    /// Resolves a field of a protocol: `udp.dst_port`, or `vni` of the own protocol.
    fn path(&mut self, own: Option<usize>, path: &ast::Path) -> Option<(ProtocolId, FieldId)> {
        let (of, field) = match (path.segments.as_slice(), own) {
            ([field], Some(own)) => (own, field),
            ([protocol, field], _) if protocol.name != "inner" => {
                (find(self.cx, self.headers, protocol)?, field)
            }
            _ => {
                let message = format!("`{}` is not a field of a protocol", path.to_dotted());
                let help = "write `protocol.field`, such as `udp.dst_port`";
                return self.cx.refuse(code::WIRE_NOT_SEEN, message, path.span, "whose?", help);
            }
        };
        let header = &self.headers[of];
        if let Some(id) = header.protocol.field(&field.name) {
            return Some((ProtocolId(of as u16), id));
        }
        let names = header.protocol.fields.iter().map(|field| field.name.as_str());
        let message = format!("`{}` has no field `{}`", header.protocol.name, field.name);
        let diagnostic = Diagnostic::error(code::WIRE_NOT_SEEN, message).at(field.span, "unknown");
        if !header.is_gappy {
            self.cx.report_missing(with_nearest(diagnostic, field, names));
        }
        None
    }
}

/// Whether this is a checksum that a sender may omit, with zero in its place.
pub(super) fn may_be_absent(rule: &Rule) -> bool {
    rule.checksum() == Some(Checksum::PseudoOrZero)
}

/// Why programs cannot set a field; None if they can.
pub(super) fn read_only_rule(rule: &Rule) -> Option<&'static str> {
    match rule {
        Rule::Plain | Rule::Default(_) => None,
        Rule::Constant(_) => Some("the same in all frames"),
        Rule::Computed(_) => Some("computed when the frame is written"),
        Rule::Reserved => Some("reserved"),
    }
}

/// Counts the labels and choices of a payload rule.
fn n_choices(choice: &PayloadChoice) -> usize {
    match choice {
        PayloadChoice::Bytes(_) | PayloadChoice::Protocol { .. } => 1,
        PayloadChoice::Switch { arms, otherwise, .. } => {
            let arms: usize = arms.iter().map(|arm| arm.labels.len() + n_choices(&arm.choice)).sum();
            arms + otherwise.as_deref().map_or(0, n_choices)
        }
    }
}

/// Builds the AND of an optional condition and another.
fn and(first: Option<Expr>, second: Expr) -> Expr {
    match first {
        Some(first) => expr::binary(BinaryOp::And, first, second),
        None => second,
    }
}

/// Builds the OR of conditions; tests of one field against values are merged into one.
fn any_of(conditions: impl Iterator<Item = Expr>) -> Expr {
    let (mut values, mut others): (Vec<(Expr, Vec<u64>)>, Vec<Expr>) = (Vec::new(), Vec::new());
    for condition in conditions {
        let (on, asked) = match condition {
            Expr::Binary(BinaryOp::Eq, on, value) if matches!(*value, Expr::Int(_)) => {
                let Expr::Int(value) = *value else { unreachable!("this condition was evaluated") };
                (*on, vec![value])
            }
            Expr::In(on, values) => (*on, values),
            other => {
                others.push(other);
                continue;
            }
        };
        match values.iter_mut().find(|(known, _)| *known == on) {
            Some((_, known)) => known.extend(asked),
            None => values.push((on, asked)),
        }
    }
    let values = values.into_iter().map(|(on, values)| one_of(&on, values));
    // A balanced tree: visitors are recursive, and there may be thousands of conditions.
    let mut all: Vec<Expr> = values.chain(others).collect();
    while all.len() > 1 {
        let mut pairs = all.into_iter();
        let mut halved = Vec::new();
        while let Some(first) = pairs.next() {
            halved.push(match pairs.next() {
                Some(second) => expr::binary(BinaryOp::Or, first, second),
                None => first,
            });
        }
        all = halved;
    }
    all.pop().unwrap_or(Expr::Int(0))
}

/// Builds the test that an expression has one of these values.
fn one_of(on: &Expr, values: Vec<u64>) -> Expr {
    match values.as_slice() {
        [value] => expr::binary(BinaryOp::Eq, on.clone(), Expr::Int(*value)),
        _ => Expr::In(Box::new(on.clone()), values),
    }
}

// ---- rules over all of them ------------------------------------------------------------------------------------

/// Rejects a payload that leads back to a protocol that carries it, unless it is INNER: otherwise the name would be
/// ambiguous. A protocol may carry itself, and headers that BIND each other form one chain, like those of IPv6.
fn check_cycles(cx: &mut Cx<'_>, headers: &[Header<'_>], linked: &[ProtocolLinks]) {
    let groups = cycle_groups(linked);
    for (at, linked) in linked.iter().enumerate() {
        for link in &linked.nexts {
            let to = usize::from(link.next.to.0);
            if !link.is_arm || link.next.inner || to == at || groups[at] != groups[to] {
                continue;
            }
            let (name, other) = (&headers[at].protocol.name, &headers[to].protocol.name);
            let message = format!("`{name}` leads back to `{other}`, which carries it");
            let diagnostic = Diagnostic::error(code::WIRE_CYCLE, message)
                .at(link.span, format!("`{other}` would be ambiguous"))
                .with_help(format!("write `INNER {other}`: its fields are those of `inner.{other}`"))
                .with_fix(link.span, format!("INNER {other}"));
            cx.report(diagnostic);
        }
    }
}

/// Computes the number of each protocol's strongly connected component (Kosaraju's algorithm).
fn cycle_groups(linked: &[ProtocolLinks]) -> Vec<usize> {
    let n = linked.len();
    let (mut forward, mut back) = (vec![Vec::new(); n], vec![Vec::new(); n]);
    for (at, linked) in linked.iter().enumerate() {
        for link in linked.nexts.iter().filter(|link| !link.next.inner) {
            forward[at].push(usize::from(link.next.to.0));
            back[usize::from(link.next.to.0)].push(at);
        }
    }
    let mut order = Vec::with_capacity(n);
    let mut seen = vec![false; n];
    for start in 0..n {
        walk(&forward, start, &mut seen, &mut order);
    }
    let mut groups = vec![0; n];
    let mut seen = vec![false; n];
    for start in order.into_iter().rev() {
        let mut group = Vec::new();
        walk(&back, start, &mut seen, &mut group);
        group.into_iter().for_each(|at| groups[at] = start);
    }
    groups
}

/// Appends all unseen reachable protocols in post-order.
fn walk(edges: &[Vec<usize>], start: usize, seen: &mut [bool], order: &mut Vec<usize>) {
    if core::mem::replace(&mut seen[start], true) {
        return;
    }
    let mut stack = vec![(start, 0)];
    while let Some((at, next)) = stack.pop() {
        match edges[at].get(next) {
            Some(&to) => {
                stack.push((at, next + 1));
                if !core::mem::replace(&mut seen[to], true) {
                    stack.push((to, 0));
                }
            }
            None => order.push(at),
        }
    }
}

/// Rejects two protocols that match the same payload.
fn check_exclusive(cx: &mut Cx<'_>, header: &Header<'_>, headers: &[Header<'_>], links: &[NextHeader]) {
    let most = |e: &Expr| match e {
        Expr::Field(id) => header.infos[usize::from(id.0)].range.1,
        Expr::Peek(n) => bits_max(*n),
        Expr::Present(_) => 1,
        _ => u64::MAX,
    };
    let mut known: Vec<(&NextHeader, Expr, Vec<Case>)> = Vec::new();
    let mut n_intervals = 0;
    for link in links {
        if cx.is_at_limit() {
            return;
        }
        let claims = and(header.gate.clone(), link.claims.clone());
        let cases = exclude::cases(&claims, &most).filter(|cases| {
            n_intervals += exclude::n_intervals(cases) + 1;
            n_intervals <= INTERVALS_MAX
        });
        let Some(cases) = cases else {
            let message =
                format!("the payload rules of `{}` have too many cases to compare", header.protocol.name);
            let diagnostic = Diagnostic::error(code::OVER_LIMIT, message)
                .at(link.span, "and these")
                .with_help("test one field against values: `WHERE type IN (1, 2, 3)`");
            return cx.report(diagnostic);
        };
        let met = known.iter().find_map(|(first, claimed, of_first)| {
            // Two rules for one protocol do not conflict, and an OTHERWISE only gets the rest.
            if (first.next.to, first.next.inner) == (link.next.to, link.next.inner)
                || first.is_second != link.is_second
            {
                return None;
            }
            let found = exclude::overlap((claimed, of_first), (&claims, &cases))?;
            Some((*first, found))
        });
        if let Some((first, found)) = met {
            overlapping(cx, header, headers, (first, link), &found);
        }
        known.push((link, claims, cases));
    }
}

/// Reports two payload rules that match the same payload.
fn overlapping(
    cx: &mut Cx<'_>,
    header: &Header<'_>,
    headers: &[Header<'_>],
    (first, second): (&NextHeader, &NextHeader),
    found: &exclude::Overlap,
) {
    let name = |link: &NextHeader| &headers[usize::from(link.next.to.0)].protocol.name;
    let lower = &header.protocol.name;
    let message = format!("`{}` and `{}` match the same payload of `{lower}`", name(first), name(second));
    let diagnostic = Diagnostic::error(code::WIRE_OVERLAP, message)
        .at(second.span, "the second")
        .with_label(first.span, "the first");
    let diagnostic = match &found.witness {
        Some(witness) if witness.is_empty() => diagnostic.with_note("both are always true"),
        Some(witness) => {
            diagnostic.with_note(format!("both are true where {}", describe_witness(header, witness)))
        }
        None => diagnostic.with_note("the conditions may overlap"),
    };
    cx.report(
        diagnostic.with_help("make the conditions disjoint: compare the same field with different values"),
    );
}

/// Formats the field values that satisfy both conditions, for the overlap diagnostic: `dst_port = 4789 and peek
/// bit(4) = 4`.
fn describe_witness(header: &Header<'_>, witness: &[(Expr, u64)]) -> String {
    let name = |id: &FieldId| &header.protocol.fields[usize::from(id.0)].name;
    let parts: Vec<String> = witness
        .iter()
        .map(|(e, value)| match e {
            Expr::Field(id) => format!("`{}` = {value}", name(id)),
            Expr::Present(id) => format!("`present({})` = {value}", name(id)),
            Expr::Peek(n) => format!("`peek bit({n})` = {value}"),
            Expr::HeaderBytes => format!("`header_bytes` = {value}"),
            Expr::PayloadBytes => format!("`payload_bytes` = {value}"),
            _ => format!("a computed value is {value}"),
        })
        .collect();
    parts.join(" and ")
}

// ---- unions ----------------------------------------------------------------------------------------------------

/// The unions of a program.
#[derive(Default)]
pub(super) struct Unions {
    pub(super) unions: Vec<Union>,
    /// Columns with an error, by union and column.
    pub(super) broken: Vec<(String, String)>,
}

/// Checks the protocol unions of a program.
fn unions(cx: &mut Cx<'_>, protocols: &[Protocol], items: &[&Item]) -> Unions {
    let mut all = Unions::default();
    for item in items {
        let Item::Union(item) = item else { continue };
        if cx.is_at_limit() {
            break;
        }
        check_name(cx, &item.name);
        let union = union(cx, protocols, item, &mut all.broken);
        all.unions.extend(union);
    }
    all
}

/// Checks a protocol union: its members and columns.
fn union(
    cx: &mut Cx<'_>,
    protocols: &[Protocol],
    ast: &ast::ProtocolUnion,
    broken: &mut Vec<(String, String)>,
) -> Option<Union> {
    let mut members: Vec<usize> = Vec::new();
    let mut is_whole = true;
    for name in &ast.members {
        let names = protocols.iter().map(|protocol| protocol.name.as_str());
        match names.clone().position(|known| known == name.name) {
            Some(at) if members.contains(&at) => {
                let first = ast.members.iter().find(|known| known.name == name.name);
                cx.report_duplicate("member", name, first.map_or(name.span, |first| first.span));
            }
            Some(at) => members.push(at),
            None => {
                unknown_protocol(cx, name, names);
                is_whole = false;
            }
        }
    }
    if !is_whole {
        cx.has_gaps = true;
        return None;
    }
    let mut columns: Vec<UnionColumn> = Vec::new();
    for column in &ast.columns {
        if columns.iter().any(|known| known.name == column.name.name) {
            let first = ast.columns.iter().find(|known| known.name.name == column.name.name);
            cx.report_duplicate("column", &column.name, first.map_or(column.span, |first| first.span));
            continue;
        }
        match union_column(cx, protocols, &members, column) {
            Some(column) => columns.push(column),
            None => broken.push((ast.name.name.clone(), column.name.name.clone())),
        }
    }
    let members = members.into_iter().map(|at| ProtocolId(at as u16)).collect();
    Some(Union { name: ast.name.name.clone(), members, columns, line: cx.line(ast.span) })
}

/// Checks a column of a union: a field of each member, or of the last layers that have it.
fn union_column(
    cx: &mut Cx<'_>,
    protocols: &[Protocol],
    members: &[usize],
    ast: &ast::UnionColumn,
) -> Option<UnionColumn> {
    let owners = match ast.last {
        true => last_owners(cx, protocols, members, ast)?,
        false => members.to_vec(),
    };
    let mut fields = Vec::new();
    for &owner in &owners {
        let protocol = &protocols[owner];
        let written = ast.fields.iter().find(|path| path.segments[0].name == protocol.name);
        let (name, span) = match written.map(|path| (path.segments.as_slice(), path.span)) {
            Some(([_, field], span)) => (field.name.as_str(), span),
            None if ast.fields.is_empty() => (ast.name.name.as_str(), ast.name.span),
            _ => {
                missing_field(cx, ast, protocol);
                return None;
            }
        };
        let Some(id) = protocol.field(name) else {
            let label = format!("`{}` has no field `{name}`", protocol.name);
            let help = format!("name the field of each: `{} = {}.field | ...`", ast.name.name, protocol.name);
            union_misfit(cx, ast, span, &label, &help);
            return None;
        };
        fields.push(id);
    }
    let stranger = ast.fields.iter().find(|path| {
        let is_owner = |owner: &usize| protocols[*owner].name == path.segments[0].name;
        !owners.iter().any(is_owner)
    });
    if let Some(path) = stranger {
        let help = "use fields of the members only, or write LAST before the first";
        union_misfit(cx, ast, path.span, "not of a member", help);
        return None;
    }
    let types = owners.iter().zip(&fields).map(|(owner, id)| protocols[*owner].fields[usize::from(id.0)].ty);
    let types: Vec<Type> = types.collect();
    let Some(ty) = types.iter().skip(1).try_fold(types[0], |ty, other| common(ty, *other)) else {
        let words: Vec<String> = types.iter().map(Type::to_string).collect();
        let label = format!("these are {}", words.join(" and "));
        union_misfit(cx, ast, ast.span, &label, "give the fields one type: `bytes(4) AS IPADDR`");
        return None;
    };
    let owners = owners.into_iter().map(|at| ProtocolId(at as u16)).collect();
    Some(UnionColumn { name: ast.name.name.clone(), ty, protocols: owners, fields, last: ast.last })
}

/// Returns the owners of a LAST column: all members and additional protocols.
fn last_owners(
    cx: &mut Cx<'_>,
    protocols: &[Protocol],
    members: &[usize],
    ast: &ast::UnionColumn,
) -> Option<Vec<usize>> {
    let mut owners = Vec::new();
    for path in &ast.fields {
        let name = &path.segments[0];
        let names = protocols.iter().map(|protocol| protocol.name.as_str());
        let Some(at) = names.clone().position(|known| known == name.name) else {
            unknown_protocol(cx, name, names);
            return None;
        };
        if owners.contains(&at) {
            union_misfit(cx, ast, path.span, "named before", "name one field of each protocol");
            return None;
        }
        owners.push(at);
    }
    if let Some(at) = members.iter().find(|at| !owners.contains(*at)) {
        missing_field(cx, ast, &protocols[*at]);
        return None;
    }
    Some(owners)
}

/// Reports a union column without a field of one member.
fn missing_field(cx: &mut Cx<'_>, ast: &ast::UnionColumn, protocol: &Protocol) {
    let (name, of) = (&ast.name.name, &protocol.name);
    let written: Vec<String> = ast.fields.iter().map(ast::Path::to_dotted).collect();
    let written = if written.is_empty() { "...".to_owned() } else { written.join(" | ") };
    let help = match ast.last {
        true => format!(
            "write `{name} = LAST {written} | {of}.field`: LAST needs a field of each member, and may have others"
        ),
        false => format!("write `{name} = {written} | {of}.field`, one field of each member"),
    };
    let label = format!("field of `{of}` missing");
    union_misfit(cx, ast, ast.span, &label, &help);
}

/// The common type of two fields: numbers widen.
fn common(a: Type, b: Type) -> Option<Type> {
    match (a, b) {
        (Type::Uint(a), Type::Uint(b)) => Some(Type::Uint(a.max(b))),
        _ => (a == b).then_some(a),
    }
}

/// Reports a union column that the members do not share.
fn union_misfit(cx: &mut Cx<'_>, ast: &ast::UnionColumn, span: Span, label: &str, help: &str) {
    let message = format!("the members have no common column `{}`", ast.name.name);
    cx.fault(code::UNION_COLUMN, message, span, label, help);
}
