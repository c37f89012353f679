//! Parses queues and links: `CREATE QUEUE`, `CREATE LINK`.

use crate::ast::{
    Expr, Item, Link, LinkCalls, LinkOn, OnFailure, PartitionInto, Queue, QueueDecl, QueueEvent, QueueLimit,
    QueueUse, QueueVerdict, StmtKind,
};
use crate::diagnostic::{Diagnostic, code};
use crate::lexer::TokenKind;
use crate::source::Span;

use super::cursor::{Parsed, Parser, one_of};
use super::{Create, Row, find, forms_of, keywords, list_of};

pub(super) const QUEUE_FORM: &str = "CREATE QUEUE fifo AS LIMIT 1000 PACKETS ON OVERFLOW DROP TAIL; END;";
pub(super) const LINK_FORM: &str = "CREATE LINK wan ON PORT eth0 RATE '15 Mbit/s' QUEUE fq_codel;";
const CALL_LINK_FORM: &str =
    "CREATE LINK l ON CLUSTER c CONCURRENCY 8 RATE '9 calls/s' KEY header['k'] CLASS header['c'] QUEUE q;";
const HANDLER_FORM: &str = "ON DEQUEUE statement; ... SEND;";

type ReadDecl = fn(&mut Parser<'_>, Span) -> Parsed<QueueDecl>;
type ReadEvent = fn(&mut Parser<'_>) -> Parsed<QueueEvent>;
type ReadVerdict = fn(&mut Parser<'_>) -> Parsed<QueueVerdict>;

const DECLS: &[Row<ReadDecl>] = &[
    Row { keyword: "VAR", read: |p, start| p.queue_var(start, false), form: "VAR count U16 = 0;" },
    Row {
        keyword: "PARTITION",
        read: |p, start| p.partition(start),
        form: "PARTITION BY flow() HASH 1024 WAYS 8;",
    },
    Row { keyword: "ORDER", read: |p, start| p.queue_order(start), form: "ORDER PARTITIONS BY rank BITS 1;" },
    Row {
        keyword: "LIMIT",
        read: |p, start| p.queue_limit(start).map(QueueDecl::Limit),
        form: "LIMIT 1000 PACKETS ON OVERFLOW DROP TAIL;",
    },
];

const EVENTS: &[(&str, ReadEvent)] = &[
    ("ENQUEUE", |_| Ok(QueueEvent::Enqueue)),
    ("ACTIVATE", |_| Ok(QueueEvent::Activate)),
    ("SELECT", |_| Ok(QueueEvent::Select)),
    ("DEQUEUE", |_| Ok(QueueEvent::Dequeue)),
    ("EMPTY", |_| Ok(QueueEvent::Empty)),
    ("EVERY", |p| p.queue_timer()),
];

const VERDICTS: &[Row<ReadVerdict>] = &[
    Row { keyword: "ACCEPT", read: |_| Ok(QueueVerdict::Accept), form: "ACCEPT;" },
    Row { keyword: "SEND", read: |_| Ok(QueueVerdict::Send), form: "SEND;" },
    Row { keyword: "ROTATE", read: |_| Ok(QueueVerdict::Rotate), form: "ROTATE;" },
    Row { keyword: "SERVE", read: |_| Ok(QueueVerdict::Serve), form: "SERVE;" },
    Row { keyword: "NEXT", read: |_| Ok(QueueVerdict::Next), form: "NEXT;" },
    Row { keyword: "STAY", read: |_| Ok(QueueVerdict::Stay), form: "STAY;" },
    Row { keyword: "LEAVE", read: |_| Ok(QueueVerdict::Leave), form: "LEAVE;" },
    Row { keyword: "HOLD", read: |p| p.hold(), form: "HOLD UNTIL e;" },
    Row { keyword: "MARK", read: |p| p.mark(), form: "MARK OR DROP;" },
];

pub(super) fn forms() -> impl Iterator<Item = (&'static str, &'static str)> {
    // Elements have `VAR` and `MARK`, too.
    forms_of(DECLS).chain(forms_of(VERDICTS)).filter(|(keyword, _)| !["VAR", "MARK"].contains(keyword))
}

/// The keywords of a queue's statements.
pub(super) fn statements() -> impl Iterator<Item = &'static str> {
    ["LET", "SET", "IF"].into_iter().chain(keywords(VERDICTS)).chain(["DROP"])
}

pub(super) fn words() -> impl Iterator<Item = &'static str> {
    EVENTS.iter().map(|(keyword, _)| *keyword)
}

impl Parser<'_> {
    /// Parses `CREATE QUEUE`.
    pub(super) fn queue(&mut self, create: Create) -> Parsed<Item> {
        let n_faults = self.n_faults;
        let name = self.ident("a name for the queue")?;
        let (params, checks) = self.params_and_checks(Self::param)?;
        self.keyword("AS")?;
        self.layout.deeper();
        let uses = self.queue_uses()?;
        let decls = self.queue_decls();
        let outside = core::mem::replace(&mut self.in_queue, true);
        let handlers = self.handlers(HANDLER_FORM, Self::queue_event);
        self.in_queue = outside;
        self.layout.shallower();
        self.end_of_item("queue", &name.name, create.start);
        let is_faulty = self.n_faults != n_faults;
        let (or_replace, span) = (create.or_replace, self.span_from(create.start));
        Ok(Item::Queue(Queue { or_replace, name, params, checks, uses, decls, handlers, is_faulty, span }))
    }

    /// Parses `CREATE LINK`.
    pub(super) fn link(&mut self, create: Create) -> Parsed<Item> {
        let name = self.ident("a name for the link")?;
        self.clause("ON", "a link needs a port, cluster or listener")?;
        let is_listener = self.peek_keyword(0, "LISTENER");
        let (on, rate) = if self.eat_keyword("CLUSTER").is_some() || self.eat_keyword("LISTENER").is_some() {
            self.form = CALL_LINK_FORM;
            let on = self.ident(if is_listener { "a listener" } else { "a cluster" })?;
            let concurrency = self.clause_of_link("CONCURRENCY")?;
            let rate = self.clause_of_link("RATE")?;
            let (key, class) = (self.clause_of_link("KEY")?, self.clause_of_link("CLASS")?);
            (LinkOn::Calls(Box::new(LinkCalls { is_listener, on, concurrency, key, class })), rate)
        } else {
            self.keyword("PORT")?;
            let port = self.ident("a port")?;
            let ingress = self.eat_keyword("INGRESS");
            (LinkOn::Port { port, ingress }, self.clause_of_link("RATE")?)
        };
        self.layout.weak(self.index());
        self.clause("QUEUE", "a link needs a queue")?;
        let queue = self.queue_use()?;
        self.layout.weak(self.index());
        let on_failure = self.after("ON", Self::without_device)?;
        self.semicolon()?;
        let (or_replace, span) = (create.or_replace, self.span_from(create.start));
        Ok(Item::Link(Link { or_replace, name, on, rate, queue, on_failure, span }))
    }

    fn clause_of_link(&mut self, word: &'static str) -> Parsed<Option<Expr>> {
        self.layout.weak(self.index());
        self.after(word, Self::expr)
    }

    /// Parses the rest of `ON FAILURE`: HOLD or DROP.
    fn without_device(&mut self) -> Parsed<OnFailure> {
        self.keyword("FAILURE")?;
        if self.eat_keyword("HOLD").is_some() {
            return Ok(OnFailure::Hold);
        }
        self.clause("DROP", "a link whose device fails either holds or drops its packets")?;
        Ok(OnFailure::Drop)
    }

    /// Parses the use of a queue with its arguments.
    fn queue_use(&mut self) -> Parsed<QueueUse> {
        let queue = self.ident("a queue")?;
        let args =
            if self.at(TokenKind::LeftParen) { self.assigns_in_parens("a parameter")? } else { Vec::new() };
        let span = self.span_from(queue.span);
        Ok(QueueUse { queue, args, span })
    }

    /// Parses `a (x = 1) EACH USING b;`, at a name that is not a declaration's keyword.
    fn queue_uses(&mut self) -> Parsed<Vec<QueueUse>> {
        let mut words = keywords(DECLS).chain(["ON", "END"]);
        let begins = words.any(|word| self.peek_keyword(0, word));
        let follows = matches!(self.peek(1), TokenKind::Semicolon | TokenKind::LeftParen)
            || self.peek_keyword(1, "EACH");
        let is_name = self.at(TokenKind::QuotedWord) || self.word().is_some() && !begins;
        if !is_name || !follows {
            return Ok(Vec::new());
        }
        self.form = "drr (quantum = '1514 B') EACH USING codel;";
        self.layout.line(self.index());
        let mut uses = vec![self.queue_use()?];
        while self.eat_keyword("EACH").is_some() {
            self.keyword("USING")?;
            uses.push(self.queue_use()?);
            self.layout.weak(self.index());
        }
        self.semicolon()?;
        Ok(uses)
    }

    // ---- declarations ----

    /// Parses the declarations of a queue, up to the first handler.
    fn queue_decls(&mut self) -> Vec<QueueDecl> {
        let mut decls = Vec::new();
        while !self.ends_body() && !self.peek_keyword(0, "ON") {
            let before = self.index();
            self.layout.line(before);
            match self.queue_decl() {
                Ok(decl) => decls.push(decl),
                Err(_) => self.skip_statement(before),
            }
        }
        self.offer(keywords(DECLS).chain(["ON", "END"]));
        decls
    }

    /// Parses one declaration of a queue.
    fn queue_decl(&mut self) -> Parsed<QueueDecl> {
        let start = self.token().span;
        self.form = QUEUE_FORM;
        let word = self.word().unwrap_or_default();
        let Some(row) = find(DECLS, word) else {
            let known = list_of(keywords(DECLS)).join(", ");
            return Err(self.expected(&format!("{known}, `ON` or `END`")));
        };
        self.bump_keyword();
        self.form = row.form;
        (row.read)(self, start)
    }

    /// Parses a variable of a queue or of its partitions.
    fn queue_var(&mut self, start: Span, per_partition: bool) -> Parsed<QueueDecl> {
        let var = self.param()?;
        self.semicolon()?;
        Ok(QueueDecl::Var { per_partition, var, span: self.span_from(start) })
    }

    /// Parses PARTITION BY or PARTITION VAR.
    fn partition(&mut self, start: Span) -> Parsed<QueueDecl> {
        if self.eat_keyword("VAR").is_some() {
            return self.queue_var(start, true);
        }
        self.keyword("BY")?;
        let key = self.expr()?;
        let into = if self.eat_keyword("HASH").is_some() {
            let n = self.expr()?;
            let ways = self.after("WAYS", Self::expr)?;
            Some(PartitionInto::Hash { n, ways })
        } else if self.eat_keyword("INDEX").is_some() {
            Some(PartitionInto::Index { n: self.expr()? })
        } else {
            None
        };
        self.semicolon()?;
        Ok(QueueDecl::Partition { key, into, span: self.span_from(start) })
    }

    /// Parses ORDER PARTITIONS BY or ORDER PACKETS BY.
    fn queue_order(&mut self, start: Span) -> Parsed<QueueDecl> {
        let of_partitions = self.choice(&[("PARTITIONS", true), ("PACKETS", false)])?;
        self.keyword("BY")?;
        let by = self.expr()?;
        self.eat_keyword("ASC");
        let bits = self.after("BITS", Self::expr)?;
        self.semicolon()?;
        let span = self.span_from(start);
        Ok(match of_partitions {
            true => QueueDecl::OrderPartitions { by, bits, span },
            false => QueueDecl::OrderPackets { by, bits, span },
        })
    }

    /// Parses LIMIT with its overflow rule.
    fn queue_limit(&mut self, start: Span) -> Parsed<QueueLimit> {
        let (mut packets, mut bytes) = (None, None);
        for (bound, span, of_packets) in self.comma_list(|p| {
            let first = p.token().span;
            let bound = p.expr()?;
            let of_packets = p.eat_keyword("PACKETS").is_some();
            Ok((bound, p.span_from(first), of_packets))
        })? {
            let (place, what) =
                if of_packets { (&mut packets, "number of packets") } else { (&mut bytes, "size") };
            if place.replace(bound).is_some() {
                let message = format!("a limit has one {what}");
                let diagnostic = Diagnostic::error(code::REPEATED_CLAUSE, message)
                    .at(span, "the second")
                    .with_help("keep one of them, and beside it a size: `LIMIT 100 PACKETS, '1 MB' ...`");
                return Err(self.fail(diagnostic));
            }
        }
        self.layout.weak(self.index());
        self.clause("ON", "a limit needs an overflow rule")?;
        self.keywords(&["OVERFLOW", "DROP"])?;
        let head = self.choice(&[("HEAD", true), ("TAIL", false)])?;
        let (mut victim, mut batch) = (None, None);
        let of_partition = self.eat_keyword("OF").is_some();
        if of_partition {
            self.keyword("PARTITION")?;
            if self.eat_keywords("ORDER", "BY").is_some() {
                victim = Some(self.expr()?);
                self.keyword("DESC")?;
            }
            if self.eat_keywords("UP", "TO").is_some() {
                batch = Some(self.expr()?);
            }
        }
        self.semicolon()?;
        Ok(QueueLimit { packets, bytes, head, of_partition, victim, batch, span: self.span_from(start) })
    }

    // ---- handlers ----

    /// Parses the event of a handler, after `ON`.
    fn queue_event(&mut self) -> Parsed<QueueEvent> {
        self.offer(EVENTS.iter().map(|(keyword, _)| *keyword));
        let word = self.word().unwrap_or_default();
        if let Some((_, read)) = EVENTS.iter().find(|(keyword, _)| keyword.eq_ignore_ascii_case(word)) {
            self.bump_keyword();
            return read(self);
        }
        Err(self.expected(&one_of(&list_of(words()))))
    }

    /// Parses the interval of ON EVERY, and EACH PARTITION.
    fn queue_timer(&mut self) -> Parsed<QueueEvent> {
        let interval = self.expr()?;
        let each_partition = match self.eat_keyword("EACH") {
            Some(each) => {
                self.keyword("PARTITION")?;
                Some(self.span_from(each))
            }
            None => None,
        };
        Ok(QueueEvent::Every { interval, each_partition })
    }

    // ---- verdicts ----

    /// True in a queue at a word that is a verdict of queues only.
    pub(super) fn at_queue_verdict(&self) -> bool {
        self.in_queue && VERDICTS.iter().any(|row| self.peek_keyword(0, row.keyword))
    }

    /// A verdict of a queue, if the current handler belongs to one.
    pub(super) fn queue_verdict(&mut self) -> Parsed<Option<StmtKind>> {
        let is_it = |row: &&Row<ReadVerdict>, p: &Self| p.peek_keyword(0, row.keyword);
        let found = if self.in_queue { VERDICTS.iter().find(|row| is_it(row, self)) } else { None };
        found.map(|row| self.read_queue_verdict(row)).transpose()
    }

    /// The queue verdict that this misspelled word was meant as.
    pub(super) fn queue_verdict_of(&mut self, meant: &str) -> Option<Parsed<StmtKind>> {
        let row = VERDICTS.iter().find(|row| row.keyword == meant)?;
        Some(self.read_queue_verdict(row))
    }

    /// Parses the verdict of this row, whose keyword is the current token.
    fn read_queue_verdict(&mut self, row: &Row<ReadVerdict>) -> Parsed<StmtKind> {
        self.bump_keyword();
        self.form = row.form;
        (row.read)(self).map(StmtKind::QueueVerdict)
    }

    /// True at a declaration, which is not allowed in a handler.
    pub(super) fn at_queue_decl(&self) -> bool {
        DECLS.iter().any(|row| self.peek_keyword(0, row.keyword))
    }

    pub(super) fn offer_queue_statements(&mut self) {
        self.offer(statements());
    }

    fn hold(&mut self) -> Parsed<QueueVerdict> {
        let is_span = self.choice(&[("UNTIL", false), ("FOR", true)])?;
        Ok(QueueVerdict::Hold { is_span, time: self.expr()? })
    }

    /// Parses the rest of `MARK [OR DROP]`.
    fn mark(&mut self) -> Parsed<QueueVerdict> {
        let or_drop = self.eat_keyword("OR").is_some();
        if or_drop {
            self.keyword("DROP")?;
        }
        Ok(QueueVerdict::Mark { or_drop })
    }
}
