//! Network interfaces by packet sockets: AF_PACKET.
//!
//! Packets arrive in a ring of slots that the kernel fills (TPACKET_V2), and leave by `sendmmsg`. Both use the
//! virtio-net header, so packets with partial checksums and unsegmented packets pass unchanged. A packet longer than a
//! slot waits at the socket, behind its slot, and is read from there. A packet longer than the IP length field allows
//! (BIG TCP) is split into shorter ones ([`Pool::take_pieces`]). The host's network stack sees received packets as
//! well; it ignores them on an interface without addresses. Source: Linux `Documentation/networking/packet_mmap.rst`,
//! packet(7) on `PACKET_COPY_THRESH`.
//! See `docs/design/packet-io.md`.

#![expect(unsafe_code, reason = "the ring is memory that is shared with the kernel")]

use super::interface::LinkState;
use super::sys::{self, Mapping, fail};
use super::{BATCH_MAX, Device, Link, OpenError, QueueId, cut_to_segments};
use core::ffi::c_int;
use core::mem::{self, MaybeUninit, offset_of, size_of};
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};
use weft_core::Time;
use weft_core::frame::{
    BIG_PACKET_MAX, Frame, IP_PACKET_MAX, Offload, PIECES_MAX, Pool, SegmentError, VIRTIO_HEADER_BYTES,
    network_at,
};
use weft_engine::packet::port::DeviceCounters;

/// Bytes of a slot: its header, and a packet of an MTU of 1,500. An odd number of cache lines spreads the starts of
/// slots over all cache sets.
const SLOT_BYTES: usize = 27 * 64;
/// Contiguous slots in one block of kernel pages.
const BLOCK_SLOTS: usize = 37;
const BLOCK_BYTES: usize = 64 << 10;
/// Room for some 8 ms at a million packets per second.
const BLOCKS: usize = 224;
const SLOTS: usize = BLOCK_SLOTS * BLOCKS;
/// Kernel memory in bytes for packets longer than a slot; the kernel doubles it.
const LONG_BYTES: c_int = 16 << 20;
/// Bytes of a VLAN tag, and its offset.
const VLAN_BYTES: usize = 4;
const VLAN_AT: usize = 12;
const ETHERTYPE_VLAN: u16 = 0x8100;
/// A device that drops the same packet for this long is not merely full.
const PATIENCE: Duration = Duration::from_millis(100);

/// Options of a packet socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Sockets with the same number share the packets of the interface: all of a flow go to one socket, and all
    /// fragments of a packet to one, perhaps another. The caller chooses one number for each group of queues in the
    /// network namespace.
    pub fanout: Option<u16>,
    /// Receive only packets to the interface's own address.
    pub is_not_promiscuous: bool,
    /// Send through the queue discipline of the interface instead of bypassing it.
    pub has_queue_discipline: bool,
}

/// A packet socket on an interface.
#[derive(Debug)]
pub struct PacketSocket {
    name: String,
    link: Link,
    place: QueueId,
    ring: Ring,
    // The ring is part of the socket, so it is unmapped first.
    socket: OwnedFd,
    /// The last error was that the interface is down. The kernel does not report the removal of such an interface.
    was_down: bool,
    is_starved: bool,
    /// A packet longer than the IP length field allows, until it is split.
    big: Vec<u8>,
    /// The interface, for its carrier.
    state: LinkState,
    /// When the kernel first dropped the next packet.
    dropped_since: Option<Instant>,
    /// Bytes of the shortest packet that was given up, until one as long is sent: longer ones will most likely be
    /// dropped, too, and later packets do not wait for each. 0 while there is no carrier.
    given_up: Option<usize>,
    counters: DeviceCounters,
}

/// The slots, and the index of the next.
#[derive(Debug)]
struct Ring {
    mapping: Mapping,
    next: usize,
}

/// A packet in the ring.
struct RingPacket {
    /// Start and length of its bytes in the mapping.
    start: usize,
    length: usize,
    held: PacketLocation,
    is_outgoing: bool,
    header: [u8; VIRTIO_HEADER_BYTES],
    vlan: Option<[u8; VLAN_BYTES]>,
}

/// Where the bytes of a packet are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PacketLocation {
    InSlot,
    /// It is longer than a slot, and can be read from the socket.
    AtSocket,
    /// It is longer than a slot, and the socket had no room for it.
    InPart,
}

/// What to do with a packet that the kernel has dropped.
enum DropAction {
    /// Retry later.
    Wait,
    /// Its segments replace it.
    Cut,
    /// The device cannot carry it.
    GiveUp,
    /// The device has no carrier.
    Down,
}

impl PacketSocket {
    /// Opens an interface of the thread's network namespace.
    ///
    /// # Errors
    /// There is no such interface, permission is denied (`CAP_NET_RAW`), or the kernel lacks a feature.
    pub fn open(interface: &str, place: QueueId, options: Options) -> Result<Self, OpenError> {
        let socket = sys::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)
            .map_err(|error| fail(interface, "open a packet socket", error))?;
        let index =
            sys::interface_index(interface).map_err(|error| fail(interface, "find the interface", error))?;
        let set = |name: c_int, value: c_int, doing: &'static str| {
            sys::set_option(&socket, libc::SOL_PACKET, name, &value)
                .map_err(|error| fail(interface, doing, error))
        };
        let version = libc::tpacket_versions::TPACKET_V2 as c_int;
        set(libc::PACKET_VERSION, version, "use a ring of version 2")?;
        // Both options must be set before the ring.
        set(libc::PACKET_VNET_HDR, 1, "keep offloads in a virtio-net header")?;
        set(libc::PACKET_IGNORE_OUTGOING, 1, "ignore packets of the host")?;
        if !options.has_queue_discipline {
            set(libc::PACKET_QDISC_BYPASS, 1, "send past the queue discipline")?;
        }
        set(libc::PACKET_COPY_THRESH, 1, "keep packets that are longer than a slot")?;
        // A buffer above the system's default limit needs a capability.
        if sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &LONG_BYTES).is_err() {
            sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &LONG_BYTES)
                .map_err(|error| fail(interface, "make room for long packets", error))?;
        }
        let request = libc::tpacket_req {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: BLOCKS as u32,
            tp_frame_size: SLOT_BYTES as u32,
            tp_frame_nr: SLOTS as u32,
        };
        let ring = "make a ring to receive";
        sys::set_option(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)
            .map_err(|error| fail(interface, ring, error))?;
        let mapping =
            Mapping::new(&socket, BLOCK_BYTES * BLOCKS, 0).map_err(|error| fail(interface, ring, error))?;
        if options.fanout.is_some() {
            // Until it joins the group, it would receive duplicates.
            refuse_all(&socket).map_err(|error| fail(interface, "hold packets off", error))?;
        }
        bind(&socket, index).map_err(|error| fail(interface, "bind to the interface", error))?;
        if !options.is_not_promiscuous {
            let member = libc::packet_mreq {
                mr_ifindex: index as c_int,
                mr_type: libc::PACKET_MR_PROMISC as u16,
                mr_alen: 0,
                mr_address: [0; 8],
            };
            sys::set_option(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &member)
                .map_err(|error| fail(interface, "receive packets to any address", error))?;
        }
        if let Some(group) = options.fanout {
            // The hash is the same for both directions of a flow, and for all fragments of a packet. Fragments are not
            // reassembled, because packets of that length could not leave.
            let value = c_int::from(group) | (libc::PACKET_FANOUT_HASH as c_int) << 16;
            set(libc::PACKET_FANOUT, value, "share the interface with other queues")?;
            sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0)
                .map_err(|error| fail(interface, "take packets", error))?;
        }
        let ring = Ring { mapping, next: 0 };
        let name = interface.to_owned();
        let link = link_of(&socket).map_err(|error| fail(interface, "read the kind of link", error))?;
        Ok(Self {
            name,
            link,
            place,
            ring,
            socket,
            was_down: false,
            is_starved: false,
            big: Vec::new(),
            state: LinkState::of(interface)?,
            dropped_since: None,
            given_up: None,
            counters: DeviceCounters::default(),
        })
    }

    /// Appends the packet of a slot to `out`, unless it is not for us, which is counted where necessary. `Err`: there
    /// is no buffer for it.
    fn take_packet(
        &mut self,
        pool: &mut Pool,
        slot: &RingPacket,
        now: Time,
        out: &mut Vec<Frame>,
    ) -> Result<(), ()> {
        let Some(offload) = self.accept_packet(pool, slot) else {
            if slot.held == PacketLocation::AtSocket {
                self.read_long(&mut []);
            }
            return Ok(());
        };
        let first = out.len();
        if offload.gso.is_some() && slot.length > IP_PACKET_MAX {
            self.segment_oversized(pool, slot, &offload, out)?;
        } else {
            let mut frame = pool.take(slot.length).ok_or(())?;
            let bytes = pool.bytes_mut(&frame);
            if slot.held == PacketLocation::InSlot {
                self.ring.copy(slot, bytes);
            } else if !self.read_long(bytes) {
                self.counters.overrun += 1;
                pool.give(frame);
                return Ok(());
            }
            frame.meta.offload = offload;
            out.push(frame);
        }
        for frame in &mut out[first..] {
            frame.meta = self.place.received(&mut self.counters, now, frame.len(), frame.meta.offload);
            if let Some(tag) = slot.vlan
                && let Some(room) = pool.insert(frame, VLAN_AT, VLAN_BYTES)
            {
                room.copy_from_slice(&tag);
                self.counters.received_bytes += VLAN_BYTES as u64;
            }
        }
        Ok(())
    }

    /// Splits a packet longer than the IP length field allows, and appends the pieces to `out`, as
    /// [`PacketSocket::take_packet`].
    fn segment_oversized(
        &mut self,
        pool: &mut Pool,
        slot: &RingPacket,
        offload: &Offload,
        out: &mut Vec<Frame>,
    ) -> Result<(), ()> {
        // A packet read from the socket cannot be put back.
        if pool.free_large() < PIECES_MAX.min(pool.config().large as usize) {
            return Err(());
        }
        let mut big = mem::take(&mut self.big);
        big.resize(slot.length, 0);
        let network = if self.link == Link::Ip { Some(0) } else { None };
        if !self.read_long(&mut big) {
            self.counters.overrun += 1;
        } else if let Some(network) = network.or_else(|| network_at(&big)) {
            let taken = pool.take_pieces(&big, offload, network, out);
            self.counters.refused_in += u64::from(taken.is_err());
        } else {
            self.counters.refused_in += 1;
        }
        self.big = big;
        Ok(())
    }

    /// Accepts a packet for us: returns its remaining offloads. None for other packets, which are counted.
    fn accept_packet(&mut self, pool: &Pool, slot: &RingPacket) -> Option<Offload> {
        if slot.is_outgoing {
            return None;
        }
        if slot.held == PacketLocation::InPart {
            self.counters.overrun += 1;
            return None;
        }
        let offload = Offload::from_virtio(&slot.header).ok().filter(|offload| {
            let may_be_big = slot.held == PacketLocation::AtSocket && pool.config().large > 0;
            let max = match offload.gso {
                Some(_) if may_be_big => BIG_PACKET_MAX,
                _ => pool.packet_max(),
            };
            slot.length <= max
        });
        self.counters.refused_in += u64::from(offload.is_none());
        offload
    }

    /// Handles a packet, at index `at` of the batch, that the kernel has dropped and whose bytes we still have. The
    /// kernel reports the same error for a device without room or carrier, for a far end that refuses packets of that
    /// length, and for a packet to be segmented, which it does not do without the queue discipline.
    fn handle_drop(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Frame>,
        at: usize,
        since: Option<Instant>,
    ) -> DropAction {
        if frames[at].meta.offload.gso.is_some() {
            return match cut_to_segments(pool, frames, at, self.link) {
                Ok(()) => DropAction::Cut,
                Err(SegmentError::NoBuffer) => DropAction::Wait,
                Err(SegmentError::Malformed) => DropAction::GiveUp,
            };
        }
        let bytes = frames[at].len();
        if self.given_up.is_none_or(|given_up| bytes < given_up) {
            let since = since.unwrap_or_else(Instant::now);
            if since.elapsed() < PATIENCE {
                self.dropped_since = Some(since);
                return DropAction::Wait;
            }
        }
        // Queried only now because it takes a system-wide lock.
        if !self.state.is_up() {
            self.given_up = Some(0);
            return DropAction::Down;
        }
        self.given_up = Some(bytes.min(self.given_up.unwrap_or(bytes)));
        DropAction::GiveUp
    }

    /// Clears the drop state after packets were sent.
    fn count_sent(&mut self, frames: &[Frame]) {
        self.counters.sent += frames.len() as u64;
        self.counters.sent_bytes += frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
        // An unsegmented packet may be longer than the device can carry.
        let is_as_long = |bytes| frames.iter().any(|f| f.meta.offload.gso.is_none() && f.len() >= bytes);
        if self.given_up.is_some_and(is_as_long) {
            self.given_up = None;
        }
    }

    /// Reads the packet that waits at the socket, after its virtio-net header; returns whether its length is that of
    /// the buffer.
    fn read_long(&mut self, to: &mut [u8]) -> bool {
        let mut header = [0; VIRTIO_HEADER_BYTES];
        let expected = VIRTIO_HEADER_BYTES + to.len();
        loop {
            self.counters.syscalls += 1;
            match sys::receive(&self.socket, [&mut header, &mut *to]) {
                Ok(bytes) => return bytes == expected,
                // The socket reports a pending error before its packets.
                Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => self.was_down = true,
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => (),
                Err(_) => return false,
            }
        }
    }
}

impl Device for PacketSocket {
    fn name(&self) -> &str {
        &self.name
    }

    fn link(&self) -> Link {
        self.link
    }

    fn receive(&mut self, pool: &mut Pool, out: &mut Vec<Frame>, now: Time) -> io::Result<usize> {
        let mut n = 0;
        // An error found while reading packets applies to the next call.
        let was_down = mem::take(&mut self.was_down);
        self.is_starved = false;
        while n < BATCH_MAX {
            let Some(slot) = self.ring.peek() else { break };
            if slot.length > IP_PACKET_MAX && n > BATCH_MAX - PIECES_MAX {
                break;
            }
            let first = out.len();
            if self.take_packet(pool, &slot, now, out).is_err() {
                self.is_starved = true;
                break;
            }
            n += out.len() - first;
            self.ring.advance();
        }
        if n == 0 {
            self.was_down |= was_down | take_socket_error(&self.socket)?;
            if self.was_down && is_gone(&self.socket) {
                return Err(io::Error::from_raw_os_error(libc::ENODEV));
            }
        }
        Ok(n)
    }

    fn send(&mut self, pool: &mut Pool, frames: &mut Vec<Frame>) -> io::Result<usize> {
        let mut done = 0;
        let result = loop {
            let batch = &frames[done..frames.len().min(done + BATCH_MAX)];
            if batch.is_empty() {
                break Ok(());
            }
            self.counters.syscalls += 1;
            let dropped_since = self.dropped_since.take();
            match send_batch(&self.socket, pool, batch) {
                Ok(n) => {
                    self.count_sent(&batch[..n]);
                    done += n;
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => (),
                    Some(libc::EAGAIN) => {
                        self.counters.full += 1;
                        break Ok(());
                    }
                    Some(libc::ENOBUFS) => match self.handle_drop(pool, frames, done, dropped_since) {
                        DropAction::Cut => (),
                        DropAction::GiveUp => {
                            self.counters.refused_out += 1;
                            done += 1;
                        }
                        DropAction::Wait => {
                            self.counters.full += 1;
                            break Ok(());
                        }
                        DropAction::Down => break Err(io::Error::from_raw_os_error(libc::ENETDOWN)),
                    },
                    Some(libc::ENETDOWN) if is_gone(&self.socket) => {
                        break Err(io::Error::from_raw_os_error(libc::ENODEV));
                    }
                    // The first packet of the batch is at fault: too long, or with impossible offloads.
                    Some(libc::EMSGSIZE | libc::EINVAL | libc::EFAULT | libc::ENOMEM) => {
                        self.counters.refused_out += 1;
                        done += 1;
                    }
                    _ => break Err(error),
                },
            }
        };
        frames.drain(..done).for_each(|frame| pool.give(frame));
        result.map(|()| done)
    }

    fn is_starved(&self) -> bool {
        self.is_starved
    }

    fn fd(&self) -> Option<RawFd> {
        Some(self.socket.as_raw_fd())
    }

    fn counters(&mut self) -> DeviceCounters {
        // The kernel resets these counters on each read.
        let option = sys::option::<libc::tpacket_stats>;
        if let Ok(statistics) = option(&self.socket, libc::SOL_PACKET, libc::PACKET_STATISTICS) {
            self.counters.overrun += u64::from(statistics.tp_drops);
        }
        self.counters
    }
}

impl Ring {
    /// Returns the packet in the current slot of the ring, without releasing the slot. None if the kernel has not
    /// filled it.
    fn peek(&self) -> Option<RingPacket> {
        let at = Self::at(self.next);
        let status = self.status().load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let header: libc::tpacket2_hdr = self.read(at)?;
        let (start, length) = (at + usize::from(header.tp_mac), header.tp_len as usize);
        let kind: u8 =
            self.read(at + size_of::<libc::tpacket2_hdr>() + offset_of!(libc::sockaddr_ll, sll_pkttype))?;
        let has = |flag: u32| status & flag != 0;
        let held = if has(libc::TP_STATUS_COPY) {
            PacketLocation::AtSocket
        } else if header.tp_snaplen < header.tp_len {
            PacketLocation::InPart
        } else {
            assert!(start + length <= at + SLOT_BYTES, "the kernel keeps packets within a slot");
            PacketLocation::InSlot
        };
        let vlan = has(libc::TP_STATUS_VLAN_VALID).then(|| {
            let known = has(libc::TP_STATUS_VLAN_TPID_VALID);
            let ethertype = if known { header.tp_vlan_tpid } else { ETHERTYPE_VLAN };
            let ([a, b], [c, d]) = (ethertype.to_be_bytes(), header.tp_vlan_tci.to_be_bytes());
            [a, b, c, d]
        });
        Some(RingPacket {
            start,
            length,
            held,
            is_outgoing: kind == libc::PACKET_OUTGOING,
            // It lies right in front of the packet.
            header: self.read(start.checked_sub(VIRTIO_HEADER_BYTES)?)?,
            vlan,
        })
    }

    /// Returns the slot of [`Ring::peek`] to the kernel.
    fn advance(&mut self) {
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % SLOTS;
    }

    /// The offset of a slot.
    const fn at(slot: usize) -> usize {
        slot / BLOCK_SLOTS * BLOCK_BYTES + slot % BLOCK_SLOTS * SLOT_BYTES
    }

    /// Returns the status word of the current slot.
    fn status(&self) -> &AtomicU32 {
        let at = Self::at(self.next) + offset_of!(libc::tpacket2_hdr, tp_status);
        // SAFETY: it lies in the mapping, which lives as long as `self`. Blocks begin on pages and slots have a
        // multiple of 64 bytes, so it is aligned. The kernel and we access it only as one word.
        unsafe { AtomicU32::from_ptr(self.mapping.address().add(at).cast()) }
    }

    /// Reads a value of a slot that we own. `None`: it would be outside the mapping.
    fn read<T: FromRing>(&self, at: usize) -> Option<T> {
        if at.checked_add(size_of::<T>())? > self.mapping.len() {
            return None;
        }
        // SAFETY: it lies in the mapping; the kernel does not write a slot that it has handed over; any bytes are a
        // valid value of the type.
        Some(unsafe { self.mapping.address().add(at).cast::<T>().read_unaligned() })
    }

    /// Copies the bytes of a packet to `to`, which has its length.
    fn copy(&self, slot: &RingPacket, to: &mut [u8]) {
        assert!(to.len() == slot.length && slot.start + slot.length <= self.mapping.len());
        // SAFETY: both are valid for the length, which was just compared. They do not overlap, because the mapping is
        // not part of a pool. We own the slot.
        unsafe { ptr::copy_nonoverlapping(self.mapping.address().add(slot.start), to.as_mut_ptr(), to.len()) }
    }
}

/// Makes the kernel deliver no packet to a socket.
fn refuse_all(socket: &OwnedFd) -> io::Result<()> {
    // Keeping 0 bytes drops the packet.
    let mut code = [libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 }];
    let program = libc::sock_fprog { len: 1, filter: code.as_mut_ptr() };
    sys::set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// A type that can be read from a ring.
///
/// # Safety
/// Any bytes are a valid value.
unsafe trait FromRing: Copy {}
// SAFETY: they are integers, or have only integer fields.
unsafe impl FromRing for u8 {}
// SAFETY: as above.
unsafe impl FromRing for [u8; VIRTIO_HEADER_BYTES] {}
// SAFETY: as above.
unsafe impl FromRing for libc::tpacket2_hdr {}

/// Binds a socket to an interface by index, for all protocols.
fn bind(socket: &OwnedFd, index: u32) -> io::Result<()> {
    // SAFETY: zeros are a valid address.
    let mut address: libc::sockaddr_ll = unsafe { MaybeUninit::zeroed().assume_init() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as c_int;
    sys::bind(socket, &address)
}

/// Returns the link type of the interface that a socket is bound to.
fn link_of(socket: &OwnedFd) -> io::Result<Link> {
    match address_of(socket)?.sll_hatype {
        libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Ok(Link::Ethernet),
        libc::ARPHRD_NONE | libc::ARPHRD_TUNNEL | libc::ARPHRD_TUNNEL6 | libc::ARPHRD_SIT => Ok(Link::Ip),
        other => {
            let text = format!("its packets begin with a link header of type {other}, not Ethernet or IP");
            Err(io::Error::new(io::ErrorKind::Unsupported, text))
        }
    }
}

/// Whether the interface of a socket has been removed.
fn is_gone(socket: &OwnedFd) -> bool {
    address_of(socket).is_ok_and(|address| address.sll_ifindex <= 0)
}

/// Returns the address that a socket is bound to.
fn address_of(socket: &OwnedFd) -> io::Result<libc::sockaddr_ll> {
    let mut address = MaybeUninit::<libc::sockaddr_ll>::zeroed();
    let mut length = size_of::<libc::sockaddr_ll>() as u32;
    // SAFETY: the address is writable for its length.
    sys::check(unsafe {
        libc::getsockname(socket.as_raw_fd(), address.as_mut_ptr().cast(), &raw mut length)
    })?;
    // SAFETY: all its bytes are set, at least to zero, and any bytes are a valid value.
    Ok(unsafe { address.assume_init() })
}

/// Sends up to [`BATCH_MAX`] frames in one call; returns the number sent.
fn send_batch(socket: &OwnedFd, pool: &Pool, frames: &[Frame]) -> io::Result<usize> {
    const NOTHING: libc::iovec = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
    let mut headers = [[0_u8; VIRTIO_HEADER_BYTES]; BATCH_MAX];
    let mut pieces = [[NOTHING; 2]; BATCH_MAX];
    // SAFETY: zeros are a valid value: null pointers and lengths of zero.
    let mut messages: [libc::mmsghdr; BATCH_MAX] = unsafe { MaybeUninit::zeroed().assume_init() };
    let frames = &frames[..frames.len().min(BATCH_MAX)];
    for (n, frame) in frames.iter().enumerate() {
        headers[n] = frame.meta.offload.to_virtio();
        let bytes = pool.bytes(frame);
        pieces[n] = [
            libc::iovec { iov_base: headers[n].as_ptr().cast_mut().cast(), iov_len: VIRTIO_HEADER_BYTES },
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() },
        ];
        messages[n].msg_hdr.msg_iov = pieces[n].as_mut_ptr();
        messages[n].msg_hdr.msg_iovlen = 2;
    }
    let flags = libc::MSG_DONTWAIT;
    // SAFETY: each message points to two pieces, and these to bytes that live until the call returns. The kernel only
    // reads them, although the type of a piece is mutable.
    let sent =
        unsafe { libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), frames.len() as u32, flags as _) };
    sys::check(sent).map(|n| n as usize)
}

/// Takes the pending error of a socket. True: the interface is down, and may come up again. `Err`: it is gone.
fn take_socket_error(socket: &OwnedFd) -> io::Result<bool> {
    match sys::socket_error(socket)? {
        0 => Ok(false),
        libc::ENETDOWN => Ok(true),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}
