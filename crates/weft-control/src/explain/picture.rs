//! Draws a plan: elements are boxes, and a line between two shows that a rule keeps them in order. Elements in one
//! column could run in any order. A filter has its own column, with a dashed border: no element moves across it. The
//! output is SVG, or a graph for Graphviz.

use super::report::{Chain, Pair};
use crate::show::svg::{begin, escaped};
use std::fmt::Write as _;
use weft_opt::plan::Rule;

/// Sizes in pixels.
const BOX_WIDTH: usize = 168;
const BOX_HEIGHT: usize = 48;
const GAP_X: usize = 84;
const GAP_Y: usize = 22;
const MARGIN: usize = 20;
const TITLE: usize = 46;
/// Characters of a name in a box.
const NAME_MAX: usize = 20;
/// Characters of the smaller line below the name.
const CAPTION_MAX: usize = 26;

/// Stages in columns, each after all stages that must come before it, and the constraints between them.
struct Layout<'c> {
    /// Names, in the order that runs.
    columns: Vec<Vec<&'c str>>,
    /// The earlier stage, the later one, and the rules.
    ties: Vec<(&'c str, &'c str, String)>,
}

impl<'c> Layout<'c> {
    /// Arranges the stages in columns, and omits constraints that follow from others.
    fn of(chain: &'c Chain) -> Self {
        let order: Vec<&str> = chain.plan.order.iter().map(String::as_str).collect();
        let at = |name: &str| order.iter().position(|known| *known == name).unwrap_or(0);
        let kept = chain.pairs.iter().filter(|pair| !pair.may_swap && pair.licence.is_none());
        let kept = kept.map(|pair| (&*pair.first, &*pair.second, rules(pair)));
        let all: Vec<(&str, &str, String)> = kept.chain(walls(chain, &order)).collect();
        let is_tied = |a: &str, b: &str| all.iter().any(|(front, behind, _)| *front == a && *behind == b);
        // Omit a constraint that follows from two others.
        let between = |a: &str, b: &str| {
            let range = order.get(at(a) + 1..at(b)).unwrap_or_default();
            range.iter().any(|middle| is_tied(a, middle) && is_tied(middle, b))
        };
        let mut columns: Vec<Vec<&str>> = Vec::new();
        for name in &order {
            let holds_back = |column: &Vec<&str>| column.iter().any(|front| is_tied(front, name));
            let column = columns.iter().rposition(holds_back).map_or(0, |last| last + 1);
            match columns.get_mut(column) {
                Some(column) => column.push(name),
                None => columns.push(vec![name]),
            }
        }
        let ties = all.iter().filter(|(a, b, _)| !between(a, b)).cloned().collect();
        Self { columns, ties }
    }

    /// The corner of a stage's box.
    fn corner(&self, name: &str) -> (usize, usize) {
        let place = |(x, column): (usize, &Vec<&str>)| {
            let y = column.iter().position(|known| *known == name)?;
            Some((MARGIN + x * (BOX_WIDTH + GAP_X), TITLE + y * (BOX_HEIGHT + GAP_Y)))
        };
        self.columns.iter().enumerate().find_map(place).unwrap_or((MARGIN, TITLE))
    }

    fn size(&self) -> (usize, usize) {
        let rows = self.columns.iter().map(Vec::len).max().unwrap_or(0);
        let columns = self.columns.len();
        let width = 2 * MARGIN + columns * BOX_WIDTH + columns.saturating_sub(1) * GAP_X;
        (width.max(480), TITLE + rows * (BOX_HEIGHT + GAP_Y) + MARGIN)
    }
}

/// The constraints of filters: no stage moves across one.
fn walls<'c>(chain: &'c Chain, order: &[&'c str]) -> Vec<(&'c str, &'c str, String)> {
    let is_filter = |name: &str| chain.filters.iter().any(|filter| filter.name == name);
    let both = (0..order.len()).flat_map(|at| (at + 1..order.len()).map(move |other| (at, other)));
    let both = both.map(|(at, other)| (order[at], order[other]));
    let tied = both.filter(|(front, behind)| is_filter(front) || is_filter(behind));
    tied.map(|(front, behind)| (front, behind, Rule::Filters.to_string())).collect()
}

/// The text in the box of a stage, below its name; filters have no figures.
fn caption(chain: &Chain, name: &str) -> (String, bool) {
    let figures = chain.plan.figures.iter().find(|(known, _)| known == name);
    if let Some((_, figures)) = figures {
        let ends =
            if figures.ends > 0.0 { format!(", ends {:.0} %", 100.0 * figures.ends) } else { String::new() };
        return (format!("{:.0} ns{ends}", figures.ns), false);
    }
    let filter = chain.filters.iter().find(|filter| filter.name == name);
    let mut policies: Vec<&str> =
        filter.map_or(Vec::new(), |filter| filter.policies.iter().map(|(name, _)| *name).collect());
    policies.dedup();
    (policies.join(", "), true)
}

/// The rules that keep a pair in order, each once.
fn rules(pair: &Pair) -> String {
    let blocking = pair.clashes.iter().filter(|report| report.is_blocking);
    let mut rules: Vec<String> = blocking.map(|report| report.clash.rule.to_string()).collect();
    rules.dedup();
    rules.join(" ")
}

/// Draws all chains as SVG, one below the other.
pub(super) fn svg(chains: &[Chain]) -> String {
    let layouts: Vec<Layout<'_>> = chains.iter().map(Layout::of).collect();
    let width = layouts.iter().map(|layout| layout.size().0).max().unwrap_or(0);
    let height: usize = layouts.iter().map(|layout| layout.size().1).sum();
    let mut out = begin(width, height);
    let mut top = 0;
    for (chain, layout) in chains.iter().zip(&layouts) {
        let _ = writeln!(out, "<g transform=\"translate(0 {top})\">");
        draw(&mut out, chain, layout);
        out.push_str("</g>\n");
        top += layout.size().1;
    }
    out.push_str("</svg>\n");
    out
}

/// Draws the chain's title, stages and constraints.
fn draw(out: &mut String, chain: &Chain, layout: &Layout<'_>) {
    let title = format!(
        "{}: {} -> {}, level {}, {:.0} ns/msg",
        chain.name,
        chain.from,
        chain.to,
        chain.level.name(),
        chain.plan.planned_ns
    );
    let _ = writeln!(out, "<text x=\"{MARGIN}\" y=\"26\" font-weight=\"bold\">{}</text>", escaped(&title));
    for (front, behind, rules) in &layout.ties {
        let ((x1, y1), (x2, y2)) = (layout.corner(front), layout.corner(behind));
        let (x1, y1, y2) = (x1 + BOX_WIDTH, y1 + BOX_HEIGHT / 2, y2 + BOX_HEIGHT / 2);
        let middle = usize::midpoint(x1, x2);
        let _ = writeln!(
            out,
            "<path d=\"M{x1} {y1} C{middle} {y1} {middle} {y2} {x2} {y2}\" fill=\"none\" stroke=\"#6b7280\"/>\n\
             <text x=\"{middle}\" y=\"{}\" font-size=\"10\" fill=\"#6b7280\" text-anchor=\"middle\">{}</text>",
            usize::midpoint(y1, y2) - 4,
            escaped(rules)
        );
    }
    for (nth, name) in chain.plan.order.iter().enumerate() {
        let (x, y) = layout.corner(name);
        let label: String = name.chars().take(NAME_MAX).collect();
        let (caption, is_filter) = caption(chain, name);
        let caption: String = caption.chars().take(CAPTION_MAX).collect();
        let edge = if is_filter { " stroke-dasharray=\"5 3\"" } else { "" };
        let text_x = x + 12;
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{BOX_WIDTH}\" height=\"{BOX_HEIGHT}\" rx=\"6\" fill=\"#f3f4f6\" \
             stroke=\"#374151\"{edge}/>\n\
             <text x=\"{text_x}\" y=\"{}\">{}. {}</text>\n\
             <text x=\"{text_x}\" y=\"{}\" font-size=\"11\" fill=\"#4b5563\">{}</text>",
            y + 20,
            nth + 1,
            escaped(&label),
            y + 37,
            escaped(&caption)
        );
    }
}

/// Writes all chains as a graph for Graphviz.
pub(super) fn dot(chains: &[Chain]) -> String {
    let mut out = "digraph weft {\n  rankdir=LR;\n  node [shape=box];\n".to_owned();
    for chain in chains {
        let node = |name: &str| format!("{:?}", format!("{}.{name}", chain.name));
        let _ = writeln!(
            out,
            "  subgraph {:?} {{\n    label={:?};",
            format!("cluster_{}", chain.name),
            chain.name
        );
        for (nth, name) in chain.plan.order.iter().enumerate() {
            let (caption, is_filter) = caption(chain, name);
            let label = format!("{}. {name}\n{caption}", nth + 1);
            let style = if is_filter { " style=dashed" } else { "" };
            let _ = writeln!(out, "    {} [label={label:?}{style}];", node(name));
        }
        for (front, behind, rules) in &Layout::of(chain).ties {
            let _ = writeln!(out, "    {} -> {} [label={rules:?}];", node(front), node(behind));
        }
        out.push_str("  }\n");
    }
    out.push_str("}\n");
    out
}
