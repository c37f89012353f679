//! Parses statements, actions and verdicts.

use crate::ast::{Assign, Expr, ExprKind, Ident, MARK_CLASS};
use crate::ast::{
    AssignTarget, First, Guard, IfArm, Insert, InsertSource, Join, JoinCondition, Pushed, Returning, Scan,
    Select, Stmt, StmtKind, Update, Upsert, Verdict, VerdictKind, WithItem,
};
use crate::diagnostic::{Diagnostic, code};
use crate::lexer::TokenKind;
use crate::nearest::nearest_keyword;
use crate::source::Span;

use weft_core::limits::{IF_ARMS_MAX, JOINS_MAX};

use super::cursor::{Block, Failed, Parsed, Parser};
use super::queue::statements as queue_statements;
use super::{Row, find, keywords, list_of};

/// Reads a statement after its keyword, up to its `;`.
type ReadStmt = fn(&mut Parser<'_>) -> Parsed<StmtKind>;
type ReadVerdict = fn(&mut Parser<'_>) -> Parsed<VerdictKind>;

const FIRST_FORM: &str = "SELECT * FROM input JOIN FIRST t BY priority DESC ON e IN t.net ELSE DROP;";
const GUARD_FORM: &str = "SELECT * FROM input JOIN t USING (k) WHERE e ELSE ABORT PERMISSION_DENIED 'why';";

const STATEMENTS: &[Row<ReadStmt>] = &[
    Row { keyword: "LET", read: |p| p.let_stmt(), form: "LET x = e;" },
    Row { keyword: "SET", read: |p| p.set_stmt(), form: "SET column = e;" },
    Row {
        keyword: "IF",
        read: |p| p.nested(Parser::if_arms),
        form: "IF e THEN ... ELSIF e THEN ... ELSE ... END IF;",
    },
    Row { keyword: "SELECT", read: |p| p.guard(None), form: GUARD_FORM },
    Row { keyword: "INSERT", read: |p| p.insert(), form: "INSERT INTO t VALUES (e, ...);" },
    Row { keyword: "UPSERT", read: |p| p.upsert(), form: "UPSERT t KEY (e, ...) SET c = e, ...;" },
    Row {
        keyword: "UPDATE",
        read: |p| p.update(),
        form: "UPDATE t SET c = e WHERE e RETURNING c INTO x ELSE DROP;",
    },
    Row { keyword: "DELETE", read: |p| p.delete(), form: "DELETE FROM t WHERE e;" },
    Row { keyword: "SCAN", read: |p| p.scan(), form: "SCAN t MAX n AS r WHERE e DO ... END SCAN;" },
    Row { keyword: "ADD", read: |p| p.add(), form: "ADD x, n;" },
    Row {
        keyword: "RESET",
        read: |p| Ok(StmtKind::Reset { target: p.ident("a variable")? }),
        form: "RESET x;",
    },
    Row {
        keyword: "MIRROR",
        read: |p| Ok(StmtKind::Mirror { to: p.expr_after_to()? }),
        form: "MIRROR TO cluster;",
    },
    Row { keyword: "MARK", read: |p| p.mark_message(), form: "MARK (class = e, remaining = e, slack = e);" },
    Row { keyword: "DELAY", read: |p| Ok(StmtKind::Delay { interval: p.expr()? }), form: "DELAY '5 ms';" },
    Row { keyword: "SIGNAL", read: |p| p.signal(), form: "SIGNAL name(e, ...);" },
    Row { keyword: "MESSAGE", read: |p| p.message(), form: "MESSAGE (column = e, ...);" },
    Row {
        keyword: "PUSH",
        read: |p| Ok(StmtKind::Push { headers: p.comma_list(Parser::pushed)? }),
        form: "PUSH ethernet (dst = e), vlan (id = e);",
    },
    Row { keyword: "POP", read: |p| p.pop(), form: "POP TO inner.ip;" },
    Row { keyword: "CUT", read: |p| Ok(StmtKind::Cut { bytes: p.expr_after_to()? }), form: "CUT TO 128;" },
    Row {
        keyword: "FRAGMENT",
        read: |p| Ok(StmtKind::Fragment { bytes: p.expr_after_to()? }),
        form: "FRAGMENT TO 1500;",
    },
];

const VERDICTS: &[Row<ReadVerdict>] = &[
    Row { keyword: "FORWARD", read: |_| Ok(VerdictKind::Forward), form: "FORWARD;" },
    Row { keyword: "DROP", read: |_| Ok(VerdictKind::Drop), form: "DROP;" },
    Row { keyword: "ABORT", read: |p| p.abort(), form: "ABORT UNAVAILABLE 'why' WITH header['k'] = e;" },
    Row { keyword: "REPLY", read: |p| p.reply(), form: "REPLY (column = e, ...);" },
    Row {
        keyword: "REDIRECT",
        read: |p| Ok(VerdictKind::Redirect { to: p.expr_after_to()? }),
        form: "REDIRECT TO e;",
    },
    Row { keyword: "STEER", read: |p| p.steer(), form: "STEER TO edge;" },
];

/// Verdicts of other tools (in lower case: they are not keywords), the verdict here, and the help.
const OTHER_VERDICTS: [(&str, &str, &str); 5] = [
    ("accept", "FORWARD", "did you mean `FORWARD`? It is also the default at the end of a handler"),
    ("allow", "FORWARD", "did you mean `FORWARD`? It is also the default at the end of a handler"),
    ("deny", "DROP", "did you mean `DROP`? `ABORT PERMISSION_DENIED 'why'` also gives a reason"),
    ("pass", "FORWARD", "did you mean `FORWARD`? It is also the default at the end of a handler"),
    ("reject", "DROP", "did you mean `DROP`? `ABORT PERMISSION_DENIED 'why'` also gives a reason"),
];

/// Why a `SCAN` has a `MAX`.
pub(super) const SCAN_BOUND: &str = "a `SCAN` needs a row limit";

/// Statements whose keywords can begin a line as a clause of another statement.
const CLAUSE_STATEMENTS: &[&str] = &["SET", "SELECT", "INSERT"];

pub(super) fn forms() -> impl Iterator<Item = (&'static str, &'static str)> {
    super::forms_of(STATEMENTS).chain(super::forms_of(VERDICTS))
}

impl Parser<'_> {
    /// Statements up to the end of the block, which the caller consumes.
    pub(super) fn block(&mut self) -> Vec<Stmt> {
        let mut stmts = Vec::new();
        while !self.ends_block() {
            let before = self.index();
            if self.peek_keyword(0, "ELSE") || self.peek_keyword(0, "ELSIF") {
                self.stray_else();
            } else if self.ends_inner_block() {
                self.stray_end();
            } else if self.at_decl_after_handler() {
                self.decl_after_handler();
            } else {
                self.layout.line(before);
                match self.stmt() {
                    Ok(stmt) => stmts.push(stmt),
                    Err(_) => self.skip_statement(before),
                }
            }
        }
        self.offer_statements();
        let ends: &[&'static str] = match self.blocks.last() {
            Some(block) if block.may_have_else => &["ELSE", "ELSIF", "END"],
            Some(_) => &["END"],
            None => &["ON", "END"],
        };
        self.offer(ends.iter().copied());
        stmts
    }

    /// Whether the current token ends the innermost block.
    fn ends_block(&self) -> bool {
        let is_else = self.peek_keyword(0, "ELSE") || self.peek_keyword(0, "ELSIF");
        if is_else {
            return self.blocks.last().is_some_and(|block| block.may_have_else);
        }
        let is_end = self.peek_keyword(0, "END") && !(self.blocks.is_empty() && self.ends_inner_block());
        is_end || self.at_eof() || self.peek_keyword(0, "ON") || self.peek_keyword(0, "CREATE")
    }

    /// Registers the statements as possible continuations for completion.
    fn offer_statements(&mut self) {
        if self.in_queue {
            return self.offer_queue_statements();
        }
        self.offer(keywords(STATEMENTS));
        self.offer(keywords(VERDICTS));
    }

    pub(super) fn at_statement(&self) -> bool {
        let is_own = |word| find(STATEMENTS, word).is_some() || find(VERDICTS, word).is_some();
        self.word().is_some_and(is_own) || self.at_queue_verdict()
    }

    /// Skips to a possible start of a statement: after a `;`, or at a line that begins with one or ends a block.
    pub(super) fn skip_statement(&mut self, first: usize) {
        if self.index() == first {
            self.bump();
        }
        self.skip_until(|p| {
            if p.at(TokenKind::Semicolon) || p.peek_keyword(0, "CREATE") || p.ends_inner_block() {
                return true;
            }
            let is_end = p.peek_keyword(0, "END") && p.peek(1) == TokenKind::Semicolon;
            let is_clause = CLAUSE_STATEMENTS.iter().any(|word| p.peek_keyword(0, word));
            p.is_first_on_line() && (is_end || (p.at_statement() && !is_clause))
        });
        self.eat(TokenKind::Semicolon);
    }

    /// Parses a statement with its `;`.
    fn stmt(&mut self) -> Parsed<Stmt> {
        let start = self.token().span;
        let kind = self.stmt_kind()?;
        self.semicolon()?;
        Ok(Stmt { kind, span: self.span_from(start) })
    }

    /// Parses a statement without its `;`.
    fn stmt_kind(&mut self) -> Parsed<StmtKind> {
        self.form = "";
        let word = self.word().unwrap_or_default();
        if let Some(kind) = self.queue_verdict()? {
            return Ok(kind);
        }
        if let Some(row) = find(STATEMENTS, word) {
            self.bump_keyword();
            self.form = row.form;
            return (row.read)(self);
        }
        if find(VERDICTS, word).is_some() {
            return self.verdict().map(StmtKind::Verdict);
        }
        let assigns =
            matches!(self.peek(1), TokenKind::Eq | TokenKind::Bind | TokenKind::LeftBracket | TokenKind::Dot);
        if !word.is_empty() && assigns {
            return self.set_without_keyword();
        }
        if self.in_queue {
            return self.misspelled_in_queue(word);
        }
        if let Some(verdict) = self.verdict_of_others(word, "a handler") {
            return verdict.map(StmtKind::Verdict);
        }
        if let Some(meant) = nearest_keyword(word, keywords(STATEMENTS).chain(keywords(VERDICTS))) {
            self.misspelled(word, meant, "a handler");
            if let Some(row) = find(STATEMENTS, meant) {
                self.bump_keyword();
                self.form = row.form;
                return (row.read)(self);
            }
            return self.verdict_of(meant).map(StmtKind::Verdict);
        }
        Err(self.unknown_statement())
    }

    /// Reports an unknown statement in a queue.
    fn misspelled_in_queue(&mut self, word: &str) -> Parsed<StmtKind> {
        let Some(meant) = nearest_keyword(word, queue_statements()) else {
            return Err(self.unknown_statement());
        };
        self.misspelled(word, meant, "a handler of a queue");
        if let Some(row) = find(STATEMENTS, meant).filter(|row| row.keyword != "MARK") {
            self.bump_keyword();
            self.form = row.form;
            return (row.read)(self);
        }
        match self.queue_verdict_of(meant) {
            Some(verdict) => verdict,
            None => self.verdict_of(meant).map(StmtKind::Verdict),
        }
    }

    /// Reports a word that begins no statement.
    fn unknown_statement(&mut self) -> Failed {
        if self.word().is_none() {
            self.offer_statements();
            return self.expected("a statement");
        }
        let span = self.token().span;
        if self.in_queue && self.at_queue_decl() {
            let help = "declarations must come before the first `ON`";
            return self.fail_at(span, code::DECL_AFTER_HANDLER, "a declaration after a handler", help);
        }
        let message = format!("`{}` is not a statement", self.slice(span));
        if self.in_queue {
            let words: Vec<&str> = queue_statements().collect();
            let help = format!("a queue handler has {}, and no loops", words.join(", "));
            return self.fail_at(span, code::UNKNOWN_STATEMENT, &message, &help);
        }
        let help = "statements begin with LET, SET, IF, SELECT, INSERT, UPSERT, UPDATE, DELETE, SCAN, \
                    an action such as ADD or DELAY, or a verdict such as FORWARD or ABORT";
        self.fail_at(span, code::UNKNOWN_STATEMENT, &message, help)
    }

    /// Reports `x = 1;`, which was meant as `SET x = 1;`.
    fn set_without_keyword(&mut self) -> Parsed<StmtKind> {
        let span = self.token().span;
        let word = self.slice(span).to_owned();
        let target = self.place()?;
        let place = self.slice(self.span_from(span)).to_owned();
        let diagnostic = Diagnostic::error(code::UNKNOWN_STATEMENT, format!("`{word}` is not a statement"))
            .at(span, "")
            .with_help(format!("to change it, write `SET {place} = ...;`"))
            .with_fix(span.before(), "SET ");
        self.fail(diagnostic);
        if !self.eat(TokenKind::Bind) {
            self.equals()?;
        }
        Ok(StmtKind::Set { target, value: self.expr()? })
    }

    /// Reports `...; ELSE verdict;`: the `;` ended the statement early. The verdict is parsed as a separate
    /// statement.
    fn stray_else(&mut self) {
        let span = self.token().span;
        let semicolon = self.previous_span();
        let mut diagnostic = Diagnostic::error(code::UNEXPECTED, "this `ELSE` has no `IF`").at(span, "");
        if self.slice(semicolon) == ";" {
            diagnostic = diagnostic
                .with_label(semicolon, "this `;` already ends the statement")
                .with_help("remove the `;` before `ELSE`")
                .with_fix(semicolon, "");
        }
        self.fail(diagnostic);
        self.bump();
    }

    /// Reports `END IF;` or the like without an open block, and skips it.
    fn stray_end(&mut self) {
        let start = self.token().span;
        self.bump();
        let word = self.word().unwrap_or_default().to_owned();
        let span = start.to(self.bump().span);
        let message = format!("`END {word}` has no open block");
        self.fail_at(span, code::UNEXPECTED, &message, "remove it, or check the block that it should close");
        self.eat(TokenKind::Semicolon);
    }

    // ---- values and control ----

    /// Parses a LET after its keyword.
    fn let_stmt(&mut self) -> Parsed<StmtKind> {
        let name = self.ident("a new name")?;
        let has_type = !matches!(self.token().kind, TokenKind::Eq | TokenKind::Bind);
        let ty = if has_type { Some(self.type_expr()?) } else { None };
        self.equals()?;
        Ok(StmtKind::Let { name, ty, value: self.expr()? })
    }

    /// Parses a SET after its keyword.
    fn set_stmt(&mut self) -> Parsed<StmtKind> {
        let target = self.place()?;
        self.equals()?;
        Ok(StmtKind::Set { target, value: self.expr()? })
    }

    /// Parses the target of an assignment: `a.b`, `header['k']` or `trailer['k']`.
    fn place(&mut self) -> Parsed<AssignTarget> {
        let start = self.token().span;
        let is_indexed = self.peek(1) == TokenKind::LeftBracket;
        if is_indexed && self.peek_keyword(0, "HEADER") {
            let key = self.index_key()?;
            return Ok(AssignTarget::Header { key, span: self.span_from(start) });
        }
        if is_indexed && self.peek_keyword(0, "TRAILER") {
            let key = self.index_key()?;
            return Ok(AssignTarget::Trailer { key, span: self.span_from(start) });
        }
        self.path("a column, `header['k']` or `trailer['k']`").map(AssignTarget::Path)
    }

    /// Parses an IF with its ELSIF and ELSE arms.
    fn if_arms(&mut self) -> Parsed<StmtKind> {
        let (first, start) = (self.index() - 1, self.previous_span());
        let mut arms = Vec::new();
        let mut failed = None;
        let mut arm_start = start;
        loop {
            match self.if_arm(arm_start) {
                Ok(arm) => arms.push(arm),
                Err(fault) => failed = Some(fault),
            }
            if !self.at_keyword("ELSIF") {
                break;
            }
            self.layout.line(self.index());
            arm_start = self.bump_keyword();
        }
        let mut else_if = None;
        let otherwise = if self.at_keyword("ELSE") {
            self.layout.line(self.index());
            let span = self.bump_keyword();
            else_if = self.peek_keyword(0, "IF").then(|| span.to(self.token().span));
            Some(self.inner_block("IF", false))
        } else {
            None
        };
        self.end_of_if(start, else_if)?;
        self.bounded(arms.len(), IF_ARMS_MAX, "conditions of an IF", start)?;
        if let Some(failed) = failed {
            return Err(failed);
        }
        if is_short_if(&arms, otherwise.as_deref()) {
            self.layout.short_ifs.push((first, self.index()));
        }
        Ok(StmtKind::If { arms, otherwise })
    }

    /// From the condition to the end of its block. The block is parsed even if the condition has an error.
    fn if_arm(&mut self, start: Span) -> Parsed<IfArm> {
        let condition = self.expr().and_then(|condition| self.keyword("THEN").map(|_| condition));
        if condition.is_err() {
            self.skip_until(|p| {
                p.peek_keyword(0, "THEN") || p.at(TokenKind::Semicolon) || p.ends_inner_block()
            });
            if self.peek_keyword(0, "THEN") {
                self.bump();
            }
            self.eat(TokenKind::Semicolon);
        }
        let body = self.inner_block("IF", true);
        let span = self.span_from(start);
        condition.map(|condition| IfArm { condition, body, span })
    }

    /// Parses the statements of an inner block. `word` is the statement that opens it.
    fn inner_block(&mut self, word: &'static str, may_have_else: bool) -> Vec<Stmt> {
        self.blocks.push(Block { word, may_have_else });
        self.layout.deeper();
        let stmts = self.block();
        self.layout.shallower();
        self.blocks.pop();
        stmts
    }

    /// `END IF`. If there are too few, a nested `ELSE IF` has consumed one.
    fn end_of_if(&mut self, start: Span, else_if: Option<Span>) -> Parsed<()> {
        let Some(span) = else_if.filter(|_| !self.at_end_of("IF") && !self.ends_inner_block()) else {
            return self.end_of_block("IF", start);
        };
        let diagnostic = Diagnostic::error(code::UNCLOSED_BLOCK, "this `IF` has no `END IF;`")
            .at(start, "the cycle starts here")
            .with_label(span, "this starts a nested `IF`, which needs its own `END IF;`")
            .with_help("write `ELSIF` for the next condition")
            .with_fix(span, "ELSIF");
        Err(self.fail(diagnostic))
    }

    fn at_end_of(&self, word: &str) -> bool {
        self.peek_keyword(0, "END") && self.peek_keyword(1, word)
    }

    /// Parses `END word`, or reports that it is missing.
    fn end_of_block(&mut self, word: &'static str, start: Span) -> Parsed<()> {
        self.layout.line(self.index());
        if self.at_end_of(word) {
            self.bump_keyword();
            self.bump_keyword();
            return Ok(());
        }
        let closes_outer = self.blocks.iter().any(|block| self.peek_keyword(1, block.word));
        if self.ends_inner_block() && !closes_outer {
            let span = self.bump().span.to(self.token().span);
            let diagnostic =
                Diagnostic::error(code::UNCLOSED_BLOCK, format!("`{word}` is closed by a different `END`"))
                    .at(span, format!("expected `END {word}`"))
                    .with_label(start, "the cycle starts here")
                    .with_fix(span, format!("END {word}"));
            self.fail(diagnostic);
            self.bump();
            return Ok(());
        }
        let diagnostic =
            Diagnostic::error(code::UNCLOSED_BLOCK, format!("this `{word}` has no `END {word};`"))
                .at(start, "the cycle starts here")
                .with_label(self.token().span, format!("`END {word};` is missing before this"))
                .with_help(format!("close it with `END {word};`"));
        Err(self.fail(diagnostic))
    }

    fn scan(&mut self) -> Parsed<StmtKind> {
        self.nested(Self::scan_rest)
    }

    /// Parses a SCAN after its keyword. After an error in its head, its body is parsed too.
    fn scan_rest(&mut self) -> Parsed<StmtKind> {
        let start = self.previous_span();
        let head = self.scan_head();
        if head.is_err() {
            self.skip_until(|p| {
                p.peek_keyword(0, "DO") || p.at(TokenKind::Semicolon) || p.ends_inner_block()
            });
            if self.peek_keyword(0, "DO") {
                self.bump();
            }
            self.eat(TokenKind::Semicolon);
        }
        let body = self.inner_block("SCAN", false);
        self.end_of_block("SCAN", start)?;
        head.map(|head| StmtKind::Scan(Scan { body, ..head }))
    }

    /// Parses `t MAX n [AS r] [WHERE e] DO`
    fn scan_head(&mut self) -> Parsed<Scan> {
        let table = self.ident("a table")?;
        self.clause("MAX", SCAN_BOUND)?;
        let max = self.expr()?;
        let alias = self.after("AS", |p| p.ident("a name for the row"))?;
        let filter = self.optional_where()?;
        self.keyword("DO")?;
        Ok(Scan { table, max, alias, filter, body: Vec::new() })
    }

    // ---- queries and tables ----

    /// Called after `SELECT`, and after `INSERT INTO output` if present.
    fn guard(&mut self, into_output: Option<Span>) -> Parsed<StmtKind> {
        let select = self.select(self.previous_span())?;
        self.layout.strong(self.index(), 0);
        let otherwise = self.after("ELSE", Self::verdict)?;
        Ok(StmtKind::Guard(Guard { into_output, select, otherwise }))
    }

    /// Parses a SELECT from `input`, after its keyword.
    fn select(&mut self, start: Span) -> Parsed<Select> {
        let items = self.comma_list(Self::select_item)?;
        self.layout.weak(self.index());
        self.keyword("FROM")?;
        if !self.peek_keyword(0, "INPUT") {
            return Err(self.select_from_other());
        }
        self.bump();
        let mut joins = Vec::new();
        while let Some(join) = self.optional_join()? {
            joins.push(join);
        }
        self.bounded(joins.len(), JOINS_MAX, "joins of a SELECT", start)?;
        let filter = self.optional_where()?;
        Ok(Select { items, joins, filter, span: self.span_from(start) })
    }

    /// Reports a SELECT that does not read `input`.
    fn select_from_other(&mut self) -> Failed {
        let Some(word) = self.word().map(str::to_owned) else { return self.expected("`input`") };
        let message = format!("a statement can only select from `input`, not from `{word}`");
        let help = format!(
            "join the table, as in `SELECT * FROM input JOIN {word} USING (k)`, or scan its rows with `SCAN \
             {word} MAX n DO`"
        );
        let span = self.token().span;
        self.fail_at(span, code::UNEXPECTED, &message, &help)
    }

    /// Parses a JOIN or LEFT JOIN, if present.
    fn optional_join(&mut self) -> Parsed<Option<Join>> {
        let start = self.token().span;
        let left = if self.at_keyword("LEFT") && self.peek_keyword(1, "JOIN") {
            self.layout.weak(self.index());
            Some(self.bump_keyword())
        } else if self.at_keyword("JOIN") {
            self.layout.weak(self.index());
            None
        } else {
            return Ok(None);
        };
        self.keyword("JOIN")?;
        if self.at_first() {
            return self.join_first(start, left).map(Some);
        }
        let table = self.ident("a table")?;
        let is_clause = self.at_keyword("USING") || self.at_keyword("ON");
        let alias = if is_clause { None } else { Some(self.join_alias()?) };
        let condition = if self.eat_keyword("USING").is_some() {
            JoinCondition::Using(self.paren_list(|p| p.ident("a column"))?)
        } else {
            self.clause("ON", "a `JOIN` needs a key, with `USING` or `ON`")?;
            JoinCondition::On(self.expr()?)
        };
        Ok(Some(Join { left, table, alias, first: None, condition, span: self.span_from(start) }))
    }

    /// Whether `FIRST` is the keyword here, not a table of this name.
    fn at_first(&mut self) -> bool {
        let is_table = self.peek_keyword(1, "USING") || self.peek_keyword(1, "ON");
        !is_table && self.at_keyword("FIRST")
    }

    /// Parses a JOIN FIRST from its keyword FIRST on.
    fn join_first(&mut self, start: Span, left: Option<Span>) -> Parsed<Join> {
        self.form = FIRST_FORM;
        self.keyword("FIRST")?;
        let table = self.ident("a table")?;
        if self.peek_keyword(0, "ORDER") && self.peek_keyword(1, "BY") {
            return Err(self.expected("`BY` alone"));
        }
        let alias = if self.at_keyword("BY") { None } else { Some(self.join_alias()?) };
        self.clause("BY", "`JOIN FIRST` needs the column that orders rows, with `BY`")?;
        let by = self.ident("a column")?;
        let descending = self.descending();
        self.layout.weak(self.index());
        self.clause("ON", "`JOIN FIRST` needs a condition for matching rows, with `ON`")?;
        let condition = JoinCondition::On(self.expr()?);
        let first = Some(First { by, descending });
        Ok(Join { left, table, alias, first, condition, span: self.span_from(start) })
    }

    /// Parses `DESC` or `ASC`, if present; true for the first.
    pub(super) fn descending(&mut self) -> bool {
        let descending = self.eat_keyword("DESC").is_some();
        if !descending {
            self.eat_keyword("ASC");
        }
        descending
    }

    /// Parses the alias of a joined table.
    fn join_alias(&mut self) -> Parsed<Ident> {
        let is_name = self.word().is_some_and(|word| !super::cursor::is_reserved(word))
            || self.at(TokenKind::QuotedWord);
        if is_name { self.ident("a name for the row") } else { Err(self.expected("")) }
    }

    /// Parses WHERE, if present.
    pub(super) fn optional_where(&mut self) -> Parsed<Option<Expr>> {
        self.layout.weak(self.index());
        if self.eat_keyword("WHERE").is_none() {
            return Ok(None);
        }
        self.expr().map(Some)
    }

    /// Parses an INSERT after its keyword.
    fn insert(&mut self) -> Parsed<StmtKind> {
        let start = self.previous_span();
        self.keyword("INTO")?;
        if self.peek_keyword(0, "OUTPUT") && self.peek_keyword(1, "SELECT") {
            self.bump();
            let into_output = self.span_from(start);
            self.layout.weak(self.index());
            self.bump_keyword();
            self.form = GUARD_FORM;
            return self.guard(Some(into_output));
        }
        let into = self.ident("a table or a sink")?;
        let columns = self.optional_column_names()?;
        self.layout.weak(self.index());
        let source = if let Some(start) = self.eat_keyword("SELECT") {
            self.form = "INSERT INTO sink SELECT e, ... FROM input;";
            InsertSource::Select(self.select(start)?)
        } else {
            self.clause("VALUES", "an `INSERT` needs rows")?;
            InsertSource::Values(self.rows()?)
        };
        Ok(StmtKind::Insert(Insert { into, columns, source }))
    }

    /// Parses a REPLY after its keyword.
    fn reply(&mut self) -> Parsed<VerdictKind> {
        if self.eat_keyword("PAYLOAD").is_some() {
            return Ok(VerdictKind::ReplyPayload { bytes: self.expr()? });
        }
        Ok(VerdictKind::Reply { fields: self.assigns_in_parens("a column")? })
    }

    /// Parses an UPSERT after its keyword.
    fn upsert(&mut self) -> Parsed<StmtKind> {
        let table = self.ident("a table")?;
        self.clause("KEY", "an `UPSERT` needs a key")?;
        let key = self.paren_list(Self::expr)?;
        self.layout.weak(self.index());
        let is_set = self.eat_keyword("SET").is_some();
        let set = if is_set { self.comma_list(|p| p.assign("a column"))? } else { Vec::new() };
        Ok(StmtKind::Upsert(Upsert { table, key, set }))
    }

    /// Parses an UPDATE after its keyword.
    fn update(&mut self) -> Parsed<StmtKind> {
        let start = self.previous_span();
        let table = self.ident("a table")?;
        self.layout.weak(self.index());
        self.clause("SET", "an `UPDATE` needs the columns to change")?;
        let set = self.comma_list(|p| p.assign("a column"))?;
        let filter = self.optional_where()?;
        self.layout.strong(self.index(), 1);
        let returning = self.after("RETURNING", |p| p.comma_list(Self::returning))?.unwrap_or_default();
        // `ELSE DO` opens a block, which has its own lines.
        self.layout.strong(self.index(), u8::from(!self.peek_keyword(1, "DO")));
        let otherwise = self.after("ELSE", |p| p.else_of("UPDATE", start))?;
        Ok(StmtKind::Update(Update { table, set, filter, returning, otherwise }))
    }

    /// Parses one item of RETURNING.
    fn returning(&mut self) -> Parsed<Returning> {
        let column = self.ident("a column")?;
        self.keyword("INTO")?;
        let into = self.path("a variable or a column of the call")?;
        let span = self.span_from(column.span);
        Ok(Returning { column, into, span })
    }

    /// Parses `DO ... END UPDATE`, or one statement or verdict that shares the `;`.
    fn else_of(&mut self, word: &'static str, start: Span) -> Parsed<Vec<Stmt>> {
        self.nested(|p| {
            if p.eat_keyword("DO").is_some() {
                let stmts = p.inner_block(word, false);
                p.end_of_block(word, start)?;
                return Ok(stmts);
            }
            let start = p.token().span;
            let kind = p.stmt_kind()?;
            Ok(vec![Stmt { kind, span: p.span_from(start) }])
        })
    }

    /// Parses a DELETE after its keyword.
    fn delete(&mut self) -> Parsed<StmtKind> {
        let start = self.previous_span();
        self.keyword("FROM")?;
        let table = self.ident("a table")?;
        self.layout.weak(self.index());
        self.clause("WHERE", "a `DELETE` needs the row's key")?;
        let filter = self.expr()?;
        if self.peek_keyword(0, "ELSE") {
            let message = "`DELETE` has no `ELSE`: deleting a missing row is not an error";
            let diagnostic = Diagnostic::error(code::UNEXPECTED, message)
                .at(self.token().span, "belongs to `UPDATE`")
                .with_help(
                    "test first: `IF EXISTS (SELECT * FROM t WHERE e) THEN DELETE ...; ELSE ...; END IF`",
                );
            self.fail(diagnostic);
            self.bump();
            self.else_of("DELETE", start)?;
        }
        Ok(StmtKind::Delete { table, filter })
    }

    // ---- actions ----

    /// Parses an ADD after its keyword.
    fn add(&mut self) -> Parsed<StmtKind> {
        let target = self.ident("a variable or a sketch")?;
        let amount = if self.eat(TokenKind::Comma) { Some(self.expr()?) } else { None };
        Ok(StmtKind::Add { target, amount })
    }

    /// Parses `TO e`; returns the expression.
    fn expr_after_to(&mut self) -> Parsed<Expr> {
        self.keyword("TO")?;
        self.expr()
    }

    /// Parses a SIGNAL after its keyword.
    fn signal(&mut self) -> Parsed<StmtKind> {
        let name = self.ident("a signal")?;
        self.layout.tight(self.index());
        self.expect(TokenKind::LeftParen, "`(`")?;
        let args = if self.at(TokenKind::RightParen) { Vec::new() } else { self.comma_list(Self::expr)? };
        self.expect(TokenKind::RightParen, "`,` or `)`")?;
        Ok(StmtKind::Signal { name, args })
    }

    /// Parses a MESSAGE after its keyword.
    fn message(&mut self) -> Parsed<StmtKind> {
        // The target is a name, so the parenthesis after it is not a call.
        let to = self.after("TO", |p| p.path_expr("a destination"))?;
        Ok(StmtKind::Message { to, fields: self.assigns_in_parens("a column")? })
    }

    /// Parses `MARK e`, or `MARK (f = e, ...)`: a mark is never a comparison.
    fn mark_message(&mut self) -> Parsed<StmtKind> {
        let is_name = |p: &Self, at| matches!(p.peek(at), TokenKind::Word | TokenKind::QuotedWord);
        let is_field = |p: &Self, at| is_name(p, at) && p.peek(at + 1) == TokenKind::Eq;
        if is_field(self, 0) {
            let help = format!("write `MARK ({} = ...)`", self.word().unwrap_or("class"));
            let span = self.token().span;
            return Err(self.fail_at(span, code::UNEXPECTED, "the fields of MARK need parentheses", &help));
        }
        if self.at(TokenKind::LeftParen) && is_field(self, 1) {
            return Ok(StmtKind::Mark { fields: self.assigns_in_parens("a field of MARK")? });
        }
        let value = self.expr()?;
        let (span, name) = (value.span, MARK_CLASS.to_owned());
        Ok(StmtKind::Mark { fields: vec![Assign { name: Ident { name, span }, value, span }] })
    }

    /// Parses one header of a PUSH.
    fn pushed(&mut self) -> Parsed<Pushed> {
        let protocol = self.ident("a protocol")?;
        let has_fields = self.at(TokenKind::LeftParen);
        let fields = if has_fields { self.assigns_in_parens("a field")? } else { Vec::new() };
        let span = self.span_from(protocol.span);
        Ok(Pushed { protocol, fields, span })
    }

    /// Parses a POP after its keyword.
    fn pop(&mut self) -> Parsed<StmtKind> {
        let to = self.eat_keyword("TO").is_some();
        let is_named = to || matches!(self.token().kind, TokenKind::Word | TokenKind::QuotedWord);
        let layer = if is_named { Some(self.path("a layer")?) } else { None };
        Ok(StmtKind::Pop { to, layer })
    }

    // ---- verdicts ----

    /// Parses a verdict.
    fn verdict(&mut self) -> Parsed<Verdict> {
        self.offer(keywords(VERDICTS));
        let word = self.word().unwrap_or_default();
        if let Some(row) = find(VERDICTS, word) {
            return self.verdict_of(row.keyword);
        }
        if let Some(verdict) = self.verdict_of_others(word, "an `ELSE`") {
            return verdict;
        }
        if let Some(meant) = nearest_keyword(word, keywords(VERDICTS)) {
            self.misspelled(word, meant, "an `ELSE`");
            return self.verdict_of(meant);
        }
        Err(self.expected(&super::cursor::one_of(&list_of(keywords(VERDICTS)))))
    }

    /// Reports a verdict of another tool and returns the one meant; None for other words.
    fn verdict_of_others(&mut self, word: &str, place: &str) -> Option<Parsed<Verdict>> {
        let is_it = |(other, ..): &&(&str, &str, &str)| other.eq_ignore_ascii_case(word);
        let (_, meant, help) = OTHER_VERDICTS.iter().find(is_it)?;
        self.misspelled_as(word, meant, place, help);
        Some(self.verdict_of(meant))
    }

    /// Parses the verdict with this keyword, whose word is the current token.
    fn verdict_of(&mut self, keyword: &str) -> Parsed<Verdict> {
        let start = self.bump_keyword();
        let Some(row) = find(VERDICTS, keyword) else { return Err(self.expected("a verdict")) };
        self.form = row.form;
        let kind = (row.read)(self)?;
        Ok(Verdict { kind, span: self.span_from(start) })
    }

    /// Parses an ABORT after its keyword.
    fn abort(&mut self) -> Parsed<VerdictKind> {
        let status = self.status()?;
        let ends = self.at(TokenKind::Semicolon) || self.at_eof() || self.at_keyword("WITH");
        let starts_line = self.is_first_on_line() && (self.at_statement() || self.peek_keyword(0, "END"));
        let text = if ends || starts_line { None } else { Some(self.expr()?) };
        self.layout.weak(self.index());
        let with = self.after("WITH", |p| p.comma_list(Self::with_item))?.unwrap_or_default();
        Ok(VerdictKind::Abort { status, text, with })
    }

    /// A name, a number, CAST, CASE, or an expression in parentheses: for other expressions, the start of the following
    /// text would be ambiguous.
    fn status(&mut self) -> Parsed<Expr> {
        let is_cast = self.peek_keyword(0, "CAST") && self.peek(1) == TokenKind::LeftParen;
        let is_literal = matches!(self.token().kind, TokenKind::LeftParen | TokenKind::Int);
        if is_literal || is_cast || self.peek_keyword(0, "CASE") {
            return self.operand();
        }
        self.path_expr("a status, such as `UNAVAILABLE`")
    }

    fn path_expr(&mut self, what: &str) -> Parsed<Expr> {
        let path = self.path(what)?;
        Ok(Expr { span: path.span, kind: ExprKind::Path(path) })
    }

    /// Parses one assignment of WITH.
    fn with_item(&mut self) -> Parsed<WithItem> {
        let start = self.token().span;
        let target = self.place()?;
        self.equals()?;
        let value = self.expr()?;
        Ok(WithItem { target, value, span: self.span_from(start) })
    }

    fn steer(&mut self) -> Parsed<VerdictKind> {
        self.keyword("TO")?;
        Ok(VerdictKind::Steer { edge: self.ident("an edge")? })
    }
}

/// One condition, one statement without a block, no `ELSE`: short enough for one line.
fn is_short_if(arms: &[IfArm], otherwise: Option<&[Stmt]>) -> bool {
    let [arm] = arms else { return false };
    let [stmt] = arm.body.as_slice() else { return false };
    let has_block = match &stmt.kind {
        StmtKind::If { .. } | StmtKind::Scan(_) => true,
        StmtKind::Update(update) => update.otherwise.is_some(),
        _ => false,
    };
    otherwise.is_none() && !has_block
}
