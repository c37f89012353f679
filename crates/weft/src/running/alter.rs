//! `ALTER LINK wan USE QUEUE codel (target = '10 ms') KEEP PACKETS`: the program of a node with another queue at a
//! link.
//!
//! It is the program that is changed, as if somebody had edited it and applied it: the node tells it from then on.

use super::{NodeStats, Refusal, Running, lock, refused_by, refused_in_words};
use crate::compile::{Checked, check_files};
use crate::library;
use crate::source::Files;
use crate::wanting;
use core::ops::Range;
use std::collections::BTreeSet;
use weft_api::{AtFault, Bundle, QueryResult, Refused};
use weft_lang::diagnostic::{Diagnostic, code};
use weft_lang::hir::Network;
use weft_lang::lexer::{TokenKind, lex};
use weft_lang::nearest;
use weft_lang::source::{FileId, SOURCE_BYTES_MAX, SourceMap, Span};

/// What the statement looks like.
const FORM: &str = "ALTER LINK wan USE QUEUE codel (target = '10 ms') KEEP PACKETS";
/// What does all else.
const APPLY: &str =
    "change the link in the program and `weft apply` it: packets that wait are kept then, too";
/// What the text of a statement is called in diagnostics.
const QUERY: &str = "<query>";
/// Where the library has its queues.
const LIBRARY: &str = "library/queues/";

/// The statement.
#[derive(Debug, PartialEq, Eq)]
struct Alter<'t> {
    link: &'t str,
    /// As a link names it.
    queue: &'t str,
    /// Where that begins in the statement.
    at: usize,
}

/// The one statement of a text, without comments and its `;`, on one line.
#[derive(Debug, Default)]
struct Statement {
    text: String,
    /// Where each of its tokens begins: here, and in the text that was asked.
    places: Vec<(usize, usize)>,
}

/// A program with another queue at a link.
struct Altered {
    program: Bundle,
    /// The file of the link, and where it has the queue.
    file: String,
    queue: Range<usize>,
}

/// What a text asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asks {
    /// There is no statement in it.
    Nothing,
    /// There is an ALTER in it.
    Alter,
    /// Other statements.
    Others,
}

impl Asks {
    pub(super) fn of(text: &str) -> Self {
        // What is longer is refused by whoever reads it.
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

impl Running {
    /// Carries out an ALTER LINK.
    pub(super) fn alter(&self, text: &str) -> Result<Vec<QueryResult>, Refusal> {
        let version = || lock(&self.parts.control).compiler.version();
        let refuse = |text: String| refused_in_words(&text, version());
        let statement = Statement::only(text).map_err(refuse)?;
        let alter = parse(&statement.text).map_err(refuse)?;
        self.must_have_queue(&alter, &statement, text)?;
        let altered = self.altered(&alter).map_err(refuse)?;
        let mut checked = check_files(&altered.program.root, &mut Files::in_bundle(&altered.program));
        if checked.network.is_none() {
            altered.place(&mut checked, &alter, &statement, text);
        }
        let before = self.swaps(alter.link);
        let applied = self.apply_checked(checked, altered.program, false, "a query")?;
        let after = self.swaps(alter.link);
        // Packets come and go meanwhile: the link itself counted at the moment of the change.
        let (kept, refused) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
        let columns = ["link", "queue", "kept", "refused", "version"].map(str::to_owned).into();
        let row =
            vec![alter.link.into(), alter.queue.into(), kept.into(), refused.into(), applied.version.into()];
        let visible_ms = applied.total_ms;
        Ok(vec![QueryResult { columns, rows: vec![row], visible_ms, ..QueryResult::default() }])
    }

    /// Says of a queue that neither the program nor the library has which there are.
    fn must_have_queue(&self, alter: &Alter<'_>, statement: &Statement, text: &str) -> Result<(), Refusal> {
        let (name, control) = (alter.name(), lock(&self.parts.control));
        let own = queues(&control.network, &control.sources);
        let library: Vec<&str> = queues_of_library().collect();
        if own.contains(name) || library.contains(&name) {
            return Ok(());
        }
        let mut sources = SourceMap::new();
        let mut unknown = Diagnostic::error(code::UNKNOWN_OBJECT, format!("there is no queue `{name}`"));
        if let Ok(file) = sources.add(QUERY, text) {
            let written = Span::new(FileId(0), alter.at as u32, (alter.at + alter.written().len()) as u32);
            unknown = unknown.at(statement.span(file, written), "unknown");
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
        let refused = refused_by(&[unknown], &sources, AtFault::Program);
        Err(Refusal::Refused(Refused { version: control.compiler.version(), ..refused }))
    }

    /// How many packets changes have kept in a link, and how many new queues refused.
    fn swaps(&self, name: &str) -> (u64, u64) {
        let Some(NodeStats { stats, packets, .. }) = self.stats() else { return (0, 0) };
        let of_port =
            packets.and_then(|packets| packets.links.into_iter().find(|link| link.plan.name == name));
        if let Some(link) = of_port {
            return (link.stats.swap_kept, link.stats.swap_overflow);
        }
        let of_calls = stats.links.iter().find(|link| link.name == name);
        of_calls.map_or((0, 0), |link| (link.swap_kept, link.swap_overflow))
    }

    /// The program that runs with another queue at a link.
    fn altered(&self, alter: &Alter<'_>) -> Result<Altered, String> {
        let mut program = self.program();
        let control = lock(&self.parts.control);
        let of_ports = control.network.links.iter().map(|link| (&link.name, &link.queue));
        let of_calls = control.network.call_links.iter().map(|link| (&link.name, &link.queue));
        let links: Vec<_> = of_ports.chain(of_calls).collect();
        let Some((_, queue)) = links.iter().find(|(name, _)| *name == alter.link) else {
            let names: Vec<&str> = links.iter().map(|(name, _)| name.as_str()).collect();
            let has = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(format!("there is no link `{}`; the node has {has}", alter.link));
        };
        let span = queue.span;
        let file = control.sources.file(span.file).name().to_owned();
        let text = program.files.get_mut(&file).ok_or_else(|| format!("the node does not have `{file}`"))?;
        text.replace_range(span.range(), alter.queue);
        let name = alter.name();
        if !queues(&control.network, &control.sources).contains(name) {
            // Behind all else, so that every line of the program stays where its author has it.
            let line_end = if text.ends_with('\n') { "" } else { "\n" };
            text.push_str(&format!("{line_end}IMPORT '{LIBRARY}{name}.weft';\n"));
        }
        let queue = span.start as usize..span.start as usize + alter.queue.len();
        Ok(Altered { program, file, queue })
    }
}

impl Alter<'_> {
    /// The queue's name, as it is written.
    fn written(&self) -> &str {
        self.queue.split(|c: char| c == '(' || c.is_whitespace()).next().unwrap_or_default()
    }

    /// The queue's name.
    fn name(&self) -> &str {
        self.written().trim_matches('"')
    }
}

impl Altered {
    /// Has what is said of the queue point at the statement, and not at a line that the author of the program never
    /// wrote.
    fn place(&self, checked: &mut Checked, alter: &Alter<'_>, statement: &Statement, text: &str) {
        let Some((of_link, _)) = checked.sources.files().find(|(_, file)| file.name() == self.file) else {
            return;
        };
        let Ok(query) = checked.sources.add(QUERY, text) else { return };
        let place = |span: &mut Span| {
            let range = span.range();
            if span.file == of_link && self.queue.start <= range.start && range.end <= self.queue.end {
                let moved = |at: usize| (at - self.queue.start + alter.at) as u32;
                *span = statement.span(query, Span::new(query, moved(range.start), moved(range.end)));
            }
        };
        for diagnostic in &mut checked.diagnostics {
            diagnostic.labels.iter_mut().for_each(|label| place(&mut label.span));
            diagnostic.fix.iter_mut().for_each(|fix| place(&mut fix.span));
        }
    }
}

/// The queues that a program has by name.
fn queues(network: &Network, sources: &SourceMap) -> BTreeSet<String> {
    let wanting = wanting::queues(sources).into_iter().map(|queue| queue.name);
    network.queues.iter().map(|queue| queue.name.clone()).chain(wanting).collect()
}

fn queues_of_library() -> impl Iterator<Item = &'static str> {
    library::paths().filter_map(|path| path.strip_prefix(LIBRARY)?.strip_suffix(".weft"))
}

impl Statement {
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

    /// A place of it, in the text that was asked.
    fn span(&self, file: FileId, span: Span) -> Span {
        let place = |at: usize| {
            let nth = self.places.partition_point(|(here, _)| *here <= at).saturating_sub(1);
            let (here, there) = self.places.get(nth).copied().unwrap_or_default();
            (there + at - here) as u32
        };
        // What is behind the last byte of a token may be in front of a gap that only the text has.
        let end = if span.is_empty() { place(span.range().start) } else { place(span.range().end - 1) + 1 };
        Span::new(file, place(span.range().start), end)
    }
}

fn parse(text: &str) -> Result<Alter<'_>, String> {
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
    // What stands there goes into a program: it is one queue and no more.
    let end = end_of_use(queue).ok_or_else(wrong)?;
    match queue[end..].trim() {
        "" => Ok(Alter { link, queue, at }),
        more => Err(format!("an ALTER changes the queue alone, and has no `{more}`\n  help: {APPLY}")),
    }
}

/// Where a queue ends as a link names it: with its name, or with the parenthesis that closes its arguments.
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

/// What stands behind a word at the beginning.
fn after<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    let text = text.trim_start();
    let head = text.get(..word.len()).filter(|head| head.eq_ignore_ascii_case(word))?;
    text[head.len()..].strip_prefix(char::is_whitespace).map(str::trim_start)
}

/// What stands in front of a word at the end.
fn before<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    let text = text.trim_end();
    let at = text.len().checked_sub(word.len())?;
    text.get(at..).filter(|tail| tail.eq_ignore_ascii_case(word))?;
    text[..at].strip_suffix(|c: char| c.is_whitespace() || c == ')').map(|rest| {
        // A parenthesis in front of it belongs to the queue.
        if text[..at].ends_with(')') { &text[..at] } else { rest.trim_end() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link would get another queue than was asked for, or a part of the program that nobody meant.
    #[test]
    fn a_statement_names_one_link_and_one_queue() {
        let one = |link, queue| {
            let at = "ALTER LINK  USE QUEUE ".len() + str::len(link);
            Ok(Alter { link, queue, at })
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

    /// One of two statements would be carried out, or neither, and the answer would be about something else.
    #[test]
    fn an_alter_is_found_wherever_it_stands_and_stands_alone() {
        let alter = "ALTER LINK w USE QUEUE a (t = ';') KEEP PACKETS";
        for (text, asks) in [
            ("", Asks::Nothing),
            (" ;\n-- alter\n;", Asks::Nothing),
            (" alter x", Asks::Alter),
            ("/* why */ ALTER LINK", Asks::Alter),
            ("SELECT 1; ALTER LINK", Asks::Alter),
            ("SELECT alter FROM t; SELECT ';alter'", Asks::Others),
        ] {
            assert_eq!(Asks::of(text), asks, "{text}");
        }
        let only = |text: &str| Statement::only(text).map(|statement| statement.text);
        assert_eq!(only(alter).as_deref(), Ok(alter));
        assert_eq!(only(&format!("-- why\n{alter} -- so\n;;")).as_deref(), Ok(alter));
        for text in [format!("{alter}; SELECT 1"), format!("SELECT 1; {alter};"), format!("{alter}; {alter}")]
        {
            let told = only(&text).expect_err("they are two");
            assert!(told.starts_with("an ALTER stands alone"), "{told}");
        }
    }
}
