//! The memory limit of a program: the limit itself, and the worst-case use of a program.

use weft_core::table::Table;
use weft_ir::program::Realisation;
use weft_lang::diagnostic::{Diagnostic, code};
use weft_lang::hir::Network;
use weft_lang::types;
use weft_opt::judge::Lowered;

/// The memory that a program may use, and the origin of this limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    bytes: u64,
    /// The origin, as the end of a sentence.
    by: &'static str,
}

/// The memory of one part of a program when it is full.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    what: String,
    bytes: u64,
}

/// The number of parts that an error lists.
const PARTS_SHOWN: usize = 5;

impl MemoryLimit {
    /// Parses an option such as `512 MiB`.
    ///
    /// # Errors
    /// The text is no size.
    pub fn of_option(text: &str) -> Result<u64, String> {
        types::size(text)
            .filter(|bytes| *bytes > 0)
            .ok_or_else(|| "a size is written as in `512 MiB` or `2 GB`".to_owned())
    }

    /// The limit of the option `--memory`.
    pub fn given(bytes: u64) -> Self {
        Self { bytes, by: "`--memory` allows" }
    }

    /// The limit of the control group of this process.
    pub fn of_group(bytes: u64) -> Self {
        Self { bytes, by: "the control group of this process has" }
    }

    /// Checks a program against the limit.
    ///
    /// # Errors
    /// The program may use more.
    pub fn keep(&self, network: &Network, lowered: &Lowered, workers: usize) -> Result<(), Vec<Diagnostic>> {
        let mut parts = parts(network, lowered, workers);
        let all = parts.iter().fold(0_u64, |all, part| all.saturating_add(part.bytes));
        if all <= self.bytes {
            return Ok(());
        }
        parts.sort_by_key(|part| std::cmp::Reverse(part.bytes));
        let message = format!("the program may take {}, and {} {}", shown(all), self.by, shown(self.bytes));
        let mut diagnostic = Diagnostic::error(code::OVER_MEMORY, message);
        for part in parts.iter().take(PARTS_SHOWN) {
            diagnostic = diagnostic.with_note(format!("{} may take {}", part.what, shown(part.bytes)));
        }
        let help = "give tables a smaller MAX and queues a smaller LIMIT, or more memory: `--memory SIZE` says how \
                    much there is for the program";
        Err(vec![diagnostic.with_help(help)])
    }
}

/// The memory of a program's parts when they are full: rows of tables up to their MAX, packets of queues up to their
/// LIMIT. The memory is allocated as they fill.
fn parts(network: &Network, lowered: &Lowered, workers: usize) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for program in lowered.chains.iter().map(|chain| &chain.program) {
        for table in &program.tables {
            // A table without an owner is shared by all chains.
            let what = match table.owner.is_empty() {
                true => format!("table `{}`", table.spec.name),
                false => format!("table `{}.{}.{}`", program.name, table.owner, table.spec.name),
            };
            if parts.iter().any(|part| part.what == what) {
                continue;
            }
            let copies = if table.realisation == Realisation::PerWorker { workers as u64 } else { 1 };
            let bytes = Table::memory_bytes_max_of(&table.spec).saturating_mul(copies);
            parts.push(Part { what, bytes });
        }
    }
    let of_ports = network.links.iter().zip(&lowered.links);
    let of_ports = of_ports.map(|(link, lowered)| (&link.name, &lowered.queue));
    let of_calls = network.call_links.iter().zip(&lowered.call_links);
    let of_calls = of_calls.map(|(link, queue)| (&link.name, queue));
    for (name, queue) in of_ports.chain(of_calls) {
        parts.push(Part { what: format!("the queue of link `{name}`"), bytes: queue.memory_bytes() });
    }
    parts
}

/// Formats a number of bytes in a suitable unit.
fn shown(bytes: u64) -> String {
    match bytes {
        0..0x10_0000 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        0x10_0000..0x4000_0000 => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
        _ => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wrongly parsed limit would refuse good programs, or none.
    #[test]
    fn memory_option_parses_units() {
        assert_eq!(MemoryLimit::of_option("512 MiB"), Ok(512 << 20));
        assert_eq!(MemoryLimit::of_option("2 GB"), Ok(2 << 30));
        for wrong in ["", "0 B", "-1 MiB", "much"] {
            assert!(MemoryLimit::of_option(wrong).is_err(), "{wrong}");
        }
    }
}
