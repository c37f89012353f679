//! Converts firewall lists of other programs into rows of the library's `ruleset`.
//!
//! ```
//! use weft_import::{Hook, import, insert};
//! let list = import("table inet f { chain in { type filter hook forward priority 0; policy drop;\n\
//!                    tcp dport { 80, 443 } accept\n } }", None, &Hook::default());
//! assert!(list.faults.is_empty());
//! assert_eq!(list.rows.len(), 2);
//! assert!(insert(&list, "edge.ruleset.rules").starts_with("INSERT INTO edge.ruleset.rules"));
//! ```
//!
//! The input is the output of `nft list ruleset` or `iptables-save`. The rules of one hook become rows, in order. A
//! rule that names several networks, ports or protocols becomes one row per combination. A condition that no row can
//! express is a [`Fault`] with its position; nothing is left out silently. Any input gives rows or faults, in time
//! linear in its size, and at most [`ROWS_MAX`] rows.

mod chains;
mod iptables;
mod names;
mod net;
mod nft;
mod rule;
mod tokens;

use core::fmt;
use std::fmt::Write as _;

pub use net::Net;
use rule::Family;
pub use rule::{Answer, Flags, Row, Verdict};

/// Maximum number of rows of a list.
pub const ROWS_MAX: usize = 1_000_000;
/// Maximum number of rows of one rule.
const ROWS_OF_RULE_MAX: usize = 65_536;
/// Maximum number of reported faults; the rest of the list is not read.
pub const FAULTS_MAX: usize = 100;
/// Distance between the ranks of two rows, so that rows can be inserted between them.
const RANK_STEP: u32 = 10;

/// Rows per INSERT statement.
const ROWS_OF_INSERT: usize = 1_000;

/// Selects the rules of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// `input`, `forward` or `output`.
    pub name: String,
    /// The output ports. A rule for all interfaces but some becomes rows for the others of these ports. If there are
    /// none, such a rule is a fault.
    pub out_ports: Vec<String>,
    /// The input ports. A rule for all interfaces but some becomes rows for the others of these ports. If there are
    /// none, such a rule is a fault.
    pub in_ports: Vec<String>,
    /// Interfaces whose ports have another name in the program: the interface's name, and the port's.
    pub names: Vec<(String, String)>,
}

impl Hook {
    /// The name of an interface's port in the program.
    fn port_of(&self, interface: &str) -> String {
        let named = self.names.iter().find(|(known, _)| known == interface);
        named.map_or(interface, |(_, port)| port).to_owned()
    }
}

impl Default for Hook {
    fn default() -> Self {
        Self { name: "forward".to_owned(), out_ports: Vec::new(), in_ports: Vec::new(), names: Vec::new() }
    }
}

/// The format of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `nft list ruleset`
    Nft,
    /// `iptables-save`
    Iptables,
    /// `ip6tables-save`
    Ip6tables,
}

/// An error in a list, or a condition that is not supported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1, in characters.
    pub column: u32,
    /// The reason.
    pub reason: String,
}

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// The rows in order; the first row that matches a packet decides.
    pub rows: Vec<Row>,
    /// Errors. Rules with a fault are left out.
    pub faults: Vec<Fault>,
    /// Conditions that have another meaning here.
    pub warnings: Vec<Fault>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.reason)
    }
}

/// Reads a list. Without a format, it is detected.
pub fn import(text: &str, format: Option<Format>, hook: &Hook) -> List {
    match format {
        Some(Format::Nft) => nft::read(text, hook),
        Some(Format::Iptables) => iptables::read(text, hook, Some(Family::V4)),
        Some(Format::Ip6tables) => iptables::read(text, hook, Some(Family::V6)),
        None if iptables::is_saved(text) => iptables::read(text, hook, None),
        None => nft::read(text, hook),
    }
}

/// INSERT statements that put the rows into a table.
pub fn insert(list: &List, table: &str) -> String {
    let mut text = String::new();
    let ranked = list.rows.iter().zip((1..).map(|n: u32| n.saturating_mul(RANK_STEP)));
    for (nth, (row, rank)) in ranked.enumerate() {
        if nth % ROWS_OF_INSERT == 0 {
            if nth > 0 {
                text.push_str(";\n");
            }
            let _ = writeln!(
                text,
                "INSERT INTO {table} (rank, at, out, src, dst, protocol, next_header, src_low, src_high, dst_low, \
                 dst_high,\n  icmp, icmp_code, flags, flag_mask, state, verdict, code, code6, note) VALUES"
            );
        } else {
            text.push_str(",\n");
        }
        let _ = write!(text, "  ({rank}, {row})");
    }
    if !list.rows.is_empty() {
        text.push_str(";\n");
    }
    text
}
