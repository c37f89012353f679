//! The experiment as a picture: for each objective a bar for each configuration, the longest the best, with its figure.

use std::fmt::Write as _;

use super::report::{Objective, Report, shown};
use crate::svg::{begin, escaped};
use weft_sim::net::silver_bullet::{Application, Configuration};

/// Sizes in pixels.
const WIDTH: usize = 860;
const MARGIN: usize = 24;
const TITLE: usize = 76;
const NAMES: usize = 270;
const BAR_HEIGHT: usize = 16;
const BAR_GAP: usize = 4;
const GROUP_GAP: usize = 22;
const BARS: usize = WIDTH - NAMES - 2 * MARGIN - FIGURE;
const FIGURE: usize = 110;
/// A colour for each configuration, which are told apart in grey as well.
const COLOURS: [&str; 4] = ["#1d4e89", "#7fb069", "#e9b44c", "#9b2915"];

/// All objectives, one below the other.
pub(super) fn svg(report: &Report) -> String {
    let objectives = report.objectives();
    let group = Configuration::ALL.len() * (BAR_HEIGHT + BAR_GAP) + GROUP_GAP;
    let mut out = begin(WIDTH, TITLE + objectives.len() * group + MARGIN);
    let _ = writeln!(
        out,
        "<text x=\"{MARGIN}\" y=\"28\" font-weight=\"bold\">No silver bullet: {}</text>",
        escaped(&report.conditions())
    );
    for (nth, (configuration, colour)) in Configuration::ALL.iter().zip(COLOURS).enumerate() {
        let x = MARGIN + nth * 150;
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"44\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\n\
             <text x=\"{}\" y=\"55\">{}</text>",
            x + 18,
            escaped(report.name(*configuration))
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{}\" y=\"55\" fill=\"#4b5563\">longer is better</text>",
        MARGIN + Configuration::ALL.len() * 150
    );
    for (nth, objective) in objectives.iter().enumerate() {
        draw(&mut out, objective, TITLE + nth * group);
    }
    out.push_str("</svg>\n");
    out
}

fn draw(out: &mut String, objective: &Objective<'_>, top: usize) {
    let comparison = objective.comparison;
    let flows: Vec<&str> = comparison.applications.iter().map(|application| application.name()).collect();
    let title = format!("{}  {}, {}", comparison.name, flows.join(" and "), comparison.link.name());
    let wants = match objective.application {
        Application::Bulk => "bulk: throughput, Mbit/s",
        Application::Web => "web: 99.9 % complete within, s",
        Application::Interactive => "throughput / round trip, Mbit/s/s",
    };
    let _ = writeln!(
        out,
        "<text x=\"{MARGIN}\" y=\"{}\">{}</text>\n\
         <text x=\"{MARGIN}\" y=\"{}\" font-size=\"11\" fill=\"#4b5563\">{}</text>",
        top + 16,
        escaped(&title),
        top + 34,
        escaped(wants)
    );
    let scores = Configuration::ALL.map(|configuration| objective.score(configuration).unwrap_or(0.0));
    let best = scores.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    for (nth, (configuration, colour)) in Configuration::ALL.iter().zip(COLOURS).enumerate() {
        let y = top + nth * (BAR_HEIGHT + BAR_GAP);
        let width = (BARS as f64 * scores[nth] / best).max(1.0) as usize;
        let figure = objective.figure(*configuration).map_or("-".to_owned(), shown);
        let _ = writeln!(
            out,
            "<rect x=\"{}\" y=\"{y}\" width=\"{width}\" height=\"{BAR_HEIGHT}\" fill=\"{colour}\"/>\n\
             <text x=\"{}\" y=\"{}\" font-size=\"12\">{}</text>",
            MARGIN + NAMES,
            MARGIN + NAMES + width + 6,
            y + 13,
            escaped(&figure)
        );
    }
}
