//! `weft import`: converts a firewall's rule list into a program.

use crate::cli::{ImportArgs, ListFormat};
use crate::fault::Fault;
use crate::source::read_text;
use crate::stderr;
use crate::stdout;
use weft_control::show::count;
use weft_import::{FAULTS_MAX, Format, Hook, import, insert};
use weft_lang::source::SOURCE_BYTES_MAX;

/// The largest list, in bytes: some millions of rules.
const LIST_BYTES_MAX: u64 = 256 << 20;
/// The maximum number of warnings for a list.
const WARNINGS_MAX: usize = 100;

/// Runs `weft import`.
pub(crate) fn run(args: &ImportArgs) -> Result<(), Fault> {
    let text = read_text(&args.file, LIST_BYTES_MAX)?;
    let format = args.format.map(|format| match format {
        ListFormat::Nft => Format::Nft,
        ListFormat::Iptables => Format::Iptables,
        ListFormat::Ip6tables => Format::Ip6tables,
    });
    let named = |pair: &String| pair.split_once('=').map(|(of, port)| (of.to_owned(), port.to_owned()));
    let names = args.port.iter().map(|pair| {
        named(pair).ok_or_else(|| Fault::usage(format!("--port {pair}: write INTERFACE=PORT, as br-lan=lan")))
    });
    let hook = Hook {
        name: args.hook.clone(),
        out_ports: args.out_port.clone(),
        in_ports: args.in_port.clone(),
        names: names.collect::<Result<_, _>>()?,
    };
    // An editor may have put a byte order mark first.
    let list = import(text.strip_prefix('\u{feff}').unwrap_or(&text), format, &hook);
    for fault in &list.faults {
        stderr::line(format_args!("{}:{fault}", args.file));
    }
    for warning in list.warnings.iter().take(WARNINGS_MAX) {
        stderr::line(format_args!(
            "{}:{}:{}: warning: {}",
            args.file, warning.line, warning.column, warning.reason
        ));
    }
    if let more @ 1.. = list.warnings.len().saturating_sub(WARNINGS_MAX) {
        stderr::line(format_args!("{} more", count(more as u64, "warning")));
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
    let where_to = match list.rows.iter().any(|row| row.out.is_some()) {
        true => "-- By ports of departure: behind l2_switch, or between departure and router.\n",
        false => "",
    };
    let rows_text = insert(&list, &args.table);
    let text = format!("-- {rows} of {}, hook {}\n{where_to}{rows_text}", args.file, args.hook);
    if text.len() > SOURCE_BYTES_MAX {
        return Err(Fault::Input(format!(
            "the list becomes {rows}, {} bytes, and IMPORT and `weft query --file` read {SOURCE_BYTES_MAX} bytes at \
             most; nothing was imported: rules with fewer networks and ports become fewer rows",
            text.len()
        )));
    }
    stdout::print(&text)
}
