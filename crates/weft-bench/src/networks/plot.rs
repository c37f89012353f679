//! Draws figures: a group for each objective, with a bar for each queue. The longest bar is the best, and has its
//! figure beside it.

use std::fmt::Write as _;

use weft_control::show::svg::{begin, escaped};

/// Sizes in pixels.
const WIDTH: usize = 860;
const MARGIN: usize = 24;
const TITLE: usize = 76;
const LEGEND: usize = 150;
const LEGEND_HEIGHT: usize = 20;
const NAMES: usize = 270;
const BAR_HEIGHT: usize = 16;
const BAR_GAP: usize = 4;
const GROUP_GAP: usize = 22;
const BARS: usize = WIDTH - NAMES - 2 * MARGIN - FIGURE;
const FIGURE: usize = 110;
/// The maximum width of a letter, and the size of a legend's square with the space around it.
const LETTER: usize = 8;
const SQUARE: usize = 30;
/// A colour for each queue; the first are distinct in grey as well.
const COLOURS: [&str; 8] =
    ["#1d4e89", "#7fb069", "#e9b44c", "#9b2915", "#6b7280", "#a78bba", "#4fb0ae", "#3f3f46"];

/// A chart: the compared queues, and their figures.
pub(super) struct Chart {
    pub(super) title: String,
    /// The names of the compared queues.
    pub(super) names: Vec<String>,
    pub(super) groups: Vec<Group>,
}

/// One objective.
pub(super) struct Group {
    pub(super) title: String,
    /// The unit.
    pub(super) wants: String,
    /// For each queue its score, where more is better, and the label of its bar.
    pub(super) bars: Vec<(f64, String)>,
}

impl Chart {
    /// Draws all groups, one below the other.
    pub(super) fn svg(&self) -> String {
        let group_height = self.names.len() * (BAR_HEIGHT + BAR_GAP) + GROUP_GAP;
        // The explanation of the bars goes after the names.
        let letters = self.names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let legend = LEGEND.max(SQUARE + LETTER * letters);
        let legends = ((WIDTH - MARGIN) / legend).max(1);
        let title_height = TITLE + self.names.len() / legends * LEGEND_HEIGHT;
        let mut out = begin(WIDTH, title_height + self.groups.len() * group_height + MARGIN);
        let _ = writeln!(
            out,
            "<text x=\"{MARGIN}\" y=\"28\" font-weight=\"bold\">{}</text>",
            escaped(&self.title)
        );
        let place = |nth: usize| (MARGIN + nth % legends * legend, 44 + nth / legends * LEGEND_HEIGHT);
        for (nth, name) in self.names.iter().enumerate() {
            let ((x, y), colour) = (place(nth), colour(nth));
            let _ = writeln!(
                out,
                "<rect x=\"{x}\" y=\"{y}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\n\
                 <text x=\"{}\" y=\"{}\">{}</text>",
                x + 18,
                y + 11,
                escaped(name)
            );
        }
        let (x, y) = place(self.names.len());
        let _ = writeln!(out, "<text x=\"{x}\" y=\"{}\" fill=\"#4b5563\">longer is better</text>", y + 11);
        for (nth, group) in self.groups.iter().enumerate() {
            group.draw(&mut out, title_height + nth * group_height);
        }
        out.push_str("</svg>\n");
        out
    }
}

impl Group {
    /// Appends one plot to the SVG, from `top` down.
    fn draw(&self, out: &mut String, top: usize) {
        let _ = writeln!(
            out,
            "<text x=\"{MARGIN}\" y=\"{}\">{}</text>\n\
             <text x=\"{MARGIN}\" y=\"{}\" font-size=\"11\" fill=\"#4b5563\">{}</text>",
            top + 16,
            escaped(&self.title),
            top + 34,
            escaped(&self.wants)
        );
        let best = self.bars.iter().map(|(score, _)| *score).fold(f64::MIN_POSITIVE, f64::max);
        for (nth, (score, figure)) in self.bars.iter().enumerate() {
            let y = top + nth * (BAR_HEIGHT + BAR_GAP);
            let width = (BARS as f64 * score / best).max(1.0) as usize;
            let _ = writeln!(
                out,
                "<rect x=\"{}\" y=\"{y}\" width=\"{width}\" height=\"{BAR_HEIGHT}\" fill=\"{}\"/>\n\
                 <text x=\"{}\" y=\"{}\" font-size=\"12\">{}</text>",
                MARGIN + NAMES,
                colour(nth),
                MARGIN + NAMES + width + 6,
                y + 13,
                escaped(figure)
            );
        }
    }
}

fn colour(nth: usize) -> &'static str {
    COLOURS[nth % COLOURS.len()]
}
