//! Packets under way, in an arena: a packet is a number, and making one allocates nothing once the arena is as large as
//! the most that were ever under way.

use super::discipline::Item;
use super::tcp::Stamp;

/// Packets that may be under way at once: what a link of 10 Gbit/s holds in ten seconds.
pub const PACKETS_MAX: usize = 1 << 23;
/// Blocks that an acknowledgement can carry beside a timestamp (RFC 2018, section 3).
pub(super) const SACK_BLOCKS: usize = 3;

/// What a packet is beside its item.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Packet {
    pub(super) item: Item,
    /// What its sender wrote into it. The acknowledgement brings it back, as the timestamp of RFC 7323 is.
    pub(super) stamp: Stamp,
    /// Of data, its number among the flow's segments; of an acknowledgement, the segment that is expected next.
    pub(super) seq: u32,
    /// How many links of its path it has passed.
    pub(super) hop: u16,
    pub(super) is_ack: bool,
    /// The data that this acknowledges was marked on its way.
    pub(super) is_marked: bool,
    /// Segments that the receiver has beyond the one it expects, as `[from, to)`; blocks that are empty say nothing.
    pub(super) sack: [(u32, u32); SACK_BLOCKS],
}

/// All packets that are under way.
#[derive(Debug, Default)]
pub(super) struct Packets {
    slots: Vec<Packet>,
    free: Vec<u32>,
    /// How many were made: the number of the next.
    made: u64,
}

impl Packets {
    /// Takes a packet in and numbers it. None if [`PACKETS_MAX`] are under way.
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

    /// A packet that is under way.
    pub(super) fn get(&mut self, handle: u32) -> &mut Packet {
        &mut self.slots[handle as usize]
    }

    /// A packet that becomes another one: it gets a number of its own.
    pub(super) fn renumbered(&mut self, handle: u32) -> &mut Packet {
        let packet = &mut self.slots[handle as usize];
        packet.item.id = self.made;
        self.made += 1;
        packet
    }

    /// The packet is no longer under way.
    pub(super) fn remove(&mut self, handle: u32) {
        self.free.push(handle);
    }

    /// How many were made.
    pub(super) fn made(&self) -> u64 {
        self.made
    }

    /// How many are under way.
    pub(super) fn under_way(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
