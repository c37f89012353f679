//! TUN and TAP devices: interfaces of the host whose other end is ours.
//!
//! Each packet is read and written with a virtio-net header. So the host may leave checksums unfinished and streams
//! unsegmented, and one call carries up to 64 KiB. Source: Linux `Documentation/networking/tuntap.rst`.

use super::sys::{self, InterfaceRequest, fail, fail_or};
use super::{BATCH_MAX, Device, Link, OpenError, QueueId, lacks_buffers};
use core::ffi::c_ulong;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt as _;
use weft_core::Time;
use weft_core::frame::{Frame, LARGE_PACKET_MAX, Offload, Pool, SMALL_PACKET_MAX, VIRTIO_HEADER_BYTES};
use weft_engine::packet::port::DeviceCounters;
use weft_engine::packet::port::QUEUES_MAX;

/// The remedy if the name of a device is refused.
const IF_TAKEN: &str =
    "an interface of this name is there that is none of this kind, or has other queues: choose another name";

/// Offloads that the host may leave to us: checksums, and segmentation of TCP.
const OFFLOADS: u32 = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
/// The same for UDP; kernels before 6.2 do not support them.
const UDP_OFFLOADS: u32 = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// One queue of a TUN or TAP device.
#[derive(Debug)]
pub struct Tun {
    name: String,
    link: Link,
    place: QueueId,
    file: File,
    /// The part of a packet that does not fit in a small buffer.
    overflow: Vec<u8>,
    is_starved: bool,
    counters: DeviceCounters,
}

impl Tun {
    /// Creates a device with this many queues in the thread's network namespace, or attaches to an existing persistent
    /// one: TUN for [`Link::Ip`], TAP for [`Link::Ethernet`]. The system completes an empty name, or one with `%d`.
    /// Packets of one flow arrive at one queue. The device disappears with its last queue, unless it is persistent.
    ///
    /// # Errors
    /// Permission is denied (`CAP_NET_ADMIN`), the kernel has no TUN driver, or the name belongs to another interface.
    ///
    /// # Panics
    /// `queues` is 0 or more than [`QUEUES_MAX`].
    pub fn open(name: &str, link: Link, port: u16, queues: u16) -> Result<Vec<Self>, OpenError> {
        assert!((1..=QUEUES_MAX).contains(&queues), "the number of queues is checked where it is configured");
        let mut opened: Vec<Self> = Vec::new();
        for queue in 0..queues {
            let name = opened.first().map_or(name, |first| first.name());
            let tun = Self::open_queue(name, link, QueueId { port, queue }, queues > 1)?;
            opened.push(tun);
        }
        Ok(opened)
    }

    /// Opens one queue of a device, and enables the offloads that the kernel has. `has_others`: the device has
    /// several queues.
    fn open_queue(name: &str, link: Link, place: QueueId, has_others: bool) -> Result<Self, OpenError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        let file = options.open("/dev/net/tun").map_err(|error| fail(name, "open /dev/net/tun", error))?;
        let kind = if link == Link::Ip { libc::IFF_TUN } else { libc::IFF_TAP };
        let queues = if has_others { libc::IFF_MULTI_QUEUE } else { 0 };
        let flags = kind | libc::IFF_NO_PI | libc::IFF_VNET_HDR | queues;
        let mut request = InterfaceRequest::Flags(flags as i16);
        let name = sys::interface_ioctl(&file, libc::TUNSETIFF as c_ulong, name, &mut request)
            .map_err(|error| fail_or(name, "make or attach the TUN device", IF_TAKEN, error))?;
        let offload =
            |flags: u32| sys::number_ioctl(&file, libc::TUNSETOFFLOAD as c_ulong, c_ulong::from(flags));
        offload(OFFLOADS | UDP_OFFLOADS)
            .or_else(|_| offload(OFFLOADS))
            .map_err(|error| fail(&name, "take over checksums and segments", error))?;
        let overflow = vec![0; LARGE_PACKET_MAX - SMALL_PACKET_MAX];
        let (is_starved, counters) = (false, DeviceCounters::default());
        Ok(Self { name, link, place, file, overflow, is_starved, counters })
    }

    /// Reads one packet. `Ok(None)`: there is none now. `Err(None)`: the packet is invalid, or does not fit.
    fn read(&mut self, pool: &mut Pool, now: Time) -> Result<Option<Frame>, Option<io::Error>> {
        let Some(mut frame) = pool.take(SMALL_PACKET_MAX) else { return Ok(None) };
        let mut header = [0; VIRTIO_HEADER_BYTES];
        self.counters.syscalls += 1;
        let pieces = [&mut header[..], pool.bytes_mut(&frame), &mut self.overflow[..]];
        let length = match (&self.file).read_vectored(&mut pieces.map(IoSliceMut::new)) {
            Ok(n) => n.saturating_sub(VIRTIO_HEADER_BYTES),
            Err(error) => {
                pool.give(frame);
                return match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                    _ => Err(Some(error)),
                };
            }
        };
        let Ok(offload) = Offload::from_virtio(&header) else {
            pool.give(frame);
            return Err(None);
        };
        pool.truncate(&mut frame, length);
        if length > SMALL_PACKET_MAX {
            let rest = &self.overflow[..length - SMALL_PACKET_MAX];
            let Some(room) = pool.grow_back(&mut frame, rest.len()) else {
                pool.give(frame);
                return Err(None);
            };
            room.copy_from_slice(rest);
        }
        frame.meta = self.place.received(&mut self.counters, now, length, offload);
        Ok(Some(frame))
    }
}

impl Device for Tun {
    fn name(&self) -> &str {
        &self.name
    }

    fn link(&self) -> Link {
        self.link
    }

    /// As [`Device::receive`]; but a packet for which the pool has no large buffer is lost, and counted as refused,
    /// because its length is known only after reading it.
    fn receive(&mut self, pool: &mut Pool, out: &mut Vec<Frame>, now: Time) -> io::Result<usize> {
        let mut n = 0;
        for _ in 0..BATCH_MAX {
            // Nothing is lost while the pool has a large buffer, or if it can never have one.
            self.is_starved = lacks_buffers(pool, LARGE_PACKET_MAX);
            if self.is_starved {
                break;
            }
            match self.read(pool, now) {
                Ok(Some(frame)) => {
                    out.push(frame);
                    n += 1;
                }
                Ok(None) => break,
                Err(None) => self.counters.refused_in += 1,
                // A device that is down returns this error until it is brought up.
                Err(Some(error)) if error.raw_os_error() == Some(libc::EIO) => break,
                Err(Some(error)) if n == 0 => return Err(error),
                Err(Some(_)) => break,
            }
        }
        Ok(n)
    }

    fn send(&mut self, pool: &mut Pool, frames: &mut Vec<Frame>) -> io::Result<usize> {
        let mut done = 0;
        let mut result = Ok(());
        while let Some(frame) = frames.get(done) {
            let header = frame.meta.offload.to_virtio();
            self.counters.syscalls += 1;
            match (&self.file).write_vectored(&[&header, pool.bytes(frame)].map(IoSlice::new)) {
                Ok(_) => {
                    self.counters.sent += 1;
                    self.counters.sent_bytes += frame.len() as u64;
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => continue,
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => {
                        self.counters.full += 1;
                        break;
                    }
                    // Too short, no IP packet, or impossible offloads.
                    Some(libc::EINVAL | libc::EFAULT | libc::EMSGSIZE) => self.counters.refused_out += 1,
                    // A device reports with this error that it is down.
                    Some(libc::EIO) => {
                        result = Err(io::Error::from_raw_os_error(libc::ENETDOWN));
                        break;
                    }
                    _ => {
                        result = Err(error);
                        break;
                    }
                },
            }
            done += 1;
        }
        frames.drain(..done).for_each(|frame| pool.give(frame));
        result.map(|()| done)
    }

    fn is_starved(&self) -> bool {
        self.is_starved
    }

    fn fd(&self) -> Option<RawFd> {
        Some(self.file.as_raw_fd())
    }

    fn counters(&mut self) -> DeviceCounters {
        self.counters
    }
}
