//! Requests to the kernel about interfaces: the part of rtnetlink that ports need.
//!
//! Source: Linux `include/uapi/linux/rtnetlink.h`, `if_link.h` and `if_addr.h`.

use super::sys;
use std::fs::File;
use std::io::{self, Read as _, Write as _};

const HEADER_BYTES: usize = 16;
/// Bytes read of an answer: it begins with the error code.
const ANSWER_BYTES: usize = 4096;
const ERROR: u16 = 2;
const REQUEST_AND_ACKNOWLEDGE: u16 = 0x01 | 0x04;

/// The type of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Request {
    NewLink,
    RemoveLink,
    ChangeLink,
    NewAddress,
    NewRoute,
}

/// A request under construction.
pub(super) struct Message(Vec<u8>);

impl Message {
    /// Creates a request with its fixed header.
    pub(super) fn new(request: Request, fixed: &[u8]) -> Self {
        const CREATE_AND_EXCLUSIVE: u16 = 0x400 | 0x200;
        let (kind, flags) = match request {
            Request::NewLink => (16_u16, CREATE_AND_EXCLUSIVE),
            Request::RemoveLink => (17, 0),
            Request::ChangeLink => (19, 0),
            Request::NewAddress => (20, CREATE_AND_EXCLUSIVE),
            Request::NewRoute => (24, CREATE_AND_EXCLUSIVE),
        };
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | REQUEST_AND_ACKNOWLEDGE).to_ne_bytes());
        bytes.extend_from_slice(fixed);
        Self(bytes)
    }

    /// Adds an attribute.
    pub(super) fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.nested(kind, |message| message.0.extend_from_slice(value));
    }

    /// Adds an attribute with a zero-terminated name.
    pub(super) fn name(&mut self, kind: u16, name: &str) {
        self.nested(kind, |message| {
            message.0.extend_from_slice(name.as_bytes());
            message.0.push(0);
        });
    }

    /// Adds an attribute with nested content.
    pub(super) fn nested(&mut self, kind: u16, write: impl FnOnce(&mut Self)) {
        let start = self.0.len();
        self.0.extend_from_slice(&[0; 2]);
        self.0.extend_from_slice(&kind.to_ne_bytes());
        write(self);
        let length = (self.0.len() - start) as u16;
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// Adds bytes that are no attribute.
    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Sends the request to the kernel, and reads the answer.
    pub(super) fn send(mut self) -> io::Result<()> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        let socket = sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
        let mut socket = File::from(socket);
        socket.write_all(&self.0)?;
        // The kernel answers before it returns from the send.
        let mut answer = [0; ANSWER_BYTES];
        let n = socket.read(&mut answer)?;
        let kind = answer[..n].get(4..6).map(|kind| u16::from_ne_bytes([kind[0], kind[1]]));
        let code = answer[..n].get(HEADER_BYTES..HEADER_BYTES + 4);
        let (Some(ERROR), Some(code)) = (kind, code) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is none"));
        };
        match i32::from_ne_bytes(code.try_into().expect("an error code has four bytes")) {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(-code)),
        }
    }
}

/// Returns the header of a link request, for an interface by index; 0: by name.
pub(super) fn link(index: u32) -> [u8; 16] {
    let mut fixed = [0; 16];
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    fixed
}

/// Returns the header of an address request.
pub(super) fn address(is_v6: bool, prefix: u8, index: u32) -> [u8; 8] {
    let family = if is_v6 { libc::AF_INET6 } else { libc::AF_INET };
    let [a, b, c, d] = index.to_ne_bytes();
    [family as u8, prefix, 0, 0, a, b, c, d]
}

/// Returns the header of a request for a default route through an interface.
pub(super) fn route_by_interface(is_v6: bool) -> [u8; 12] {
    const TABLE_MAIN: u8 = 254;
    const PROTOCOL_BOOT: u8 = 3;
    const SCOPE_LINK: u8 = 253;
    const UNICAST: u8 = 1;
    let family = if is_v6 { libc::AF_INET6 } else { libc::AF_INET };
    [family as u8, 0, 0, 0, TABLE_MAIN, PROTOCOL_BOOT, SCOPE_LINK, UNICAST, 0, 0, 0, 0]
}
