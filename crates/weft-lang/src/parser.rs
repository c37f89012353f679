//! Parser: turns tokens into a syntax tree.
//!
//! Recursive descent, with operator precedence for expressions. Each kind of item, declaration, handler, statement and
//! chain option is one row of a table: its keyword, its parse function, and its syntax, which is the help of every
//! error inside it. A new kind is a new module and a new row.
//!
//! After an error, parsing continues at the next `;`, `END` or statement, so one run reports several errors. A
//! misspelled keyword (`SELCT`) is reported and parsed as the intended one.

use crate::ast::{Ast, DropItem, Import, InsertRows, Item, Kind};
use crate::diagnostic::{Diagnostic, code};
use crate::lexer::{Token, TokenKind, lex};
use crate::nearest::nearest_keyword;
use crate::source::{FileId, SourceMap, Span};

mod chain;
mod cursor;
mod edge;
mod element;
mod expr;
mod filter;
mod function;
pub(crate) mod layout;
mod queue;
mod stmt;
mod table;
pub(crate) mod table_statement;
mod ty;
mod wire;

pub use cursor::Expected;
use cursor::{Parsed, Parser};
use layout::Layout;

/// Parses one file of `sources`. Never fails: faulty parts are reported and omitted from the tree.
///
/// ```
/// use weft_lang::{ast::Item, parser::parse, source::SourceMap};
///
/// let mut sources = SourceMap::new();
/// let file = sources.add("net.weft", "CREATE LISTENER front ON tcp '127.0.0.1:80'; IMPORT;").unwrap();
/// let (ast, diagnostics) = parse(&sources, file);
/// assert!(matches!(&ast.items[..], [Item::Listener(_)]));
/// assert_eq!(diagnostics[0].message, "expected the path of a file, in quotes, found `;`");
/// ```
///
/// # Panics
/// If `file` is not of `sources`.
pub fn parse(sources: &SourceMap, file: FileId) -> (Ast, Vec<Diagnostic>) {
    let parse = parse_with_layout(sources, file);
    (parse.ast, parse.diagnostics)
}

/// The tokens expected after a partial text: the parser reports what it expected at the end. If the text ends in the
/// middle of a word, remove that word first.
///
/// ```
/// let expected = weft_lang::parser::expected_after("CREATE LISTENER front ON tcp '127.0.0.1:80'");
/// assert_eq!(expected.keywords, ["WITH"]);
/// ```
pub fn expected_after(text: &str) -> Expected {
    let mut parser = Parser::new(text, lex(FileId(0), text));
    parser.items();
    parser.into_expected()
}

/// Each construct that a keyword begins, with an example of it.
pub fn forms() -> impl Iterator<Item = (&'static str, &'static str)> {
    let kinds = KINDS.iter().map(|(row, _)| (row.keyword, row.form));
    forms_of(ITEMS)
        .chain(kinds)
        .chain(element::forms())
        .chain(stmt::forms())
        .chain(chain::forms())
        .chain(filter::forms())
        .chain(queue::forms())
}

/// The names of the types.
pub fn type_names() -> impl Iterator<Item = &'static str> {
    ty::words()
}

/// The keywords of the parser's tables; clauses use additional ones.
pub fn words() -> impl Iterator<Item = &'static str> {
    let elsewhere = UNSUPPORTED_KINDS.iter().chain(RUNNING_ONLY_STATEMENTS).copied();
    let tables = element::words().chain(expr::words()).chain(ty::words()).chain(queue::words());
    forms().map(|(keyword, _)| keyword).chain(elsewhere).chain(tables).chain(cursor::RESERVED.iter().copied())
}

/// A parse result with the layout for the formatter.
pub(crate) struct Parse {
    pub(crate) ast: Ast,
    pub(crate) tokens: Vec<Token>,
    pub(crate) layout: Layout,
    pub(crate) diagnostics: Vec<Diagnostic>,
}

/// Parses a file, and keeps its tokens and layout for the formatter.
pub(crate) fn parse_with_layout(sources: &SourceMap, file: FileId) -> Parse {
    let text = sources.file(file).text();
    let mut parser = Parser::new(text, lex(file, text));
    let (items, misses_declarations) = parser.items();
    let ast = Ast { file, items, misses_declarations };
    let (tokens, layout, mut diagnostics) = parser.into_parts();
    diagnostics.sort_by_key(|diagnostic| diagnostic.span().map_or(0, |span| span.start));
    Parse { ast, tokens, layout, diagnostics }
}

/// How a construct is recognised, parsed and explained.
struct Row<F> {
    keyword: &'static str,
    read: F,
    form: &'static str,
}

/// The tokens before the name in `CREATE OR REPLACE kind name`.
#[derive(Clone, Copy)]
struct Create {
    start: Span,
    or_replace: bool,
}

/// The row of a keyword; None if there is none.
fn find<F>(rows: &'static [Row<F>], word: &str) -> Option<&'static Row<F>> {
    rows.iter().find(|row| row.keyword.eq_ignore_ascii_case(word))
}

/// The keywords of rows.
fn keywords<F>(rows: &'static [Row<F>]) -> impl Iterator<Item = &'static str> + Clone {
    rows.iter().map(|row| row.keyword)
}

/// The keywords of rows, each with an example.
fn forms_of<F>(rows: &'static [Row<F>]) -> impl Iterator<Item = (&'static str, &'static str)> {
    rows.iter().map(|row| (row.keyword, row.form))
}

/// Lists keywords for a message.
fn list_of(keywords: impl Iterator<Item = &'static str>) -> Vec<String> {
    keywords.map(|keyword| format!("`{keyword}`")).collect()
}

type ReadItem = fn(&mut Parser<'_>, Span) -> Parsed<Item>;
type ReadKind = fn(&mut Parser<'_>, Create) -> Parsed<Item>;

const ITEMS: &[Row<ReadItem>] = &[
    Row {
        keyword: "CREATE",
        read: |p, start| p.create(start),
        form: "CREATE ELEMENT acl ON rpc (user TEXT) AS ... END;",
    },
    Row { keyword: "IMPORT", read: |p, start| p.import(start), form: "IMPORT 'path.weft';" },
    Row { keyword: "DROP", read: |p, start| p.drop_item(start), form: "DROP ELEMENT acl;" },
    Row {
        keyword: "INSERT",
        read: |p, start| p.insert_rows(start),
        form: "INSERT INTO shop.acl.ac_tab VALUES ('alice', 'W');",
    },
];

/// The kinds of this version. `DROP` identifies them by [`Kind`].
const KINDS: &[(Row<ReadKind>, Kind)] = &[
    (Row { keyword: "TYPE", read: |p, create| p.type_item(create), form: ty::TYPE_FORM }, Kind::Type),
    (
        Row { keyword: "TABLE", read: |p, create| p.table_item(create), form: table::TABLE_ITEM_FORM },
        Kind::Table,
    ),
    (
        Row { keyword: "ELEMENT", read: |p, create| p.element(create), form: element::ELEMENT_FORM },
        Kind::Element,
    ),
    (Row { keyword: "FILTER", read: |p, create| p.filter(create), form: filter::FILTER_FORM }, Kind::Filter),
    (Row { keyword: "CHAIN", read: |p, create| p.chain(create), form: chain::CHAIN_FORM }, Kind::Chain),
    (
        Row { keyword: "LISTENER", read: |p, create| p.listener(create), form: edge::LISTENER_FORM },
        Kind::Listener,
    ),
    (
        Row { keyword: "CLUSTER", read: |p, create| p.cluster(create), form: edge::CLUSTER_FORM },
        Kind::Cluster,
    ),
    (Row { keyword: "ROUTE", read: |p, create| p.route(create), form: edge::ROUTE_FORM }, Kind::Route),
    (
        Row { keyword: "FUNCTION", read: |p, create| p.function(create), form: function::FUNCTION_FORM },
        Kind::Function,
    ),
    (
        Row { keyword: "PROTOCOL", read: |p, create| p.protocol(create), form: wire::PROTOCOL_FORM },
        Kind::Protocol,
    ),
    (Row { keyword: "PORT", read: |p, create| p.port(create), form: edge::PORT_FORM }, Kind::Port),
    (Row { keyword: "GROUP", read: |p, create| p.group(create), form: edge::GROUP_FORM }, Kind::Group),
    (Row { keyword: "QUEUE", read: |p, create| p.queue(create), form: queue::QUEUE_FORM }, Kind::Queue),
    (Row { keyword: "LINK", read: |p, create| p.link(create), form: queue::LINK_FORM }, Kind::Link),
];

/// Kinds that elements never refer to, as first words of an item.
const UNREFERENCED_KINDS: &[&str] = &["CHAIN", "ROUTE", "LISTENER", "QUEUE", "LINK"];

/// Kinds of the design that this version does not support.
const UNSUPPORTED_KINDS: &[&str] = &["STACK", "POLICY"];

/// Statements of the design that work on a running network.
const RUNNING_ONLY_STATEMENTS: &[&str] = &["ALTER", "SELECT", "UPDATE", "DELETE"];

impl Parser<'_> {
    /// The items, and whether an omitted item may declare a name that elements use.
    fn items(&mut self) -> (Vec<Item>, bool) {
        let (mut items, mut misses) = (Vec::new(), false);
        while !self.at_eof() {
            let before = self.index();
            self.layout.line(before);
            let is_known = self.is_item_word(0);
            match self.item() {
                Ok(item) => items.push(item),
                Err(_) if is_known => {
                    self.skip_item(before);
                    misses |= self.may_be_named(before);
                }
                Err(_) => {
                    self.skip_unknown_items();
                    misses = true;
                }
            }
        }
        self.offer(keywords(ITEMS));
        (items, misses)
    }

    /// Whether the skipped tokens from here on may declare a name that elements use.
    fn may_be_named(&self, first: usize) -> bool {
        let is = |word: &str, keyword: &str| word.eq_ignore_ascii_case(keyword);
        let mut words = self.words_since(first);
        let unnamed = match words.next() {
            Some(word) if is(word, "INSERT") || is(word, "DROP") => true,
            Some(word) if is(word, "CREATE") => {
                let kind = words.find(|word| !is(word, "OR") && !is(word, "REPLACE"));
                kind.is_some_and(|kind| UNREFERENCED_KINDS.iter().any(|unnamed| is(kind, unnamed)))
            }
            _ => false,
        };
        !unnamed || words.any(|word| is(word, "IMPORT"))
    }

    /// Parses one item of a file.
    fn item(&mut self) -> Parsed<Item> {
        self.form = "";
        let start = self.token().span;
        let Some(word) = self.word() else {
            return Err(self.expected("`CREATE`, `IMPORT`, `DROP` or `INSERT`"));
        };
        if let Some(row) = ITEMS.iter().find(|row| row.keyword.eq_ignore_ascii_case(word)) {
            self.bump_keyword();
            self.form = row.form;
            return (row.read)(self, start);
        }
        if let Some(keyword) =
            RUNNING_ONLY_STATEMENTS.iter().find(|keyword| keyword.eq_ignore_ascii_case(word))
        {
            let message = format!("`{keyword}` works on a running network, not in a file");
            return Err(self.fail_at(
                start,
                code::KIND_NOT_IN_VERSION,
                &message,
                "a file can `CREATE`, `DROP`, `IMPORT`, and `INSERT` rows; use `weft query` for running nodes",
            ));
        }
        let Some(meant) = nearest_keyword(word, keywords(ITEMS)) else {
            return Err(self.expected("`CREATE`, `IMPORT`, `DROP` or `INSERT`"));
        };
        self.misspelled(word, meant, "a file");
        let row = &ITEMS[ITEMS.iter().position(|row| row.keyword == meant).unwrap_or(0)];
        self.bump_keyword();
        self.form = row.form;
        (row.read)(self, start)
    }

    /// Consumes the keyword of a row and sets its form; returns the row. Reports a misspelled keyword in `place`, and
    /// continues with the intended one. `others` completes the message about another word.
    fn begin<F>(&mut self, rows: &'static [Row<F>], place: &str, others: &str) -> Parsed<&'static Row<F>> {
        self.form = "";
        let word = self.word().unwrap_or_default();
        let row = match find(rows, word) {
            Some(row) => row,
            None => {
                let meant = nearest_keyword(word, keywords(rows));
                let Some(row) = meant.and_then(|meant| find(rows, meant)) else {
                    let known = list_of(keywords(rows)).join(", ");
                    return Err(self.expected(&format!("{known}, {others}")));
                };
                self.misspelled(word, row.keyword, place);
                row
            }
        };
        self.bump_keyword();
        self.form = row.form;
        Ok(row)
    }

    /// Parses the options or policies of an item, up to its end. Skips those with errors.
    fn options<T, F>(&mut self, rows: &'static [Row<F>], read: fn(&mut Self) -> Parsed<T>) -> Vec<T> {
        let mut options = Vec::new();
        while !self.at_eof() && !self.peek_keyword(0, "END") && !self.peek_keyword(0, "CREATE") {
            let before = self.index();
            self.layout.line(before);
            match read(self) {
                Ok(option) => options.push(option),
                Err(_) => {
                    self.skip_option();
                    if self.index() == before {
                        self.bump();
                    }
                }
            }
        }
        self.offer(keywords(rows).chain(["END"]));
        options
    }

    /// Reports a misspelled keyword; the caller continues with the intended one.
    fn misspelled(&mut self, word: &str, meant: &str, place: &str) {
        self.misspelled_as(word, meant, place, &format!("did you mean `{meant}`?"));
    }

    /// Reports a misspelled word as [`Self::misspelled`], with a help.
    fn misspelled_as(&mut self, word: &str, meant: &str, place: &str, help: &str) {
        let span = self.token().span;
        let diagnostic =
            Diagnostic::error(code::UNKNOWN_STATEMENT, format!("unexpected `{word}` in {place}"))
                .at(span, "")
                .with_help(help)
                .with_fix(span, meant);
        self.fail(diagnostic);
    }

    /// Parses an item after `CREATE`. `start` is the span of that word.
    fn create(&mut self, start: Span) -> Parsed<Item> {
        let or_replace = self.eat_keywords("OR", "REPLACE").is_some();
        let create = Create { start, or_replace };
        self.offer(KINDS.iter().map(|(row, _)| row.keyword));
        let word = self.word().unwrap_or_default();
        if let Some((row, _)) = KINDS.iter().find(|(row, _)| row.keyword.eq_ignore_ascii_case(word)) {
            self.bump_keyword();
            self.form = row.form;
            return (row.read)(self, create);
        }
        if let Some(kind) = UNSUPPORTED_KINDS.iter().find(|kind| kind.eq_ignore_ascii_case(word)) {
            return Err(self.kind_elsewhere(kind));
        }
        let message = match word {
            "" => return Err(self.expected("the kind of object to create, such as `ELEMENT` or `CHAIN`")),
            _ => format!("unknown kind `{word}`"),
        };
        let span = self.token().span;
        let diagnostic = Diagnostic::error(code::UNKNOWN_KIND, message).at(span, "");
        let Some(meant) = nearest_keyword(word, KINDS.iter().map(|(row, _)| row.keyword)) else {
            let kinds: Vec<&str> = KINDS.iter().map(|(row, _)| row.keyword).collect();
            return Err(self.fail(diagnostic.with_help(format!("the kinds are {}", kinds.join(", ")))));
        };
        self.fail(diagnostic.with_help(format!("did you mean `{meant}`?")).with_fix(span, meant));
        let row = &KINDS[KINDS.iter().position(|(row, _)| row.keyword == meant).unwrap_or(0)].0;
        self.bump_keyword();
        self.form = row.form;
        (row.read)(self, create)
    }

    /// Reports a kind of object that this version does not support.
    fn kind_elsewhere(&mut self, kind: &str) -> cursor::Failed {
        let span = self.token().span;
        let kinds: Vec<&str> = KINDS.iter().map(|(row, _)| row.keyword).collect();
        let message = format!("`{kind}` is not supported in this version");
        let diagnostic = Diagnostic::error(code::KIND_NOT_IN_VERSION, message)
            .at(span, "planned, but not implemented")
            .with_help(format!("remove it; this version supports {}", kinds.join(", ")));
        self.fail(diagnostic)
    }

    /// True if the word `ahead` begins an item, in this version or another.
    fn is_item_word(&self, ahead: usize) -> bool {
        let keywords = keywords(ITEMS).chain(RUNNING_ONLY_STATEMENTS.iter().copied());
        keywords.into_iter().any(|keyword| self.peek_keyword(ahead, keyword))
    }

    /// Skips to a line that begins an item: a run of unknown tokens is one error.
    fn skip_unknown_items(&mut self) {
        self.bump();
        self.skip_until(|p| {
            let begins =
                ITEMS.iter().any(|row| p.peek_keyword(0, row.keyword)) && p.peek(1) != TokenKind::Semicolon;
            p.peek_keyword(0, "CREATE") || (p.is_first_on_line() && begins)
        });
    }

    /// Skips the rest of an item with an error: to its `END;` if it has a body, otherwise to its `;`.
    fn skip_item(&mut self, first: usize) {
        if self.index() == first {
            self.bump();
        }
        let mut in_body = false;
        let (mut n_cases, mut n_parens) = (0_usize, 0_usize);
        while !self.at_eof() && !self.peek_keyword(0, "CREATE") {
            if self.at(TokenKind::LeftParen) {
                n_parens += 1;
            } else if self.at(TokenKind::RightParen) {
                n_parens = n_parens.saturating_sub(1);
            } else if self.peek_keyword(0, "AS") && !self.peek_keyword(1, "NATIVE") {
                // `CAST(e AS T)` opens no body.
                in_body |= n_parens == 0;
            } else if self.peek_keyword(0, "CASE") {
                n_cases += 1;
            } else if self.peek_keyword(0, "END") {
                let ends_case = n_cases > 0;
                n_cases = n_cases.saturating_sub(1);
                if !ends_case && self.peek(1) == TokenKind::Semicolon {
                    self.bump();
                    self.bump();
                    return;
                }
            } else if self.at(TokenKind::Semicolon) {
                n_cases = 0;
                if !in_body {
                    self.bump();
                    return;
                }
            }
            self.bump();
        }
    }

    /// Parses the rest of `IMPORT 'path';`.
    fn import(&mut self, start: Span) -> Parsed<Item> {
        let path = self.string("the path of a file, in quotes")?;
        self.semicolon()?;
        Ok(Item::Import(Import { path, span: self.span_from(start) }))
    }

    /// Parses `DROP kind name`.
    fn drop_item(&mut self, start: Span) -> Parsed<Item> {
        self.offer(KINDS.iter().map(|(row, _)| row.keyword));
        let word = self.word().unwrap_or_default();
        let Some((_, kind)) = KINDS.iter().find(|(row, _)| row.keyword.eq_ignore_ascii_case(word)) else {
            if let Some(kind) = UNSUPPORTED_KINDS.iter().find(|kind| kind.eq_ignore_ascii_case(word)) {
                return Err(self.kind_elsewhere(kind));
            }
            let kinds: Vec<String> = KINDS.iter().map(|(row, _)| format!("`{}`", row.keyword)).collect();
            return Err(self.expected(&cursor::one_of(&kinds)));
        };
        self.bump_keyword();
        let name = self.ident("the name of the object to drop")?;
        self.semicolon()?;
        Ok(Item::Drop(DropItem { kind: *kind, name, span: self.span_from(start) }))
    }

    /// Parses the rest of an INSERT of rows at top level.
    fn insert_rows(&mut self, start: Span) -> Parsed<Item> {
        let rows = self.inserted()?;
        self.semicolon()?;
        Ok(Item::Insert(InsertRows { span: self.span_from(start), ..rows }))
    }

    /// `INTO t VALUES (...)`, up to its end.
    fn inserted(&mut self) -> Parsed<InsertRows> {
        let start = self.token().span;
        self.keyword("INTO")?;
        let table = self.path("a table, such as `chain.instance.table`")?;
        let columns = self.optional_column_names()?;
        self.clause("VALUES", "an `INSERT` needs rows")?;
        let rows = self.rows()?;
        Ok(InsertRows { table, columns, rows, span: self.span_from(start) })
    }
}

#[cfg(test)]
pub(crate) mod tests;
