//! The grammar in the reference, `docs/src/reference/grammar.md`, compared with the parser in both directions.
//!
//! The parser must accept random programs generated from the page, the page must match the programs of the repository,
//! and the examples of the page must be valid.

#![allow(clippy::disallowed_methods, reason = "tests read the files that they compare with")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use weft_core::rng::Rng;
use weft_lang::check::table_statement::statements;
use weft_lang::editor::words;
use weft_lang::hir::Network;
use weft_lang::lexer::{Token, TokenKind, lex};
use weft_lang::parser::parse;
use weft_lang::source::{FileId, SourceMap};

#[path = "support/files.rs"]
mod files;
use files::{programs, root};

/// Keywords of the design that programs of this version cannot use.
const ELSEWHERE: &[&str] = &["ALTER", "POLICY", "STACK"];

/// The minimum number of random programs.
const N_PROGRAMS: usize = 800;

/// The maximum depth of a tree before the generator takes the shortest alternatives.
const DEPTH_MAX: usize = 20;

// ---- the page --------------------------------------------------------------------------------------------------

/// What a rule is made of.
enum Node {
    Word(String),
    Sign(String),
    /// A rule, or `name`, `any_name`, `string`, `int`, `float`.
    Rule(String),
    All(Vec<Self>),
    /// The number identifies the choice, to record whether it was used.
    One(usize, Vec<Self>),
    Optional(usize, Box<Self>),
    Many(usize, Box<Self>),
}

struct Page {
    rules: BTreeMap<String, Node>,
    /// For the last alternative of each rule: the rule.
    ends: BTreeMap<usize, String>,
    /// A rule, an example, and a counterexample.
    examples: Vec<(String, String, String)>,
    /// The number of alternatives in all choices; an optional part has two.
    n_ways: usize,
}

fn page() -> Page {
    let path = root().join("docs/src/reference/grammar.md");
    let text = std::fs::read_to_string(path).expect("the page is part of the repository");
    let (mut rules, mut ends, mut n_ways) = (BTreeMap::new(), BTreeMap::new(), 0);
    for block in text.split("```ebnf\n").skip(1) {
        let block = block.split("```").next().expect("a block ends");
        let mut symbols = symbols(block).into_iter().peekable();
        while let Some(name) = symbols.next() {
            assert_eq!(symbols.next().as_deref(), Some("="), "{name}");
            let rule = either(&mut symbols, &mut n_ways);
            assert_eq!(symbols.next().as_deref(), Some(";"), "{name}");
            ends.entry(n_ways).or_insert_with(|| name.clone());
            assert!(rules.insert(name.clone(), rule).is_none(), "{name} is there twice");
        }
    }
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let examples = rows.map(|row| {
        let cells: Vec<&str> = row.trim_end_matches("` |").split("` | `").collect();
        let [rule, example, counter] = cells[..] else { panic!("a row of three: {row}") };
        (rule.to_owned(), example.to_owned(), counter.to_owned())
    });
    Page { rules, ends, examples: examples.collect(), n_ways }
}

/// Words, texts in quotes and signs.
fn symbols(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '"' => rest[1..].find('"').expect("a sign in quotes ends") + 2,
            c if c.is_alphanumeric() => {
                rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
            }
            _ => 1,
        };
        found.push(rest[..end].to_owned());
        rest = rest[end..].trim_start();
    }
    found
}

type Symbols = std::iter::Peekable<std::vec::IntoIter<String>>;

fn either(symbols: &mut Symbols, n_ways: &mut usize) -> Node {
    let mut parts = vec![sequence(symbols, n_ways)];
    while symbols.next_if(|symbol| symbol == "|").is_some() {
        parts.push(sequence(symbols, n_ways));
    }
    if parts.len() == 1 {
        return parts.remove(0);
    }
    let first = *n_ways;
    *n_ways += parts.len();
    Node::One(first, parts)
}

fn sequence(symbols: &mut Symbols, n_ways: &mut usize) -> Node {
    let mut parts = Vec::new();
    while let Some(symbol) = symbols.next_if(|symbol| !["|", ";", "]", "}", ")"].contains(&symbol.as_str())) {
        let mut within = |end: &str| {
            let inner = Box::new(either(symbols, n_ways));
            assert_eq!(symbols.next().as_deref(), Some(end));
            *n_ways += 2;
            (*n_ways - 2, inner)
        };
        parts.push(match symbol.as_str() {
            "[" => {
                let (way, inner) = within("]");
                Node::Optional(way, inner)
            }
            "{" => {
                let (way, inner) = within("}");
                Node::Many(way, inner)
            }
            "(" => {
                let inner = either(symbols, n_ways);
                assert_eq!(symbols.next().as_deref(), Some(")"));
                inner
            }
            sign if sign.starts_with('"') => Node::Sign(sign.trim_matches('"').to_owned()),
            word if word.starts_with(|c: char| c.is_ascii_uppercase()) => Node::Word(word.to_owned()),
            rule => Node::Rule(rule.to_owned()),
        });
    }
    Node::All(parts)
}

// ---- from the page to the parser -------------------------------------------------------------------------------

/// Makes random programs.
struct Maker<'p> {
    page: &'p Page,
    /// The height of the lowest tree of each rule.
    heights: BTreeMap<&'p str, usize>,
    rng: Rng,
    /// Ways that were taken.
    taken: BTreeSet<usize>,
}

impl<'p> Maker<'p> {
    fn new(page: &'p Page) -> Self {
        let mut heights: BTreeMap<&str, usize> = BTreeMap::new();
        for _ in 0..page.rules.len() {
            for (name, node) in &page.rules {
                let found = height(node, &heights).saturating_add(1);
                heights.insert(name, found);
            }
        }
        assert!(heights.values().all(|height| *height < 1000), "a rule that never ends: {heights:?}");
        Self { page, heights, rng: Rng::from_seed(0), taken: BTreeSet::new() }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.rng.below(bound)
    }

    fn make(&mut self, node: &'p Node, depth: usize, out: &mut Vec<String>) {
        let is_deep = depth >= DEPTH_MAX;
        match node {
            Node::Word(word) | Node::Sign(word) => out.push(word.clone()),
            Node::Rule(rule) => match self.page.rules.get(rule) {
                Some(node) => self.make(node, depth + 1, out),
                None => {
                    let of_kind: &[&str] = match rule.as_str() {
                        "name" => &["a", "b1", "_c", "\"select\"", "key", "last"],
                        "any_name" => &["a", "select", "\"b c\""],
                        "string" => &["'x'", "'it''s'", "''"],
                        "int" => &["1", "64", "0xff", "1_000"],
                        "float" => &["1.5", "1e6"],
                        other => panic!("there is no rule `{other}`"),
                    };
                    let at = self.below(of_kind.len());
                    out.push(of_kind[at].to_owned());
                }
            },
            Node::All(parts) => parts.iter().for_each(|part| self.make(part, depth, out)),
            Node::One(way, parts) => {
                let is_new = |at: &usize| !self.taken.contains(&(way + at));
                let new: Vec<usize> = (0..parts.len()).filter(is_new).collect();
                let new = (!new.is_empty()).then(|| new[self.below(new.len())]);
                let at = match new.filter(|_| self.below(4) > 0) {
                    Some(new) if !is_deep => new,
                    _ if is_deep => shallowest(parts, &self.heights),
                    _ => self.below(parts.len()),
                };
                self.taken.insert(way + at);
                self.make(&parts[at], depth, out);
            }
            Node::Optional(way, inner) | Node::Many(way, inner) => {
                let n_max = if matches!(node, Node::Many(..)) { 2 } else { 1 };
                let is_new = !self.taken.contains(&(way + 1));
                let n = if is_deep {
                    0
                } else if is_new {
                    1
                } else {
                    self.below(n_max + 1)
                };
                // A program of about a page; deeper optional parts are generated with a probability of one third.
                let n = if depth > DEPTH_MAX / 3 && !is_new && self.below(2) == 0 { 0 } else { n };
                self.taken.insert(way + n.min(1));
                (0..n).for_each(|_| self.make(inner, depth, out));
            }
        }
    }
}

fn shallowest(parts: &[Node], heights: &BTreeMap<&str, usize>) -> usize {
    (0..parts.len()).min_by_key(|at| height(&parts[*at], heights)).unwrap_or(0)
}

fn height(node: &Node, heights: &BTreeMap<&str, usize>) -> usize {
    const TERMINALS: &[&str] = &["name", "any_name", "string", "int", "float"];
    match node {
        Node::Word(_) | Node::Sign(_) | Node::Optional(..) | Node::Many(..) => 0,
        Node::Rule(rule) if TERMINALS.contains(&rule.as_str()) => 0,
        Node::Rule(rule) => heights.get(rule.as_str()).copied().unwrap_or(1000),
        Node::All(parts) => parts.iter().map(|part| height(part, heights)).max().unwrap_or(0),
        Node::One(_, parts) => parts.iter().map(|part| height(part, heights)).min().unwrap_or(0),
    }
}

/// A program that contains a text at a place for its rule.
fn around(rule: &str, text: &str) -> String {
    match rule {
        "program" | "item" | "question" => text.to_owned(),
        "type" | "chain" | "element" | "filter" | "function" | "protocol" | "queue" => {
            format!("CREATE {text}")
        }
        "declaration" => format!("CREATE ELEMENT e ON rpc AS {text}; END;"),
        "statement" | "verdict" => format!("CREATE ELEMENT e ON rpc AS ON REQUEST {text}; END;"),
        "queue_part" => format!("CREATE QUEUE q AS {text}; END;"),
        "queue_stmt" => format!("CREATE QUEUE q AS ON DEQUEUE {text}; END;"),
        "expr" => format!("CREATE ROUTE r ON l WHEN {text} TO CLUSTER k;"),
        "policy" => format!("CREATE FILTER f ON rpc AS {text}; END;"),
        other => panic!("where does `{other}` stand?"),
    }
}

/// The errors of the parser for a program or a table statement; empty if it is valid.
fn faults(rule: &str, text: &str) -> String {
    let mut sources = SourceMap::new();
    let faults = if rule == "question" {
        let (_, faults, _) = statements(&Network::default(), &sources, text, weft_core::Time(0));
        // The statement needs a table that does not exist.
        faults.into_iter().filter(|fault| fault.code.0 < "W02").collect()
    } else {
        let file = sources.add("page.weft", text).expect("it is small");
        parse(&sources, file).1
    };
    let lines = faults.iter().map(|fault| {
        let at = fault.span().map_or(0, |span| span.start as usize);
        format!("{} {} at `{}`", fault.code.0, fault.message, text[at..].chars().take(40).collect::<String>())
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn random_grammar_programs_parse() {
    // If this fails, the reference promises programs that the parser rejects.
    let page = page();
    let mut maker = Maker::new(&page);
    let starts = [
        "program",
        "item",
        "type",
        "chain",
        "element",
        "filter",
        "function",
        "protocol",
        "queue",
        "queue_part",
        "queue_stmt",
        "declaration",
        "statement",
        "verdict",
        "policy",
        "question",
        "expr",
    ];
    // At least the minimum, and more until every alternative was used.
    for n in 0..20 * N_PROGRAMS {
        if n >= N_PROGRAMS && maker.taken.len() == page.n_ways {
            break;
        }
        // Each rule is the root of some trees, with room for all of its parts.
        let start = starts[n % starts.len()];
        let mut words = Vec::new();
        maker.make(&page.rules[start], 0, &mut words);
        let text = around(start, &words.join(" "));
        // Some programs nest deeper than the limit, and are rejected for that.
        let errors = faults(start, &text);
        assert!(errors.is_empty() || errors.contains("W0003"), "{text}\n{errors}");
    }
    let missed = (0..page.n_ways).filter(|way| !maker.taken.contains(way));
    let missed: Vec<(usize, &String)> = missed
        .map(|way| (way, page.ends.range(way + 1..).next().expect("all ways are of a rule").1))
        .collect();
    let n_ways = page.n_ways;
    assert!(missed.is_empty(), "of {n_ways} ways no program took {missed:?}");
}

// ---- from programs to the page ---------------------------------------------------------------------------------

/// Finds texts in the page.
struct Finder<'p> {
    page: &'p Page,
    reserved: BTreeSet<String>,
    text: &'p str,
    tokens: Vec<Token>,
    /// The possible ends of each rule from a token.
    known: BTreeMap<(&'p str, usize), BTreeSet<usize>>,
}

impl<'p> Finder<'p> {
    /// Whether a text matches `rule`; otherwise the last token that could be followed by more.
    fn find(page: &'p Page, rule: &'p str, text: &'p str) -> Result<(), String> {
        let mut tokens = lex(FileId(0), text).tokens;
        tokens.pop();
        let n = tokens.len();
        let mut finder = Self { page, reserved: reserved(), text, tokens, known: BTreeMap::new() };
        if finder.ends(&page.rules[rule], 0).contains(&n) {
            return Ok(());
        }
        let last = finder.known.values().flatten().copied().max().unwrap_or(0);
        let at = finder.tokens.get(last).map_or(text.len(), |token| token.span.start as usize);
        Err(text[at..].chars().take(60).collect())
    }

    fn ends(&mut self, node: &'p Node, at: usize) -> BTreeSet<usize> {
        let is_here = |fits: bool| fits.then_some(at + 1).into_iter().collect();
        match node {
            Node::Word(word) => is_here(self.word(at).is_some_and(|found| found.eq_ignore_ascii_case(word))),
            Node::Sign(sign) => is_here(self.token(at).is_some_and(|(_, found)| found == sign)),
            Node::Rule(rule) => self.ends_of_rule(rule, at),
            Node::All(parts) => parts.iter().fold(BTreeSet::from([at]), |from, part| {
                from.into_iter().flat_map(|at| self.ends(part, at)).collect()
            }),
            Node::One(_, parts) => parts.iter().flat_map(|part| self.ends(part, at)).collect(),
            Node::Optional(_, inner) => self.ends(inner, at).into_iter().chain([at]).collect(),
            Node::Many(_, inner) => {
                let (mut all, mut new) = (BTreeSet::from([at]), vec![at]);
                while let Some(from) = new.pop() {
                    new.extend(self.ends(inner, from).into_iter().filter(|end| all.insert(*end)));
                }
                all
            }
        }
    }

    fn ends_of_rule(&mut self, rule: &'p str, at: usize) -> BTreeSet<usize> {
        if let Some(node) = self.page.rules.get(rule) {
            if let Some(known) = self.known.get(&(rule, at)) {
                return known.clone();
            }
            let found = self.ends(node, at);
            self.known.insert((rule, at), found.clone());
            return found;
        }
        let Some((kind, text)) = self.token(at) else { return BTreeSet::new() };
        let is_word = matches!(kind, TokenKind::Word | TokenKind::QuotedWord);
        let fits = match rule {
            "name" => is_word && !self.reserved.contains(&text.to_ascii_uppercase()),
            "any_name" => is_word,
            "string" => kind == TokenKind::Str,
            "int" => kind == TokenKind::Int,
            "float" => kind == TokenKind::Float,
            other => panic!("there is no rule `{other}`"),
        };
        fits.then_some(at + 1).into_iter().collect()
    }

    fn token(&self, at: usize) -> Option<(TokenKind, &'p str)> {
        self.tokens.get(at).map(|token| (token.kind, &self.text[token.span.range()]))
    }

    fn word(&self, at: usize) -> Option<&'p str> {
        self.token(at).filter(|(kind, _)| *kind == TokenKind::Word).map(|(_, text)| text)
    }
}

/// The reserved words, from the parser's source.
fn reserved() -> BTreeSet<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/parser/cursor.rs");
    let source = std::fs::read_to_string(source).expect("it is part of the repository");
    let list =
        source.split("const RESERVED").nth(1).and_then(|rest| rest.split("];").next()).expect("it is there");
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn grammar_page_covers_every_program() {
    // If this fails, the parser accepts programs that the reference does not describe.
    let page = page();
    let files = programs(&["examples", "tests"]);
    let (mut n_found, mut missing) = (0, Vec::new());
    for path in files {
        let text = std::fs::read_to_string(&path).expect("it is text");
        if faults("program", &text).is_empty() {
            n_found += 1;
            if let Err(rest) = Finder::find(&page, "program", &text) {
                missing.push(format!("{}: not in the grammar from `{rest}`", path.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(n_found > 40, "only {n_found} programs were looked for");
}

#[test]
fn grammar_page_examples_parse() {
    let page = page();
    assert!(page.examples.len() > 30, "the page has examples");
    for (rule, example, counter) in &page.examples {
        assert_eq!(faults(rule, &around(rule, example)), "", "{example}");
        assert_eq!(Finder::find(&page, rule, example), Ok(()), "{example}");
        assert_ne!(faults(rule, &around(rule, counter)), "", "{counter}");
        assert!(Finder::find(&page, rule, counter).is_err(), "{counter}");
    }
}

#[test]
fn grammar_page_lists_all_keywords() {
    // If this fails, the reference lacks a new clause, or still has an old one.
    fn collect(node: &Node, found: &mut BTreeSet<String>) {
        match node {
            Node::Word(word) => drop(found.insert(word.clone())),
            Node::Sign(_) | Node::Rule(_) => {}
            Node::All(parts) | Node::One(_, parts) => parts.iter().for_each(|part| collect(part, found)),
            Node::Optional(_, inner) | Node::Many(_, inner) => collect(inner, found),
        }
    }
    let (page, mut found) = (page(), BTreeSet::new());
    page.rules.values().for_each(|rule| collect(rule, &mut found));
    let known = words::KEYWORDS.iter().map(|known| known.word);
    let wanted: BTreeSet<String> =
        known.filter(|word| !ELSEWHERE.contains(word)).map(str::to_owned).collect();
    assert_eq!(found, wanted);
}
