//! Handlers that are called without a detour.
//!
//! No program has more words than its limits allow. Who has room for so many, whatever lies behind those of a program,
//! gives a handler arrays of a known length: nothing is left to be checked or looked up at every call.

use super::{EventWords, Field, HEADERS_MAX, Moment, PartitionsBy, VARS_MAX, word};
use core::any::Any;
use core::fmt;
use std::sync::Arc;

/// As many words as a node or a partition may have.
pub type RecordWords = [u64; word::PARTITION_VARS as usize + VARS_MAX];
/// As many words as a packet may have.
pub type PacketWords = [u64; word::FIELDS as usize + Field::ALL.len() + HEADERS_MAX + PartitionsBy::MAX];

/// Code of a handler: on the words of the node, the partition, the packet and the event. It ends as
/// [`super::QueueCode::run`] does.
pub type Entry = extern "C" fn(&mut RecordWords, &mut RecordWords, &mut PacketWords, &mut EventWords) -> u64;

/// A handler that touches no words but those that its [`Entry`] is given.
#[derive(Clone)]
pub struct Direct {
    entry: Entry,
    /// What the code lies in.
    _code: Arc<dyn Any + Send + Sync>,
}

impl Direct {
    /// That of a function, and what has to be kept as long as it may be called.
    pub fn new(entry: Entry, code: Arc<dyn Any + Send + Sync>) -> Self {
        Self { entry, _code: code }
    }

    /// Runs it. What the moment has not may be any words.
    #[inline(always)]
    pub fn run(
        &self,
        node: &mut RecordWords,
        partition: &mut RecordWords,
        packet: &mut PacketWords,
        event: &mut EventWords,
    ) -> u64 {
        (self.entry)(node, partition, packet, event)
    }
}

impl fmt::Debug for Direct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("direct")
    }
}

impl Moment {
    /// Moments of which a level has one handler at most.
    pub const SINGLES: usize = 7;

    /// Which one of those it is; of a timer, which timer.
    #[inline(always)]
    pub fn single(self) -> Result<usize, usize> {
        match self {
            Self::Key => Ok(0),
            Self::PacketRank => Ok(1),
            Self::Enqueue => Ok(2),
            Self::Activate => Ok(3),
            Self::Select => Ok(4),
            Self::Dequeue => Ok(5),
            Self::Empty => Ok(6),
            Self::Every(nth) | Self::EachPartition(nth) => Err(usize::from(nth)),
        }
    }
}
