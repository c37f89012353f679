//! The streams of a connection, and a short memory of ended ones.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use weft_core::Time;

use super::StreamId;
use super::limits::RECENT_STREAMS_MAX;
use crate::session::http2::headers::Headers;

/// One direction of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Half {
    /// Nothing was sent in this direction yet.
    Idle,
    /// The final header list was sent: data and trailers may follow.
    Open,
    /// END_STREAM was sent.
    Closed,
}

/// A stream that has not ended in both directions.
pub(super) struct Stream {
    pub(super) id: StreamId,
    /// The peer's window for us, in bytes; a change of its settings can make it negative.
    pub(super) send_window: i32,
    /// Our window for the peer, in bytes.
    pub(super) recv_window: i32,
    /// Consumed bytes that are not returned to the peer yet.
    pub(super) credit: u32,
    pub(super) send: Half,
    pub(super) recv: Half,
    /// The request is a HEAD, so `content-length` is not the length of the response's body.
    pub(super) is_head_request: bool,
    /// Remaining bytes of the body, or [`Stream::ANY_LENGTH`].
    pub(super) body_left: u64,
    /// Data that exceeds the windows.
    pub(super) queue: Option<Box<Queue>>,
}

impl Stream {
    pub(super) const ANY_LENGTH: u64 = u64::MAX;

    /// Creates an idle stream with these windows.
    pub(super) fn new(id: StreamId, send_window: i32, recv_window: i32) -> Self {
        Self {
            id,
            send_window,
            recv_window,
            credit: 0,
            send: Half::Idle,
            recv: Half::Idle,
            is_head_request: false,
            body_left: Self::ANY_LENGTH,
            queue: None,
        }
    }

    /// Whether a body that ends now has the announced length.
    pub(super) fn is_body_complete(&self) -> bool {
        self.body_left == 0 || self.body_left == Self::ANY_LENGTH
    }
}

/// Data that waits for a window.
pub(super) struct Queue {
    pub(super) bytes: Vec<u8>,
    /// Number of sent `bytes`.
    pub(super) sent: usize,
    pub(super) end: QueueEnd,
    /// When a byte was sent last.
    pub(super) since: Time,
    /// The stream is in the list of those that wait for the connection's window.
    pub(super) is_listed: bool,
}

/// The continuation after the queued data.
pub(super) enum QueueEnd {
    /// Possibly more data.
    Open,
    /// END_STREAM with the last byte.
    Data,
    /// These trailers.
    Trailers(Box<Headers>),
}

impl Queue {
    pub(super) fn waiting(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }
}

/// Streams by identifier.
///
/// An open-addressing table maps the identifier to an index in `slab`. Its hash scatters the identifiers, which are
/// consecutive: in one run of full entries, a removal would have to walk through all of them.
#[derive(Default)]
pub(super) struct Streams {
    /// Pairs of identifier (0 is free) and index; a power of two of them, at most half used.
    table: Vec<(StreamId, u32)>,
    slab: Vec<Option<Stream>>,
    free: Vec<u32>,
    recent: VecDeque<(StreamId, Ending)>,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Both sides sent END_STREAM.
    Complete,
    ResetByUs,
    ResetByPeer,
}

/// The index of a stream, valid until a stream is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(u32);

impl Streams {
    /// Number of streams.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.slab.len() - self.free.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub(super) fn find(&self, id: StreamId) -> Option<Slot> {
        self.position(id).map(|at| Slot(self.table[at].1))
    }

    /// Adds a new stream.
    pub(super) fn insert(&mut self, stream: Stream) -> Slot {
        if (self.len() + 1) * 2 > self.table.len() {
            self.grow();
        }
        let id = stream.id;
        let place = self.free.pop().unwrap_or_else(|| {
            self.slab.push(None);
            self.slab.len() as u32 - 1
        });
        self.slab[place as usize] = Some(stream);
        self.link(id, place);
        Slot(place)
    }

    /// Removes a stream and remembers how it ended.
    pub(super) fn remove(&mut self, slot: Slot, ending: Ending) -> Stream {
        let stream = self.slab[slot.0 as usize].take().expect("a slot names a stream");
        self.free.push(slot.0);
        self.unlink(stream.id);
        self.remember(stream.id, ending);
        stream
    }

    /// Remembers how a stream ended that may never have been in the table.
    pub(super) fn remember(&mut self, id: StreamId, ending: Ending) {
        if self.recent.len() == RECENT_STREAMS_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((id, ending));
    }

    /// How a stream ended, if it ended recently.
    pub(super) fn ending(&self, id: StreamId) -> Option<Ending> {
        self.recent.iter().rev().find(|r| r.0 == id).map(|r| r.1)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.slab.iter_mut().flatten()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.slab.iter().flatten()
    }

    /// Releases unused memory while there are no streams.
    pub(super) fn trim(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        }
    }

    fn home(&self, id: StreamId) -> usize {
        (id.wrapping_mul(0x9e37_79b9) >> 8) as usize & (self.table.len() - 1)
    }

    /// Finds the table index of a stream; None if there is no such stream.
    #[inline]
    fn position(&self, id: StreamId) -> Option<usize> {
        if self.table.is_empty() {
            return None;
        }
        let mask = self.table.len() - 1;
        let mut at = self.home(id);
        // At least half of the table is free, so the search ends.
        loop {
            match self.table[at].0 {
                found if found == id => return Some(at),
                0 => return None,
                _ => at = (at + 1) & mask,
            }
        }
    }

    /// Adds a stream to the table. The table must have a free entry.
    fn link(&mut self, id: StreamId, place: u32) {
        let mask = self.table.len() - 1;
        let mut at = self.home(id);
        while self.table[at].0 != 0 {
            at = (at + 1) & mask;
        }
        self.table[at] = (id, place);
    }

    /// Frees the entry of `id`, and moves up displaced entries after it.
    fn unlink(&mut self, id: StreamId) {
        let mask = self.table.len() - 1;
        let Some(mut hole) = self.position(id) else { return };
        let mut at = (hole + 1) & mask;
        while self.table[at].0 != 0 {
            let home = self.home(self.table[at].0);
            let distance = |from: usize| at.wrapping_sub(from) & mask;
            if distance(home) >= distance(hole) {
                self.table[hole] = self.table[at];
                hole = at;
            }
            at = (at + 1) & mask;
        }
        self.table[hole] = (0, 0);
    }

    /// Doubles the table, and adds its entries again.
    fn grow(&mut self) {
        let n = (self.table.len() * 2).max(8);
        let old = std::mem::replace(&mut self.table, vec![(0, 0); n]);
        for (id, place) in old.into_iter().filter(|&(id, _)| id != 0) {
            self.link(id, place);
        }
    }
}

impl Index<Slot> for Streams {
    type Output = Stream;

    #[inline]
    fn index(&self, slot: Slot) -> &Stream {
        self.slab[slot.0 as usize].as_ref().expect("a slot names a stream")
    }
}

impl IndexMut<Slot> for Streams {
    #[inline]
    fn index_mut(&mut self, slot: Slot) -> &mut Stream {
        self.slab[slot.0 as usize].as_mut().expect("a slot names a stream")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn stream_table_matches_set(steps in proptest::collection::vec((any::<bool>(), 0u32..64, 0u32..4), 1..400)) {
            let (mut streams, mut model) = (Streams::default(), BTreeSet::new());
            for (insert, low, high) in steps {
                // Identifiers that share their low bits collide in the table.
                let id = (high << 12) + low * 2 + 1;
                if insert && model.insert(id) {
                    streams.insert(Stream::new(id, 0, 0));
                } else if !insert && model.remove(&id) {
                    let slot = streams.find(id).unwrap();
                    prop_assert_eq!(streams.remove(slot, Ending::Complete).id, id);
                }
                prop_assert_eq!(streams.len(), model.len());
                for &id in &model {
                    prop_assert_eq!(streams.find(id).map(|s| streams[s].id), Some(id));
                }
                prop_assert_eq!(streams.find(id).is_some(), model.contains(&id));
            }
        }
    }

    #[test]
    fn stream_size_is_bounded() {
        assert!(size_of::<Option<Stream>>() <= 100, "{}", size_of::<Option<Stream>>());
    }
}
