//! The XDP program that passes the packets of an interface to our sockets, and its loading.
//!
//! It has six instructions, so it is written here instead of being compiled and read from a file:
//!
//! ```c
//! return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
//! ```
//!
//! Packets of a queue without a socket go to the host. Source: Linux `include/uapi/linux/bpf.h`.

#![expect(unsafe_code, reason = "the system call takes addresses")]

use super::super::sys;
use super::super::sys::fail;
use super::super::{OpenError, interface};
use super::offloads::Offloads;
use core::ffi::{c_int, c_uint};
use core::mem::size_of;
use core::ptr;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

const BPF_MAP_CREATE: c_uint = 0;
const BPF_MAP_UPDATE_ELEM: c_uint = 2;
const BPF_PROG_LOAD: c_uint = 5;
const BPF_LINK_CREATE: c_uint = 28;
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
/// The attachment type `BPF_XDP`.
const BPF_XDP: u32 = 37;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
const XDP_PASS: i32 = 2;
/// The offset of `rx_queue_index` in the context of an XDP program.
const RX_QUEUE_INDEX: i16 = 16;
const HELPER_REDIRECT_MAP: i32 = 51;
/// The source register of an instruction that loads a map instead of a number.
const PSEUDO_MAP_FD: u8 = 1;
/// Bytes of the verifier's log.
const LOG_BYTES: usize = 4096;

/// Where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver of the interface, before the host allocates a packet.
    Native,
    /// In the host: slower, but any interface supports it.
    Generic,
}

/// The program on an interface. It is removed with the last queue that holds it, or with the process.
#[derive(Debug)]
pub(super) struct Attachment {
    pub(super) mode: Mode,
    /// Closing it detaches the program from the interface.
    _link: OwnedFd,
    /// They are restored after the program is detached.
    offloads: Option<Offloads>,
}

/// The map from queues to sockets.
#[derive(Debug)]
pub(super) struct Sockets(OwnedFd);

#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

#[repr(C)]
struct MapUpdate {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgramLoad {
    program_type: u32,
    instructions: u32,
    instructions_at: u64,
    license_at: u64,
    log_level: u32,
    log_bytes: u32,
    log_at: u64,
}

#[repr(C)]
struct LinkCreate {
    program_fd: u32,
    target_index: u32,
    attach_type: u32,
    flags: u32,
}

/// An instruction.
#[repr(C)]
struct Instruction {
    operation: u8,
    /// The destination register in the lower half, the source register in the upper.
    registers: u8,
    offset: i16,
    immediate: i32,
}

impl Sockets {
    /// Creates a map for this many queues.
    pub(super) fn new(queues: u16) -> io::Result<Self> {
        let create = MapCreate {
            map_type: BPF_MAP_TYPE_XSKMAP,
            key_size: size_of::<u32>() as u32,
            value_size: size_of::<u32>() as u32,
            max_entries: u32::from(queues),
        };
        bpf_fd(BPF_MAP_CREATE, &create).map(Self)
    }

    /// Passes the packets of a queue to a socket.
    pub(super) fn set(&self, queue: u16, socket: &OwnedFd) -> io::Result<()> {
        let (key, value) = (u32::from(queue), socket.as_raw_fd());
        let update = MapUpdate {
            map_fd: self.0.as_raw_fd() as u32,
            padding: 0,
            key: ptr::from_ref(&key) as u64,
            value: ptr::from_ref(&value) as u64,
            flags: 0,
        };
        bpf(BPF_MAP_UPDATE_ELEM, &update).map(drop)
    }
}

impl Attachment {
    /// Attaches the program to an interface: in its driver if possible and `may_be_native`, otherwise in the host.
    pub(super) fn new(
        interface: &str,
        index: u32,
        sockets: &Sockets,
        may_be_native: bool,
    ) -> Result<Self, OpenError> {
        let program = load(sockets).map_err(|error| fail(interface, "load the XDP program", error))?;
        let offloads = Offloads::turn_off(interface);
        let attach = |mode| {
            let flags = if mode == Mode::Native { XDP_FLAGS_DRV_MODE } else { XDP_FLAGS_SKB_MODE };
            let program_fd = program.as_raw_fd() as u32;
            let create = LinkCreate { program_fd, target_index: index, attach_type: BPF_XDP, flags };
            bpf_fd(BPF_LINK_CREATE, &create).map(|link| (mode, link))
        };
        let native = if may_be_native { attach(Mode::Native).ok() } else { None };
        let attached = native.map_or_else(|| attach(Mode::Generic), Ok).map_err(|error| {
            let is_long = interface::mtu(interface).is_ok_and(|mtu| mtu > super::MTU_MAX);
            let mut error = fail(interface, "put the XDP program on the interface", error);
            if is_long {
                error.help = Some("packets of XDP fit a page: lower the MTU of the interface to 3000");
            }
            error
        })?;
        let (mode, link) = attached;
        Ok(Self { mode, _link: link, offloads })
    }

    /// The offloads of the interface that cannot be turned off, by their names in `ethtool -K`.
    pub(super) fn stuck_offloads(&self) -> &[&'static str] {
        self.offloads.as_ref().map_or(&[], Offloads::stuck)
    }
}

/// Loads the program, which redirects each packet to the socket of its queue, or passes it to the host if there is
/// none.
fn load(sockets: &Sockets) -> io::Result<OwnedFd> {
    let program = [
        // r2 = *(u32 *)(r1 + 16)
        Instruction { operation: 0x61, registers: 0x12, offset: RX_QUEUE_INDEX, immediate: 0 },
        // r1 = the map; an instruction of double size
        Instruction {
            operation: 0x18,
            registers: PSEUDO_MAP_FD << 4 | 1,
            offset: 0,
            immediate: sockets.0.as_raw_fd(),
        },
        Instruction { operation: 0, registers: 0, offset: 0, immediate: 0 },
        // r3 = XDP_PASS
        Instruction { operation: 0xb7, registers: 3, offset: 0, immediate: XDP_PASS },
        // r0 = bpf_redirect_map(r1, r2, r3)
        Instruction { operation: 0x85, registers: 0, offset: 0, immediate: HELPER_REDIRECT_MAP },
        // return r0
        Instruction { operation: 0x95, registers: 0, offset: 0, immediate: 0 },
    ];
    let mut log = vec![0_u8; LOG_BYTES];
    let load = ProgramLoad {
        program_type: BPF_PROG_TYPE_XDP,
        instructions: program.len() as u32,
        instructions_at: program.as_ptr() as u64,
        license_at: c"Apache-2.0".as_ptr() as u64,
        log_level: 1,
        log_bytes: LOG_BYTES as u32,
        log_at: log.as_mut_ptr() as u64,
    };
    bpf_fd(BPF_PROG_LOAD, &load).map_err(|error| {
        let said = log.split(|byte| *byte == 0).next().unwrap_or_default();
        match String::from_utf8_lossy(said).trim() {
            "" => error,
            said => io::Error::new(error.kind(), format!("{error}: {said}")),
        }
    })
}

/// Calls `bpf` with a command that returns a descriptor.
fn bpf_fd<T>(command: c_uint, attributes: &T) -> io::Result<OwnedFd> {
    let fd = bpf(command, attributes)?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Calls `bpf` with a command and its attributes.
fn bpf<T>(command: c_uint, attributes: &T) -> io::Result<c_int> {
    let attributes = ptr::from_ref(attributes);
    // SAFETY: the attributes are readable for their length and belong to the command. What they point to lives until
    // the call returns, and has the given lengths.
    let returned = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    sys::check(returned as c_int)
}
