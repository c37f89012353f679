//! Lowers PUSH, POP and CUT: the first protocol of a frame on each path through a handler, and the headers that are
//! pushed.

use weft_core::abi::Fault;
use weft_core::inputs::InputSet;
use weft_core::types::{Type, Value as Constant};
use weft_core::wire::header_change::{
    AddressesIn, HeaderChange, Pop, Pseudo, PseudoSum, PseudoSumIn, Relink, Stack, StackError, addresses_in,
    pseudo_sums, relink, stack,
};
use weft_core::wire::{
    BuildError, Expr as WireExpr, FieldId, FieldValue, Header, LEVELS_MAX, LayerRef, Protocol, ProtocolId,
    Rule, Width,
};
use weft_ir::ir::{HeaderChangeId, InputId, IntCmp, Op, Ty, Value};
use weft_ir::program::{ChainProgram, HeaderChangeDecl, InputLocation};
use weft_lang::check::fold::fold;
use weft_lang::diagnostic::{Diagnostic, code};
use weft_lang::hir::{Direction, Expr, PopHow, Pushed};
use weft_lang::source::Span;
use weft_lang::types;

use super::Lowering;
use super::handler::Statements;
use super::places;
use super::wire;

/// The protocols that a frame may begin with; None: those of frames that enter the chain.
pub(super) type FrameStart = Option<Vec<ProtocolId>>;

/// The first protocols of frames, by position in a chain.
#[derive(Clone, Debug, Default)]
pub(super) struct Roots {
    /// When frames enter, and between elements.
    pub(super) inside: Vec<ProtocolId>,
    /// When frames leave.
    pub(super) outside: Vec<ProtocolId>,
    /// Link headers, where frames have none.
    pub(super) links: Vec<ProtocolId>,
}

impl<'n> Statements<'_, 'n> {
    /// Lowers PUSH: fixed field values go into the header template, and others are computed for each frame.
    pub(super) fn push_headers(&mut self, pushed: &'n [Pushed], span: Span) {
        let pushed = self.without_link(pushed);
        let mut headers = Vec::new();
        let (mut given, mut params, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for (at, of) in pushed.iter().enumerate() {
            let mut header = Header { protocol: of.protocol, ..Header::default() };
            for (field, expr) in &of.fields {
                match self.fixed_value(expr) {
                    Some(value) => {
                        if !self.fits(of.protocol, *field, &value, expr) {
                            // Continue as if it were correct.
                            self.body.path.front = pushed.first().map(|first| vec![first.protocol]);
                            return;
                        }
                        header.values.insert(*field, value);
                    }
                    None => {
                        given.push((at, *field));
                        params.push(types::without_length(self.field_type(of.protocol, *field)));
                        values.push(self.pushed_value(of.protocol, *field, expr));
                    }
                }
            }
            headers.push(header);
        }
        let (Some(first), Some(last)) = (pushed.first(), pushed.last()) else { return };
        let front = self.front();
        let is_root = self.body.lowering.roots.inside.contains(&first.protocol)
            || self.body.lowering.roots.outside.contains(&first.protocol);
        let what = match is_root {
            true => {
                let stacks = self.stacks(&headers, &given, &front, span);
                self.body.path.front = Some(vec![first.protocol]);
                stacks.map(|stacks| HeaderChange::Push { behind: None, stacks })
            }
            false => self.headers_after_first(first, last, &headers, &given, &front, span),
        };
        if let Some(what) = what {
            self.reshape(HeaderChangeDecl { params, what }, values);
        }
    }

    /// The headers without link headers, where frames have none: so an element for Ethernet works for IP alone, too.
    fn without_link(&self, pushed: &'n [Pushed]) -> &'n [Pushed] {
        let Roots { inside, outside, links } = &self.body.lowering.roots;
        let Some(first) = pushed.first().filter(|first| links.contains(&first.protocol)) else {
            return pushed;
        };
        if outside.contains(&first.protocol) {
            return pushed;
        }
        let begins = pushed.iter().position(|header| inside.contains(&header.protocol));
        &pushed[begins.unwrap_or(pushed.len())..]
    }

    /// Lowers POP, with a fault if the layer is missing.
    pub(super) fn pop(&mut self, layer: &LayerRef, how: PopHow, span: Span) {
        let (layer, how) = match how {
            PopHow::To => (layer.clone(), Pop::To),
            PopHow::With => match self.carried(layer, span) {
                Some(layer) => (layer, Pop::To),
                None => return,
            },
            PopHow::Alone => match self.unlink(layer, span) {
                Some(relink) => (layer.clone(), Pop::Alone(relink)),
                None => return,
            },
        };
        let input = self.layer(layer.clone());
        let is_there = self.body.b.get(Op::InputPresent(input), Ty::Bool);
        let is_missing = self.body.b.get(Op::Not(is_there), Ty::Bool);
        let fault = self.body.b.raise(is_missing, Fault::UnexpectedNull);
        self.fail_if(fault);
        let mut pseudo = Pseudo::default();
        if how == Pop::To {
            pseudo = self.pseudo_of(&layer, span);
            self.body.path.front = Some(layer.protocols);
        }
        let what = HeaderChange::Pop { layer: input.0, how, pseudo };
        self.reshape(HeaderChangeDecl { params: Vec::new(), what }, Vec::new());
    }

    /// The input of a layer.
    fn layer(&mut self, layer: LayerRef) -> InputId {
        let (program, ty) = (&mut self.body.lowering.program, Type::Uint(64));
        places::input(program, Direction::Request, InputLocation::Layer(layer), ty, true, false)
    }

    /// Finds the checksums of a layer and after it that cover addresses before it.
    fn pseudo_of(&mut self, layer: &LayerRef, span: Span) -> Pseudo {
        let protocols = &self.body.lowering.network.protocols;
        let sums = pseudo_sums(protocols, &layer.protocols);
        if sums.is_empty() {
            return Pseudo::default();
        }
        let ids = (0..protocols.len()).map(|at| ProtocolId(at as u16));
        let leads = |id: &ProtocolId| layer.protocols.iter().any(|to| wire::leads_to(protocols, *id, *to));
        let below = ids.filter(leads).map(|id| (id, addresses_in(&protocols[usize::from(id.0)])));
        let below: Vec<_> = below.filter(|(_, ranges)| !ranges.is_empty()).collect();
        let of = |protocol| LayerRef { level: layer.level, protocols: vec![protocol] };
        let mut pseudo = Pseudo::default();
        for PseudoSum { protocol, at, zero_is_none } in sums {
            match at {
                Some(at) => {
                    pseudo.sums.push(PseudoSumIn { layer: self.layer(of(protocol)).0, at, zero_is_none });
                }
                None => self.refuse_sum(protocol, span),
            }
        }
        for (protocol, ranges) in below {
            pseudo.addresses.push(AddressesIn { layer: self.layer(of(protocol)).0, ranges });
        }
        pseudo
    }

    /// Reports a checksum that cannot be corrected when POP removes the addresses that it covers.
    fn refuse_sum(&mut self, protocol: ProtocolId, span: Span) {
        let message = format!(
            "the checksum of `{}` covers addresses that are taken off, and has no fixed place in its header",
            self.name(protocol)
        );
        self.body.lowering.mismatch(
            message,
            (span, "it could not follow"),
            "let it stand in front of all that may be missing, or longer in some packets",
        );
    }

    /// CUT or FRAGMENT, to this many bytes.
    pub(super) fn shorten(&mut self, what: HeaderChange, bytes: &'n Expr) {
        let value = self.checked(bytes).value;
        let decl = HeaderChangeDecl { params: vec![Type::Uint(32)], what };
        self.reshape(decl, vec![value]);
    }

    /// Rejects frames that continue from here with a first protocol that the next reader does not expect.
    pub(super) fn check_front(&mut self, span: Span) {
        let Some(front) = &self.body.path.front else { return };
        let Roots { inside, outside, .. } = &self.body.lowering.roots;
        let is_good =
            |id: &&ProtocolId| inside.contains(id) || (self.body.lowering.is_last && outside.contains(id));
        let Some(odd) = front.iter().find(|id| !is_good(id)) else { return };
        let odd = self.body.lowering.network.protocols[usize::from(odd.0)].name.clone();
        let names = self.body.lowering.protocol_names(inside);
        let message = format!("the frame may begin with `{odd}` here, and is to begin with {names}");
        self.body.lowering.mismatch(
            message,
            (span, "goes on from here"),
            match names.contains("ethernet") {
                true => "put a header for the link on it: `PUSH ethernet (dst = ..., src = ...)`",
                false => "POP what is in front of the IP packet",
            },
        );
    }

    fn front(&self) -> Vec<ProtocolId> {
        self.body.path.front.clone().unwrap_or_else(|| self.body.lowering.roots.inside.clone())
    }

    /// Emits a header change. Equal changes share one declaration.
    fn reshape(&mut self, decl: HeaderChangeDecl, values: Vec<Value>) {
        let at = places::index_of(&mut self.body.lowering.program.header_changes, decl);
        self.body.b.act(Op::ChangeHeaders(HeaderChangeId(at), values));
    }

    // ---- values ----

    /// The value of an expression that is the same in all frames.
    fn fixed_value(&self, expr: &Expr) -> Option<FieldValue> {
        match fold(expr, &self.body.scope.instance.params).ok()? {
            Constant::Bool(b) => Some(FieldValue::Number(u64::from(b))),
            Constant::Int(n) => Some(FieldValue::Number(n as u64)),
            Constant::Bytes(bytes) => Some(FieldValue::Bytes(bytes)),
            Constant::Null | Constant::Float(_) => None,
        }
    }

    /// Whether a value has the size of its field; reports a misfit once for all PUSHes with the same argument.
    fn fits(&mut self, protocol: ProtocolId, field: FieldId, value: &FieldValue, expr: &Expr) -> bool {
        let of = &self.body.lowering.network.protocols[usize::from(protocol.0)];
        let field = &of.fields[usize::from(field.0)];
        let (message, help) = match (&field.width, value) {
            (Width::Bytes { count: WireExpr::Int(n), .. }, FieldValue::Bytes(bytes))
                if bytes.len() as u64 != *n =>
            {
                let message =
                    format!("{} bytes for `{}.{}`, which has {n}", bytes.len(), of.name, field.name);
                (message, "an address of IPv4 has 4 bytes, one of IPv6 has 16".to_owned())
            }
            (Width::Bits { n, .. }, FieldValue::Number(value))
                if value.checked_shr((*n).into()).unwrap_or(0) != 0 =>
            {
                let message =
                    format!("{value} does not fit `{}.{}`, which has {n} bits", of.name, field.name);
                (message, format!("{} is the most that it can be", (1u64 << n) - 1))
            }
            _ => return true,
        };
        let params = &self.body.scope.element.params;
        let names: Vec<String> = expr.params().iter().map(|at| format!("`{}`", params[*at].name)).collect();
        let help =
            if names.is_empty() { help } else { format!("{help}; it is made of {}", names.join(", ")) };
        let diagnostic = Diagnostic::error(code::HEADER_CHANGE_MISMATCH, message)
            .at(expr.span, "does not fit")
            .with_help(help);
        let is_same = |known: &Diagnostic| {
            // A label with more places is of another stage.
            known.labels.len() == 1
                && (&known.message, &known.help) == (&diagnostic.message, &diagnostic.help)
        };
        if !self.body.lowering.diagnostics.iter().any(is_same) {
            self.body.lowering.diagnostics.push(diagnostic);
        }
        false
    }

    fn field_type(&self, protocol: ProtocolId, field: FieldId) -> Type {
        self.body.lowering.network.protocols[usize::from(protocol.0)].fields[usize::from(field.0)].ty
    }

    /// Lowers a value per frame, of the size of its field.
    fn pushed_value(&mut self, protocol: ProtocolId, field: FieldId, expr: &'n Expr) -> Value {
        let value = self.checked(expr).value;
        let of = &self.body.lowering.network.protocols[usize::from(protocol.0)].fields[usize::from(field.0)];
        if let (Width::Bytes { count: WireExpr::Int(n), .. }, true) = (&of.width, of.ty != Type::Mac) {
            let (len, wanted) = (self.body.b.get(Op::Len(value), Ty::Int), self.body.b.int(*n as i64));
            let differs = self.body.b.int_compare(IntCmp::Ne, len, wanted);
            let fault = self.body.b.raise(differs, Fault::BadCast);
            self.fail_if(fault);
        }
        value
    }

    // ---- headers ----

    /// Builds the headers to push in front of frames that begin with any of these.
    fn stacks(
        &mut self,
        headers: &[Header],
        given: &[(usize, FieldId)],
        front: &[ProtocolId],
        span: Span,
    ) -> Option<Vec<Stack>> {
        let protocols = &self.body.lowering.network.protocols;
        let mut stacks: Vec<Stack> = Vec::new();
        for carried in front {
            match stack(protocols, headers, given, Some(*carried)) {
                Ok(stack) => stacks.push(stack),
                Err(error) => {
                    self.refuse(&error, Some(*carried), span);
                    return None;
                }
            }
        }
        let is_one = stacks.windows(2).all(|two| is_same(&two[0], &two[1]));
        if is_one {
            let owed = stacks.iter().find_map(|stack| stack.owed.clone());
            stacks.truncate(1);
            stacks.iter_mut().for_each(|stack| (stack.begins, stack.owed) = (None, owed.clone()));
        } else if let Some((a, b)) = ambiguous_stacks(&stacks) {
            let (a, b) = (self.name(front[a]), self.name(front[b]));
            let message =
                format!("the frame may begin with `{a}` or `{b}` here, which these headers say differently");
            self.body.lowering.mismatch(
                message,
                (span, "the two cannot be told apart at run time"),
                &format!(
                    "say it: `IF present({a}) THEN POP TO {a}; PUSH ...; ELSE POP TO {b}; PUSH ...; END IF;`"
                ),
            );
            return None;
        }
        Some(stacks)
    }

    /// Returns the headers to insert after the first header of the frame.
    fn headers_after_first(
        &mut self,
        first: &Pushed,
        last: &Pushed,
        headers: &[Header],
        given: &[(usize, FieldId)],
        front: &[ProtocolId],
        span: Span,
    ) -> Option<HeaderChange> {
        let protocols = &self.body.lowering.network.protocols;
        let found = match front {
            [only] => relink(protocols, *only, first.protocol, last.protocol).map(|relink| (*only, relink)),
            _ => None,
        };
        let Some((lower, relink)) = found else {
            let (begin, own) = (self.body.lowering.protocol_names(front), self.name(first.protocol));
            let behind =
                if front.is_empty() { String::new() } else { format!(", nor is it put behind {begin}") };
            let message = format!("a frame cannot begin with `{own}`{behind}");
            let carries = |lower: &ProtocolId| {
                protocols[usize::from(lower.0)].next.iter().any(|next| next.to == first.protocol)
            };
            let help = match front {
                [only] if carries(only) => format!(
                    "between two headers goes one of a fixed length, whose numbers are in the order of the wire, with \
                     a field of the same name and size as that by which `{lower}` says what is behind it, if `{lower}` \
                     has no checksum; else say all: `POP TO ip; PUSH {lower} (...), {own} (...)`",
                    lower = self.name(*only),
                ),
                _ => self.help_carry(first.protocol),
            };
            self.body.lowering.mismatch(message, (first.span, "what carries it?"), &help);
            return None;
        };
        let header = protocols[usize::from(lower.0)].header_min as u16;
        match stack(protocols, headers, given, None) {
            Ok(stack) => {
                let place = protocols[usize::from(last.protocol.0)].header_min as usize;
                let within = relink.within + stack.bytes.len().saturating_sub(place) as u16;
                Some(HeaderChange::Push {
                    behind: Some((header, Relink { within, ..relink })),
                    stacks: vec![stack],
                })
            }
            Err(error) => {
                self.refuse(&error, None, span);
                None
            }
        }
    }

    /// The remedy for a header without a carrier.
    fn help_carry(&self, protocol: ProtocolId) -> String {
        let protocols = &self.body.lowering.network.protocols;
        let mut names = vec![self.name(protocol)];
        let mut at = protocol;
        while let Some(lower) =
            protocols.iter().position(|lower| lower.next.iter().any(|n| n.to == at && !n.inner))
        {
            at = ProtocolId(lower as u16);
            let name = self.name(at);
            if names.contains(&name) {
                break;
            }
            names.push(name);
        }
        names.reverse();
        format!("say the headers below it too, the outermost first: `PUSH {} (...)`", names.join(" (...), "))
    }

    /// The layer after that of an element, which a tunnel carries.
    fn carried(&mut self, layer: &LayerRef, span: Span) -> Option<LayerRef> {
        let protocols = &self.body.lowering.network.protocols;
        let next = layer.protocols.iter().flat_map(|id| &protocols[usize::from(id.0)].next);
        let mut carried: Vec<ProtocolId> = Vec::new();
        let mut is_tunnel = layer.level + 1 < LEVELS_MAX;
        for next in next {
            is_tunnel &= next.inner;
            if !carried.contains(&next.to) {
                carried.push(next.to);
            }
        }
        if is_tunnel && !carried.is_empty() {
            return Some(LayerRef { level: layer.level + 1, protocols: carried });
        }
        let name = self.body.lowering.protocol_names(&layer.protocols);
        let message = format!("what stands behind {name} is not the packet that a tunnel carries");
        self.body.lowering.mismatch(
            message,
            (span, "what is the frame to begin with?"),
            "say it: `POP TO ip`, or take off a header alone: `POP vlan`",
        );
        None
    }

    /// Returns the change of the lower header when one is removed.
    fn unlink(&mut self, layer: &LayerRef, span: Span) -> Option<Relink> {
        let protocols = &self.body.lowering.network.protocols;
        let found = match layer.protocols[..] {
            [own] if layer.level == 0 && !follows(protocols, own) => {
                let lower = |at: &usize| protocols[*at].next.iter().any(|next| next.to == own && !next.inner);
                let lower = (0..protocols.len()).filter(lower);
                let links = lower.map(|at| {
                    let relink = relink(protocols, ProtocolId(at as u16), own, own)?;
                    Some(Relink { value: 0, ..relink })
                });
                let links: Option<Vec<Relink>> = links.collect();
                links.and_then(|links| {
                    let first = *links.first()?;
                    links.iter().all(|link| *link == first).then_some(first)
                })
            }
            _ => None,
        };
        if found.is_none() {
            let name = self.body.lowering.protocol_names(&layer.protocols);
            let message = format!("{name} cannot be taken out alone");
            self.body.lowering.mismatch(
                message,
                (span, "the header below it would not know what follows"),
                "take off all in front of what stays, and put on what is missing: `POP TO ip; PUSH ...`",
            );
        }
        found
    }

    fn name(&self, protocol: ProtocolId) -> String {
        self.body.lowering.network.protocols[usize::from(protocol.0)].name.clone()
    }

    fn field_name(&self, protocol: ProtocolId, field: FieldId) -> String {
        let of = &self.body.lowering.network.protocols[usize::from(protocol.0)];
        format!("{}.{}", of.name, of.fields[usize::from(field.0)].name)
    }

    /// Reports headers that cannot be pushed, with a hint for each cause.
    fn refuse(&mut self, error: &StackError, carried: Option<ProtocolId>, span: Span) {
        let (message, help) = match error {
            StackError::Build(BuildError::NotBehind(lower, upper)) => (
                format!("`{}` does not stand behind `{}`", self.name(*upper), self.name(*lower)),
                "headers are said in the order of the wire, the outermost first".to_owned(),
            ),
            StackError::Build(BuildError::DoesNotFit(protocol, field)) => (
                format!("a value does not fit `{}`", self.field_name(*protocol, *field)),
                "say a value that the field has room for".to_owned(),
            ),
            StackError::NotConstant(protocol, field) => (
                format!("`{}` decides what else the header has", self.field_name(*protocol, *field)),
                "give it a value that is the same in all frames; make a PUSH for each in an IF".to_owned(),
            ),
            StackError::NotLinear(protocol, field) => (
                format!("`{}` follows from the length of a frame", self.field_name(*protocol, *field)),
                "a rule may add to `payload_bytes` or `header_bytes`, and no more, to be pushed".to_owned(),
            ),
            StackError::TooLong(bytes) => (
                format!("these headers have {bytes} bytes"),
                format!(
                    "{} are the most that one PUSH puts on",
                    weft_core::wire::header_change::PUSH_BYTES_MAX
                ),
            ),
            StackError::Unsaid(protocol, fields) => {
                let what = carried.map_or("the frame".to_owned(), |id| format!("`{}`", self.name(id)));
                let names: Vec<String> =
                    fields.iter().map(|field| format!("`{}`", self.field_name(*protocol, *field))).collect();
                (
                    format!("`{}` does not carry {what}", self.name(*protocol)),
                    format!(
                        "POP to what it carries first, or say {} to carry it as bytes",
                        names.join(" and ")
                    ),
                )
            }
        };
        self.body.lowering.mismatch(message, (span, "cannot be put on"), &help);
    }
}

/// Returns the inputs that elements read after one decapsulation, then those after two, and so on.
pub(super) fn inputs_behind_tunnels(program: &ChainProgram) -> Vec<InputSet> {
    let is_inside = |layer: u16| match &program.request.inputs[usize::from(layer)].place {
        InputLocation::Layer(layer) => layer.level > 0,
        _ => false,
    };
    let takes_out = |op: &Op| match op {
        Op::ChangeHeaders(id, _) => match program.header_changes[usize::from(id.0)].what {
            HeaderChange::Pop { layer, how: Pop::To, .. } => is_inside(layer),
            _ => false,
        },
        _ => false,
    };
    let mut behind: Vec<InputSet> = Vec::new();
    for element in &program.elements {
        if let Some(last) = behind.last_mut() {
            *last |= element.inputs_read();
        }
        if element.request_ops().any(takes_out) {
            behind.push(InputSet::EMPTY);
        }
    }
    behind
}

/// Whether two frames get the same headers. A pending checksum belongs to one stack only.
fn is_same(a: &Stack, b: &Stack) -> bool {
    let plain = |stack: &Stack| Stack { begins: None, owed: None, ..stack.clone() };
    plain(a) == plain(b)
}

/// Finds two different stacks for frames that may begin with the same bits.
fn ambiguous_stacks(stacks: &[Stack]) -> Option<(usize, usize)> {
    let first = |stack: &Stack, bits: u8| stack.begins.map(|(n, value)| value >> (n - bits.min(n)));
    let differ = |a: &Stack, b: &Stack| match (a.begins, b.begins) {
        (Some((n, _)), Some((m, _))) => first(a, m.min(n)) != first(b, m.min(n)),
        _ => false,
    };
    let pairs = (0..stacks.len()).flat_map(|a| (0..a).map(move |b| (b, a)));
    let mut odd =
        pairs.filter(|(a, b)| !is_same(&stacks[*a], &stacks[*b]) && !differ(&stacks[*a], &stacks[*b]));
    odd.next()
}

/// Whether a field of a lower header on the same level depends on the bytes after this one: a length or a checksum.
fn follows(protocols: &[Protocol], own: ProtocolId) -> bool {
    let is_computed = |lower: &Protocol| {
        lower.length.is_some() || lower.fields.iter().any(|field| matches!(field.rule, Rule::Computed(_)))
    };
    protocols.iter().enumerate().any(|(lower, protocol)| {
        let lower = ProtocolId(lower as u16);
        lower != own && is_computed(protocol) && wire::leads_to(protocols, lower, own)
    })
}

impl Lowering<'_> {
    /// Reports a header change that does not fit the frame; once, although several paths may lead to it.
    fn mismatch(&mut self, message: String, (span, label): (Span, &str), help: &str) {
        let diagnostic = Diagnostic::error(code::HEADER_CHANGE_MISMATCH, message);
        let diagnostic = diagnostic.at(span, label).with_help(help);
        if !self.diagnostics.contains(&diagnostic) {
            self.diagnostics.push(diagnostic);
        }
    }

    /// Lists the names of protocols for a message.
    pub(super) fn protocol_names(&self, ids: &[ProtocolId]) -> String {
        let names: Vec<String> =
            ids.iter().map(|id| format!("`{}`", self.network.protocols[usize::from(id.0)].name)).collect();
        names.join(" or ")
    }
}
