//! Parses elements: columns, declarations, handlers.

use crate::ast::{
    CallRow, CheckClause, Decl, Edge, Element, Event, Field, Handler, Item, Param, Sink, SinkFormat,
    SinkFormatClause, SinkTarget, Sketch, SketchDecay, Var,
};
use crate::diagnostic::{Diagnostic, code};
use crate::lexer::TokenKind;
use crate::nearest::nearest_keyword;
use crate::source::Span;

use super::cursor::{Parsed, Parser};
use super::{Create, Row};

pub(super) const ELEMENT_FORM: &str = "CREATE ELEMENT acl ON rpc (user TEXT) AS ... END;";
const HANDLER_FORM: &str = "ON REQUEST statement; ...";

type ReadDecl = fn(&mut Parser<'_>, Span) -> Parsed<Decl>;
type ReadEvent = fn(&mut Parser<'_>) -> Parsed<Event>;

const DECLS: &[Row<ReadDecl>] = &[
    Row {
        keyword: "TABLE",
        read: |p, start| p.table(start).map(Decl::Table),
        form: "TABLE t (k TEXT(64) PRIMARY KEY, v I64 = 0) MAX 1000 ROWS EVICT OLDEST;",
    },
    Row { keyword: "VAR", read: |p, start| p.var(start), form: "VAR n U64 = 0 MERGE SUM;" },
    Row { keyword: "CALL", read: |p, start| p.call_row(start), form: "CALL (remaining F64 = 0);" },
    Row {
        keyword: "SINK",
        read: |p, start| p.sink(start),
        form: "SINK log (user TEXT) TO STDOUT FORMAT JSON;",
    },
    Row {
        keyword: "SKETCH",
        read: |p, start| p.sketch(start),
        form: "SKETCH s (ip.src) COUNT HALF LIFE '1 s' ERROR 1 PERCENT;",
    },
    Row { keyword: "EDGE", read: |p, start| p.edge(start), form: "EDGE suspect;" },
];

const EVENTS: &[(&str, ReadEvent)] = &[
    ("OPEN", |_| Ok(Event::Open)),
    ("REQUEST", |_| Ok(Event::Request)),
    ("RESPONSE", |_| Ok(Event::Response)),
    ("CLOSE", |_| Ok(Event::Close)),
    ("ERROR", |_| Ok(Event::Error)),
    ("MESSAGE", |_| Ok(Event::Message)),
    ("PACKET", |_| Ok(Event::Packet)),
    ("EVERY", |p| p.expr().map(Event::Every)),
    ("TIMEOUT", |p| {
        p.keyword("OF")?;
        p.ident("a table").map(Event::Timeout)
    }),
    ("EVICT", |p| {
        p.keyword("OF")?;
        p.ident("a table").map(Event::Evict)
    }),
    ("SIGNAL", |p| p.signal_event()),
];

pub(super) fn forms() -> impl Iterator<Item = (&'static str, &'static str)> {
    super::forms_of(DECLS)
}

pub(super) fn words() -> impl Iterator<Item = &'static str> {
    EVENTS.iter().map(|(keyword, _)| *keyword)
}

impl Parser<'_> {
    /// Parses `CREATE ELEMENT`.
    pub(super) fn element(&mut self, create: Create) -> Parsed<Item> {
        let n_faults = self.n_faults;
        let name = self.ident("a name for the element")?;
        let (params, checks) = self.params_and_checks(Self::element_param)?;
        self.layout.weak(self.index());
        self.clause("ON", "an element needs a layer")?;
        let layer = self.ident("a layer, such as `rpc`")?;
        let fields = self.optional_fields()?;
        self.layout.weak(self.index());
        let returns = self.after("RETURNS", |p| p.paren_list(Self::field))?.unwrap_or_default();
        self.keyword("AS")?;

        self.layout.deeper();
        let decls = self.decls();
        let handlers = self.handlers(HANDLER_FORM, Self::event);
        self.layout.shallower();
        self.end_of_item("element", &name.name, create.start);
        let is_faulty = self.n_faults != n_faults;
        let span = self.span_from(create.start);
        let or_replace = create.or_replace;
        Ok(Item::Element(Element {
            or_replace,
            name,
            params,
            checks,
            layer,
            fields,
            returns,
            decls,
            handlers,
            is_faulty,
            span,
        }))
    }

    pub(super) fn optional_fields(&mut self) -> Parsed<Vec<Field>> {
        self.params(Self::field)
    }

    /// `name TYPE`
    fn field(&mut self) -> Parsed<Field> {
        let name = self.ident("a column")?;
        let ty = self.type_expr()?;
        let span = self.span_from(name.span);
        Ok(Field { name, ty, span })
    }

    /// Parses `(param, ..., CHECK (e))`: parameters, and conditions on them.
    pub(super) fn params_and_checks(
        &mut self,
        param: fn(&mut Self) -> Parsed<Param>,
    ) -> Parsed<(Vec<Param>, Vec<CheckClause>)> {
        let mut checks = Vec::new();
        let params = self.params(|p| {
            let check = p.check_clause()?;
            let is_check = check.is_some();
            checks.extend(check);
            if is_check { Ok(None) } else { param(p).map(Some) }
        })?;
        Ok((params.into_iter().flatten().collect(), checks))
    }

    /// Like [`Parser::param`], or `name FUNCTION (types) RETURNS type [= default]`.
    fn element_param(&mut self) -> Parsed<Param> {
        if !self.peek_keyword(1, "FUNCTION") {
            return self.param();
        }
        let name = self.ident("a parameter")?;
        self.keyword("FUNCTION")?;
        let function = self.function_type()?;
        let default = if self.eat(TokenKind::Eq) { Some(self.expr()?) } else { None };
        let span = self.span_from(name.span);
        Ok(Param { name, ty: function.returns.clone(), function: Some(function), default, span })
    }

    /// `name TYPE [= default]`
    pub(super) fn param(&mut self) -> Parsed<Param> {
        let Field { name, ty, .. } = self.field()?;
        let default = if self.eat(TokenKind::Eq) { Some(self.expr()?) } else { None };
        let span = self.span_from(name.span);
        Ok(Param { name, ty, function: None, default, span })
    }

    /// Whether the current token ends the body of an element or queue.
    pub(super) fn ends_body(&self) -> bool {
        self.at_eof()
            || self.peek_keyword(0, "CREATE")
            || (self.peek_keyword(0, "END") && !self.ends_inner_block())
    }

    /// True at `END IF`, `END SCAN`, `END UPDATE`, and at an unsupported `END LOOP`; not at the `END` of an item whose
    /// `;` is missing.
    pub(super) fn ends_inner_block(&self) -> bool {
        self.peek_keyword(0, "END") && self.peek(1) == TokenKind::Word && !self.is_item_word(1)
    }

    // ---- declarations ----

    /// Parses the declarations of an element, up to the first handler. Skips declarations with errors.
    fn decls(&mut self) -> Vec<Decl> {
        let mut decls = Vec::new();
        while !self.ends_body() && !self.peek_keyword(0, "ON") {
            let before = self.index();
            self.layout.line(before);
            if self.at_statement() {
                self.statements_without_handler();
                continue;
            }
            match self.decl() {
                Ok(decl) => decls.push(decl),
                Err(_) => self.skip_statement(before),
            }
        }
        self.offer(super::keywords(DECLS).chain(["ON", "END"]));
        decls
    }

    /// Statements outside of a handler: parsed to report their errors, then rejected.
    fn statements_without_handler(&mut self) {
        let span = self.token().span;
        let help = "write `ON REQUEST`, or another event, before it";
        self.fail_at(span, code::UNEXPECTED, "a statement before the first handler", help);
        self.block();
    }

    /// Parses one declaration of an element.
    fn decl(&mut self) -> Parsed<Decl> {
        let start = self.token().span;
        let row = self.begin(DECLS, "an element", "`ON` or `END`")?;
        (row.read)(self, start)
    }

    /// Parses a VAR.
    fn var(&mut self, start: Span) -> Parsed<Decl> {
        let Param { name, ty, default, .. } = self.param()?;
        let merge = self.optional_merge()?;
        self.semicolon()?;
        Ok(Decl::Var(Var { name, ty, initial: default, merge, span: self.span_from(start) }))
    }

    /// Parses CALL with its columns.
    fn call_row(&mut self, start: Span) -> Parsed<Decl> {
        let columns = self.paren_list(Self::param)?;
        self.semicolon()?;
        Ok(Decl::Call(CallRow { columns, span: self.span_from(start) }))
    }

    /// Parses a SINK.
    fn sink(&mut self, start: Span) -> Parsed<Decl> {
        let name = self.ident("a name for the sink")?;
        let columns = self.paren_list(Self::field)?;
        self.layout.strong(self.index(), 1);
        self.clause("TO", "a sink needs a destination")?;
        let target = if self.eat_keyword("FILE").is_some() {
            SinkTarget::File(self.expr()?)
        } else if self.eat_keyword("STDOUT").is_some() {
            SinkTarget::Stdout
        } else if self.eat_keyword("METRICS").is_some() {
            SinkTarget::Metrics
        } else if self.eat_keyword("TABLE").is_some() {
            let name = self.ident("a table")?;
            SinkTarget::Table { name, deletes: self.eat_keyword("DELETE").is_some() }
        } else {
            return Err(self.expected(""));
        };
        let format = self.optional_sink_format()?;
        self.semicolon()?;
        Ok(Decl::Sink(Sink { name, columns, target, format, span: self.span_from(start) }))
    }

    /// Parses FORMAT, if present.
    fn optional_sink_format(&mut self) -> Parsed<Option<SinkFormatClause>> {
        let Some(start) = self.eat_keyword("FORMAT") else { return Ok(None) };
        let format = self.choice(&[("JSON", SinkFormat::Json), ("TEXT", SinkFormat::Text)])?;
        Ok(Some(SinkFormatClause { format, span: self.span_from(start) }))
    }

    /// Parses a SKETCH.
    fn sketch(&mut self, start: Span) -> Parsed<Decl> {
        let name = self.ident("a name for the sketch")?;
        let key = self.paren_list(Self::expr)?;
        let sum = if self.eat_keyword("COUNT").is_some() {
            None
        } else {
            self.keyword("SUM")?;
            Some(self.expr()?)
        };
        let top = self.after("TOP", Self::expr)?;
        self.layout.strong(self.index(), 1);
        let decay = if self.eat_keyword("HALF").is_some() {
            self.keyword("LIFE")?;
            SketchDecay::HalfLife(self.expr()?)
        } else {
            self.clause("WINDOW", "a sketch needs a `WINDOW` or a `HALF LIFE`")?;
            SketchDecay::Window(self.expr()?)
        };
        let error_percent = self.after("ERROR", |p| {
            let percent = p.expr()?;
            p.eat_keyword("PERCENT");
            Ok(percent)
        })?;
        self.semicolon()?;
        Ok(Decl::Sketch(Sketch { name, key, sum, top, decay, error_percent, span: self.span_from(start) }))
    }

    /// Parses an EDGE.
    fn edge(&mut self, start: Span) -> Parsed<Decl> {
        let name = self.ident("a name for the edge")?;
        self.semicolon()?;
        Ok(Decl::Edge(Edge { name, span: self.span_from(start) }))
    }

    // ---- handlers ----

    /// Parses the handlers of an element or a queue.
    pub(super) fn handlers<E>(
        &mut self,
        form: &'static str,
        event: fn(&mut Self) -> Parsed<E>,
    ) -> Vec<Handler<E>> {
        let mut handlers = Vec::new();
        while self.peek_keyword(0, "ON") {
            self.layout.line(self.index());
            handlers.extend(self.handler(form, event));
        }
        handlers
    }

    /// Parses a handler. Returns `None` if its event is unknown, after its statements were parsed to report their
    /// errors.
    fn handler<E>(&mut self, form: &'static str, event: fn(&mut Self) -> Parsed<E>) -> Option<Handler<E>> {
        let start = self.bump_keyword();
        self.form = form;
        let event = event(self);
        if event.is_err() && !self.at_statement() {
            self.skip_until(|p| p.at_statement() || p.at(TokenKind::Semicolon) || p.ends_body());
            self.eat(TokenKind::Semicolon);
        }
        let event_span = self.span_from(start);
        self.layout.deeper();
        let body = self.block();
        self.layout.shallower();
        let span = self.span_from(start);
        event.ok().map(|event| Handler { event, event_span, body, span })
    }

    /// Parses the event of a handler, after `ON`.
    fn event(&mut self) -> Parsed<Event> {
        self.offer(EVENTS.iter().map(|(keyword, _)| *keyword));
        let word = self.word().unwrap_or_default();
        if let Some((_, read)) = EVENTS.iter().find(|(keyword, _)| keyword.eq_ignore_ascii_case(word)) {
            self.bump_keyword();
            return read(self);
        }
        let keywords = EVENTS.iter().map(|(keyword, _)| *keyword);
        let Some(meant) = nearest_keyword(word, keywords.clone()) else {
            let known: Vec<String> = keywords.map(|keyword| format!("`{keyword}`")).collect();
            return Err(self.expected(&super::cursor::one_of(&known)));
        };
        self.misspelled_event(word, meant);
        self.bump_keyword();
        let row = EVENTS.iter().find(|(keyword, _)| *keyword == meant);
        row.map_or(Ok(Event::Request), |(_, read)| read(self))
    }

    /// Reports a misspelled event.
    fn misspelled_event(&mut self, word: &str, meant: &str) {
        let span = self.token().span;
        let diagnostic = Diagnostic::error(code::UNEXPECTED, format!("unknown event `{word}`"))
            .at(span, "")
            .with_help(format!("did you mean `{meant}`?"))
            .with_fix(span, meant);
        self.fail(diagnostic);
    }

    /// Parses the signal of an event, and its fields.
    fn signal_event(&mut self) -> Parsed<Event> {
        let name = self.ident("a signal")?;
        let fields = self.optional_fields()?;
        Ok(Event::Signal { name, fields })
    }

    /// True at a word that begins a declaration and cannot be a name in a statement.
    pub(super) fn at_decl_after_handler(&self) -> bool {
        let opens = matches!(self.peek(1), TokenKind::Word | TokenKind::QuotedWord | TokenKind::LeftParen);
        opens && self.word().is_some_and(|word| super::find(DECLS, word).is_some())
    }

    /// A declaration after the first handler: parsed to report its errors, then rejected.
    pub(super) fn decl_after_handler(&mut self) {
        let (span, before) = (self.token().span, self.index());
        let help = "declarations must come before the first `ON`";
        self.fail_at(span, code::DECL_AFTER_HANDLER, "a declaration after a handler", help);
        if self.decl().is_err() {
            self.skip_statement(before);
        }
    }
}
