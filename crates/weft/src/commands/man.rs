//! `weft man`: the manual pages, and the reference of the command line in the book, from the same text as `--help`.

use crate::cli::{Cli, ManArgs};
use crate::fault::Fault;
use clap::CommandFactory as _;
use std::io::Write as _;

pub(crate) fn run(args: &ManArgs) -> Result<(), Fault> {
    let mut stdout = std::io::stdout().lock();
    let text = if args.markdown { markdown().into_bytes() } else { page(args.command.as_deref())? };
    // A reader that has seen enough may close its end.
    let _ = stdout.write_all(&text);
    Ok(())
}

/// The manual page of `weft`, or of one of its commands.
fn page(name: Option<&str>) -> Result<Vec<u8>, Fault> {
    let mut command = Cli::command();
    command.build();
    let shown = match name {
        None => command,
        Some(name) => {
            let found = command.get_subcommands().find(|c| c.get_name() == name && !c.is_hide_set()).cloned();
            found.ok_or_else(|| Fault::Usage(format!("`weft` has no command `{name}`")))?
        }
    };
    let mut page = Vec::new();
    let version = format!("weft {}", env!("CARGO_PKG_VERSION"));
    clap_mangen::Man::new(shown)
        .source(version)
        .manual("Weft")
        .render(&mut page)
        .expect("a vector takes all bytes");
    Ok(page)
}

/// The page of the book.
fn markdown() -> String {
    let mut command = Cli::command();
    let names: Vec<_> =
        command.get_subcommands().filter(|c| !c.is_hide_set()).map(|c| c.get_name().to_owned()).collect();
    let mut text = format!("# The command line\n\n```text\n{}```\n", command.render_long_help());
    for name in names {
        let Some(sub) = command.find_subcommand_mut(&name) else { continue };
        let help = sub.clone().bin_name(format!("weft {name}")).render_long_help();
        text.push_str(&format!("\n## weft {name}\n\n```text\n{help}```\n"));
    }
    text
}
