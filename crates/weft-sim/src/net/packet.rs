//! Stores packets in flight in an arena. A packet is an index; creating one allocates only if more packets are in
//! flight than ever before.

use super::discipline::Item;
use super::tcp::Stamp;

/// Maximum number of packets in flight: ten seconds of a 10 Gbit/s link.
pub const PACKETS_MAX: usize = 1 << 23;
/// SACK blocks that fit into an acknowledgement with a timestamp (RFC 2018, section 3).
pub(super) const SACK_BLOCKS: usize = 3;

/// A packet: its item and its TCP fields.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Packet {
    pub(super) item: Item,
    /// The sender's data, which the acknowledgement returns, like the timestamp of RFC 7323.
    pub(super) stamp: Stamp,
    /// For data, the segment's number in the flow; for an acknowledgement, the next expected segment.
    pub(super) seq: u32,
    /// The number of links that it has passed.
    pub(super) hop: u16,
    pub(super) is_ack: bool,
    /// The acknowledged data was ECN-marked.
    pub(super) is_marked: bool,
    /// Segments beyond the expected one that the receiver has, as `[from, to)`. Empty blocks are unused.
    pub(super) sack: [(u32, u32); SACK_BLOCKS],
}

/// The packets in flight.
#[derive(Debug, Default)]
pub(super) struct Packets {
    slots: Vec<Packet>,
    free: Vec<u32>,
    /// Number of packets created, and the next packet's id.
    made: u64,
}

impl Packets {
    /// Adds a packet and assigns its id. `None` if [`PACKETS_MAX`] are in flight.
    pub(super) fn add(&mut self, mut packet: Packet) -> Option<u32> {
        let handle = match self.free.pop() {
            Some(handle) => handle,
            None if self.slots.len() == PACKETS_MAX => return None,
            None => {
                self.slots.push(Packet::default());
                self.slots.len() as u32 - 1
            }
        };
        packet.item.id = self.made;
        packet.item.handle = handle;
        self.made += 1;
        self.slots[handle as usize] = packet;
        Some(handle)
    }

    /// A packet in flight.
    pub(super) fn get(&mut self, handle: u32) -> &mut Packet {
        &mut self.slots[handle as usize]
    }

    /// Reuses a packet for another one, with a new id.
    pub(super) fn renumbered(&mut self, handle: u32) -> &mut Packet {
        let packet = &mut self.slots[handle as usize];
        packet.item.id = self.made;
        self.made += 1;
        packet
    }

    /// Removes a packet that is no longer in flight.
    pub(super) fn remove(&mut self, handle: u32) {
        self.free.push(handle);
    }

    /// Number of packets created.
    pub(super) fn made(&self) -> u64 {
        self.made
    }

    /// Number of packets in flight.
    pub(super) fn n_in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
