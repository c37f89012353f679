//! What a port needs to know of a network interface, or change; and interfaces that a port makes.

use super::namespace::Namespace;
use super::netlink::{self, Message, Request};
use super::sys::{self, Driver, ETHTOOL, EthtoolChannels, InterfaceRequest, fail};
use super::{Device, OpenError};
use core::ffi::{c_int, c_ulong};
use core::net::IpAddr;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicU16, Ordering};

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

/// Brings an interface up, or takes it down.
///
/// # Errors
/// There is none of this name, or it is not permitted.
pub fn set_up(name: &str, is_up: bool) -> Result<(), OpenError> {
    let change = || {
        let mut flags = InterfaceRequest::Flags(0);
        ioctl(libc::SIOCGIFFLAGS, name, &mut flags)?;
        let InterfaceRequest::Flags(flags) = flags else { unreachable!("it was flags") };
        let up = libc::IFF_UP as i16;
        let flags = if is_up { flags | up } else { flags & !up };
        ioctl(libc::SIOCSIFFLAGS, name, &mut InterfaceRequest::Flags(flags))
    };
    let doing = if is_up { "bring the interface up" } else { "take the interface down" };
    change().map_err(|error| fail(name, doing, error))
}

/// An interface that is asked for what may change: its link, and what goes through it.
#[derive(Debug)]
pub struct LinkState {
    /// It says in which namespace the interface is.
    socket: OwnedFd,
    name: String,
    /// It goes with this.
    pair: Option<Pair>,
    /// The longest MTU that the device of the port has buffers for; [`MTU_ANY`]: it has them for any.
    mtu_max: AtomicU16,
}

/// No device has buffers that are too short.
const MTU_ANY: u16 = u16::MAX;

/// A pair of interfaces that somebody made, and that goes when this does.
#[derive(Debug)]
pub(super) struct Pair {
    name: String,
    /// The namespace that this end is in; None: that of the process. It is open as long as the pair is there: a node
    /// that has given up capabilities may not find it again by its path.
    namespace: Option<Namespace>,
}

impl Pair {
    /// As [`make_veth`], where the namespace that the thread is in has this name.
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
        // What is gone already has been removed by somebody else.
        let remove = || drop(remove(&self.name));
        match &self.namespace {
            None => remove(),
            Some(namespace) => drop(namespace.run(remove)),
        }
    }
}

impl LinkState {
    /// Of an interface in the namespace that the thread is in.
    ///
    /// # Errors
    /// There are too many descriptors.
    pub fn of(name: &str) -> Result<Self, OpenError> {
        let socket = ioctl_socket().map_err(|error| fail(name, "ask for the link", error))?;
        Ok(Self { socket, name: name.to_owned(), pair: None, mtu_max: AtomicU16::new(MTU_ANY) })
    }

    /// The same, of an end of a pair that goes with this.
    pub(super) fn of_pair(self, pair: Option<Pair>) -> Self {
        Self { pair, ..self }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is the end of a pair that was made for it, and goes with it.
    pub fn is_of_pair(&self) -> bool {
        self.pair.is_some()
    }

    /// Whether it is up: it is to be used, and something is at its other end. An interface that is gone is down.
    ///
    /// The driver is asked: where several links change at once, the kernel has it in the flags of most of them, which
    /// are asked where the driver does not say, a second later.
    pub fn is_up(&self) -> bool {
        let mut carrier = 0;
        let mut request = InterfaceRequest::Ethtool { command: GET_LINK, value: &mut carrier };
        match sys::interface_ioctl(&self.socket, ETHTOOL, &self.name, &mut request) {
            Ok(_) => carrier != 0 && self.is_set_up(),
            Err(_) => self.has(libc::IFF_UP | libc::IFF_RUNNING),
        }
    }

    /// Whether it is to be used, whatever is at its other end. An interface that is gone is not.
    fn is_set_up(&self) -> bool {
        self.has(libc::IFF_UP)
    }

    /// The longest packet that it carries, without its link header; None if the interface is gone.
    pub fn mtu(&self) -> Option<u16> {
        let mut mtu = InterfaceRequest::Mtu(0);
        sys::interface_ioctl(&self.socket, libc::SIOCGIFMTU, &self.name, &mut mtu).ok()?;
        let InterfaceRequest::Mtu(mtu) = mtu else { unreachable!("it was an MTU") };
        // No packet of IP is longer.
        Some(u16::try_from(mtu).unwrap_or(u16::MAX))
    }

    /// Its MTU, and the longest one for which its port has buffers, if that is less: longer packets do not come in.
    pub fn mtu_excess(&self) -> Option<(u16, u16)> {
        let mtu_max = self.mtu_max.load(Ordering::Relaxed);
        if mtu_max == MTU_ANY {
            return None;
        }
        self.mtu().filter(|mtu| *mtu > mtu_max).map(|mtu| (mtu, mtu_max))
    }

    /// Notes for which MTU the device of its port has buffers: [`Device::mtu_max`].
    pub(super) fn set_mtu_max(&self, device: Option<&dyn Device>) {
        self.mtu_max.store(device.and_then(Device::mtu_max).unwrap_or(MTU_ANY), Ordering::Relaxed);
    }

    /// Its address on an Ethernet; None if it is on none, or gone.
    pub fn mac(&self) -> Option<[u8; 6]> {
        let mut address = InterfaceRequest::Address(0, [0; 6]);
        sys::interface_ioctl(&self.socket, libc::SIOCGIFHWADDR, &self.name, &mut address).ok()?;
        let InterfaceRequest::Address(kind, address) = address else { unreachable!("it was an address") };
        (kind == libc::ARPHRD_ETHER).then_some(address)
    }

    fn has(&self, wanted: c_int) -> bool {
        let mut flags = InterfaceRequest::Flags(0);
        let asked = sys::interface_ioctl(&self.socket, libc::SIOCGIFFLAGS, &self.name, &mut flags);
        let wanted = wanted as i16;
        matches!((asked, flags), (Ok(_), InterfaceRequest::Flags(flags)) if flags & wanted == wanted)
    }
}

/// Makes a pair of interfaces: what leaves by one comes in at the other. Both are down, and in the network namespace
/// that the thread is in; the peer in another from the beginning, if one is said.
///
/// # Errors
/// A name is taken or too long, or it is not permitted (`CAP_NET_ADMIN`).
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

/// Removes an interface, and the other end of a pair with it.
///
/// # Errors
/// There is none of this name, it cannot be removed, or it is not permitted.
pub fn remove(name: &str) -> Result<(), OpenError> {
    let mut message = Message::new(Request::RemoveLink, &netlink::link(0));
    message.name(LINK_NAME, name);
    message.send().map_err(|error| fail(name, "remove the interface", error))
}

/// Moves an interface to another network namespace, where it is down.
///
/// # Errors
/// There is none of this name here or one there, or it is not permitted.
pub fn move_to(name: &str, namespace: &impl AsFd) -> Result<(), OpenError> {
    let mut message = Message::new(Request::ChangeLink, &netlink::link(0));
    message.name(LINK_NAME, name);
    message.attribute(NAMESPACE, &namespace.as_fd().as_raw_fd().to_ne_bytes());
    message.send().map_err(|error| fail(name, "move the interface to another namespace", error))
}

/// Gives an interface an address, and with it the way to the network of its first `prefix` bits.
///
/// # Errors
/// There is no interface of this name, it has the address, or it is not permitted.
pub fn add_address(name: &str, address: IpAddr, prefix: u8) -> Result<(), OpenError> {
    /// The address of the interface; for a link between two points, of its other end.
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

/// Has all packets of IPv4, or of IPv6, without another way leave by an interface.
///
/// # Errors
/// There is no interface of this name, it is down, there is such a way already, or it is not permitted.
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

/// Sets the longest packet that an interface carries.
///
/// # Errors
/// There is none of this name, it cannot carry such, or it is not permitted.
pub fn set_mtu(name: &str, mtu: u16) -> Result<(), OpenError> {
    ioctl(libc::SIOCSIFMTU, name, &mut InterfaceRequest::Mtu(mtu.into()))
        .map_err(|error| fail(name, "set the MTU", error))
}

/// Lets an interface send and join packets of so many bytes that stand for several: with more than 65,536 they are
/// longer than IP can say (BIG TCP).
///
/// # Errors
/// There is none of this name, it cannot do that, or it is not permitted.
pub fn set_joined_max(name: &str, bytes: u32) -> Result<(), OpenError> {
    /// The largest GSO and GRO packets, then the same of IPv4. Source: `linux/if_link.h`.
    const MAXIMA: [u16; 4] = [41, 58, 63, 64];
    let mut message = Message::new(Request::ChangeLink, &netlink::link(0));
    message.name(LINK_NAME, name);
    MAXIMA.iter().for_each(|maximum| message.attribute(*maximum, &bytes.to_ne_bytes()));
    message.send().map_err(|error| fail(name, "let the interface join packets", error))
}

/// Sets the address of an interface on its Ethernet.
///
/// # Errors
/// There is none of this name, it is on none, the address is of a group, or it is not permitted.
pub fn set_mac(name: &str, mac: [u8; 6]) -> Result<(), OpenError> {
    ioctl(libc::SIOCSIFHWADDR, name, &mut InterfaceRequest::Address(libc::ARPHRD_ETHER, mac))
        .map_err(|error| fail(name, "set the address", error))
}

/// Whether there is an interface of this name in the network namespace that the thread is in.
pub(super) fn is_there(name: &str) -> bool {
    sys::interface_index(name).is_ok()
}

/// Has an interface leave a kind of work to others, or do it itself. An interface whose packets go through native XDP
/// at the other end has to finish its checksums itself: XDP forgets that they are not.
///
/// # Errors
/// There is none of this name, it is not permitted, or the interface cannot change it.
pub fn set_feature(name: &str, feature: Feature, is_on: bool) -> Result<(), OpenError> {
    let mut value = u32::from(is_on);
    let mut request = InterfaceRequest::Ethtool { command: feature.command(), value: &mut value };
    ioctl(ETHTOOL, name, &mut request)
        .map_err(|error| fail(name, "change an offload of the interface", error))
}

/// Whether an interface leaves a kind of work to others; None where it does not say.
pub fn has_feature(name: &str, feature: Feature) -> Option<bool> {
    let mut value = 0;
    // What asks for a setting is right in front of what changes it.
    let mut request = InterfaceRequest::Ethtool { command: feature.command() - 1, value: &mut value };
    ioctl(ETHTOOL, name, &mut request).ok()?;
    Some(value != 0)
}

/// Queues on which packets come in at an interface; None where it does not say.
pub fn receive_queues(name: &str) -> Option<u16> {
    let mut channels = EthtoolChannels::default();
    ioctl(ETHTOOL, name, &mut InterfaceRequest::EthtoolChannels(&mut channels)).ok()?;
    Some(u16::try_from(channels.receiving().max(1)).unwrap_or(u16::MAX))
}

/// What drives an interface, as `veth`; None where it does not say.
pub fn driver(name: &str) -> Option<String> {
    let mut driver = Driver::NONE;
    ioctl(ETHTOOL, name, &mut InterfaceRequest::Driver(&mut driver)).ok()?;
    Some(driver.name())
}

/// `ETHTOOL_GLINK`. Source: `linux/ethtool.h`.
const GET_LINK: u32 = 0x0a;

/// The attribute with the namespace that an interface goes to, by a descriptor of ours.
const NAMESPACE: u16 = 28;
/// The attribute with the name of an interface.
const LINK_NAME: u16 = 3;

/// A socket by which interfaces of the namespace that the thread is in are asked for.
pub(super) fn ioctl_socket() -> io::Result<OwnedFd> {
    sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)
}

fn ioctl(operation: c_ulong, name: &str, request: &mut InterfaceRequest<'_>) -> io::Result<()> {
    let socket = ioctl_socket()?;
    sys::interface_ioctl(&socket, operation, name, request).map(drop)
}
