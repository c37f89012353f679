//! Safe wrappers of the packet drivers' system calls.

#![expect(unsafe_code, reason = "system calls that the standard library does not have")]

use super::OpenError;
use core::ffi::{c_int, c_ulong};
use core::mem::{MaybeUninit, size_of};
use core::ptr::{self, NonNull};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// A type for which any bytes are a valid value, as the kernel may fill in.
///
/// # Safety
/// Every bit pattern, including zeros, is a valid value.
pub(super) unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($name:ty),* $(,)?) => { $(
        // SAFETY: it has only integer fields.
        unsafe impl Plain for $name {}
    )* };
}

plain!(
    c_int,
    libc::fanout_args,
    libc::packet_mreq,
    libc::sockaddr_ll,
    libc::sockaddr_xdp,
    libc::tpacket_req,
    libc::tpacket_stats,
    libc::xdp_mmap_offsets,
    libc::xdp_options,
    libc::xdp_statistics,
    libc::xdp_umem_reg,
);

// SAFETY: it has an integer and an address, for which any bytes are valid.
unsafe impl Plain for libc::sock_fprog {}

/// Memory shared with the kernel. It may change at any time, so it is accessed only by address.
#[derive(Debug)]
pub(super) struct Mapping {
    address: NonNull<u8>,
    length: usize,
}

// SAFETY: only this value owns the mapping, whichever thread holds it.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps this many bytes of a descriptor's object.
    pub(super) fn new(fd: &OwnedFd, length: usize, offset: libc::off_t) -> io::Result<Self> {
        Self::map(length, libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), offset)
    }

    /// Maps this many bytes of fresh memory.
    pub(super) fn anonymous(length: usize) -> io::Result<Self> {
        Self::map(length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    /// Its address: on a page boundary, and valid for [`Mapping::len`] bytes as long as `self` lives.
    pub(super) fn address(&self) -> *mut u8 {
        self.address.as_ptr()
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Maps memory of a descriptor for reading and writing.
    fn map(length: usize, flags: c_int, fd: c_int, offset: libc::off_t) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let address = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, fd, offset) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { address: NonNull::new(address.cast()).expect("no mapping is at zero"), length })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and no other reference to it exists.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.length) };
    }
}

/// Creates a non-blocking socket.
pub(super) fn socket(domain: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    let kind = kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the call takes no memory.
    let fd = check(unsafe { libc::socket(domain, kind, protocol) })?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Binds a socket to an address of its domain's type.
pub(super) fn bind<T: Plain>(fd: &OwnedFd, address: &T) -> io::Result<()> {
    // SAFETY: the address is readable for its length.
    check(unsafe { libc::bind(fd.as_raw_fd(), ptr::from_ref(address).cast(), size_of::<T>() as u32) })?;
    Ok(())
}

/// Sets an option of a socket.
pub(super) fn set_option<T: Plain>(fd: &OwnedFd, level: c_int, name: c_int, value: &T) -> io::Result<()> {
    let value = ptr::from_ref(value).cast();
    // SAFETY: the value is readable for its length.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value, size_of::<T>() as u32) })?;
    Ok(())
}

/// Takes the pending error number of a socket; 0 for none.
pub(super) fn socket_error(fd: &OwnedFd) -> io::Result<c_int> {
    option(fd, libc::SOL_SOCKET, libc::SO_ERROR)
}

/// Reads an option of a socket. Bytes that the kernel does not fill in are zero.
pub(super) fn option<T: Plain>(fd: &OwnedFd, level: c_int, name: c_int) -> io::Result<T> {
    let (mut value, mut length) = (MaybeUninit::<T>::zeroed(), size_of::<T>() as u32);
    // SAFETY: the value is writable for its length.
    check(unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &raw mut length)
    })?;
    // SAFETY: all its bytes are set, at least to zero, and any bytes are a valid value of the type.
    Ok(unsafe { value.assume_init() })
}

/// Makes the kernel send the contents of a ring.
pub(super) fn kick(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: no buffer is passed.
    let sent = unsafe { libc::sendto(fd.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes the kernel continue to receive.
pub(super) fn kick_receive(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: no buffer is passed.
    let got = unsafe { libc::recv(fd.as_raw_fd(), ptr::null_mut(), 0, libc::MSG_DONTWAIT) };
    let error = io::Error::last_os_error();
    let is_fine = got >= 0
        || matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR | libc::ENETDOWN | libc::EBUSY));
    if is_fine { Ok(()) } else { Err(error) }
}

/// Reads a message of a socket into two consecutive pieces; returns its length. Excess bytes are lost.
pub(super) fn receive(fd: &OwnedFd, pieces: [&mut [u8]; 2]) -> io::Result<usize> {
    let mut pieces =
        pieces.map(|piece| libc::iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() });
    // SAFETY: zeros are a valid value: null pointers and lengths of zero.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    (message.msg_iov, message.msg_iovlen) = (pieces.as_mut_ptr(), pieces.len());
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    // SAFETY: both pieces are writable for their lengths, and live until the call returns.
    let got = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, flags) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// Calls an `ioctl` on an interface by name. Input and output are in `request`. Returns the name, as the kernel
/// completes it.
pub(super) fn interface_ioctl(
    fd: &impl AsFd,
    operation: c_ulong,
    name: &str,
    request: &mut InterfaceRequest<'_>,
) -> io::Result<String> {
    // SAFETY: zeros are a valid value: an empty name and an empty union.
    let mut argument: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    // One byte is left for the terminating zero.
    if name.len() >= argument.ifr_name.len() || name.contains('\0') {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    for (to, from) in argument.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as _;
    }
    let mut ethtool = [0_u32; 2];
    let mut channels = EthtoolChannels::default();
    match request {
        InterfaceRequest::Flags(flags) => argument.ifr_ifru.ifru_flags = *flags,
        InterfaceRequest::Mtu(mtu) => argument.ifr_ifru.ifru_mtu = *mtu,
        InterfaceRequest::Address(kind, address) => {
            let mut wanted = libc::sockaddr { sa_family: *kind, sa_data: [0; 14] };
            wanted.sa_data.iter_mut().zip(*address).for_each(|(to, from)| *to = from as _);
            argument.ifr_ifru.ifru_hwaddr = wanted;
        }
        InterfaceRequest::Ethtool { command, value } => {
            ethtool = [*command, **value];
            argument.ifr_ifru.ifru_data = ethtool.as_mut_ptr().cast();
        }
        InterfaceRequest::EthtoolChannels(_) => {
            channels.0[0] = GET_CHANNELS;
            argument.ifr_ifru.ifru_data = channels.0.as_mut_ptr().cast();
        }
        InterfaceRequest::Driver(driver) => {
            driver.0[0] = GET_DRIVER;
            argument.ifr_ifru.ifru_data = driver.0.as_mut_ptr().cast();
        }
    }
    // SAFETY: the operations of these requests take an `ifreq`, and through it the words that it points to: two, the
    // nine of `ethtool_channels`, or the 49 of `ethtool_drvinfo`, which has room for 64.
    check(unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), operation as _, &raw mut argument) })?;
    // SAFETY: the kernel has filled the union's field of this operation; each is an integer type.
    unsafe {
        match request {
            InterfaceRequest::Flags(flags) => *flags = argument.ifr_ifru.ifru_flags,
            InterfaceRequest::Mtu(mtu) => *mtu = argument.ifr_ifru.ifru_mtu,
            InterfaceRequest::Address(kind, address) => {
                let given = argument.ifr_ifru.ifru_hwaddr;
                *kind = given.sa_family;
                address.iter_mut().zip(given.sa_data).for_each(|(to, from)| *to = from as u8);
            }
            InterfaceRequest::Ethtool { value, .. } => **value = ethtool[1],
            InterfaceRequest::EthtoolChannels(to) => **to = channels,
            // The kernel has written it in place.
            InterfaceRequest::Driver(_) => {}
        }
    }
    let given = argument.ifr_name.iter().take_while(|byte| **byte != 0);
    Ok(given.map(|byte| char::from(*byte as u8)).collect())
}

/// `SIOCETHTOOL`, which libc does not have.
pub(super) const ETHTOOL: c_ulong = 0x8946;

/// Input and output of an `ioctl` on an interface.
pub(super) enum InterfaceRequest<'a> {
    /// Its flags, or those of a TUN device.
    Flags(i16),
    /// The MTU.
    Mtu(c_int),
    /// Its link type (`ARPHRD_`), and its link address.
    Address(libc::sa_family_t, [u8; 6]),
    /// A setting that is on or off.
    Ethtool {
        /// The ethtool command.
        command: u32,
        /// The current or the new value.
        value: &'a mut u32,
    },
    /// Its numbers of queues.
    EthtoolChannels(&'a mut EthtoolChannels),
    /// Its driver.
    Driver(&'a mut Driver),
}

/// `ETHTOOL_GDRVINFO`. Source: `linux/ethtool.h`.
const GET_DRIVER: u32 = 0x3;

/// The words of `ethtool_drvinfo`: the command, and texts of which the first is the driver's name; with room for
/// additions of later kernels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Driver([u32; 64]);

impl Driver {
    /// An empty answer.
    pub(super) const NONE: Self = Self([0; 64]);
    /// The words of the name.
    const NAME: core::ops::Range<usize> = 1..9;

    /// Its name.
    pub(super) fn name(&self) -> String {
        let bytes = self.0[Self::NAME].iter().flat_map(|word| word.to_ne_bytes());
        bytes.take_while(|byte| *byte != 0).map(char::from).collect()
    }
}

/// `ETHTOOL_GCHANNELS`. Source: `linux/ethtool.h`.
const GET_CHANNELS: u32 = 0x3c;

/// The words of `ethtool_channels`: the command, four maxima, and the numbers of queues that receive, that send, for
/// other uses, and combined.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EthtoolChannels([u32; 9]);

impl EthtoolChannels {
    /// Number of receive queues.
    pub(super) fn receiving(&self) -> u32 {
        self.0[5] + self.0[8]
    }
}

/// Calls an `ioctl` with an integer argument.
pub(super) fn number_ioctl(fd: &impl AsFd, operation: c_ulong, number: c_ulong) -> io::Result<()> {
    // SAFETY: the operation takes an integer, no memory.
    check(unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), operation as _, number) })?;
    Ok(())
}

/// Sets the timer slack of this thread in nanoseconds.
pub(super) fn set_timer_slack(nanos: c_ulong) {
    // SAFETY: the operation takes an integer, no memory. It cannot fail.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, nanos) };
}

/// Returns the index of an interface.
pub(super) fn interface_index(name: &str) -> io::Result<u32> {
    let name = CString::new(name).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the name ends with a zero.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// Converts the return value of a system call to a result.
pub(super) fn check(returned: c_int) -> io::Result<c_int> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

/// Builds the error of [`fail`], with a remedy for the case that the kernel only reports an invalid argument.
pub(super) fn fail_or(
    name: &str,
    doing: &'static str,
    if_invalid: &'static str,
    error: io::Error,
) -> OpenError {
    let is_invalid = error.raw_os_error() == Some(libc::EINVAL);
    let failed = fail(name, doing, error);
    OpenError { help: failed.help.or(is_invalid.then_some(if_invalid)), ..failed }
}

/// Builds the error of a device, with a remedy.
pub(super) fn fail(name: &str, doing: &'static str, error: io::Error) -> OpenError {
    let help = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "run as root, or give the binary the rights: setcap cap_net_admin,cap_net_raw,cap_bpf+ep"
        }
        Some(libc::ENODEV | libc::ENXIO) => {
            "there is no such interface here; `ip link` lists those that there are"
        }
        Some(libc::ENOENT) => "the kernel module of this device is not loaded",
        Some(libc::ENETDOWN) => "the interface is down: `ip link set <name> up`",
        Some(libc::EBUSY) => "another program has this device or queue",
        Some(libc::EOPNOTSUPP | libc::EAFNOSUPPORT | libc::ENOPROTOOPT | libc::EPROTONOSUPPORT) => {
            "the kernel or the interface lacks this feature; another driver of the port may do"
        }
        Some(libc::ENOMEM | libc::ENOBUFS) => {
            "memory that may be locked is short: `ulimit -l`, or a smaller ring"
        }
        Some(libc::EEXIST) => "it is there already",
        Some(libc::EINVAL | libc::ERANGE) if name.len() >= libc::IFNAMSIZ => "a name has at most 15 bytes",
        _ => return OpenError { name: name.to_owned(), doing, error, help: None },
    };
    OpenError { name: name.to_owned(), doing, error, help: Some(help) }
}
