//! Direct calls of handlers: no call checks or looks up anything.

use super::{EventWords, Moment, PacketWords, RecordWords, Words};
use core::any::Any;
use core::fmt;
use std::sync::Arc;

/// A cache line of a queue's records.
pub type CacheLine = [u64; 8];
/// Prefetches the line with this index, if it exists. It changes nothing.
pub type Fetch = fn(&[CacheLine], usize);

/// The code of a handler, on the words of node, partition, packet and event. It returns the same as
/// [`super::QueueCode::run`].
pub type Entry = extern "C" fn(&mut RecordWords, &mut RecordWords, &mut PacketWords, &mut EventWords) -> u64;

/// A handler that accesses only the words that its [`Entry`] gets.
#[derive(Clone)]
pub struct Direct {
    entry: Entry,
    /// Keeps the code alive.
    _code: Arc<dyn Any + Send + Sync>,
}

impl Direct {
    /// A direct handler of a function; `code` keeps it alive.
    pub fn new(entry: Entry, code: Arc<dyn Any + Send + Sync>) -> Self {
        Self { entry, _code: code }
    }

    /// Runs the handler.
    #[inline(always)]
    pub fn run(&self, words: Words<'_>) -> u64 {
        (self.entry)(words.node, words.partition, words.packet, words.event)
    }
}

impl fmt::Debug for Direct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("direct")
    }
}

impl Moment {
    /// The moments with at most one handler per level.
    pub const SINGLES: usize = 7;

    /// The index of a moment with at most one handler per level. For a timer, its number as the error.
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
