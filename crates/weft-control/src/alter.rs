//! `ALTER LINK wan USE QUEUE codel (target = '10 ms') KEEP PACKETS`: gives a link of the running program another queue.
//!
//! The statement edits the program itself, and applies the result: from then on the node shows the edited program.

use crate::check::Checked;
use crate::{library, missing_args};
use core::ops::Range;
use std::collections::BTreeSet;
use weft_api::Bundle;
use weft_lang::diagnostic::{Diagnostic, code};
use weft_lang::hir::Network;
use weft_lang::lexer::{TokenKind, lex};
use weft_lang::nearest;
use weft_lang::source::{FileId, SOURCE_BYTES_MAX, SourceMap, Span};

/// The form of the statement.
const FORM: &str = "ALTER LINK wan USE QUEUE codel (target = '10 ms') KEEP PACKETS";
/// The help for all other changes.
const APPLY: &str =
    "change the link in the program and `weft apply` it: packets that wait are kept then, too";
/// The name of a statement's text in diagnostics.
const QUERY: &str = "<query>";
/// The library's folder of queues.
const LIBRARY: &str = "library/queues/";

/// A statement that gives a link another queue.
#[derive(Debug)]
pub struct Alter {
    /// The link.
    pub link: String,
    /// The queue, in the form of a link's declaration.
    pub queue: String,
    /// The offset of the queue in the statement.
    at: usize,
    statement: Statement,
    /// The text of the query.
    text: String,
}

/// The parts of a statement.
#[derive(Debug, PartialEq, Eq)]
struct Parts<'t> {
    link: &'t str,
    queue: &'t str,
    /// The offset of the queue.
    at: usize,
}

/// The one statement of a text, without comments and its `;`, on one line.
#[derive(Debug, Default)]
struct Statement {
    text: String,
    /// The offset of each token: in this text, and in the original text.
    places: Vec<(usize, usize)>,
}

/// A program with another queue at a link.
pub struct AlteredProgram<'a> {
    alter: &'a Alter,
    /// The program.
    pub program: Bundle,
    /// The file of the link, and the range of the queue in it.
    file: String,
    queue: Range<usize>,
}

/// The kind of a query's text.
#[derive(Debug, PartialEq, Eq)]
pub enum QueryKind {
    /// It has no statement.
    Nothing,
    /// It contains an ALTER.
    Alter,
    /// It has other statements.
    Others,
}

impl QueryKind {
    /// Classifies the text of a query: it has an ALTER statement, other statements only, or none.
    pub fn of(text: &str) -> Self {
        // The caller refuses a longer text.
        if text.len() > SOURCE_BYTES_MAX {
            return Self::Others;
        }
        let (mut asks, mut is_first) = (Self::Nothing, true);
        for token in lex(FileId(0), text).tokens {
            let ends = matches!(token.kind, TokenKind::Semicolon | TokenKind::Eof);
            let word = &text[token.span.start as usize..token.span.end as usize];
            if is_first && word.eq_ignore_ascii_case("ALTER") {
                return Self::Alter;
            }
            if !ends {
                asks = Self::Others;
            }
            is_first = ends;
        }
        asks
    }
}

/// Why an ALTER was refused.
pub enum AlterError {
    /// The statement, in words.
    Text(String),
    /// The queue, and the text of the statement.
    Queue(Box<Diagnostic>, SourceMap),
}

impl Alter {
    /// Reads the only statement of a text.
    ///
    /// # Errors
    /// Another statement follows, or it is no ALTER LINK: then the correct form.
    pub fn of(text: &str) -> Result<Self, AlterError> {
        let statement = Statement::only(text).map_err(AlterError::Text)?;
        let Parts { link, queue, at } = parse(&statement.text).map_err(AlterError::Text)?;
        let (link, queue) = (link.to_owned(), queue.to_owned());
        Ok(Self { link, queue, at, statement, text: text.to_owned() })
    }

    /// The program with the other queue at the link. `network` and `sources` are those of the program.
    ///
    /// # Errors
    /// The program has no such link, or neither the program nor the library has the queue.
    pub fn apply_to(
        &self,
        mut program: Bundle,
        network: &Network,
        sources: &SourceMap,
    ) -> Result<AlteredProgram<'_>, AlterError> {
        self.must_have_queue(network, sources)?;
        let of_ports = network.links.iter().map(|link| (&link.name, &link.queue));
        let of_calls = network.call_links.iter().map(|link| (&link.name, &link.queue));
        let links: Vec<_> = of_ports.chain(of_calls).collect();
        let Some((_, queue)) = links.iter().find(|(name, _)| **name == self.link) else {
            let names: Vec<&str> = links.iter().map(|(name, _)| name.as_str()).collect();
            let has = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(AlterError::Text(format!("there is no link `{}`; the node has {has}", self.link)));
        };
        let span = queue.span;
        let file = sources.file(span.file).name().to_owned();
        let text = program.files.get_mut(&file);
        let text = text.ok_or_else(|| AlterError::Text(format!("the node does not have `{file}`")))?;
        text.replace_range(span.range(), &self.queue);
        let name = self.name();
        if !queues(network, sources).contains(name) {
            // Append it at the end, so that every line of the program keeps its number.
            let line_end = if text.ends_with('\n') { "" } else { "\n" };
            text.push_str(&format!("{line_end}IMPORT '{LIBRARY}{name}.weft';\n"));
        }
        let queue = span.start as usize..span.start as usize + self.queue.len();
        Ok(AlteredProgram { alter: self, program, file, queue })
    }

    /// Refuses a queue that neither the program nor the library has, and lists the existing queues.
    fn must_have_queue(&self, network: &Network, sources: &SourceMap) -> Result<(), AlterError> {
        let name = self.name();
        let own = queues(network, sources);
        let library: Vec<&str> = queues_of_library().collect();
        if own.contains(name) || library.contains(&name) {
            return Ok(());
        }
        let mut sources = SourceMap::new();
        let mut unknown = Diagnostic::error(code::UNKNOWN_OBJECT, format!("there is no queue `{name}`"));
        if let Ok(file) = sources.add(QUERY, &self.text) {
            let written = Span::new(FileId(0), self.at as u32, (self.at + self.written().len()) as u32);
            unknown = unknown.at(self.statement.span(file, written), "unknown");
        }
        if !own.is_empty() {
            let own: Vec<&str> = own.iter().map(String::as_str).collect();
            unknown = unknown.with_note(format!("there are: {}", own.join(", ")));
        }
        unknown = unknown.with_note(format!("the library has: {}", library.join(", ")));
        let known = own.iter().map(String::as_str).chain(library.iter().copied());
        if let Some(near) = nearest(name, known) {
            unknown = unknown.with_help(format!("write `{near}`"));
        }
        Err(AlterError::Queue(Box::new(unknown), sources))
    }

    /// The queue's name as written, with quotes.
    fn written(&self) -> &str {
        self.queue.split(|c: char| c == '(' || c.is_whitespace()).next().unwrap_or_default()
    }

    /// The queue's name.
    fn name(&self) -> &str {
        self.written().trim_matches('"')
    }
}

impl AlteredProgram<'_> {
    /// Moves diagnostics of the queue to the statement: they would otherwise point at a line that is not in the
    /// author's program.
    pub fn point_at_statement(&self, checked: &mut Checked) {
        let Some((of_link, _)) = checked.sources.files().find(|(_, file)| file.name() == self.file) else {
            return;
        };
        let Alter { at, statement, text, .. } = self.alter;
        let Ok(query) = checked.sources.add(QUERY, text) else { return };
        let place = |span: &mut Span| {
            let range = span.range();
            if span.file == of_link && self.queue.start <= range.start && range.end <= self.queue.end {
                let moved = |place: usize| (place - self.queue.start + at) as u32;
                *span = statement.span(query, Span::new(query, moved(range.start), moved(range.end)));
            }
        };
        for diagnostic in &mut checked.diagnostics {
            diagnostic.labels.iter_mut().for_each(|label| place(&mut label.span));
            diagnostic.fix.iter_mut().for_each(|fix| place(&mut fix.span));
        }
    }
}

/// The names of a program's queues.
fn queues(network: &Network, sources: &SourceMap) -> BTreeSet<String> {
    let missing = missing_args::queues(sources).into_iter().map(|queue| queue.name);
    network.queues.iter().map(|queue| queue.name.clone()).chain(missing).collect()
}

fn queues_of_library() -> impl Iterator<Item = &'static str> {
    library::paths().filter_map(|path| path.strip_prefix(LIBRARY)?.strip_suffix(".weft"))
}

impl Statement {
    /// Reads the text's only statement, without comments. Fails if there is another one behind it.
    fn only(text: &str) -> Result<Self, String> {
        let (mut statement, mut end, mut is_over) = (Self::default(), 0, false);
        for token in lex(FileId(0), text).tokens {
            let (from, to) = (token.span.start as usize, token.span.end as usize);
            match token.kind {
                TokenKind::Eof => {}
                TokenKind::Semicolon => is_over |= !statement.text.is_empty(),
                _ if is_over => {
                    return Err(
                        "an ALTER stands alone: give the other statements to another `weft query`".to_owned()
                    );
                }
                _ => {
                    if from > end && !statement.text.is_empty() {
                        statement.text.push(' ');
                    }
                    statement.places.push((statement.text.len(), from));
                    statement.text.push_str(&text[from..to]);
                }
            }
            end = to;
        }
        Ok(statement)
    }

    /// Maps a span of this text to the original text.
    fn span(&self, file: FileId, span: Span) -> Span {
        let place = |at: usize| {
            let nth = self.places.partition_point(|(here, _)| *here <= at).saturating_sub(1);
            let (here, there) = self.places.get(nth).copied().unwrap_or_default();
            (there + at - here) as u32
        };
        // A gap may follow the last byte of a token in the original text only, so map the last byte instead of the end.
        let end = if span.is_empty() { place(span.range().start) } else { place(span.range().end - 1) + 1 };
        Span::new(file, place(span.range().start), end)
    }
}

/// Parses an ALTER LINK statement. An error gives the correct form.
fn parse(text: &str) -> Result<Parts<'_>, String> {
    let wrong = || format!("an ALTER gives a link another queue, as `{FORM};` does\n  help: {APPLY}");
    let text = text.trim().trim_end_matches(';').trim_end();
    let (rest, words) = (text, ["ALTER", "LINK"]);
    let rest = words.iter().try_fold(rest, |rest, word| after(rest, word)).ok_or_else(wrong)?;
    let end = rest.find(char::is_whitespace).ok_or_else(wrong)?;
    let (link, rest) = rest.split_at(end);
    let rest = ["USE", "QUEUE"].iter().try_fold(rest, |rest, word| after(rest, word)).ok_or_else(wrong)?;
    let at = text.len() - rest.len();
    let queue = ["PACKETS", "KEEP"].iter().try_fold(rest, |rest, word| before(rest, word));
    let queue = queue.ok_or_else(|| {
        "packets that wait are kept in any case: write `KEEP PACKETS` behind the queue".to_owned()
    })?;
    // The text goes into a program: it must be one queue and no more.
    let end = end_of_use(queue).ok_or_else(wrong)?;
    match queue[end..].trim() {
        "" => Ok(Parts { link, queue, at }),
        more => Err(format!("an ALTER changes the queue alone, and has no `{more}`\n  help: {APPLY}")),
    }
}

/// The end of a queue in a link's declaration: its name, or the parenthesis after its arguments.
fn end_of_use(queue: &str) -> Option<usize> {
    let mut tokens = lex(FileId(0), queue).tokens.into_iter();
    let name = tokens.next().filter(|token| matches!(token.kind, TokenKind::Word | TokenKind::QuotedWord))?;
    let mut depth = 0_usize;
    for token in tokens {
        match token.kind {
            TokenKind::LeftParen => depth += 1,
            _ if depth == 0 => break,
            TokenKind::RightParen if depth == 1 => return Some(token.span.end as usize),
            TokenKind::RightParen => depth -= 1,
            TokenKind::Semicolon | TokenKind::Eof => return None,
            _ => {}
        }
    }
    Some(name.span.end as usize)
}

/// The text after a leading word.
fn after<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    let text = text.trim_start();
    let head = text.get(..word.len()).filter(|head| head.eq_ignore_ascii_case(word))?;
    text[head.len()..].strip_prefix(char::is_whitespace).map(str::trim_start)
}

/// Removes a trailing word. None if the text does not end with it.
fn before<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    let text = text.trim_end();
    let at = text.len().checked_sub(word.len())?;
    text.get(at..).filter(|tail| tail.eq_ignore_ascii_case(word))?;
    text[..at].strip_suffix(|c: char| c.is_whitespace() || c == ')').map(|rest| {
        // A parenthesis in front of the word belongs to the queue.
        if text[..at].ends_with(')') { &text[..at] } else { rest.trim_end() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link would get another queue than requested, or a part of the program would change by accident.
    #[test]
    fn alter_names_one_link_and_queue() {
        let one = |link, queue| {
            let at = "ALTER LINK  USE QUEUE ".len() + str::len(link);
            Ok(Parts { link, queue, at })
        };
        assert_eq!(parse("ALTER LINK wan USE QUEUE codel KEEP PACKETS"), one("wan", "codel"));
        let args = "alter link w use queue codel (target = '1 ms') keep packets ;";
        assert_eq!(parse(args), one("w", "codel (target = '1 ms')"));
        assert_eq!(parse("ALTER LINK w USE QUEUE a (b = 1)KEEP PACKETS"), one("w", "a (b = 1)"));
        for wrong in [
            "ALTER",
            "ALTER LINK",
            "ALTER LINK w USE QUEUE KEEP PACKETS",
            "ALTER LINK w USE codel KEEP PACKETS",
            "ALTER LINK w USE QUEUE codel",
            "ALTER LINKw USE QUEUE codel KEEP PACKETS",
            "ALTER LINK w USE QUEUE codel; DROP TABLE t; x KEEP PACKETS",
            "ALTER LINK w USE QUEUE codel (target = '1 ms' KEEP PACKETS",
            "ALTER LINK w USE QUEUE codel ON FAILURE HOLD KEEP PACKETS",
            "ALTER LINK w USE QUEUE codel (target = '1 ms') ON FAILURE HOLD KEEP PACKETS",
            "ALTER LINK w USE QUEUE 5 KEEP PACKETS",
            "ALTER LINK w RATE '1 Mbit/s'",
            "ALTER LINK w\u{e9} USE QUEUE \u{e9}KEEP PACKETS",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    /// Only one of two statements would run, or none, and the answer would belong to another one.
    #[test]
    fn alter_must_be_only_statement() {
        let alter = "ALTER LINK w USE QUEUE a (t = ';') KEEP PACKETS";
        for (text, asks) in [
            ("", QueryKind::Nothing),
            (" ;\n-- alter\n;", QueryKind::Nothing),
            (" alter x", QueryKind::Alter),
            ("/* why */ ALTER LINK", QueryKind::Alter),
            ("SELECT 1; ALTER LINK", QueryKind::Alter),
            ("SELECT alter FROM t; SELECT ';alter'", QueryKind::Others),
        ] {
            assert_eq!(QueryKind::of(text), asks, "{text}");
        }
        let only = |text: &str| Statement::only(text).map(|statement| statement.text);
        assert_eq!(only(alter).as_deref(), Ok(alter));
        assert_eq!(only(&format!("-- why\n{alter} -- so\n;;")).as_deref(), Ok(alter));
        for text in [format!("{alter}; SELECT 1"), format!("SELECT 1; {alter};"), format!("{alter}; {alter}")]
        {
            let why = only(&text).expect_err("they are two");
            assert!(why.starts_with("an ALTER stands alone"), "{why}");
        }
    }
}
