//! The names in queues: packet fields, counts, variables, parameters, and header fields.

use super::build::{binary, literal, operand, truth};
use super::{Checker, QueueName};
use crate::ast::Path;
use crate::check::suggest::with_nearest;
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{
    QueueBinary as B, QueueExpr, QueueExprKind as Kind, QueueLiteral as Literal, QueueMoment,
    QueueOperand as Operand, QueueType as T,
};
use crate::nearest::nearest;
use crate::source::Span;

/// Why there is no payload.
const NO_PAYLOAD: &str = "queues cannot read payloads";

pub(super) const IMPORT_PROTOCOL: &str = "import its protocol: `IMPORT 'library/protocols/all.weft';`";
/// The names that are available besides packet fields and headers.
const OTHER_NAMES: [&str; 6] =
    ["queue.packets", "queue.bytes", "partition.packets", "partition.bytes", "partition.index", "link.rate"];

/// The fields of a packet: name, type, and whether a program may set it.
pub(crate) const PACKET_FIELDS: [(&str, T, bool); 13] = [
    ("len", T::Size, false),
    ("net_len", T::Size, false),
    ("arrived", T::Timestamp, false),
    ("id", T::Number, false),
    ("ecn", T::Number, true),
    ("flow", T::Number, false),
    ("src", T::Number, false),
    ("dst", T::Number, false),
    ("dscp", T::Number, true),
    ("class", T::Number, true),
    ("remaining", T::Size, true),
    ("slack", T::Interval, true),
    ("deadline", T::Timestamp, false),
];

/// The meaning of a name.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ResolvedName {
    Operand(Operand),
    /// True if the word is not 0.
    Truth(Operand),
    Local(usize),
    Known(Literal),
    /// The time since the packet came.
    Sojourn,
}

impl Checker<'_, '_> {
    /// Checks a name or a field.
    pub(super) fn named(&mut self, path: &Path) -> Option<QueueExpr> {
        let (found, ty, _) = self.resolve(path)?;
        Some(match found {
            ResolvedName::Operand(found) => operand(found, ty, path.span),
            ResolvedName::Truth(found) => truth(found, path.span),
            ResolvedName::Local(local) => QueueExpr { kind: Kind::Local(local), ty, span: path.span },
            ResolvedName::Known(value) => literal(value, ty, path.span),
            ResolvedName::Sojourn => {
                if self.moment.is_none() {
                    self.is_zero(path.span);
                }
                let at = |what| operand(what, T::Timestamp, path.span);
                binary(B::Sub, at(Operand::Now), at(Operand::Arrived), T::Interval)
            }
        })
    }

    /// Keys and ranks are computed when a packet arrives.
    fn is_zero(&mut self, span: Span) {
        let message = "this is 0 for every packet";
        let help = "without an order of packets, the longest-waiting packet leaves first";
        self.cx.warn(code::QUEUE_NO_WAIT, message, span, "evaluated when the packet arrives", help);
    }

    /// Resolves a name. Returns its meaning, its type, and whether it can be set.
    pub(super) fn resolve(&mut self, path: &Path) -> Option<(ResolvedName, T, bool)> {
        let names: Vec<String> = path.segments.iter().map(|name| name.name.to_ascii_lowercase()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        match names[..] {
            ["p", "meta", field] | ["p", field] => self.packet_field(path, field),
            ["queue", "packets"] => {
                Some((ResolvedName::Operand(Operand::Packets { of_partition: false }), T::Number, false))
            }
            ["queue", "bytes"] => {
                Some((ResolvedName::Operand(Operand::Bytes { of_partition: false }), T::Size, false))
            }
            ["partition", what] => {
                let (found, ty) = match what {
                    "packets" => (Operand::Packets { of_partition: true }, T::Number),
                    "bytes" => (Operand::Bytes { of_partition: true }, T::Size),
                    "index" => (Operand::Index, T::Number),
                    _ => {
                        let known = ["partition.packets", "partition.bytes", "partition.index"];
                        return self.unknown(path, known);
                    }
                };
                self.needs_partition(path.span)?;
                Some((ResolvedName::Operand(found), ty, false))
            }
            ["link", "rate"] => Some((ResolvedName::Operand(Operand::Rate), T::Number, false)),
            ["queue", _] => self.unknown(path, ["queue.packets", "queue.bytes"]),
            ["link", _] => self.unknown(path, ["link.rate"]),
            [_] => self.resolve_name(path),
            _ => match self.header(path, false) {
                Some(found) => found.map(|(place, ty)| match ty {
                    T::Bool => (ResolvedName::Truth(place), ty, false),
                    _ => (ResolvedName::Operand(place), ty, false),
                }),
                None => {
                    self.unknown_layer(path);
                    None
                }
            },
        }
    }

    /// Reports a read of the packet where there is none.
    pub(super) fn no_packet(&mut self, span: Span) {
        let message = "no packet is available here";
        let diagnostic =
            Diagnostic::error(code::QUEUE_NOT_SEEN, message).at(span, "packet unknown").with_help(
                "`p` is available in ENQUEUE, ACTIVATE, SELECT and DEQUEUE, and in PARTITION BY and ORDER BY",
            );
        self.cx.report(diagnostic);
    }

    /// Resolves `p.field`. Returns its type, and whether it can be set.
    fn packet_field(&mut self, path: &Path, field: &str) -> Option<(ResolvedName, T, bool)> {
        if !self.sees_packet() {
            self.no_packet(path.span);
            return None;
        }
        let found = match field {
            "sojourn" => return Some((ResolvedName::Sojourn, T::Interval, false)),
            "len" => Operand::Len,
            "arrived" => Operand::Arrived,
            "ecn" => Operand::Ecn,
            "id" => Operand::Id,
            _ => Operand::Field(field.to_owned()),
        };
        let Some((_, ty, can_set)) = PACKET_FIELDS.iter().find(|(name, ..)| *name == field) else {
            let message = match field {
                "payload" | "data" | "body" => NO_PAYLOAD.to_owned(),
                _ => format!("packets in a queue have no field `{field}`"),
            };
            self.not_of_packets(path, message);
            return None;
        };
        if matches!(found, Operand::Field(_)) {
            self.record_field(field);
        }
        Some((ResolvedName::Operand(found), *ty, *can_set))
    }

    /// Reports an unknown packet field, with the known ones.
    fn not_of_packets(&mut self, path: &Path, message: impl Into<String>) {
        let names: Vec<&str> = PACKET_FIELDS.iter().map(|(name, ..)| *name).chain(["sojourn"]).collect();
        let diagnostic = Diagnostic::error(code::QUEUE_NOT_SEEN, message)
            .at(path.span, "unknown field")
            .with_note(format!("it has {}", names.join(", ")));
        let field = path.segments.last().map(|name| name.name.as_str());
        let meant = field.filter(|_| path.segments.len() > 1).and_then(|field| nearest(field, names));
        self.cx.report(match meant {
            Some(meant) => {
                let meant = format!("p.{meant}");
                diagnostic.with_help(format!("write `{meant}`")).with_fix(path.span, meant)
            }
            None => diagnostic.with_help(
                "write header fields with their layer, `vlan.id`; for anything else, use MARK in an element \
                 of the chain and read `p.class`",
            ),
        });
    }

    /// Reports a read of the partition where there is none.
    pub(super) fn needs_partition(&mut self, span: Span) -> Option<()> {
        if self.has_partition() && self.is_partitioned {
            return Some(());
        }
        if !self.is_partitioned {
            let help = "write `PARTITION BY flow();`, or read `queue.packets` and `queue.bytes`";
            let message = "this queue has a single partition";
            return self.cx.refuse(code::QUEUE_NOT_SEEN, message, span, "partition unknown", help);
        }
        let diagnostic = Diagnostic::error(code::QUEUE_NOT_SEEN, "no partition is available here")
            .at(span, "partition unknown")
            .with_help(
                "partitions are available in ENQUEUE, ACTIVATE, SELECT, DEQUEUE and EMPTY, and in EVERY with \
                 EACH PARTITION",
            );
        diagnostic.refuse(self.cx)
    }

    /// Resolves a name without a dot: a LET, a parameter, a variable or a predefined name.
    fn resolve_name(&mut self, path: &Path) -> Option<(ResolvedName, T, bool)> {
        let name = path.as_ident()?;
        if let Some((_, found)) = self.locals.iter().rev().find(|(known, _)| *known == name.name) {
            let (local, ty) = (*found)?;
            let params = self.local_params.iter().filter(|(of, _)| *of == local);
            self.param_uses.extend(params.map(|(_, param)| (param.clone(), path.span)));
            return Some((ResolvedName::Local(local), ty, false));
        }
        let named = self.names.iter().find(|(known, _)| *known == name.name).map(|(_, named)| *named);
        match (named, name.name.as_str()) {
            (Some(QueueName::Param(value, ty)), _) => {
                self.param_uses.push((name.name.clone(), path.span));
                Some((ResolvedName::Known(value), ty, false))
            }
            (Some(QueueName::Var(at, ty)), _) => Some((ResolvedName::Operand(Operand::Var(at)), ty, true)),
            (Some(QueueName::PartitionVar(at, ty)), _) => {
                self.needs_partition(path.span)?;
                Some((ResolvedName::Operand(Operand::PartitionVar(at)), ty, true))
            }
            (Some(QueueName::Broken), _) => None,
            (None, "rank") => {
                self.needs_partition(path.span)?;
                Some((ResolvedName::Operand(Operand::Rank), T::Number, true))
            }
            (None, "drops") => Some((ResolvedName::Operand(Operand::Drops), T::Number, false)),
            (None, "p") => Diagnostic::error(code::QUEUE_NOT_SEEN, "a packet is not a value")
                .at(path.span, "field missing")
                .with_help("write `p.len`, `p.sojourn` or another field")
                .refuse(self.cx),
            (None, _) if self.header(path, false).is_some() => None,
            // Elements call it so.
            (None, "payload") => {
                self.not_of_packets(path, NO_PAYLOAD);
                None
            }
            // Links of calls have `KEY session`.
            (None, "session") => {
                let help = "write `flow()`, and `KEY session` in CREATE LINK for calls: then each connection is a flow";
                let message = "queues cannot read sessions";
                self.cx.refuse(code::QUEUE_NOT_SEEN, message, path.span, "unknown", help)
            }
            (None, _) => {
                let known: Vec<String> = self.names.iter().map(|(name, _)| name.clone()).collect();
                let locals: Vec<String> = self.locals.iter().map(|(name, ..)| name.clone()).collect();
                let known = known.iter().chain(&locals).map(String::as_str).chain(["rank", "drops"]);
                let message = format!("unknown name `{}`", name.name);
                let diagnostic = Diagnostic::error(code::UNKNOWN_NAME, message).at(path.span, "unknown");
                with_nearest(diagnostic, name, known.collect::<Vec<_>>()).refuse(self.cx)
            }
        }
    }

    /// Reports `vlan.id` when no protocol has this name.
    fn unknown_layer(&mut self, path: &Path) {
        let fields = PACKET_FIELDS.iter().map(|(name, ..)| *name).chain(["sojourn"]);
        let known: Vec<String> = fields.map(|field| format!("p.{field}")).collect();
        let known = known.iter().map(String::as_str).chain(OTHER_NAMES);
        let first = &path.segments[0];
        let owners = ["p", "queue", "partition", "link"];
        let message = format!("unknown name `{}`", path.to_dotted());
        let diagnostic =
            Diagnostic::error(code::UNKNOWN_NAME, message).at(path.span, "unknown").with_note(format!(
                "known here: {}, and the header fields of imported protocols",
                known.collect::<Vec<_>>().join(", ")
            ));
        let meant = nearest(&first.name, owners.into_iter().chain(self.cx.formats.names()));
        self.cx.report_missing(match meant {
            Some(meant) => diagnostic.with_help(format!("write `{meant}`")).with_fix(first.span, meant),
            None => diagnostic.with_help(format!("for a header, {IMPORT_PROTOCOL}")),
        });
    }

    /// Reports an unknown name, and lists the known ones.
    fn unknown<R>(&mut self, path: &Path, known: impl IntoIterator<Item = &'static str>) -> Option<R> {
        let message = format!("unknown name `{}`", path.to_dotted());
        let known: Vec<&str> = known.into_iter().collect();
        Diagnostic::error(code::UNKNOWN_NAME, message)
            .at(path.span, "unknown")
            .with_note(format!("there are: {}", known.join(", ")))
            .refuse(self.cx)
    }

    /// Whether a packet is available.
    pub(super) fn sees_packet(&self) -> bool {
        !matches!(self.moment, Some(QueueMoment::Empty | QueueMoment::Every { .. })) && !self.is_declaration
    }

    fn has_partition(&self) -> bool {
        !matches!(self.moment, None | Some(QueueMoment::Every { each_partition: false, .. }))
    }
}
