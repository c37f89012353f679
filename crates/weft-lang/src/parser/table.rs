//! Parses tables: shared tables at top level, and tables of elements.

use crate::ast::{
    CheckClause, Column, Evict, EvictClause, Expr, Filler, Ident, Item, KeyClause, Merge, MergeClause, Row,
    Since, Table, TableOption, TableOptionKind,
};
use crate::diagnostic::{Diagnostic, code};
use crate::lexer::TokenKind;
use crate::source::Span;

use super::Create;
use super::cursor::{Parsed, Parser};

pub(super) const TABLE_ITEM_FORM: &str = "CREATE TABLE t (k TEXT(64) PRIMARY KEY, v I64) MAX 1000 ROWS;";

enum ColumnOrKey {
    Column(Column),
    Key(KeyClause),
    Check(CheckClause),
}

impl Parser<'_> {
    /// Parses a shared table, after `CREATE TABLE`.
    pub(super) fn table_item(&mut self, create: Create) -> Parsed<Item> {
        let mut table = self.table(create.start)?;
        table.or_replace = create.or_replace;
        Ok(Item::Table(table))
    }

    /// Parses a table from its name to the `;`.
    pub(super) fn table(&mut self, start: Span) -> Parsed<Table> {
        let name = self.ident("a name for the table")?;
        let mut columns = Vec::new();
        let mut key: Option<KeyClause> = None;
        let mut checks = Vec::new();
        for part in self.paren_list(Self::column_or_key)? {
            match part {
                ColumnOrKey::Column(column) => columns.push(column),
                ColumnOrKey::Key(clause) if key.is_none() => key = Some(clause),
                ColumnOrKey::Key(clause) => return Err(self.repeated("PRIMARY KEY", clause.span)),
                ColumnOrKey::Check(clause) => checks.push(clause),
            }
        }
        let options = self.table_options()?;
        self.semicolon()?;
        Ok(Table { or_replace: false, name, columns, key, checks, options, span: self.span_from(start) })
    }

    /// Parses `CHECK (e)`.
    pub(super) fn check_clause(&mut self) -> Parsed<Option<CheckClause>> {
        let start = self.token().span;
        if !self.peek_keyword(0, "CHECK") || self.peek(1) != TokenKind::LeftParen {
            return Ok(None);
        }
        self.keyword("CHECK")?;
        self.expect(TokenKind::LeftParen, "`(`")?;
        let condition = self.expr()?;
        self.expect(TokenKind::RightParen, "`)`")?;
        Ok(Some(CheckClause { condition, span: self.span_from(start) }))
    }

    /// Parses a column, or the PRIMARY KEY of several columns.
    fn column_or_key(&mut self) -> Parsed<ColumnOrKey> {
        let start = self.token().span;
        if self.peek_keyword(0, "PRIMARY") && self.peek_keyword(1, "KEY") {
            self.keywords(&["PRIMARY", "KEY"])?;
            let columns = self.paren_list(|p| p.ident("a column"))?;
            return Ok(ColumnOrKey::Key(KeyClause { columns, span: self.span_from(start) }));
        }
        if let Some(check) = self.check_clause()? {
            return Ok(ColumnOrKey::Check(check));
        }
        let name = self.ident("a column")?;
        let ty = self.type_expr()?;
        let (mut primary_key, mut default, mut merge): (_, Option<Expr>, Option<MergeClause>) =
            (None, None, None);
        loop {
            let clause = self.token().span;
            if let Some(span) = self.eat_keywords("PRIMARY", "KEY") {
                if primary_key.replace(span).is_some() {
                    return Err(self.repeated("PRIMARY KEY", clause));
                }
            } else if self.eat(TokenKind::Eq) {
                if default.replace(self.expr()?).is_some() {
                    return Err(self.repeated("=", clause));
                }
            } else if let Some(parsed) = self.optional_merge()? {
                if merge.replace(parsed).is_some() {
                    return Err(self.repeated("MERGE", clause));
                }
            } else {
                break;
            }
        }
        let span = self.span_from(start);
        Ok(ColumnOrKey::Column(Column { name, ty, primary_key, default, merge, span }))
    }

    /// Parses MERGE, if present.
    pub(super) fn optional_merge(&mut self) -> Parsed<Option<MergeClause>> {
        let Some(start) = self.eat_keyword("MERGE") else { return Ok(None) };
        let merge = self.choice(&[("SUM", Merge::Sum), ("MAX", Merge::Max), ("MIN", Merge::Min)])?;
        Ok(Some(MergeClause { merge, span: self.span_from(start) }))
    }

    /// Parses the options of a table, in any order.
    fn table_options(&mut self) -> Parsed<Vec<TableOption>> {
        let mut options = Vec::new();
        loop {
            let (start, first) = (self.token().span, self.index());
            let kind = if self.eat_keyword("TTL").is_some() {
                let interval = self.expr()?;
                let since = if self.eat_keywords("ON", "ACCESS").is_some() {
                    Since::Access
                } else if self.eat_keywords("ON", "INSERT").is_some() {
                    Since::Insert
                } else if self.peek_keyword(0, "ON") {
                    return Err(self.no_such_age());
                } else {
                    Since::Write
                };
                TableOptionKind::Ttl { interval, since }
            } else if self.eat_keyword("MAX").is_some() {
                let rows = self.expr()?;
                self.keyword("ROWS")?;
                TableOptionKind::Max { rows, evict: self.optional_evict()? }
            } else if self.eat_keyword("FILLED").is_some() {
                self.keyword("BY")?;
                let fillers = [
                    ("CONTROLLER", Filler::Controller),
                    ("CLUSTER", Filler::Cluster),
                    ("PORTS", Filler::Ports),
                    ("STAGE", Filler::Stage),
                ];
                let filler = self.choice(&fillers)?;
                let stage = match filler {
                    Filler::Stage => Some(self.ident("the element whose table it is")?),
                    _ => None,
                };
                TableOptionKind::Filled(filler, stage)
            } else if self.eat_keyword("PER").is_some() {
                self.keyword("WORKER")?;
                TableOptionKind::PerWorker
            } else if self.peek_keyword(0, "EVICT") && !options.is_empty() {
                return Err(self.misplaced_evict());
            } else {
                return Ok(options);
            };
            if options.is_empty() {
                self.layout.strong(first, 1);
            } else {
                self.layout.weak(first);
            }
            options.push(TableOption { kind, span: self.span_from(start) });
        }
    }

    /// Reports a TTL that counts neither accesses nor inserts.
    fn no_such_age(&mut self) -> super::cursor::Failed {
        let diagnostic = Diagnostic::error(code::UNEXPECTED, "an age counts `ON ACCESS` or `ON INSERT`")
            .at(self.token().span, "neither of the two")
            .with_help("without `ON`, the age counts from the last write");
        self.fail(diagnostic)
    }

    /// Reports an EVICT that does not follow MAX.
    fn misplaced_evict(&mut self) -> super::cursor::Failed {
        let diagnostic = Diagnostic::error(code::UNEXPECTED, "`EVICT` must follow `MAX n ROWS`")
            .at(self.token().span, "another clause comes before it")
            .with_help("write it directly after `ROWS`: `MAX 100000 ROWS EVICT OLDEST TTL '60 s'`");
        self.fail(diagnostic)
    }

    /// Parses EVICT, if present.
    fn optional_evict(&mut self) -> Parsed<Option<EvictClause>> {
        let Some(start) = self.eat_keyword("EVICT") else { return Ok(None) };
        let evict =
            self.choice(&[("OLDEST", Evict::Oldest), ("LRU", Evict::Lru), ("REJECT", Evict::Reject)])?;
        Ok(Some(EvictClause { evict, span: self.span_from(start) }))
    }

    /// `(a, b)` after the name of the table in an INSERT; empty if absent.
    pub(super) fn optional_column_names(&mut self) -> Parsed<Vec<Ident>> {
        // `INSERT INTO t ('a', 1)` has values here: the missing part is `VALUES`.
        let has_names = self.at(TokenKind::LeftParen)
            && !matches!(self.peek(1), TokenKind::Str | TokenKind::Int | TokenKind::Float);
        if has_names { self.paren_list(|p| p.ident("a column")) } else { Ok(Vec::new()) }
    }

    /// `(e, e), (e, e)` after `VALUES`.
    pub(super) fn rows(&mut self) -> Parsed<Vec<Row>> {
        self.comma_list(|p| {
            let start = p.token().span;
            let values = p.paren_list(Self::expr)?;
            Ok(Row { values, span: p.span_from(start) })
        })
    }

    /// Reports a clause that is written twice.
    pub(super) fn repeated(&mut self, clause: &str, span: Span) -> super::cursor::Failed {
        let diagnostic = Diagnostic::error(code::REPEATED_CLAUSE, format!("`{clause}` is written twice"))
            .at(span, "again here")
            .with_help("keep one of them");
        self.fail(diagnostic)
    }
}
