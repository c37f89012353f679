//! The memory limit of a program: the limit itself, and the worst-case use of a program.

use std::path::{Path, PathBuf};
use weft_core::table::Table;
use weft_ir::program::{ChainProgram, Realisation};
use weft_lang::diagnostic::{Diagnostic, code};
use weft_lang::hir::Network;
use weft_lang::types;

/// The memory that a program may use, and the origin of this limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemoryLimit {
    bytes: u64,
    /// The origin, as the end of a sentence.
    by: String,
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
    pub(crate) fn of_option(text: &str) -> Result<u64, String> {
        types::size(text)
            .filter(|bytes| *bytes > 0)
            .ok_or_else(|| "a size is written as in `512 MiB` or `2 GB`".to_owned())
    }

    /// The limit of the option; without an option, the limit that the system sets for this process, if any.
    pub(crate) fn of_node(option: Option<u64>) -> Option<Self> {
        let of_option = option.map(|bytes| Self { bytes, by: "`--memory` allows".to_owned() });
        of_option.or_else(|| {
            let membership = std::fs::read_to_string("/proc/self/cgroup").ok()?;
            let bytes = least(&membership, Path::new("/sys/fs/cgroup"))?;
            Some(Self { bytes, by: "the control group of this process has".to_owned() })
        })
    }

    /// The limit of the option, if there is one.
    pub(crate) fn of_check(option: Option<u64>) -> Option<Self> {
        option.and_then(|bytes| Self::of_node(Some(bytes)))
    }

    /// Checks a program against the limit.
    ///
    /// # Errors
    /// The program may use more.
    pub(crate) fn keep<'p>(
        &self,
        network: &Network,
        programs: impl IntoIterator<Item = &'p ChainProgram>,
        workers: usize,
    ) -> Result<(), Vec<Diagnostic>> {
        let mut parts = parts(network, programs, workers);
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
fn parts<'p>(
    network: &Network,
    programs: impl IntoIterator<Item = &'p ChainProgram>,
    workers: usize,
) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for program in programs {
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
    let of_ports = network.links.iter().map(|link| (&link.name, &link.queue));
    let of_calls = network.call_links.iter().map(|link| (&link.name, &link.queue));
    for (name, queue) in of_ports.chain(of_calls) {
        let program = weft_opt::lower::queue(queue);
        parts.push(Part { what: format!("the queue of link `{name}`"), bytes: program.memory_bytes() });
    }
    parts
}

/// The least limit of a process's control group and of the groups above it; None without a limit. `membership` is the
/// text of `/proc/self/cgroup`, and `root` is the folder of the groups.
fn least(membership: &str, root: &Path) -> Option<u64> {
    let limit = |file: &Path| -> Option<u64> {
        // Version 2 has `max` for no limit, version 1 a number larger than any memory.
        let bytes = std::fs::read_to_string(file).ok()?.trim().parse().ok()?;
        (bytes < 1 << 60).then_some(bytes)
    };
    let of_line = |line: &str| {
        let mut words = line.splitn(3, ':').skip(1);
        let (controllers, group) = (words.next()?, words.next()?);
        let (base, file) = match controllers {
            "" => (root.to_path_buf(), "memory.max"),
            _ if controllers.split(',').any(|of| of == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        // A container may see the name that its group has outside, where the path does not exist.
        let group: PathBuf = base.join(group.trim_start_matches('/'));
        let groups = group.ancestors().take_while(|at| at.starts_with(&base)).map(Path::to_path_buf);
        groups.filter_map(|at| limit(&at.join(file))).min()
    };
    membership.lines().filter_map(of_line).min()
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

    /// The system would kill a node in a container for a program that the node had accepted.
    #[test]
    fn least_cgroup_limit_wins() {
        let root = std::env::temp_dir().join(format!("weft-cgroup-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().expect("it has one")).expect("it is made");
            std::fs::write(path, text).expect("it is written");
        };
        write("memory.max", "max\n");
        write("a/memory.max", "1000\n");
        write("a/b/memory.max", "max\n");
        write("a/b/c/memory.max", "2000\n");
        assert_eq!(least("0::/a/b/c\n", &root), Some(1000));
        assert_eq!(least("0::/\n", &root), None);
        // Version 1.
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        write("memory/x/memory.limit_in_bytes", "3000\n");
        let old = "5:cpu,cpuacct:/y\n4:memory:/x/gone\n";
        assert_eq!(least(old, &root), Some(3000));
        assert_eq!(least(&format!("{old}0::/a\n"), &root), Some(1000));
        std::fs::remove_dir_all(root).expect("it is removed");
    }

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
