//! Packet I/O: one trait, and a driver for each kind of port.
//!
//! A [`Device`] is one queue of a port. It receives batches of packets into frames of a [`Pool`], and sends frames. Its
//! methods never block: the worker polls the descriptors of all devices, and calls those without a descriptor in turn.
//!
//! * [`interface`]: reads and changes network interfaces.
//! * [`memory`]: a source that repeats packets, and a sink that counts; for benchmarks.
//! * [`tun`]: TUN and TAP devices.
//! * [`afpacket`]: network interfaces by packet sockets.
//! * [`xdp`]: network interfaces by XDP sockets, which bypass the host's network stack.
//! * [`file`](mod@file): pcap and pcapng, at full or recorded speed, and as output.
//! * [`timestamp`]: receives datagrams with their arrival time, for measurements.
//! * [`port`]: ports as a program declares them, and their devices.
//! * [`namespace`]: network namespaces.
//! * `worker`: the loop that moves frames between ports; `workers`: several of them; `handoff`: passes frames from one
//!   worker to another.

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
use weft_engine::packet::port::DeviceCounters;
use weft_proto::capture::LinkType;

pub use report::PortError;
pub use weft_core::frame::BATCH_MAX;
pub use worker::WAITING_MAX;

/// One queue of a port. It belongs to one worker.
pub trait Device: Send {
    /// Its name for people: the interface or the file.
    fn name(&self) -> &str;

    /// The link type of its packets.
    fn link(&self) -> Link;

    /// Appends the available packets to `out`, at most [`BATCH_MAX`], and returns their number. Does not block. 0:
    /// there are none, or the pool has no buffer; then they stay in the device.
    ///
    /// # Errors
    /// The system's: the device is gone. A device that is down returns no packets and no error. For a capture: it
    /// cannot be read further (the source is a [`weft_proto::capture::ReadError`]); packets before the fault were
    /// returned first.
    fn receive(&mut self, pool: &mut Pool, out: &mut Vec<Frame>, now: Time) -> io::Result<usize>;

    /// Sends packets from the front, and returns the number of finished ones; their buffers are free again. Packets
    /// without room stay in `frames`, in order. A packet that can never be sent is dropped and counted.
    ///
    /// # Errors
    /// The system's: the device is gone; or it is down or without a carrier ([`io::ErrorKind::NetworkDown`]) and may
    /// come up again. Unsent packets stay in `frames`; only counted ones are lost.
    fn send(&mut self, pool: &mut Pool, frames: &mut Vec<Frame>) -> io::Result<usize>;

    /// Whether the interface writes into our memory directly (zero copy).
    fn is_zero_copy(&self) -> bool {
        false
    }

    /// Offloads of its interface that could not be turned off, so that packets arrive changed. Names are those of
    /// `ethtool -K`.
    fn stuck_offloads(&self) -> &[&'static str] {
        &[]
    }

    /// The largest MTU with which all packets fit in a buffer; None: any.
    fn mtu_max(&self) -> Option<u16> {
        None
    }

    /// Sends what the device has buffered.
    ///
    /// # Errors
    /// The system's, as for [`Device::send`].
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// The last [`Device::receive`] stopped because the pool had no buffer. The descriptor may stay readable until
    /// there are buffers again, so polling it would not block.
    fn is_starved(&self) -> bool {
        false
    }

    /// The descriptor that is readable when there are packets; `None`: the worker calls the device in turn.
    fn fd(&self) -> Option<RawFd> {
        None
    }

    /// When the next packet is due, if known: for a capture at recorded speed.
    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    /// No further packet will arrive.
    fn is_finished(&self) -> bool {
        false
    }

    /// Counters since the device was opened.
    fn counters(&mut self) -> DeviceCounters;
}

/// The first header of a device's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Link {
    /// An Ethernet header.
    Ethernet,
    /// An IPv4 or IPv6 header.
    Ip,
}

impl Link {
    /// The link type of a capture of such packets.
    pub const fn link_type(self) -> LinkType {
        match self {
            Self::Ethernet => LinkType::ETHERNET,
            Self::Ip => LinkType::RAW,
        }
    }
}

/// Identifies a device: a queue of a port. Its frames carry it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueId {
    /// The index of the port.
    pub port: u16,
    /// The index of the queue in the port.
    pub queue: u16,
}

impl QueueId {
    /// Returns the metadata of a packet of this length that arrived at this queue, and counts the packet.
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

/// A device cannot be opened: the cause and a remedy.
#[derive(Debug)]
pub struct OpenError {
    /// The interface or the file.
    pub name: String,
    /// The failed step.
    pub doing: &'static str,
    /// The system's error.
    pub error: io::Error,
    /// A remedy.
    pub help: Option<&'static str>,
}

/// The pool has no buffer now for a packet of this length, but may have one later.
fn lacks_buffers(pool: &Pool, packet_max: usize) -> bool {
    let is_long_possible = packet_max > SMALL_PACKET_MAX && pool.config().large > 0;
    pool.free_small() == 0 || is_long_possible && pool.free_large() == 0
}

/// Replaces a packet by its segments, for a device that cannot segment it.
fn cut_to_segments(
    pool: &mut Pool,
    frames: &mut Vec<Frame>,
    at: usize,
    link: Link,
) -> Result<(), SegmentError> {
    let network = match link {
        Link::Ethernet => network_at(pool.bytes(&frames[at])).ok_or(SegmentError::Malformed)?,
        Link::Ip => 0,
    };
    let mut segments = Vec::new();
    match pool.segment(&frames[at], network, &mut segments) {
        // All buffers in use are these frames: none will be freed.
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
