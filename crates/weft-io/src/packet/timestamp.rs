//! Receives datagrams with the kernel's arrival time, for measurements.

#![expect(unsafe_code, reason = "the standard library does not give what stands beside a datagram")]

use super::sys;
use core::mem::{MaybeUninit, size_of};
use core::ptr;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd as _, OwnedFd};
use weft_core::Time;

/// Receive buffer in bytes, as the kernel counts: tens of milliseconds at one gigabit per second, so the receiver may
/// lose its core for a while.
const WAITING_BYTES: i32 = 32 << 20;

/// A socket whose datagrams have a kernel timestamp.
#[derive(Debug)]
pub struct TimestampedSocket(OwnedFd);

impl TimestampedSocket {
    /// Makes the kernel timestamp the datagrams of a socket.
    ///
    /// # Errors
    /// The system's.
    pub fn new(socket: UdpSocket) -> io::Result<Self> {
        let socket = OwnedFd::from(socket);
        sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1_i32)?;
        // Beyond the system's limit if permitted, else up to it.
        sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &WAITING_BYTES)
            .or_else(|_| sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &WAITING_BYTES))?;
        Ok(Self(socket))
    }

    /// Receives a datagram, cut to the buffer: returns its length, and its arrival time by the system clock.
    ///
    /// # Errors
    /// The system's, including the socket's timeout.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, Time)> {
        // Room for one timestamp, aligned for its header.
        let mut control = [0_u64; 8];
        let mut piece = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: zeros are a value of the structure: no address, no pieces.
        let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        message.msg_iov = &raw mut piece;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        // SAFETY: the message points to one buffer and one control buffer, both of which are writable.
        let n = unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut message, 0) };
        if n < 0 {
            return Err(io::Error::last_os_error());
        }
        let stamp =
            stamp(&message).ok_or_else(|| io::Error::other("the kernel gave no time with a datagram"))?;
        Ok((n as usize, stamp))
    }
}

/// Returns the timestamp of a received datagram.
fn stamp(message: &libc::msghdr) -> Option<Time> {
    // SAFETY: the kernel has filled in the message, whose control buffer is alive; the header lies in it or is null.
    let header = unsafe { libc::CMSG_FIRSTHDR(message).as_ref() }?;
    let has_room = header.cmsg_len as usize >= size_of::<libc::cmsghdr>() + size_of::<libc::timespec>();
    if (header.cmsg_level, header.cmsg_type) != (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS) || !has_room {
        return None;
    }
    // SAFETY: the header says that a time follows; the read allows any alignment.
    let time = unsafe { ptr::read_unaligned(libc::CMSG_DATA(header).cast::<libc::timespec>()) };
    Some(Time(time.tv_sec as i64 * 1_000_000_000 + time.tv_nsec as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Measurements would have no times.
    #[test]
    fn datagram_carries_arrival_time() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        let to = socket.local_addr().expect("the socket is bound");
        let stamped = TimestampedSocket::new(socket).expect("the kernel supports timestamps");
        let from = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        let mut last = Time::default();
        for text in [&b"one"[..], b"longer than the room"] {
            from.send_to(text, to).expect("the datagram is sent");
            let mut buffer = [0; 8];
            let (n, at) = stamped.receive(&mut buffer).expect("the datagram arrives");
            assert_eq!(&buffer[..n], &text[..n]);
            assert!(at > last, "{at:?}");
            last = at;
        }
    }
}
