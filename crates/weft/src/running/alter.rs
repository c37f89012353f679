//! `ALTER LINK wan USE QUEUE codel (target = '10 ms') KEEP PACKETS`: the program of a node with another queue at a
//! link.
//!
//! It is the program that is changed, as if somebody had edited it and applied it: the node tells it from then on.

use super::{NodeStats, Refusal, Running, lock, refused_in_words};
use crate::library;
use weft_api::{Answer, Bundle};
use weft_lang::lexer::{TokenKind, lex};
use weft_lang::source::{FileId, SOURCE_BYTES_MAX};

/// What the statement looks like.
const FORM: &str = "ALTER LINK wan USE QUEUE codel (target = '10 ms') KEEP PACKETS";

/// The statement.
#[derive(Debug, PartialEq, Eq)]
struct Alter<'t> {
    link: &'t str,
    /// As a link names it.
    queue: &'t str,
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
    pub(super) fn alter(&self, text: &str) -> Result<Vec<Answer>, Refusal> {
        let refuse = |text: String| refused_in_words(&text, lock(&self.parts.control).compiler.version());
        let statement = only_statement(text).map_err(refuse)?;
        let alter = parse(&statement).map_err(refuse)?;
        let program = self.altered(&alter).map_err(refuse)?;
        let before = self.swaps(alter.link);
        let applied = self.apply(program, false)?;
        let after = self.swaps(alter.link);
        // Packets come and go meanwhile: the link itself counted at the moment of the change.
        let (kept, refused) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
        let columns = ["link", "queue", "kept", "refused", "version"].map(str::to_owned).into();
        let row =
            vec![alter.link.into(), alter.queue.into(), kept.into(), refused.into(), applied.version.into()];
        let visible_ms = applied.total_ms;
        Ok(vec![Answer { columns, rows: vec![row], visible_ms, ..Answer::default() }])
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
    fn altered(&self, alter: &Alter<'_>) -> Result<Bundle, String> {
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
        let file = control.sources.file(span.file).name();
        let text = program.files.get_mut(file).ok_or_else(|| format!("the node does not have `{file}`"))?;
        text.replace_range(span.start as usize..span.end as usize, alter.queue);
        let name = alter.queue.split(|c: char| c == '(' || c.is_whitespace()).next().unwrap_or_default();
        let import = format!("library/queues/{name}.weft");
        let is_known = control.network.queues.iter().any(|queue| queue.name == name);
        if !is_known && library::text(&import).is_some() {
            text.insert_str(0, &format!("IMPORT '{import}';\n"));
        }
        Ok(program)
    }
}

/// The one statement of a text, without comments and its `;`.
fn only_statement(text: &str) -> Result<String, String> {
    let (mut statement, mut end, mut is_over) = (String::new(), 0, false);
    for token in lex(FileId(0), text).tokens {
        let (from, to) = (token.span.start as usize, token.span.end as usize);
        match token.kind {
            TokenKind::Eof => {}
            TokenKind::Semicolon => is_over |= !statement.is_empty(),
            _ if is_over => {
                return Err(
                    "an ALTER stands alone: give the other statements to another `weft query`".to_owned()
                );
            }
            _ => {
                if from > end && !statement.is_empty() {
                    statement.push(' ');
                }
                statement.push_str(&text[from..to]);
            }
        }
        end = to;
    }
    Ok(statement)
}

fn parse(text: &str) -> Result<Alter<'_>, String> {
    let wrong = || format!("an ALTER is like `{FORM};`");
    let text = text.trim().trim_end_matches(';').trim_end();
    let (rest, words) = (text, ["ALTER", "LINK"]);
    let rest = words.iter().try_fold(rest, |rest, word| after(rest, word)).ok_or_else(wrong)?;
    let end = rest.find(char::is_whitespace).ok_or_else(wrong)?;
    let (link, rest) = rest.split_at(end);
    let rest = ["USE", "QUEUE"].iter().try_fold(rest, |rest, word| after(rest, word)).ok_or_else(wrong)?;
    let queue = ["PACKETS", "KEEP"].iter().try_fold(rest, |rest, word| before(rest, word));
    let queue = queue.ok_or_else(|| {
        "packets that wait are kept in any case: write `KEEP PACKETS` behind the queue".to_owned()
    })?;
    // What stands there goes into a program: it is one queue and no more.
    if queue.is_empty() || queue.contains(';') {
        return Err(wrong());
    }
    Ok(Alter { link, queue })
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
        let one = |link, queue| Ok(Alter { link, queue });
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
        assert_eq!(only_statement(alter).as_deref(), Ok(alter));
        assert_eq!(only_statement(&format!("-- why\n{alter} -- so\n;;")).as_deref(), Ok(alter));
        for text in [format!("{alter}; SELECT 1"), format!("SELECT 1; {alter};"), format!("{alter}; {alter}")]
        {
            let told = only_statement(&text).expect_err("they are two");
            assert!(told.starts_with("an ALTER stands alone"), "{told}");
        }
    }
}
