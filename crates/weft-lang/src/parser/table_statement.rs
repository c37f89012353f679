//! Parses statements on the tables of a running network.

use super::cursor::{Parsed, Parser};
use crate::ast::{Assign, Expr, Ident, InsertRows, Path, SelectItem};
use crate::diagnostic::{Diagnostic, code};
use crate::lexer::{TokenKind, lex};
use crate::source::{FileId, SourceMap, Span};

const SELECT_FORM: &str = "SELECT * FROM edge.firewall.rules WHERE allow ORDER BY rank LIMIT 10;";
const UPDATE_FORM: &str = "UPDATE edge.firewall.rules SET allow = FALSE WHERE rank < 100;";
const DELETE_FORM: &str = "DELETE FROM edge.firewall.rules WHERE rank = 10;";
const INSERT_FORM: &str =
    "INSERT INTO edge.firewall.rules (rank, dst, allow) VALUES (10, '10.0.0.0/8', TRUE);";

/// A statement on a table.
#[derive(Clone, Debug)]
pub(crate) struct TableStatement {
    pub(crate) kind: TableStatementKind,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum TableStatementKind {
    Select {
        items: Vec<SelectItem>,
        table: Path,
        filter: Option<Expr>,
        /// The GROUP BY columns.
        group: Vec<Ident>,
        /// The column to sort by, and whether in descending order.
        order: Option<(Ident, bool)>,
        limit: Option<Expr>,
    },
    Insert {
        rows: InsertRows,
        or_replace: bool,
    },
    Update {
        table: Path,
        set: Vec<Assign>,
        filter: Option<Expr>,
    },
    Delete {
        table: Path,
        filter: Option<Expr>,
    },
}

/// Parses all statements of a text. Faulty ones are reported and omitted.
pub(crate) fn parse_table_statements(
    sources: &SourceMap,
    file: FileId,
) -> (Vec<TableStatement>, Vec<Diagnostic>) {
    let text = sources.file(file).text();
    let mut parser = Parser::new(text, lex(file, text));
    let mut parsed = Vec::new();
    while !parser.at_eof() {
        let before = parser.index();
        let start = parser.token().span;
        match parser.table_statement() {
            Ok(kind) => parsed.push(TableStatement { kind, span: parser.span_from(start) }),
            Err(_) => parser.skip_table_statement(before),
        }
    }
    let (_, _, mut diagnostics) = parser.into_parts();
    diagnostics.sort_by_key(|diagnostic| diagnostic.span().map_or(0, |span| span.start));
    (parsed, diagnostics)
}

impl Parser<'_> {
    /// Parses a statement on the tables of a running network.
    fn table_statement(&mut self) -> Parsed<TableStatementKind> {
        self.form = "";
        if self.eat_keyword("SELECT").is_some() {
            self.form = SELECT_FORM;
            return self.select_rows();
        }
        if self.eat_keyword("INSERT").is_some() {
            self.form = INSERT_FORM;
            let or_replace = self.eat_keywords("OR", "REPLACE").is_some();
            let rows = self.inserted()?;
            self.end_of_table_statement()?;
            return Ok(TableStatementKind::Insert { rows, or_replace });
        }
        if self.eat_keyword("UPDATE").is_some() {
            self.form = UPDATE_FORM;
            let table = self.path("a table, such as `chain.instance.table`")?;
            self.clause("SET", "an `UPDATE` needs the columns to change")?;
            let set = self.comma_list(|p| p.assign("a column"))?;
            let filter = self.optional_where()?;
            self.end_of_table_statement()?;
            return Ok(TableStatementKind::Update { table, set, filter });
        }
        if self.eat_keyword("DELETE").is_some() {
            self.form = DELETE_FORM;
            self.keyword("FROM")?;
            let table = self.path("a table, such as `chain.instance.table`")?;
            let filter = self.optional_where()?;
            self.end_of_table_statement()?;
            return Ok(TableStatementKind::Delete { table, filter });
        }
        // The four words that it tried.
        Err(self.expected(""))
    }

    /// Parses a SELECT on a table, after its keyword.
    fn select_rows(&mut self) -> Parsed<TableStatementKind> {
        let items = self.comma_list(Self::select_item)?;
        self.keyword("FROM")?;
        let table = self.path("a table, such as `chain.instance.table`")?;
        let filter = self.optional_where()?;
        let group = self.after("GROUP", |p| {
            p.keyword("BY")?;
            p.comma_list(|p| p.ident("a column"))
        })?;
        let group = group.unwrap_or_default();
        let order = self.after("ORDER", |p| {
            p.keyword("BY")?;
            let column = p.ident("a column")?;
            p.no_call_to_order_by(&column)?;
            Ok((column, p.descending()))
        })?;
        let limit = self.after("LIMIT", Self::expr)?;
        self.end_of_table_statement()?;
        Ok(TableStatementKind::Select { items, table, filter, group, order, limit })
    }

    /// Rejects `ORDER BY sum(c)`: rows are sorted by a named column.
    fn no_call_to_order_by(&mut self, name: &Ident) -> Parsed<()> {
        if !self.at(TokenKind::LeftParen) {
            return Ok(());
        }
        let name = &name.name;
        let diagnostic = Diagnostic::error(code::UNEXPECTED, "rows are sorted by a column, not by a call")
            .at(self.token().span, "a call")
            .with_help(format!("give it a name: `SELECT {name}(c) AS n ... ORDER BY n`"));
        Err(self.fail(diagnostic))
    }

    /// The last statement needs no `;`.
    fn end_of_table_statement(&mut self) -> Parsed<()> {
        if self.at_eof() { Ok(()) } else { self.semicolon() }
    }

    /// Skips the rest of a statement with an error.
    fn skip_table_statement(&mut self, first: usize) {
        if self.index() == first {
            self.bump();
        }
        self.skip_until(|p| p.at(TokenKind::Semicolon));
        self.eat(TokenKind::Semicolon);
    }
}
