//! `weft import`

use super::count;
use crate::cli::{ImportArgs, ListFormat};
use crate::fault::Fault;
use crate::source::unreadable;
use crate::stderr;
use crate::stdout;
use std::fs;
use std::io;
use weft_import::{FAULTS_MAX, Format, Hook, import, insert};

pub(crate) fn run(args: &ImportArgs) -> Result<(), Fault> {
    let text = read(&args.file)?;
    let format = args.format.map(|format| match format {
        ListFormat::Nft => Format::Nft,
        ListFormat::Iptables => Format::Iptables,
        ListFormat::Ip6tables => Format::Ip6tables,
    });
    let hook = Hook { name: args.hook.clone(), out_port: args.out_port.clone() };
    // An editor may have put a byte order mark in front.
    let list = import(text.strip_prefix('\u{feff}').unwrap_or(&text), format, &hook);
    for fault in &list.faults {
        stderr::line(format_args!("{}:{fault}", args.file));
    }
    let n = list.faults.len();
    let faults = format!("{} not understood", count(n as u64, "line"));
    if n >= FAULTS_MAX {
        return Err(Fault::Input(format!("{faults}, and perhaps more; nothing was imported")));
    }
    if n > 0 && !args.keep_going {
        return Err(Fault::Input(format!(
            "{faults}; nothing was imported (--keep-going imports the other rules)"
        )));
    }
    if n > 0 {
        stderr::line(format_args!("{faults}: those rules are left out"));
    }
    let rows = count(list.rows.len() as u64, "row");
    stdout::print(&format!("-- {rows} of {}, hook {}\n{}", args.file, args.hook, insert(&list, &args.table)))
}

/// Text from a file, or from standard input.
fn read(path: &str) -> Result<String, Fault> {
    let text = match path {
        "-" => io::read_to_string(io::stdin()),
        path => fs::read_to_string(path),
    };
    text.map_err(|error| unreadable(&format!("`{path}`"), error))
}
