//! `weft fmt`

use super::render_options;
use crate::cli::FmtArgs;
use crate::fault::Fault;
use std::io::Write as _;
use weft_lang::diagnostic::{render, render_all};
use weft_lang::source::SourceMap;
use weft_lang::{format, parser};

pub(crate) fn run(args: &FmtArgs) -> Result<(), Fault> {
    let mut is_faulty = false;
    let mut would_change = 0;
    for path in &args.files {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Fault::environment(format!("cannot read `{path}`: {error}")))?;
        let Some(formatted) = formatted(path, &text) else {
            is_faulty = true;
            continue;
        };
        if args.stdout {
            let _ = std::io::stdout().write_all(formatted.as_bytes());
        } else if formatted != text {
            would_change += 1;
            println_path(path);
            if !args.check {
                std::fs::write(path, formatted)
                    .map_err(|error| Fault::environment(format!("cannot write `{path}`: {error}")))?;
            }
        }
    }
    if is_faulty || (args.check && would_change > 0) { Err(Fault::Told) } else { Ok(()) }
}

/// None, and the faults are told, if the text has any.
fn formatted(path: &str, text: &str) -> Option<String> {
    let mut sources = SourceMap::new();
    let file = match sources.add(path.to_owned(), text.to_owned()) {
        Ok(file) => file,
        Err(diagnostic) => {
            eprint!("{}", render(&diagnostic, &sources, render_options()));
            return None;
        }
    };
    let done = format::format(&sources, file);
    if done.is_none() {
        let (_, diagnostics) = parser::parse(&sources, file);
        eprint!("{}", render_all(&diagnostics, &sources, render_options()));
    }
    done
}

fn println_path(path: &str) {
    let _ = writeln!(std::io::stdout(), "{path}");
}
