//! `weft man`: the manual pages, and the book's reference of the command line, from the text of `--help`.

use crate::cli::{Cli, ManArgs};
use crate::fault::Fault;
use crate::stdout;
use clap::{Command, CommandFactory as _};
use clap_mangen::Man;
use std::io::{self, Write as _};

pub(crate) fn run(args: &ManArgs) -> Result<(), Fault> {
    let text = if args.markdown { markdown().into_bytes() } else { page(args.command.as_deref())? };
    stdout::print_bytes(&text)
}

/// The manual page of `weft`, or of one of its commands.
fn page(name: Option<&str>) -> Result<Vec<u8>, Fault> {
    let mut command = Cli::command();
    command.build();
    let shown = match name {
        None => command,
        Some(name) => {
            // `sim no-silver-bullet` is a subcommand.
            let below = |command: &Command, name: &str| {
                command.get_subcommands().find(|c| c.get_name() == name && !c.is_hide_set()).cloned()
            };
            let found = name.split(' ').try_fold(command, |command, name| below(&command, name));
            found.ok_or_else(|| Fault::usage(format!("`weft` has no command `{name}`")))?
        }
    };
    Ok(render(shown).expect("a vector takes all bytes"))
}

/// Renders the manual page of a command.
fn render(command: Command) -> io::Result<Vec<u8>> {
    let (end, has_commands) = (command.get_after_help().map(ToString::to_string), command.has_subcommands());
    let version = format!("weft {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command).source(version).manual("Weft");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if has_commands {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(end) = end {
        // Keep the lines as they are; roff would fill them otherwise.
        let lines = end.replace('\\', "\\\\").replace('-', "\\-");
        let lines = lines.trim_start_matches("Examples:\n");
        writeln!(page, ".SH EXAMPLES\n.nf\n{lines}\n.fi")?;
    }
    Ok(page)
}

/// Writes the book's page of the command line, in Markdown.
fn markdown() -> String {
    let mut command = Cli::command();
    let mut text = format!("# The command line\n\n```text\n{}```\n", command.render_long_help());
    for sub in command.get_subcommands() {
        describe(sub, "weft", &mut text);
    }
    text
}

/// Describes a command and its subcommands.
fn describe(command: &Command, above: &str, text: &mut String) {
    if command.is_hide_set() {
        return;
    }
    let name = format!("{above} {}", command.get_name());
    let help = command.clone().bin_name(&name).render_long_help();
    text.push_str(&format!("\n## {name}\n\n```text\n{help}```\n"));
    for sub in command.get_subcommands() {
        describe(sub, &name, text);
    }
}
