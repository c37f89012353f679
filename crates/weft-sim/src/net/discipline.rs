//! What stands at the head of a link: a queue with an opinion.
//!
//! It sees items and never a payload, it is told the time, and it answers for every item that it took: each leaves
//! once, by [`Discipline::dequeue`] or by [`Discipline::poll_drop`]. `in = out + dropped + queued` holds after every
//! call, and [`crate::net::Net`] counts it.

use std::collections::VecDeque;

/// What a queue knows of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// Its number, in the order in which packets are made.
    pub id: u64,
    /// When it came to this queue. The link stamps it.
    pub enqueued_at_ns: u64,
    /// Bytes on the wire.
    pub len: u32,
    /// The flow it belongs to.
    pub flow: u32,
    /// Bytes of its message that the sender has not sent before it, itself included; `u32::MAX` where there is no end.
    pub remaining: u32,
    /// Where the owner of the packet finds the rest of it. A discipline hands it on as it came.
    pub handle: u32,
    /// What the application asks for: the number of an objective or of a class, 0 if it says nothing.
    pub class: u8,
    /// The codepoint of RFC 3168: 0 not capable, 1 and 2 capable, 3 congestion experienced.
    pub ecn: u8,
}

/// The codepoint of RFC 3168 that says that the packet met congestion.
pub const ECN_CE: u8 = 3;

/// What waits in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Items.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Why an item was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// It came when the queue was full.
    Full,
    /// It waited, and made room for another.
    PushedOut,
    /// The queue was managed: items have waited for too long.
    Late,
}

/// An item that will not leave by [`Discipline::dequeue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The item.
    pub item: Item,
    /// Why.
    pub why: DropReason,
}

/// A queue at the head of a link.
///
/// After `enqueue`, `dequeue` and `handle_timeout` the caller asks `poll_drop` until it has nothing more, and then
/// `poll_timeout`. Times are nanoseconds of one clock that never goes back.
pub trait Discipline {
    /// Takes an item, whose stamp the caller has set to `now_ns`.
    fn enqueue(&mut self, item: Item, now_ns: u64);

    /// So many bits a second pass through its link now. Most do not ask.
    fn set_rate(&mut self, _bits_per_s: u64) {}

    /// The item to be sent next; none if the queue is empty, or holds its items until [`Discipline::poll_timeout`].
    fn dequeue(&mut self, now_ns: u64) -> Option<Item>;

    /// When `handle_timeout` is to be called, if at all. A queue that holds items back must name a time.
    fn poll_timeout(&self) -> Option<u64> {
        None
    }

    /// That time has come. Afterwards `dequeue` may have an item.
    fn handle_timeout(&mut self, _now_ns: u64) {}

    /// The next of the items that were dropped by the last call.
    fn poll_drop(&mut self) -> Option<Dropped>;

    /// What waits.
    fn backlog(&self) -> Backlog;
}

impl Backlog {
    /// With one item more.
    pub fn add(&mut self, item: &Item) {
        self.packets += 1;
        self.bytes += u64::from(item.len);
    }

    /// With one item less.
    pub fn remove(&mut self, item: &Item) {
        self.packets -= 1;
        self.bytes -= u64::from(item.len);
    }
}

/// The items that a call has dropped and nobody has asked for yet, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Drops(VecDeque<Dropped>);

impl Drops {
    /// One more.
    pub fn push(&mut self, item: Item, why: DropReason) {
        self.0.push_back(Dropped { item, why });
    }

    /// The oldest.
    #[inline]
    pub fn poll(&mut self) -> Option<Dropped> {
        self.0.pop_front()
    }
}
