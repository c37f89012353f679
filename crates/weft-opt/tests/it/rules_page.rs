//! The book's page on the rules: the compiler must agree with each example.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use weft_lang::diagnostic::{RenderOptions, render_all};
use weft_opt::effects::effects;
use weft_opt::lower::{LowerOptions, lower_with_lines};
use weft_opt::plan::{Clash, Context, Crossing, Level, Pair, Rule, crossings, pairs};

use crate::schema::root;
use crate::swap::Inline;

/// The heading of rule 7, which forbids nothing and so is no [`Rule`].
const INVERSE: &str = "swap.7 inverse";

/// The declarations around each example.
const AROUND: &str = "CREATE TYPE cart_msg FROM PROTO 'cart.proto';
CREATE LISTENER front ON tcp '127.0.0.1:7070';
CREATE CLUSTER cart TO '127.0.0.1:7101';
CREATE CLUSTER cart_v2 TO '127.0.0.1:7102';
";

/// The example of one rule.
struct Example {
    /// `swap.1 fields`.
    heading: String,
    /// Elements, and the chain if it is more than these in their order.
    program: String,
    /// The comments at the end, with the page's verdicts on pairs.
    verdicts: Vec<String>,
}

/// The examples of a page: each block under a heading that begins with `### swap.`.
fn examples(page: &str) -> Vec<Example> {
    let sections = page.split("\n### swap.").skip(1);
    let of_section = |section: &str| {
        let (heading, rest) = section.split_once('\n').expect("text follows a heading");
        // The next heading of another kind ends the section.
        let rest = rest.split("\n## ").next().unwrap_or_default();
        let blocks = rest.split("```sql\n").skip(1).filter_map(|rest| rest.split_once("\n```"));
        let example = |(block, _): (&str, &str)| {
            let (verdicts, program): (Vec<&str>, Vec<&str>) =
                block.lines().partition(|line| line.starts_with("--"));
            let verdicts = verdicts.into_iter().map(str::to_owned).collect();
            Example { heading: format!("swap.{heading}"), program: program.join("\n"), verdicts }
        };
        blocks.map(example).collect::<Vec<_>>()
    };
    sections.flat_map(of_section).collect()
}

impl Example {
    /// `swap.1`.
    fn number(&self) -> &str {
        self.heading.split(' ').next().unwrap_or_default()
    }
}

/// The compiler's analysis of an example.
struct AnalyzedExample {
    names: Vec<String>,
    pairs: Vec<Pair>,
    crossings: Vec<Crossing>,
}

fn judged(example: &Example) -> AnalyzedExample {
    let declared = example.program.lines().filter_map(|line| line.strip_prefix("CREATE ELEMENT "));
    let stages: Vec<&str> = declared.filter_map(|rest| rest.split(' ').next()).collect();
    let chain = match example.program.contains("CREATE CHAIN ") {
        true => String::new(),
        false => {
            format!("CREATE CHAIN t ON front -> cart METHOD 'shop.Cart/Add' AS {}; END;", stages.join(" -> "))
        }
    };
    let program = format!("{AROUND}{}\n{chain}\n", example.program);
    let (network, diagnostics, sources) = weft_lang::check("t.weft", &mut Inline(program));
    let show = |diagnostics: &[_]| render_all(diagnostics, &sources, RenderOptions::default());
    assert!(diagnostics.is_empty(), "{}: {}", example.heading, show(&diagnostics));
    let network = network.expect("the program has no errors");
    let chain = lower_with_lines(&network, 0, &LowerOptions { workers: 1 }, &sources)
        .unwrap_or_else(|diagnostics| panic!("{}", show(&diagnostics)));
    let effects = effects(&chain);
    let context = Context::new(&network.chains[0]);
    AnalyzedExample {
        names: chain.elements.iter().map(|element| element.name.clone()).collect(),
        pairs: pairs(&chain, &effects, &context),
        crossings: crossings(&chain, &effects, &context, Level::default()),
    }
}

impl AnalyzedExample {
    /// The lines that an example should end with: the same pairs, with their current verdicts.
    fn lines(&self, example: &Example) -> Vec<String> {
        let asked = |line: &'_ str| {
            let asked = line.trim_start_matches("-- ").split("  ").next().unwrap_or_default();
            asked.trim().to_owned()
        };
        let asked: Vec<String> = example.verdicts.iter().map(|line| asked(line)).collect();
        let width = asked.iter().map(String::len).max().unwrap_or_default();
        let line = |asked: &String| format!("-- {asked:<width$}   {}", self.verdict(asked, example));
        asked.iter().map(line).collect()
    }

    /// Of `a, b`, or `a across b and c`.
    fn verdict(&self, asked: &str, example: &Example) -> String {
        let at = |name: &str| {
            let known = self.names.iter().position(|known| known == name.trim());
            known.unwrap_or_else(|| panic!("`{asked}` names no element of its example"))
        };
        match asked.split_once(" across ") {
            Some((other, both)) => {
                let (first, second) = both.split_once(" and ").expect("the text names two elements");
                self.crossing(at(other), at(first), at(second)).to_owned()
            }
            None => {
                let (first, second) = asked.split_once(',').expect("the text names two elements");
                self.pair(at(first), at(second), example.number())
            }
        }
    }

    /// The verdict of a rule on two elements, or another rule's if that one has none; for rules that hold only at
    /// `strict`, the one at `strict`.
    fn pair(&self, first: usize, second: usize, rule: &str) -> String {
        let pair = self.pairs.iter().find(|pair| (pair.first, pair.second) == (first, second));
        let pair = pair.expect("the chain has them in this order");
        let own = |level| pair.blocking(level).find(|clash| clash.rule.to_string() == rule);
        let told = |clash: &Clash| format!("{}: {}", clash.rule, clash.why);
        match (pair.blocking(Level::default()).next(), own(Level::Strict)) {
            (None, None) => "yes".to_owned(),
            (None, Some(clash)) => format!("yes; at strict no, {}", told(clash)),
            (Some(clash), _) => format!("no, {}", told(own(Level::default()).unwrap_or(clash))),
        }
    }

    fn crossing(&self, other: usize, first: usize, second: usize) -> &'static str {
        let is_it = |crossing: &&Crossing| (crossing.first, crossing.second) == (first, second);
        match self.crossings.iter().find(is_it) {
            Some(crossing) if crossing.others.contains(&other) => "yes: they take each other back",
            Some(_) => "no: what else they do keeps it",
            None => "no: they do not take each other back",
        }
    }
}

/// Users plan chains by this page: a wrong example would misstate a rule.
#[test]
fn rules_page_matches_compiler() {
    let path = root().join("docs/src/concepts/effects.md");
    let page = std::fs::read_to_string(path).expect("the page is part of the repository");
    let examples = examples(&page);
    let mut rules: Vec<String> = Rule::ALL.iter().map(|rule| format!("{rule} {}", rule.name())).collect();
    rules.insert(6, INVERSE.to_owned());
    let mut headings: Vec<&str> = examples.iter().map(|example| &*example.heading).collect();
    headings.dedup();
    assert_eq!(headings, rules, "each rule has its examples, by number");
    let mut wrong = String::new();
    let mut told: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for example in &examples {
        let judged = judged(example);
        let is = example.verdicts.join("\n");
        let lines = judged.lines(example);
        let should = lines.join("\n");
        if is != should {
            let _ = writeln!(wrong, "### {}\n{should}\n", example.heading);
        }
        told.entry(&example.heading).or_default().extend(lines);
    }
    for (heading, lines) in told {
        let number = heading.split(' ').next().unwrap_or_default();
        let against = format!("no, {number}: ");
        let (is_for, is_against) = match heading == INVERSE {
            true => ("   yes: ", "   no: "),
            false => ("   yes", &*against),
        };
        for wanted in [is_for, is_against] {
            if !lines.iter().any(|line| line.contains(wanted)) {
                let _ = writeln!(wrong, "### {heading}\nhas no `{wanted}`\n");
            }
        }
    }
    assert!(wrong.is_empty(), "the compiler says otherwise:\n\n{wrong}");
}
