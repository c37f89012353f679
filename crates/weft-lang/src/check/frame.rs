//! Columns of frames: the meaning of `tcp.syn`, `inner.ip.src` and `present(vlan)`, and their declaration by use.

use crate::check::suggest::unknown_layer;
use crate::check::view::FRAME_METAS;
use std::collections::{BTreeMap, BTreeSet};

use weft_core::wire::{FieldId, FieldRef, LayerRef, Protocol, ProtocolId, Union, Width, bits_max};
use weft_core::{Type, Value};

use super::binding;
use super::expr::can_compare;
use super::named_ports::NoPort;
use super::null_narrowing::NonNull;
use super::scope::Scope;
use super::wire::{FIRST_PROTOCOLS, Unions, read_only_rule};
use super::{Cx, quoted_list};
use crate::ast::{self, Ident, Path};
use crate::check::suggest::with_nearest;
use crate::check::tree::leaf;
use crate::check::tree::{constant_integer, function};
use crate::check::view::{View, is_nullable_in_response};
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{
    AssignTarget, Column, ColumnLocation, CompareOp, Direction, Element, Expr, ExprKind, Function,
    HandlerKind, Layer, Meta,
};
use crate::nearest::nearest;
use crate::source::Span;

/// Field names of other tools and standards, with the names used here.
const OTHER_NAMES: [(&str, &str); 14] = [
    ("daddr", "dst"),
    ("destination", "dst"),
    ("dport", "dst_port"),
    ("dstport", "dst_port"),
    ("hop_limit", "ttl"),
    ("hoplimit", "ttl"),
    ("next_header", "protocol"),
    ("nexthdr", "protocol"),
    ("proto", "protocol"),
    ("saddr", "src"),
    ("source", "src"),
    ("sport", "src_port"),
    ("srcport", "src_port"),
    ("tos", "dscp"),
];
/// Flags that other tools combine into one field.
const FLAGS: [&str; 8] = ["syn", "ack", "fin", "rst", "psh", "urg", "df", "mf"];

/// The output of a frame, as decided so far.
pub(crate) const EGRESS: &str = "egress";

/// The prefix of user metadata: values that elements attach to a frame for later elements.
pub(crate) const META: &str = "meta";
/// The user metadata: each is a U32, 0 until set, and not part of the frame.
pub(crate) const USER_METADATA: &[(&str, Meta)] =
    &[("label", Meta::Label), ("path", Meta::Path), ("tag", Meta::Tag)];

/// The wire formats of a program.
#[derive(Debug, Default)]
pub(super) struct Formats {
    pub(super) protocols: Vec<Protocol>,
    pub(super) unions: Vec<Union>,
    /// Columns of unions with a reported error, by union and column.
    broken: Vec<(String, String)>,
    /// See [`Formats::is_always_on`].
    standing: BTreeMap<(ProtocolId, Vec<ProtocolId>), bool>,
}

impl From<(Vec<Protocol>, Unions)> for Formats {
    fn from((protocols, Unions { unions, broken }): (Vec<Protocol>, Unions)) -> Self {
        Self { protocols, unions, broken, standing: BTreeMap::new() }
    }
}

impl Formats {
    /// The protocols that a name refers to.
    pub(super) fn layer(&self, name: &str, level: u8) -> Option<LayerRef> {
        let own = self.protocols.iter().position(|protocol| protocol.name == name);
        let own = own.map(|at| vec![ProtocolId(at as u16)]);
        let union = || self.unions.iter().find(|union| union.name == name).map(|union| union.members.clone());
        Some(LayerRef { level, protocols: own.or_else(union)? })
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let unions = self.unions.iter().map(|union| union.name.as_str());
        self.protocols.iter().map(|protocol| protocol.name.as_str()).chain(unions)
    }

    fn field(&self, protocol: ProtocolId, field: FieldId) -> &weft_core::wire::Field {
        &self.protocols[usize::from(protocol.0)].fields[usize::from(field.0)]
    }

    /// The field or column of a layer, with its type; None if unknown.
    fn column(&self, layer: &str, of: LayerRef, name: &str) -> Option<(FieldRef, Type)> {
        if let [only] = of.protocols[..]
            && self.protocols[usize::from(only.0)].name == layer
        {
            let id = self.protocols[usize::from(only.0)].field(name)?;
            return Some((FieldRef::first(of, vec![id]), self.field(only, id).ty));
        }
        let union = self.unions.iter().find(|union| union.name == layer)?;
        let column = union.columns.iter().find(|column| column.name == name)?;
        let layer = LayerRef { level: of.level, protocols: column.protocols.clone() };
        Some((FieldRef { layer, fields: Some(column.fields.clone()), last: column.last }, column.ty))
    }

    /// Returns the names of a protocol's fields or a union's columns.
    fn column_names(&self, layer: &str) -> Vec<&str> {
        if let Some(protocol) = self.protocols.iter().find(|protocol| protocol.name == layer) {
            return protocol.fields.iter().map(|field| field.name.as_str()).collect();
        }
        let union = self.unions.iter().find(|union| union.name == layer);
        union
            .map(|union| union.columns.iter().map(|column| column.name.as_str()).collect())
            .unwrap_or_default()
    }

    /// The written form of a layer's column, by its name only.
    pub(super) fn path_of(&self, layer: &LayerRef, column: &str) -> Option<String> {
        let protocols = self.protocols.iter().map(|protocol| &protocol.name);
        let mut names = protocols.chain(self.unions.iter().map(|union| &union.name));
        let is_it = |name: &&String| self.layer(name, layer.level).as_ref() == Some(layer);
        let name = names.find(is_it).filter(|name| self.column_names(name).contains(&column))?;
        let inner = if layer.level > 0 { "inner." } else { "" };
        Some(format!("{inner}{name}.{column}"))
    }

    /// Whether every frame in an element on this layer has the field.
    fn is_always_there(&mut self, layer: &Layer, field: &FieldRef) -> bool {
        let Layer::Packet(Some(own)) = layer else { return false };
        let of = &field.layer;
        if own.level != of.level || self.may_lack(field) {
            return false;
        }
        own.protocols.iter().all(|own| self.is_always_on(*own, &of.protocols))
    }

    /// Whether a layer may be present without this field.
    pub(super) fn may_lack(&self, field: &FieldRef) -> bool {
        let mut fields = field.layer.protocols.iter().zip(field.fields.iter().flatten());
        fields.any(|(protocol, id)| self.field(*protocol, *id).optional)
    }

    /// The fields of the `SESSION KEY` of a layer, in order; None if one of its protocols has none, or a different
    /// number of fields.
    fn session_key(&self, layer: &LayerRef) -> Option<Vec<FieldRef>> {
        let key = |of: &ProtocolId| &self.protocols[usize::from(of.0)].session_key;
        let n = key(layer.protocols.first()?).len();
        if n == 0 || layer.protocols.iter().any(|of| key(of).len() != n) {
            return None;
        }
        let nth = |nth: usize| {
            let (protocols, fields) = layer.protocols.iter().map(|of| key(of)[nth]).unzip();
            FieldRef::first(LayerRef { level: layer.level, protocols }, fields)
        };
        Some((0..n).map(nth).collect())
    }

    /// The type of a column: that of the field in its first protocol.
    fn type_of(&self, field: &FieldRef) -> Type {
        let first = field.layer.protocols.iter().zip(field.fields.iter().flatten()).next();
        first.map_or(Type::Bool, |(protocol, id)| self.field(*protocol, *id).ty)
    }

    /// Whether a header of one protocol always follows a header of others: it is one of them, or every protocol that
    /// carries it on the same level follows one of them.
    fn is_always_on(&mut self, own: ProtocolId, others: &[ProtocolId]) -> bool {
        let key = (own, others.to_vec());
        if let Some(known) = self.standing.get(&key) {
            return *known;
        }
        let mut seen = BTreeSet::from([own]);
        let mut open = vec![own];
        let mut stands = true;
        while let Some(at) = open.pop().filter(|_| stands) {
            if others.contains(&at) {
                continue;
            }
            let carries = |lower: &Protocol| lower.next.iter().any(|next| next.to == at && !next.inner);
            let lower = self.protocols.iter().enumerate().filter(|(_, lower)| carries(lower));
            let lower: Vec<ProtocolId> = lower.map(|(lower, _)| ProtocolId(lower as u16)).collect();
            // A protocol that no other carries may be the first header of a frame; so may IP, on a TUN device.
            stands = lower.iter().any(|lower| *lower != at)
                && !FIRST_PROTOCOLS.contains(&self.protocols[usize::from(at.0)].name.as_str());
            open.extend(lower.into_iter().filter(|lower| seen.insert(*lower)));
        }
        self.standing.insert(key, stands);
        stands
    }
}

/// A column of a frame, as named in a program.
pub(super) struct FrameColumn {
    pub(super) field: FieldRef,
    pub(super) ty: Type,
    pub(super) nullable: bool,
}

/// The location of a name in or beside a frame.
struct ResolvedField {
    place: ColumnLocation,
    ty: Type,
    nullable: bool,
}

impl From<FrameColumn> for ResolvedField {
    fn from(FrameColumn { field, ty, nullable }: FrameColumn) -> Self {
        Self { place: ColumnLocation::Frame(field), ty, nullable }
    }
}

/// The reason why a field cannot be set.
enum ReadOnlyReason {
    /// The property of the field, such as its rule.
    As(&'static str),
    /// In a header of this protocol, another field is computed from it.
    For(String, String),
}

impl Cx<'_> {
    /// The layer that `layer` or `inner.layer` names; None if unknown.
    pub(super) fn layer_of<'p>(&self, segments: &'p [Ident]) -> Option<(LayerRef, &'p Ident, &'p [Ident])> {
        let (level, rest) = match segments {
            [inner, rest @ ..] if inner.name == "inner" && !rest.is_empty() => (1, rest),
            rest => (0, rest),
        };
        let (name, rest) = rest.split_first()?;
        Some((self.formats.layer(&name.name, level)?, name, rest))
    }

    /// The column that a path names in an element of this layer; None if its first part is not a layer. The inner None
    /// is a reported error.
    pub(super) fn frame_column(&mut self, layer: &Layer, path: &Path) -> Option<Option<FrameColumn>> {
        let (of, name, rest) = self.layer_of(&path.segments)?;
        let [field] = rest else {
            let fields = self.formats.column_names(&name.name);
            let example = fields.first().copied().unwrap_or("field").to_owned();
            let message = format!("`{}` is a layer of a frame, not a value", path.to_dotted());
            let diagnostic = Diagnostic::error(code::TYPE_MISMATCH, message)
                .at(path.span, "which field of it?")
                .with_help(format!("write `{}.{example}`, or `present({0})`", path.to_dotted()));
            self.report(diagnostic);
            return Some(None);
        };
        let Some((field, ty)) = self.formats.column(&name.name, of, &field.name) else {
            self.no_such_column(name, field);
            return Some(None);
        };
        let nullable = !self.formats.is_always_there(layer, &field);
        Some(Some(FrameColumn { field, ty, nullable }))
    }

    /// Reports an unknown field of a layer.
    fn no_such_column(&mut self, layer: &Ident, field: &Ident) {
        if self.formats.broken.iter().any(|(of, name)| *of == layer.name && *name == field.name) {
            return;
        }
        let names: Vec<String> =
            self.formats.column_names(&layer.name).into_iter().map(str::to_owned).collect();
        let diagnostic =
            Diagnostic::error(code::NO_SUCH_FIELD, format!("`{}` has no field `{}`", layer.name, field.name))
                .at(field.span, "not a field of this header");
        let diagnostic = match names.is_empty() {
            true => diagnostic.with_note("it has none"),
            false => diagnostic.with_note(format!("it has: {}", quoted_list(&names))),
        };
        let flags: Vec<&str> =
            FLAGS.into_iter().filter(|flag| names.iter().any(|name| name == flag)).collect();
        if field.name.eq_ignore_ascii_case("flags") && !flags.is_empty() {
            let help = format!(
                "use the flag's field: `{}.{}`",
                layer.name,
                flags.join(&format!("`, `{}.", layer.name))
            );
            return self.report_missing(diagnostic.with_help(help));
        }
        let is_other = |(other, _): &&(&str, &str)| field.name.eq_ignore_ascii_case(other);
        let meant = OTHER_NAMES.iter().find(is_other).map(|(_, meant)| *meant);
        let diagnostic = match meant.filter(|meant| names.iter().any(|name| name == meant)) {
            Some(meant) => diagnostic.with_help(format!("write `{meant}`")).with_fix(field.span, meant),
            None => with_nearest(diagnostic, field, names.iter().map(String::as_str)),
        };
        self.report_missing(diagnostic);
    }

    /// Why a column is read-only; None if it can be set.
    fn read_only_reason(&self, field: &FieldRef) -> Option<ReadOnlyReason> {
        let Some(fields) = &field.fields else { return Some(ReadOnlyReason::As("a layer, not a field")) };
        field.layer.protocols.iter().zip(fields).find_map(|(protocol, id)| {
            let field = self.formats.field(*protocol, *id);
            let is_variable = match &field.width {
                // A value of bytes must have the length of the field in the frame.
                Width::Bits { .. } | Width::Bytes { .. } => false,
                Width::Rounds { .. } => true,
            };
            let own = read_only_rule(&field.rule).or(is_variable.then_some("of variable length"));
            let of = &self.formats.protocols[usize::from(protocol.0)];
            own.map(ReadOnlyReason::As)
                .or_else(|| Some(ReadOnlyReason::For(of.name.clone(), of.computed_from(*id)?.name.clone())))
        })
    }

    /// Warns of metadata that no protocol of the program declares.
    pub(super) fn check_declared(&mut self, meta: Meta, span: Span) {
        let mut all = self.formats.protocols.iter();
        let (is_declared, name, always, clause, of) = match meta {
            Meta::IsIcmpError => (
                all.any(|protocol| protocol.error.is_some()),
                "is_icmp_error",
                "FALSE",
                "`ERROR WHERE`",
                "icmp",
            ),
            Meta::IsIntact => (
                all.any(Protocol::covers_payload),
                "is_intact",
                "TRUE",
                "a checksum that is COMPUTED from the payload",
                "udp",
            ),
            Meta::TunnelDepth => (
                all.any(|protocol| protocol.next.iter().any(|next| next.inner)),
                "tunnel_depth",
                "0",
                "a payload that is INNER",
                "gre",
            ),
            _ => return,
        };
        if !is_declared {
            let diagnostic =
                Diagnostic::warning(code::NOT_DECLARED, format!("`{name}` is {always} for every frame"))
                    .at(span, format!("no protocol in the program has {clause}"))
                    .with_help(format!(
                        "import the protocols that have it: `IMPORT 'library/protocols/{of}.weft';`"
                    ));
            self.report(diagnostic);
        }
    }

    /// Rejects a SET of a column that the header does not allow.
    pub(super) fn check_settable(&mut self, field: &FieldRef, name: &str, span: Span) -> Option<()> {
        let Some(why) = self.read_only_reason(field) else { return Some(()) };
        let (label, help) = match why {
            ReadOnlyReason::As(why @ "computed when the frame is written") => (
                format!("is {why}"),
                "set the fields that it is computed from; it is updated automatically".to_owned(),
            ),
            ReadOnlyReason::As(why) => {
                (format!("is {why}"), "this field is read-only; set other fields".to_owned())
            }
            ReadOnlyReason::For(of, other) => (
                format!("`{other}` is computed from it when the header is pushed"),
                format!("replace the header: `POP {of}`, then PUSH the new one"),
            ),
        };
        let diagnostic = Diagnostic::error(code::FIELD_READ_ONLY, format!("`{name}` cannot be set"))
            .at(span, label)
            .with_help(help);
        self.report(diagnostic);
        None
    }

    /// The maximum of a column in any frame; None for bytes.
    fn greatest_of(&self, field: &FieldRef) -> Option<u64> {
        let fields = field.layer.protocols.iter().zip(field.fields.as_ref()?);
        let bits = fields.map(|(protocol, id)| match self.formats.field(*protocol, *id).width {
            Width::Bits { n, .. } => Some(n),
            Width::Bytes { .. } | Width::Rounds { .. } => None,
        });
        bits.collect::<Option<Vec<u8>>>()?.into_iter().max().map(bits_max)
    }

    /// The maximum of a column by its width; 64 bits for bytes.
    fn max_value_of(&self, field: &FieldRef) -> u64 {
        let fields = field.fields.iter().flatten();
        let bits = field.layer.protocols.iter().zip(fields).map(|(protocol, id)| {
            match self.formats.field(*protocol, *id).width {
                Width::Bits { n, .. } => n,
                Width::Bytes { .. } | Width::Rounds { .. } => 64,
            }
        });
        bits_max(bits.min().unwrap_or(64))
    }
}

impl Scope<'_, '_> {
    /// Whether this is about frames.
    pub(super) fn is_packet(&self) -> bool {
        self.element.layer != Layer::Rpc
    }

    /// The place in words.
    pub(super) fn words(&self) -> &'static str {
        match self.view {
            View::Handler(HandlerKind::Request) if self.is_packet() => "ON PACKET",
            view => view.words(),
        }
    }

    /// The metadata with this name, if available here.
    pub(super) fn meta(&self, name: &str) -> Option<(Meta, Type, bool)> {
        let all = if self.is_packet() { FRAME_METAS } else { super::view::METAS };
        let (_, meta, ty, nullable) = all.iter().find(|(known, ..)| *known == name)?;
        let is_here = match self.is_packet() {
            true => self.is_frame_here(),
            false => self.view.has_meta(*meta),
        };
        let is_response = self.view == View::Handler(HandlerKind::Response);
        let nullable = *nullable || is_response && is_nullable_in_response(*meta);
        is_here.then_some((*meta, *ty, nullable))
    }

    /// The metadata with this name as an expression, if available here.
    pub(super) fn read_meta(&mut self, name: &Ident) -> Option<Expr> {
        let (meta, ty, nullable) = self.meta(&name.name)?;
        self.cx.check_declared(meta, name.span);
        Some(leaf(ExprKind::Meta(meta), ty, nullable, name.span))
    }

    /// Whether a frame is available.
    pub(super) fn is_frame_here(&self) -> bool {
        self.is_packet() && self.view == View::Handler(HandlerKind::Request)
    }
}

/// The value of a path that begins with a layer; None for other paths. The inner None is a reported error.
pub(super) fn frame_path(scope: &mut Scope<'_, '_>, path: &Path) -> Option<Option<Expr>> {
    if !scope.is_packet() {
        return None;
    }
    let found = match user_metadata(scope, path) {
        Some(meta) => meta?,
        None => match scope.cx.frame_column(&scope.element.layer, path)? {
            Some(found) => found.into(),
            None => return Some(None),
        },
    };
    Some(frame_value(scope, found, &path.to_dotted(), path.span))
}

/// The user metadata with this name; None for other paths. The inner None is a reported error.
fn user_metadata(scope: &mut Scope<'_, '_>, path: &Path) -> Option<Option<ResolvedField>> {
    let [first, name] = path.segments.as_slice() else { return None };
    if first.name != META || scope.cx.formats.layer(META, 0).is_some() {
        return None;
    }
    let Some((_, meta)) = USER_METADATA.iter().find(|(known, _)| *known == name.name) else {
        let names: Vec<String> = USER_METADATA.iter().map(|(name, _)| (*name).to_owned()).collect();
        let message = format!("unknown name `{}`", path.to_dotted());
        let diagnostic = Diagnostic::error(code::NO_SUCH_FIELD, message)
            .at(name.span, "not user metadata of a frame")
            .with_note(format!("there is: {}", quoted_list(&names)));
        scope.cx.report(with_nearest(diagnostic, name, USER_METADATA.iter().map(|(name, _)| *name)));
        return Some(None);
    };
    Some(Some(ResolvedField { place: ColumnLocation::Meta(*meta), ty: Type::Uint(32), nullable: false }))
}

/// Checks `present(layer)` for a known layer; None for other calls.
pub(super) fn present(
    scope: &mut Scope<'_, '_>,
    name: &str,
    args: &[ast::Expr],
    span: Span,
) -> Option<Option<Expr>> {
    if let ("present", [ast::Expr { kind: ast::ExprKind::Path(path), .. }]) = (name, args)
        && let Some(found) = binding::bound_present(scope, path, span)
    {
        return Some(found);
    }
    if name != "present" || !scope.is_packet() {
        return None;
    }
    let [ast::Expr { kind: ast::ExprKind::Path(path), .. }] = args else {
        let message = "`present` takes a layer or a field";
        let help = "write `present(tcp)`, or `present(inner.ip)`";
        scope.cx.fault(code::BAD_ARGUMENTS, message, span, "argument missing", help);
        return Some(None);
    };
    match scope.cx.layer_of(&path.segments).map(|(of, _, rest)| (of, rest.len())) {
        Some((layer, 0)) => {
            let found = FrameColumn { field: FieldRef::presence(layer), ty: Type::Bool, nullable: false };
            Some(frame_value(scope, found.into(), &path.to_dotted(), span))
        }
        Some(_) => {
            let operand = scope.resolve(path)?;
            let kind =
                ExprKind::Not(Box::new(leaf(ExprKind::IsNull(Box::new(operand)), Type::Bool, false, span)));
            Some(Some(leaf(kind, Type::Bool, false, span)))
        }
        None => {
            unknown_layer(scope.cx, path);
            Some(None)
        }
    }
}

/// Checks `session_key(layer)`: a hash of the layer's session key fields; None for other calls.
pub(super) fn session_key(
    scope: &mut Scope<'_, '_>,
    name: &str,
    args: &[ast::Expr],
    span: Span,
) -> Option<Option<Expr>> {
    if name != "session_key" || !scope.is_packet() {
        return None;
    }
    let layer = match args {
        [ast::Expr { kind: ast::ExprKind::Path(path), .. }] => {
            Some((path, scope.cx.layer_of(&path.segments)))
        }
        _ => None,
    };
    let (path, layer) = match layer {
        Some((path, Some((layer, _, [])))) => (path, layer),
        Some((path, None)) => {
            unknown_layer(scope.cx, path);
            return Some(None);
        }
        _ => {
            let message = "`session_key` takes a layer";
            let help = "write `session_key(rtp)`, or `session_key(inner.ip)`";
            scope.cx.fault(code::BAD_ARGUMENTS, message, span, "argument missing", help);
            return Some(None);
        }
    };
    let Some(fields) = scope.cx.formats.session_key(&layer) else {
        let message = format!("`{}` has no session key", path.to_dotted());
        let help = "add `SESSION KEY (field, ...)` to the protocol, or write `hash(field, ...)`";
        scope.cx.fault(code::BAD_ARGUMENTS, message, path.span, "its definition has no SESSION KEY", help);
        return Some(None);
    };
    Some(hash_of(scope, &path.to_dotted(), fields, span))
}

/// Builds the hash of these fields, for `session_key`.
fn hash_of(scope: &mut Scope<'_, '_>, layer: &str, fields: Vec<FieldRef>, span: Span) -> Option<Expr> {
    let mut parts = Vec::new();
    for (nth, field) in fields.into_iter().enumerate() {
        let ty = scope.cx.formats.type_of(&field);
        let nullable = !scope.cx.formats.is_always_there(&scope.element.layer, &field);
        let found = FrameColumn { field, ty, nullable };
        parts.push(frame_value(scope, found.into(), &format!("session_key({layer}) {nth}"), span)?);
    }
    Some(function(Function::Hash, parts, Type::Uint(64), false, span))
}

/// Reads a frame field as a column of the element. It is not NULL if a condition has tested its layer.
fn frame_value(scope: &mut Scope<'_, '_>, found: ResolvedField, name: &str, span: Span) -> Option<Expr> {
    let is_there = matches!(&found.place, ColumnLocation::Frame(field) if is_in_known_layer(scope, field));
    let (ty, nullable) = (found.ty, found.nullable && !is_there);
    let at = frame_at(scope, found, name, span)?;
    let nullable = nullable && !scope.non_null.contains(NonNull::Column(at));
    Some(leaf(ExprKind::Column(at), ty, nullable, span))
}

/// Returns the column for a location in the frame, and declares it if it is new.
fn frame_at(scope: &mut Scope<'_, '_>, found: ResolvedField, name: &str, span: Span) -> Option<usize> {
    if !scope.is_frame_here() {
        let message = format!("`{name}` is not available in {}", scope.words());
        let help = "read it in ON PACKET, and save it in a TABLE or a VAR";
        return scope.cx.refuse(code::NAME_NOT_HERE, message, span, "no frame here", help);
    }
    let is_presence = matches!(&found.place, ColumnLocation::Frame(field) if field.fields.is_none());
    let name = if is_presence { format!("present({name})") } else { name.to_owned() };
    let own = scope.element.columns.iter().position(|known| known.name == name);
    if let Some(at) = own.or_else(|| scope.new_columns.named(&name)) {
        return Some(at);
    }
    let column = Column {
        name,
        ty: found.ty,
        nullable: found.nullable,
        direction: Direction::Request,
        read: false,
        written: false,
        replied: false,
        span,
    };
    Some(scope.new_columns.add(column, found.place))
}

/// Whether a field of a frame is present because a condition has tested its layer.
fn is_in_known_layer(scope: &Scope<'_, '_>, field: &FieldRef) -> bool {
    let holds = |layer: &LayerRef| {
        layer.level == field.layer.level
            && layer.protocols.iter().all(|protocol| field.layer.protocols.contains(protocol))
    };
    let mut tested = scope.non_null.columns().filter_map(|at| scope.new_columns.location(at));
    field.fields.is_some()
        && !scope.cx.formats.may_lack(field)
        && tested.any(|place| {
            matches!(place, ColumnLocation::Frame(known) if known.fields.is_none() && holds(&known.layer))
        })
}

/// The frame column that a SET names; None for other paths. The inner None is a reported error.
pub(super) fn frame_place(
    scope: &mut Scope<'_, '_>,
    path: &Path,
) -> Option<Option<(AssignTarget, Type, bool, String)>> {
    if !scope.is_packet() {
        return None;
    }
    let name = path.to_dotted();
    let found = match user_metadata(scope, path) {
        Some(meta) => meta?,
        None => {
            let Some(found) = scope.cx.frame_column(&scope.element.layer, path)? else { return Some(None) };
            if scope.cx.check_settable(&found.field, &name, path.span).is_none() {
                return Some(None);
            }
            found.into()
        }
    };
    let ty = found.ty;
    let at = frame_at(scope, found, &name, path.span)?;
    Some(Some((AssignTarget::Column(at), ty, false, format!("`{name}`"))))
}

/// Warns of a comparison of a field with a number that the field cannot hold.
pub(super) fn warn_of_number(scope: &mut Scope<'_, '_>, op: CompareOp, (field, other): (&ast::Expr, &Expr)) {
    let (ast::ExprKind::Path(path), Some(n)) = (&field.kind, constant_integer(other)) else { return };
    let found = scope.is_packet().then(|| scope.cx.frame_column(&scope.element.layer, path));
    let Some(most) = found.flatten().flatten().and_then(|found| scope.cx.greatest_of(&found.field)) else {
        return;
    };
    if can_compare(op, n, (0, most)) {
        return;
    }
    let name = path.to_dotted();
    let message = format!("`{name}` never has this value");
    let help = "compare it with a value in its range, or remove the condition";
    scope.cx.warn(code::NEVER_TRUE, message, other.span, format!("its range is 0 to {most}"), help);
}

/// Warns of a comparison of a frame's port with an unknown port name.
pub(super) fn warn_of_port(scope: &mut Scope<'_, '_>, port: &Expr, other: &Expr) {
    let (ExprKind::Meta(Meta::Port), ExprKind::Const(Value::Bytes(name))) = (&port.kind, &other.kind) else {
        return;
    };
    let known = scope.cx.ports.iter().map(String::as_str);
    let Ok(name) = core::str::from_utf8(name) else { return };
    // A file of elements has no ports.
    if known.len() == 0 || known.clone().any(|known| known == name) {
        return;
    }
    let strange = NoPort {
        name,
        literal: Some(other.span),
        otherwise: "name a PORT of the program, or remove the condition",
    };
    let diagnostic = scope.cx.no_port(Diagnostic::warning, strange).at(other.span, "unknown port");
    scope.cx.report_missing(diagnostic);
}

/// Rejects a number that is too large for its field.
pub(super) fn check_fits(scope: &mut Scope<'_, '_>, path: &Path, value: &Expr) -> Option<()> {
    let ExprKind::Const(Value::Int(n)) = value.kind else { return Some(()) };
    let (Some(Some(found)), true) = (
        scope.cx.frame_column(&scope.element.layer, path),
        scope.is_packet() && crate::types::is_integer(value.ty),
    ) else {
        return Some(());
    };
    let most = scope.cx.max_value_of(&found.field);
    if n as u64 <= most {
        return Some(());
    }
    let message = format!("{} is too large for `{}`", n as u64, path.to_dotted());
    let help = "the header field is that wide";
    scope.cx.refuse(code::BAD_LITERAL, message, value.span, format!("the maximum is {most}"), help)
}

/// Checks the layer of an element. The error is the layer used for checking the rest of the element if this version
/// does not support its own.
pub(super) fn layer(cx: &mut Cx<'_>, ast: &Ident) -> Result<Layer, Layer> {
    const LATER: [&str; 6] = ["http", "ws", "websocket", "sip", "quic", "tls"];
    let name = ast.name.to_ascii_lowercase();
    match name.as_str() {
        "rpc" => return Ok(Layer::Rpc),
        "packet" => return Ok(Layer::Packet(None)),
        _ => {}
    }
    if let Some(found) = cx.formats.layer(&ast.name, 0) {
        return Ok(Layer::Packet(Some(found)));
    }
    if LATER.contains(&name.as_str()) {
        let diagnostic = Diagnostic::error(
            code::LAYER_NOT_IN_VERSION,
            format!("layer `{name}` is not supported in this version"),
        )
        .at(ast.span, "the rest of the element is checked")
        .with_help("an element works ON rpc, ON packet, or ON a protocol in this version");
        cx.report(diagnostic);
        return Err(Layer::Rpc);
    }
    let message = format!("there is no layer `{}`", ast.name);
    let diagnostic = Diagnostic::error(code::LAYER_NOT_IN_VERSION, message)
        .at(ast.span, "the rest of the element is checked");
    let known = cx.formats.names().chain(["rpc", "packet"]);
    let near = nearest(&ast.name, known);
    let stand_in = if near == Some("rpc") { Layer::Rpc } else { Layer::Packet(None) };
    let diagnostic = match near {
        Some(near) => diagnostic.with_help(format!("write `{near}`")).with_fix(ast.span, near),
        None => diagnostic
            .with_help("a layer is `rpc`, `packet` or a protocol: `IMPORT 'library/protocols/all.weft';`"),
    };
    cx.report_missing(diagnostic);
    Err(stand_in)
}

/// Adds the columns that a handler declared by use to those of its element.
pub(super) fn declare(
    element: &mut Element,
    frames: &mut Vec<(usize, ColumnLocation)>,
    new: Vec<(Column, ColumnLocation)>,
) {
    for (column, place) in new {
        frames.push((element.columns.len(), place));
        element.columns.push(column);
    }
}
