//! What a packet engine counts, and how the counts of several workers are added up.

use super::group::GroupStats;
use crate::stats::add_counters;
use core::fmt;
use weft_core::Status;
use weft_core::abi::{Counters, Fault};
use weft_ir::program::Check;

/// Counts of one worker since it began.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PacketStats {
    /// The version that frames enter under.
    pub version: u64,
    /// The ports.
    pub ports: Vec<PortStats>,
    /// Ports that stand together.
    pub groups: Vec<GroupStats>,
    /// The chains.
    pub chains: Vec<PacketChainStats>,
    /// Frames that went no further for another reason than an element or a wire format, by reason.
    pub lost: Vec<(Lost, u64)>,
    /// Copies that left: of MIRROR, and of REDIRECT to all others.
    pub copies: u64,
    /// Rows that sinks could not take.
    pub rows_lost: u64,
}

/// A port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Its name.
    pub name: String,
    /// Frames that came in.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Frames that left.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
}

/// A chain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PacketChainStats {
    /// Its name.
    pub chain: String,
    /// The version that runs.
    pub version: u64,
    /// Frames that took it, the malformed ones included.
    pub frames: u64,
    /// Its elements, in order.
    pub elements: Vec<(String, Counters)>,
    /// How elements ended frames.
    pub ends: Vec<End>,
    /// Frames that broke a rule of a wire format.
    pub malformed: Vec<(Check, u64)>,
}

/// How an element ended frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The instance.
    pub element: String,
    /// The line of the program.
    pub line: u32,
    /// How.
    pub how: How,
    /// How many.
    pub n: u64,
}

/// How an element ends a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// DROP.
    Dropped,
    /// ABORT.
    Aborted(Status),
    /// REPLY, which a frame has nobody for.
    Replied,
    /// REDIRECT to a port that there is not.
    NoSuchPort,
    /// It gave a field a value that has no room there.
    Unfit,
    /// It failed.
    Failed(Fault),
}

/// Why a frame went no further, if neither an element nor a wire format is why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Lost {
    /// No chain of its port takes it.
    NoChain,
    /// Its chain leads to no port.
    NoPort,
    /// No port of its group has a link that is up.
    GroupDown,
    /// Its port is gone with the last update.
    PortGone,
    /// An element ended it, or it broke a wire format, and an update has taken that out since.
    ByGone,
    /// There was no buffer for a copy.
    NoBuffer,
    /// A MIRROR named a port that there is not; the frame itself goes on.
    NoMirrorPort,
    /// [`super::HELD_MAX`] frames wait for the end of their DELAY, or elements hold [`super::HOLDS_MAX`].
    HeldTooMany,
    /// An element has held it [`super::HOLD_TIMES_MAX`] times.
    HeldTooLong,
    /// A new value is not as long as the bytes that it is to replace, or the frame is too long for a length of its new
    /// headers; and several statements may be why. Where it is one, [`How::Unfit`] is of its element.
    Unfit,
    /// No buffer has room for the headers that were to be put on it.
    NoRoom,
    /// What stands for several packets cannot be cut, and must be before headers are put on; or a packet cannot be cut
    /// into fragments that are so short.
    NotCut,
    /// It overlaps another fragment of its packet, of a version of IP that no chain of its port has a definition of.
    FragmentsOverlap,
    /// There are more fragments, or packets in fragments, than a worker follows.
    FragmentsTooMany,
    /// The first fragment of its packet has not come in time.
    NoFirstFragment,
}

impl Lost {
    /// All reasons, in their order.
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
        Self::Unfit,
        Self::NoRoom,
        Self::NotCut,
        Self::FragmentsOverlap,
        Self::FragmentsTooMany,
        Self::NoFirstFragment,
    ];

    /// The reason as metrics name it.
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
            Self::Unfit => "value_unfit",
            Self::NoRoom => "no_room",
            Self::NotCut => "not_cut",
            Self::FragmentsOverlap => "fragments_overlap",
            Self::FragmentsTooMany => "fragments_too_many",
            Self::NoFirstFragment => "no_first_fragment",
        }
    }
}

impl PacketStats {
    /// Adds another worker's counts to these.
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
        add_all(&mut self.lost, &other.lost);
    }
}

impl PortStats {
    fn merge(&mut self, other: &Self) {
        self.received += other.received;
        self.received_bytes += other.received_bytes;
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
    }
}

impl PacketChainStats {
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

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dropped => f.write_str("drop"),
            Self::Aborted(status) => write!(f, "abort {status}"),
            Self::Replied => f.write_str("reply"),
            Self::NoSuchPort => f.write_str("redirect to no port"),
            Self::Unfit => f.write_str("unfit value"),
            Self::Failed(fault) => write!(f, "failed ({})", fault.name()),
        }
    }
}

impl fmt::Display for Lost {
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
            Self::Unfit => "a new value does not fit its field",
            Self::NoRoom => "no room for its new headers",
            Self::NotCut => "cannot be cut before headers are put on, or into fragments",
            Self::FragmentsOverlap => "overlaps another fragment, or ends where none may",
            Self::FragmentsTooMany => "too many fragments",
            Self::NoFirstFragment => "the first fragment has not come",
        })
    }
}

/// Adds counts by what they are of.
fn add_all<T: Clone + PartialEq>(mine: &mut Vec<(T, u64)>, theirs: &[(T, u64)]) {
    for (of, n) in theirs {
        match mine.iter_mut().find(|(mine, _)| mine == of) {
            Some((_, mine)) => *mine += n,
            None => mine.push((of.clone(), *n)),
        }
    }
}
