//! Completion: the words and names that are possible at a position.
//!
//! The candidates come from the parser: it parses the text up to the word at the cursor, and reports the keywords and
//! kinds of names that it expected at the end. So completion follows the grammar automatically.

use std::collections::BTreeSet;

use weft_core::Status;
use weft_core::options::{CLUSTER_OPTIONS, LISTENER_OPTIONS};
use weft_core::schema::FieldKind;

use super::index::{Symbol, SymbolId, SymbolKind};
use super::tokens::{TokenClass, class_of};
use super::words::USER_METADATA_DOCS;
use super::{Program, fields, hover, queues, tokens_of, words};
use crate::ast::Kind;
use crate::check::frame::META;
use crate::check::functions::{AGGREGATES, of_elements, of_queues};
use crate::check::mark;
use crate::check::network;
use crate::hir::Direction;
use crate::lexer::{Token, TokenKind, lex};
use crate::parser::expected_after;
use crate::source::FileId;

/// The kind of a candidate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum CandidateKind {
    Column,
    Variable,
    Parameter,
    Field,
    Table,
    Object,
    Function,
    Value,
    Keyword,
    Type,
}

/// A completion candidate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// The text that replaces the word at the cursor.
    pub label: String,
    /// The kind.
    pub kind: CandidateKind,
    /// Its type, signature or syntax, in one line.
    pub detail: String,
    /// Its description in Markdown; may be empty.
    pub doc: String,
}

/// The candidates at a position, and the start of the word that they replace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The first byte of the word at the cursor; the cursor itself if there is none.
    pub start: u32,
    /// The candidates, at most [`CANDIDATES_MAX`]; labels are unique.
    pub candidates: Vec<Candidate>,
    /// A file path is expected here: a caller with access to files can add candidates.
    pub path: Option<PathKind>,
}

/// A file that a program names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathKind {
    /// Behind `IMPORT`.
    Program,
    /// Behind `FROM PROTO`.
    Proto,
    /// Behind `FROM DESCRIPTORS`.
    Descriptors,
}

/// The maximum number of candidates; typing another letter narrows them.
pub const CANDIDATES_MAX: usize = 1000;

/// The candidates for the word at a position. The caller filters them by the word's prefix.
pub fn complete(program: &Program, file: FileId, offset: u32) -> Completion {
    let text = program.text(file);
    let mut offset = (offset as usize).min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    let tokens = tokens_of(file, text);
    let (candidates, labels) = (Vec::new(), BTreeSet::new());
    let mut place = Completer { program, text, file, tokens, start: offset, candidates, labels, path: None };
    if !place.is_in_comment(offset) {
        place.at(offset);
    }
    let Completer { start, candidates, path, .. } = place;
    Completion { start: start as u32, candidates, path }
}

struct Completer<'p> {
    program: &'p Program,
    text: &'p str,
    file: FileId,
    /// The tokens of the file; those before the word at the cursor, once that is known.
    tokens: Vec<Token>,
    start: usize,
    candidates: Vec<Candidate>,
    labels: BTreeSet<String>,
    path: Option<PathKind>,
}

impl Completer<'_> {
    /// Whether an offset is inside a comment.
    fn is_in_comment(&self, offset: usize) -> bool {
        let comments = lex(self.file, self.text).comments;
        comments.iter().any(|comment| {
            let (start, end) = (comment.span.start as usize, comment.span.end as usize);
            // The cursor may still be in a line comment; after `*/` the text continues.
            start < offset && (offset < end || (offset == end && !comment.is_block))
        })
    }

    /// Cuts the tokens at the cursor, and finds the start of the word to complete.
    fn at(&mut self, offset: usize) {
        let holds = |token: &Token| (token.span.start as usize) < offset && offset <= token.span.end as usize;
        let at_cursor = self.tokens.iter().position(holds).map(|at| (at, self.tokens[at]));
        let n_before = match at_cursor {
            Some((at, token)) if token.kind == TokenKind::Word => {
                self.start = token.span.start as usize;
                at
            }
            Some((at, token))
                if token.kind == TokenKind::Str && (offset < token.span.end as usize || token.broken) =>
            {
                self.start = token.span.start as usize + 1;
                self.tokens.truncate(at);
                return self.in_text();
            }
            _ => self.tokens.iter().take_while(|token| token.span.end as usize <= offset).count(),
        };
        self.tokens.truncate(n_before);
        if self.tokens.last().is_some_and(|token| token.kind == TokenKind::Dot) {
            return self.after_dot();
        }
        let expected = expected_after(self.recent());
        for keyword in &expected.keywords {
            let doc = words::keyword(keyword).map_or("", |word| word.doc);
            let form = words::examples(keyword).first().copied().unwrap_or_default();
            self.add(keyword, CandidateKind::Keyword, form, doc);
        }
        for thing in &expected.descriptions {
            self.add_names_of(thing);
        }
    }

    /// The text before the cursor from the start of its item; earlier text has no influence.
    fn recent(&self) -> &str {
        let before = &self.text[..self.start];
        let begins = ["\nCREATE ", "\ncreate "].map(|item| before.rfind(item).unwrap_or(0));
        &before[begins[0].max(begins[1])..]
    }

    // ---- by what the parser looked for -------------------------------------------------------------------------

    /// Adds the names of a kind, given in the parser's words.
    fn add_names_of(&mut self, thing: &str) {
        use SymbolKind as K;
        let element = self.element();
        match thing.split([',', '`']).next().unwrap_or_default().trim_end() {
            "an expression" if self.is_in_binding() => {
                for (root, doc) in [("req", "the request"), ("resp", "the response"), ("header", "a header")]
                {
                    self.add(root, CandidateKind::Field, doc, "");
                }
                self.message_fields(&[]);
            }
            "an expression" => {
                if self.is_after_mark() {
                    self.marks();
                }
                self.expression();
            }
            "a field of MARK" => self.marks(),
            "a table" if thing.contains("chain.instance") => {
                self.top(|kind| matches!(kind, K::Item(Kind::Table | Kind::Chain)))
            }
            "a table" => self.tables(),
            "a table or a sink" => {
                self.tables();
                self.members(element, |kind| kind == K::Sink);
            }
            "an element" | "an element or a filter" => {
                self.top(|kind| matches!(kind, K::Item(Kind::Element | Kind::Filter)))
            }
            "an instance" => {
                let chain = self.chain();
                self.members(chain, |kind| kind == K::Instance);
            }
            "a listener" | "a listener or a service" => self.top(|kind| kind == K::Item(Kind::Listener)),
            "a cluster" | "a cluster or a service" | "a destination" => {
                self.top(|kind| kind == K::Item(Kind::Cluster))
            }
            "the name of the object to drop" => self.top(|_| true),
            "a column" => self.columns_of_statement(),
            "a parameter or a column" => {
                let element = self.called();
                self.members(element, |kind| matches!(kind, K::Param | K::Column(_)));
            }
            "a column or" | "a variable or a column of the call" => {
                self.members(element, |kind| matches!(kind, K::CallCell | K::Var));
            }
            "a variable or a sketch" | "a variable" => {
                self.members(element, |kind| matches!(kind, K::Var | K::Sketch))
            }
            "a function" => self.top(|kind| kind == K::Item(Kind::Function)),
            "an edge" => self.members(element, |kind| kind == K::Edge),
            "a status" => self.statuses(),
            "an option" => self.options(),
            "a level" => {
                for level in ["strict", "observable", "output", "stochastic", "relaxed"] {
                    self.add(level, CandidateKind::Value, "", "");
                }
            }
            "a layer" => {
                self.add("rpc", CandidateKind::Value, "gRPC calls", "");
                self.add("packet", CandidateKind::Value, "all frames", "");
                self.top(|kind| kind == K::Item(Kind::Protocol));
            }
            "a port" => self.top(|kind| matches!(kind, K::Item(Kind::Port | Kind::Group))),
            "a queue" => self.top(|kind| kind == K::Item(Kind::Queue)),
            "a port kind" => {
                for (kind, example) in network::port_kinds() {
                    self.add(kind, CandidateKind::Value, &format!("{kind} {example}"), "");
                }
            }
            "a protocol" => {
                self.add("tcp", CandidateKind::Value, "tcp '0.0.0.0:6000'", "");
                self.add("unix", CandidateKind::Value, "unix '/run/app.sock'", "");
            }
            "a type" => {
                for found in &self.program.analysis.program.schema.enums {
                    let values: Vec<&str> =
                        found.values.iter().map(|(name, _)| name.as_str()).take(8).collect();
                    self.add(&found.name, CandidateKind::Type, &values.join(", "), "");
                }
            }
            _ => {}
        }
        // `SET` takes more than columns.
        if thing.contains("header['k']") {
            self.members(element, |kind| matches!(kind, K::Column(_) | K::CallCell | K::Var));
            self.keyed();
        }
    }

    /// The element or filter around the cursor.
    fn element(&self) -> Option<SymbolId> {
        self.item(SymbolKind::Item(Kind::Element)).or_else(|| self.item(SymbolKind::Item(Kind::Filter)))
    }

    /// The chain around the cursor.
    fn chain(&self) -> Option<SymbolId> {
        self.item(SymbolKind::Item(Kind::Chain))
    }

    /// The item at the cursor, if it is of this kind: the last one that begins before it. The end of an incomplete item
    /// is unknown, but no other item has begun.
    fn item(&self, kind: SymbolKind) -> Option<SymbolId> {
        let last = self.last_before(None)?;
        let symbol = self.program.index.symbol(last);
        let since = self.tokens.iter().filter(|token| token.span.start >= symbol.whole.end);
        let is_over =
            since.clone().any(|token| self.is_word(token, "CREATE") || self.is_word(token, "INSERT"));
        (symbol.kind == kind && !is_over).then_some(last)
    }

    /// The handler at the cursor, found like [`Self::item`].
    fn handler(&self) -> Option<SymbolId> {
        let element = self.element()?;
        let is_handler = |id: &SymbolId| self.program.index.symbol(*id).kind == SymbolKind::Handler;
        self.last_before(Some(element)).filter(is_handler)
    }

    /// The last member of a symbol that begins before the cursor; members of handlers are skipped.
    fn last_before(&self, owner: Option<SymbolId>) -> Option<SymbolId> {
        let parts = self.program.index.members_of(owner);
        let before = parts.filter(|(_, symbol)| {
            symbol.whole.file == self.file && (symbol.whole.start as usize) <= self.start
        });
        before.max_by_key(|(_, symbol)| symbol.whole.start).map(|(id, _)| id)
    }

    /// Offers the tables of the element and the shared tables.
    fn tables(&mut self) {
        let element = self.element();
        if element.is_some() {
            self.members(element, |kind| kind == SymbolKind::Item(Kind::Table));
        }
        self.top(|kind| kind == SymbolKind::Item(Kind::Table));
    }

    /// The names available in a queue: its variables, the packet, functions, and layers with header fields.
    fn in_queue(&mut self, queue: SymbolId) {
        use SymbolKind as K;
        self.members(Some(queue), |kind| matches!(kind, K::Param | K::Var));
        for (owner, name, ty, doc) in queues::PREDEFINED_NAMES.into_iter().filter(|(owner, ..)| *owner != "p")
        {
            let label = if owner.is_empty() { name.to_owned() } else { format!("{owner}.{name}") };
            self.add(&label, CandidateKind::Value, ty, doc);
        }
        for function in of_queues() {
            self.add(function.name(), CandidateKind::Function, function.text, function.doc);
        }
        self.top(|kind| kind == K::Item(Kind::Protocol));
    }

    /// Offers the names that have a value at the cursor.
    fn expression(&mut self) {
        use SymbolKind as K;
        if let Some(queue) = self.item(K::Item(Kind::Queue)) {
            return self.in_queue(queue);
        }
        let index = &self.program.index;
        let at = self.start as u32;
        let handler = self.handler();
        let direction = handler.and_then(|handler| match index.symbol(handler).name.as_str() {
            "ON REQUEST" => Some(Direction::Request),
            "ON RESPONSE" => Some(Direction::Response),
            _ => None,
        });
        let element = self.element();
        if handler.is_some() {
            let is_before = move |symbol: &Symbol| symbol.span.end <= at;
            self.members_if(handler, move |symbol| symbol.kind == K::Local && is_before(symbol));
            let rows: Vec<SymbolId> = index
                .members_of(handler)
                .filter(|(_, symbol)| symbol.kind == K::Row && is_before(symbol))
                .map(|(id, _)| id)
                .collect();
            for row in rows {
                self.symbol(row);
            }
            for table in self.visible_tables(element) {
                self.symbol(table);
                self.members(Some(table), |kind| kind == K::TableColumn);
            }
            self.members_if(element, move |symbol| match symbol.kind {
                K::Column(of) => direction.is_none_or(|direction| of == direction),
                K::CallCell | K::Var => true,
                _ => false,
            });
            for (name, ty, doc) in words::metas() {
                self.add(name, CandidateKind::Value, &ty, doc);
            }
            self.keyed();
            if direction == Some(Direction::Request) || direction == Some(Direction::Response) {
                self.add("input", CandidateKind::Variable, "the current tuple", "");
            }
        } else if let Some(filter) = self.item(K::Item(Kind::Filter)) {
            self.members(Some(filter), |kind| matches!(kind, K::Column(_)));
            for (name, ty, doc) in
                words::metas().filter(|(name, ..)| matches!(*name, "method" | "peer" | "status"))
            {
                self.add(name, CandidateKind::Value, &ty, doc);
            }
            self.keyed();
        } else if element.is_none() {
            for (name, ty, doc) in words::metas().filter(|(name, ..)| matches!(*name, "method" | "peer")) {
                self.add(name, CandidateKind::Value, &ty, doc);
            }
            self.keyed();
        }
        if element.is_some() {
            self.members(element, |kind| kind == K::Param);
        }
        self.top(|kind| kind == K::Item(Kind::Function));
        for function in of_elements() {
            self.add(function.name(), CandidateKind::Function, function.text, function.doc);
        }
        for aggregate in AGGREGATES {
            self.add(aggregate, CandidateKind::Function, "over the rows of a SCAN", "");
        }
        self.statuses();
        if self.tokens.last().is_some_and(|token| self.is_word(token, "TO")) {
            self.top(|kind| kind == K::Item(Kind::Cluster));
        }
    }

    fn keyed(&mut self) {
        self.add("header", CandidateKind::Value, "header['name'] TEXT?", "A header of this direction.");
        self.add("trailer", CandidateKind::Value, "trailer['name'] TEXT?", "A trailer of the response.");
    }

    /// Offers the gRPC statuses.
    fn statuses(&mut self) {
        for status in Status::ALL {
            self.add(status.name(), CandidateKind::Value, &format!("gRPC status {}", status.code()), "");
        }
    }

    /// The options of the item being written; for a port, those of the kind after ON.
    fn options(&mut self) {
        let is = |at: usize, word: &str| self.tokens.get(at).is_some_and(|token| self.is_word(token, word));
        let begins = (0..self.tokens.len()).rev().find(|at| is(*at, "CREATE")).unwrap_or(0);
        let find = |word: &str| (begins..self.tokens.len()).find(|at| is(*at, word));
        let options = match (find("CLUSTER"), find("PORT"), find("ON")) {
            (None, Some(_), Some(on)) => {
                let kind = self.tokens.get(on + 1).map(|token| self.slice(token)).unwrap_or_default();
                for (name, ty) in network::port_options(kind) {
                    self.add(name, CandidateKind::Parameter, &ty.to_string(), "");
                }
                return;
            }
            (Some(_), ..) => CLUSTER_OPTIONS,
            _ => LISTENER_OPTIONS,
        };
        for def in options {
            let detail = format!("{} = {}", def.ty, def.text(def.default));
            self.add(def.name, CandidateKind::Parameter, &detail, def.doc);
        }
    }

    /// Whether the cursor follows `MARK (`, after which an expression is possible too.
    fn is_after_mark(&self) -> bool {
        let [.., mark, paren] = self.tokens.as_slice() else { return false };
        self.is_word(mark, "MARK") && paren.kind == TokenKind::LeftParen
    }

    /// Offers the fields of MARK.
    fn marks(&mut self) {
        for (name, ty) in mark::names() {
            self.add(
                name,
                CandidateKind::Parameter,
                &ty.to_string(),
                "Passed to the queues after the chain.",
            );
        }
    }

    /// The columns of the table in the statement at the cursor, or of the message.
    fn columns_of_statement(&mut self) {
        use SymbolKind as K;
        let element = self.element();
        if self.statement().any(|token| self.is_word(token, "REPLY")) {
            return self.members(element, |kind| kind == K::Column(Direction::Response));
        }
        let sink = self
            .statement_names()
            .into_iter()
            .find_map(|name| self.program.index.member(element, &name, |kind| kind == K::Sink));
        if sink.is_some() {
            return self.members(sink, |kind| kind == K::SinkColumn);
        }
        for table in self.visible_tables(element) {
            self.members(Some(table), |kind| kind == K::TableColumn);
        }
    }

    /// The tables named in the handler before the cursor, last one first: joined rows are visible to its end.
    fn visible_tables(&self, element: Option<SymbolId>) -> Vec<SymbolId> {
        let is_table = |kind| kind == SymbolKind::Item(Kind::Table);
        let find = |name: &String| {
            let own = element.and_then(|element| self.program.index.member(Some(element), name, is_table));
            own.or_else(|| self.program.index.member(None, name, is_table))
        };
        let mut tables: Vec<SymbolId> = Vec::new();
        for table in self.statement_names().iter().rev().filter_map(find) {
            if !tables.contains(&table) {
                tables.push(table);
            }
        }
        tables
    }

    /// The names after keywords that precede a table, in the handler at the cursor.
    fn statement_names(&self) -> Vec<String> {
        const BEFORE_TABLES: &[&str] = &["INTO", "UPDATE", "UPSERT", "JOIN", "FIRST", "SCAN", "FROM"];
        let tokens: Vec<&Token> = self.statement().collect();
        let pairs = tokens.windows(2).filter(|pair| {
            BEFORE_TABLES.iter().any(|word| self.is_word(pair[1], word)) && pair[0].kind == TokenKind::Word
        });
        let mut names: Vec<String> = pairs.map(|pair| self.slice(pair[0]).to_owned()).collect();
        names.reverse();
        names
    }

    /// The tokens before the cursor, backwards to the start of the statement, including joins before it.
    fn statement(&self) -> impl Iterator<Item = &Token> {
        self.tokens.iter().rev().take_while(|token| {
            !["REQUEST", "RESPONSE", "OPEN", "CLOSE", "EVERY", "TIMEOUT", "CREATE"]
                .iter()
                .any(|word| self.is_word(token, word))
        })
    }

    /// The element whose arguments are at the cursor: the word before the open parenthesis.
    fn called(&self) -> Option<SymbolId> {
        let mut n_closed = 0_usize;
        for (at, token) in self.tokens.iter().enumerate().rev() {
            match token.kind {
                TokenKind::RightParen => n_closed += 1,
                TokenKind::LeftParen if n_closed > 0 => n_closed -= 1,
                TokenKind::LeftParen => {
                    let name = self.slice(self.tokens.get(at.checked_sub(1)?)?);
                    let is_stage = |kind| matches!(kind, SymbolKind::Item(Kind::Element | Kind::Filter));
                    return self.program.index.member(None, name, is_stage);
                }
                TokenKind::Semicolon => return None,
                _ => {}
            }
        }
        None
    }

    /// Whether the cursor follows the `:=` of a stage.
    fn is_in_binding(&self) -> bool {
        let ends = [TokenKind::Semicolon, TokenKind::Arrow];
        let mut tokens = self.tokens.iter().rev().take_while(|token| !ends.contains(&token.kind));
        self.chain().is_some() && tokens.any(|token| token.kind == TokenKind::Bind)
    }

    // ---- behind a dot ------------------------------------------------------------------------------------------

    /// Offers the members of the name in front of a dot.
    fn after_dot(&mut self) {
        use SymbolKind as K;
        let mut names: Vec<String> = Vec::new();
        let mut at = self.tokens.len();
        while at >= 2
            && self.tokens[at - 1].kind == TokenKind::Dot
            && self.tokens[at - 2].kind == TokenKind::Word
        {
            names.insert(0, self.slice(&self.tokens[at - 2]).to_owned());
            at -= 2;
        }
        let before = at.checked_sub(1).map(|at| self.tokens[at]);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        if self.is_in_binding() {
            return self.message_fields(&names);
        }
        let index = &self.program.index;
        let element = self.element();
        if self.item(K::Item(Kind::Queue)).is_some() {
            return self.after_dot_in_queue(&names);
        }
        match names.as_slice() {
            ["input"] => {
                self.members(element, |kind| matches!(kind, K::Column(_)));
                for (name, ty, doc) in words::metas() {
                    self.add(name, CandidateKind::Value, &ty, doc);
                }
            }
            [META] if index.member(None, META, |kind| kind == K::Item(Kind::Protocol)).is_none() => {
                for (name, doc) in USER_METADATA_DOCS.iter().map(|known| (known.word, known.doc)) {
                    self.add(name, CandidateKind::Field, "U32", doc);
                }
            }
            [chain] if before.is_some_and(|token| self.is_word(&token, "INTO")) => {
                let chain = index.member(None, chain, |kind| kind == K::Item(Kind::Chain));
                self.members(chain.or(Some(NO_SYMBOL)), |kind| kind == K::Instance);
            }
            [chain, instance] => {
                let chain = index.member(None, chain, |kind| kind == K::Item(Kind::Chain));
                let instance =
                    chain.and_then(|chain| index.member(Some(chain), instance, |kind| kind == K::Instance));
                let element = instance.and_then(|instance| index.symbol(instance).of);
                self.members(element.or(Some(NO_SYMBOL)), |kind| kind == K::Item(Kind::Table));
            }
            [row] => {
                let handler = self.handler();
                let alias =
                    handler.and_then(|handler| index.member(Some(handler), row, |kind| kind == K::Row));
                let is_table = |kind| kind == K::Item(Kind::Table);
                let table = alias
                    .and_then(|row| index.symbol(row).of)
                    .or_else(|| element.and_then(|element| index.member(Some(element), row, is_table)))
                    .or_else(|| index.member(None, row, is_table));
                self.members(table.or(Some(NO_SYMBOL)), |kind| kind == K::TableColumn);
            }
            _ => {}
        }
    }

    /// Fields of the packet and of headers.
    fn after_dot_in_queue(&mut self, names: &[&str]) {
        let ([owner] | ["inner", owner]) = names else { return };
        for (of, name, ty, doc) in queues::PREDEFINED_NAMES {
            if of == *owner && names.len() == 1 {
                self.add(name, CandidateKind::Field, ty, doc);
            }
        }
        let protocol =
            self.program.index.member(None, owner, |kind| kind == SymbolKind::Item(Kind::Protocol));
        self.members(protocol, |kind| kind == SymbolKind::WireField);
    }

    /// Fields of the messages of the chain at the cursor, after a path.
    fn message_fields(&mut self, names: &[&str]) {
        let Some(chain) = self.chain() else {
            return;
        };
        let schema = &self.program.analysis.program.schema;
        for (message, field) in fields::following(self.program, chain, None, names) {
            let doc = match field.kind {
                FieldKind::Message(_) => "a message: bind a field of it",
                _ => "",
            };
            let detail = format!("{}, of {}", fields::declared(schema, field), message.name);
            self.add(&field.name, CandidateKind::Field, &detail, doc);
        }
    }

    // ---- in a text ---------------------------------------------------------------------------------------------

    /// Offers completions in quotes: methods, and headers that the program uses elsewhere.
    fn in_text(&mut self) {
        let Some(before) = self.tokens.last().copied() else { return };
        let paths = [
            ("IMPORT", PathKind::Program),
            ("PROTO", PathKind::Proto),
            ("DESCRIPTORS", PathKind::Descriptors),
        ];
        self.path = paths.iter().find(|(word, _)| self.is_word(&before, word)).map(|(_, kind)| *kind);
        if self.is_word(&before, "METHOD") {
            let schema = &self.program.analysis.program.schema;
            for service in &schema.services {
                self.add(
                    &format!("{}/*", service.name),
                    CandidateKind::Value,
                    "all methods of the service",
                    "",
                );
            }
            for (path, method) in schema.methods() {
                let name = |at: usize| schema.messages.get(at).map_or("", |message| message.name.as_str());
                let detail = format!("{} -> {}", name(method.input), name(method.output));
                self.add(&path, CandidateKind::Value, &detail, "");
            }
        } else if before.kind == TokenKind::LeftBracket {
            for (header, element) in self.headers() {
                self.add(&header, CandidateKind::Value, &format!("a header that `{element}` uses"), "");
            }
        }
    }

    /// Returns the header names that elements use, each with the element.
    fn headers(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for element in &self.program.analysis.network.elements {
            for handler in element.handlers.iter() {
                let effects = &handler.effects;
                let names = effects.headers_read.iter().chain(&effects.headers_written);
                found.extend(names.map(|name| (name.clone(), element.name.clone())));
            }
        }
        found
    }

    // ---- adding ------------------------------------------------------------------------------------------------

    /// Offers the top-level names of these kinds.
    fn top(&mut self, is_meant: impl Fn(SymbolKind) -> bool) {
        let names = self.program.index.members_of(None).filter(|(_, symbol)| is_meant(symbol.kind));
        for id in names.map(|(id, _)| id).collect::<Vec<_>>() {
            self.symbol(id);
        }
    }

    /// The members of a symbol; none if the symbol does not exist.
    fn members(&mut self, owner: Option<SymbolId>, is_meant: impl Fn(SymbolKind) -> bool) {
        self.members_if(owner, |symbol| is_meant(symbol.kind));
    }

    /// Offers the members of a symbol that satisfy a condition.
    fn members_if(&mut self, owner: Option<SymbolId>, is_meant: impl Fn(&Symbol) -> bool) {
        if owner.is_none() {
            return;
        }
        let found = self.program.index.members_of(owner).filter(|(_, symbol)| is_meant(symbol));
        for id in found.map(|(id, _)| id).collect::<Vec<_>>() {
            self.symbol(id);
        }
    }

    /// Offers a symbol, unless its name is offered already.
    fn symbol(&mut self, id: SymbolId) {
        use SymbolKind as K;
        let symbol = self.program.index.symbol(id);
        if self.labels.contains(&symbol.name) || self.candidates.len() >= CANDIDATES_MAX {
            return;
        }
        let kind = match class_of(symbol.kind) {
            TokenClass::Type => CandidateKind::Type,
            TokenClass::Table => CandidateKind::Table,
            TokenClass::Object => CandidateKind::Object,
            TokenClass::Function => CandidateKind::Function,
            TokenClass::Parameter => CandidateKind::Parameter,
            TokenClass::Column => CandidateKind::Column,
            _ => CandidateKind::Variable,
        };
        let ty = symbol.ty.map_or("", |ty| self.program.slice(ty));
        let detail = match symbol.kind {
            K::Item(Kind::Element | Kind::Filter) => self.parameters(id),
            kind if ty.is_empty() => kind.word().to_owned(),
            kind => format!("{ty}, {}", kind.word()),
        };
        let label = symbol.name.clone();
        let doc = hover::of_symbol(self.program, id);
        self.add(&label, kind, &detail, &doc);
    }

    /// `(rate F64 = 1000) ON rpc (tenant TEXT)`
    fn parameters(&self, element: SymbolId) -> String {
        let list = |is_meant: fn(SymbolKind) -> bool| {
            let members = self.program.index.members_of(Some(element));
            let of_kind = members.filter(|(_, symbol)| is_meant(symbol.kind));
            let texts: Vec<&str> = of_kind.map(|(_, symbol)| self.program.slice(symbol.whole)).collect();
            if texts.is_empty() { String::new() } else { format!("({})", texts.join(", ")) }
        };
        let params = list(|kind| kind == SymbolKind::Param);
        let columns = list(|kind| matches!(kind, SymbolKind::Column(_)));
        format!("{params} {columns}").trim().to_owned()
    }

    /// Adds a candidate, up to [`CANDIDATES_MAX`]. Ignores a second one with the same label.
    fn add(&mut self, label: &str, kind: CandidateKind, detail: &str, doc: &str) {
        if self.candidates.len() >= CANDIDATES_MAX || !self.labels.insert(label.to_owned()) {
            return;
        }
        let (label, detail, doc) = (label.to_owned(), detail.to_owned(), doc.to_owned());
        self.candidates.push(Candidate { label, kind, detail, doc });
    }

    fn slice(&self, token: &Token) -> &str {
        &self.text[token.span.range()]
    }

    fn is_word(&self, token: &Token, word: &str) -> bool {
        token.kind == TokenKind::Word && self.slice(token).eq_ignore_ascii_case(word)
    }
}

/// An owner that owns nothing.
const NO_SYMBOL: SymbolId = SymbolId(usize::MAX);
