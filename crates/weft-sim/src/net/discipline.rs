//! The interface of queueing disciplines.
//!
//! A discipline sees items without their payload, and gets the time as an argument. Each item that it accepts leaves
//! exactly once, by [`Discipline::dequeue`] or by [`Discipline::poll_drop`]. `in = out + dropped + queued` holds after
//! every call, and [`crate::net::Net`] checks it.

use std::collections::VecDeque;

/// What a queue knows of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// Its number, in the order in which packets are created.
    pub id: u64,
    /// When it arrived at this queue; the link sets it.
    pub enqueued_at_ns: u64,
    /// Bytes on the wire.
    pub len: u32,
    /// The flow that it belongs to.
    pub flow: u32,
    /// Bytes of its message that were unsent when it was sent, itself included; `u32::MAX` for an endless message.
    pub remaining: u32,
    /// The owner's reference to the packet. A discipline does not change it.
    pub handle: u32,
    /// The application's class or objective; 0 for none.
    pub class: u8,
    /// The ECN codepoint of RFC 3168: 0 not capable, 1 and 2 capable, 3 congestion experienced.
    pub ecn: u8,
}

/// The ECN codepoint for congestion experienced.
pub const ECN_CE: u8 = 3;

/// The contents of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Number of items.
    pub packets: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// Why an item was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// It arrived at a full queue.
    Full,
    /// It was queued, and made room for another.
    PushedOut,
    /// Active queue management dropped it: the sojourn times are too long.
    Late,
}

/// A dropped item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The item.
    pub item: Item,
    /// The reason.
    pub why: DropReason,
}

/// A queue at the head of a link.
///
/// After `enqueue`, `dequeue` and `handle_timeout` the caller calls `poll_drop` until it returns `None`, and then
/// `poll_timeout`. Times are nanoseconds of one monotonic clock.
pub trait Discipline {
    /// Accepts an item, whose time stamp the caller has set to `now_ns`.
    fn enqueue(&mut self, item: Item, now_ns: u64);

    /// The link's current rate in bits per second. Most disciplines ignore it.
    fn set_rate(&mut self, _bits_per_s: u64) {}

    /// The next item to send. `None` if the queue is empty, or holds its items until [`Discipline::poll_timeout`].
    fn dequeue(&mut self, now_ns: u64) -> Option<Item>;

    /// When the caller should call `handle_timeout`, if ever. A queue that holds items back must return a time.
    fn poll_timeout(&self) -> Option<u64> {
        None
    }

    /// That time has come. Then `dequeue` may return an item.
    fn handle_timeout(&mut self, _now_ns: u64) {}

    /// The next item that the last call dropped.
    fn poll_drop(&mut self) -> Option<Dropped>;

    /// The contents of the queue.
    fn backlog(&self) -> Backlog;
}

impl Backlog {
    /// Adds an item.
    pub fn add(&mut self, item: &Item) {
        self.packets += 1;
        self.bytes += u64::from(item.len);
    }

    /// Removes an item.
    pub fn remove(&mut self, item: &Item) {
        self.packets -= 1;
        self.bytes -= u64::from(item.len);
    }
}

/// Dropped items that the caller has not polled yet, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Drops(VecDeque<Dropped>);

impl Drops {
    /// Adds an item.
    pub fn push(&mut self, item: Item, why: DropReason) {
        self.0.push_back(Dropped { item, why });
    }

    /// Removes the oldest item.
    #[inline]
    pub fn poll(&mut self) -> Option<Dropped> {
        self.0.pop_front()
    }
}
