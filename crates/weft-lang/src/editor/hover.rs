//! Hover: documentation for the name or word at a position.

use std::fmt::Write as _;

use super::index::{Symbol, SymbolId, SymbolKind};
use super::{Program, fields, manual, queues, tokens_of, words};
use crate::ast::Kind;
use crate::check::frame;
use crate::check::functions;
use crate::check::walk::each_stmt;
use crate::hir::{self, ColumnLocation, Direction, Effects, HandlerKind, StmtKind, TableRef};
use crate::lexer::{Token, TokenKind};
use crate::parser::parse_with_layout;
use crate::source::{FileId, Span};
use weft_core::Status;

/// The documentation of a name or word.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hover {
    /// The name or word.
    pub span: Span,
    /// Of which symbol, if it is one.
    pub symbol: Option<SymbolId>,
    /// Markdown; it starts with a code block, if there is code to show.
    pub markdown: String,
}

/// The maximum number of lines of a declaration.
const LINES_MAX: usize = 8;

/// The documentation of the name or word at a position; None if there is none.
pub fn hover(program: &Program, file: FileId, offset: u32) -> Option<Hover> {
    if let Some(found) = program.index.at(file, offset) {
        let markdown = of_symbol(program, found.symbol);
        return Some(Hover { span: found.span, symbol: Some(found.symbol), markdown });
    }
    if let Some(found) = program.index.field_at(file, offset) {
        let at = found.path.segments.iter().position(|part| offset <= part.span.end)?;
        let (message, field) = fields::field_at(program, found, at + 1)?;
        let declared = fields::declared(&program.analysis.program.schema, field);
        let markdown = format!("```proto\n{declared}\n```\nfield of message `{}`", message.name);
        return Some(Hover { span: found.path.segments[at].span, symbol: None, markdown });
    }
    let tokens = tokens_of(file, program.text(file));
    let at = tokens.iter().position(|token| token.span.start <= offset && offset <= token.span.end)?;
    // Between two tokens, a word takes precedence over a sign.
    let is_word = |token: &Token| token.kind == TokenKind::Word && token.span.start <= offset;
    let at = if is_word(&tokens[at]) || !tokens.get(at + 1).is_some_and(is_word) { at } else { at + 1 };
    let markdown = of_word(program, &tokens, at)?;
    Some(Hover { span: tokens[at].span, symbol: None, markdown })
}

/// Formats the documentation of a symbol: its declaration, its owner and its comments.
pub fn of_symbol(program: &Program, id: SymbolId) -> String {
    let symbol = program.index.symbol(id);
    let mut out = format!("```weft\n{}\n```\n", declaration(program, id));
    out += &whose(program, symbol);
    out.push('\n');
    let doc = doc(program, symbol);
    if !doc.is_empty() {
        let _ = write!(out, "\n{doc}\n");
    }
    match symbol.kind {
        SymbolKind::Item(Kind::Element) => element_facts(program, symbol, &mut out),
        SymbolKind::Item(Kind::Protocol) => protocol_facts(program, symbol, &mut out),
        SymbolKind::Column(direction) => column_facts(program, symbol, direction, &mut out),
        SymbolKind::Instance => {
            if let Some(element) = symbol.of {
                let _ = write!(out, "\n{}", of_symbol(program, element));
            }
        }
        SymbolKind::Row => {
            if let Some(table) = symbol.of {
                let _ = write!(out, "\n```weft\n{}\n```\n", declaration(program, table));
            }
        }
        _ => {}
    }
    out
}

/// The declaration as written; only its head if it has a body.
fn declaration(program: &Program, id: SymbolId) -> String {
    let symbol = program.index.symbol(id);
    let text = program.slice(symbol.whole);
    match symbol.kind {
        SymbolKind::Item(Kind::Element | Kind::Filter | Kind::Chain | Kind::Queue) => {
            head(symbol.whole.file, text)
        }
        SymbolKind::Local => {
            let ty = local_type(program, symbol).unwrap_or_default();
            format!("LET {}{ty}", symbol.name)
        }
        SymbolKind::Row => format!("{} -- a row of this table", symbol.name),
        _ => shortened(text),
    }
}

/// Up to `AS`.
fn head(file: FileId, text: &str) -> String {
    let is_as = |token: &&Token| text[token.span.range()].eq_ignore_ascii_case("AS");
    let end = tokens_of(file, text).iter().find(is_as).map_or(text.len(), |token| token.span.start as usize);
    shortened(text[..end].trim_end())
}

/// Cuts a text after [`LINES_MAX`] lines.
fn shortened(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    match lines.get(..LINES_MAX) {
        Some(first) if lines.len() > LINES_MAX => format!("{}\n...", first.join("\n")),
        _ => text.to_owned(),
    }
}

/// Describes the kind and the owner of a symbol.
fn whose(program: &Program, symbol: &Symbol) -> String {
    let word = symbol.kind.word();
    match symbol.owner.map(|owner| program.index.symbol(owner)) {
        None if symbol.kind == SymbolKind::Item(Kind::Table) => "table of all elements".to_owned(),
        None => word.to_owned(),
        Some(owner) if owner.kind == SymbolKind::Handler => format!("{word} in {}", owner.name),
        Some(owner) => match symbol.kind {
            SymbolKind::TableColumn | SymbolKind::SinkColumn => format!("{word}, `{}`", owner.name),
            _ => format!("{word} of {} `{}`", owner.kind.word(), owner.name),
        },
    }
}

/// Returns the documentation of a symbol from comments.
fn doc(program: &Program, symbol: &Symbol) -> String {
    let file = program.analysis.sources.file(symbol.whole.file);
    match symbol.kind {
        SymbolKind::Item(Kind::Element | Kind::Filter | Kind::Queue) => {
            let name = manual::section(file, "NAME").join(" ");
            // A file with several elements has one manual page for all of them.
            if let Some((of, summary)) = name.split_once(": ").filter(|(of, _)| *of == symbol.name) {
                let description = manual::section(file, "DESCRIPTION").join("\n");
                return format!("**{of}**: {summary}\n\n{description}");
            }
            manual::remark(file, symbol.whole)
        }
        SymbolKind::Param | SymbolKind::Item(Kind::Table) => {
            let heading = if symbol.kind == SymbolKind::Param { "PARAMETERS" } else { "TABLES" };
            let entry = manual::entry(file, heading, &symbol.name);
            if entry.is_empty() { manual::remark(file, symbol.whole) } else { entry }
        }
        SymbolKind::Local | SymbolKind::Row | SymbolKind::Instance | SymbolKind::Handler => String::new(),
        _ => manual::remark(file, symbol.whole),
    }
}

/// The type of a local from the checker.
fn local_type(program: &Program, symbol: &Symbol) -> Option<String> {
    let handler = program.index.symbol(symbol.owner?);
    let element = program.index.symbol(handler.owner?);
    let element = element_of(program, element)?;
    let handler = element.handlers.iter().find(|known| known.span == handler.whole)?;
    let mut found = None;
    each_stmt(&handler.body, &mut |stmt| {
        if let StmtKind::Let { local, .. } = stmt.kind
            && stmt.span == symbol.whole
        {
            found = handler.locals.get(local.0);
        }
    });
    let local = found.or_else(|| handler.locals.iter().find(|local| local.name == symbol.name))?;
    Some(format!(" {}{}", local.ty, if local.nullable { "?" } else { "" }))
}

fn element_of<'p>(program: &'p Program, symbol: &Symbol) -> Option<&'p hir::Element> {
    program.analysis.network.elements.iter().find(|element| element.span == symbol.whole)
}

/// The effects of each handler of an element.
fn element_facts(program: &Program, symbol: &Symbol, out: &mut String) {
    let Some(element) = element_of(program, symbol) else { return };
    let facts = EffectSummary { element, shared: &program.analysis.network.tables };
    for handler in element.handlers.iter() {
        let _ = write!(out, "\n- `{}` {}", event(handler.kind), facts.of(&handler.effects));
    }
    out.push('\n');
}

/// The header length of a protocol, and the protocols that it can carry.
fn protocol_facts(program: &Program, symbol: &Symbol, out: &mut String) {
    let protocols = &program.analysis.network.protocols;
    let Some(protocol) = protocols.iter().find(|protocol| protocol.name == symbol.name) else { return };
    let _ = match (protocol.header_min, protocol.header_max) {
        (min, max) if min == max => writeln!(out, "\nheader of {max} bytes"),
        (min, max) => writeln!(out, "\nheader of {min} to {max} bytes"),
    };
    let mut carried: Vec<&str> =
        protocol.next.iter().map(|next| protocols[usize::from(next.to.0)].name.as_str()).collect();
    carried.sort_unstable();
    carried.dedup();
    if !carried.is_empty() {
        let _ = writeln!(out, "\nmay carry {}", carried.join(", "));
    }
}

/// Lists the bindings of a column in the chains that use its element.
fn column_facts(program: &Program, symbol: &Symbol, direction: Direction, out: &mut String) {
    let network = &program.analysis.network;
    let Some(owner) = symbol.owner.map(|owner| program.index.symbol(owner)) else { return };
    let Some(element_at) = network.elements.iter().position(|element| element.span == owner.whole) else {
        return;
    };
    let columns = &network.elements[element_at].columns;
    let Some(at) = columns.iter().position(|known| known.name == symbol.name && known.direction == direction)
    else {
        return;
    };
    for chain in &network.chains {
        for instance in
            chain.instances.iter().filter(|instance| network.elements[instance.element].span == owner.whole)
        {
            let Some(binding) = instance.bindings.get(at) else { continue };
            let place = match &binding.place {
                // The other columns come from expressions, and follow those of the element.
                ColumnLocation::Computed(_)
                | ColumnLocation::Entry(..)
                | ColumnLocation::Present(_)
                | ColumnLocation::List(_) => "an expression".to_owned(),
                ColumnLocation::Body(path) => {
                    let root = if direction == Direction::Request { "req" } else { "resp" };
                    format!("{root}.{}", path.join("."))
                }
                ColumnLocation::Header(name) => format!("header['{name}']"),
                ColumnLocation::Meta(meta) => {
                    match frame::USER_METADATA.iter().find(|(_, known)| known == meta) {
                        Some((name, _)) => format!("{}.{name}", frame::META),
                        None => format!("{meta:?}").to_lowercase(),
                    }
                }
                ColumnLocation::Frame(field) => network.field_name(field),
            };
            let _ = write!(out, "\n- in `{}.{}` it is `{place}`", chain.name, instance.name);
        }
    }
    out.push('\n');
}

/// Returns the keywords of a handler's event.
const fn event(kind: HandlerKind) -> &'static str {
    match kind {
        HandlerKind::Open => "ON OPEN",
        HandlerKind::Request => "ON REQUEST",
        HandlerKind::Response => "ON RESPONSE",
        HandlerKind::Close => "ON CLOSE",
        HandlerKind::Error => "ON ERROR",
        HandlerKind::Every => "ON EVERY",
        HandlerKind::Timeout => "ON TIMEOUT",
        HandlerKind::Evict => "ON EVICT",
    }
}

/// The effects of handlers in words.
struct EffectSummary<'p> {
    element: &'p hir::Element,
    shared: &'p [hir::Table],
}

impl EffectSummary<'_> {
    /// Describes the effects of a handler.
    fn of(&self, effects: &Effects) -> String {
        let columns = |at: &[usize]| at.iter().map(|at| self.element.columns[*at].name.clone()).collect();
        let vars = |at: &[usize]| at.iter().map(|at| self.element.vars[*at].name.clone()).collect::<Vec<_>>();
        let mut reads: Vec<String> = columns(&effects.columns_read);
        reads.extend(keyed("header", &effects.headers_read));
        reads.extend(keyed("trailer", &effects.trailers_read));
        reads.extend(effects.metas_read.iter().map(|meta| format!("{meta:?}").to_lowercase()));
        reads.extend(vars(&effects.vars_read));
        reads.extend(effects.tables_read.iter().map(|table| self.table(*table)));
        let mut writes: Vec<String> = columns(&effects.columns_written);
        writes.extend(keyed("header", &effects.headers_written));
        writes.extend(keyed("trailer", &effects.trailers_written));
        writes.extend(vars(&effects.vars_written));
        writes.extend(effects.tables_written.iter().map(|table| self.table(*table)));
        let sinks: Vec<String> =
            effects.sinks.iter().map(|at| self.element.sinks[*at].name.clone()).collect();
        let ends = [
            (effects.aborts, "abort the call"),
            (effects.drops, "drop the tuple"),
            (effects.replies, "reply"),
            (effects.redirects, "choose the server"),
            (effects.steers, "send the frame by an edge"),
            (effects.delays, "hold the tuple"),
            (effects.mirrors, "mirror"),
            (effects.reshapes, "change the headers"),
            (effects.fallible, "fail"),
        ];
        let ends: Vec<&str> = ends.iter().filter(|(may, _)| *may).map(|(_, what)| *what).collect();
        let mut parts = Vec::new();
        for (verb, names) in [("reads", reads), ("writes", writes), ("writes rows to", sinks)] {
            if !names.is_empty() {
                parts.push(format!("{verb} {}", names.join(", ")));
            }
        }
        if !ends.is_empty() {
            parts.push(format!("may {}", ends.join(", ")));
        }
        for (does, what) in [(effects.clock, "reads the clock"), (effects.random, "draws random numbers")] {
            if does {
                parts.push(what.to_owned());
            }
        }
        if parts.is_empty() { "does nothing".to_owned() } else { parts.join("; ") }
    }

    /// Names a table.
    fn table(&self, table: TableRef) -> String {
        let table = match table {
            TableRef::Own(at) => &self.element.tables[at],
            TableRef::Shared(at) => &self.shared[at],
        };
        format!("table {}", table.name)
    }
}

fn keyed(what: &str, names: &[String]) -> Vec<String> {
    names.iter().map(|name| format!("{what}['{name}']")).collect()
}

/// Whether a place is in a queue.
fn is_in_queue(program: &Program, place: Span) -> bool {
    let holds =
        |whole: Span| whole.file == place.file && whole.start <= place.start && place.end <= whole.end;
    program
        .index
        .members_of(None)
        .any(|(_, symbol)| symbol.kind == SymbolKind::Item(Kind::Queue) && holds(symbol.whole))
}

/// Returns the documentation of a word that is not declared in the program: a function, a status, metadata, or a
/// keyword.
fn of_word(program: &Program, tokens: &[Token], at: usize) -> Option<String> {
    let token = tokens[at];
    if token.kind != TokenKind::Word {
        return None;
    }
    let text = program.slice(token.span);
    let opens = tokens.get(at + 1).is_some_and(|next| next.kind == TokenKind::LeftParen);
    if is_in_queue(program, token.span) {
        let owner = match tokens[..at] {
            [.., owner, dot] if dot.kind == TokenKind::Dot => program.slice(owner.span),
            _ => "",
        };
        let found = if opens { queues::doc_of_function(text) } else { queues::doc_of(owner, text) };
        if found.is_some() {
            return found;
        }
    }
    if opens && let Some(found) = functions::find(text) {
        let can_fail = if found.fallible { "\n\nMay be an error even if its arguments are not." } else { "" };
        return Some(format!("```weft\n{}\n```\n{}{can_fail}", found.text, found.doc));
    }
    let after_dot = at.checked_sub(1).is_some_and(|before| tokens[before].kind == TokenKind::Dot);
    if after_dot {
        return None;
    }
    if let Some(status) = Status::from_name(text) {
        return Some(format!("```weft\n{text}\n```\ngRPC status {}", status.code()));
    }
    if let Some((name, ty, doc)) = words::metas().find(|(name, ..)| *name == text) {
        return Some(format!("```weft\n{name} {ty}\n```\n{doc}"));
    }
    let parse = parse_with_layout(&program.analysis.sources, token.span.file);
    if !parse.layout.tokens.get(at).is_some_and(|layout| layout.is_keyword) {
        return None;
    }
    let word = words::keyword(text)?;
    let examples = words::examples(word.word);
    let shown = if examples.is_empty() { word.word.to_owned() } else { examples.join("\n") };
    Some(format!("```weft\n{shown}\n```\n{}", word.doc))
}
