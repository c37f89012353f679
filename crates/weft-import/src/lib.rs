//! Firewall lists of other programs, as rows of the library's `ruleset`.
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
//! What `nft list ruleset` and `iptables-save` print is read: the rules of one hook, in their order, each as one row
//! or, where it names several networks, ports or protocols, as one for each combination. What a list says and a row
//! cannot is a [`Fault`] with its place; nothing is left out in silence. Bytes of any kind give rows or faults, in time
//! that grows as their number, and no more than [`ROWS_MAX`] rows.

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

/// Rows that a list may become.
pub const ROWS_MAX: usize = 1_000_000;
/// Rows that one rule may become.
const ROWS_OF_RULE_MAX: usize = 65_536;
/// Faults that are told; what follows is not read.
pub const FAULTS_MAX: usize = 100;
/// Distance of the ranks of two rows, so that others fit between.
const RANK_STEP: u32 = 10;

/// Rows of one INSERT.
const ROWS_OF_INSERT: usize = 1_000;

/// Which rules of a list are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// `input`, `forward` or `output`.
    pub name: String,
    /// The ports by which packets leave: a rule for all interfaces but some is for the others of these. Without them,
    /// it is a fault.
    pub out_ports: Vec<String>,
    /// The ports at which packets arrive: a rule for all interfaces but some is for the others of these. Without them,
    /// it is a fault.
    pub in_ports: Vec<String>,
    /// Interfaces whose ports have other names in the program, and these.
    pub names: Vec<(String, String)>,
}

impl Hook {
    /// What the port of an interface is called in the program.
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

/// How a list is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `nft list ruleset`
    Nft,
    /// `iptables-save`
    Iptables,
    /// `ip6tables-save`
    Ip6tables,
}

/// What is wrong with a list, or not known here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// From 1.
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
    /// What it is.
    pub reason: String,
}

/// A list that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// The rows in order; the first that matches a packet decides.
    pub rows: Vec<Row>,
    /// What was not understood; rules with a fault are left out.
    pub faults: Vec<Fault>,
    /// What was understood and has another meaning here.
    pub warnings: Vec<Fault>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.reason)
    }
}

/// Reads a list; without a format, what it looks like.
pub fn import(text: &str, format: Option<Format>, hook: &Hook) -> List {
    match format {
        Some(Format::Nft) => nft::read(text, hook),
        Some(Format::Iptables) => iptables::read(text, hook, Some(Family::V4)),
        Some(Format::Ip6tables) => iptables::read(text, hook, Some(Family::V6)),
        None if iptables::is_saved(text) => iptables::read(text, hook, None),
        None => nft::read(text, hook),
    }
}

/// The rows as statements that put them into a table.
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
