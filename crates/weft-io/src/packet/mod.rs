//! What carries packets in and out: one trait, and a driver for each kind of port.
//!
//! A [`Device`] is one queue of a port. It takes packets in batches from wherever it stands into the frames of a
//! [`Pool`], and frames out of it. It is never waited on here: who runs it polls the descriptors of all devices, and
//! asks those that have none.
//!
//! * [`interface`]: what a port needs to know of a network interface, or change.
//! * [`memory`]: a ring of given packets, and a sink that counts; for benchmarks.
//! * [`tun`]: an interface of the host whose other end we are.
//! * [`afpacket`]: network interfaces by packet sockets.
//! * [`xdp`]: network interfaces round the host's own network.
//! * [`file`](mod@file): pcap and pcapng, at full or recorded speed, and as output.
//! * [`stamp`]: when datagrams came in, for measurements.
//! * [`port`]: ports as a program declares them, and their devices.
//! * [`namespace`]: where interfaces are.
//! * `worker`: the loop that carries frames between ports; `workers`: several of them; `handoff`: how they hand frames to
//!   each other.

pub mod afpacket;
pub mod file;
mod handoff;
pub mod interface;
pub mod memory;
pub mod namespace;
mod netlink;
pub mod port;
mod recovery;
mod report;
mod sys;
pub mod timestamp;
pub mod tun;
mod worker;
pub(crate) mod workers;
pub mod xdp;

use core::fmt;
use std::io;
use std::os::fd::RawFd;
use weft_core::Time;
use weft_core::frame::{Frame, FrameMeta, Offload, Pool, SMALL_PACKET_MAX, SegmentError, network_at};
use weft_proto::capture::LinkType;

pub use report::{LinkReport, PacketNodeStats, PortError, PortReport};
pub use weft_core::frame::BATCH_MAX;
pub use worker::WAITING_MAX;

/// One queue of a port. One worker has it.
pub trait Device: Send {
    /// What people call it: the interface or the file.
    fn name(&self) -> &str;

    /// What its packets begin with.
    fn link(&self) -> Link;

    /// Puts packets that are there behind those in `out`, at most [`BATCH_MAX`], and says how many. It does not wait.
    /// 0: there are none now, or the pool has no buffer, in which case they are left where they are.
    ///
    /// # Errors
    /// The system's: the device is gone; from one that is down, nothing comes. For a capture: it cannot be read on
    /// ([`weft_proto::capture::ReadError`] is inside); the packets in front of that were given.
    fn receive(&mut self, pool: &mut Pool, out: &mut Vec<Frame>, now: Time) -> io::Result<usize>;

    /// Sends packets, from the first on, and says how many are done with; their buffers are free again. What the device
    /// has no room for now stays in `frames`, in order. A packet that can never be sent is dropped and counted.
    ///
    /// # Errors
    /// The system's: the device is gone, or down or without a carrier ([`io::ErrorKind::NetworkDown`]) and may
    /// come up again. Nothing is lost but what was counted: what was not sent is still in `frames`.
    fn send(&mut self, pool: &mut Pool, frames: &mut Vec<Frame>) -> io::Result<usize>;

    /// Whether the interface writes into our memory itself, where it may.
    fn is_zero_copy(&self) -> bool {
        false
    }

    /// What its interface does to packets that come in and would not stop doing, so that they are not as they were on
    /// the wire: as `ethtool -K` calls it.
    fn stuck_offloads(&self) -> &[&'static str] {
        &[]
    }

    /// The longest MTU that its interface may have if all packets are to come in; None: any.
    fn mtu_max(&self) -> Option<u16> {
        None
    }

    /// Has what was sent leave at once, where the device keeps it for a while.
    ///
    /// # Errors
    /// The system's, as for [`Device::send`].
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// The last [`Device::receive`] broke off because the pool had no buffer. Packets may be there: the descriptor may
    /// be readable until there are buffers again, and waiting for it is then no waiting.
    fn is_starved(&self) -> bool {
        false
    }

    /// The descriptor that is readable when there are packets; `None`: the device is to be asked.
    fn fd(&self) -> Option<RawFd> {
        None
    }

    /// When the next packet comes, where that is known: a capture at recorded speed.
    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    /// No packet will ever come any more.
    fn is_finished(&self) -> bool {
        false
    }

    /// What was counted since the device was opened.
    fn counters(&mut self) -> DeviceCounters;
}

/// What the packets of a device begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Link {
    /// An Ethernet header.
    Ethernet,
    /// An IPv4 or IPv6 header.
    Ip,
}

impl Link {
    /// That of a capture of such packets.
    pub const fn link_type(self) -> LinkType {
        match self {
            Self::Ethernet => LinkType::ETHERNET,
            Self::Ip => LinkType::RAW,
        }
    }
}

/// Which queue of which port a device is; its frames say so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueId {
    /// The number of the port.
    pub port: u16,
    /// The number of the queue on the port.
    pub queue: u16,
}

impl QueueId {
    /// What is known of a packet of so many bytes that came in here. It is counted.
    fn received(
        self,
        counters: &mut DeviceCounters,
        arrived: Time,
        bytes: usize,
        offload: Offload,
    ) -> FrameMeta {
        let Self { port, queue } = self;
        let sequence = counters.received;
        counters.received += 1;
        counters.received_bytes += bytes as u64;
        FrameMeta { arrived, port, queue, sequence, offload, ..FrameMeta::default() }
    }
}

/// What a device counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Packets that came in, and their bytes.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Packets that went out.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets that were dropped in front of us, because we did not take them in time, or an XDP buffer does not hold
    /// them.
    pub overrun: u64,
    /// Packets that were dropped as they came in: they are longer than any buffer, of another link type, or said of
    /// themselves what cannot be.
    pub refused_in: u64,
    /// Packets that were dropped on the way out: the device cannot carry them.
    pub refused_out: u64,
    /// Times that the device had no room for all that was to be sent.
    pub full: u64,
    /// System calls.
    pub syscalls: u64,
}

impl DeviceCounters {
    /// Adds what another device counted.
    pub fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.received_bytes += other.received_bytes;
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.overrun += other.overrun;
        self.refused_in += other.refused_in;
        self.refused_out += other.refused_out;
        self.full += other.full;
        self.syscalls += other.syscalls;
    }
}

/// A device cannot be opened: what is missing, and what would help.
#[derive(Debug)]
pub struct OpenError {
    /// The interface or the file.
    pub name: String,
    /// What was tried.
    pub doing: &'static str,
    /// The reason.
    pub error: io::Error,
    /// What would help.
    pub help: Option<&'static str>,
}

/// The pool has no buffer for some packet of up to so many bytes for which it may have one later.
fn lacks_buffers(pool: &Pool, packet_max: usize) -> bool {
    let is_long_possible = packet_max > SMALL_PACKET_MAX && pool.config().large > 0;
    pool.free_small() == 0 || is_long_possible && pool.free_large() == 0
}

/// Puts the segments that a packet stands for in its place, for a device that cannot cut it.
fn cut(pool: &mut Pool, frames: &mut Vec<Frame>, at: usize, link: Link) -> Result<(), SegmentError> {
    let network = match link {
        Link::Ethernet => network_at(pool.bytes(&frames[at])).ok_or(SegmentError::Malformed)?,
        Link::Ip => 0,
    };
    let mut segments = Vec::new();
    match pool.segment(&frames[at], network, &mut segments) {
        // All buffers that are taken are these: none will come back.
        Err(SegmentError::NoBuffer) if at == 0 && pool.in_use() == frames.len() => {
            return Err(SegmentError::Malformed);
        }
        result => result?,
    }
    frames.splice(at..=at, segments).for_each(|whole| pool.give(whole));
    Ok(())
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: cannot {}: {}", self.name, self.doing, self.error)?;
        self.help.map_or(Ok(()), |help| write!(f, "; {help}"))
    }
}

impl core::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.error)
    }
}
