//! Network interfaces by AF_XDP: packets bypass the host's network stack.
//!
//! A small program on the interface passes its packets to one socket per queue, through shared memory. The host does
//! not see them. Nothing marks unfinished checksums, so an interface of another namespace that sends to this one must
//! finish its own ([`super::interface::set_feature`]). Sent packets are segmented and completed here. Source: Linux
//! `Documentation/networking/af_xdp.rst`.

#![expect(unsafe_code, reason = "packets are in memory that is shared with the kernel")]

mod offloads;
mod program;
mod ring;

pub use program::Mode;

use super::sys::{self, Mapping, fail, fail_or};
use super::{BATCH_MAX, Device, Link, OpenError, QueueId, cut_to_segments, interface, lacks_buffers};
use core::ptr;
use program::{Attachment, Sockets};
use ring::Ring;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;
use weft_core::frame::{Frame, Offload, Pool, SegmentError};
use weft_core::{Interval, Time};
use weft_engine::packet::port::DeviceCounters;
use weft_engine::packet::port::QUEUES_MAX;

/// Largest MTU of an interface whose driver runs the program: with the kernel's overhead a packet fits in a page. With
/// a larger one the host runs it, up to [`BUFFERED_MTU_MAX`].
pub const MTU_MAX: usize = 3_000;
/// The remedy if a queue is refused.
const IF_NO_QUEUE: &str =
    "the interface has fewer queues: `ethtool -l <name>` says how many; give the port as many";

/// Entries of each ring.
const RING_ENTRIES: u32 = 2048;
/// Number of buffers: one half for receiving, one half for sending.
const BUFFERS: u32 = 2 * RING_ENTRIES;
/// Bytes of a buffer; and of one for an interface with an MTU above [`SHORT_MTU_MAX`].
const BUFFER_BYTES: u32 = 2048;
const LONG_BUFFER_BYTES: u32 = 4096;
/// Bytes of headroom that the kernel reserves in a buffer. Source: `XDP_PACKET_HEADROOM` of the kernel.
const KERNEL_BYTES: usize = 256;
/// An Ethernet header with two tags.
const LINK_HEADER_BYTES: usize = 22;
/// Largest MTU whose packets all fit in a buffer, which is at most a page: longer packets are lost, and counted as
/// overrun.
pub const BUFFERED_MTU_MAX: u16 = (LONG_BUFFER_BYTES as usize - KERNEL_BYTES - LINK_HEADER_BYTES) as u16;
/// A buffer of [`BUFFER_BYTES`] fits a packet of this MTU with a tagged link header, after [`KERNEL_BYTES`].
const SHORT_MTU_MAX: usize = 1_700;
/// The kernel releases a queue some time after its socket was closed; number of retries, and the delay between them.
const RELEASE_TRIES: u32 = 40;
const RELEASE_WAIT: Duration = Duration::from_millis(5);
/// Packets that the kernel sends per call in copy mode.
const SENT_AT_ONCE: u32 = 32;

/// How many empty polls, and how much time, pass between two checks that the interface still exists.
const ASK_EVERY: u32 = 16;
const ASK_AFTER: Interval = Interval::from_millis(10);

/// Options of the sockets of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Try zero copy, if the driver supports it; otherwise the kernel copies.
    pub is_zero_copy_tried: bool,
    /// Run the program in the host in any case.
    pub is_generic: bool,
    /// Fail at once if another socket has the queue. Otherwise retry for a while, because that socket may just have
    /// been closed.
    pub is_tried_once: bool,
}

/// One queue of an interface.
#[derive(Debug)]
pub struct XdpSocket {
    name: String,
    place: QueueId,
    is_zero_copy: bool,
    /// The interface was down at the last send; the contents of the ring wait until it is up.
    is_down: bool,
    is_starved: bool,
    /// Number of consecutive empty polls.
    n_empty: u32,
    /// When the existence of the interface was last checked.
    asked_at: Time,
    /// Free buffers for sending.
    free: Vec<u64>,
    fill: Ring<u64>,
    completed: Ring<u64>,
    received: Ring<libc::xdp_desc>,
    to_send: Ring<libc::xdp_desc>,
    counters: DeviceCounters,
    // Fields in the order of release: the program, the socket, then the memory.
    attachment: Arc<Attachment>,
    socket: OwnedFd,
    memory: Umem,
}

/// The memory of the buffers (UMEM).
#[derive(Debug)]
struct Umem {
    mapping: Mapping,
    buffer_bytes: u32,
}

impl XdpSocket {
    /// Opens queues 0 to `queues` of an interface of the thread's network namespace. Packets of other queues go to the
    /// host.
    ///
    /// # Errors
    /// There is no such interface or queue, permission is denied, another program is on the interface, or the kernel
    /// lacks a feature.
    ///
    /// # Panics
    /// `queues` is 0 or more than [`QUEUES_MAX`].
    pub fn open(interface: &str, port: u16, queues: u16, options: Options) -> Result<Vec<Self>, OpenError> {
        assert!((1..=QUEUES_MAX).contains(&queues), "the number of queues is checked where it is configured");
        Self::open_range(interface, port, (queues, queues), options)
    }

    /// Opens all receive queues of an interface, at most [`QUEUES_MAX`]: packets of any other would go to the host.
    ///
    /// # Errors
    /// As [`XdpSocket::open`].
    pub fn open_all(interface: &str, port: u16, options: Options) -> Result<Vec<Self>, OpenError> {
        let queues = interface::receive_queues(interface).map(|queues| queues.min(QUEUES_MAX));
        // An interface with an unknown number of queues, such as a bond, refuses the first queue that it does not have.
        Self::open_range(interface, port, queues.map_or((1, QUEUES_MAX), |queues| (queues, queues)), options)
    }

    /// Opens at least the first number of queues, and further ones as far as they exist.
    fn open_range(
        interface: &str,
        port: u16,
        (least, most): (u16, u16),
        options: Options,
    ) -> Result<Vec<Self>, OpenError> {
        let index =
            sys::interface_index(interface).map_err(|error| fail(interface, "find the interface", error))?;
        let is_short = interface::mtu(interface)? <= SHORT_MTU_MAX;
        let buffer_bytes = if is_short { BUFFER_BYTES } else { LONG_BUFFER_BYTES };
        let sockets =
            Sockets::new(most).map_err(|error| fail(interface, "make the map of the XDP program", error))?;
        let mut parts = Vec::new();
        for queue in 0..most {
            let part = match UnfedSocket::new(index, queue, buffer_bytes, options) {
                Err(error) if queue >= least && error.raw_os_error() == Some(libc::EINVAL) => break,
                part => part.map_err(|error| {
                    fail_or(interface, "open an XDP socket on the queue", IF_NO_QUEUE, error)
                })?,
            };
            sockets
                .set(queue, &part.socket)
                .map_err(|error| fail(interface, "give the queue to the XDP socket", error))?;
            parts.push(part);
        }
        // The sockets are ready before the program passes the first packet.
        let attachment = Arc::new(Attachment::new(interface, index, &sockets, !options.is_generic)?);
        let finish = |(queue, part): (usize, UnfedSocket)| {
            let place = QueueId { port, queue: queue as u16 };
            part.into_socket(interface.to_owned(), place, Arc::clone(&attachment))
        };
        Ok(parts.into_iter().enumerate().map(finish).collect())
    }

    /// Where the program runs.
    pub fn mode(&self) -> Mode {
        self.attachment.mode
    }

    /// Makes the kernel send the contents of the ring, if it needs a call.
    fn kick(&mut self) -> io::Result<()> {
        self.is_down = false;
        let mut tries = self.to_send.pending().div_ceil(SENT_AT_ONCE);
        while tries > 0 && self.to_send.pending() > 0 && self.to_send.needs_wakeup() {
            tries -= 1;
            self.counters.syscalls += 1;
            let Err(error) = sys::kick(&self.socket) else { continue };
            match error.raw_os_error() {
                // One call does not send everything.
                Some(libc::EAGAIN | libc::EINTR) => (),
                Some(libc::EBUSY | libc::ENOBUFS) => {
                    self.counters.full += 1;
                    break;
                }
                Some(libc::ENETDOWN) => {
                    self.is_down = true;
                    break;
                }
                _ => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes back the buffers of sent packets.
    fn reclaim(&mut self) {
        while let Some(address) = self.completed.take() {
            self.free.push(self.memory.buffer_of(address));
        }
        self.completed.release();
    }
}

impl Device for XdpSocket {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_zero_copy(&self) -> bool {
        self.is_zero_copy
    }

    fn link(&self) -> Link {
        Link::Ethernet
    }

    fn stuck_offloads(&self) -> &[&'static str] {
        self.attachment.stuck_offloads()
    }

    fn mtu_max(&self) -> Option<u16> {
        Some((self.memory.packet_max() - LINK_HEADER_BYTES) as u16)
    }

    fn receive(&mut self, pool: &mut Pool, out: &mut Vec<Frame>, now: Time) -> io::Result<usize> {
        if self.to_send.pending() > 0 {
            self.kick()?;
        }
        let mut n = 0;
        self.is_starved = false;
        while n < BATCH_MAX {
            // Check for a buffer before taking a packet, which could not be put back.
            self.is_starved = lacks_buffers(pool, self.memory.packet_max());
            if self.is_starved {
                break;
            }
            let Some(descriptor) = self.received.take() else { break };
            let length = descriptor.len as usize;
            if let Some(mut frame) = pool.take(length) {
                self.memory.copy_out(descriptor.addr, pool.bytes_mut(&frame));
                frame.meta = self.place.received(&mut self.counters, now, length, Offload::default());
                out.push(frame);
                n += 1;
            } else {
                self.counters.refused_in += 1;
            }
            // There are as many buffers as the ring has entries, so there is room.
            self.fill.put(self.memory.buffer_of(descriptor.addr));
        }
        self.received.release();
        self.fill.publish();
        if self.fill.needs_wakeup() {
            self.counters.syscalls += 1;
            sys::kick_receive(&self.socket)?;
        }
        // The kernel unbinds the socket when the interface is removed, not when it is down. A worker with many mostly
        // empty queues does not check each of them each time.
        self.n_empty = if n == 0 { self.n_empty.wrapping_add(1) } else { 0 };
        let is_due = self.n_empty % ASK_EVERY == 1 || now - self.asked_at >= ASK_AFTER;
        if n == 0 && is_due {
            self.asked_at = now;
            if sys::socket_error(&self.socket)? == libc::ENETDOWN {
                return Err(io::Error::from_raw_os_error(libc::ENODEV));
            }
        }
        Ok(n)
    }

    fn send(&mut self, pool: &mut Pool, frames: &mut Vec<Frame>) -> io::Result<usize> {
        if self.is_down {
            self.kick()?;
        }
        if self.is_down {
            return Err(io::Error::from_raw_os_error(libc::ENETDOWN));
        }
        self.reclaim();
        let mut done = 0;
        while done < frames.len() {
            if frames[done].meta.offload.gso.is_some() {
                match cut_to_segments(pool, frames, done, Link::Ethernet) {
                    Ok(()) => (),
                    Err(SegmentError::NoBuffer) => {
                        self.counters.full += 1;
                        break;
                    }
                    Err(SegmentError::Malformed) => {
                        self.counters.refused_out += 1;
                        done += 1;
                        continue;
                    }
                }
            }
            let frame = &mut frames[done];
            let mut offload = frame.meta.offload;
            let is_carried = frame.len() <= self.memory.buffer_bytes as usize;
            if !is_carried || offload.finish_checksum(pool.bytes_mut(frame)).is_none() {
                self.counters.refused_out += 1;
                done += 1;
                continue;
            }
            frame.meta.offload = offload;
            if self.to_send.room(1) == 0 {
                self.counters.full += 1;
                break;
            }
            let Some(address) = self.free.pop() else {
                self.counters.full += 1;
                break;
            };
            self.memory.copy_in(address, pool.bytes(frame));
            self.to_send.put(libc::xdp_desc { addr: address, len: frame.len() as u32, options: 0 });
            self.counters.sent += 1;
            self.counters.sent_bytes += frame.len() as u64;
            done += 1;
        }
        self.to_send.publish();
        frames.drain(..done).for_each(|frame| pool.give(frame));
        self.kick()?;
        Ok(done)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.kick()
    }

    fn is_starved(&self) -> bool {
        self.is_starved
    }

    fn fd(&self) -> Option<RawFd> {
        Some(self.socket.as_raw_fd())
    }

    fn counters(&mut self) -> DeviceCounters {
        let option = sys::option::<libc::xdp_statistics>;
        let statistics = option(&self.socket, libc::SOL_XDP, libc::XDP_STATISTICS);
        if let Ok(statistics) = statistics {
            self.counters.overrun = statistics.rx_dropped + statistics.rx_ring_full;
        }
        self.counters
    }
}

impl Umem {
    fn new(buffer_bytes: u32) -> io::Result<Self> {
        let mapping = Mapping::anonymous(BUFFERS as usize * buffer_bytes as usize)?;
        Ok(Self { mapping, buffer_bytes })
    }

    /// Bytes of the longest packet that fits in a buffer.
    fn packet_max(&self) -> usize {
        self.buffer_bytes as usize - KERNEL_BYTES
    }

    /// The start of the buffer that contains an address.
    fn buffer_of(&self, address: u64) -> u64 {
        address & !u64::from(self.buffer_bytes - 1)
    }

    /// Copies bytes from a buffer that the kernel has handed over.
    fn copy_out(&self, address: u64, to: &mut [u8]) {
        let at = self.checked(address, to.len());
        // SAFETY: both are valid for the length. They do not overlap, because the mapping is not part of a pool. The
        // kernel does not write the buffer until it is given back.
        unsafe { ptr::copy_nonoverlapping(self.mapping.address().add(at), to.as_mut_ptr(), to.len()) }
    }

    /// Copies bytes into a buffer that we own.
    fn copy_in(&mut self, address: u64, from: &[u8]) {
        let at = self.checked(address, from.len());
        // SAFETY: as above; the kernel does not read the buffer before it is handed over.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.mapping.address().add(at), from.len()) }
    }

    /// Returns the offset of bytes in the mapping; panics if they are not in it. The kernel returns only valid ones.
    fn checked(&self, address: u64, bytes: usize) -> usize {
        let end = usize::try_from(address).ok().and_then(|at| at.checked_add(bytes));
        assert!(
            end.is_some_and(|end| end <= self.mapping.len()),
            "the kernel keeps packets within the buffers"
        );
        address as usize
    }
}

/// A socket that is ready but for the program.
struct UnfedSocket {
    socket: OwnedFd,
    memory: Umem,
    fill: Ring<u64>,
    completed: Ring<u64>,
    received: Ring<libc::xdp_desc>,
    to_send: Ring<libc::xdp_desc>,
    is_zero_copy: bool,
}

impl UnfedSocket {
    /// Creates a socket on a queue, with zero copy if that is tried and possible.
    fn new(index: u32, queue: u16, buffer_bytes: u32, options: Options) -> io::Result<Self> {
        let tries = if options.is_tried_once { 1 } else { RELEASE_TRIES };
        let bound = |mode| Self::bind(index, queue, buffer_bytes, (mode, tries));
        if options.is_zero_copy_tried
            && let Ok(part) = bound(libc::XDP_ZEROCOPY)
        {
            return Ok(part);
        }
        bound(libc::XDP_COPY)
    }

    /// Creates a socket with its memory and rings, and binds it to a queue in this mode.
    fn bind(index: u32, queue: u16, buffer_bytes: u32, (mode, tries): (u16, u32)) -> io::Result<Self> {
        let socket = sys::socket(libc::AF_XDP, libc::SOCK_RAW, 0)?;
        let memory = Umem::new(buffer_bytes)?;
        let region = libc::xdp_umem_reg {
            addr: memory.mapping.address() as u64,
            len: memory.mapping.len() as u64,
            chunk_size: buffer_bytes,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        sys::set_option(&socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &region)?;
        let rings =
            [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING, libc::XDP_TX_RING];
        for ring in rings {
            sys::set_option(&socket, libc::SOL_XDP, ring, &(RING_ENTRIES as i32))?;
        }
        let offsets: libc::xdp_mmap_offsets = sys::option(&socket, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)?;
        let fill_page = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
        let completed_page = libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t;
        let mut fill = Ring::new(&socket, RING_ENTRIES, offsets.fr, fill_page)?;
        let completed = Ring::new(&socket, RING_ENTRIES, offsets.cr, completed_page)?;
        let received = Ring::new(&socket, RING_ENTRIES, offsets.rx, libc::XDP_PGOFF_RX_RING)?;
        let to_send = Ring::new(&socket, RING_ENTRIES, offsets.tx, libc::XDP_PGOFF_TX_RING)?;
        for buffer in 0..RING_ENTRIES {
            fill.put(u64::from(buffer) * u64::from(buffer_bytes));
        }
        fill.publish();
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: mode | libc::XDP_USE_NEED_WAKEUP,
            sxdp_ifindex: index,
            sxdp_queue_id: u32::from(queue),
            sxdp_shared_umem_fd: 0,
        };
        bind_released(&socket, &address, tries)?;
        let options: libc::xdp_options = sys::option(&socket, libc::SOL_XDP, libc::XDP_OPTIONS)?;
        let is_zero_copy = options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0;
        Ok(Self { socket, memory, fill, completed, received, to_send, is_zero_copy })
    }

    /// Completes the socket with its name, its place and the attached program.
    fn into_socket(self, name: String, place: QueueId, attachment: Arc<Attachment>) -> XdpSocket {
        let buffer_bytes = u64::from(self.memory.buffer_bytes);
        XdpSocket {
            name,
            place,
            is_zero_copy: self.is_zero_copy,
            is_down: false,
            is_starved: false,
            n_empty: 0,
            asked_at: Time(0),
            free: (u64::from(RING_ENTRIES)..u64::from(BUFFERS)).map(|buffer| buffer * buffer_bytes).collect(),
            fill: self.fill,
            completed: self.completed,
            received: self.received,
            to_send: self.to_send,
            counters: DeviceCounters::default(),
            attachment,
            socket: self.socket,
            memory: self.memory,
        }
    }
}

/// Binds a socket to a queue whose previous socket may just have been closed.
fn bind_released(socket: &OwnedFd, address: &libc::sockaddr_xdp, mut tries: u32) -> io::Result<()> {
    loop {
        match sys::bind(socket, address) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && tries > 1 => {
                tries -= 1;
                std::thread::sleep(RELEASE_WAIT);
            }
            bound => return bound,
        }
    }
}
