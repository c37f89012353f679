//! What a port needs to know of a network interface, or change.

use super::OpenError;
use super::sys::{self, InterfaceRequest, fail};
use core::ffi::c_ulong;
use std::io;

/// Work that an interface leaves to the other end or to hardware. Source: `linux/ethtool.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Checksums of packets that leave are left to be finished.
    TransmitChecksum,
    /// TCP leaves in packets that are still to be cut.
    TcpSegmentation,
    /// So does everything else.
    Segmentation,
    /// Packets that come in are joined.
    ReceiveMerging,
}

impl Feature {
    /// All of them. They hang on each other in this order: without checksums there is no segmentation.
    pub const ALL: [Self; 4] =
        [Self::TransmitChecksum, Self::TcpSegmentation, Self::Segmentation, Self::ReceiveMerging];

    fn command(self) -> u32 {
        match self {
            Self::TransmitChecksum => 0x17,
            Self::TcpSegmentation => 0x1f,
            Self::Segmentation => 0x24,
            Self::ReceiveMerging => 0x2c,
        }
    }
}

/// Brings an interface up.
///
/// # Errors
/// There is none of this name, or it is not permitted.
pub fn set_up(name: &str) -> Result<(), OpenError> {
    let bring_up = || {
        let mut flags = InterfaceRequest::Flags(0);
        ioctl(libc::SIOCGIFFLAGS, name, &mut flags)?;
        let InterfaceRequest::Flags(flags) = flags else { unreachable!("it was flags") };
        ioctl(libc::SIOCSIFFLAGS, name, &mut InterfaceRequest::Flags(flags | libc::IFF_UP as i16))
    };
    bring_up().map_err(|error| fail(name, "bring the interface up", error))
}

/// The longest packet that an interface carries, without its link header.
///
/// # Errors
/// There is none of this name.
pub fn mtu(name: &str) -> Result<usize, OpenError> {
    let mut mtu = InterfaceRequest::Mtu(0);
    match ioctl(libc::SIOCGIFMTU, name, &mut mtu) {
        Ok(()) => {
            let InterfaceRequest::Mtu(mtu) = mtu else { unreachable!("it was an MTU") };
            Ok(usize::try_from(mtu).unwrap_or(0))
        }
        Err(error) => Err(fail(name, "read the MTU", error)),
    }
}

/// Has an interface leave a kind of work to others, or do it itself. An interface whose packets go through native XDP
/// at the other end has to finish its checksums itself: XDP forgets that they are not.
///
/// # Errors
/// There is none of this name, it is not permitted, or the interface cannot change it.
pub fn set_feature(name: &str, feature: Feature, is_on: bool) -> Result<(), OpenError> {
    let mut value = u32::from(is_on);
    let mut request = InterfaceRequest::Ethtool { command: feature.command(), value: &mut value };
    /// `SIOCETHTOOL`, which libc does not have.
    const ETHTOOL: c_ulong = 0x8946;
    ioctl(ETHTOOL, name, &mut request)
        .map_err(|error| fail(name, "change an offload of the interface", error))
}

fn ioctl(operation: c_ulong, name: &str, request: &mut InterfaceRequest<'_>) -> io::Result<()> {
    let socket = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    sys::interface_ioctl(&socket, operation, name, request).map(drop)
}
