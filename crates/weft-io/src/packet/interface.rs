//! Reads and changes network interfaces, and creates veth pairs.

use super::namespace::Namespace;
use super::netlink::{self, Message, Request};
use super::sys::{self, Driver, ETHTOOL, EthtoolChannels, InterfaceRequest, fail};
use super::{Device, OpenError};
use core::ffi::{c_int, c_ulong};
use core::net::IpAddr;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicU16, Ordering};

/// An offload of an interface. Source: `linux/ethtool.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Checksums of sent packets are left unfinished.
    TransmitChecksum,
    /// TCP packets are sent unsegmented.
    TcpSegmentation,
    /// Other packets are sent unsegmented, too.
    Segmentation,
    /// Received packets are merged.
    ReceiveMerging,
}

impl Feature {
    /// All of them, in order of dependency: without checksums there is no segmentation.
    pub const ALL: [Self; 4] =
        [Self::TransmitChecksum, Self::TcpSegmentation, Self::Segmentation, Self::ReceiveMerging];

    /// Returns the ethtool command that sets this feature. The number of the command that reads it is one less.
    fn command(self) -> u32 {
        match self {
            Self::TransmitChecksum => 0x17,
            Self::TcpSegmentation => 0x1f,
            Self::Segmentation => 0x24,
            Self::ReceiveMerging => 0x2c,
        }
    }
}

/// Brings an interface up, or takes it down.
///
/// # Errors
/// There is no such interface, or permission is denied.
pub fn set_up(name: &str, is_up: bool) -> Result<(), OpenError> {
    let change = || {
        let mut flags = InterfaceRequest::Flags(0);
        ioctl(libc::SIOCGIFFLAGS, name, &mut flags)?;
        let InterfaceRequest::Flags(flags) = flags else { unreachable!("the request was for flags") };
        let up = libc::IFF_UP as i16;
        let flags = if is_up { flags | up } else { flags & !up };
        ioctl(libc::SIOCSIFFLAGS, name, &mut InterfaceRequest::Flags(flags))
    };
    let doing = if is_up { "bring the interface up" } else { "take the interface down" };
    change().map_err(|error| fail(name, doing, error))
}

/// An open interface whose carrier, MTU and packet limits can be queried.
#[derive(Debug)]
pub struct LinkState {
    /// Its network namespace is that of the interface.
    socket: OwnedFd,
    name: String,
    /// Dropping this removes the pair.
    pair: Option<Pair>,
    /// The largest MTU for which the port's device has buffers; [`MTU_ANY`]: it fits any.
    mtu_max: AtomicU16,
}

/// No device has a smaller limit.
const MTU_ANY: u16 = u16::MAX;

/// A veth pair that a port created; dropping it removes the pair.
#[derive(Debug)]
pub(super) struct Pair {
    name: String,
    /// The namespace of this end; None: that of the process. It stays open as long as the pair exists: a node that has
    /// dropped capabilities may not be able to open its path again.
    namespace: Option<Namespace>,
}

impl Pair {
    /// As [`make_veth`], for a thread in the namespace of this name.
    pub(super) fn make(
        name: &str,
        peer: &str,
        namespace: Option<&str>,
        there: Option<&Namespace>,
    ) -> Result<Self, OpenError> {
        let namespace = namespace.map(Namespace::open).transpose()?;
        make_veth(name, peer, there)?;
        Ok(Self { name: name.to_owned(), namespace })
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // If it is gone already, it has been removed externally.
        let remove = || drop(remove(&self.name));
        match &self.namespace {
            None => remove(),
            Some(namespace) => drop(namespace.run(remove)),
        }
    }
}

impl LinkState {
    /// Opens an interface in the thread's namespace.
    ///
    /// # Errors
    /// There are too many descriptors.
    pub fn of(name: &str) -> Result<Self, OpenError> {
        let socket = ioctl_socket().map_err(|error| fail(name, "ask for the link", error))?;
        Ok(Self { socket, name: name.to_owned(), pair: None, mtu_max: AtomicU16::new(MTU_ANY) })
    }

    /// Takes ownership of the pair that this end belongs to.
    pub(super) fn of_pair(self, pair: Option<Pair>) -> Self {
        Self { pair, ..self }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is an end of a pair that the port created, and will remove.
    pub fn is_of_pair(&self) -> bool {
        self.pair.is_some()
    }

    /// Whether it is up and has a carrier. A removed interface is down.
    ///
    /// This queries the driver: when several links change at once, the kernel updates the flags of most of them a
    /// second later. The flags are used only if the driver has no answer.
    pub fn is_up(&self) -> bool {
        let mut carrier = 0;
        let mut request = InterfaceRequest::Ethtool { command: GET_LINK, value: &mut carrier };
        match sys::interface_ioctl(&self.socket, ETHTOOL, &self.name, &mut request) {
            Ok(_) => carrier != 0 && self.is_set_up(),
            Err(_) => self.has(libc::IFF_UP | libc::IFF_RUNNING),
        }
    }

    /// Whether it is administratively up. A removed interface is not.
    fn is_set_up(&self) -> bool {
        self.has(libc::IFF_UP)
    }

    /// Its MTU; None if the interface is gone.
    pub fn mtu(&self) -> Option<u16> {
        let mut mtu = InterfaceRequest::Mtu(0);
        sys::interface_ioctl(&self.socket, libc::SIOCGIFMTU, &self.name, &mut mtu).ok()?;
        let InterfaceRequest::Mtu(mtu) = mtu else { unreachable!("the request was for an MTU") };
        // No IP packet is longer.
        Some(u16::try_from(mtu).unwrap_or(u16::MAX))
    }

    /// Its MTU and the largest one for which the port has buffers, if that is smaller: longer packets are not received.
    pub fn mtu_excess(&self) -> Option<(u16, u16)> {
        let mtu_max = self.mtu_max.load(Ordering::Relaxed);
        if mtu_max == MTU_ANY {
            return None;
        }
        self.mtu().filter(|mtu| *mtu > mtu_max).map(|mtu| (mtu, mtu_max))
    }

    /// Sets the largest MTU for which the port's device has buffers: [`Device::mtu_max`].
    pub(super) fn set_mtu_max(&self, device: Option<&dyn Device>) {
        self.mtu_max.store(device.and_then(Device::mtu_max).unwrap_or(MTU_ANY), Ordering::Relaxed);
    }

    /// Its MAC address; None if it has none, or is gone.
    pub fn mac(&self) -> Option<[u8; 6]> {
        let mut address = InterfaceRequest::Address(0, [0; 6]);
        sys::interface_ioctl(&self.socket, libc::SIOCGIFHWADDR, &self.name, &mut address).ok()?;
        let InterfaceRequest::Address(kind, address) = address else {
            unreachable!("the request was for an address")
        };
        (kind == libc::ARPHRD_ETHER).then_some(address)
    }

    /// Whether the interface has all of these flags. False if they cannot be read.
    fn has(&self, wanted: c_int) -> bool {
        let mut flags = InterfaceRequest::Flags(0);
        let asked = sys::interface_ioctl(&self.socket, libc::SIOCGIFFLAGS, &self.name, &mut flags);
        let wanted = wanted as i16;
        matches!((asked, flags), (Ok(_), InterfaceRequest::Flags(flags)) if flags & wanted == wanted)
    }
}

/// Creates a veth pair: packets sent by one end arrive at the other. Both ends are down, and in the thread's network
/// namespace; the peer in `there`, if given.
///
/// # Errors
/// A name is in use or too long, or permission is denied (`CAP_NET_ADMIN`).
pub fn make_veth(name: &str, peer: &str, there: Option<&Namespace>) -> Result<(), OpenError> {
    const LINK_INFO: u16 = 18;
    const INFO_KIND: u16 = 1;
    const INFO_DATA: u16 = 2;
    const VETH_PEER: u16 = 1;
    let mut message = Message::new(Request::NewLink, &netlink::link(0));
    message.name(LINK_NAME, name);
    message.nested(LINK_INFO, |message| {
        message.attribute(INFO_KIND, b"veth");
        message.nested(INFO_DATA, |message| {
            message.nested(VETH_PEER, |message| {
                message.raw(&netlink::link(0));
                message.name(LINK_NAME, peer);
                if let Some(there) = there {
                    message.attribute(NAMESPACE, &there.as_fd().as_raw_fd().to_ne_bytes());
                }
            });
        });
    });
    message.send().map_err(|error| fail(name, "make the pair of interfaces", error))
}

/// Removes an interface, and the other end of its pair.
///
/// # Errors
/// There is no such interface, it cannot be removed, or permission is denied.
pub fn remove(name: &str) -> Result<(), OpenError> {
    let mut message = Message::new(Request::RemoveLink, &netlink::link(0));
    message.name(LINK_NAME, name);
    message.send().map_err(|error| fail(name, "remove the interface", error))
}

/// Moves an interface to another network namespace, where it is down.
///
/// # Errors
/// There is no such interface here or one of this name there, or permission is denied.
pub fn move_to(name: &str, namespace: &impl AsFd) -> Result<(), OpenError> {
    let mut message = Message::new(Request::ChangeLink, &netlink::link(0));
    message.name(LINK_NAME, name);
    message.attribute(NAMESPACE, &namespace.as_fd().as_raw_fd().to_ne_bytes());
    message.send().map_err(|error| fail(name, "move the interface to another namespace", error))
}

/// Adds an address to an interface, and a route to the network of its first `prefix` bits.
///
/// # Errors
/// There is no such interface, it has the address, or permission is denied.
pub fn add_address(name: &str, address: IpAddr, prefix: u8) -> Result<(), OpenError> {
    /// The interface's address; on a point-to-point link the peer's.
    const ADDRESS: u16 = 1;
    const LOCAL: u16 = 2;
    let add = || {
        let fixed = netlink::address(address.is_ipv6(), prefix, sys::interface_index(name)?);
        let mut message = Message::new(Request::NewAddress, &fixed);
        for kind in [ADDRESS, LOCAL] {
            match address {
                IpAddr::V4(address) => message.attribute(kind, &address.octets()),
                IpAddr::V6(address) => message.attribute(kind, &address.octets()),
            }
        }
        message.send()
    };
    add().map_err(|error| fail(name, "give the interface an address", error))
}

/// Makes an interface the default route of IPv4, or of IPv6.
///
/// # Errors
/// There is no such interface, it is down, there is a default route already, or permission is denied.
pub fn add_default_route(name: &str, is_v6: bool) -> Result<(), OpenError> {
    const INTERFACE: u16 = 4;
    let add = || {
        let index = sys::interface_index(name)?;
        let mut message = Message::new(Request::NewRoute, &netlink::route_by_interface(is_v6));
        message.attribute(INTERFACE, &index.to_ne_bytes());
        message.send()
    };
    add().map_err(|error| fail(name, "send what has no other way by the interface", error))
}

/// The MTU of an interface.
///
/// # Errors
/// There is no such interface.
pub fn mtu(name: &str) -> Result<usize, OpenError> {
    let mut mtu = InterfaceRequest::Mtu(0);
    match ioctl(libc::SIOCGIFMTU, name, &mut mtu) {
        Ok(()) => {
            let InterfaceRequest::Mtu(mtu) = mtu else { unreachable!("the request was for an MTU") };
            Ok(usize::try_from(mtu).unwrap_or(0))
        }
        Err(error) => Err(fail(name, "read the MTU", error)),
    }
}

/// Sets the MTU of an interface.
///
/// # Errors
/// There is no such interface, the MTU is out of range, or permission is denied.
pub fn set_mtu(name: &str, mtu: u16) -> Result<(), OpenError> {
    ioctl(libc::SIOCSIFMTU, name, &mut InterfaceRequest::Mtu(mtu.into()))
        .map_err(|error| fail(name, "set the MTU", error))
}

/// Sets the largest size of merged and unsegmented packets of an interface. Above 65,536 bytes they exceed the IP
/// length field (BIG TCP).
///
/// # Errors
/// There is no such interface, it does not support this, or permission is denied.
pub fn set_joined_max(name: &str, bytes: u32) -> Result<(), OpenError> {
    /// The largest GSO and GRO packets, then the same of IPv4. Source: `linux/if_link.h`.
    const MAXIMA: [u16; 4] = [41, 58, 63, 64];
    let mut message = Message::new(Request::ChangeLink, &netlink::link(0));
    message.name(LINK_NAME, name);
    MAXIMA.iter().for_each(|maximum| message.attribute(*maximum, &bytes.to_ne_bytes()));
    message.send().map_err(|error| fail(name, "let the interface join packets", error))
}

/// Sets the MAC address of an interface.
///
/// # Errors
/// There is no such interface, it has no MAC address, the address is a group address, or permission is denied.
pub fn set_mac(name: &str, mac: [u8; 6]) -> Result<(), OpenError> {
    ioctl(libc::SIOCSIFHWADDR, name, &mut InterfaceRequest::Address(libc::ARPHRD_ETHER, mac))
        .map_err(|error| fail(name, "set the address", error))
}

/// Whether the thread's network namespace has an interface of this name.
pub(super) fn is_there(name: &str) -> bool {
    sys::interface_index(name).is_ok()
}

/// Turns an offload of an interface on or off. An interface whose far end uses native XDP must finish its checksums
/// itself, because XDP loses the information that they are unfinished.
///
/// # Errors
/// There is no such interface, permission is denied, or the interface cannot change it.
pub fn set_feature(name: &str, feature: Feature, is_on: bool) -> Result<(), OpenError> {
    let mut value = u32::from(is_on);
    let mut request = InterfaceRequest::Ethtool { command: feature.command(), value: &mut value };
    ioctl(ETHTOOL, name, &mut request)
        .map_err(|error| fail(name, "change an offload of the interface", error))
}

/// Whether an offload of an interface is on; None if unknown.
pub fn has_feature(name: &str, feature: Feature) -> Option<bool> {
    let mut value = 0;
    // The number of the get command is one less than that of the set command.
    let mut request = InterfaceRequest::Ethtool { command: feature.command() - 1, value: &mut value };
    ioctl(ETHTOOL, name, &mut request).ok()?;
    Some(value != 0)
}

/// Number of receive queues of an interface; None if unknown.
pub fn receive_queues(name: &str) -> Option<u16> {
    let mut channels = EthtoolChannels::default();
    ioctl(ETHTOOL, name, &mut InterfaceRequest::EthtoolChannels(&mut channels)).ok()?;
    Some(u16::try_from(channels.receiving().max(1)).unwrap_or(u16::MAX))
}

/// The driver of an interface, such as `veth`; None if unknown.
pub fn driver(name: &str) -> Option<String> {
    let mut driver = Driver::NONE;
    ioctl(ETHTOOL, name, &mut InterfaceRequest::Driver(&mut driver)).ok()?;
    Some(driver.name())
}

/// `ETHTOOL_GLINK`. Source: `linux/ethtool.h`.
const GET_LINK: u32 = 0x0a;

/// The attribute with the target namespace, as a descriptor.
const NAMESPACE: u16 = 28;
/// The attribute with the name of an interface.
const LINK_NAME: u16 = 3;

/// A socket for queries about interfaces of the thread's namespace.
pub(super) fn ioctl_socket() -> io::Result<OwnedFd> {
    sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)
}

fn ioctl(operation: c_ulong, name: &str, request: &mut InterfaceRequest<'_>) -> io::Result<()> {
    let socket = ioctl_socket()?;
    sys::interface_ioctl(&socket, operation, name, request).map(drop)
}
