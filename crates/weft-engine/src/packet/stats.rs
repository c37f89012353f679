//! The counters of a packet engine, and how those of several workers are added.

use super::group::GroupStats;
use crate::stats::add_counters;
use core::fmt;
use weft_core::Status;
use weft_core::abi::{Counters, Fault};
use weft_ir::program::Check;

/// Counts of one worker since it started.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PacketStats {
    /// The version that applies to arriving frames.
    pub version: u64,
    /// The ports.
    pub ports: Vec<PortStats>,
    /// Port groups.
    pub groups: Vec<GroupStats>,
    /// The chains.
    pub chains: Vec<PacketChainStats>,
    /// Frames dropped by the engine, and not by an element or a check, by reason.
    pub drops: Vec<(DropReason, u64)>,
    /// Copies that left, from MIRROR and from REDIRECT to all other ports.
    pub copies: u64,
    /// Rows that sinks did not accept.
    pub rows_lost: u64,
}

/// Counts of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Its name.
    pub name: String,
    /// Frames received.
    pub received: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Frames sent.
    pub sent: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
}

/// Counts of a chain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PacketChainStats {
    /// Its name.
    pub chain: String,
    /// The current version.
    pub version: u64,
    /// Frames that took it, malformed ones included.
    pub frames: u64,
    /// Its elements, in order.
    pub elements: Vec<(String, Counters)>,
    /// Frames that elements ended.
    pub ends: Vec<End>,
    /// Frames that broke a check of a wire format.
    pub malformed: Vec<(Check, u64)>,
}

/// Frames that an element ended at one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The instance.
    pub element: String,
    /// The source line.
    pub line: u32,
    /// How they ended.
    pub how: EndKind,
    /// The number of frames.
    pub n: u64,
}

/// How an element ends a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndKind {
    /// DROP.
    Dropped,
    /// ABORT.
    Aborted(Status),
    /// REPLY; a frame has no sender to reply to.
    Replied,
    /// REDIRECT to a port that does not exist.
    NoSuchPort,
    /// It set a field to a value of another length.
    LengthMismatch,
    /// It failed.
    Failed(Fault),
}

/// Why the engine dropped a frame, other than by an element or a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum DropReason {
    /// No chain of its port takes it.
    NoChain,
    /// Its chain leads to no port.
    NoPort,
    /// No port of its group is up.
    GroupDown,
    /// The last update removed its port.
    PortGone,
    /// An element or a check ended it, which an update has removed since.
    ByGone,
    /// There was no buffer for a copy.
    NoBuffer,
    /// A MIRROR named a port that does not exist; the frame itself goes on.
    NoMirrorPort,
    /// The limit of delayed frames ([`super::HELD_MAX`]) or held frames ([`super::HOLDS_MAX`]) is reached.
    HeldTooMany,
    /// An element has held it [`super::HOLD_TIMES_MAX`] times.
    HeldTooLong,
    /// A new value has another length than the field, or the frame is too long for a length in its new headers. Several
    /// statements may be the cause; if it is one, [`EndKind::LengthMismatch`] of its element counts the frame.
    LengthMismatch,
    /// No buffer has room for the new headers.
    NoRoom,
    /// A GSO frame cannot be cut, as it must before headers are added; or a packet cannot be cut into fragments that
    /// short.
    NotCut,
    /// It overlaps another fragment of its packet, and no chain of its port defines this version of IP.
    FragmentsOverlap,
    /// More fragments or fragmented packets than a worker tracks.
    FragmentsTooMany,
    /// The first fragment of its packet has not arrived in time.
    NoFirstFragment,
}

impl DropReason {
    /// All reasons, in order.
    pub const ALL: [Self; 15] = [
        Self::NoChain,
        Self::NoPort,
        Self::GroupDown,
        Self::PortGone,
        Self::ByGone,
        Self::NoBuffer,
        Self::NoMirrorPort,
        Self::HeldTooMany,
        Self::HeldTooLong,
        Self::LengthMismatch,
        Self::NoRoom,
        Self::NotCut,
        Self::FragmentsOverlap,
        Self::FragmentsTooMany,
        Self::NoFirstFragment,
    ];

    /// The reason's name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoChain => "no_chain",
            Self::NoPort => "no_port",
            Self::GroupDown => "group_down",
            Self::PortGone => "port_gone",
            Self::ByGone => "ended_by_gone",
            Self::NoBuffer => "pool_exhausted",
            Self::NoMirrorPort => "no_mirror_port",
            Self::HeldTooMany => "held_too_many",
            Self::HeldTooLong => "held_too_long",
            Self::LengthMismatch => "value_unfit",
            Self::NoRoom => "no_room",
            Self::NotCut => "not_cut",
            Self::FragmentsOverlap => "fragments_overlap",
            Self::FragmentsTooMany => "fragments_too_many",
            Self::NoFirstFragment => "no_first_fragment",
        }
    }
}

impl PacketStats {
    /// Adds another worker's counts.
    pub fn merge(&mut self, other: &Self) {
        self.version = self.version.max(other.version);
        self.copies += other.copies;
        self.rows_lost += other.rows_lost;
        for theirs in &other.ports {
            match self.ports.iter_mut().find(|mine| mine.name == theirs.name) {
                Some(mine) => mine.merge(theirs),
                None => self.ports.push(theirs.clone()),
            }
        }
        for theirs in &other.groups {
            match self.groups.iter_mut().find(|mine| mine.name == theirs.name) {
                Some(mine) => mine.merge(theirs),
                None => self.groups.push(theirs.clone()),
            }
        }
        for theirs in &other.chains {
            match self.chains.iter_mut().find(|mine| mine.chain == theirs.chain) {
                Some(mine) => mine.merge(theirs),
                None => self.chains.push(theirs.clone()),
            }
        }
        add_all(&mut self.drops, &other.drops);
    }
}

impl PortStats {
    /// Adds another worker's counts of a port.
    fn merge(&mut self, other: &Self) {
        self.received += other.received;
        self.received_bytes += other.received_bytes;
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
    }
}

impl PacketChainStats {
    /// Adds another worker's counts of a chain.
    fn merge(&mut self, other: &Self) {
        self.version = self.version.max(other.version);
        self.frames += other.frames;
        for (name, theirs) in &other.elements {
            match self.elements.iter_mut().find(|(mine, _)| mine == name) {
                Some((_, mine)) => add_counters(mine, theirs),
                None => self.elements.push((name.clone(), *theirs)),
            }
        }
        for theirs in &other.ends {
            let same = |mine: &&mut End| {
                (&mine.element, mine.line, mine.how) == (&theirs.element, theirs.line, theirs.how)
            };
            match self.ends.iter_mut().find(same) {
                Some(mine) => mine.n += theirs.n,
                None => self.ends.push(theirs.clone()),
            }
        }
        add_all(&mut self.malformed, &other.malformed);
    }
}

impl fmt::Display for EndKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dropped => f.write_str("drop"),
            Self::Aborted(status) => write!(f, "abort {status}"),
            Self::Replied => f.write_str("reply"),
            Self::NoSuchPort => f.write_str("redirect to no port"),
            Self::LengthMismatch => f.write_str("unfit value"),
            Self::Failed(fault) => write!(f, "failed ({})", fault.name()),
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoChain => "no chain takes it",
            Self::NoPort => "no port to leave by",
            Self::GroupDown => "no port of its group is up",
            Self::PortGone => "its port is gone",
            Self::ByGone => "ended by what an update took out",
            Self::NoBuffer => "no buffer for a copy",
            Self::NoMirrorPort => "mirrored to no port",
            Self::HeldTooMany => "too many are delayed",
            Self::HeldTooLong => "an element held it too long",
            Self::LengthMismatch => "a new value does not fit its field",
            Self::NoRoom => "no room for its new headers",
            Self::NotCut => "cannot be cut before headers are put on, or into fragments",
            Self::FragmentsOverlap => "overlaps another fragment, or ends where none may",
            Self::FragmentsTooMany => "too many fragments",
            Self::NoFirstFragment => "the first fragment has not come",
        })
    }
}

/// Adds counts of the same subject, and appends those of new subjects.
fn add_all<T: Clone + PartialEq>(mine: &mut Vec<(T, u64)>, theirs: &[(T, u64)]) {
    for (of, n) in theirs {
        match mine.iter_mut().find(|(mine, _)| mine == of) {
            Some((_, mine)) => *mine += n,
            None => mine.push((of.clone(), *n)),
        }
    }
}
