//! `weft man`: the reference of the command line, from the same text as `--help`.

use crate::cli::Cli;
use crate::fault::Fault;
use clap::CommandFactory as _;
use std::io::Write as _;

pub(crate) fn run() -> Result<(), Fault> {
    let mut stdout = std::io::stdout().lock();
    let mut command = Cli::command();
    let names: Vec<_> =
        command.get_subcommands().filter(|c| !c.is_hide_set()).map(|c| c.get_name().to_owned()).collect();
    let _ = writeln!(stdout, "# The command line\n\n```text\n{}```", command.render_long_help());
    for name in names {
        let Some(sub) = command.find_subcommand_mut(&name) else { continue };
        let help = sub.clone().bin_name(format!("weft {name}")).render_long_help();
        let _ = writeln!(stdout, "\n## weft {name}\n\n```text\n{help}```");
    }
    Ok(())
}
